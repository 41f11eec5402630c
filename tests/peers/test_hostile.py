"""A corpus of hostile requests (tables in `hostile/`): each gets its documented answer within seconds, none leaks
memory, and after each block the service still works (contract 1 to 3)."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hostile import fields, http_level, json_level, messages, wire
from hostile.row import HOST, Answer, Row, answers, exchange, first_answer

from support.server import Dev

# Webhooks may reach only the public internet, as in production.
LIMITS = 'hostname = "mail.sender.test"\n[limits]\nrequests_per_minute = 1000000\n[network]\nallow = []\n'
# A debug build needs a while for a request of 25 MiB or a hundred thousand nested arrays; a hang never ends.
SECONDS = 10
ROWS_AT_LEAST = 1000
RSS_GROWTH_MAX_KIB = 64 * 1024


class Victim:
    """One `dev` for the whole corpus, with counts of the requests sent and of its memory growth."""

    def __init__(self, folder):
        self.dev = Dev(folder, ("--virtual-clock",), LIMITS)
        self.key = self.dev.info["api_key"]
        self.address = (self.dev.api.host, self.dev.api.port)
        self.rows = 0
        self.ids = {
            "key": self._made("/v1/keys", {"name": "spare"}),
            "webhook": self._made("/v1/webhooks", {"url": "https://hooks.example/in"}),
            "domain": self.dev.api.get("/v1/domains")["data"][0]["id"],
        }
        self.works()
        self.rss_at_first = self.rss()

    def _made(self, path: str, body: dict) -> str:
        answer = self.dev.api.request("POST", path, body)
        assert answer.status == 201, answer
        return answer.json()["id"]

    def rss(self) -> int:
        """Resident memory in KiB."""
        with open(f"/proc/{self.dev.child.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

    def works(self):
        """Checks that the service still works."""
        print(f"{self.rows} rows, {self.rss()} KiB")
        sent = self.dev.api.accept(http_level.GOOD)
        assert self.dev.api.message(sent["id"])["id"] == sent["id"]
        assert self.dev.api.request("GET", "/readyz").status == 200

    def ask(self, request: bytes) -> list[Answer]:
        """Returns the service's answers until it closes."""
        self.rows += 1
        return answers(exchange(self.address, request, SECONDS))


@pytest.fixture(scope="module")
def victim(tmp_path_factory):
    victim = Victim(tmp_path_factory.mktemp("hostile") / "dev")
    yield victim
    victim.dev.close()


def fault_of(victim: Victim, row: Row) -> str | None:
    """Returns the problem of a row's answer, if it has one."""
    victim.rows += 1
    try:
        answer = first_answer(victim.address, row.request, SECONDS)
    except (OSError, ValueError) as error:
        return repr(error)
    if answer.status != row.status:
        return f"{answer.status}: {answer.body[:200]!r}"
    if any(answer.headers.get(name) != value for name, value in row.headers.items()):
        return f"headers: {answer.headers}"
    return None if row.code is None else fault_in_body(row, answer)


def fault_in_body(row: Row, answer: Answer) -> str | None:
    """Checks the form of contract 1: a sentence, a code, and `errors` on every 422."""
    body = json.loads(answer.body)
    if body["code"] != row.code or not body["message"] or not answer.headers.get("x-request-id"):
        return f"{body}"
    if (answer.status == 422) != ("errors" in body):
        return f"errors: {body}"
    if row.named == "*":
        return None if body["errors"] else "errors is empty"
    if row.named is not None and not any(has(name, row.named) for name in body["errors"]):
        return f"errors does not name {row.named!r}: {list(body['errors'])[:9]}"
    return None


def has(name: str, named: str) -> bool:
    """Whether an error is about a field or a part of it."""
    return name == named or name.startswith(f"{named}.")


