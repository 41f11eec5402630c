"""SMTP submission during failures: an outage of ours, refused recipients and quotas, and kill -9. Clients that queue (a
real Postfix) or retry with an idempotency key lose nothing and send nothing twice."""

import os
import random
import smtplib
import socket
import ssl
import subprocess
import threading
from collections import Counter

import pytest
from support.null_client import NullClient
from support.roots import library_path, private_root, program
from support.submission import HOST, USER, Door
from support.wait import free_port, until

ROUNDS = int(os.environ.get("POSTRIDER_CRASH_ROUNDS", "3"))
SEED = int(os.environ.get("POSTRIDER_CRASH_SEED", random.SystemRandom().randrange(1 << 32)))
UNLIMITED = {"limits": {"requests_per_minute": 100_000_000}, "quota": {"per_hour": 10**9, "per_day": 10**9}}
SENDER = "load@sender.test"


def by_smtp(api) -> list[dict]:
    """Returns every message that was submitted by SMTP."""
    rows, cursor = [], ""
    while True:
        page = api.get(f"/v1/messages?via=smtp&limit=100{cursor}")
        rows += page["data"]
        if page["next_cursor"] is None:
            return rows
        cursor = f"&cursor={page['next_cursor']}"


@pytest.fixture
def service(serve, knot, sink, authority):
    """`serve` with both doors at ports that outlive a restart, and aiosmtpd as the receiver of sink.test."""
    knot.mail_server("sink.test", "mx.sink.test")
    file = str(authority.issue(HOST))
    ports = free_port(), free_port()
    door = {"listen": [f"127.0.0.1:{ports[0]}"], "tls_listen": [f"127.0.0.1:{ports[1]}"], "certificate": file, "key": file}
    service = serve(port=sink.port, submission=door, **UNLIMITED)
    service.port, service.tls_port, service.root = *ports, str(authority.root)
    service.domain("sender.test")
    return service


