"""Messages by SMTP submission (contract of submission 4 and 5), sent by independent clients to the binary."""

import os
import shutil
import signal
import smtplib
import subprocess
from email.message import EmailMessage

import pytest
from support.probes import submit_with_swaks
from support.roots import missing, private_root
from support.submission import HOST, USER, Door
from support.wait import listens, until

BODY = "Grüße aus Köln\n.a leading dot\n" + "x" * 1500 + "\n"


def message(subject: str = "Über SMTP") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Shop <shop@example.test>", "Ann <ann@example.org>", subject
    mail["Bcc"] = "hidden@example.org"
    mail["X-Service-Metadata-orderId"] = "17"
    mail.set_content(BODY)
    return mail


def ids(answer: bytes | str) -> list[str]:
    """Returns the identifiers in an answer to a message."""
    text = answer.decode() if isinstance(answer, bytes) else answer
    lines = [line.removeprefix("2.0.0 ") for line in text.splitlines()]
    assert all(line.startswith("Ok: queued as msg_") for line in lines), text
    return [word for line in lines for word in line.removeprefix("Ok: queued as ").split(" ")]


def submit(session: smtplib.SMTP, recipients: list[str], data: bytes) -> tuple[int, bytes]:
    session.ehlo_or_helo_if_needed()
    assert session.mail("wordpress@localhost")[0] == 250
    for recipient in recipients:
        assert session.rcpt(recipient)[0] == 250
    return session.data(data)


def test_one_message_for_each_recipient_in_the_order_of_rcpt(dev, authority):
    door = Door(dev, authority)
    session = door.logged_in()
    recipients = [f"r{number}@example.org" for number in range(12)]
    code, answer = submit(session, recipients, message().as_bytes())
    assert code == 250
    accepted = ids(answer)
    assert [len(line.split("msg_")) - 1 for line in answer.decode().splitlines()] == [10, 2]
    records = [door.server.api.message(one) for one in accepted]
    assert [record["to"] for record in records] == recipients
    assert accepted == sorted(accepted) and records[0]["metadata"] == {"orderid": "17"}
    assert records[5]["submission"]["first_id"] == accepted[0] and records[5]["submission"]["recipients"] == 12
    assert records[0]["submission"]["tls_version"] in ("TLSv1.2", "TLSv1.3")
    assert door.server.api.settled(accepted[11], "delivered")
    captured = door.server.api.request("GET", f"/dev/mail/{accepted[11]}").body.decode()
    assert "hidden@example.org" not in captured and "X-Service-Metadata" not in captured


def test_bare_line_feeds_are_fixed_and_a_lone_dot_next_to_one_is_refused(dev, authority):
    door = Door(dev, authority)
    session = door.logged_in()
    code, answer = submit(session, ["a@example.org"], b"From: shop@example.test\nSubject: x\n\nline\n..dot\n")
    assert code == 250, answer
    session.mail("a@example.test")
    session.rcpt("a@example.org")
    session.docmd("DATA")
    session.send(b"From: shop@example.test\r\nSubject: x\r\n\r\nevil\n.\nMAIL FROM:<a@b>\r\n.\r\n")
    code, answer = session.getreply()
    assert (code, answer[:5]) == (550, b"5.6.0")
    assert session.noop()[0] == 250, "the session continues"


def test_the_same_mailbox_twice_is_one_message_and_a_suppressed_one_is_refused(dev, authority):
    door = Door(dev, authority)
    assert door.server.api.request("POST", "/v1/suppressions", {"email": "gone@example.org"}).status == 201
    session = door.logged_in()
    session.ehlo("me.test")
    session.mail("a@example.test")
    assert [session.rcpt(to)[0] for to in ("a@example.org", "A@example.org")] == [250, 250]
    refused = session.rcpt("gone@example.org")
    assert refused[0] == 550 and refused[1].startswith(b"5.7.1 ")
    code, answer = session.data(message().as_bytes())
    assert code == 250 and len(ids(answer)) == 1
    listed = door.server.api.get("/v1/submission-refusals")["data"]
    assert listed[0]["stage"] == "rcpt" and listed[0]["to"] == "gone@example.org" and "550 5.7.1" in listed[0]["reply"]
    assert listed[0]["mail_from"] == "a@example.test" and listed[0]["client_name"] == "me.test"


def test_from_must_be_at_a_verified_domain(dev, authority):
    door = Door(dev, authority)
    session = door.logged_in()
    code, answer = submit(session, ["a@example.org"], b"From: a@unknown.example\r\nSubject: x\r\n\r\nx\r\n")
    assert (code, answer[:5]) == (550, b"5.7.1") and b"unknown.example" in answer


