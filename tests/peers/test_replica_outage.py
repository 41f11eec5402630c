"""A replicated service whose bucket fails: the rows of the contract's table of failures that concern the bucket."""

import json
import shutil
import threading
import time
from pathlib import Path

import pytest

from support.sinks import TolerantSink
from support.wait import until
from test_replica import MAIL, Standby, based, confirmed, master_key, other_config, restore, run, start_serve, status
from test_replica import active, bucket  # noqa: F401, fixtures

STOP = {"when_unreachable": "stop", "lease_seconds": 2, "timeout_seconds": 1}


def whole(server):
    """Whether every object of the bucket is sound."""
    code, out, err = run("replica", "verify", "--config", server.config, "--deep", "--json")
    assert code == 0, out + err


def slot_puts(bucket):
    """Returns the times at which slots, or the keys of their bodies, were sent."""
    asked = zip(list(bucket.proxy.requests), list(bucket.proxy.times), strict=False)
    return [at for (method, path), at in asked if method == "PUT" and ("/log/" in path or "/keys/" in path)]


def pauses(bucket):
    """Returns the seconds between the slots that were sent."""
    times = slot_puts(bucket)
    return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]


def lose_backlog(server, bucket):
    """Cuts the bucket off, and sends until the backlog is dropped. Returns the identifiers of the sent messages."""
    bucket.proxy.mode = "away"
    ids = []

    def dropped():
        ids.append(server.api.accept(MAIL)["id"])
        return "the replication backlog exceeded" in server.logged()

    until("the backlog is dropped", dropped, seconds=120, every=0.05)
    return ids


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_mail_goes_out_while_the_bucket_is_unreachable(mode, bucket, serve, knot, sink):
    knot.mail_server("sink.test", "mx.sink.test")
    section = bucket.section | {"mode": mode, "when_unreachable": "serve", "timeout_seconds": 1}
    server = serve(sink.port, replica=section)
    server.domain("sender.test")
    confirmed(server)
    bucket.proxy.mode = "away"
    sent = server.api.accept(MAIL | {"to": "ada@sink.test"})["id"]
    server.api.settled(sent, "delivered", seconds=60)
    assert server.api.request("GET", "/readyz").status == 200
    assert status(server)["confirmed_sequence"] < status(server)["sequence"]


def test_a_backlog_above_its_limit_is_dropped_and_a_new_base_closes_the_gap(active, bucket, workdir):
    server = active(backlog_bytes=50_000, timeout_seconds=1)
    first = server.api.accept(MAIL)["id"]
    confirmed(server)
    before = based(server)["slot"]
    ids = lose_backlog(server, bucket)
    until("a new base is needed", lambda: status(server)["state"] == "resync", seconds=60, every=0.1)
    began = time.monotonic()
    until("the base is tried", lambda: time.monotonic() > began + 3, seconds=30)
    assert status(server)["state"] == "resync", "until the base is complete"
    bucket.proxy.mode = "honest"
    until("a new base is made", lambda: status(server)["base"]["slot"] > before, seconds=150, every=0.5)
    assert confirmed(server)["backlog_bytes"] == 0
    whole(server)
    after = server.api.accept(MAIL)["id"]
    confirmed(server)
    server.kill()
    directory, (code, out, err) = restore(server, bucket, workdir, "restored")
    assert code == 0, out + err
    server.config = other_config(server, workdir, "restored", url="s3://mail-replica/next")
    server.data_dir = directory
    server.start()
    assert {server.api.message(one)["id"] for one in [first, *ids, after]} == {first, *ids, after}


def test_a_standby_follows_across_a_gap_from_the_new_base(active, bucket, workdir):
    server = active(backlog_bytes=50_000, timeout_seconds=1)
    confirmed(server)
    before = based(server)["slot"]
    standby = Standby(other_config(server, workdir, "standby"), master_key(server), workdir)
    try:
        lose_backlog(server, bucket)
        bucket.proxy.mode = "honest"
        until("a new base is made", lambda: status(server)["base"]["slot"] > before, seconds=150, every=0.5)
        sequence = confirmed(server)["sequence"]
        until("the standby follows", lambda: standby.status()["sequence"] >= sequence, seconds=150, every=0.5)
        # It has the base, and looks for later slots next.
        until("it has reached the end of the log", lambda: standby.status()["state"] == "ok", seconds=30, every=0.2)
        assert standby.child.poll() is None
    finally:
        standby.close()


def test_no_time_within_a_gap_can_be_restored(active, bucket, workdir):
    server = active(backlog_bytes=50_000, timeout_seconds=1)
    server.api.accept(MAIL)
    confirmed(server)
    before = based(server)["slot"]
    bucket.proxy.mode = "away"
    server.api.accept(MAIL)
    time.sleep(1.1)
    within = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    time.sleep(1.1)
    lose_backlog(server, bucket)
    bucket.proxy.mode = "honest"
    until("a new base is made", lambda: status(server)["base"]["slot"] > before, seconds=150, every=0.5)
    confirmed(server)
    server.kill()
    directory, (code, out, err) = restore(server, bucket, workdir, "within", "--at", within)
    assert code == 3 and "gap" in err, out + err
    assert not directory.exists()
    _, (code, out, err) = restore(server, bucket, workdir, "newest")
    assert code == 0, out + err


