"""Mail servers that misbehave, all in one process: each address of 127.0.0.0/8 is one server.

One listener accepts connections for every address; the address decides how its server behaves. A server is a dialogue
whose phases may be overridden by other bytes or by an action such as silence. A server that accepts a message counts
it, so that a test can find lost and duplicate messages."""

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address

PIECE = 64 * 1024
_FIRST = int(IPv4Address("127.16.0.1"))
_MESSAGE_ID = re.compile(rb"^Message-ID: <([^@>]+)@", re.IGNORECASE | re.MULTILINE)

Act = Callable[["Peer"], Awaitable[None]]
# Answers or actions by phase. The phases are those of DIALOGUE, and `connect`, which comes before the greeting.
Script = dict[str, bytes | Act]

DIALOGUE: Script = {
    "greeting": b"220 mx.test ESMTP\r\n",
    "ehlo": b"250-mx.test\r\n250-PIPELINING\r\n250 8BITMIME\r\n",
    "starttls": b"220 2.0.0 go on\r\n",
    "mail": b"250 2.1.0 ok\r\n",
    "rcpt": b"250 2.1.5 ok\r\n",
    "data": b"354 go on\r\n",
    "dot": b"250 2.0.0 taken\r\n",
    "rset": b"250 2.0.0 ok\r\n",
    "quit": b"221 2.0.0 bye\r\n",
}
WITH_TLS = b"250-mx.test\r\n250-PIPELINING\r\n250 STARTTLS\r\n"


class Over(Exception):
    """The connection has ended, from either side."""


@dataclass
class Server:
    """The behaviour of the server at one address, and its record."""

    script: Script
    # Number of sessions that follow the script; later ones are correct.
    bad_sessions: float
    # Number of bytes, sent or received by the server, after which a bad session is cut.
    say_max: int | None = None
    hear_max: int | None = None
    sessions: int = 0
    open: int = 0
    said: int = 0
    heard: int = 0
    taken: list[tuple[str, float]] = field(default_factory=list)

    def copies(self, message_id: str) -> int:
        """Returns how often a message was accepted here."""
        return sum(taken == message_id for taken, _ in list(self.taken))


class HostileServers:
    """All servers, on a separate thread."""

    def __init__(self):
        self.servers: dict[str, Server] = {}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.listener = asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result(10)
        self.port = self.listener.sockets[0].getsockname()[1]

    def add(self, script: Script | None = None, bad_sessions: float = float("inf"), **cuts: int) -> tuple[str, Server]:
        """Adds a server, and returns its address."""
        address = str(IPv4Address(_FIRST + len(self.servers)))
        self.servers[address] = Server(script or {}, bad_sessions, **cuts)
        return address, self.servers[address]

    def hang_up(self):
        """Ends every session, and accepts no further one."""

        async def end():
            self.listener.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self.loop).result(10)

    def close(self):
        """Stops all servers."""
        self.hang_up()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._session, "0.0.0.0", 0, backlog=1024, limit=PIECE)

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        server = self.servers.get(writer.get_extra_info("sockname")[0])
        if server is None:
            writer.close()
            return
        server.sessions += 1
        server.open += 1
        peer = Peer(reader, writer, server, server.sessions <= server.bad_sessions)
        try:
            await peer.converse()
        except (Over, OSError, asyncio.CancelledError, ValueError):
            pass
        finally:
            server.open -= 1
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()


class Peer:
    """One session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server, is_bad: bool):
        self.reader, self.writer, self.server = reader, writer, server
        self.script = DIALOGUE | server.script if is_bad else DIALOGUE
        self.say_left = server.say_max if is_bad else None
        self.hear_left = server.hear_max if is_bad else None
        self.inbox = b""

    async def converse(self):
        """Runs the dialogue from the greeting to the end."""
        if "connect" in self.script:
            await self.do("connect")
        await self.do("greeting")
        while True:
            line = (await self.hear_until(b"\r\n")).upper()
            verb = {b"HELO": b"EHLO"}.get(line[:4], line[:4]).decode("latin-1").lower()
            verb = "starttls" if verb == "star" else verb
            if verb not in self.script:
                await self.say(b"502 5.5.1 what?\r\n")
                continue
            await self.do(verb)
            if verb == "quit":
                raise Over
            if verb == "data" and self.goes_on_after_data():
                await self.take_message()

    def goes_on_after_data(self) -> bool:
        """Whether a message follows."""
        said = self.script["data"]
        return not isinstance(said, bytes) or b"354" in said

    async def take_message(self):
        """Reads the message and answers it; counts it before the answer."""
        content = await self.hear_until(b"\r\n.\r\n")
        said = self.script["dot"]
        if not isinstance(said, bytes) or said.startswith(b"2"):
            message_id = _MESSAGE_ID.search(content)
            assert message_id, content
            self.server.taken.append((message_id[1].decode(), time.monotonic()))
        await self.do("dot")

    async def do(self, phase: str):
        """Does what the script says for this phase."""
        said = self.script[phase]
        if isinstance(said, bytes):
            await self.say(said)
        else:
            await said(self)

    async def say(self, data: bytes):
        """Writes, up to the point where this session is cut."""
        if self.say_left is not None:
            data, is_cut = data[: self.say_left], len(data) >= self.say_left
            self.say_left -= len(data)
        else:
            is_cut = False
        self.writer.write(data)
        await self.writer.drain()
        self.server.said += len(data)
        if is_cut:
            raise Over

    async def hear_until(self, end: bytes) -> bytes:
        """Reads up to `end`, or up to the point where this session is cut."""
        while end not in self.inbox:
            if self.hear_left == 0:
                raise Over
            data = await self.reader.read(PIECE if self.hear_left is None else min(PIECE, self.hear_left))
            if not data:
                raise Over
            self.server.heard += len(data)
            if self.hear_left is not None:
                self.hear_left -= len(data)
            self.inbox += data
        heard, _, self.inbox = self.inbox.partition(end)
        return heard


async def silence(peer: Peer):
    """Sends nothing more, and reads until the other side disconnects."""
    while await peer.reader.read(PIECE):
        pass
    raise Over


async def hang_up(_peer: Peer):
    """Disconnects without an answer."""
    raise Over


def drip(data: bytes, every: float = 0.2) -> Act:
    """Sends these bytes one by one, repeatedly, never a complete answer."""

    async def act(peer: Peer):
        while True:
            for byte in data:
                await peer.say(bytes([byte]))
                with contextlib.suppress(TimeoutError):
                    if not await asyncio.wait_for(peer.reader.read(PIECE), every):
                        raise Over

    return act


def endless(piece: bytes, total: int = 1 << 30, first: bytes = b"") -> Act:
    """Sends this piece repeatedly, up to a GiB."""

    async def act(peer: Peer):
        block = piece * max(1, PIECE // len(piece))
        await peer.say(first)
        for _ in range(total // len(block)):
            await peer.say(block)
        raise Over

    return act


def then_hang_up(data: bytes) -> Act:
    """Sends these bytes, then disconnects."""

    async def act(peer: Peer):
        await peer.say(data)
        raise Over

    return act


def instead_of_handshake(act: Act) -> Script:
    """STARTTLS is offered and accepted; then this action follows."""

    async def begin(peer: Peer):
        await peer.say(DIALOGUE["starttls"])
        await peer.reader.read(PIECE)
        await act(peer)

    return {"ehlo": WITH_TLS, "starttls": begin}
