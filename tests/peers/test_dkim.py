"""Signatures as the receiver sees them: dkimpy verifies the mail in Postfix's Maildir (contract 2)."""

import base64

import dkim
import pytest

FROM = {"from": "shop@sender.test", "to": "inbox@recipient.test"}
RAW = (
    "From: The Shop <shop@sender.test>\r\nTo: inbox@recipient.test\r\nSubject: raw  with   spaces\r\n"
    "X-Folded: one\r\n two\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
    "Content-Transfer-Encoding: 8bit\r\n\r\nGrüße \t \r\n.\r\n..dots\r\n\r\ntrailing lines\r\n\r\n\r\n"
)
SHAPES = {
    "text": {"subject": "text", "text": "plain\n"},
    "html": {"subject": "html", "html": "<p>html only</p>"},
    "both": {"subject": "beide: €", "text": "text\n" * 300, "html": "<p>html</p>" * 300},
    "headers": {"subject": "h", "text": "t", "headers": {"X-Order": "1 " * 100, "Reply-To": "help@sender.test"}},
    "unsubscribe": {"subject": "u", "text": "t", "unsubscribe_url": "https://sender.test/u/1"},
    "attachment": {
        "subject": "a",
        "text": "t",
        "attachments": [{"filename": "a.bin", "content": base64.b64encode(bytes(range(256)) * 20).decode()}],
    },
    "raw": {"raw": RAW},
    "raw in base64": {"raw": base64.b64encode(RAW.encode()).decode()},
}


def signatures(mail: bytes) -> list[dict[bytes, bytes]]:
    """Returns the tags of each DKIM-Signature, in dkimpy's order."""
    fields = [value for name, value in dkim.DKIM(mail).headers if name.lower() == b"dkim-signature"]
    return [dkim.util.parse_tag_value(field) for field in fields]


def verifies(mail: bytes, knot) -> dict[str, bool]:
    """Returns by algorithm whether the signature is valid with the published keys."""
    return {
        tags[b"a"].decode(): dkim.DKIM(mail).verify(idx=index, dnsfunc=knot.txt_for_dkimpy)
        for index, tags in enumerate(signatures(mail))
    }


@pytest.fixture
def service(serve, postfix):
    """`serve` mailing to Postfix's port; the tests verify their domains."""
    return serve(port=postfix.port)


def test_every_kind_of_message_verifies_with_both_algorithms(service, knot, postfix):
    service.domain("sender.test")
    for count, (shape, body) in enumerate(SHAPES.items(), start=1):
        sent = service.api.accept(FROM | body)
        service.api.settled(sent["id"], "delivered")
        mail = next(m for m in postfix.wait_for_mail(count) if sent["id"].encode() in m)
        assert verifies(mail, knot) == {"rsa-sha256": True, "ed25519-sha256": True}, shape
        for tags in signatures(mail):
            assert tags[b"d"] == b"sender.test" and tags[b"c"] == b"relaxed/relaxed", shape


def test_ed25519_signs_only_once_its_record_is_published(service, knot, postfix):
    domain = service.domain("sender.test", algorithms=("rsa-sha256",))
    first = service.api.accept(FROM | SHAPES["text"])
    service.api.settled(first["id"], "delivered")
    assert verifies(postfix.wait_for_mail(1)[0], knot) == {"rsa-sha256": True}

    service.publish(domain, ("rsa-sha256", "ed25519-sha256"))
    second = service.api.accept(FROM | SHAPES["text"])
    service.api.settled(second["id"], "delivered")
    mail = next(m for m in postfix.wait_for_mail(2) if second["id"].encode() in m)
    assert verifies(mail, knot) == {"rsa-sha256": True, "ed25519-sha256": True}


@pytest.mark.parametrize("field", ["From", "To", "Subject", "Date", "Message-ID", "List-Unsubscribe"])
def test_a_second_header_of_a_signed_name_breaks_the_signature(service, knot, postfix, field):
    service.domain("sender.test", algorithms=("rsa-sha256",))
    service.api.accept(FROM | SHAPES["unsubscribe"])
    mail = postfix.wait_for_mail(1)[0]
    assert verifies(mail, knot) == {"rsa-sha256": True}
    assert verifies(f"{field}: forged@evil.test\n".encode() + mail, knot) == {"rsa-sha256": False}


def test_an_unpublished_domain_may_not_send(service):
    service.cli("domain", "add", "other.test", "--stream", "transactional", "--account", service.account)
    answer = service.api.send({"from": "a@other.test", "to": "inbox@recipient.test", "text": "x"})
    assert answer.status == 422 and answer.json()["code"] == "domain_unverified"
    assert "from" in answer.json()["errors"]
