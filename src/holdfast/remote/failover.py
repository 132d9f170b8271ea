"""Where the servers of a workspace are: one, or several nodes of one log, of which a client uses one at a time.

A client stays at a node until it loses it, and then goes on at the next. What it has seen it sees again: until the new
node has shown that it has everything that was acknowledged, reads ask for that (`at_least="latest"`). An answer that
comes late from a node that was left makes the next read ask again.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast import errors
from holdfast.kernel.validate import check_ttl
from holdfast.remote.protocol import Send
from holdfast.workspace.context import LATEST

if TYPE_CHECKING:
    import httpx

_UNIX: Final = "unix://"
_LEAST: Final = 0.001  # seconds: none would mean not to wait at all, and raise another error
_CONNECT: Final = 3.0  # most seconds to connect to one of several nodes


class Address:
    """Where a server is, and how to reach it: for clients that block and clients that await."""

    def __init__(self, url: str, token: str | None, timeout: float, verify: str | bool) -> None:
        if not isinstance(url, str) or not re.match(r"https?://[^/]|unix:///", url):
            raise errors.Invalid(
                f"{url!r} is not the address of a server",
                hint="http://host:port, with /NAME for a named workspace, or unix:///path",
            )
        if url.startswith("http:") and not _is_here(url):
            raise errors.Invalid(
                f"{url} would send the token over the network in the clear",
                hint="use https:// (holdfast serve --tls auto), or a tunnel: ssh -L 4653:127.0.0.1:4653 HOST, then"
                " http://127.0.0.1:4653",
            )
        check_ttl(timeout, "timeout")
        self.url = url
        self.timeout = timeout
        self._token = _checked(_token() if token is None else token)
        self._verify = _trust(url, verify)

    def options(self, transport: type[httpx.HTTPTransport] | type[httpx.AsyncHTTPTransport]) -> dict[str, Any]:
        """The arguments of a client of httpx."""
        from httpx import Limits

        path = self.url.removeprefix(_UNIX)
        by_socket = self.url.startswith(_UNIX)
        # Each watch has a connection of its own. A server keeps an idle one for longer than we do.
        limits = Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30)
        return {
            "base_url": "http://localhost" if by_socket else self.url.rstrip("/"),
            "transport": transport(verify=self._verify, limits=limits, uds=path if by_socket else None),
            "timeout": self.timeout,
            "headers": {"authorization": f"Bearer {self._token}"},
        }

    def request(self, step: Send, one_of_many: bool = False) -> dict[str, Any]:
        """The arguments of a request. It waits for a response as long as the call itself may wait, and some more."""
        request, wait = step.request, step.request.wait
        connect = min(self.timeout, _CONNECT) if one_of_many else self.timeout
        most = {"connect": connect, "write": self.timeout, "pool": self.timeout}
        most |= {} if wait is None else {"read": self.timeout + wait}
        return {
            "method": request.method,
            "url": request.path,
            "params": tuple(request.query),
            "content": request.body,
            "headers": step.headers,
            "extensions": {"timeout": most if step.until is None else Phases(most, step.until)},
        }


class Phases(dict[str, float]):
    """The most seconds of each phase of a request, and of all together: httpcore asks when a phase begins."""

    def __init__(self, most: dict[str, float], until: float) -> None:
        super().__init__(most)
        self._until = until

    def get(self, phase: str, default: Any = None) -> Any:
        """The seconds for a phase that begins now."""
        left = max(self._until - monotonic(), _LEAST)
        return min(left, super().get(phase, left))


class Sent(NamedTuple):
    """Which node a request went to, when, and whether its answer proves that the node has all before it."""

    node: int
    age: int
    proves: bool


class Nodes:
    """The servers that a client may use, and which of them it uses now. Safe for use by several threads."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.addresses = tuple(addresses)
        self._lock = threading.Lock()
        self._current = 0
        self._age = 0  # grows whenever this client may have seen more than the current node has
        self._settled = len(addresses) == 1  # the current node has shown since then that it has everything

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def urls(self) -> list[str]:
        """Where they are."""
        return [address.url for address in self.addresses]

    def request(self, step: Send, watch: bool = False) -> tuple[Sent, dict[str, Any]]:
        """The node for a request, and the arguments of the request there."""
        with self._lock:
            sent = Sent(self._current, self._age, not step.request.safe)
            ask = len(self) > 1 and (watch or (step.request.safe and not self._settled))
        if ask:
            sent = sent._replace(proves=True)
            step = Send(step.request, step.headers | {"x-at-least": LATEST})
        return sent, self.addresses[sent.node].request(step, one_of_many=len(self) > 1)

    def answered(self, sent: Sent) -> None:
        """A node has carried out a request: what it showed, the current node has to have too."""
        with self._lock:
            if sent.node != self._current:
                self._unsettle()
            elif sent.age == self._age and sent.proves:
                self._settled = True

    def leave(self, node: int) -> None:
        """Go on at another node, unless that has happened already."""
        with self._lock:
            if node == self._current and len(self) > 1:
                self._current = (node + 1) % len(self)
                self._unsettle()

    def _unsettle(self) -> None:
        self._age += 1
        self._settled = False


def _is_here(url: str) -> bool:
    """Whether an address leads to this machine."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _trust(url: str, verify: str | bool) -> ssl.SSLContext | bool:
    """The certificates that are trusted."""
    if isinstance(verify, str):  # servers that show this certificate, and no others
        try:
            return ssl.create_default_context(cafile=verify)
        except OSError as error:  # of which ssl.SSLError is one
            raise errors.Invalid(
                f"{verify} cannot be used as a certificate: {error}",
                hint="verify= is a PEM file, such as DIR/tls/cert.pem",
            ) from error
    if url.startswith("https:"):
        return verify
    # No certificate is shown: loading the usual ones would take longer than most calls. None is trusted, if one came.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _checked(token: object) -> str:
    """A token without the line end of its file. A message never repeats what is not a token."""
    text = token.strip() if isinstance(token, str) else ""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise errors.Unauthorized("this is not a token", hint="a token is one word, as holdfast token create shows it")
    return text


def _token() -> str:
    """The token from the environment; Unauthorized if there is none."""
    given = os.environ.get("HOLDFAST_TOKEN")
    file = os.environ.get("HOLDFAST_TOKEN_FILE")
    if given:
        return given
    if file:
        try:
            with open(file, encoding="utf-8") as opened:
                return opened.read()
        except (OSError, UnicodeDecodeError) as error:
            raise errors.Unauthorized(f"HOLDFAST_TOKEN_FILE {file} cannot be read: {error}") from error
    raise errors.Unauthorized("no token was given", hint=f"{errors.SEND_TOKEN}, or set HOLDFAST_TOKEN")
