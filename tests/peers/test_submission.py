"""SMTP submission (contract of submission 1 to 4, 7 and 8): listeners, logins, limits, over real sockets and TLS."""

import base64
import signal
import smtplib
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.roots import binary
from support.submission import HOST, USER, Door, Lines
from support.wait import free_port, until

COMMON = ["PIPELINING", "SIZE 20971520", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "LIMITS RCPTMAX=100"]


def plain(password: str) -> str:
    return base64.b64encode(f"\0{USER}\0{password}".encode()).decode()


def extensions(session: smtplib.SMTP) -> set[str]:
    code, text = session.ehlo("me.test")
    assert code == 250
    return set(text.decode().split("\n")[1:])


def test_each_port_lists_exactly_its_extensions(dev, authority):
    door = Door(dev, authority)
    clear = smtplib.SMTP("127.0.0.1", door.port, timeout=20)
    assert extensions(clear) == {*COMMON, "STARTTLS"}
    for session in (door.smtp(), door.smtp(implicit=False)):
        assert extensions(session) == {*COMMON, "AUTH PLAIN LOGIN"}
        assert session.sock.version() in ("TLSv1.2", "TLSv1.3")
    assert extensions(smtplib.SMTP("127.0.0.1", door.dev_port, timeout=20)) == {*COMMON, "AUTH PLAIN LOGIN"}


def test_a_key_logs_in_at_both_ports_by_both_mechanisms(dev, authority):
    door = Door(dev, authority)
    for implicit in (True, False):
        for mechanism in ("auth_plain", "auth_login"):
            session = door.smtp(implicit)
            session.ehlo("me.test")
            session.user, session.password = USER, f" {door.key} "
            code, _ = session.auth(mechanism[5:].upper(), getattr(session, mechanism))
            assert code == 235
            assert session.mail("wordpress@localhost")[0] == 250
            assert session.rcpt("someone@example.org")[0] == 250


def test_a_login_and_mail_need_tls(dev, authority):
    door = Door(dev, authority)
    lines = Lines(door.port)
    assert lines.hear().startswith(f"220 {HOST} ")
    lines.say("EHLO me.test\r\n")
    assert lines.say(f"AUTH PLAIN {plain(door.key)}\r\n").startswith("538 5.7.11 ")
    assert lines.say("MAIL FROM:<a@example.test>\r\n").startswith("530 5.7.0 ")


def test_failed_logins_are_slow_and_throttled_but_a_valid_key_always_works(dev, authority):
    door = Door(dev, authority, "failed_logins = 4\n")
    strange = door.key[:-4] + ("aaaa" if door.key[-4:] != "aaaa" else "bbbb")
    seen = []
    for _ in range(2):
        session = door.smtp()
        session.ehlo("me.test")
        for _ in range(3):
            began = time.monotonic()
            seen.append(session.docmd("AUTH", f"PLAIN {plain(strange)}")[0])
            assert time.monotonic() - began >= 0.9
            if seen[-1] == 421:
                break
    # The third failure of a session; then the first session that finds four failures.
    assert seen[:3] == [535, 535, 421] and seen[-1] == 421 and 535 in seen[3:-1], seen
    door.logged_in().quit()
    metrics = door.server.logged()
    assert strange not in metrics and door.key not in metrics


@pytest.mark.parametrize("password", ["", "placeholder", "pr_live_short"])
def test_a_malformed_key_fails_like_an_unknown_one(dev, authority, password):
    door = Door(dev, authority)
    session = door.smtp()
    with pytest.raises(smtplib.SMTPAuthenticationError) as refused:
        session.login(USER, password)
    assert refused.value.smtp_code == 535 and refused.value.smtp_error.startswith(b"5.7.8 ")


