"""The loss of a machine: a newcomer follows docs/replication.md command by command.

Two machines and a bucket. The first machine loses its power while an application sends, its disk is deleted, and the
second takes over. The first returns with its old disk, then with an empty one. At last the second loses its power, and
the standby takes over automatically."""

import argparse
import itertools
import json
import re
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
from newcomer import CONFIG, DOCS, HOST, OUTSIDE, PANEL, SERVER, Reader, World, blocks, commands, say
from support.bucket import Bucket
from support.machine import Machine
from support.postfix import Policy
from support.wait import until

SECOND, SECOND_NAME = "93.184.215.24", "mail2.example.com"
STORE, STORE_NAME = "93.184.216.30", "s3.example.com"
# Acknowledged mail that may be lost, in seconds before the loss of the machine: `interval_ms` and one PUT, on a machine
# that runs all peers too.
LOSS_S = 2.0
LEASE_S = 5
PAGE = "replication"


class Application(threading.Thread):
    """Sends numbered messages one after another, each with its key until it is accepted."""

    def __init__(self, world: World, key: str):
        super().__init__(daemon=True)
        context = ssl.create_default_context(cafile=str(world.roots))
        self.client = httpx.Client(verify=context, timeout=2, headers={"Authorization": f"Bearer {key}"})
        # The identifier and the time of the answer, by number.
        self.accepted: dict[int, tuple[str, float]] = {}
        self.refused: set[int] = set()
        self.ends = threading.Event()

    def run(self):
        for number in itertools.count(1):
            while not self.ends.is_set() and not self.submits(number):
                self.ends.wait(0.1)
            if self.ends.wait(0.1):
                return

    def submits(self, number: int) -> bool:
        """Whether a message was accepted."""
        mail = {"from": "shop@example.com", "to": "orders@example.org", "subject": f"Order {number}", "text": "Thanks."}
        try:
            answer = self.asks("POST", "messages", json=mail, headers={"Idempotency-Key": f"order-{number}"})
        except httpx.TransportError:
            return False
        if answer.status_code == 202:
            self.accepted[number] = (answer.json()["id"], time.monotonic())
        elif answer.status_code != 503:
            self.refused.add(number)
        return answer.status_code == 202

    def asks(self, method: str, path: str, **options) -> httpx.Response:
        """Returns the answer to a request, repeated as long as the rate limit refuses it."""
        while (answer := self.client.request(method, f"{PANEL}/v1/{path}", **options)).status_code == 429:
            self.ends.wait(int(answer.headers["Retry-After"]))
        return answer

    def lost(self, numbers) -> list[int]:
        """Returns those accepted messages that the service does not know."""
        known, query = set(), {"limit": 100}
        while query:
            page = self.asks("GET", "messages", params=query).json()
            known |= {message["id"] for message in page["data"]}
            query = page["next_cursor"] and {"limit": 100, "cursor": page["next_cursor"]}
        return [number for number in numbers if self.accepted[number][0] not in known]


