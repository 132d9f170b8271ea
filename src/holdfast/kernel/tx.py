"""`Snapshot` and `Tx`: everything a domain can reach, and the full-text indexes that each node keeps for itself.

A domain function gets a Snapshot to read or a Tx to write, and reaches no other clock, randomness, file or connection.
A Tx is usable only while its body runs: a later statement would commit by itself, so it raises Closed.

FTS5 tables are not replicated. Every change to a row of an indexed table, by a domain in a transaction or by a replica
that applies an entry, removes the row from the index before and adds it after, with the same statements.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from holdfast import errors
from holdfast.clock import Now
from holdfast.ids import Ids
from holdfast.kernel import activity
from holdfast.kernel.translation import translate

Row = tuple[Any, ...]
PAGE_BYTES = 4 * 1024 * 1024  # of stored texts and values in one page
GRANTS_PER_REVISION = 4096
STEPS_BETWEEN_LOOKS = 20_000  # of SQLite's machine: well under a millisecond
T = TypeVar("T")
_json = msgspec.json.Encoder().encode
SYSTEM = "system"

_INSERT_EVENT = (
    "INSERT INTO log (revision, position, time, actor, record, op, version, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_KEY = "SELECT key FROM records WHERE kind = ? AND scope = ? AND id = ?"
_INSERT_RECORD = "INSERT INTO records (key, kind, scope, id) VALUES (?, ?, ?, ?)"
_INSERT_NEW_RECORD = "INSERT OR IGNORE INTO records (kind, scope, id) VALUES (?, '', ?)"
_NEWEST_VERSION = "SELECT max(version) FROM log WHERE record = ?"


def weight(row: Row) -> int:
    """The bytes of the texts and values in a row."""
    size = 0
    for each in row:
        if type(each) is str:
            size += len(each) if each.isascii() else len(each.encode())
        elif type(each) is bytes:
            size += len(each)
    return size


def fill(page: list[T], items: Iterable[T], limit: int) -> bool:
    """Append items to a page until its limit or PAGE_BYTES of JSON; returns whether one is left over.

    A page gets at least one item.
    """
    left = PAGE_BYTES
    for item in items:
        left -= len(_json(item))
        if len(page) == limit or (page and left < 0):
            return True
        page.append(item)
    return False


class Snapshot:
    """Reads. Each statement sees the newest commit; after `hold` all of them see the same one."""

    __slots__ = ("_connection", "_execute", "_time")
    memo: dict[str, Any] | None = None

    def __init__(self, connection: apsw.Connection, time: Now) -> None:
        self._connection = connection
        self._execute: Callable[..., apsw.Cursor] = connection.execute
        self._time = time

    def one(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        """The first row, or None."""
        return self._execute(sql, params).fetchone()

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """Every row."""
        return self._execute(sql, params).fetchall()

    def page(self, sql: str, params: Sequence[Any], limit: int) -> tuple[list[Row], bool]:
        """At most `limit` rows of a statement that ends in LIMIT ?, and whether there are more.

        A page ends before its texts and values exceed PAGE_BYTES, but has at least one row.
        """
        rows: list[Row] = []
        left = PAGE_BYTES
        cursor = self._execute(sql, (*params, limit + 1))
        for row in cursor:
            left -= weight(row)
            if len(rows) == limit or (rows and left < 0):
                cursor.close()
                return rows, True
            rows.append(row)
        return rows, False

    def hold(self) -> None:
        """Read the same commit with every statement until `let_go`."""
        self._execute("BEGIN")

    def let_go(self) -> None:
        """End `hold`."""
        if self._connection.in_transaction:  # an I/O error ends it by itself
            self._execute("ROLLBACK")

    @property
    def is_held(self) -> bool:
        """Whether `hold` pins a commit, which may not be the newest."""
        return self._connection.in_transaction

    def break_off_when(self, late: Callable[[], bool] | None) -> None:
        """Interrupt running statements once `late` returns True; None removes that."""
        self._connection.set_progress_handler(late, STEPS_BETWEEN_LOOKS)

    def report_progress(self, work: str, done: int, total: int | None = None) -> None:
        """Report the progress of long-running work to its listeners."""
        activity.report(self._connection.filename, work, done, total)

    def copy_to(self, copy: Callable[[apsw.Connection], None]) -> None:
        """Let the kernel's backup copy the store through this connection."""
        copy(self._connection)

    def close(self) -> None:
        """Close the underlying connection."""
        self._connection.close()

    def left(self, deadline: int, stamp: int) -> int:
        """Microseconds until `deadline`; `stamp` was read by the same statement."""
        return deadline - self._time.read(stamp)

    def is_past(self, deadline: int, stamp: int) -> bool:
        """Whether `deadline` has passed."""
        return self.left(deadline, stamp) <= 0


