"""Fixtures: each peer is started for one test and stopped after it.

A test's files are in one directory that every user may enter (Postfix's daemons drop root). It is removed when the test
passes and kept, with its path in the report, when it fails."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support.hooks import HookReceiver  # noqa: E402
from support.knot import Knot  # noqa: E402
from support.operator import Operator  # noqa: E402
from support.pki import Authority  # noqa: E402
from support.postfix import Policy, Postfix  # noqa: E402
from support.policy_host import PolicyHost  # noqa: E402
from support.server import Dev, Serve  # noqa: E402
from support.sinks import AiosmtpdSink, TolerantSink  # noqa: E402
from support.wait import LOOPBACK  # noqa: E402


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Lets fixtures see the result of their test."""
    report = yield
    if report.failed:
        item.failed_somewhere = True
    return report


@pytest.fixture
def workdir(request):
    """The test's directory. Its path is short: sockets live in it (their paths end at 108 bytes)."""
    folder = Path(tempfile.mkdtemp(prefix="peers-"))
    folder.chmod(0o711)
    yield folder
    if getattr(request.node, "failed_somewhere", False):
        sys.stderr.write(f"\nkept: {folder}\n")
    else:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def authority(workdir):
    """A private certificate authority."""
    return Authority(workdir / "pki")


@pytest.fixture
def knot(workdir):
    """The name server, with the receiving domains that most tests use."""
    knot = Knot(workdir / "knot")
    knot.mail_server("recipient.test", "mx1.recipient.test")
    knot.put("nullmx.test", "MX", "0 .")  # RFC 7505
    knot.put("hooks.test", "A", "127.0.0.1")
    knot.publish()
    yield knot
    knot.close()


@pytest.fixture
def signed_knot(workdir):
    """The same name server, with signed zones from the root down."""
    knot = Knot(workdir / "signed", signed=True)
    knot.mail_server("recipient.test", "mx1.recipient.test")
    knot.publish()
    yield knot
    knot.close()


@pytest.fixture
def policy_host(authority):
    """The MTA-STS policy host of recipient.test."""
    host = PolicyHost(authority.issue("mta-sts.recipient.test"))
    yield host
    host.close()


@pytest.fixture
def policy():
    """The policy service that Postfix queries at RCPT."""
    policy = Policy()
    yield policy
    policy.close()


@pytest.fixture
def postfix(workdir, authority, policy):
    """A real Postfix for recipient.test, with STARTTLS."""
    postfix = Postfix(workdir / "postfix", authority.issue("mx1.recipient.test"), policy=policy)
    yield postfix
    postfix.close()


@pytest.fixture
def sink():
    """aiosmtpd, counting what it acknowledged."""
    sink = AiosmtpdSink()
    yield sink
    sink.close()


@pytest.fixture
def tolerant_sink():
    """A receiver that accepts every known variant of the end of data."""
    sink = TolerantSink()
    yield sink
    sink.close()


@pytest.fixture
def hooks(authority):
    """An https webhook receiver at hooks.test."""
    receiver = HookReceiver(authority.issue("hooks.test"))
    yield receiver
    receiver.close()


@pytest.fixture
def serve(workdir, knot, authority):
    """Makes `postrider serve` processes: `serve(port=...)`, with other names than the usual ones as `names`."""
    started = []

    def start(port: int, names: Knot = knot, **sections) -> Serve:
        started.append(Serve(workdir / f"serve{len(started)}", names, authority, port, sections))
        started[-1].begin()
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def operator(workdir, authority, hooks):
    """The operator to whom alerts are sent, with a mailbox at a Postfix and a webhook."""
    operator = Operator(workdir / "operator", authority, hooks)
    yield operator
    operator.close()


@pytest.fixture
def begin(serve, operator):
    """Starts a service that mails directly to `port`, and alerts the operator by the operator's own server."""

    def start(port: int = 9, source: str = LOOPBACK, alerts: dict | None = None, **sections) -> Serve:
        return serve(port=port, alerts=operator.section | (alerts or {}), relay=operator.relays(source), **sections)

    return start


@pytest.fixture
def dev(workdir):
    """Makes `postrider dev --json` processes: `dev("--virtual-clock")`."""
    started = []

    def start(*arguments: str, config: str = "") -> Dev:
        started.append(Dev(workdir / f"dev{len(started)}", arguments, config))
        return started[-1]

    yield start
    for server in started:
        server.close()
