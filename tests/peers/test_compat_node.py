"""The official Node clients of Resend and Postmark, with only their URL changed."""

import json
import os
import shutil
import subprocess
from urllib.parse import urlsplit

import pytest

from support.roots import PEERS, missing

RESEND = """
const { Resend } = require("resend");
const resend = new Resend(process.env.KEY, { baseUrl: process.env.URL + "/v1/compat/resend" });
const email = { from: "Shop <shop@example.test>", to: ["Ann <ann@example.org>"], subject: "Hi", text: "x" };
(async () => {
  const told = {};
  told.sent = await resend.emails.send(
    { ...email, replyTo: "help@example.test", tags: [{ name: "a", value: "b" }],
      attachments: [{ filename: "a.bin", content: Buffer.from([0, 255, 7]) }] }, { idempotencyKey: "one" });
  told.again = await resend.emails.send(
    { ...email, replyTo: "help@example.test", tags: [{ name: "a", value: "b" }],
      attachments: [{ filename: "a.bin", content: Buffer.from([0, 255, 7]) }] }, { idempotencyKey: "one" });
  told.shown = await resend.emails.get(told.sent.data.id);
  told.cancelled = await resend.emails.cancel(told.sent.data.id);
  told.batch = await resend.batch.send([email, { ...email, to: "bob@example.org" }]);
  told.refused = await resend.batch.send([email, { ...email, to: "nobody" }]);
  told.permissive = await resend.batch.send([email, { ...email, to: "nobody" }], { batchValidation: "permissive" });
  told.scheduled = await resend.emails.send({ ...email, scheduledAt: "in 1 min" });
  told.wrong = await new Resend("re_wrong", { baseUrl: process.env.URL + "/v1/compat/resend" }).emails.send(email);
  console.log(JSON.stringify(told));
})();
"""
POSTMARK = """
const postmark = require("postmark");
const options = { requestHost: process.env.HOST + "/v1/compat/postmark", useHttps: false };
const client = new postmark.ServerClient(process.env.KEY, options);
const email = { From: "Shop <shop@example.test>", To: "Ann <ann@example.org>", Subject: "Hi", TextBody: "x" };
const failed = (promise) => promise.then(() => null, (error) =>
  ({ name: error.name, code: error.code, status: error.statusCode, message: error.message, recipients: error.recipients }));
(async () => {
  const told = {};
  told.sent = await client.sendEmail({ ...email, Tag: "t", Metadata: { a: "b" }, MessageStream: "outbound",
    Attachments: [new postmark.Models.Attachment("a.txt", "eA==", "text/plain", "cid:logo")] });
  told.details = await client.getOutboundMessageDetails(told.sent.MessageID);
  told.batch = await client.sendEmailBatch([email, { ...email, To: "gone@example.org" }]);
  told.invalid = await failed(client.sendEmail({ ...email, To: "nobody" }));
  told.inactive = await failed(client.sendEmail({ ...email, To: "gone@example.org" }));
  told.template = await failed(client.sendEmailWithTemplate({ ...email, TemplateId: 1, TemplateModel: {} }));
  told.wrong = await failed(new postmark.ServerClient("x", options).sendEmail(email));
  told.unknown = await failed(client.getOutboundMessageDetails("msg_0"));
  console.log(JSON.stringify(told));
})();
"""


def run(script: str, package: str, instance) -> dict:
    modules = PEERS / "node" / "node_modules"
    if not shutil.which("node") or not (modules / package).is_dir():
        missing(f"node with the package {package}")
    url = instance.info["url"]
    environment = os.environ | {
        "NODE_PATH": str(modules),
        "KEY": instance.info["api_key"],
        "URL": url,
        "HOST": urlsplit(url).netloc,
    }
    ended = subprocess.run(["node", "-e", script], capture_output=True, text=True, timeout=60, env=environment)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture
def instance(dev):
    """With a virtual clock, so that a deferred message waits."""
    return dev("--virtual-clock")


def test_resend_s_node_client(instance):
    script = RESEND.replace("ann@example.org", "deferred@simulator.test", 2)
    told = run(script, "resend", instance)
    assert told["sent"]["error"] is None and told["again"]["data"]["id"] == told["sent"]["data"]["id"]
    shown = told["shown"]["data"]
    assert shown["reply_to"] == ["help@example.test"] and shown["tags"] == [{"name": "a", "value": "b"}]
    assert told["cancelled"]["data"]["object"] == "email" or told["cancelled"]["error"]["statusCode"] == 409
    assert len(told["batch"]["data"]["data"]) == 2
    assert told["refused"]["error"]["name"] == "validation_error"
    assert "emails[1].to" in told["refused"]["error"]["errors"]
    assert [error["index"] for error in told["permissive"]["data"]["errors"]] == [1]
    assert "scheduling" in told["scheduled"]["error"]["message"]
    assert told["wrong"]["error"]["name"] == "invalid_api_key"


def test_postmark_s_node_client(instance):
    instance.api.request("POST", "/v1/suppressions", {"email": "gone@example.org"})
    told = run(POSTMARK, "postmark", instance)
    assert told["sent"]["ErrorCode"] == 0 and told["sent"]["To"] == "Ann <ann@example.org>"
    details = told["details"]
    assert details["Tag"] == "t" and details["Metadata"] == {"a": "b"} and details["Attachments"] == ["a.txt"]
    assert [answer["ErrorCode"] for answer in told["batch"]] == [0, 406]
    assert (told["invalid"]["name"], told["invalid"]["code"]) == ("InvalidEmailRequestError", 300)
    assert told["inactive"]["name"] == "InactiveRecipientsError"
    assert told["inactive"]["recipients"] == ["gone@example.org"]
    assert (told["template"]["name"], told["template"]["code"]) == ("InvalidEmailRequestError", 300)
    assert told["wrong"]["name"] == "InvalidAPIKeyError" and told["unknown"]["code"] == 701
