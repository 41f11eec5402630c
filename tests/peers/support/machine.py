"""A complete Debian with systemd as its first process, booted by systemd-nspawn, with a network link to the caller.
Machines have no link to each other."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from .wait import spawn, stop, until

# The caller's environment is not passed on.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb"}


def _ip(words: str, leader: int | None = None):
    """Configures a part of the network, here or on the machine with this first process."""
    enter = ["nsenter", f"--target={leader}", "--net"] if leader else []
    subprocess.run([*enter, "ip", *words.split()], check=True)


def _network(process: str) -> str:
    return os.readlink(f"/proc/{process}/ns/net")


class Machine:
    """A machine on a copy of `debian` (tests/debian). Commands run in it as root."""

    def __init__(self, name: str, debian: Path, folder: Path, address: str, outside: str, roots: Path):
        """`address` is the machine's, `outside` that of the name server and of the gateway; `roots` is a PEM file of
        authorities that it trusts, as it trusts the public ones."""
        self.name, self.root, self.child = name, folder / name, None
        self.address, self.outside, self._outer = address, outside, f"{name}-out"
        subprocess.run(["cp", "--archive", "--reflink=auto", str(debian), str(self.root)], check=True)
        self.write("/etc/hostname", f"{name}\n")
        self.write("/etc/resolv.conf", f"nameserver {outside}\n")
        self.write("/usr/local/share/ca-certificates/story.crt", roots.read_text())
        command = ["chroot", str(self.root), "update-ca-certificates"]
        subprocess.run(command, env=_ENVIRONMENT, check=True, capture_output=True)
        self.log = (folder / f"{name}.log").open("w")

    def boot(self, state: str = "running"):
        """Starts it, and waits until systemd has started all units and is in this state ("degraded": a unit failed)."""
        _ip(f"link add {self.name} type veth peer name {self._outer}")
        _ip(f"link set {self._outer} up")
        _ip(f"route add {self.address} dev {self._outer} src {self.outside}")
        command = ["systemd-nspawn", "--quiet", "--private-network", "--boot", "--register=no", "--keep-unit", "--console=pipe"]
        command += ["--resolv-conf=off", "--link-journal=no", "--settings=no", f"--machine={self.name}"]
        environment = os.environ | {"UNIFIED_CGROUP_HIERARCHY": "1"}
        self.child = spawn([*command, f"--directory={self.root}"], self.log, env=environment)
        # Its network is up before its services start.
        inside = until(f"{self.name} has a first process", self.leader, 60)
        _ip(f"link set {self.name} netns {inside}")
        for line in (
            f"address add {self.address}/32 dev {self.name}",
            f"link set {self.name} up",
            f"route add {self.outside} dev {self.name}",
            f"route add default via {self.outside}",
        ):
            _ip(line, inside)
        until(f"{self.name} is up", lambda: self.attempt("systemctl is-system-running").strip() == state, 90, every=0.1)

    def kill(self):
        """Ends all its processes at once, as a loss of power does. The disk stays."""
        os.kill(self.leader(), signal.SIGKILL)
        self._ended()

    def leader(self) -> int | None:
        """Returns its first process, once that has its own network."""
        children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()
        try:
            return next((int(child) for child in children if _network(child) != _network("self")), None)
        except FileNotFoundError:  # a process that has ended
            return None

    def attempt(self, script: str) -> str:
        """Returns a script's output, whatever its exit code."""
        return self._bash(script).stdout

    def run(self, script: str, **variables: str) -> str:
        """Returns the output of a script whose commands must all succeed."""
        done = self._bash(script, **variables)
        assert done.returncode == 0, f"{self.name}: exit {done.returncode}\n{script}\n{done.stdout}\n{self.journal()}"
        return done.stdout

    def journal(self) -> str:
        """Returns the service's log."""
        return self.attempt("journalctl --unit postrider --unit postrider-standby --no-pager --output cat")

    def file(self, path: str) -> Path:
        """Returns a file of the machine; relative paths are in root's home."""
        return self.root / (path.lstrip("/") if path.startswith("/") else f"root/{path}")

    def write(self, path: str, content: bytes | str):
        """Writes a file, replacing an existing one."""
        file = self.file(path)
        file.unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def close(self):
        """Stops it, and deletes its disk. May be called twice."""
        if self.child:
            self.attempt("systemctl --no-block poweroff")
            self._ended()
        self.log.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _ended(self):
        stop(self.child)
        self.child = None
        linked = ["ip", "link", "show", "dev", self._outer]
        until("its network link is removed", lambda: subprocess.run(linked, capture_output=True).returncode)

    def _bash(self, script: str, **variables: str) -> subprocess.CompletedProcess:
        command = ["nsenter", f"--target={self.leader()}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        command += ["--wdns=/root", "bash", "-euo", "pipefail", "-c", script]
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, env=_ENVIRONMENT | variables, text=True, timeout=300, **options)
