"""The operator to whom alerts are sent: the mailbox of a real Postfix, and a webhook receiver."""

import email
import json
import re
from email.policy import default
from pathlib import Path

from .hooks import HookReceiver
from .pki import Authority
from .postfix import Postfix
from .server import Serve
from .wait import LOOPBACK, until

SECRET = "whsec_" + "a" * 40


class Operator:
    """Receives the alerts of a service that is configured with `relays` and `section`."""

    def __init__(self, folder: Path, authority: Authority, hooks: HookReceiver):
        certificate = authority.issue("mx.operator.test")
        names = {"domain": "operator.test", "host": "mx.operator.test", "mailboxes": ("op",)}
        self.postfix = Postfix(folder, certificate, **names)
        self.hooks = hooks

    def relays(self, source: str = LOOPBACK) -> list[dict]:
        """Relays for `[[relay]]`: direct delivery from `source`, and the operator's server for alerts alone."""
        return [
            {"name": "direct", "kind": "mx", "source": [source], "ehlo": "mail.sender.test"},
            {"name": "rescue", "kind": "smarthost", "host": LOOPBACK, "port": self.postfix.port, "tls": "off", "streams": []},
        ]

    @property
    def section(self) -> dict:
        """The section `[alerts]`."""
        webhook = {"webhook_url": self.hooks.url, "webhook_secret": SECRET}
        return {"email": ["op@operator.test"], "relay": "rescue"} | webhook

    def subjects(self) -> list[str]:
        """Returns the subjects of the alert mails that arrived."""
        found = (read(content) for content in self.postfix.mail("op"))
        return [subject for subject, mail in found if mail["X-Postrider-Alert"]]

    def mailed(self, words: str) -> str:
        """Returns the subject of the mail of an alert, once it has arrived."""
        return until(f"a mail about {words!r}", lambda: next((s for s in self.subjects() if words in s), None), 40, 0.1)

    def notices(self, condition: str) -> list[tuple[str, dict]]:
        """Returns the type and the alert of each webhook request about a condition."""
        bodies = [json.loads(hook.body) for hook in list(self.hooks.received) if b'"alert"' in hook.body]
        return [(body["type"], body["alert"]) for body in bodies if body["alert"]["condition"] == condition]

    def notified(self, service: Serve, condition: str, change: str, seconds: float = 20.0) -> dict:
        """Runs the checks until the webhook has received this change of a condition; returns its last alert."""

        def arrived() -> dict | None:
            service.cli("alert", "check")
            alerts = [alert for kind, alert in self.notices(condition) if kind == f"alert.{change}"]
            return alerts[-1] if alerts else None

        return until(f"the webhook receives {change} of {condition}", arrived, seconds, every=0.2)

    def close(self):
        """Stops the mail server."""
        self.postfix.close()


def read(content: bytes):
    """Returns the subject of a mail, on one line, and the mail."""
    mail = email.message_from_bytes(content, policy=default)
    return re.sub(r"\s+", " ", mail["Subject"]), mail
