"""The promotion of a standby: its answer, its later starts, and what it knows about the machine that it replaces."""

import pytest

from support.disk import MIB
from support.wait import until
from test_replica import MAIL, based, confirmed, status
from test_replica import active, bucket  # noqa: F401, fixtures
from test_replica_standby import disk, standbys  # noqa: F401, fixtures
from test_replica_standby import followed, follows, promote, promoted, ready, take_over

AUTOMATIC = {"when_unreachable": "stop", "failover": "automatic", "lease_seconds": 2, "timeout_seconds": 1}


def restarted(standbys, server, standby):
    """Ends the standby, and starts it again in the same directory."""
    standby.close()
    return standbys(server, config=standby.config)


def test_promote_answers_with_the_result_of_the_claim(active, standbys, bucket):
    server, standby = followed(active, standbys)
    server.kill()
    bucket.proxy.concerns = lambda method, path: method == "PUT" and "/log/" in path
    bucket.proxy.mode = "forbidden"
    code, out, err = promote(standby.data_dir, "--force")
    assert (code, out) == (5, "") and "AccessDenied" in err, (code, out, err)
    bucket.proxy.mode = "honest"
    found = promoted(standby, "--force")
    take_over(server, standby)
    assert status(server)["epoch"] == found["epoch"] == 2


def test_a_deposed_machine_notifies_the_operator_before_it_ends(bucket, begin, operator, standbys):
    server = begin(replica=bucket.section | {"interval_ms": 50})
    server.domain("sender.test")
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    promoted(standbys(server), "--force")
    assert until("it ends", server.child.poll, seconds=60, every=0.1) == 6
    [(change, alert)] = [notice for notice in operator.notices("replica") if "deposed" in notice[1]["summary"]]
    assert (change, alert["severity"], alert["scope"]) == ("alert.opened", "critical", "system"), alert
    assert "CRITICAL: Replication is deposed" in operator.mailed("deposed")


def test_a_machine_that_stops_with_its_lease_is_replaced_without_a_question(active, standbys):
    server = active(when_unreachable="stop", lease_seconds=2)
    sequence = confirmed(server)["sequence"]
    based(server)
    standby = standbys(server)
    follows(standby, sequence)
    server.kill()

    def replaced():
        code, out, err = promote(standby.data_dir)
        assert code == 0 or "moved within a lease" in err, (code, out, err)
        return code == 0

    until("the lease has expired", replaced, seconds=30, every=0.5)


@pytest.mark.parametrize("end", ["close", "kill"])
def test_the_later_start_of_a_promoted_standby_reports_readiness(end, active, standbys):
    server = active()
    confirmed(server)
    based(server)
    first = standbys(server)
    server.kill()
    promoted(first, "--force")
    until("it serves", lambda: ready(first), seconds=60, every=0.2)
    if end == "kill":
        first.child.kill()
    again = restarted(standbys, server, first)
    assert ready(again), "the newline is written once it serves"


def test_a_standby_restarted_after_the_release_is_promoted_without_a_question(active, standbys, bucket):
    server = active(lease_seconds=30)
    sequence = confirmed(server)["sequence"]
    based(server)
    standby = standbys(server)
    assert server.close() == 0
    follows(standby, sequence)
    released = int(bucket.names("log/")[-1][4:])
    until("it has read the release", lambda: standby.status()["slot"] == released, seconds=60, every=0.2)
    again = restarted(standbys, server, standby)
    found = promoted(again)
    assert found["mailing_from"] == found["accepting_at"], "nobody is waited for"


def test_an_automatic_standby_restarted_after_the_release_takes_over(active, standbys, bucket):
    server, standby = followed(active, standbys, **AUTOMATIC)
    standby.close()
    assert server.close() == 0
    again = standbys(server, config=standby.config)
    take_over(server, again)
    assert status(server)["epoch"] == 2


def test_a_restarted_standby_does_not_depose_a_holder_with_a_longer_lease(active, standbys):
    server = active(**AUTOMATIC | {"lease_seconds": 20})
    server.api.accept(MAIL)
    confirmed(server)
    based(server)
    standby = standbys(server, lease_seconds=2)
    again = restarted(standbys, server, standby)
    # The holder beats each 6.7 s, so the log does not change for more than two leases of the standby.
    slot = status(server)["slot"]
    until("the holder has beaten twice", lambda: status(server)["slot"] >= slot + 2, seconds=60, every=0.2)
    assert (status(server)["role"], again.status()["role"]) == ("active", "standby")
    assert again.child.poll() is None and server.child.poll() is None


def test_a_standby_with_a_full_disk_is_not_promoted_and_claims_nothing(active, standbys, disk):
    server, standby = followed(active, standbys)
    epoch = status(server)["epoch"]
    server.kill()
    disk.fill(MIB // 2)
    code, _, err = promote(standby.data_dir, "--force")
    assert code == 1 and "Nothing was claimed" in err and "MiB" in err, (code, err)
    assert standby.status()["epoch"] == epoch and standby.child.poll() is None
    disk.clear()
    assert promoted(standby, "--force")["epoch"] == epoch + 1
    take_over(server, standby)
    server.api.accept(MAIL)
