"""A smarthost: aiosmtpd that accepts mail only after TLS and a login."""

import ssl
from pathlib import Path

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from .sinks import Received
from .wait import LOOPBACK, free_port

USER, PASSWORD = "postrider", "s3cret pass"


class Smarthost:
    """Records messages and the passwords received. `implicit` is TLS from the first byte."""

    def __init__(self, certificate: Path, implicit: bool = False):
        self.messages: list[Received] = []
        self.told: list[bytes] = []
        self.port = free_port()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        security = (
            {"ssl_context": context, "auth_require_tls": False}
            if implicit
            else {"tls_context": context, "require_starttls": True}
        )
        self.controller = Controller(
            self,
            hostname=LOOPBACK,
            port=self.port,
            authenticator=self._authenticate,
            auth_required=True,
            **security,
        )
        self.controller.start()

    def _authenticate(self, _server, _session, _envelope, _mechanism, data) -> AuthResult:
        self.told.append(data.password)
        is_right = data.login == USER.encode() and data.password == PASSWORD.encode()
        # `handled=False` makes aiosmtpd answer 535.
        return AuthResult(success=is_right, handled=False)

    async def handle_DATA(self, _server, session, envelope):  # noqa: N802 (aiosmtpd's name)
        """Called by aiosmtpd with a whole message."""
        assert session.authenticated
        self.messages.append(Received(envelope.mail_from, envelope.rcpt_tos, envelope.original_content))
        return "250 2.0.0 taken"

    def close(self):
        """Stops listening."""
        self.controller.stop()
