"""The load: kept connections on one thread of a separate process, with minimal HTTP and SMTP clients.

Each conversation is a generator that yields what to send and a test whether the answer is complete. A library for HTTP
or SMTP would use more CPU time than the servers' own. Every row reports how busy this process was."""

import base64
import multiprocessing
import re
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from letters import HOST, SENDER, Letters, recipient
from support.wait import LOOPBACK

_SILENCE_SECONDS = 60
_SEND_BUFFER = 1 << 20  # holds any request, so that sending never waits
_FINAL_LINE = re.compile(rb"^\d\d\d(?: .*)?\r\n", re.MULTILINE)
_LENGTH = re.compile(rb"^content-length: *(\d+)\r\n", re.MULTILINE | re.IGNORECASE)

# Bytes to send, and a test whether the received bytes are the complete answer, which is then sent into the generator.
Talk = Generator[tuple[bytes, Callable[[bytes], bool]], bytes, None]


@dataclass
class Sent:
    """Result of a load."""

    began: float  # on the monotonic clock, which all processes share
    ended: float  # with the last acceptance
    busy: float  # share of that time for which this process ran
    refused: list[bytes] = field(default_factory=list)

    def take(self, answer: bytes, wanted: bytes):
        """Records one answer, which is an acceptance if it begins as wanted."""
        if self.check(answer, wanted):
            self.ended = time.monotonic()

    def check(self, answer: bytes, wanted: bytes) -> bool:
        """Whether the answer begins as wanted. Records it if not."""
        if not answer.startswith(wanted):
            self.refused.append(answer)
        return answer.startswith(wanted)


@dataclass
class Load:
    """Messages `numbers` over `clients` connections to `port`: by SMTP, or by HTTP with a `key` of the API and no TLS.

    With `tls` the connections begin with a handshake, and the key logs in.
    """

    letters: Letters
    port: int
    clients: int
    numbers: range
    key: str | None = None
    tls: ssl.SSLContext | None = None

    def start(self) -> "Running":
        """Starts it in a separate process."""
        return Running(self)

    def run(self) -> Sent:
        """Sends all messages as fast as the answers arrive."""
        waiting, sent = iter(self.numbers), Sent(began := time.monotonic(), began, 0)
        talk = self._http if self.key and not self.tls else self._smtp
        with selectors.DefaultSelector() as selector:
            for _ in range(min(self.clients, len(self.numbers))):
                _Connection(selector, self._connect(), talk(waiting, sent), sent)
            while selector.get_map():
                ready = selector.select(_SILENCE_SECONDS)
                if not ready:
                    sent.refused.append(b"no answer")
                    break
                for key, _ in ready:
                    key.data.hear()
        sent.busy = time.process_time() / (time.monotonic() - sent.began)
        return sent

    def _connect(self) -> socket.socket:
        connected = socket.create_connection((LOOPBACK, self.port), timeout=_SILENCE_SECONDS)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.tls.wrap_socket(connected, server_hostname=HOST) if self.tls else connected

    def _http(self, waiting: Iterator[int], sent: Sent) -> Talk:
        head = (
            f"POST /v1/messages HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self.key}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        for number in waiting:
            body = self.letters.as_json(number)
            answer = yield b"%s%d\r\n\r\n%s" % (head, len(body), body), _whole_http
            sent.take(answer, b"HTTP/1.1 202")

    def _smtp(self, waiting: Iterator[int], sent: Sent) -> Talk:
        """With PIPELINING (RFC 2920), which all systems offer: two round trips per message."""
        yield b"", _whole_smtp(1)
        yield b"EHLO bench.test\r\n", _whole_smtp(1)
        if self.key:
            login = base64.b64encode(f"\0postrider\0{self.key}".encode())
            sent.check((yield b"AUTH PLAIN " + login + b"\r\n", _whole_smtp(1)), b"235")
        for number in waiting:
            envelope = f"MAIL FROM:<{SENDER}>\r\nRCPT TO:<{recipient(number)}>\r\nDATA\r\n"
            answer = yield envelope.encode(), _whole_smtp(3)
            if b"\n354" in answer:
                sent.take((yield self.letters.as_mime(number), _whole_smtp(1)), b"250")
            else:  # MAIL may have been accepted all the same.
                sent.refused.append(answer)
        yield b"QUIT\r\n", _whole_smtp(1)


class Running:
    """A load in its process."""

    def __init__(self, load: Load):
        context = multiprocessing.get_context("fork")
        self.reader, writer = context.Pipe(duplex=False)
        self.result: Sent | None = None
        self.process = context.Process(target=lambda: writer.send(load.run()), daemon=True)
        self.process.start()
        writer.close()

    def sent(self) -> Sent | None:
        """Returns the result once the load has ended."""
        if self.result is None and self.reader.poll():
            try:
                self.result = self.reader.recv()
            except EOFError:
                self.result = Sent(0, 0, 0, [b"the load broke off"])
            self.process.join()
        return self.result


class _Connection:
    """One conversation with the server."""

    def __init__(self, selector: selectors.BaseSelector, connected: socket.socket, talk: Talk, sent: Sent):
        self.selector, self.talk, self.sent, self.heard = selector, talk, sent, b""
        self.socket = connected
        selector.register(self.socket, selectors.EVENT_READ, self)
        self._say(None)

    def hear(self):
        """Reads received bytes, and continues once the answer is complete."""
        try:
            read = self.socket.recv(1 << 16)
            # TLS data that was already read does not wake the selector again.
            while read and isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
                read += self.socket.recv(1 << 16)
            self.heard += read
            if not read:
                raise ConnectionError("closed by the server")
            if self.is_whole(self.heard):
                answer, self.heard = self.heard, b""
                self._say(answer)
        except OSError as error:
            self.sent.refused.append(f"{error}: ".encode() + self.heard)
            self._end()

    def _say(self, answer: bytes | None):
        try:
            words, self.is_whole = self.talk.send(answer)
        except StopIteration:
            self._end()
        else:
            self.socket.sendall(words)

    def _end(self):
        self.selector.unregister(self.socket)
        self.socket.close()


def _whole_http(heard: bytes) -> bool:
    head = heard.find(b"\r\n\r\n")
    length = _LENGTH.search(heard, 0, head + 2) if head > 0 else None
    return bool(length) and len(heard) >= head + 4 + int(length[1])


def _whole_smtp(replies: int) -> Callable[[bytes], bool]:
    """Each reply ends with a line without a hyphen after its code (RFC 5321 4.2.1)."""
    return lambda heard: heard.endswith(b"\n") and len(_FINAL_LINE.findall(heard)) >= replies
