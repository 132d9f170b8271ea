"""Who was refused what, and when: a line in a file beside the store for every conflict that a caller was told of.

A refused transaction leaves nothing in the log, yet "somebody overwrote nothing twenty times last night" is worth
knowing. The file is for people who look, not for correctness: it is appended to without a sync, kept small, and not
being able to write it changes nothing for the caller.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.errors import Conflict, HoldfastError, NotHolder

FILE: Final = "refusals.jsonl"
OLDER: Final = "refusals.1.jsonl"
_MOST: Final = 1_000_000  # bytes, then a new file is begun


class Line(msgspec.Struct, frozen=True):
    """A refusal: when, in microseconds, of whom, and with which code."""

    time: int
    actor: str
    code: str


class Refusals:
    """The refusals of one store."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE)
        self._older = os.path.join(folder, OLDER)

    def add(self, error: HoldfastError, actor: str, now: int) -> None:
        """Note a conflict; other errors are no refusals."""
        if not isinstance(error, Conflict | NotHolder):
            return
        line = msgspec.json.encode(Line(now, str(actor), error.code)) + b"\n"
        with suppress(OSError):  # a full or read-only disk: the caller's refusal is what counts
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line)  # one write: lines of several processes do not mix
                full = os.fstat(descriptor).st_size > _MOST
            finally:
                os.close(descriptor)
            if full:
                os.replace(self._path, self._older)


def parse(text: str) -> list[Line]:
    """The lines of a file; one that a crash has cut is left out."""
    found = []
    for line in text.splitlines():
        with suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=Line))
    return found
