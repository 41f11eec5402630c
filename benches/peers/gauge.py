"""Cost of a system, measured from outside: a control group for CPU, `/proc` for memory and disk.

A control group counts the CPU time of every process started in it, including those that live for one message and are
never waited for, as Exim's. Summing only over living processes and their waited-for children would report an eighth of
Exim's cost. Only the group's own counter is used, which needs no controller, so any mounted cgroup2 works.

Bytes are reported twice, because each figure has a flaw. `/proc/diskstats` counts the bytes that reached the device,
from every process of the machine, so measure on an idle machine. `write_bytes` of `/proc/PID/io` counts dirtied pages:
also of deleted files, and on ext4 with large folios up to 1 MiB for 4 KB written into a preallocated file."""

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
        """Returns the difference between this reading and a later one."""
        return Reading(
            later.cpu - self.cpu,
            later.written - self.written,
            later.device - self.device,
            later.flushes - self.flushes,
        )


class Group:
    """A control group. Processes started inside `with group:` belong to it."""

    def __init__(self, name: str):
        mount = _cgroup2()
        self.folder = mount / f"postrider-{name}-{os.getpid()}"
        own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        self.outside = mount / own.removeprefix("0::").lstrip("/")
        self.folder.mkdir()

    def __enter__(self):
        # Children start in their parent's group, so none can escape.
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_):
        (self.outside / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self) -> list[int]:
        """Returns its living processes."""
        return [int(word) for word in (self.folder / "cgroup.procs").read_text().split()]

    def cpu(self) -> float:
        """Returns the CPU seconds of all its processes, including ended ones."""
        return int((self.folder / "cpu.stat").read_text().split()[1]) / 1e6

    def close(self):
        """Kills its remaining processes (Exim's deliveries have no parent that would), and removes it."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        until("the group is empty", lambda: not self.pids())
        self.folder.rmdir()


class Disk:
    """The block device of a folder."""

    def __init__(self, folder: Path):
        device = os.stat(folder).st_dev
        self.numbers = [str(os.major(device)), str(os.minor(device))]

    def read(self) -> tuple[float, float]:
        """Returns the bytes written since the machine started, and the cache flushes; NaN if they are not reported."""
        os.sync()  # What was written so far belongs to those who wrote it.
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if fields[:2] == self.numbers:
                return int(fields[9]) * _SECTOR, int(fields[18])
        return nan, nan


def reading(processes: Group, disk: Disk) -> Reading:
    """Reads all counters."""
    bytes, flushes = disk.read()
    written = sum(_number(pid, "io", "write_bytes:") for pid in processes.pids())
    return Reading(processes.cpu(), written, bytes, flushes)


def memory(processes: Group) -> int:
    """Returns the memory in bytes: proportional set sizes, so that shared memory counts once."""
    return sum(_number(pid, "smaps_rollup", "Pss:") for pid in processes.pids()) * 1024


def _number(pid: int, file: str, name: str) -> int:
    """Returns a number from a file in /proc; 0 if the process has just ended (its parent has its counters then)."""
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
