"""A node of a replicated workspace: a SQLite replica that follows a shared log and writes through it.

A group runs on the replica; its changeset is appended to the log on the condition that no other node has appended
meanwhile; only then does the replica commit. Every write has seen the whole log when it returns; reads are local.
`Replica` is the journal of the engine: the batch calls it under the turn.

`WriterFairness` keeps writers from colliding. Correctness does not rest on it: the first to append wins, and the others
run again. A node lets recent writers go first whose last write is older than its own, waits about as long as one of its
own groups takes, and then writes anyway; a node that did not write meanwhile is not waited for again until it writes.

`Skew` protects leases from a wrong clock. Reading the log's time with every write would be slow, so a node reads it
every few seconds, and at once when its wall clock and its monotonic clock disagree about the time since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import apsw
import msgspec

from holdfast import errors
from holdfast.clock import Clock, Signal, SystemClock, Wakeable
from holdfast.ids import Ids
from holdfast.kernel import migrations
from holdfast.kernel.failpoints import reach
from holdfast.kernel.journal import LogMoved
from holdfast.kernel.store import Store
from holdfast.kernel.validate import check_seconds
from holdfast.replication import follower
from holdfast.replication.follower import Applied, Follower, applied_after, digest, is_shared
from holdfast.replication.log import (
    PATIENCE,
    START,
    AnyEntry,
    Changes,
    CommitLog,
    Detached,
    Entry,
    ErrorMappingLog,
    Migrated,
    Patience,
    Snapshotted,
    Trimmed,
    engine_of,
    seal,
    send,
    to_bytes,
)
from holdfast.replication.snapshots import Snapshots, check_log
from holdfast.types import NodeState

_REMEMBERED = 8  # entries whose writers are remembered
_MIN_WAIT = 0.0005
_MAX_WAIT = 0.02
_GROUPS = 3  # wait as long as this many groups of our own take
_STEADINESS = 0.8  # weight of the old average


class WriterFairness:
    """The recent writers, and whether this node may write now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: deque[str] = deque(maxlen=_REMEMBERED)
        self._took = 0.0  # moving average of seconds from the start of a group to its append
        self._began = 0

    def begins(self) -> None:
        """Note that a group of this node begins."""
        self._began = self._clock.monotonic()

    def wrote(self, node: str) -> None:
        """Note that a group of this node was appended."""
        took = min((self._clock.monotonic() - self._began) / 1e6, _MAX_WAIT)
        self._took = _STEADINESS * self._took + (1 - _STEADINESS) * took
        self.saw(node)

    def saw(self, node: str) -> None:
        """Note that a node has written."""
        self._recent.append(node)

    def forget_idle(self) -> None:
        """Forget the writers that were let go first but did not write, until they write again."""
        self._recent.clear()

    def is_turn_of(self, node: str) -> bool:
        """Whether no other node should go first."""
        newest_first = list(dict.fromkeys(reversed(self._recent)))
        return node not in newest_first or newest_first[-1] == node

    @property
    def max_wait(self) -> float:
        """Real seconds to wait for another node's group, which takes about as long as ours."""
        return min(_MAX_WAIT, max(_MIN_WAIT, _GROUPS * self._took))


ALLOWED = 1_000_000
_ASK_EVERY = 5_000_000
_JUMP = 100_000
_ASKS = 5


