"""The API description matches the program: Schemathesis generates requests and checks every answer, and further real
answers are checked in states that no generated request reaches."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import jsonschema_rs
import pytest

from support.roots import missing
from support.wait import until

# Names in generated requests are looked up in the tests' own name server, which does not know them.
CONFIG = 'hostname = "mail.sender.test"\n[limits]\nrequests_per_minute = 1000000\n[dns]\nservers = ["{knot.server}"]\n'

# Every check is enabled. 422 is allowed for requests that fit the schema but are refused for their meaning, such as a
# domain of another account. A revoked key stays listed (contract 2), so it is not gone.
SCHEMATHESIS = """\
color = false
workers = 1
hooks = "{hooks}"
request-timeout = 30
[auth.openapi.key]
bearer = "{key}"
[generation]
deterministic = true
max-examples = {examples}
database = "none"
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "410", "422"]
# Too long a text may make the body too large before it is validated.
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "409", "413", "415", "422", "429"]
[[operations]]
include-operation-id = ["keys_show", "keys_update", "keys_delete"]
checks.use_after_free.enabled = false
# An endless stream is read for this long.
[[operations]]
include-operation-id = "events_stream"
request-timeout = 0.5
"""
EXAMPLES = 40


# Schemathesis can't write JSON lines. And its made-up senders are at no domain of the account, so nothing would ever be
# accepted.
HOOKS = """\
import re
import schemathesis

@schemathesis.serializer("application/x-ndjson")
def write_lines(_, value):
    return value if isinstance(value, bytes) else str(value).encode()

@schemathesis.hook.apply_to(operation_id="messages_create")
def map_body(_, body):
    sender = body.get("from") if isinstance(body, dict) else None
    if isinstance(sender, str) and re.fullmatch("[a-z0-9.]+@[a-z0-9.-]+", sender, re.IGNORECASE):
        return body | {"from": "shop@example.test"}
    return body
