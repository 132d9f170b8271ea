"""Appending to a log that may lose answers: sent until it is known whether the entry is there.

The condition makes repeating safe: of all copies of an entry, and all entries of others that expected the same end, one
at most is ever appended. So it is enough to look at the first entry after the expected end.
"""

from __future__ import annotations

from holdfast import errors
from holdfast.kernel.journal import Moved
from holdfast.logs.base import CommitLog, LostAnswer, Trimmed
from holdfast.logs.entries import from_bytes

_SENDS = 5


def send(log: CommitLog, raw: bytes, id: str, expected: int) -> int:
    """Append an entry and answer its position; Moved, Unreachable (it is not there), or OutcomeUnknown."""
    in_doubt = False
    for _ in range(_SENDS):
        try:
            return log.append(raw, expected)
        except LostAnswer:
            in_doubt = True
        except Moved:
            # A transport that repeats by itself may have been first with our own entry.
            found = _find(log, id, expected)
            if found is not None:
                return found
            if not in_doubt:
                raise
        except errors.Unreachable:
            if not in_doubt:
                raise
        found = _find(log, id, expected)
        if found is not None:
            return found
    raise errors.OutcomeUnknown("the log did not answer whether it has the changes")


def _find(log: CommitLog, id: str, expected: int) -> int | None:
    """The position of our entry; None if nothing is to be seen there; Moved if somebody else is in its place."""
    try:
        page = log.tail(expected)
    except (errors.Unreachable, Trimmed):
        return None
    for position, raw in page:
        if position > expected:
            if from_bytes(raw, position).id == id:
                return position
            raise Moved
    return None
