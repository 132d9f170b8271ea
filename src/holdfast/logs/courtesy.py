"""Courtesy: nodes that write at the same time take turns, so that few of them run in vain.

Correctness never rests on this: whoever appends first wins, and the others run again. But if everybody always tried at
once, most work would be thrown away. So a node lets those go first who have written too of late, and longer ago than
itself. It learns that from the entries themselves, waits about as long as a group of its own takes, and then goes ahead
anyway; whoever was waited for in vain is not waited for again until it writes.
"""

from __future__ import annotations

from collections import deque

from holdfast.kernel.clock import Clock

_REMEMBERED = 8  # entries
_LEAST_PATIENCE = 0.0005
_MOST_PATIENCE = 0.02
_GROUPS = 3  # of our own length, that we wait for another's
_STEADINESS = 0.8  # of the average


class Courtesy:
    """Who wrote of late, and whose turn it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: deque[str] = deque(maxlen=_REMEMBERED)
        self._took = 0.0  # seconds, of late, from the beginning of a group to its append
        self._began = 0

    def begins(self) -> None:
        """A group of this node begins."""
        self._began = self._clock.monotonic()

    def wrote(self, node: str) -> None:
        """A group of this node was appended."""
        took = min((self._clock.monotonic() - self._began) / 1e6, _MOST_PATIENCE)
        self._took = _STEADINESS * self._took + (1 - _STEADINESS) * took
        self.saw(node)

    def saw(self, node: str) -> None:
        """A node has written."""
        self._recent.append(node)

    def waited_in_vain(self) -> None:
        """Whoever was let go first did not want to: forget them until they write again."""
        self._recent.clear()

    def is_turn_of(self, node: str) -> bool:
        """Whether nobody else should go first."""
        newest_first = list(dict.fromkeys(reversed(self._recent)))
        return node not in newest_first or newest_first[-1] == node

    @property
    def patience(self) -> float:
        """Real seconds to wait for another's group: they take about as long as ours."""
        return min(_MOST_PATIENCE, max(_LEAST_PATIENCE, _GROUPS * self._took))
