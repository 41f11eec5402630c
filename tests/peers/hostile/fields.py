"""Hostile fields: each rule of contract 3 (and 2, 5, 6) at its limit and one beyond, and values that pass a careless
check."""

from .http_level import GOOD
from .row import Row, as_json, call

# All of C0 and C1 with DEL.
CONTROLS = [chr(code) for code in [*range(0x20), *range(0x7F, 0xA0)]]
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
ADDRESSES = [
    "",
    " ",
    "@",
    "a",
    "a@",
    "@b.example",
    "a@b",
    "a@localhost",
    "a b@c.example",
    " a@b.example",
    "a@b.example ",
    "a@b.example,",
    "a@b.example,c@d.example",
    "a@b.example;c@d.example",
    "a@b.example c@d.example",
    "<a@b.example>",
    "A <a@b.example>",
    "a@b.example (c)",
    "(c)a@b.example",
    "mailto:a@b.example",
    "a@@b.example",
    "a@b@c.example",
    ".a@b.example",
    "a.@b.example",
    "a..b@c.example",
    "a@.b.example",
    "a@b..example",
    "a@b.example.",
    "a@-b.example",
    "a@b-.example",
    "a@b_c.example",
    "a@b c.example",
    "a@[127.0.0.1]",
    "a@[IPv6:::1]",
    "a@127.0.0.1",
    "a@b.example\0",
    "a\0@b.example",
    "a\r\n@b.example",
    "a@b.example\r\nRCPT TO:<c@d.example>",
    "a@b.example\n",
    "\na@b.example",
    "a@b\r.example",
    "a@b\t.example",
    'a"b@c.example',
    '"a@b.example',
    '"a"b@c.example',
    '"a\n"@b.example',
    '"\0"@b.example',
    "a\\@b.example",
    "a,b@c.example",
    "a:b@c.example",
    "a(b)@c.example",
    "a[b]@c.example",
    "a<b@c.example",
    "a@b.example>",
    "a@b/c.example",
    "a@b?c.example",
    "a@b#c.example",
    "a@b%c.example",
    "a@b!c.example",
    "a@b'c.example",
    'a@b"c.example',
    "a@b\\c.example",
    "a@b\u3002\u3002example",
    "a@\ud7ffx",
    "a@xn--.example",
    "a@xn--a.example",
    "a@xn--zzzzzzzz99999.example",
    "a" * 65 + "@b.example",
    "a@" + "b" * 64 + ".example",
    "a@" + ".".join(["b" * 60] * 5),
    "a@" + "b." * 130 + "example",
    "\u00e9" * 33 + "@b.example",
    "a@b.example" + "x" * 5000,
    "@a,@b:c@d.example",
    "a%b@c@d.example",
    *(f"a{c}@b.example" for c in BIDI + "\u2028\u2029"),
    *(f"a@b{c}.example" for c in BIDI + "\u2028\u2029"),
]
RESERVED = """
    From To Cc Bcc Sender Subject Date Message-ID MIME-Version Content-Type Content-Transfer-Encoding
    Content-Disposition Content-ID Content-X DKIM-Signature ARC-Seal ARC-Message-Signature
    ARC-Authentication-Results Received Return-Path Authentication-Results X-Service-Signature X-Service-A
""".split()
NO_URLS = [
    "",
    " ",
    "x",
    "/x",
    "//e.example/",
    "e.example",
    "ftp://e.example/",
    "javascript:alert(1)",
    "data:,x",
    "mailto:a@e.example",
    "file:///etc/passwd",
    "http:",
    "https:",
    "https://",
    "https:///",
    "https:e.example",
    "https:\\\\e.example",
    "https:/e.example",
    "https://?",
    "https://#",
    "https://:443/",
    "https://e.example:99999/",
    "https://e.example:x/",
    "https://[::1",
    "https://[x]/",
    "https://e example/",
    "https://e.example/a b",
    "https://e.example/\n",
    "https://e.example/\r\nX: y",
    "https://e.example/\t",
    "https://e.example/\0",
    "\thttps://e.example/",
    " https://e.example/",
    "https://e.example/ ",
    "https://e.example/\u2028",
    "https://e.example/\u00a0",
    "https://e.example/\x7f",
    "https://e.example/\x85",
    "https://%00/",
    "https://a%20b/",
]
LOCAL_HOSTS = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.0.0.1.",
    "0.0.0.0",
    "0",
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]",
    "[::127.0.0.1]",
    "[fe80::1]",
    "[fc00::1]",
    "[fd00::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[2002:7f00:1::]",
    "[64:ff9b::7f00:1]",
    "[2001::1]",
    "[100::1]",
    "\uff11\uff12\uff17.0.0.1",
]
NO_TIMES = [
    "",
    "now",
    "tomorrow",
    "2099",
    "2099-01-01",
    "2099-01-01T00:00:00",
    "2099-01-01 00:00:00",
    "01/01/2099",
    "4070908800",
    "2099-13-01T00:00:00Z",
    "2099-02-30T00:00:00Z",
    "2099-01-01T24:00:00Z",
    "2099-01-01T00:60:00Z",
    "2099-01-01T00:00:00+99:00",
    "2099-01-01T00:00:00Zx",
    "+99999-01-01T00:00:00Z",
    "2099-01-01T00:00:00\u202fZ",
    "\u0662\u0660\u0669\u0669-01-01T00:00:00Z",
    "2001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
]
NO_NAMES = [
    "",
    " ",
    "x",
    "x.",
    ".x.example",
    "x..example",
    "-x.example",
    "x-.example",
    "x_y.example",
    "x.example/",
    "https://x.example",
    "a@x.example",
    "*.x.example",
    "x.example.",
    "x y.example",
    "x\0.example",
    "x.example\n",
    "127.0.0.1",
    "[::1]",
    "xn--.example",
    "x" * 64 + ".example",
    "x." * 130 + "example",
    "x\u202e.example",
    "x,y.example",
    "x:25.example",
    "%00.example",
    "localhost",
]


