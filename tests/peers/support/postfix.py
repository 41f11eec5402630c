"""A real Postfix as the receiver, run from its private root with a generated configuration and queue.

Known mailboxes are Maildirs filled by virtual(8); anybody else at the domain is refused with 550 5.1.1. Postfix must be
started by root. Its daemons then run as system users that every Debian has, so no account has to be created."""

import os
import signal
import socketserver
import threading
import time
from grp import getgrnam
from pathlib import Path
from pwd import getpwnam

from .maildirs import Maildirs
from .roots import library_path, missing, private_root
from .wait import LOOPBACK, free_port, listens, spawn, stop, until

# Postfix needs an owner of its queue and a group for postdrop that differ from the user that delivers.
_OWNER, _SETGID_GROUP = "mail", "uucp"
_READER = 65534  # user nobody, which writes the Maildirs

_MAIN = """\
compatibility_level = 3.7
config_directory = {folder}/etc
queue_directory = {folder}/queue
data_directory = {folder}/data
command_directory = {root}/usr/sbin
daemon_directory = {root}/usr/lib/postfix/sbin
shlib_directory = {root}/usr/lib/postfix
meta_directory = {folder}/etc
mail_owner = {owner}
setgid_group = {group}
import_environment = LD_LIBRARY_PATH={libraries} MAIL_CONFIG={folder}/etc TZ=UTC LANG=C
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
inet_interfaces = {address}
inet_protocols = ipv4
smtpd_peername_lookup = no
disable_dns_lookups = yes
myhostname = {host}
mydestination =
mynetworks =
local_recipient_maps =
alias_maps =
smtpd_recipient_restrictions = reject_unauth_destination{policy}
virtual_mailbox_domains = {domain}
virtual_mailbox_base = {folder}/mail
virtual_mailbox_maps = inline:{{ {mailboxes} }}
virtual_uid_maps = static:{reader}
virtual_gid_maps = static:{reader}
virtual_minimum_uid = 1
virtual_mailbox_limit = 0
message_size_limit = {size_max}
smtputf8_enable = yes
smtpd_tls_security_level = may
smtpd_tls_chain_files = {certificate}
smtpd_tls_loglevel = 1
smtpd_tls_received_header = yes
smtp_tls_security_level = may
smtp_tls_loglevel = 1
transport_maps = {routes}
tls_random_source = dev:/dev/urandom
"""
_MASTER = """\
{address}:{port} inet n - n - - smtpd
cleanup   unix  n - n - 0 cleanup
qmgr      unix  n - n 300 1 qmgr
tlsmgr    unix  - - n 1000? 1 tlsmgr
rewrite   unix  - - n - - trivial-rewrite
bounce    unix  - - n - 0 bounce
defer     unix  - - n - 0 bounce
trace     unix  - - n - 0 bounce
verify    unix  - - n - 1 verify
flush     unix  n - n 1000? 0 flush
proxymap  unix  - - n - - proxymap
error     unix  - - n - - error
retry     unix  - - n - - error
discard   unix  - - n - - discard
local     unix  - n n - - local
virtual   unix  - n n - - virtual
smtp      unix  - - n - - smtp
anvil     unix  - - n - 1 anvil
postlog   unix-dgram n - n - 1 postlogd
"""
_QUEUES = "incoming active deferred defer bounce corrupt flush hold saved trace private"


