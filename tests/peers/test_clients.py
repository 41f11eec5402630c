"""Independent clients: an application written only from the specification and the description, and one that a generator
creates from the served description when the test runs."""

import importlib
import json
import subprocess
import sys
import threading
import uuid
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from support.application import ATTEMPTS, Application, Refused
from support.roots import missing

GOOD = {"from": "shop@example.test", "to": "delivered@simulator.test", "subject": "Hello", "text": "It works."}
HEAD = 'hostname = "mail.sender.test"\n'


@pytest.fixture
def application(dev):
    """Creates a running service and an application that uses it: the clock advances when the application waits."""
    opened = []

    def start(config: str = HEAD, key: str = "api_key"):
        service = dev("--virtual-clock", config=config)
        opened.append(Application(service.info["url"], service.info[key], service.advance))
        return service, opened[-1]

    yield start
    for app in opened:
        app.close()


def under(service, key: str) -> Application:
    """Returns the same application with another key."""
    return Application(service.info["url"], key, service.advance)


def refusal(call) -> Refused:
    """Returns the error as the application's single handler sees it."""
    with pytest.raises(Refused) as caught:
        call()
    refused = caught.value
    assert refused.message and refused.code and refused.request_id
    return refused


def test_a_replayed_request_gets_the_same_bytes(application):
    service, app = application()
    first = app.send(GOOD, "order-1")
    again = app.send(dict(reversed(GOOD.items())), "order-1")
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.content == first.content and again.headers["idempotent-replay"] == "true"
    assert "idempotent-replay" not in first.headers
    service.advance(60)
    record = app.call("GET", first.headers["location"]).json()
    assert record["status"] == "delivered" and record["text"] == GOOD["text"]
    assert [event["type"] for event in record["events"]] == ["queued", "delivered"]
    assert len(service.captured()) <= 1


