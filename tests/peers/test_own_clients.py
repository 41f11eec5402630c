"""Our own clients, clients/python and clients/typescript: against the real service, and against a failing one."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.flaky import FlakyService
from support.hooks import HookReceiver
from support.names import Names
from support.pki import Authority
from support.roots import missing
from support.wait import until

CLIENTS = Path(__file__).parents[2] / "clients"
sys.path.insert(0, str(CLIENTS / "python" / "src"))

from postrider import ApiError, Client, SignatureError, verify  # noqa: E402

EMAIL = {"from_": "shop@example.test", "to": "ann@example.org", "subject": "Hi", "text": "x"}
OK = (202, {}, {"id": "msg_1", "status": "queued"})
REFUSAL = {"message": "No.", "code": "rate_limited"}
# The known answer of the webhook documentation's header (docs/webhooks.md).
SECRET = "whsec_q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k="
BODY = b'{"id":"evt_1","type":"delivered"}'
SIGNATURE = "t=1700000000,v1=0bd7d1936c1feda6866144e916fd796d06dedf89dec93ff5597b00bd4656bad3"


@pytest.fixture
def pauses(monkeypatch):
    """Records the client's delays before each retry, without waiting."""
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def node(script: str, environment: dict[str, str]):
    """Returns the JSON printed by a module that imports our client."""
    if not shutil.which("node"):
        missing("node")
    module = (CLIENTS / "typescript" / "index.js").as_uri()
    source = f'import {{ ApiError, Postrider, SignatureError, verify }} from "{module}";\n{script}'
    command = ["node", "--input-type=module", "-e", source]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_python_sends_reads_pages_and_cancels(dev, monkeypatch):
    instance = dev("--virtual-clock")
    monkeypatch.setenv("POSTRIDER_URL", instance.info["url"] + "/")
    monkeypatch.setenv("POSTRIDER_API_KEY", instance.info["api_key"])
    client = Client()
    sent = [client.send(**EMAIL | {"to": f"a{n}@example.org", "metadata": {"order": str(n)}})["id"] for n in range(5)]
    instance.api.settled(sent[0], "delivered")
    assert client.get(sent[0])["events"][-1]["type"] == "delivered"
    assert [message["id"] for message in client.messages(limit=2)] == sent[::-1]
    assert [message["id"] for message in client.messages(to="a3@example.org", from_="shop@example.test")] == [sent[3]]
    assert [message["id"] for message in client.messages(metadata={"order": "3"}, limit=1)] == [sent[3]]
    queued = list(client.events(type="queued", limit=2))
    assert [event["message_id"] for event in queued] == sent[::-1]
    waiting = client.send(**EMAIL | {"to": "deferred@simulator.test"})["id"]
    instance.api.settled(waiting, "deferred")
    assert client.cancel(waiting)["status"] == "canceled"
    with pytest.raises(ApiError) as late:
        client.cancel(waiting)
    assert (late.value.status, late.value.code) == (409, "conflict") and late.value.request_id
    with pytest.raises(ApiError) as refused:
        client.send(from_="x", to="y")
    assert refused.value.code == "validation_failed" and set(refused.value.errors) == {"from", "to", "text"}
    first = client.send(**EMAIL, idempotency_key="one")
    assert client.send(**EMAIL, idempotency_key="one") == first


def test_python_retries_temporary_failures_with_the_same_key(pauses):
    busy = (409, {"Retry-After": "1"}, {"message": "Running.", "code": "idempotency_in_progress"})
    for answers, waited in [
        ([None, OK], [0.5]),
        ([(503, {}, REFUSAL), (500, {}, REFUSAL), (502, {}, REFUSAL), OK], [0.5, 1.0, 2.0]),
        ([(429, {"Retry-After": "7"}, REFUSAL), (503, {"Retry-After": "3600"}, REFUSAL), OK], [7.0, 60.0]),
        ([busy, OK], [1.0]),
    ]:
        pauses.clear()
        with FlakyService(answers) as service:
            assert Client(service.url, "key").send(**EMAIL)["id"] == "msg_1"
        assert pauses == waited and len(service.keys) == 1 and service.keys != {""}


