"""The effect of a receiving domain's TLS policy on mail for it: DANE, MTA-STS, neither (contract 6, RFC 7672, RFC
8461).

Knot serves the names and signs them on demand, the receiver is Postfix, the policy host a small HTTPS server."""

import pytest
from support.pki import public_key_digest
from support.postfix import Postfix

MESSAGE = {"from": "shop@sender.test", "to": "inbox@recipient.test", "subject": "Hello", "text": "Hello.\n"}
HOST = "mx1.recipient.test"


@pytest.fixture
def receiver(workdir):
    """Creates a Postfix for recipient.test with a certificate: `receiver(file)`."""
    started = []

    def start(certificate) -> Postfix:
        started.append(Postfix(workdir / f"postfix{len(started)}", certificate))
        return started[-1]

    yield start
    for postfix in started:
        postfix.close()


def mailer(serve, postfix, names, **sections):
    """`serve` with a verified domain, mailing to Postfix's port, all names taken from `names`."""
    service = serve(port=postfix.port, names=names, **sections)
    service.domain("sender.test")
    return service


def validating(serve, postfix, names):
    """The same, with the root's keys as its trust anchor."""
    return mailer(serve, postfix, names, dns={"trust_anchor": str(names.anchor)})


def publish_tlsa(names, port: int, *records: str):
    """Publishes the TLSA records of the receiver's server."""
    names.put(f"_{port}._tcp.{HOST}", "TLSA", *records)
    names.publish()


def last_event(service, kind: str, message_id: str) -> dict:
    """Returns the last event of a type on a message's timeline."""
    return [event for event in service.api.message(message_id)["events"] if event["type"] == kind][-1]


def delivered(service, postfix, count: int = 1) -> dict:
    """Sends the message and returns its `tls` once Postfix has it."""
    message = service.api.accept(MESSAGE)
    tls = service.api.settled(message["id"], "delivered")["tls"]
    assert len(postfix.wait_for_mail(count)) == count
    return tls


def deferred(service, postfix) -> dict:
    """Sends the message and returns its `deferred` event; no mailbox may have received it."""
    message = service.api.accept(MESSAGE)
    service.api.settled(message["id"], "deferred")
    assert postfix.mail() == []
    return last_event(service, "deferred", message["id"])


def test_a_certificate_that_matches_its_tlsa_record_is_authenticated_by_dane(serve, receiver, signed_knot, authority):
    certificate = authority.self_signed("another.name.test")
    postfix = receiver(certificate)
    publish_tlsa(signed_knot, postfix.port, f"3 1 1 {public_key_digest(certificate)}")
    tls = delivered(validating(serve, postfix, signed_knot), postfix)
    assert (tls["policy"], tls["authenticated"]) == ("dane", "dane")
    assert tls["version"] == "TLSv1.3"


def test_a_certificate_without_a_matching_tlsa_record_defers_the_mail(
    serve, receiver, signed_knot, authority
):
    postfix = receiver(authority.issue(HOST))
    publish_tlsa(signed_knot, postfix.port, f"3 1 1 {'00' * 32}")
    service = validating(serve, postfix, signed_knot)
    event = deferred(service, postfix)
    assert event["bounce"]["category"] == "tls_failure" and event["bounce"]["status"] == "4.7.5"
    assert event["smtp_code"] is None and event["mx_host"] == HOST
    assert "TLSA" in event["bounce"]["advice"]


def test_unusable_tlsa_records_only_require_tls(serve, receiver, signed_knot, authority):
    postfix = receiver(authority.self_signed(HOST))
    publish_tlsa(signed_knot, postfix.port, f"1 1 1 {'00' * 32}")
    tls = delivered(validating(serve, postfix, signed_knot), postfix)
    assert (tls["policy"], tls["authenticated"]) == ("dane", "none")


def test_without_a_trust_anchor_tlsa_records_are_ignored(serve, receiver, signed_knot, authority):
    postfix = receiver(authority.self_signed(HOST))
    publish_tlsa(signed_knot, postfix.port, f"3 1 1 {'00' * 32}")
    tls = delivered(mailer(serve, postfix, signed_knot), postfix)
    assert (tls["policy"], tls["authenticated"]) == ("opportunistic", "none")


def test_names_signed_under_another_anchor_get_no_mail(serve, receiver, signed_knot, workdir, authority):
    postfix = receiver(authority.issue(HOST))
    anchor = workdir / "other.key"
    anchor.write_text(f"test. IN DS 12345 13 2 {'00' * 32}\n")
    service = serve(port=postfix.port, names=signed_knot, dns={"trust_anchor": str(anchor)})
    service.cli("domain", "add", "sender.test", "--stream", "transactional", "--account", service.account)
    checked = service.api.get("/v1/domains")["data"][0]
    assert checked["status"] != "verified"


def sts(serve, postfix, names, policy_host, mode: str, *servers: str):
    """Creates the service, with recipient.test's MTA-STS policy announced and published."""
    names.put("_mta-sts.recipient.test", "TXT", "v=STSv1; id=1;")
    names.put("mta-sts.recipient.test", "A", "127.0.0.1")
    names.publish()
    policy_host.publish(mode, *servers)
    return mailer(serve, postfix, names, delivery={"mta_sts_port": policy_host.port})


def test_an_enforced_policy_requires_a_certificate_that_verifies(serve, receiver, knot, policy_host, authority):
    postfix = receiver(authority.issue(HOST))
    service = sts(serve, postfix, knot, policy_host, "enforce", "*.recipient.test")
    tls = delivered(service, postfix)
    assert (tls["policy"], tls["authenticated"]) == ("mta-sts", "pkix")
    assert policy_host.asked == ["/.well-known/mta-sts.txt"]


@pytest.mark.parametrize("name", ["other.recipient.test", HOST])
def test_an_enforced_policy_defers_mail_on_a_wrong_certificate(
    serve, receiver, knot, policy_host, authority, name
):
    issued = authority.self_signed(name) if name == HOST else authority.issue(name)
    postfix = receiver(issued)
    service = sts(serve, postfix, knot, policy_host, "enforce", HOST)
    event = deferred(service, postfix)
    assert event["bounce"]["category"] == "tls_failure" and event["smtp_code"] is None


def test_an_enforced_policy_excludes_unlisted_servers(
    serve, receiver, knot, policy_host, authority
):
    postfix = receiver(authority.issue(HOST))
    service = sts(serve, postfix, knot, policy_host, "enforce", "mx9.recipient.test")
    assert "MTA-STS" in deferred(service, postfix)["bounce"]["advice"]


def test_a_testing_policy_blocks_nothing(serve, receiver, knot, policy_host, authority):
    postfix = receiver(authority.self_signed(HOST))
    service = sts(serve, postfix, knot, policy_host, "testing", HOST)
    tls = delivered(service, postfix)
    assert (tls["policy"], tls["authenticated"]) == ("opportunistic", "none")


def test_a_cached_policy_survives_an_outage_of_its_host_and_a_restart(serve, receiver, knot, policy_host, authority):
    postfix = receiver(authority.issue(HOST))
    service = sts(serve, postfix, knot, policy_host, "enforce", HOST)
    assert delivered(service, postfix)["policy"] == "mta-sts"
    policy_host.close()
    service.close()
    service.start()
    knot.put("_mta-sts.recipient.test", "TXT", "v=STSv1; id=2;")
    knot.publish()
    assert delivered(service, postfix, count=2)["policy"] == "mta-sts"
