"""Planted bugs: the server, and the form in which calls travel."""

from __future__ import annotations

from tests.teeth.bug import Bug

RAW = ("tests/http/test_raw_bytes.py",)
CONNECTIONS = ("tests/http/test_connections.py",)
STREAMS = ("tests/http/test_streams.py",)

HARDLY = ("tests/http/test_hardly_http.py",)
LOST = ("tests/http/test_careful.py", "-k", "gone")

BUGS: list[Bug] = [
    Bug(
        "a percent sign that encodes nothing stays as it is",
        "wire.py",
        '    if b"%" in given and re.search(_BAD_ESCAPE, given):\n',
        '    if b"%%%" in given and re.search(_BAD_ESCAPE, given):\n',
        RAW,
    ),
    Bug(
        "a body in another transfer coding is taken for plain chunks",
        "faces/http/connection.py",
        "            self._fail(_OTHER_CODING if ends else _NOT_HTTP)\n",
        "            if not ends:\n                self._fail(_NOT_HTTP)\n",
        HARDLY,
    ),
    Bug(
        "a target may name another host than Host",
        "faces/http/request.py",
        "                if host.lower() != named.lower():\n",
        "                if not host and named:\n",
        HARDLY,
    ),
    Bug(
        "of a server whose folder was moved every token is unknown",
        "faces/http/auth.py",
        "        if seen is None and self._serves and not",
        "        if seen is None and not self._serves and not",
        LOST,
    ),
    Bug(
        "keys that are not UTF-8 become one key",
        "faces/http/calls.py",
        '(unquote_to_bytes(given) if b"%" in given else given).decode()',
        '(unquote_to_bytes(given) if b"%" in given else given).decode(errors="replace")',
        RAW,
    ),
    Bug(
        "of a key that stands twice in a body the last value counts",
        "wire.py",
        "    if len(found) != len(pairs):\n",
        "    if len(found) > len(pairs):\n",
        RAW,
    ),
    Bug(
        "a body that is not UTF-8 is a failure of the server",
        "wire.py",
        "suppress(msgspec.DecodeError, UnicodeDecodeError):",
        "suppress(msgspec.DecodeError):",
        RAW,
    ),
    Bug(
        "a connection that sends nothing stays",
        "faces/http/connection.py",
        "        self.until = self._all.now + HEADER_TIMEOUT\n        self._all.enter",
        "        self._all.enter",
        CONNECTIONS,
    ),
    Bug(
        "each byte of a body extends its deadline",
        "faces/http/connection.py",
        "        elif not request.add(part):\n",
        "        self.until = self._all.now + 9\n        if not request.answered and not request.add(part):\n",
        CONNECTIONS,
    ),
    Bug(
        "silent connections keep others out",
        "faces/http/server.py",
        "        if len(self._open) > self._most:\n",
        "        if len(self._open) < 0:\n",
        CONNECTIONS,
    ),
    Bug(
        "all events that a watcher missed are sent at once",
        "faces/http/sse.py",
        "    while len(found) < BATCH and size < CHUNK:\n",
        "    while len(found) < BATCH:\n",
        STREAMS,
    ),
    Bug(
        "requests that come at once overtake each other",
        "faces/http/connection.py",
        "        self._waiting.append(request)\n        if len(self._waiting) == 1:",
        "        self._waiting.appendleft(request)\n        if len(self._waiting) == 1:",
        CONNECTIONS,
    ),
]
