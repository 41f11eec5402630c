"""A receiver's DMARC reports (RFC 7489, RFC 9990), with mails signed by dkimpy."""

import base64
import smtplib
from datetime import UTC, datetime, timedelta
from email import policy
from email.message import EmailMessage
from email.utils import formatdate

import dkim
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from .knot import Knot
from .wait import LOOPBACK

DOMAIN = "reporter.test"
_REPORT = """<?xml version="1.0"?>
<feedback xmlns="urn:ietf:params:xml:ns:dmarc-2.0"><version>1.0</version>
<report_metadata><org_name>Reporter</org_name><email>d@{domain}</email><report_id>{number}</report_id>
<date_range><begin>{begin}</begin><end>{end}</end></date_range></report_metadata>
<policy_published><domain>sender.test</domain><p>none</p></policy_published>{records}</feedback>"""
_RECORD = """
<record><row><source_ip>{source}</source_ip><count>{count}</count><policy_evaluated><disposition>none</disposition>
<dkim>{dkim}</dkim><spf>fail</spf></policy_evaluated></row><identifiers><header_from>sender.test</header_from>
</identifiers></record>"""


class Reporter:
    """Reports about sender.test from reporter.test, whose signing key is published in `knot`."""

    name = "Reporter"

    def __init__(self, knot: Knot):
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public = base64.b64encode(private.public_key().public_bytes(serialization.Encoding.DER, form)).decode()
        knot.put(f"r1._domainkey.{DOMAIN}", "TXT", f"v=DKIM1; k=rsa; p={public}")
        knot.publish()
        encoding, traditional = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        self.key = private.private_bytes(encoding, traditional, serialization.NoEncryption())

    def report(self, number: int, source: str = "192.0.2.7", passed: int = 120, failed: int = 0) -> bytes:
        """Returns a report of yesterday about messages from one source."""
        begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
        days = [int(moment.timestamp()) for moment in (begin, begin + timedelta(days=1))]
        counts = [("pass", passed), ("fail", failed)]
        records = [_RECORD.format(source=source, dkim=dkim, count=count) for dkim, count in counts if count]
        records = "".join(records)
        report = _REPORT.format(domain=DOMAIN, number=number, begin=days[0], end=days[1] - 1, records=records)
        return report.encode()

    def mail(self, packed: bytes, kind: str, signed: bool = True) -> bytes:
        """Returns a mail with a report as its only part."""
        message = EmailMessage(policy=policy.SMTP)
        message["From"], message["To"] = f"DMARC <d@{DOMAIN}>", "dmarc@rp.sender.test"
        message["Subject"], message["Date"] = "Report domain: sender.test", formatdate()
        message.set_content(packed, maintype="application", subtype=kind, filename="report")
        content = message.as_bytes()
        return (dkim.sign(content, b"r1", DOMAIN.encode(), self.key) if signed else b"") + content


def send(port: int, content: bytes, to: str = "dmarc@rp.sender.test") -> tuple[int, bytes]:
    """Sends one mail; returns the answer to its content."""
    with smtplib.SMTP(LOOPBACK, port, local_hostname=f"mx.{DOMAIN}", timeout=30) as session:
        session.ehlo()
        assert session.mail(f"d@{DOMAIN}")[0] == 250
        refused = session.rcpt(to)
        return session.data(content) if refused[0] == 250 else refused
