"""The program under test, as its users use it: a process, a command line, an HTTP API."""

import http.client
import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .knot import Knot
from .pki import Authority
from .roots import binary
from .wait import spawn, stop, until


@dataclass
class Answer:
    """One HTTP answer: header names in lower case, the body unchanged."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        """Returns the parsed body."""
        return json.loads(self.body)


class Api:
    """The HTTP API under one key. A new connection for each request, so that threads may share it."""

    def __init__(self, url: str, key: str | None):
        parts = urlsplit(url)
        self.host, self.port, self.key = parts.hostname, parts.port, key

    def request(self, method: str, path: str, body=None, headers: dict[str, str] | None = None) -> Answer:
        """Sends one request. A `body` of bytes is sent unchanged; anything else is sent as JSON."""
        fields = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        if body is not None:
            fields["Content-Type"] = "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields |= headers or {}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            try:
                connection.request(method, path, body, fields)
            except (BrokenPipeError, ConnectionResetError):
                pass  # Refused before everything was sent (413): an answer may have arrived.
            got = connection.getresponse()
            return Answer(got.status, {n.lower(): v for n, v in got.getheaders()}, got.read())
        finally:
            connection.close()

    def get(self, path: str) -> dict:
        """Returns an object or page that must exist."""
        answer = self.request("GET", path)
        assert answer.status == 200, (path, answer)
        return answer.json()

    def send(self, message: dict, key: str | None = None) -> Answer:
        """POST /v1/messages."""
        return self.request("POST", "/v1/messages", message, {"Idempotency-Key": key} if key else {})

    def accept(self, message: dict, key: str | None = None) -> dict:
        """POST /v1/messages that must be a 202."""
        answer = self.send(message, key)
        assert answer.status == 202, answer
        return answer.json()

    def message(self, message_id: str) -> dict:
        """Returns the record of one message."""
        return self.get(f"/v1/messages/{message_id}")

    def settled(self, message_id: str, status: str, seconds: float = 20.0) -> dict:
        """Returns the record of a message once it has this status."""
        seen = {}

        def probe():
            seen["record"] = self.message(message_id)
            return seen["record"]["status"] == status

        try:
            until(f"{message_id} is {status}", probe, seconds, every=0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(seen.get('record'), indent=1)}") from None
        return seen["record"]


class Serve:
    """`postrider serve` on a separate data directory. `api` belongs to the account created at the first start."""

    def __init__(self, folder: Path, knot: Knot, authority: Authority, delivery_port: int, sections: dict):
        self.folder, self.knot, self.child, self.starts = folder, knot, None, 0
        # Additional environment variables of later starts.
        self.environment: dict[str, str] = {}
        # Called in the child of later starts, right before the program is executed.
        self.before_program: Callable[[], None] | None = None
        self.data_dir = folder / "data"
        folder.mkdir()
        self.config = folder / "postrider.toml"
        root = str(authority.root)
        settings = {
            "http": {"listen": ["127.0.0.1:0"], "public_url": "http://mail.sender.test"},
            "http.tls": {"mode": "off"},
            "metrics": {"listen": "127.0.0.1:0"},
            "dns": {"servers": [knot.server]},
            "delivery": {"port": delivery_port, "extra_roots": root},
            "network": {"allow": ["127.0.0.0/8"]},
            "webhooks": {"extra_roots": root},
        }
        for name, values in sections.items():
            settings[name] = values if isinstance(values, list) else settings.get(name, {}) | values
        top = {"hostname": "mail.sender.test", "data_dir": str(self.data_dir)}
        self.config.write_text(_toml(top, settings))

    def begin(self):
        """Starts the process for the first time, and creates the account with its key."""
        self.start()
        self.account = self.cli("account", "add", "Peers")["id"]
        self.key = self.cli("key", "add", "--account", self.account, "--name", "peers")["key"]
        self.api = Api(self.url, self.key)

    def start(self, *arguments: str):
        """Starts the process, with these further arguments, and waits for its newline on the ready descriptor."""
        self.become_ready(self.launch(*arguments))

    def become_ready(self, reader: int):
        """Waits for the newline on the ready descriptor of a process that was launched."""
        try:
            ready, _, _ = select.select([reader], [], [], 30)
            said = os.read(reader, 1) if ready else b""
        finally:
            os.close(reader)
        assert said == b"\n", f"serve did not become ready (exit {self.child.poll()}):\n{self.logged()}"
        address = json.loads((self.data_dir / "addresses.json").read_text())["http"][0]
        self.url = f"http://{address}"
        if self.starts > 1:
            self.api = Api(self.url, self.key)

    def stumble(self, seconds: float) -> float:
        """Starts the process and kills it after `seconds`, ready or not; returns the time as `kill` does."""
        reader = self.launch()
        select.select([reader], [], [], seconds)
        os.close(reader)
        return self.kill()

    def kill(self) -> float:
        """Sends SIGKILL; returns the time at which the process was certainly gone."""
        self.child.kill()
        self.child.wait()
        return time.monotonic()

    def close(self) -> int:
        """Sends SIGTERM, and returns the exit code."""
        return stop(self.child) if self.child else 0

    def launch(self, *arguments: str) -> int:
        """Starts the process, and returns the reading end of its ready descriptor."""
        reader, writer = os.pipe()
        self.starts += 1
        with (self.folder / "log").open("a") as log:
            self.child = spawn(
                [binary(), "serve", "--config", str(self.config), "--ready-fd", str(writer), *arguments],
                log,
                pass_fds=(writer,),
                env={**os.environ, **self.environment},
                preexec_fn=self.before_program,
            )
        os.close(writer)
        return reader

    def cli(self, *words: str) -> dict:
        """Runs a command, and parses its --json answer."""
        command = [binary(), *words, "--data-dir", str(self.data_dir), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def domain(self, name: str, stream: str = "transactional", algorithms=("rsa-sha256", "ed25519-sha256")) -> dict:
        """Adds a sending domain, publishes its DKIM records of these algorithms, and verifies it."""
        added = self.cli("domain", "add", name, "--stream", stream, "--account", self.account)
        return self.publish(added, algorithms)

    def publish(self, domain: dict, algorithms) -> dict:
        """Publishes a domain's DKIM records of these algorithms and checks the domain again."""
        for key in domain["dkim"]:
            if key["algorithm"] in algorithms:
                name = f"{key['selector']}._domainkey.{domain['name']}"
                record = next(r for r in domain["records"] if r["name"].rstrip(".") == name)
                self.knot.put(name, record["type"], record["value"])
        self.knot.publish()
        answer = self.api.request("POST", f"/v1/domains/{domain['id']}/verify")
        assert answer.status == 200, answer
        assert answer.json()["status"] == "verified", json.dumps(answer.json(), indent=1)
        return answer.json()

    def logged(self) -> str:
        """Returns the process's stderr, over all its starts."""
        return (self.folder / "log").read_text(errors="replace")


