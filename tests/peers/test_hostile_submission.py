"""SMTP submission with hostile clients (contract of submission 2 to 5): each is answered or disconnected within
seconds, none leaks memory, and well-behaved clients are served meanwhile."""

import base64
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.submission import USER, Door, Lines
from support.wait import until

RSS_GROWTH_MAX_KIB = 48 * 1024
HEAD = "From: shop@example.test\r\nSubject: x\r\n\r\n"
SMUGGLED = "MAIL FROM:<a@example.test>\r\nRCPT TO:<smuggled@example.org>\r\nDATA\r\n" + HEAD + "evil\r\n.\r\n"
# Every end of data that some server is known to accept, except the correct one.
ENDS = ["\n.\n", "\n.\r\n", "\r\n.\n", "\r.\r", "\r.\r\n", "\r\n.\r", "\n.\r", "\r.\n", "\r\n.\r\r\n", "\r\n\0.\r\n"]
ENDS += ["\r\n.\0\r\n", "\r\r\n.\r\r\n", "\n\n.\n\n", "\r\n.\n\r\n", "\r\n. \r\n", "\r\n.\t\r\n", "\r\n\x0b.\r\n", "\r\n\x85.\r\n"]


def rss(door: Door) -> int:
    """Resident memory of the service in KiB."""
    with open(f"/proc/{door.server.child.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def held(door: Door) -> int:
    """Returns the memory in KiB that the system can't simply reclaim: lazily freed pages still count as resident."""
    with open(f"/proc/{door.server.child.pid}/smaps_rollup") as rollup:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in rollup if line.rstrip().endswith(" kB")}
    return kib["Rss"] - kib["LazyFree"]


def in_data(door: Door, recipient: str = "ann@example.org") -> Lines:
    """Opens a session of dev's listener in DATA."""
    lines = Lines(door.dev_port)
    assert lines.hear().startswith("220 ")
    lines.say("EHLO me.test\r\n")
    assert lines.say("MAIL FROM:<a@example.test>\r\n").startswith("250 ")
    assert lines.say(f"RCPT TO:<{recipient}>\r\n").startswith("250 ")
    assert lines.say("DATA\r\n").startswith("354 ")
    return lines


def works(door: Door):
    """Checks that a well-behaved client is served."""
    assert in_data(door).say(f"{HEAD}x\r\n.\r\n").startswith("250 2.0.0 Ok: queued as msg_")


def plain(password: str) -> str:
    return base64.b64encode(f"\0{USER}\0{password}".encode()).decode()


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_no_message_can_hide_another_one(dev, authority, end):
    door = Door(dev, authority)
    lines = in_data(door)
    answer = lines.say(f"{HEAD}hello{end}{SMUGGLED}")
    # The apparent second message is part of the first or refused; only its own end is correct.
    assert answer[:9] in ("250 2.0.0", "550 5.6.0"), answer
    assert lines.say("NOOP\r\n").startswith("250 "), "nothing that was smuggled is answered"
    sent = door.server.api.get("/v1/messages?via=smtp")["data"]
    assert [one["to"] for one in sent] == (["ann@example.org"] if answer.startswith("250") else [])


def test_commands_injected_before_starttls_are_ignored_inside_tls(dev, authority):
    door = Door(dev, authority)
    for injected in ("EHLO evil.test\r\n", f"AUTH PLAIN {plain(door.key)}\r\n", "NOOP\r\n", "x", "\r\n", "\x16\x03\x01"):
        lines = Lines(door.port)
        lines.hear()
        lines.say("EHLO me.test\r\n")
        assert lines.say(f"STARTTLS\r\n{injected}").startswith("503 5.5.1 ") and lines.is_closed(), injected
    session = door.smtp(implicit=False)
    session.ehlo("me.test")
    assert session.docmd("STARTTLS")[0] == 503 and session.noop()[0] == 250, "not twice"


def flood(lines: Lines, chunk: bytes, times: int) -> bytes:
    """Sends a chunk many times, reading meanwhile, and returns all answers until the server closed."""
    heard, lines.sock = lines.rest, lines.sock
    lines.sock.settimeout(60)

    def send():
        try:
            for _ in range(times):
                lines.sock.sendall(chunk)
            lines.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # It closed.

    with ThreadPoolExecutor() as pool:
        pool.submit(send)
        while True:
            try:
                more = lines.sock.recv(1 << 16)
            except ConnectionResetError:
                return heard
            if not more:
                return heard
            heard += more


