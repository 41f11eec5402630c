"""A disk that returns altered data: damage is detected and reported, and never served (contract 10.3)."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from support.roots import binary
from support.wait import until

SEED = int(os.environ.get("POSTRIDER_DAMAGE_SEED", random.SystemRandom().randrange(1 << 32)))
ROUNDS = int(os.environ.get("POSTRIDER_DAMAGE_ROUNDS", "12"))
MESSAGE = {"from": "load@sender.test", "to": "r@sink.test", "subject": "kept", "text": "x" * 2000}


@pytest.fixture
def service(serve, knot, sink):
    """`serve` with a verified domain, and aiosmtpd as the receiver of sink.test."""
    knot.mail_server("sink.test", "mx.sink.test")
    service = serve(port=sink.port)
    service.domain("sender.test")
    return service


def run(service, *words: str) -> subprocess.CompletedProcess:
    """Runs a command of the program on the service's data directory."""
    return subprocess.run([binary(), *words], capture_output=True, text=True, timeout=60)


def check(service) -> subprocess.CompletedProcess:
    """`postrider check` of the service's store."""
    return run(service, "check", "--data-dir", str(service.data_dir))


def flip(file: Path, position: int, bit: int = 0):
    """Flips one bit of a file."""
    with file.open("r+b") as opened:
        opened.seek(position)
        byte = opened.read(1)[0]
        opened.seek(position)
        opened.write(bytes([byte ^ (1 << bit)]))


# Offset of the journal's first record.
RECORDS = 8192


def accepted_since_a_checkpoint(service, count: int) -> list[dict]:
    """Returns messages whose records are in the journal of a killed service."""
    sent = []

    def is_recorded() -> bool:
        # A checkpoint meanwhile empties the journal, so everything is tried again.
        sent.clear()
        journal = service.data_dir / "journal"
        for _ in range(count):
            sent.append(service.api.accept(MESSAGE))
        service.kill()
        content = journal.read_bytes()
        if content.count(b"messages") >= count // 2:
            return True
        service.start()
        return False

    until("messages are in the journal", is_recorded, seconds=60)
    return sent


def exits_at_start(service) -> tuple[int, str]:
    """Returns the exit code of a service that must not start, and its output."""
    before = len(service.logged())
    with pytest.raises(AssertionError):
        service.start()
    return service.child.wait(), service.logged()[before:]


def test_damage_before_the_end_of_the_journal_is_not_a_torn_tail(service, sink):
    sent = accepted_since_a_checkpoint(service, 20)
    journal = service.data_dir / "journal"
    flip(journal, RECORDS + 200)

    checked = check(service)
    assert checked.returncode == 7 and "journal" in checked.stdout + checked.stderr, checked
    code, said = exits_at_start(service)
    assert code == 1, said
    assert "postrider check" in said and "--accept-journal-damage" in said, said

    service.start("--accept-journal-damage")
    kept = [message for message in sent if service.api.request("GET", f"/v1/messages/{message['id']}").status == 200]
    damaged = list(service.data_dir.glob("journal.damaged-*"))
    assert len(damaged) == 1 and len(kept) < len(sent)
    # Their outcomes may have been lost, so the queue is on hold until the operator releases it.
    assert run(service, "queue", "release", "--data-dir", str(service.data_dir)).returncode == 0
    service.close()
    assert check(service).returncode == 0
    whole = subprocess.run(
        [binary(), "serve", "--config", str(service.config), "--accept-journal-damage"], capture_output=True, timeout=60
    )
    assert whole.returncode == 2, "with an intact journal the flag is refused"


def test_an_emptied_journal_stops_the_start_until_the_loss_is_accepted(service, sink):
    # A clean stop leaves the account and its key in the database.
    assert service.close() == 0
    service.start()
    accepted_since_a_checkpoint(service, 10)
    journal = service.data_dir / "journal"
    journal.write_bytes(b"")
    assert check(service).returncode == 7
    code, said = exits_at_start(service)
    assert code == 1 and "does not belong to this database" in said and "--accept-journal-damage" in said, said
    assert journal.read_bytes() == b"", "the refused start changed nothing"
    service.start("--accept-journal-damage")
    assert run(service, "queue", "release", "--data-dir", str(service.data_dir)).returncode == 0
    service.close()
    service.start()
    service.api.settled(service.api.accept(MESSAGE)["id"], "delivered")


