"""Verification of webhooks by receivers: the client libraries of two families, in Python and in JavaScript, over the
exact bytes that a real https receiver got, on the first attempt and on the seventh, before and after a secret
rotation (contract 5)."""

import base64
import datetime
import json
import os
import shutil
import subprocess

import pytest
import standardwebhooks.webhooks
import stripe
from standardwebhooks import Webhook, WebhookVerificationError

from support.hooks import Hook, HookReceiver
from support.names import Names
from support.pki import Authority
from support.roots import PEERS, missing

MESSAGE = {"from": "hello@example.test", "to": "you@example.org", "subject": "Grüße \u2028 €", "text": "x"}
# From one attempt to the next, after the first.
WAITS = [60, 300, 1800, 7200, 21_600, 86_400]
SCRIPT = """
const { default: Stripe = require("stripe") } = require("stripe");
const { Webhook } = require("standardwebhooks");
const believed = (verify) => { try { verify(); return true; } catch { return false; } };
for (const line of require("node:fs").readFileSync(0, "utf8").trim().split("\\n")) {
  const { secret, headers, body, now } = JSON.parse(line);
  const raw = Buffer.from(body, "base64");
  Date.now = () => now * 1000;  // the receiver's clock
  const stripe = new Stripe("sk_test_none");
  console.log(JSON.stringify([
    believed(() => stripe.webhooks.constructEvent(raw, headers["x-service-signature"], secret)),
    believed(() => new Webhook(secret).verify(raw, headers)),
  ]));
}
"""


def in_python(monkeypatch, secret: str, hook: Hook, now: int) -> list[bool]:
    """Returns the results of `stripe` and `standardwebhooks` with their clock set to `now`."""

    class At(datetime.datetime):
        """The receiver's clock."""

        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.fromtimestamp(now, tz)

    with monkeypatch.context() as patched:
        patched.setattr(standardwebhooks.webhooks, "datetime", At)
        patched.setattr("time.time", lambda: float(now))
        verdicts = []
        try:
            stripe.Webhook.construct_event(hook.body, hook.headers["x-service-signature"], secret)
            verdicts.append(True)
        except stripe.SignatureVerificationError:
            verdicts.append(False)
        try:
            Webhook(secret).verify(hook.body, hook.headers)
            verdicts.append(True)
        except WebhookVerificationError:
            verdicts.append(False)
        return verdicts


def in_node(questions: list[tuple[str, Hook, int]]) -> list[list[bool]]:
    """Returns the results of the packages of the same names in JavaScript."""
    modules = PEERS / "node" / "node_modules"
    if shutil.which("node") is None or not modules.is_dir():
        missing("node with stripe and standardwebhooks")
    lines = [
        json.dumps({"secret": s, "headers": h.headers, "body": base64.b64encode(h.body).decode(), "now": now})
        for s, h, now in questions
    ]
    ran = subprocess.run(
        ["node", "-e", SCRIPT],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"NODE_PATH": str(modules)},
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture
def world(workdir, dev):
    """A `dev` with virtual time, and an https receiver whose name it resolves."""
    authority = Authority(workdir / "pki")
    names = Names({"hooks.test": ["127.0.0.1"]})
    receiver = HookReceiver(authority.issue("hooks.test"))
    config = (
        f'[dns]\nservers = ["{names.address}"]\n[network]\nallow = ["127.0.0.0/8"]\n'
        f'[webhooks]\nextra_roots = "{authority.root}"\n'
    )
    yield dev("--virtual-clock", config=config), receiver
    receiver.close()
    names.close()


def told_seven_times(server, receiver) -> tuple[dict, list[Hook]]:
    """Sends a message whose only event is refused until the seventh attempt; returns the endpoint and the requests."""
    endpoint = server.api.request("POST", "/v1/webhooks", {"url": receiver.url, "events": ["delivered"]}).json()
    receiver.statuses = [503] * 6
    server.api.accept(MESSAGE)
    server.advance(0)
    for wait in WAITS:
        server.advance(wait)
    assert len(receiver.received) == 7
    return endpoint, receiver.received


def test_all_libraries_verify_every_attempt_and_reject_changes(world, monkeypatch):
    server, receiver = world
    endpoint, hooks = told_seven_times(server, receiver)
    assert len({hook.body for hook in hooks}) == 1
    assert hooks[0].body in server.api.request("GET", "/v1/events").body, "the bytes of the log"
    assert [hook.headers["x-service-attempt"] for hook in hooks] == list("1234567")
    at = [int(hook.headers["webhook-timestamp"]) for hook in hooks]
    assert [later - earlier for earlier, later in zip(at, at[1:])] == WAITS

    secret, seventh = endpoint["secret"], hooks[6]
    changed = Hook(seventh.path, seventh.headers, seventh.body.replace(b"delivered", b"bounced--"))
    questions = [
        (secret, hooks[0], at[0]),
        (secret, hooks[0], at[0] + 299),
        (secret, seventh, at[6]),
        (secret, hooks[0], at[6]),
        (secret, changed, at[6]),
        ("whsec_" + base64.b64encode(bytes(32)).decode(), seventh, at[6]),
    ]
    expected = [[True, True]] * 3 + [[False, False]] * 3
    assert [in_python(monkeypatch, *question) for question in questions] == expected
    assert in_node(questions) == expected


def test_after_a_rotation_only_the_new_secret_verifies_outstanding_deliveries(world, monkeypatch):
    server, receiver = world
    endpoint = server.api.request("POST", "/v1/webhooks", {"url": receiver.url, "events": ["delivered"]}).json()
    receiver.statuses = [503]
    server.api.accept(MESSAGE)
    server.advance(0)
    answer = server.api.request("POST", f"/v1/webhooks/{endpoint['id']}/rotate-secret", {})
    assert answer.status == 200, answer
    old, new = endpoint["secret"], answer.json()["secret"]
    server.advance(60)
    receiver.statuses = [503] * 5
    server.api.accept(MESSAGE)
    server.advance(0)
    for wait in WAITS:
        server.advance(wait)
    before, after = receiver.received[0], receiver.received[1]
    last = receiver.received[-1]
    assert (after.headers["x-service-attempt"], after.body) == ("2", before.body)
    questions = []
    for hook, right, wrong in ((before, old, new), (after, new, old), (last, new, old)):
        now = int(hook.headers["webhook-timestamp"])
        questions += [(right, hook, now), (wrong, hook, now)]
    expected = [[True, True], [False, False]] * 3
    assert [in_python(monkeypatch, *question) for question in questions] == expected
    assert in_node(questions) == expected
