"""SMTP submission as its clients use it: smtplib over both ports, and raw lines over a socket."""

import json
import smtplib
import socket
import ssl
from pathlib import Path

HOST = "mail.sender.test"
USER = "postrider"


class Door:
    """A `dev` process with [submission] on both kinds of port, and a certificate that verifies for HOST."""

    def __init__(self, dev, authority, more: str = ""):
        file = authority.issue(HOST, "localhost", "127.0.0.1")
        self.root = authority.root
        self.server = dev(
            config=f'hostname = "{HOST}"\n[submission]\nlisten = ["127.0.0.1:0"]\ntls_listen = ["127.0.0.1:0"]\n'
            f'certificate = "{file}"\nkey = "{file}"\n{more}'
        )
        self.key = self.server.info["api_key"]
        addresses = json.loads((Path(self.server.info["data_dir"]) / "addresses.json").read_text())
        self.port, self.tls_port = (int(addresses[name][0].rsplit(":", 1)[1]) for name in ("submission", "submissions"))
        self.dev_port = int(self.server.info["smtp_url"].rsplit(":", 1)[1])

    def context(self) -> ssl.SSLContext:
        """Trusts the test's authority."""
        return ssl.create_default_context(cafile=str(self.root))

    def smtp(self, implicit: bool = True) -> smtplib.SMTP:
        """A session inside TLS."""
        if implicit:
            # smtplib verifies the name that it connects to.
            raw = Lines(self.tls_port)
            session = smtplib.SMTP(timeout=20)
            session._host = HOST
            session.sock = self.context().wrap_socket(raw.sock, server_hostname=HOST)
            session.getreply()
        else:
            session = smtplib.SMTP("127.0.0.1", self.port, timeout=20)
            session._host = HOST
            session.starttls(context=self.context())
        return session

    def logged_in(self, implicit: bool = True) -> smtplib.SMTP:
        """A session that may send."""
        session = self.smtp(implicit)
        session.login(USER, self.key)
        return session


class Lines:
    """A socket that speaks raw SMTP."""

    def __init__(self, port: int):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.rest = b""

    def hear(self) -> str:
        """Returns the next complete answer; empty if the connection was closed."""
        said = ""
        while True:
            while b"\n" not in self.rest:
                more = self.sock.recv(4096)
                if not more:
                    return said
                self.rest += more
            line, self.rest = self.rest.split(b"\n", 1)
            said += line.decode() + "\n"
            if line[3:4] != b"-":
                return said

    def say(self, text: str) -> str:
        """Sends text unchanged and returns the next answer."""
        self.sock.sendall(text.encode())
        return self.hear()

    def is_closed(self) -> bool:
        """Whether the server has closed."""
        return self.hear() == ""
