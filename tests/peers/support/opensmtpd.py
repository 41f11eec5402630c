"""A real OpenSMTPD as the receiver, in a jail, with a generated configuration.

Known mailboxes are Maildirs; OpenSMTPD refuses anybody else at the domain. A filter refuses the first attempt for
`grey@`. It does not support SMTPUTF8. Debian 12's version (6.8.0 with OpenSSL 3) offers STARTTLS but fails every
handshake, with any key: `can_tls` tests the installed one."""

import smtplib
import ssl
from pathlib import Path

from .jail import Jail
from .maildirs import Maildirs
from .wait import LOOPBACK, free_port, listens, stop, until

_CONF = """\
pki "{host}" cert "/etc/tls.pem"
pki "{host}" key "/etc/tls.pem"
smtp max-message-size "{size_max}"
table mailboxes {{ {mailboxes} }}
table recipients {{ {recipients} }}
filter "grey" proc-exec "/etc/grey"
listen on 127.0.0.1 port {port} tls pki "{host}" hostname "{host}" filter "grey"
{actions}\
action "maildir" maildir "/mail/%{{rcpt.user}}" virtual <mailboxes>
{matches}\
match from any for domain "{domain}" rcpt-to <recipients> action "maildir"
"""
_GREY = """\
#!/bin/sh
IFS='|'
while read -r kind word rest; do
    [ "$kind $word" = "config ready" ] && break
done
echo 'register|filter|smtp-in|rcpt-to'
echo 'register|ready'
while read -r _ _ _ _ _ session token recipient; do
    verdict=proceed
    case $recipient in
    grey@*) [ -e /tmp/seen ] || verdict='reject|451 4.7.1 Greylisted, come back later' ; : >/tmp/seen ;;
    esac
    echo "filter-result|$session|$token|$verdict"
done
"""


class OpenSmtpd(Maildirs):
    """A running OpenSMTPD for one domain."""

    def __init__(
        self,
        folder: Path,
        certificate: Path,
        domain: str = "recipient.test",
        host: str = "mx1.recipient.test",
        mailboxes: tuple[str, ...] = ("inbox", "grey"),
        routes: dict[str, int] | None = None,
        size_max: int = 31457280,
    ):
        """`routes` names addresses and domains whose mail goes on to another server, by its port on loopback."""
        programs = ("usr/sbin/smtpd", "usr/sbin/smtpctl", "usr/libexec/opensmtpd")
        self.jail = Jail(folder, "opensmtpd", programs, ("opensmtpd", "opensmtpq"))
        self.mailboxes, self.port = folder / "mail", free_port()
        for name in ("var/spool", "var/lib/opensmtpd/empty"):
            (folder / name).mkdir(parents=True)
        self.jail.write("etc/tls.pem", certificate.read_text(), 0o600)
        self.jail.write("etc/mailname", host + "\n")
        self.jail.write("etc/grey", _GREY, 0o755)
        routes = routes or {}
        self.jail.write(
            "etc/smtpd.conf",
            _CONF.format(
                host=host,
                port=self.port,
                size_max=size_max,
                domain=domain,
                mailboxes=", ".join(f'"{name}@{domain}" = "nobody"' for name in mailboxes),
                recipients=", ".join(f'"{name}@{domain}"' for name in mailboxes),
                actions="".join(
                    f'action "to {port}" relay host "smtp://127.0.0.1:{port}"\n' for port in set(routes.values())
                ),
                matches="".join(_match(name, port) for name, port in routes.items()),
            ),
        )
        self.output = (folder / "output").open("w")
        self.child = self.jail.run(self.output, "/usr/sbin/smtpd", "-d")
        try:
            until("OpenSMTPD listens", lambda: self.child.poll() is not None or listens(self.port))
            assert self.child.poll() is None
        except AssertionError:
            self.close()
            raise AssertionError(f"OpenSMTPD did not start:\n{self.logged()}") from None

    def can_tls(self) -> bool:
        """Whether a handshake that it offers succeeds with Python's client."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with smtplib.SMTP(LOOPBACK, self.port, "probe.test", timeout=20) as session:
            session.ehlo()
            try:
                session.starttls(context=context)
            except ssl.SSLError:
                session.close()
                return False
        return True

    def logged(self) -> str:
        """Returns OpenSMTPD's log so far."""
        return (self.jail.root / "output").read_text(errors="replace")

    def close(self):
        """Stops OpenSMTPD and its deliveries."""
        stop(self.child, seconds=5)
        self.output.close()


def _match(name: str, port: int) -> str:
    target = f'rcpt-to "{name}"' if "@" in name else f'for domain "{name}"'
    scope = "for any " if "@" in name else ""
    return f'match from any {scope}{target} action "to {port}"\n'
