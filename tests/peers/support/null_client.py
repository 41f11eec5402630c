"""A Postfix that sends all its mail by SMTP submission, like the mail server of a single machine."""

import smtplib
from pathlib import Path

from .pki import Authority
from .postfix import Postfix
from .roots import library_path, missing, private_root
from .submission import HOST, USER


class NullClient(Postfix):
    """A running Postfix whose `relayhost` is Postrider's port 587. It retries every second or two."""

    def __init__(self, folder: Path, authority: Authority, port: int, key: str, settings: dict[str, str] | None = None):
        sasl, root = private_root("sasl"), private_root("postfix")
        if not sasl or not root:
            missing("the private root of postfix or libsasl2-modules")
        environment = {
            "LD_LIBRARY_PATH": library_path(root, "usr/lib/postfix"),
            "MAIL_CONFIG": str(folder / "etc"),
            "SASL_PATH": str(next(sasl.glob("usr/lib/*/sasl2"))),
        }
        super().__init__(
            folder,
            authority.issue("null.test"),
            host="null.test",
            settings={
                "import_environment": " ".join(f"{name}={value}" for name, value in environment.items()),
                "mynetworks": "127.0.0.0/8",
                "smtpd_recipient_restrictions": "permit_mynetworks, reject",
                # Its own reports are treated like any other mail here.
                "virtual_mailbox_domains": "",
                "relayhost": f"[127.0.0.1]:{port}",
                "smtp_sasl_auth_enable": "yes",
                "smtp_sasl_password_maps": f"inline:{{ {{ [127.0.0.1]:{port} = {USER}:{key} }} }}",
                "smtp_sasl_security_options": "noanonymous",
                "smtp_tls_security_level": "secure",
                "smtp_tls_secure_cert_match": HOST,
                "smtp_tls_CAfile": str(authority.root),
                "minimal_backoff_time": "1s",
                "maximal_backoff_time": "2s",
                "queue_run_delay": "1s",
                # A server that does not answer is retried at once, not after a minute.
                "transport_retry_time": "1s",
            }
            | (settings or {}),
        )

    def take(self, recipients: list[str], text: str = "hello", sender: str = "shop@example.test"):
        """Passes it one message, which it acknowledges."""
        with smtplib.SMTP("127.0.0.1", self.port, timeout=20) as session:
            mail = f"From: {sender}\nTo: {', '.join(recipients)}\nSubject: {text}\n\n{text}\n"
            assert session.sendmail(sender, recipients, mail) == {}

    def waiting(self) -> int:
        """Returns the number of messages in its queue."""
        queues = ("maildrop", "incoming", "active", "deferred")
        return sum(1 for queue in queues for file in (self.folder / "queue" / queue).rglob("*") if file.is_file())
