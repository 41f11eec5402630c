"""Postmark's clients, with only their URL changed: Postmarker, and Anymail's backend for Django."""

import pytest
from postmarker.core import PostmarkClient
from postmarker.exceptions import ClientError

from support.anymail import send_with

PREFIX = "/v1/compat/postmark"
EMAIL = {"From": "Shop <shop@example.test>", "To": "Ann <ann@example.org>", "Subject": "Hi", "TextBody": "x"}


@pytest.fixture
def service(dev):
    return dev()


@pytest.fixture
def postmark(service):
    """The client appends an absolute path to its URL, so it needs the paths at the root."""
    return PostmarkClient(server_token=service.info["api_key"], root_api_url=service.info["url"])


def test_an_email_is_sent_retrieved_and_delivered(service, postmark):
    sent = postmark.emails.send(
        **EMAIL, ReplyTo="help@example.test", Headers={"X-Order": "7"}, Tag="welcome", Metadata={"order": "7"},
        Attachments=[("a.txt", "aGVsbG8=", "text/plain")], TrackLinks="None", MessageStream="outbound",
    )
    assert (sent["To"], sent["ErrorCode"], sent["Message"]) == ("Ann <ann@example.org>", 0, "OK")
    record = service.api.settled(sent["MessageID"], "delivered")
    assert record["metadata"] == {"order": "7", "tag": "welcome"}
    assert record["headers"] == {"Reply-To": "help@example.test", "X-Order": "7"}
    details = postmark.messages.outbound.get(sent["MessageID"])
    assert details.Status == "Sent" and details.Recipients == ["ann@example.org"]
    assert details._data["To"] == [{"Email": "ann@example.org", "Name": "Ann"}]
    event = details._data["MessageEvents"][-1]
    assert event["Type"] == "Delivered" and event["Details"]["DestinationServer"]


def test_mime_messages_and_attachments_are_sent(service, postmark):
    from email.mime.application import MIMEApplication
    from email.mime.multipart import MIMEMultipart
    from email.mime.text import MIMEText

    message = MIMEMultipart()
    message["From"], message["To"], message["Subject"] = EMAIL["From"], EMAIL["To"], "Grüße"
    message.attach(MIMEText("x"))
    # Its base64 is split into lines.
    file = MIMEApplication(b"y" * 1000)
    file.add_header("Content-Disposition", "attachment", filename="long.bin")
    message.attach(file)
    sent = postmark.emails.send(message)
    record = service.api.message(sent["MessageID"])
    assert record["subject"] == "Grüße" and record["attachments"][0]["size"] == 1000


def test_each_message_of_a_batch_is_answered(service, postmark):
    service.api.request("POST", "/v1/suppressions", {"email": "gone@example.org"})
    answers = postmark.emails.send_batch(EMAIL, EMAIL | {"To": "nobody"}, EMAIL | {"To": "gone@example.org"})
    assert [answer["ErrorCode"] for answer in answers] == [0, 300, 406]
    assert answers[1]["Message"].startswith("Invalid 'To' address: 'nobody'.")


def test_refusals_have_postmark_s_error_codes(service, postmark):
    for changes, number, said in [
        ({"To": "a@example.org,b@example.org"}, 300, "one request per recipient"),
        ({"Cc": "a@example.org"}, 300, "Cc: "),
        ({"TrackOpens": True}, 300, "tracking"),
        ({"From": "a@unknown.test"}, 400, "unknown.test"),
        ({"MessageStream": "no-such-stream"}, 1235, "MessageStream"),
    ]:
        with pytest.raises(ClientError, match=said) as refused:
            postmark.emails.send(**(EMAIL | changes))
        assert refused.value.error_code == number, changes
    with pytest.raises(ClientError, match="templates") as refused:
        postmark.emails.send_with_template(TemplateId=1, TemplateModel={}, From=EMAIL["From"], To=EMAIL["To"])
    assert refused.value.error_code == 300
    with pytest.raises(ClientError) as unknown:
        postmark.messages.outbound.get("msg_0")
    assert unknown.value.error_code == 701
    with pytest.raises(ClientError) as wrong:
        PostmarkClient(server_token="x", root_api_url=service.info["url"]).emails.send(**EMAIL)
    assert wrong.value.error_code == 10


def test_serve_has_the_root_paths_only_if_configured(serve):
    closed, opened = serve(port=1), serve(port=1, compat={"root": True})
    for server, status in ((closed, 404), (opened, 422)):
        assert server.api.request("POST", "/emails", {}).status == status
        assert server.api.request("POST", "/v1/compat/resend/emails", {}).status == 422


def test_anymail_sends_through_its_postmark_backend(service):
    settings = {"POSTMARK_SERVER_TOKEN": service.info["api_key"], "POSTMARK_API_URL": service.info["url"] + PREFIX + "/"}
    service.api.request("POST", "/v1/suppressions", {"email": "gone@example.org"})
    told = send_with("anymail.backends.postmark.EmailBackend", settings)
    assert set(told["plain"]["status"].values()) == {"sent"}
    record = service.api.message(told["plain"]["id"])
    assert record["from_name"] == "Jörg, Shop" and record["metadata"] == {"order": "7", "tag": "welcome"}
    assert set(told["many"]["status"].values()) == {"sent"} and len(told["many"]["ids"]) == 2
    assert told["suppressed"]["status"] == {"gone@example.org": "rejected"}
    assert "one request per recipient" in told["two"]["error"]
