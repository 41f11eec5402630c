"""Starts on a log that the machine wrote itself: the bucket was emptied, or a copy of the disk runs beside it."""

import json
import shutil

from support.roots import binary
from support.wait import spawn, stop, until
from test_replica import MAIL, based, confirmed, other_config, restore, run, status
from test_replica import active, bucket  # noqa: F401, fixtures
from test_replica_standby import follows, promoted, standbys  # noqa: F401, a fixture

WAITS = "sending starts once the previous machine's lease has expired"


def test_a_machine_whose_bucket_was_emptied_before_it_stopped_starts_and_makes_a_base(active, bucket, standbys):
    server = active()
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    for name in bucket.names():
        bucket.remove(name)
    server.close()
    assert bucket.names(), "the release is in the emptied bucket"
    server.start()
    sent = server.api.accept(MAIL)["id"]
    sequence = confirmed(server)["sequence"]
    based(server)
    standby = standbys(server)
    follows(standby, sequence)
    assert run("replica", "verify", "--config", server.config)[0] == 0
    assert server.api.message(sent)["id"] == sent


def test_a_copy_of_the_disk_does_not_send_while_the_original_may(active, workdir):
    server = active(when_unreachable="stop", lease_seconds=30)
    server.api.accept(MAIL)
    confirmed(server)
    server.kill()
    shutil.copytree(server.data_dir, workdir / "clone", ignore=shutil.ignore_patterns("*.sock"))
    server.start()
    confirmed(server)
    assert WAITS not in server.logged(), "it continues its own log"
    config, log = other_config(server, workdir, "clone"), workdir / "clone.log"
    with log.open("w") as out:
        clone = spawn([binary(), "serve", "--config", str(config)], out)
    try:
        until("the copy waits", lambda: WAITS in log.read_text(), seconds=60, every=0.2)
    finally:
        stop(clone)


def test_a_restore_that_releases_the_queue_releases_a_hold_of_the_log_too(active, bucket, standbys, workdir):
    server = active()
    server.api.accept(MAIL)
    sequence = confirmed(server)["sequence"]
    based(server)
    standby = standbys(server)
    follows(standby, sequence)
    server.kill()
    promoted(standby, "--force", "--hold")
    until("it is active", lambda: standby.status()["state"] == "ok", seconds=60, every=0.2)
    standby.close()
    directory, (code, out, err) = restore(server, bucket, workdir, "copy", "--release")
    assert code == 0, err
    config = workdir / "copy.toml"
    config.write_text(config.read_text().replace(bucket.section["url"], bucket.section["url"] + "-2"))
    server.config, server.data_dir = config, type(server.data_dir)(directory)
    server.start()
    assert server.cli("status")["queue"]["on_hold"] is False, json.loads(out)
    assert status(server)["role"] == "active"
