"""Tenants that exceed their share, and keys that exceed their permissions (contract 10.1 and 10.2)."""

import socket
import ssl
import threading

import pytest
from support.server import Api
from support.wait import LOOPBACK, until

UNLIMITED = {"limits": {"requests_per_minute": 100_000_000}, "quota": {"per_hour": 10**9, "per_day": 10**9}}
MESSAGE = {"from": "load@sender.test", "to": "r@sink.test", "subject": "once", "text": "x"}


@pytest.fixture
def service(serve, knot, sink):
    """`serve` without request limits, a verified domain, and aiosmtpd as the receiver of sink.test."""
    knot.mail_server("sink.test", "mx.sink.test")
    service = serve(port=sink.port, **UNLIMITED)
    service.domain("sender.test")
    return service


def make_key(service, **fields) -> Api:
    """Returns an API client with a new key of the service's account."""
    answer = service.api.request("POST", "/v1/keys", {"name": "limited"} | fields)
    assert answer.status == 201, answer
    return Api(service.url, answer.json()["key"])


def refused(answer, status: int, code: str) -> str:
    """Returns the message of an answer that must be this error."""
    assert (answer.status, answer.json()["code"]) == (status, code), answer
    return answer.json()["message"]


def outstanding(service, endpoint: str) -> int:
    """Returns the number of held deliveries of an endpoint."""
    count, cursor = 0, ""
    while True:
        page = service.api.get(f"/v1/webhooks/{endpoint}/deliveries?limit=100{cursor}")
        count += sum(row["status"] in ("held", "pending") for row in page["data"])
        if page["next_cursor"] is None:
            return count
        cursor = f"&cursor={page['next_cursor']}"


def test_repeated_replays_on_a_disabled_endpoint_create_one_delivery_per_event(service, hooks):
    made = service.api.request("POST", "/v1/webhooks", {"url": hooks.url, "events": ["queued"]}).json()
    assert service.api.request("PATCH", f"/v1/webhooks/{made['id']}", {"enabled": False}).status == 200
    for _ in range(40):
        service.api.accept(MESSAGE)
    for _ in range(10):
        answer = service.api.request(
            "POST", f"/v1/webhooks/{made['id']}/replay", {"since": "2020-01-01T00:00:00+00:00", "only_failed": False}
        )
        assert answer.status in (200, 409), answer
        assert answer.status == 409 or answer.json()["created"] == 0, "each event is held already"
    assert outstanding(service, made["id"]) == 40


def test_an_account_has_at_most_a_hundred_keys(service):
    made = [service.api.request("POST", "/v1/keys", {"name": f"key {n}"}) for n in range(99)]
    assert {answer.status for answer in made} == {201}
    assert "100" in refused(service.api.request("POST", "/v1/keys", {"name": "one more"}), 409, "conflict")
    assert service.api.request("DELETE", f"/v1/keys/{made[0].json()['id']}").status == 204
    assert service.api.request("POST", "/v1/keys", {"name": "in its place"}).status == 201


def test_all_keys_of_an_account_share_one_request_rate(serve, knot, sink):
    limits = {"requests_per_minute": 1000, "account_requests_per_minute": 30}
    service = serve(port=sink.port, limits=limits)
    clients = [make_key(service) for _ in range(4)]
    answers = [client.request("GET", "/v1/me") for _ in range(12) for client in clients]
    limited = [answer for answer in answers if answer.status == 429]
    assert limited and all(answer.json()["code"] == "rate_limited" for answer in limited)
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in limited)
    assert sum(answer.status == 200 for answer in answers) <= 30


def test_an_account_stores_no_more_than_its_limit(serve, knot, sink):
    limits = {"stored_bytes_per_account": 400_000, "requests_per_minute": 100_000}
    service = serve(port=sink.port, limits=limits)
    service.domain("sender.test")
    # Digits of a running count hardly compress.
    bodies = ["".join(f"{(n * 7919 + k) * 104729 % 10**9:09d}" for k in range(8000)) for n in range(40)]
    answers = [service.api.send(MESSAGE | {"text": body}) for body in bodies]
    full = [answer for answer in answers if answer.status != 202]
    assert full, "forty messages of 72 KB are more than 400 KB"
    assert {(answer.status, answer.json()["code"], answer.headers["retry-after"]) for answer in full} == {
        (429, "storage_quota_exceeded", "3600")
    }
    storage = service.api.get("/v1/me")["storage"]
    assert storage["limit_bytes"] == 400_000 and 0 < storage["used_bytes"] <= 400_000 + 100_000


