"""The kernel assembled: one open workspace in one process.

Opens or makes the folder, migrates its schema, and connects store, turns, group, hub and pulse. The workspace and its
asyncio form run everything through this object; nothing above it has a connection.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from threading import get_ident
from typing import Any

import apsw

from holdfast import errors
from holdfast.clock import Clock, Now, SystemClock, Wakeable
from holdfast.filesystem import check_writable, hide_from_git, make_folder
from holdfast.ids import Ids
from holdfast.kernel import migrations
from holdfast.kernel.activity import Refusals
from holdfast.kernel.batch import Batch, Writer, follow, nothing
from holdfast.kernel.events import Filter, marks
from holdfast.kernel.group import Exclusive, Group
from holdfast.kernel.journal import Journal
from holdfast.kernel.leases import next_deadline, patience
from holdfast.kernel.process_lock import Turns
from holdfast.kernel.pulse import Pulse
from holdfast.kernel.signals import SHIELD
from holdfast.kernel.store import BEFORE_PURGE, Store, connect_raw
from holdfast.kernel.translation import Diagnosis, NotReady, system_error, translated
from holdfast.kernel.tx import SYSTEM, Snapshot
from holdfast.kernel.validate import check_seconds, check_ttl
from holdfast.kernel.values import MAX_VALUE_BYTES
from holdfast.kernel.wake import Hub, Watcher

MEMORY = ":memory:"
CANNOT_WRITE = (
    errors.ReadOnly,
    errors.DiskFull,
    errors.IOFailed,
    errors.Busy,
    errors.Behind,
    errors.ClockSkew,
    errors.Unreachable,
    errors.OutcomeUnknown,  # of a sweep, whose outcome nobody waits for
)


class Engine:
    """Runs bodies and reads on one workspace."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        busy_timeout: float = 10.0,
        transaction_timeout: float = 5.0,
        max_value_bytes: int = MAX_VALUE_BYTES,
        vfs: str | None = None,
        journal: Journal | None = None,
        ids: Ids | None = None,
        pulse: bool = True,
        brief: bool = False,
    ) -> None:
        check_seconds(busy_timeout, "busy_timeout")
        check_ttl(transaction_timeout, "transaction_timeout")
        if type(max_value_bytes) is not int or max_value_bytes < 1:
            raise errors.Invalid(f"max_value_bytes must be a positive int, not {max_value_bytes!r}")
        if clock is not None and not isinstance(clock, Clock):
            raise errors.Invalid(f"clock must be a holdfast Clock, not {type(clock).__name__}")
        durable = os.fspath(path) != MEMORY
        self.folder = _prepare(os.fspath(path)) if durable else _temporary(self)
        self.clock = clock or SystemClock()
        self._refusals = Refusals(self.folder)
        self.time = Now(self.clock)
        self.transaction_timeout = transaction_timeout
        self.journal = journal
        self._pool: list[Snapshot] = []
        self.diagnosis = Diagnosis(lambda: Snapshot(self.store.connect_reader(), self.time), self.clock)
        self.diagnosis.cure = "" if journal is None else journal.cure
        ids = ids or Ids()
        self._open(durable, busy_timeout, vfs, ids)
        writer = Writer(self.store, self.time, ids, max_value_bytes, journal, self.diagnosis)
        self.group = Group(writer, self.turns, busy_timeout, self._committed, self.refused)
        self.submit = self.group.submit
        self.hub = Hub(self.store, self.time)
        self.store.on_stop = self.hub.wake
        chores = (self.read, self.sweep, self.follow, self.rescue, self.age_out, self.secure)
        self.pulse = Pulse(self.store, self.time, self.hub, *chores, journal)
        # Used by kernel.loop, by the id of the event loop, which its leader keeps alive.
        self.loop_leaders: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        if pulse:
            self.pulse.start(brief)
        _open_engines.add(self)

    def _open(self, durable: bool, busy_timeout: float, vfs: str | None, ids: Ids) -> None:
        """Open the store and the queue of its writers; make it, or bring it up to date."""
        journal, cannot = self.journal, f"the folder {self.folder} cannot be used"
        check_writable(self.folder)
        self.store = Store(
            self.folder, durable=durable, busy_timeout=busy_timeout, vfs=vfs, replica=journal is not None
        )
        try:
            self.turns = Turns(self.folder)
        except OSError as error:
            raise system_error(error, cannot) from error
        try:
            if journal is None:
                _bring_up_to_date(self.store, self.turns, busy_timeout, lambda: ids.new(self.clock.wall()))
            else:
                _join(self.store, self.turns, busy_timeout, journal, ids)
        except BaseException as error:
            self.store.close()
            self.turns.close()
            if isinstance(error, OSError):
                raise system_error(error, cannot) from error
            self.diagnosis.advise(error)
            raise

    # --- writing -----------------------------------------------------------------------------------------------------

    def refused(self, error: errors.HoldfastError, actor: str) -> None:
        """Count a refusal: the error is raised to a caller."""
        self._refusals.add(error, actor, self.clock.wall())

    def sweep(self) -> None:
        """End expired leases, by an empty body: every group sweeps first."""
        self.group.submit(nothing, SYSTEM)

    def follow(self) -> None:
        """On a replica: apply the entries of other nodes."""
        self.group.submit(follow, SYSTEM)

    def rescue(self) -> None:
        """After a loss of the write-ahead log: save what only its open file still has. Never raises."""
        with SHIELD, suppress(errors.Closed):  # closing saves it too
            self.group.lead_alone(Exclusive(nothing, SYSTEM))
            try:
                self.store.rescue()
            except apsw.Error as error:
                errors.warn(f"{self.store.closed}, and could not be saved: {error}")
            finally:
                self.group.pass_on()

    def sweep_if_due(self) -> None:
        """Before a list: sweep if anything has expired. If the store cannot be written, the last sweep counts."""
        if self.due():
            try:
                self.sweep()
            except CANNOT_WRITE:
                return

    def due(self) -> bool:
        """Whether something has expired and is not swept yet."""
        deadline, stamp = self.read(next_deadline)
        return deadline is not None and deadline <= self.time.read(stamp)

    def age_out(self) -> None:
        """Delete old backups that were made before a purge, unless the time cannot be trusted."""

        def look(snapshot: Snapshot) -> tuple[int, bool]:
            stamp = next_deadline(snapshot)[1]
            now = self.time.read(stamp)
            return now, not self.time.has_leaped(stamp, now) and not patience(snapshot, now, self.clock.wall())

        if not any(name.startswith(BEFORE_PURGE) for name in os.listdir(self.folder)):
            return
        now, trusted = self.read(look)
        if trusted:
            from holdfast.kernel.maintenance import age_out

            age_out(self.folder, now)

    def secure(self, newest: int) -> None:
        """Make the backup that a purge waits for, while others write; `newest` is what it must be newer than."""
        from holdfast.kernel.maintenance import back_up_before_purge

        back_up_before_purge(self.store, newest)

    def _committed(self, batch: Batch) -> None:
        if batch.deadline is not None:
            self.pulse.expect(batch.deadline)
        if batch.unsecured is not None:
            self.pulse.want_backup(batch.unsecured)
        if batch.emitted and len(self.hub):
            self.hub.advance()

    # --- reading -----------------------------------------------------------------------------------------------------

    def borrow(self) -> Snapshot:
        """Take a reader from the pool; the caller returns it with `give_back`."""
        self.check_usable()
        try:
            return self._pool.pop()
        except IndexError:
            return Snapshot(self.store.connect_reader(), self.time)

    def give_back(self, snapshot: Snapshot) -> None:
        """Return a reader to the pool; one that was interrupted inside a snapshot is closed."""
        if snapshot.is_held:
            snapshot.close()
        else:
            self._pool.append(snapshot)
        if self.store.closed:
            self._drain()

    def check_usable(self) -> None:
        """Raise Closed after close or fork, Reentrant inside a body, or the error that stopped the store."""
        if self.store.closed:
            raise self.store.refusal()
        self.store.check_sound()
        self.group.check_not_inside()

    def read(self, function: Callable[[Snapshot], Any]) -> Any:
        """Read with one statement, which sees the newest commit."""
        snapshot = self.borrow()
        try:
            return function(snapshot)
        except Exception as error:
            found = self.diagnosis.of(error, snapshot)
            if found is error:
                raise
            raise found from error
        finally:
            self.give_back(snapshot)

    def plain_reader(
        self, function: Callable[..., Any], check_arguments: Callable[[Any, Any], None]
    ) -> Callable[..., Any]:
        """Wrap a read of one statement with as little overhead as possible: this is the hottest path."""
        pool, store, group, time = self._pool, self.store, self.group, self.time

        def call(*args: Any, **kwargs: Any) -> Any:
            if store.closed or store.broken or group.body_thread == get_ident():
                self.check_usable()
            try:
                snapshot = pool.pop()
            except IndexError:
                snapshot = Snapshot(store.connect_reader(), time)
            try:
                return function(snapshot, *args, **kwargs)
            except Exception as error:
                if isinstance(error, TypeError):
                    check_arguments(args, kwargs)
                found = self.diagnosis.of(error, snapshot)
                if found is error:
                    raise
                raise found from error
            finally:
                pool.append(snapshot)
                if store.closed:
                    self._drain()

        return call

    def reach(self, revision: int | None) -> None:
        """On a replica: catch up with a revision that the caller has seen, or with the end of the log (None).

        A log without that revision is not an error here: the read that follows reports it.
        """
        if self.journal is None or (revision is not None and self.read(marks)[0] >= revision):
            return
        end = self.journal.end()
        if self.journal.has_reached(end):
            return
        for _ in self.journal.looks():
            self.follow()
            if self.journal.has_reached(end):
                return
        raise errors.Behind("the log does not deliver all of its entries to this node")

    def read_snapshot(self, function: Callable[[Snapshot], Any]) -> Any:
        """Read with several statements that see the same commit."""

        def within(snapshot: Snapshot) -> Any:
            snapshot.hold()
            try:
                return function(snapshot)
            finally:
                snapshot.let_go()

        return self._having_reached(lambda: self.read(within))

    def watch(self, wanted: Filter, after: int | str | None, signal: Wakeable) -> Watcher:
        """Return a watcher that starts now or after a cursor, which on a replica may come from another node."""
        watcher: Watcher = self._having_reached(lambda: self.hub.watch(wanted, after, signal))
        return watcher

    def _having_reached(self, look: Callable[[], Any]) -> Any:
        """Call `look`; if this replica is behind, catch up and call it again."""
        try:
            return look()
        except errors.Behind as behind:
            if self.journal is None or "wanted" not in behind.details:
                raise
            self.reach(behind.wanted)
            return look()

    def checkpoint(self) -> None:
        """Checkpoint the write-ahead log as far as no reader needs it, without waiting."""
        self.check_usable()
        with translated(), suppress(apsw.BusyError), closing(self.store.connect()) as connection:
            connection.set_busy_timeout(0)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)  # busy: another process is doing it

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Finish the queued calls, then close. Calling it again, or in a forked child, does nothing."""
        if self.store.closed and not self.store.lost:
            return
        self.pulse.finish()
        with SHIELD:
            try:
                self.group.lead_alone(Exclusive(nothing, SYSTEM))
            except errors.Closed:
                return  # another thread closed it meanwhile
            self.store.shut()
            self.group.shut()
            self.hub.close()
            self.pulse.stop()
            self._drain()
            self.store.close()
            self.turns.close()
            if self.journal is not None:
                self.journal.close()
            _open_engines.discard(self)
            self._cleanup()

    def _drain(self) -> None:
        while self._pool:
            self._pool.pop().close()

    _cleanup: Callable[[], object] = staticmethod(lambda: None)

    def abandon(self) -> None:
        """In a forked child: drop the inherited locks, and leave the parent's connections alone."""
        self.store.abandon()
        self.turns.abandon()
        if self.group.writer.tx is not None:
            self.group.writer.tx.end()