def test_ten_concurrent_requests_with_one_key_create_one_message(application):
    _, app = application()
    message = GOOD | {"attachments": [{"filename": "a.bin", "content": "QUJD" * 500_000}]}
    answers, gate = [], threading.Barrier(10)

    def send():
        gate.wait()
        answers.append(app.send(message, "at-once").content)

    threads = [threading.Thread(target=send) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 10 and len(set(answers)) == 1
    assert len(list(app.rows("/v1/messages"))) == 1


def test_paging_by_cursor_and_by_link_returns_every_row_once(application):
    _, app = application()
    sent = [app.send(GOOD | {"to": f"delivered+{n}@simulator.test"}, f"page-{n}").json()["id"] for n in range(25)]
    by_cursor = [event["message_id"] for event in app.rows("/v1/events", limit=7, type="queued")]
    assert by_cursor == sent[::-1]
    pages = list(app.pages("/v1/events?limit=10&type=queued"))
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [event["message_id"] for page in pages for event in page] == sent[::-1]
    assert [event["type"] for event in app.rows("/v1/events", message_id=sent[0], type="queued")] == ["queued"]


def test_one_handler_covers_every_documented_refusal(application):
    service, app = application()
    marketing = under(service, service.info["marketing_api_key"])
    made = app.call("POST", "/v1/keys", json={"name": "reader", "scopes": ["read"]}).json()
    reader = under(service, made["key"])
    for n in range(10):
        app.call("POST", "/v1/webhooks", json={"url": f"https://app.example.com/{n}"})
    app.call("PATCH", "/v1/settings", json={"content_retention_days": 1})
    gone = app.send(GOOD, "gone").json()["id"]
    service.advance(2 * 86_400)
    app.call("POST", "/v1/domains", json={"name": "new.example.test", "stream": "transactional"})
    app.call("POST", "/v1/suppressions", json={"email": "gone@example.org"})
    app.send(GOOD, "used")

    def post(body: dict | bytes, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Content-Type": "application/json"} | {name.replace("_", "-"): v for name, v in headers.items()}
        return lambda: app.call("POST", "/v1/messages", content=content, headers=fields)

    cases = [
        (lambda: under(service, "pr_live_" + "0" * 43).call("GET", "/v1/me"), 401, "unauthenticated", []),
        (lambda: marketing.send(GOOD, "m"), 403, "stream_forbidden", []),
        (lambda: reader.send(GOOD, "r"), 403, "scope_forbidden", []),
        (lambda: app.call("GET", "/v1/messages/msg_nobody"), 404, "not_found", []),
        (lambda: app.call("PUT", "/v1/messages"), 405, "method_not_allowed", []),
        (lambda: app.call("GET", f"/v1/messages/{gone}/raw"), 410, "content_gone", []),
        (post(GOOD | {"text": "Other."}, Idempotency_Key="used"), 409, "idempotency_mismatch", []),
        (lambda: app.call("POST", "/v1/webhooks", json={"url": "https://app.example.com/"}), 409, "conflict", []),
        (post(b" " * 26_214_401), 413, "payload_too_large", []),
        (post(b"{}", Content_Type="text/plain"), 415, "unsupported_media_type", []),
        (post(b'{"to": "a@b.test", "to": "c@d.test"}'), 422, "invalid_json", []),
        (post(GOOD | {"to": "nobody", "headers": {"Bcc": "x"}}), 422, "validation_failed", ["headers.Bcc", "to"]),
        (post(GOOD | {"from": "a@elsewhere.test"}), 422, "domain_unknown", ["from"]),
        (post(GOOD | {"from": "a@new.example.test"}), 422, "domain_unverified", ["from"]),
        (post(GOOD | {"to": "gone@example.org"}), 422, "recipient_suppressed", ["to"]),
        (lambda: app.call("GET", "/v1/events", params={"typ": "queued"}), 422, "validation_failed", ["typ"]),
    ]
    for call, status, code, fields in cases:
        refused = refusal(call)
        assert (refused.status, refused.code, sorted(refused.errors)) == (status, code, fields), refused
    assert app.waits == [], "none of these is worth repeating"


def test_a_client_that_honours_retry_after_succeeds(application):
    _, app = application(HEAD + "[limits]\nrequests_per_minute = 20\n[quota]\nper_hour = 10\nper_day = 100\n")
    ids = {app.send(GOOD | {"to": f"delivered+{n}@simulator.test"}, f"n-{n}").json()["id"] for n in range(25)}
    assert len(ids) == 25
    assert max(app.waits) > 60, f"the hour's quota was met: {app.waits}"
    app.waits.clear()
    assert all(app.call("GET", "/v1/me").json()["rate_limit"]["limit"] == 20 for _ in range(50))
    assert app.waits and max(app.waits) <= 60, f"the key's rate was met: {app.waits}"


def test_a_service_that_stays_unavailable_is_reported_with_its_own_error(application):
    _, app = application(HEAD + "[limits]\nmin_free_bytes = 9000000000000000\n")
    refused = refusal(lambda: app.send(GOOD, "full"))
    assert (refused.status, refused.code) == (503, "storage_full")
    assert app.waits == [refused.retry_after] * (ATTEMPTS - 1)


SETTINGS = """\
package_name_override: {name}
post_hooks: []
content_type_overrides:
  message/rfc822: application/octet-stream
"""


@pytest.fixture
def generated(dev, workdir, monkeypatch):
    """A running service, and the package that the generator creates from its served description."""
    service = dev("--virtual-clock")
    description = workdir / "openapi.json"
    description.write_bytes(httpx.get(service.info["url"] + "/v1/openapi.json").content)
    generator = Path(sys.executable).parent / "openapi-python-client"
    if not generator.exists():
        missing("openapi-python-client")
    settings = workdir / "settings.yml"
    name = f"generated_{uuid.uuid4().hex}"
    settings.write_text(SETTINGS.format(name=name))
    command = [generator, "generate", "--path", description, "--config", settings, "--meta", "none"]
    command += ["--output-path", workdir / name]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert made.returncode == 0, made.stdout
    # This generator does not support text bodies; one route accepts them.
    warned = made.stdout.split("WARNING")[1:]
    assert len(warned) == 1 and "POST /v1/suppressions/import" in warned[0], made.stdout
    monkeypatch.syspath_prepend(str(workdir))
    return service, lambda module: importlib.import_module(f"{name}.{module}" if module else name)


def test_a_generated_client_sends_lists_and_reads_typed_objects(generated):
    service, module = generated
    client = module("").AuthenticatedClient(service.info["url"], service.info["api_key"])
    models, types = module("models"), module("types")

    request = models.SendRequest(from_="shop@example.test", to="delivered@simulator.test", subject="Hello", text="Hi.")
    send = module("api.messages.messages_create")
    answer = send.sync_detailed(client=client, body=request, idempotency_key="generated-1")
    assert answer.status_code == 202 and answer.headers["x-service-quota-window"] in ("hour", "day")
    accepted = answer.parsed
    assert isinstance(accepted, models.Accepted) and accepted.stream is models.Stream.TRANSACTIONAL
    assert isinstance(accepted.created_at, datetime) and accepted.from_ == "shop@example.test"

    service.advance(60)
    page = module("api.events.events_list").sync(client=client, limit=1)
    assert isinstance(page, models.EventPage) and page.next_cursor
    assert page.data[0].type_ is models.EventType.DELIVERED and page.data[0].message_id == accepted.id
    older = module("api.events.events_list").sync(client=client, cursor=page.next_cursor)
    assert [event.type_ for event in older.data] == [models.EventType.QUEUED] and older.next_cursor is None

    record = module("api.messages.messages_show").sync(accepted.id, client=client)
    assert isinstance(record, models.MessageRecord) and record.status is models.MessageStatus.DELIVERED
    assert record.text == "Hi." and record.html is None and [e.type_.value for e in record.events] == ["queued", "delivered"]

    hook = models.NewWebhookRequest(url="https://app.example.com/hook", events=[models.EventType.BOUNCED])
    made = module("api.webhooks.webhooks_create").sync(client=client, body=hook)
    assert isinstance(made, models.WebhookWithSecret) and made.secret.startswith("whsec_")
    change = models.WebhookChange(enabled=False)
    changed = module("api.webhooks.webhooks_update").sync(made.id, client=client, body=change)
    assert isinstance(changed, models.Webhook) and changed.enabled is False and changed.disabled_at is None

    refused = send.sync(client=client, body=models.SendRequest(from_="nobody", to="x"))
    assert isinstance(refused, models.ValidationError) and refused.code is models.ErrorCode.VALIDATION_FAILED
    assert set(refused.errors.to_dict()) == {"from", "to", "text"}
    unknown = module("api.messages.messages_show").sync("msg_00000000000000000000000000", client=client)
    assert isinstance(unknown, models.Error) and unknown.message
    assert types.UNSET is not None
