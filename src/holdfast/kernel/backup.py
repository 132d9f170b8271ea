"""Backup and restore of a whole workspace.

A backup is one SQLite file, a consistent snapshot taken while others go on writing. Restoring makes a new workspace and
never overwrites one. It leaps the revision by 10^9 and one more for every microsecond since the backup was made, and
marks what lies below as compacted: no token or cursor of the lost timeline can be taken for a new one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from holdfast import errors
from holdfast.kernel import migrations
from holdfast.kernel.clock import Clock
from holdfast.kernel.failpoints import reach
from holdfast.kernel.folders import hide_from_git, make_folder, sync
from holdfast.kernel.place import check_place
from holdfast.kernel.progress import tell
from holdfast.kernel.store import FILE, check_sqlite, translate

LEAST_LEAP = 10**9
_MADE = "local_backup"
_STEP = 4096  # pages


def backup(source: apsw.Connection, target: Path, now: int) -> None:
    """Copy the store into `target`, which must not exist; it appears whole or not at all."""
    if target.exists():
        raise _taken(target)
    if not target.parent.is_dir():
        raise errors.NotFound(f"there is no folder {target.parent}", hint="make it first")
    partial = _beside(target)
    try:
        with _private_file(partial) as copy:
            _copy(source, copy)
            copy.pragma("journal_mode", "delete")
            copy.execute("DELETE FROM local_replica")  # a backup belongs to no log
            copy.execute(f"CREATE TABLE {_MADE} (time INTEGER NOT NULL PRIMARY KEY)")
            copy.execute(f"INSERT INTO {_MADE} VALUES (?)", (now,))
        _publish(partial, target)
    except apsw.Error as error:
        raise translate(error) from error
    except FileExistsError as error:
        raise _taken(target) from error
    except OSError as error:
        raise errors.IOFailed(f"the backup could not be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _beside(target: Path) -> Path:
    """A name of this thread's own, so that two that write the same target do not meet before the end."""
    return target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.partial")


def _taken(target: Path) -> errors.Exists:
    return errors.Exists(f"{target} exists", hint="choose a new file name for each backup")


@contextmanager
def _private_file(path: Path) -> Iterator[apsw.Connection]:
    """A new SQLite file that only its owner can read."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


def _copy(source: apsw.Connection, copy: apsw.Connection) -> None:
    source.execute("BEGIN; SELECT 1 FROM sqlite_schema")  # all steps see this commit: a write between starts none anew
    try:
        with copy.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(_STEP)
                tell(source.filename, "backup", copying.page_count - copying.remaining, copying.page_count)
    finally:
        if source.in_transaction:
            source.execute("ROLLBACK")
    problem = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != ("ok",):
        raise errors.Corrupt(f"the copy is not sound: {problem}")


def _publish(partial: Path, target: Path) -> None:
    sync(partial)
    reach("backup.copied")
    os.link(partial, target)  # refuses a target that has appeared meanwhile, where a rename would replace it
    sync(target.parent)
    reach("backup.published")


def restore(source: Path, folder: Path, clock: Clock, seed: Callable[[apsw.Connection], None] | None = None) -> int:
    """Make a workspace in `folder` from a backup and answer its new revision; `seed` sees it before anybody else."""
    check_sqlite()
    check_place(folder)
    if not source.is_file():
        raise errors.NotFound(f"there is no backup {source}")
    if (folder / FILE).exists():
        raise errors.Exists(f"{folder} holds a workspace", hint="restore into a new folder")
    original = _open_backup(source)
    partial = _beside(folder / FILE)
    try:
        make_folder(folder)
        hide_from_git(str(folder))
        with _private_file(partial) as copy:
            _copy(original, copy)
            revision = _leap(copy, clock.wall())
            if seed is not None:
                seed(copy)
        _publish(partial, folder / FILE)
        return revision
    except apsw.Error as error:
        raise translate(error) from error
    except OSError as error:
        raise errors.IOFailed(f"the workspace could not be written: {error}") from error
    finally:
        original.close()
        partial.unlink(missing_ok=True)


def _open_backup(source: Path) -> apsw.Connection:
    original = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        if (
            migrations.schema_of(original)
            and original.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (_MADE,)).fetchone()
        ):
            return original
    except apsw.NotADBError:
        original.close()
    except apsw.Error as error:
        original.close()
        raise translate(error) from error
    raise errors.Invalid(f"{source} is not a backup of a workspace", hint="ws.backup(path) makes one")


def _leap(copy: apsw.Connection, now: int) -> int:
    made = copy.execute(f"SELECT time FROM {_MADE}").fetchone()
    assert made is not None
    leap = LEAST_LEAP + max(0, now - made[0])
    copy.execute("BEGIN IMMEDIATE")
    copy.execute(f"DROP TABLE {_MADE}")
    copy.execute("UPDATE meta SET revision = revision + ?, compacted = revision + ?", (leap, leap))
    row = copy.execute("SELECT revision FROM meta").fetchone()
    copy.execute("COMMIT")
    assert row is not None
    return int(row[0])
