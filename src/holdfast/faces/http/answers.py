"""What goes back: a status, headers and a body; errors as the status of their class and a JSON body."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.faces.http import codec
from holdfast.faces.http.refusals import MethodNotAllowed

Header = tuple[bytes, bytes]
JSON: Final[Header] = (b"content-type", b"application/json")
# An answer belongs to whom it was given, and is data, whatever a browser would make of it.
CAREFUL: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)


class Answer:
    """An answer that is sent whole."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes = b"", headers: tuple[Header, ...] = (JSON,)) -> None:
        self.status = status
        self.body = body
        self.headers = headers


def told(content: Any, status: int = 200) -> Answer:
    """Something as JSON."""
    return Answer(status, msgspec.json.encode(content))


def refused(error: errors.HoldfastError) -> Answer:
    """An error as an answer."""
    headers = [JSON]
    if isinstance(error, errors.Unauthorized):
        headers.append((b"www-authenticate", b'Bearer realm="holdfast"'))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", str(error.details.get("allowed", "")).encode()))
    if error.retryable:
        headers.append((b"retry-after", b"1"))
    return Answer(error.status, codec.failure(error), tuple(headers))