FLOODS = {
    "NOOP": (b"NOOP\r\n" * 1000, 300, b"421 4.7.0 "),
    "RSET": (b"RSET\r\n" * 1000, 300, b"421 4.7.0 "),
    "EHLO with long names": (b"EHLO " + b"x" * 2000 + b"\r\n", 5000, b"421 4.7.0 "),
    "unknown commands": (b"NONSENSE\r\n" * 1000, 300, b"421 4.7.0 "),
    "lines too long": (b"NOOP " + b"x" * 4000 + b"\r\n", 5000, b"421 4.7.0 "),
    "an endless line": (b"x" * 65536, 500, b"500 5.5.2 "),
    "an endless line of AUTH": (b"AUTH PLAIN " + b"x" * 65536, 500, b"500 5.5.6 "),
    "zero bytes": (b"\0" * 65536, 500, b"500 5.5.2 "),
    "line feeds": (b"\n" * 65536, 500, b"500 5.5.2 "),
    "TLS to the clear port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 6000, 100, b"5"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_its_session_in_bounded_time_and_memory(dev, authority, name):
    door = Door(dev, authority)
    works(door)
    before, began = rss(door), time.monotonic()
    chunk, times, expected = FLOODS[name]
    heard = flood(Lines(door.dev_port), chunk, times)
    assert expected in heard and heard.count(b"\n") < 1000, heard[-300:]
    assert time.monotonic() - began < 20 and rss(door) - before < RSS_GROWTH_MAX_KIB
    works(door)


def test_excess_recipients_are_refused_individually(dev, authority):
    door = Door(dev, authority, "[limits]\nrequests_per_minute = 1000000\n")
    works(door)
    before, lines = rss(door), Lines(door.dev_port)
    many = b"".join(b"RCPT TO:<r%d@example.org>\r\n" % number for number in range(20_000))
    heard = flood(lines, b"EHLO me\r\nMAIL FROM:<>\r\n" + many, 1)
    assert heard.count(b"\r\n250 2.1.5 ") == 100 and heard.count(b"\r\n452 4.5.3 ") == 19_900
    assert rss(door) - before < RSS_GROWTH_MAX_KIB
    works(door)


def test_answers_to_a_client_that_reads_nothing_are_bounded(dev, authority):
    door = Door(dev, authority)
    works(door)
    before, lines = rss(door), Lines(door.dev_port)
    lines.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lines.sock.settimeout(3)
    sent = 0
    try:
        while sent < 64 << 20:
            sent += lines.sock.send(b"RCPT TO:<a@b>\r\n" * 4096)
    except OSError:
        pass  # The server reads no more before its answers are read.
    assert sent < 64 << 20 and rss(door) - before < RSS_GROWTH_MAX_KIB
    works(door)


def test_an_endless_message_is_not_stored_and_is_refused_at_its_end(dev, authority):
    door = Door(dev, authority)
    works(door)
    before, lines = rss(door), in_data(door)
    line = b"x" * 1022 + b"\r\n"
    peak = 0
    for _ in range(60):
        lines.sock.sendall(line * 1024)
        peak = max(peak, rss(door))
    assert lines.say(".\r\n").startswith("552 5.3.4 ")
    assert peak - before < (RSS_GROWTH_MAX_KIB + 20 * 1024 * 2)
    assert lines.say("NOOP\r\n").startswith("250 ")
    works(door)


def test_messages_in_flight_use_no_more_than_the_reserved_memory(dev, authority):
    door = Door(dev, authority)
    works(door)
    before = rss(door)
    sessions = [in_data(door, f"r{number}@example.org") for number in range(14)]
    for lines in sessions:
        lines.sock.sendall(HEAD.encode())
    line = b"x" * 1022 + b"\r\n"
    for _ in range(18):
        for lines in sessions:
            lines.sock.sendall(line * 1024)
    for lines in sessions:
        lines.sock.sendall(b"x")
    # 192 MiB of one account, a quarter more, and the memory of every connection.
    assert rss(door) - before < (192 * 5 // 4 + 48) * 1024, rss(door) - before
    answers = [lines.say("\r\n.\r\n")[:9] for lines in sessions]
    assert set(answers) == {"550 5.6.0", "451 4.3.2"} and answers.count("451 4.3.2") >= 4, answers
    until("memory goes back to the system", lambda: held(door) - before < 64 * 1024, 30, every=0.5)
    works(door)


def test_slow_clients_are_disconnected_at_the_login_deadline(dev, authority):
    door = Door(dev, authority, "login_seconds = 2\n")
    lines = Lines(door.port)
    lines.hear()
    lines.sock.settimeout(0.2)
    began, heard = time.monotonic(), b""
    while not heard and time.monotonic() - began < 10:
        lines.sock.sendall(b"E")
        try:
            heard = lines.sock.recv(100)
        except TimeoutError:
            pass
    assert heard.startswith(b"421 4.4.2 ") and 1.5 < time.monotonic() - began < 5


def test_a_missing_handshake_ends_at_the_login_deadline(dev, authority):
    door = Door(dev, authority, "login_seconds = 2\n")
    clear = Lines(door.port)
    clear.hear()
    clear.say("EHLO me.test\r\n")
    assert clear.say("STARTTLS\r\n").startswith("220 ")
    for lines in (clear, Lines(door.tls_port)):
        lines.sock.settimeout(10)
        assert lines.is_closed()


def test_every_failed_login_takes_a_second(dev, authority):
    door = Door(dev, authority)
    began = time.monotonic()
    lines = Lines(door.dev_port)
    guesses = "".join(f"AUTH PLAIN {plain(door.key[:-4] + f'{number:04}')}\r\n" for number in range(50))
    heard = flood(lines, f"EHLO me\r\n{guesses}".encode(), 1).decode()
    assert heard.count("535 5.7.8 ") == 2 and heard.count("421 4.7.0 ") == 1, heard
    assert time.monotonic() - began > 2.9
    with ThreadPoolExecutor(40) as pool:
        said = list(pool.map(lambda _: flood(Lines(door.dev_port), f"EHLO me\r\n{guesses}".encode(), 1), range(40)))
    assert sum(one.count(b"535 5.7.8 ") for one in said) <= 8, "ten failures of an address in 15 minutes"
    assert all(one.count(b"421 4.7.0 ") == 1 for one in said)
    door.logged_in().quit()
