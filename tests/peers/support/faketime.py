"""A wall clock that a test sets for one process, by libfaketime. Monotonic clocks are not affected."""

from pathlib import Path

from .roots import missing, private_root


class WallClock:
    """Sets the wall clock of processes that are started with `environment`."""

    def __init__(self, folder: Path):
        root = private_root("faketime") or Path("/")
        libraries = [*root.glob("usr/lib/*-linux-gnu*/faketime/libfaketimeMT.so.1")]
        if not libraries:
            missing("libfaketime")
        self._stamp = folder / "wall-clock"
        self.set("+0")
        self.environment = {
            "LD_PRELOAD": str(libraries[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._stamp),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, offset: str):
        """Sets the clock's offset, for instance `+40d` or `-3600`."""
        # A rename is atomic, and the process reads the file at every read of the clock.
        fresh = self._stamp.with_suffix(".new")
        fresh.write_text(offset + "\n")
        fresh.rename(self._stamp)