class Dev:
    """`postrider dev --json`, ready to use. An existing folder is reused."""

    def __init__(self, folder: Path, arguments: tuple[str, ...], config: str):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        command = [binary(), "dev", "--json", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")]
        if config:
            (folder / "postrider.toml").write_text(config)
            command += ["--config", str(folder / "postrider.toml")]
        self.log = (folder / "log").open("w")
        self.child = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
        )
        ready, _, _ = select.select([self.child.stdout], [], [], 30)
        line = self.child.stdout.readline() if ready else b""
        if not line.startswith(b"{"):
            self.close()
            raise AssertionError(f"dev did not start: {line!r}\n{self.logged()}")
        self.info = json.loads(line)
        self.api = Api(self.info["url"], self.info["api_key"])
        self.marketing = Api(self.info["url"], self.info["marketing_api_key"])

    def advance(self, seconds: float) -> dict:
        """Advances the virtual clock; due work is settled when this returns."""
        answer = self.api.request("POST", "/dev/clock", {"advance_seconds": seconds})
        assert answer.status == 200, answer
        return answer.json()

    def captured(self) -> list[dict]:
        """Returns the built-in receiver's mail."""
        return self.api.get("/dev/mail")["data"]

    def logged(self) -> str:
        """Returns the process's stderr."""
        return (self.folder / "log").read_text(errors="replace")

    def close(self) -> int:
        """Sends SIGTERM, and returns the exit code."""
        code = stop(self.child)
        self.child.stdout.close()
        self.log.close()
        return code


def _toml(top: dict, sections: dict[str, dict | list[dict]]) -> str:
    """Strings, numbers and lists of strings are written the same way in JSON and TOML. A list of sections repeats."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in top.items()]
    for section, values in sections.items():
        head, every = (f"[[{section}]]", values) if isinstance(values, list) else (f"[{section}]", [values])
        for one in every:
            lines += [head, *(f"{name} = {json.dumps(value)}" for name, value in one.items())]
    return "\n".join(lines) + "\n"
