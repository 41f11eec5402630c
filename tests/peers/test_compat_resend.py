"""Resend's own clients, with only their URL changed: the Python SDK, and Anymail's backend for Django."""

import json

import pytest
import resend
from resend.exceptions import MissingApiKeyError, MissingRequiredFieldsError, RateLimitError, ResendError, ValidationError

from support.anymail import send_with

PREFIX = "/v1/compat/resend"
EMAIL = {"from": "Shop <shop@example.test>", "to": ["Ann <ann@example.org>"], "subject": "Hi", "html": "<p>x</p>"}


@pytest.fixture
def service(dev, monkeypatch):
    """A service that the SDK uses."""
    instance = dev()
    monkeypatch.setattr(resend, "api_url", instance.info["url"] + PREFIX)
    monkeypatch.setattr(resend, "api_key", instance.info["api_key"])
    return instance


def captured(service, message_id):
    return service.api.get(f"/dev/mail/{message_id}")


def test_an_email_is_sent_retrieved_and_delivered(service):
    attachment = {"filename": "a.bin", "content": list(b"\x00\xffhello")}
    sent = resend.Emails.send(
        EMAIL | {"reply_to": "help@example.test", "tags": [{"name": "kind", "value": "order"}], "attachments": [attachment]}
    )
    record = service.api.settled(sent["id"], "delivered")
    assert record["metadata"] == {"kind": "order"} and record["from_name"] == "Shop"
    assert [file["size"] for file in record["attachments"]] == [7]
    shown = resend.Emails.get(sent["id"])
    assert shown["from"] == "Shop <shop@example.test>" and shown["to"] == ["ann@example.org"]
    assert shown["last_event"] == "delivered" and shown["reply_to"] == ["help@example.test"]
    assert shown["tags"] == [{"name": "kind", "value": "order"}]
    assert sent["http_headers"]["x-service-quota-window"]


def test_a_replay_with_the_same_key_sends_nothing(service):
    first = resend.Emails.send(EMAIL, {"idempotency_key": "order-1"})
    assert resend.Emails.send(EMAIL, {"idempotency_key": "order-1"})["id"] == first["id"]
    with pytest.raises(ResendError) as refused:
        resend.Emails.send(EMAIL | {"subject": "Other"}, {"idempotency_key": "order-1"})
    assert (refused.value.code, refused.value.error_type) == (409, "invalid_idempotent_request")
    assert len(service.api.get("/v1/messages")["data"]) == 1


def test_a_scheduled_email_is_cancelled(dev, monkeypatch):
    instance = dev("--virtual-clock")
    monkeypatch.setattr(resend, "api_url", instance.info["url"] + PREFIX)
    monkeypatch.setattr(resend, "api_key", instance.info["api_key"])
    sent = resend.Emails.send(EMAIL | {"to": "deferred@simulator.test"})
    instance.api.settled(sent["id"], "deferred")
    assert resend.Emails.get(sent["id"])["last_event"] == "delivery_delayed"
    assert resend.Emails.cancel(sent["id"])["object"] == "email"
    assert resend.Emails.get(sent["id"])["last_event"] == "canceled"
    with pytest.raises(ResendError) as late:
        resend.Emails.cancel(sent["id"])
    assert late.value.code == 409


def test_batches_are_strict_unless_they_are_permissive(service):
    good, bad = EMAIL, EMAIL | {"to": "nobody"}
    assert len(resend.Batch.send([good, good | {"to": "bob@example.org"}])["data"]) == 2
    with pytest.raises(ValidationError, match=r"emails\[1\]\.to: "):
        resend.Batch.send([good, bad])
    assert len(service.api.get("/v1/messages")["data"]) == 2
    mixed = resend.Batch.send([bad, good], {"batch_validation": "permissive"})
    assert len(mixed["data"]) == 1 and [error["index"] for error in mixed["errors"]] == [0]


def test_refusals_raise_the_sdk_s_exceptions(service, monkeypatch):
    with pytest.raises(ValidationError, match="one request per recipient"):
        resend.Emails.send(EMAIL | {"cc": "c@example.org"})
    with pytest.raises(MissingRequiredFieldsError, match="from: is required"):
        resend.Emails.send({"to": "a@example.org", "text": "x"})
    with pytest.raises(ValidationError, match="scheduling is not supported"):
        resend.Emails.send(EMAIL | {"scheduled_at": "in 1 min"})
    with pytest.raises(ResendError) as unknown:
        resend.Emails.get("msg_0")
    assert (unknown.value.code, unknown.value.error_type) == (404, "not_found")
    monkeypatch.setattr(resend, "api_key", "re_wrong")
    with pytest.raises(ResendError) as wrong:
        resend.Emails.send(EMAIL)
    assert (wrong.value.code, wrong.value.error_type) == (401, "invalid_api_key")
    monkeypatch.setattr(resend, "api_key", "")
    with pytest.raises(MissingApiKeyError):
        resend.Emails.send(EMAIL)


def test_a_batch_beyond_the_rate_limit_is_refused_completely(dev, monkeypatch):
    instance = dev(config="[limits]\nrequests_per_minute = 5\n")
    monkeypatch.setattr(resend, "api_url", instance.info["url"] + PREFIX)
    monkeypatch.setattr(resend, "api_key", instance.info["api_key"])
    resend.Batch.send([EMAIL] * 4)
    with pytest.raises(RateLimitError):
        resend.Batch.send([EMAIL] * 2)
    assert resend.Emails.send(EMAIL)["id"]


def test_anymail_sends_through_its_resend_backend(service):
    settings = {"RESEND_API_KEY": service.info["api_key"], "RESEND_API_URL": service.info["url"] + PREFIX + "/"}
    told = send_with("anymail.backends.resend.EmailBackend", settings)
    assert told["plain"]["status"] == {"joerg@example.org": "queued"}
    record = service.api.message(told["plain"]["id"])
    assert record["from_name"] == "Jörg, Shop" and json.loads(record["headers"]["X-Metadata"]) == {"order": "7"}
    assert json.loads(record["headers"]["X-Tags"]) == ["welcome"]
    raw = captured_text(service, told["plain"]["id"])
    assert "Content-ID: <" in raw and "report.csv" in raw
    assert set(told["many"]["status"].values()) == {"queued"} and len(told["many"]["ids"]) == 2
    assert "one request per recipient" in told["two"]["error"]


def captured_text(service, message_id):
    answer = service.api.request("GET", f"/v1/messages/{message_id}/raw")
    return answer.body.decode()
