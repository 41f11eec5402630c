"""kill -9 at any moment: every message with a 202 is kept and arrives, and only a message in flight at the kill may
arrive twice (contract 3).

POSTRIDER_CRASH_ROUNDS sets the number of rounds (tests/long does many), POSTRIDER_CRASH_SEED repeats the moments of a
run."""

import json
import os
import random
import threading

import pytest

from support.load import Ledger, Load
from support.wait import until

ROUNDS = int(os.environ.get("POSTRIDER_CRASH_ROUNDS", "3"))
SEED = int(os.environ.get("POSTRIDER_CRASH_SEED", random.SystemRandom().randrange(1 << 32)))
# A message may arrive twice only if its 250 was sent so shortly before a kill that it can't have been committed.
CRASH_WINDOW_SECONDS = 1.0
# The receivers read the last data of a killed process a little later, because their threads wait for their turn.
READ_LATE_SECONDS = 0.25
IN_FLIGHT_MAX = 64  # and at most so many per kill: the capacity of one site's connections and one batch of commits
BACKLOG_MAX = 3000  # each round begins with a queue that the receiver can empty in seconds
UNLIMITED = {"limits": {"requests_per_minute": 100_000_000}, "quota": {"per_hour": 10**9, "per_day": 10**9}}
MESSAGE = {"from": "load@sender.test", "to": "r@sink.test", "subject": "once", "text": "x"}


@pytest.fixture
def service(serve, knot, sink):
    """`serve` without request limits, a verified domain, and aiosmtpd as the receiver of sink.test."""
    knot.mail_server("sink.test", "mx.sink.test")
    service = serve(port=sink.port, **UNLIMITED)
    service.domain("sender.test")
    return service


def test_no_acknowledged_message_is_lost_and_duplicates_occur_only_in_flight(service, sink):
    print(f"\nPOSTRIDER_CRASH_SEED={SEED}, {ROUNDS} rounds")
    chance, ledger, kills = random.Random(SEED), Ledger(), []
    for round_number in range(ROUNDS):
        until("the queue drains", lambda: len(ledger.accepted) - len(sink.messages) < BACKLOG_MAX, seconds=120)
        load = Load(service.api, ledger, f"round{round_number}")
        enough = len(ledger.accepted) + 20
        until("the load runs", lambda goal=enough: len(ledger.accepted) > goal)
        threading.Event().wait(chance.uniform(0.0, 2.0))  # the moment of the crash is the experiment
        kills.append(service.kill())
        load.stop()
        if chance.random() < 0.5:  # recovery must survive its own crash
            kills.append(service.stumble(chance.uniform(0.0, 0.3)))
        service.start()
        ledger.settle(service.api)
    assert ledger.refused == [] and ledger.doubtful == {}

    ids = {body["id"] for body in ledger.accepted.values()}
    assert len(ids) == len(ledger.accepted), "two keys were answered with one message"
    for key, body in ledger.accepted.items():
        record = service.api.settled(body["id"], "delivered", seconds=120)
        assert record["subject"] == body["subject"] == f"load {key}"
        assert record["message_id_header"] == body["message_id_header"]

    copies = sink.by_message_id()
    sent = {body["message_id_header"] for body in ledger.accepted.values()}
    assert sent - set(copies) == set(), "the record says delivered, but the receiver did not get the message"
    assert set(copies) - sent == set(), "the receiver got a message that was not acknowledged"
    doubled = {key: arrived for key, arrived in copies.items() if len(arrived) > 1}
    print(f"{len(sent)} messages, {len(doubled)} arrived twice, {ledger.replays} answers replayed")
    assert sum(len(arrived) - 1 for arrived in doubled.values()) <= IN_FLIGHT_MAX * len(kills)
    for key, arrived in doubled.items():
        # All copies except the last must have been in flight when the process died.
        for copy in arrived[:-1]:
            assert was_in_flight(copy, kills), f"{key} is doubled: {times(arrived)}, kills: {kills}"


def was_in_flight(copy, kills: list[float]) -> bool:
    """Whether a process died so soon after it sent `copy` that it can't have recorded the answer."""
    return any(-READ_LATE_SECONDS <= kill - copy.at <= CRASH_WINDOW_SECONDS for kill in kills)


def times(copies) -> list[float]:
    """Returns the time at which each copy was read."""
    return [copy.at for copy in copies]


def pages(api, path: str) -> list[dict]:
    """Returns all rows of a list."""
    rows, cursor = [], ""
    while True:
        page = api.get(f"{path}{'&' if '?' in path else '?'}limit=100{cursor}")
        rows += page["data"]
        if page["next_cursor"] is None:
            return rows
        cursor = f"&cursor={page['next_cursor']}"


