"""A log that misbehaves on purpose, as networks and servers do: wraps any `CommitLog`.

Before each call it asks what shall go wrong, and then does it: nothing here is worse than what a real log, reached over
a real network, may do within the promises of `CommitLog`. Give each node its own, to cut off one and not the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from holdfast import errors
from holdfast.clock import Wakeable
from holdfast.kernel.journal import LogMoved
from holdfast.replication.log import CommitLog, Head, LostAnswer

Method = Literal["head", "append", "tail", "put", "get", "trim"]
Fault = Literal[
    "unreachable",  # any call: nothing happened, and the caller knows
    "conflict",  # append: refused although nobody was first
    "request lost",  # append: never arrives, no answer
    "answer lost",  # append: arrives, no answer
    "late",  # append: no answer, and it arrives only when `deliver` is called
    "twice",  # append: arrives twice, and the answer is the one to the second
    "lagging",  # tail: shows less than there is
    "repeated",  # tail: shows again what was shown before
]


class FaultyLog(CommitLog):
    """A log behind a bad line."""

    def __init__(self, log: CommitLog, fault: Callable[[Method], Fault | None]) -> None:
        self.max_entry = log.max_entry
        self.snapshot_every = log.snapshot_every
        self._log = log
        self._fault = fault
        self._in_flight: list[tuple[bytes, int]] = []
        self._shown: tuple[int, bytes] | None = None

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

    def head(self) -> Head:
        self._meet("head")
        return self._log.head()

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

    def enroll(self, waiter: Wakeable) -> None:
        self._log.enroll(waiter)

    def dismiss(self, waiter: Wakeable) -> None:
        self._log.dismiss(waiter)

    def close(self) -> None:
        self._log.close()