@pytest.mark.parametrize("what", ["slot", "part"])
def test_a_lost_object_is_noticed_within_a_minute_of_writing(what, active, bucket, workdir):
    server = active()
    server.api.accept(MAIL)
    behind = confirmed(server)["slot"]
    base = based(server)["slot"]
    standby = Standby(other_config(server, workdir, "standby"), master_key(server), workdir)
    try:
        standby.close()
        for _ in range(3):
            server.api.accept(MAIL)
            confirmed(server)
        lost = f"log/{max(behind, base) + 1:012}" if what == "slot" else f"base/{base:012}/000001"
        bucket.remove(lost)
        code, out, _ = run("replica", "verify", "--config", server.config, "--json")
        assert code == 7 and lost in out, out
        standby = Standby(standby.config, master_key(server), workdir, is_awaited=what == "part")
        if what == "slot":
            socket = Path(standby.data_dir) / "admin.sock"
            until("it needs a base", lambda: socket.exists() and standby.status()["state"] == "resync", every=0.2)
        server.api.accept(MAIL)
        until("a new base is made", lambda: status(server)["base"]["slot"] > base, seconds=150, every=0.5)
        assert "missing from the bucket" in server.logged() and lost in server.logged()
        sequence = confirmed(server)["sequence"]
        until("the standby follows", lambda: standby.status()["sequence"] >= sequence, seconds=150, every=0.5)
        until("all is well", lambda: standby.status()["state"] == "ok", seconds=60, every=0.2)
    finally:
        standby.close()


def test_verify_reports_a_lost_slot_at_the_end_that_a_base_names(active, bucket):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    server.cli("replica", "base")
    base = status(server)["base"]["slot"]
    server.kill()
    for name in bucket.names("log/"):
        if int(name[4:]) >= base:
            bucket.remove(name)
    code, out, err = run("replica", "verify", "--config", server.config, "--json")
    assert code == 7 and f"log/{base:012}" in out, out + err


def caught_up(server):
    found = status(server)
    return found["sequence"] == found["confirmed_sequence"]


@pytest.mark.parametrize("mode", ["busy", "broken", "slow down"])
def test_an_overloaded_bucket_is_asked_less_and_less_often_and_batches_grow(mode, active, bucket):
    server = active(timeout_seconds=1)
    based(server)
    server.api.settled(server.api.accept(MAIL)["id"], "deferred", seconds=60)
    slot = confirmed(server)["slot"]
    bucket.proxy.requests.clear()
    bucket.proxy.times.clear()
    bucket.proxy.mode = mode
    sent = []

    def waited():
        sent.append(server.api.accept(MAIL)["id"])
        return any(pause > 3 for pause in pauses(bucket))

    until("the pauses grow to seconds", waited, seconds=120, every=0.1)
    found = pauses(bucket)
    # An interval of 50 ms would have had hundreds of tries.
    assert len(found) < 30, found
    assert max(found) < 10 + 2 and len({round(pause, 3) for pause in found}) > len(found) / 2, "there is jitter"
    before = status(server)
    missing = before["sequence"] - before["confirmed_sequence"]
    bucket.proxy.mode = "honest"

    def has_the_missing():
        found = status(server)
        return found["confirmed_sequence"] >= before["sequence"] and found

    after = until("the bucket has the missing batches", has_the_missing, seconds=60, every=0.02)
    # The bytes of the first slot were fixed at its first try. The next slot has all other batches.
    assert (after["slot"] - slot) * 3 <= missing, (before, after)
    confirmed(server)
    whole(server)


def test_refused_credentials_are_read_again_and_the_service_goes_on(active, bucket):
    server = active()
    confirmed(server)
    bucket.proxy.revoked = "AKIATEST"
    server.api.accept(MAIL)
    until("the bucket refuses them", lambda: status(server)["state"] == "forbidden", seconds=60, every=0.2)
    assert "AccessDenied" in status(server)["error"]
    bucket.credentials.write_text("[default]\naws_access_key_id = AKIANEXT\naws_secret_access_key = other\n")
    found = until("the bucket has everything", lambda: caught_up(server) and status(server), seconds=60, every=0.2)
    assert found["state"] == "ok" and found["error"] is None, found


def test_refused_credentials_count_as_unreachable_and_the_service_stops_accepting(active, bucket):
    server = active(**STOP)
    server.api.accept(MAIL)
    confirmed(server)
    bucket.proxy.mode = "forbidden"

    def refused():
        answer = server.api.send(MAIL)
        return answer.status == 503 and answer.json()["code"] == "replica_unavailable"

    until("sends are refused", refused, seconds=60, every=0.3)
    assert server.api.request("GET", "/readyz").status == 503
    assert status(server)["state"] == "forbidden"
    bucket.proxy.mode = "honest"
    until("sends are accepted", lambda: server.api.send(MAIL).status == 202, seconds=60, every=0.3)


