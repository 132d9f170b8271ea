"""HTTP/1.1 as a client speaks it, without a socket: a request as bytes, and a response read from bytes as they come.

Responses that no server of ours sends, such as a page of a proxy, are read just as well. What is not HTTP at all, or
ends before it is whole, is Broken: nothing is ever taken for an answer that is not one.
"""

from __future__ import annotations

from string import hexdigits
from typing import Final, NamedTuple

from holdfast import errors

_LONGEST_HEAD: Final = 64 * 1024  # bytes of a status line and headers
_LONGEST_BODY: Final = 1024**3  # bytes that are held: no server of ours sends as much
_INTERIM: Final = 100  # responses before the one that counts
_LENGTH_DIGITS: Final = 15  # of a number of bytes: beyond any body, below what makes int() slow
_NO_BODY: Final = (204, 304)


class Broken(Exception):
    """The connection gave no answer. `sent`: the request may have reached the server."""

    def __init__(self, reason: str, *, sent: bool, late: bool = False, distrusted: bool = False) -> None:
        super().__init__(reason)
        self.sent = sent
        self.late = late  # time was up
        self.distrusted = distrusted  # the server has shown a certificate that is not trusted


class Outgoing(NamedTuple):
    """A request as bytes, and the time it may take."""

    content: bytes
    connect: float  # most seconds to connect
    answer: float | None  # most seconds between two pieces of the answer
    until: float | None  # the monotonic time at which to give up


