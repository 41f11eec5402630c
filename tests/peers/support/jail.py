"""A small root directory for a server that needs paths and accounts which this machine lacks.

Exim and OpenSMTPD have the paths of their configuration, queue and helpers built in, and need users that their packages
would create. The jail has both, in the directory of one test; nothing outside it is changed."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

from .roots import library_path, missing, private_root
from .wait import spawn

_READER = 65534  # user nobody, which writes the Maildirs
_FIRST_UID = 61001  # of the accounts that are created here


class Jail:
    """The directory `root`. Programs run in it with chroot."""

    def __init__(self, root: Path, package: str, programs: tuple[str, ...], accounts: tuple[str, ...]):
        """`programs` are files and folders of the package's private root; a shell comes along."""
        unpacked = private_root(package)
        if not unpacked:
            missing(f"{package}'s private root")
        if os.geteuid() != 0:
            missing("root, without whom nothing runs in a root directory of its own,")
        self.root = root
        for folder in ("etc", "dev", "tmp", "mail", "var/run", "run", "lib", "bin"):
            (root / folder).mkdir(parents=True)
        root.chmod(0o755)
        (root / "tmp").chmod(0o1777)
        os.chown(root / "mail", _READER, _READER)
        os.mknod(root / "dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (root / "dev/null").chmod(0o666)
        for name in programs:
            self._take(unpacked / name, root / name, library_path(unpacked))
        self._take(Path("/bin/sh").resolve(), root / "bin/sh", "")
        self._accounts(accounts)

    def write(self, name: str, text: str, mode: int = 0o644):
        """Writes a file of the jail."""
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def run(self, log, *command: str) -> subprocess.Popen:
        """Starts a program inside, its output going to the open file `log`."""
        return spawn(["chroot", str(self.root), *command], log, env={"PATH": "/usr/sbin:/usr/bin:/bin", "LANG": "C"})

    def _take(self, source: Path, target: Path, libraries: str):
        """Copies a program or a folder of programs, with their shared libraries."""
        files = [file for file in source.rglob("*") if file.is_file()] if source.is_dir() else [source]
        for file in files:
            copy = target / file.relative_to(source) if source.is_dir() else target
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
            for library in _linked(file, libraries):
                inside = self.root / ("lib64" if library.name.startswith("ld-") else "lib") / library.name
                inside.parent.mkdir(exist_ok=True)
                if not inside.exists():
                    shutil.copy2(library, inside)

    def _accounts(self, names: tuple[str, ...]):
        users = [("root", 0), ("nobody", _READER), *((name, _FIRST_UID + n) for n, name in enumerate(names))]
        groups = [*users, ("mail", 8)]
        self.write("etc/passwd", "".join(f"{name}:x:{uid}:{uid}::/mail:/bin/sh\n" for name, uid in users))
        self.write("etc/group", "".join(f"{name}:x:{gid}:\n" for name, gid in groups))
        self.write("etc/hosts", "127.0.0.1 localhost\n")


def _linked(file: Path, libraries: str) -> list[Path]:
    """Returns the libraries of a program, and the loader."""
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    listed = subprocess.run(["ldd", str(file)], env=environment, capture_output=True, text=True).stdout
    return [Path(word) for line in listed.splitlines() for word in line.split() if word.startswith("/")]
