"""Conditions of alerts, each by its real cause: a record, a certificate, a disk, a clock, a bucket. The webhook of the
operator receives the alert, and its end once the cause is removed."""

import os
import shutil
import signal
import subprocess

import pytest
from support.bucket import Bucket
from support.dmarc_reports import Reporter, send
from support.faketime import WallClock
from support.roots import missing
from support.sinks import AiosmtpdSink
from support.wait import LOOPBACK, free_port, until

HOST = "mail.sender.test"
MIB = 1 << 20
MESSAGE = {"from": "shop@sender.test", "subject": "s", "text": "The text."}


def test_an_address_on_a_block_list_raises_an_alert_until_it_is_removed(begin, operator, knot):
    knot.put("2.0.0.127.list.test", "A", "127.0.0.2")
    knot.put("7.0.0.127.list.test", "A", "127.0.0.4")
    # This list was shut down: it lists every address, so it counts for nothing.
    knot.put("*.dead.test", "A", "127.0.0.2")
    knot.publish()
    service = begin(source="127.0.0.7", alerts={"blocklists": ["list.test", "dead.test"]})
    alert = operator.notified(service, "blocklisted", "opened")
    assert (alert["severity"], alert["subject"]["name"]) == ("critical", "127.0.0.7")
    assert "list.test (127.0.0.4)" in alert["seen"] and "dead.test" not in alert["seen"], alert["seen"]
    assert "CRITICAL: 127.0.0.7 is on a block list" in operator.mailed("block list")
    knot.remove("7.0.0.127.list.test", "A")
    # While a list can't be trusted, an alert stays open.
    knot.remove("*.dead.test", "A")
    knot.put("2.0.0.127.dead.test", "A", "127.0.0.2")
    knot.publish()
    assert operator.notified(service, "blocklisted", "resolved")["id"] == alert["id"]


def test_a_certificate_with_few_days_left_raises_an_alert_until_it_is_renewed(begin, operator, authority):
    file = authority.issue(HOST, days=(-80, 10))
    http = {"listen": [f"{LOOPBACK}:0"], "public_url": f"https://{HOST}"}
    tls = {"mode": "files", "certificate": str(file), "key": str(file)}
    service = begin(http=http, **{"http.tls": tls})
    assert operator.notified(service, "certificate_expiring", "opened")["severity"] == "warning"
    authority.issue(HOST, days=(-88, 2))
    service.child.send_signal(signal.SIGHUP)
    assert operator.notified(service, "certificate_expiring", "worse")["severity"] == "critical"
    authority.issue(HOST)
    service.child.send_signal(signal.SIGHUP)
    assert operator.notified(service, "certificate_expiring", "resolved")["resolved_at"]


def test_a_reverse_name_raises_an_alert_at_the_second_check_until_it_is_right(begin, operator, knot):
    service = begin(source="127.0.0.7")
    ptr = "7.0.0.127.in-addr.arpa"

    def check() -> list[str]:
        knot.publish()
        return service.cli("alert", "check")["opened"]

    assert check() == [], "one failed check is no alert"
    assert len(check()) == 1
    alert = operator.notified(service, "reverse_dns", "opened")
    assert (alert["severity"], alert["subject"]["name"]) == ("critical", "127.0.0.7")
    knot.put(ptr, "PTR", "other.test.")
    knot.put("other.test", "A", "127.0.0.7")
    check()
    assert service.api.get(f"/v1/alerts/{alert['id']}")["severity"] == "warning", "a name that leads back"
    knot.close()
    service.cli("alert", "check")
    assert service.api.get(f"/v1/alerts/{alert['id']}")["resolved_at"] is None, "a failed lookup says nothing"


def test_a_blocked_port_raises_an_alert_at_the_second_check_until_a_server_greets(begin, operator, knot, sink):
    service = begin(port=sink.port)

    def checks(count: int) -> int:
        knot.publish()
        return sum(len(service.cli("alert", "check")["opened"]) for _ in range(count))

    knot.put("1.0.0.127.in-addr.arpa", "PTR", f"{HOST}.")
    knot.put(HOST, "A", LOOPBACK)
    assert checks(3) == 0, "no name of the providers resolves"
    # Nothing listens at this address.
    knot.mail_server("gmail.com", "mx.gmail.com", "127.0.0.9")
    assert checks(1) == 0
    assert checks(1) == 1
    alert = operator.notified(service, "port25_blocked", "opened")
    assert (alert["severity"], alert["subject"]) == ("critical", None)
    knot.mail_server("outlook.com", "mx.outlook.com")
    knot.publish()
    assert operator.notified(service, "port25_blocked", "resolved")["id"] == alert["id"]


def test_a_delivery_shows_that_the_port_is_open(begin, knot, sink):
    service = begin(port=sink.port)
    service.domain("sender.test")
    service.api.settled(service.api.accept(MESSAGE | {"to": "a@recipient.test"})["id"], "delivered")
    knot.mail_server("gmail.com", "mx.gmail.com", "127.0.0.9")
    knot.publish()
    for _ in range(3):
        service.cli("alert", "check")
    assert service.api.get("/v1/alerts?condition=port25_blocked")["data"] == []