def test_without_a_lease_the_connection_ends_before_the_final_dot(bucket, serve, knot):
    may_answer = threading.Event()
    asked = threading.Event()

    def before_data():
        asked.set()
        may_answer.wait(240)

    receiver = TolerantSink(before_data)
    knot.mail_server("sink.test", "mx.sink.test")
    server = serve(receiver.port, replica=bucket.section | STOP)
    try:
        server.domain("sender.test")
        confirmed(server)
        sent = server.api.accept(MAIL | {"to": "ada@sink.test"})["id"]
        assert asked.wait(60), "the message is on its way"
        bucket.proxy.mode = "away"
        until("the lease is over", lambda: not status(server)["lease_left_ms"], seconds=60, every=0.1)
        may_answer.set()
        # The dot asks for a confirmation first, which the bucket does not give.
        until("nothing is mailed", lambda: server.api.request("GET", "/readyz").status == 503, seconds=60, every=0.1)
        assert receiver.ended.wait(60), "the connection ends"
        assert receiver.messages == []
        found = server.api.message(sent)
        assert found["status"] == "queued" and found["attempts"] == 0, found
        bucket.proxy.mode = "honest"
        server.api.settled(sent, "delivered", seconds=90)
        assert len(receiver.messages) == 1
        assert server.api.message(sent)["attempts"] == 1
    finally:
        may_answer.set()
        receiver.close()


def test_a_clock_five_minutes_off_fails_the_doctor_and_the_start(active, bucket, workdir):
    server = active()
    confirmed(server)
    server.close()

    def found():
        _, out, _ = run("doctor", "--config", server.config, "--json")
        return next(check for check in json.loads(out)["checks"] if check["name"] == "replica clock")

    bucket.proxy.clock_seconds = 240
    assert found()["verdict"] == "OK"
    for seconds in (400, -400):
        bucket.proxy.clock_seconds = seconds
        check = found()
        assert check["verdict"] == "FAIL" and check["remedy"], check
    code, said = start_serve(server.config, workdir / "again.log")
    assert code == 1 and "clock differs" in said, said
    bucket.proxy.clock_seconds = 0
    server.start()
    confirmed(server)


def test_a_standby_whose_next_slot_was_collected_takes_the_newest_base(active, bucket, workdir):
    server = active(retention_hours=0)
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    standby = Standby(other_config(server, workdir, "standby"), master_key(server), workdir)
    try:
        behind = standby.status()["slot"]
        bucket.proxy.mode = "away"
        bucket.proxy.concerns = lambda method, path: method == "GET" and f"/log/{behind + 1:012}" in path
        for _ in range(3):
            server.api.accept(MAIL)
            sequence = confirmed(server)["sequence"]
        server.cli("replica", "base")
        assert f"log/{behind + 1:012}" not in bucket.names(), "collected"
        bucket.proxy.mode = "honest"
        until("the standby follows", lambda: standby.status()["sequence"] >= sequence, seconds=150, every=0.5)
        # It has the base, and looks for later slots next.
        until("it has reached the end of the log", lambda: standby.status()["state"] == "ok", seconds=30, every=0.2)
    finally:
        standby.close()


def test_a_machine_set_back_to_an_older_disk_applies_the_rest_of_the_log_before_its_claim(active, bucket, workdir):
    server = active()
    server.api.accept(MAIL)
    before = confirmed(server)
    server.close()
    shutil.copytree(server.data_dir, workdir / "older")
    server.start()
    ids = [server.api.accept(MAIL)["id"] for _ in range(5)]
    confirmed(server)
    server.kill()
    shutil.rmtree(server.data_dir)
    shutil.copytree(workdir / "older", server.data_dir)
    server.start()
    assert {server.api.message(one)["id"] for one in ids} == set(ids)
    later = server.api.accept(MAIL)["id"]
    assert later > max(ids), "identifiers go on rising"
    found = confirmed(server)
    assert found["epoch"] == before["epoch"] + 2 and found["holder"] == before["holder"]
    whole(server)


def test_a_restore_that_ends_at_a_gap_says_so(active, bucket, workdir):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    base = based(server)["slot"]
    for _ in range(4):
        server.api.accept(MAIL)
        confirmed(server)
    server.kill()
    _, (code, out, err) = restore(server, bucket, workdir, "whole")
    assert code == 0 and json.loads(out)["gap"] is None, out + err
    bucket.remove(f"log/{base + 2:012}")
    _, (code, out, err) = restore(server, bucket, workdir, "gap")
    assert code == 0 and f"log/{base + 2:012}" in json.loads(out)["gap"] and "gap" in err, out + err
