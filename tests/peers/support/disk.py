"""A small separate disk, which a test can fill."""

import os
import subprocess
from pathlib import Path

from .roots import missing

MIB = 1 << 20


class Disk:
    """A disk of memory, mounted at `place`."""

    def __init__(self, place: Path, mebibytes: int):
        self.place, self.ballast = place, place / "another's"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs", str(place)]
        if subprocess.run(command, capture_output=True).returncode != 0:
            missing("the right to mount a disk")

    def free(self) -> int:
        """Returns the free bytes."""
        space = os.statvfs(self.place)
        return space.f_bavail * space.f_frsize

    def fill(self, left: int):
        """Takes all space except `left` bytes, as another program would."""
        with self.ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.free() - left)

    def clear(self):
        """Frees the space that `fill` took."""
        self.ballast.unlink(missing_ok=True)

    def close(self):
        """Unmounts the disk."""
        subprocess.run(["umount", "-l", str(self.place)], check=False)