def send(key: str, name: str, fields: dict, named: str) -> Row:
    message = {field: value for field, value in (GOOD | fields).items() if value is not None}
    return Row(name, call("POST", "/v1/messages", key, as_json(message)), 422, "validation_failed", named)


def addresses(key: str):
    """Invalid addresses, for every field with an address."""
    for address in ADDRESSES:
        for field in ("from", "to"):
            yield send(key, f"{field} {address[:30]!r}", {field: address}, field)
        body = as_json({"email": address})
        yield Row(
            f"email {address[:30]!r}", call("POST", "/v1/suppressions", key, body), 422, "validation_failed", "email"
        )


def lines(key: str):
    """Every control character in every field that becomes a header line; NUL in every field that becomes a body."""
    for control in CONTROLS:
        for field in ("subject", "from_name"):
            yield send(key, f"{field} with {control!r}", {field: f"a{control}b"}, field)
        yield send(key, f"header with {control!r}", {"headers": {"X-A": f"a{control}b"}}, "headers.X-A")
        file = {"filename": f"a{control}b", "content": "YQ=="}
        yield send(key, f"file name with {control!r}", {"attachments": [file]}, "attachments.0.filename")
        for path, field in (("/v1/keys", "name"), ("/v1/suppressions", "note")):
            body = (
                as_json({"name": "x"} if field == "name" else {"email": "a@example.org"})[:-1]
                + b", "
                + as_json({field: f"a{control}b"})[1:]
            )
            if field == "name":
                body = as_json({"name": f"a{control}b"})
            yield Row(f"{field} with {control!r}", call("POST", path, key, body), 422, "validation_failed", field)
    for field in ("text", "html"):
        yield send(key, f"NUL in {field}", {field: "a\0b"}, field)
    for control in BIDI + "\u2028\u2029/\\":
        file = {"filename": f"a{control}b", "content": "YQ=="}
        yield send(key, f"file name with {control!r}", {"attachments": [file]}, "attachments.0.filename")


