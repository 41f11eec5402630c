"""The three most common mail servers, each as the receiver found by MX: Postfix, Exim and OpenSMTPD (contract 6).

OpenSMTPD does not support SMTPUTF8. If its handshakes fail, as Debian 12's do, the message is sent without TLS over a
second connection, as opportunistic TLS requires."""

from datetime import datetime

import pytest
from support.exim import Exim
from support.opensmtpd import OpenSmtpd
from support.postfix import Postfix

MESSAGE = {"from": "shop@sender.test", "to": "inbox@recipient.test", "subject": "Grüße", "text": "Thank you.\n"}
MAILBOXES = ("inbox", "grey", "jürgen")
SIZE_MAX = 100_000
GREYLISTED = "451 4.7.1 Greylisted, come back later"


@pytest.fixture(params=["postfix", "exim", "opensmtpd"])
def receiver(request, workdir, authority, policy):
    """One of them, which refuses messages larger than `SIZE_MAX` and the first attempt for `grey@`."""
    certificate = authority.issue("mx1.recipient.test")
    policy.answers["grey@recipient.test"] = [GREYLISTED]
    common = {"mailboxes": MAILBOXES, "size_max": SIZE_MAX}
    make = {
        "postfix": lambda folder: Postfix(folder, certificate, policy=policy, **common),
        "exim": lambda folder: Exim(folder, certificate, policy, **common),
        "opensmtpd": lambda folder: OpenSmtpd(folder, certificate, **common),
    }
    receiver = make[request.param](workdir / request.param)
    yield receiver
    receiver.close()


@pytest.fixture
def service(serve, receiver):
    """`serve` with a verified domain, mailing to that receiver's port."""
    service = serve(port=receiver.port)
    service.domain("sender.test")
    return service


def refused(service, to: str, **message) -> dict:
    """Returns the last event of a message that ends `bounced`."""
    accepted = service.api.accept(MESSAGE | {"to": to} | message)
    return service.api.settled(accepted["id"], "bounced")["events"][-1]


def test_a_message_arrives_over_the_best_tls_of_the_server(service, receiver):
    accepted = service.api.accept(MESSAGE)
    record = service.api.settled(accepted["id"], "delivered")
    assert record["mx_host"] == "mx1.recipient.test" and record["smtp_code"] == 250
    assert [event["type"] for event in record["events"]] == ["queued", "delivered"]
    assert accepted["message_id_header"].encode() in receiver.wait_for_mail()[0]
    if not receiver.can_tls():
        assert record["tls"] is None
        return
    tls = record["tls"]
    assert (tls["version"], tls["policy"], tls["authenticated"]) == ("TLSv1.3", "opportunistic", "pkix")
    # Postfix names the cipher suite as we do, Exim by its parts.
    assert tls["cipher"].removeprefix("TLS13_").removeprefix("TLS_").removesuffix("_SHA384") in receiver.logged()


def test_an_smtputf8_address_is_sent_only_to_servers_that_support_it(service, receiver):
    message = MESSAGE | {"to": "jürgen@recipient.test"}
    if isinstance(receiver, OpenSmtpd):
        event = refused(service, message["to"])
        assert (event["bounce"]["source"], event["bounce"]["status"]) == ("local", "5.6.7")
        assert event["smtp_code"] is None and event["bounce"]["suppressed"] is False
        return
    service.api.settled(service.api.accept(message)["id"], "delivered")
    mail = receiver.wait_for_mail(mailbox="jürgen")[0]
    assert "To: jürgen@recipient.test".encode() in mail
    assert b"with UTF8SMTPS" in mail or b"with utf8esmtps" in mail


def test_a_message_beyond_the_advertised_size_is_not_sent(service, receiver):
    event = refused(service, MESSAGE["to"], text="x" * 60 * 2_000 + "\n")
    assert (event["bounce"]["source"], event["bounce"]["status"]) == ("local", "5.3.4")
    assert event["smtp_code"] is None and event["bounce"]["suppressed"] is False
    assert receiver.mail() == [] and "b+" not in receiver.logged(), "no MAIL was sent"


def test_an_unknown_user_is_a_hard_bounce_for_each_server(service, receiver):
    """Postfix states 5.1.1; Exim and OpenSMTPD state no enhanced code, so their text decides."""
    event = refused(service, "nobody@recipient.test")
    assert event["smtp_code"] == 550
    words = {
        Postfix: ("5.1.1", "User unknown in virtual mailbox table"),
        Exim: (None, "550 Unrouteable address"),
        OpenSmtpd: (None, "550 Invalid recipient: <nobody@recipient.test>"),
    }
    code, said = words[type(receiver)]
    assert event["smtp_enhanced_code"] == code and said in event["smtp_response"]
    bounce = event["bounce"]
    assert (bounce["kind"], bounce["category"], bounce["source"]) == ("hard", "invalid_recipient", "smtp")
    assert bounce["suppressed"] is True
    again = service.api.send(MESSAGE | {"to": "nobody@recipient.test"})
    assert again.status == 422 and again.json()["code"] == "recipient_suppressed"


def test_a_greylisting_server_gets_the_message_at_the_second_attempt(dev, knot, receiver):
    config = (
        f'hostname = "mail.sender.test"\n[dns]\nservers = ["{knot.server}"]\n[delivery]\nport = {receiver.port}\n'
        '[network]\nallow = ["127.0.0.0/8"]\n'
    )
    service = dev("--virtual-clock", "--deliver", config=config)
    sent = service.api.accept(MESSAGE | {"from": "shop@example.test", "to": "grey@recipient.test"})
    service.advance(0)
    record = service.api.message(sent["id"])
    assert record["status"] == "deferred" and receiver.mail("grey") == []
    assert record["smtp_code"] == 451 and record["smtp_enhanced_code"] == "4.7.1"
    assert "Greylisted, come back later" in record["smtp_response"]
    assert datetime.fromisoformat(record["next_attempt_at"]) > datetime.fromisoformat(record["created_at"])
    service.advance(66)
    assert service.api.message(sent["id"])["status"] == "delivered"
    assert sent["id"].encode() in receiver.wait_for_mail(mailbox="grey")[0]
