"""Snapshots of a whole store as one blob, the first entry of a log, and rebuilding a replica.

The position in the log is a row of the store itself, read in the same transaction as everything else, so a snapshot
cannot state a wrong one. Installing is one SQLite transaction too: readers see the old state until it is done. The log
is trimmed up to the last snapshot but one, so that a node that is somewhat behind can still follow.

A backup enters an empty log as its first snapshot, from which every node starts. A replica that differs from its log is
set aside under another name, never deleted: it shows what went wrong, and `salvage` can back it up. Of a file with
damaged pages it copies the rows that can be read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import apsw

from holdfast import errors
from holdfast.clock import Clock
from holdfast.filesystem import sync
from holdfast.ids import Ids
from holdfast.kernel.failpoints import reach
from holdfast.kernel.journal import LogMoved
from holdfast.kernel.maintenance import backup
from holdfast.kernel.migrations import logless, schema_of
from holdfast.kernel.process_lock import OPEN, Turns
from holdfast.kernel.store import Store, connect_raw
from holdfast.kernel.store_files import FILE, has_store, require_store
from holdfast.kernel.translation import NotReady, translated
from holdfast.kernel.tx import INDEXES
from holdfast.replication.address import before_all
from holdfast.replication.follower import (
    Applied,
    ahead_of,
    applied_after,
    read_applied,
    serialize,
    write_applied,
)
from holdfast.replication.log import (
    START,
    CommitLog,
    ErrorMappingLog,
    Patience,
    Snapshotted,
    Trimmed,
    from_bytes,
    send,
    to_bytes,
)

R = TypeVar("R")


class Announcement(NamedTuple):
    """A snapshot that the log stores, but no entry announces yet."""

    position: int
    revision: int
    blob: str


class Snapshots:
    """Decides when this node makes a snapshot: each time it appends the n-th entry since the last one."""

    def __init__(self, log: CommitLog, every: int | None) -> None:
        self._log = log
        self._every = log.snapshot_every if every is None else every
        self.due = False
        self._missed = False  # the last one could not be put
        self.announcement: Announcement | None = None

    def consider(self, place: Applied) -> None:
        """Called after this node appended an entry: the node that appends the n-th makes the snapshot."""
        self.due |= self._missed or (place.entries > 0 and place.entries % self._every == 0)

    def make(self, connection: apsw.Connection) -> None:
        """Store a snapshot of what the connection sees as a blob of the log."""
        connection.execute("BEGIN")
        try:
            place = read_applied(connection)
            row = connection.execute("SELECT revision FROM meta").fetchone()
            assert place is not None
            assert row is not None
            blob = serialize(connection)
        finally:
            connection.execute("ROLLBACK")
        reach("snapshot.made")
        self.due, self._missed = False, True  # if it fails, retry only after the next entry
        ref = self._log.put(blob)
        reach("snapshot.put")
        self._missed = False
        self.announcement = Announcement(place.position, row[0], ref)


_BUSY_TIMEOUT = 10.0


def seeder(log: CommitLog, seeded: Callable[[], object]) -> Callable[[apsw.Connection], None]:
    """Return a function that makes a restored store the first replica of an empty log, and then calls `seeded`."""
    with before_all("nothing was made"):
        if log.head() != START:
            raise _taken()

    def seed(copy: apsw.Connection) -> None:
        _seed(log, copy)
        seeded()

    return seed


def _seed(log: CommitLog, copy: apsw.Connection) -> None:
    row = copy.execute("SELECT workspace, revision, stamp FROM meta").fetchone()
    assert row is not None
    workspace, revision, stamp = row
    write_applied(copy, Applied())
    ids = Ids()
    node = ids.new(stamp % 2**53)
    entry = Snapshotted(ids.new(stamp % 2**53), "", node, workspace, START, revision, log.put(serialize(copy)))
    try:
        position = send(log, to_bytes(entry), entry.id, START, Patience())
    except LogMoved as moved:
        raise _taken() from moved
    write_applied(copy, applied_after(Applied(), position, entry))


def _taken() -> errors.Exists:
    return errors.Exists("the log already holds a workspace", hint="restore into a new, empty log")


def check_log(log: object) -> None:
    """Raise Invalid unless this is a log."""
    if not isinstance(log, CommitLog):
        message = f"log must be a CommitLog or the address of a log, not {type(log).__name__}"
        raise errors.Invalid(message, hint="such as postgresql://host/db?workspace=team-a or nats://h1,h2,h3/team-a")


def check_belongs(folder: Path, log: CommitLog) -> None:
    """Raise unless the log can be reached and holds the workspace of the replica in the folder."""
    source = folder / FILE
    if not has_store(folder):
        raise errors.NotFound(f"there is no replica in {folder}", hint="holdfast.open(path, log=...) makes one")
    with before_all("nothing was changed"):
        try:
            page = log.tail(START)
        except Trimmed as trimmed:
            page = log.tail(trimmed.oldest)
    if not page:
        raise errors.Invalid("the log is empty: nothing can be rebuilt from it", hint="check that it is the right log")
    found = from_bytes(page[0][1], page[0][0]).workspace
    ours = _read(source, lambda connection: connection.execute("SELECT workspace FROM meta").fetchone())
    if ours is not None and ours[0] != found:
        raise errors.Invalid(f"the log holds the workspace {found}, but the replica belongs to {ours[0]}")


def check_not_ahead(folder: Path, log: CommitLog) -> None:
    """Raise Corrupt if the replica in a folder, as far as it can be read, has entries that the log lacks."""
    place = _read(folder / FILE, read_applied)
    if place is not None and (error := ahead_of(ErrorMappingLog(log), place, Patience())) is not None:
        raise error


def without_log(folder: Path) -> errors.HoldfastError:
    """The error of a folder that records no log: it is no replica, or one whose record is gone."""
    require_store(folder)
    if _read(folder / FILE, read_applied) is not None:
        return logless()
    return errors.Invalid(f"{folder} is not a replica of a log", hint="holdfast.replicate(path, log) takes it to one")


def _read(source: Path, look: Callable[[apsw.Connection], R]) -> R | None:
    """What is in a replica's file, None if it is too damaged to read."""
    try:
        with closing(connect_raw(str(source), apsw.SQLITE_OPEN_READWRITE)) as connection:
            return look(connection)
    except apsw.Error:
        return None


