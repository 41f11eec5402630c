"""Relays: a smarthost that requires TLS and a login, and direct delivery with a separate address and name."""

import pytest

from support.smarthost import PASSWORD, USER, Smarthost
from support.wait import until

MESSAGE = {"from": "shop@sender.test", "to": "someone@nullmx.test", "subject": "Order", "text": "Thank you."}


@pytest.fixture
def smarthost(authority):
    """Creates smarthosts."""
    made = []

    def start(*names: str, **options) -> Smarthost:
        made.append(Smarthost(authority.issue(*names), **options))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def through(serve, knot, workdir):
    """Creates services that send through a smarthost."""

    def start(smarthost: Smarthost, password: str = PASSWORD, **relay):
        knot.put("smart.sender.test", "A", "127.0.0.1")
        knot.publish()
        secret = workdir / "password"
        secret.write_text(password + "\n")
        relay = {
            "name": "smart",
            "kind": "smarthost",
            "host": "smart.sender.test",
            "port": smarthost.port,
            "username": USER,
            "password_file": str(secret),
        } | relay
        service = serve(port=1, relay=[relay])
        service.domain("sender.test")
        return service

    return start


def _held(service) -> list[dict]:
    return [site for site in service.cli("queue", "list")["data"] if site["held_until"]]


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_mail_goes_through_a_smarthost_after_tls_and_login(smarthost, through, tls):
    host = smarthost("smart.sender.test", implicit=tls == "implicit")
    service = through(host, tls=tls)
    first = service.api.settled(service.api.accept(MESSAGE)["id"], "delivered")
    assert first["relay"] == "smart" and first["mx_host"] == "smart.sender.test"
    assert first["tls"]["authenticated"] == "pkix"
    service.api.settled(service.api.accept(MESSAGE)["id"], "delivered")
    assert [message.rcpt_to for message in host.messages] == [["someone@nullmx.test"]] * 2
    assert host.told == [PASSWORD.encode()], "one login for both messages"


def test_a_refused_login_counts_against_no_message(smarthost, through):
    host = smarthost("smart.sender.test")
    service = through(host, password="wrong")
    accepted = service.api.accept(MESSAGE)
    until("a login", lambda: host.told)
    held = until("a pause", lambda: _held(service))
    assert held[0]["relay"] == "smart" and held[0]["waiting"] == 1 and "535" in held[0]["last_answer"]
    assert held[0]["site"] == f"smart.sender.test:{host.port}"
    record = service.api.message(accepted["id"])
    assert (record["status"], record["attempts"]) == ("queued", 0)
    assert PASSWORD not in service.logged() and "wrong" not in service.logged()


def test_no_password_is_sent_to_a_server_without_a_matching_certificate(smarthost, through):
    host = smarthost("other.sender.test")
    service = through(host)
    accepted = service.api.accept(MESSAGE)
    until("a pause", lambda: _held(service))
    assert service.api.message(accepted["id"])["attempts"] == 0
    assert not host.told and not host.messages


def test_direct_mail_uses_the_relay_s_address_and_name(serve, postfix):
    relay = {"name": "out2", "kind": "mx", "source": ["127.0.0.2"], "ehlo": "out2.sender.test"}
    service = serve(port=postfix.port, relay=[relay])
    service.domain("sender.test")
    record = service.api.settled(service.api.accept(MESSAGE | {"to": "inbox@recipient.test"})["id"], "delivered")
    assert record["relay"] == "out2"
    mail = postfix.wait_for_mail()[0].decode()
    assert "from out2.sender.test (unknown [127.0.0.2])" in mail
