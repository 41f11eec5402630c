"""Hostile HTTP: methods, paths, queries, types, sizes and credentials (contract 1)."""

from .row import Row, as_json, call

GOOD = {"from": "shop@example.test", "to": "someone@example.org", "subject": "s", "text": "t"}
UNKNOWN_ID = "0" * 26
LISTS = {
    "/v1/messages": ("to", "from", "subject", "message_id_header", "status", "stream", "after", "before"),
    "/v1/events": ("message_id", "type"),
    "/v1/keys": (),
    "/v1/domains": (),
    "/v1/webhooks": (),
    "/v1/suppressions": ("email", "reason"),
}
METHODS = {
    "/healthz": "GET, HEAD",
    "/v1/me": "GET, HEAD",
    "/v1/messages": "GET, HEAD, POST",
    "/v1/messages/x": "GET, HEAD",
    "/v1/events": "GET, HEAD",
    "/v1/keys": "GET, HEAD, POST",
    "/v1/keys/x": "DELETE, GET, HEAD, PATCH",
    "/v1/settings": "GET, HEAD, PATCH",
    "/v1/domains": "GET, HEAD, POST",
    "/v1/webhooks": "GET, HEAD, POST",
    "/v1/webhooks/x/test": "POST",
    "/v1/suppressions": "GET, HEAD, POST",
}
ITEMS = {
    "/v1/messages/{}": ("GET", "msg"),
    "/v1/messages/{}/raw": ("GET", "msg"),
    "/v1/messages/{}/cancel": ("POST", "msg"),
    "/v1/keys/{}": ("GET", "key"),
    "/v1/domains/{}": ("GET", "dom"),
    "/v1/domains/{}/verify": ("POST", "dom"),
    "/v1/domains/{}/rotate-dkim": ("POST", "dom"),
    "/v1/webhooks/{}": ("GET", "whk"),
    "/v1/webhooks/{}/rotate-secret": ("POST", "whk"),
    "/v1/webhooks/{}/test": ("POST", "whk"),
    "/v1/webhooks/{}/deliveries": ("GET", "whk"),
    "/v1/webhook-deliveries/{}": ("GET", "dlv"),
    "/v1/webhook-deliveries/{}/redeliver": ("POST", "dlv"),
    "/v1/suppressions/{}": ("GET", "sup"),
}


def methods(key: str):
    """Methods that a path does not support, and unknown methods."""
    for path, allow in METHODS.items():
        for method in (
            "GET",
            "HEAD",
            "POST",
            "PUT",
            "PATCH",
            "DELETE",
            "OPTIONS",
            "TRACE",
            "PROPFIND",
            "get",
            "X" * 200,
        ):
            if method not in allow.split(", "):
                code = None if method == "HEAD" else "method_not_allowed"
                yield Row(f"{method[:9]} {path}", call(method, path, key), 405, code, headers={"allow": allow})
    yield Row("CONNECT", call("CONNECT", "mail.example:443", key), 404, "not_found")
    yield Row("a target without a slash", call("GET", "healthz", key), 404, "not_found")
    yield Row("OPTIONS *", call("OPTIONS", "*", key), 404, "not_found")