def beside(folder: Path) -> Path:
    """Return the folder in which a new replica is made while the old one is still in place."""
    fresh = folder / f"rebuilding-{os.getpid()}"
    remove(fresh)
    return fresh


def remove(fresh: Path) -> None:
    """Remove a replica that was made by `beside`."""
    shutil.rmtree(fresh, ignore_errors=True)


def replace(folder: Path, fresh: Path, clock: Clock) -> Path:
    """Set a replica's files aside and put a new one in their place; returns where the old one is."""
    aside = folder / f"{FILE}.diverged-{clock.wall()}"
    with closing(Turns(str(folder))) as turns:
        if not turns.take(_BUSY_TIMEOUT):
            raise errors.Busy("another process is writing to this replica", hint="close it everywhere first")
        while aside.exists():
            aside = aside.with_name(f"{aside.name}-again")
        # The write-ahead log first: a file without it is an older replica, which catches up.
        _move(folder / FILE, aside)
        (folder / OPEN).unlink(missing_ok=True)  # whoever has the old one open is present there, not here
        _move(fresh / FILE, folder / FILE)
        sync(folder)
    return aside


def _move(source: Path, target: Path) -> None:
    for suffix in ("-shm", "-wal", ""):
        if os.path.exists(f"{source}{suffix}"):
            os.rename(f"{source}{suffix}", f"{target}{suffix}")


def salvage(folder: Path, target: Path, clock: Clock) -> Path:
    """Write a backup of the store in a folder without opening it as a workspace; returns the backup's path."""
    require_store(folder)
    nothing = errors.Corrupt(
        f"{FILE} in {folder} is empty: all commits were in {FILE}-wal, which is gone, so nothing is left to save",
        hint="restore the latest backup into a new folder",
    )
    with closing(Store(str(folder), durable=True, busy_timeout=_BUSY_TIMEOUT, replica=True, salvage=True)) as store:
        try:
            source = store.open_writer()
        except NotReady as error:  # not even its first page
            raise nothing from error
        with translated():
            if not schema_of(source):
                raise nothing
        try:
            backup(source, target, clock.wall())
        except errors.Corrupt:  # a page of it cannot be read
            backup(source, target, clock.wall(), _copy_rows)
    return target


