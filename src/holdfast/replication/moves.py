"""Taking a workspace from a file to a log and back: revisions, tokens and history stay as they are.

A move changes two things that no transaction covers, a log and a folder. So it is noted in the folder first (`MOVE`),
which is the point of no return unless the log refuses: whoever opens the folder finds the note and finishes the move
before anything else can be written. Finishing may be repeated, by any process: the note has the id of the entry with
which the log begins or ends, and the store changes sides in one SQLite transaction.

To a log: the first entry of the log is a snapshot of the store. From a log: the last entry of the log is `Detached`,
appended once this node has everything before it, so no other node can go on from there and two histories never share a
revision. Used by the workspace when it opens a folder, and by `workspace.admin`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import apsw
import msgspec

from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.filesystem import LOG_URL, MOVE, sync, write_private
from holdfast.ids import Ids
from holdfast.kernel.failpoints import reach
from holdfast.kernel.journal import LogMoved
from holdfast.kernel.migrations import refuse_replica
from holdfast.kernel.process_lock import Turns
from holdfast.kernel.store import Store
from holdfast.kernel.store_files import require_store
from holdfast.kernel.translation import translated
from holdfast.replication import address
from holdfast.replication.follower import Applied, read_applied, serialize, write_applied
from holdfast.replication.log import (
    PATIENCE,
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
from holdfast.replication.replica import Replica

_BUSY_TIMEOUT = 10.0


class Move(msgspec.Struct, frozen=True):
    """Where a folder is going: to the log at an address (empty if its program has the log), or out of it."""

    to: Literal["log", "file"]
    url: str
    entry: str  # the id of the log's first or last entry


def replicate(folder: Path, log: CommitLog, url: str, patience: float | None) -> int:
    """Make the store in a folder the first replica of an empty log; returns its revision."""
    log = ErrorMappingLog(log)
    with _alone(folder) as store:
        refuse_replica(store.writer)
        with address.before_all("nothing was changed"):
            end = Patience(_seconds(patience)).outlast(log.head, refusals=False)
        if end != START:
            raise _taken()
        move = Move("log", url, _new_id())
        _note(folder, move)
        _to_log(store, log, move, patience)
        return _revision(store.writer)


def detach(folder: Path, log: CommitLog, url: str, patience: float | None) -> int:
    """Make the replica in a folder a workspace of its own, and end its log; returns its revision."""
    with _alone(folder, replica=True) as store:
        if read_applied(store.writer) is None:
            raise errors.Invalid(f"{folder} is not a replica of a log", hint="there is nothing to detach")
        Patience(_seconds(patience)).outlast(ErrorMappingLog(log).head)  # while nothing has begun
        move = Move("file", url, _new_id())
        _note(folder, move)
        _to_file(store, log, move, patience)
        return _revision(store.writer)


def finish(
    folder: str | os.PathLike[str], log: CommitLog | None, patience: float | None, busy_timeout: float = _BUSY_TIMEOUT
) -> None:
    """Finish a move whose process has ended. Raises Unreachable if its log is needed for it and is away."""
    place = Path(os.path.realpath(folder))
    with _alone(place, replica=None, busy_timeout=busy_timeout) as store:
        move = _noted(place)
        if move is None:  # another process has finished it meanwhile
            return
        if move.to == "file" and read_applied(store.writer) is None:
            _record_file(place)
            return
        if log is None and not move.url:
            raise errors.Invalid(
                f"{place} was on its way {'to' if move.to == 'log' else 'out of'} a log when its process ended",
                hint="open it with that log to finish: holdfast.open(path, log=...)",
            )
        found = log or address.connect(move.url, create=move.to == "log")  # it was there, or asked for
        try:
            if move.to == "file":
                _to_file(store, found, move, patience, again=True)
            else:
                _to_log(store, ErrorMappingLog(found), move, patience, again=True)
        except errors.Exists:  # the log belongs to others, so this folder never went there
            return
        finally:
            if log is None:
                found.close()


# --- to a log --------------------------------------------------------------------------------------------------------


def _to_log(store: Store, log: CommitLog, move: Move, patience: float | None, *, again: bool = False) -> None:
    """Seed the log, make the store its replica, and record the log. If the log refuses, the note goes."""
    connection = store.writer
    if read_applied(connection) is None:
        try:
            _seed(log, connection, move, Patience(_seconds(patience)), again)
        except (errors.Exists, errors.Invalid):
            _forget(store.folder)
            raise
        except errors.Unreachable:
            if not again:  # an earlier process may have sent it
                _forget(store.folder)
            raise
        reach("move.seeded")
        write_applied(connection, Applied())  # what the first entry has is here: following goes on after it
    reach("move.stored")
    if move.url:
        address.record(store.folder, move.url)
        sync(store.folder)
    reach("move.recorded")
    _forget(store.folder)


def _seed(log: CommitLog, connection: apsw.Connection, move: Move, patience: Patience, again: bool) -> None:
    """Make the store the first entry of the log, once; `again`: an earlier attempt may have done so."""
    row = connection.execute("SELECT workspace, revision FROM meta").fetchone()
    assert row is not None
    workspace, revision = row
    if patience.outlast(log.head) == START:
        blob = patience.outlast(lambda: log.put(serialize(connection, Applied())))
        entry = Snapshotted(move.entry, "", _new_id(), workspace, START, revision, blob)
        try:
            send(log, to_bytes(entry), entry.id, START, patience)
        except LogMoved as moved:
            raise _taken() from moved
    elif not again or patience.outlast(lambda: _workspace_in(log)) != workspace:
        raise _taken()


def _workspace_in(log: CommitLog) -> str:
    """The workspace of a log that has entries."""
    try:
        page = log.tail(START)
    except Trimmed as trimmed:
        page = log.tail(trimmed.oldest)
    if not page:
        raise errors.Unreachable("the log does not deliver its entries yet")
    return from_bytes(page[0][1], page[0][0]).workspace


def _taken() -> errors.Exists:
    return errors.Exists(
        "the log already holds a workspace; this one was not changed",
        hint="choose another name for it, or join that one from a folder without a workspace",
    )


# --- out of a log ----------------------------------------------------------------------------------------------------


def _to_file(store: Store, log: CommitLog, move: Move, patience: float | None, *, again: bool = False) -> None:
    """End the log, make the store one of its own, durably, and forget the log. If the log refuses, the note goes."""
    replica = Replica(log, patience=_seconds(patience))
    try:
        replica.prepare(store, Ids())
        replica.leave(move.entry, f"{socket.gethostname()}:{store.folder}")
    except errors.Closed:  # another node has ended the log
        _forget(store.folder)
        raise
    except (errors.Unreachable, errors.Busy):
        if not again:  # an earlier process may have ended it
            _forget(store.folder)
        raise
    with translated():
        store.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # a replica does not sync its commits
    reach("move.stored")
    _record_file(Path(store.folder))


def _record_file(folder: Path) -> None:
    (folder / LOG_URL).unlink(missing_ok=True)
    sync(folder)
    reach("move.recorded")
    _forget(folder)


# --- the folder ------------------------------------------------------------------------------------------------------


@contextmanager
def _alone(folder: Path, *, replica: bool | None = False, busy_timeout: float = _BUSY_TIMEOUT) -> Iterator[Store]:
    """The store in a folder that nobody else has open, or can open meanwhile. `replica` None: the note says which."""
    require_store(folder)
    with closing(Turns(str(folder))) as turns:
        if not turns.take(busy_timeout):
            raise turns.missed("nothing was changed")
        if replica is None:
            move = _noted(folder)
            replica = move is not None and move.to == "file"
        store = Store(str(folder), durable=True, busy_timeout=busy_timeout, replica=replica)
        with translated():
            store.files.check_alone()
            guard = store.connect(in_turn=True)  # while it is open, whatever happens to the writer, others wait
            try:
                store.files.seclude()
                yield store
            finally:
                store.close()
                guard.close()


def _note(folder: Path, move: Move) -> None:
    write_private(folder / MOVE, msgspec.json.encode(move))
    sync(folder)
    reach("move.noted")


def _noted(folder: Path) -> Move | None:
    try:
        return msgspec.json.decode((folder / MOVE).read_bytes(), type=Move)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise errors.Corrupt(f"{MOVE} in {folder} cannot be read: {error}", hint="restore it from a copy") from error


def _forget(folder: str | os.PathLike[str]) -> None:
    os.unlink(os.path.join(folder, MOVE))
    sync(folder)


def _revision(connection: apsw.Connection) -> int:
    row = connection.execute("SELECT revision FROM meta").fetchone()
    assert row is not None
    return int(row[0])


def _new_id() -> str:
    return Ids().new(SystemClock().wall())


def _seconds(patience: float | None) -> float:
    return PATIENCE if patience is None else patience
