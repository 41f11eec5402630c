"""DMARC reports to the real listener: compressed as receivers do, signed by dkimpy, sent by a Postfix (RFC 7489, RFC
9990)."""

import base64
import gzip
import io
import json
import re
import smtplib
import urllib.request
import zipfile
from datetime import UTC, datetime, timedelta
from email import policy
from email.message import EmailMessage
from email.utils import formatdate

import dkim
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from support.postfix import Postfix
from support.wait import LOOPBACK, free_port, until

REPORTER = "reporter.test"
REPORT = """<?xml version="1.0"?>
<feedback xmlns="urn:ietf:params:xml:ns:dmarc-2.0"><version>1.0</version>
<report_metadata><org_name>Reporter</org_name><email>d@{reporter}</email><report_id>{number}</report_id>
<date_range><begin>{begin}</begin><end>{end}</end></date_range></report_metadata>
<policy_published><domain>sender.test</domain><p>none</p></policy_published>
<record><row><source_ip>192.0.2.7</source_ip><count>{count}</count><policy_evaluated><disposition>none</disposition>
<dkim>pass</dkim><spf>fail</spf></policy_evaluated></row><identifiers><header_from>sender.test</header_from>
</identifiers></record></feedback>"""


@pytest.fixture
def bounce_port():
    """The port that receives reports."""
    return free_port()


@pytest.fixture
def service(serve, bounce_port):
    """`serve` with a receiver and a verified domain, whose reports are read."""
    bounces = {"host": "bounces.sender.test", "listen": [f"{LOOPBACK}:{bounce_port}"]}
    service = serve(port=free_port(), bounces=bounces)
    service.id = service.domain("sender.test")["id"]
    return service


@pytest.fixture
def reporting(workdir, authority, bounce_port):
    """The Postfix of a receiver, which sends its reports to us."""
    settings = {"mynetworks": "127.0.0.0/8", "smtpd_recipient_restrictions": "permit_mynetworks, reject"}
    postfix = Postfix(
        workdir / "reporting",
        authority.issue("mx.reporter.test"),
        domain=REPORTER,
        host="mx.reporter.test",
        routes={"rp.sender.test": bounce_port, "bounces.sender.test": bounce_port},
        settings=settings,
    )
    yield postfix
    postfix.close()


@pytest.fixture
def key(knot):
    """The reporter's signing key, with its record."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = base64.b64encode(private.public_key().public_bytes(serialization.Encoding.DER, form)).decode()
    knot.put(f"r1._domainkey.{REPORTER}", "TXT", f"v=DKIM1; k=rsa; p={public}")
    knot.publish()
    encoding, traditional = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return private.private_bytes(encoding, traditional, serialization.NoEncryption())


def report(number: int, count: int = 120) -> bytes:
    """Returns a report of yesterday."""
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    days = [int(moment.timestamp()) for moment in (begin, begin + timedelta(days=1))]
    return REPORT.format(reporter=REPORTER, number=number, count=count, begin=days[0], end=days[1] - 1).encode()


def zipped(xml: bytes) -> bytes:
    """A zip archive of one report."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.xml", xml)
    return packed.getvalue()


def mail(packed: bytes, kind: str, key: bytes | None = None) -> bytes:
    """Returns a mail with a report as its only part, signed if a key is given."""
    message = EmailMessage(policy=policy.SMTP)
    message["From"], message["To"] = f"DMARC <d@{REPORTER}>", "dmarc@rp.sender.test"
    message["Subject"], message["Date"] = "Report domain: sender.test", formatdate()
    message.set_content(packed, maintype="application", subtype=kind, filename="report")
    content = message.as_bytes()
    return (dkim.sign(content, b"r1", REPORTER.encode(), key) if key else b"") + content


def send(port: int, content: bytes, to: str = "dmarc@rp.sender.test") -> tuple[int, bytes]:
    """Sends one mail; returns the answer to its content."""
    with smtplib.SMTP(LOOPBACK, port, local_hostname="mx.reporter.test", timeout=30) as session:
        session.ehlo()
        assert session.mail(f"d@{REPORTER}")[0] == 250
        refused = session.rcpt(to)
        return session.data(content) if refused[0] == 250 else refused


