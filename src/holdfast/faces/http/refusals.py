"""What only HTTP refuses: an address, a method, a host or a form of body that is not served."""

from __future__ import annotations

from holdfast.errors import Forbidden, Invalid, NotFound, Unavailable


class MethodNotAllowed(Invalid):
    """There is something at this address, but not for this method."""

    code = "METHOD_NOT_ALLOWED"
    status = 405


class NotJSON(Invalid):
    """A body is JSON, and says so."""

    code = "NOT_JSON"
    status = 415
    default_hint = "send Content-Type: application/json"


class Misdirected(Forbidden):
    """The request was meant for another host."""

    code = "MISDIRECTED"
    status = 421


class NoRoute(NotFound):
    """There is nothing at this address."""

    code = "NO_ROUTE"
    default_hint = "GET /openapi.json lists every address"


class TooManyWatchers(Unavailable):
    """As many watch under this token as may."""

    code = "TOO_MANY_WATCHERS"
    status = 429
    default_hint = "end a watch, or start the server with a larger --max-watchers"
