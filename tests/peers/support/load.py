"""Load from several threads that records every answer, and every request without one."""

import http.client
import json
import threading
from dataclasses import dataclass, field

from .server import Answer, Api

THREADS = 6


@dataclass
class Ledger:
    """Record of the load. A key is in `doubtful` until its request is answered."""

    accepted: dict[str, dict] = field(default_factory=dict)  # Idempotency-Key -> 202 body
    doubtful: dict[str, dict] = field(default_factory=dict)  # Idempotency-Key -> request
    refused: list[Answer] = field(default_factory=list)
    replays: int = 0

    def settle(self, api: Api):
        """Repeats each doubtful request under its key, as a client must: the result is one message in any case."""
        for key, request in list(self.doubtful.items()):
            answer = api.send(request, key)
            assert answer.status == 202, answer
            self.replays += answer.headers.get("idempotent-replay") == "true"
            self.accepted[key] = answer.json()
            del self.doubtful[key]


class Load:
    """Threads that send message after message, on one connection each, until the server is gone."""

    def __init__(self, api: Api, ledger: Ledger, label: str):
        self.api, self.ledger, self.label = api, ledger, label
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._send, args=(n,), daemon=True) for n in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        """Stops the load; each thread finishes its request."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()

    def _send(self, thread: int):
        connection = http.client.HTTPConnection(self.api.host, self.api.port, timeout=30)
        count = 0
        while not self.stopping.is_set():
            count += 1
            key = f"{self.label}-{thread}-{count}"
            request = {
                "from": "load@sender.test",
                "to": f"r{thread}@sink.test",
                "subject": f"load {key}",
                "text": "x" * 2000,
            }
            self.ledger.doubtful[key] = request
            try:
                connection.request(
                    "POST",
                    "/v1/messages",
                    json.dumps(request),
                    {
                        "Authorization": f"Bearer {self.api.key}",
                        "Content-Type": "application/json",
                        "Idempotency-Key": key,
                    },
                )
                got = connection.getresponse()
                answer = Answer(got.status, dict(got.getheaders()), got.read())
            except (OSError, http.client.HTTPException):
                break  # The server is dead; the restart shows whether it accepted this message.
            if answer.status == 202:
                self.ledger.accepted[key] = answer.json()
            else:
                self.ledger.refused.append(answer)
            del self.ledger.doubtful[key]
        connection.close()
