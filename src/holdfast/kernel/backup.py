"""Backup and restore of a whole workspace.

A backup is one SQLite file, a consistent snapshot taken while others go on writing. Restoring makes a new workspace and
never overwrites one. It leaps the revision by one for every microsecond since the backup was made, at least 10^9, and
marks what lies below as compacted: no token or cursor of the lost timeline can be taken for a new one.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from holdfast import errors
from holdfast.kernel import migrations
from holdfast.kernel.clock import Clock
from holdfast.kernel.store import FILE, check_sqlite, translate

LEAST_LEAP = 10**9
_MADE = "local_backup"


def backup(source: apsw.Connection, target: Path, now: int) -> None:
    """Copy the store into `target`, which must not exist; it appears whole or not at all."""
    if target.exists():
        raise errors.Exists(f"{target} exists", hint="choose a new file name for each backup")
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        copy = apsw.Connection(str(partial))
        try:
            with copy.backup("main", source, "main") as progress:
                while not progress.done:
                    progress.step(-1)
            copy.pragma("journal_mode", "delete")
            copy.execute(f"CREATE TABLE {_MADE} (time INTEGER NOT NULL PRIMARY KEY)")
            copy.execute(f"INSERT INTO {_MADE} VALUES (?)", (now,))
            _verify(copy)
        finally:
            copy.close()
        _sync(partial)
        os.link(partial, target)  # refuses a target that has appeared meanwhile, where a rename would replace it
        _sync(target.parent)
    except apsw.Error as error:
        raise translate(error) from error
    except FileExistsError as error:
        raise errors.Exists(f"{target} exists", hint="choose a new file name for each backup") from error
    except OSError as error:
        raise errors.IOFailed(f"the backup could not be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def restore(source: Path, folder: Path, clock: Clock) -> int:
    """Make a workspace in `folder` from a backup and answer its new revision."""
    check_sqlite()
    if not source.is_file():
        raise errors.NotFound(f"there is no backup {source}")
    target = folder / FILE
    if target.exists():
        raise errors.Exists(f"{folder} holds a workspace", hint="restore into a new folder")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = folder / (FILE + ".partial")
    partial.unlink(missing_ok=True)
    try:
        original = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        copy = apsw.Connection(str(partial))
        try:
            if migrations.schema_of(original) == 0:
                raise errors.Invalid(f"{source} is not a backup of a workspace")
            with copy.backup("main", original, "main") as progress:
                while not progress.done:
                    progress.step(-1)
            _verify(copy)
            revision = _leap(copy, clock.wall())
        finally:
            copy.close()
            original.close()
        _sync(partial)
        os.link(partial, target)
        _sync(folder)
        return revision
    except apsw.Error as error:
        raise translate(error) from error
    finally:
        partial.unlink(missing_ok=True)


def _leap(copy: apsw.Connection, now: int) -> int:
    made = copy.execute(f"SELECT time FROM {_MADE}").fetchone()
    if made is None:
        raise errors.Invalid("the file is not a backup of a workspace")
    leap = max(LEAST_LEAP, now - made[0])
    copy.execute("BEGIN IMMEDIATE")
    copy.execute(f"DROP TABLE {_MADE}")
    copy.execute("UPDATE meta SET revision = revision + ?, compacted = revision + ?", (leap, leap))
    row = copy.execute("SELECT revision FROM meta").fetchone()
    copy.execute("COMMIT")
    assert row is not None
    return int(row[0])


def _verify(connection: apsw.Connection) -> None:
    problem = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != ("ok",):
        raise errors.Corrupt(f"the copy is not sound: {problem}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
