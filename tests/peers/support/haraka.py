"""A real Haraka (npm) that accepts mail for some addresses and forwards it, with a generated configuration.

A plugin in this file decides where mail goes. If the next server refuses a message, Haraka bounces it. It runs as the
user of the test, in a directory of the test."""

import json
import shutil
from pathlib import Path

from .roots import PEERS, missing
from .wait import free_port, listens, spawn, stop, until

_ROUTES = """\
const routes = {routes};
const route = (recipient, domain) => routes[recipient.address] || routes[domain];
exports.hook_rcpt = function (next, connection, [recipient]) {{
    if (!route(recipient, recipient.host)) return next(DENY, "relay not permitted");
    connection.relaying = true;
    next(OK);
}};
exports.hook_get_mx = function (next, mail, domain) {{
    next(OK, {{ priority: 0, exchange: "127.0.0.1", port: route(mail.todo.rcpt_to[0], domain) }});
}};
"""
# Files that `haraka --install` puts into a new configuration: limits, and the texts of its bounces.
_SHIPPED = (
    "connection.ini",
    "outbound.bounce_message",
    "outbound.bounce_message_html",
    "outbound.bounce_message_image",
)
_SETTINGS = {
    "plugins": "tls\nroutes\n",
    "loglevel": "INFO\n",
    "outbound.ini": "local_mx_ok=true\nenable_tls=false\nalways_split=true\n",
}


class Haraka:
    """A running Haraka that only forwards mail."""

    def __init__(
        self,
        folder: Path,
        certificate: Path,
        routes: dict[str, int],
        host: str = "mx1.recipient.test",
        files: dict[str, str] | None = None,
    ):
        """`routes` names addresses and domains whose mail goes on to another server, by its port on loopback.

        `files` are added to its standard configuration files, or replace them.
        """
        program = PEERS / "haraka" / "node_modules" / "Haraka" / "bin" / "haraka"
        node = shutil.which("node")
        if node is None or not program.exists():
            missing("Haraka")
        self.folder, self.port = folder, free_port()
        for name in ("config", "plugins", "queue"):
            (folder / name).mkdir(parents=True)
        own = {
            "me": host + "\n",
            "smtp.ini": f"listen=127.0.0.1:{self.port}\nnodes=0\n",
            "tls_key.pem": certificate.read_text(),
            "tls_cert.pem": certificate.read_text(),
        }
        shipped = program.parents[1] / "config"
        usual = {name: (shipped / name).read_text() for name in _SHIPPED}
        for name, text in (usual | _SETTINGS | own | (files or {})).items():
            file = folder / "config" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (folder / "plugins" / "routes.js").write_text(_ROUTES.format(routes=json.dumps(routes)))
        with (folder / "output").open("w") as log:
            self.child = spawn([node, str(program), "-c", str(folder)], log)
        try:
            until("Haraka listens", lambda: self.child.poll() is not None or listens(self.port))
            assert self.child.poll() is None
        except AssertionError:
            self.close()
            raise AssertionError(f"Haraka did not start:\n{self.logged()}") from None

    def logged(self) -> str:
        """Returns Haraka's log so far."""
        return (self.folder / "output").read_text(errors="replace")

    def close(self):
        """Stops Haraka."""
        stop(self.child, seconds=5)
