"""What is refused before anything is read: foreign hosts and origins, no token, bodies that are too large or no JSON.

A page in somebody's browser can send requests to any address of this machine; it cannot choose their Host, nor hide its
Origin. So both must be on the list, exactly, whatever the socket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast import errors
from holdfast.faces.http.refusals import Misdirected, NotJSON

MAX_BODY: Final = 4 * 1024 * 1024
TWICE: Final = b"\0"  # between the values of a header that was given twice: in none of them
_JSON: Final = b"application/json"
_BEARER: Final = b"bearer "

Headers = Mapping[bytes, bytes]


class Gate:
    """The hosts under which a server is meant."""

    def __init__(self, hosts: Iterable[str], tls: bool = False) -> None:
        scheme = "https" if tls else "http"
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._origins = frozenset(f"{scheme}://".encode() + host for host in self._hosts)

    def check_host(self, headers: Headers) -> None:
        """Misdirected unless the Host is ours."""
        host = headers.get(b"host", b"").lower()
        if host not in self._hosts:
            raise Misdirected(
                f"the Host {host.decode('latin-1')[:100]!r} is not one of this server's",
                hint="call it by the address it printed, or start it with --allow-host",
            )

    def check_origin(self, headers: Headers) -> None:
        """Forbidden if a page of another site asks."""
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in self._origins:
            raise errors.Forbidden(f"the Origin {origin.decode('latin-1')[:100]!r} may not call this server")


def headers_of(pairs: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers by name; one that is given twice has a value that is good for nothing."""
    found: dict[bytes, bytes] = {}
    for name, value in pairs:
        found[name] = value if name not in found else found[name] + TWICE + value
    return found


def bearer(headers: Headers) -> str:
    """The secret that a request carries; Unauthorized if it carries none."""
    given = headers.get(b"authorization", b"")
    if given[:7].lower() != _BEARER or not given[7:].strip():
        raise errors.Unauthorized(
            "a token is needed", hint="send Authorization: Bearer TOKEN; the first one is in the file DIR/token"
        )
    return given[7:].strip().decode("latin-1")


def accepts_events(headers: Headers) -> bool:
    """Whether a request asks for events as they come."""
    return b"text/event-stream" in headers.get(b"accept", b"").lower()


def check_length(headers: Headers) -> None:
    """TooLarge if a body announces that it is."""
    length = headers.get(b"content-length")
    if length is not None and (not length.isdigit() or int(length) > MAX_BODY):
        raise too_large()


def too_large() -> errors.TooLarge:
    """The error of a body that is."""
    return errors.TooLarge(f"a body has at most {MAX_BODY} bytes", limit=MAX_BODY)


def check_json(headers: Headers) -> None:
    """NotJSON unless a body says that it is JSON."""
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if kind != _JSON:
        raise NotJSON(f"the Content-Type is {kind.decode('latin-1')[:100]!r}")
