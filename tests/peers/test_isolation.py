"""One account's mail to receivers that are silent, hang or are slow never delays another account's mail to a working
site. Each site is a loopback address."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.server import Api
from support.wait import until

CONNECTIONS = 32
UNLIMITED = {
    "limits": {"requests_per_minute": 100_000_000},
    "quota": {"per_hour": 10**9, "per_day": 10**9},
    "delivery": {"max_connections": CONNECTIONS},
}
SECONDS_MAX = 5.0
MESSAGES = 20


class Sites:
    """Receivers on 127.0.0.0/8, each at a separate address. `ways` maps an address to the behaviour."""

    def __init__(self):
        self.ways, self.taken, self.open = {}, {}, 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        listening = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "0.0.0.0", 0, backlog=1024), self.loop
        )
        self.server = listening.result(10)
        self.port = self.server.sockets[0].getsockname()[1]

    def close(self):
        """Stops all receivers, including hanging ones."""
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    async def _end(self):
        self.server.close()
        sessions = asyncio.all_tasks() - {asyncio.current_task()}
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)

    async def _serve(self, reader, writer):
        address = writer.get_extra_info("sockname")[0]
        self.open += 1
        try:
            await self._talk(address, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _talk(self, address, reader, writer):
        if self.ways.get(address) == "silent":
            await reader.read()
            return
        writer.write(b"220 here\r\n")
        recipient = ""
        while line := await reader.readline():
            verb = line[:4].upper()
            if verb == b"RCPT":
                recipient = line.split(b"<")[1].split(b">")[0].decode()
            if verb == b"DATA":
                writer.write(b"354 go on\r\n")
                while (await reader.readline()) not in (b".\r\n", b""):
                    pass
                if self.ways.get(address) == "hangs":
                    await reader.read()
                    return
                if self.ways.get(address) == "slow":
                    await asyncio.sleep(0.05)
                self.taken[recipient] = time.monotonic()
            writer.write(b"250 fine\r\n")
            if verb == b"QUIT":
                return


class Scene:
    """A service with two accounts, and their receivers."""

    def __init__(self, serve, knot, sites):
        self.serve, self.knot, self.sites, self.count = serve, knot, sites, 0
        self.good = self.site("slow")
        knot.publish()
        self.service = serve(port=sites.port, **UNLIMITED)
        self.service.domain("sender.test")
        added = self.service.cli("account", "add", "Victim")
        self.victim_key = self.service.cli("key", "add", "--account", added["id"], "--name", "victim")["key"]
        domain = self.service.cli("domain", "add", "victim.test", "--stream", "transactional", "--account", added["id"])
        first, self.service.api = self.service.api, self.victim()
        self.service.publish(domain, ("rsa-sha256", "ed25519-sha256"))
        self.service.api = first

    def victim(self):
        """Returns the API client of the other account."""
        return Api(self.service.url, self.victim_key)

    def site(self, way=None):
        """Returns the domain of a further site."""
        self.count += 1
        domain, address = f"d{self.count}.test", f"127.{1 + self.count // 250}.{self.count % 250}.9"
        self.sites.ways[address] = way
        self.knot.mail_server(domain, f"mx.{domain}", address)
        return domain

    def send(self, api, sender, recipients):
        """Accepts a message to each recipient."""
        message = {"from": f"shop@{sender}", "subject": "s", "text": "x"}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda to: api.accept(message | {"to": to}), recipients))

    def adversary(self, recipients):
        """Accepts a message of the first account to each recipient."""
        self.send(self.service.api, "sender.test", recipients)

    def delays(self):
        """Returns the seconds from acceptance to the final dot for each message of the other account."""
        delays = []
        for n in range(MESSAGES):
            recipient = f"victim{n}@{self.good}"
            self.send(self.victim(), "victim.test", [recipient])
            accepted = time.monotonic()
            until(f"{recipient} is taken", lambda to=recipient: to in self.sites.taken, 60, every=0.005)
            delays.append(self.sites.taken[recipient] - accepted)
        return delays


@pytest.fixture
def scene(serve, knot):
    sites = Sites()
    yield Scene(serve, knot, sites)
    sites.close()


def check(scene):
    """Checks that no message of the other account waits."""
    delays = sorted(scene.delays())
    print(f"p50 {delays[MESSAGES // 2]:.3f} s, max {delays[-1]:.3f} s")
    assert delays[-1] < SECONDS_MAX, delays


def test_baseline_without_other_mail(scene):
    check(scene)


def test_silent_servers_after_a_restart_delay_no_other_mail(scene):
    silent = [scene.site("silent") for _ in range(200)]
    scene.knot.publish()
    scene.adversary([f"u@{domain}" for domain in silent])
    scene.service.close()
    scene.service.start()
    scene.adversary([f"u{n}@{scene.good}" for n in range(30)])
    until("the silent servers have connections", lambda: scene.sites.open >= CONNECTIONS // 2)
    check(scene)


def test_servers_that_hang_at_the_final_dot_delay_no_other_mail(scene):
    sites = [scene.site() for _ in range(60)]
    scene.knot.publish()
    scene.adversary([f"first@{domain}" for domain in sites])
    until("each server has accepted mail", lambda: all(f"first@{domain}" in scene.sites.taken for domain in sites), 60)
    for address in [address for address, way in scene.sites.ways.items() if way is None]:
        scene.sites.ways[address] = "hangs"
    scene.adversary([f"{n}@{domain}" for domain in sites for n in range(3)])
    scene.adversary([f"u{n}@{scene.good}" for n in range(30)])
    until("they hang", lambda: scene.sites.open >= CONNECTIONS, 30)
    check(scene)


def test_many_messages_for_the_same_site_delay_no_other_mail(scene):
    scene.adversary([f"u{n}@{scene.good}" for n in range(500)])
    check(scene)
