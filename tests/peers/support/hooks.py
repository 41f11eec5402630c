"""An https webhook receiver that records exactly what it received."""

import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .wait import LOOPBACK, until


@dataclass
class Hook:
    """One request: the body byte for byte, header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)


class HookReceiver:
    """Listens at https://hooks.test:port/. `statuses` are the next answers, afterwards it answers 200."""

    def __init__(self, certificate: Path):
        self.received: list[Hook] = []
        self.statuses: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            """One request of one delivery attempt."""

            protocol_version = "HTTP/1.1"

            def do_POST(self):  # noqa: N802 (http.server's name)
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Hook(self.path, headers, body))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Logs nothing: the received requests are the log."""

        class Server(ThreadingHTTPServer):
            """The handshake runs on the connection's thread, so that one client can't block the others."""

            daemon_threads = True

            def finish_request(self, request, client_address):
                with context.wrap_socket(request, server_side=True) as tls:
                    super().finish_request(tls, client_address)

            def handle_error(self, _request, _client_address):
                """A dropped connection of a client is ignored."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.server = Server((LOOPBACK, 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"https://hooks.test:{self.port}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def wait_for(self, count: int, seconds: float = 20.0) -> list[Hook]:
        """Returns all requests, once there are `count`."""
        return until(f"{count} webhooks", lambda: len(self.received) >= count and list(self.received), seconds)

    def wait_for_event(self, kind: str, seconds: float = 20.0) -> Hook:
        """Returns the first delivery of an event of this type."""
        return until(
            f"a webhook of type {kind}",
            lambda: next((h for h in list(self.received) if h.headers.get("x-service-event") == kind), None),
            seconds,
        )

    def close(self):
        """Stops listening."""
        self.server.shutdown()
        self.server.server_close()
