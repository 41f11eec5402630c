"""The doctor's checks of a server whose whole environment is knot, aiosmtpd and an https server (contract 8)."""

import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from support.server import binary
from support.wait import free_port

HOST = "mail.sender.test"
RELAY = '[[relay]]\nname = "direct"\nkind = "mx"\nsource = ["127.0.0.1"]\n'
POLICY = f"version: STSv1\r\nmode: enforce\r\nmx: {HOST}\r\nmax_age: 86400\r\n"


def examined(server, *, code: int) -> dict[str, dict]:
    """Returns the checks of `doctor --json` by name; every problem must come with advice."""
    text = server.config.read_text()
    if RELAY not in text:
        server.config.write_text(text + RELAY)
    command = [binary(), "doctor", "--json", "--config", str(server.config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    checks = json.loads(done.stdout)["checks"]
    assert all(set(check) == {"name", "verdict", "seen", "remedy"} for check in checks)
    assert all(check["remedy"] or check["verdict"] == "OK" for check in checks)
    return {check["name"]: check for check in checks}


def well_known(knot):
    """Correct DNS: the server's own names in both directions, and a large receiver that sends a greeting."""
    knot.put(HOST, "A", "127.0.0.1")
    knot.put(HOST, "TXT", "v=spf1 a -all")
    knot.put("1.0.0.127.in-addr.arpa", "PTR", f"{HOST}.")
    knot.mail_server("gmail.com", "mx.gmail.com")
    knot.publish()


@pytest.fixture
def policy_host(authority):
    """An https server with the MTA-STS policy of the server's own domain."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802 (http.server's name)
            self.send_response(200 if self.path == "/.well-known/mta-sts.txt" else 404)
            self.send_header("Content-Length", str(len(POLICY)))
            self.end_headers()
            self.wfile.write(POLICY.encode())

        def log_message(self, *_):
            """Silent."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue(f"mta-sts.{HOST}"))
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_a_correct_setup_has_no_failures(serve, knot, sink, policy_host):
    well_known(knot)
    knot.put(f"_mta-sts.{HOST}", "TXT", "v=STSv1; id=1")
    knot.put(f"mta-sts.{HOST}", "A", "127.0.0.1")
    knot.publish()
    server = serve(sink.port, delivery={"mta_sts_port": policy_host})
    domain = server.domain("sender.test")
    for record in domain["records"]:
        knot.put(record["name"], record["type"], record["value"])
    knot.publish()
    checks = examined(server, code=0)
    for name in (
        "resolver",
        "forward DNS",
        "EHLO name",
        "reverse DNS",
        f"SPF of {HOST}",
        f"port {sink.port}",
        f"MTA-STS of {HOST}",
        "service",
        "data directory",
        "master key",
        "disk",
        "certificate",
        "DKIM of sender.test",
        "SPF of sender.test",
        "DMARC of sender.test",
        "return path of sender.test",
    ):
        assert checks[name]["verdict"] == "OK", checks[name]
    # knot's root is not signed here, and there is no trust anchor, which the doctor reports.
    assert checks["DNSSEC"]["verdict"] == "WARN"


def test_each_problem_is_reported_with_its_remedy(serve, knot, sink):
    well_known(knot)
    server = serve(sink.port)
    server.domain("sender.test")
    knot.put("1.0.0.127.in-addr.arpa", "PTR", "dynamic.host.test.")
    knot.put(HOST, "TXT", "v=spf1 a -all", "v=spf1 mx -all")
    knot.put(f"_mta-sts.{HOST}", "TXT", "v=STSv1; id=1")
    for name, kind in list(knot.records):
        if "_domainkey" in name:
            knot.remove(name, kind)
    knot.publish()
    (server.data_dir / "master.key").chmod(0o644)
    checks = examined(server, code=7)
    assert checks["reverse DNS"]["verdict"] == "FAIL" and HOST in checks["reverse DNS"]["remedy"]
    assert checks[f"SPF of {HOST}"]["verdict"] == "FAIL"
    assert checks[f"MTA-STS of {HOST}"]["verdict"] == "FAIL"
    assert checks["master key"]["verdict"] == "FAIL" and "0600" in checks["master key"]["remedy"]
    assert checks["DKIM of sender.test"]["verdict"] in ("FAIL", "WARN")
    assert checks["SPF of sender.test"]["verdict"] == "WARN" and "v=spf1" in checks["SPF of sender.test"]["remedy"]


def test_a_blocked_port_suggests_a_smarthost(serve, knot):
    well_known(knot)
    port = free_port()
    server = serve(port)
    server.close()
    checks = examined(server, code=7)
    blocked = checks[f"port {port}"]
    assert blocked["verdict"] == "FAIL" and "smarthost" in blocked["remedy"]
    assert checks["service"]["verdict"] == "WARN"
    command = [binary(), "doctor", "--config", str(server.config)]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    line = next(line for line in text.splitlines() if f"port {port}" in line)
    assert line.startswith("FAIL ") and "smarthost" in line


def test_bounces_require_an_mx_record_to_this_server(serve, knot, sink):
    well_known(knot)
    server = serve(sink.port, bounces={"host": "bounces.sender.test", "listen": ["127.0.0.1:0"]})
    checks = examined(server, code=7)
    assert checks["bounces"]["verdict"] == "FAIL" and "MX" in checks["bounces"]["remedy"]
    knot.put("bounces.sender.test", "MX", f"10 {HOST}.")
    knot.publish()
    checks = examined(server, code=0)
    assert checks["bounces"]["verdict"] == "OK", checks["bounces"]


def test_a_name_with_a_private_address_is_a_failure(serve, knot, sink):
    well_known(knot)
    knot.put(HOST, "A", "10.1.2.3")
    knot.publish()
    server = serve(sink.port)
    checks = examined(server, code=7)
    assert checks["bounces"]["verdict"] == "WARN"
    assert checks["forward DNS"]["verdict"] == "FAIL" and "10.1.2.3" in checks["forward DNS"]["seen"]


def test_submission_is_checked_like_a_client(serve, knot, sink, authority):
    well_known(knot)
    file, (port, tls_port) = str(authority.issue(HOST)), (free_port(), free_port())
    listening = {"listen": [f"127.0.0.1:{port}"], "tls_listen": [f"127.0.0.1:{tls_port}"]}
    server = serve(sink.port, submission={**listening, "certificate": file, "key": file})
    checks = examined(server, code=0)
    assert [checks[name]["verdict"] for name in listening_names()] == ["OK", "OK"], checks
    server.close()
    stranger = str(authority.self_signed(HOST))
    server.config.write_text(server.config.read_text().replace(file, stranger))
    server.start()
    checks = examined(server, code=7)
    assert all(checks[name]["verdict"] == "FAIL" and "TLS" in checks[name]["seen"] for name in listening_names())
    server.close()
    checks = examined(server, code=7)
    assert all("cannot connect" in checks[name]["seen"] for name in listening_names())


def listening_names() -> tuple[str, str]:
    """Returns the checks of submission."""
    return ("submission", "submissions")
