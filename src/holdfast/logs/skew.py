"""The guard against a wrong clock: a node more than a second away from the log's clock does not write.

A wrong clock would end other people's leases. Asking the log for its time with every write would be slow, so a node
asks every few seconds, and at once when its own wall clock and its monotonic clock disagree about how long that was.
"""

from __future__ import annotations

from holdfast import errors
from holdfast.kernel.clock import Clock
from holdfast.logs.base import CommitLog

ALLOWED = 1_000_000
_ASK_EVERY = 5_000_000
_JUMP = 100_000


class Skew:
    """How far this node's clock is from the log's."""

    def __init__(self, log: CommitLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._asked: tuple[int, int] | None = None  # monotonic time of the last good answer, and wall minus monotonic

    def check(self) -> None:
        """Raise ClockSkew if this node must not write."""
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        if self._asked is not None:
            when, offset = self._asked
            if monotonic - when < _ASK_EVERY and abs(wall - monotonic - offset) < _JUMP:
                return
        self._asked = None
        time = self._log.head().time
        # The log looked at its clock at some moment between these two.
        ahead, behind = wall - time, time - self._clock.wall()
        if max(ahead, behind) > ALLOWED:
            seconds, side = max(ahead, behind) / 1e6, "ahead of" if ahead > behind else "behind"
            raise errors.ClockSkew(
                f"this machine's clock is {seconds:.1f} s {side} the log's, so it must not write", skew=ahead / 1e6
            )
        self._asked = (monotonic, wall - monotonic)
