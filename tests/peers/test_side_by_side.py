"""The comparison with other systems (benches/peers): it still runs, and rejects wrong rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_BENCH = Path(__file__).resolve().parents[2] / "benches" / "peers"
sys.path.append(str(_BENCH))

import gauge  # noqa: E402
from client import Load  # noqa: E402
from keys import SigningKey  # noqa: E402
from letters import SITES, Letters  # noqa: E402
from sink import Sink  # noqa: E402
from support.roots import missing, private_root  # noqa: E402


@pytest.fixture
def counting_sink():
    """The comparison's own receiver."""
    sink = Sink()
    yield sink
    sink.close()


def _need_all():
    """Skips if a system or a measuring program is missing."""
    for name in ("knot", "postfix", "opendkim", "exim", "haraka"):
        private_root(name) or missing(f"{name}'s private root")
    if os.geteuid() != 0:
        missing("root, without whom Postfix does not start,")
    try:
        probe = gauge.Group("probe")
        with probe:
            probe.cpu()
        probe.close()
    except (OSError, StopIteration):
        pytest.skip("no control group can be made and entered")


def test_every_system_delivers_the_load_and_is_measured(workdir):
    _need_all()
    few = ["--messages", "20", "--warm-up", "10", "--rounds", "1", "--clients", "4", "--data-root", str(workdir)]
    done = subprocess.run([sys.executable, str(_BENCH / "main.py"), *few], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [row["system"].split()[0] for row in rows] == ["Postrider", "Postfix", "Exim", "Haraka", "Postrider"]
    for row in rows:
        assert row["cpu"] > 0 and row["memory"] > 0 and row["delivered"] > 0, row
        assert row["faults"] == [] and f"| {row['system']} |" in done.stdout
    assert list(workdir.iterdir()) == [], "no files are left"


def test_missing_duplicate_and_unsigned_messages_are_found(counting_sink, knot):
    SigningKey(knot)
    letters = Letters(2000)
    for numbers in (range(4), range(2)):
        assert Load(letters, counting_sink.port, 2, numbers).run().refused == []
    arrived = counting_sink.messages()
    assert arrived.faults(range(5), knot) == ["1 did not arrive", "2 came twice", "signed by []"]
    assert arrived.faults(range(3), knot)[1:] == ["1 were sent by nobody", "signed by []"]


def test_a_refused_recipient_does_not_count_as_accepted(postfix):
    refused = Load(Letters(2000), postfix.port, 2, range(3)).run().refused
    assert len(refused) == 3 and all(b"Relay access denied" in answer for answer in refused)


def test_all_test_messages_have_the_requested_size_and_the_same_text_in_both_forms():
    letters = Letters(10240)
    assert 0.95 * 10240 < letters.bytes <= 10240
    for number in range(3):
        request = json.loads(letters.as_json(number))
        assert request["to"] == f"customer{number}@{SITES[number]}"
        assert f"Subject: {request['subject']}\r\n".encode() in letters.as_mime(number)
        assert letters.as_mime(number).endswith(b"\r\n.\r\n")
