"""The access log: a JSON line for every request, with who asked and how it ended.

The query of an address is left out: it may hold a ticket. Lines are gathered and written a few times a second, beside
the loop; what a killed server had not written yet is lost, which is the log's loss alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from holdfast import errors

FLUSH: Final = 0.25  # seconds
_log = logging.getLogger("holdfast.http")


class Entry(msgspec.Struct, frozen=True):
    """One request."""

    time: datetime
    method: str
    path: str
    status: int
    milliseconds: float
    client: str | None
    token: str | None
    actor: str | None


class AccessLog:
    """A file that gets a line for every request; `-` is the standard error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: deque[Entry] = deque()  # one side only adds, the other only takes
        self._file: BinaryIO | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin; refuses a file that cannot be written."""
        target = os.dup(2) if str(self._path) == "-" else self._path
        try:
            self._file = open(target, "ab", buffering=0)  # noqa: SIM115  # `close` closes it
        except OSError as error:
            raise errors.Invalid(f"the access log {self._path} cannot be written: {error.strerror}") from error
        self._task = asyncio.ensure_future(self._write())

    def add(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        """A request has been answered."""
        peer, token, actor = scope.get("client"), scope.get("token"), scope.get("actor")
        self._waiting.append(
            Entry(
                time=datetime.now(UTC),
                method=scope["method"],
                path=scope["path"],
                status=status,
                milliseconds=round(seconds * 1000, 3),
                client=peer[0] if peer else None,
                token=None if token is None else token.id,
                actor=None if actor is None else str(actor),
            )
        )

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(FLUSH)
            if self._waiting:
                try:
                    await asyncio.to_thread(self._flush)
                except OSError as error:  # the disk is full, say: requests go on, and so does the log when it can
                    _log.error("the access log cannot be written: %s", error)

    def _flush(self) -> None:
        assert self._file is not None
        lines = [msgspec.json.encode(self._waiting.popleft()) + b"\n" for _ in range(len(self._waiting))]
        self._file.write(b"".join(lines))

    def close(self) -> None:
        """Write the rest."""
        if self._task is not None and self._file is not None:
            self._task.cancel()
            self._flush()
            self._file.close()
