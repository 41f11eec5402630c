"""A standby: its disk, its directory, the machine that it follows, and its promotion."""

import json
import os
import re
import secrets
import socket
import subprocess
import time

import pytest

from support.disk import MIB, Disk
from support.roots import binary
from support.wait import until
from test_replica import MAIL, Standby, _ended, based, confirmed, master_key, other_config, restore, run
from test_replica import start_serve, status
from test_replica import active, bucket  # noqa: F401, fixtures


def promote(data_dir, *words, answer=""):
    """Runs `promote`; `answer` is typed at its question."""
    command = [binary(), "promote", "--data-dir", str(data_dir), "--json", *words]
    done = subprocess.run(command, input=answer, capture_output=True, text=True, timeout=180)
    return done.returncode, done.stdout, done.stderr


def promoted(standby, *words, answer=""):
    """Promotes the standby, which must succeed, and returns the answer."""
    code, out, err = promote(standby.data_dir, *words, answer=answer)
    assert code == 0, out + err + standby.log.read_text()
    return json.loads(out)


def ready(standby):
    """Whether it serves; its listener closes briefly during the promotion."""
    try:
        return standby.get("/readyz")[0] == 200
    except OSError:
        return False


def take_over(server, standby):
    """Lets the server's API and commands go to the promoted standby."""
    until("the standby serves", lambda: ready(standby), seconds=60, every=0.2)
    server.data_dir = type(server.data_dir)(standby.data_dir)
    server.api.host, server.api.port = standby.url().removeprefix("http://").split(":")


@pytest.fixture
def standbys(workdir):
    """Makes standbys: `standbys(server, "name", "--discard", lease_seconds=2)`."""
    started = []

    def start(server, name="standby", *arguments, is_awaited=True, config=None, **replica):
        folder = workdir / f"standby-{len(started)}"
        folder.mkdir()
        config = config or other_config(server, workdir, name, **replica)
        started.append(Standby(config, master_key(server), folder, *arguments, is_awaited=is_awaited))
        return started[-1]

    yield start
    for standby in started:
        standby.close()


def followed(active, standbys, **settings):
    """Starts a service whose log has a base, and a standby that follows it."""
    server = active(**settings)
    confirmed(server)
    based(server)
    return server, standbys(server)


@pytest.fixture
def disk(workdir):
    """The standby's disk."""
    disk = Disk(workdir / "standby", 96)
    yield disk
    disk.close()


def follows(standby, sequence):
    until("the standby follows", lambda: standby.status()["sequence"] >= sequence, seconds=120, every=0.2)


def state(standby):
    """Returns the standby's state; fails if its process has ended."""
    assert standby.child.poll() is None, standby.log.read_text()
    return standby.status()["state"]


def large(kilobytes):
    """Returns a message of about this size, which does not compress well."""
    return MAIL | {"text": "".join(f"{secrets.token_hex(32)}\n" for _ in range(kilobytes * 16))}