def _prepare(folder: str) -> str:
    from holdfast.filesystem import check_place

    if not folder or "\0" in folder:
        raise errors.Invalid(
            f"{folder!r} is not the path of a folder", hint='use a folder of its own, such as ".holdfast"'
        )
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise errors.Invalid(f"{folder} is a file", hint="a workspace is a folder; choose another path")
    try:
        folder = os.path.realpath(folder)
        check_place(folder)
        make_folder(folder)
        hide_from_git(folder)
    except OSError as error:
        raise system_error(error, f"the folder {folder} cannot be used") from error
    return folder


def _temporary(engine: Engine) -> str:
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="holdfast-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child must not remove its parent's store
            shutil.rmtree(folder, ignore_errors=True)

    engine._cleanup = weakref.finalize(engine, remove)
    return folder


def _join(store: Store, turns: Turns, busy_timeout: float, journal: Journal, ids: Ids) -> None:
    """Make or open the replica of a log, one process at a time."""
    if not turns.take(busy_timeout):
        raise turns.missed("the workspace was not opened, because the replica had to catch up")
    try:
        with translated():
            store.files.check_whole(marks=False)
            _refuse_foreign(store.path)
            journal.open(store, ids)
    finally:
        turns.give()


def _bring_up_to_date(store: Store, turns: Turns, busy_timeout: float, name: Callable[[], str]) -> None:
    """Make the store, or run missing migrations, one process at a time; an up-to-date store needs no turn."""
    with translated():
        if _is_current(store):
            return
        if not turns.take(busy_timeout):
            raise turns.missed("the workspace was not opened, because it had to be made or migrated")
        try:
            store.files.check_whole(marks=True)
            _refuse_foreign(store.path)
            migrations.migrate(store.create(), migrations.load(), name())
        finally:
            turns.give()


def _refuse_foreign(path: str) -> None:
    """Look before changing any setting: another program's database is left as it is."""
    if os.path.exists(path):
        try:
            _look(path, apsw.SQLITE_OPEN_READONLY)
        except apsw.ReadOnlyError:  # its maker died midway: the unfinished transaction must be rolled back first
            _look(path, apsw.SQLITE_OPEN_READWRITE)


def _look(path: str, flags: int) -> None:
    with closing(connect_raw(path, flags)) as connection:
        migrations.schema_of(connection)


def _is_current(store: Store) -> bool:
    try:
        current = migrations.schema_of(store.open_writer()) >= migrations.known()
    except NotReady:
        return False
    if current:
        migrations.refuse_replica(store.writer)
    return current


_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _abandon_all() -> None:
    for engine in list(_open_engines):
        engine.abandon()


def _pause_all() -> None:
    for engine in list(_open_engines):
        engine.pulse.pause()


def _resume_all() -> None:
    for engine in list(_open_engines):
        engine.pulse.resume()


if hasattr(os, "register_at_fork"):
    # A thread of ours inside SQLite at the fork would leave a mutex locked for ever in the child.
    os.register_at_fork(before=_pause_all, after_in_parent=_resume_all, after_in_child=_abandon_all)
