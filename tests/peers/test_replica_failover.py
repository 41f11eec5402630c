"""Promotions in unfavourable conditions: an idle successor, a wrong clock, a collected log, foreign objects."""

import time

import pytest

from support.bucket import _Proxy
from support.wait import until
from test_replica import MAIL, based, confirmed, status
from test_replica import active, bucket  # noqa: F401, fixtures
from test_replica_standby import follows, promoted, ready, standbys, state, take_over  # noqa: F401, a fixture


def waiting_standby(server, standbys, **replica):
    """Returns a standby that has everything of the server, which has one queued message."""
    server.api.accept(MAIL)
    sequence = confirmed(server)["sequence"]
    based(server)
    standby = standbys(server, **replica)
    follows(standby, sequence)
    return standby


def test_an_idle_successor_is_ready_after_the_wait_and_stays_so(active, standbys):
    server = active(mode="sync", when_unreachable="stop", lease_seconds=2)
    standby = waiting_standby(server, standbys)
    server.kill()
    promoted(standby, "--force")
    until("it serves", lambda: ready(standby), seconds=60, every=0.2)
    # The wait is 2.6 s; the fault began a lease after it.
    end = time.monotonic() + 8
    while time.monotonic() < end:
        assert ready(standby)
        time.sleep(0.5)
    take_over(server, standby)
    server.api.accept(MAIL)


@pytest.mark.parametrize("failover", ["manual", "automatic"])
def test_a_standby_whose_next_slot_was_collected_takes_the_newest_base_before_it_claims(
    failover, active, standbys, bucket
):
    automatic = {"when_unreachable": "stop", "failover": "automatic", "lease_seconds": 2, "timeout_seconds": 1}
    server = active(retention_hours=0, **(automatic if failover == "automatic" else {"timeout_seconds": 1}))
    own_way = _Proxy(bucket.port)
    try:
        standby = waiting_standby(server, standbys, endpoint=f"http://127.0.0.1:{own_way.server_port}")
        own_way.mode = "away"
        until("it misses the bucket", lambda: state(standby) == "unreachable", seconds=60, every=0.2)
        for _ in range(5):
            server.api.accept(MAIL)
            sequence = confirmed(server)["sequence"]
        server.cli("replica", "base")
        own_way.mode = "honest"
        until("it has the newest base", lambda: standby.status()["sequence"] >= sequence, seconds=60, every=0.2)
        until("it follows", lambda: state(standby) == "ok", seconds=30, every=0.2)
        assert status(server)["role"] == "active"
        if failover == "manual":
            server.kill()
            promoted(standby, "--force")
            take_over(server, standby)
            server.api.accept(MAIL)
    finally:
        own_way.shutdown()


def test_a_standby_with_a_wrong_clock_does_not_start(active, standbys, bucket):
    server = active()
    first = waiting_standby(server, standbys)
    first.close()
    bucket.proxy.clock_seconds = -400
    again = standbys(server, config=first.config, is_awaited=False)
    until("it ends", lambda: again.child.poll() is not None, seconds=60, every=0.2)
    assert again.child.poll() == 1 and "clock differs" in again.log.read_text()


def test_objects_of_other_programs_in_the_bucket_do_not_stop_a_promotion(active, standbys, bucket):
    server = active()
    standby = waiting_standby(server, standbys)
    for name in ("log/README", "log/000000000003.bak", "base/zzz"):
        bucket.put(name, b"note")
    server.kill()
    promoted(standby, "--force")
    take_over(server, standby)
    server.api.accept(MAIL)
