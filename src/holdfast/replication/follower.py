"""Following a log: brings a node's replica up to the end of the log, from a snapshot if necessary.

The entries of other nodes are applied exactly as they are, in transactions of their own; `place` is the position
reached. `local_` tables are a node's own: no changeset carries them. So a replica that loses its newest commits in a
power failure also loses their position, and reads them in the log again.

A change that finds an unexpected row is divergence. It is never omitted and never overwrites: the replica stops with
Corrupt, and is rebuilt from a snapshot. An entry that this program is too old for stops it with Behind. Either stops it
for good: the store is marked broken, and every call raises the reason. Used by the replica, under the turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

import apsw

from holdfast import errors
from holdfast.kernel import migrations, tx
from holdfast.kernel.failpoints import reach
from holdfast.kernel.store import Store
from holdfast.kernel.translation import translate
from holdfast.replication.log import (
    AHEAD,
    START,
    AnyEntry,
    Changes,
    CommitLog,
    Detached,
    Migrated,
    Patience,
    Snapshotted,
    Trimmed,
    end_of,
    from_bytes,
    seal,
    unseal,
)

_LEVEL = 1  # of compression: most of the gain for little time
_WRITE_VERSIONS = slice(18, 20)  # of the file format, in SQLite's header
_ROLLBACK_JOURNAL = b"\x01\x01"  # a database in memory cannot be opened as a write-ahead log


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


REBUILD = "holdfast.rebuild(path) makes a new replica from the log and sets this one aside"
_REBUILD_HINT = (
    f"{REBUILD}; if that stops at the same entry, the node that wrote it is the damaged one: see docs/engines.md,"
    " When a replica stops"
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
        raise _too_old(entry.number, len(steps))
    step = steps[entry.number - 1]
    if digest(step) != entry.digest:
        hint = "install the same release of holdfast on every node"
        raise errors.Corrupt(f"migration {entry.number} differs from the one on the node that ran it", hint=hint)
    migrations.apply(connection, step, entry.workspace)


def check_shapes(connection: apsw.Connection, steps: Sequence[migrations.Migration]) -> None:
    """Raise Corrupt unless every shared table is as its migrations made it.

    SQLite silently skips changes of a table that is missing, or has other columns or keys.
    """
    with closing(apsw.Connection(":memory:")) as wanted:
        for step in steps[: migrations.schema_of(connection)]:
            migrations.apply(wanted, step, "")
        for table in _tables(wanted):
            if is_shared(table) and _shape(connection, table) != _shape(wanted, table):
                raise diverged(f"the table {table} is not as its migration made it")


def _tables(connection: apsw.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]


def _shape(connection: apsw.Connection, table: str) -> list[tuple[object, ...]]:
    return list(connection.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", (table,)))


def digest(step: migrations.Migration) -> bytes:
    """A hash by which two nodes compare a migration."""
    return hashlib.blake2b(step.sql.encode(), digest_size=16).digest()


def diverged(what: str, hint: str = _REBUILD_HINT) -> errors.Corrupt:
    """The error of a replica that differs from its log."""
    return errors.Corrupt(f"this replica differs from its log: {what}", hint=hint)


def ahead_of(log: CommitLog, place: Applied, patience: Patience) -> errors.Corrupt | None:
    """The error of a replica that has applied entries which its log lacks; None if it has not.

    The last entry applied tells, as far as the log reaches back: it is still in its place, or it is not.
    """
    end = end_of(log, place.position, patience)
    if end < place.position:
        what = f"the log ends at {end}, but this replica has followed it to {place.position}"
        if end == START:
            hint = "this log is empty: check that it is the right one. A MemoryLog ends with its process"
            return errors.Corrupt(what, hint=hint)
        return diverged(what, AHEAD)
    if place.position == START:
        return None
    try:
        position, raw = _page(log, place.before, patience)[0]
    except Trimmed:
        return None  # the next entry of the log names the one before it
    if (position, from_bytes(raw, position).id) != (place.position, place.entry):
        return diverged(f"the entry at {place.position} of the log is not the one applied here", AHEAD)
    return None


def _too_old(schema: int, known: int) -> errors.Behind:
    hint = "upgrade holdfast on this node and restart it; the other nodes are not affected"
    return errors.Behind(f"the workspace is at schema {schema}; this program knows {known}", hint=hint)


_REASONS = {
    apsw.SQLITE_CHANGESET_DATA: "a different row",
    apsw.SQLITE_CHANGESET_NOTFOUND: "a missing row",
    apsw.SQLITE_CHANGESET_CONFLICT: "a conflicting row",
    apsw.SQLITE_CHANGESET_CONSTRAINT: "a violated constraint",
    apsw.SQLITE_CHANGESET_FOREIGN_KEY: "a violated foreign key",
}


_PAGES = 100_000
_BLOB_TRIES = 3


def applied_after(place: Applied, position: int, entry: AnyEntry) -> Applied:
    """Return a replica's place after applying an entry."""
    if isinstance(entry, Snapshotted):
        return Applied(position, place.position, entry.id, 0, entry.position)
    return Applied(position, place.position, entry.id, place.entries + 1, place.snapshot)