class Operator(Reader):
    """Follows the page on all machines; `machine` is the one that they work on."""

    def lines(self, block: str) -> str:
        """Returns the output of a block whose commands are allowed to report problems."""
        return "".join(self.machine.attempt(f"{line} || true") for line in block.strip().splitlines())

    def state(self) -> dict:
        """Returns the output of `replica status`."""
        said = self.machine.attempt("postrider replica status --json")
        return json.loads(said) if said.startswith("{") else {}

    def is_ok(self, role: str) -> bool:
        """Whether the machine has this role, and reports no problem."""
        shown = self.state()
        return (shown.get("role"), shown.get("state")) == (role, "ok")

    def replicates(self):
        """Set up the active machine."""
        [section, *_] = blocks((DOCS / f"{PAGE}.md").read_text(), "toml")
        self.sets(section)
        credentials, install, check, copy = commands(PAGE, "Set up the active machine")
        self.machine.write("replica.credentials", credentials)
        self.machine.run(install)
        said = self.lines(check)
        assert len(re.findall(r"^OK   replica ", said, re.MULTILINE)) == 7, said
        until("the first base is complete", lambda: self.is_ok("active"), 60, every=0.2)
        self.machine.run(copy)
        paths = (CONFIG, "/etc/postrider/replica.credentials", "/media/safe/postrider-master.key")
        self.kept = {Path(path).name: self.machine.file(path).read_bytes() for path in paths}

    def follows(self, machine: Machine, package: Path, version: str, ehlo: str = ""):
        """Set up the standby."""
        self.machine = machine
        self.installs(package, version)
        for name, content in self.kept.items():
            machine.write(name, content)
        _, copy, check, start, *_ = commands(PAGE, "Set up the standby")
        self.machine.run(copy)
        if ehlo:
            self.sets(f'[[relay]]\nehlo = "{ehlo}"\n')
        said = self.lines(check)
        assert len(re.findall(r"^OK   replica ", said, re.MULTILINE)) == 7, said
        said = machine.run(start)
        assert self.is_ok("standby"), said

    def takes_over(self):
        """Take over: asks again while the log moved within a lease, and answers that the other machine is off."""
        promote, _ = commands(PAGE, "Take over")
        answers = []

        def is_promoted() -> bool:
            answers.append(self.machine.attempt(f"echo y | {promote.strip()} && echo promoted"))
            return "promoted" in answers[-1]

        until("it is promoted", is_promoted, 30, every=1)
        print("\n".join(dict.fromkeys(answers)))

    def routes(self, address: str):
        """Route clients to the active machine: the names have a short TTL."""
        for name in (HOST, "bounces.example.com"):
            self.world.knot.put(name, "A", address)
        self.world.knot.publish()

    def checks(self):
        """Take over, step 3."""
        _, check = commands(PAGE, "Take over")
        until("it is active", lambda: self.is_ok("active"), 60, every=0.2)
        print(self.lines(check))
        assert self.content_doctor({"alerts", "backup"})

    def answers(self, address: str) -> bool:
        """Whether the machine is ready, as a proxy sees it."""
        try:
            with httpx.Client(verify=str(self.world.roots), timeout=2) as proxy:
                named = {"headers": {"Host": HOST}, "extensions": {"sni_hostname": HOST}}
                return proxy.get(f"https://{address}/readyz", **named).status_code == 200
        except httpx.TransportError:
            return False


