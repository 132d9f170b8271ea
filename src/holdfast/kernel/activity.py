"""What goes on beside the log: who wrote last, who was refused what, and how far long-running work is.

A row is written at most once a second, so that a busy actor costs a look into a dictionary: what is stored lags behind
by less than that.

A refused transaction leaves nothing in the log, yet "somebody overwrote nothing twenty times last night" is worth
knowing. The file is for people who look, not for correctness: it is appended to without a sync, kept small, and not
being able to write it changes nothing for the caller.

It is told while it happens, before anything is committed, and is no part of the log. Nobody has to listen, and what a
listener raises is its own: it is called in the thread that works, so it hands over and returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import Conflict, HoldfastError, NotHolder

if TYPE_CHECKING:
    from holdfast.kernel.tx import Tx

LAG = 1_000_000
_RECORD = "INSERT INTO actors (name, seen) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET seen = excluded.seen"


class Actors:
    """What one process knows to be stored."""

    def __init__(self) -> None:
        self._stored: dict[str, int] = {}

    def record(self, names: Iterable[str], now: int, execute: Callable[..., Any]) -> dict[str, int]:
        """Store who has just written, as far as that is news; answers it, for `remember` once it is committed."""
        news = {name: now for name in names if not 0 <= now - self._stored.get(name, -LAG) < LAG}
        for name in sorted(news):
            execute(_RECORD, (name, now))
        return news

    def remember(self, news: dict[str, int]) -> None:
        """It is committed."""
        self._stored.update(news)


def settle(tx: Tx) -> None:
    """The clock was put right: nobody has written in the future."""
    tx.run("UPDATE actors SET seen = ? WHERE seen > ?", (tx.now, tx.now))


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


EVERY = 100  # steps: often enough to be seen moving


class Progress(msgspec.Struct, frozen=True):
    """So much of some work is done; `total` is not always known beforehand."""

    work: str
    done: int
    total: int | None = None


Listener = Callable[[Progress], None]
_listeners: dict[str, tuple[Listener, ...]] = {}  # by the path of the store


def listen(path: str, listener: Listener) -> Callable[[], None]:
    """Hear of long work on a store of this process; answers what ends it."""
    _listeners[path] = (*_listeners.get(path, ()), listener)

    def stop() -> None:
        left = list(_listeners.get(path, ()))
        if listener in left:
            left.remove(listener)
        if left:
            _listeners[path] = tuple(left)
        else:
            _listeners.pop(path, None)

    return stop


def tell(path: str, work: str, done: int, total: int | None = None) -> None:
    """Say how far it is."""
    for listener in _listeners.get(path, ()):
        listener(Progress(work, done, total))
