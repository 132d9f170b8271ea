"""A server in a thread of the test, whose limits a test may lower, and a client that watches with bare hands."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.faces.http.listener import Settings
from holdfast.faces.http.server import Server
from tests.http.running import PATIENCE


@contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[Server]:
    """A server that runs until the block ends."""
    server = Server(Settings(folder=folder, port=0, **settings))
    thread = threading.Thread(target=server.run, name="holdfast-server")
    thread.start()
    try:
        assert server.ready.wait(PATIENCE)
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server does not stop"


def token_of(server: Server) -> str:
    """Its first token."""
    return (server.settings.folder / "token").read_text().strip()


class Watching:
    """A watch over a bare socket: it reads when it is told to."""

    def __init__(self, server: Server, query: str = "", token: str | None = "", room: int | None = None) -> None:
        self.socket = socket.socket()
        if room is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", server.port))
        bearer = "" if token is None else f"authorization: Bearer {token or token_of(server)}\r\n"
        self.socket.sendall(
            f"GET /api/events{query} HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n{bearer}"
            "accept: text/event-stream\r\n\r\n".encode()
        )
        self._file = self.socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self._length = 0
        self.largest = 0  # bytes of a chunk
        while line := self._file.readline().strip():
            name, _, value = line.lower().partition(b":")
            if name == b"content-length":
                self._length = int(value)

    def frames(self) -> Iterator[dict[str, str]]:
        """Events as they come, until the server ends it."""
        frame: dict[str, str] = {}
        for line in self._lines():
            if not line:
                yield frame
                frame = {}
                continue
            field, _, value = line.partition(":")
            frame[field] = value.removeprefix(" ")

    def _lines(self) -> Iterator[str]:
        rest = b""
        while size := int(self._file.readline() or b"0", 16):
            self.largest = max(self.largest, size)
            rest += self._file.read(size)
            self._file.readline()
            *lines, rest = rest.split(b"\n")
            yield from (line.decode() for line in lines)

    def events(self, count: int) -> list[Any]:
        """The next events, without bookmarks."""
        found: list[Any] = []
        for frame in self.frames():
            if "event" not in frame:
                found.append(json.loads(frame["data"]))
                if len(found) == count:
                    return found
        raise AssertionError(f"the stream ended after {len(found)} of {count} events")

    def body(self) -> Any:
        """What was answered instead of a stream."""
        return json.loads(self._file.read(self._length))

    def close(self) -> None:
        """Go away."""
        self._file.close()
        self.socket.close()
