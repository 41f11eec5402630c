"""Behaviours of webhook receivers and their results: the status or error in the attempt log, whether the event is sent
again, and the time limit (contract 5).

Every behaviour of the table is one endpoint of one running `postrider dev`. All are tried at once, so the table takes
as long as its slowest row: the ten seconds of an attempt. Time is virtual, so that "in one minute" is exact."""

import datetime
import itertools
import json
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from support.names import SERVFAIL, SILENT, Names
from support.pki import Authority
from support.receivers import (
    Listener,
    bomb,
    drips,
    falls_silent,
    never_ends,
    over_tls,
    request,
    resets,
    says,
    server_context,
)
from support.roots import binary
from support.server import Api, Dev

# Some receivers use TLS 1.1.
pytestmark = pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")

DEADLINE_MS = 10_000
# Time after the deadline within which an attempt may end on a loaded machine, and the maximum for one that did not wait
# for it.
LATE_MS, PROMPT_MS = 3_000, 9_000
ENDPOINTS_OF_AN_ACCOUNT = 10
EVIDENCE_MAX = 4096


@dataclass(frozen=True)
class Outcome:
    """The expected attempt log. The event is sent again unless `error` is none."""

    status: int | None = None
    error: str | None = None
    waits: bool = False  # until the deadline
    body: str | None = None  # of the stored answer, if it must be exactly this


