"""Verification of webhooks."""

import hashlib
import hmac
import json
import re
import time
from typing import Any, Dict, Optional, Union

from ._errors import SignatureError

_HEADER = re.compile(r"t=([0-9]{1,15}),v1=([0-9a-f]{64})")


def verify(
    secret: str,
    body: Union[bytes, str],
    signature: Optional[str],
    tolerance: float = 300,
    now: Optional[float] = None,
) -> Dict[str, Any]:
    """Checks the header ``X-Service-Signature`` of a webhook and returns the event in its body.

    ``body`` is the raw body as received. A text is taken as UTF-8. ``tolerance`` is the age in seconds beyond which a
    signature is refused, and ``now`` the time to measure it by, in seconds since the epoch.

    Raises :class:`SignatureError`.
    """
    raw = body.encode() if isinstance(body, str) else bytes(body)
    match = _HEADER.fullmatch(signature or "")
    if match is None:
        raise SignatureError("the signature header is missing or malformed")
    stamp, given = match.groups()
    expected = hmac.new(secret.encode(), stamp.encode() + b"." + raw, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, given):
        raise SignatureError("the signature does not match the body")
    age = (time.time() if now is None else now) - int(stamp)
    if abs(age) > tolerance:
        raise SignatureError("the signature is older than the tolerance, or from the future")
    try:
        event = json.loads(raw)
    except ValueError as error:
        raise SignatureError("the body is not JSON") from error
    if not isinstance(event, dict):
        raise SignatureError("the body is not an event")
    return event
