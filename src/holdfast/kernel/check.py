"""`ws.check()`: is the store what its log says, and does SQLite find it sound?

Reads one snapshot. The kernel checks the log itself; each domain checks its own rows against it. Answers problems in
words; changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdfast.kernel import fts
from holdfast.kernel.tx import Snapshot
from holdfast.types.base import Report

Checker = Callable[[Snapshot], Iterable[str]]

_TABLES = (
    *("tasks", "links", "cells", "locks", "waiters", "leases", "agents", "messages"),
    *("idempotency", "documents", "templates", "trails", "stashes", "cycles"),
)


def _has(snapshot: Snapshot, table: str) -> bool:
    """Whether the store has a table; one from before a migration has not."""
    return snapshot.one("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)) is not None


def check(snapshot: Snapshot, checkers: Iterable[Checker]) -> Report:
    """Run every check; the caller holds the snapshot. What SQLite finds broken nobody else can read."""
    problems = list(_engine(snapshot)) or [
        problem for checker in (_log, _leases, *checkers) for problem in checker(snapshot)
    ]
    revision = snapshot.one("SELECT revision FROM meta")
    events = snapshot.one("SELECT count(*) FROM events")
    assert revision is not None
    assert events is not None
    records = {
        table: (snapshot.one(f"SELECT count(*) FROM {table}") or (0,))[0] for table in _TABLES if _has(snapshot, table)
    }
    return Report(problems, revision[0], events[0], records)


def _engine(snapshot: Snapshot) -> Iterator[str]:
    for index, _ in fts.INDEXES.values():
        # A connection that has searched before others wrote remembers an old structure of the index, which SQLite's own
        # check takes for the present one and calls corrupt; a search looks again.
        if _has(snapshot, index):
            snapshot.all(f"SELECT rowid FROM {index} WHERE {index} MATCH 'x' LIMIT 1")
    for (line,) in snapshot.all("PRAGMA integrity_check"):
        if line != "ok":
            yield f"SQLite: {line}"


def _log(snapshot: Snapshot) -> Iterator[str]:
    row = snapshot.one("SELECT revision, compacted FROM meta")
    assert row is not None
    revision, compacted = row
    newest, count = snapshot.one(
        "SELECT max(revision), count(DISTINCT revision) FROM events WHERE revision > ?", (compacted,)
    ) or (None, 0)
    if (newest or compacted) != revision:
        yield f"the revision is {revision}, but the newest event has {newest}"
    if count != revision - compacted:
        yield f"the log has {count} revisions above {compacted}, expected {revision - compacted}"
    for (at,) in snapshot.all(
        "SELECT revision FROM events WHERE revision > ? GROUP BY revision"
        " HAVING min(position) <> 0 OR max(position) <> count(*) - 1"
        " OR min(time) <> max(time) OR min(actor) <> max(actor)",
        (compacted,),
    ):
        yield f"revision {at} has a gap, or two times or actors"
    for kind, scope, id, version in snapshot.all(
        "SELECT kind, scope, id, version FROM events GROUP BY kind, scope, id, version HAVING count(*) > 1"
    ):
        yield f"{kind} {scope}/{id} has version {version} twice"
    for kind, scope, id in snapshot.all(
        "SELECT DISTINCT kind, scope, id FROM (SELECT kind, scope, id, revision,"
        " lag(revision) OVER (PARTITION BY kind, scope, id ORDER BY version) AS earlier FROM events)"
        " WHERE earlier > revision"
    ):
        yield f"{kind} {scope}/{id} has versions out of the order of revisions"


def _leases(snapshot: Snapshot) -> Iterator[str]:
    for (id,) in snapshot.all("SELECT id FROM leases WHERE ttl <= 0 OR deadline < created"):
        yield f"lease {id} ends before it begins"
    for (id,) in snapshot.all(
        "SELECT id FROM leases l WHERE kind = 'lease' AND NOT EXISTS"
        " (SELECT 1 FROM events e WHERE e.kind = 'lease' AND e.scope = '' AND e.id = l.id AND e.op = 'create')"
    ):
        yield f"lease {id} is not in the log"
