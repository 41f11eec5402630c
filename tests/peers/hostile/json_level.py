"""Hostile JSON: bodies that are not a JSON object, and fields of another type, on every route with a body."""

from dataclasses import dataclass

from .http_level import GOOD
from .row import Row, as_json, call

STRINGS = (7, -1, 1.5, 1e300, 10**30, True, False, [], {}, ["x"], {"x": "y"}, [[]])
OBJECTS = (7, True, "x", "{}", [], ["x"], [{}])
ARRAYS = (7, True, "x", "[]", {}, {"0": "x"})
BOOLEANS = (0, 1, "true", "false", "", [], {}, [True])
NUMBERS = ("7", "", True, [], {}, 1.5, -1, 0, 3651, 1e300, 10**30, [7])
KINDS = {str: STRINGS, dict: OBJECTS, list: ARRAYS, bool: BOOLEANS, int: NUMBERS}


@dataclass
class Form:
    """A route with a body: its fields, and the type of each."""

    method: str
    path: str
    good: dict
    fields: dict[str, type]


def forms(ids: dict[str, str]) -> list[Form]:
    """Returns the routes, with `ids` filled in."""
    sending = dict.fromkeys(
        ("from", "to", "from_name", "subject", "text", "html", "unsubscribe_url", "raw", "expires_at"), str
    )
    hook = {"url": "https://hooks.example/in"}
    return [
        Form("POST", "/v1/messages", GOOD, sending | {"headers": dict, "metadata": dict, "attachments": list}),
        Form("POST", "/v1/keys", {"name": "x"}, {"name": str, "stream": str, "scopes": list, "expires_at": str}),
        Form("PATCH", f"/v1/keys/{ids['key']}", {"name": "x"}, {"name": str}),
        Form(
            "PATCH",
            "/v1/settings",
            {"name": "x"},
            {"name": str, "time_zone": str, "content_retention_days": int, "hosted_unsubscribe": bool}
            | {"keep_message_id": bool},
        ),
        Form("POST", "/v1/domains", {"name": "new.example", "stream": "marketing"}, {"name": str, "stream": str}),
        Form("PATCH", f"/v1/domains/{ids['domain']}", {"stream": "transactional"}, {"stream": str}),
        Form("POST", "/v1/webhooks", hook, {"url": str, "events": list, "description": str}),
        Form(
            "PATCH",
            f"/v1/webhooks/{ids['webhook']}",
            {"description": "x"},
            {"url": str, "events": list, "description": str, "enabled": bool},
        ),
        Form(
            "POST",
            f"/v1/webhooks/{ids['webhook']}/replay",
            {"since": "2099-01-01T00:00:00Z"},
            {"since": str, "only_failed": bool},
        ),
        Form("POST", "/v1/suppressions", {"email": "a@example.org"}, {"email": str, "note": str}),
        Form("POST", "/dev/clock", {"advance_seconds": 0}, {"advance_seconds": float}),
    ]


NO_OBJECTS = {
    "empty": b"",
    "white space": b" \r\n\t",
    "null": b"null",
    "true": b"true",
    "a number": b"7",
    "a string": b'"x"',
    "an array": b"[]",
    "an array of one": b"[{}]",
    "bare words": b"hello",
    "cut in a key": b'{"a',
    "cut behind a key": b'{"a"',
    "cut in a value": b'{"a":tru',
    "cut in a string": b'{"a":"b',
    "cut in an escape": b'{"a":"\\',
    "cut in a unicode escape": b'{"a":"\\u00',
    "not closed": b'{"a":"b"',
    "closed twice": b"{}}",
    "two objects": b"{}{}",
    "two objects on lines": b"{}\n{}",
    "a NUL behind": b"{}\0",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "UTF-32": "{}".encode("utf-32"),
    "Latin-1": b'{"a":"\xe9"}',
    "overlong UTF-8": b'{"a":"\xc0\xaf"}',
    "a surrogate in UTF-8": b'{"a":"\xed\xa0\x80"}',
    "beyond U+10FFFF": b'{"a":"\xf5\x80\x80\x80"}',
    "cut UTF-8": b'{"a":"\xe2\x82"}',
    "a comma at the end": b'{"a":1,}',
    "no comma": b'{"a":1 "b":2}',
    "no colon": b'{"a" 1}',
    "single quotes": b"{'a':'b'}",
    "no quotes": b"{a:1}",
    "a comment": b'{"a":1/**/}',
    "a line comment": b'{"a":1}//x',
    "a line break in a string": b'{"a":"b\nc"}',
    "a TAB in a string": b'{"a":"b\tc"}',
    "a NUL in a string": b'{"a":"b\0c"}',
    "an unknown escape": b'{"a":"\\x41"}',
    "a high surrogate": b'{"a":"\\ud800"}',
    "a low surrogate": b'{"a":"\\udc00"}',
    "surrogates the wrong way round": b'{"a":"\\udc00\\ud800"}',
    "a high surrogate and a letter": b'{"a":"\\ud800\\u0041"}',
    "a surrogate in a key": b'{"\\ud800":1}',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":-Infinity}',
    "1e999": b'{"a":1e999}',
    "-1e999": b'{"a":-1e999}',
    "a number of 10,000 digits": b'{"a":' + b"9" * 10_000 + b"}",
    "a leading zero": b'{"a":01}',
    "a leading plus": b'{"a":+1}',
    "no digit behind the point": b'{"a":1.}',
    "no digit before the point": b'{"a":.1}',
    "hexadecimal": b'{"a":0x1}',
    "a key twice": b'{"a":1,"a":1}',
    "a key twice, escaped": b'{"a":1,"\\u0061":2}',
    "a nested key twice": b'{"a":{"b":1,"b":2}}',
    "a key twice in an array": b'{"a":[{"b":1,"b":2}]}',
    "__proto__ twice": b'{"__proto__":1,"__proto__":2}',
    "33 deep": b'{"a":' + b"[" * 33 + b"]" * 33 + b"}",
    "100,000 arrays": b"[" * 100_000,
    "50,000 objects": b'{"a":' * 50_000,
    "arrays that close": b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a form": b"a=b&c=d",
    "XML": b"<a/>",
    "a compressed body": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
}


