"""A newcomer's first use: on a fresh Debian they follow docs/ command by command. They publish the printed records,
send, check the result, set up alerts, back up, upgrade, and restore on another machine.

tests/newcomer runs this in a separate network: its name servers, its authority and its receivers are all that
exists."""

import argparse
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import dkim
import dns.rdatatype
import dns.zone
import httpx
from support.knot import Knot
from support.machine import Machine
from support.pebble import Pebble
from support.pki import Authority
from support.postfix import Policy, Postfix
from support.wait import until

DOCS = Path(__file__).parents[2] / "docs"
# The reader's machine, and the network that it is connected to: name server, authority and receiver.
SERVER, OUTSIDE, RECEIVER = "93.184.215.14", "93.184.215.1", "93.184.216.20"
# The operator's address is at another domain.
MAILBOXES = {"example.org": ("you", "orders", "later"), "example.net": ("ops",)}
ADDRESSES = ["{%s@%s = %s/}" % (name, domain, name) for domain, names in MAILBOXES.items() for name in names]
CONFIG = "/etc/postrider/postrider.toml"
HOST, PANEL = "mail.example.com", "https://mail.example.com"


def commands(page: str, heading: str) -> list[str]:
    """Returns the command blocks under a heading of a page, unchanged."""
    text = (DOCS / f"{page}.md").read_text()
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"docs/{page}.md has no section {heading!r}"
    return blocks(section.group(1), "sh|text")