def test_connections_are_limited_in_total_by_address_and_by_key(dev, authority):
    door = Door(dev, authority, "connections = 3\nconnections_per_key = 1\n")
    first = door.logged_in()
    second = door.smtp()
    with pytest.raises((smtplib.SMTPServerDisconnected, smtplib.SMTPAuthenticationError)) as refused:
        second.login(USER, door.key)
    assert refused.type is smtplib.SMTPServerDisconnected or refused.value.smtp_code == 421
    second.close()
    held = [Lines(door.port), Lines(door.port)]
    assert all(lines.hear().startswith("220 ") for lines in held)
    turned_away = Lines(door.port)
    assert turned_away.hear().startswith("421 4.7.0 ") and turned_away.is_closed()
    assert Lines(door.tls_port).is_closed(), "without an answer"
    first.quit()


def test_an_idle_or_unauthenticated_client_is_disconnected(dev, authority):
    door = Door(dev, authority, "login_seconds = 1\nidle_seconds = 2\n")
    lines = Lines(door.port)
    lines.hear()
    assert lines.hear().startswith("421 4.4.2 ") and lines.is_closed()
    session = door.logged_in()
    began = time.monotonic()
    assert session.getreply()[0] == 421 and time.monotonic() - began > 1.5


def test_commands_pipelined_after_starttls_end_the_session(dev, authority):
    door = Door(dev, authority)
    lines = Lines(door.port)
    lines.hear()
    lines.say("EHLO me.test\r\n")
    assert lines.say("STARTTLS\r\nEHLO evil.test\r\n").startswith("503 5.5.1 ") and lines.is_closed()


def test_a_renewed_certificate_is_presented(dev, authority):
    door = Door(dev, authority)

    def serial() -> str:
        return door.smtp().sock.getpeercert()["serialNumber"]

    first = serial()
    authority.issue(HOST)
    until("the new certificate is presented", lambda: serial() != first, 15, every=0.2)


def test_dev_s_listener_accepts_mail_without_login_or_with_placeholders(dev):
    server = dev()
    port = int(server.info["smtp_url"].removeprefix("smtp://127.0.0.1:"))
    with smtplib.SMTP("127.0.0.1", port, timeout=20) as session:
        session.helo("me.test")
        assert session.mail("a@example.test")[0] == 250 and session.rcpt("b@example.org")[0] == 250
    with smtplib.SMTP("127.0.0.1", port, timeout=20) as session:
        assert session.login("any", "placeholder")[0] == 235
    with smtplib.SMTP("127.0.0.1", port, timeout=20) as session:
        session.ehlo("me.test")
        with pytest.raises(smtplib.SMTPAuthenticationError):
            session.login("any", server.info["api_key"][:-4] + "0000")
    other = dev()
    assert other.info["smtp_url"] != server.info["smtp_url"], "its port was taken"


def test_outcomes_are_counted(dev, authority):
    port = free_port()
    door = Door(dev, authority, f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
    session = door.logged_in()
    session.mail("a@example.test")
    assert session.rcpt("not an address")[0] == 553
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read().decode()
    for line in (
        "postrider_submission_sessions 1",
        'postrider_submission_logins_total{outcome="ok"} 1',
        'postrider_submission_refusals_total{stage="rcpt",code="553"} 1',
        "postrider_submission_messages_total 0",
        "postrider_submission_duration_seconds_count 0",
    ):
        assert line in page, page
    session.quit()


def test_a_shutdown_is_announced_between_commands(dev, authority):
    door = Door(dev, authority)
    session = door.logged_in()
    with ThreadPoolExecutor() as pool:
        heard = pool.submit(session.getreply)
        door.server.child.send_signal(signal.SIGTERM)
        code, text = heard.result(20)
    assert code == 421 and text.startswith(b"4.3.2 ")


def test_listening_without_a_certificate_is_a_configuration_error(workdir):
    config = workdir / "postrider.toml"
    config.write_text(
        f'hostname = "{HOST}"\n[http.tls]\nmode = "off"\n[submission]\nlisten = ["127.0.0.1:0"]\n', encoding="utf-8"
    )
    command = [binary(), "config", "check", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and "submission.certificate" in done.stdout + done.stderr, done
