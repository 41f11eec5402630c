"""A bucket of moto's S3 server, behind a proxy that can fail as stores and networks do."""

import email.utils
import http.client
import http.server
import re
import ssl
import sys
import threading
import time
import urllib.request
from pathlib import Path

from .wait import LOOPBACK, free_port, listens, spawn, stop, until

BUCKET = "mail-replica"


class Bucket:
    """The bucket. `endpoint` is the proxy's; `objects` bypasses it."""

    def __init__(self, folder: Path, listen: tuple[str, int] = (LOOPBACK, 0), certificate: Path | None = None):
        """`listen` is the proxy's address. With a certificate, the proxy requires TLS."""
        folder.mkdir()
        self.port = free_port()
        program = Path(sys.executable).parent / "moto_server"
        with (folder / "moto.log").open("w") as log:
            self.child = spawn([str(program), "-H", LOOPBACK, "-p", str(self.port)], log)
        until("moto listens", lambda: listens(self.port), seconds=60)
        self._ask("PUT", f"/{BUCKET}")
        self.credentials = folder / "credentials"
        self.credentials.write_text("[default]\naws_access_key_id = AKIATEST\naws_secret_access_key = secret\n")
        self.proxy = _Proxy(self.port, listen)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # Handshakes take place in the connections' threads.
            self.proxy.socket = context.wrap_socket(self.proxy.socket, server_side=True, do_handshake_on_connect=False)
        self.endpoint = f"http://{LOOPBACK}:{self.proxy.server_port}"
        self.section = {
            "url": f"s3://{BUCKET}/replica",
            "endpoint": self.endpoint,
            "credentials_file": str(self.credentials),
            "timeout_seconds": 5,
        }

    def close(self):
        """Ends proxy and server."""
        self.proxy.shutdown()
        stop(self.child)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        # Requests without a key are anonymous, and objects are private. The signature is not checked.
        signed = "AWS4-HMAC-SHA256 Credential=AKIATEST/20260101/us-east-1/s3/aws4_request,SignedHeaders=host,Signature=0"
        headers = {"Content-Type": "application/xml", "Authorization": signed}
        request = urllib.request.Request(f"http://{LOOPBACK}:{self.port}{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names below the replica's prefix that begin with `prefix`."""
        document = self._ask("GET", f"/{BUCKET}?list-type=2&prefix=replica/{prefix}").decode()
        return [name.removeprefix("replica/") for name in re.findall(r"<Key>([^<]*)</Key>", document)]

    def read(self, name: str) -> bytes:
        """An object's bytes."""
        return self._ask("GET", f"/{BUCKET}/replica/{name}")

    def put(self, name: str, body: bytes):
        """Writes an object, bypassing every rule."""
        self._ask("PUT", f"/{BUCKET}/replica/{name}", body)

    def remove(self, name: str):
        """Removes an object, bypassing every rule."""
        self._ask("DELETE", f"/{BUCKET}/replica/{name}")

    def configure(self, what: str, document: str):
        """Sets a setting of the bucket: `versioning` or `lifecycle`."""
        self._ask("PUT", f"/{BUCKET}?{what}", document.encode())


# Answers of a proxy that does not forward, by its mode.
_REFUSALS = {
    "forbidden": (403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"),
    "slow down": (503, b"<Error><Code>SlowDown</Code><Message>slowly</Message></Error>"),
    "busy": (429, b"<Error><Code>TooManyRequests</Code><Message>slowly</Message></Error>"),
    "absent": (404, b"<html><body>not found</body></html>"),
    "broken": (500, b"<Error><Code>InternalError</Code><Message>broken</Message></Error>"),
}


class _Proxy(http.server.ThreadingHTTPServer):
    """Forwards requests.

    `mode` is "honest", "ignores conditions", "forbidden", "slow down", "busy", "broken", "absent", "lost" or "away", for
    the requests that `concerns` selects. Each request takes `delay` seconds longer, and one that `held` selects waits until
    `release` is set. The bucket's clock is ahead by `clock_seconds`, and the access key `revoked` is refused. `requests`
    has the method and path of each request, `times` its time."""

    daemon_threads = True

    def __init__(self, port: int, listen: tuple[str, int] = (LOOPBACK, 0)):
        super().__init__(listen, _Handler)
        self.port, self.mode, self.requests, self.delay = port, "honest", [], 0
        self.times: list[float] = []
        self.concerns = self.held = lambda method, path: True
        self.release = threading.Event()
        self.release.set()
        self.clock_seconds, self.revoked = 0, ""
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self):
        time.sleep(self.server.delay)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.times.append(time.monotonic())
        self.server.requests.append((self.command, self.path))
        if self.server.held(self.command, self.path):
            self.server.release.wait(60)
        mode = self.server.mode if self.server.concerns(self.command, self.path) else "honest"
        if self.server.revoked and f"Credential={self.server.revoked}/" in self.headers.get("Authorization", ""):
            mode = "forbidden"
        if mode == "away":
            self.close_connection = True
            return
        if mode in _REFUSALS:
            status, document = _REFUSALS[mode]
            return self._answer(status, [], document)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        if mode == "ignores conditions":
            headers = {name: value for name, value in headers.items() if name.lower() != "if-none-match"}
        upstream = http.client.HTTPConnection(LOOPBACK, self.server.port, timeout=30)
        try:
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        if mode == "lost":
            self.close_connection = True
            return
        framing = ("content-length", "connection", "transfer-encoding")
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in framing]
        if self.server.clock_seconds:
            date = email.utils.formatdate(time.time() + self.server.clock_seconds, usegmt=True)
            kept = [(name, value) for name, value in kept if name.lower() != "date"] + [("Date", date)]
        self._answer(answer.status, kept, content)

    do_GET = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815, the names are http.server's

    def _answer(self, status: int, headers, body: bytes):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        """Nothing is logged."""
