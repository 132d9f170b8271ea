"""Pages along an index whose entries are a key and the task's number.

SQLite finds the start of a pair `(key, seq) > (?, ?)` by its key alone, because the number is the row's own, and walks
over all that come before it. So what lies behind a place is asked for in two parts: the rest of its key, then the keys
beyond.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.kernel.tx import Row, Snapshot

Place = tuple[int, int]  # a key, and the number of the last task with it that was seen


def parts(key: str | None, seq: str, place: Place | None, backwards: bool) -> list[tuple[str, list[int]]]:
    """The conditions under which, one after the other, all that lies behind a place is found in order."""
    way = "<" if backwards else ">"
    if place is None:
        return [("true", [])]
    if key is None:
        return [(f"{seq} {way} ?", [place[1]])]
    return [(f"{key} = ? AND {seq} {way} ?", [*place]), (f"{key} {way} ?", [place[0]])]


def read(
    snapshot: Snapshot,
    select: str,
    params: list[Any],
    key: str | None,
    seq: str,
    limit: int,
    place: Place | None = None,
    backwards: bool = False,
) -> Iterator[Row]:
    """At most `limit` rows of a query that ends in its conditions, by key and number, from behind a place on."""
    order = ", ".join(f"{column} DESC" if backwards else column for column in (key, seq) if column is not None)
    left = limit
    for condition, values in parts(key, seq, place, backwards):
        rows = snapshot.all(f"{select} AND {condition} ORDER BY {order} LIMIT ?", (*params, *values, left))
        yield from rows
        left -= len(rows)
        if not left:
            return
