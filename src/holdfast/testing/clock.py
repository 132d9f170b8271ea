"""A clock that stands still until a test moves it; optionally shared by several processes through a file.

`advance` wakes whoever waits on this clock in this process; a process that shares the clock through a file notices
within a few real milliseconds.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import weakref
from pathlib import Path

from holdfast.clock import Clock, Wakeable

_TWO_NUMBERS = struct.Struct("<qq")
_START = 1_700_000_000_000_000
_SHARED_SLEEP = 0.002


class ManualClock(Clock):
    """Time that stands still until `advance(seconds)`.

    With `file=` the time lives in that file, and every ManualClock on it shows the same; the file is made if missing.
    """

    def __init__(self, file: str | Path | None = None) -> None:
        self._shared = file is not None
        self._memory: mmap.mmap | bytearray = bytearray(_TWO_NUMBERS.size) if file is None else _map(Path(file))
        self._lock = threading.Lock()
        self._waiters: weakref.WeakSet[Wakeable] = weakref.WeakSet()
        if _TWO_NUMBERS.unpack_from(self._memory) == (0, 0):
            _TWO_NUMBERS.pack_into(self._memory, 0, _START, 1)

    def wall(self) -> int:
        wall, _ = _TWO_NUMBERS.unpack_from(self._memory)
        return int(wall)

    def monotonic(self) -> int:
        _, monotonic = _TWO_NUMBERS.unpack_from(self._memory)
        return int(monotonic)

    def max_sleep(self, deadline: int) -> float | None:
        return _SHARED_SLEEP if self._shared else None

    def enroll(self, waiter: Wakeable) -> None:
        with self._lock:
            self._waiters.add(waiter)

    def dismiss(self, waiter: Wakeable) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, on the wall and on the monotonic clock."""
        if seconds < 0:
            raise ValueError("time does not run backwards; use jump(seconds) to move the wall clock alone")
        self._move(seconds, seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as a wrong clock or its correction would."""
        self._move(seconds, 0)

    def _move(self, wall: float, monotonic: float) -> None:
        with self._lock:
            _TWO_NUMBERS.pack_into(
                self._memory, 0, self.wall() + round(wall * 1e6), self.monotonic() + round(monotonic * 1e6)
            )
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.set()


def _map(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size < _TWO_NUMBERS.size:
            os.ftruncate(descriptor, _TWO_NUMBERS.size)
        return mmap.mmap(descriptor, _TWO_NUMBERS.size)
    finally:
        os.close(descriptor)
