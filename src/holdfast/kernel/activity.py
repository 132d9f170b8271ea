"""Activity beside the log: who wrote last, whose calls were refused, and the progress of long-running work.

`Actors` records the last write of each actor, at most once a second, so a busy actor costs one look into a dictionary.
The log cannot repeat that, because a heartbeat emits no event. So `meta` keeps a sum over the rows, which lies on
another page and changes with each of them: a row that was lost, or a page that is stale, does not go unnoticed.

`Refusals` keeps refused calls in a file, because a refused transaction leaves nothing in the log. The file is for
people, not for correctness: it is appended without a sync and kept small, and failing to write it changes nothing for
the caller.

Progress is reported before anything is committed. A listener is called in the working thread, so it must return
quickly; its exceptions are not handled here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.clock import RESET
from holdfast.errors import Conflict, Held, HoldfastError, NotHolder
from holdfast.types import Progress

if TYPE_CHECKING:
    import apsw

    from holdfast.kernel.tx import Snapshot, Tx

LAG = 1_000_000
_PRIME: Final = 2**61 - 1  # so that a sum fits into a column
_RECORD = "INSERT INTO actors (name, seen) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET seen = excluded.seen"
_SUM = f"UPDATE meta SET actors = (actors + ?) % {_PRIME} WHERE id = 1"


class Actors:
    """The last writes that this process knows to be stored, as stamps: one from before a reset of the clock is old."""

    def __init__(self) -> None:
        self._stored: dict[str, int] = {}

    def record(self, names: Iterable[str], stamp: int, execute: Callable[..., apsw.Cursor]) -> dict[str, int]:
        """Store the time of actors that have just written, if it is new; returns it for `remember` after the commit."""
        news = {name: stamp for name in names if not 0 <= stamp - self._stored.get(name, -LAG) < LAG}
        if news:
            now, change = stamp % RESET, 0
            for name in sorted(news):
                old = execute("SELECT seen FROM actors WHERE name = ?", (name,)).fetchone()
                execute(_RECORD, (name, now))
                change += _mark(name, now) - (_mark(name, old[0]) if old else 0)
            execute(_SUM, (change % _PRIME,))
        return news

    def remember(self, news: dict[str, int]) -> None:
        """Note that `news` is committed."""
        self._stored.update(news)


def _mark(name: str, seen: int) -> int:
    """A row as a number: two rows that swap their times have another sum."""
    return int.from_bytes(name.encode()) * seen % _PRIME


def settle(tx: Tx) -> None:
    """After a reset of the clock: no actor wrote in the future."""
    rows = tx.all("SELECT name, seen FROM actors WHERE seen > ?", (tx.now,))
    tx.run("UPDATE actors SET seen = ? WHERE seen > ?", (tx.now, tx.now))
    tx.run(_SUM, (sum(_mark(name, tx.now) - _mark(name, seen) for name, seen in rows) % _PRIME,))


def forget(tx: Tx, name: str) -> bool:
    """Forget when an actor wrote last; False if that was not known."""
    row = tx.one("SELECT seen FROM actors WHERE name = ?", (name,))
    if row is not None:
        tx.run("DELETE FROM actors WHERE name = ?", (name,))
        tx.run(_SUM, (-_mark(name, row[0]) % _PRIME,))
    return row is not None


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report rows that are not those that were written."""
    row = snapshot.one("SELECT actors FROM meta")
    if row is None or row[0] != sum(_mark(*each) for each in snapshot.all("SELECT name, seen FROM actors")) % _PRIME:
        yield "agents: when some were seen last is not what was written"


FILE: Final = "refusals.jsonl"
OLDER: Final = "refusals.1.jsonl"
_MOST: Final = 1_000_000  # bytes, then a new file starts


class Line(msgspec.Struct, frozen=True):
    """A refused call: time in microseconds, actor and error code."""

    time: int
    actor: str
    code: str


class Refusals:
    """The refused calls of one store."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE)
        self._older = os.path.join(folder, OLDER)

    def add(self, error: HoldfastError, actor: str, now: int) -> None:
        """Record a conflict; other errors are not refusals, and whoever waits in line is refused once."""
        if not isinstance(error, Conflict | NotHolder) or (isinstance(error, Held) and error.again):
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
    """Parse the lines of a file; skips a line cut by a crash."""
    found = []
    for line in text.splitlines():
        with suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=Line))
    return found


EVERY = 100  # steps: often enough to be seen moving


Listener = Callable[[Progress], None]
_listeners: dict[str, tuple[Listener, ...]] = {}  # by the path of the store


def listen(path: str, listener: Listener) -> Callable[[], None]:
    """Subscribe to the progress of work on a store of this process; returns a function that unsubscribes."""
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


def report(path: str, work: str, done: int, total: int | None = None) -> None:
    """Report progress to the listeners."""
    for listener in _listeners.get(path, ()):
        listener(Progress(work, done, total))
