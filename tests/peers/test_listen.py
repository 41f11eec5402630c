"""`postrider webhook listen`: requests to a developer's program, and the webhooks that it accepts (contract 5)."""

import hashlib
import hmac
import http.client
import http.server
import json
import os
import signal
import subprocess
import threading
import time

import pytest
import stripe
from standardwebhooks import Webhook

from support.hooks import Hook
from support.roots import binary
from support.wait import LOOPBACK, free_port, until

MESSAGE = {"from": "hello@example.test", "to": "you@example.org", "subject": "Grüße €", "text": "x"}
SECRET = "whsec_q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k="


class Program:
    """A program under development, without TLS on loopback. `statuses` are its next answers, after which it answers
    200."""

    def __init__(self, port: int = 0):
        self.received: list[Hook] = []
        self.statuses: list[int] = []
        program = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """One request."""

            def do_POST(self):  # noqa: N802 (http.server's name)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                program.received.append(Hook(self.path, {n.lower(): v for n, v in self.headers.items()}, body))
                self.send_response(program.statuses.pop(0) if program.statuses else 200)
                self.end_headers()

            def log_message(self, *_):
                """Logs nothing: the received requests are the log."""

        self.server = http.server.ThreadingHTTPServer((LOOPBACK, port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://{LOOPBACK}:{self.port}/hook?a=b"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        """Stops listening."""
        self.server.shutdown()
        self.server.server_close()


class Listener:
    """A running `webhook listen`, and its printed lines."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None):
        self.lines: list[str] = []
        self.remarks: list[str] = []
        self.child = subprocess.Popen(
            [binary(), "webhook", "listen", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        for pipe, kept in ((self.child.stdout, self.lines), (self.child.stderr, self.remarks)):
            threading.Thread(target=self._keep, args=(pipe, kept), daemon=True).start()

    @staticmethod
    def _keep(pipe, kept: list[str]):
        for line in pipe:
            kept.append(line.rstrip("\n"))

    def ready(self) -> str:
        """Returns its first message, which says that it listens."""
        return until("the listener listens", lambda: next((r for r in self.remarks if "Ctrl-C" in r), None))

    def objects(self, count: int) -> list[dict]:
        """Returns its output, once there are `count` lines."""
        return [json.loads(line) for line in until(f"{count} lines", lambda: len(self.lines) >= count and self.lines)]

    def interrupt(self) -> int:
        """Sends SIGINT, and returns the exit code."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
        return self.child.wait(20)


@pytest.fixture
def program():
    """A program that acknowledges everything."""
    program = Program()
    yield program
    program.close()


@pytest.fixture
def listen():
    """Makes listeners: `listen("--forward-to", url)`."""
    started = []

    def start(*arguments: str, **options) -> Listener:
        started.append(Listener(*arguments, **options))
        return started[-1]

    yield start
    for listener in started:
        if listener.child.poll() is None:
            listener.child.kill()
            listener.child.wait()


def send(server, count: int = 1) -> list[str]:
    """Sends messages that are delivered; returns their identifiers."""
    ids = [server.api.accept(MESSAGE)["id"] for _ in range(count)]
    for message in ids:
        server.api.settled(message, "delivered")
    return ids


def test_a_program_gets_every_event_like_an_endpoint_and_both_libraries_verify_it(dev, program, listen):
    server = dev()
    listener = listen("--forward-to", program.url, "--data-dir", server.info["data_dir"], "--json")
    listener.ready()
    messages = send(server, 3)
    heard = listener.objects(7)
    secret = heard[0]["secret"]
    log = {event["id"]: event for event in server.api.get("/v1/events?limit=100")["data"]}
    assert len(program.received) == len(log) == 6
    for hook, line in zip(program.received, heard[1:], strict=True):
        header = hook.headers["x-service-signature"]
        assert stripe.WebhookSignature.verify_header(hook.body.decode(), header, secret, tolerance=300)
        Webhook(secret).verify(hook.body, hook.headers)
        event = log[hook.headers["webhook-id"]]
        assert json.loads(hook.body) == event and event["message_id"] in messages
        assert hook.headers["x-service-event"] == event["type"] and hook.headers["x-service-attempt"] == "1"
        assert hook.headers["x-service-delivery"].startswith("dlv_")
        assert hook.headers["user-agent"].startswith("Postrider/") and hook.path == "/hook?a=b"
        assert line == {
            "event_id": event["id"],
            "type": event["type"],
            "message_id": event["message_id"],
            "created_at": event["created_at"],
            "status": 200,
            "error": None,
            "attempts": 1,
        }
    raw = server.api.request("GET", "/v1/events?limit=100").body
    assert all(hook.body in raw for hook in program.received), "the exact bytes of the log"
    assert listener.interrupt() == 0


def test_it_follows_a_remote_service_by_key_and_only_the_selected_types(dev, program, listen):
    server = dev()
    arguments = ["--forward-to", program.url, "--url", server.info["url"], "--events", "delivered,bounced", "--json"]
    listener = listen(
        *arguments,
        environment={"POSTRIDER_API_KEY": server.info["api_key"], "POSTRIDER_WEBHOOK_SECRET": SECRET},
    )
    listener.ready()
    send(server, 2)
    heard = listener.objects(2)
    assert [line["type"] for line in heard] == ["delivered", "delivered"], "a known secret is not printed"
    for hook in program.received:
        Webhook(SECRET).verify(hook.body, hook.headers)
    assert listener.interrupt() == 0

    refused = listen(*arguments, "--key", "pr_live_wrong")
    assert refused.child.wait(20) == 5, refused.remarks
    nobody = listen("--url", f"http://127.0.0.1:{free_port()}", "--key", "k")
    assert nobody.child.wait(20) == 4, nobody.remarks


def test_a_failing_program_gets_retries_with_the_same_delivery_id_and_a_new_signature(dev, program, listen):
    server = dev()
    program.statuses = [500, 302]
    listener = listen(
        "--forward-to", program.url, "--data-dir", server.info["data_dir"], "--events", "queued", "--json"
    )
    listener.ready()
    send(server)
    line = listener.objects(2)[1]
    assert (line["status"], line["attempts"]) == (200, 3)
    hooks = program.received
    assert [hook.headers["x-service-attempt"] for hook in hooks] == ["1", "2", "3"]
    assert len({hook.body for hook in hooks}) == len({hook.headers["x-service-delivery"] for hook in hooks}) == 1
    assert len({hook.headers["x-service-signature"] for hook in hooks}) == 3
    program.close()
    send(server)
    line = listener.objects(3)[2]
    assert (line["status"], line["attempts"]) == (None, 3) and line["error"]


def test_no_event_is_missed_or_repeated_across_restarts_of_service_or_listener(serve, sink, program, listen):
    server = serve(port=sink.port)
    server.domain("sender.test")

    def told(count: int) -> list[str]:
        for _ in range(count):
            server.api.accept(MESSAGE | {"from": "a@sender.test", "to": "b@recipient.test"})
        return [event["id"] for event in server.api.get("/v1/events?type=queued&limit=100")["data"]][::-1]

    arguments = ["--forward-to", program.url, "--data-dir", str(server.data_dir), "--events", "queued", "--json"]
    listener = listen(*arguments, "--secret", SECRET)
    listener.ready()
    told(3)
    listener.objects(3)
    server.kill()
    server.start()
    told(2)
    seen = listener.objects(5)
    assert listener.interrupt() == 0
    told(2)
    again = listen(*arguments, "--secret", SECRET, "--after", seen[-1]["event_id"])
    again.ready()
    ids = told(1)
    seen += again.objects(3)
    assert [line["event_id"] for line in seen] == ids == [hook.headers["webhook-id"] for hook in program.received]


def test_text_output_has_one_line_per_event(dev, listen):
    server = dev()
    listener = listen("--data-dir", server.info["data_dir"])
    listener.ready()
    message = send(server)[0]
    lines = until("two lines", lambda: len(listener.lines) >= 2 and listener.lines)
    assert ["queued" in lines[0], "delivered" in lines[1], message in lines[0]] == [True, True, True]
    assert listener.interrupt() == 0


def post(url: str, headers: dict[str, str], body: bytes) -> int:
    """Returns the status of one POST."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    try:
        connection.request("POST", "/", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_receiver_accepts_only_authentic_webhooks_of_the_last_300_seconds(listen):
    listener = listen("--receive", "127.0.0.1:0", "--secret", SECRET, "--json")
    url = listener.ready().split("receiving at ")[1].split(";")[0]
    body, now = b'{"id":"evt_1","type":"queued","message_id":"msg_1"}', int(time.time())

    def signed(t: int, secret: str = SECRET) -> dict[str, str]:
        digest = hmac.new(secret.encode(), f"{t}.".encode() + body, hashlib.sha256).hexdigest()
        return {"X-Service-Signature": f"t={t},v1={digest}", "X-Service-Event": "queued", "webhook-id": "evt_1"}

    assert post(url, signed(now), body) == post(url, signed(now - 280), body) == 204
    assert post(url, signed(now - 310), body) == 401
    assert post(url, signed(now, "whsec_other"), body) == 401
    assert post(url, signed(now), body + b" ") == 401
    assert post(url, {}, body) == 401
    assert post(url, signed(now), b"x" * (2 << 20)) in (401, 413)
    heard = listener.objects(6)
    assert [line["status"] for line in heard[:6]] == [204, 204, 401, 401, 401, 401]
    assert heard[0]["event_id"] == "evt_1" and "300 s" in heard[2]["error"]
    assert listener.interrupt() == 0


def test_one_listener_forwards_to_another_which_accepts_it(dev, listen):
    server = dev()
    receiver = listen("--receive", "127.0.0.1:0", "--secret", SECRET, "--json")
    url = receiver.ready().split("receiving at ")[1].split(";")[0]
    sender = listen("--forward-to", url, "--secret", SECRET, "--data-dir", server.info["data_dir"], "--json")
    sender.ready()
    send(server)
    for heard in (sender.objects(2), receiver.objects(2)):
        assert [line["status"] for line in heard] == [204, 204]