def paths(key: str):
    """Malformed paths, and invalid identifiers."""
    for path in (
        "//",
        "/v1",
        "/v1/",
        "/v2/me",
        "/V1/me",
        "/v1/me/",
        "//v1/me",
        "/v1//me",
        "/v1/./me",
        "/v1/x/../me",
        "/v1/%6de",
        "/v1%2fme",
        "/v1/me%00",
        "/v1/me%20",
        "/v1/me;x=1",
        "/v1/me.json",
        "/v1/messages/",
        "/v1/events/",
        "/.env",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/v1/messages/a/b/c",
        "/wp-login.php",
        "/admin",
        "/v1/openapi.yaml",
        "/v1/accounts",
        "/v1/accounts/acc_" + UNKNOWN_ID,
        "/dev",
        "/dev/",
        "/dev/mailx",
        "/" + "a/" * 3000,
        "/" + "%41" * 3000,
        "/v1/" + "x" * 8000,
        "/\u00e9",
        "/%ff",
        "/%C0%AF",
    ):
        yield Row(f"path {path[:30]}", call("GET", path, key), 404, "not_found")
    for template, (method, prefix) in ITEMS.items():
        for name in (
            f"{prefix}_{UNKNOWN_ID}",
            f"{prefix}_" + "Z" * 26,
            f"{prefix}_" + "0" * 25,
            f"{prefix}_" + "0" * 27,
            f"{prefix}_" + "o" * 26,
            f"{prefix}_" + "U" * 26,
            f"{prefix}-" + UNKNOWN_ID,
            prefix.upper() + "_" + UNKNOWN_ID,
            "acc_" + UNKNOWN_ID,
            UNKNOWN_ID,
            prefix,
            prefix + "_",
            "_",
            "0",
            "-1",
            "null",
            "%00",
            "%ff",
            "%zz",
            "%",
            "%2",
            "%2e%2e",
            "%2F",
            "a%0d%0aX:%20y",
            "'%20or%201=1--",
            "*",
            "x" * 3000,
            "%F0%9F%98%80",
            "%E2%80%AE",
            "..%2f",
        ):
            yield Row(
                f"{method} {template.format(name)[:60]}", call(method, template.format(name), key), 404, "not_found"
            )


def queries(key: str):
    """Unknown and invalid query parameters."""
    for path, filters in LISTS.items():
        for value in (
            "0",
            "101",
            "-1",
            "1.0",
            "1e1",
            "0x1",
            "",
            "+5",
            "%2B5",
            "five",
            "9" * 40,
            "%00",
            "1%0a",
            "%D9%A1",
            "%zz",
        ):
            yield Row(
                f"{path} limit {value[:9]}",
                call("GET", f"{path}?limit={value}", key),
                422,
                "validation_failed",
                "limit",
            )
        for value in ("", "x", "null", "%00", "AAAA", "=" * 9, "A" * 5000, "%zz", "../..", "msg_" + UNKNOWN_ID):
            yield Row(
                f"{path} cursor {value[:9]}",
                call("GET", f"{path}?cursor={value}", key),
                422,
                "validation_failed",
                "cursor",
            )
        for name in ("page", "offset", "Limit", "limit[]", "limt", "account", "%00", "a" * 900, "%F0%9F%98%80"):
            yield Row(f"{path}?{name[:9]}", call("GET", f"{path}?{name}=1", key), 422, "validation_failed", "*")
        twice = f"{path}?limit=1&limit=2"
        yield Row(twice, call("GET", twice, key), 422, "validation_failed", "limit")
        for name in filters:
            for value in ("%ff", "%zz", "%"):
                asked = f"{path}?{name}={value}"
                yield Row(asked, call("GET", asked, key), 422, "validation_failed", name)
    for asked, named in {
        "/v1/events?type=Delivered": "type",
        "/v1/events?type=": "type",
        "/v1/events?type=opened": "type",
        "/v1/events?type=queued,delivered": "type",
        "/v1/messages?status=sent": "status",
        "/v1/messages?stream=bulk": "stream",
        "/v1/messages?after=yesterday": "after",
        "/v1/messages?before=2026-13-01T00:00:00Z": "before",
        "/v1/messages?to=nobody": "to",
        "/v1/suppressions?reason=spite": "reason",
        "/v1/suppressions?email=nobody": "email",
    }.items():
        yield Row(asked, call("GET", asked, key), 422, "validation_failed", named)
    for path in ("/v1/me", "/v1/settings", "/v1/messages", "/v1/keys"):
        method, body = ("POST", as_json({})) if path in ("/v1/messages", "/v1/keys") else ("GET", None)
        yield Row(f"{method} {path}?x=1", call(method, f"{path}?x=1", key, body), 422, "validation_failed", "x")


TYPES = (
    "text/plain",
    "text/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/xml",
    "application/jsonx",
    "application/json-patch+json",
    "application/problem+json",
    "json",
    "*/*",
    "application/*",
    "/",
    "",
    ";",
    "application/json, text/plain",
    "application /json",
    "application/json/x",
    "\u0430pplication/json",
)


