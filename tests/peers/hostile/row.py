"""One hostile request, its expected answer, and the client that sends it byte for byte."""

import json
import socket
from dataclasses import dataclass, field

HOST = b"Host: mail.test\r\n"


@dataclass
class Row:
    """A request and its documented answer. `named` is the key that `errors` must have; `code` None expects no body."""

    name: str
    request: bytes
    status: int
    code: str | None
    named: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Answer:
    """One answer, unchanged."""

    status: int
    headers: dict[str, str]
    body: bytes


def call(method: str, path: str, key: str | None, body: bytes | None = None, *lines: str) -> bytes:
    """Returns a complete request, valid except for the given parts; its connection closes after it."""
    head = [f"{method} {path} HTTP/1.1", "Host: mail.test", "Connection: close"]
    if key:
        head.append(f"Authorization: Bearer {key}")
    if body is not None:
        head.append(f"Content-Length: {len(body)}")
        if not any(line.lower().startswith("content-type:") for line in lines):
            head.append("Content-Type: application/json")
    return "\r\n".join([*head, *lines, "", ""]).encode("utf-8", "surrogateescape") + (body or b"")


def as_json(value) -> bytes:
    """Returns a JSON body."""
    return json.dumps(value).encode()


def first_answer(address: tuple[str, int], request: bytes, seconds: float) -> Answer:
    """Returns the answer to a valid request, or raises ValueError if there is none within `seconds`."""
    with socket.create_connection(address, timeout=seconds) as connection:
        got = b""
        try:
            connection.sendall(request)
        except OSError:
            pass  # Refused before everything was sent: an answer may have arrived.
        while True:
            head, end, body = got.partition(b"\r\n\r\n")
            if end:
                answer = answers(head + end)[0]
                length = 0 if request.startswith(b"HEAD ") else int(answer.headers.get("content-length", "0"))
                if len(body) >= length:
                    return Answer(answer.status, answer.headers, body)
            piece = connection.recv(65536)
            if not piece:
                raise ValueError(f"closed after {got!r}")
            got += piece


def exchange(address: tuple[str, int], request: bytes, seconds: float, half_close: bool = True) -> bytes:
    """Returns everything that the server sends until it closes. Raises TimeoutError if nothing happens for
    `seconds`."""
    with socket.create_connection(address, timeout=seconds) as connection:
        got = b""
        try:
            connection.sendall(request)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                got += piece
        except TimeoutError:
            raise
        except OSError:
            pass  # Closed while we were still writing; the earlier answer counts.
        return got


def answers(said: bytes) -> list[Answer]:
    """Parses a server's answers. Raises ValueError for anything else."""
    found = []
    while said:
        head, _, said = said.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status, *_ = first.split(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0"):
            raise ValueError(first)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        found.append(Answer(int(status), headers, said[:length]))
        said = said[length:]
    return found
