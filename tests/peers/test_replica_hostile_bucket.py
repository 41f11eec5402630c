"""A bucket that misbehaves: it throttles a restore, refuses removals, answers with another program's 404, or hangs."""

import json
import os
import signal
import threading
import time

import pytest

from support.roots import binary
from support.wait import spawn, stop, until
from test_replica import MAIL, Standby, based, confirmed, master_key, other_config, restore, run, start_serve, status
from test_replica import active, bucket  # noqa: F401, fixtures
from test_replica_standby import promote, promoted, standbys, take_over  # noqa: F401, a fixture


def is_read_of(*prefixes):
    return lambda method, path: method == "GET" and any(f"/replica/{prefix}" in path for prefix in prefixes)


def failing(bucket, mode, seconds, concerns):
    """Lets the bucket fail for some seconds."""
    bucket.proxy.concerns, bucket.proxy.mode = concerns, mode

    def recover():
        bucket.proxy.mode = "honest"

    timer = threading.Timer(seconds, recover)
    timer.start()
    return timer


@pytest.mark.parametrize("mode", ["slow down", "busy", "away"])
def test_a_restore_waits_for_a_bucket_that_does_not_answer(mode, active, bucket, workdir):
    server = active(timeout_seconds=1)
    sent = [server.api.accept(MAIL)["id"] for _ in range(3)]
    confirmed(server)
    based(server)
    server.kill()
    failing(bucket, mode, 4, is_read_of("base/", "log/", "store"))
    directory, (code, out, err) = restore(server, bucket, workdir, "restored")
    assert code == 0, out + err
    assert "trying again" in err, err
    code, out, _ = run("check", "--data-dir", directory, "--json")
    assert code == 0 and json.loads(out)["rows"]["messages"] == len(sent), out


@pytest.mark.parametrize("mode", ["slow down", "away"])
def test_a_new_standby_waits_for_a_bucket_that_does_not_answer_and_shows_it(mode, active, bucket, workdir):
    server = active(timeout_seconds=1)
    server.api.accept(MAIL)
    sequence = confirmed(server)["sequence"]
    based(server)
    bucket.proxy.concerns, bucket.proxy.mode = is_read_of("base/"), mode
    config = other_config(server, workdir, "standby")
    standby = Standby(config, master_key(server), workdir, is_awaited=False)
    try:
        def unreachable():
            code, out, _ = run("replica", "status", "--data-dir", standby.data_dir, "--json")
            return code == 7 and json.loads(out)["state"] == "unreachable"

        until("it shows the failure", unreachable, seconds=60, every=0.2)
        bucket.proxy.mode = "honest"
        standby.become_ready()
        assert standby.status()["sequence"] >= sequence
    finally:
        standby.close()


def test_a_killed_restore_is_detected_by_every_command(active, bucket, workdir):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    server.api.accept(MAIL)
    slot = confirmed(server)["slot"]
    server.kill()
    config = other_config(server, workdir, "killed", url="s3://mail-replica/next")
    words = ["--data-dir", workdir / "killed", "--config", config, "--master-key", master_key(server)]
    # The restore hangs at the last slot, when all rows of the base are there.
    bucket.proxy.release.clear()
    bucket.proxy.held = lambda method, path: f"/log/{slot:012}" in path
    with (workdir / "restore.log").open("w") as log:
        child = spawn([binary(), "restore", bucket.section["url"], *map(str, words)], log)
    try:
        until("it applies the log", lambda: "applying the log" in (workdir / "restore.log").read_text(), every=0.05)
    finally:
        child.kill()
        child.wait()
        bucket.proxy.release.set()
    code, said = start_serve(config, workdir / "serve.log")
    assert code == 1 and "restore into the data directory was not finished" in said and "Empty" in said, said
    code, _, err = run("check", "--data-dir", workdir / "killed")
    assert code == 7 and "interrupted" in err, err
    code, _, err = run("restore", bucket.section["url"], *words)
    assert code == 6 and "interrupted" in err, err
    standby = ["--config", config, "--master-key", master_key(server)]
    code, _, err = run("standby", *standby)
    assert code == 1 and "was not finished" in err, err


