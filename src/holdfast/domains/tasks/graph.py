"""The graph of tasks: which chain of dependencies is longest, what each task holds up, what can go on in parallel.

Every task counts as one step. What is computed (chains, slack, what a task unblocks) is about unfinished tasks alone:
a closed task holds up nothing, and is there only to be seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks import rows
from holdfast.kernel.tx import Row, Snapshot
from holdfast.kernel.validate import check_flag
from holdfast.types.fleet import GraphEdge, GraphNode, TaskGraph

MAX_NODES: Final = 50_000
_BLOCKERS: Final = 10
_BLOCK: Final = 4096  # tasks whose dependents are counted at once: their sets are numbers of so many bits
_COLUMNS: Final = (
    "t.id, t.title, t.type, t.status, t.priority, t.waits, t.busy, t.holder,"
    " (SELECT id FROM tasks WHERE seq = t.parent),"
    " (SELECT deadline FROM leases WHERE id = t.record AND t.holder IS NOT NULL), (SELECT stamp FROM meta)"
)
# Those that somebody holds are few, and the index by status leaves them out.
_OPEN: Final = (
    "SELECT seq FROM tasks INDEXED BY tasks_status WHERE holder IS NULL AND deleted IS NULL"
    " AND status IN ('open', 'blocked', 'pending_merge', 'in_progress')"
    " UNION ALL SELECT seq FROM tasks INDEXED BY tasks_held WHERE holder IS NOT NULL AND deleted IS NULL"
)
_ALL: Final = "SELECT seq FROM tasks WHERE deleted IS NULL"
# The task and those below it, then everything they wait for, and everything that waits for them.
_AROUND: Final = (
    "WITH RECURSIVE below(seq, id) AS (SELECT seq, id FROM tasks WHERE seq = ?1 UNION ALL SELECT c.seq, c.id FROM below"
    " CROSS JOIN tasks c ON c.parent = below.seq AND c.deleted IS NULL LIMIT ?2),"
    " before(id) AS (SELECT id FROM below UNION SELECT k.target FROM before CROSS JOIN links k"
    " ON k.kind = 'depends_on' AND k.source = before.id CROSS JOIN tasks t ON t.id = k.target AND {live} LIMIT ?2),"
    " behind(id) AS (SELECT id FROM below UNION SELECT k.source FROM behind CROSS JOIN links k"
    " ON k.kind = 'depends_on' AND k.target = behind.id CROSS JOIN tasks t ON t.id = k.source AND {live} LIMIT ?2)"
    " SELECT t.seq FROM (SELECT id FROM before UNION SELECT id FROM behind) f CROSS JOIN tasks t ON t.id = f.id"
    " WHERE t.seq = ?1 OR ({live}) LIMIT ?2"
)
_LIVE: Final = "t.deleted IS NULL AND t.status <> 'closed'"


def graph(snapshot: Snapshot, root: str | None = None, include_closed: bool = False) -> TaskGraph:
    """Return the unfinished tasks with their dependencies, and what follows from these; with closed ones if asked.

    With `root`, only that task and those below it, what they wait for and what waits for them. Raises TooLarge if there
    are more than 50,000 tasks.
    """
    check_flag(include_closed=include_closed)
    found = _tasks(snapshot, root, include_closed)
    ids = [row[0] for row in found]
    place = {id: at for at, id in enumerate(ids)}
    needs = [(place[id], place[on]) for id, on in _dependencies(snapshot, ids) if on in place]
    shown = _Chains(len(ids), needs)
    pending = [_is_unfinished(row) for row in found]
    chains = _Chains(len(ids), [pair for pair in needs if pending[pair[0]] and pending[pair[1]]])
    unblocks = chains.count_dependents()
    longest = max(chains.lengths(), default=0)
    nodes = tuple(
        _node(snapshot, row, shown.depths[at], unblocks[at], longest - chains.length(at), longest, pending[at])
        for at, row in enumerate(found)
    )
    edges = [GraphEdge("depends", ids[at], ids[on]) for at, on in needs]
    edges += [GraphEdge("parent", row[0], row[8]) for row in found if row[8] in place]
    ranked = sorted((at for at in range(len(ids)) if unblocks[at]), key=lambda at: (-unblocks[at], found[at][4], at))
    return TaskGraph(
        revision=_revision(snapshot),
        nodes=nodes,
        edges=tuple(edges),
        critical_path=tuple(ids[at] for at in chains.longest_chain()),
        tracks=tuple(tuple(ids[at] for at in track) for track in chains.tracks()),
        blockers=tuple(ids[at] for at in ranked[:_BLOCKERS]),
    )


def _tasks(snapshot: Snapshot, root: str | None, include_closed: bool) -> list[Row]:
    """The rows of the tasks that the graph shows, in the order of their creation."""
    most = MAX_NODES + 1
    if root is not None:
        live = "t.deleted IS NULL" if include_closed else _LIVE
        found = snapshot.all(_AROUND.format(live=live), (rows.find(snapshot, root).seq, most))
    else:
        found = snapshot.all(f"{_ALL if include_closed else _OPEN} LIMIT ?", (most,))
    if len(found) > MAX_NODES:
        hint = "name a root: the graph then has the tasks around it" if root is None else "name a task below it"
        raise errors.TooLarge(f"a graph has at most {MAX_NODES:,} tasks", hint=hint, limit=MAX_NODES)
    chosen = msgspec.json.encode([seq for (seq,) in found]).decode()
    return snapshot.all(
        f"SELECT {_COLUMNS} FROM json_each(?) j CROSS JOIN tasks t ON t.seq = j.value ORDER BY t.seq", (chosen,)
    )


def _dependencies(snapshot: Snapshot, ids: list[str]) -> list[Row]:
    """What each of these tasks depends on, as (task, other)."""
    return snapshot.all(
        "SELECT k.source, k.target FROM json_each(?) j CROSS JOIN links k ON k.kind = ? AND k.source = j.value"
        " ORDER BY j.key, k.target",
        (msgspec.json.encode(ids).decode(), rows.DEPENDS_ON),
    )


def _is_unfinished(row: Row) -> bool:
    return bool(row[3] != "closed")


def _node(
    snapshot: Snapshot, row: Row, depth: int, unblocks: int, slack: int, longest: int, pending: bool
) -> GraphNode:
    id, title, type, status, priority, waits, busy, holder, parent, deadline, stamp = row
    if deadline is not None and snapshot.is_past(deadline, stamp):
        status, holder = "open", None
    ready = status == "open" and not waits and not busy
    critical = pending and longest > 1 and not slack
    return GraphNode(
        id, title, type, status, ready, priority, parent, holder, depth, unblocks, critical, slack if pending else None
    )


def _revision(snapshot: Snapshot) -> int:
    row = snapshot.one("SELECT revision FROM meta")
    assert row is not None
    return int(row[0])


class _Chains:
    """The chains of a graph without cycles: each node by its number, each pair says that the first needs the second."""

    def __init__(self, count: int, needs: Iterable[tuple[int, int]]) -> None:
        self._needs: list[list[int]] = [[] for _ in range(count)]
        self._needed_by: list[list[int]] = [[] for _ in range(count)]
        for node, on in needs:
            self._needs[node].append(on)
            self._needed_by[on].append(node)
        self._order = self._sorted()
        self.depths = [0] * count  # nodes of the longest chain before each
        self.heights = [0] * count  # and after each
        for node in self._order:
            for other in self._needed_by[node]:
                self.depths[other] = max(self.depths[other], self.depths[node] + 1)
        for node in reversed(self._order):
            for other in self._needs[node]:
                self.heights[other] = max(self.heights[other], self.heights[node] + 1)

    def _sorted(self) -> list[int]:
        """Every node after those that it needs."""
        open_needs = [len(needs) for needs in self._needs]
        order = [node for node, count in enumerate(open_needs) if not count]
        for node in order:  # which grows
            for other in self._needed_by[node]:
                open_needs[other] -= 1
                if not open_needs[other]:
                    order.append(other)
        if len(order) < len(open_needs):
            raise errors.Corrupt("the dependencies of tasks have a cycle")
        return order

    def length(self, node: int) -> int:
        """The nodes of the longest chain through one."""
        return self.depths[node] + 1 + self.heights[node]

    def lengths(self) -> Iterable[int]:
        """The same of every node."""
        return map(self.length, range(len(self._needs)))

    def longest_chain(self) -> list[int]:
        """A longest chain, from its beginning; empty if no node needs another."""
        at = max(range(len(self._needs)), key=lambda node: (self.heights[node], -node), default=None)
        if at is None or not self.heights[at]:
            return []
        chain = [at]
        while self.heights[at]:
            at = next(other for other in self._needed_by[at] if self.heights[other] == self.heights[at] - 1)
            chain.append(at)
        return chain

    def count_dependents(self) -> list[int]:
        """How many nodes need each, directly or through others."""
        counts = [0] * len(self._needs)
        for start in range(0, len(counts), _BLOCK):
            reached: list[int] = [0] * len(counts)  # of each node: those of the block that need it, as bits
            for node in reversed(self._order):
                own = 1 << node - start if start <= node < start + _BLOCK else 0
                bits = reached[node]
                counts[node] += bits.bit_count()
                bits |= own
                if bits:
                    for other in self._needs[node]:
                        reached[other] |= bits
        return counts

    def tracks(self) -> list[list[int]]:
        """Groups of nodes that are connected, the largest first; a node without a connection is in none."""
        seen = [False] * len(self._needs)
        found: list[list[int]] = []
        for start in range(len(seen)):
            if seen[start] or not (self._needs[start] or self._needed_by[start]):
                continue
            seen[start] = True
            track = [start]
            for node in track:  # which grows
                for other in (*self._needs[node], *self._needed_by[node]):
                    if not seen[other]:
                        seen[other] = True
                        track.append(other)
            found.append(sorted(track))
        return sorted(found, key=len, reverse=True)
