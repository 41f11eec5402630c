"""An MTA-STS policy host (RFC 8461 3.3) that records its requests."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .wait import LOOPBACK


class PolicyHost:
    """Listens at https://mta-sts.<domain>:port/. `text` is the policy, `asked` the requested paths."""

    def __init__(self, certificate: Path):
        self.text = ""
        self.asked: list[str] = []
        host = self

        class Handler(BaseHTTPRequestHandler):
            """One request."""

            def do_GET(self):  # noqa: N802 (http.server's name)
                host.asked.append(self.path)
                body = host.text.encode()
                self.send_response(200 if body and self.path == "/.well-known/mta-sts.txt" else 404)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Logs nothing: the received requests are the log."""

        class Server(ThreadingHTTPServer):
            """The handshake runs on the connection's thread."""

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
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def publish(self, mode: str, *servers: str):
        """Sets the policy."""
        lines = ["version: STSv1", f"mode: {mode}", *(f"mx: {server}" for server in servers), "max_age: 604800"]
        self.text = "\r\n".join(lines) + "\r\n"

    def close(self):
        """Stops listening."""
        self.server.shutdown()
        self.server.server_close()
