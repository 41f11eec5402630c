"""The checklist of a domain by a name server whose answers may be cached for minutes: a check sees what is there now."""

import pytest
from support.knot import Knot
from support.wait import free_port


@pytest.fixture
def slow_knot(workdir):
    """A name server whose answers, also that there is no record, may be cached for ten minutes."""
    knot = Knot(workdir / "slow", ttl=600)
    yield knot
    knot.close()


def test_a_check_sees_addresses_and_reverse_names_as_they_are_now(serve, slow_knot):
    direct = {"name": "direct", "kind": "mx", "source": ["192.0.2.7"], "ehlo": "mail.sender.test"}
    network = {"allow": ["127.0.0.0/8", "192.0.2.0/24"]}
    service = serve(free_port(), names=slow_knot, relay=[direct], network=network)
    domain = service.domain("sender.test")["id"]

    def check() -> dict[str, str]:
        slow_knot.publish()
        assert service.api.request("POST", f"/v1/domains/{domain}/verify").status == 200
        items = service.api.get(f"/v1/domains/{domain}/checklist")["items"]
        return {item["id"]: item["status"] for item in items if item["id"] in ("replies", "reverse_dns")}

    assert check() == {"replies": "fail", "reverse_dns": "fail"}
    slow_knot.put("sender.test", "A", "192.0.2.1")
    slow_knot.put("7.2.0.192.in-addr.arpa", "PTR", "mail.sender.test.")
    assert check() == {"replies": "warn", "reverse_dns": "fail"}
    slow_knot.put("mail.sender.test", "A", "192.0.2.7")
    assert check() == {"replies": "warn", "reverse_dns": "pass"}


def test_the_name_server_decides_the_names_of_loopback_addresses(serve, knot):
    direct = {"name": "direct", "kind": "mx", "source": ["127.0.0.7"], "ehlo": "mail.sender.test"}
    service = serve(free_port(), relay=[direct])
    domain = service.domain("sender.test")["id"]

    def check() -> str:
        knot.publish()
        assert service.api.request("POST", f"/v1/domains/{domain}/verify").status == 200
        items = service.api.get(f"/v1/domains/{domain}/checklist")["items"]
        return next(item["status"] for item in items if item["id"] == "reverse_dns")

    knot.put("mail.sender.test", "A", "127.0.0.7")
    assert check() == "fail"
    knot.put("7.0.0.127.in-addr.arpa", "PTR", "mail.sender.test.")
    assert check() == "pass"