def test_a_torn_tail_of_the_journal_is_skipped_silently(service):
    accepted_since_a_checkpoint(service, 10)
    journal = service.data_dir / "journal"
    with journal.open("ab") as opened:
        opened.write(random.Random(SEED).randbytes(100))
    service.start()


@pytest.mark.parametrize("position", [0, 1, 5, 12, 20, 40, 70])
def test_a_damaged_content_key_loses_no_body(service, sink, position):
    sent = [service.api.accept(MESSAGE | {"subject": f"n{n}"}) for n in range(5)]
    for message in sent:
        service.api.settled(message["id"], "delivered")
    assert service.close() == 0
    flip(service.data_dir / "content" / "keys", position)
    service.start()
    for message in sent:
        assert service.api.message(message["id"])["text"] == MESSAGE["text"], position
    again = service.api.accept(MESSAGE)
    assert service.api.settled(again["id"], "delivered")["text"] == MESSAGE["text"]


def copy(source: Path, target: Path):
    """Copies a data directory that no process has open."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("admin.sock", "postrider.pid"))


def answers_sanely(service, paths: list[str]) -> list[str]:
    """Returns the malformed answers to these paths: neither JSON nor a proper error."""
    wrong = []
    for path in paths:
        answer = service.api.request("GET", path)
        try:
            body = json.loads(answer.body)
        except ValueError:
            wrong.append(f"{path}: {answer.status} is no JSON")
            continue
        if answer.status not in (200, 404, 500) or (answer.status == 500 and body["code"] != "internal"):
            wrong.append(f"{path}: {answer.status} {body}")
    return wrong


def test_one_flipped_bit_in_the_database_never_panics_and_is_always_detected(service, sink, hooks):
    print(f"\nPOSTRIDER_DAMAGE_SEED={SEED}")
    chance = random.Random(SEED)
    endpoint = service.api.request("POST", "/v1/webhooks", {"url": hooks.url}).json()
    sent = [service.api.accept(MESSAGE | {"subject": f"n{n}"}) for n in range(30)]
    for message in sent:
        service.api.settled(message["id"], "delivered")
    truth = {message["id"]: service.api.message(message["id"]) for message in sent}
    assert service.close() == 0
    whole = service.folder / "whole"
    copy(service.data_dir, whole)
    database = service.data_dir / "postrider.redb"
    used = [n for n, byte in enumerate(database.read_bytes()) if byte]
    for _ in range(ROUNDS):
        position, bit = chance.choice(used), chance.randrange(8)
        context = f"seed {SEED}, byte {position}, bit {bit}"
        shutil.rmtree(service.data_dir)
        copy(whole, service.data_dir)
        flip(database, position, bit)
        verdict = check(service)
        assert verdict.returncode in (0, 1, 7), (context, verdict)
        before = len(service.logged())
        try:
            service.start()
        except AssertionError:
            assert service.child.wait() == 1, (context, service.logged()[before:])
            assert verdict.returncode == 7, (context, "serve failed, and check found nothing", verdict)
            continue
        key_is_whole = service.api.request("GET", "/v1/me").status == 200
        if key_is_whole:
            paths = ["/v1/events", "/v1/webhooks", "/v1/keys", "/v1/domains", f"/v1/webhooks/{endpoint['id']}"]
            assert answers_sanely(service, paths + ["/v1/messages", "/v1/suppressions"]) == [], context
            url = service.api.request("GET", f"/v1/webhooks/{endpoint['id']}")
            assert url.status != 200 or url.json()["url"] == hooks.url, (context, url)
            for message_id, record in truth.items():
                answer = service.api.request("GET", f"/v1/messages/{message_id}")
                assert answer.status in (200, 500), (context, answer)
                if answer.status == 200:
                    read = answer.json()
                    assert {k: read[k] for k in ("subject", "to", "status")} == {
                        k: record[k] for k in ("subject", "to", "status")
                    }, context
            if verdict.returncode == 0:
                assert service.api.message(sent[0]["id"]) == truth[sent[0]["id"]], context
        service.close()
        assert "panicked" not in service.logged()[before:], (context, service.logged()[before:])
