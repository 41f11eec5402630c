"""Hostile bytes: invalid or ambiguous requests (RFC 9112). Each ends its connection, and a request hidden after it is
never served."""

from .row import HOST

# Served by a server that believes that the request before it has ended.
HIDDEN = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\n"


def get(*lines: bytes, target: bytes = b"/healthz", version: bytes = b"HTTP/1.1") -> bytes:
    return b"GET " + target + b" " + version + b"\r\n" + HOST + b"".join(lines) + b"\r\n"


def post(*lines: bytes, body: bytes = b"{}") -> bytes:
    return POST + HOST + b"".join(lines) + b"\r\n" + body


def _request_lines():
    for line in (
        b"",
        b" ",
        b"GET",
        b"GET ",
        b"GET  ",
        b"GET /healthz",
        b"GET /healthz ",
        b"GET  /healthz HTTP/1.1",
        b"GET /healthz  HTTP/1.1",
        b" GET /healthz HTTP/1.1",
        b"\tGET /healthz HTTP/1.1",
        b"GET\t/healthz\tHTTP/1.1",
        b"GET /healthz HTTP/1.1 ",
        b"GET /healthz HTTP/1.1 x",
        b"GET /healthz HTTP/1.2",
        b"GET /healthz HTTP/2.0",
        b"GET /healthz HTTP/3",
        b"GET /healthz HTTP/0.9",
        b"GET /healthz http/1.1",
        b"GET /healthz HTTP/1,1",
        b"GET /healthz HTTP/1.",
        b"GET /healthz HTTP/11",
        b"GET /healthz HTTPS/1.1",
        b"GET /healthz HTTP /1.1",
        b"GET /health z HTTP/1.1",
        b"GET /healthz\0 HTTP/1.1",
        b"GET /healthz\x7f HTTP/1.1",
        b"GE\0T /healthz HTTP/1.1",
        b"G(T /healthz HTTP/1.1",
        b"G\xcbT /healthz HTTP/1.1",
        b"GET ?a HTTP/1.1",
        b"GET /\x01 HTTP/1.1",
        b"GET //\\..\r HTTP/1.1",
        b"HTTP/1.1 200 OK",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"PRI * HTTP/2.0",
        b"SSH-2.0-x",
        b"EHLO x",
        b"\xff\xfe\x00",
        b"GET http:// HTTP/1.1",
        b"GET :// HTTP/1.1",
        b"CONNECT HTTP/1.1",
        b"{}",
        b"<?xml?>",
        b"\x00" * 64,
        b"%00",
        b"GET /healthz HTTP/1.1\x0b",
    ):
        yield f"request line {line!r}", line + b"\r\n" + HOST + b"\r\n"
    yield "request line without end", b"G" * 300_000
    yield "target without end", b"GET /" + b"a" * 300_000
    yield "70,000 bytes of target", get(target=b"/" + b"a" * 70_000)


