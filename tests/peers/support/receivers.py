"""Webhook receivers on raw sockets, with behaviours that no HTTP library allows."""

import gzip
import itertools
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from .wait import LOOPBACK

# Longer than the 10 seconds of an attempt; after that, the client has given up.
PATIENCE_SECONDS = 20.0


class Listener:
    """Accepts on a loopback port and runs `behave` for each connection, on a separate thread."""

    def __init__(self, behave: Callable[[socket.socket], None]):
        self.accepted = 0
        self._behave = behave
        self._socket = socket.create_server((LOOPBACK, 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket):
        connection.settimeout(PATIENCE_SECONDS)
        with connection:
            try:
                self._behave(connection)
            except OSError:
                pass  # The client has disconnected, which many of these behaviours provoke.

    def close(self):
        """Accepts no more."""
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which holds the port open
        self._socket.close()


def over_tls(context: ssl.SSLContext, behave: Callable[[ssl.SSLSocket], None]) -> Callable[[socket.socket], None]:
    """Returns a behaviour over TLS."""

    def handshake(connection: socket.socket):
        with context.wrap_socket(connection, server_side=True) as tls:
            behave(tls)

    return handshake


def server_context(certificate: Path) -> ssl.SSLContext:
    """Returns a TLS server context with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def request(connection: socket.socket) -> tuple[str, bytes]:
    """Reads one complete request; returns its path and its body."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += _some(connection)
    head, _, body = seen.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:])
    while len(body) < int(fields["content-length"]):
        body += _some(connection)
    return lines[0].split(" ")[1], body


def _some(connection: socket.socket) -> bytes:
    read = connection.recv(65536)
    if not read:
        raise ConnectionResetError("the client closed before its request was whole")
    return read


# Actions of a receiver after it has read the request.


def says(*parts: bytes) -> Callable[[socket.socket], None]:
    """Writes these bytes, then closes."""

    def behave(connection: socket.socket):
        for part in parts:
            connection.sendall(part)

    return behave


def falls_silent(said: bytes = b"") -> Callable[[socket.socket], None]:
    """Writes these bytes, then nothing, and keeps the connection open."""

    def behave(connection: socket.socket):
        connection.sendall(said)
        while connection.recv(65536):
            pass

    return behave


def drips(head: bytes, piece: bytes, seconds: float = 1.0) -> Callable[[socket.socket], None]:
    """Writes the head, then a piece each second, for longer than the limit of an attempt."""

    def behave(connection: socket.socket):
        connection.sendall(head)
        for _ in range(int(PATIENCE_SECONDS / seconds)):
            time.sleep(seconds)  # Slowness is the tested behaviour.
            connection.sendall(piece)

    return behave


def never_ends(head: bytes, pieces: Iterable[bytes] | None = None) -> Callable[[socket.socket], None]:
    """Writes the head, then pieces until the client disconnects."""

    def behave(connection: socket.socket):
        connection.sendall(head)
        for piece in itertools.repeat(b"x" * 65536) if pieces is None else pieces:
            connection.sendall(piece)

    return behave


def resets(said: bytes = b"") -> Callable[[socket.socket], None]:
    """Writes these bytes; the close that follows is a TCP reset, without a TLS close_notify."""

    def behave(connection: socket.socket):
        connection.sendall(said)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return behave


def bomb() -> bytes:
    """Returns a body that would decompress to 64 MiB of zeros."""
    return gzip.compress(bytes(64 << 20), 9)
