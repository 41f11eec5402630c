"""Receivers that send invalid, endless or no answers, or disconnect, over real sockets: no message is lost, none is
duplicated unless the outcome is unknowable, mail to other sites is unaffected, and no answer makes the process grow."""

import time
from collections import Counter

import pytest
from hostile import servers
from support.hostile_servers import DIALOGUE, HostileServers
from support.wait import until

MESSAGE = {"from": "shop@example.test", "subject": "all is well", "text": "x"}
CONFIG = """\
hostname = "mail.sender.test"
[dns]
servers = ["{names}"]
[delivery]
port = {port}
[network]
allow = ["127.0.0.0/8"]
[limits]
requests_per_minute = 1000000
[quota]
per_hour = 1000000
per_day = 1000000
"""
# Long enough for the backoff of the site in addition to that of the message.
HOURS = 3
# Number of messages whose attempts one request to advance the clock waits for.
AT_ONCE = 200
RSS_GROWTH_MAX_KIB = 5 * 1024
# Capacity of the buffers of both sockets before a writer has to wait.
SOCKET_BUFFERS = 16 * 1024 * 1024


@pytest.fixture
def hostile():
    hostile = HostileServers()
    yield hostile
    hostile.close()


class Scene:
    """A `dev` that delivers to the hostile servers, each serving one domain."""

    def __init__(self, knot, hostile, dev, *arguments):
        self.knot, self.hostile, self.domains = knot, hostile, 0
        self.dev = dev("--deliver", *arguments, config=CONFIG.format(names=knot.server, port=hostile.port))
        self.api = self.dev.api

    def site(self, script=None, **how):
        """Adds a server, and returns the domain that it receives for."""
        address, server = self.hostile.add(script, **how)
        self.domains += 1
        domain = f"d{self.domains}.test"
        self.knot.mail_server(domain, f"mx.{domain}", address)
        return domain, server

    def send(self, domain):
        """Accepts a message to the domain, and returns its identifier."""
        return self.api.accept(MESSAGE | {"to": f"you@{domain}"})["id"]

    def rss(self):
        """Resident memory in KiB."""
        with open(f"/proc/{self.dev.child.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

    def latency(self, domain, server):
        """Returns the seconds from a message's request to its arrival at the server."""
        began = time.monotonic()
        message_id = self.send(domain)
        until(f"{message_id} is taken", lambda: server.copies(message_id), 20, every=0.001)
        return next(at for taken, at in server.taken if taken == message_id) - began


@pytest.fixture
def virtual(knot, hostile, dev):
    return Scene(knot, hostile, dev, "--virtual-clock")


@pytest.fixture
def real(knot, hostile, dev):
    return Scene(knot, hostile, dev)


def ends(scene, sites):
    """Sends one message to each site, advances the clock by hours, and returns each site's record and copies of its
    message."""
    scene.knot.publish()
    sent, waiting = {}, list(sites.items())
    while waiting:
        for name, (domain, server) in waiting[:AT_ONCE]:
            sent[name] = (scene.send(domain), server)
        waiting = waiting[AT_ONCE:]
        scene.dev.advance(0)
        for _ in range(HOURS * 4):
            scene.dev.advance(900)
    records = {name: scene.api.message(message_id) for name, (message_id, _) in sent.items()}
    copies = {name: server.copies(message_id) for name, (message_id, server) in sent.items()}
    # None was refused, so there is one correct end.
    lost = {name: (record["status"], record["smtp_response"]) for name, record in records.items() if not copies[name]}
    lost |= {name: record["status"] for name, record in records.items() if record["status"] != "delivered"}
    assert not lost, f"{len(lost)} of {len(sites)}: {list(lost.items())[:9]}"
    return records, copies


def test_a_server_that_fails_at_first_gets_each_message_exactly_once(virtual):
    scripts = servers.wrong()
    _, copies = ends(virtual, {name: virtual.site(script, bad_sessions=1) for name, script in scripts.items()})
    twice = {name for name, count in copies.items() if count > 1}
    assert twice <= {name for name, script in scripts.items() if servers.may_double(script)}
    assert max(copies.values()) <= 2


def test_an_unusual_but_valid_server_gets_each_message_at_the_first_attempt(virtual):
    records, copies = ends(virtual, {name: virtual.site(script) for name, script in servers.odd().items()})
    assert {name: record["attempts"] for name, record in records.items() if record["attempts"] != 1} == {}
    assert set(copies.values()) == {1}


def test_a_connection_cut_after_any_byte_sent_by_the_server_loses_nothing(virtual):
    spoken = "greeting ehlo mail rcpt data dot".split()
    total = sum(len(DIALOGUE[phase]) for phase in spoken)
    records, copies = ends(virtual, {cut: virtual.site(bad_sessions=1, say_max=cut) for cut in range(1, total + 1)})
    # The server has the message when it begins to answer; the client knows it at the end of that line.
    window = set(range(total - len(DIALOGUE["dot"]) + 1, total))
    assert {cut for cut, count in copies.items() if count == 2} == window
    assert max(copies.values()) == 2
    unsure = {cut for cut, record in records.items() if record["events"][1]["bounce"] is not None} & window
    assert {records[cut]["events"][1]["bounce"]["rule"] for cut in unsure} == {"local-outcome-unknown"}
    assert unsure == window


def test_a_connection_cut_after_any_byte_received_by_the_server_loses_and_duplicates_nothing(virtual):
    domain, server = virtual.site()
    virtual.knot.publish()
    virtual.send(domain)
    virtual.dev.advance(0)
    # The following sessions have a few more bytes, because of a longer domain name: cuts after the end have no effect.
    total = server.heard + 16
    _, copies = ends(virtual, {cut: virtual.site(bad_sessions=1, hear_max=cut) for cut in range(total)})
    assert Counter(copies.values()) == {1: total}


def test_hostile_dns_answers_end_after_finite_attempts(virtual):
    knot = virtual.knot
    _, refusing = virtual.site({"greeting": b"421 4.3.2 no\r\n"})
    address = next(at for at, server in virtual.hostile.servers.items() if server is refusing)
    knot.put("hundred.test", "MX", *[f"{n} mx{n}.hundred.test" for n in range(100)])
    for n in range(100):
        knot.put(f"mx{n}.hundred.test", "A", address)
    knot.put("circle.test", "CNAME", "circle2.test")
    knot.put("circle2.test", "CNAME", "circle.test")
    knot.put("mxcircle.test", "MX", "10 circle.test")
    for n in range(40):
        knot.put(f"c{n}.chain.test", "CNAME", f"c{n + 1}.chain.test")
    knot.publish()
    sent = {name: virtual.send(name) for name in ("hundred.test", "circle.test", "mxcircle.test", "c0.chain.test")}
    virtual.dev.advance(0)
    records = {name: virtual.api.message(message_id) for name, message_id in sent.items()}
    assert records.pop("hundred.test")["status"] == "deferred"
    # An attempt uses the best 20 servers.
    assert 1 <= refusing.sessions <= 20
    bounces = {name: record["events"][-1]["bounce"] for name, record in records.items()}
    assert {name: (bounce["source"], bounce["suppressed"]) for name, bounce in bounces.items()} == {
        name: ("dns", False) for name in records
    }


def test_hostile_servers_do_not_delay_other_sites_or_leak_memory(real):
    healthy, sink = real.site()
    babbling, silent = servers.endless_ones(), servers.silent()

    def siege(copies):
        """A server for each row; all receive their messages at once."""
        sites = {name: real.site(script) for name, script in (babbling | silent).items()}
        real.knot.publish()
        return sites, {name: [real.send(sites[name][0]) for _ in range(copies)] for name in sites}

    def latencies(count):
        return sorted(real.latency(healthy, sink) for _ in range(count))

    real.knot.publish()
    latencies(20)
    # The warm-up is a full round: threads, buffers and the store's cache reach their size.
    first, _ = siege(2)
    until("all servers of the warm-up have a session", lambda: all(server.sessions for _, server in first.values()), 60)
    before, weight = latencies(100), real.rss()

    sites, sent = siege(5)
    until("all servers have a session", lambda: all(server.sessions for _, server in sites.values()), 60)
    during = latencies(100)
    until("endless servers are disconnected", lambda: not any(sites[name][1].open for name in babbling), 60)
    grown = real.rss() - weight
    print(f"p50 {before[50]:.4f} to {during[50]:.4f} s, p95 {before[95]:.4f} to {during[95]:.4f} s, {grown} KiB grown")
    assert during[50] < max(0.1, 3 * before[50]) and during[95] < max(0.3, 3 * before[95])
    assert grown < RSS_GROWTH_MAX_KIB
    sessions = {name: sites[name][1].sessions for name in babbling}
    assert all(sites[name][1].said < SOCKET_BUFFERS * sessions[name] for name in babbling)

    for name, ids in sent.items():
        # If only TLS is broken, the mail is sent without TLS, where the server behaves.
        expected = {"delivered"} if name.startswith("handshake") else {"queued", "deferred"}
        assert {real.api.message(message_id)["status"] for message_id in ids} <= expected, name
    # Once a silent server disconnects, its messages are free again.
    real.hostile.hang_up()
    for name in silent:
        assert real.api.settled(sent[name][0], "deferred")["next_attempt_at"], name
