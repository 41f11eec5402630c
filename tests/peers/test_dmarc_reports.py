"""DMARC reports to the real listener: compressed as receivers do, signed by dkimpy, sent by a Postfix (RFC 7489, RFC
9990)."""

import gzip
import io
import json
import re
import urllib.request
import zipfile

import pytest
from support.dmarc_reports import DOMAIN, Reporter, send
from support.postfix import Postfix
from support.wait import LOOPBACK, free_port, until

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
        domain=DOMAIN,
        host="mx.reporter.test",
        routes={"rp.sender.test": bounce_port, "bounces.sender.test": bounce_port},
        settings=settings,
    )
    yield postfix
    postfix.close()


@pytest.fixture
def reporter(knot):
    """The receiver that wrote the reports."""
    return Reporter(knot)


def zipped(xml: bytes) -> bytes:
    """A zip archive of one report."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.xml", xml)
    return packed.getvalue()


def counted(service) -> dict[str, int]:
    """Returns the counters by result."""
    address = json.loads((service.data_dir / "addresses.json").read_text())["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    found = re.findall(r'^postrider_dmarc_reports_total\{result="(\w+)"\} (\d+)', page, re.MULTILINE)
    return {result: int(count) for result, count in found if count != "0"}


def test_signed_reports_of_a_postfix_count_in_every_packing(service, reporting, reporter):
    packings = [("gzip", gzip.compress(reporter.report(1))), ("zip", zipped(reporter.report(2))), ("xml", reporter.report(3))]
    packings.append(("x-zip-compressed", gzip.compress(reporter.report(4))))  # As GMX names it.
    for kind, packed in packings:
        assert send(reporting.port, reporter.mail(packed, kind))[0] == 250
    send(reporting.port, reporter.mail(gzip.compress(reporter.report(1)), "gzip"))  # A repetition by its sender.
    send(reporting.port, reporter.mail(gzip.compress(reporter.report(5)), "gzip", signed=False))
    send(reporting.port, reporter.mail(gzip.compress(reporter.report(6)), "gzip"), "dmarc@bounces.sender.test")
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


def test_an_oversized_or_missing_report_counts_nothing_and_a_bomb_costs_little(service, bounce_port, reporter):
    assert send(bounce_port, reporter.mail(b"x" * 900_000, "octet-stream"))[0] == 552
    assert counted(service) == {}, "nothing was taken"
    assert send(bounce_port, reporter.mail(gzip.compress(reporter.report(1)), "gzip"))[0] == 250
    bomb = gzip.compress(reporter.report(2).replace(b"<record>", b"<record>" + b" " * (64 << 20)))
    assert send(bounce_port, reporter.mail(bomb, "gzip"))[0] == 250
    assert send(bounce_port, reporter.mail(b"unused", "gzip"))[0] == 250
    elsewhere = reporter.report(3).replace(b"sender.test", b"other.test")
    assert send(bounce_port, reporter.mail(gzip.compress(elsewhere), "gzip"))[0] == 250
    until("each was judged", lambda: sum(counted(service).values()) == 4)
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
