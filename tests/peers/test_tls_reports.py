"""TLS reports (RFC 8460) from the finished binary: real DNS, a real Postfix, a real policy host, and a day on the
virtual clock."""

import json
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy

CONFIG = """\
hostname = "mail.sender.test"
[dns]
servers = ["{names}"]
[delivery]
port = {port}
mta_sts_port = {policy_port}
extra_roots = "{root}"
tls_reports_from = "tls-reports@example.test"
[network]
allow = ["127.0.0.0/8"]
[webhooks]
extra_roots = "{root}"
"""


def after_the_day(service):
    """Advances the clock until all reports of the current day are sent."""
    now = datetime.fromisoformat(service.api.get("/dev/clock")["now"])
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    service.advance((midnight - now).total_seconds() + 4 * 3600)


def test_a_tls_report_is_sent_even_if_the_policy_fails_for_it_too(
    dev, knot, postfix, policy_host, hooks, authority
):
    knot.put("_mta-sts.recipient.test", "TXT", "v=STSv1; id=1;")
    knot.put("mta-sts.recipient.test", "A", "127.0.0.1")
    destinations = f"mailto:inbox@recipient.test,https://hooks.test:{hooks.port}/tls"
    knot.put("_smtp._tls.recipient.test", "TXT", f"v=TLSRPTv1; rua={destinations}")
    knot.publish()
    policy_host.publish("enforce", "another.recipient.test")
    config = CONFIG.format(
        names=knot.server, port=postfix.port, policy_port=policy_host.port, root=authority.root
    )
    service = dev("--virtual-clock", "--deliver", config=config)
    message = {"from": "shop@example.test", "to": "inbox@recipient.test", "subject": "Hello", "text": "Hello.\n"}
    accepted = service.api.accept(message)
    service.advance(0)
    assert service.api.message(accepted["id"])["status"] == "deferred"
    after_the_day(service)

    # The message still waits; its report does not.
    assert service.api.message(accepted["id"])["status"] == "deferred"
    [mail] = postfix.wait_for_mail()
    report = message_from_bytes(mail, policy=policy.default)
    assert report.get_content_type() == "multipart/report"
    assert report.get_param("report-type") == "tlsrpt"
    assert report["TLS-Report-Domain"] == "recipient.test"
    assert report["TLS-Report-Submitter"] == "mail.sender.test"
    assert "tls-report-domain" in report["DKIM-Signature"]
    words, data = report.iter_parts()
    assert words.get_content_type() == "text/plain"
    assert data.get_content_type() == "application/tlsrpt+json"
    [post] = hooks.received
    assert post.headers["content-type"] == "application/tlsrpt+json"
    assert post.body == data.get_content()

    told = json.loads(post.body)
    assert (told["organization-name"], told["contact-info"]) == ("mail.sender.test", "tls-reports@example.test")
    [counted] = told["policies"]
    assert counted["policy"]["policy-type"] == "sts"
    assert counted["policy"]["policy-domain"] == "recipient.test"
    assert counted["policy"]["mx-host"] == ["another.recipient.test"]
    assert counted["summary"]["total-successful-session-count"] == 0
    [failure] = counted["failure-details"]
    assert failure["result-type"] == "sts-policy-invalid"
    assert failure["receiving-mx-hostname"] == "mx1.recipient.test"
    assert failure["failed-session-count"] == counted["summary"]["total-failure-session-count"] > 0

    # It is a message like any other of its account.
    listed = service.api.get("/v1/messages?from=tls-reports@example.test")["data"]
    assert [(one["status"], one["stream"]) for one in listed] == [("delivered", "transactional")]