# --- what can be read of a damaged file ------------------------------------------------------------------------------


# What belongs to a task that could not be read: it would stand in the way of the next one.
_LEFT_BEHIND: Final = (
    ("task_texts", "seq NOT IN (SELECT seq FROM tasks)"),
    ("leases", "kind = 'task' AND id NOT IN (SELECT record FROM tasks WHERE holder IS NOT NULL)"),
    ("leases", "kind = 'defer' AND -id NOT IN (SELECT record FROM tasks)"),
)


def _copy_rows(source: apsw.Connection, copy: apsw.Connection) -> None:
    """Copy the rows that can be read, table by table, and make the indexes anew. Says which tables lack rows."""
    for pragma in ("application_id", "user_version"):
        copy.pragma(pragma, source.pragma(pragma))
    listed = source.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
    made = [(str(kind), str(name), str(sql)) for kind, name, sql in listed]
    derived = tuple(index for index, _ in INDEXES.values())
    tables = [(name, sql) for kind, name, sql in made if kind == "table" and not name.startswith((*derived, "sqlite_"))]
    partial = []
    with copy:
        for name, sql in tables:
            copy.execute(sql)
            if not _copy_table(source, copy, name):
                partial.append(name)
        for name, which in _LEFT_BEHIND:
            copy.execute(f"DELETE FROM {name} WHERE {which}")
            if copy.changes() and name not in partial:
                partial.append(name)
        for kind, name, sql in made:
            if kind != "table" or name in derived:
                copy.execute(sql)
        for index in derived:
            copy.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
    if not copy.execute("SELECT 1 FROM meta").fetchone():
        raise errors.Corrupt(f"the first row of {FILE} cannot be read, so nothing can be saved of it")
    errors.warn(f"rows that cannot be read are not in the backup; they were in {', '.join(partial) or 'an index'}")


def _copy_table(source: apsw.Connection, copy: apsw.Connection, table: str) -> bool:
    """Copy a table around the pages that cannot be read; returns whether there was none."""
    columns = source.execute(f"PRAGMA table_info({table})").fetchall()
    names, keys = [str(each[1]) for each in columns], {each[5]: str(each[1]) for each in columns if each[5]}
    number = None  # the column that numbers the rows
    if source.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (table,)).fetchone() != (1,):
        number = keys[1] if len(keys) == 1 and columns[names.index(keys[1])][2] == "INTEGER" else "rowid"
        names, keys = [*dict.fromkeys((number, *names))], {1: number}
    order = [name for _, name in sorted(keys.items())]
    picked = ", ".join(names)
    insert = f"INSERT OR IGNORE INTO {table} ({picked}) VALUES ({', '.join('?' * len(names))})"

    def put(terms: Sequence[str], where: str = "", bindings: tuple[int, ...] = ()) -> bool:
        query = f"SELECT {picked} FROM {table} {where} ORDER BY {', '.join(terms)}"
        try:
            rows = source.execute(query, bindings)  # which reads the first row
            copy.executemany(insert, rows)
        except apsw.Error:
            return False
        return True

    if put(order):
        return True
    put([f"{name} DESC" for name in order])
    if number is not None:  # what lies between the first and the last page that cannot be read
        there = [0, *(row[0] for row in copy.execute(f"SELECT {number} FROM {table} ORDER BY 1"))]
        gaps = [(low + 1, high - 1) for low, high in pairwise(there) if high - low > 1]
        while gaps:
            low, high = gaps.pop()
            if not put(order, f"WHERE {number} BETWEEN ? AND ?", (low, high)) and low < high:
                middle = (low + high) // 2
                gaps += [(low, middle), (middle + 1, high)]
    return False