class Response:
    """A response: whole, or its head while the body is still coming."""

    __slots__ = ("content", "headers", "node", "status")

    def __init__(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.status = status
        self.headers = headers  # by names in small letters
        self.content = content
        self.node = 0  # which of several nodes sent it

    @property
    def is_success(self) -> bool:
        """Whether it is the answer that was asked for."""
        return 200 <= self.status < 300


def written(method: str, target: str, headers: dict[str, str], body: bytes | None) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None or method not in ("GET", "HEAD", "DELETE"):
        lines.append(f"content-length: {len(body or b'')}")
    head = "\r\n".join(lines)
    ends = len(lines) - 1
    if not head.isascii() or head.count("\n") != ends or head.count("\r") != ends or "\0" in head:
        raise errors.Invalid("a line end, or a letter beyond ASCII, cannot travel in the headers of a request")
    return head.encode("ascii") + b"\r\n\r\n" + (body or b"")


class Incoming:
    """One response as its bytes come. `take` gives what there is of the body, and forgets it."""

    def __init__(self) -> None:
        self.head: Response | None = None
        self.done = False
        self._lasts = False  # the server keeps the connection
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._held = 0  # bytes of those parts
        self._interim = 0  # responses before this one
        self._left: int | None = None  # bytes of the body, or of the chunk, that have not come; None: until it ends
        self._chunked = False
        self._behind = False  # the line end behind a chunk comes next
        self._trailing = False  # the last chunk has come

    @property
    def waiting(self) -> int:
        """How many pieces of the body nobody has taken yet."""
        return len(self._parts)

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry another request: not if more came than was asked for."""
        return self.done and self._lasts and not self._buffer

    def take(self) -> bytes:
        """The part of the body that came since the last time."""
        content = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._held = 0
        return content

    def feed(self, data: bytes) -> None:
        """Take in what has come; Broken if it is not HTTP."""
        self._buffer += data
        if self.done or (self.head is None and not self._read_head()):
            return
        if self._chunked:
            self._read_chunks()
        else:
            self._read_plain()

    def ended(self) -> None:
        """The server has closed the connection; Broken unless that is how the response ends."""
        self._lasts = False
        if self.done:
            return
        if self.head is None or self._chunked or self._left is not None:
            where = "before" if self.head is None and not self._buffer else "in the middle of"
            raise Broken(f"the server closed the connection {where} its answer", sent=True)
        self.done = True

    def _read_head(self) -> bool:
        """Read status and headers if they are whole; those of interim responses are skipped."""
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end > _LONGEST_HEAD or (end < 0 and len(self._buffer) > _LONGEST_HEAD):
                raise _not_http("its headers do not end")
            if end < 0:
                if not b"HTTP/1.".startswith(self._buffer[:7]):
                    raise _not_http(f"it begins with {bytes(self._buffer[:20])!r}")
                return False
            lines = self._buffer[:end].decode("latin-1").split("\r\n")
            del self._buffer[: end + 4]
            version, status = _status(lines[0])
            if status >= 200:
                break
            if status == 101:
                raise _not_http("it changes to another protocol")
            self._interim += 1
            if self._interim > _INTERIM:
                raise _not_http("it sends interim responses without end")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise _not_http("a header has no colon")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.head = Response(status, headers)
        self._expect_body(version, status, headers)
        return True

    def _expect_body(self, version: str, status: int, headers: dict[str, str]) -> None:
        connection = headers.get("connection", "").lower()
        self._lasts = "close" not in connection if version == "HTTP/1.1" else "keep-alive" in connection
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if status in _NO_BODY:
            self._left = 0
        elif coding is not None:
            if coding.lower() != "chunked":
                raise _not_http(f"its transfer-encoding is {coding[:40]!r}")
            self._chunked, self._left = True, 0
            self._lasts = self._lasts and length is None  # where one with both ends, two readers may not agree
        elif length is not None:
            if not (length.isascii() and length.isdigit()) or len(length) > _LENGTH_DIGITS:
                raise _not_http(f"its content-length is {length[:40]!r}")
            self._left = _held(int(length))
        else:
            self._lasts = False

    def _read_plain(self) -> None:
        size = len(self._buffer) if self._left is None else min(self._left, len(self._buffer))
        self._keep(size)
        if self._left is not None:
            self._left -= size
            self.done = not self._left

    def _read_chunks(self) -> None:
        while not self.done:
            if self._left:
                size = min(self._left, len(self._buffer))
                self._keep(size)
                self._left -= size
                if self._left:
                    return
                self._behind = True
            line = self._line()
            if line is None:
                return
            if self._behind and line:
                raise _not_http("a chunk is longer than it says")
            if self._trailing:
                self.done = not line
            elif not self._behind:
                self._begin_chunk(line)
            self._behind = False

    def _begin_chunk(self, line: bytes) -> None:
        digits = line.partition(b";")[0].strip()
        if not digits or len(digits) > _LENGTH_DIGITS or digits.strip(hexdigits.encode()):
            raise _not_http(f"a chunk begins with {bytes(line[:20])!r}")
        self._left = _held(int(digits, 16))
        self._trailing = not self._left

    def _line(self) -> bytes | None:
        """The next line, if it has come."""
        end = self._buffer.find(b"\r\n")
        if end > _LONGEST_HEAD or (end < 0 and len(self._buffer) > _LONGEST_HEAD):
            raise _not_http("a line between its chunks does not end")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _keep(self, size: int) -> None:
        """Move bytes of the body from the buffer to the parts."""
        if size:
            self._held = _held(self._held + size)
            self._parts.append(bytes(memoryview(self._buffer)[:size]))
            del self._buffer[:size]


def _held(size: int) -> int:
    """So many bytes of a body, if they can be held; Broken otherwise."""
    if size > _LONGEST_BODY:
        raise Broken(f"the answer is longer than {_LONGEST_BODY:,} bytes", sent=True)
    return size


def _status(line: str) -> tuple[str, int]:
    """The version and the status of a status line."""
    version, _, rest = line.partition(" ")
    if not version.startswith("HTTP/1.") or not (rest[:3].isascii() and rest[:3].isdigit() and not rest[3:4].strip()):
        raise _not_http(f"it begins with {line[:40]!r}")
    return version, int(rest[:3])


def _not_http(reason: str) -> Broken:
    return Broken(f"what answers there does not speak HTTP/1.1: {reason}", sent=True)
