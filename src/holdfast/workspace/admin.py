"""Work on whole stores while no program has them open: upgrade, restore, rebuild, salvage, replicate and detach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import errors
from holdfast.clock import Clock, SystemClock
from holdfast.filesystem import is_moving, recorded_log
from holdfast.kernel import store_files
from holdfast.workspace import open_workspace, replica_of

if TYPE_CHECKING:
    from holdfast.replication.log import CommitLog


def upgrade(path: str | os.PathLike[str], *, clock: Clock | None = None, log: CommitLog | None = None) -> int:
    """Run the migrations that lock out older programs, after a backup beside the store. Returns the schema.

    On the replica of a log they are entries of the log: every node runs them, and nodes that lack them stop.
    """
    from holdfast.kernel import maintenance

    with _log_of(path, log) as log:
        journal = None if log is None else replica_of(log, clock)
        return maintenance.upgrade(Path(path), clock or SystemClock(), journal=journal)


@contextmanager
def _log_of(path: str | os.PathLike[str], log: CommitLog | None) -> Iterator[CommitLog | None]:
    """The log that is given, or the one that the folder records, which is closed at the end."""
    url = None if log is not None else recorded_log(path)
    if url is None:
        yield log
        return
    from holdfast.replication.address import connect

    with closing(connect(url)) as log:
        yield log


def check_there(path: str | os.PathLike[str]) -> None:
    """Raise NotFound if a folder holds no workspace, Corrupt if its store was removed in part."""
    store_files.require_store(path)


def schema_of(path: str | os.PathLike[str]) -> tuple[int, int]:
    """The schema of a store, and the newest that this program knows: `upgrade` leads from one to the other."""
    from holdfast.kernel import maintenance

    return maintenance.schema_of(Path(path))


def newest_schema() -> int:
    """The newest schema that this program knows."""
    from holdfast.kernel import migrations

    return migrations.known()


def restore(
    backup: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    clock: Clock | None = None,
    log: CommitLog | None = None,
    verify: bool = True,
) -> int:
    """Make a new workspace from a backup. Returns its revision, which is above any that was ever given before.

    The backup is first compared with the SHA-256 beside it (Corrupt); one without needs `verify=False`.
    With a `log`, which must be empty, the workspace is a replicated one, and the folder its first replica.
    """
    from holdfast.kernel import maintenance

    seed = None
    if log is not None:
        from holdfast.replication.snapshots import check_log, seeder

        check_log(log)
        seed = seeder(log)
    return maintenance.restore(Path(backup), Path(path), clock or SystemClock(), seed, verify)


def remove_backup(backup: str | os.PathLike[str]) -> None:
    """Remove a backup with the SHA-256 beside it; one that is not there is no error."""
    from holdfast.kernel import maintenance

    maintenance.remove_backup(Path(backup))


def rebuild(path: str | os.PathLike[str], *, log: CommitLog | None = None, clock: Clock | None = None) -> Path:
    """Make a new replica from the log in the place of one that differs. Returns the path the old file has now.

    The log is the one that the folder records, unless it is given. The old replica is set aside only once the new one
    is there.
    """
    from holdfast.replication import snapshots

    folder = Path(path)
    with _log_of(path, log) as log:
        snapshots.check_log(log)
        assert log is not None
        snapshots.check_belongs(folder, log)
        fresh = snapshots.beside(folder)
        try:
            open_workspace(fresh, actor="rebuild", clock=clock, log=log).close()
            return snapshots.replace(folder, fresh, clock or SystemClock())
        finally:
            snapshots.remove(fresh)


def replicate(
    path: str | os.PathLike[str],
    log: str | CommitLog,
    *,
    create: bool = False,
    clock: Clock | None = None,
    patience: float | None = None,
) -> int:
    """Take the workspace in a folder to a log, which begins with it. Returns its revision, which stays as it is.

    `log` is an address such as "postgresql://host/db?workspace=team-a", with `create` of a workspace that is made
    there, or an empty CommitLog. A folder without a workspace joins the log instead. No other process may have the
    folder open (Busy). A process that is killed leaves the folder as it was or as it shall be: opening it finds out.
    """
    from holdfast.replication import address, moves
    from holdfast.replication.snapshots import check_log

    if is_moving(path):
        open_workspace(path, actor="replicate", clock=clock, log=None if isinstance(log, str) else log).close()
    url = log if isinstance(log, str) else ""
    if url:
        address.check_recorded(path, url)
        if recorded_log(path) is not None or not store_files.has_store(path):
            with open_workspace(url, folder=path, actor="replicate", create=create, patience=patience) as workspace:
                return workspace.revision
        log = address.connect(url, create=create)
    check_log(log)
    assert not isinstance(log, str)
    try:
        if not store_files.has_store(path):
            with open_workspace(path, actor="replicate", clock=clock, log=log) as workspace:
                return workspace.revision
        open_workspace(path, actor="replicate", clock=clock).close()  # it is sound, and has the newest schema
        return moves.replicate(Path(path), log, url and address.parse(url).public, patience)
    finally:
        if url:
            log.close()


def detach(path: str | os.PathLike[str], *, log: CommitLog | None = None, patience: float | None = None) -> int:
    """Take a workspace out of its log, into this folder alone. Returns its revision, which stays as it is.

    The log is the one that the folder records, unless it is given. It ends: every other replica of it stops with
    Closed. No other process may have the folder open (Busy). A process that is killed leaves the folder as it was or
    as it shall be: opening it finds out.
    """
    from holdfast.replication import moves

    if is_moving(path):
        open_workspace(path, actor="detach", log=log, patience=patience).close()
    with _log_of(path, log) as found:
        if found is None:
            raise errors.Invalid(f"{os.fspath(path)} is not a replica of a log", hint="there is nothing to detach")
        return moves.detach(Path(path), found, recorded_log(path) or "", patience)


def salvage(path: str | os.PathLike[str], backup: str | os.PathLike[str], *, clock: Clock | None = None) -> Path:
    """Write a backup of a store that cannot be opened as a workspace; `restore` takes it. Changes nothing.

    A replica that has stopped: as far as it had followed its log. A store that lost commits: what is left of it.
    """
    from holdfast.replication.snapshots import salvage as write

    return write(Path(path), Path(backup), clock or SystemClock())
