"""A node of a replicated workspace: a SQLite replica that follows a shared log, and writes through it.

A group runs on the replica; its changeset is appended to the log on the condition that nobody else has appended
meanwhile; only then the replica commits. Whatever others appended is applied as it is. Every write has seen the whole
log when it answers; reads are local. This is the journal of the engine: the batch calls it under the turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw
import msgspec

from holdfast import errors
from holdfast.kernel import migrations
from holdfast.kernel.clock import Clock, Signal, SystemClock, Wakeable
from holdfast.kernel.failpoints import reach
from holdfast.kernel.ids import Ids
from holdfast.kernel.journal import Moved
from holdfast.kernel.store import Store, translate
from holdfast.logs import place as places
from holdfast.logs.applying import apply, digest, diverged, is_shared
from holdfast.logs.base import START, CommitLog, Trimmed
from holdfast.logs.courtesy import Courtesy
from holdfast.logs.entries import AnyEntry, Changes, Entry, Migrated, Snapshotted, from_bytes, to_bytes
from holdfast.logs.place import Place
from holdfast.logs.sending import send
from holdfast.logs.skew import Skew
from holdfast.logs.snapshots import Snapshots, join, place_after

_PAGES = 100_000
_TRIES = 50
_WAITS = 64

E = TypeVar("E", bound=Entry)


class Replica:
    """The journal of one node."""

    def __init__(
        self,
        log: CommitLog,
        clock: Clock | None = None,
        *,
        snapshot_every: int | None = None,
        courteous: bool = True,
        steps: Sequence[migrations.Migration] | None = None,
    ) -> None:
        if not isinstance(log, CommitLog):
            raise errors.Invalid(f"log is a CommitLog, not {type(log).__name__}", hint="such as holdfast.MemoryLog()")
        self._log = log
        self._clock = clock or SystemClock()
        self._skew = Skew(log, self._clock)
        self._courtesy = Courtesy(self._clock) if courteous else None
        self._signal = Signal()
        self._steps = migrations.load() if steps is None else steps
        self._snapshots = Snapshots(log, snapshot_every)
        self._workspace = ""  # its id, once it is known
        self._place = Place()
        self._next = Place()  # the place once what was appended is committed
        self._session: apsw.Session | None = None

    # --- opening -----------------------------------------------------------------------------------------------------

    def open(self, store: Store, ids: Ids) -> None:
        """Make the replica, from a snapshot if there is one, or catch up; whoever comes first makes the workspace."""
        self._store, self._ids = store, ids
        self.node = ids.new(self._clock.wall())
        schema = migrations.schema_of(store.create())
        if schema and places.read(store.writer) is None:
            raise errors.Invalid(
                "this folder holds a workspace of its own, which is no replica of a log",
                hint="holdfast.restore(backup, folder, log=log) makes a replicated workspace of a backup",
            )
        try:
            if not schema:
                self._join(START)
            self._read_place()
            self._check_same_log()
            self._follow()
            self.migrate()
            store.domain = self._workspace
        except errors.Unreachable as error:
            if not schema:
                raise
            _warn("the log cannot be reached, this node answers from what it has: %s", error)

    def migrate(self, lock_out: bool = False) -> int:
        """Append the migrations that the workspace lacks, each as an entry of its own; answers the schema."""
        for _ in range(_TRIES + len(self._steps)):
            schema = migrations.schema_of(self._store.writer)
            todo = self._steps[schema : schema + 1]
            if not todo or (schema and todo[0].locks_out(schema) and not lock_out):
                return schema
            try:
                self._append_migration(todo[0])
            except Moved:
                self._follow()
        raise errors.Busy("other nodes kept writing while the schema had to be brought up to date")

    def _append_migration(self, step: migrations.Migration) -> None:
        workspace = self._workspace or self._ids.new(self._clock.wall())
        with self._transaction() as connection:
            migrations.apply(connection, step, workspace)
            reach("migration.apply")
            self._send(
                connection,
                self._entry(
                    Migrated,
                    workspace=workspace,
                    number=step.number,
                    digest=digest(step),
                    oldest_reader=step.oldest_reader,
                ),
            )
        self._workspace = workspace
        self._place = self._next
        reach("migration.committed")

    def _read_place(self) -> None:
        """Where the store stands: another process of this node may have gone on with it."""
        connection = self._store.writer
        found = places.read(connection)
        row = None if found is None else connection.execute("SELECT workspace FROM meta").fetchone()
        self._place, self._workspace = found or Place(), "" if row is None else str(row[0])

    def _check_same_log(self) -> None:
        end = self._log.head().position
        if end < self._place.position:
            raise errors.Corrupt(
                f"the log ends at {end}, but this replica has followed one to {self._place.position}",
                hint="open this folder with the log it belongs to, or a new folder with this log",
            )

    # --- following ---------------------------------------------------------------------------------------------------

    def catch_up(self, writing: bool) -> bool:
        """Apply what others appended; True if there was anything."""
        self._store.check_sound()
        self._read_place()
        before = self._place
        self._follow()
        if self._snapshots.announcement is not None:
            self._announce()
        if writing and self._courtesy is not None:
            self._give_way(self._courtesy)
        return self._place != before

    def _follow(self) -> None:
        for _ in range(_PAGES):
            try:
                page = self._news()
            except Trimmed as trimmed:
                self._join(trimmed.oldest)
                continue
            if not page:
                return
            reach("log.fetched")
            self._apply(page)

    def _join(self, oldest: int) -> None:
        """Start from the newest snapshot, because this node has nothing yet, or is further back than the log."""
        try:
            join(self._log, self._store.writer, oldest)
        except apsw.Error as error:
            self._store.reopen_writer()
            raise translate(error) from error
        self._read_place()

    def _news(self) -> list[tuple[int, bytes]]:
        """What is new in the log; one that repeats itself does no harm."""
        here = self._place.position
        return [entry for entry in self._log.tail(here) if entry[0] > here]

    def _apply(self, page: Sequence[tuple[int, bytes]]) -> None:
        """Apply a page in one transaction."""
        place = self._place
        try:
            with self._transaction() as connection:
                for position, raw in page:
                    entry = from_bytes(raw, position)
                    self._check_follows(place, entry)
                    apply(connection, entry, self._steps, self._log.get)
                    place = place_after(place, position, entry)
                    self._workspace = entry.workspace
                    if self._courtesy is not None:
                        self._courtesy.saw(entry.node)
                places.write(connection, place)
                reach("log.applied")
        except (errors.Corrupt, errors.Behind) as error:
            self._store.broken = error
            raise
        self._place = place

    def _check_follows(self, place: Place, entry: AnyEntry) -> None:
        if entry.previous != place.entry or (self._workspace and entry.workspace != self._workspace):
            raise diverged(f"what comes after {place.position} in the log does not follow what is here")

    def _give_way(self, courtesy: Courtesy) -> None:
        """Let nodes go first that have waited longer, while they do."""
        for _ in range(_WAITS):
            if courtesy.is_turn_of(self.node) or not self._signal.wait(courtesy.patience):
                return
            self._follow()

    def has_news(self) -> bool:
        try:
            return self._snapshots.announcement is not None or bool(self._news())
        except Trimmed:
            return True

    def is_behind(self) -> bool:
        return self._log.head().position > self._place.position

    # --- writing -----------------------------------------------------------------------------------------------------

    def record(self, connection: apsw.Connection) -> None:
        self._skew.check()  # only now: the time of the transaction has been taken
        self._session = apsw.Session(connection, "main")
        self._session.table_filter(is_shared)
        self._session.attach()

    def append(self) -> bool:
        assert self._session is not None
        changeset = self._session.changeset()
        if not changeset:
            return False
        reach("log.append")
        connection = self._store.writer
        row = connection.execute("SELECT revision FROM meta").fetchone()
        assert row is not None
        self._send(connection, self._entry(Changes, revision=row[0], changeset=changeset))
        reach("log.appended")
        return True

    def appended(self) -> None:
        self.forget()
        self._place = self._next
        self._snapshots.consider(self._place)
        if self._courtesy is not None:
            self._courtesy.saw(self.node)

    def forget(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def confirm(self) -> None:
        if self._log.head().position != self._place.position:
            raise Moved

    def _entry(self, kind: type[E], **facts: Any) -> E:
        facts = {"workspace": self._workspace, **facts}
        return kind(id=self._ids.new(self._clock.wall()), previous=self._place.entry, node=self.node, **facts)

    def _send(self, connection: apsw.Connection, entry: AnyEntry) -> None:
        """Append an entry after the place of this node, and write the new place; the caller commits."""
        raw = to_bytes(entry)
        if len(raw) > self._log.max_entry and isinstance(entry, Changes):
            raw = to_bytes(msgspec.structs.replace(entry, changeset=b"", blob=self._log.put(entry.changeset)))
        position = send(self._log, raw, entry.id, self._place.position)
        self._next = place_after(self._place, position, entry)
        places.write(connection, self._next)

    # --- beside the work ---------------------------------------------------------------------------------------------

    def maintain(self) -> None:
        if self._snapshots.due:
            connection = self._store.connect_reader()
            try:
                self._snapshots.make(connection)
            finally:
                connection.close()

    def _announce(self) -> None:
        """Tell the others of a snapshot, and trim what nobody needs any more; if somebody else is first, next time."""
        announcement, before = self._snapshots.announcement, self._place.snapshot
        assert announcement is not None
        if before >= announcement.position:  # a newer one is known, and the log may have dropped this one's blob
            self._snapshots.announcement = None
            return
        try:
            with self._transaction() as connection:
                self._send(connection, self._entry(Snapshotted, **announcement._asdict()))
        except Moved:
            return
        except errors.OutcomeUnknown as error:  # of this entry, not of what the callers want: that has not begun
            raise errors.Unreachable(error.message) from error
        self._place = self._next
        self._snapshots.announcement = None
        reach("snapshot.announced")
        self._log.trim(before)

    def enroll(self, waiter: Wakeable) -> None:
        self._log.enroll(waiter)
        self._log.enroll(self._signal)

    def dismiss(self, waiter: Wakeable) -> None:
        self._log.dismiss(waiter)
        self._log.dismiss(self._signal)

    # --- transactions of its own -------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """One transaction on the replica; whatever is raised inside rolls it back."""
        connection = self._store.writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                try:
                    connection.execute("ROLLBACK")
                except apsw.Error:
                    self._store.reopen_writer()
            if isinstance(error, apsw.Error):
                self._store.reopen_writer()
                raise translate(error) from error
            raise


def _warn(message: str, error: Exception) -> None:
    import logging

    logging.getLogger("holdfast").warning(message, error)
