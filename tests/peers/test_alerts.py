"""Alerts by mail to a real Postfix and by webhook, while the monitored services fail. The name server loses records and
gets them back."""

import email
import json
import re
import subprocess
from email.policy import default

import pytest
from support.postfix import Postfix
from support.roots import binary
from support.wait import LOOPBACK, free_port, until

SECRET = "whsec_" + "a" * 40


@pytest.fixture
def operator(workdir, authority):
    """The Postfix with the operator's mailbox."""
    certificate = authority.issue("mx.operator.test")
    postfix = Postfix(workdir / "operator", certificate, domain="operator.test", host="mx.operator.test", mailboxes=("op",))
    yield postfix
    postfix.close()


@pytest.fixture
def begin(serve, operator, hooks):
    """Starts a service that mails directly to `port`, and alerts by the operator's own server."""

    def start(port: int, **alerts):
        ways = [
            {"name": "direct", "kind": "mx", "source": [LOOPBACK], "ehlo": "mail.sender.test"},
            {"name": "rescue", "kind": "smarthost", "host": LOOPBACK, "port": operator.port, "tls": "off", "streams": []},
        ]
        webhook = {"webhook_url": hooks.url, "webhook_secret": SECRET}
        alerts = {"email": ["op@operator.test"], "relay": "rescue"} | webhook | alerts
        return serve(port=port, alerts=alerts, relay=ways)

    return start


def read(content: bytes):
    """A mail, with its subject on one line."""
    mail = email.message_from_bytes(content, policy=default)
    return re.sub(r"\s+", " ", mail["Subject"]), mail


def subjects(operator) -> list[str]:
    """The subjects of the mails of alerts that arrived."""
    found = (read(content) for content in operator.mail("op"))
    return [subject for subject, mail in found if mail["X-Postrider-Alert"]]


def arrives(operator, words: str) -> str:
    """The subject of the mail of an alert, once it is there."""
    return until(f"a mail about {words!r}", lambda: next((s for s in subjects(operator) if words in s), None), 40, 0.1)


def command(service, *words: str) -> tuple[int, dict]:
    """A command of the command line, with its exit code."""
    line = [binary(), *words, "--data-dir", str(service.data_dir), "--json"]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def alerts(service, condition: str) -> list[dict]:
    """The alerts of a condition, the newest first."""
    return [one for one in service.cli("alert", "list")["data"] if one["condition"] == condition]


def test_a_test_alert_reaches_the_mailbox_and_the_webhook(begin, operator, hooks):
    service = begin(operator.port)
    code, said = command(service, "alert", "test")
    assert code == 0 and [one["status"] for one in said["results"]] == ["sent", "sent"], said
    [content] = operator.wait_for_mail(1, "op")
    subject, mail = read(content)
    assert subject == "[mail.sender.test] INFO: Test of alerts"
    assert mail["Auto-Submitted"] == "auto-generated" and mail["Return-Path"] in (None, "<>")
    [hook] = hooks.wait_for(1)
    body = json.loads(hook.body)
    assert body["type"] == "alert.test" and body["alert"]["remedy"] == "There is nothing to do."
    assert service.api.get("/v1/messages")["data"] == [], "a notice is not a message"


def test_alerts_arrive_although_delivery_and_dns_fail(begin, operator, knot, hooks):
    service = begin(free_port())
    service.domain("sender.test")
    for number in range(21):
        knot.mail_server(f"r{number}.test", f"mx.r{number}.test")
    knot.publish()
    for number in range(21):
        service.api.accept({"from": "a@sender.test", "to": f"u@r{number}.test", "text": "x"})
    until("all attempts failed", lambda: len(service.api.get("/v1/events?type=deferred")["data"]) >= 20)
    service.cli("alert", "check")
    assert alerts(service, "queue_stalled")[0]["severity"] == "critical"
    assert "CRITICAL" in arrives(operator, "Queued mail does not go out")
    assert until("the webhook too", lambda: [h for h in hooks.received if b"queue_stalled" in h.body])
    knot.close()
    service.kill()
    service.start()
    assert "WARNING" in arrives(operator, "was not stopped cleanly")
    assert alerts(service, "unclean_stop")[0]["resolved_at"], "the alert is resolved at once"
    code, said = command(service, "alert", "test")
    by_channel = {one["channel"]: one["status"] for one in said["results"]}
    assert (code, by_channel) == (1, {"email": "sent", "webhook": "failed"}), "the webhook's name is not found"


def test_a_missing_record_and_its_return_are_each_reported_once(begin, operator, knot):
    service = begin(operator.port)
    knot.put("1.0.0.127.in-addr.arpa", "PTR", "mail.sender.test.")
    knot.put("mail.sender.test", "A", LOOPBACK)
    domain = service.domain("sender.test")["id"]
    record = "v=DMARC1; p=none; rua=mailto:dmarc@rp.sender.test"

    def check():
        knot.publish()
        assert service.api.request("POST", f"/v1/domains/{domain}/verify").status == 200
        return [(one["id"], one["resolved_at"] is None) for one in alerts(service, "domain_record")]

    knot.put("_dmarc.sender.test", "TXT", record)
    assert check() == []
    knot.remove("_dmarc.sender.test", "TXT")
    [(alert, is_open)] = check()
    assert is_open and check() == [(alert, True)], "one open alert of a domain"
    knot.put("_dmarc.sender.test", "TXT", record)
    assert check() == [(alert, False)]
    knot.remove("_dmarc.sender.test", "TXT")
    assert check() == [(alert, True)], "an alert within an hour reopens without a notice"
    shown = service.api.get(f"/v1/alerts/{alert}")
    assert (shown["subject"]["name"], shown["severity"]) == ("sender.test", "warning")


def test_a_lost_dkim_record_is_replaced_by_the_standby_key(begin, operator, knot):
    service = begin(operator.port)
    domain = service.domain("sender.test")
    path = f"/v1/domains/{domain['id']}"
    assert service.api.request("PATCH", path, {"dkim_rotation_days": 30}).status == 200

    def keys(state: str) -> set[str]:
        return {key["selector"] for key in service.api.get(path)["dkim"] if key["state"] == state}

    pending = keys("pending")
    assert len(pending) == 2 and not keys("standby")
    domain = service.publish(service.api.get(path), ("rsa-sha256", "ed25519-sha256"))
    assert keys("standby") == pending, "published keys become standby keys"
    for selector in keys("active"):
        knot.remove(f"{selector}._domainkey.sender.test", "TXT")
    knot.publish()
    checked = service.api.request("POST", f"{path}/verify").json()
    assert checked["status"] == "verified" and keys("active") == pending
    assert len(keys("pending")) == 2, "the next pair of keys"
    rotated = service.api.request("POST", f"{path}/rotate-dkim").json()
    assert {key["selector"] for key in rotated["dkim"] if key["state"] == "active"} == pending, "unseen keys never sign"
