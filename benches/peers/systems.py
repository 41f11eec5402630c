"""The systems, each configured to sign and to relay everything to the sink, and otherwise with its defaults.

Deviations from the defaults are needed for 64 kept connections from one address, and are explained at the setting. A
system is created for each row, in a new folder on the measured disk."""

import json
import re
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from keys import SELECTOR, SigningKey
from letters import HOST, SENDING_DOMAIN, SITES
from support import exim, haraka, postfix
from support.knot import Knot
from support.pki import Authority
from support.roots import PEERS, binary, library_path, missing, private_root, program
from support.server import Serve
from support.wait import LOOPBACK, free_port, spawn, stop, until

_NO_LIMIT = 10**9


@dataclass
class World:
    """Shared settings of all systems."""

    knot: Knot
    authority: Authority
    key: SigningKey
    sink_port: int
    clients: int


class Postrider:
    """By SMTP submission. Only the RSA record of its domain is published, so it signs once, as the others do.

    It accepts mail only with TLS and a login, so every connection begins with both."""

    def __init__(self, folder: Path, world: World):
        certificate = str(world.authority.issue(HOST))
        sections = {
            "limits": {"requests_per_minute": _NO_LIMIT},
            "quota": {"per_hour": _NO_LIMIT, "per_day": _NO_LIMIT},
            "submission": {
                "tls_listen": [f"{LOOPBACK}:0"],
                "certificate": certificate,
                "key": certificate,
                # Its defaults are 50 for each.
                "connections_per_address": 2 * world.clients,
                "connections_per_key": 2 * world.clients,
            },
        }
        self.serve = Serve(folder, world.knot, world.authority, world.sink_port, sections)
        self.serve.begin()
        self.serve.domain(SENDING_DOMAIN, algorithms=("rsa-sha256",))
        self.key = self.serve.key
        self.port, self.tls = self._door(world)

    def _door(self, world: World) -> tuple[int, ssl.SSLContext | None]:
        addresses = json.loads((self.serve.data_dir / "addresses.json").read_text())
        port = int(addresses["submissions"][0].rpartition(":")[2])
        return port, ssl.create_default_context(cafile=str(world.authority.root))

    def is_idle(self) -> bool:
        """Whether every message's outcome is recorded."""
        waiting = (self.serve.api.get(f"/v1/messages?status={status}&limit=1") for status in ("queued", "deferred"))
        return not any(page["data"] for page in waiting)

    def logged(self) -> str:
        """Returns its log."""
        return self.serve.logged()

    def close(self):
        """Ends it."""
        self.serve.close()

    def title(self) -> str:
        """Returns its name and version."""
        return f"Postrider {_said(binary(), '--version').split()[1]}"


class PostriderByHttp(Postrider):
    """Over its HTTP API without TLS: it composes the messages itself."""

    def _door(self, world: World) -> tuple[int, ssl.SSLContext | None]:
        return self.serve.api.port, None

    def title(self) -> str:
        """Returns its name and version, and the interface."""
        return f"{super().title()} by HTTP"


_OPENDKIM = """\
Mode s
Domain {domain}
Selector {selector}
KeyFile {key}
Socket local:{socket}
UMask 000
Canonicalization relaxed/relaxed
OversignHeaders From
Syslog no
RequireSafeKeys no
"""


class Postfix:
    """With OpenDKIM as its milter on a Unix socket, and the sink as its relay host."""

    key = tls = None

    def __init__(self, folder: Path, world: World):
        folder.mkdir(mode=0o711)
        socket, self.log = folder / "dkim", (folder / "opendkim.log").open("w")
        conf = folder / "opendkim.conf"
        key = world.key.write(folder / "key.pem")
        conf.write_text(_OPENDKIM.format(domain=SENDING_DOMAIN, selector=SELECTOR, key=key, socket=socket))
        opendkim, environment = program("opendkim", "opendkim")
        self.opendkim = spawn([opendkim, "-f", "-x", str(conf)], self.log, env=environment)
        try:
            until("OpenDKIM listens", lambda: self.opendkim.poll() is not None or socket.exists())
            assert self.opendkim.poll() is None, Path(self.log.name).read_text()
            self.postfix = postfix.Postfix(
                folder / "postfix",
                world.authority.issue(HOST),
                host=HOST,
                settings={
                    "mynetworks": "127.0.0.0/8",
                    "smtpd_recipient_restrictions": "",
                    "virtual_mailbox_domains": "",
                    "transport_maps": "",
                    "relayhost": f"[{LOOPBACK}]:{world.sink_port}",
                    "smtpd_milters": f"unix:{socket}",
                },
            )
        except AssertionError:
            stop(self.opendkim)
            raise
        self.port, self.queue = self.postfix.port, self.postfix.folder / "queue"

    def is_idle(self) -> bool:
        """Whether its queues are empty."""
        return not any(_has_files(self.queue / name) for name in ("maildrop", "incoming", "active", "deferred"))

    def logged(self) -> str:
        """Returns both logs."""
        return self.postfix.logged() + Path(self.log.name).read_text()

    def close(self):
        """Ends both."""
        self.postfix.close()
        stop(self.opendkim)
        self.log.close()

    def title(self) -> str:
        """Returns names and versions."""
        root = private_root("postfix") or missing("Postfix's private root")
        libraries = {"LD_LIBRARY_PATH": library_path(root, "usr/lib/postfix")}
        own = _said(str(root / "usr/sbin/postconf"), "-d", "-h", "mail_version", environment=libraries).strip()
        opendkim, environment = program("opendkim", "opendkim")
        signer = re.search(r" v(\d\S*)", _said(opendkim, "-V", environment=environment))
        return f"Postfix {own} with OpenDKIM {signer[1]}"


