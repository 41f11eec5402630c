"""Invalid requests: each gets its documented answer, and the server keeps running (contract 1, 3)."""

import base64
import json
import re
import socket

import pytest

from support.server import Api, Dev
from support.wait import until

GOOD = {"from": "shop@example.test", "to": "someone@example.org", "subject": "s", "text": "t"}
LIMITS = 'hostname = "mail.sender.test"\n[limits]\nrequests_per_minute = 1000000\n'
ENVELOPE = {"from": "shop@example.test", "to": "someone@example.org"}


def raw(*lines: str, end: str = "\r\n", body: str = "body\r\n") -> dict:
    """A `raw` submission of header lines and a body."""
    head = lines or ("From: shop@example.test", "To: someone@example.org", "Subject: s")
    return ENVELOPE | {"raw": end.join(head) + end + end + body}


# name: (fields to replace in GOOD, the field that `errors` must name; `*` stands for any suffix)
REFUSED_FIELDS = {
    "CR LF in to": ({"to": "a@example.org\r\nRCPT TO:<b@example.org>"}, "to"),
    "LF in from": ({"from": "shop@example.test\nX: y"}, "from"),
    "NUL in to": ({"to": "a\0@example.org"}, "to"),
    "display name in to": ({"to": "A <a@example.org>"}, "to"),
    "two addresses in to": ({"to": "a@example.org, b@example.org"}, "to"),
    "list in to": ({"to": ["a@example.org"]}, "to"),
    "empty to": ({"to": ""}, "to"),
    "no at sign": ({"to": "example.org"}, "to"),
    "address literal": ({"to": "a@[127.0.0.1]"}, "to"),
    "IPv6 literal": ({"to": "a@[IPv6:::1]"}, "to"),
    "dotless domain": ({"to": "root@localhost"}, "to"),
    "trailing dot": ({"to": "a@example.org."}, "to"),
    "local part of 65": ({"to": "a" * 65 + "@example.org"}, "to"),
    "address over 254": ({"to": "a@" + ".".join(["b" * 60] * 5) + ".org"}, "to"),
    "bidirectional control": ({"to": "a\u202e@example.org"}, "to"),
    "line separator": ({"to": "a\u2028@example.org"}, "to"),
    "CR LF in from_name": ({"from_name": "Shop\r\nBcc: all@example.org"}, "from_name"),
    "NUL in from_name": ({"from_name": "Sh\0op"}, "from_name"),
    "from_name over 255": ({"from_name": "x" * 256}, "from_name"),
    "CR LF in subject": ({"subject": "hi\r\nBcc: all@example.org"}, "subject"),
    "bare CR in subject": ({"subject": "hi\rthere"}, "subject"),
    "TAB in subject": ({"subject": "hi\tthere"}, "subject"),
    "C1 control in subject": ({"subject": "hi\u0085there"}, "subject"),
    "subject over 998": ({"subject": "x" * 999}, "subject"),
    "NUL in text": ({"text": "a\0b"}, "text"),
    "NUL in html": ({"html": "a\0b"}, "html"),
    "text over 5 MiB": ({"text": "x" * (5 * 1024 * 1024 + 1)}, "text"),
    "no body": ({"text": None}, "text"),
    "empty body": ({"text": ""}, "text"),
    "number as subject": ({"subject": 7}, "subject"),
    "CR LF in a header's value": ({"headers": {"X-A": "b\r\nBcc: c@example.org"}}, "headers.X-A"),
    "CR LF in a header's name": ({"headers": {"X-A\r\nBcc": "b"}}, "headers.*"),
    "colon in a header's name": ({"headers": {"X:A": "b"}}, "headers.*"),
    "space in a header's name": ({"headers": {"X A": "b"}}, "headers.*"),
    "empty header name": ({"headers": {"": "b"}}, "headers*"),
    "header name of 77": ({"headers": {"X" * 77: "b"}}, "headers.*"),
    "reserved header": ({"headers": {"bCC": "b@example.org"}}, "headers.bCC"),
    "reserved Content header": ({"headers": {"Content-Foo": "b"}}, "headers.Content-Foo"),
    "header value over 998": ({"headers": {"X-A": "b" * 999}}, "headers.X-A"),
    "51 headers": ({"headers": {f"X-{n}": "b" for n in range(51)}}, "headers"),
    "headers as list": ({"headers": ["X-A: b"]}, "headers"),
    "unsubscribe by mail": ({"unsubscribe_url": "mailto:a@example.org"}, "unsubscribe_url"),
    "CR LF in unsubscribe_url": ({"unsubscribe_url": "https://e.test/\r\nX: y"}, "unsubscribe_url"),
    "attachment not base64": ({"attachments": [{"filename": "a", "content": "!!"}]}, "attachments.0.content"),
    "CR LF in a file name": ({"attachments": [{"filename": "a\r\nX: y", "content": "YQ=="}]}, "attachments.0.filename"),
    "unknown field": ({"unsubscribe_ur": "https://e.test/"}, "unsubscribe_ur"),
    "misspelt in an attachment": (
        {"attachments": [{"filename": "a", "content": "YQ==", "contenttype": "x/y"}]},
        "attachments.0.contenttype",
    ),
    "11 metadata": ({"metadata": {str(n): "v" for n in range(11)}}, "metadata"),
    "expired already": ({"expires_at": "2001-01-01T00:00:00+00:00"}, "expires_at"),
}

