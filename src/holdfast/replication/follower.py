"""Following a log: brings a node's replica up to the end of the log, from a snapshot if necessary.

The entries of other nodes are applied unchanged, in transactions of their own; `place` is the position reached. If the
replica differs from its log, or the program is too old for it, it stops for good: the store is marked broken, and every
call raises the reason. Used by the replica, under the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import apsw

from holdfast import errors
from holdfast.kernel import migrations
from holdfast.kernel.failpoints import reach
from holdfast.kernel.store import Store, translate
from holdfast.replication.apply import Applied, apply, check_shapes, diverged, read_applied, write_applied
from holdfast.replication.log import START, AnyEntry, CommitLog, Trimmed, from_bytes, unseal
from holdfast.replication.snapshots import applied_after, join

_PAGES = 100_000
_BLOB_TRIES = 3


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

    def open(self, store: Store) -> None:
        """Use an existing store. Raises Invalid if it is not a replica."""
        self.store = store
        if migrations.schema_of(store.writer) and read_applied(store.writer) is None:
            raise errors.Invalid(
                "this folder holds a workspace that is not a replica of a log",
                hint="make a replicated workspace from a backup: holdfast.restore(backup, folder, log=log)",
            )
        self.read_place()

    def read_place(self) -> None:
        """Read the store's place: another process of this node may have advanced it."""
        connection = self.store.writer
        found = read_applied(connection)
        row = None if found is None else connection.execute("SELECT workspace FROM meta").fetchone()
        self.place, self.workspace = found or Applied(), "" if row is None else str(row[0])
        if self.workspace:
            self.store.domain = self.workspace

    def check_same_log(self) -> None:
        """Raise Corrupt unless the last applied entry is still in its place, as far as the log reaches back."""
        end = self._log.head().position
        if end < self.place.position:
            what = f"the log ends at {end}, but this replica has followed it to {self.place.position}"
            if end == START:
                hint = "this log is empty: check that it is the right one. A MemoryLog ends with its process"
                raise errors.Corrupt(what, hint=hint)
            raise diverged(what)
        try:
            page = self._log.tail(self.place.before) if self.place.position else ()
        except Trimmed:
            return  # the next entry of the log names the one before it
        for position, raw in page:
            if position > self.place.before:
                if (position, from_bytes(raw, position).id) != (self.place.position, self.place.entry):
                    raise diverged(f"the entry at {self.place.position} of the log is not the one applied here")
                return

    def news(self) -> list[tuple[int, bytes]]:
        """Return the new entries of the log, without repetitions."""
        here = self.place.position
        return [entry for entry in self._log.tail(here) if entry[0] > here]

    def follow(self) -> None:
        """Apply all entries that the log shows."""
        gone = 0
        for _ in range(_PAGES):
            try:
                page = self.news()
                if not page:
                    return
                reach("log.fetched")
                self._apply(page)
            except Trimmed as trimmed:
                self.join(trimmed.oldest)
            except KeyError as error:  # a blob was trimmed meanwhile: the next page raises Trimmed
                gone += 1
                if gone == _BLOB_TRIES:
                    raise errors.Corrupt(f"the log has an entry, but not its blob {error}") from error

    def join(self, oldest: int = START) -> None:
        """Start from the newest snapshot, because this node is new or further behind than the log reaches back."""
        try:
            join(self._log, self.store.writer, oldest)
        except apsw.Error as error:
            self.store.reopen_writer()
            raise translate(error) from error
        self.read_place()

    def check_schema(self) -> None:
        """Raise Behind if the replica's schema is newer than this program knows."""
        schema = migrations.schema_of(self.store.writer)
        if schema > len(self._steps):
            raise self._stop(
                errors.Behind(
                    f"the workspace is at schema {schema}; this program knows {len(self._steps)}",
                    hint="upgrade holdfast on this node and restart it; the other nodes are not affected",
                )
            )

    def _apply(self, page: Sequence[tuple[int, bytes]]) -> None:
        """Apply a page in one transaction."""
        place, workspace = self.place, self.workspace
        try:
            with self.transaction() as connection:
                self._check_shapes(connection)
                for position, raw in page:
                    entry = from_bytes(raw, position)
                    if entry.previous != place.entry or (workspace and entry.workspace != workspace):
                        raise diverged(f"the entry after {place.position} of the log does not follow the one applied")
                    self._apply_one(connection, position, entry)
                    place, workspace = applied_after(place, position, entry), entry.workspace
                    self._saw(entry.node)
                write_applied(connection, place)
                reach("log.applied")
        except (errors.Corrupt, errors.Behind) as error:
            raise self._stop(error) from error
        self.place, self.workspace = place, workspace

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
