"""Resources held by strangers don't affect others: unfinished uploads and idle connections (see the hardening rules on
request bodies and connections)."""

import resource
import socket
import time

import pytest
from hostile import http_level
from hostile.row import HOST, answers

from support.server import Dev

LIMITS = 'hostname = "mail.sender.test"\n[limits]\nrequests_per_minute = 1000000\n'
UPLOAD = 25 * 1024 * 1024
# A form whose last byte is missing.
ALMOST = 64 * 1024 - 1
CONNECTIONS = 1024
# Time limit in seconds for serving a new client.
SECONDS = 2


@pytest.fixture
def dev(tmp_path):
    dev = Dev(tmp_path / "dev", (), LIMITS)
    yield dev
    dev.close()


def begin(dev: Dev, path: str, length: int, sent: int) -> socket.socket:
    """Starts an anonymous POST to a page of the panel, and sends `sent` bytes of its body."""
    connection = socket.create_connection((dev.api.host, dev.api.port), timeout=10)
    head = b"POST %s HTTP/1.1\r\n%sSec-Fetch-Site: same-origin\r\nContent-Length: %d\r\n" % (path.encode(), HOST, length)
    try:
        connection.sendall(head + b"Content-Type: application/x-www-form-urlencoded\r\n\r\n")
        connection.sendall(b"a" * sent)
    except OSError:
        pass  # Refused before all was sent.
    return connection


def served_in(dev: Dev) -> float:
    """Returns the seconds until a new client has its answer."""
    began = time.monotonic()
    with socket.create_connection((dev.api.host, dev.api.port), timeout=10 * SECONDS) as new:
        new.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        got = b""
        while part := new.recv(4096):
            got += part
    assert [answer.status for answer in answers(got)] == [200]
    return time.monotonic() - began


@pytest.mark.parametrize("path", ["/login", "/setup", "/login/code", "/appearance", "/suppressions/import"])
def test_unfinished_anonymous_bodies_do_not_delay_other_clients(dev, path):
    held = [begin(dev, path, UPLOAD, UPLOAD - 1) for _ in range(11)]
    held += [begin(dev, path, ALMOST + 1, ALMOST) for _ in range(80)]
    for _ in range(20):
        dev.api.accept(http_level.GOOD)
    large = dict(http_level.GOOD, text="x" * (4 * 1024 * 1024))
    dev.api.accept(large)
    for connection in held:
        connection.close()


def test_an_oversized_body_is_answered_413_and_ends_the_connection(dev):
    for path, length in [("/login", 64 * 1024 + 1), ("/setup", UPLOAD)]:
        with begin(dev, path, length, 0) as connection:
            got = b""
            while part := connection.recv(4096):
                got += part
            head = got.partition(b"\r\n\r\n")[0].lower()
            assert head.startswith(b"http/1.1 413 ") and b"connection: close" in head, head
    body = b'{"name": "' + b"x" * 256 * 1024 + b'"}'
    refused = dev.api.request("POST", "/v1/keys", body)
    assert (refused.status, refused.json()["code"]) == (413, "payload_too_large")


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: mail.exa",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /login HTTP/1.1\r\n" + HOST + b"Sec-Fetch-Site: same-origin\r\nContent-Length: 9\r\n\r\na",
    ],
    ids=["idle", "silent", "half a head", "HTTP/2", "half a form"],
)
def test_1024_connections_do_not_block_a_new_client(dev, begun):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, CONNECTIONS * 2), hard))
    held = []
    try:
        for _ in range(CONNECTIONS):
            connection = socket.create_connection((dev.api.host, dev.api.port), timeout=10)
            connection.sendall(begun)
            held.append(connection)
        for _ in range(10):
            assert served_in(dev) < SECONDS
        dev.api.accept(http_level.GOOD)
    finally:
        for connection in held:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
