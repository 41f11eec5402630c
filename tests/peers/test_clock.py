"""With a wrong wall clock, nothing expires and mail continues (contract 10.3)."""

import http.client
import time

import pytest
from support.faketime import WallClock
from support.wait import free_port, until

MESSAGE = {"from": "shop@sender.test", "subject": "kept", "text": "The text."}


@pytest.fixture
def clock(workdir):
    return WallClock(workdir)


@pytest.fixture
def service(serve, knot, sink, clock):
    """A service with that clock. sink.test accepts mail; nothing listens at dead.test."""
    knot.mail_server("sink.test", "mx.sink.test")
    knot.mail_server("dead.test", "mx.dead.test", "127.0.0.99")
    port = free_port()
    service = serve(port=sink.port, metrics={"listen": f"127.0.0.1:{port}"})
    service.metrics_port = port
    service.domain("sender.test")
    assert service.close() == 0
    service.environment = clock.environment
    service.start()
    return service


def says(service) -> set[bool]:
    """Whether the wall clock is in doubt, according to the metrics and the command line."""
    connection = http.client.HTTPConnection("127.0.0.1", service.metrics_port, timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    [metric] = [line.split()[-1] for line in lines if line.startswith("postrider_clock_doubtful ")]
    return {metric == "1", service.cli("clock", "show")["state"] == "doubtful"}


def becomes(service, doubtful: bool):
    until(f"the clock is doubtful: {doubtful}", lambda: says(service) == {doubtful}, seconds=15)


class Sent:
    """Messages of each kind, and the check that they are unchanged."""

    def __init__(self, service):
        self.service = service
        self.delivered = service.api.accept(MESSAGE | {"to": "a@sink.test"}, key="once")["id"]
        self.deferred = service.api.accept(MESSAGE | {"to": "b@dead.test"})["id"]
        service.api.settled(self.delivered, "delivered")
        service.api.settled(self.deferred, "deferred")

    def are_kept(self):
        for message in (self.delivered, self.deferred):
            assert self.service.api.message(message)["text"] == MESSAGE["text"]
        assert self.service.api.message(self.deferred)["status"] == "deferred"
        again = self.service.api.accept(MESSAGE | {"to": "a@sink.test"}, key="once")
        assert again["id"] == self.delivered, "the idempotency key was forgotten"

    def goes_on(self):
        """Mail is accepted and delivered, and its content is kept."""
        sent = self.service.api.accept(MESSAGE | {"to": "c@sink.test"})["id"]
        self.service.api.settled(sent, "delivered")
        return sent


@pytest.mark.parametrize("offset", ["+40d", "-40d"])
def test_a_temporary_clock_jump_expires_nothing(service, clock, offset):
    sent = Sent(service)
    clock.set(offset)
    becomes(service, True)
    sent.are_kept()
    between = sent.goes_on()
    clock.set("+0")
    becomes(service, False)
    sent.are_kept()
    assert service.api.message(between)["text"] == MESSAGE["text"]
    sent.goes_on()
    assert "wall clock is doubtful" in service.logged() and "wall clock is trusted again" in service.logged()


@pytest.mark.parametrize("offset", ["+40d", "-40d"])
def test_a_start_with_a_wrong_clock_expires_nothing(service, clock, offset):
    sent = Sent(service)
    service.kill()
    clock.set(offset)
    service.start()
    becomes(service, True)
    sent.are_kept()
    between = sent.goes_on()
    # A second start in the same doubt continues from the newest identifier, not from the wall clock.
    assert service.close() == 0
    service.start()
    becomes(service, True)
    sent.are_kept()
    assert service.api.message(between)["text"] == MESSAGE["text"]
    assert service.close() == 0
    clock.set("+0")
    service.start()
    becomes(service, False)
    sent.are_kept()
    assert service.api.message(between)["text"] == MESSAGE["text"]


def test_an_accepted_clock_expires_overdue_items_and_keeps_those_from_the_doubt(service, clock):
    sent = Sent(service)
    clock.set("+40d")
    becomes(service, True)
    between = sent.goes_on()
    service.cli("clock", "accept")
    becomes(service, False)
    failed = service.api.settled(sent.deferred, "failed")
    assert failed["attempts"] == 1, "it is not tried before its deadline follows the clock"
    assert service.api.message(between)["text"] == MESSAGE["text"], "its deadline counts from the right time"


def test_a_restart_after_a_clock_that_was_ahead_is_accepted_expires_nothing(service, clock):
    assert service.close() == 0
    clock.set("+5d")
    service.start()
    sent = Sent(service)
    clock.set("+0")
    becomes(service, True)
    service.cli("clock", "accept")
    becomes(service, False)
    later = service.api.accept(MESSAGE | {"to": "d@dead.test"})["id"]
    for stop in (service.close, service.kill):
        stop()
        service.start()
        assert says(service) == {False}
        sent.are_kept()
        assert service.api.message(later)["status"] in {"queued", "deferred"}
    sent.goes_on()


@pytest.mark.parametrize("offset", ["+3000", "-3000"])
def test_a_clock_change_of_less_than_an_hour_is_followed(service, clock, offset):
    sent = Sent(service)
    clock.set(offset)
    sent.goes_on()
    assert says(service) == {False}
    sent.are_kept()


def test_a_webhook_failure_during_a_clock_doubt_does_not_count_against_the_endpoint(service, clock, hooks):
    """Receivers rightly refuse signatures with a wrong time."""
    endpoint = service.api.request("POST", "/v1/webhooks", {"url": hooks.url, "events": ["queued"]}).json()["id"]

    def failures() -> int | None:
        record = service.api.get(f"/v1/webhooks/{endpoint}")
        return record["consecutive_failures"] if record["last_failure_at"] else None

    clock.set("+40d")
    becomes(service, True)
    hooks.statuses = [400, 400]
    service.api.accept(MESSAGE | {"to": "a@sink.test"})
    until("the failure is recorded", lambda: failures() is not None)
    assert failures() == 0
    signed_at = int(hooks.received[0].headers["x-service-signature"].split(",")[0].removeprefix("t="))
    assert signed_at > time.time() + 39 * 86400, "outgoing data has the wall clock's time"
    clock.set("+0")
    becomes(service, False)
    service.api.accept(MESSAGE | {"to": "a@sink.test"})
    until("a failure on a trusted clock counts", lambda: failures() == 1)