REFUSED_RAW = {
    "bare CR": (raw(body="a\rb\r\n"), "raw"),
    "bare CR around a dot": (raw(body="a\r.\rMAIL FROM:<x@evil.test>\r\n"), "raw"),
    "bare CR in the head": (raw("From: shop@example.test", "Subject: a\rBcc: b@example.org"), "raw"),
    "NUL": (raw(body="a\0b\r\n"), "raw"),
    "NUL in base64": (ENVELOPE | {"raw": base64.b64encode(raw(body="a\0b")["raw"].encode()).decode()}, "raw"),
    "two From": (raw("From: shop@example.test", "From: ceo@example.test", "Subject: s"), "raw"),
    "two mailboxes in From": (raw("From: a@example.test, b@example.test"), "raw"),
    "two Subject": (raw("From: shop@example.test", "Subject: a", "Subject: b"), "raw"),
    "no From": (raw("Subject: a"), "raw"),
    "another From domain": (raw("From: shop@other.test", "Subject: a"), "from"),
    "line without a colon": (raw("From: shop@example.test", "nonsense"), "raw"),
    "line over 998": (raw(body="x" * 999 + "\r\n"), "raw"),
    "head over 64 KiB": (raw("From: shop@example.test", *["X-A: " + "b" * 900] * 80), "raw"),
    "with text": (raw() | {"text": "t"}, "raw"),
    "with headers": (raw() | {"headers": {"X-A": "b"}}, "raw"),
}

