"""A log as the replica sees it: whatever an adapter raises is one of the few things that a replica can handle.

An adapter stands on a network library, which raises what it likes. An append that broke in an unknown way may have
arrived, so it is LostAnswer; any other call that did is Unreachable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast import errors
from holdfast.kernel.clock import Wakeable
from holdfast.kernel.journal import Moved
from holdfast.logs.base import CommitLog, Head, LostAnswer, Trimmed

_KNOWN = (errors.HoldfastError, Moved, LostAnswer, Trimmed)


class CarefulLog(CommitLog):
    """The log of one node."""

    def __init__(self, log: CommitLog) -> None:
        self.max_entry = log.max_entry
        self.snapshot_every = log.snapshot_every
        self._log = log

    def head(self) -> Head:
        return _reached(self._log.head)  # type: ignore[no-any-return]

    def append(self, entry: bytes, expected: int) -> int:
        try:
            return self._log.append(entry, expected)
        except _KNOWN:
            raise
        except Exception as error:
            raise LostAnswer(f"the log broke off: {error!r}") from error

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        return _reached(self._log.tail, after)  # type: ignore[no-any-return]

    def put(self, blob: bytes) -> str:
        return _reached(self._log.put, blob)  # type: ignore[no-any-return]

    def get(self, ref: str) -> bytes:
        try:
            return _reached(self._log.get, ref)  # type: ignore[no-any-return]
        except errors.Unreachable as error:
            if isinstance(error.__cause__, KeyError):  # it is gone, which is an answer
                raise error.__cause__ from None
            raise

    def trim(self, before: int) -> None:
        _reached(self._log.trim, before)

    def enroll(self, waiter: Wakeable) -> None:
        self._log.enroll(waiter)

    def dismiss(self, waiter: Wakeable) -> None:
        self._log.dismiss(waiter)

    def close(self) -> None:
        self._log.close()


def _reached(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except _KNOWN:
        raise
    except Exception as error:
        raise errors.Unreachable(f"the log broke off: {error!r}") from error