def join(log: CommitLog, connection: apsw.Connection, oldest: int, patience: Patience) -> None:
    """Install the log's newest snapshot, if any. Raises Corrupt if there is none and the history is trimmed."""
    for _ in patience.looks():
        try:
            found = newest_snapshot(log, oldest, patience)
            if found is None:
                if oldest:
                    raise errors.Corrupt(f"the log starts at {oldest} and has no snapshot to start from")
                return
            blob = log.get(found.blob)
        except Trimmed as trimmed:  # a newer one was made meanwhile
            oldest = trimmed.oldest
        except KeyError:  # likewise
            continue
        else:
            reach("snapshot.fetched")
            install(connection, blob, found.position)
            reach("snapshot.installed")
            return
    raise errors.Unreachable("the log was trimmed repeatedly while this node tried to join")


def newest_snapshot(log: CommitLog, oldest: int, patience: Patience) -> Snapshotted | None:
    """Return the newest snapshot between `oldest` and the end. Raises Unreachable if not all of that is delivered."""
    newest: Snapshotted | None = None
    end, after = log.head(), oldest
    while after < end:
        for position, raw in _page(log, after, patience):
            entry = from_bytes(raw, position)
            newest = entry if isinstance(entry, Snapshotted) else newest
            after = position
    return newest


def _page(log: CommitLog, after: int, patience: Patience) -> list[tuple[int, bytes]]:
    """The entries after a position, at least one: the log is known to have it."""
    for _ in patience.looks():
        page = [(position, raw) for position, raw in log.tail(after) if position > after]
        if page:
            return page
    raise errors.Unreachable("the log does not deliver all of its entries")


def serialize(connection: apsw.Connection, place: Applied | None = None) -> bytes:
    """Return what the connection sees as one blob; with `place`, as the replica of a log at that place."""
    with closing(apsw.Connection(":memory:")) as copy:
        _copy(connection, copy)
        if place is not None:
            write_applied(copy, place)
        image = bytearray(copy.serialize("main"))
    image[_WRITE_VERSIONS] = _ROLLBACK_JOURNAL
    return seal(bytes(image), _LEVEL)


def install(connection: apsw.Connection, blob: bytes, position: int) -> None:
    """Replace the whole store by a snapshot. Raises Corrupt unless it is one of this position."""
    try:
        with closing(apsw.Connection(":memory:")) as image:
            image.deserialize("main", unseal(blob, "a snapshot"))
            found = read_applied(image)
            if found is None or found.position != position:
                raise errors.Corrupt(f"the snapshot of position {position} is of position {found and found.position}")
            _copy(image, connection)
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise errors.Corrupt(f"the snapshot in the log is damaged: {error}") from error


def _copy(source: apsw.Connection, target: apsw.Connection) -> None:
    with target.backup("main", source, "main") as progress:
        while not progress.done:
            progress.step(-1)