def test_python_stops_after_the_last_retry_and_at_permanent_errors(pauses):
    with FlakyService([(503, {"Retry-After": "5", "X-Request-Id": "r1"}, REFUSAL)] * 4) as service:
        with pytest.raises(ApiError) as failed:
            Client(service.url, "key").send(**EMAIL)
    assert (failed.value.status, failed.value.retry_after, failed.value.request_id) == (503, 5, "r1")
    assert len(service.asked) == 4 and pauses == [5.0] * 3
    for status, code in [(422, "validation_failed"), (409, "idempotency_mismatch"), (401, "unauthenticated"), (302, "x")]:
        with FlakyService([(status, {"Location": "/"}, {"message": "No.", "code": code})]) as service:
            with pytest.raises(ApiError) as refused:
                Client(service.url, "key").send(**EMAIL)
        assert refused.value.code == code and len(service.asked) == 1
    with FlakyService([None]) as service, pytest.raises(OSError):
        Client(service.url, "key", retries=0).send(**EMAIL)
    with pytest.raises(ValueError, match="POSTRIDER_URL"):
        Client(api_key="key")


def test_python_verifies_webhooks():
    at = {"now": 1_700_000_000}
    assert verify(SECRET, BODY, SIGNATURE, **at)["id"] == "evt_1"
    assert verify(SECRET, BODY.decode(), SIGNATURE, now=1_700_000_300)["type"] == "delivered"
    for secret, body, signature, now in [
        ("whsec_other", BODY, SIGNATURE, 1_700_000_000),
        (SECRET, BODY + b" ", SIGNATURE, 1_700_000_000),
        (SECRET, BODY, SIGNATURE[:-1] + "0", 1_700_000_000),
        (SECRET, BODY, SIGNATURE.replace("v1", "v0"), 1_700_000_000),
        (SECRET, BODY, SIGNATURE + ",v1=", 1_700_000_000),
        (SECRET, BODY, None, 1_700_000_000),
        (SECRET, BODY, SIGNATURE, 1_700_000_301),
        (SECRET, BODY, SIGNATURE, None),
    ]:
        with pytest.raises(SignatureError):
            verify(secret, body, signature, now=now)
    assert verify(SECRET, BODY, SIGNATURE, tolerance=400, now=1_700_000_400)


NODE_STORY = """
const client = new Postrider();
const email = { from: "shop@example.test", to: "ann@example.org", subject: "Hi", text: "x" };
const all = async (list) => { const found = []; for await (const one of list) found.push(one); return found; };
const sent = [];
for (let n = 0; n < 5; n += 1) sent.push((await client.send({ ...email, to: `a${n}@example.org`, metadata: { order: `${n}` } })).id);
const told = { sent };
told.messages = (await all(client.messages({ limit: 2 }))).map((one) => one.id);
told.filtered = (await all(client.messages({ metadata: { order: "3" } }))).map((one) => one.id);
told.events = (await all(client.events({ type: "queued", limit: 2 }))).map((one) => one.message_id);
told.status = (await client.get(sent[0])).status;
told.refused = await client.send({ from: "x", to: "y" }).catch((error) =>
  ({ own: error instanceof ApiError, status: error.status, code: error.code, fields: Object.keys(error.errors).sort(), id: error.requestId }));
const first = await client.send({ ...email, idempotencyKey: "one" });
told.again = (await client.send({ ...email, idempotencyKey: "one" })).id === first.id;
console.log(JSON.stringify(told));
"""


def test_node_sends_reads_and_pages(dev):
    instance = dev()
    told = node(NODE_STORY, {"POSTRIDER_URL": instance.info["url"], "POSTRIDER_API_KEY": instance.info["api_key"]})
    assert told["messages"] == told["events"] == told["sent"][::-1] and told["filtered"] == [told["sent"][3]]
    assert told["status"] in ("queued", "delivered") and told["again"]
    refused = told["refused"]
    assert refused["own"] and (refused["status"], refused["code"]) == (422, "validation_failed")
    assert refused["fields"] == ["from", "text", "to"] and refused["id"]


