"""Promotions in unfavourable conditions: an idle successor, a wrong clock, a lost bucket, a collected log, another disk."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from support.bucket import _Proxy
from support.wait import until
from test_replica import MAIL, _ended, based, confirmed, other_config, start_serve, status
from test_replica import active, bucket  # noqa: F401, fixtures
from test_replica_standby import follows, promote, promoted, ready, standbys, state, take_over  # noqa: F401, a fixture


def waiting_standby(server, standbys, **replica):
    """Returns a standby that has everything of the server, which has one queued message."""
    server.api.accept(MAIL)
    sequence = confirmed(server)["sequence"]
    based(server)
    standby = standbys(server, **replica)
    follows(standby, sequence)
    return standby


def on_hold(server):
    return server.cli("status")["queue"]["on_hold"]


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


def test_a_failed_promotion_leaves_no_hold_and_a_hold_is_in_the_log(active, standbys, bucket):
    server = active()
    second = waiting_standby(server, standbys)
    third = standbys(server, "third")
    server.kill()
    bucket.proxy.concerns = lambda method, path: method == "PUT" and "/log/" in path
    bucket.proxy.mode = "forbidden"
    assert promote(second.data_dir, "--force", "--hold")[0] == 5
    bucket.proxy.mode = "honest"
    promoted(second, "--force")
    take_over(server, second)
    assert on_hold(server) is False
    sequence = confirmed(server)["sequence"]
    until("it knows the new epoch", lambda: third.status()["epoch"] == 2, seconds=60, every=0.2)
    follows(third, sequence)
    second.child.kill()
    promoted(third, "--force", "--hold")
    take_over(server, third)
    assert on_hold(server) is True
    epoch = status(server)["epoch"]
    fourth = standbys(server, "fourth")
    third.child.kill()
    promoted(fourth, "--force")
    take_over(server, fourth)
    assert status(server)["epoch"] == epoch + 1
    assert on_hold(server) is True, "the log has the hold"


def test_a_standby_that_was_started_without_the_bucket_is_promoted_and_serves_at_later_starts(
    active, standbys, bucket
):
    server = active(timeout_seconds=1)
    first = waiting_standby(server, standbys)
    first.close()
    server.kill()
    bucket.proxy.mode = "away"
    again = standbys(server, config=first.config, is_awaited=False)
    socket = Path(again.data_dir) / "admin.sock"
    until("it misses the bucket", lambda: socket.exists() and state(again) == "unreachable", seconds=60, every=0.2)
    promoted(again, "--without-bucket")
    take_over(server, again)
    sent = server.api.accept(MAIL)["id"]
    again.child.kill()
    later = standbys(server, config=first.config, is_awaited=False)
    take_over(server, later)
    assert server.api.message(sent)["id"] == sent
    assert status(server)["role"] == "off"
    later.close()
    bucket.proxy.mode = "honest"
    set_aside = standbys(server, "aside", "--discard", config=first.config)
    assert set_aside.status()["role"] == "standby"


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


def test_a_directory_does_not_continue_the_log_of_its_older_copy(active, bucket, workdir):
    server = active(timeout_seconds=1)
    server.api.accept(MAIL)
    confirmed(server)
    server.kill()
    shutil.copytree(server.data_dir, workdir / "older", ignore=shutil.ignore_patterns("*.sock"))
    server.start()
    confirmed(server)
    bucket.proxy.mode = "away"
    server.api.accept(MAIL)
    server.kill()
    bucket.proxy.mode = "honest"
    server.data_dir.rename(workdir / "newer")
    shutil.copytree(workdir / "older", server.data_dir)
    server.start()
    sent = server.api.accept(MAIL)["id"]
    confirmed(server)
    server.kill()
    shutil.rmtree(server.data_dir)
    (workdir / "newer").rename(server.data_dir)
    code, said = start_serve(server.config, workdir / "again.log")
    assert code == 6 and "--discard" in said, said
    assert sent


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


def test_a_promotion_takes_the_log_from_a_busy_active_machine(active, standbys, bucket):
    server = active(mode="sync", lease_seconds=5)
    standby = waiting_standby(server, standbys)
    bucket.proxy.delay = 0.03
    halt, acknowledged = threading.Event(), []

    def send():
        while not halt.is_set() and server.child.poll() is None:
            try:
                answer = server.api.send(MAIL)
            except OSError:
                continue
            if answer.status == 202:
                acknowledged.append(answer.json()["id"])

    clients = [threading.Thread(target=send) for _ in range(2)]
    for client in clients:
        client.start()
    try:
        until("there is load", lambda: len(acknowledged) > 20, seconds=60, every=0.1)
        promoted(standby, "--force")
    finally:
        halt.set()
        for client in clients:
            client.join()
    until("the old machine ends", lambda: _ended(server), seconds=60, every=0.2)
    take_over(server, standby)
    assert all(server.api.message(one)["id"] == one for one in acknowledged)
