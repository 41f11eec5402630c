"""Postrider, Postfix with OpenDKIM, Exim and Haraka do the same work for the same receiver, in turns.

Each round runs every system once, in a new folder: the same messages, DKIM with RSA-2048, and each system's default
durability. Markdown goes to stdout, a JSON line for each row and everything else to stderr."""

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import shutil
import sys
import tempfile
from math import isnan
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "peers"))

import table  # noqa: E402
from client import Load  # noqa: E402
from keys import SigningKey  # noqa: E402
from letters import SITES, Letters  # noqa: E402
from row import Row, Task, measure  # noqa: E402
from sink import Sink  # noqa: E402
from support.knot import Knot  # noqa: E402
from support.pki import Authority  # noqa: E402
from support.wait import until  # noqa: E402
from systems import SYSTEMS, World  # noqa: E402

_DATA_ROOT = Path("/var/tmp")  # on a disk where /tmp is memory, and short: there are sockets below it
_TTL = 3600  # seconds, as domains have it: Postrider is the only one that asks


def main() -> int:
    """Measures, prints, and fails if a row is invalid."""
    options = _options()
    with contextlib.ExitStack() as ending:
        folder = Path(tempfile.mkdtemp(prefix="peers-", dir=options.data_root))
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)  # Postfix's daemons give up root, and walk through.
        task = _task(folder, options, ending)
        ceiling = _ceiling(task)
        kinds = [SYSTEMS[name] for name in options.systems]
        rounds = [[_row(kind, folder, number, task) for kind in kinds] for number in range(options.rounds)]
        print(table.report(_head(options, task, rounds, ceiling), rounds))
    return 1 if any(row.faults for rows in rounds for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/peers/run", description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=5000, help="of each row")
    parser.add_argument("--warm-up", type=int, default=2000, help="messages before (Haraka is compiled on the way)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=10240, help="bytes of text and html together")
    parser.add_argument("--clients", type=int, default=64, help="kept connections")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="the first is compared to")
    parser.add_argument("--data-root", type=Path, default=_DATA_ROOT, help="on the disk that is to be measured")
    return parser.parse_args()


def _task(folder: Path, options: argparse.Namespace, ending: contextlib.ExitStack) -> Task:
    """Creates names, receiver, key and messages for the whole run."""
    knot = Knot(folder / "knot", ttl=_TTL)
    ending.callback(knot.close)
    for site in SITES:
        knot.mail_server(site, f"mx.{site}")
    sink = Sink()
    ending.callback(sink.close)
    authority, key = Authority(folder / "pki"), SigningKey(knot)
    world = World(knot, authority, key, sink.port, options.clients)
    return Task(Letters(options.size), sink, world, options.messages, options.warm_up)


def _ceiling(task: Task) -> float:
    """Returns the messages per second from the load straight into the sink: an upper bound for every system."""
    sent = Load(task.letters, task.sink.port, task.world.clients, range(task.messages)).run()
    until("the sink has all", lambda: task.sink.taken >= task.messages)
    task.sink.messages()
    return task.messages / (sent.ended - sent.began)


def _row(kind, folder: Path, number: int, task: Task) -> Row:
    row = measure(kind, folder / f"{kind.__name__.lower()}{number}", task)
    figures = {
        name: round(value, 3) if isinstance(value, float) else value for name, value in dataclasses.asdict(row).items()
    }
    print(json.dumps({"round": number + 1} | figures), file=sys.stderr, flush=True)
    return row


def _head(options: argparse.Namespace, task: Task, rounds: list[list[Row]], ceiling: float) -> list[str]:
    """Returns the measured setup and machine, and reasons for doubt."""
    letters, rows = task.letters, [row for rows in rounds for row in rows]
    ratio = f"{letters.ratio:.1f}:1" if letters.ratio else "unknown"
    others = max(row.others for row in rows)
    disk = (
        "what reached the disk is not told here"
        if isnan(others)
        else f"others wrote up to {others:.0f} KB/s to the disk"
    )
    return [
        f"{options.messages} messages of {letters.bytes:.0f} bytes (zstd {ratio}) from {options.clients} clients, "
        f"{options.rounds} rounds, median (least–most), on {_machine()}.",
        f"The load generator alone sends {ceiling:.0f}/s to the sink, and it was at most "
        f"{max(row.client_busy for row in rows):.0%} busy; {disk}.",
    ]


def _machine() -> str:
    models = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").open() if line.startswith("model name")]
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} × {model}, {gigabytes:.0f} GiB, Linux {platform.release()}"


if __name__ == "__main__":
    sys.exit(main())
