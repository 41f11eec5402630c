"""Real servers that accept mail and bounce it later to our receiver: Exim, OpenSMTPD and Haraka (Postfix's is in
test_returning).

A server behind them does not know the address. The event is compared with the report itself: each server also sends the
same report to a mailbox of the test."""

import re
import smtplib
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest
from support.exim import Exim
from support.haraka import Haraka
from support.opensmtpd import OpenSmtpd
from support.wait import LOOPBACK, free_port, until

MESSAGE = {"from": "shop@sender.test", "to": "gone@recipient.test", "subject": "Your order", "text": "Thank you.\n"}


@dataclass
class Reported:
    """A delivery status notification (RFC 3464), as Python's `email` parses it. `answer` is the refusing server's: the
    Diagnostic-Code or, for OpenSMTPD, which sends none, the text after the address in the human-readable part."""

    recipient: str
    action: str
    answer: str
    remote: str | None
    reporting: str

    @classmethod
    def read(cls, content: bytes) -> "Reported":
        """Parses a complete report."""
        mail = message_from_bytes(content, policy=policy.default)
        part = next(part for part in mail.walk() if part.get_content_type() == "message/delivery-status")
        server, block = part.get_payload()[:2]

        def value(fields: EmailMessage, name: str) -> str | None:
            # The type before the semicolon is required, but Haraka's Remote-MTA has none.
            found = str(fields[name] or "").split(";", 1)[-1]
            return " ".join(found.split()) or None

        recipient = value(block, "Final-Recipient")
        words = re.search(rf"^{re.escape(recipient)}: (.*)$", mail.get_body(("plain",)).get_content(), re.MULTILINE)
        return cls(
            recipient=recipient,
            action=str(block["Action"]),
            answer=value(block, "Diagnostic-Code") or words[1].strip(),
            remote=value(block, "Remote-MTA"),
            reporting=value(server, "Reporting-MTA"),
        )


@pytest.fixture
def bounce_port():
    """The port that receives bounces."""
    return free_port()


@pytest.fixture(params=["exim", "opensmtpd", "haraka"])
def server(request, workdir, authority, policy, sink, bounce_port):
    """A server that accepts mail for gone@ and forwards it to one that does not know the user."""
    certificate = authority.issue("mx1.recipient.test")
    routes = {"gone@recipient.test": sink.port, "copy.test": sink.port, "bounces.sender.test": bounce_port}
    folder, common = workdir / request.param, {"mailboxes": ("inbox",), "routes": routes}
    make = {
        "exim": lambda: Exim(folder, certificate, policy, **common),
        "opensmtpd": lambda: OpenSmtpd(folder, certificate, **common),
        "haraka": lambda: Haraka(folder, certificate, routes),
    }
    server = make[request.param]()
    yield server
    server.close()


@pytest.fixture
def service(serve, server, bounce_port):
    """`serve` with a receiver and a verified domain, mailing to that server."""
    bounces = {"host": "bounces.sender.test", "listen": [f"{LOOPBACK}:{bounce_port}"]}
    service = serve(port=server.port, bounces=bounces)
    service.domain("sender.test")
    return service


def report_of(server, sink) -> Reported:
    """Returns the server's report to an unrelated sender."""
    with smtplib.SMTP(LOOPBACK, server.port, "client.test", timeout=20) as session:
        session.sendmail("back@copy.test", ["gone@recipient.test"], "Subject: one\r\n\r\nbody\r\n")
    copies = until("the copy came back", lambda: [m for m in sink.messages if m.rcpt_to == ["back@copy.test"]])
    assert copies[0].mail_from == "<>"
    return Reported.read(copies[0].content)


def test_a_late_bounce_of_a_server_ends_the_message(service, server, sink):
    reported = report_of(server, sink)
    assert (reported.recipient, reported.action) == ("gone@recipient.test", "failed")
    accepted = service.api.accept(MESSAGE)
    record = service.api.settled(accepted["id"], "bounced")
    assert [event["type"] for event in record["events"]] == ["queued", "delivered", "bounced"]
    bounced = record["events"][2]
    code, enhanced = reported.answer.split()[:2]
    assert bounced["smtp_response"] == reported.answer
    assert (str(bounced["smtp_code"]), bounced["smtp_enhanced_code"]) == (code, enhanced)
    assert bounced["mx_host"] == (reported.remote or reported.reporting)
    bounce = bounced["bounce"]
    assert (bounce["kind"], bounce["source"], bounce["status"]) == ("hard", "dsn", enhanced)
    assert (bounce["category"], bounce["suppressed"]) == ("invalid_recipient", True)

    suppression = service.api.get("/v1/suppressions/gone@recipient.test")
    assert (suppression["reason"], suppression["message_id"]) == ("bounce", accepted["id"])
    again = service.api.send(MESSAGE)
    assert again.status == 422 and again.json()["code"] == "recipient_suppressed"
    assert f"(bounce since {suppression['created_at']})" in again.json()["message"]
