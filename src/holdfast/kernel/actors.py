"""Who has written, and when last: a row for each actor that somebody chose, kept with its commits and without events.

A row is written at most once a second, so that a busy actor costs a look into a dictionary: what is stored lags behind
by less than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.kernel.tx import Tx

LAG = 1_000_000
_RECORD = "INSERT INTO actors (name, seen) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET seen = excluded.seen"


class Actors:
    """What one process knows to be stored."""

    def __init__(self) -> None:
        self._stored: dict[str, int] = {}

    def record(self, names: Iterable[str], now: int, execute: Callable[..., Any]) -> dict[str, int]:
        """Store who has just written, as far as that is news; answers it, for `remember` once it is committed."""
        news = {name: now for name in names if not 0 <= now - self._stored.get(name, -LAG) < LAG}
        for name in sorted(news):
            execute(_RECORD, (name, now))
        return news

    def remember(self, news: dict[str, int]) -> None:
        """It is committed."""
        self._stored.update(news)


def settle(tx: Tx) -> None:
    """The clock was put right: nobody has written in the future."""
    tx.run("UPDATE actors SET seen = ? WHERE seen > ?", (tx.now, tx.now))
