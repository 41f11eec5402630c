"""Hostile messages: sizes and counts one beyond their limits, and malformed `raw` messages. `allowed` are the values at
the limits, which must be accepted."""

import base64

from .fields import send
from .http_level import GOOD


def sizes(key: str):
    """One beyond each limit of sizes and counts."""
    small = {"filename": "a.txt", "content": "YQ=="}
    for name, fields, named in (
        ("from_name of 256", {"from_name": "x" * 256}, "from_name"),
        ("from_name of 256 in two bytes each", {"from_name": "\u00e9" * 256}, "from_name"),
        ("subject of 999", {"subject": "x" * 999}, "subject"),
        ("text of 5 MiB and a byte", {"text": "x" * (5 * 1024 * 1024 + 1)}, "text"),
        ("html of 5 MiB and a byte", {"html": "x" * (5 * 1024 * 1024 + 1)}, "html"),
        ("text over 5 MiB in three bytes each", {"text": "\u20ac" * 1_747_627}, "text"),
        ("no body", {"text": None}, "text"),
        ("an empty body", {"text": "", "html": ""}, "text"),
        ("11 metadata", {"metadata": {str(n): "v" for n in range(11)}}, "metadata"),
        ("metadata key of 41", {"metadata": {"k" * 41: "v"}}, "metadata." + "k" * 41),
        ("metadata key of 0", {"metadata": {"": "v"}}, "metadata."),
        ("metadata value of 501", {"metadata": {"k": "v" * 501}}, "metadata.k"),
        ("21 attachments", {"attachments": [small] * 21}, "attachments"),
        ("file name of 256", {"attachments": [small | {"filename": "x" * 256}]}, "attachments.0.filename"),
        ("file name of 0", {"attachments": [small | {"filename": ""}]}, "attachments.0.filename"),
    ):
        yield send(key, name, fields, named)
    for content in ("!", "YQ", "YQ=", "YQ===", "Y Q==", "YQ==\n", "YQ==YQ==", "-_==", "\u00e9", "=", "YR=="):
        yield send(
            key, f"content {content!r}", {"attachments": [small | {"content": content}]}, "attachments.0.content"
        )
    for kind in (
        "",
        "x",
        "x/",
        "/x",
        "text plain",
        "text/plain\r\nX: y",
        "text/plain;",
        "text/plain; a",
        "multipart/mixed",
        "message/rfc822",
        "text/\u00e9",
        "a" * 5000 + "/b",
    ):
        yield send(
            key, f"type {kind[:20]!r}", {"attachments": [small | {"content_type": kind}]}, "attachments.0.content_type"
        )
    for name in ("", "a b", "a>b", "a\r\nb", "\u00e9", "a" * 256):
        yield send(
            key,
            f"content_id {name[:20]!r}",
            {"attachments": [small | {"content_id": name}]},
            "attachments.0.content_id",
        )


def raws(key: str):
    """Malformed messages, or two in one."""
    head = "From: shop@example.test\r\nSubject: s\r\n"
    envelope = {"text": None, "subject": None}
    for name, raw, named in (
        ("empty", "", "raw"),
        ("no head", "\r\nbody", "raw"),
        ("only text", "hello", "raw"),
        ("no From", "Subject: s\r\n\r\nb", "raw"),
        ("another From", "From: a@other.test\r\n\r\nb", "from"),
        ("two mailboxes", "From: a@example.test, b@example.test\r\n\r\nb", "raw"),
        ("a group in From", "From: g: a@example.test;\r\n\r\nb", "raw"),
        ("no address in From", "From: x\r\n\r\nb", "raw"),
        ("a line without a colon", head + "x\r\n\r\nb", "raw"),
        ("a bare CR in the head", head + "X: a\rb\r\n\r\nb", "raw"),
        ("a bare CR in the body", head + "\r\na\rb", "raw"),
        ("a CR at the end", head + "\r\na\r", "raw"),
        ("NUL in the head", head + "X: \0\r\n\r\nb", "raw"),
        ("NUL in the body", head + "\r\n\0", "raw"),
        ("a line of 999", head + "\r\n" + "x" * 999, "raw"),
        ("a head line of 999", head + "X: " + "x" * 996 + "\r\n\r\nb", "raw"),
        ("a head over 64 KiB", head + ("X: " + "x" * 900 + "\r\n") * 80 + "\r\nb", "raw"),
        ("folded at first", " x\r\n" + head + "\r\nb", "raw"),
        ("only white space", " \r\n\t\r\n", "raw"),
        ("a space in a name", head + "X Y: a\r\n\r\nb", "raw"),
        *(
            (f"two {field}", head + f"{field}: a@example.test\r\n{field}: b@example.test\r\n\r\nb", "raw")
            for field in ("To", "Date", "Message-ID", "Sender", "Reply-To", "From", "Subject")
        ),
        ("21 parts deep", head + _nested(21), "raw"),
        ("10,000 parts deep", head + _nested(10_000), "raw"),
    ):
        yield send(key, f"raw: {name}", envelope | {"raw": raw}, named)
        coded = base64.b64encode(raw.encode()).decode()
        if raw:
            yield send(key, f"raw in base64: {name}", envelope | {"raw": coded}, named)
    whole = head + "\r\nb"
    for field, value in (
        ("text", "t"),
        ("html", "<p>"),
        ("subject", "s"),
        ("from_name", "n"),
        ("headers", {"X-A": "b"}),
        ("attachments", [{"filename": "a", "content": "YQ=="}]),
    ):
        yield send(key, f"raw beside {field}", envelope | {"raw": whole, field: value}, "raw")


def _nested(depth: int) -> str:
    parts = [f'Content-Type: multipart/mixed; boundary="b{n}"\r\n\r\n--b{n}\r\n' for n in range(depth)]
    return "MIME-Version: 1.0\r\n" + "".join(parts) + "Content-Type: text/plain\r\n\r\nx\r\n"


def allowed() -> list[dict]:
    """Messages at each limit: one more of anything is refused above."""
    small = {"filename": "a.txt", "content": "YQ=="}
    return [
        GOOD | fields
        for fields in (
            {"to": "a" * 64 + "@example.org"},
            {"to": "a@" + "b" * 63 + ".example"},
            {"from_name": "x" * 255},
            {"from_name": "\u00e9" * 255},
            {"subject": "x" * 998},
            {"subject": "\U0001f600" * 998},
            {"headers": {"X" * 76: "a"}},
            {"headers": {"X-A": "a" * 998}},
            {"headers": {f"X-{n}": "a" for n in range(50)}},
            {"unsubscribe_url": "https://e.example/" + "a" * 2030},
            {"metadata": {str(n): "v" for n in range(10)}},
            {"metadata": {"k" * 40: "v" * 500}},
            {"attachments": [small] * 20},
            {"attachments": [small | {"filename": "x" * 255}]},
            {"text": "x" * (5 * 1024 * 1024)},
            {"html": "\u20ac" * 1_747_626},
        )
    ]