class Tx(Snapshot):
    """One transaction: runs alone, sees everything before it, commits whole or leaves nothing.

    Facts: `now` (one for the whole group), `revision` (taken if anything is emitted), `actor`, `max_value_bytes`,
    `began`, the revision before the group and its sweep, and `to_come`, the bodies of the group after this one. `memo`
    is shared by the transactions of one group; an entry must stay true even if the transaction that made it is rolled
    back.
    """

    __slots__ = (
        "_ahead",
        "_change",
        "_grants",
        "_ids",
        "actor",
        "began",
        "deadline",
        "dirty",
        "events",
        "litter",
        "max_value_bytes",
        "memo",
        "notices",
        "now",
        "revision",
        "seen",
        "to_come",
    )

    def __init__(
        self,
        connection: apsw.Connection,
        change: Callable[..., apsw.Cursor],
        time: Now,
        ids: Ids,
        now: int,
        revision: int,
        actor: str,
        max_value_bytes: int,
        began: int,
        memo: dict[str, Any],
        ahead: dict[str, tuple[int, Any]],
        litter: dict[Tidy, int],
        to_come: int,
    ) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._change = change  # by one cursor, which is all that statements without rows need
        self._time = time
        self._ids = ids
        self.now = now
        self.revision = revision
        self.actor = actor
        self.max_value_bytes = max_value_bytes
        self.began = began
        self.memo: dict[str, Any] = memo
        self._ahead = ahead
        self.litter = litter
        self.to_come = to_come
        self.dirty = False
        self.events = 0  # emitted so far
        self.deadline: int | None = None  # the earliest one this transaction set, for the pulse
        self._grants = 0
        self.notices: dict[str, list[str]] | None = None
        self.seen: tuple[str, ...] = ()  # agents that acted under a name other than the actor's

    def left(self, deadline: int, stamp: int) -> int:
        return deadline - self.now

    def notify(self, what: str, whom: str) -> None:
        """Log a warning once this is committed; what happened to several is one line."""
        if self.notices is None:
            self.notices = {}
        self.notices.setdefault(what, []).append(whom)

    def wall_clock(self) -> int:
        """This machine's clock, which is not the time of the transaction."""
        return self._time.clock.wall()

    def one(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        try:
            return self._execute(sql, params).fetchone()
        except apsw.Error as error:
            raise self._failed(error) from error

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._execute(sql, params).fetchall()
        except apsw.Error as error:
            raise self._failed(error) from error

    def page(self, sql: str, params: Sequence[Any], limit: int) -> tuple[list[Row], bool]:
        try:
            return super().page(sql, params, limit)
        except apsw.Error as error:
            raise self._failed(error) from error

    def run(self, sql: str, params: Sequence[Any] = ()) -> int:
        """Change rows and return how many."""
        self.dirty = True
        try:
            self._change(sql, params)
            return self._connection.changes()
        except apsw.Error as error:
            raise self._failed(error) from error

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of parameters."""
        self.dirty = True
        if self.ended:
            _ended()
        try:
            if len(rows) == 1:
                self._change(sql, rows[0])
            else:
                self._connection.executemany(sql, rows)
        except apsw.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: apsw.Error) -> Exception:
        # Disk full and interrupts may have rolled back the whole transaction. A body that continues regardless must not
        # reach the engine: outside a transaction each of its statements would commit by itself.
        if not self._connection.in_transaction:
            self.end()
        return translate(error)

    def emit(self, kind: str, id: str, op: str, *, scope: str = "", version: int = 0, data: bytes | None = None) -> int:
        """Append an event and return the record's version after it.

        A domain that keeps versions in its rows passes the new one; otherwise it follows the last one in the log.
        """
        key = self.key_of(kind, id, scope)
        if not version:
            version = _newest(self, key) + 1
        self.emit_of(key, op, version, data)
        return version

    def emit_of(self, key: int, op: str, version: int, data: bytes | None) -> None:
        """Append an event of a record whose key is known."""
        self.run(_INSERT_EVENT, (self.revision, self.events, self.now, self.actor, key, op, version, data))
        self.events += 1

    def emit_all(self, op: str, entries: Sequence[tuple[int, int, bytes]]) -> None:
        """Append an event for each (key, version, data)."""
        first = self.events
        self.many(
            _INSERT_EVENT,
            [
                (self.revision, first + number, self.now, self.actor, key, op, version, data)
                for number, (key, version, data) in enumerate(entries)
            ],
        )
        self.events += len(entries)

    def key_of(self, kind: str, id: str, scope: str = "") -> int:
        """Return the key of a record, which gets one if it was never in the log."""
        row = self.one(_KEY, (kind, scope, id))
        if row is not None:
            return int(row[0])
        self.run(_INSERT_RECORD, (None, kind, scope, id))
        return self._connection.last_insert_rowid()

    def new_record(self, kind: str, id: str) -> int | None:
        """Give a record its key; None if one with this id is or was in the log."""
        return self._connection.last_insert_rowid() if self.run(_INSERT_NEW_RECORD, (kind, id)) else None

    def new_id(self) -> str:
        """A fresh UUID v7."""
        return self._ids.new(self.now)

    def saw(self, name: str) -> None:
        """Note an agent that acts in this transaction under a name other than the actor's."""
        if name != self.actor and name not in self.seen:
            self.seen = (*self.seen, name)

    def leave(self, count: int, tidy: Tidy) -> None:
        """Leave rows behind. Before the commit `tidy` is called once, with the number that all bodies have left.

        What a body that was rolled back had left counts as well: more is tidied up.
        """
        self.litter[tidy] = self.litter.get(tidy, 0) + count

    def read_ahead(self, key: str) -> Any:
        """What an earlier transaction of the group kept, or None if anything was changed or rolled back since."""
        changes, kept = self._ahead.get(key, (-1, None))
        return kept if changes == self._connection.total_changes() else None

    def keep_ahead(self, key: str, value: Any) -> None:
        """Keep rows that were read ahead for later transactions of the group, until the next change by anybody."""
        self._ahead[key] = self._connection.total_changes(), value

    def new_token(self) -> int:
        """Return a fencing token greater than any granted before, over all locks."""
        if self._grants == GRANTS_PER_REVISION:
            raise errors.TooLarge(f"a transaction can grant at most {GRANTS_PER_REVISION} locks")
        self._grants += 1
        return self.revision * GRANTS_PER_REVISION + self._grants - 1

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """All or nothing for the statements inside, within this transaction."""
        before = self._begin_part()
        try:
            yield
        except BaseException:
            self._take_back(before)
            raise
        self.one("RELEASE part")

    @contextlib.contextmanager
    def dry_run(self) -> Iterator[Trial]:
        """Take back whatever the block does at its end, unless it calls `keep()`; what it has computed survives."""
        trial = Trial()
        before = self._begin_part()
        try:
            yield trial
        except BaseException:
            self._take_back(before)
            raise
        if trial.kept:
            self.one("RELEASE part")
        else:
            self._take_back(before)

    def _begin_part(self) -> tuple[int, int, bool, tuple[str, ...]]:
        self.one("SAVEPOINT part")
        return self.events, self.now, self.dirty, self.seen

    def _take_back(self, before: tuple[int, int, bool, tuple[str, ...]]) -> None:
        # Disk full and interrupts roll back the whole transaction from inside: then there is no savepoint left, and
        # the batch finds that out by itself.
        if not self.ended and self._connection.in_transaction:
            self._ahead.clear()
            self.one("ROLLBACK TO part")
            self.one("RELEASE part")
            self.events, self.now, self.dirty, self.seen = before

    def end(self) -> None:
        """End the transaction's body: every later use raises Closed."""
        self._execute = self._change = _ended

    @property
    def ended(self) -> bool:
        """Whether the body has ended."""
        return self._execute is _ended


Tidy = Callable[[Tx, int], None]


class Trial:
    """What `dry_run` gives its block."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        """Let it count after all."""
        self.kept = True


class GuardedTx(Tx):
    """A Tx that a watchdog may end while user code still holds it.

    A lock keeps each statement and the watchdog's rollback apart: no rollback comes between check and execution.
    """

    __slots__ = ("guard",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.guard = threading.RLock()

    def one(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        with self.guard:
            return super().one(sql, params)

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        with self.guard:
            return super().all(sql, params)

    def run(self, sql: str, params: Sequence[Any] = ()) -> int:
        with self.guard:
            return super().run(sql, params)

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with self.guard:
            super().many(sql, rows)


def newest_version(snapshot: Snapshot, kind: str, scope: str, id: str) -> int:
    """The record's last version in the log, 0 if it never existed; compaction keeps each record's newest event."""
    row = snapshot.one(_KEY, (kind, scope, id))
    return 0 if row is None else _newest(snapshot, row[0])


def _newest(snapshot: Snapshot, key: int) -> int:
    row = snapshot.one(_NEWEST_VERSION, (key,))
    return (row and row[0]) or 0


def _ended(*_: Any) -> Any:
    raise errors.Closed(
        "this transaction has ended",
        hint="use tx only inside its body; a transaction that stays open too long is rolled back",
    )


# Indexed table (its key is `seq`) -> its index and the indexed columns.
INDEXES = {"message_texts": ("messages_fts", "subject, body"), "task_texts": ("tasks_fts", "title, body, notes, refs")}
_INDEX_NEW = {
    table: f"INSERT INTO {index} (rowid, {columns}) VALUES (?{', ?' * (columns.count(',') + 1)})"
    for table, (index, columns) in INDEXES.items()
}

Run = Callable[[str, Sequence[Any]], Any]


def unindex_text(run: Run, table: str, seq: int) -> None:
    """Remove a row from its index, before the row changes. Does nothing if there is no such row."""
    index, columns = INDEXES[table]
    run(
        f"INSERT INTO {index} ({index}, rowid, {columns}) SELECT 'delete', seq, {columns} FROM {table} WHERE seq = ?",
        (seq,),
    )


def index_new_text(
    many: Callable[[str, Sequence[Sequence[Any]]], Any], table: str, rows: Sequence[Sequence[Any]]
) -> None:
    """Index new rows, given as (seq, columns...): several times faster than reading them back."""
    many(_INDEX_NEW[table], rows)


def index_text(run: Run, table: str, seq: int) -> None:
    """Index a row as it is now. Does nothing if there is no such row."""
    index, columns = INDEXES[table]
    run(f"INSERT INTO {index} (rowid, {columns}) SELECT seq, {columns} FROM {table} WHERE seq = ?", (seq,))