_EXIM = """\
primary_hostname = {host}
daemon_smtp_ports = {port}
local_interfaces = 127.0.0.1
spool_directory = /spool
log_file_path = /log/%slog
pid_file_path = /run/exim.pid
host_lookup =
keep_environment =
rfc1413_query_timeout = 0s
tls_advertise_hosts =
# Its defaults are 20 connections, and mail left for the next queue run from the 11th of a connection on.
smtp_accept_max = {connections}
smtp_accept_queue_per_connection = 0
acl_smtp_rcpt = check_rcpt
begin acl
check_rcpt:
  accept hosts = 127.0.0.0/8
begin routers
to_sink:
  driver = accept
  transport = to_sink
begin transports
to_sink:
  driver = smtp
  hosts = 127.0.0.1
  port = {sink}
  allow_localhost
  dkim_domain = {domain}
  dkim_selector = {selector}
  dkim_private_key = /etc/exim4/dkim.pem
  dkim_canon = relaxed
begin retry
* * F,1h,1m
"""


class Exim:
    """With its own signer. It starts a process and a connection for every message, as it always does."""

    key = tls = None

    def __init__(self, folder: Path, world: World):
        conf = _EXIM.format(
            host=HOST,
            port=(port := free_port()),
            connections=2 * world.clients,
            sink=world.sink_port,
            domain=SENDING_DOMAIN,
            selector=SELECTOR,
        )
        folder.mkdir()
        self.daemon = exim.Daemon(folder / "root", port, conf, {"etc/exim4/dkim.pem": world.key.pem}, every="30m")
        self.port, self.queue = port, self.daemon.jail.root / "spool" / "input"

    def is_idle(self) -> bool:
        """Whether its spool is empty."""
        return not _has_files(self.queue)

    def logged(self) -> str:
        """Returns its log."""
        return self.daemon.logged()

    def close(self):
        """Ends it."""
        self.daemon.close()

    def title(self) -> str:
        """Returns its name, and the version from the first lines of its log."""
        version = re.search(r"exim (\S+) daemon started", self.logged())
        return f"Exim {version[1]}"


# The headers are its defaults. Verifying incoming mail is on by default, and is not measured here.
_DKIM_INI = """\
[sign]
enabled = true
headers = From, Sender, Reply-To, Subject, Date, Message-ID, To, Cc, MIME-Version
[canon]
body = relaxed
[verify]
enabled = false
"""


class Haraka:
    """With the dkim plugin, as one process."""

    key = tls = None

    def __init__(self, folder: Path, world: World):
        files = {
            "plugins": "routes\ndkim\n",
            "dkim.ini": _DKIM_INI,
            f"dkim/{SENDING_DOMAIN}/private": world.key.pem,
            f"dkim/{SENDING_DOMAIN}/selector": SELECTOR,
        }
        routes = {site: world.sink_port for site in SITES}
        self.haraka = haraka.Haraka(folder, world.authority.issue(HOST), routes, host=HOST, files=files)
        self.port, self.queue = self.haraka.port, folder / "queue"

    def is_idle(self) -> bool:
        """Whether its queue is empty."""
        return not _has_files(self.queue)

    def logged(self) -> str:
        """Returns its log."""
        return self.haraka.logged()

    def close(self):
        """Ends it."""
        self.haraka.close()

    def title(self) -> str:
        """Returns its name, and the version from its package."""
        package = PEERS / "haraka" / "node_modules" / "Haraka" / "package.json"
        return f"Haraka {json.loads(package.read_text())['version']} with dkim"


SYSTEMS = {
    "postrider": Postrider,
    "postfix": Postfix,
    "exim": Exim,
    "haraka": Haraka,
    "postrider-http": PostriderByHttp,
}


def _said(*command: str, environment: dict[str, str] | None = None) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def _has_files(folder: Path) -> bool:
    try:
        return any(file.is_file() for file in folder.rglob("*"))
    except OSError:  # A file went away while it was looked at, and another look will tell.
        return True