def test_a_key_of_one_stream_cannot_change_domains_of_the_other(service):
    domain = service.api.get("/v1/domains")["data"][0]
    marketing = make_key(service, stream="marketing")
    path = f"/v1/domains/{domain['id']}"
    for method, where, body in [
        ("PATCH", path, {"stream": "marketing"}),
        ("DELETE", path, None),
        ("POST", f"{path}/rotate-dkim", None),
        ("POST", f"{path}/verify", None),
        ("POST", "/v1/domains", {"name": "other.test", "stream": "transactional"}),
    ]:
        refused(marketing.request(method, where, body), 403, "stream_forbidden")
    own = marketing.request("POST", "/v1/domains", {"name": "news.test", "stream": "marketing"}).json()
    refused(marketing.request("PATCH", f"/v1/domains/{own['id']}", {"stream": "transactional"}), 403, "stream_forbidden")
    assert service.api.get(path)["stream"] == "transactional"


def test_a_key_without_read_scope_cannot_get_events_by_webhook(service, hooks):
    endpoint = service.api.request("POST", "/v1/webhooks", {"url": hooks.url}).json()
    manager = make_key(service, scopes=["manage"])
    path = f"/v1/webhooks/{endpoint['id']}"
    for method, where, body in [
        ("POST", "/v1/webhooks", {"url": hooks.url}),
        ("PATCH", path, {"url": hooks.url + "/mine"}),
        ("POST", f"{path}/rotate-secret", None),
        ("POST", f"{path}/test", None),
        ("POST", f"{path}/replay", {"since": "2020-01-01T00:00:00+00:00", "only_failed": False}),
    ]:
        refused(manager.request(method, where, body), 403, "scope_forbidden")
    assert service.api.get(path)["url"] == hooks.url


class EndlessContinue:
    """A webhook receiver that answers `100 Continue` until the client disconnects."""

    def __init__(self, certificate):
        self.interim, self.connections = 0, 0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.listener = socket.create_server((LOOPBACK, 0))
        self.url = f"https://hooks.test:{self.listener.getsockname()[1]}/hook"
        self.context = context
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        try:
            with self.context.wrap_socket(connection, server_side=True) as tls:
                tls.recv(65536)
                self.connections += 1
                while True:
                    tls.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                    self.interim += 1
        except OSError:
            pass

    def close(self):
        """Stops listening."""
        self.listener.close()


def test_endless_interim_answers_end_the_attempt_soon(service, authority):
    receiver = EndlessContinue(authority.issue("hooks.test"))
    try:
        endpoint = service.api.request("POST", "/v1/webhooks", {"url": receiver.url}).json()
        assert service.api.request("POST", f"/v1/webhooks/{endpoint['id']}/test").status == 201
        rows = until("the attempt fails", lambda: deliveries_tried(service, endpoint["id"]), seconds=15)
        attempt = service.api.get(f"/v1/webhook-deliveries/{rows[0]['id']}")["attempts"][0]
        assert attempt["error"] == "protocol", attempt
        # Bytes accepted by the socket's buffers are sent without being read.
        assert attempt["duration_ms"] < 9000, "sixteen interim answers are enough"
    finally:
        receiver.close()


def deliveries_tried(service, endpoint: str) -> list[dict]:
    """Returns the deliveries of an endpoint that had an attempt."""
    return [row for row in service.api.get(f"/v1/webhooks/{endpoint}/deliveries")["data"] if row["attempt"] > 0]


def test_dev_refuses_cross_origin_and_rebinding_requests(dev):
    server = dev()
    for host in ["attacker.example", "attacker.example:8025", "127.0.0.1.attacker.example", "localhost.attacker.example"]:
        refused(server.api.request("GET", "/dev/mail", headers={"Host": host}), 403, "dev_forbidden")
    for host in ["localhost", "127.0.0.1", "[::1]", "postrider", "mail.localhost", "x.internal", "a.b.test", "x.local"]:
        assert server.api.request("GET", "/dev/mail", headers={"Host": host}).status == 200, host
    foreign = {"Origin": "https://attacker.example"}
    assert server.api.request("DELETE", "/dev/mail", headers=foreign).status == 403
    assert server.api.request("POST", "/dev/clock", {"advance_seconds": 1}, foreign).status == 403


def test_captured_mail_is_readable_only_by_its_owner(dev):
    server = dev()
    server.api.accept({"from": "a@example.test", "to": "b@example.org", "subject": "s", "text": "t"})
    until("the mail is captured", lambda: server.captured())
    data = server.folder / "data"
    kept = [path for path in data.rglob("*") if path.is_file()]
    readable = [path for path in kept if path.stat().st_mode & 0o077 and path.name != "addresses.json"]
    enterable = [path for path in [data, *data.rglob("*")] if path.is_dir() and path.stat().st_mode & 0o077]
    assert readable == [] and enterable == [], (readable, enterable)
