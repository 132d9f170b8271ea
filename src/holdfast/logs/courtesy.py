"""Courtesy: nodes that write at the same time take turns, so that few of them run in vain.

Correctness never rests on this: whoever appends first wins, and the others run again. But if everybody always tried at
once, most work would be thrown away. So a node lets those go first who have written too of late, and longer ago than
itself. It learns that from the entries themselves, waits only while the log keeps moving, and then goes ahead anyway;
whoever was waited for in vain is not waited for again until it writes.
"""

from __future__ import annotations

from collections import deque

from holdfast.kernel.clock import Clock

_REMEMBERED = 8  # entries
_LEAST_PATIENCE = 0.0005
_MOST_PATIENCE = 0.02
_STEADINESS = 0.8  # of the average time between two entries


class Courtesy:
    """Who wrote of late, and whose turn it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: deque[str] = deque(maxlen=_REMEMBERED)
        self._pace = 0.0
        self._last = 0

    def saw(self, node: str) -> None:
        """A node has written."""
        self._recent.append(node)
        now = self._clock.monotonic()
        self._pace = _STEADINESS * self._pace + (1 - _STEADINESS) * min((now - self._last) / 1e6, _MOST_PATIENCE)
        self._last = now

    def waited_in_vain(self) -> None:
        """Whoever was let go first did not want to: forget them until they write again."""
        self._recent.clear()
        self._last = self._clock.monotonic()

    def is_turn_of(self, node: str) -> bool:
        """Whether nobody else should go first."""
        newest_first = list(dict.fromkeys(reversed(self._recent)))
        return node not in newest_first or newest_first[-1] == node

    @property
    def patience(self) -> float:
        """Real seconds to wait for the log to move: some times as long as it took of late."""
        return min(_MOST_PATIENCE, max(_LEAST_PATIENCE, 4 * self._pace))
