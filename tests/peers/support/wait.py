"""Ports, waiting and child processes, for all peers. Nothing here sleeps for a guessed time."""

import os
import signal
import socket
import subprocess
import time

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Returns a loopback port that is free for both TCP and UDP (name servers use both)."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind((LOOPBACK, 0))
            port = tcp.getsockname()[1]
            try:
                udp.bind((LOOPBACK, port))
            except OSError:
                continue
            return port


def until(what: str, probe, seconds: float = 20.0, every: float = 0.02):
    """Polls `probe` until its result is true, and returns it; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain: {what} (last: {answer!r})")
        time.sleep(every)


def listens(port: int, address: str = LOOPBACK) -> bool:
    """Whether something accepts connections on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


def spawn(command: list[str], log, **options) -> subprocess.Popen:
    """Starts a child in a separate process group, with its output in the open file `log`."""
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options
    )


def stop(child: subprocess.Popen, seconds: float = 35.0) -> int:
    """Stops a child, by force with its whole process group if necessary, and returns its exit code."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
    try:  # Helpers of the child (Postfix has many) share its group and may outlive it.
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return child.wait()