@pytest.mark.parametrize("words", [("--tls", "--auth", "PLAIN"), ("--tls", "--auth", "LOGIN"), ("--tls-on-connect", "--auth")])
def test_swaks_submits(dev, authority, words):
    door = Door(dev, authority)
    port = door.tls_port if "--tls-on-connect" in words else door.port
    said = submit_with_swaks(port, "shop@example.test", "a@example.org,b@example.org", door.key, *words)
    assert "Ok: queued as msg_" in said, said


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_curl_submits(dev, authority, workdir, scheme):
    if not shutil.which("curl"):
        missing("curl")
    door = Door(dev, authority)
    port = door.port if scheme == "smtp" else door.tls_port
    file = workdir / "mail.eml"
    # Bare line feeds: curl sends them unchanged without --crlf.
    file.write_text("From: shop@example.test\nTo: a@example.org\nSubject: by curl\n\nhello\n.dot\n")
    command = ["curl", "-sv", "--ssl-reqd", "--cacert", str(door.root), "--resolve", f"{HOST}:{port}:127.0.0.1"]
    command += ["--url", f"{scheme}://{HOST}:{port}", "--user", f"{USER}:{door.key}", "--mail-from", "shop@example.test"]
    command += ["--mail-rcpt", "a@example.org", "--upload-file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "Ok: queued as msg_" in done.stderr, done.stderr


def test_nodemailer_submits(dev, authority, workdir):
    root = private_root("node")
    if not root or not (root / "node_modules/nodemailer").is_dir():
        missing("nodemailer")
    door = Door(dev, authority)
    script = workdir / "send.js"
    script.write_text(
        "const nodemailer = require('nodemailer');\n"
        "const [port, key, ca] = process.argv.slice(2);\n"
        f"const tls = {{ servername: '{HOST}', ca: require('fs').readFileSync(ca) }};\n"
        "const transport = nodemailer.createTransport({ host: '127.0.0.1', port: Number(port), secure: true, tls,\n"
        "  auth: { user: 'postrider', pass: key } });\n"
        "transport.sendMail({ from: 'Shop <shop@example.test>', to: 'a@example.org, gone@example.org', subject: 'Grüße',\n"
        "  text: 'x', headers: { 'X-Service-Metadata-orderId': '17' } }).then((info) => console.log(info.response));\n"
    )
    command = ["node", str(script), str(door.tls_port), door.key, str(door.root)]
    environment = {**os.environ, "NODE_PATH": str(root / "node_modules")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 0 and "250 2.0.0 Ok: queued as msg_" in done.stdout, done.stderr


def test_msmtp_submits(dev, authority, workdir):
    root = private_root("msmtp")
    found = root / "usr/bin/msmtp" if root else shutil.which("msmtp")
    if not found:
        missing("msmtp")
    door = Door(dev, authority)
    config = workdir / "msmtprc"
    config.write_text(
        f"account default\nhost 127.0.0.1\nport {door.port}\ntls on\ntls_starttls on\ntls_trust_file {door.root}\n"
        f"tls_host_override {HOST}\nauth plain\nuser {USER}\npassword {door.key}\nfrom shop@example.test\n"
    )
    config.chmod(0o600)
    libraries = ":".join(map(str, root.glob("usr/lib/*-linux-gnu*"))) if root else ""
    done = subprocess.run(
        [str(found), "-C", str(config), "--debug", "a@example.org", "b@example.org"],
        input="Subject: by msmtp\n\nhello\n",
        env={"LD_LIBRARY_PATH": libraries, "HOME": str(workdir), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "Ok: queued as msg_" in done.stdout + done.stderr, done


def test_a_key_that_is_revoked_after_mail_sends_nothing(dev, authority):
    door = Door(dev, authority)
    sessions = [door.logged_in() for _ in range(2)]
    for session in sessions:
        session.ehlo("me.test")
        assert session.mail("wordpress@localhost")[0] == 250
    assert sessions[1].rcpt("someone@example.org")[0] == 250
    key = door.server.api.get("/v1/me")["key"]["id"]
    assert door.server.api.request("DELETE", f"/v1/keys/{key}").status == 204
    code, answer = sessions[0].rcpt("someone@example.org")
    assert (code, answer[:5]) == (530, b"5.7.0")
    code, answer = sessions[1].data(message().as_bytes())
    assert (code, answer[:5]) == (530, b"5.7.0")


def test_a_disconnect_after_the_final_dot_cancels_nothing(dev, authority):
    door = Door(dev, authority)
    session = door.logged_in()
    session.ehlo("me.test")
    session.mail("a@example.test")
    session.rcpt("a@example.org")
    session.docmd("DATA")
    session.send(message().as_bytes().replace(b"\n", b"\r\n") + b".\r\n")
    session.sock.close()
    until("it is accepted", lambda: len(door.server.api.get("/v1/messages?via=smtp")["data"]) == 1, 20)


def test_a_message_in_progress_finishes_at_a_shutdown(dev, authority):
    door = Door(dev, authority)
    session = door.logged_in()
    session.ehlo("me.test")
    session.mail("a@example.test")
    session.rcpt("a@example.org")
    session.docmd("DATA")
    door.server.child.send_signal(signal.SIGTERM)
    until("the listener is closed", lambda: not listens(door.port), 20)
    session.send(b"From: shop@example.test\r\nSubject: x\r\n\r\nx\r\n.\r\n")
    assert session.getreply()[0] == 250
    assert session.getreply()[0] == 421


def test_a_session_keeps_its_login_after_ehlo_and_accepts_several_messages(dev, authority):
    door = Door(dev, authority)
    session = door.logged_in()
    for number in range(30):
        session.ehlo("me.test")
        code, answer = submit(session, [f"r{number}@example.org"], message().as_bytes())
        assert code == 250, answer
        assert session.noop()[0] == 250 and session.rset()[0] == 250
