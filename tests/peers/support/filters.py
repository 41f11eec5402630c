"""Spam filters of receivers: rspamd and SpamAssassin, without network and without stored state.

DNS queries go to a port without a server, so that rules about the sender's reputation don't fire."""

import http.client
import json
import mailbox
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .roots import library_path, missing, private_root
from .wait import LOOPBACK, free_port, listens, spawn, stop, until

# The list of public suffixes is compiled at the start, which takes half a minute; this short list is enough.
_SUFFIXES = "test\nexample\ncom\nnet\norg\n"
# Client address of the mail: a global one, because filters know the documentation addresses.
CLIENT = "203.0.114.1"
_SILENT = (
    *("rbl", "fuzzy_check", "neural", "mx_check", "url_redirector", "phishing", "asn", "greylist", "dmarc", "spf"),
    *("hfilter", "once_received"),
)
_CONF = """\
.include "$CONFDIR/common.conf"
options {{
    pidfile = "{folder}/pid";
    filters = "chartable,dkim,regexp";
    url_tld = "{folder}/suffixes";
    disable_hyperscan = true;
    hs_cache_dir = "{folder}/db";
    explicit_modules = ["settings", "bayes_expiry"];
    cache_file = "{folder}/db/symbols";
    control_socket = "{folder}/db/control mode=0600";
    dns {{ nameserver = ["127.0.0.1:{nobody}"]; timeout = 0.1s; retransmits = 1; }}
}}
logging {{ type = "console"; level = "warning"; }}
worker "normal" {{ bind_socket = "127.0.0.1:{port}"; count = 1; task_timeout = 20s; }}
worker "controller" {{ enabled = false; }}
"""
_NUMBER = "X-Peers-Number"


@dataclass
class Judgement:
    """A score and the rules that contributed to it."""

    score: float
    rules: set[str] = field(default_factory=set)


class Rspamd:
    """A running rspamd."""

    def __init__(self, folder: Path):
        root = private_root("rspamd")
        if not root:
            missing("rspamd's private root")
        share = root / "usr/share/rspamd"
        (folder / "db").mkdir(parents=True)
        (folder / "local.d").mkdir()
        for module in _SILENT:
            (folder / "local.d" / f"{module}.conf").write_text("enabled = false;\n")
        (folder / "suffixes").write_text(_SUFFIXES)
        self.port = free_port()
        conf = folder / "rspamd.conf"
        conf.write_text(_CONF.format(folder=folder, port=self.port, nobody=free_port()))
        places = {
            "CONFDIR": root / "etc/rspamd",
            "LOCAL_CONFDIR": folder,
            "DBDIR": folder / "db",
            "RUNDIR": folder,
            "LOGDIR": folder,
            "SHAREDIR": share,
            "RULESDIR": share / "rules",
            "LUALIBDIR": share / "lualib",
            "PLUGINSDIR": share / "plugins",
            "WWWDIR": share / "www",
        }
        variables = [word for name, place in places.items() for word in ("--var", f"{name}={place}")]
        self.output = (folder / "output").open("w")
        self.child = spawn(
            [str(root / "usr/bin/rspamd"), "-f", "-i", "-c", str(conf), *variables],
            self.output,
            env={"LD_LIBRARY_PATH": library_path(root, "usr/lib/rspamd"), "PATH": "/usr/bin:/bin"},
        )
        try:
            until("rspamd listens", lambda: self.child.poll() is not None or listens(self.port), seconds=60)
            assert self.child.poll() is None
        except AssertionError:
            self.close()
            raise AssertionError(f"rspamd did not start:\n{(folder / 'output').read_text()}") from None

    def judge(self, mail: bytes, sender: str, recipient: str) -> Judgement:
        """Returns its judgement of one received message."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=60)
        envelope = {"From": sender, "Rcpt": recipient, "IP": CLIENT, "Helo": "mail.sender.test"}
        connection.request("POST", "/checkv2", mail, envelope)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return Judgement(answer["score"], set(answer["symbols"]))

    def close(self):
        """Ends it."""
        stop(self.child, seconds=5)
        self.output.close()


class SpamAssassin:
    """The program, run once for many messages because its start takes most of the time. It returns them in any
    order."""

    def __init__(self, folder: Path):
        self.root = private_root("spamassassin")
        if not self.root:
            missing("SpamAssassin's private root")
        self.folder = folder
        folder.mkdir()

    def judge(self, mails: list[bytes]) -> list[Judgement]:
        """Returns its judgement of each received message."""
        box = mailbox.mbox(self.folder / "in")
        for number, mail in enumerate(mails):
            box.add(f"{_NUMBER}: {number}\n".encode() + mail)
        box.close()
        perl = [*self.root.glob("usr/share/perl5"), *self.root.glob("usr/lib/*/perl5/5.*")]
        perl += self.root.glob("usr/share/perl/5.*")
        (self.folder / "preferences").write_text("report_safe 0\n")
        done = subprocess.run(
            [
                *("perl", "-T", *(f"-I{place}" for place in perl)),
                *(str(self.root / "usr/bin/spamassassin"), "--local", "--mbox"),
                f"--configpath={self.root}/usr/share/spamassassin",
                f"--siteconfigpath={self.root}/etc/spamassassin",
                f"--prefspath={self.folder}/preferences",
                str(self.folder / "in"),
            ],
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": library_path(self.root)},
            capture_output=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr.decode()
        (self.folder / "out").write_bytes(done.stdout)
        judged = {int(mail[_NUMBER]): _status(mail["X-Spam-Status"]) for mail in mailbox.mbox(self.folder / "out")}
        assert len(judged) == len(mails), done.stderr.decode()
        return [judged[number] for number in range(len(mails))]


def _status(header: str) -> Judgement:
    """Parses `No, score=-0.0 required=5.0 tests=A,B autolearn=...`."""
    found = re.search(r"score=(-?[\d.]+).*?tests=(.*?)\s+autolearn=", " ".join(header.split()))
    assert found, header
    rules = {rule.strip() for rule in found[2].split(",")} - {"", "none"}
    return Judgement(float(found[1]), rules)
