"""A real Exim in a jail, with a generated configuration; also as the receiver.

Known mailboxes are Maildirs; Exim refuses anybody else at the domain. It uses the same policy service as Postfix, so
that it can greylist. It sends no enhanced codes."""

from pathlib import Path

from .jail import Jail
from .maildirs import Maildirs
from .postfix import Policy
from .wait import LOOPBACK, free_port, listens, stop, until

_CONF = """\
primary_hostname = {host}
daemon_smtp_ports = {port}
local_interfaces = 127.0.0.1
spool_directory = /spool
log_file_path = /log/%slog
pid_file_path = /run/exim.pid
host_lookup =
keep_environment =
rfc1413_query_timeout = 0s
tls_advertise_hosts = *
tls_certificate = /etc/exim4/tls.pem
log_selector = +tls_cipher +smtp_protocol_error
smtputf8_advertise_hosts = *
message_size_limit = {size_max}
acl_smtp_rcpt = check_rcpt
begin acl
check_rcpt:
  require message = relay not permitted
          domains = {domain}
  require verify = recipient
  defer   set acl_m_answer = ${{readsocket{{inet:{loopback}:{policy}}}{{recipient=$local_part@$domain\\n\\n}}{{5s}}}}
          condition = ${{if match{{$acl_m_answer}}{{\\N=4\\d\\d \\N}}}}
          message = ${{sg{{$acl_m_answer}}{{\\Naction=|\\n\\N}}{{}}}}
  accept
begin routers
{routers}\
mailbox:
  driver = accept
  domains = {domain}
  local_parts = {mailboxes}
  transport = maildir
begin transports
{transports}\
maildir:
  driver = appendfile
  directory = /mail/$local_part_data
  maildir_format
  user = nobody
  group = nobody
  return_path_add
begin retry
* * F,1h,1s
"""
_ROUTER = """\
to_{port}:
  driver = accept
  {condition}
  transport = to_{port}
"""
_TRANSPORT = """\
to_{port}:
  driver = smtp
  hosts = 127.0.0.1
  port = {port}
  allow_localhost
"""


class Daemon:
    """A running Exim with this configuration; files in its root are named relative to it."""

    def __init__(self, folder: Path, port: int, conf: str, files: dict[str, str], every: str):
        """`every` is the interval of its queue runs, as Exim writes times."""
        self.jail, self.port = Jail(folder, "exim", ("usr/sbin/exim4",), ("Debian-exim",)), port
        for name, text in ({"etc/exim4/exim4.conf": conf} | files).items():
            self.jail.write(name, text)
        for name in ("log", "spool"):
            (folder / name).mkdir(mode=0o777)
            (folder / name).chmod(0o777)
        self.output = (folder / "output").open("w")
        self.child = self.jail.run(self.output, "/usr/sbin/exim4", "-bdf", f"-q{every}")
        try:
            until("Exim listens", lambda: self.child.poll() is not None or listens(port))
            assert self.child.poll() is None
        except AssertionError:
            self.close()
            raise AssertionError(f"Exim did not start:\n{self.logged()}") from None

    def logged(self) -> str:
        """Returns Exim's log so far."""
        files = [self.jail.root / "output", *sorted((self.jail.root / "log").iterdir())]
        return "".join(file.read_text(errors="replace") for file in files)

    def close(self):
        """Stops Exim and its deliveries."""
        stop(self.child, seconds=5)
        self.output.close()


class Exim(Daemon, Maildirs):
    """A running Exim that receives for one domain."""

    def __init__(
        self,
        folder: Path,
        certificate: Path,
        policy: Policy,
        domain: str = "recipient.test",
        host: str = "mx1.recipient.test",
        mailboxes: tuple[str, ...] = ("inbox", "grey"),
        routes: dict[str, int] | None = None,
        size_max: int = 31457280,
    ):
        """`routes` names addresses and domains whose mail goes on to another server, by its port on loopback."""
        self.mailboxes, port = folder / "mail", free_port()
        conf = _CONF.format(
            host=host,
            port=port,
            loopback=LOOPBACK,
            size_max=size_max,
            domain=domain,
            policy=policy.port,
            mailboxes=" : ".join(mailboxes),
            routers="".join(_router(name, to) for name, to in (routes or {}).items()),
            transports="".join(_TRANSPORT.format(port=to) for to in set((routes or {}).values())),
        )
        # Exim reads its certificate as its own user.
        super().__init__(folder, port, conf, {"etc/exim4/tls.pem": certificate.read_text()}, every="1s")

    def can_tls(self) -> bool:
        """TLS works."""
        return True


def _router(name: str, port: int) -> str:
    local, at, domain = name.rpartition("@")
    condition = f"domains = {domain}" + (f"\n  local_parts = {local}" if at else "")
    return _ROUTER.format(port=port, condition=condition).replace(f"to_{port}:", f"to_{port}_{len(name)}:", 1)
