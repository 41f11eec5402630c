"""Receivers that count: aiosmtpd for volume, and one that ends messages where careless servers do."""

import re
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes

from aiosmtpd.controller import Controller

from .wait import LOOPBACK, free_port


@dataclass
class Received:
    """One message that was answered with 250."""

    mail_from: str
    rcpt_to: list[str]
    content: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def message_id(self) -> str:
        """The Message-ID header's value."""
        return (message_from_bytes(self.content)["Message-ID"] or "").strip()


class AiosmtpdSink:
    """aiosmtpd, which accepts everything except mail to `gone@`. `messages` grows just before each 250 is written."""

    def __init__(self):
        self.messages: list[Received] = []
        self.port = free_port()
        self.controller = Controller(self, hostname=LOOPBACK, port=self.port, enable_SMTPUTF8=True)
        self.controller.start()

    async def handle_RCPT(self, _server, _session, envelope, address, _options):  # noqa: N802 (aiosmtpd's name)
        """Called by aiosmtpd with each recipient."""
        if address.lower().startswith("gone@"):
            return "550 5.1.1 no such user here"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 ok"

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802 (aiosmtpd's name)
        """Called by aiosmtpd with a whole message."""
        content = envelope.original_content or envelope.content
        self.messages.append(Received(envelope.mail_from, envelope.rcpt_tos, content))
        return "250 2.0.0 taken"

    def by_message_id(self) -> dict[str, list[Received]]:
        """Returns the copies of each message, in the order of their arrival."""
        copies: dict[str, list[Received]] = {}
        for message in list(self.messages):
            copies.setdefault(message.message_id, []).append(message)
        return copies

    def close(self):
        """Stops listening."""
        self.controller.stop()


# Every line ending around the final dot that some server is known to accept.
_END = re.compile(rb"(?:\r\n|\n|\r)\.(?:\r\n|\n|\r)")


class TolerantSink:
    """A receiver that accepts CR, LF and CRLF alike as line ends, and is therefore vulnerable to SMTP smuggling.

    A smuggled message becomes an additional message here. `before_data` is called before each 354, and `ended`
    is set once a connection is over."""

    def __init__(self, before_data: Callable[[], object] = lambda: None):
        self.messages: list[Received] = []
        self.ended = threading.Event()
        sink = self

        class Handler(socketserver.StreamRequestHandler):
            """One SMTP session."""

            def handle(self):
                try:
                    _Session(self, sink.messages, before_data).run()
                finally:
                    sink.ended.set()

        self.server = socketserver.ThreadingTCPServer((LOOPBACK, 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        """Stops listening."""
        self.server.shutdown()
        self.server.server_close()


class _Session:
    """Commands and data of one connection, read from one buffer as careless servers do."""

    def __init__(self, handler: socketserver.StreamRequestHandler, messages: list[Received], before_data):
        self.connection, self.messages, self.before_data = handler.connection, messages, before_data
        self.buffer, self.mail_from, self.rcpt_to = b"", "", []

    def run(self):
        self.reply("220 tolerant.test ESMTP")
        while True:
            end = self.buffer.find(b"\n")
            if end < 0:
                if not self.more():
                    return
                continue
            line, self.buffer = self.buffer[:end].strip(), self.buffer[end + 1 :]
            if line and not self.command(line.decode("utf-8", "replace")):
                return

    def command(self, line: str) -> bool:
        """Answers one command; false ends the session."""
        verb = line.upper()
        if verb.startswith("EHLO"):
            self.reply("250-tolerant.test", "250-8BITMIME", "250 SMTPUTF8")
        elif verb.startswith("MAIL FROM:"):
            self.mail_from, self.rcpt_to = line[10:], []
            self.reply("250 2.1.0 ok")
        elif verb.startswith("RCPT TO:"):
            self.rcpt_to.append(line[8:])
            self.reply("250 2.1.5 ok")
        elif verb == "DATA":
            self.before_data()
            self.reply("354 go on")
            return self.data()
        elif verb == "QUIT":
            self.reply("221 2.0.0 bye")
            return False
        else:
            self.reply("250 2.0.0 ok")
        return True

    def data(self) -> bool:
        """Reads up to the first sequence that resembles an end; commands follow."""
        self.buffer = b"\r\n" + self.buffer
        while not (end := _END.search(self.buffer)):
            if not self.more():
                return False
        self.messages.append(Received(self.mail_from, self.rcpt_to, self.buffer[2 : end.start()] + b"\r\n"))
        self.buffer = self.buffer[end.end() :]
        self.reply("250 2.0.0 taken")
        return True

    def more(self) -> bool:
        try:
            read = self.connection.recv(65536)
        except ConnectionError:
            return False
        self.buffer += read
        return bool(read)

    def reply(self, *lines: str):
        self.connection.sendall("".join(f"{line}\r\n" for line in lines).encode())
