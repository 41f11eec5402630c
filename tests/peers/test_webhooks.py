"""Webhooks over real TLS, verified by two families of client libraries (contract 5)."""

import json

import pytest
import stripe
from standardwebhooks import Webhook, WebhookVerificationError

from support.hooks import HookReceiver
from support.pki import Authority
from support.wait import until

MESSAGE = {
    "from": "shop@sender.test",
    "to": "inbox@recipient.test",
    "subject": "Grüße €",
    "text": "x",
    "metadata": {"order": "7"},
}


@pytest.fixture
def service(serve, sink):
    """`serve` with a verified domain and a receiver that takes everything."""
    service = serve(port=sink.port)
    service.domain("sender.test")
    return service


def register(service, hooks, **fields) -> dict:
    """A webhook endpoint at the receiver."""
    answer = service.api.request("POST", "/v1/webhooks", {"url": hooks.url} | fields)
    assert answer.status == 201, answer
    assert answer.json()["secret"].startswith("whsec_")
    return answer.json()


def test_both_libraries_verify_the_exact_bytes_of_the_event(service, hooks):
    endpoint = register(service, hooks)
    sent = service.api.accept(MESSAGE)
    service.api.settled(sent["id"], "delivered")
    events = {e["id"]: e for e in service.api.get(f"/v1/events?message_id={sent['id']}")["data"]}
    for kind in ("queued", "delivered"):
        hook = hooks.wait_for_event(kind)
        header = hook.headers["x-service-signature"]
        assert stripe.WebhookSignature.verify_header(hook.body.decode(), header, endpoint["secret"], tolerance=300)
        Webhook(endpoint["secret"]).verify(hook.body, hook.headers)
        body = json.loads(hook.body)
        assert body == events[body["id"]] and body["type"] == kind
        assert body["message_id"] == sent["id"] and body["metadata"] == {"order": "7"}
        assert hook.headers["webhook-id"] == body["id"]
        assert hook.headers["x-service-attempt"] == "1"
        assert hook.headers["content-type"].startswith("application/json")


def test_both_libraries_refuse_a_changed_byte_or_another_secret(service, hooks):
    endpoint = register(service, hooks, events=["queued"])
    other = register(service, hooks, events=["bounced"])
    service.api.accept(MESSAGE)
    hook = hooks.wait_for(1)[0]
    changed = hook.body.replace(b'"queued"', b'"bounced"')
    for body, secret in ((changed, endpoint["secret"]), (hook.body, other["secret"])):
        with pytest.raises(stripe.SignatureVerificationError):
            stripe.WebhookSignature.verify_header(body.decode(), hook.headers["x-service-signature"], secret, 300)
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, hook.headers)


def test_only_registered_types_are_sent(service, hooks):
    register(service, hooks, events=["delivered"])
    service.api.settled(service.api.accept(MESSAGE)["id"], "delivered")
    assert {hook.headers["x-service-event"] for hook in hooks.wait_for(1)} == {"delivered"}


@pytest.mark.parametrize("status", [301, 404, 503])
def test_a_refused_attempt_is_recorded_and_rescheduled_in_one_minute(service, hooks, status):
    hooks.statuses = [status]
    endpoint = register(service, hooks, events=["queued"])
    service.api.accept(MESSAGE)
    hooks.wait_for(1)

    def failed():
        page = service.api.get(f"/v1/webhooks/{endpoint['id']}/deliveries")["data"]
        return page and page[0]["attempt"] == 1 and page[0]["next_attempt_at"] and page[0]

    delivery = service.api.get(f"/v1/webhook-deliveries/{until('the attempt is recorded', failed)['id']}")
    assert delivery["status"] == "pending"
    attempt = delivery["attempts"][0]
    assert attempt["status"] == status and attempt["error"] == "status"
    assert service.api.get(f"/v1/webhooks/{endpoint['id']}")["consecutive_failures"] == 1
    assert len(hooks.received) == 1


def test_a_certificate_of_an_unknown_authority_fails_the_attempt(service, workdir, hooks):
    stranger = HookReceiver(Authority(workdir / "stranger").issue("hooks.test"))

    endpoint = register(service, stranger, events=["queued"])
    service.api.accept(MESSAGE)

    def failed():
        return service.api.get(f"/v1/webhooks/{endpoint['id']}")["consecutive_failures"] == 1

    until("the attempt has failed", failed)
    page = service.api.get(f"/v1/webhooks/{endpoint['id']}/deliveries")["data"]
    attempts = service.api.get(f"/v1/webhook-deliveries/{page[0]['id']}")["attempts"]
    assert attempts[0]["error"] == "tls" and attempts[0]["status"] is None
    assert stranger.received == []
    stranger.close()