def test_a_relay_with_a_foreign_source_raises_an_alert_until_it_delivers(begin, operator, sink):
    service = begin(port=sink.port, source="192.0.2.7")
    service.domain("sender.test")
    message = service.api.accept(MESSAGE | {"to": "a@recipient.test"})["id"]
    alert = operator.notified(service, "relay_failing", "opened")
    assert (alert["severity"], alert["subject"]["name"]) == ("critical", "direct")
    assert service.api.message(message)["status"] in ("queued", "deferred")
    assert service.close() == 0
    service.config.write_text(service.config.read_text().replace("192.0.2.7", LOOPBACK))
    service.start()
    service.api.accept(MESSAGE | {"to": "b@recipient.test"})
    assert operator.notified(service, "relay_failing", "resolved")["id"] == alert["id"]


def test_an_old_backup_raises_an_alert_until_the_next_one(begin, operator, workdir):
    clock = WallClock(workdir)
    service = begin(alerts={"backup_hours": 5})
    assert service.close() == 0
    service.environment = clock.environment
    clock.set("+4h")
    service.start()
    service.cli("alert", "check")
    assert operator.notices("backup_old") == []
    assert service.close() == 0
    clock.set("+6h")
    service.start()
    alert = operator.notified(service, "backup_old", "opened")
    assert (alert["severity"], alert["scope"]) == ("warning", "system")
    service.cli("backup", str(workdir / "backup"))
    assert operator.notified(service, "backup_old", "resolved")["id"] == alert["id"]