def test_postfix_queues_mail_during_an_outage_and_submits_all_of_it(service, sink, authority, workdir):
    postfix = NullClient(workdir / "null", authority, service.port, service.key)
    try:
        for number in range(5):
            postfix.take([f"before{number}@sink.test"], sender=SENDER)
        until("it submits the messages", lambda: len(by_smtp(service.api)) == 5, 60, every=0.2)
        service.kill()
        for number in range(15):
            postfix.take([f"during{number}@sink.test"], sender=SENDER)
        until("all wait", lambda: postfix.waiting() == 15 and "Connection refused" in postfix.logged(), 60, every=0.2)
        service.start()
        until("the queue is empty", lambda: postfix.waiting() == 0, 60, every=0.5)
        assert Counter(one["to"] for one in by_smtp(service.api)) == Counter(
            [f"before{n}@sink.test" for n in range(5)] + [f"during{n}@sink.test" for n in range(15)]
        )
        until("the receiver has all", lambda: len(sink.by_message_id()) == 20, 60, every=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{postfix.logged()[-4000:]}") from None
    finally:
        postfix.close()


def test_postfix_sends_to_the_others_if_one_recipient_is_refused(dev, authority, workdir):
    door = Door(dev, authority)
    assert door.server.api.request("POST", "/v1/suppressions", {"email": "gone@example.org"}).status == 201
    postfix = NullClient(workdir / "null", authority, door.port, door.key)
    try:
        postfix.take(["a@example.org", "gone@example.org", "b@example.org"])
        until("two are accepted", lambda: len(by_smtp(door.server.api)) == 2, 60, every=0.2)
        refusals = "/v1/submission-refusals"
        # Its report to its own user is from MAILER-DAEMON at an unverified domain.
        until("its report is refused", lambda: len(door.server.api.get(refusals)["data"]) == 2, 60, every=0.2)
        report, refused = door.server.api.get(refusals)["data"]
        assert refused["to"] == "gone@example.org" and refused["reply"].startswith("550 5.7.1 ")
        assert report["stage"] == "data" and report["mail_from"] == "" and report["reply"].startswith("550 5.7.1 ")
        until("the queue is empty", lambda: postfix.waiting() == 0, 60, every=0.5)
        assert {one["to"] for one in by_smtp(door.server.api)} == {"a@example.org", "b@example.org"}
    finally:
        postfix.close()


def test_postfix_waits_for_the_quota_and_sends_the_rest_afterwards(dev, authority, workdir):
    door = Door(lambda **more: dev("--virtual-clock", **more), authority, "[quota]\nper_hour = 5\n")
    postfix = NullClient(workdir / "null", authority, door.port, door.key)
    try:
        for number in range(8):
            postfix.take([f"r{number}@example.org"])
        until("the quota is used up", lambda: len(by_smtp(door.server.api)) == 5, 60, every=0.2)
        until("three wait", lambda: postfix.waiting() == 3 and "452 4.7.1" in postfix.logged(), 60, every=0.2)
        door.server.advance(3600)
        until("the queue is empty", lambda: postfix.waiting() == 0, 60, every=0.5)
        assert sorted(one["to"] for one in by_smtp(door.server.api)) == [f"r{n}@example.org" for n in range(8)]
    except AssertionError as error:
        raise AssertionError(f"{error}\n{postfix.logged()[-4000:]}") from None
    finally:
        postfix.close()


def test_smtp_source_sends_a_thousand_messages_over_twenty_sessions(dev):
    source, environment = program("smtp-source", "postfix")
    if root := private_root("postfix"):
        environment["LD_LIBRARY_PATH"] = library_path(root, "usr/lib/postfix")
    server = dev()
    port = server.info["smtp_url"].rsplit(":", 1)[1]
    command = [source, "-s", "20", "-m", "1000", "-l", "2000", "-f", "load@example.test", "-t", "r@example.org", "-N"]
    done = subprocess.run(
        [*command, f"127.0.0.1:{port}"], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(by_smtp(server.api)) == 1000


class SmtpLoad:
    """Threads that send message after message, each with a new key, until the server is gone."""

    def __init__(self, service, label: str, accepted: dict[str, list[str]], doubtful: dict[str, list[str]]):
        self.service, self.label, self.accepted, self.doubtful = service, label, accepted, doubtful
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._send, args=(n,), daemon=True) for n in range(4)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        """Stops the load; each thread finishes its message."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()

    def _send(self, thread: int):
        try:
            session, count = logged_in(self.service), 0
            while not self.stopping.is_set():
                count += 1
                key = f"{self.label}-{thread}-{count}"
                recipients = [f"r{thread}-{place}@sink.test" for place in range(3)]
                self.doubtful[key] = recipients
                self.accepted[key] = submit(session, key, recipients)
                del self.doubtful[key]
        except (OSError, smtplib.SMTPException):
            pass  # The server is dead; the restart shows whether it accepted the last message.


def logged_in(service) -> smtplib.SMTP:
    """Returns a session of port 465 that may send."""
    raw = socket.create_connection(("127.0.0.1", service.tls_port), timeout=30)
    session = smtplib.SMTP(timeout=30)
    session._host = HOST
    session.sock = ssl.create_default_context(cafile=service.root).wrap_socket(raw, server_hostname=HOST)
    session.getreply()
    session.login(USER, service.key)
    return session


def submit(session: smtplib.SMTP, key: str, recipients: list[str]) -> list[str]:
    """Sends one message under an idempotency key, and returns its identifiers."""
    assert session.mail(SENDER)[0] == 250
    for recipient in recipients:
        assert session.rcpt(recipient)[0] == 250
    head = f"From: {SENDER}\r\nSubject: load {key}\r\nX-Service-Idempotency-Key: {key}\r\n"
    code, answer = session.data(f"{head}X-Service-Metadata-key: {key}\r\n\r\n{'x' * 70}\r\n".encode())
    assert code == 250, answer
    return answer.decode().removeprefix("2.0.0 Ok: queued as ").split(" ")


def test_kill_9_loses_no_acknowledged_message_and_replays_send_each_message_once(service, sink):
    print(f"\nPOSTRIDER_CRASH_SEED={SEED}, {ROUNDS} rounds")
    moment, accepted, doubtful = random.Random(SEED), {}, {}
    for number in range(ROUNDS):
        load = SmtpLoad(service, f"round{number}", accepted, doubtful)
        enough = len(accepted) + 20
        until("the load runs", lambda goal=enough: len(accepted) > goal, 60)
        threading.Event().wait(moment.uniform(0.0, 1.0))  # the moment of the crash is the experiment
        service.kill()
        load.stop()
        service.start()
        session = logged_in(service)
        for key, recipients in list(doubtful.items()):
            accepted[key] = submit(session, key, recipients)
            del doubtful[key]
    ids = [one for several in accepted.values() for one in several]
    assert len(ids) == len(set(ids)) == 3 * len(accepted)
    rows = by_smtp(service.api)
    assert {row["id"] for row in rows} == set(ids), "exactly the acknowledged messages exist"
    assert set(Counter((row["metadata"]["key"], row["to"]) for row in rows).values()) == {1}
    # A repetition gets the identifiers of the first answer, however long ago it was.
    key, first = next(iter(accepted.items()))
    recipients = [row["to"] for one in first for row in rows if row["id"] == one]
    assert submit(logged_in(service), key, recipients) == first
    assert len(by_smtp(service.api)) == len(ids)
    until("the receiver has each", lambda: len(sink.by_message_id()) == len(ids), 120, every=0.5)
