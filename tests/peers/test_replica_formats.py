"""Rows of another format in the log of a replica: older and newer versions of the program."""

import json
import shutil
import subprocess
from pathlib import Path

from support.forge import Forge, base_of_backup
from support.roots import missing
from support.wait import until
from test_replica import MAIL, Standby, based, confirmed, master_key, other_config, run, status
from test_replica import active, bucket  # noqa: F401, fixtures
from test_replica_standby import promoted, standbys, take_over  # noqa: F401, a fixture

# The format that the program writes.
FORMAT = 2
TESTS = Path(__file__).parent.parent


def unpack(kept, data):
    """Copies a kept store, and makes it a directory of the service."""
    shutil.copytree(kept, data, ignore=shutil.ignore_patterns("dev.json", "virtual-clock"))
    if shutil.which("zstd") is None:
        missing("zstd")
    for file in data.rglob("*.zst"):
        subprocess.run(["zstd", "-q", "-d", "--rm", str(file)], check=True)


def row(table, key, value):
    """Returns the record of a batch that writes one row."""
    lengths = len(key).to_bytes(4, "little") + len(value).to_bytes(4, "little")
    return bytes([2, 1, len(table)]) + table + bytes([0]) + lengths + key + value


def verified(config):
    code, out, err = run("replica", "verify", "--config", config, "--deep", "--json")
    assert code == 0 and json.loads(out)["ok"], out + err


def test_a_store_of_format_1_is_claimed_migrated_and_gets_a_base(active, bucket):
    server = active()
    server.close()
    for name in bucket.names():
        bucket.remove(name)
    shutil.rmtree(server.data_dir)
    unpack(TESTS / "stores" / "format-1", server.data_dir)
    server.start()
    assert f"base/{confirmed(server)['base']['slot']:012}/manifest" in bucket.names()
    verified(server.config)


def test_a_standby_follows_the_log_of_an_older_version_and_migrates_when_promoted(active, bucket, standbys):
    server = active(encrypt=False)
    store = confirmed(server)["store"]
    server.close()
    for name in bucket.names():
        bucket.remove(name)
    key, rows = base_of_backup((TESTS / "backups" / "format-1.backup").read_bytes())
    forge = Forge(key, store, "older-00000000")
    claim = forge.claim(1, 1, 1, b"", 0)
    part = forge.part(1, rows)
    record = row(b"meta", b"sequence", (1).to_bytes(8, "big") + (1_700_000_000_000).to_bytes(8, "big"))
    objects = {
        "store": forge.identity(1),
        "log/000000000001": claim,
        "log/000000000002": forge.batches(2, 1, 1, claim, 1, record),
        "base/000000000001/000001": part,
        "base/000000000001/manifest": forge.manifest(claim, 1, 1, 0, part),
    }
    for name, content in objects.items():
        bucket.put(name, content)
    server.data_dir.joinpath("master.key").write_bytes(key)
    standby = standbys(server)
    found = standby.status()
    assert (found["state"], found["slot"], found["sequence"]) == ("ok", 2, 1), found
    assert promoted(standby, "--force")["epoch"] == 2
    take_over(server, standby)
    until("there is a base", lambda: (status(server)["base"] or {"slot": 0})["slot"] > 1, seconds=60, every=0.2)
    verified(standby.config)


def test_a_standby_of_an_older_version_ends_and_asks_for_an_upgrade(active, bucket, workdir):
    server = active(encrypt=False)
    server.api.accept(MAIL)
    found = confirmed(server)
    based(server)
    standby = Standby(other_config(server, workdir, "standby"), master_key(server), workdir)
    try:
        server.kill()
        last = bucket.names("log/")[-1]
        number = int(last[4:]) + 1
        forge = Forge(master_key(server).read_bytes(), found["store"], "newer-00000000")
        claim = forge.claim(number, 2, FORMAT + 1, bucket.read(last), found["sequence"])
        bucket.put(f"log/{number:012}", claim)
        assert standby.child.wait(60) == 1, standby.log.read_text()
        assert "pgrade this standby first" in standby.log.read_text()
    finally:
        standby.close()
