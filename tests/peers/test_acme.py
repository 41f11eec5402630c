"""Certificates from an ACME authority: pebble, over loopback, for `serve` as installed (contract 8)."""

import json
import smtplib
import socket
import ssl
import subprocess
import time

import pytest
from support.pebble import Pebble
from support.server import binary
from support.wait import LOOPBACK, free_port, until

HOST, PANEL, BOUNCES = "mail.sender.test", "panel.sender.test", "bounces.sender.test"


@pytest.fixture
def pebble(workdir, knot, authority):
    """Creates the authority; the test starts it."""
    made = []

    def make(**options) -> Pebble:
        made.append(Pebble(workdir / "pebble", knot, authority, **options))
        for name in (HOST, BOUNCES):
            knot.put(name, "A", LOOPBACK)
        knot.publish()
        return made[-1]

    yield make
    for authority_ in made:
        authority_.close()


def asking(serve, pebble, authority, tls_port: int, public_url: str = f"https://{HOST}", **more):
    """A server that uses this authority and listens where the authority connects."""
    http = {"listen": [f"{LOOPBACK}:{tls_port}"], "public_url": public_url}
    tls = {"mode": "acme", "directory": pebble.directory, "extra_roots": str(authority.root)}
    tls["contact"] = "hostmaster@sender.test"
    return serve(1, **{"http": http, "http.tls": tls, "log": {"level": "debug"}}, **more)


def presented(port: int, root=None, name: str = HOST) -> dict | None:
    """Returns the certificate at a port if it verifies for `name` under `root`; any certificate if no root is given."""
    context = ssl.create_default_context(cafile=str(root)) if root else ssl._create_unverified_context()
    try:
        with socket.create_connection((LOOPBACK, port), timeout=5) as stream:
            with context.wrap_socket(stream, server_hostname=name) as secured:
                secured.sendall(f"GET /healthz HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
                assert secured.recv(100).startswith(b"HTTP/1.1 200")
                return secured.getpeercert() or {"serialNumber": None}
    except (ssl.SSLError, ConnectionError):
        return None


def issued(port: int, root, seconds: float = 30.0) -> dict:
    """Waits for a certificate and returns it."""
    return until("a certificate is presented", lambda: presented(port, root), seconds, every=0.1)


def names(certificate: dict) -> set[str]:
    return {name for _, name in certificate["subjectAltName"]}


def doctor(server) -> dict:
    """Returns the doctor's check of the certificate."""
    command = [binary(), "doctor", "--json", "--config", str(server.config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "certificate")


def metrics(server) -> dict[str, float]:
    """The certificate's metrics."""
    address = json.loads((server.data_dir / "addresses.json").read_text())["metrics"]
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as stream:
        stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: stream.recv(65536), b"")).decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("postrider_certificate_")]
    return {name: float(value) for name, value in lines}


def test_tls_alpn_01_issues_a_certificate_for_every_name_and_mail_presents_it_too(serve, pebble, authority):
    ca, bounces = pebble(), free_port()
    ca.start()
    root = ca.root()
    section = {"host": BOUNCES, "listen": [f"{LOOPBACK}:{bounces}"]}
    server = asking(serve, ca, authority, ca.tls_port, bounces=section)
    certificate = issued(ca.tls_port, root)
    assert names(certificate) == {HOST, BOUNCES}
    with smtplib.SMTP(LOOPBACK, bounces, timeout=10) as smtp:
        smtp._host = BOUNCES
        smtp.starttls(context=ssl.create_default_context(cafile=str(root)))
        assert smtp.sock.getpeercert()["serialNumber"] == certificate["serialNumber"]
    assert doctor(server)["verdict"] == "OK", doctor(server)
    told = metrics(server)
    assert told['postrider_certificate_orders_total{result="issued"}'] == 1
    assert told["postrider_certificate_expiry_timestamp_seconds"] > time.time()
    kept = server.data_dir / "acme"
    assert {file.name for file in kept.iterdir()} == {"account.key", "certificate.pem", "status.json"}
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in kept.iterdir())
    assert "tls-alpn-01" in server.logged() and kept.stat().st_mode & 0o777 == 0o700


def test_a_restart_keeps_the_certificate_without_a_request(serve, pebble, authority):
    ca = pebble()
    ca.start()
    root = ca.root()
    server = asking(serve, ca, authority, ca.tls_port)
    first = issued(ca.tls_port, root)
    server.kill()
    ca.close()
    server.start()
    assert presented(ca.tls_port, root)["serialNumber"] == first["serialNumber"], "without the authority"
    assert doctor(server)["verdict"] == "OK"


def test_http_01_is_used_if_port_443_is_not_forwarded(serve, pebble, authority):
    """The first challenge is refused; the second follows at once, over the same listener, without TLS."""
    ca = pebble()
    ca.http_port = free_port()
    ca.start()
    root = ca.root()
    server = asking(serve, ca, authority, ca.http_port)
    assert presented(ca.http_port) is not None, "a self-signed certificate is presented until then"
    assert presented(ca.http_port, root) is None
    until("doctor reports a refusal", lambda: doctor(server)["verdict"] == "FAIL", 20)
    assert HOST in doctor(server)["seen"] and "SIGHUP" in doctor(server)["remedy"]
    assert names(issued(ca.http_port, root)) == {HOST}
    assert 'way="http-01"' in server.logged()
    assert metrics(server)['postrider_certificate_orders_total{result="refused"}'] == 1


