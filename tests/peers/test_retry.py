"""Temporary refusals under the virtual clock: the simulator's, and a real Postfix that greylists (contract 6, 8)."""

from datetime import datetime

MESSAGE = {"from": "shop@example.test", "subject": "later", "text": "x"}


def seconds_until_retry(record: dict) -> float:
    """Returns the seconds of virtual time from the last event to the next attempt."""
    deferred = datetime.fromisoformat(record["events"][-1]["created_at"])
    return (datetime.fromisoformat(record["next_attempt_at"]) - deferred).total_seconds()


def retried_in(record: dict, minutes: float):
    """Checks that the retry is due in this many minutes, within the 10 % of jitter."""
    assert record["status"] == "deferred"
    assert minutes * 60 * 0.9 <= seconds_until_retry(record) <= minutes * 60 * 1.1, record


def kinds(record: dict) -> list[str]:
    """Returns the types of a record's events."""
    return [event["type"] for event in record["events"]]


def test_the_simulator_defers_twice_and_then_delivers(dev):
    service = dev("--virtual-clock")
    sent = service.api.accept(MESSAGE | {"to": "deferred+peers@simulator.test"})
    service.advance(0)
    record = service.api.message(sent["id"])
    retried_in(record, minutes=1)
    assert record["smtp_code"] == 451 and record["attempts"] == 1

    service.advance(66)
    record = service.api.message(sent["id"])
    retried_in(record, minutes=2)

    service.advance(132)
    record = service.api.message(sent["id"])
    assert record["status"] == "delivered" and record["next_attempt_at"] is None
    assert kinds(record) == ["queued", "deferred", "deferred", "delivered"]
    assert [event["attempt"] for event in record["events"]][1:] == [1, 2, 3]


def test_nothing_is_retried_before_its_time(dev):
    service = dev("--virtual-clock")
    sent = service.api.accept(MESSAGE | {"to": "deferred@simulator.test"})
    service.advance(0)
    service.advance(53)
    assert service.api.message(sent["id"])["attempts"] == 1


def test_a_greylisting_postfix_gets_the_message_at_the_second_attempt(dev, knot, postfix, policy):
    policy.answers["grey@recipient.test"] = ["451 4.7.1 Greylisted, come back later"]
    config = (
        f'hostname = "mail.sender.test"\n[dns]\nservers = ["{knot.server}"]\n[delivery]\nport = {postfix.port}\n'
        '[network]\nallow = ["127.0.0.0/8"]\n'
    )
    service = dev("--virtual-clock", "--deliver", config=config)
    sent = service.api.accept(MESSAGE | {"to": "grey@recipient.test"})
    service.advance(0)
    record = service.api.message(sent["id"])
    retried_in(record, minutes=1)
    assert record["smtp_code"] == 451 and record["smtp_enhanced_code"] == "4.7.1"
    assert "Greylisted, come back later" in record["smtp_response"]
    assert postfix.mail("grey") == []

    service.advance(66)
    assert service.api.message(sent["id"])["status"] == "delivered"
    assert sent["id"].encode() in postfix.wait_for_mail(mailbox="grey")[0]