def _fields():
    for code in [*range(0x00, 0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F]:
        yield f"control {code:#04x} in a value", get(b"X: a" + bytes([code]) + b"b\r\n")
    for code in [*range(0x00, 0x21), *b'"(),/:;<=>?@[\\]{}', 0x7F, 0x80, 0xFF]:
        # A colon would end the name, and a line end the line.
        if code not in b":\r\n":
            yield f"byte {code:#04x} in a name", get(b"X" + bytes([code]) + b"Y: a\r\n")
    yield "space before the colon", get(b"X : a\r\n")
    yield "tab before the colon", get(b"X\t: a\r\n")
    yield "no colon", get(b"nonsense\r\n")
    yield "no name", get(b": a\r\n")
    yield "folded with a space", get(b"X: a\r\n b\r\n")
    yield "folded with a tab", get(b"X: a\r\n\tb\r\n")
    yield "folded before the first", b"GET /healthz HTTP/1.1\r\n " + HOST + b"\r\n"
    yield "bare LF after the request line", b"GET /healthz HTTP/1.1\n" + HOST + b"\r\n"
    yield "bare LF after a field", get(b"X: a\n")
    yield "bare LF at the end", b"GET /healthz HTTP/1.1\r\n" + HOST + b"\n"
    yield "bare LF throughout", get().replace(b"\r\n", b"\n")
    yield "bare LF before the request", b"\n" + get()
    yield "bare CR after the request line", b"GET /healthz HTTP/1.1\r" + HOST + b"\r\n"
    yield "bare CR in a value", get(b"X: a\rY: b\r\n")
    yield "bare CR throughout", get().replace(b"\r\n", b"\r")
    yield "CR CR LF", get(b"X: a\r\r\n")
    yield "LF CR", get(b"X: a\n\r")
    yield "five empty lines before", b"\r\n" * 5 + get()
    yield "10,000 empty lines before", b"\r\n" * 10_000 + get()
    yield "head over 16 KiB", get(b"X: " + b"a" * 17_000 + b"\r\n")
    yield "head of 1 MB", get(b"X: " + b"a" * 1_000_000 + b"\r\n")
    yield "101 fields", get(*[b"X: a\r\n"] * 101)
    yield "10,000 fields", get(*[b"X: a\r\n"] * 10_000)
    yield "name of 17,000", get(b"a" * 17_000 + b": b\r\n")


def _hosts():
    line = b"GET /healthz HTTP/1.1\r\n"
    yield "no Host", line + b"\r\n"
    yield "no Host in a POST", POST + b"Content-Length: 2\r\n\r\n{}"
    for value in (
        b"a b",
        b"a/b",
        b"u@a",
        b"a?b",
        b"a#b",
        b"a\\b",
        b"<a>",
        b'"a"',
        b"a|b",
        b"a^b",
        b"a`b",
        b"{a}",
        b"m\xc3\xbcller",
        b"\xff",
        b"a\x7f",
        b"a, b",
        b"http://a",
    ):
        yield f"Host {value!r}", line + b"Host: " + value + b"\r\n\r\n"
    for second in (b"Host: mail.example", b"host: mail.example", b"HOST: other", b"hOst:"):
        yield f"a second {second!r}", line + HOST + second + b"\r\n\r\n"


LENGTHS = (
    b"",
    b" ",
    b"-1",
    b"-0",
    b"+2",
    b"2.0",
    b"2,2",
    b"2, 2",
    b"2;",
    b"2 2",
    b"0x2",
    b"2h",
    b"1e1",
    b"two",
    b"\xb2",
    b"18446744073709551616",
    b"9" * 400,
    b"2\x0b",
    b"'2'",
    b'"2"',
    b"2,",
    b",2",
    b"NaN",
    b"_2",
    b"2_0",
)
CODINGS = (
    b"",
    b"identity",
    b"gzip",
    b"gzip, chunked",
    b"chunked, gzip",
    b"chunked, chunked",
    b"chunked,",
    b",chunked",
    b"chunked;",
    b"chunked;q=1",
    b"xchunked",
    b"chunkedx",
    b"chunked chunked",
    b'"chunked"',
    b"'chunked'",
    b"chunk",
    b"\x0bchunked",
    b"chunked\x0b",
    b"cow",
    b"compress, chunked",
    b"identity, chunked",
    b"\xe2\x84\xaahunked",
    b"*",
)


def _framings():
    for value in LENGTHS:
        yield f"Content-Length {value[:20]!r}", post(b"Content-Length: " + value + b"\r\n")
    for value in CODINGS:
        yield (
            f"Transfer-Encoding {value!r}",
            post(b"Transfer-Encoding: " + value + b"\r\n", body=b"2\r\n{}\r\n0\r\n\r\n"),
        )
    chunked, sized = b"Transfer-Encoding: chunked\r\n", b"Content-Length: 2\r\n"
    twice = {
        "length, coding": (sized, chunked),
        "coding, length": (chunked, sized),
        "length 0, coding": (b"Content-Length: 0\r\n", chunked),
        "equal lengths": (sized, sized),
        "other lengths": (sized, b"Content-Length: 3\r\n"),
        "length 0 and 2": (b"Content-Length: 0\r\n", sized),
        "three lengths": (sized, sized, sized),
        "lengths in other case": (sized, b"CONTENT-LENGTH: 2\r\n"),
        "two codings": (chunked, chunked),
        "coding twice in other case": (chunked, b"transfer-ENCODING: CHUNKED\r\n"),
        "coding and identity": (chunked, b"Transfer-Encoding: identity\r\n"),
        "length far from coding": (sized, b"X: a\r\n" * 50, chunked),
        "spaced coding": (b"Transfer-Encoding : chunked\r\n",),
        "spaced coding, length": (sized, b"Transfer-Encoding : chunked\r\n"),
        "folded coding": (b"Transfer-Encoding:\r\n chunked\r\n",),
        "coding under a bare LF": (sized, b"X: a\nTransfer-Encoding: chunked\r\n"),
        "coding under a bare CR": (sized, b"X: a\rTransfer-Encoding: chunked\r\n"),
        "NUL in the coding's name": (b"Transfer-Encoding\0: chunked\r\n",),
    }
    for name, fields in twice.items():
        for body in (b"{}", b"0\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n"):
            yield f"{name} with {body!r}", post(*fields, body=body)
    for version in (b"HTTP/1.0",):
        request = post(chunked, body=b"2\r\n{}\r\n0\r\n\r\n").replace(b"HTTP/1.1", version)
        yield "chunked in HTTP/1.0", request


CHUNKS = {
    "no size": b"\r\n{}\r\n0\r\n\r\n",
    "no digits": b"zz\r\n{}\r\n0\r\n\r\n",
    "space before the size": b" 2\r\n{}\r\n0\r\n\r\n",
    "space after the size": b"2 \r\n{}\r\n0\r\n\r\n",
    "tab after the size": b"2\t\r\n{}\r\n0\r\n\r\n",
    "0x": b"0x2\r\n{}\r\n0\r\n\r\n",
    "plus": b"+2\r\n{}\r\n0\r\n\r\n",
    "minus": b"-2\r\n{}\r\n0\r\n\r\n",
    "underscore": b"0_2\r\n{}\r\n0\r\n\r\n",
    "comma": b"2,2\r\n{}\r\n0\r\n\r\n",
    "size of 17 digits": b"00000000000000002\r\n{}\r\n0\r\n\r\n",
    "size too large": b"ffffffffffffffff0\r\n{}\r\n0\r\n\r\n",
    "size without end": b"1" * 100_000,
    "bare LF after the size": b"2\n{}\r\n0\r\n\r\n",
    "bare CR after the size": b"2\r{}\r\n0\r\n\r\n",
    "NUL after the size": b"2\0\r\n{}\r\n0\r\n\r\n",
    "bare LF in an extension": b"2;a\n{}\r\n0\r\n\r\n",
    "bare CR in an extension": b"2;a\rb\r\n{}\r\n0\r\n\r\n",
    "extension without end": b"2;" + b"a" * 100_000,
    "data too long": b"2\r\n{}}\r\n0\r\n\r\n",
    "data too short": b"3\r\n{}\r\n0\r\n\r\n",
    "no end of data": b"2\r\n{}0\r\n\r\n",
    "bare LF after data": b"2\r\n{}\n0\r\n\r\n",
    "bare CR after data": b"2\r\n{}\r0\r\n\r\n",
    "spaces after data": b"2\r\n{}  \r\n0\r\n\r\n",
    "bare LF in a trailer": b"2\r\n{}\r\n0\r\nX: a\n\r\n",
    "NUL in a trailer": b"2\r\n{}\r\n0\r\nX\0: a\r\n\r\n",
    "trailer without a colon": b"2\r\n{}\r\n0\r\nnonsense\r\n\r\n",
    "trailers without end": b"2\r\n{}\r\n0\r\n" + b"X: a\r\n" * 20_000,
    "bare LF at the end": b"2\r\n{}\r\n0\r\n\n",
    "not ended": b"2\r\n{}\r\n",
    "not begun": b"",
    "cut in a size": b"2",
    "cut in data": b"ff\r\n{}",
}


def _cut_off():
    yield "cut in the request line", b"GET /hea"
    yield "cut in a field", b"GET /healthz HTTP/1.1\r\nHos"
    yield "cut before the end of the head", b"GET /healthz HTTP/1.1\r\n" + HOST
    yield "cut in a body", POST + HOST + b"Content-Length: 100\r\n\r\n{"
    yield "a length of 2^63 and no body", POST + HOST + b"Content-Length: 9223372036854775808\r\n\r\n{"


def no_requests():
    """Name and bytes of invalid requests. The hidden request follows each one that is complete."""
    for name, request in [*_request_lines(), *_fields(), *_hosts(), *_framings()]:
        yield name, request + HIDDEN
    yield from _cut_off()


def misframed(key: str):
    """Bodies with malformed chunks after a valid head: 4xx, and the end of the connection."""
    fields = b"Authorization: Bearer " + key.encode() + b"\r\nTransfer-Encoding: chunked\r\n"
    for name, body in CHUNKS.items():
        hidden = b"" if body == b"" or name.startswith(("cut", "not", "data too short")) else HIDDEN
        yield f"chunks: {name}", post(fields, body=body) + hidden
