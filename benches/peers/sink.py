"""The receiver: Postfix's smtp-sink, which accepts every message, counts it, and keeps it as a file in memory.

It is written in C and runs in a separate process, so it is not the bottleneck, and its CPU time does not count for any
system. The files are on tmpfs, so that none of their bytes reaches the measured disk."""

import os
import random
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from keys import fault_of_signature
from support.knot import Knot
from support.roots import library_path, missing, private_root
from support.wait import LOOPBACK, free_port, listens, spawn, stop, until

_SESSIONS = "1024"
_SAMPLE = 20
_MEMORY = Path("/dev/shm")
# smtp-sink's own headers end with this one; the received message follows, after the Received header that it adds.
_ENVELOPE = re.compile(rb"^X-Rcpt-Args: <customer(\d+)@", re.MULTILINE)


class Sink:
    """A running smtp-sink."""

    def __init__(self):
        root = private_root("postfix") or missing("Postfix's private root")
        self.folder = Path(tempfile.mkdtemp(prefix="sink-", dir=_MEMORY))
        self.folder.chmod(0o777)
        self.port, self.taken = free_port(), 0
        reader, writer = os.pipe()
        self.child = spawn(
            [
                *(str(root / "usr/sbin/smtp-sink"), "-u", "nobody", "-c", "-m", _SESSIONS),
                *("-d", f"{self.folder}/m.", f"{LOOPBACK}:{self.port}", _SESSIONS),
            ],
            writer,
            env={"LD_LIBRARY_PATH": library_path(root, "usr/lib/postfix")},
        )
        os.close(writer)
        self.follower = threading.Thread(target=self._follow, args=(reader,), daemon=True)
        self.follower.start()
        until("smtp-sink listens", lambda: listens(self.port))

    def messages(self) -> "Arrived":
        """Returns the messages since the last call, and drops them."""
        arrived = Arrived()
        for file in self.folder.iterdir():
            arrived.add(file.read_bytes())
            file.unlink()
        return arrived

    def close(self):
        """Ends it."""
        stop(self.child)
        self.follower.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _follow(self, reader: int):
        """Keeps the last number of the line `sess=1 quit=1 mesg=7\\r`, which is written for every message."""
        rest = b""
        while read := os.read(reader, 1 << 16):
            rest += read
            counts = re.findall(rb"mesg=(\d+)\s*\r", rest)
            if counts:
                self.taken, rest = int(counts[-1]), rest[rest.rfind(b"\r") + 1 :]
            time.sleep(0.002)  # Not after every message: this is only to keep the follower off the CPU.
        os.close(reader)


class Arrived:
    """Messages received: the count by number, and the content of some."""

    def __init__(self):
        self.copies: Counter[int] = Counter()
        self.bytes = 0
        self.contents: dict[int, bytes] = {}

    def add(self, dump: bytes):
        """Parses one file of smtp-sink."""
        found = _ENVELOPE.search(dump)
        number = int(found[1]) if found else -1
        self.copies[number] += 1
        self.bytes += len(dump)
        self.contents[number] = dump[dump.index(b"\nReceived:", found.end()) + 1 :] if found else dump

    def faults(self, sent: range, knot: Knot) -> list[str]:
        """Returns the problems if these numbers were sent: each must have arrived once, and a sample's signatures must
        verify."""
        faults = []
        if missing_ones := sum(self.copies[number] == 0 for number in sent):
            faults.append(f"{missing_ones} did not arrive")
        if doubles := self.copies.total() - sum(1 for count in self.copies.values() if count):
            faults.append(f"{doubles} came twice")
        if strangers := sum(number not in sent for number in self.copies):
            faults.append(f"{strangers} were sent by nobody")
        sample = random.Random(len(sent)).sample(sorted(self.contents), min(_SAMPLE, len(self.contents)))
        found = (fault_of_signature(self.contents[number], knot) for number in sample)
        return faults + sorted({fault for fault in found if fault})