def blocks(text: str, language: str) -> list[str]:
    """Returns the code blocks of a language, without the indentation of a surrounding list."""
    found = re.findall(rf"^( *)```(?:{language})\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def say(words: str):
    print(f"== {words}", file=sys.stderr, flush=True)


class World:
    """Everything except the reader's own machines."""

    def __init__(self, folder: Path, policy: Policy | None = None):
        self.folder = folder
        for line in ("link set lo up", f"address add {OUTSIDE}/32 dev lo", f"address add {RECEIVER}/32 dev lo"):
            subprocess.run(["ip", *line.split()], check=True)
        # The reader's browser uses the same name servers as their machines.
        resolver = folder / "resolv.conf"
        resolver.write_text(f"nameserver {OUTSIDE}\n")
        subprocess.run(["mount", "--bind", resolver, "/etc/resolv.conf"], check=True)
        self.knot = Knot(folder / "knot", listen=(OUTSIDE, 53))
        self.authority = Authority(folder / "pki")
        self.pebble = Pebble(folder / "pebble", self.knot, self.authority, address=OUTSIDE)
        self.pebble.tls_port, self.pebble.http_port = 443, 80
        self.pebble.start()
        self.receiver = Postfix(
            folder / "postfix",
            self.authority.issue("mx.example.org"),
            domain="example.org",
            host="mx.example.org",
            listen=(RECEIVER, 25),
            policy=policy,
            settings={
                "virtual_mailbox_domains": ", ".join(MAILBOXES),
                "virtual_mailbox_maps": "inline:{ %s }" % ", ".join(ADDRESSES),
            },
        )
        for domain in ("example.org", "example.net", "gmail.com"):
            self.knot.mail_server(domain, f"mx.{domain}", RECEIVER)
        # Replies to the reader's domain are received elsewhere.
        self.knot.put("example.com", "MX", "10 mx.example.net.")
        self.knot.publish()
        self.roots = folder / "roots.pem"
        self.roots.write_bytes(self.authority.root.read_bytes() + self.pebble.root().read_bytes())

    def publish(self, printed: str) -> int:
        """Adds the lines of a zone file to the zone; returns the number of records."""
        lines = [line for line in printed.splitlines() if re.match(r"^\S+\.\s+IN\s", line)]
        text = "\n".join(["$TTL 1", *lines])
        zone = dns.zone.from_text(text, origin=".", relativize=False, check_origin=False)
        for name, _, data in zone.iterate_rdatas():
            self.knot.put(name.to_text(), dns.rdatatype.to_text(data.rdtype), data.to_text())
        self.knot.publish()
        return len(lines)

    def close(self):
        self.receiver.close()
        self.pebble.close()
        self.knot.close()
        subprocess.run(["umount", "/etc/resolv.conf"], check=False)


class Reader:
    """Follows the pages on the first machine, and later on another."""

    def __init__(self, world: World, machine: Machine):
        self.world, self.machine, self.sent, self.ehlo = world, machine, 0, HOST

    def installs(self, package: Path, version: str):
        """First message, step 1."""
        self.machine.write(f"postrider_{version}_amd64.deb", package.read_bytes())
        said = self.machine.run(commands("first-message", "On a server")[0])
        assert "postrider init" in said, said

    def unpacks(self, archive: Path):
        """Without a package."""
        self.machine.write(archive.name, archive.read_bytes())
        self.machine.run(commands("first-message", "On a server")[-1])
        assert self.machine.run("postrider version")

    def sets_up(self):
        """Steps 2 and 3: init, its records, doctor."""
        _, init, doctor, *_ = commands("first-message", "On a server")
        said = self.machine.run(init)
        self.key = re.search(r"pr_live_\w+", said).group()
        self.user, self.password = (re.search(rf"{what} +(\S+)", said).group(1) for what in ("user", "password"))
        assert self.world.publish(said) == 3, said
        self.asks_a_private_authority()
        return self.machine.run(doctor)

    def asks_a_private_authority(self):
        """The one difference from the real internet: the certificate authority."""
        config = self.machine.file(CONFIG)
        config.write_text(re.sub('directory = ".*"', f'directory = "{self.world.pebble.directory}"', config.read_text()))

    def starts(self):
        """Step 4; a certificate is obtained automatically."""
        self.machine.run(commands("first-message", "On a server")[3])
        until("a certificate is issued", self.reaches, 60, every=0.2)

    def reaches(self) -> bool:
        """Whether the service answers with a certificate that verifies."""
        try:
            return httpx.get(f"{PANEL}/readyz", verify=str(self.world.roots)).status_code == 200
        except httpx.TransportError:
            return False

    def adds_a_domain(self):
        """Step 5."""
        add, zone, verify = commands("first-message", "On a server")[4:7]
        assert "pending" in self.machine.run(add)
        assert self.world.publish(self.machine.run(zone)) == 5
        said = self.machine.run(verify)
        assert "status: verified" in said and "missing" not in said, said

    def sends(self) -> bytes:
        """Step 6: the message arrives over TLS, with valid signatures."""
        self.machine.run(commands("first-message", "On a server")[7], POSTRIDER_API_KEY=self.key)
        self.sent += 1
        mail = self.world.receiver.wait_for_mail(self.sent, "you")[-1]
        assert dkim.verify(mail, dnsfunc=self.world.knot.txt_for_dkimpy), mail.decode()
        assert b"using TLSv1.3" in mail and f"from {self.ehlo}".encode() in mail, mail.decode()
        return mail

    @contextmanager
    def browses(self):
        """Returns a browser that has signed in to the panel."""
        with httpx.Client(base_url=PANEL, verify=str(self.world.roots), follow_redirects=True) as browser:
            page = browser.get("/login").text
            token = re.search(r'name="(csrf\w*)" value="([^"]+)"', page)
            form = {"email": self.user, "password": self.password} | ({token[1]: token[2]} if token else {})
            front = browser.post("/login", data=form, headers={"Origin": PANEL})
            assert front.status_code == 200 and "/messages" in front.text, front.text
            yield browser

    def looks(self):
        """The panel: finds the messages with their outcomes."""
        with self.browses() as browser:
            page = browser.get("/messages").text
            found = re.findall(r'href="(/messages/msg_\w+)"', page)
            assert len(set(found)) == self.sent, page
            timeline = browser.get(found[0]).text
            assert "elivered" in timeline and "mx.example.org" in timeline, timeline

    def sets(self, printed: str):
        """Sets printed keys in the sections of the configuration. A section that it does not have is added."""
        file = self.machine.file(CONFIG)
        text = file.read_text()
        for header, keys in re.findall(r"^(\[+\w+\]+)\n((?:.+\n)+)", printed, re.MULTILINE):
            before, found, after = text.partition(f"\n{header}\n")
            section, *others = re.split(r"^(?=\[)", after, maxsplit=1, flags=re.MULTILINE)
            for line in keys.splitlines() if found else ():
                key = line.partition(" = ")[0]
                section, count = re.subn(rf"^#?{key} = .*$", lambda _: line, section, count=1, flags=re.MULTILINE)
                assert count, f"{header} has no {key}"
            text = before + found + section + "".join(others) if found else f"{text}\n{header}\n{keys}"
        file.write_text(text)

    def restarts(self):
        """Restarts the service."""
        self.machine.run("systemctl restart postrider")
        until("it answers again", self.reaches, 60, every=0.2)

    def hears_late_bounces(self):
        """Domains and DNS: another host, and its records."""
        section = (DOCS / "domains.md").read_text().split("## Bounces that come later")[1]
        assert self.world.publish(blocks(section, "text")[0].replace("192.0.2.1", SERVER)) == 4
        self.sets(blocks(section, "toml")[0])
        self.logs_to_the_journal()
        self.restarts()
        assert self.world.publish(self.machine.run(commands("first-message", "On a server")[5])) == 5
        self.machine.run(commands("first-message", "On a server")[6])

    def gets_alerts(self):
        """Alerts: to the operator's address, tested."""
        section = (DOCS / "alerts.md").read_text()
        self.sets(blocks(section, "toml")[0])
        self.restarts()
        self.machine.run(blocks(section, "text")[0])
        self.world.receiver.wait_for_mail(1, "ops")

    def is_content(self) -> str:
        """Returns the output of doctor once its only warnings are about this network."""
        return until("doctor reports no problems", self.content_doctor, 60, every=1)

    def logs_to_the_journal(self):
        """Metrics and alerts: the log's format with all details."""
        config = self.machine.file(CONFIG)
        assert 'format = "journald"' in (DOCS / "metrics.md").read_text()
        config.write_text(config.read_text().replace('format = "text"', 'format = "journald"').replace('"info"', '"debug"'))

    def finds_it_in_the_journal(self):
        """Returns the log lines about the messages sent since."""
        *_, journal = commands("metrics", "The log")
        requests = self.machine.run(journal)
        assert "status=202" in requests and "request_id=" in requests, requests
        events = self.machine.run("journalctl --unit postrider --output cat POSTRIDER_EVENT=delivered PRIORITY=7")
        assert re.search(r"message_id=msg_\w{26} event=\"delivered\"", events), events

    def content_doctor(self, ignored: set[str] = frozenset()) -> str | None:
        """Returns the output of doctor if its only warnings are about this network."""
        said = self.machine.run("postrider doctor")
        warned = set(re.findall(r"^WARN ([^:]+):", said, re.MULTILINE)) - ignored
        return said if warned <= {"clock", "DNSSEC"} else say(f"doctor warns of {sorted(warned)}")

    def backs_up(self) -> dict[str, bytes]:
        """Returns the files that they take to another machine."""
        self.machine.file("before.backup").unlink(missing_ok=True)
        for block in commands("backup", "Back up"):
            self.machine.run(block)
        kept = ("before.backup", "/media/safe/postrider-master.key", "/media/safe/postrider.toml")
        return {path: self.machine.file(path).read_bytes() for path in kept}

    def upgrades(self, package: Path, version: str):
        """Installs the newer package over the older one: the service continues in the new version."""
        before = self.machine.run("systemctl show --property MainPID --value postrider")
        self.machine.write(f"postrider_{version}_amd64.deb", package.read_bytes())
        self.machine.run(commands("upgrade", "To a newer version")[0])
        assert self.machine.run("systemctl show --property MainPID --value postrider") != before
        assert self.machine.run("systemctl is-active postrider").strip() == "active"
        until("it answers again", self.reaches, 30, every=0.2)

    def restores(self, kept: dict[str, bytes]):
        """Restores on a machine that has only the program."""
        for path, content in kept.items():
            self.machine.write(path, content)
        restore, start, release = commands("backup", "Restore")
        self.machine.run(restore)
        self.machine.run(start)
        until("a certificate is issued", self.reaches, 60, every=0.2)
        said = self.machine.run(release)
        assert "Released" in said or "Nothing is on hold" in said, said


def story(older: Path, newer: Path, debian: Path, folder: Path):
    version = newer.name.split("_")[1]
    archive = next(newer.parent.glob("postrider-*.tar.gz"))
    world, machines = World(folder), []
    try:
        say("a machine, and the package on it")
        machines.append(Machine("first", debian, folder, SERVER, OUTSIDE, world.roots))
        machines[0].boot()
        reader = Reader(world, machines[0])
        reader.installs(older, version)
        say("init, its records, doctor")
        print(reader.sets_up())
        say("start, a domain, a message, the panel")
        reader.starts()
        reader.adds_a_domain()
        reader.sends()
        reader.looks()
        say("bounce host, alerts, backup, and doctor again")
        reader.hears_late_bounces()
        reader.gets_alerts()
        reader.backs_up()
        print(reader.is_content())
        say("upgrade")
        reader.upgrades(newer, version)
        reader.sends()
        reader.finds_it_in_the_journal()
        say("backup, and another machine")
        kept = reader.backs_up()
        machines[0].close()
        machines.append(Machine("second", debian, folder, SERVER, OUTSIDE, world.roots))
        machines[1].boot()
        reader.machine = machines[1]
        reader.unpacks(archive)
        reader.restores(kept)
        reader.sends()
        reader.looks()
        say("passed: installation, setup, sending, panel, upgrade, backup and restore with only the documentation")
    finally:
        for machine in machines:
            machine.close()
        world.close()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    for name in ("older", "newer", "debian"):
        arguments.add_argument(name, type=Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as place:
        Path(place).chmod(0o711)
        story(given.older, given.newer, given.debian, Path(place))
