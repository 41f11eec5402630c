"""A start that waits for its bucket, and machines that must not take a log from a living one."""

import json
import os
import signal

import pytest
from support.wait import until
from test_replica import MAIL, based, confirmed, run, status
from test_replica import active, bucket  # noqa: F401, fixtures
from test_replica_standby import (  # noqa: F401, a fixture
    followed,
    follows,
    promote,
    promoted,
    ready,
    standbys,
    state,
    take_over,
)

AUTOMATIC = {"when_unreachable": "stop", "failover": "automatic", "lease_seconds": 2, "timeout_seconds": 1}


def test_a_start_that_waits_for_its_bucket_says_so_and_stops_when_asked(active, bucket):
    server = active(timeout_seconds=1)
    confirmed(server)
    assert server.close() == 0
    bucket.proxy.mode = "away"
    os.close(server.launch())

    def waits():
        code, out, _ = run("replica", "status", "--data-dir", server.data_dir, "--json")
        return code == 7 and json.loads(out)

    shown = until("it shows its state", waits, seconds=30, every=0.2)
    assert (shown["role"], shown["state"]) == ("active", "waiting") and "waiting for the bucket" in shown["error"]
    code, out, err = run("status", "--data-dir", server.data_dir)
    assert code != 0 and "waiting for the bucket" in err, (code, out, err)
    server.child.send_signal(signal.SIGTERM)
    assert server.child.wait(timeout=20) == 0


def test_a_start_that_has_waited_serves_once_the_bucket_answers(active, bucket):
    server = active(timeout_seconds=1)
    confirmed(server)
    assert server.close() == 0
    bucket.proxy.mode = "away"
    reader = server.launch()
    until("it waits", lambda: run("replica", "status", "--data-dir", server.data_dir)[0] == 7, seconds=30, every=0.2)
    bucket.proxy.mode = "honest"
    server.become_ready(reader)
    server.api.accept(MAIL)
    confirmed(server)
    assert server.close() == 0


def test_a_start_whose_claim_is_not_answered_reports_it(active, bucket):
    server = active(timeout_seconds=1)
    confirmed(server)
    assert server.close() == 0
    bucket.proxy.concerns = lambda method, path: method == "PUT" and "/log/" in path
    bucket.proxy.mode = "away"
    reader = server.launch()

    def waits():
        code, out, _ = run("replica", "status", "--data-dir", server.data_dir, "--json")
        return code == 7 and json.loads(out)

    shown = until("it shows its state", waits, seconds=30, every=0.2)
    assert shown["state"] == "waiting" and "create of log/" in shown["error"], shown
    bucket.proxy.mode = "honest"
    server.become_ready(reader)
    assert server.close() == 0


@pytest.mark.parametrize(("mode", "shown"), [("broken", "waiting"), ("slow down", "waiting"), ("forbidden", "forbidden")])
def test_an_automatic_standby_that_may_not_write_says_so_and_can_be_promoted(mode, shown, active, standbys, bucket):
    server, standby = followed(active, standbys, **AUTOMATIC)
    follows(standby, confirmed(server)["sequence"])
    bucket.proxy.concerns = lambda method, path: method == "PUT"
    bucket.proxy.mode = mode
    server.kill()
    until("its claim waits", lambda: state(standby) == shown, seconds=60, every=0.2)
    assert "waiting for the bucket" in standby.status()["error"]
    assert "--without-replica" not in standby.log.read_text()
    if mode == "forbidden":
        code, _, err = promote(standby.data_dir, "--force")
        assert code == 5 and "credentials" in err, (code, err)
        until("it claims again", lambda: state(standby) == shown, seconds=60, every=0.2)
    promoted(standby, "--without-bucket")
    take_over(server, standby)
    server.api.accept(MAIL)


def test_an_automatic_standby_claims_once_it_may_write(active, standbys, bucket):
    server, standby = followed(active, standbys, **AUTOMATIC)
    bucket.proxy.concerns = lambda method, path: method == "PUT"
    bucket.proxy.mode = "forbidden"
    server.kill()
    until("its claim waits", lambda: state(standby) == "forbidden", seconds=60, every=0.2)
    bucket.proxy.mode = "honest"
    take_over(server, standby)
    server.api.accept(MAIL)
    confirmed(server)


def test_a_busy_machine_with_a_long_interval_keeps_its_log(active, standbys):
    server = active(**AUTOMATIC | {"interval_ms": 60_000})
    based(server)
    standby = standbys(server)
    first = standby.status()["slot"]

    def grown():
        server.api.accept(MAIL)
        assert standby.status()["role"] == "standby"
        return standby.status()["slot"] >= first + 6

    until("the log grows within the lease", grown, seconds=60, every=0.2)


def test_a_standby_goes_on_after_a_refusal_of_its_credentials(active, standbys, bucket):
    server, standby = followed(active, standbys)
    bucket.proxy.mode = "forbidden"
    until("it is refused", lambda: standby.status()["state"] == "forbidden", seconds=30, every=0.2)
    bucket.proxy.mode = "honest"
    server.api.accept(MAIL)
    follows(standby, confirmed(server)["sequence"])


def test_a_directory_that_only_followed_is_not_served_beside_the_active_machine(active, standbys):
    server, standby = followed(active, standbys)
    standby.close()
    code, _, err = run("serve", "--config", standby.config)
    assert code == 6 and "standby" in err, (code, err)
    assert status(server)["role"] == "active"


def test_a_directory_that_was_active_before_is_not_served_beside_its_successor(active, standbys):
    server = active()
    confirmed(server)
    based(server)
    successor = standbys(server)
    assert server.close() == 0
    promoted(successor, "--force")
    until("it serves", lambda: ready(successor), seconds=60, every=0.2)
    follower = standbys(server, config=server.config)
    follower.close()
    code, _, err = run("serve", "--config", server.config)
    assert code == 6 and "has not released it" in err, (code, err)


def test_a_directory_that_went_on_without_the_bucket_claims_its_log_again(active, standbys, bucket):
    server, standby = followed(active, standbys, timeout_seconds=1)
    server.kill()
    bucket.proxy.mode = "away"
    promoted(standby, "--without-bucket")
    take_over(server, standby)
    standby.close()
    bucket.proxy.mode = "honest"
    server.config = standby.config
    server.start()
    assert status(server)["role"] == "active"
    assert server.close() == 0
