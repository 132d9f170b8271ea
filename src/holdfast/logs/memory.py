"""A log inside this process: for tests, for trying replication out, and as the plainest example of an adapter.

It keeps every promise of `CommitLog` except to outlive the process. Share one object between the workspaces of several
nodes. `holdfast.testing.FaultyLog` wraps it, or any other log, to misbehave on purpose.
"""

from __future__ import annotations

import bisect
import threading
import weakref
from collections.abc import Sequence

from holdfast import errors
from holdfast.kernel.clock import Clock, SystemClock, Wakeable
from holdfast.kernel.journal import Moved
from holdfast.logs.base import START, CommitLog, Head, Trimmed

MAX_ENTRY = 64 * 1024
PAGE = 1000


class MemoryLog(CommitLog):
    """Entries in a list, blobs in a dictionary."""

    def __init__(self, *, clock: Clock | None = None, max_entry: int = MAX_ENTRY) -> None:
        if max_entry < 1:
            raise errors.Invalid(f"max_entry is a number of bytes, not {max_entry}", hint="leave it out for 64 KiB")
        self.max_entry = max_entry
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._entries: list[tuple[int, bytes]] = []
        self._end = self._trimmed = START
        self._blobs: dict[str, tuple[int, bytes]] = {}  # with the end of the log when it was put
        self._puts = 0
        self._waiters: weakref.WeakSet[Wakeable] = weakref.WeakSet()

    def head(self) -> Head:
        with self._lock:
            return Head(self._end, self._clock.wall())

    def append(self, entry: bytes, expected: int) -> int:
        if len(entry) > self.max_entry:
            raise ValueError(f"an entry has at most {self.max_entry} bytes, this one {len(entry)}")
        with self._lock:
            if expected != self._end:
                raise Moved
            self._end += 1
            self._entries.append((self._end, entry))
            waiters = list(self._waiters)
            position = self._end
        for waiter in waiters:
            waiter.set()
        return position

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        if after >= self._end:  # by far the most frequent answer, and none is final anyway
            return ()
        with self._lock:
            if after < self._trimmed:
                raise Trimmed(self._trimmed)
            start = bisect.bisect_right(self._entries, after, key=lambda entry: entry[0])
            return self._entries[start : start + PAGE]

    def put(self, blob: bytes) -> str:
        with self._lock:
            self._puts += 1
            ref = str(self._puts)
            self._blobs[ref] = (self._end, blob)
            return ref

    def get(self, ref: str) -> bytes:
        with self._lock:
            return self._blobs[ref][1]

    def trim(self, before: int) -> None:
        with self._lock:
            self._trimmed = max(self._trimmed, min(before, self._end))
            self._entries = [entry for entry in self._entries if entry[0] > self._trimmed]
            self._blobs = {ref: kept for ref, kept in self._blobs.items() if kept[0] >= self._trimmed}

    def enroll(self, waiter: Wakeable) -> None:
        with self._lock:
            self._waiters.add(waiter)

    def dismiss(self, waiter: Wakeable) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def close(self) -> None:
        """Nothing to let go of: the log lives as long as somebody refers to it."""

    def __repr__(self) -> str:
        return f"<MemoryLog {len(self._entries)} entries, end {self._end}>"