def counted(service) -> dict[str, int]:
    """Returns the counters by result."""
    address = json.loads((service.data_dir / "addresses.json").read_text())["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    found = re.findall(r'^postrider_dmarc_reports_total\{result="(\w+)"\} (\d+)', page, re.MULTILINE)
    return {result: int(count) for result, count in found if count != "0"}


def test_signed_reports_count_in_every_compression_format(service, reporting, key):
    packings = [("gzip", gzip.compress(report(1))), ("zip", zipped(report(2))), ("xml", report(3))]
    packings.append(("x-zip-compressed", gzip.compress(report(4))))  # As GMX names it.
    for kind, packed in packings:
        assert send(reporting.port, mail(packed, kind, key))[0] == 250
    send(reporting.port, mail(gzip.compress(report(1)), "gzip", key))  # A repetition by its sender.
    send(reporting.port, mail(gzip.compress(report(5)), "gzip"))
    send(reporting.port, mail(gzip.compress(report(6)), "gzip", key), "dmarc@bounces.sender.test")
    wanted = {"counted": 5, "repeated": 1, "unauthentic": 1}
    until("all reports are counted", lambda: counted(service) == wanted)
    found = service.api.get(f"/v1/domains/{service.id}/dmarc")
    assert (found["reports"], found["messages"], found["passed"]) == (5, 600, 600)
    assert [(one["name"], one["messages"]) for one in found["reporters"]] == [("Reporter", 600)]
    [source] = found["sources"]
    assert (source["network"], source["dkim_aligned"], source["spf_aligned"]) == ("192.0.2.0/24", 600, 0)
    listed = service.api.get(f"/v1/domains/{service.id}/dmarc/reports")["data"]
    assert sorted(one["report_id"] for one in listed) == ["1", "2", "3", "4", "5", "6"]
    assert [one["report_id"] for one in listed if not one["authentic"]] == ["5"]
    assert "status=bounced" not in reporting.logged()


def test_oversized_or_invalid_reports_do_not_count_and_a_zip_bomb_is_cheap(service, bounce_port, key):
    assert send(bounce_port, mail(b"x" * 900_000, "octet-stream", key))[0] == 552
    assert counted(service) == {}, "nothing was counted"
    assert send(bounce_port, mail(gzip.compress(report(1)), "gzip", key))[0] == 250
    bomb = gzip.compress(report(2).replace(b"<record>", b"<record>" + b" " * (64 << 20)))
    assert send(bounce_port, mail(bomb, "gzip", key))[0] == 250
    assert send(bounce_port, mail(b"unused", "gzip", key))[0] == 250
    elsewhere = report(3).replace(b"sender.test", b"other.test")
    assert send(bounce_port, mail(gzip.compress(elsewhere), "gzip", key))[0] == 250
    until("each report was processed", lambda: sum(counted(service).values()) == 4)
    assert counted(service) == {"counted": 1, "unreadable": 2, "unknown_domain": 1}
    assert service.api.get(f"/v1/domains/{service.id}/dmarc")["messages"] == 120


def test_the_published_record_directs_reports_to_this_server(service, knot):
    domain = service.api.get(f"/v1/domains/{service.id}")
    [record] = [one for one in domain["records"] if one["name"].startswith("_dmarc.")]
    assert record["value"] == "v=DMARC1; p=none; rua=mailto:dmarc@rp.sender.test"
    assert service.api.get(f"/v1/domains/{service.id}/dmarc")["recommendation"]["action"] == "publish"
    knot.put("_dmarc.sender.test", "TXT", record["value"])
    knot.publish()
    service.api.request("POST", f"/v1/domains/{service.id}/verify")
    found = service.api.get(f"/v1/domains/{service.id}/dmarc")
    assert found["policy"]["p"] == "none" and not found["policy"]["inherited"]
    assert found["recommendation"]["action"] == "wait"
