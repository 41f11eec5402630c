"""The unit's system call filter, for a child process: the same as systemd's, but a forbidden call kills the process."""

import ctypes
import ctypes.util
import subprocess
from collections.abc import Callable
from pathlib import Path

from .roots import missing, program

UNIT = Path(__file__).resolve().parents[3] / "systemd" / "postrider.service"
_KILL_PROCESS, _ALLOW = 0x80000000, 0x7FFF0000


def _calls_of(group: str) -> set[str]:
    """Returns the system calls of one of systemd's groups, including nested groups."""
    analyze, environment = program("systemd-analyze", "systemd")
    command = [analyze, "syscall-filter", "--no-pager", group]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()
    names = [line.strip() for line in lines[1:] if line.strip() and not line.strip().startswith("#")]
    calls = set()
    for name in names:
        calls |= _calls_of(name) if name.startswith("@") else {name}
    return calls


def allowed(without: str = "") -> set[str]:
    """Returns the calls that the unit allows, except by lines that contain `without`."""
    calls: set[str] = set()
    for line in UNIT.read_text().splitlines():
        key, _, value = line.partition("=")
        if key != "SystemCallFilter" or (without and without in value):
            continue
        names = value.removeprefix("~").split()
        named = {call for name in names for call in (_calls_of(name) if name.startswith("@") else {name})}
        calls = calls - named if value.startswith("~") else calls | named
    return calls


def confine(calls: set[str]) -> Callable[[], None]:
    """Returns a function for the child before it executes the program: from then on any other system call kills it."""
    library = ctypes.CDLL(ctypes.util.find_library("seccomp") or missing("libseccomp"), use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_KILL_PROCESS))
    for call in calls:
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            assert library.seccomp_rule_add(context, _ALLOW, number, 0) == 0, call

    def load():
        assert library.seccomp_load(context) == 0

    return load
