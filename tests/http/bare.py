"""A client that says exactly what it is told, on a bare socket: also what no library would send."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.client import HTTPResponse
from select import select
from typing import NamedTuple

import msgspec

from tests.http.running import PATIENCE


class Request(NamedTuple):
    """A request, word by word; the length of a body is told unless a header tells it."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""

    def having(self, name: str, *values: str) -> Request:
        """With these values for a header and no others: none, one, or several."""
        kept = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return self._replace(headers=kept + tuple((name, value) for value in values))

    def bearing(self, secret: str) -> Request:
        """With another token."""
        return self.having("Authorization", f"Bearer {secret}")

    def asking(self, query: str) -> Request:
        """With more in its query."""
        return self._replace(target=f"{self.target}{'&' if '?' in self.target else '?'}{query}")

    @property
    def path(self) -> str:
        """Its target without the query."""
        return self.target.partition("?")[0]

    def encoded(self, version: str = "1.1") -> bytes:
        """The bytes that are sent."""
        headers = list(self.headers)
        if self.body and not {"content-length", "transfer-encoding"} & {name.lower() for name, _ in headers}:
            headers.append(("Content-Length", str(len(self.body))))
        lines = [f"{self.method} {self.target} HTTP/{version}", *(f"{name}: {value}" for name, value in headers)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str | None:
        """The code of a refusal; None if it tells none."""
        try:
            told = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None
        return told.get("code") if isinstance(told, dict) else None

    def flaws(self, secrets: Iterable[str]) -> Iterator[str]:
        """What no answer may have, whatever it answers."""
        head = "\n".join(f"{name}: {value}" for name, value in self.headers.items()).encode()
        if any(secret.encode() in head + self.body for secret in secrets):
            yield "it shows a token"
        if any(name.startswith("access-control-") for name in self.headers):
            yield "it lets other origins in"
        if self.status == 401 and not self.headers.get("www-authenticate", "").startswith("Bearer"):
            yield "it does not say how to come in"
        if self.status >= 500:
            yield "the server failed"


class Client:
    """One connection that is kept as long as the server keeps it, and others for single questions."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._address = host, int(port)
        self._socket: socket.socket | None = None

    def send(self, request: Request) -> Answer:
        """Send a request and read its answer."""
        if self._socket is not None and select([self._socket], [], [], 0)[0]:
            self.close()  # the server has closed it meanwhile
        if self._socket is None:
            self._socket = self._connect()
        try:
            self._socket.sendall(request.encoded())
            answer = _parsed(self._socket, request.method)
        except BaseException:
            self.close()  # what is left on it belongs to no other request
            raise
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    def send_once(self, request: Request, *rest: bytes) -> Answer:
        """The same on a connection of its own, with more behind it; the server need not have read all of it."""
        with self._connect() as own:
            with suppress(BrokenPipeError, ConnectionResetError):  # it has heard enough; what it said is still there
                for part in (request.encoded(), *rest):
                    own.sendall(part)
            return _parsed(own, request.method)

    def exchange(self, content: bytes) -> bytes:
        """Send any bytes; answers all that comes until the server closes the connection."""
        with self._connect() as own:
            parts = []
            with suppress(BrokenPipeError, ConnectionResetError):
                own.sendall(content)
            with suppress(ConnectionResetError):
                while part := own.recv(65536):
                    parts.append(part)
            return b"".join(parts)

    def statuses(self, content: bytes) -> list[int]:
        """The same; only the statuses of the answers."""
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", self.exchange(content))]

    def _connect(self) -> socket.socket:
        return socket.create_connection(self._address, PATIENCE)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _parsed(connection: socket.socket, method: str) -> Answer:
    with HTTPResponse(connection, method=method) as response:
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())