# name: (bytes, headers, status, code)
REFUSED_BODIES = {
    "not JSON": (b"hello", {}, 422, "invalid_json"),
    "empty": (b"", {}, 422, "invalid_json"),
    "cut off": (b'{"from": "a', {}, 422, "invalid_json"),
    "an array": (b"[]", {}, 422, "invalid_json"),
    "a second value": (json.dumps(GOOD).encode() + b"{}", {}, 422, "invalid_json"),
    "duplicate keys": (b'{"to": "b@example.org", ' + json.dumps(GOOD).encode()[1:], {}, 422, "invalid_json"),
    "duplicate nested keys": (
        json.dumps(GOOD).encode()[:-1] + b', "headers": {"X-A": "1", "X-A": "2"}}',
        {},
        422,
        "invalid_json",
    ),
    "not UTF-8": (json.dumps(GOOD).encode().replace(b'"s"', b'"\xff"'), {}, 422, "invalid_json"),
    "lone surrogate": (json.dumps(GOOD).encode().replace(b'"s"', b'"\\ud800"'), {}, 422, "invalid_json"),
    "number out of range": (json.dumps(GOOD).encode().replace(b'"s"', b"1e999"), {}, 422, "invalid_json"),
    "deep arrays": (b"[" * 100_000, {}, 422, "invalid_json"),
    "deep objects": (b'{"metadata":' * 100_000, {}, 422, "invalid_json"),
    "25 MiB and a byte": (b'{"text": "' + b"x" * (25 * 1024 * 1024 - 11) + b'"}', {}, 413, "payload_too_large"),
    "form": (b"from=a&to=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
    "JSON called text": (json.dumps(GOOD).encode(), {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
    "key not ASCII": (json.dumps(GOOD).encode(), {"Idempotency-Key": "kl\u00fc"}, 422, "validation_failed"),
    "key over 255": (json.dumps(GOOD).encode(), {"Idempotency-Key": "k" * 256}, 422, "validation_failed"),
}


@pytest.fixture(scope="module")
def shared(request, tmp_path_factory):
    """One `dev` for the whole table: every case also shows that it survived the one before."""
    service = Dev(tmp_path_factory.mktemp("bad") / "dev", (), LIMITS)
    yield service
    service.close()


def refused(service, answer, status: int, code: str) -> dict:
    """Checks an error's form (contract 1), and that the server is alive and has sent nothing."""
    assert answer.status == status, answer
    error = answer.json()
    assert error["code"] == code, error
    assert error["message"] and answer.headers["x-request-id"]
    assert service.api.request("GET", "/healthz").status == 200
    assert service.child.poll() is None
    sent = service.captured()
    if sent:  # The next case starts clean.
        service.api.request("DELETE", "/dev/mail")
    assert sent == []
    return error


@pytest.mark.parametrize("case", REFUSED_FIELDS)
def test_an_invalid_field_is_named(shared, case):
    fields, named = REFUSED_FIELDS[case]
    message = {name: value for name, value in (GOOD | fields).items() if value is not None}
    error = refused(shared, shared.api.send(message), 422, "validation_failed")
    (field, sentences), *more = error["errors"].items()
    assert not more and sentences
    assert field.startswith(named.removesuffix("*")) if named.endswith("*") else field == named


@pytest.mark.parametrize("case", REFUSED_RAW)
def test_an_invalid_raw_message_is_refused(shared, case):
    message, named = REFUSED_RAW[case]
    error = refused(shared, shared.api.send(message), 422, "validation_failed")
    assert list(error["errors"]) == [named]


@pytest.mark.parametrize("case", REFUSED_BODIES)
def test_an_invalid_body_is_refused(shared, case):
    body, headers, status, code = REFUSED_BODIES[case]
    error = refused(shared, shared.api.request("POST", "/v1/messages", body, headers), status, code)
    assert status != 422 or "errors" in error


def test_all_errors_are_reported_at_once_and_a_misspelling_gets_a_hint(shared):
    message = {"from": "nobody", "to": "x", "subjct": "s", "headers": {"Bcc": "a@example.org"}}
    error = refused(shared, shared.api.send(message), 422, "validation_failed")
    assert set(error["errors"]) == {"from", "to", "text", "subjct", "headers.Bcc"}
    assert error["errors"]["subjct"] == ["unknown field"] and "subject" in error["message"]


def test_a_domain_of_another_account_is_unknown(shared):
    error = refused(shared, shared.api.send(GOOD | {"from": "a@elsewhere.test"}), 422, "domain_unknown")
    assert list(error["errors"]) == ["from"]


@pytest.mark.parametrize(
    "method, path, status, code",
    [
        ("GET", "/v1/messages/msg_00000000000000000000000000", 404, "not_found"),
        ("GET", "/v1/messages/%00", 404, "not_found"),
        ("GET", "/v1/messages/" + "x" * 3000, 404, "not_found"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("DELETE", "/v1/messages", 405, "method_not_allowed"),
        ("GET", "/v1/events?limit=0", 422, "validation_failed"),
        ("GET", "/v1/events?limit=101", 422, "validation_failed"),
        ("GET", "/v1/events?cursor=nonsense", 422, "validation_failed"),
        ("GET", "/v1/events?type=nonsense", 422, "validation_failed"),
        ("GET", "/v1/events?typ=queued", 422, "validation_failed"),
    ],
)
def test_an_invalid_address_is_refused(shared, method, path, status, code):
    refused(shared, shared.api.request(method, path), status, code)


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer pr_live_" + "0" * 43, "Basic YTpi", "Bearer \xff"])
def test_a_missing_or_unknown_key_is_401(shared, header):
    fields = {"Authorization": header} if header else {}
    answer = Api(shared.info["url"], None).request("POST", "/v1/messages", GOOD, fields)
    refused(shared, answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


# Not an HTTP request, or two at once: an error or a closed connection, never a 2xx and never silence.
NO_REQUESTS = {
    "noise": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "space before the colon": b"GET /v1/me HTTP/1.1\r\nHost : x\r\n\r\n",
    "NUL in a header": b"GET /v1/me HTTP/1.1\r\nHost: x\0y\r\n\r\n",
    "oversized head": b"GET /v1/me HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "10,000 headers": b"GET /v1/me HTTP/1.1\r\nHost: x\r\n" + b"X-A: a\r\n" * 10_000 + b"\r\n",
    "two lengths": b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "negative length": b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "broken chunk": b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
}


@pytest.mark.parametrize("case", NO_REQUESTS)
def test_an_invalid_request_ends_the_connection(shared, case):
    with socket.create_connection((shared.api.host, shared.api.port), timeout=10) as raw_socket:
        try:
            raw_socket.sendall(NO_REQUESTS[case])
            raw_socket.shutdown(socket.SHUT_WR)
            got = b"".join(iter(lambda: raw_socket.recv(65536), b""))
        except TimeoutError:
            pytest.fail("neither an answer nor an end")
        except OSError:
            got = b""
    assert got == b"" or re.match(rb"HTTP/1\.[01] 4\d\d", got), got[:300]
    assert shared.api.request("GET", "/healthz").status == 200


# Sequences that a careless receiver takes for the end of a message, in accepted bodies (contract 3: LF becomes CRLF, so
# all of them are sent as lines with a dot, which RFC 5321 4.5.2 stuffs).
COMMANDS = "MAIL FROM:<x@evil.test>{0}RCPT TO:<y@sink.test>{0}DATA{0}Subject: second{0}{0}smuggled"
VARIANTS = {
    "LF dot LF": "\n.\n",
    "LF dot CRLF": "\n.\r\n",
    "CRLF dot LF": "\r\n.\n",
    "CRLF dot CRLF": "\r\n.\r\n",
    "LF two dots LF": "\n..\n",
}


@pytest.mark.parametrize("shape", ["raw", "raw in base64", "text", "html"])
def test_smuggled_commands_reach_a_vulnerable_receiver_as_one_message(serve, knot, tolerant_sink, shape):
    knot.mail_server("sink.test", "mx.sink.test")
    service = serve(port=tolerant_sink.port)
    service.domain("sender.test")
    for count, (name, end) in enumerate(VARIANTS.items(), start=1):
        newline = "\r\n" if "\r" in end else "\n"
        body = f"first{end}{COMMANDS.format(newline)}{end}QUIT{newline}"
        whole = f"From: a@sender.test{newline}Subject: {name}{newline}{newline}{body}"
        content = {
            "raw": {"raw": whole},
            "raw in base64": {"raw": base64.b64encode(whole.encode()).decode()},
            "text": {"subject": name, "text": body},
            "html": {"subject": name, "html": body},
        }[shape]
        sent = service.api.accept({"from": "a@sender.test", "to": "y@sink.test"} | content)
        service.api.settled(sent["id"], "delivered")
        assert [m.message_id.count(sent["id"]) for m in tolerant_sink.messages][-1] == 1, name
        assert len(tolerant_sink.messages) == count, f"{name}: {tolerant_sink.messages[-1]}"
    assert not any(b"evil" in m.mail_from.encode() for m in tolerant_sink.messages)


def test_unusual_but_valid_messages_are_accepted(dev):
    service = dev(config=LIMITS)
    messages = [
        {name: value for name, value in GOOD.items() if name != "subject"},
        GOOD | {"to": '"quoted local"@example.org'},
        GOOD | {"to": "j\u00fcrgen@b\u00fccher.example"},
        GOOD | {"from_name": 'Quote " and \\ and \u20ac'},
        GOOD | {"text": "x" * 100_000 + "\rCR and \u2028 and \u202e are text"},
        GOOD | {"text": ".", "html": "\n.\n"},
        GOOD | {"headers": {"Reply-To": "help@example.test", "X-Long": "word " * 190}},
        raw("From: shop@example.test", "Subject: LF only", end="\n", body="a\nb\n"),
        ENVELOPE | {"raw": "From: shop@example.test\r\nSubject: no blank line\r\n"},
    ]
    ids = [service.api.accept(message)["id"] for message in messages]
    until("all are captured", lambda: {m["message_id"] for m in service.captured()} == set(ids))


def test_a_request_forwarded_by_a_trusted_proxy_is_not_local(dev):
    told = {"X-Forwarded-For": "127.0.0.1"}
    assert dev().api.request("GET", "/dev/clock", headers=told).status == 200, "no proxy is trusted"
    trusting = dev(config='hostname = "mail.sender.test"\n[http]\ntrusted_proxies = ["127.0.0.0/8"]\n')
    assert trusting.api.request("GET", "/dev/clock").status == 200, "the proxy's own machine"
    assert trusting.api.request("GET", "/dev/clock", headers=told).status == 403