def types_and_sizes(key: str):
    """Bodies of another type or coding, and oversized bodies."""
    body = as_json(GOOD)
    for path in ("/v1/messages", "/v1/keys", "/v1/webhooks", "/v1/suppressions"):
        for kind in TYPES:
            request = call("POST", path, key, body, f"Content-Type: {kind}")
            yield Row(f"{path} type {kind!r}", request, 415, "unsupported_media_type")
        for coding in ("gzip", "br", "deflate", "zstd", "identity, gzip", "x", ""):
            request = call("POST", path, key, body, f"Content-Encoding: {coding}")
            yield Row(f"{path} coding {coding!r}", request, 415, "unsupported_media_type")
        two = ("Content-Type: application/json", "Content-Type: text/plain")
        yield Row(f"{path} two types", call("POST", path, key, body, *two), 415, "unsupported_media_type")
    announced = call("POST", "/v1/messages", key, None, "Content-Type: application/json", "Content-Length: 26214401")
    yield Row("25 MiB and a byte, announced", announced, 413, "payload_too_large")
    waiting = call("POST", "/v1/messages", key, None, "Content-Length: 26214401", "Expect: 100-continue")
    yield Row("25 MiB and a byte, asked for", waiting, 413, "payload_too_large")
    yield Row("25 MiB and a byte", call("POST", "/v1/messages", key, b" " * 26_214_401), 413, "payload_too_large")
    many = [f"X-{n}: a" for n in range(98)]
    yield Row("too many fields", call("GET", "/v1/me", key, None, *many), 431, None)


def credentials(key: str):
    """Requests without a valid key get no further information, whatever else is wrong."""
    flipped = key[:-1] + ("0" if key[-1] != "0" else "1")
    headers = [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer  " + key,
        f"Bearer {key} x",
        f"Bearer {key},",
        f"Bearer\t{key}",
        f"Bearer {flipped}",
        f"Bearer {key[:-1]}",
        f"Bearer {key}0",
        f"Bearer {key.upper()}",
        f"Bearer {key.swapcase()}",
        f"Bearer '{key}'",
        f'Bearer "{key}"',
        f"Bearer token={key}",
        f"Bearer={key}",
        f"Bearer:{key}",
        f"Basic {key}",
        "Basic YTpi",
        key,
        f"Token {key}",
        f"Bearer {key[8:]}",
        "Bearer pr_live_",
        "Bearer pr_live_" + "0" * 43,
        "Bearer pr_test_" + "0" * 43,
        "Bearer " + "A" * 8000,
        "Bearer \u00e9",
        "Bearer null",
        "Bearer undefined",
        "Bearer *",
        "Bearer %00",
        "Digest x",
        "Negotiate",
    ]
    for header in headers:
        lines = [] if header is None else [f"Authorization: {header}"]
        for method, path, body in (("POST", "/v1/messages", b"not json"), ("GET", "/v1/nothing", None)):
            request = call(method, path, None, body, *lines)
            needs = {"www-authenticate": "Bearer"}
            yield Row(f"{method} {path} {str(header)[:30]}", request, 401, "unauthenticated", headers=needs)
    two = [f"Authorization: Bearer {key}"] * 2
    yield Row("two keys", call("GET", "/v1/me", None, None, *two), 401, "unauthenticated")


def idempotency(key: str):
    """Invalid keys: valid ones have 1 to 255 printable ASCII characters, given once (contract 3)."""
    body = as_json(GOOD)
    for value in ("", " ", "k" * 256, "k" * 5000, "kl\u00fc", "\u202ek", "a\tb"):
        lines = ["Content-Type: application/json", f"Idempotency-Key: {value}"]
        yield Row(
            f"key {value[:9]!r}",
            call("POST", "/v1/messages", key, body, *lines),
            422,
            "validation_failed",
            "Idempotency-Key",
        )
    for code in range(0x80, 0x100):
        raw = call("POST", "/v1/messages", key, body, "Idempotency-Key: a?b").replace(
            b"a?b", b"a" + bytes([code]) + b"b"
        )
        yield Row(f"byte {code:#04x} in a key", raw, 422, "validation_failed", "Idempotency-Key")
    twice = call("POST", "/v1/messages", key, body, "Idempotency-Key: a", "Idempotency-Key: a")
    yield Row("two keys", twice, 422, "validation_failed", "Idempotency-Key")
