"""Returned mail: a real Postfix that accepts and bounces later, and probes of the receiver with Python's smtplib
(contract 6)."""

import signal
import smtplib
import socket
import ssl
from email import policy
from email.message import EmailMessage, Message
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

import pytest
from support.postfix import Postfix
from support.wait import LOOPBACK, free_port, until

MESSAGE = {
    "from": "shop@sender.test",
    "to": "gone@recipient.test",
    "subject": "Your order",
    "text": "Thank you.\n",
}


@pytest.fixture
def bounce_port():
    """The port that receives bounces."""
    return free_port()


@pytest.fixture
def postfix(workdir, authority, sink, bounce_port):
    """A Postfix that accepts mail for gone@ and forwards it to a server that does not know the user."""
    routes = {
        "gone@recipient.test": sink.port,
        "bounces.sender.test": bounce_port,
        "rp.sender.test": bounce_port,
    }
    certificate = authority.issue("mx1.recipient.test")
    postfix = Postfix(workdir / "postfix", certificate, mailboxes=("inbox", "gone"), routes=routes)
    yield postfix
    postfix.close()


@pytest.fixture
def service(serve, postfix, bounce_port):
    """`serve` with a receiver and a verified domain, mailing to that Postfix."""
    bounces = {"host": "bounces.sender.test", "listen": [f"{LOOPBACK}:{bounce_port}"]}
    service = serve(port=postfix.port, bounces=bounces)
    service.domain("sender.test")
    return service


def delivered(service, postfix) -> tuple[str, bytes]:
    """Returns a message that arrived, with its identifier."""
    accepted = service.api.accept(MESSAGE | {"to": "inbox@recipient.test"})
    service.api.settled(accepted["id"], "delivered")
    return accepted["id"], postfix.wait_for_mail()[-1]


def return_path(mail: bytes) -> str:
    """Returns the return path that the server wrote into a delivered message."""
    return mail.split(b"Return-Path: <", 1)[1].split(b">", 1)[0].decode()


def dsn(recipient: str) -> bytes:
    """Returns a delivery status notification, built with the standard library."""
    report = MIMEMultipart("report", **{"report-type": "delivery-status"})
    report["From"], report["Subject"] = "MAILER-DAEMON@mx.test", "Undeliverable"
    report.attach(MIMEText("It could not be delivered.\n"))
    server, block = Message(), Message()
    server["Reporting-MTA"] = "dns; mx.test"
    block["Final-Recipient"] = f"rfc822; {recipient}"
    block["Action"], block["Status"] = "failed", "5.1.1"
    block["Diagnostic-Code"] = "smtp; 550 5.1.1 no such user"
    status = Message()
    status["Content-Type"] = "message/delivery-status"
    status.set_payload([server, block])
    report.attach(status)
    return report.as_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def arf(headers: bytes) -> bytes:
    """Returns a complaint (RFC 5965) that contains these headers."""
    report = MIMEMultipart("report", **{"report-type": "feedback-report"})
    report["From"], report["Subject"] = "fbl@provider.test", "complaint"
    report.attach(MIMEText("This is an abuse report.\n"))
    feedback = Message()
    feedback["Content-Type"] = "message/feedback-report"
    feedback.set_payload("Feedback-Type: abuse\nUser-Agent: Provider/1.0\nVersion: 1\n")
    report.attach(feedback)
    returned = Message()
    returned["Content-Type"] = "text/rfc822-headers"
    returned.set_payload(headers.decode())
    report.attach(returned)
    return report.as_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def probe(port: int) -> smtplib.SMTP:
    """Opens a session and sends EHLO."""
    session = smtplib.SMTP(LOOPBACK, port, local_hostname="probe.test", timeout=30)
    session.ehlo()
    return session