def test_a_refused_removal_makes_no_further_bases_and_is_shown(active, bucket):
    server = active(retention_hours=0)
    server.api.accept(MAIL)
    confirmed(server)
    before = based(server)["slot"]
    bucket.proxy.concerns, bucket.proxy.mode = (lambda method, path: method == "DELETE"), "forbidden"
    server.api.accept(MAIL)
    until("the bucket has it", lambda: status(server)["sequence"] == status(server)["confirmed_sequence"], every=0.2)
    server.cli("replica", "base")
    found = status(server)
    assert found["base"]["slot"] > before and found["state"] == "forbidden" and "remove of" in found["error"], found
    manifests = [name for name in bucket.names("base/") if name.endswith("manifest")]
    bucket.proxy.requests.clear()
    server.api.accept(MAIL)
    began = time.monotonic()
    # Before, another base was made every ten seconds.
    until("time passes", lambda: time.monotonic() > began + 15, seconds=30)
    assert manifests == [name for name in bucket.names("base/") if name.endswith("manifest")]
    assert server.logged().count("could not remove unneeded objects") == 1
    _, out, _ = run("doctor", "--config", server.config, "--json")
    check = next(check for check in json.loads(out)["checks"] if check["name"] == "replica access")
    assert check["verdict"] == "FAIL" and "remove of" in check["seen"], check
    bucket.proxy.mode = "honest"
    server.cli("replica", "base")
    assert confirmed(server)["error"] is None
    assert len([name for name in bucket.names("base/") if name.endswith("manifest")]) == 1


def test_a_wrong_404_for_a_content_key_is_reported_and_not_taken_for_an_expired_one(active, bucket, standbys, workdir):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    bucket.proxy.concerns, bucket.proxy.mode = is_read_of("keys/"), "absent"
    standby = standbys(server)
    sent = server.api.accept(MAIL)["id"]
    confirmed(server)

    def reported():
        error = standby.status()["error"]
        return error and "missing before their deadline" in error

    until("the standby reports the key", reported, seconds=90, every=0.5)
    _, (code, out, err) = restore(server, bucket, workdir, "restored")
    assert code == 0 and json.loads(out)["missing_keys"] and "before their deadline" in err, out + err
    bucket.proxy.mode = "honest"
    server.kill()
    promoted(standby, "--force")
    take_over(server, standby)
    assert server.api.request("GET", f"/v1/messages/{sent}/raw").status == 200


def test_a_lost_content_key_is_written_again_within_a_minute_of_writing(active, bucket, workdir):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    server.cli("replica", "base")
    keys = bucket.names("keys/")
    for name in keys:
        bucket.remove(name)
    code, out, _ = run("replica", "verify", "--config", server.config, "--json")
    assert code == 7 and keys and keys[0] in out, out
    base = status(server)["base"]
    server.api.accept(MAIL)
    until("the keys are back", lambda: set(keys) <= set(bucket.names("keys/")), seconds=100, every=0.5)
    assert "the bucket lost keys" in server.logged()
    confirmed(server)
    assert status(server)["base"] == base, "no base is needed"
    code, out, err = run("replica", "verify", "--config", server.config, "--deep", "--json")
    assert code == 0, out + err
    _, (code, out, err) = restore(server, bucket, workdir, "restored")
    assert code == 0 and json.loads(out)["missing_keys"] == [], out + err


