"""One row: a fresh system, a warm-up, the measured messages, and the wait until no work is left.

Then it checks that every message arrived once and is signed. If not, the row has faults, and its figures are
invalid."""

import contextlib
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from math import nan
from pathlib import Path

import gauge
from client import Load, Running
from letters import Letters
from sink import Sink
from systems import World

_LOOK_SECONDS = 0.005
_WEIGH_SECONDS = 0.25  # between two looks at memory, which take milliseconds with Postfix's many processes
_STALL_SECONDS = 90
_LOG_TAIL = 2000


@dataclass
class Task:
    """Input of every system."""

    letters: Letters
    sink: Sink
    world: World
    messages: int
    warm_up: int


@dataclass
class Row:
    """Result of one system; figures are per message if possible. A failed row has none."""

    system: str  # with its version
    faults: list[str] = field(default_factory=list)
    accepted: float = nan  # a second
    delivered: float = nan  # a second
    cpu: float = nan  # ms
    signatures: float = nan  # CPU over the CPU of one RSA-2048 signature
    device: float = nan  # KB that reached the disk
    write_bytes: float = nan  # KB, of /proc/PID/io
    flushes: float = nan
    memory: float = nan  # MB at most
    sink_bytes: float = nan
    client_busy: float = nan  # share of the time
    others: float = nan  # KB a second that reached the disk just before, while the system was idle
    load: float = nan


def measure(system_kind, folder: Path, task: Task) -> Row:
    """One row of this system, in a new folder."""
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        processes = gauge.Group(folder.name)
        ending.callback(processes.close)
        with processes:
            system = system_kind(folder, task.world)
        ending.callback(system.close)
        name = system.title()
        try:
            return _Measurement(system, processes, folder, task).row(name)
        except AssertionError as error:
            sys.stderr.write(f"{name}: {error}\n{system.logged()[-_LOG_TAIL:]}\n")
            return Row(name, [str(error)])


class _Measurement:
    def __init__(self, system, processes, folder: Path, task: Task):
        self.system, self.processes, self.task = system, processes, task
        self.disk = gauge.Disk(folder)
        self.peak, self.weighed = 0, 0.0

    def row(self, name: str) -> Row:
        task, sink = self.task, self.task.sink
        sink.messages()  # Late messages of a failed row don't belong to this one.
        taken = sink.taken
        self._settled(self._load(range(task.warm_up)), taken + task.warm_up)
        unit, others = self._unit()
        taken, load = sink.taken, os.getloadavg()[0]
        before = gauge.reading(self.processes, self.disk)
        running = self._load(range(task.warm_up, task.warm_up + task.messages))
        last = self._settled(running, taken + task.messages)
        used = before.until(gauge.reading(self.processes, self.disk))
        sent, arrived = running.sent(), sink.messages()
        each = 1 / task.messages
        return Row(
            system=name,
            faults=arrived.faults(range(task.warm_up + task.messages), task.world.knot),
            accepted=task.messages / (sent.ended - sent.began),
            delivered=task.messages / (last - sent.began),
            cpu=used.cpu * 1e3 * each,
            signatures=used.cpu * each / unit,
            device=used.device / 1024 * each,
            write_bytes=used.written / 1024 * each,
            flushes=used.flushes * each,
            memory=self.peak / 2**20,
            sink_bytes=arrived.bytes / max(1, arrived.copies.total()),
            client_busy=sent.busy,
            others=others,
            load=load,
        )

    def _load(self, numbers: range) -> Running:
        task = self.task
        return Load(task.letters, self.system.port, task.world.clients, numbers, self.system.key, self.system.tls).start()

    def _settled(self, running: Running, wanted: int) -> float:
        """Waits until the sink has accepted `wanted` messages in total and the system has no work left; returns the
        time of the last one."""
        last, moved = self.task.sink.taken, time.monotonic()
        while True:
            if self.task.sink.taken != last:
                last, moved = self.task.sink.taken, time.monotonic()
            if (sent := running.sent()) and sent.refused:
                raise AssertionError(f"{len(sent.refused)} refused: {sent.refused[0][:200].decode(errors='replace')}")
            if sent and last >= wanted and self.system.is_idle():
                return moved
            if time.monotonic() - moved > _STALL_SECONDS:
                raise AssertionError(f"{wanted - last} messages did not arrive, or some still wait for their outcome")
            self._weigh()
            time.sleep(_LOOK_SECONDS)

    def _weigh(self):
        if time.monotonic() - self.weighed > _WEIGH_SECONDS:
            self.peak = max(self.peak, gauge.memory(self.processes))
            self.weighed = time.monotonic()

    def _unit(self) -> tuple[float, float]:
        """Returns the current CPU time of one signature, and the KB per second that others wrote to the disk
        meanwhile."""
        written, began = self.disk.read()[0], time.monotonic()
        unit = self.task.world.key.signature_seconds()
        bytes = self.disk.read()[0] - written
        return unit, bytes / 1024 / (time.monotonic() - began)
