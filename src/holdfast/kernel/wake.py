"""Waking: how watchers receive commits.

`Hub` hands new events to the watchers of this process: one read per commit, shared by all of them. A watcher that falls
behind leaves the hub and reads the log at its own pace; no event is ever skipped. `kernel.pulse` notices the commits of
other processes.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import apsw

from holdfast import errors
from holdfast.clock import Now, Wakeable
from holdfast.kernel.events import Filter, locate, marks, read_after, to_event
from holdfast.kernel.store import Store
from holdfast.kernel.translation import translated
from holdfast.kernel.tx import PAGE_BYTES, Row, Snapshot, weight
from holdfast.types import END_OF_REVISION, Event, Position, to_cursor

PAGE = 256
BUFFER = 1024


class Watcher:
    """One cursor on the log. `take` never blocks; `signal` is set when it may be worth calling again."""

    def __init__(self, hub: Hub, wanted: Filter, cursor: Position, signal: Wakeable) -> None:
        self.wanted = wanted
        self.cursor = cursor
        self.signal = signal
        self.live = False  # the hub hands events over; otherwise it reads the log itself
        self.buffer: deque[Row] = deque()
        self.room = PAGE_BYTES  # that its buffer may still take
        self.seen = cursor  # the hub has read up to here for this watcher
        self.finalizer: Any = None  # for a watcher that is dropped without close()
        self._hub = hub

    def take(self) -> Event | None:
        """Return the next event, None if there is none yet. Raises Compacted if unread events were compacted."""
        if not self.buffer and not self.live:
            self._hub.refill(self)
        elif not self.buffer:
            self._hub.check_open()
        try:
            row = self.buffer.popleft()
        except IndexError:
            return None
        self.cursor = row[0], row[1]
        return to_event(row)

    @property
    def bookmark(self) -> str:
        """A cursor up to which nothing was missed; beyond the last event if no wanted one came since."""
        return self._hub.bookmark(self)

    def close(self) -> None:
        """Stop. Calling it again has no effect."""
        self._hub.remove(self)


class Hub:
    """The watchers of this process."""

    def __init__(self, store: Store, time: Now) -> None:
        self._store = store
        self._time = time
        self._lock = threading.RLock()
        self._snapshot: Snapshot | None = None
        self._version: Row | None = None  # SQLite's count of the commits by other connections
        self._head: Position = (0, END_OF_REVISION)
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()
        self._by_record: dict[tuple[str, str, str], weakref.WeakSet[Watcher]] = {}
        self._others: weakref.WeakSet[Watcher] = weakref.WeakSet()
        self.on_first: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._watchers)

    def watch(self, wanted: Filter, after: int | str | None, signal: Wakeable) -> Watcher:
        """Return a new watcher that starts now, or after a cursor."""
        self.check_open()
        with self._lock, translated():
            snapshot = self._reader()
            cursor = locate(snapshot, after)
            if not self._watchers:
                self._head = (marks(snapshot)[0], END_OF_REVISION)
            watcher = Watcher(self, wanted, cursor, signal)
            record = wanted.record
            # Before the sets: the youngest weak reference is called first, and must find the sets without this watcher.
            watcher.finalizer = weakref.finalize(watcher, self._prune, record)
            watcher.finalizer.atexit = False
            self._watchers.add(watcher)
            (self._others if record is None else self._by_record.setdefault(record, weakref.WeakSet())).add(watcher)
        self.on_first()
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """Forget a watcher. Leaves nothing to its finalizer, where an exception raised by a signal would be lost."""
        with self._lock:
            watcher.finalizer.detach()
            self._watchers.discard(watcher)
            self._others.discard(watcher)
            record = watcher.wanted.record
            if record in self._by_record:
                self._by_record[record].discard(watcher)
            self._prune(record)

    def _prune(self, record: tuple[str, str, str] | None) -> None:
        with self._lock:
            if record in self._by_record and not self._by_record[record]:
                del self._by_record[record]

    def refill(self, watcher: Watcher) -> None:
        """Read the log for a watcher that is behind; when nothing is left to read it goes live."""
        self.check_open()
        with self._lock, translated():
            start = max(watcher.cursor, watcher.seen)
            rows, _ = read_after(self._reader(), start, watcher.wanted, PAGE)
            watcher.buffer.extend(rows)
            watcher.room = PAGE_BYTES
            if not rows and watcher in self._watchers:
                watcher.live = True
                watcher.cursor = max(start, self._head)

    def advance(self) -> None:
        """Hand over the events committed since the last call.

        Never raises, because the commit has happened. If the log cannot be read, each watcher gets the error itself.
        """
        with self._lock:
            try:
                while self._watchers and not self._store.closed:
                    rows, more = read_after(self._reader(), self._head, Filter(), PAGE)
                    for row in rows:
                        self._hand_over(row)
                    if not more:  # all of the newest commit has been handed over
                        self._head = (self._head[0], END_OF_REVISION)
                        break
            except errors.Compacted as error:
                self._send_off()
                self._head = (error.compacted, END_OF_REVISION)  # no watcher is live: the hub continues above the mark
            except (errors.HoldfastError, apsw.Error):
                self._send_off()

    def has_changed(self) -> bool:
        """Whether anybody has committed since the last call."""
        with self._lock:
            before, self._version = self._version, self._reader().one("PRAGMA data_version")
            return self._version != before

    def rest(self) -> None:
        """Close the connection if nobody watches."""
        if self._snapshot is not None:
            with self._lock:
                if not self._watchers:
                    self._close_reader()

    def bookmark(self, watcher: Watcher) -> str:
        """Return a watcher's position as a cursor."""
        with self._lock:
            caught_up = watcher.live and not watcher.buffer
            return to_cursor(max(watcher.cursor, self._head) if caught_up else watcher.cursor)

    def _send_off(self) -> None:
        """Make every watcher read the log itself, from the hub's position."""
        for watcher in self._watchers:
            if watcher.live:
                watcher.live = False
                watcher.seen = self._head
            watcher.signal.set()

    def _hand_over(self, row: Row) -> None:
        self._head = position = (row[0], row[1])
        for watcher in (*self._by_record.get(row[4:7], ()), *self._others):
            if watcher.live and position > watcher.cursor and watcher.wanted.matches(row):
                watcher.room = (watcher.room if watcher.buffer else PAGE_BYTES) - weight(row)
                if len(watcher.buffer) == BUFFER or (watcher.buffer and watcher.room < 0):
                    watcher.buffer.clear()
                    watcher.live = False
                else:
                    watcher.buffer.append(row)
                watcher.signal.set()

    def check_open(self) -> None:
        """Raise Closed if the workspace is closed, or the error that stopped its store."""
        if self._store.closed:
            raise self._store.refusal()
        self._store.check_sound()

    def _reader(self) -> Snapshot:
        if self._snapshot is None:
            self._snapshot = Snapshot(self._store.connect_reader(), self._time)
        return self._snapshot

    def wake(self) -> None:
        """Wake every watcher: the workspace is closed or has stopped."""
        with self._lock:
            for watcher in list(self._watchers):
                watcher.signal.set()

    def close(self) -> None:
        """Wake every watcher to find the workspace closed."""
        with self._lock:
            self.wake()
            self._close_reader()

    def _close_reader(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = self._version = None