@pytest.mark.parametrize("what", ["part", "slot"])
def test_a_stop_ends_within_the_grace_period_although_a_request_hangs(what, active, bucket):
    server = active(timeout_seconds=60)
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    bucket.proxy.release.clear()
    held = "/base/" if what == "part" else "/log/"
    bucket.proxy.held = lambda method, path: method == "PUT" and held in path
    server.api.accept(MAIL)
    asking = spawn([binary(), "replica", "base", "--data-dir", str(server.data_dir)], None)
    hangs = lambda: any(bucket.proxy.held(method, path) for method, path in list(bucket.proxy.requests))  # noqa: E731
    until("the request hangs", hangs, seconds=30, every=0.1)
    began = time.monotonic()
    server.child.send_signal(signal.SIGTERM)
    try:
        server.child.wait(timeout=40)
        assert time.monotonic() - began < 32
    finally:
        bucket.proxy.release.set()
        stop(asking)


def test_a_standby_that_reads_from_a_hanging_bucket_stops_at_once(active, bucket, workdir):
    server = active(timeout_seconds=60)
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    bucket.proxy.release.clear()
    bucket.proxy.held = is_read_of("base/")
    standby = Standby(other_config(server, workdir, "standby"), master_key(server), workdir, is_awaited=False)
    try:
        hangs = lambda: any("/base/" in path for _, path in list(bucket.proxy.requests[-3:]))  # noqa: E731
        until("it reads the base", hangs, seconds=30, every=0.1)
        began = time.monotonic()
        standby.child.send_signal(signal.SIGTERM)
        assert standby.child.wait(timeout=30) == 0
        assert time.monotonic() - began < 10
    finally:
        bucket.proxy.release.set()
        standby.close()


def test_a_start_that_waits_for_the_bucket_is_no_active_machine_for_promote(active, bucket):
    server = active(timeout_seconds=1)
    confirmed(server)
    assert server.close() == 0
    bucket.proxy.mode = "away"
    os.close(server.launch())
    waits = lambda: run("replica", "status", "--data-dir", server.data_dir)[0] == 7  # noqa: E731
    until("it shows its state", waits, seconds=30, every=0.2)
    code, _, err = promote(server.data_dir)
    assert code == 4 and "has not claimed the log" in err, (code, err)
    bucket.proxy.mode = "honest"


def test_a_damaged_holder_is_found_by_check_and_named_at_the_start(active, bucket, workdir):
    server = active()
    confirmed(server)
    assert server.close() == 0
    (server.data_dir / "replica" / "holder").write_bytes(b"\0\0\0")
    code, out, err = run("check", "--data-dir", server.data_dir, "--json")
    assert code == 7 and "replica/holder" in out, out + err
    code, said = start_serve(server.config, workdir / "again.log")
    assert code == 1 and "replica/holder is damaged" in said and "first line" in said, said


def test_a_damaged_store_names_the_way_back_from_the_bucket(active, bucket, workdir):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    assert server.close() == 0
    database = server.data_dir / "postrider.redb"
    bytes_ = bytearray(database.read_bytes())
    for at in range(8192, len(bytes_), 4096):
        bytes_[at : at + 64] = b"\xff" * 64
    database.write_bytes(bytes_)
    code, said = start_serve(server.config, workdir / "again.log")
    assert code == 1 and "postrider restore s3://" in said and "postrider standby" in said, said


@pytest.mark.parametrize("is_running", [True, False])
def test_an_emptied_prefix_gets_a_new_base_of_a_running_and_of_a_restarted_machine(is_running, active, bucket, workdir):
    server = active()
    first = server.api.accept(MAIL)["id"]
    confirmed(server)
    based(server)
    if not is_running:
        assert server.close() == 0
    for name in bucket.names():
        bucket.remove(name)
    if not is_running:
        server.start()
    second = server.api.accept(MAIL)["id"]
    complete = lambda: any(name.endswith("manifest") for name in bucket.names("base/"))  # noqa: E731
    until("a new base is made", complete, seconds=150, every=0.5)
    confirmed(server)
    assert "missing from the bucket" in server.logged() or "the bucket is empty" in server.logged()
    server.kill()
    directory, (code, out, err) = restore(server, bucket, workdir, "restored")
    assert code == 0, out + err
    code, out, _ = run("check", "--data-dir", directory, "--json")
    assert code == 0 and json.loads(out)["rows"]["messages"] == 2, (first, second, out)