def test_every_event_is_delivered_despite_kill_9_and_repeats_have_the_same_delivery_id(service, hooks):
    print(f"\nPOSTRIDER_CRASH_SEED={SEED}, {ROUNDS} rounds")
    chance, ledger, kills = random.Random(SEED), Ledger(), []
    endpoint = service.api.request("POST", "/v1/webhooks", {"url": hooks.url}).json()
    for round_number in range(ROUNDS):
        load = Load(service.api, ledger, f"hooks{round_number}")
        enough = len(hooks.received) + 20
        until("webhooks go out", lambda goal=enough: len(hooks.received) > goal)
        threading.Event().wait(chance.uniform(0.0, 1.0))  # the moment of the crash is the experiment
        kills.append(service.kill())
        load.stop()
        if chance.random() < 0.5:  # recovery must survive its own crash
            kills.append(service.stumble(chance.uniform(0.0, 0.3)))
        service.start()
        ledger.settle(service.api)
        until("all deliveries are made", lambda: nothing_is_owed(service.api, endpoint), seconds=120, every=0.5)
    for body in ledger.accepted.values():
        service.api.settled(body["id"], "delivered", seconds=60)
    until("all deliveries are made", lambda: nothing_is_owed(service.api, endpoint), seconds=120, every=0.5)

    events = {event["id"]: event for event in pages(service.api, "/v1/events")}
    owed = pages(service.api, f"/v1/webhooks/{endpoint['id']}/deliveries")
    assert sorted(row["event_id"] for row in owed) == sorted(events), "each event has exactly one delivery"
    assert {row["status"] for row in owed} == {"delivered"}
    told = {}
    for hook in hooks.received:
        told.setdefault(hook.headers["webhook-id"], []).append(hook)
    assert set(told) == set(events), "exactly the recorded events are delivered"
    delivery_of = {row["event_id"]: row["id"] for row in owed}
    repeated = {event: copies for event, copies in told.items() if len(copies) > 1}
    print(f"{len(events)} events, {len(repeated)} told twice")
    for event, copies in told.items():
        assert {hook.headers["x-service-delivery"] for hook in copies} == {delivery_of[event]}
        assert len({hook.body for hook in copies}) == 1 and json.loads(copies[0].body) == events[event]
    for event, copies in repeated.items():
        # All copies except the last must have been in flight when the process died.
        for copy in copies[:-1]:
            assert was_in_flight(copy, kills), f"{event} is told twice: {times(copies)}, kills: {kills}"


def nothing_is_owed(api, endpoint: dict) -> bool:
    """Whether the newest deliveries have been made; the oldest become due first."""
    rows = api.get(f"/v1/webhooks/{endpoint['id']}/deliveries?limit=100")["data"]
    return all(row["status"] == "delivered" for row in rows)


def test_an_idempotent_answer_survives_kill_9_byte_for_byte(service, sink):
    first = service.api.send(MESSAGE, "order-1")
    assert first.status == 202 and "idempotent-replay" not in first.headers
    service.kill()
    service.start()
    again = service.api.send(MESSAGE, "order-1")
    assert again.status == 202 and again.headers["idempotent-replay"] == "true"
    assert again.body == first.body

    other = service.api.send(MESSAGE | {"subject": "twice"}, "order-1")
    assert other.status == 409 and other.json()["code"] == "idempotency_mismatch"
    service.api.settled(first.json()["id"], "delivered")
    assert set(sink.by_message_id()) == {first.json()["message_id_header"]}


def test_quota_events_and_suppressions_survive_kill_9(service):
    sent = service.api.accept(MESSAGE)
    service.api.settled(sent["id"], "delivered")
    gone = service.api.accept(MESSAGE | {"to": "Gone@Sink.test"})
    assert service.api.settled(gone["id"], "bounced")["events"][-1]["bounce"]["suppressed"] is True
    events = service.api.get("/v1/events")
    used = service.api.get("/v1/me")["quota"]
    service.kill()
    service.start()
    assert service.api.get("/v1/events") == events
    # The hour may have ended meanwhile; the day's count is compared unless the day has ended too.
    after = service.api.get("/v1/me")["quota"]
    assert after["day"]["used"] == used["day"]["used"] or after["day"]["reset"] != used["day"]["reset"]
    refused = service.api.send(MESSAGE | {"to": "gone@sink.test"})
    assert refused.status == 422 and refused.json()["code"] == "recipient_suppressed"


def test_sigterm_ends_with_exit_0_and_keeps_everything(service, sink):
    ledger = Ledger()
    load = Load(service.api, ledger, "term")
    until("the load runs", lambda: len(ledger.accepted) > 20)
    assert service.close() == 0, service.logged()
    load.stop()
    service.start()
    ledger.settle(service.api)
    # A request that arrived during the shutdown may be refused with 503.
    assert all(answer.status == 503 for answer in ledger.refused)
    for body in ledger.accepted.values():
        service.api.settled(body["id"], "delivered", seconds=60)
    assert {key: len(arrived) for key, arrived in sink.by_message_id().items() if len(arrived) > 1} == {}
