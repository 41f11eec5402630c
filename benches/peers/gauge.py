"""What a system costs, read from outside: a control group for CPU, `/proc` for memory and disk.

A control group's clock counts every process that was ever started in it, those included that live for one message
(Exim's) and that nobody waits for. Only the group's own counter is used, which needs no controller; so it is there
with any mounted cgroup2. Where none can be made, CPU is summed over the processes that live and the children they have
waited for, and that is too little for Exim.

Bytes are told twice, for each figure lies in its own way. `/proc/diskstats` counts what reached the device, from every
process of the machine: measure in a quiet moment. `write_bytes` of `/proc/PID/io` counts dirtied pages: of deleted
files too, and on ext4 with large folios up to 1 MiB for 4 KB written into a preallocated file.
"""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from support.wait import until

_SECTOR = 512  # the unit of /proc/diskstats, whatever the device's own is
_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Reading:
    """Counters at one moment."""

    cpu: float  # seconds
    written: int  # write_bytes
    device: int  # octets
    flushes: int

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

    kind = "cgroup cpu.stat"

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


class Sessions:
    """Instead of a control group: the processes of the sessions that were begun inside `with sessions:`."""

    kind = "/proc/PID/stat, waited-for children included"

    def __enter__(self):
        self.before = self._sessions(os.getpid())

    def __exit__(self, *_):
        self.leaders = self._sessions(os.getpid()) - self.before

    def pids(self) -> list[int]:
        """The processes that live in them now."""
        return [pid for pid, fields in _processes() if int(fields[3]) in self.leaders]

    def cpu(self) -> float:
        """Seconds of CPU: user and system time, own and of waited-for children (proc(5), fields 14 to 17)."""
        own = [fields for _, fields in _processes() if int(fields[3]) in self.leaders]
        return sum(int(field) for fields in own for field in fields[11:15]) * _TICK

    def close(self):
        """Nothing is left."""

    def _sessions(self, parent: int) -> set[int]:
        return {int(fields[3]) for _, fields in _processes() if int(fields[1]) == parent}


def group(name: str) -> Group | Sessions:
    """The better of the two that this machine has."""
    try:
        return Group(name)
    except (OSError, StopIteration):
        return Sessions()


class Disk:
    """The block device under a folder."""

    def __init__(self, folder: Path):
        device = os.stat(folder).st_dev
        self.numbers = [str(os.major(device)), str(os.minor(device))]

    def read(self) -> tuple[int, int]:
        """Octets written to it since the machine started, and flushes of its cache; zeros where it is not told of."""
        os.sync()  # What was written so far belongs to those who wrote it.
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if fields[:2] == self.numbers:
                return int(fields[9]) * _SECTOR, int(fields[18])
        return 0, 0


def reading(processes: Group | Sessions, disk: Disk) -> Reading:
    """All counters now."""
    octets, flushes = disk.read()
    written = sum(_number(pid, "io", "write_bytes:") for pid in processes.pids())
    return Reading(processes.cpu(), written, octets, flushes)


def memory(processes: Group | Sessions) -> int:
    """Octets of memory now: proportional set sizes, so that what processes share is counted once."""
    return sum(_number(pid, "smaps_rollup", "Pss:") for pid in processes.pids()) * 1024


def _number(pid: int, file: str, name: str) -> int:
    """A number of a file in /proc; 0 where the process has just ended (its parent has its counters then)."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(name)), 0)


def _processes() -> list[tuple[int, list[str]]]:
    """All processes with the fields of `stat` behind the name, which may hold anything."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((int(folder.name), (folder / "stat").read_text().rpartition(")")[2].split()))
        except OSError:
            continue
    return found


def _cgroup2() -> Path:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise OSError("no cgroup2 is mounted")
