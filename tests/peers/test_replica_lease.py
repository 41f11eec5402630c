"""The lease of a replicated service: stopping without the bucket, synchronous answers, and automatic failover."""

import concurrent.futures
import json
import signal
import time

import pytest

from support.wait import until
from test_replica import MAIL, Standby, _ended, based, confirmed, master_key, other_config, run, status
from test_replica import active, bucket  # noqa: F401, fixtures

STOP = {"when_unreachable": "stop", "lease_seconds": 2, "timeout_seconds": 1}


def answered(server, **more):
    """Returns the status and the code of one send."""
    answer = server.api.request("POST", "/v1/messages", MAIL, **more)
    return answer.status, answer.json().get("code")


def ready(server):
    return server.api.request("GET", "/readyz").status


def puts(bucket):
    return [path for method, path in bucket.proxy.requests if method == "PUT" and "/log/" in path]


def test_without_the_bucket_accepting_stops_after_a_lease_and_resumes_automatically(active, bucket):
    server = active(**STOP)
    server.api.accept(MAIL)
    found = confirmed(server)
    assert 0 <= found["lease_left_ms"] <= 2000
    bucket.proxy.mode = "away"
    until("sends are refused", lambda: answered(server) == (503, "replica_unavailable"), seconds=20, every=0.3)
    answer = server.api.request("POST", "/v1/messages", MAIL)
    assert int(answer.headers["retry-after"]) >= 1
    assert ready(server) == 503 and server.api.request("GET", "/healthz").status == 200
    assert server.api.request("GET", "/v1/messages").status == 200, "reading still works"
    bucket.proxy.mode = "honest"
    until("sends are accepted", lambda: answered(server)[0] == 202, seconds=20, every=0.3)
    assert ready(server) == 200
    confirmed(server)


def test_an_idle_machine_makes_no_requests_stays_ready_and_checks_before_accepting(active, bucket):
    server = active(**STOP)
    confirmed(server)
    based(server)
    time.sleep(3)
    bucket.proxy.requests.clear()
    time.sleep(4)
    assert bucket.proxy.requests == []
    assert ready(server) == 200
    assert answered(server)[0] == 202
    assert any(method == "GET" and "/log/" in path for method, path in bucket.proxy.requests), "checked first"
    bucket.proxy.mode = "away"
    time.sleep(3)
    began = time.monotonic()
    assert answered(server) == (503, "replica_unavailable")
    assert time.monotonic() - began < 6


def test_an_idle_automatic_machine_makes_three_requests_a_lease(active, bucket):
    server = active(**STOP | {"failover": "automatic", "lease_seconds": 3})
    confirmed(server)
    based(server)
    slot = status(server)["slot"]
    until("it is idle", lambda: status(server)["slot"] >= slot + 3, seconds=60, every=0.2)
    began = time.monotonic()
    bucket.proxy.requests.clear()
    until("ten beats pass", lambda: len(puts(bucket)) >= 10, seconds=60, every=0.05)
    leases = (time.monotonic() - began) / 3
    asked = list(bucket.proxy.requests)
    assert {method for method, _ in asked} == {"PUT"}, asked
    assert len(asked) <= 3 * leases + 2, (len(asked), leases)


def test_a_busy_machine_writes_at_most_two_slots_a_second(active, bucket):
    server = active(interval_ms=500)
    confirmed(server)
    based(server)
    began = time.monotonic()
    bucket.proxy.requests.clear()
    sent = [server.api.accept(MAIL)["id"]]

    def busy():
        sent.append(server.api.accept(MAIL)["id"])
        return len(puts(bucket)) >= 15

    # Twenty messages a second: ten for each slot, and far from the key's limit of 600 requests a minute.
    until("fifteen slots are written", busy, seconds=25, every=0.05)
    assert len(puts(bucket)) <= 2 * (time.monotonic() - began) + 1
    assert len(set(sent)) == len(sent)


def test_a_frozen_machine_stops_once_another_took_over(active, bucket, workdir):
    server = active(**STOP)
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    standby = Standby(other_config(server, workdir, "standby"), master_key(server), workdir)
    try:
        server.child.send_signal(signal.SIGSTOP)
        code, out, err = run("promote", "--data-dir", standby.data_dir, "--force", "--json")
        assert code == 0, out + err
        until("the standby serves", lambda: serves(standby), seconds=30)
        # Until its lease ends it may accept mail. Without the bucket's confirmation that mail is lost, as after an
        # asynchronous crash.
        time.sleep(2.5)
        server.child.send_signal(signal.SIGCONT)
        assert answered_or_gone(server) != 202
        until("the machine ends", lambda: _ended(server), seconds=30)
        assert server.child.wait() == 6
        assert "claimed the log" in server.logged() and json.loads(run(
            "replica", "status", "--data-dir", standby.data_dir, "--json"
        )[1])["holder"] in server.logged()
    finally:
        standby.close()


def answered_or_gone(server):
    try:
        return answered(server)[0]
    except OSError:
        return None


