"""Waking: how watchers receive commits, and how deadlines are met without other traffic.

`Hub` hands new events to the watchers of this process: one read per commit, shared by all of them. A watcher that falls
behind leaves the hub and reads the log at its own pace; no event is ever skipped. `Pulse` is one thread per open
workspace: it notices commits of other processes by SQLite's data_version, follows the log of a replicated workspace,
and starts a sweep at the next deadline.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import apsw

from holdfast import errors
from holdfast.clock import Now, Signal, Wakeable
from holdfast.kernel.events import Filter, locate, marks, read_after, to_event
from holdfast.kernel.journal import Journal
from holdfast.kernel.leases import next_deadline
from holdfast.kernel.store import Store
from holdfast.kernel.translation import translate, translated
from holdfast.kernel.tx import PAGE_BYTES, Row, Snapshot, weight
from holdfast.types import END_OF_REVISION, Event, Position, to_cursor

PAGE = 256
BUFFER = 1024
WATCHED_POLL = 0.005
IDLE_POLL = 0.25
IDLE_SHARE = 0.0025  # seconds for each open workspace: all idle ones of a process together poll 400 times a second
AGE_EVERY = 6 * 3600 * 1_000_000
RETRY_SWEEP = 1_000_000


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
            if self._snapshot is not None:
                self._snapshot.close()
                self._snapshot = None


_pulses: weakref.WeakSet[Pulse] = weakref.WeakSet()  # those of this process that beat


class Pulse:
    """The thread that notices commits of other processes and passing deadlines.

    A workspace that nobody watches here polls every quarter of a second; with more than a hundred open, less often.
    """

    def __init__(
        self,
        store: Store,
        time: Now,
        hub: Hub,
        sweep: Callable[[], None],
        follow: Callable[[], None],
        rescue: Callable[[], None],
        age_out: Callable[[], None],
        journal: Journal | None,
    ) -> None:
        self._store = store
        self._journal = journal
        self._time = time
        self._hub = hub
        self._sweep = sweep
        self._follow = follow
        self._rescue = rescue
        self._age_out = age_out
        self._aged: int | None = None  # when it was called last
        self._signal = Signal()
        self._stopped = False
        self._beating = threading.Lock()
        self._paused: list[threading.Lock] = []
        self._deadline: int | None = None
        self._stamp = 0
        self._seen = -1
        self._upkeep: threading.Thread | None = None
        self._maintaining = threading.Lock()
        self._reported = ""  # the problem reported last, until it is over
        self._thread = threading.Thread(target=self._run, name="holdfast-pulse", daemon=True)

    def start(self) -> None:
        """Start the thread. Its connection opens when needed, or after a quarter of a second."""
        self._time.clock.enroll(self._signal)
        if self._journal is not None:
            self._journal.enroll(self._signal)
        self._hub.on_first = self._signal.set
        _pulses.add(self)
        self._thread.start()

    def expect(self, deadline: int) -> None:
        """Take note of a deadline set by a commit of this process."""
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self._signal.set()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopped = True
        _pulses.discard(self)
        self._time.clock.dismiss(self._signal)
        if self._journal is not None:
            self._journal.dismiss(self._signal)
        self._signal.set()
        for thread in (self._thread, self._upkeep):
            if thread is not None and thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def pause(self) -> None:
        """Before a fork: wait until the threads are outside SQLite, at most a second, for the forker may block them."""
        self._paused = [lock for lock in (self._beating, self._maintaining) if lock.acquire(timeout=1.0)]

    def resume(self) -> None:
        """After a fork, in the parent: continue."""
        while self._paused:
            self._paused.pop().release()

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        try:
            while not self._stopped:
                self._signal.wait(self._patience())
                if self._store.lost:
                    self._rescue()
                if self._stopped or self._store.closed:
                    return
                with self._beating:
                    try:
                        self._store.check_kept()
                        connection = connection or self._store.connect_reader()
                        self._beat(Snapshot(connection, self._time))
                        self._start_upkeep()
                        self._reported = ""
                    except Exception as error:  # any: without this thread nothing expires and no watcher wakes
                        self._report(error)
        finally:
            if connection is not None:
                connection.close()

    def _patience(self) -> float:
        poll = WATCHED_POLL if len(self._hub) else max(IDLE_POLL, IDLE_SHARE * len(_pulses))
        if self._deadline is None:
            return poll
        return min(poll, max(0.0, (self._deadline - self._time.read(self._stamp)) / 1e6))

    def _beat(self, snapshot: Snapshot) -> None:
        version = snapshot.one("PRAGMA data_version")
        if version is not None and version[0] != self._seen:
            self._deadline, self._stamp = next_deadline(snapshot)
            self._hub.advance()
            self._seen = version[0]
        if self._deadline is not None and self._deadline <= self._time.read(self._stamp):
            self._sweep()
            self._deadline, self._stamp = next_deadline(snapshot)
        if self._journal is not None and self._journal.has_news():
            self._follow()
        now = self._time.read(self._stamp)
        if self._aged is None or now - self._aged >= AGE_EVERY:
            self._aged = now
            self._age_out()

    def _start_upkeep(self) -> None:
        if self._journal is not None and self._upkeep is None and self._journal.needs_upkeep():
            self._upkeep = threading.Thread(target=self._maintain, name="holdfast-upkeep", daemon=True)
            self._upkeep.start()

    def _maintain(self) -> None:
        """Run upkeep in its own thread, so that nobody waits for a snapshot."""
        assert self._journal is not None
        try:
            with self._maintaining:
                self._journal.maintain()
        except Exception as error:
            self._report(error)
        finally:
            self._upkeep = None

    def _report(self, error: Exception) -> None:
        if self._stopped:
            return
        if self._store.closed:  # its file is gone: waiters would wait for ever
            self._store.on_stop()
            return
        reason = str(translate(error) if isinstance(error, apsw.Error) else error)
        if reason != self._reported:
            import logging

            logging.getLogger("holdfast").warning("cannot sweep or watch, retrying: %s", reason)
            self._reported = reason
        self._deadline = self._time.read(self._stamp) + RETRY_SWEEP
