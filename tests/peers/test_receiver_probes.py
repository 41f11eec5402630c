"""Our receiver with independent clients: swaks tries to relay, smtp-source floods it with forged return paths, and
Python's `email` writes complaints (contract 6, RFC 5965)."""

import smtplib
from email import message_from_bytes, policy
from email.message import EmailMessage, Message
from email.utils import formatdate

import pytest
from support.probes import smtp_source, swaks
from support.sinks import AiosmtpdSink
from support.wait import LOOPBACK, free_port

MESSAGE = {"from": "shop@sender.test", "to": "inbox@recipient.test", "subject": "Order", "text": "Thank you.\n"}
FORGED = 5_000
RSS_GROWTH_MAX_KIB = 16 * 1024


@pytest.fixture
def bounce_port():
    """The port that receives bounces."""
    return free_port()


@pytest.fixture
def service(serve, sink, bounce_port):
    """`serve` with a receiver and a verified domain, mailing to aiosmtpd."""
    bounces = {"host": "bounces.sender.test", "listen": [f"{LOOPBACK}:{bounce_port}"]}
    service = serve(port=sink.port, bounces=bounces)
    service.domain("sender.test")
    return service


def delivered(service, sink: AiosmtpdSink) -> tuple[str, str, bytes]:
    """Returns a message that arrived, with its identifier and return path."""
    accepted = service.api.accept(MESSAGE)
    service.api.settled(accepted["id"], "delivered")
    received = sink.messages[-1]
    return accepted["id"], received.mail_from, received.content


def test_swaks_finds_no_open_relay(service, bounce_port):
    for recipient in (
        "victim@recipient.test",
        "victim%recipient.test@bounces.sender.test",
        "recipient.test!victim@bounces.sender.test",
        '"victim@recipient.test"@bounces.sender.test',
        "victim@[127.0.0.1]",
        "shop@sender.test",
        "root@bounces.sender.test",
    ):
        for sender in ("", "postmaster@bounces.sender.test"):
            said = swaks(bounce_port, sender, recipient)
            assert "<** 550 5." in said, said
    said = swaks(bounce_port, "", "victim@recipient.test", "--tls")
    assert "TLS started" in said and "<~* 550 5.7.1" in said, said


def test_thousands_of_forged_return_paths_are_refused_without_memory_growth(service, sink, bounce_port):
    message_id, path, _ = delivered(service, sink)
    local, _, host = path.partition("@")
    forged = [
        f"{local[:-1]}{'0' if local[-1] != '0' else '1'}@{host}",
        f"{local[:-8]}@{host}",
        f"b+{'0' * (len(local) - 2)}@{host}",
        f"{local}x@{host}",
        f"{local}@other.test",
    ]
    smtp_source(bounce_port, forged[0], messages=200, sessions=4)  # to reach the memory of a busy listener
    before = rss(service)
    each = FORGED // len(forged)
    for address in forged:
        assert len(smtp_source(bounce_port, address, messages=each, sessions=4)) == each, address
    grown = rss(service) - before
    print(f"{FORGED} forged return paths: {grown} KiB")
    assert grown < RSS_GROWTH_MAX_KIB
    assert service.api.message(message_id)["status"] == "delivered"
    # It still accepts mail.
    with smtplib.SMTP(LOOPBACK, bounce_port, "probe.test", timeout=30) as session:
        session.ehlo()
        session.mail("")
        assert session.rcpt(path)[0] == 250


def rss(service) -> int:
    """Resident memory in KiB."""
    with open(f"/proc/{service.child.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def feedback(kind: str, returned: bytes, *more: tuple[str, str]) -> bytes:
    """Returns a report like that of RFC 5965, appendix B.2, with the whole message."""
    # The message is returned unchanged.
    report = EmailMessage(policy=policy.SMTP.clone(refold_source="none"))
    report["From"], report["To"] = "<abusedesk@provider.test>", "<fbl@bounces.sender.test>"
    report["Date"], report["Subject"] = formatdate(), "FW: Order"
    report.set_content("This is an email abuse report for a message received from IP 192.0.2.1.\n")
    report.make_mixed()
    report.replace_header("Content-Type", "multipart/report; report-type=feedback-report")
    fields = [
        ("Feedback-Type", kind),
        ("User-Agent", "SomeGenerator/1.0"),
        ("Version", "1"),
        ("Original-Mail-From", "<somespammer@example.net>"),
        ("Original-Rcpt-To", "<redacted@recipient.test>"),
        ("Received-Date", formatdate()),
        ("Source-IP", "192.0.2.1"),
        *more,
    ]
    part = Message()
    part["Content-Type"] = "message/feedback-report"
    part.set_payload("".join(f"{name}: {value}\r\n" for name, value in fields))
    report.attach(part)
    original = Message()
    original["Content-Type"], original["Content-Disposition"] = "message/rfc822", "inline"
    original.set_payload([message_from_bytes(returned)])
    report.attach(original)
    return report.as_bytes()


@pytest.mark.parametrize("kind", ["abuse", "fraud", "opt-out"])
def test_a_complaint_with_the_whole_message_is_accepted(service, sink, bounce_port, kind):
    message_id, path, content = delivered(service, sink)
    content = f"Return-Path: <{path}>\r\n".encode() + content
    report = feedback(kind, content, ("Reported-Domain", "sender.test"), ("Incidents", "1"))
    with smtplib.SMTP(LOOPBACK, bounce_port, "fbl.provider.test", timeout=30) as session:
        session.sendmail("fbl@provider.test", ["fbl@bounces.sender.test"], report)
    record = service.api.message(message_id)
    assert record["status"] == "complained"
    assert record["events"][-1]["complaint"] == {"feedback_type": kind, "reporter": "SomeGenerator/1.0"}
    # The report names another recipient: only we know the address.
    suppression = service.api.get("/v1/suppressions/inbox@recipient.test")
    assert (suppression["reason"], suppression["message_id"]) == ("complaint", message_id)


def test_a_not_spam_report_is_not_a_complaint(service, sink, bounce_port):
    message_id, path, content = delivered(service, sink)
    with smtplib.SMTP(LOOPBACK, bounce_port, "fbl.provider.test", timeout=30) as session:
        session.sendmail("", [path], feedback("not-spam", content))
    assert service.api.message(message_id)["status"] == "delivered"
    assert service.api.get("/v1/suppressions")["data"] == []
