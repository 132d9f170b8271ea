"""`CommitLog`: the narrow waist to an engine that can append if nobody else did.

A log holds the truth of one replicated workspace: entries in one order, each at a position, and blobs for what is
too large for an entry. Positions are opaque and increasing; 0 is before the first. Whoever writes an adapter fills
these methods, runs `holdfast.testing.log_contract` over it, and is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.kernel.clock import Wakeable

START = 0


class Head(NamedTuple):
    """The end of the log, and what its clock says (microseconds UTC)."""

    position: int
    time: int


class LostAnswer(Exception):
    """An append was sent and no answer came: it may be there, it may still arrive, or never."""


class Trimmed(Exception):
    """The entries after that position are gone up to `oldest`: join from a snapshot instead."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"the log starts at {oldest}")
        self.oldest = oldest


class CommitLog:
    """A log of one workspace, as one client of it. Safe for use by several threads.

    `errors.Unreachable` from any method: nothing happened. What else a method raises that is not named here counts as
    Unreachable too, or, from `append`, as LostAnswer.

    An entry that was acknowledged is durable, and is never lost, changed, or followed by one that did not expect it.
    """

    max_entry: int  # bytes; what is larger goes into a blob, and append refuses it with ValueError
    snapshot_every: int = 10_000  # entries after which a snapshot is due

    def head(self) -> Head:
        """The end as it is now: every append acknowledged before this call is at or below it."""
        raise NotImplementedError

    def append(self, entry: bytes, expected: int) -> int:
        """Append, if the end is at `expected`; answers the position, which lies above.

        Raises `kernel.journal.Moved` if the end is elsewhere, or LostAnswer. Moved says that this call appended
        nothing; a transport that repeats by itself may have been first with the same entry, which the caller finds out.
        """
        raise NotImplementedError

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        """Entries after a position, oldest first, without gap: a page of them, none if there are none yet.

        It may lag behind `head`, but not for ever. Raises Trimmed.
        """
        raise NotImplementedError

    def put(self, blob: bytes) -> str:
        """Keep a blob, durably; answers how to get it. It goes when the log is trimmed past the present end."""
        raise NotImplementedError

    def get(self, ref: str) -> bytes:
        """A blob that was put; raises KeyError if it is gone."""
        raise NotImplementedError

    def trim(self, before: int) -> None:
        """Nobody reads on from before this position any more: forget the entries up to it, and blobs put before it."""
        raise NotImplementedError

    def enroll(self, waiter: Wakeable) -> None:
        """Wake `waiter` whenever the log may have moved; a hint, so a wake-up may be missed."""
        raise NotImplementedError

    def dismiss(self, waiter: Wakeable) -> None:
        """Undo `enroll`."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what this object holds; the log itself stays. Called by whoever made the object."""
        raise NotImplementedError
