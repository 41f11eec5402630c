"""An application that sends mail, written only from the specification and openapi.json, as its author would.

It has one way to call and one way to fail. It knows no particular error: it acts on the status class and on
`Retry-After`, and passes `code`, `message` and `errors` to its caller."""

from collections.abc import Callable, Iterator

import httpx

ATTEMPTS = 5


class Refused(Exception):
    """The service's answer to a failed request."""

    def __init__(self, response: httpx.Response):
        body = response.json()
        self.status = response.status_code
        self.code: str = body["code"]
        self.message: str = body["message"]
        self.errors: dict[str, list[str]] = body.get("errors", {})
        waiting = response.headers.get("retry-after")
        self.retry_after = int(waiting) if waiting else None
        self.request_id = response.headers["x-request-id"]
        super().__init__(f"{self.status} {self.code}: {self.message} {self.errors or ''} ({self.request_id})")

    @property
    def is_worth_repeating(self) -> bool:
        """Whether the same request may succeed later (contract 1: 429, 5xx, and answers that say how long to wait)."""
        return self.retry_after is not None or self.status >= 500


class Application:
    """The service under one key. `wait` lets seconds pass."""

    def __init__(self, url: str, key: str, wait: Callable[[int], object]):
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60)
        self.wait = wait
        self.waits: list[int] = []

    def call(self, method: str, path: str, **options) -> httpx.Response:
        """Sends one request, and repeats it while that is useful."""
        for attempt in range(ATTEMPTS):
            response = self.http.request(method, path, **options)
            if response.is_success:
                return response
            refused = Refused(response)
            if not refused.is_worth_repeating or attempt + 1 == ATTEMPTS:
                raise refused
            self.waits.append(refused.retry_after or 2**attempt)
            self.wait(self.waits[-1])
        raise AssertionError("the last attempt returns or raises")

    def send(self, message: dict, key: str) -> httpx.Response:
        """Sends a message once, however often this is called with its key."""
        return self.call("POST", "/v1/messages", json=message, headers={"Idempotency-Key": key})

    def rows(self, path: str, **query) -> Iterator[dict]:
        """Yields every row of a list, by its cursor."""
        while True:
            page = self.call("GET", path, params=query).json()
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            query = {"limit": query.get("limit", 50), "cursor": page["next_cursor"]}

    def pages(self, path: str) -> Iterator[list[dict]]:
        """Yields every page of a list, by the Link header (RFC 8288)."""
        while path:
            response = self.call("GET", path)
            yield response.json()["data"]
            path = response.links.get("next", {}).get("url")

    def close(self):
        """Ends its connections."""
        self.http.close()
