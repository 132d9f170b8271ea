"""Links between records: a kind, a source and a target; each triple at most once.

Tasks use them for dependencies and origins, trails for their members. Both ends are ids; the domain that adds a link
checks that they exist, and drops the links of a purged record. Links of tasks are part of a task's history; others,
made by `tie`, have an event of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.kernel.tx import Snapshot, Tx

LINK: Final = "link"
TYPES: Final = (
    *("belongs_to", "child_of", "branches_from", "scoped_to"),
    *("depends_on", "discovered_from", "related"),
)


def find(snapshot: Snapshot, kind: str, source: str, target: str) -> str | None:
    """Return the id of a link, or None."""
    row = snapshot.one("SELECT id FROM links WHERE kind = ? AND source = ? AND target = ?", (kind, source, target))
    return None if row is None else str(row[0])


def add(tx: Tx, kind: str, source: str, target: str) -> bool:
    """Add a link; False if it exists."""
    if find(tx, kind, source, target) is not None:
        return False
    _insert(tx, tx.new_id(), kind, source, target, tx.now)
    return True


def _insert(tx: Tx, id: str, kind: str, source: str, target: str, created: int) -> None:
    values = (kind, source, target, id, created)
    tx.run("INSERT INTO links (kind, source, target, id, created) VALUES (?, ?, ?, ?, ?)", values)


def remove(tx: Tx, kind: str, source: str, target: str) -> bool:
    """Remove a link; False if it does not exist."""
    return bool(tx.run("DELETE FROM links WHERE kind = ? AND source = ? AND target = ?", (kind, source, target)))


def tie(tx: Tx, kind: str, source: str, target: str) -> str:
    """Add a link with an event of its own; returns its id, also if it existed."""
    id = find(tx, kind, source, target)
    return put(tx, tx.new_id(), kind, source, target, tx.now) if id is None else id


def put(tx: Tx, id: str, kind: str, source: str, target: str, created: int) -> str:
    """Add a link of this id, perhaps from another workspace, which the caller has checked to be new; returns the id."""
    _insert(tx, id, kind, source, target, created)
    _emit(tx, id, "create", kind, source, target)
    return id


def untie(tx: Tx, kind: str, source: str, target: str) -> bool:
    """Remove a link made by `tie`; False if it does not exist."""
    id = find(tx, kind, source, target)
    if id is None:
        return False
    remove(tx, kind, source, target)
    _emit(tx, id, "delete", kind, source, target)
    return True


def untie_sources(tx: Tx, kind: str, target: str) -> list[str]:
    """Remove every link to a record that was made by `tie`; returns where they came from."""
    found = sources(tx, kind, target)
    for source in found:
        untie(tx, kind, source, target)
    return found


def _emit(tx: Tx, id: str, op: str, kind: str, source: str, target: str) -> None:
    data = msgspec.msgpack.encode({"link_type": kind, "from_id": source, "to_id": target})
    tx.emit(LINK, id, op, data=data)


def forget(tx: Tx, id: str, kinds: Iterable[str]) -> None:
    """Remove every link of these kinds from and to a record."""
    for kind in kinds:
        tx.run("DELETE FROM links WHERE kind = ? AND source = ?", (kind, id))
        tx.run("DELETE FROM links WHERE kind = ? AND target = ?", (kind, id))


def targets(snapshot: Snapshot, kind: str, source: str) -> list[str]:
    """Return the targets of a record's links."""
    rows = snapshot.all("SELECT target FROM links WHERE kind = ? AND source = ? ORDER BY target", (kind, source))
    return [target for (target,) in rows]


def sources(snapshot: Snapshot, kind: str, target: str) -> list[str]:
    """Return the sources of the links to a record."""
    rows = snapshot.all("SELECT source FROM links WHERE kind = ? AND target = ? ORDER BY source", (kind, target))
    return [source for (source,) in rows]


def path(snapshot: Snapshot, kind: str, start: str, end: str) -> list[str] | None:
    """Return the shortest path by links of a kind from `start` to `end`, or None.

    The search goes on from the end that has found less, so it costs little if few links lead to either of them: whoever
    adds to the end of a long chain does not walk along it.
    """
    if start == end:
        return [start]
    ways: tuple[dict[str, str | None], ...] = ({start: None}, {end: None})
    fronts = [[start], [end]]
    while all(fronts):
        side = 0 if len(ways[0]) <= len(ways[1]) else 1
        here, there = ways[side], ways[1 - side]
        following = []
        for one in fronts[side]:
            for other in (targets, sources)[side](snapshot, kind, one):
                if other not in here:
                    here[other] = one
                    if other in there:
                        return [*_steps(ways[0], other)[::-1], *_steps(ways[1], other)[1:]]
                    following.append(other)
        fronts[side] = following
    return None


def _steps(way: dict[str, str | None], id: str) -> list[str]:
    """The steps from `id` back to where a search began."""
    steps = [id]
    while (before := way[steps[-1]]) is not None:
        steps.append(before)
    return steps
