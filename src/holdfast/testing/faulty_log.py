"""Logs for tests, which wrap any `CommitLog`: one that misbehaves on purpose, and one that has a clock of its own.

Before each call `FaultyLog` asks what shall go wrong, as it may with networks and servers, and then does it. Nothing
here but "low" is worse than what a real log, reached over a real network, may do within the promises of `CommitLog`.
Give each node its own, to cut off one and not the others. With `late` the tail shows entries that many seconds after
the log has them, as an engine that pushes them does.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from holdfast import errors
from holdfast.clock import Clock, SystemClock
from holdfast.kernel.journal import LogMoved
from holdfast.replication.log import START, CommitLog, LogWrapper, LostAnswer

Method = Literal["head", "time", "append", "tail", "put", "get", "trim"]
Fault = Literal[
    "unreachable",  # any call: nothing happened, and the caller knows
    "conflict",  # append: refused although nobody was first
    "request lost",  # append: never arrives, no answer
    "answer lost",  # append: arrives, no answer
    "late",  # append: no answer, and it arrives only when `deliver` is called
    "twice",  # append: arrives twice, and the answer is the one to the second
    "lagging",  # tail: shows less than there is
    "repeated",  # tail: shows again what was shown before
    "low",  # head: an end from before the newest entry, against its promise: a log that is not all there yet
]


class _Ear:
    """A waiter that calls a function."""

    def __init__(self, hear: Callable[[], None]) -> None:
        self.set = hear


class FaultyLog(LogWrapper):
    """A log behind a bad line."""

    def __init__(
        self,
        log: CommitLog,
        fault: Callable[[Method], Fault | None] = lambda _: None,
        *,
        late: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(log)
        self._fault = fault
        self._in_flight: list[tuple[bytes, int]] = []
        self._shown: tuple[int, bytes] | None = None
        self._late = round(late * 1e6)
        self._clock = clock or SystemClock()
        self._ends: deque[tuple[int, int]] = deque()  # of the log, and when this line heard of them
        self._heard = self._shows = START
        if late:
            self._ear = _Ear(self._listen)  # kept here: a log may forget a waiter that nobody else holds
            log.enroll(self._ear)

    def deliver(self) -> None:
        """Let the appends that are late arrive; what they expected may be long past."""
        while self._in_flight:
            with contextlib.suppress(LogMoved):
                self._log.append(*self._in_flight.pop(0))

    def _meet(self, method: Method) -> Fault | None:
        fault = self._fault(method)
        if fault is not None and fault not in get_args(Fault):
            raise ValueError(f"{fault!r} is not a fault; there are {', '.join(get_args(Fault))}")
        if fault == "unreachable":
            raise errors.Unreachable("the line to the log is cut")
        return fault

    def _listen(self) -> None:
        end = self._log.head()
        if end > self._heard:
            self._heard = end
            self._ends.append((end, self._clock.monotonic()))

    def _arrived(self) -> int:
        """How far the tail shows entries by now."""
        self._listen()
        while self._ends and self._clock.monotonic() - self._ends[0][1] >= self._late:
            self._shows = self._ends.popleft()[0]
        return self._shows

    def head(self) -> int:
        low = self._meet("head") == "low"
        return max(START, self._log.head() - 1) if low else self._log.head()

    def time(self) -> int:
        self._meet("time")
        return self._log.time()

    def append(self, entry: bytes, expected: int) -> int:
        match self._meet("append"):
            case "conflict":
                raise LogMoved
            case "request lost":
                raise LostAnswer
            case "answer lost":
                with contextlib.suppress(LogMoved):
                    self._log.append(entry, expected)
                raise LostAnswer
            case "late":
                self._in_flight.append((entry, expected))
                raise LostAnswer
            case "twice":
                self._log.append(entry, expected)
        return self._log.append(entry, expected)

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        fault = self._meet("tail")
        page = self._log.tail(after)
        if self._late:
            arrived = self._arrived()
            page = [entry for entry in page if entry[0] <= arrived]
        if fault == "lagging":
            page = page[: len(page) // 2]
        if fault == "repeated" and self._shown is not None and self._shown[0] <= after:
            page = [self._shown, *page]
        if page:
            self._shown = page[-1]
        return page

    def put(self, blob: bytes) -> str:
        self._meet("put")
        return self._log.put(blob)

    def get(self, ref: str) -> bytes:
        self._meet("get")
        return self._log.get(ref)

    def trim(self, before: int) -> None:
        self._meet("trim")
        self._log.trim(before)


class TimedLog(LogWrapper):
    """Any log with a clock of its own, such as a `ManualClock`: its nodes must have the same."""

    def __init__(self, log: CommitLog, clock: Clock) -> None:
        super().__init__(log)
        self._clock = clock

    def time(self) -> int:
        return self._clock.wall()
