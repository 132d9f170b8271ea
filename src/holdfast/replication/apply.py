"""Applying log entries to a replica exactly as they are, and the position it has reached.

`local_` tables are a node's own: no changeset carries them. So a replica that loses its newest commits in a power
failure also loses their position, and reads them in the log again.

A change that finds an unexpected row is divergence. It is never omitted and never overwrites: the replica stops with
Corrupt, and is rebuilt from a snapshot. An entry that this program is too old for stops it with Behind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import apsw

from holdfast import errors
from holdfast.kernel import migrations, tx
from holdfast.replication.log import START, AnyEntry, Changes, Migrated


class Applied(NamedTuple):
    """The last entry applied, and the state that the next snapshot depends on."""

    position: int = START
    before: int = START  # the position of the entry before that
    entry: str = ""  # its id
    entries: int = 0  # since the last snapshot
    snapshot: int = START  # the position of that snapshot


def read_applied(connection: apsw.Connection) -> Applied | None:
    """Return the position of a replica; None if the store is not a replica, or empty."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'local_replica'").fetchone():
        return None
    row = connection.execute("SELECT position, before, entry, entries, snapshot FROM local_replica").fetchone()
    return None if row is None else Applied(*row)


def write_applied(connection: apsw.Connection, place: Applied) -> None:
    """Store the position; the caller commits."""
    connection.execute(
        "INSERT OR REPLACE INTO local_replica (id, position, before, entry, entries, snapshot)"
        " VALUES (1, ?, ?, ?, ?, ?)",
        place,
    )


_REBUILD = (
    "holdfast.rebuild(folder, log=log) makes a new replica from the log and sets this one aside; if that stops at the"
    " same entry, the node that wrote it is the damaged one: see docs/engines.md, When a replica stops"
)


def is_shared(table: str) -> bool:
    """Whether the rows of a table are replicated.

    A node's own tables are not, nor are FTS5 tables: a session that recorded their shadow tables would break the
    search of every replica.
    """
    return not table.startswith(("local_", "sqlite_")) and "_fts" not in table


def apply(
    connection: apsw.Connection,
    entry: AnyEntry,
    steps: Sequence[migrations.Migration],
    get_blob: Callable[[str], bytes],
) -> None:
    """Apply an entry; the caller commits."""
    match entry:
        case Changes():
            changeset = get_blob(entry.blob) if entry.blob else entry.changeset
            indexed = _indexed(changeset)
            for table, seq in indexed:
                tx.unindex_text(connection.execute, table, seq)
            _apply_changes(connection, changeset)
            for table, seq in indexed:
                tx.index_text(connection.execute, table, seq)
        case Migrated():
            _apply_migration(connection, entry, steps)


def _indexed(changeset: bytes) -> list[tuple[str, int]]:
    """The rows of a changeset that are indexed for search: each node keeps its own index."""
    tables = [table for table in tx.INDEXES if table.encode() in changeset]
    if not tables:
        return []
    return [(change.name, _key(change)) for change in apsw.Changeset.iter(changeset) if change.name in tables]


def _key(change: apsw.TableChange) -> int:
    """The row's `seq`, which is the first column."""
    row = change.old if change.op == "DELETE" or change.op == "UPDATE" else change.new
    assert row is not None
    return int(row[0])  # type: ignore[arg-type]


def _apply_changes(connection: apsw.Connection, changeset: bytes) -> None:
    conflicts: list[str] = []

    def refuse(reason: int, change: apsw.TableChange) -> int:
        conflicts.append(f"{_REASONS.get(reason, reason)} at {change.op} of {change.name}")
        return apsw.SQLITE_CHANGESET_ABORT

    def wanted(table: str) -> bool:
        if not is_shared(table):
            conflicts.append(f"changes of {table}, which is not replicated")
        return True

    try:
        apsw.Changeset.apply(changeset, connection, filter=wanted, conflict=refuse)
    except (apsw.AbortError, apsw.ConstraintError, apsw.CorruptError, apsw.SQLError, apsw.MisuseError) as error:
        raise diverged(conflicts[0] if conflicts else str(error)) from error
    if conflicts:
        raise diverged(conflicts[0])


def _apply_migration(connection: apsw.Connection, entry: Migrated, steps: Sequence[migrations.Migration]) -> None:
    if entry.number > len(steps):
        raise errors.Behind(
            f"the workspace is at schema {entry.number}; this program knows {len(steps)}",
            hint="upgrade holdfast on this node and restart it; the other nodes are not affected",
        )
    step = steps[entry.number - 1]
    if digest(step) != entry.digest:
        raise errors.Corrupt(
            f"migration {entry.number} differs from the one on the node that ran it",
            hint="install the same release of holdfast on every node",
        )
    migrations.apply(connection, step, entry.workspace)


def check_shapes(connection: apsw.Connection, steps: Sequence[migrations.Migration]) -> None:
    """Raise Corrupt unless every shared table is as its migrations made it.

    SQLite silently skips changes of a table that is missing, or has other columns or keys.
    """
    wanted = apsw.Connection(":memory:")
    try:
        for step in steps[: migrations.schema_of(connection)]:
            migrations.apply(wanted, step, "")
        for table in _tables(wanted):
            if is_shared(table) and _shape(connection, table) != _shape(wanted, table):
                raise diverged(f"the table {table} is not as its migration made it")
    finally:
        wanted.close()


def _tables(connection: apsw.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]


def _shape(connection: apsw.Connection, table: str) -> list[tuple[object, ...]]:
    return list(connection.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", (table,)))


def digest(step: migrations.Migration) -> bytes:
    """A hash by which two nodes compare a migration."""
    return hashlib.blake2b(step.sql.encode(), digest_size=16).digest()


def diverged(what: str) -> errors.Corrupt:
    """The error of a replica that differs from its log."""
    return errors.Corrupt(f"this replica differs from its log: {what}", hint=_REBUILD)


_REASONS = {
    apsw.SQLITE_CHANGESET_DATA: "a different row",
    apsw.SQLITE_CHANGESET_NOTFOUND: "a missing row",
    apsw.SQLITE_CHANGESET_CONFLICT: "a conflicting row",
    apsw.SQLITE_CHANGESET_CONSTRAINT: "a violated constraint",
    apsw.SQLITE_CHANGESET_FOREIGN_KEY: "a violated foreign key",
}