def test_a_name_that_resolves_elsewhere_does_not_block_the_other_names(serve, pebble, authority, knot):
    ca, bounces = pebble(), free_port()
    knot.remove(BOUNCES, "A")
    knot.publish()
    ca.start()
    root = ca.root()
    section = {"host": BOUNCES, "listen": [f"{LOOPBACK}:{bounces}"]}
    server = asking(serve, ca, authority, ca.tls_port, bounces=section)
    assert names(issued(ca.tls_port, root)) == {HOST}
    until("doctor reports the other name", lambda: doctor(server)["verdict"] == "WARN")
    assert BOUNCES in doctor(server)["seen"]
    told = [line for line in server.logged().splitlines() if "left_out" in line]
    assert len(told) == 1 and f'left_out=["{BOUNCES}"]' in told[0], server.logged()
    knot.put(BOUNCES, "A", LOOPBACK)
    knot.publish()
    server.child.send_signal(1)  # SIGHUP: the operator requests an attempt
    until("it has all names", lambda: names(presented(ca.tls_port, root) or {"subjectAltName": []}) == {HOST, BOUNCES})
    assert doctor(server)["verdict"] == "OK"


def test_two_names_that_resolve_elsewhere_do_not_block_the_others(serve, pebble, authority, knot):
    """The authority ends an order at the first name that it can't validate; another order finds the second."""
    ca, bounces = pebble(), free_port()
    knot.remove(BOUNCES, "A")
    knot.publish()
    ca.start()
    section = {"host": BOUNCES, "listen": [f"{LOOPBACK}:{bounces}"]}
    server = asking(serve, ca, authority, ca.tls_port, bounces=section, public_url=f"https://{PANEL}")
    assert names(issued(ca.tls_port, ca.root())) == {HOST}
    until("doctor reports the other names", lambda: doctor(server)["verdict"] == "WARN")
    assert BOUNCES in doctor(server)["seen"] and PANEL in doctor(server)["seen"]


def test_a_name_that_the_authority_rejects_does_not_block_the_others(serve, pebble, authority):
    """The authority refuses the order at once, and names the reason only in its sentence."""
    ca, bounces = pebble(refused=(BOUNCES,)), free_port()
    ca.start()
    section = {"host": BOUNCES, "listen": [f"{LOOPBACK}:{bounces}"]}
    server = asking(serve, ca, authority, ca.tls_port, bounces=section)
    assert names(issued(ca.tls_port, ca.root())) == {HOST}
    until("doctor reports the other name", lambda: doctor(server)["verdict"] == "WARN")
    assert BOUNCES in doctor(server)["seen"]


def test_an_unavailable_authority_does_not_stop_the_start_and_is_retried(serve, pebble, authority):
    ca = pebble()
    server = asking(serve, ca, authority, ca.tls_port)
    assert presented(ca.tls_port) is not None
    until("doctor reports the failure", lambda: doctor(server)["verdict"] == "FAIL")
    assert "http.tls.directory" in doctor(server)["remedy"]
    assert metrics(server)['postrider_certificate_orders_total{result="unreached"}'] == 1
    ca.start()
    issued(ca.tls_port, ca.root())
    assert doctor(server)["verdict"] == "OK"


def test_a_certificate_is_renewed_after_two_thirds_of_its_life_without_dropping_connections(serve, pebble, authority):
    ca = pebble(life_s=12)
    ca.start(PEBBLE_WFE_NONCEREJECT="10")
    root = ca.root()
    asking(serve, ca, authority, ca.tls_port)
    first = issued(ca.tls_port, root)
    context = ssl.create_default_context(cafile=str(root))
    with socket.create_connection((LOOPBACK, ca.tls_port), timeout=5) as stream:
        with context.wrap_socket(stream, server_hostname=HOST) as kept:
            began = time.monotonic()

            def renewed():
                seen = presented(ca.tls_port, root)
                return seen and seen["serialNumber"] != first["serialNumber"]

            until("another certificate is presented", renewed, 25, every=0.2)
            assert time.monotonic() - began > 4, "not renewed too early"
            kept.sendall(f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            assert kept.recv(100).startswith(b"HTTP/1.1 200"), "an open connection continues"


def test_an_order_continues_after_a_kill_at_any_moment(serve, pebble, authority):
    """After a kill at any moment, there is one account, and an unfinished order is completed instead of a new one."""
    ca = pebble()
    ca.http_port = ca.tls_port
    ca.start(PEBBLE_VA_NOSLEEP="0", PEBBLE_VA_SLEEPTIME="2", PEBBLE_WFE_NONCEREJECT="0")
    root = ca.root()
    server = asking(serve, ca, authority, ca.tls_port)
    server.kill()
    for tenths in range(1, 9):
        server.stumble(tenths / 10)
    server.start()
    issued(ca.tls_port, root, 60)
    until("doctor reports no problem", lambda: doctor(server)["verdict"] == "OK")
    log = ca.logged()
    assert "There are now 1 accounts in memory" in log and "There are now 2 accounts" not in log
    assert log.count("Issued certificate serial") == 1, log