def run(victim: Victim, rows):
    """Sends a block of rows, one by one; reports all failures together."""
    faults = {}
    for row in rows:
        began = time.monotonic()
        fault = fault_of(victim, row)
        if fault or time.monotonic() - began > SECONDS:
            faults[row.name] = fault or f"took {time.monotonic() - began:.0f} s"
        assert victim.dev.child.poll() is None, f"{row.name} ended the process:\n{victim.dev.logged()[-2000:]}"
    assert not faults, f"{len(faults)} rows:\n" + "\n".join(f"{name}: {fault}" for name, fault in faults.items())
    victim.works()


def test_an_invalid_request_ends_its_connection_and_a_hidden_one_is_not_served(victim):
    faults = {}
    for name, request in wire.no_requests():
        try:
            got = victim.ask(request)
        except (OSError, ValueError) as error:
            faults[name] = repr(error)
            continue
        if len(got) > 1 or any(not 400 <= answer.status < 500 for answer in got):
            faults[name] = [(answer.status, answer.body[:80]) for answer in got]
    assert not faults, f"{len(faults)} rows:\n" + "\n".join(f"{name}: {fault}" for name, fault in faults.items())
    victim.works()


def test_malformed_chunks_are_answered_with_4xx_and_end_the_connection(victim):
    faults = {}
    for name, request in wire.misframed(victim.key):
        try:
            got = victim.ask(request)
        except (OSError, ValueError) as error:
            faults[name] = repr(error)
            continue
        # A client that is still writing when the connection ends may not see the answer.
        if len(got) > 1 or any(not 400 <= answer.status < 500 or "code" not in answer.body.decode() for answer in got):
            faults[name] = got
    assert not faults, faults
    victim.works()


@pytest.mark.parametrize(
    "block",
    [http_level.methods, http_level.paths, http_level.queries, http_level.types_and_sizes, http_level.credentials]
    + [http_level.idempotency, json_level.nested_types],
)
def test_a_request_that_violates_the_contract_is_refused(victim, block):
    run(victim, block(victim.key))


@pytest.mark.parametrize("block", [json_level.no_objects, json_level.wrong_types])
def test_a_body_that_does_not_fit_its_route_is_refused(victim, block):
    run(victim, block(victim.key, victim.ids))


@pytest.mark.parametrize(
    "block",
    [
        fields.addresses,
        fields.lines,
        fields.headers,
        fields.urls,
        fields.times_and_names,
        messages.sizes,
        messages.raws,
    ],
)
def test_a_field_one_beyond_its_limit_is_named(victim, block):
    run(victim, block(victim.key))


def test_a_client_that_stops_mid_request_is_disconnected(victim):
    head = b"POST /v1/messages HTTP/1.1\r\n" + HOST + b"Authorization: Bearer " + victim.key.encode() + b"\r\n"
    stopped = [
        b"",
        b"G",
        b"GET /healthz HTTP/1.1\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: ",
        b"PRI * HTTP/2.0\r\n\r\n",
        head + b"Content-Length: 5\r\n\r\n{",
        head + b"Content-Length: 26214400\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ",
    ] * 4

    def left_alone(request: bytes) -> list[Answer]:
        # A head may take ten seconds, a body twenty.
        return answers(exchange(victim.address, request, 30, half_close=False))

    with ThreadPoolExecutor(len(stopped)) as pool:
        waiting = [pool.submit(left_alone, request) for request in stopped]
        victim.works()
        for request, future in zip(stopped, waiting, strict=True):
            assert [answer.status for answer in future.result()] in ([], [408]), request
    victim.rows += len(stopped)


def test_the_corpus_is_large_and_leaks_no_memory(victim):
    # Memory kept by the allocator counts too; one leaked body of 25 MiB would not be noticed, three would.
    grown = victim.rss() - victim.rss_at_first
    print(f"{victim.rows} rows, {grown} KiB grown from {victim.rss_at_first} KiB")
    assert victim.rows >= ROWS_AT_LEAST
    assert grown < RSS_GROWTH_MAX_KIB


def test_a_field_at_its_limit_is_accepted(victim):
    for message in messages.allowed():
        victim.dev.api.accept(message)