class Postfix(Maildirs):
    """A running Postfix for one domain."""

    def __init__(
        self,
        folder: Path,
        certificate: Path,
        domain: str = "recipient.test",
        host: str = "mx1.recipient.test",
        mailboxes: tuple[str, ...] = ("inbox", "grey"),
        policy: "Policy | None" = None,
        routes: dict[str, int] | None = None,
        size_max: int = 31457280,
        settings: dict[str, str] | None = None,
        listen: tuple[str, int] | None = None,
    ):
        """`routes` names addresses and domains whose mail goes on to another server, by its port on loopback.

        `settings` override those of a receiver. The default address is a free port of loopback.
        """
        self.root = private_root("postfix")
        if not self.root:
            missing("Postfix's private root")
        if os.geteuid() != 0:
            missing("root, without whom Postfix does not start,")
        self.folder, self.domain = folder, domain
        self.address, self.port = listen or (LOOPBACK, free_port())
        self.mailboxes = folder / "mail"
        libraries = library_path(self.root, "usr/lib/postfix")
        self._folders()
        (folder / "etc" / "main.cf").write_text(
            _MAIN.format(
                folder=folder,
                address=self.address,
                root=self.root,
                owner=_OWNER,
                group=_SETGID_GROUP,
                libraries=libraries,
                host=host,
                domain=domain,
                reader=_READER,
                certificate=certificate,
                size_max=size_max,
                mailboxes=", ".join("{ %s@%s = %s/ }" % (name, domain, name) for name in mailboxes),
                routes=_inline({name: f"smtp:[{LOOPBACK}]:{port}" for name, port in (routes or {}).items()}),
                policy=f", check_policy_service inet:{LOOPBACK}:{policy.port}" if policy else "",
            )
            # If a setting is given twice, Postfix uses the last.
            + "".join(f"{name} = {value}\n" for name, value in (settings or {}).items())
        )
        (folder / "etc" / "master.cf").write_text(_MASTER.format(address=self.address, port=self.port))
        for file in (folder / "etc").iterdir():  # Postfix waits until its configuration is two seconds old
            os.utime(file, (time.time() - 60,) * 2)
        self.output = (folder / "output").open("w")
        master = self.root / "usr/lib/postfix/sbin/master"
        self.child = spawn(
            [str(master), "-c", str(folder / "etc"), "-d"],
            self.output,
            env={**os.environ, "LD_LIBRARY_PATH": libraries, "MAIL_CONFIG": str(folder / "etc")},
        )
        try:
            # It listens before the last of its sockets exists; it logs this line afterwards.
            until("Postfix is up", lambda: self.child.poll() is not None or "daemon started" in self.logged())
            assert self.child.poll() is None and listens(self.port, self.address)
        except AssertionError:
            self.close()
            raise AssertionError(f"Postfix did not start:\n{self.logged()}") from None

    def can_tls(self) -> bool:
        """TLS works."""
        return True

    def logged(self) -> str:
        """Returns Postfix's log so far."""
        files = [self.folder / "output", self.folder / "log"]
        return "".join(file.read_text(errors="replace") for file in files if file.exists())

    def hangs(self):
        """Stops it in the middle of its work: it accepts connections, but answers nothing."""
        os.killpg(self.child.pid, signal.SIGSTOP)

    def goes_on(self):
        """Ends that."""
        os.killpg(self.child.pid, signal.SIGCONT)

    def close(self):
        """Stops master and every daemon under it."""
        stop(self.child, seconds=5)
        self.output.close()

    def _folders(self):
        """Creates the directories that `postfix check` would create, with the owners that the daemons need."""
        owner, group = getpwnam(_OWNER).pw_uid, getgrnam(_SETGID_GROUP).gr_gid
        for name in ("etc", "queue/pid"):
            (self.folder / name).mkdir(parents=True, mode=0o755)
        for name in ["data", *(f"queue/{queue}" for queue in _QUEUES.split())]:
            (self.folder / name).mkdir(parents=True, mode=0o700)
            os.chown(self.folder / name, owner, 0)
        for name, mode in (("maildrop", 0o730), ("public", 0o710)):
            (self.folder / "queue" / name).mkdir()
            os.chown(self.folder / "queue" / name, owner, group)
            (self.folder / "queue" / name).chmod(mode)
        (self.folder / "mail").mkdir()
        os.chown(self.folder / "mail", _READER, _READER)


def _inline(table: dict[str, str]) -> str:
    """Returns an inline table for the configuration; nothing if it is empty."""
    entries = ", ".join("{ %s = %s }" % entry for entry in table.items())
    return f"inline:{{ {entries} }}" if entries else ""


class Policy:
    """A policy service (Postfix SMTPD_POLICY_README): `answers[recipient]` are its next actions, after which it agrees.

    With `451 4.7.1 Greylisted` as the first answer it behaves like a greylisting daemon."""

    def __init__(self):
        self.answers: dict[str, list[str]] = {}
        self.asked: list[str] = []
        policy = self

        class Handler(socketserver.StreamRequestHandler):
            """One connection: requests of `name=value` lines, each ended by an empty one."""

            def handle(self):
                request = {}
                for line in self.rfile:
                    name, _, value = line.decode().strip().partition("=")
                    if name:
                        request[name] = value
                        continue
                    self.wfile.write(f"action={policy.answer(request)}\n\n".encode())
                    request = {}

        self.server = socketserver.ThreadingTCPServer((LOOPBACK, 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, request: dict[str, str]) -> str:
        """Returns the next action for a request's recipient."""
        recipient = request.get("recipient", "")
        self.asked.append(recipient)
        waiting = self.answers.get(recipient)
        return waiting.pop(0) if waiting else "DUNNO"

    def close(self):
        """Stops listening."""
        self.server.shutdown()
        self.server.server_close()
