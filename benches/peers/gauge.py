"""What a system costs, read from outside: a control group for CPU, `/proc` for memory and disk.

A control group's clock counts every process that was ever started in it, those included that live for one message
(Exim's) and that nobody waits for: summed over the living and their waited-for children, Exim would cost an eighth.
Only the group's own counter is used, which needs no controller; so any mounted cgroup2 will do.

Bytes are told twice, for each figure lies in its own way. `/proc/diskstats` counts what reached the device, from every
process of the machine: measure in a quiet moment. `write_bytes` of `/proc/PID/io` counts dirtied pages: of deleted
files too, and on ext4 with large folios up to 1 MiB for 4 KB written into a preallocated file.
"""

import os
import signal
from dataclasses import dataclass
from math import nan
from pathlib import Path

from support.wait import until

_SECTOR = 512  # the unit of /proc/diskstats, whatever the device's own is


@dataclass
class Reading:
    """Counters at one moment."""

    cpu: float  # seconds
    written: int  # write_bytes
    device: float  # bytes
    flushes: float

    def until(self, later: "Reading") -> "Reading":
        """What happened from this reading to the later one."""
        return Reading(
            later.cpu - self.cpu,
            later.written - self.written,
            later.device - self.device,
            later.flushes - self.flushes,
        )


class Group:
    """A control group. What is started inside `with group:` belongs to it."""

    def __init__(self, name: str):
        mount = _cgroup2()
        self.folder = mount / f"postrider-{name}-{os.getpid()}"
        own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        self.outside = mount / own.removeprefix("0::").lstrip("/")
        self.folder.mkdir()

    def __enter__(self):
        # Children are born into the group of their parent, so that none can slip away.
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_):
        (self.outside / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self) -> list[int]:
        """The processes that live in it now."""
        return [int(word) for word in (self.folder / "cgroup.procs").read_text().split()]

    def cpu(self) -> float:
        """Seconds of CPU that all of its processes have used, dead ones included."""
        return int((self.folder / "cpu.stat").read_text().split()[1]) / 1e6

    def close(self):
        """Ends what is left of it (Exim's deliveries have no parent that would), and removes it."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        until("the group is empty", lambda: not self.pids())
        self.folder.rmdir()


class Disk:
    """The block device under a folder."""

    def __init__(self, folder: Path):
        device = os.stat(folder).st_dev
        self.numbers = [str(os.major(device)), str(os.minor(device))]

    def read(self) -> tuple[float, float]:
        """Bytes written to it since the machine started, and flushes of its cache; not numbers where none are told."""
        os.sync()  # What was written so far belongs to those who wrote it.
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if fields[:2] == self.numbers:
                return int(fields[9]) * _SECTOR, int(fields[18])
        return nan, nan


def reading(processes: Group, disk: Disk) -> Reading:
    """All counters now."""
    bytes, flushes = disk.read()
    written = sum(_number(pid, "io", "write_bytes:") for pid in processes.pids())
    return Reading(processes.cpu(), written, bytes, flushes)


def memory(processes: Group) -> int:
    """Bytes of memory now: proportional set sizes, so that what processes share is counted once."""
    return sum(_number(pid, "smaps_rollup", "Pss:") for pid in processes.pids()) * 1024


def _number(pid: int, file: str, name: str) -> int:
    """A number of a file in /proc; 0 where the process has just ended (its parent has its counters then)."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(name)), 0)


def _cgroup2() -> Path:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise OSError("no cgroup2 is mounted")