class Drill:
    """The chapters, in order."""

    def __init__(self, package: Path, debian: Path, folder: Path):
        self.package, self.version, self.debian, self.folder = package, package.name.split("_")[1], debian, folder
        self.policy, self.machines = Policy(), {}
        self.world = World(folder, self.policy)
        subprocess.run(["ip", "address", "add", f"{STORE}/32", "dev", "lo"], check=True)
        self.world.knot.put(STORE_NAME, "A", STORE)
        self.world.knot.publish()
        certificate = self.world.authority.issue(STORE_NAME)
        self.bucket = Bucket(folder / "bucket", (STORE, 443), certificate)

    def close(self):
        """Ends everything."""
        for machine in self.machines.values():
            machine.close()
        self.bucket.close()
        self.world.close()
        self.policy.close()

    def machine(self, name: str, address: str, disk: Path | None = None, state: str = "running") -> Machine:
        """Returns a booted machine, with a new Debian or with a copy of a disk."""
        self.machines[name] = Machine(name, disk or self.debian, self.folder, address, OUTSIDE, self.world.roots)
        self.machines[name].boot(state)
        return self.machines[name]

    def received(self, since: float = 0.0) -> list[int]:
        """Returns the numbers of the orders received since a time, by the receiver's clock."""
        folder = self.world.receiver.mailboxes / "orders/new"
        files = [file for file in folder.iterdir() if file.stat().st_mtime >= since] if folder.is_dir() else []
        return [int(re.search(rb"^Subject: Order (\d+)", file.read_bytes(), re.MULTILINE)[1]) for file in files]

    def sent_by(self, name: str) -> int:
        """Returns the number of messages that a machine has sent."""
        mailboxes = [self.world.receiver.mail(name) for name in ("you", "orders", "later")]
        return sum(f"from {name} ".encode() in mail for mail in itertools.chain(*mailboxes))

    def sets_up(self):
        """The first machine by the pages for a new installation, and then by that about replication."""
        self.operator = operator = Operator(self.world, self.machine("first", SERVER))
        operator.installs(self.package, self.version)
        operator.sets_up()
        operator.starts()
        operator.adds_a_domain()
        operator.hears_late_bounces()
        say("replication, and a standby")
        operator.replicates()
        operator.sends()
        self.adds_addresses_of_the_second()
        operator.follows(self.machine("second", SECOND), self.package, self.version, SECOND_NAME)
        assert not operator.answers(SECOND), "a standby is not ready"

    def adds_addresses_of_the_second(self):
        """Set up the standby, step 2: its names, and its address in the SPF records."""
        knot = self.world.knot
        reverse = ".".join(reversed(SECOND.split("."))) + ".in-addr.arpa"
        self.world.publish(f"{SECOND_NAME}. IN A {SECOND}\n{reverse}. IN PTR {SECOND_NAME}.")
        knot.put(SECOND_NAME, "TXT", "v=spf1 a -all")
        for (name, kind), [value, *_] in list(knot.records.items()):
            if value.startswith('"v=spf1') and name.rstrip(".") != SECOND_NAME:
                knot.put(name, kind, value.strip('"').replace("v=spf1", f"v=spf1 ip4:{SECOND}"))
        knot.publish()

    def loses_the_first(self):
        """An application sends, one message is greylisted, the receiver hangs, and then the machine loses its power."""
        operator, first = self.operator, self.machines["first"]
        self.application = application = Application(self.world, operator.key)
        self.policy.answers["later@example.org"] = ["451 4.7.1 Greylisted"]
        later = {"from": "shop@example.com", "to": "later@example.org", "subject": "Later", "text": "Later."}
        self.later = application.asks("POST", "messages", json=later).json()["id"]
        application.start()
        until("orders are delivered", lambda: len(self.received()) > 20)
        self.world.receiver.hangs()
        before = len(application.accepted)
        until("orders wait", lambda: len(application.accepted) > before + 20)
        self.certificate = ssl.get_server_certificate((HOST, 443))
        until("a slot was written, and the next is not due", self.is_between_slots, every=0.005)
        self.lost_at, self.lost_time = time.monotonic(), time.time()
        first.kill()
        # The disk is gone for now. A copy appears later.
        self.disk = self.folder / "old-disk"
        first.root.rename(self.disk)
        self.world.receiver.goes_on()

    def is_between_slots(self) -> bool:
        """Whether the last object of the log was written some time ago, but less than `interval_ms`."""
        proxy = self.bucket.proxy
        written = [at for (method, path), at in zip(proxy.requests, proxy.times) if method == "PUT" and "/log/" in path]
        return 0.2 < time.monotonic() - written[-1] < 0.4

    def takes_over(self):
        """The second machine: queued mail is delivered, the panel and the API answer."""
        operator, application = self.operator, self.application
        before = dict(application.accepted)
        operator.machine, operator.ehlo = self.machines["second"], SECOND_NAME
        operator.takes_over()
        say(f"promoted {time.monotonic() - self.lost_at:.1f} s after the loss")
        operator.routes(SECOND)
        until("queued mail is delivered", lambda: self.received(self.lost_time), 60)
        say(f"first delivery {time.time() - self.lost_time:.1f} s after the loss")
        until("the application goes on", lambda: len(application.accepted) > len(before), 60)
        resumed = min(at for _, at in application.accepted.values() if at > self.lost_at + 1)
        say(f"the application's next message was accepted {resumed - self.lost_at:.1f} s after the loss")
        operator.checks()
        assert ssl.get_server_certificate((HOST, 443)) == self.certificate
        self.lost = application.lost(before)
        age = max((self.lost_at - before[number][1] for number in self.lost), default=0)
        say(f"{len(self.lost)} of {len(before)} acknowledged messages lost, from the last {age:.2f} s before the loss")
        assert age <= LOSS_S
        arrived = set(before) - set(self.lost)
        until("all others are delivered", lambda: arrived <= set(self.received()), 60)
        operator.sends()
        with operator.browses() as browser:
            page = browser.get(f"/messages/{application.accepted[max(arrived)][0]}")
            assert page.status_code == 200 and "elivered" in page.text, page.text
        self.delivers_the_greylisted()

    def delivers_the_greylisted(self):
        """The message of the first machine waits for its second attempt, until it is tried now."""
        shown = self.application.asks("GET", f"messages/{self.later}").json()
        assert (shown["attempts"], shown["status"]) == (1, "deferred"), shown
        _, command = blocks((DOCS / "troubleshooting.md").read_text(), "sh")[:2]
        self.operator.machine.run(command.strip().splitlines()[-1].replace("gmail.com", "example.org"))
        self.world.receiver.wait_for_mail(1, "later")

    def first_returns_with_its_disk(self):
        """It sends nothing, and ends. Its messages are listed, and it follows."""
        operator, application, sent = self.operator, self.application, self.sent_by(HOST)
        operator.machine = first = self.machine("first", SERVER, self.disk, "degraded")
        shutil.rmtree(self.disk)
        unit = first.run("systemctl show --property ActiveState,ExecMainStatus postrider")
        assert "ActiveState=failed" in unit and "ExecMainStatus=6" in unit, unit
        print(first.journal()[-600:])
        follow, stranded, discard, later, remove = commands(PAGE, "When the old machine returns")
        print(operator.lines(follow))
        assert "which only this directory has" in first.journal(), first.journal()[-600:]
        listed = first.run(stranded)
        print(listed)
        ids = {application.accepted[number][0]: number for number in self.lost}
        assert set(ids) <= set(re.findall(r"msg_\w{26}", listed)), listed
        assert all(application.submits(number) for number in self.lost)
        print(first.run(discard))
        assert operator.is_ok("standby")
        [aside] = [path.name for path in first.file("/var/lib/postrider").iterdir() if path.name.startswith("deposed-")]
        assert set(ids) <= set(re.findall(r"msg_\w{26}", first.run(later.replace("deposed-1", aside))))
        first.run(remove.replace("deposed-1", aside))
        numbers = set(application.accepted)
        until("every order is delivered", lambda: numbers <= set(self.received()), 60)
        received = self.received()
        assert len(received) == len(set(received)), "an order was received twice"
        assert self.sent_by(HOST) == sent, "the first machine sent"

    def first_returns_empty(self):
        """A new Debian, set up as a standby."""
        self.machines["first"].close()
        self.operator.follows(self.machine("first", SERVER), self.package, self.version)

    def becomes_automatic(self):
        """The keys of both machines: the active machine first."""
        for name, role in (("second", "active"), ("first", "standby")):
            self.operator.machine = machine = self.machines[name]
            self.operator.sets('[replica]\nmode = "sync"\nfailover = "automatic"\n')
            machine.run("systemctl restart postrider-standby")
            until(f"{name} is {role}", lambda role=role: self.operator.is_ok(role), 60, every=0.2)

    def loses_the_second(self):
        """The standby takes over without a command. Nothing that was acknowledged is lost."""
        operator, application = self.operator, self.application
        before = len(application.accepted)
        until("the application goes on", lambda: len(application.accepted) > before + 20, 60)
        lost_at, lost_time = time.monotonic(), time.time()
        self.machines["second"].kill()
        acknowledged = dict(application.accepted)
        until("the standby answers", lambda: operator.answers(SERVER), 60, every=0.1)
        ready = time.monotonic() - lost_at
        say(f"the standby answered {ready:.1f} s after the loss")
        operator.routes(SERVER)
        operator.machine, operator.ehlo = self.machines["first"], HOST
        assert ready <= 3 * LEASE_S + 5
        until("the application goes on", lambda: len(application.accepted) > len(acknowledged) + 5, 60)
        until("mail is delivered", lambda: set(self.received(lost_time)) - set(acknowledged), 60)
        say(f"first delivery of a new message {time.time() - lost_time:.1f} s after the loss")
        operator.checks()
        assert application.lost(acknowledged) == []
        operator.sends()
        application.ends.set()
        application.join()
        until("every order is delivered", lambda: set(application.accepted) <= set(self.received()), 60)
        received = Counter(self.received())
        twice = {number for number in acknowledged if received[number] > 1}
        say(f"{len(twice)} of {len(acknowledged)} orders were received twice")
        assert all(lost_at - acknowledged[number][1] <= LOSS_S for number in twice), twice
        assert not application.refused
        operator.machine.run("postrider replica verify --deep")


def story(package: Path, debian: Path, folder: Path):
    drill = Drill(package, debian, folder)
    try:
        say("a machine, by the pages for a new installation")
        drill.sets_up()
        say("the first machine loses its power, and its disk is deleted")
        drill.loses_the_first()
        drill.takes_over()
        say("the first machine returns with its old disk")
        drill.first_returns_with_its_disk()
        say("the first machine returns with an empty disk")
        drill.first_returns_empty()
        say("automatic failover")
        drill.becomes_automatic()
        drill.loses_the_second()
        say("passed: loss of the machine, take-over and return with only the documentation")
    finally:
        drill.close()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    for name in ("package", "debian"):
        arguments.add_argument(name, type=Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as place:
        Path(place).chmod(0o711)
        story(given.package, given.debian, Path(place))
