"""From POST to a real Postfix found by MX, and the refusals that end as bounces (contract 3, 4, 6)."""

from email import message_from_bytes, policy

import pytest

MESSAGE = {
    "from": "shop@sender.test",
    "from_name": "The Shop",
    "to": "inbox@recipient.test",
    "subject": "Grüße, your order",
    "text": "Thank you.\n.\n..two dots\n",
}


@pytest.fixture
def service(serve, postfix):
    """`serve` with a verified domain, mailing to Postfix's port."""
    service = serve(port=postfix.port)
    service.domain("sender.test")
    return service


def test_a_post_is_delivered_to_postfix_found_by_mx(service, postfix):
    accepted = service.api.accept(MESSAGE)
    assert accepted["status"] == "queued" and accepted["stream"] == "transactional"
    assert accepted["message_id_header"] == f"<{accepted['id']}@sender.test>"

    record = service.api.settled(accepted["id"], "delivered")
    assert record["mx_host"].rstrip(".") == "mx1.recipient.test"
    assert record["relay"] == "direct"
    assert record["smtp_code"] == 250 and record["smtp_enhanced_code"] == "2.0.0"
    assert "queued as" in record["smtp_response"]
    assert record["tls"]["version"] == "TLSv1.3" and record["tls"]["policy"] == "opportunistic"
    assert [event["type"] for event in record["events"]] == ["queued", "delivered"]
    delivered = record["events"][1]
    assert delivered["mx_ip"] == "127.0.0.1" and delivered["attempt"] == 1
    assert delivered["tls"] == record["tls"]

    mail = postfix.wait_for_mail()[0].decode()
    assert f"Message-ID: {accepted['message_id_header']}" in mail
    assert "using TLSv1.3" in mail
    assert "Return-Path: <b+" in mail


def test_text_arrives_as_it_was_written(service, postfix):
    service.api.accept(MESSAGE | {"html": "<p>Thank you. €</p>"})
    mail = message_from_bytes(postfix.wait_for_mail()[0], policy=policy.default)
    assert mail["Subject"] == MESSAGE["subject"]
    assert str(mail["From"]) == "The Shop <shop@sender.test>"
    assert mail.get_body(("plain",)).get_content().splitlines() == MESSAGE["text"].splitlines()
    assert mail.get_body(("html",)).get_content().strip() == "<p>Thank you. €</p>"


def test_an_unknown_recipient_is_a_hard_bounce_and_suppressed(service):
    nobody = MESSAGE | {"to": "nobody@recipient.test"}
    record = service.api.settled(service.api.accept(nobody)["id"], "bounced")
    assert record["smtp_code"] == 550 and record["smtp_enhanced_code"] == "5.1.1"
    assert record["smtp_response"].startswith("550 5.1.1 <nobody@recipient.test>: Recipient address rejected")
    bounce = record["events"][-1]["bounce"]
    assert bounce["kind"] == "hard" and bounce["source"] == "smtp" and bounce["suppressed"] is True

    again = service.api.send(nobody)
    assert again.status == 422 and again.json()["code"] == "recipient_suppressed"
    assert "to" in again.json()["errors"]


@pytest.mark.parametrize(
    "to, status",
    [("someone@nullmx.test", "5.1.10"), ("someone@does-not-exist.test", "5.1.2")],
)
def test_a_permanent_dns_failure_bounces_without_suppression(service, to, status):
    message = MESSAGE | {"to": to}
    record = service.api.settled(service.api.accept(message)["id"], "bounced")
    assert record["smtp_code"] is None and record["smtp_response"] is None
    bounce = record["events"][-1]["bounce"]
    assert bounce["status"] == status and bounce["source"] == "dns" and bounce["suppressed"] is False
    assert service.api.send(message).status == 202


def test_several_messages_to_one_site_share_a_connection(service, postfix):
    ids = [service.api.accept(MESSAGE | {"subject": f"n {n}"})["id"] for n in range(20)]
    for message_id in ids:
        service.api.settled(message_id, "delivered")
    mail = postfix.wait_for_mail(20)
    assert len(mail) == 20
    assert all(any(message_id.encode() in one for one in mail) for message_id in ids)