def no_objects(key: str, ids: dict[str, str]):
    """Every form with every body that is not a JSON object."""
    for form in forms(ids):
        for name, body in NO_OBJECTS.items():
            yield Row(
                f"{form.method} {form.path[:20]} {name}", call(form.method, form.path, key, body), 422, "invalid_json"
            )


def wrong_types(key: str, ids: dict[str, str]):
    """Every field of every form with every wrong type, and unknown fields."""
    for form in forms(ids):
        for field, kind in form.fields.items():
            values = STRINGS[5:] + ("7", "", -1, 1e300) if kind is float else KINDS[kind]
            for value in values:
                body = as_json(form.good | {field: value})
                name = f"{form.method} {form.path[:20]} {field} = {str(value)[:20]}"
                yield Row(name, call(form.method, form.path, key, body), 422, "validation_failed", field)
        for name in (
            "x",
            "",
            "FROM",
            "name ",
            "nam\u0435",
            "__proto__",
            "constructor",
            "account",
            "account_id",
            "id",
            "a.b",
            "\u202e",
        ):
            body = as_json(form.good | {name: "x"})
            yield Row(
                f"{form.path[:20]} field {name!r}",
                call(form.method, form.path, key, body),
                422,
                "validation_failed",
                name,
            )
        for name in [n for n in form.good if form.method == "POST"]:
            if name in ("from", "to", "name", "stream", "url", "since", "email", "advance_seconds"):
                for body in ({k: v for k, v in form.good.items() if k != name}, form.good | {name: None}):
                    request = call(form.method, form.path, key, as_json(body))
                    yield Row(f"{form.path[:20]} without {name}", request, 422, "validation_failed", name)


def nested_types(key: str):
    """The values inside objects and arrays."""
    inner = {
        "headers": ("X-A", (7, True, None, [], {}, ["a"])),
        "metadata": ("a", (7, True, None, [], {}, ["a"])),
    }
    for field, (name, values) in inner.items():
        for value in values:
            body = as_json(GOOD | {field: {name: value}})
            request = call("POST", "/v1/messages", key, body)
            yield Row(f"{field}.{name} = {value}", request, 422, "validation_failed", f"{field}.{name}")
    for value in (7, True, None, "x", [], [{}]):
        body = as_json(GOOD | {"attachments": [value]})
        yield Row(
            f"attachments.0 = {value}",
            call("POST", "/v1/messages", key, body),
            422,
            "validation_failed",
            "attachments.0",
        )
    good = {"filename": "a.txt", "content": "YQ=="}
    for field in ("filename", "content", "content_type", "content_id", "x"):
        for value in STRINGS:
            body = as_json(GOOD | {"attachments": [good | {field: value}]})
            request = call("POST", "/v1/messages", key, body)
            yield Row(f"attachments.0.{field} = {value}", request, 422, "validation_failed", f"attachments.0.{field}")
    for path, field in (("/v1/keys", "scopes"), ("/v1/webhooks", "events")):
        for value in (7, True, None, [], {}, "", "x", "READ", "send ", "delivere\u0501"):
            body = as_json(
                {"name": "x", field: [value]} if field == "scopes" else {"url": "https://e.example/", field: [value]}
            )
            yield Row(f"{field}.0 = {value}", call("POST", path, key, body), 422, "validation_failed", f"{field}.0")
