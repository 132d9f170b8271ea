"""The first and the last of a replica: a log that starts with a backup, and a replica that is given up.

A backup enters an empty log as its first snapshot, so every node that joins starts from it. A replica that differs from
its log is set aside under another name, never deleted: it is the evidence of what went wrong, and what it had followed
so far can be salvaged.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw

from holdfast import errors
from holdfast.kernel.backup import backup
from holdfast.kernel.clock import Clock
from holdfast.kernel.folders import sync
from holdfast.kernel.ids import Ids
from holdfast.kernel.journal import Moved
from holdfast.kernel.store import FILE, Store
from holdfast.kernel.turns import Turns
from holdfast.logs import place as places
from holdfast.logs.base import START, CommitLog, Trimmed
from holdfast.logs.entries import Snapshotted, from_bytes, to_bytes
from holdfast.logs.place import Place
from holdfast.logs.sending import send
from holdfast.logs.snapshots import place_after, serialize

_PATIENCE = 10.0


def seeder(log: CommitLog) -> Callable[[apsw.Connection], None]:
    """What makes a restored store the first replica of an empty log."""
    if log.head().position != START:
        raise _taken()
    return lambda copy: _seed(log, copy)


def _seed(log: CommitLog, copy: apsw.Connection) -> None:
    row = copy.execute("SELECT workspace, revision, stamp FROM meta").fetchone()
    assert row is not None
    workspace, revision, stamp = row
    places.write(copy, Place())
    ids = Ids()
    node = ids.new(stamp % 2**53)
    entry = Snapshotted(ids.new(stamp % 2**53), "", node, workspace, START, revision, log.put(serialize(copy)))
    try:
        position = send(log, to_bytes(entry), entry.id, START)
    except Moved as moved:
        raise _taken() from moved
    places.write(copy, place_after(Place(), position, entry))


def _taken() -> errors.Exists:
    return errors.Exists("the log holds a workspace", hint="restore into a new, empty log")


def check_log(log: object) -> None:
    """Invalid unless this is a log."""
    if not isinstance(log, CommitLog):
        raise errors.Invalid(f"log is a CommitLog, not {type(log).__name__}", hint="such as holdfast.MemoryLog()")


def check_belongs(folder: Path, log: CommitLog) -> None:
    """Not unless the log can be reached and holds the workspace that the replica in the folder is of."""
    source = folder / FILE
    if not source.is_file():
        raise errors.NotFound(f"there is no replica in {folder}", hint="holdfast.open(path, log=...) makes one")
    try:
        page = log.tail(START)
    except Trimmed as trimmed:
        page = log.tail(trimmed.oldest)
    if not page:
        raise errors.Invalid("the log is empty: nothing can be made from it", hint="is it the right one?")
    found = from_bytes(page[0][1], page[0][0]).workspace
    ours = _workspace_of(source)
    if ours is not None and ours != found:
        raise errors.Invalid(f"the log holds the workspace {found}, the replica is of {ours}")


def _workspace_of(source: Path) -> str | None:
    """Of which workspace a file is; None if it is too damaged to say."""
    try:
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error:
        return None
    try:
        row = connection.execute("SELECT workspace FROM meta").fetchone()
        return None if row is None else str(row[0])
    except apsw.Error:
        return None
    finally:
        connection.close()


def beside(folder: Path) -> Path:
    """Where a new replica is made while the old one is still in its place."""
    fresh = folder / f"rebuilding-{os.getpid()}"
    remove(fresh)
    return fresh


def remove(fresh: Path) -> None:
    """Leave nothing of a replica that was made beside."""
    shutil.rmtree(fresh, ignore_errors=True)


def replace(folder: Path, fresh: Path, clock: Clock) -> Path:
    """Set the file of a replica aside, with what belongs to it, and put a new one in its place."""
    aside = folder / f"{FILE}.diverged-{clock.wall()}"
    turns = Turns(str(folder))
    try:
        if not turns.take(_PATIENCE):
            raise errors.Busy("another process writes to this replica", hint="close it everywhere first")
        while aside.exists():
            aside = aside.with_name(f"{aside.name}-again")
        # The write-ahead log first: a file without it is an older replica, which catches up.
        _move(folder / FILE, aside)
        _move(fresh / FILE, folder / FILE)
        sync(folder)
    finally:
        turns.close()
    return aside


def _move(source: Path, target: Path) -> None:
    for suffix in ("-shm", "-wal", ""):
        if os.path.exists(f"{source}{suffix}"):
            os.rename(f"{source}{suffix}", f"{target}{suffix}")


def salvage(folder: Path, target: Path, clock: Clock) -> Path:
    """Write a backup of the store in a folder, without opening it as a workspace; answers the backup."""
    if not (folder / FILE).is_file():
        raise errors.NotFound(f"there is no replica in {folder}")
    store = Store(str(folder), durable=True, busy_timeout=_PATIENCE, replica=True)
    try:
        backup(store.writer, target, clock.wall())
    finally:
        store.close()
    return target
