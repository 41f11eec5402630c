"""The exceptions of this package."""

from typing import Dict, List, Optional


class ApiError(Exception):
    """The service refused a request, or failed."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        errors: Optional[Dict[str, List[str]]] = None,
        request_id: Optional[str] = None,
        retry_after: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        #: The HTTP status.
        self.status = status
        #: The error code, such as ``validation_failed``.
        self.code = code
        #: The error message for people.
        self.message = message
        #: The errors by field; empty if the error is not about fields.
        self.errors: Dict[str, List[str]] = errors or {}
        #: The request ID, for support.
        self.request_id = request_id
        #: Seconds to wait before a retry, if the service returned them.
        self.retry_after = retry_after

    def __str__(self) -> str:
        faults = "; ".join(f"{field}: {', '.join(said)}" for field, said in self.errors.items())
        return f"{self.status} {self.code}: {self.message}" + (f" ({faults})" if faults else "")


class SignatureError(Exception):
    """A webhook's signature is missing, malformed, wrong or too old."""
