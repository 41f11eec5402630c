"""The client of the HTTP API."""

import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import Any, Dict, Iterator, List, Mapping, Optional

from ._errors import ApiError

Record = Dict[str, Any]

#: Maximum wait before a retry, in seconds.
_WAIT_MAX = 60.0
#: Wait before the first retry without a Retry-After; it doubles with each retry.
_WAIT_FIRST = 0.5


class Client:
    """Sends messages and reads their status and events.

    ``url`` and ``api_key`` default to the variables ``POSTRIDER_URL`` and ``POSTRIDER_API_KEY``. ``timeout`` is the
    time limit of each attempt in seconds. ``retries`` is the maximum number of retries after a connection error, a 429
    or a 5xx. Threads may share a client.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        api_key: Optional[str] = None,
        timeout: float = 30,
        retries: int = 3,
    ) -> None:
        url = url or os.environ.get("POSTRIDER_URL")
        api_key = api_key or os.environ.get("POSTRIDER_API_KEY")
        if not url:
            raise ValueError("give the service's url, or set POSTRIDER_URL")
        if not api_key:
            raise ValueError("give an api_key, or set POSTRIDER_API_KEY")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.retries = retries
        self._api_key = api_key
        self._opener = urllib.request.build_opener(_NoRedirect())

    def send(
        self,
        *,
        from_: str,
        to: str,
        from_name: Optional[str] = None,
        subject: Optional[str] = None,
        text: Optional[str] = None,
        html: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        unsubscribe_url: Optional[str] = None,
        attachments: Optional[List[Mapping[str, str]]] = None,
        metadata: Optional[Mapping[str, str]] = None,
        expires_at: Optional[str] = None,
        raw: Optional[str] = None,
        idempotency_key: Optional[str] = None,
    ) -> Record:
        """Sends one message to one recipient and returns its ``id``, ``status`` and the rest of the answer.

        Without ``idempotency_key`` one is generated, so that a retry never sends a message twice. Set your own to make
        the whole call repeatable.
        """
        fields: Record = {
            "from": from_,
            "to": to,
            "from_name": from_name,
            "subject": subject,
            "text": text,
            "html": html,
            "headers": headers,
            "unsubscribe_url": unsubscribe_url,
            "attachments": attachments,
            "metadata": metadata,
            "expires_at": expires_at,
            "raw": raw,
        }
        message = {name: value for name, value in fields.items() if value is not None}
        return self._request("POST", "/v1/messages", message, {"Idempotency-Key": idempotency_key or str(uuid.uuid4())})

    def get(self, id: str) -> Record:
        """Returns the message with its events."""
        return self._request("GET", f"/v1/messages/{_segment(id)}")

    def cancel(self, id: str) -> Record:
        """Cancels a waiting message and returns it. If it is too late, raises :class:`ApiError` with status 409."""
        return self._request("POST", f"/v1/messages/{_segment(id)}/cancel")

    def messages(self, **filters: Any) -> Iterator[Record]:
        """Iterates over all matching messages, newest first: ``to``, ``from_``, ``subject``, ``status``, ``stream``,
        ``after``, ``before``, ``message_id_header``, and ``metadata``, a mapping of up to three pairs. ``limit`` is the
        size of a page."""
        return self._pages("/v1/messages", filters)

    def events(self, **filters: Any) -> Iterator[Record]:
        """Iterates over all matching events, newest first: ``message_id``, ``type``, ``after``, ``before``. ``limit``
        is the size of a page."""
        return self._pages("/v1/events", filters)

    def _pages(self, path: str, filters: Mapping[str, Any]) -> Iterator[Record]:
        given: Dict[str, str] = {}
        for name, value in filters.items():
            if isinstance(value, Mapping):
                given.update({f"{name}[{key}]": str(one) for key, one in value.items()})
            elif value is not None:
                given[name.rstrip("_")] = str(value)
        while True:
            page = self._request("GET", path + ("?" + urllib.parse.urlencode(given) if given else ""))
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            # A cursor includes its filters.
            given = {name: value for name, value in given.items() if name == "limit"}
            given["cursor"] = page["next_cursor"]

    def _request(
        self, method: str, path: str, body: Optional[Record] = None, headers: Optional[Mapping[str, str]] = None
    ) -> Record:
        data = None if body is None else json.dumps(body).encode()
        fields = {"Authorization": f"Bearer {self._api_key}", "Accept": "application/json", **(headers or {})}
        fields["User-Agent"] = "postrider-python/0.1.0"
        if data is not None:
            fields["Content-Type"] = "application/json"
        wait = _WAIT_FIRST
        for left in range(self.retries, -1, -1):
            request = urllib.request.Request(self.url + path, data=data, headers=fields, method=method)
            try:
                return self._once(request)
            except ApiError as error:
                if left == 0 or not _is_passing(error):
                    raise
                pause = wait if error.retry_after is None else float(error.retry_after)
            except (OSError, http.client.HTTPException):
                if left == 0:
                    raise
                pause = wait
            time.sleep(min(pause, _WAIT_MAX))
            wait *= 2
        raise AssertionError("the last attempt returns or raises")

    def _once(self, request: urllib.request.Request) -> Record:
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                record: Record = json.loads(answer.read())
                return record
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise _api_error(refusal) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The API has no redirects; following one would send the key to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _segment(id: str) -> str:
    return urllib.parse.quote(id, safe="")


def _is_passing(error: ApiError) -> bool:
    """Whether the same request may succeed later."""
    return error.status == 429 or error.status >= 500 or error.code == "idempotency_in_progress"


def _api_error(refusal: urllib.error.HTTPError) -> ApiError:
    headers = refusal.headers
    try:
        told = json.loads(refusal.read())
    except (ValueError, OSError, http.client.HTTPException):
        told = {}
    if not isinstance(told, dict):
        told = {}
    after = headers.get("Retry-After", "")
    return ApiError(
        status=refusal.code,
        code=told.get("code") or "unknown",
        message=told.get("message") or f"The service answered {refusal.code}.",
        errors=told.get("errors"),
        request_id=headers.get("X-Request-Id"),
        retry_after=int(after) if after.isascii() and after.isdigit() else None,
    )
