"""Locations of the peers' programs: installed on this machine, or unpacked into a private root by tests/run."""

import os
import shutil
from pathlib import Path

import pytest

_TREE = Path(__file__).resolve().parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", _TREE / "target"))
PEERS = Path(os.environ.get("POSTRIDER_PEERS_DIR", TARGET / "peers"))
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing(what: str):
    """Skips the test because a peer is missing, or fails it if tests/run has promised that all are installed."""
    if os.environ.get("POSTRIDER_PEERS_REQUIRED"):
        pytest.fail(f"{what} is missing")
    pytest.skip(f"{what} is missing: run tests/run as root")


def private_root(name: str) -> Path | None:
    """Returns the private root of this name, if it was unpacked."""
    root = PEERS / name
    return root if root.is_dir() else None


def library_path(root: Path, *more: str) -> str:
    """Returns the LD_LIBRARY_PATH with which programs of a private root find their libraries."""
    usual = [*root.glob("usr/lib/*-linux-gnu*"), *root.glob("lib/*-linux-gnu*"), *root.glob("usr/lib")]
    folders = [*usual, *(root / m for m in more)]
    return ":".join(str(folder) for folder in folders)


def program(name: str, root_name: str) -> tuple[str, dict[str, str]]:
    """Returns a program's path and environment, from its private root or else from the system."""
    root = private_root(root_name)
    if root:
        for folder in ("usr/sbin", "usr/bin"):
            if (root / folder / name).exists():
                return str(root / folder / name), {**os.environ, "LD_LIBRARY_PATH": library_path(root)}
    installed = shutil.which(name, path=_SYSTEM_PATH)
    if not installed:
        missing(name)
    return installed, dict(os.environ)


def binary() -> str:
    """Returns the path of the program under test."""
    path = Path(os.environ.get("POSTRIDER_BIN", TARGET / "release" / "postrider")).resolve()
    if not path.exists():
        missing(f"the binary {path}")
    return str(path)
