"""Tests of the peers themselves: the other tests rely on these properties, which hold without the program under
test."""

import base64
import smtplib
import socket
import ssl
import urllib.error
import urllib.request
from datetime import datetime, timezone

import dkim
import pytest
import stripe
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from standardwebhooks import Webhook

from support.wait import LOOPBACK

MAIL = (
    b"From: a@sender.test\r\nTo: inbox@recipient.test\r\nSubject: hello\r\nMessage-ID: <1@sender.test>\r\n\r\nbody\r\n"
)


def test_knot_serves_published_records_and_denies_the_rest(knot):
    assert knot.lookup("recipient.test", "MX") == ["10 mx1.recipient.test."]
    assert knot.lookup("mx1.recipient.test", "A") == ["127.0.0.1"]
    assert knot.lookup("nowhere.test", "MX") == []
    long = "v=DKIM1; k=rsa; p=" + "A" * 400
    knot.put("s._domainkey.sender.test", "TXT", long)
    knot.publish()
    assert knot.lookup("s._domainkey.sender.test", "TXT") == [long]
    knot.remove("s._domainkey.sender.test", "TXT")
    knot.publish()
    assert knot.lookup("s._domainkey.sender.test", "TXT") == []


def test_postfix_accepts_mail_over_starttls_into_a_maildir(postfix, authority):
    with smtplib.SMTP(LOOPBACK, postfix.port, "client.test") as client:
        client._host = "mx1.recipient.test"  # smtplib checks the certificate against this name
        client.starttls(context=ssl.create_default_context(cafile=str(authority.root)))
        assert client.sock.version() == "TLSv1.3"
        client.sendmail("a@sender.test", ["inbox@recipient.test"], MAIL)
    mail = postfix.wait_for_mail()[0].decode()
    assert "Delivered-To: inbox@recipient.test" in mail
    assert "using TLSv1.3" in mail
    assert mail.endswith("\n\nbody\n")


def test_postfix_refuses_unknown_recipients_and_greylists_on_request(postfix, policy):
    policy.answers["grey@recipient.test"] = ["451 4.7.1 Greylisted"]
    with smtplib.SMTP(LOOPBACK, postfix.port, "client.test") as client:
        client.ehlo()
        client.mail("a@sender.test")
        code, said = client.rcpt("nobody@recipient.test")
        assert code == 550 and said.startswith(b"5.1.1")
        code, said = client.rcpt("grey@recipient.test")
        assert code == 451 and b"4.7.1" in said
        assert client.rcpt("grey@recipient.test")[0] == 250


def test_dkimpy_finds_its_keys_in_knot(knot, workdir):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    knot.put("s1._domainkey.sender.test", "TXT", f"v=DKIM1; k=rsa; p={base64.b64encode(public).decode()}")
    knot.publish()
    signature = dkim.sign(MAIL, b"s1", b"sender.test", pem, include_headers=[b"from", b"to", b"subject"])
    assert dkim.verify(signature + MAIL, dnsfunc=knot.txt_for_dkimpy)
    assert not dkim.verify(signature + MAIL.replace(b"body", b"other"), dnsfunc=knot.txt_for_dkimpy)


def test_aiosmtpd_counts_copies_by_message_id(sink):
    for _ in range(2):
        with smtplib.SMTP(LOOPBACK, sink.port, "client.test") as client:
            client.sendmail("a@sender.test", ["x@sink.test"], MAIL)
    assert {key: len(copies) for key, copies in sink.by_message_id().items()} == {"<1@sender.test>": 2}


@pytest.mark.parametrize("end", [b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r\n.\r"])
def test_the_tolerant_sink_is_vulnerable_to_smuggling(tolerant_sink, end):
    smuggled = b"MAIL FROM:<b@evil.test>\r\nRCPT TO:<x@sink.test>\r\nDATA\r\nSubject: two\r\n\r\nsecond\r\n.\r\n"
    with socket.create_connection((LOOPBACK, tolerant_sink.port)) as raw, raw.makefile("rb") as lines:
        lines.readline()
        for command in (b"HELO x", b"MAIL FROM:<a@sender.test>", b"RCPT TO:<x@sink.test>", b"DATA"):
            raw.sendall(command + b"\r\n")
            lines.readline()
        raw.sendall(b"Subject: one\r\n\r\nfirst" + end + smuggled + b"QUIT\r\n")
        assert b"221" in lines.read()
    assert len(tolerant_sink.messages) == 2


def test_the_hook_receiver_records_bytes_and_answers_by_script(hooks, authority):
    hooks.statuses = [503]
    context = ssl.create_default_context(cafile=str(authority.root))
    context.check_hostname = False
    request = urllib.request.Request(f"https://{LOOPBACK}:{hooks.port}/hook", b'{"a": 1}', {"X-Service-Event": "t"})
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(request, context=context)
    assert urllib.request.urlopen(request, context=context).status == 200
    assert [hook.body for hook in hooks.wait_for(2)] == [b'{"a": 1}'] * 2
    assert hooks.wait_for_event("t").path == "/hook"


def test_both_webhook_libraries_agree_with_the_known_answer():
    """Contract 5's known answer, so that a later disagreement is the program's error and not the libraries'."""
    secret, moment = "whsec_q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=", 1_700_000_000
    body = '{"id":"evt_1","type":"delivered"}'
    header = f"t={moment},v1=0bd7d1936c1feda6866144e916fd796d06dedf89dec93ff5597b00bd4656bad3"
    assert stripe.WebhookSignature.verify_header(body, header, secret)
    signed = Webhook(secret).sign("evt_1", datetime.fromtimestamp(moment, timezone.utc), body)
    assert signed == "v1,IJlv8gazXzAfb0TRP4H4vPEiQGsm3VsVSJIjO0K7SEI="
