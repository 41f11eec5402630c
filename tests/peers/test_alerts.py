"""Alerts by mail to a real Postfix and by webhook, while the monitored services fail. The name server loses records and
gets them back."""

import json
import subprocess

from support.operator import read
from support.roots import binary
from support.wait import LOOPBACK, free_port, until


def command(service, *words: str) -> tuple[int, dict]:
    """A command of the command line, with its exit code."""
    line = [binary(), *words, "--data-dir", str(service.data_dir), "--json"]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def alerts(service, condition: str) -> list[dict]:
    """The alerts of a condition, the newest first."""
    return [one for one in service.cli("alert", "list")["data"] if one["condition"] == condition]


def test_a_test_arrives_at_the_mailbox_and_at_the_webhook(begin, operator, hooks):
    service = begin()
    code, said = command(service, "alert", "test")
    assert code == 0 and [one["status"] for one in said["results"]] == ["sent", "sent"], said
    [content] = operator.postfix.wait_for_mail(1, "op")
    subject, mail = read(content)
    assert subject == "[mail.sender.test] INFO: Test of alerts"
    assert mail["X-Postrider-Alert"].startswith("alr_") and mail["Auto-Submitted"] == "auto-generated"
    assert mail["Return-Path"] in (None, "<>")
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
    assert "CRITICAL" in operator.mailed("Queued mail is not being sent")
    assert until("the webhook too", lambda: [h for h in hooks.received if b"queue_stalled" in h.body])
    knot.close()
    service.kill()
    service.start()
    assert "WARNING" in operator.mailed("was not stopped cleanly")
    assert alerts(service, "unclean_stop")[0]["resolved_at"], "it ends at once"
    code, said = command(service, "alert", "test")
    by_channel = {one["channel"]: one["status"] for one in said["results"]}
    assert (code, by_channel) == (1, {"email": "sent", "webhook": "failed"}), "the webhook's name is not found"


def test_a_record_that_vanishes_is_reported_once_and_so_is_its_return(begin, operator, knot):
    service = begin()
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


def test_a_second_record_is_reported_because_receivers_then_ignore_both(begin, knot):
    service = begin()
    domain = service.domain("sender.test")["id"]
    spf, dmarc = "v=spf1 a:mail.sender.test ~all", "v=DMARC1; p=none"

    def seen() -> list[str]:
        knot.publish()
        assert service.api.request("POST", f"/v1/domains/{domain}/verify").status == 200
        return [one["seen"] for one in alerts(service, "domain_record") if one["resolved_at"] is None]

    knot.put("sender.test", "TXT", spf)
    knot.put("_dmarc.sender.test", "TXT", dmarc)
    assert seen() == []
    knot.put("sender.test", "TXT", spf, "v=spf1 -all", "unrelated")
    ignored = "(2 records, so receivers ignore all of them)"
    assert seen() == [f"Missing or different: SPF {ignored}."]
    knot.put("_dmarc.sender.test", "TXT", dmarc, "v=DMARC1; p=reject")
    assert seen() == [f"Missing or different: SPF {ignored}, DMARC {ignored}."]
    knot.put("_dmarc.sender.test", "TXT", dmarc)
    knot.put("sender.test", "TXT", spf, "unrelated")
    assert seen() == []


def test_a_lost_dkim_record_is_replaced_by_the_standby_record(begin, operator, knot):
    service = begin()
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
