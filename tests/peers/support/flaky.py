"""A fake service that returns prepared answers, and records its requests."""

import http.server
import json
import threading


class FlakyService:
    """Answers requests from `answers`: (status, headers, object), or None to drop the connection."""

    def __init__(self, answers):
        self.answers, self.asked = list(answers), []
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """One request."""

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                service.asked.append((self.command, self.path, dict(self.headers), body))
                lined_up = service.answers.pop(0)
                if lined_up is None:
                    self.connection.close()
                    return
                status, headers, told = lined_up
                raw = json.dumps(told).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": str(len(raw)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = answer  # noqa: N815, the names are http.server's

            def log_message(self, *_):
                """Nothing is logged."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def keys(self) -> set[str]:
        """Returns the Idempotency-Keys received."""
        return {headers["Idempotency-Key"] for _, _, headers, _ in self.asked}