@pytest.mark.parametrize("host", ["bounces.sender.test", "rp.sender.test"])
def test_a_late_bounce_of_postfix_ends_the_message(service, postfix, knot, host):
    if host.startswith("rp."):
        knot.put(host, "CNAME", "bounces.sender.test.")
        knot.publish()
        domain = service.api.get("/v1/domains")["data"][0]["id"]
        assert service.api.request("POST", f"/v1/domains/{domain}/verify").status == 200
    accepted = service.api.accept(MESSAGE)
    record = service.api.settled(accepted["id"], "bounced")
    assert [event["type"] for event in record["events"]] == ["queued", "delivered", "bounced"]
    assert "from=<b+" in postfix.logged() and f"@{host}>" in postfix.logged()
    delivered, bounced = record["events"][1:]
    assert delivered["smtp_code"] == 250 and "queued as" in delivered["smtp_response"]
    assert bounced["smtp_code"] == 550 and bounced["smtp_enhanced_code"] == "5.1.1"
    assert bounced["smtp_response"] == "550 5.1.1 no such user here"
    bounce = bounced["bounce"]
    assert (bounce["kind"], bounce["source"], bounce["status"]) == ("hard", "dsn", "5.1.1")
    assert bounce["suppressed"] is True

    suppression = service.api.get("/v1/suppressions/gone@recipient.test")
    assert suppression["reason"] == "bounce" and suppression["message_id"] == accepted["id"]
    again = service.api.send(MESSAGE)
    assert again.status == 422 and again.json()["code"] == "recipient_suppressed"
    assert f"(bounce since {suppression['created_at']})" in again.json()["message"]
    # Postfix used TLS with our self-signed certificate.
    until("the bounce was sent", lambda: postfix.logged().count("status=sent") >= 1)
    assert "TLS connection established to 127.0.0.1" in postfix.logged()


def test_a_forged_report_changes_nothing(service, postfix, bounce_port):
    message_id, mail = delivered(service, postfix)
    path = return_path(mail)
    forged = path[:40] + ("0" if path[40] != "0" else "1") + path[41:]
    session = probe(bounce_port)
    with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
        session.sendmail("", [forged], dsn("inbox@recipient.test"))
    assert refused.value.recipients[forged][0] == 550
    headers = b"Message-ID: " + f"<{message_id}@sender.test>".encode() + b"\n"
    session.sendmail("fbl@provider.test", ["fbl@bounces.sender.test"], arf(headers))
    session.quit()
    record = service.api.message(message_id)
    assert record["status"] == "delivered" and len(record["events"]) == 2
    assert service.api.get("/v1/suppressions")["data"] == []


def test_a_complaint_with_our_headers_is_accepted_only_with_its_return_path(service, postfix, bounce_port):
    message_id, mail = delivered(service, postfix)
    headers = mail.split(b"\n\n", 1)[0] + b"\n"
    shown = b"".join(line + b"\n" for line in headers.splitlines() if b"Return-Path" not in line)
    session = probe(bounce_port)
    # Everybody who has seen the message knows its Feedback-ID: unsigned, it proves nothing.
    session.sendmail("fbl@provider.test", ["fbl@bounces.sender.test"], arf(shown))
    assert service.api.message(message_id)["status"] == "delivered"
    session.sendmail("fbl@provider.test", ["fbl@bounces.sender.test"], arf(headers))
    session.quit()
    record = service.api.message(message_id)
    assert record["status"] == "complained"
    assert record["events"][2]["complaint"] == {"feedback_type": "abuse", "reporter": "Provider/1.0"}
    assert service.api.get("/v1/suppressions/inbox@recipient.test")["reason"] == "complaint"


def test_a_report_is_received_over_starttls(service, postfix, bounce_port):
    message_id, mail = delivered(service, postfix)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    session = probe(bounce_port)
    for extension in ("starttls", "pipelining", "8bitmime", "smtputf8", "enhancedstatuscodes"):
        assert session.has_extn(extension), extension
    assert session.esmtp_features["size"] == "1048576"
    session.starttls(context=context)
    session.ehlo()
    assert not session.has_extn("starttls")
    session.sendmail("", [return_path(mail)], dsn("inbox@recipient.test"))
    session.quit()
    assert service.api.message(message_id)["status"] == "bounced"