def test_synchronous_answers_share_one_put(active, bucket):
    server = active(mode="sync", timeout_seconds=10)
    server.api.accept(MAIL)
    found = confirmed(server)
    assert found["mode"] == "sync" and found["confirmed_sequence"] == found["sequence"]
    based(server)
    bucket.proxy.delay = 0.3
    bucket.proxy.requests.clear()
    began = time.monotonic()
    server.api.accept(MAIL)
    assert time.monotonic() - began >= 0.3
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        ids = list(pool.map(lambda _: server.api.accept(MAIL)["id"], range(30)))
    assert len(set(ids)) == 30
    found = status(server)
    assert found["confirmed_sequence"] > 0
    assert len(puts(bucket)) <= 15, puts(bucket)


def test_an_uncertain_send_is_reported_and_its_replay_gives_the_202(active, bucket):
    server = active(mode="sync", lease_seconds=10, timeout_seconds=1)
    # The outcome of its first attempt must not be the change in doubt: the send would be refused instead.
    server.api.settled(server.api.accept(MAIL)["id"], "deferred", seconds=60)
    confirmed(server)
    bucket.proxy.mode = "away"
    key = {"Idempotency-Key": "in-doubt"}
    answer = server.api.request("POST", "/v1/messages", MAIL, headers=key)
    assert answer.status == 503 and answer.json()["code"] == "replica_unavailable", answer
    assert "doubt" in answer.json()["message"]
    assert len(server.api.get("/v1/messages")["data"]) == 1, "the uncertain message is not visible"
    bucket.proxy.mode = "honest"
    until("it is accepted", lambda: accepted(server, key), seconds=20, every=0.3)
    assert len(server.api.get("/v1/messages")["data"]) == 2
    confirmed(server)


def serves(standby):
    """Whether it is ready; its listener closes briefly during the promotion."""
    try:
        return standby.get("/readyz")[0] == 200
    except OSError:
        return False


def accepted(server, headers):
    answer = server.api.request("POST", "/v1/messages", MAIL, headers=headers)
    return answer if answer.status == 202 else None


def test_synchronous_mode_with_serve_waits_once_and_is_then_degraded(active, bucket):
    server = active(mode="sync", when_unreachable="serve", timeout_seconds=1)
    server.api.accept(MAIL)
    confirmed(server)
    bucket.proxy.mode = "away"
    began = time.monotonic()
    server.api.accept(MAIL)
    assert time.monotonic() - began >= 1
    began = time.monotonic()
    server.api.accept(MAIL)
    assert time.monotonic() - began < 0.9
    assert status(server)["state"] == "degraded"
    bucket.proxy.mode = "honest"
    assert confirmed(server)["state"] == "ok"


def test_a_kill_loses_no_synchronously_acknowledged_message(active, bucket, workdir):
    server = active(mode="sync")
    based(server)
    ids = [server.api.accept(MAIL)["id"] for _ in range(10)]
    server.kill()
    standby = Standby(other_config(server, workdir, "standby"), master_key(server), workdir)
    try:
        code, out, err = run("promote", "--data-dir", standby.data_dir, "--force", "--json")
        assert code == 0, out + err
        until("the standby serves", lambda: serves(standby), seconds=30)
        server.data_dir = type(server.data_dir)(standby.data_dir)
        server.api.host, server.api.port = standby.url().removeprefix("http://").split(":")
        assert {server.api.message(one)["id"] for one in ids} == set(ids)
    finally:
        standby.close()


def test_a_standby_takes_over_automatically(active, bucket, workdir):
    automatic = STOP | {"failover": "automatic"}
    server = active(**automatic)
    sent = server.api.accept(MAIL)["id"]
    assert confirmed(server)["failover"] == "automatic"
    based(server)
    standby = Standby(other_config(server, workdir, "standby"), master_key(server), workdir)
    try:
        before = status(server)["slot"]
        time.sleep(8)
        assert standby.get("/readyz")[0] == 503, "the active machine is idle and alive"
        assert status(server)["slot"] >= before + 8, "it beats three times a lease"
        found = json.loads(run("replica", "status", "--data-dir", standby.data_dir, "--json")[1])
        assert found["base"] and found["restorable_from"] and found["lag_seconds"] < 5, found
        server.kill()
        began = time.monotonic()
        until("the standby serves", lambda: serves(standby), seconds=30, every=0.1)
        assert time.monotonic() - began <= 3 * 2 + 5
        server.data_dir = type(server.data_dir)(standby.data_dir)
        server.api.host, server.api.port = standby.url().removeprefix("http://").split(":")
        assert server.api.message(sent)["id"] == sent
        assert answered(server)[0] == 202
    finally:
        standby.close()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_stop_without_the_bucket_keeps_the_unsent_log(mode, active, bucket):
    server = active(mode=mode, when_unreachable="stop", lease_seconds=60, timeout_seconds=1)
    # The outcome of its first attempt must not wait for the bucket: a second change would be refused meanwhile.
    server.api.settled(server.api.accept(MAIL)["id"], "deferred", seconds=60)
    found = confirmed(server)
    bucket.proxy.mode = "away"
    code = answered(server)[0]
    assert code == (202 if mode == "async" else 503)
    server.child.send_signal(signal.SIGTERM)
    # The units allow 60 s for a stop before they kill the process.
    server.child.wait(60)
    bucket.proxy.mode = "honest"
    server.start()
    assert confirmed(server)["sequence"] > found["sequence"]
    assert len(server.api.get("/v1/messages")["data"]) == 2
