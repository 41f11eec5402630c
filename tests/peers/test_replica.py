"""A replicated service and the loss of its machine: restore, standby, promotion, and a faulty bucket."""

import json
import os
import re
import select
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from support.bucket import Bucket
from support.roots import binary
from support.server import Dev
from support.wait import spawn, stop, until

MAIL = {"from": "hello@sender.test", "to": "ada@recipient.test", "subject": "s", "text": "t" * 2000}


@pytest.fixture
def bucket(workdir):
    """A new bucket."""
    bucket = Bucket(workdir / "bucket")
    yield bucket
    bucket.close()


@pytest.fixture
def active(bucket, serve):
    """A replicated service with a verified domain; no server accepts its mail, so it stays queued."""

    def start(**more):
        server = serve(9, replica=bucket.section | {"interval_ms": 50} | more)
        server.domain("sender.test")
        return server

    return start


def run(*words, timeout=120):
    done = subprocess.run([binary(), *map(str, words)], capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


def status(server):
    code, out, err = run("replica", "status", "--data-dir", server.data_dir, "--json")
    assert code in (0, 7), err
    return json.loads(out)


def confirmed(server):
    """Waits until the bucket has everything, and returns the status."""

    def all_there():
        found = status(server)
        return found if found["sequence"] == found["confirmed_sequence"] and found["state"] == "ok" else None

    return until("the bucket has everything", all_there, every=0.1)


def based(server):
    """Waits until there is a base."""
    return until("there is a base", lambda: status(server)["base"], seconds=60, every=0.2)


def master_key(server):
    return server.data_dir / "master.key"


def other_config(server, workdir, name, **replica):
    """Returns the configuration of another machine of the same service."""
    text = server.config.read_text().replace(str(server.data_dir), str(workdir / name))
    for key, value in replica.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {json.dumps(value)}", text, flags=re.MULTILINE)
    config = workdir / f"{name}.toml"
    config.write_text(text)
    return config


def restore(server, bucket, workdir, name, *more):
    config = other_config(server, workdir, name)
    directory = workdir / name
    words = ("--data-dir", directory, "--config", config, "--master-key", master_key(server), "--json", *more)
    return directory, run("restore", bucket.section["url"], *words)


def start_serve(config, log):
    """Starts a service that is expected to exit; returns its exit code and output."""
    with log.open("w") as out:
        child = spawn([binary(), "serve", "--config", str(config)], out)
    try:
        code = child.wait(60)
    except subprocess.TimeoutExpired:
        stop(child)
        raise AssertionError(f"serve did not end:\n{log.read_text()}") from None
    return code, log.read_text()


class Standby:
    """`postrider standby` as a process, ready unless `is_awaited` is false."""

    def __init__(self, config, key, folder, *arguments, is_awaited=True):
        self.config, self.log = config, folder / "standby.log"
        self.data_dir = re.search(r'^data_dir = "(.*)"$', config.read_text(), re.MULTILINE)[1]
        self.reader, writer = os.pipe()
        command = [binary(), "standby", "--config", str(config), "--master-key", str(key), "--ready-fd", str(writer)]
        with self.log.open("w") as out:
            self.child = spawn([*command, *arguments], out, pass_fds=(writer,))
        os.close(writer)
        if is_awaited:
            self.become_ready()

    def become_ready(self):
        """Waits for the newline on the ready descriptor."""
        ready, _, _ = select.select([self.reader], [], [], 120)
        said = os.read(self.reader, 1) if ready else b""
        os.close(self.reader)
        if said != b"\n":
            stop(self.child)
            raise AssertionError(self.log.read_text())

    def status(self):
        """Returns its replication status."""
        return json.loads(run("replica", "status", "--data-dir", self.data_dir, "--json")[1])

    def url(self):
        return "http://" + json.loads(open(f"{self.data_dir}/addresses.json").read())["http"][0]

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url() + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def close(self):
        stop(self.child)


def test_every_change_reaches_the_bucket_in_one_unbroken_chain(active, bucket):
    server = active()
    ids = [server.api.accept(MAIL)["id"] for _ in range(20)]
    found = confirmed(server)
    assert found["role"] == "active" and found["mode"] == "async" and found["failover"] == "manual"
    based(server)
    names = bucket.names()
    slots = [name for name in names if name.startswith("log/")]
    # Slots below the first base are useless for a restore, so they may be collected; claims stay.
    numbers = [int(name[4:]) for name in slots]
    first = min(int(name.split("/")[1]) for name in names if name.startswith("base/"))
    assert numbers[0] == 1 and [one for one in numbers if one >= first] == list(range(first, numbers[-1] + 1)), "no gap"
    heads = {name: bucket.read(name).split(b"\n", 1)[0].decode() for name in names}
    assert all(head.startswith("postrider replica 1 ") for head in heads.values()), heads
    assert heads["log/000000000001"].split()[3:6] == ["claim", "1", str(found["epoch"])]
    everything = b"".join(bucket.read(name) for name in names)
    assert b"ada@recipient.test" not in everything and b"tttttttt" not in everything
    assert master_key(server).read_bytes() not in everything
    for depth in ([], ["--deep"]):
        code, out, err = run("replica", "verify", "--config", server.config, "--json", *depth)
        assert code == 0 and json.loads(out)["ok"], out + err
    assert len(set(ids)) == 20


def test_a_lost_machine_is_restored_with_everything_that_the_bucket_confirmed(active, bucket, workdir):
    server = active()
    ids = [server.api.accept(MAIL)["id"] for _ in range(10)]
    confirmed(server)
    server.kill()
    directory, (code, out, err) = restore(server, bucket, workdir, "restored")
    assert code == 0, out + err
    code, out, err = run("check", "--data-dir", directory, "--json")
    assert code == 0, out + err
    config = other_config(server, workdir, "restored", url="s3://mail-replica/next")
    server.config, server.data_dir = config, directory
    server.start()
    assert {server.api.message(one)["status"] for one in ids} <= {"queued", "deferred"}
    assert server.cli("status")["queue"], "queued mail is on hold until it is released"
    server.cli("queue", "release")


def test_a_restored_directory_is_a_fork_and_does_not_take_over_the_log(active, bucket, workdir):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    server.kill()
    _, (code, out, err) = restore(server, bucket, workdir, "restored")
    assert code == 0, out + err
    # The log continues after the restore.
    server.start()
    server.api.accept(MAIL)
    confirmed(server)
    server.close()
    code, said = start_serve(workdir / "restored.toml", workdir / "fork.log")
    assert code == 6 and "prefix" in said and "standby" in said, said


def test_any_time_within_the_retention_can_be_restored(active, bucket, workdir):
    server = active()
    first = server.api.accept(MAIL)["id"]
    confirmed(server)
    time.sleep(1.1)
    between = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    time.sleep(1.1)
    second = server.api.accept(MAIL)["id"]
    confirmed(server)
    server.kill()
    directory, (code, out, err) = restore(server, bucket, workdir, "earlier", "--at", between)
    assert code == 0, out + err
    server.config = other_config(server, workdir, "earlier", url="s3://mail-replica/next")
    server.data_dir = directory
    server.start()
    assert server.api.message(first)["id"] == first
    assert server.api.request("GET", f"/v1/messages/{second}").status == 404
    _, (code, _, _) = restore(server, bucket, workdir, "long-ago", "--at", "2020-01-01T00:00:00+00:00")
    assert code == 3


def test_restore_reports_what_prevents_it(active, bucket, workdir):
    server = active()
    confirmed(server)
    (workdir / "full").mkdir()
    (workdir / "full" / "file").write_text("x")
    _, (code, _, _) = restore(server, bucket, workdir, "full")
    assert code == 6
    words = ("--data-dir", workdir / "none", "--config", server.config, "--master-key", master_key(server))
    code, _, err = run("restore", "s3://mail-replica/nothing-here", *words)
    assert code == 3, err
    bucket.proxy.mode = "forbidden"
    _, (code, _, _) = restore(server, bucket, workdir, "refused")
    assert code == 5


def test_a_standby_follows_is_promoted_and_deposes_the_active(active, bucket, workdir):
    server = active()
    ids = [server.api.accept(MAIL)["id"] for _ in range(5)]
    confirmed(server)
    config = other_config(server, workdir, "standby")
    standby = Standby(config, master_key(server), workdir)
    try:
        assert standby.get("/healthz")[0] == 200
        for path in ("/readyz", "/v1/messages", "/"):
            code, body = standby.get(path)
            assert code == 503 and "standby" in body, (path, code, body)
        server.api.accept(MAIL)
        sequence = confirmed(server)["sequence"]

        def follows():
            _, out, _ = run("replica", "status", "--data-dir", standby.data_dir, "--json")
            found = json.loads(out)
            return found["role"] == "standby" and found["sequence"] >= sequence

        until("the standby follows", follows, every=0.2)
        code, out, err = run("promote", "--data-dir", standby.data_dir, "--force", "--json")
        assert code == 0, out + err
        promoted = json.loads(out)
        assert set(promoted) == {"epoch", "slot", "accepting_at", "mailing_from", "queued", "due"}, promoted
        assert promoted["queued"] == 6
        until("it is ready", lambda: standby.get("/readyz")[0] == 200)
        # The old active machine detects it with its next slot.
        until("the active machine ends", lambda: _ended(server), seconds=60)
        assert server.child.wait() == 6, server.logged()
        server.data_dir = type(server.data_dir)(standby.data_dir)
        server.api.host, server.api.port = standby.url().removeprefix("http://").split(":")
        assert {server.api.message(one)["status"] for one in ids} <= {"queued", "deferred"}
        code, out, err = run("replica", "verify", "--config", config, "--json")
        assert code == 0, out + err
    finally:
        standby.close()


def _ended(server):
    if server.child.poll() is not None:
        return True
    try:
        server.api.send(MAIL)
    except OSError:
        pass
    return False


def test_promote_without_a_standby_is_not_reachable(workdir):
    (workdir / "data").mkdir()
    assert run("promote", "--data-dir", workdir / "data")[0] == 4


def test_a_bucket_that_ignores_conditions_is_refused_at_the_start(active, bucket, workdir):
    server = active()
    server.close()
    bucket.proxy.mode = "ignores conditions"
    code, said = start_serve(server.config, workdir / "again.log")
    assert code == 1 and "conditional writes" in said, said


def test_a_bucket_that_keeps_versions_is_refused_at_the_start(active, bucket, workdir):
    server = active()
    server.close()
    bucket.configure("versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
    code, said = start_serve(server.config, workdir / "again.log")
    assert code == 1 and "allow_versioned" in said, said


def test_refused_credentials_stop_the_start(active, bucket, workdir):
    server = active()
    server.close()
    bucket.proxy.mode = "forbidden"
    code, said = start_serve(server.config, workdir / "again.log")
    assert code == 5 and "AccessDenied" in said, said


@pytest.mark.parametrize(("mode", "states"), [
    ("away", {"unreachable"}),
    ("slow down", {"lagging", "ok"}),
    ("forbidden", {"forbidden"}),
    ("lost", {"unreachable", "ok"}),
])
def test_the_service_continues_without_the_bucket_and_catches_up(mode, states, active, bucket):
    server = active(timeout_seconds=1)
    confirmed(server)
    bucket.proxy.mode = mode
    ids = [server.api.accept(MAIL)["id"] for _ in range(5)]
    until("the status shows it", lambda: status(server)["state"] in states, every=0.2)
    bucket.proxy.mode = "honest"
    confirmed(server)
    code, out, err = run("replica", "verify", "--config", server.config, "--deep", "--json")
    assert code == 0, out + err
    assert {server.api.message(one)["status"] for one in ids} <= {"queued", "deferred"}


def test_a_start_ships_the_unsent_log_of_a_killed_process(active, bucket, workdir):
    server = active()
    confirmed(server)
    bucket.proxy.mode = "away"
    ids = [server.api.accept(MAIL)["id"] for _ in range(5)]
    server.kill()
    bucket.proxy.mode = "honest"
    server.start()
    confirmed(server)
    server.kill()
    directory, (code, out, err) = restore(server, bucket, workdir, "restored")
    assert code == 0, out + err
    server.config = other_config(server, workdir, "restored", url="s3://mail-replica/next")
    server.data_dir = directory
    server.start()
    assert {server.api.message(one)["id"] for one in ids} == set(ids)


def test_a_missing_slot_is_detected_and_a_new_base_created(active, bucket):
    server = active()
    server.api.accept(MAIL)
    slot = confirmed(server)["slot"]
    before = based(server)["slot"]
    for name in bucket.names():
        bucket.remove(name)

    def noticed():
        server.api.accept(MAIL)
        base = status(server)["base"]
        return base and base["slot"] > max(before, slot - 1)

    until("a new base is made", noticed, seconds=90, every=1)
    assert re.search(r"ERROR|error", server.logged())


def replica_section(bucket, **more):
    """`[replica]` as TOML."""
    values = bucket.section | {"interval_ms": 50} | more
    return "[replica]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def test_dev_replicates_regardless_of_its_virtual_clock(dev, bucket, workdir):
    config = replica_section(bucket)
    server = dev("--virtual-clock", config=config)
    data = server.folder / "data"
    server.data_dir = data
    server.advance(30 * 86_400)
    sent = server.api.accept({"from": "hello@example.test", "to": "ada@example.test", "subject": "s", "text": "t"})
    found = confirmed(server)
    assert (found["role"], found["state"]) == ("active", "ok")
    assert server.close() == 0
    slots = bucket.names("log/")
    assert b" release " in bucket.read(slots[-1]).split(b"\n")[0]
    again = Dev(server.folder, ("--virtual-clock",), config)
    again.data_dir = data
    try:
        assert again.api.get(f"/v1/messages/{sent['id']}")["id"] == sent["id"]
        assert confirmed(again)["epoch"] == found["epoch"] + 1
    finally:
        again.close()
