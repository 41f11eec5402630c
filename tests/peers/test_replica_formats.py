"""Rows of another format in the log of a replica: older and newer versions of the program."""

from support.forge import Forge
from test_replica import MAIL, Standby, based, confirmed, master_key, other_config
from test_replica import active, bucket  # noqa: F401, fixtures

# The format that the program writes.
FORMAT = 2


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
