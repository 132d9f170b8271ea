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
    from holdfast.workspace import Workspace


def upgrade(path: str | os.PathLike[str], *, clock: Clock | None = None, log: str | CommitLog | None = None) -> int:
    """Run the migrations that lock out older programs, after a backup beside the store. Returns the schema.

    On the replica of a log they are entries of the log: every node runs them, and nodes that lack them stop.
    """
    from holdfast.kernel import maintenance

    with _log_of(path, log) as log:
        journal = None if log is None else replica_of(log, clock)
        return maintenance.upgrade(Path(path), clock or SystemClock(), journal=journal)


@contextmanager
def _log_of(
    path: str | os.PathLike[str], log: str | CommitLog | None, *, create: bool = False
) -> Iterator[CommitLog | None]:
    """The log that is given, itself or by its address, or else the one that the folder records; None if there is none.

    What is opened by an address is closed at the end. Raises Invalid if the folder is a replica of another log.
    """
    given = recorded_log(path) if log is None else log
    if given is None:
        yield None
        return
    from holdfast.replication import address
    from holdfast.replication.snapshots import check_log

    if not isinstance(given, str):
        check_log(given)
        yield given
        return
    address.check_recorded(path, given)
    with closing(address.connect(given, create=create)) as opened:
        yield opened


@contextmanager
def _own_log(path: str | os.PathLike[str], log: str | CommitLog | None) -> Iterator[CommitLog]:
    """The log that a folder is a replica of. Raises Invalid if it is none, or nothing says where its log is."""
    with _log_of(path, log) as found:
        if found is None:
            from holdfast.replication.snapshots import without_log

            raise without_log(Path(path))
        yield found


def check_there(path: str | os.PathLike[str]) -> None:
    """Raise NotFound if a folder holds no workspace, Corrupt if its store was removed in part."""
    with _cured(path):
        store_files.require_store(path)


def schema_of(path: str | os.PathLike[str]) -> tuple[int, int]:
    """The schema of a store, and the newest that this program knows: `upgrade` leads from one to the other."""
    from holdfast.kernel import maintenance

    with _cured(path):
        return maintenance.schema_of(Path(path))


def cure_of(path: str | os.PathLike[str]) -> str:
    """What a damaged store needs instead of its backup, if it is the replica of a log that its folder records."""
    if recorded_log(path) is None:
        return ""
    from holdfast.replication.follower import REBUILD

    return REBUILD


@contextmanager
def _cured(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have an error that says to restore a backup say what this store needs."""
    try:
        yield
    except errors.Corrupt as error:
        error.hint = cure_of(path) or error.hint
        raise


def newest_schema() -> int:
    """The newest schema that this program knows."""
    from holdfast.kernel import migrations

    return migrations.known()


def restore(
    backup: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    clock: Clock | None = None,
    log: str | CommitLog | None = None,
    create: bool = False,
    verify: bool = True,
) -> int:
    """Make a new workspace from a backup. Returns its revision, which is above any that was ever given before.

    The backup is first compared with the SHA-256 beside it (Corrupt); one without needs `verify=False`.
    With a `log`, an empty CommitLog or the address of one, the workspace is a replicated one, and the folder its first
    replica. With `create` an address may name a workspace that the log does not have.
    """
    from holdfast.kernel import maintenance

    folder = Path(path)
    if log is None:
        if (recorded := recorded_log(folder)) is not None:
            raise errors.Exists(f"{folder} belongs to the log {recorded}", hint="restore into another folder")
        return maintenance.restore(Path(backup), folder, clock or SystemClock(), None, verify)
    with _log_of(folder, log, create=create) as found:
        from holdfast.replication import address
        from holdfast.replication.snapshots import seeder

        assert found is not None
        seed = seeder(found, lambda: address.record(folder, log) if isinstance(log, str) else None)
        return maintenance.restore(Path(backup), folder, clock or SystemClock(), seed, verify)


def remove_backup(backup: str | os.PathLike[str]) -> None:
    """Remove a backup with the SHA-256 beside it; one that is not there is no error."""
    from holdfast.kernel import maintenance

    maintenance.remove_backup(Path(backup))


def is_backed_up(workspace: Workspace, backup: str | os.PathLike[str]) -> bool:
    """Whether a backup is whole and has the last commit of this workspace."""
    from holdfast.kernel import maintenance

    found: bool = workspace._engine.read(lambda snapshot: maintenance.has_last_commit(Path(backup), snapshot))
    return found


def rebuild(
    path: str | os.PathLike[str],
    *,
    log: str | CommitLog | None = None,
    ahead: bool = False,
    clock: Clock | None = None,
) -> Path:
    """Make a new replica from the log in the place of one that differs. Returns the path the old file has now.

    The log is the one that the folder records, unless it is given. The old replica is set aside only once the new one
    is there. One that has entries which the log lacks, as after an older log was put back, is Corrupt: it may be all
    that is left of them. With `ahead` it is set aside too.
    """
    from holdfast.replication import snapshots

    folder = Path(path)
    with _own_log(path, log) as found:
        snapshots.check_belongs(folder, found)
        if not ahead:
            snapshots.check_not_ahead(folder, found)
        fresh = snapshots.beside(folder)
        try:
            open_workspace(fresh, actor="rebuild", clock=clock, log=found).close()
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


def detach(path: str | os.PathLike[str], *, log: str | CommitLog | None = None, patience: float | None = None) -> int:
    """Take a workspace out of its log, into this folder alone. Returns its revision, which stays as it is.

    The log is the one that the folder records, unless it is given. It ends: every other replica of it stops with
    Closed. No other process may have the folder open (Busy). A process that is killed leaves the folder as it was or
    as it shall be: opening it finds out.
    """
    from holdfast.replication import address, moves

    if is_moving(path):
        open_workspace(path, actor="detach", log=log, patience=patience).close()
    with _own_log(path, log) as found:
        url = address.parse(log).public if isinstance(log, str) else recorded_log(path) or ""
        return moves.detach(Path(path), found, url, patience)


def salvage(path: str | os.PathLike[str], backup: str | os.PathLike[str], *, clock: Clock | None = None) -> Path:
    """Write a backup of a store that cannot be opened as a workspace; `restore` takes it. Changes nothing.

    A replica that has stopped: as far as it had followed its log. A store that lost commits: what is left of it.
    """
    from holdfast.replication.snapshots import salvage as write

    return write(Path(path), Path(backup), clock or SystemClock())