def test_a_standby_with_a_full_disk_goes_on_when_there_is_room(active, standbys, disk):
    server, standby = followed(active, standbys)
    disk.fill(MIB // 2)
    ids = [server.api.accept(large(400))["id"] for _ in range(12)]
    sequence = confirmed(server)["sequence"]
    until("its disk is full", lambda: state(standby) == "disk_full", seconds=120, every=0.2)
    assert standby.get("/healthz")[0] == 200
    disk.clear()
    follows(standby, sequence)
    until("all is well", lambda: state(standby) == "ok", seconds=60, every=0.2)
    server.kill()
    promoted(standby, "--force")
    take_over(server, standby)
    assert server.api.message(ids[-1])["id"] == ids[-1]


def test_a_base_that_does_not_fit_is_built_once_there_is_room(active, standbys, disk):
    server = active()
    ids = [server.api.accept(large(400))["id"] for _ in range(4)]
    sequence = confirmed(server)["sequence"]
    server.cli("replica", "base")
    disk.fill(MIB // 2)
    standby = standbys(server, is_awaited=False)
    socket = disk.place / "admin.sock"
    until("its disk is full", lambda: socket.exists() and state(standby) == "disk_full", seconds=60, every=0.2)
    assert standby.get("/healthz")[0] == 200
    disk.clear()
    standby.become_ready()
    follows(standby, sequence)
    server.kill()
    promoted(standby, "--force")
    take_over(server, standby)
    assert server.api.message(ids[-1])["id"] == ids[-1]


def test_promote_refuses_while_the_log_moves_and_asks_when_it_does_not(active, standbys):
    server = active(lease_seconds=30)
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    standby = standbys(server)
    code, _, err = promote(standby.data_dir)
    assert code == 6 and "Is it stopped?" in err, err
    server.api.accept(MAIL)
    follows(standby, confirmed(server)["sequence"])
    code, _, err = promote(standby.data_dir, answer="y\n")
    assert code == 6 and "alive" in err and "--force" in err, err
    code, _, err = promote(server.data_dir)
    assert code == 6 and "active" in err, err
    assert status(server)["role"] == "active" and standby.status()["role"] == "standby"


def test_the_answer_yes_promotes_beside_an_idle_machine(active, standbys):
    server, standby = followed(active, standbys)
    server.kill()
    found = promoted(standby, answer="y\n")
    take_over(server, standby)
    assert (found["epoch"], status(server)["epoch"]) == (2, 2)


def test_a_released_log_is_claimed_without_a_question_or_a_wait(active, standbys, bucket):
    server = active(lease_seconds=30)
    server.api.accept(MAIL)
    sequence = confirmed(server)["sequence"]
    based(server)
    standby = standbys(server)
    assert server.close() == 0
    follows(standby, sequence)
    released = int(bucket.names("log/")[-1][4:])
    until("it has read the release", lambda: standby.status()["slot"] == released, seconds=60, every=0.2)
    found = promoted(standby)
    assert found["mailing_from"] == found["accepting_at"], "nobody is waited for"
    take_over(server, standby)
    assert status(server)["epoch"] == 2


def test_a_promotion_on_hold_sends_nothing_that_was_queued_until_the_release(active, standbys):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    standby = standbys(server)
    server.kill()
    assert promoted(standby, "--force", "--hold")["queued"] == 1
    take_over(server, standby)
    assert server.cli("status")["queue"]["on_hold"] is True
    server.cli("queue", "release")
    assert server.cli("status")["queue"]["on_hold"] is False


def test_a_standby_goes_on_without_a_lost_bucket(active, standbys, bucket):
    server = active(timeout_seconds=1)
    sent = server.api.accept(MAIL)["id"]
    confirmed(server)
    based(server)
    standby = standbys(server)
    server.kill()
    bucket.proxy.mode = "away"
    until("it misses the bucket", lambda: standby.status()["state"] == "unreachable", seconds=60, every=0.2)
    promoted(standby, "--without-bucket")
    take_over(server, standby)
    assert server.api.message(sent)["id"] == sent
    server.api.accept(MAIL)
    assert status(server)["role"] == "off"


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_promoted_standby_serves_at_its_later_starts(end, active, standbys):
    server = active()
    sent = server.api.accept(MAIL)["id"]
    confirmed(server)
    based(server)
    first = standbys(server)
    server.kill()
    promoted(first, "--force")
    until("it serves", lambda: ready(first), seconds=60, every=0.2)
    if end == "kill":
        first.child.kill()
    first.close()
    again = standbys(server, config=first.config, is_awaited=False)
    take_over(server, again)
    assert server.api.message(sent)["id"] == sent
    assert status(server)["epoch"] == 3


def stranded(config, directory):
    """Returns the identifiers of the messages that only this directory has."""
    command = [binary(), "replica", "stranded", "--data-dir", str(directory), "--json"]
    environment = os.environ | {"POSTRIDER_CONFIG": str(config)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert all(set(row) == {"id", "kind", "to", "status", "created_at"} for row in found["data"]), found
    assert {row["to"] for row in found["data"] if row["kind"] == "accepted"} == {MAIL["to"]}
    return {row["id"] for row in found["data"] if row["kind"] == "accepted"}


def test_an_accepted_message_that_the_log_lacks_is_stranded_and_set_aside(active, standbys, bucket):
    server = active(timeout_seconds=1)
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    standby = standbys(server)
    bucket.proxy.mode = "away"
    lost = {server.api.accept(MAIL)["id"] for _ in range(3)}
    server.kill()
    bucket.proxy.mode = "honest"
    until("the standby sees the bucket", lambda: standby.status()["state"] == "ok", seconds=60, every=0.2)
    promoted(standby, "--force")
    until("it serves", lambda: ready(standby), seconds=60, every=0.2)
    code, said = start_serve(server.config, server.folder / "again.log")
    assert code == 6 and "claimed the log" in said and "standby" in said, said
    assert stranded(server.config, server.data_dir) == lost
    old = standbys(server, is_awaited=False, config=server.config)
    assert old.child.wait(60) == 6
    said = old.log.read_text()
    assert re.search(r"without batches \d+ to \d+", said) and "--discard" in said, said
    assert server.data_dir.joinpath("postrider.redb").exists(), "the directory stays"
    follower = standbys(server, "standby", "--discard", config=server.config)
    assert (server.data_dir / "deposed-1" / "postrider.redb").exists()
    assert stranded(server.config, server.data_dir / "deposed-1") == lost
    assert follower.status()["holder"] == standby.status()["holder"]
    assert len(lost) == 3
    follower.close()
    code, out, err = run("replica", "stranded", "--config", server.config, "--json")
    assert (code, json.loads(out)) == (3, {"data": [], "next_cursor": None, "dropped_batches": None}), err


def test_a_directory_of_another_store_does_not_follow(active, standbys, bucket, serve, workdir):
    server = active()
    confirmed(server)
    based(server)
    other = serve(9)
    other.close()
    config = other_config(server, workdir, "other")
    config.write_text(config.read_text().replace(str(workdir / "other"), str(other.data_dir)))
    strange = standbys(server, is_awaited=False, config=config)
    assert strange.child.wait(60) == 6, strange.log.read_text()
    assert "another store" in strange.log.read_text()


def test_a_service_without_its_lost_bucket_goes_on_with_its_log_later(active, bucket, workdir):
    server = active(timeout_seconds=1)
    before = confirmed(server)
    server.close()
    bucket.proxy.mode = "away"
    server.start("--without-replica")
    sent = server.api.accept(MAIL)["id"]
    assert status(server)["role"] == "off"
    server.close()
    bucket.proxy.mode = "honest"
    server.start()
    found = confirmed(server)
    assert found["epoch"] == before["epoch"] + 1 and found["sequence"] > before["sequence"]
    code, out, err = run("replica", "verify", "--config", server.config, "--deep", "--json")
    assert code == 0, out + err
    server.kill()
    directory, (code, out, err) = restore(server, bucket, workdir, "restored")
    assert code == 0, out + err
    server.config = other_config(server, workdir, "restored", url="s3://mail-replica/next")
    server.data_dir = directory
    server.start()
    assert server.api.message(sent)["id"] == sent


def test_a_service_that_left_its_log_does_not_take_it_from_its_successor(active, bucket, standbys):
    server, standby = followed(active, standbys, timeout_seconds=1)
    server.close()
    server.start("--without-replica")
    server.api.accept(MAIL)
    server.close()
    promoted(standby, "--force")
    until("it serves", lambda: ready(standby), seconds=60, every=0.2)
    code, said = start_serve(server.config, server.folder / "again.log")
    assert code == 6 and "claimed the log" in said, said


def test_the_deposed_machine_says_who_deposed_it_and_keeps_its_directory(active, standbys):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    standby = standbys(server)
    promoted(standby, "--force")
    until("it serves", lambda: ready(standby), seconds=60, every=0.2)
    until("the old machine ends", lambda: _ended(server), seconds=60)
    assert server.child.wait() == 6
    assert standby.status()["holder"] in server.logged()
    assert (server.data_dir / "postrider.redb").exists()


def test_an_idle_standby_makes_one_get_a_second(active, standbys, bucket):
    server, standby = followed(active, standbys)
    follows(standby, confirmed(server)["sequence"])
    moved = time.monotonic()
    until("the start is over", lambda: time.monotonic() > moved + 5, seconds=30)
    begun = time.monotonic()
    bucket.proxy.requests.clear()
    until("ten seconds pass", lambda: time.monotonic() > begun + 10, seconds=30)
    asked = list(bucket.proxy.requests)
    # Once a minute it also looks for missing slots and bases: a few listings more.
    assert {method for method, _ in asked} == {"GET"}, asked
    slots = [path for _, path in asked if "/log/" in path]
    assert len(slots) <= 12 and len(asked) <= len(slots) + 6, asked


def test_a_standby_without_the_bucket_extends_the_start_timeout(active, bucket, standbys, workdir, monkeypatch):
    server = active()
    based(server)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(workdir / "notify"))
        systemd.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(workdir / "notify"))
        bucket.proxy.mode = "away"
        standby = standbys(server, is_awaited=False)
        assert b"EXTEND_TIMEOUT_USEC=120000000" in systemd.recv(4096)
        bucket.proxy.mode = "honest"
        told = b""
        while b"READY=1" not in told:
            told = systemd.recv(4096)
    assert standby.status()["role"] == "standby"