def line(status: int, *fields: str, body: bytes = b"") -> bytes:
    """Returns an answer with its length."""
    head = [f"HTTP/1.1 {status} Whatever", *fields, f"Content-Length: {len(body)}"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def answered(status: int, waits: bool = False, body: str | None = None) -> Outcome:
    """The status line arrived, and decides."""
    return Outcome(status, None if 200 <= status < 300 else "status", waits, body)


def failed(error: str, waits: bool = False) -> Outcome:
    """No status line arrived."""
    return Outcome(None, error, waits)


OK = line(200, body=b"fine")
FINE = answered(200, body="fine")
NO_SUCCESS = [400, 401, 404, 408, 410, 413, 418, 500, 502, 504, 599, 600, 999]
# After the request was read, over TLS.
ANSWERS = {
    **{f"{status}": (says(line(status)), answered(status)) for status in [200, 201, 202, 206, 226, 299, *NO_SUCCESS]},
    **{f"{status} without Location": (says(line(status)), answered(status)) for status in range(300, 309)},
    **{
        f"{status} with Location": (says(line(status, "Location: https://elsewhere.test/")), answered(status))
        for status in range(300, 309)
    },
    "204 without body": (says(b"HTTP/1.1 204 No Content\r\n\r\n"), answered(204, body="")),
    "204 with body": (says(line(204, body=b"none")), answered(204)),
    "429 with Retry-After": (says(line(429, "Retry-After: 7200")), answered(429)),
    "503 with Retry-After": (says(line(503, "Retry-After: 1")), answered(503)),
    "100, then 200": (says(b"HTTP/1.1 100 Continue\r\n\r\n", OK), FINE),
    "102, then 200": (says(b"HTTP/1.1 102 Processing\r\n\r\n" * 3, OK), FINE),
    "103, then 200": (says(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", OK), FINE),
    "199, then 200": (says(b"HTTP/1.1 199 Odd\r\n\r\n", OK), FINE),
    "199, then silence": (falls_silent(b"HTTP/1.1 199 Odd\r\n\r\n"), failed("timeout", waits=True)),
    "interim answers for ever": (drips(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), failed("timeout", waits=True)),
    "101": (says(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"), answered(101)),
    "HTTP/1.0": (says(b"HTTP/1.0 200 OK\r\n\r\nfine"), FINE),
    "a status line without a reason": (says(b"HTTP/1.1 200\r\nContent-Length: 4\r\n\r\nfine"), FINE),
    "bare line feeds": (says(b"HTTP/1.1 200 OK\nContent-Length: 4\n\nfine"), FINE),
    "HTTP/0.9": (says(b"<html>fine</html>\r\n"), failed("protocol")),
    "no status line": (says(b"Content-Length: 4\r\n\r\nfine"), failed("protocol")),
    "garbage": (says(bytes(range(256)) * 4), failed("protocol")),
    "HTTP/2.0 in the status line": (says(b"HTTP/2.0 200 OK\r\n\r\n"), failed("protocol")),
    "a status of two digits": (says(b"HTTP/1.1 20 OK\r\n\r\n"), failed("protocol")),
    "a giant status line": (never_ends(b"HTTP/1.1 200 "), failed("protocol")),
    "a giant header": (says(b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * (1 << 20) + b"\r\n\r\n"), failed("protocol")),
    "1,000 headers": (says(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 1000 + b"\r\n"), failed("protocol")),
    "headers for ever": (
        never_ends(b"HTTP/1.1 200 OK\r\n", itertools.repeat(b"X-A: b\r\n" * 1000)),
        failed("protocol"),
    ),
    "headers a byte a second": (drips(b"HTTP/1.1 200 OK\r\nX-A: ", b"b"), failed("timeout", waits=True)),
    "a status line a byte a second": (drips(b"HTTP/1.1 200 ", b"O"), failed("timeout", waits=True)),
    "silence after the request": (falls_silent(), failed("timeout", waits=True)),
    "half a status line, then silence": (falls_silent(b"HTTP/1.1 2"), failed("timeout", waits=True)),
    "a close before the answer": (says(), failed("reset")),
    "a close within the status line": (says(b"HTTP/1.1 20"), failed("reset")),
    "a reset before the answer": (resets(), failed("reset")),
    "a reset within the headers": (resets(b"HTTP/1.1 200 OK\r\nX-A: b"), failed("reset")),
    "a close within the body": (says(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\npart"), answered(200)),
    "a body without end": (never_ends(b"HTTP/1.1 200 OK\r\n\r\n"), answered(200)),
    "a failure's body without end": (never_ends(b"HTTP/1.1 500 Oops\r\n\r\n"), answered(500)),
    "chunks without end": (
        never_ends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", itertools.repeat(b"4\r\nfine\r\n")),
        answered(200),
    ),
    "a body a byte a second": (
        drips(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", b"x"),
        answered(200, waits=True),
    ),
    "a body that never comes": (falls_silent(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), answered(200, True, "")),
    "more body than its length": (says(line(200, body=b"fine") + b"and more"), FINE),
    "two lengths that differ": (
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nfine"),
        failed("protocol"),
    ),
    "garbage for chunks": (says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), answered(200)),
    "a gzip bomb": (says(line(200, "Content-Encoding: gzip", body=bomb())), answered(200)),
    "a body that is not UTF-8": (says(line(200, body=b"\xff\xfe")), answered(200, body="\ufffd\ufffd")),
    "cookies": (says(line(200, "Set-Cookie: a=b", body=b"fine")), FINE),
}

ADDRESSES = {
    "private": "10.0.0.1",
    "cloud metadata": "169.254.169.254",
    "carrier NAT": "100.64.0.1",
    "IPv6 loopback": "::1",
    "IPv4-mapped": "::ffff:10.0.0.1",
    "IPv4-compatible": "::10.0.0.1",
    "NAT64": "64:ff9b::a00:1",
    "6to4": "2002:a00:1::1",
    "Teredo": "2001::1",
    "unique local": "fd00::1",
    "multicast": "224.0.0.1",
}
NAMES = {
    "a name that does not exist": ("absent.hooks.example", None, failed("dns")),
    "a name that can't be looked up": ("servfail.example", SERVFAIL, failed("dns")),
    "a name whose server is silent": ("silent.example", SILENT, failed("dns")),
    "a name without addresses": ("empty.example", [], failed("dns")),
    **{
        f"a name at an address that is {kind}": (f"moved{number}.example", [address], failed("blocked"))
        for number, (kind, address) in enumerate(ADDRESSES.items())
    },
}
HANDSHAKES = {
    "an expired certificate": failed("tls"),
    "a certificate that is not valid yet": failed("tls"),
    "a certificate for another name": failed("tls"),
    "a certificate of an unknown authority": failed("tls"),
    "TLS 1.2": FINE,
    "TLS 1.1 at most": failed("tls"),
    "a client certificate wanted": FINE,
    "a client certificate required, TLS 1.2": failed("tls"),
    "a client certificate required, TLS 1.3": failed("tls"),
    "HTTP/2 alone": failed("protocol"),
    "plain HTTP": failed("tls"),
    "mail on the port": failed("tls"),
    "silence after the connection": failed("timeout", waits=True),
    "a close after the connection": failed("reset"),
    "a reset after the connection": failed("reset"),
    "nobody listens": failed("connect"),
}
EXPECTED = {name: outcome for name, (_, outcome) in ANSWERS.items()}
EXPECTED |= {name: outcome for name, (*_, outcome) in NAMES.items()} | HANDSHAKES


class World:
    """The receivers of the table, their names, and a `dev` that knows both, and a proxy setting that it must ignore."""

    def __init__(self, folder, monkeypatch):
        self.authority = Authority(folder / "pki")
        self.certificate = self.authority.issue("*.hooks.test")
        self.folder = folder
        table = {host: entry for host, entry, _ in NAMES.values() if entry is not None}
        self.names = Names(table | {"*.hooks.test": ["127.0.0.1"]})
        self.listeners = [Listener(over_tls(server_context(self.certificate), self._answer))]
        self.proxy = Listener(says())
        self.tried = dict.fromkeys(ANSWERS, 0)
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{self.proxy.port}")
        config = (
            f'[dns]\nservers = ["{self.names.address}"]\n[network]\nallow = ["127.0.0.0/8"]\n'
            f'[webhooks]\nextra_roots = "{self.authority.root}"\n'
        )
        self.dev = Dev(folder / "dev", ("--virtual-clock",), config)

    def _answer(self, connection):
        path, body = request(connection)
        name = list(ANSWERS)[int(path.strip("/"))]
        self.tried[name] += 1
        assert b'"type":"test"' in body
        behave, _ = ANSWERS[name]
        behave(connection)

    def urls(self) -> dict[str, str]:
        """Returns the URL of each row's receiver."""
        port = self.listeners[0].port
        # A host for each row: connections are kept by host, and these receivers close theirs without a word.
        urls = {name: f"https://row{number}.hooks.test:{port}/{number}" for number, name in enumerate(ANSWERS)}
        urls |= {name: f"https://{host}:{port}/" for name, (host, *_) in NAMES.items()}
        for number, (name, listener) in enumerate(self._handshakes().items()):
            if listener is None:
                gone = Listener(says())
                gone.close()
                urls[name] = f"https://handshake{number}.hooks.test:{gone.port}/"
            else:
                self.listeners.append(listener)
                urls[name] = f"https://handshake{number}.hooks.test:{listener.port}/"
        return urls

    def _handshakes(self) -> dict[str, Listener | None]:
        def tls(certificate=self.certificate, behave=says(OK), **settings) -> Listener:
            context = server_context(certificate)
            for name, value in settings.items():
                setattr(context, name, value)

            def after_request(connection):
                request(connection)
                behave(connection)

            return Listener(over_tls(context, after_request))

        def wanting(verify: ssl.VerifyMode, version: ssl.TLSVersion) -> Listener:
            context = server_context(self.certificate)
            context.load_verify_locations(self.authority.root)
            context.verify_mode, context.maximum_version = verify, version

            def after_request(connection):
                request(connection)
                says(OK)(connection)

            return Listener(over_tls(context, after_request))

        second = Authority(self.folder / "pki2")
        http2 = server_context(self.certificate)
        http2.set_alpn_protocols(["h2"])
        old = server_context(self.certificate)
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        v12, v13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
        listeners = [
            tls(self.authority.issue("expired.test", "*.hooks.test", days=(-9, -1))),
            tls(self.authority.issue("early.test", "*.hooks.test", days=(1, 9))),
            tls(self.authority.issue("other.test")),
            tls(second.issue("*.hooks.test")),
            tls(maximum_version=v12),
            Listener(over_tls(old, says(OK))),
            wanting(ssl.CERT_OPTIONAL, v13),
            wanting(ssl.CERT_REQUIRED, v12),
            wanting(ssl.CERT_REQUIRED, v13),
            Listener(over_tls(http2, falls_silent(b"\0\0\0\4\0\0\0\0\0"))),
            Listener(says(OK)),
            Listener(says(b"220 mail.example ESMTP\r\n")),
            Listener(falls_silent()),
            Listener(says()),
            Listener(resets()),
            None,
        ]
        return dict(zip(HANDSHAKES, listeners, strict=True))

    def attempts(self) -> dict[str, dict]:
        """Returns each row's delivery once all have been attempted."""
        rows = list(self.urls().items())
        places = [rows[n : n + ENDPOINTS_OF_AN_ACCOUNT] for n in range(0, len(rows), ENDPOINTS_OF_AN_ACCOUNT)]
        with ThreadPoolExecutor(4) as pool:
            asked = [entry for told in pool.map(self._tell, places) for entry in told]
        # Answered when all due work is settled.
        waiting = Api(self.dev.info["url"], None)
        answer = waiting.request("POST", "/dev/clock", {"advance_seconds": 0})
        assert answer.status == 200, answer
        return {name: api.get(f"/v1/webhook-deliveries/{delivery}") for name, api, delivery in asked}

    def _tell(self, rows) -> list[tuple[str, Api, str]]:
        """Creates accounts with an endpoint for each row, and sends a test to each."""
        account = self.cli("account", "add", "Receivers")["id"]
        api = Api(self.dev.info["url"], self.cli("key", "add", "--account", account, "--name", "k")["key"])
        told = []
        for name, url in rows:
            made = api.request("POST", "/v1/webhooks", {"url": url})
            assert made.status == 201, (name, made)
            test = api.request("POST", f"/v1/webhooks/{made.json()['id']}/test", {})
            assert test.status == 201, (name, test)
            told.append((name, api, test.json()["id"]))
        return told

    def cli(self, *words: str) -> dict:
        """Runs a command and parses its --json answer."""
        command = [binary(), *words, "--data-dir", self.dev.info["data_dir"], "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def close(self):
        """Ends everything."""
        self.dev.close()
        self.names.close()
        for listener in [*self.listeners, self.proxy]:
            listener.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One world for the whole table."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        world = World(tmp_path_factory.mktemp("receivers"), monkeypatch)
        yield world
        world.close()


@pytest.fixture(scope="module")
def deliveries(world):
    """Every row's delivery after its first attempt."""
    return world.attempts()


def moment(text: str) -> datetime.datetime:
    """Parses a time of the API."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.parametrize("name", EXPECTED)
def test_each_receiver_behaviour_has_its_documented_result(deliveries, name):
    expected, delivery = EXPECTED[name], deliveries[name]
    assert [attempt["attempt"] for attempt in delivery["attempts"]] == [1]
    attempt = delivery["attempts"][0]
    assert (attempt["status"], attempt["error"]) == (expected.status, expected.error)
    if expected.error is None:
        assert (delivery["status"], delivery["next_attempt_at"]) == ("delivered", None)
    else:
        assert delivery["status"] == "pending"
        due = moment(delivery["next_attempt_at"]) - moment(attempt["at"])
        assert due == datetime.timedelta(minutes=1), "regardless of the receiver's Retry-After"
    if expected.waits:
        assert DEADLINE_MS <= attempt["duration_ms"] <= DEADLINE_MS + LATE_MS
    else:
        assert attempt["duration_ms"] < PROMPT_MS
    evidence = attempt["response_body"]
    assert (evidence is None) == (expected.status is None)
    assert evidence is None or len(evidence.encode()) <= EVIDENCE_MAX
    assert expected.body is None or evidence == expected.body


def test_one_attempt_is_one_request_without_a_proxy(world, deliveries):
    assert len(deliveries) >= 40
    assert {name: count for name, count in world.tried.items() if count != 1} == {}
    assert world.proxy.accepted == 0


def test_the_receivers_and_the_service_are_still_running(world, deliveries):
    assert world.dev.child.poll() is None
    assert "panicked" not in world.dev.logged()


def test_a_name_that_changes_to_a_private_address_is_blocked_at_the_next_connection(workdir):
    authority = Authority(workdir / "pki")
    names = Names({"moving.test": ["127.0.0.1"]})
    came = []

    def behave(connection):
        came.append(request(connection))
        says(line(500))(connection)

    listener = Listener(over_tls(server_context(authority.issue("moving.test")), behave))
    config = (
        f'[dns]\nservers = ["{names.address}"]\n[network]\nallow = ["127.0.0.0/8"]\n'
        f'[webhooks]\nextra_roots = "{authority.root}"\n'
    )
    dev = Dev(workdir / "dev", ("--virtual-clock",), config)
    try:
        made = dev.api.request("POST", "/v1/webhooks", {"url": f"https://moving.test:{listener.port}/"}).json()
        test = dev.api.request("POST", f"/v1/webhooks/{made['id']}/test", {}).json()
        dev.advance(0)
        for address, wait in (["10.0.0.1"], 60), (["169.254.169.254", "::1"], 300), (["127.0.0.1"], 1800):
            names.table["moving.test"] = address
            dev.advance(wait)
        attempts = dev.api.get(f"/v1/webhook-deliveries/{test['id']}")["attempts"]
        seen = [(attempt["attempt"], attempt["status"], attempt["error"]) for attempt in attempts]
        assert sorted(seen) == [(1, 500, "status"), (2, None, "blocked"), (3, None, "blocked"), (4, 500, "status")]
        assert len(came) == listener.accepted == 2
    finally:
        dev.close()
        listener.close()
        names.close()


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1",
        "0x0a.0.0.1",
        "012.0.0.1",
        "167772161",
        "10.1",
        "\uff11\uff10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::1]",
        "[2001::1]",
        "[fe80::1]",
        "localhost",
        "localhost.",
        "a.localhost",
    ],
)
def test_a_non_global_literal_address_is_refused_in_every_notation(shared_dev, host):
    answer = shared_dev.api.request("POST", "/v1/webhooks", {"url": f"https://{host}/hook"})
    assert answer.status == 422 and "url" in answer.json()["errors"], answer


@pytest.fixture(scope="module")
def shared_dev(tmp_path_factory):
    """A `dev` that allows only the public internet."""
    dev = Dev(tmp_path_factory.mktemp("literals") / "dev", (), "[network]\nallow = []\n")
    yield dev
    dev.close()
