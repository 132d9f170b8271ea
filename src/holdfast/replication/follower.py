"""Following a log: a node's replica is brought to where the log is, from a snapshot if need be.

What others appended is applied as it is, in transactions of its own; `place` says how far. A replica that differs from
its log, or a program that is too old for it, stops for good: the store is marked broken, and every call says why.
Used by the replica, under the turn.
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
    """Where this node is in the log, and the way onward."""

    def __init__(
        self, log: CommitLog, steps: Sequence[migrations.Migration], saw: Callable[[str], None] = lambda node: None
    ) -> None:
        self._log = log
        self._steps = steps
        self._saw = saw  # told which node wrote each entry
        self._schema_version = -1  # SQLite's own count of schema changes, when the shapes were checked last
        self.place = Applied()
        self.workspace = ""  # its id, once it is known

    def open(self, store: Store) -> None:
        """Take a store that exists; Invalid if it is no replica."""
        self.store = store
        if migrations.schema_of(store.writer) and read_applied(store.writer) is None:
            raise errors.Invalid(
                "this folder holds a workspace of its own, which is no replica of a log",
                hint="holdfast.restore(backup, folder, log=log) makes a replicated workspace of a backup",
            )
        self.read_place()

    def read_place(self) -> None:
        """Where the store stands: another process of this node may have gone on with it."""
        connection = self.store.writer
        found = read_applied(connection)
        row = None if found is None else connection.execute("SELECT workspace FROM meta").fetchone()
        self.place, self.workspace = found or Applied(), "" if row is None else str(row[0])
        if self.workspace:
            self.store.domain = self.workspace

    def check_same_log(self) -> None:
        """Corrupt unless the last entry applied here is where it was in the log, as far as the log reaches back."""
        end = self._log.head().position
        if end < self.place.position:
            what = f"the log ends at {end}, the replica has followed one to {self.place.position}"
            if end == START:
                hint = "this log is empty; is it the right one? A MemoryLog ends with its process"
                raise errors.Corrupt(what, hint=hint)
            raise diverged(what)
        try:
            page = self._log.tail(self.place.before) if self.place.position else ()
        except Trimmed:
            return  # what comes next in the log names the entry it follows
        for position, raw in page:
            if position > self.place.before:
                if (position, from_bytes(raw, position).id) != (self.place.position, self.place.entry):
                    raise diverged(f"the entry at {self.place.position} of the log is not the one applied here")
                return

    def news(self) -> list[tuple[int, bytes]]:
        """What is new in the log; one that repeats itself does no harm."""
        here = self.place.position
        return [entry for entry in self._log.tail(here) if entry[0] > here]

    def follow(self) -> None:
        """Apply all that the log shows."""
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
            except KeyError as error:  # a blob was trimmed under us: the next look says so
                gone += 1
                if gone == _BLOB_TRIES:
                    raise errors.Corrupt(f"the log has an entry, but not its blob {error}") from error

    def join(self, oldest: int = START) -> None:
        """Start from the newest snapshot, because this node has nothing yet, or is further back than the log."""
        try:
            join(self._log, self.store.writer, oldest)
        except apsw.Error as error:
            self.store.reopen_writer()
            raise translate(error) from error
        self.read_place()

    def check_schema(self) -> None:
        """Behind if the replica is past what this program knows, from a snapshot or another program's work."""
        schema = migrations.schema_of(self.store.writer)
        if schema > len(self._steps):
            raise self._stop(
                errors.Behind(
                    f"the workspace went on to schema {schema}, this program knows {len(self._steps)}",
                    hint="upgrade holdfast on this node and start it again; the other nodes go on meanwhile",
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
                        raise diverged(f"what comes after {place.position} in the log does not follow what is here")
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
        """One transaction on the replica; whatever is raised inside rolls it back."""
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
