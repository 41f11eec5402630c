"""Knot DNS as the only name server: it is authoritative for the root, so that every name has an answer.

A test changes records with `put` and `remove`, and `publish` makes the changes effective. TTLs default to one second.
In signed mode, answers are signed on demand (mod-onlinesign), and `anchor` is the trust anchor file."""

import subprocess
from pathlib import Path

import dns.resolver

from .roots import program
from .wait import LOOPBACK, free_port, spawn, stop, until

_CONF = """\
server:
    rundir: "{folder}"
    listen: {address}@{port}
database:
    storage: "{folder}/db"
control:
    listen: "{folder}/control"
log:
  - target: stderr
    any: info
zone:
  - domain: .
    file: "{folder}/zone"
    storage: "{folder}"
    zonefile-load: whole
    zonefile-sync: -1
    journal-content: none
{signing}"""
_SIGNING = "    module: mod-onlinesign\n"
_HEAD = """\
$ORIGIN .
$TTL {ttl}
. SOA ns.peers.test. hostmaster.peers.test. {serial} 3600 600 86400 {ttl}
. NS ns.peers.test.
ns.peers.test. A 127.0.0.1
"""


class Knot:
    """A running knotd and its zone."""

    def __init__(
        self, folder: Path, signed: bool = False, ttl: int = 1, listen: tuple[str, int] | None = None
    ):
        """Listens at a free loopback port by default."""
        self.folder, self.signed, self.ttl = folder, signed, ttl
        (folder / "db").mkdir(parents=True)
        self.address, self.port = listen or (LOOPBACK, free_port())
        self.server = f"{self.address}:{self.port}"
        self.records: dict[tuple[str, str], list[str]] = {}
        self.serial = 0
        conf = folder / "knot.conf"
        signing = _SIGNING if signed else ""
        conf.write_text(_CONF.format(folder=folder, address=self.address, port=self.port, signing=signing))
        self._write()
        knotd, environment = program("knotd", "knot")
        self.knotc, self.environment = program("knotc", "knot")
        self.conf = str(conf)
        self.log = (folder / "log").open("w")
        self.child = spawn([knotd, "-c", self.conf], self.log, env=environment)
        try:
            until("knotd answers", self._answers)
        except AssertionError:
            self.close()
            raise AssertionError(f"knotd did not start:\n{(folder / 'log').read_text()}") from None

    def put(self, name: str, kind: str, *values: str):
        """Replaces the records of one type at a name. TXT values are plain text; long ones are split."""
        texts = [_quoted(value) if kind.upper() == "TXT" else value for value in values]
        self.records[(_absolute(name), kind.upper())] = texts

    def remove(self, name: str, kind: str):
        """Removes the records of one type at a name."""
        self.records.pop((_absolute(name), kind.upper()), None)

    def publish(self):
        """Makes the server use the changed records."""
        self._write()
        self._control("-b", "zone-reload", ".")
        until(f"serial {self.serial} is served", lambda: self._serial() == self.serial)

    def mail_server(self, domain: str, host: str, address: str = LOOPBACK):
        """Sets MX and A records of a receiving domain."""
        self.put(domain, "MX", f"10 {_absolute(host)}")
        self.put(host, "A", address)

    def lookup(self, name: str, kind: str) -> list[str]:
        """Returns the served records: the joined texts of TXT records, other types as written."""
        try:
            answer = self._resolver().resolve(_absolute(name), kind)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return []
        if kind.upper() == "TXT":
            return [b"".join(record.strings).decode() for record in answer]
        return [record.to_text() for record in answer]

    @property
    def anchor(self) -> Path:
        """Returns the root's keys as a trust anchor file."""
        keys = self._resolver().resolve(".", "DNSKEY")
        file = self.folder / "root.key"
        file.write_text("".join(f". IN DNSKEY {key.to_text()}\n" for key in keys))
        return file

    def txt_for_dkimpy(self, name: bytes | str, timeout: int = 5) -> bytes | None:
        """dkimpy's `dnsfunc`: returns a key record of the served zone."""
        found = self.lookup(name.decode() if isinstance(name, bytes) else name, "TXT")
        return found[0].encode() if found else None

    def close(self):
        """Ends knotd."""
        stop(self.child)
        self.log.close()

    def _write(self):
        self.serial += 1
        lines = [_HEAD.format(serial=self.serial, ttl=self.ttl)]
        for (name, kind), values in sorted(self.records.items()):
            lines += [f"{name} {kind} {value}\n" for value in values]
        (self.folder / "zone").write_text("".join(lines))

    def _resolver(self, seconds: float = 5.0) -> dns.resolver.Resolver:
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port, resolver.lifetime = [self.address], self.port, seconds
        return resolver

    def _serial(self) -> int | None:
        try:
            return self._resolver(seconds=0.2).resolve(".", "SOA")[0].serial
        except (dns.resolver.NoNameservers, dns.resolver.LifetimeTimeout):
            return None

    def _answers(self) -> bool:
        if self.child.poll() is not None:
            raise AssertionError("knotd ended")
        return self._serial() == self.serial

    def _control(self, *words: str):
        command = [self.knotc, "-c", self.conf, *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def _absolute(name: str) -> str:
    return name.rstrip(".").lower() + "."


def _quoted(text: str) -> str:
    """Formats a TXT value for a zone file: strings of at most 255 bytes (RFC 1035 3.3.14)."""
    if text.startswith('"'):
        return text
    cuts = [text[at : at + 255] for at in range(0, len(text), 255)] or [""]
    escaped = [cut.replace("\\", "\\\\").replace('"', '\\"') for cut in cuts]
    return " ".join(f'"{cut}"' for cut in escaped)