class Skew:
    """How far this node's clock is from the log's."""

    def __init__(self, log: CommitLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._asked: tuple[int, int] | None = None  # monotonic time of the last good reading, and wall minus monotonic

    def check(self) -> None:
        """Raise ClockSkew if this node must not write."""
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        if self._asked is not None:
            when, offset = self._asked
            if monotonic - when < _ASK_EVERY and abs(wall - monotonic - offset) < _JUMP:
                return
        self._asked = None
        for _ in range(_ASKS):
            wall, monotonic = self._clock.wall(), self._clock.monotonic()
            time = self._log.time()
            # The log read its clock at some moment between these two: a long one says little, and a clock that jumped
            # meanwhile says nothing.
            later, took = self._clock.wall(), self._clock.monotonic() - monotonic
            ahead, behind = wall - time, time - later
            if took <= ALLOWED and abs(later - wall - took) < _JUMP:
                break
        else:
            if took > ALLOWED:
                message = (
                    f"the log takes {took / 1e6:.1f} s to answer, too long to compare this machine's clock with its"
                )
                raise errors.Unreachable(message)
            raise errors.ClockSkew("this machine's clock jumps again and again; it may not write", skew=ahead / 1e6)
        if max(ahead, behind) > ALLOWED:
            seconds, side = max(ahead, behind) / 1e6, "ahead of" if ahead > behind else "behind"
            message = f"this machine's clock is {seconds:.1f} s {side} the log's; it may not write"
            raise errors.ClockSkew(message, skew=ahead / 1e6)
        self._asked = (monotonic, wall - monotonic)


class Ear:
    """Passes the wake-ups of a log on to a waiter, except the one that an append of this node itself causes.

    It may pass on one too many, or keep back one of another node that came first; the pulse also looks by itself.
    """

    def __init__(self, waiter: Wakeable) -> None:
        self._waiter = waiter
        self._own = False  # a wake-up is due to our own append

    def expect(self, own: bool) -> None:
        """An append of this node begins, or has failed."""
        self._own = own

    def set(self) -> None:
        """The log may have moved."""
        if self._own:
            self._own = False
        else:
            self._waiter.set()


_TRIES = 50
_WAITS = 64
_BACKGROUND = 1.0  # most seconds that a sweep, for which no caller waits, holds the turn

_away: set[str] = set()  # folders whose log was away when this process opened them, and has not been reached since

E = TypeVar("E", bound=Entry)


class Replica:
    """The journal of one node."""

    cure = follower.REBUILD

    def __init__(
        self,
        log: CommitLog,
        clock: Clock | None = None,
        *,
        snapshot_every: int | None = None,
        fair: bool = True,
        steps: Sequence[migrations.Migration] | None = None,
        patience: float = PATIENCE,
        timer: Clock | None = None,
        owns: bool = False,
    ) -> None:
        check_log(log)
        check_seconds(patience, "patience")
        self._log = log = ErrorMappingLog(log)
        self._clock = clock or SystemClock()
        self._skew = Skew(log, self._clock)
        self._fairness = WriterFairness(self._clock)
        self._fair = fair
        self._signal = Signal()
        self._ears: dict[Wakeable, Ear] = {}
        self._steps = migrations.load() if steps is None else steps
        self._follower = Follower(log, self._steps, self._fairness.saw)
        self._snapshots = Snapshots(log, snapshot_every)
        self._settled = False  # the log is known to be the one of this replica
        self._owns = owns  # the log is closed with this node
        self._seconds = patience
        self._timer = timer or SystemClock()  # real time: a log that is away does not know of tests
        self._patience = self._patience_of(writing=True)  # of the write in progress
        self._outrun = False  # another node was first, and the log may not show its entry yet
        self._known_end = START  # how far the log must show its entries before bodies run again
        self._next = Applied()  # the place after the pending commit
        self._session: apsw.Session | None = None
        self._current_at = self._timer.monotonic()  # when this node last had all that the log showed
        self._appends = self._moved = self._paused = 0

    def state(self, ask: bool) -> NodeState:
        """From any thread: how this node is; with `ask` the log says where it ends, and how durable it is."""
        end, doubts, away = None, list[str](), ""
        if ask:
            try:
                end, doubts = self._log.head(), [*self._log.durability()]
            except errors.Unreachable as error:
                away = error.message if error.retryable else str(error)
        return NodeState(
            node=self.node,
            engine=engine_of(self._log),
            position=self._follower.place.position,
            end=end,
            away=away,
            doubts=doubts,
            behind=(self._timer.monotonic() - self._current_at) / 1e6,
            appends=self._appends,
            moved=self._moved,
            patience=self._paused / 1e6,
        )

    def _note_pause(self, microseconds: int) -> None:
        self._paused += microseconds

    # --- opening -----------------------------------------------------------------------------------------------------

    def open(self, store: Store, ids: Ids) -> None:
        """Make the replica, from a snapshot if there is one, or catch up. The first node makes the workspace."""
        self.prepare(store, ids)
        self._patience = self._patience_of(writing=not self._follower.workspace)
        try:
            self._patience.outlast(self._settle)
        except errors.Unreachable as error:
            if not self._follower.workspace:
                raise
            if store.folder not in _away:  # a command opens it several times
                _away.add(store.folder)
                errors.warn(f"the log cannot be reached; this node answers reads from its replica: {error}")

    def prepare(self, store: Store, ids: Ids) -> None:
        """Read how far the store has followed the log, and ask the log for nothing yet."""
        self._store, self._ids = store, ids
        self.node = ids.new(self._clock.wall())
        store.create()
        self._follower.open(store)
        self._follower.check_schema()

    def _settle(self) -> None:
        """Once, as soon as the log can be reached: check that it is ours, catch up and migrate."""
        if not self._follower.workspace:
            self._follower.join(self._patience)
        self._follower.check_same_log(self._patience)
        self._follower.follow(self._patience)
        self._follower.check_schema()
        try:
            self.migrate(lock_out=not self._follower.workspace)  # a new workspace has no other nodes
        except errors.OutcomeUnknown as error:  # of the migration, not of the caller's write
            raise errors.Unreachable(error.message) from error
        self._store.domain = self._follower.workspace
        self._settled = True
        _away.discard(self._store.folder)

    def migrate(self, lock_out: bool) -> int:
        """Append the migrations that the workspace lacks, each as an entry of its own; returns the schema."""
        for _ in range(_TRIES + len(self._steps)):
            schema = migrations.schema_of(self._store.writer)
            todo = self._steps[schema : schema + 1]
            if not todo or (schema and not lock_out and todo[0].locks_out(schema)):
                return schema
            try:
                self._append_migration(todo[0])
            except LogMoved:
                self._follower.follow(self._patience)
                lock_out &= schema > 0  # another node has made the workspace, perhaps with an older program
        raise errors.Busy("other nodes kept writing while the schema had to be migrated")

    def _append_migration(self, step: migrations.Migration) -> None:
        workspace = self._follower.workspace or self._ids.new(self._clock.wall())
        with self._follower.transaction() as connection:
            migrations.apply(connection, step, workspace)
            reach("migration.apply")
            self._send(connection, self._entry(Migrated, workspace=workspace, number=step.number, digest=digest(step)))
        self._follower.workspace = workspace
        self._follower.place = self._next
        reach("migration.committed")

    # --- following ---------------------------------------------------------------------------------------------------

    def catch_up(self, writing: bool) -> bool:
        """Apply the entries of other nodes. True if there were any."""
        self._store.check_sound()
        self._patience = self._patience_of(writing)
        self._follower.read_place()
        before = self._follower.place
        self._patience.outlast(self._follow)
        if writing and self._fair:
            self._give_way(before)
            self._fairness.begins()
        return self._follower.place != before

    def _follow(self) -> None:
        if not self._settled:
            self._settle()
        self._follower.follow(self._patience, self._known_end)
        self._current_at = self._timer.monotonic()
        if self._snapshots.announcement is not None:
            self._announce()

    def _patience_of(self, writing: bool) -> Patience:
        """How long to wait for the log: a caller waits for what it asked for, nobody for anything else."""
        seconds = self._seconds if writing else min(self._seconds, _BACKGROUND)
        return Patience(seconds, timer=self._timer, signal=self._signal, outages=writing, paused=self._note_pause)

    def _give_way(self, before: Applied) -> None:
        """Let nodes go first that have waited longer, and wait until the entry of a node that was first is visible."""
        if self._outrun and self._follower.place == before:
            self._signal.wait(self._fairness.max_wait)
        self._outrun = False
        for _ in range(_WAITS):
            if self._fairness.is_turn_of(self.node):
                return
            if not self._signal.wait(self._fairness.max_wait):
                self._fairness.forget_idle()
                return
            self._patience.outlast(self._follow)

    def has_news(self) -> bool:
        try:
            if self._snapshots.announcement is not None or self._follower.news():
                return True
        except Trimmed:
            return True
        self._current_at = self._timer.monotonic()
        return False

    def end(self) -> int:
        return Patience(self._seconds, timer=self._timer, paused=self._note_pause).outlast(self._log.head)

    def looks(self) -> Iterator[None]:
        return Patience(self._seconds, timer=self._timer, paused=self._note_pause).looks()

    def has_reached(self, end: int) -> bool:
        return self._follower.place.position >= end

    # --- writing -----------------------------------------------------------------------------------------------------

    def check_clock(self) -> None:
        self._patience.outlast(self._skew.check)

    def record(self, connection: apsw.Connection) -> None:
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
        self._expect_own(True)
        try:
            self._send(connection, self._entry(Changes, revision=row[0], changeset=changeset))
        except BaseException as error:
            self._expect_own(False)
            if isinstance(error, LogMoved):
                self._outrun = True
                self._moved += 1
            raise
        reach("log.appended")
        return True

    def _expect_own(self, own: bool) -> None:
        for ear in list(self._ears.values()):
            ear.expect(own)

    def appended(self) -> None:
        self.forget()
        self._appends += 1
        self._follower.place = self._next
        self._snapshots.consider(self._next)
        self._fairness.wrote(self.node)

    def forget(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def confirm(self) -> None:
        end = self._patience.outlast(self._log.head)
        if end != self._follower.place.position:
            self._outrun, self._known_end = True, end
            self._moved += 1
            raise LogMoved

    def _entry(self, kind: type[E], **facts: Any) -> E:
        facts = {"workspace": self._follower.workspace, **facts}
        previous = self._follower.place.entry
        return kind(id=self._ids.new(self._clock.wall()), previous=previous, node=self.node, **facts)

    def _send(self, connection: apsw.Connection, entry: AnyEntry) -> None:
        """Append an entry after this node's place, and write the new place; the caller commits."""
        raw, here = to_bytes(entry), self._follower.place
        if len(raw) > self._log.max_entry and isinstance(entry, Changes):
            sealed = seal(entry.changeset)
            blob = self._patience.outlast(lambda: self._log.put(sealed))
            raw = to_bytes(msgspec.structs.replace(entry, changeset=b"", blob=blob))
        position = send(self._log, raw, entry.id, here.position, self._patience)
        self._next = applied_after(here, position, entry)
        follower.write_applied(connection, self._next)

    def leave(self, id: str, folder: str) -> None:
        """End the log with an entry of this id, once this node has all of it; its store is no replica any more."""
        self._patience = self._patience_of(writing=True)
        self._follower.leaving = id
        self._patience.outlast(self._settle)
        for _ in range(_TRIES):
            try:
                with self._follower.transaction() as connection:
                    if not self._follower.has_left:
                        row = connection.execute("SELECT revision FROM meta").fetchone()
                        assert row is not None
                        entry = self._entry(Detached, revision=row[0], folder=folder)
                        self._send(connection, msgspec.structs.replace(entry, id=id))
                        reach("move.ended")
                    connection.execute("DELETE FROM local_replica")
                return
            except LogMoved:
                self._follower.follow(self._patience)
        raise errors.Busy("other nodes kept writing to the log")

    # --- upkeep ------------------------------------------------------------------------------------------------------

    def needs_upkeep(self) -> bool:
        return self._snapshots.due

    def maintain(self) -> None:
        if self._snapshots.due:
            with closing(self._store.connect_reader()) as connection:
                self._snapshots.make(connection)

    def _announce(self) -> None:
        """Announce a snapshot in the log, and trim what no node needs. If another node is first, retry next time."""
        announcement, before = self._snapshots.announcement, self._follower.place.snapshot
        assert announcement is not None
        if before >= announcement.position:  # a newer one is known, and this one's blob may be gone
            self._snapshots.announcement = None
            return
        try:
            with self._follower.transaction() as connection:
                self._send(connection, self._entry(Snapshotted, **announcement._asdict()))
        except LogMoved:
            return
        except errors.OutcomeUnknown as error:  # of this entry, not of the caller's write, which has not begun
            raise errors.Unreachable(error.message) from error
        self._follower.place = self._next
        if self._snapshots.announcement is announcement:  # otherwise a newer one was made meanwhile
            self._snapshots.announcement = None
        reach("snapshot.announced")
        self._log.trim(before)

    def close(self) -> None:
        if self._owns:
            self._log.close()

    def enroll(self, waiter: Wakeable) -> None:
        ear = self._ears[waiter] = Ear(waiter)
        self._log.enroll(ear)
        self._log.enroll(self._signal)

    def dismiss(self, waiter: Wakeable) -> None:
        if (ear := self._ears.pop(waiter, None)) is not None:
            self._log.dismiss(ear)
        self._log.dismiss(self._signal)