def test_mail_presents_the_http_certificate_and_the_new_one_after_a_reload(serve, authority, bounce_port):
    host = "mail.sender.test"
    pem = str(authority.issue(host))
    tls = {"mode": "files", "certificate": pem, "key": pem}
    bounces = {"host": "bounces.sender.test", "listen": [f"{LOOPBACK}:{bounce_port}"]}
    service = serve(port=25, bounces=bounces, **{"http.tls": tls})

    def certificate() -> bytes:
        session = probe(bounce_port)
        session._host = host  # the name that the certificate is checked for
        session.starttls(context=ssl.create_default_context(cafile=str(authority.root)))
        seen = session.sock.getpeercert(binary_form=True)
        session.quit()
        return seen

    first = certificate()
    authority.issue(host)
    service.child.send_signal(signal.SIGHUP)
    until("the new certificate is offered", lambda: certificate() != first)


def test_a_shutdown_is_announced_to_connected_clients(service, bounce_port):
    session = probe(bounce_port)
    service.child.terminate()
    code, text = session.getreply()
    assert code == 421 and text.startswith(b"4.3.2 ")
    session.close()
    assert service.close() == 0
    with pytest.raises(ConnectionRefusedError):
        probe(bounce_port)


@pytest.mark.parametrize(
    "recipient",
    [
        "victim@recipient.test",
        "victim%recipient.test@bounces.sender.test",
        "recipient.test!victim@bounces.sender.test",
        '"victim@recipient.test"@bounces.sender.test',
        "@bounces.sender.test:victim@recipient.test",
        "victim@[127.0.0.1]",
        "victim@localhost",
        "shop@sender.test",
        "root@bounces.sender.test",
        "b+x@bounces.sender.test",
    ],
)
@pytest.mark.parametrize("sender", ["", "shop@sender.test", "postmaster@bounces.sender.test"])
def test_relaying_is_refused(service, bounce_port, sender, recipient):
    session = probe(bounce_port)
    assert session.docmd(f"MAIL FROM:<{sender}>")[0] == 250
    code, text = session.docmd(f"RCPT TO:<{recipient}>")
    assert code == 550 and text[:5] in (b"5.1.1", b"5.7.1")
    assert session.docmd("DATA")[0] == 554
    assert session.docmd("VRFY", "postmaster")[0] == 252
    session.quit()


def test_oversized_smuggled_and_unsynchronised_mail_is_refused(service, postfix, bounce_port):
    message_id, mail = delivered(service, postfix)
    path = return_path(mail)
    session = probe(bounce_port)
    assert session.docmd(f"MAIL FROM:<> SIZE={1024 * 1024 + 1}")[0] == 552

    def data(body: bytes) -> tuple[int, bytes]:
        session.rset()
        session.mail("")
        assert session.rcpt(path)[0] == 250
        assert session.docmd("DATA")[0] == 354
        session.send(body + b"\r\n.\r\n")
        return session.getreply()

    report = dsn("inbox@recipient.test")
    assert data(report + b"x" * 1024 * 1024)[0] == 552
    for ending in (b"\n.\n", b"\n.\r\n", b"\r.\r", b"\r\n.\n", b"\r\n.\r"):
        assert data(report + ending + b"MAIL FROM:<>")[0] == 550, ending
    session.quit()

    with socket.create_connection((LOOPBACK, bounce_port), timeout=30) as hasty:
        assert hasty.recv(1024).startswith(b"220 ")
        hasty.sendall(b"EHLO probe.test\r\n")
        hasty.recv(1024)
        hasty.sendall(f"MAIL FROM:<>\r\nRCPT TO:<{path}>\r\nDATA\r\n".encode() + report + b"\r\n.\r\n")
        heard = b""
        while data := hasty.recv(4096):
            heard += data
    assert b"503 5.5.1" in heard and b"\n354" not in heard
    assert service.api.message(message_id)["status"] == "delivered"


def test_an_auto_reply_is_accepted_without_effect(service, postfix, bounce_port):
    message_id, mail = delivered(service, postfix)
    reply = EmailMessage()
    reply["Subject"], reply["Auto-Submitted"] = "Out of office", "auto-replied"
    reply.set_content("550 5.1.1 user unknown until Monday")
    session = probe(bounce_port)
    session.sendmail("inbox@recipient.test", [return_path(mail)], reply.as_bytes(policy=policy.SMTP))
    session.quit()
    assert service.api.message(message_id)["status"] == "delivered"