def headers(key: str):
    """Reserved header names, invalid names, and too many of them."""
    for name in RESERVED:
        for spelt in (name, name.lower(), name.upper(), name.swapcase()):
            yield send(key, f"header {spelt}", {"headers": {spelt: "x"}}, f"headers.{spelt}")
    for name in ("List-Unsubscribe", "list-unsubscribe-post"):
        fields = {"headers": {name: "x"}, "unsubscribe_url": "https://e.example/"}
        yield send(key, f"{name} beside unsubscribe_url", fields, f"headers.{name}")
    for code in [*range(0x21), 0x3A, 0x7F, 0x80, 0xA0, 0xFF, 0x2028, 0x202E, 0x1F600]:
        name = f"X{chr(code)}Y"
        yield send(key, f"header name {name!r}", {"headers": {name: "x"}}, f"headers.{name}")
    for name in ("", "X" * 77, "X" * 5000, "X-A: b\r\nBcc", "\uff22cc", "B\u0441c", " Bcc", "Bcc ", "Bcc:"):
        yield send(key, f"header name {name[:20]!r}", {"headers": {name: "x"}}, f"headers.{name}")
    yield send(key, "names that differ by case", {"headers": {"X-A": "a", "x-a": "b"}}, "*")
    yield send(key, "51 headers", {"headers": {f"X-{n}": "a" for n in range(51)}}, "headers")
    yield send(key, "value of 999", {"headers": {"X-A": "a" * 999}}, "headers.X-A")
    yield send(key, "over 16 KiB", {"headers": {f"X-{n}": "a" * 998 for n in range(17)}}, "headers")
    yield send(key, "9,000 headers", {"headers": {f"X-{n}": "a" for n in range(9000)}}, "headers")


def urls(key: str):
    """Invalid URLs, and forbidden targets of webhooks."""
    for url in NO_URLS:
        yield send(key, f"unsubscribe_url {url[:30]!r}", {"unsubscribe_url": url}, "unsubscribe_url")
        yield Row(
            f"url {url[:30]!r}",
            call("POST", "/v1/webhooks", key, as_json({"url": url})),
            422,
            "validation_failed",
            "url",
        )
    yield send(
        key, "unsubscribe_url of 2049", {"unsubscribe_url": "https://e.example/" + "a" * 2031}, "unsubscribe_url"
    )
    hosts = [f"https://{host}/" for host in LOCAL_HOSTS] + [f"https://{host}:8443/a?b" for host in LOCAL_HOSTS]
    others = [
        "http://e.example/",
        "https://u@e.example/",
        "https://u:p@e.example/",
        "https://e.example/#a",
        "https://e.example/" + "a" * 2031,
    ]
    for url in [*hosts, *others]:
        yield Row(
            f"url {url[:40]!r}",
            call("POST", "/v1/webhooks", key, as_json({"url": url})),
            422,
            "validation_failed",
            "url",
        )


def times_and_names(key: str):
    """Invalid times, domains, time zones and numbers of days."""
    for time in NO_TIMES:
        yield send(key, f"expires_at {time!r}", {"expires_at": time}, "expires_at")
        body = as_json({"name": "x", "expires_at": time})
        yield Row(
            f"key expires_at {time!r}", call("POST", "/v1/keys", key, body), 422, "validation_failed", "expires_at"
        )
    yield send(key, "expires_at beyond the queue", {"expires_at": "2999-01-01T00:00:00Z"}, "expires_at")
    for name in NO_NAMES:
        body = as_json({"name": name, "stream": "marketing"})
        yield Row(f"domain {name[:20]!r}", call("POST", "/v1/domains", key, body), 422, "validation_failed", "name")
    for stream in ("", "Transactional", "bulk", "marketing ", "m\u0430rketing", "transactional\0"):
        for path, rest in (("/v1/domains", {"name": "new.example"}), ("/v1/keys", {"name": "x"})):
            body = as_json(rest | {"stream": stream})
            yield Row(f"{path} stream {stream!r}", call("POST", path, key, body), 422, "validation_failed", "stream")
    for zone in (
        "",
        "Mars/Phobos",
        "europe/berlin ",
        "UTC+1",
        "+01:00",
        "../../etc/passwd",
        "Europe/Berlin\0",
        "a" * 5000,
    ):
        request = call("PATCH", "/v1/settings", key, as_json({"time_zone": zone}))
        yield Row(f"zone {zone[:20]!r}", request, 422, "validation_failed", "time_zone")
    for name in ("", " ", "x" * 256, "a\nb"):
        request = call("PATCH", "/v1/settings", key, as_json({"name": name}))
        yield Row(f"account {name[:20]!r}", request, 422, "validation_failed", "name")
