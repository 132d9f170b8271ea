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
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from holdfast import errors
from holdfast.kernel.validate import check_ttl
from holdfast.remote.http1 import Outgoing, written
from holdfast.remote.pool import Peer
from holdfast.remote.protocol import Send
from holdfast.workspace.context import LATEST

_UNIX: Final = "unix://"
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
        self._headers = {"authorization": f"Bearer {_checked(_token() if token is None else token)}"}
        self.peer, self._prefix = _reached(url, verify)
        self._headers["host"] = _host(url)

    def outgoing(self, step: Send, one_of_many: bool = False) -> Outgoing:
        """A request as bytes. It waits for a response as long as the call itself may wait, and some more."""
        request, wait = step.request, step.request.wait
        target = self._prefix + request.path
        if request.query:
            target += f"?{urlencode(request.query)}"
        return Outgoing(
            written(request.method, target, self._headers | step.headers, request.body),
            min(self.timeout, _CONNECT) if one_of_many else self.timeout,
            None if wait is None else self.timeout + wait,
            step.until,
        )


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

    def request(self, step: Send, watch: bool = False) -> tuple[Sent, Outgoing]:
        """The node for a request, and the request there."""
        with self._lock:
            sent = Sent(self._current, self._age, not step.request.safe)
            ask = len(self) > 1 and (watch or (step.request.safe and not self._settled))
        if ask:
            sent = sent._replace(proves=True)
            step = Send(step.request, step.headers | {"x-at-least": LATEST})
        return sent, self.addresses[sent.node].outgoing(step, one_of_many=len(self) > 1)

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

    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _reached(url: str, verify: str | bool) -> tuple[Peer, str]:
    """Where connections for an address lead, and what the paths of its requests begin with."""
    if url.startswith(_UNIX):
        return Peer("localhost", 0, url.removeprefix(_UNIX), None), ""
    try:
        parts = urlsplit(url)
        safe = parts.scheme == "https"
        host, port = parts.hostname or "", (443 if safe else 80) if parts.port is None else parts.port
        host.encode("idna")
    except ValueError as error:  # of which UnicodeError is one
        raise errors.Invalid(f"{url!r} is not the address of a server: {error}", hint="http://host:port") from error
    prefix = quote(parts.path.rstrip("/"), safe="/%")
    trust = _trust(verify) if safe or isinstance(verify, str) else None
    return Peer(host, port, None, trust if safe else None), prefix


def _host(url: str) -> str:
    """The header that names the server."""
    if url.startswith(_UNIX):
        return "localhost"
    where = urlsplit(url).netloc.rpartition("@")[2]
    return where if where.isascii() else where.encode("idna").decode()


def _trust(verify: str | bool) -> ssl.SSLContext:
    """The certificates that are trusted: those of the system, or one that a server made for itself."""
    try:
        context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    except OSError as error:  # of which ssl.SSLError is one
        raise errors.Invalid(
            f"{verify} cannot be used as a certificate: {error}",
            hint="verify= is a PEM file, such as DIR/tls/cert.pem",
        ) from error
    if verify is False:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


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
