"""Sign-in under attack: strangers are throttled together, and never lock the owner out (contract 10.1)."""

import http.client
from urllib.parse import urlencode

import pytest
from support.wait import until

# The proxy names its clients, because a test has only one address.
CONFIG = 'hostname = "mail.sender.test"\n[http]\ntrusted_proxies = ["127.0.0.0/8"]\n'
SECONDS = 10


@pytest.fixture
def server(dev):
    """`dev` behind a proxy that names its clients."""
    return dev(config=CONFIG)


def sign_in(server, client: str, user: str | None = None, password: str = "wrong") -> int:
    """Returns the status of a sign-in by a client that the proxy names."""
    api = server.api
    form = urlencode({"email": user or server.info["panel_user"], "password": password})
    connection = http.client.HTTPConnection(api.host, api.port, timeout=SECONDS)
    fields = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Forwarded-For": client,
        "Origin": f"http://{api.host}:{api.port}",
    }
    try:
        connection.request("POST", "/login", form, fields)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_one_ipv6_network_counts_as_one_client(server):
    def is_throttled() -> bool:
        nonlocal tries
        tries += 1
        return sign_in(server, f"2001:db8:0:1::{tries:x}", user=f"nobody{tries}@example.test") == 429

    tries = 0
    until("addresses of one /64 share a throttle", is_throttled, seconds=60, every=0)
    assert tries < 64
    assert sign_in(server, "2001:db8:0:2::1", user="nobody@example.test") != 429, "another /64 is another client"


def test_failures_of_others_do_not_lock_out_a_known_browser(server):
    api = server.api
    form = urlencode({"email": server.info["panel_user"], "password": server.info["panel_password"]})
    fields = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{api.host}:{api.port}"}

    def owner(cookie: str | None) -> tuple[int, list[str]]:
        connection = http.client.HTTPConnection(api.host, api.port, timeout=SECONDS)
        extra = {"X-Forwarded-For": "192.0.2.1"} | ({"Cookie": cookie} if cookie else {})
        connection.request("POST", "/login", form, fields | extra)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, [value.split(";")[0] for name, value in answer.getheaders() if name.lower() == "set-cookie"]

    status, cookies = owner(None)
    assert status == 303 and cookies
    tries = iter(range(10**6))
    until(
        "strangers have the name throttled",
        lambda: sign_in(server, f"198.51.100.{next(tries) % 250}") == 429,
        seconds=120,
        every=0,
    )
    assert owner("; ".join(cookies))[0] == 303