NODE_RETRIES = """
const waited = [];
const ours = [500, 1000, 2000, 5000, 7000, 60000];  // fetch has other timers
globalThis.setTimeout = ((set) => (run, ms, ...more) => {
  if (ours.includes(ms)) waited.push(ms);
  return set(run, ours.includes(ms) ? 0 : ms, ...more);
})(setTimeout);
const client = new Postrider({ url: process.env.URL, apiKey: "key" });
const email = { from: "a@example.test", to: "b@example.org", text: "x" };
const outcome = await client.send(email).then((sent) => sent.id, (error) => [error.status ?? error.name, error.code ?? null, error.retryAfter ?? null]);
console.log(JSON.stringify({ outcome, waited }));
"""


def test_node_retries_temporary_failures_with_the_same_key():
    for answers, outcome, waited in [
        ([None, OK], "msg_1", [500]),
        ([(503, {}, REFUSAL), (500, {}, REFUSAL), OK], "msg_1", [500, 1000]),
        ([(429, {"Retry-After": "7"}, REFUSAL), (503, {"Retry-After": "3600"}, REFUSAL), OK], "msg_1", [7000, 60_000]),
        ([(422, {}, REFUSAL)], [422, "rate_limited", None], []),
        ([(503, {"Retry-After": "5"}, REFUSAL)] * 4, [503, "rate_limited", 5], [5000] * 3),
    ]:
        with FlakyService(answers) as service:
            told = node(NODE_RETRIES, {"URL": service.url})
        assert (told["outcome"], told["waited"]) == (outcome, waited) and len(service.keys) == 1


NODE_VERIFIES = """
const { secret, body, signature } = JSON.parse(process.env.CASE);
const believed = async (...given) => {
  try { return (await verify(...given)).id; } catch (error) { if (error instanceof SignatureError) return null; throw error; }
};
const at = { now: 1700000000 };
const bytes = new TextEncoder().encode(body);
console.log(JSON.stringify([
  await believed(secret, body, signature, at),
  await believed(secret, bytes, signature, { now: 1700000300 }),
  await believed(secret, bytes.buffer, signature, { now: 1700000400, tolerance: 400 }),
  await believed("whsec_other", body, signature, at),
  await believed(secret, body + " ", signature, at),
  await believed(secret, body, signature.slice(0, -1) + "0", at),
  await believed(secret, body, signature + ",v1=", at),
  await believed(secret, body, null, at),
  await believed(secret, body, signature, { now: 1700000301 }),
  await believed(secret, body, signature),
]));
"""


def test_node_verifies_webhooks():
    case = {"secret": SECRET, "body": BODY.decode(), "signature": SIGNATURE}
    told = node(NODE_VERIFIES, {"CASE": json.dumps(case)})
    assert told == ["evt_1"] * 3 + [None] * 7


@pytest.fixture
def world(workdir, dev):
    """A service, and an https receiver whose name it resolves."""
    authority = Authority(workdir / "pki")
    names = Names({"hooks.test": ["127.0.0.1"]})
    receiver = HookReceiver(authority.issue("hooks.test"))
    config = (
        f'[dns]\nservers = ["{names.address}"]\n[network]\nallow = ["127.0.0.0/8"]\n'
        f'[webhooks]\nextra_roots = "{authority.root}"\n'
    )
    yield dev(config=config), receiver
    receiver.close()
    names.close()


def test_both_clients_verify_a_real_webhook(world):
    server, receiver = world
    made = server.api.request("POST", "/v1/webhooks", {"url": receiver.url, "events": ["queued"]}).json()
    sent = server.api.accept({"from": "a@example.test", "to": "b@example.org", "subject": "Grüße €", "text": "x"})
    until("the webhook has come", lambda: receiver.received)
    hook = receiver.received[0]
    signature = hook.headers["x-service-signature"]
    event = verify(made["secret"], hook.body, signature)
    assert (event["type"], event["message_id"], event["subject"]) == ("queued", sent["id"], "Grüße €")
    case = {"secret": made["secret"], "body": hook.body.decode(), "signature": signature}
    script = """
const { secret, body, signature } = JSON.parse(process.env.CASE);
console.log(JSON.stringify(await verify(secret, body, signature)));
"""
    assert node(script, {"CASE": json.dumps(case)}) == event
