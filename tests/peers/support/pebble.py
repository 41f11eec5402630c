"""Pebble, the ACME test authority of Let's Encrypt (RFC 8555).

It resolves names with the test's name server, and connects to the test's ports instead of 443 and 80. It refuses a
twentieth of its nonces on purpose, and loses its state when it stops."""

import json
import os
import ssl
import urllib.request
from pathlib import Path

from .roots import program
from .wait import LOOPBACK, free_port, listens, spawn, stop, until

HOST = "pebble.test"


class Pebble:
    """A running pebble, which connects to `tls_port` and `http_port`, and issues nothing for the names `refused`."""

    def __init__(
        self, folder: Path, knot, authority, life_s: int = 90 * 86_400, address: str = LOOPBACK, refused: tuple = ()
    ):
        self.address, self.refused = address, refused
        self.folder, self.knot, self.authority, self.life_s, self.child = folder, knot, authority, life_s, None
        folder.mkdir()
        self.port, self.management = free_port(), free_port()
        self.tls_port, self.http_port = free_port(), free_port()
        self.directory = f"https://{HOST}:{self.port}/dir"
        self.pem = authority.issue(HOST, LOOPBACK)
        knot.put(HOST, "A", address)
        knot.publish()

    def start(self, **environment: str):
        """Starts it, without its artificial delays."""
        settings = {
            "listenAddress": f"{self.address}:{self.port}",
            "managementListenAddress": f"{LOOPBACK}:{self.management}",
            "certificate": str(self.pem),
            "privateKey": str(self.pem),
            "tlsPort": self.tls_port,
            "httpPort": self.http_port,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": False,
            "certificateValidityPeriod": self.life_s,
            "domainBlocklist": list(self.refused),
        }
        config = self.folder / "pebble.json"
        config.write_text(json.dumps({"pebble": settings}))
        command, surroundings = program("pebble", "pebble")
        surroundings = (surroundings or os.environ) | {"PEBBLE_VA_NOSLEEP": "1"} | environment
        with (self.folder / "log").open("a") as log:
            self.child = spawn(
                [command, "-config", str(config), "-dnsserver", self.knot.server], log, env=surroundings
            )
        until("pebble listens", lambda: listens(self.port, self.address) and listens(self.management))

    def root(self) -> Path:
        """Returns the root of its certificates, which changes at each start."""
        context = ssl.create_default_context(cafile=str(self.authority.root))
        with urllib.request.urlopen(f"https://{LOOPBACK}:{self.management}/roots/0", context=context) as answer:
            file = self.folder / "root.pem"
            file.write_bytes(answer.read())
        return file

    def logged(self) -> str:
        """Returns its log, over all its starts."""
        return (self.folder / "log").read_text(errors="replace")

    def close(self):
        """Ends it."""
        if self.child:
            stop(self.child)
            self.child = None