@pytest.fixture
def small_disk():
    """Moves the data directory of a stopped service to a disk of 256 MiB."""
    mounted = []

    def move(folder):
        kept = folder.with_name("kept")
        folder.rename(kept)
        folder.mkdir(mode=0o700)
        options = ["-t", "tmpfs", "-o", "size=256m,mode=0700", "tmpfs"]
        if subprocess.run(["mount", *options, str(folder)], check=False, capture_output=True).returncode:
            missing("the right to mount a disk")
        mounted.append(folder)
        for file in kept.iterdir():
            if not file.is_socket():
                shutil.move(file, folder / file.name)

    yield move
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder, left: int):
    """Fills the disk of a folder like another program, except `left` bytes."""
    file = folder / "of-another-program"
    file.unlink(missing_ok=True)
    space = os.statvfs(folder)
    with file.open("wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, space.f_bavail * space.f_frsize - left)


def test_a_disk_that_fills_raises_an_alert_until_there_is_space(begin, operator, small_disk):
    service = begin(limits={"min_free_bytes": 4 * MIB})
    assert service.close() == 0
    small_disk(service.data_dir)
    service.start()
    fill(service.data_dir, left=48 * MIB)
    assert operator.notified(service, "disk_low", "opened")["severity"] == "warning"
    fill(service.data_dir, left=2 * MIB)
    assert operator.notified(service, "disk_low", "worse")["severity"] == "critical"
    (service.data_dir / "of-another-program").unlink()
    assert operator.notified(service, "disk_low", "resolved")["resolved_at"]


class Provider(AiosmtpdSink):
    """A provider that refuses the mail to `blocked@` because of the sender's reputation."""

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802 (aiosmtpd's name)
        """Called by aiosmtpd with each recipient."""
        if address.startswith("blocked"):
            return "550 5.7.1 Our system has detected that this message is likely unsolicited mail"
        return await super().handle_RCPT(server, session, envelope, address, options)


def test_a_provider_that_blocks_raises_an_alert_until_it_accepts_again(begin, operator, knot):
    provider = Provider()
    try:
        knot.mail_server("inbox.test", "mx.google.com")
        service = begin(port=provider.port)
        service.domain("sender.test")

        def answered() -> int:
            [found] = service.api.get("/v1/providers?days=1")["data"] or [None]
            return found["delivered"] + sum(found["bounced"].values()) if found else 0

        def send(names: list[str], total: int):
            for name in names:
                service.api.accept(MESSAGE | {"to": f"{name}@inbox.test"})
            until(f"{total} answers", lambda: answered() == total, 60, every=0.5)

        send([f"u{n}" for n in range(40)] + [f"blocked{n}" for n in range(10)], 50)
        alert = operator.notified(service, "provider_blocking", "opened")
        assert (alert["severity"], alert["scope"], alert["subject"]["name"]) == ("critical", "account", "google")
        send([f"v{n}" for n in range(151)], 201)
        assert operator.notified(service, "provider_blocking", "resolved")["id"] == alert["id"]
    finally:
        provider.close()


def test_a_domain_that_loses_its_key_record_raises_an_alert_until_it_is_back(begin, operator, knot):
    service = begin()
    domain = service.domain("sender.test")
    [record] = [one for one in domain["records"] if one["purpose"] == "dkim" and one["required"]]

    def check() -> str:
        knot.publish()
        return service.api.request("POST", f"/v1/domains/{domain['id']}/verify").json()["status"]

    knot.remove(record["name"], "TXT")
    assert check() == "failing"
    alert = operator.notified(service, "domain_failing", "opened")
    assert (alert["severity"], alert["subject"]["name"]) == ("critical", "sender.test")
    knot.put(record["name"], "TXT", record["value"])
    assert check() == "verified"
    assert operator.notified(service, "domain_failing", "resolved")["id"] == alert["id"]


def test_own_mail_that_fails_dmarc_raises_an_alert_until_the_reports_are_taken_back(begin, operator, knot):
    reporter = Reporter(knot)
    # The service is behind NAT: receivers see the address of its EHLO name.
    knot.put(HOST, "A", "192.0.2.7")
    knot.publish()
    port = free_port()
    service = begin(bounces={"host": "bounces.sender.test", "listen": [f"{LOOPBACK}:{port}"]})
    path = f"/v1/domains/{service.domain('sender.test')['id']}/dmarc"

    def report(number: int, passed: int, failed: int):
        xml = reporter.report(number, "192.0.2.99", passed, failed)
        assert send(port, reporter.mail(xml, "xml"))[0] == 250

    report(1, passed=990, failed=9)
    until("it counts", lambda: service.api.get(path)["messages"] == 999)

    def kind() -> str:
        [source] = service.api.get(path)["sources"]
        assert source["network"] == "192.0.2.0/24"
        return source["kind"]

    assert kind() == "own"
    knot.remove(HOST, "A")
    knot.publish()
    until("the name leads nowhere", lambda: kind() == "authorised")
    knot.put(HOST, "A", "192.0.2.7")
    knot.publish()
    until("the name leads to the source again", lambda: kind() == "own")
    service.cli("alert", "check")
    assert operator.notices("dmarc_own_failing") == [], "fewer than 10 are no alert"
    report(2, passed=0, failed=1)
    alert = operator.notified(service, "dmarc_own_failing", "opened")
    assert (alert["severity"], alert["subject"]["name"]) == ("critical", "sender.test")
    assert "10 of 1000 messages" in alert["seen"], alert["seen"]
    ignored = {"name": reporter.name, "ignored": True}
    assert service.api.request("PATCH", f"{path}/reporters", ignored).status == 200
    assert operator.notified(service, "dmarc_own_failing", "resolved")["id"] == alert["id"]


def test_a_clock_that_jumps_raises_an_alert_until_it_is_right(begin, operator, workdir):
    clock = WallClock(workdir)
    service = begin()
    assert service.close() == 0
    service.environment = clock.environment
    service.start()
    clock.set("+40d")
    # The certificates of the webhook have expired at that time: only the mail arrives.
    until("the clock is doubtful", lambda: service.cli("clock", "show")["state"] == "doubtful")
    assert "CRITICAL" in operator.mailed("clock")
    clock.set("+0")
    alert = operator.notified(service, "clock_doubtful", "resolved")
    assert alert["severity"] == "critical" and alert["resolved_at"]


def test_damage_to_the_store_raises_an_alert_until_a_start_finds_none(begin, operator):
    service = begin()
    service.domain("sender.test")
    service.api.accept(MESSAGE | {"to": "a@recipient.test", "text": "x" * 100_000})
    assert service.close() == 0
    keys = service.data_dir / "content" / "keys"
    whole = keys.read_bytes()
    keys.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    service.start()
    alert = operator.notified(service, "store_damaged", "opened")
    assert alert["severity"] == "critical" and "1 damaged slots of content keys" in alert["seen"]
    # The first start has repaired the slot from its copy.
    assert service.close() == 0
    service.start()
    assert operator.notified(service, "store_damaged", "resolved")["id"] == alert["id"]


@pytest.fixture
def bucket(workdir):
    """A bucket for replication."""
    bucket = Bucket(workdir / "bucket")
    yield bucket
    bucket.close()


def test_a_replica_that_is_refused_or_lags_raises_an_alert_until_it_has_caught_up(begin, operator, bucket):
    service = begin(replica=bucket.section | {"interval_ms": 50, "timeout_seconds": 1})
    service.domain("sender.test")
    assert operator.notices("replica") == []
    bucket.proxy.mode = "slow down"
    service.api.accept(MESSAGE | {"to": "a@recipient.test"})
    alert = operator.notified(service, "replica", "opened", seconds=120)
    assert (alert["severity"], alert["summary"]) == ("warning", "Replication is lagging")
    bucket.proxy.mode = "forbidden"
    assert operator.notified(service, "replica", "worse")["severity"] == "critical"
    bucket.proxy.mode = "honest"
    assert operator.notified(service, "replica", "resolved", seconds=60)["id"] == alert["id"]
