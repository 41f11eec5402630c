"""Independent SMTP clients that probe our receiver: swaks, and Postfix's smtp-source."""

import subprocess

from .roots import library_path, missing, private_root
from .wait import LOOPBACK


def swaks(port: int, sender: str, recipient: str, *more: str) -> str:
    """Returns the dialogue of swaks with a server on loopback, up to RCPT."""
    return _swaks(port, "--from", sender or "<>", "--to", recipient, "--quit-after", "RCPT", *more)


def submit_with_swaks(port: int, sender: str, recipients: str, key: str, *more: str) -> str:
    """Returns the dialogue of swaks that logs in with an API key and submits a message."""
    login = ("--auth-user", "postrider", "--auth-password", key)
    message = ("--header", "Subject: by swaks", "--body", ".a dot\nand text")
    return _swaks(port, "--from", sender, "--to", recipients, *login, *message, *more)


def _swaks(port: int, *options: str) -> str:
    root = private_root("swaks")
    if not root:
        missing("swaks")
    # TLS needs a Perl library that SpamAssassin needs too.
    perl = [place for name in ("swaks", "spamassassin") for place in _perl(name)]
    server = ("--server", LOOPBACK, "--port", str(port), "--helo", "probe.test")
    done = subprocess.run(
        ["perl", str(root / "usr/bin/swaks"), *server, *options],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PERL5LIB": ":".join(map(str, perl))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def _perl(name: str) -> list:
    root = private_root(name)
    if not root:
        missing(f"{name}'s private root")
    return [*root.glob("usr/share/perl5"), *root.glob("usr/lib/*/perl5/5.*"), *root.glob("usr/share/perl/5.*")]


def smtp_source(port: int, recipient: str, messages: int, sessions: int) -> list[str]:
    """Makes smtp-source send messages to one address in concurrent sessions; returns the refusals."""
    root = private_root("postfix")
    if not root:
        missing("Postfix's private root")
    done = subprocess.run(
        [
            *(str(root / "usr/sbin/smtp-source"), "-A", "-M", "probe.test", "-f", "", "-t", recipient),
            *("-s", str(sessions), "-m", str(messages), f"{LOOPBACK}:{port}"),
        ],
        env={"LD_LIBRARY_PATH": library_path(root, "usr/lib/postfix")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [line for line in done.stderr.splitlines() if " 550 " in line]