class Follower:
    """A node's place in the log, and how it advances."""

    def __init__(
        self, log: CommitLog, steps: Sequence[migrations.Migration], saw: Callable[[str], None] = lambda node: None
    ) -> None:
        self._log = log
        self._steps = steps
        self._saw = saw  # called with the node of each entry
        self._schema_version = -1  # SQLite's count of schema changes when the shapes were last checked
        self.place = Applied()
        self.workspace = ""  # its id, once it is known
        self.leaving = ""  # the id of the entry with which this node itself ends the log
        self.has_left = False  # and the log has that entry

    def open(self, store: Store) -> None:
        """Use an existing store. Raises Invalid if it is not a replica."""
        self.store = store
        if migrations.schema_of(store.writer) and read_applied(store.writer) is None:
            hint = "holdfast.replicate(path, log) takes it to an empty log"
            raise errors.Invalid("this folder holds a workspace that is not a replica of a log", hint=hint)
        self.read_place()

    def read_place(self) -> None:
        """Read the store's place: another process of this node may have advanced it."""
        connection = self.store.writer
        found = read_applied(connection)
        row = None if found is None else connection.execute("SELECT workspace FROM meta").fetchone()
        self.place, self.workspace = found or Applied(), "" if row is None else str(row[0])
        if self.workspace:
            self.store.domain = self.workspace

    def check_same_log(self, patience: Patience) -> None:
        """Raise Corrupt unless the last applied entry is still in its place, as far as the log reaches back."""
        if (error := ahead_of(self._log, self.place, patience)) is not None:
            raise error

    def news(self) -> list[tuple[int, bytes]]:
        """Return the new entries of the log, without repetitions."""
        here = self.place.position
        return [entry for entry in self._log.tail(here) if entry[0] > here]

    def follow(self, patience: Patience, end: int = START) -> None:
        """Apply all entries that the log shows. Raises Unreachable unless they reach to the `end` that is known."""
        for _ in patience.looks():
            self._follow(patience)
            if self.place.position >= end:
                return
        raise errors.Unreachable("the log does not deliver all of its entries")

    def _follow(self, patience: Patience) -> None:
        gone = 0
        for _ in range(_PAGES):
            try:
                page = self.news()
                if not page or self.has_left:
                    return
                reach("log.fetched")
                self._apply(page)
            except Trimmed as trimmed:
                self.join(patience, trimmed.oldest)
            except KeyError as error:  # a blob was trimmed meanwhile, and the page came from before that
                gone += 1
                if gone == _BLOB_TRIES:
                    raise errors.Corrupt(f"the log has an entry, but not its blob {error}") from error
                self._leap(patience)

    def _leap(self, patience: Patience) -> None:
        """Start from the newest snapshot if it is further than this node."""
        oldest = here = self.place.position
        try:
            newest = newest_snapshot(self._log, here, patience)
            if newest is None or newest.position <= here:
                return
        except Trimmed as trimmed:
            oldest = trimmed.oldest
        self.join(patience, oldest)

    def join(self, patience: Patience, oldest: int = START) -> None:
        """Start from the newest snapshot, because this node is new or further behind than the log reaches back."""
        try:
            join(self._log, self.store.writer, oldest, patience)
        except apsw.Error as error:
            self.store.reopen_writer()
            raise translate(error) from error
        self.read_place()

    def check_schema(self) -> None:
        """Raise Behind if the replica's schema is newer than this program knows."""
        schema = migrations.schema_of(self.store.writer)
        if schema > len(self._steps):
            raise self._stop(_too_old(schema, len(self._steps)))

    def _apply(self, page: Sequence[tuple[int, bytes]]) -> None:
        """Apply a page in one transaction."""
        place, workspace = self.place, self.workspace
        try:
            with self.transaction() as connection:
                self._check_shapes(connection)
                for position, raw in page:
                    entry = from_bytes(raw, position)
                    if entry.previous != place.entry or (workspace and entry.workspace != workspace):
                        what = f"the entry after {place.position} of the log does not follow the one applied"
                        raise diverged(what, AHEAD)
                    if isinstance(entry, Detached):
                        break
                    self._apply_one(connection, position, entry)
                    place, workspace = applied_after(place, position, entry), entry.workspace
                    self._saw(entry.node)
                write_applied(connection, place)
                reach("log.applied")
        except (errors.Corrupt, errors.Behind) as error:
            raise self._stop(error) from error
        self.place, self.workspace = place, workspace
        if isinstance(entry, Detached):
            self._end(entry)

    def _end(self, entry: Detached) -> None:
        """The log ends here: everything before it is applied."""
        if entry.id != self.leaving:
            raise self._stop(
                errors.Closed(
                    f"the workspace left this log at revision {entry.revision}, for {entry.folder}",
                    hint="continue there; holdfast.salvage(path, file) writes a backup of this replica",
                    moved_to=entry.folder,
                )
            )
        self.has_left = True

    def _apply_one(self, connection: apsw.Connection, position: int, entry: AnyEntry) -> None:
        try:
            apply(connection, entry, self._steps, self._blob)
        except errors.Corrupt as error:
            error.message += f"; the entry at {position} by node {entry.node}"
            raise

    def _blob(self, ref: str) -> bytes:
        return unseal(self._log.get(ref), "the blob of an entry")

    def _check_shapes(self, connection: apsw.Connection) -> None:
        version = connection.pragma("schema_version")
        if version != self._schema_version:
            check_shapes(connection, self._steps)
            self._schema_version = version

    def _stop(self, error: errors.HoldfastError) -> errors.HoldfastError:
        self.store.stop(error)
        return error

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """Run one transaction on the replica; an exception inside rolls it back."""
        connection = self.store.writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException as error:
            if self.store.is_writer(connection) and connection.in_transaction:
                try:
                    connection.execute("ROLLBACK")
                except apsw.Error:
                    self.store.reopen_writer()
            if isinstance(error, apsw.Error):
                self.store.reopen_writer()
                raise translate(error) from error
            raise
