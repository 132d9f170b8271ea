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
_LOOKS = 10


def send(log: CommitLog, raw: bytes, id: str, expected: int) -> int:
    """Append an entry and answer its position; Moved, Unreachable (it is not there), or OutcomeUnknown."""
    in_doubt = False
    for _ in range(_SENDS):
        refused = False
        try:
            return log.append(raw, expected)
        except LostAnswer:
            in_doubt = True
        except Moved:
            refused = True  # by an entry of somebody else, or by our own, if the transport repeated it
        except errors.Unreachable:
            if not in_doubt:
                raise
        try:
            found = _find(log, id, expected)
        except (errors.Unreachable, Trimmed):
            in_doubt = True
            continue
        if found is not None:
            return found
        if refused and not in_doubt:
            raise Moved
    raise errors.OutcomeUnknown("the log did not answer whether it has the changes")


def _find(log: CommitLog, id: str, expected: int) -> int | None:
    """The position of our entry; None if there is nothing after what we expected; Moved if somebody else is there."""
    for _ in range(_LOOKS):
        for position, raw in log.tail(expected):
            if position > expected:
                if from_bytes(raw, position).id == id:
                    return position
                raise Moved
        end = log.head().position
        if end == expected:
            return None
        if end < expected:
            raise errors.Corrupt(f"the log ends at {end}, and has ended at {expected} before", hint="restore the log")
    raise errors.Unreachable("the log does not show what it holds")
