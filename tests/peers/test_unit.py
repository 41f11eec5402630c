"""The systemd unit permits what the program does, and nothing that it does not (contract 10.3)."""

import signal

from support.seccomp import allowed, confine
from support.wait import until

MESSAGE = {"from": "shop@sender.test", "to": "a@sink.test", "subject": "filtered", "text": "x"}


def test_the_system_call_filter_permits_everything_the_service_does(serve, knot, sink):
    knot.mail_server("sink.test", "mx.sink.test")
    service = serve(port=sink.port)
    assert service.close() == 0
    service.before_program = confine(allowed())
    service.start()
    service.domain("sender.test")
    sent = service.api.accept(MESSAGE)
    service.api.settled(sent["id"], "delivered")
    service.cli("backup", str(service.folder / "backup"))
    assert service.close() == 0


def test_the_filter_permits_reading_the_clock_synchronisation_state(serve, sink):
    service = serve(port=sink.port)
    assert service.close() == 0
    service.before_program = confine(allowed(without="adjtimex"))
    try:
        service.start()
    except AssertionError:
        pass  # It was killed before it was ready.
    until("the program asks the kernel", lambda: service.child.poll() == -signal.SIGSYS)