"""


def test_schemathesis_finds_nothing(dev, knot, workdir):
    program = Path(sys.executable).parent / "schemathesis"
    if not program.exists():
        missing("schemathesis")
    service = dev(config=CONFIG.format(knot=knot))
    hooks, config = workdir / "hooks.py", workdir / "schemathesis.toml"
    hooks.write_text(HOOKS)
    config.write_text(SCHEMATHESIS.format(key=service.info["api_key"], examples=EXAMPLES, hooks=hooks))
    command = [program, "--config-file", config, "run", service.info["url"] + "/v1/openapi.json", "--checks", "all"]
    done = subprocess.run(command, cwd=workdir, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert service.child.poll() is None


class Description:
    """The served document, for checking single answers. Stricter than for clients: unknown members are errors."""

    def __init__(self, url: str):
        self.document = httpx.get(url + "/v1/openapi.json").json()
        self.closed = json.loads(json.dumps(self.document), object_hook=_closed)

    def check(self, operation_id: str, answer):
        """Checks an answer against the description of its operation."""
        said = self.response(operation_id, str(answer.status))
        for name, header in said["headers"].items():
            header = self.target(header)
            sent = answer.headers.get(name.lower())
            assert sent is not None or not header["required"], f"{operation_id} lacks {name}"
            if sent is not None:
                value = int(sent) if header["schema"]["type"] == "integer" else sent
                jsonschema_rs.validate(header["schema"], value)
        media = answer.headers.get("content-type", "").split(";")[0]
        assert [media] == list(said.get("content", {"": {}})), f"{operation_id} is {media}"
        if media == "application/json":
            schema = said["content"][media]["schema"] | {"components": self.closed["components"]}
            faults = [f"{f.instance_path}: {f.message}" for f in _validator(schema).iter_errors(answer.json())]
            assert faults == [], f"{operation_id}: {answer.body.decode()}"

    def response(self, operation_id: str, status: str) -> dict:
        """Returns the description of one status of one operation."""
        for operations in self.closed["paths"].values():
            for operation in operations.values():
                if operation["operationId"] == operation_id:
                    return self.target(operation["responses"][status])
        raise AssertionError(f"no operation {operation_id}")

    def target(self, value: dict) -> dict:
        """Resolves a reference; returns anything else unchanged."""
        if "$ref" not in value:
            return value
        found = self.closed
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return found


def _closed(value: dict) -> dict:
    return value | {"additionalProperties": False} if value.get("type") == "object" and "properties" in value else value


def _validator(schema: dict):
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


OUTCOMES = ("delivered", "bounced", "blocked", "deferred", "full", "complained", "late-bounce")


def test_real_answers_in_every_state_match_the_description(dev, hooks, knot, authority):
    allowed = f'[network]\nallow = ["127.0.0.0/8"]\n[webhooks]\nextra_roots = "{authority.root}"\n'
    service = dev("--virtual-clock", config=CONFIG.format(knot=knot) + allowed)
    api, description = service.api, Description(service.info["url"])

    def ask(operation_id: str, method: str, path: str, body=None, status: int = 200, **headers):
        answer = api.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        assert answer.status == status, answer
        description.check(operation_id, answer)
        return answer.json() if answer.headers.get("content-type") == "application/json" else None

    hooks.statuses = [500, 200, 302]
    hook = ask("webhooks_create", "POST", "/v1/webhooks", {"url": hooks.url}, 201)["id"]
    ids = {}
    for outcome in OUTCOMES:
        message = {
            "from": "shop@example.test",
            "to": f"{outcome}@simulator.test",
            "subject": outcome,
            "html": "<p>Hello</p>",
            "headers": {"Reply-To": "help@example.test"},
            "metadata": {"outcome": outcome},
            "attachments": [{"filename": "a.txt", "content": "QQ=="}],
        }
        ids[outcome] = ask("messages_create", "POST", "/v1/messages", message, 202, Idempotency_Key=outcome)["id"]
        ask("messages_create", "POST", "/v1/messages", message, 202, Idempotency_Key=outcome)
    refused = {"from": "x", "to": "", "colour": 1}
    ask("messages_create", "POST", "/v1/messages", refused, 422)
    for seconds in (0, 60, 300, 3600):
        service.advance(seconds)
    seen = set()
    for message_id in ids.values():
        record = ask("messages_show", "GET", f"/v1/messages/{message_id}")
        seen |= {record["status"]} | {event["type"] for event in record["events"]}
        ask("messages_raw", "GET", f"/v1/messages/{message_id}/raw")
    assert {"queued", "deferred", "delivered", "bounced"} <= seen
    ask("messages_cancel", "POST", f"/v1/messages/{ids['full']}/cancel")
    ask("messages_cancel", "POST", f"/v1/messages/{ids['delivered']}/cancel", status=409)
    until("the endpoint was asked", lambda: len(hooks.received) >= 3)
    ask("webhooks_test", "POST", f"/v1/webhooks/{hook}/test", status=201)
    service.advance(7 * 86_400)
    deliveries = ask("webhooks_deliveries", "GET", f"/v1/webhooks/{hook}/deliveries")["data"]
    for delivery in deliveries:
        ask("deliveries_show", "GET", f"/v1/webhook-deliveries/{delivery['id']}")
    assert {delivery["event_type"] for delivery in deliveries} >= {"queued", "test"}
    ask("deliveries_redeliver", "POST", f"/v1/webhook-deliveries/{deliveries[-1]['id']}/redeliver", status=201)
    ask("webhooks_replay", "POST", f"/v1/webhooks/{hook}/replay", {"since": "2020-01-01T00:00:00Z"})
    ask("webhooks_rotate", "POST", f"/v1/webhooks/{hook}/rotate-secret")
    ask("webhooks_list", "GET", "/v1/webhooks")
    ask("webhooks_delete", "DELETE", f"/v1/webhooks/{hook}", status=204)
    for operation_id, path in [
        ("me", "/v1/me"),
        ("settings_show", "/v1/settings"),
        ("keys_list", "/v1/keys"),
        ("domains_list", "/v1/domains"),
        ("events_list", "/v1/events?limit=3"),
        ("messages_list", "/v1/messages?status=bounced"),
        ("suppressions_list", "/v1/suppressions"),
        ("suppressions_export", "/v1/suppressions/export"),
    ]:
        ask(operation_id, "GET", path)
    service.advance(40 * 86_400)
    record = ask("messages_show", "GET", f"/v1/messages/{ids['delivered']}")
    assert record["text"] is None and record["content_deleted_at"]
    ask("messages_raw", "GET", f"/v1/messages/{ids['delivered']}/raw", status=410)
    faulty = api.request("POST", "/v1/suppressions/import", b"email\nnobody\n", {"Content-Type": "text/csv"})
    assert faulty.status == 422
    description.check("suppressions_import", faulty)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_description_is_public(dev, method):
    service = dev()
    service.api.key = None
    answer = service.api.request(method, "/v1/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["cache-control"] == "no-store" and int(answer.headers["content-length"]) > 10_000
    committed = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
    assert method == "HEAD" or answer.body == committed.read_bytes()
