"""The laws of cells, leases, locks, keys and events as plain Python: dictionaries and one list of events.

The state machine runs each operation here and on a workspace and wants the same answer. Everything is spelled out
from the requirements; nothing is shared with the implementation but the types of the answers and errors. An operation
`cells.set` is the method `cells_set`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.types import (
    Cell,
    Condition,
    DerivedActor,
    Event,
    Exists,
    Grant,
    Lease,
    NotExists,
    Op,
    TxnResult,
    ValueEquals,
    VersionEquals,
    as_time,
)
from tests.conformance.model_base import CellRow, Kept, LeaseRow, Ledger, LockRow, exact

DAY = 24 * 3600 * 1_000_000
FAR_AHEAD = 5 * 60 * 1_000_000


class Model(Ledger):
    """A workspace as its users imagine it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.next_lease = ""  # ids are random: the store chooses

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, actor: str, op: str, args: dict[str, Any], fence: tuple[str, int] | None, key: str | None) -> Any:
        """One operation in its context: first the key, then the fence, then the work."""

        def body() -> Any:
            place = (actor, op, key or "")
            kept = self.state.keys.get(place) if key else None
            if kept is not None and max(kept.expires, self.calm + DAY) > self.now:
                if kept.arguments != exact(args):
                    raise errors.Invalid()
                return kept.answer
            if fence is not None:
                self.check_fence(actor, *fence)
            answer = self.perform(op, args)
            if key:  # what is over is forgotten, also if the clock is put back later
                if self.calm <= self.now - DAY:
                    self.state.keys = {each: kept for each, kept in self.state.keys.items() if kept.expires > self.now}
                self.state.keys[place] = Kept(exact(args), answer, self.now + DAY)
            return answer

        return self.transact(actor, body)

    def perform(self, op: str, args: dict[str, Any]) -> Any:
        """An operation inside the transaction in progress."""
        return getattr(self, op.replace(".", "_"))(**args)

    def sweep(self) -> None:
        """End what is due, in the order of the deadlines."""
        due = [lease for lease in self.state.leases if lease.deadline <= self.time()]
        if due:
            due.sort(key=lambda lease: (lease.deadline, self.place_of(lease)))  # stable: then in the order of creation

            def body() -> None:
                for lease in due:
                    self._finish(lease, "expire")

            self.transact("system", body)

    def place_of(self, lease: LeaseRow) -> int:
        """Of leases that end at the same moment, those of tasks come first.

        Deferrals begin with the youngest task, claims follow from the oldest on.
        """
        made = list(self.state.tasks)
        if lease.defers:
            return -1 - made.index(lease.defers)
        return made.index(lease.task) if lease.task else len(made)

    # --- cells -------------------------------------------------------------------------------------------------------

    def _put(self, run: str, cell: str, value: Any, op: str, lease: LeaseRow | None) -> int:
        old = self.state.cells.get((run, cell))
        before = old.version if old else max(self.newest("cell", run, cell), self.newest("run", "", run))
        self.state.cells[run, cell] = CellRow(value, before + 1, self.revision + 1, self.now, lease)
        return self.emit("cell", run, cell, op, {"value": value}, before + 1)

    def _keep(self, run: str, cell: str, value: Any, op: str) -> int:
        """Write and leave the expiry as it is."""
        old = self.state.cells.get((run, cell))
        return self._put(run, cell, value, op, old.lease if old else None)

    def _remove(self, run: str, cell: str, op: str) -> int:
        old = self.state.cells.pop((run, cell))
        self._drop(old.lease)
        return self.emit("cell", run, cell, op, {}, old.version + 1)

    def _cell(self, run: str, cell: str) -> Cell:
        row = self.state.cells.get((run, cell))
        if row is None:
            raise errors.NotFound()
        return Cell(row.value, row.version, row.revision, as_time(row.updated))

    def find(self, run: str, cell: str) -> Cell | None:
        """The cell as a reader sees it."""
        return self._cell(run, cell) if (run, cell) in self.state.cells else None

    def cells_get(self, run: str, cell: str) -> Cell:
        return self._cell(run, cell)

    def cells_set(self, run: str, cell: str, value: Any, ttl: float | None = None, lease: str | None = None) -> int:
        bound = None if lease is None else self._user_lease(lease)
        old = self.state.cells.get((run, cell))
        if old is not None:
            self._drop(old.lease)
        if ttl is not None:
            bound = self._start(ttl)
        return self._put(run, cell, value, "set", bound)

    def cells_cas(self, run: str, cell: str, expected: int | None, value: Any) -> int:
        self._expect(run, cell, expected)
        return self._keep(run, cell, value, "cas")

    def _expect(self, run: str, cell: str, expected: int | None) -> None:
        old = self.state.cells.get((run, cell))
        if (old.version if old else None) != expected:
            raise errors.VersionMismatch(
                expected=expected, version=old.version if old else None, value=old.value if old else None
            )

    def cells_compare_and_delete(self, run: str, cell: str, expected: int) -> int:
        self._expect(run, cell, expected)
        return self._remove(run, cell, "delete")

    def cells_init(self, run: str, cell: str, value: Any) -> int:
        old = self.state.cells.get((run, cell))
        if old is not None:
            raise errors.Exists(version=old.version, value=old.value)
        return self._keep(run, cell, value, "init")

    def cells_get_or_init(self, run: str, cell: str, default: Any) -> Cell:
        if (run, cell) not in self.state.cells:
            self._keep(run, cell, default, "init")
        return self._cell(run, cell)

    def cells_delete(self, run: str, cell: str) -> bool:
        if (run, cell) not in self.state.cells:
            return False
        self._remove(run, cell, "delete")
        return True

    def cells_delete_run(self, run: str) -> int:
        gone = sorted(cell for of, cell in self.state.cells if of == run)
        for cell in gone:
            self._remove(run, cell, "delete")
        versions = [v for (kind, scope, _), v in self.state.newest.items() if (kind, scope) == ("cell", run)]
        if max(versions, default=0) > self.newest("run", "", run):
            self.emit("run", "", run, "delete", {}, max(versions))
        return len(gone)

    def cells_increment(self, run: str, cell: str, delta: float = 1) -> float:
        old = self.state.cells.get((run, cell))
        value: Any = old.value if old else 0
        if type(value) not in (int, float):
            raise errors.InvalidValue()
        self._keep(run, cell, value + delta, "increment")
        answer: float = value + delta
        return answer

    def cells_transition(self, run: str, cell: str, fn: Callable[[Any], Any]) -> Cell:
        self._keep(run, cell, fn(self._cell(run, cell).value), "transition")
        return self._cell(run, cell)

    def cells_transition_or_init(self, run: str, cell: str, initial: Any, fn: Callable[[Any], Any]) -> Cell:
        self.cells_get_or_init(run, cell, initial)
        return self.cells_transition(run, cell, fn)

    def cells_refresh_ttl(self, run: str, cell: str, ttl: float) -> bool:
        old = self.state.cells.get((run, cell))
        if old is None:
            return False
        self._drop(old.lease)
        old.lease = self._start(ttl)
        return True

    def history(self, run: str, cell: str) -> list[Event]:
        """The events of a cell, newest first."""
        return [e for e in reversed(self.events) if (e.kind, e.scope, e.id) == ("cell", run, cell)]

    def cells_restore(self, run: str, cell: str, version: int) -> int:
        for event in self.history(run, cell):
            if event.version == version and "value" in event.data:
                return self._keep(run, cell, event.data["value"], "restore")
        raise errors.NotFound()

    # --- leases ------------------------------------------------------------------------------------------------------

    def _start(self, ttl: float, holder: str = "", id: str = "") -> LeaseRow:
        micros = round(ttl * 1e6)
        lease = LeaseRow(id, holder, micros, self.now + micros, self.now)
        self.state.leases.append(lease)
        return lease

    def _drop(self, lease: LeaseRow | None) -> None:
        if lease is not None and not lease.user:
            self.state.leases.remove(lease)

    def _user_lease(self, id: str) -> LeaseRow:
        for lease in self.state.leases:
            if lease.user and lease.id == id:
                return lease
        raise errors.NotFound()

    def _finish(self, lease: LeaseRow, op: str) -> None:
        """End a lease and all that hangs on it."""
        self.state.leases.remove(lease)
        for (run, cell), row in sorted(self.state.cells.items(), key=lambda item: item[0]):
            if row.lease is lease:
                row.lease = None
                self._remove(run, cell, op)
        for name in [name for name, lock in self.state.locks.items() if lock.lease is lease]:
            self.state.locks[name].lease = None
            self._free(name, op)
        if lease.user:
            self.emit("lease", "", lease.id, op, {})

    @staticmethod
    def lease_of(row: LeaseRow) -> Lease:
        """A lease as users see it."""
        return Lease(row.id, row.holder, row.ttl / 1e6, as_time(row.created), as_time(row.deadline))

    def leases_create(self, ttl: float) -> Lease:
        lease = self._start(ttl, self.actor, self.next_lease)
        self.emit("lease", "", lease.id, "create", {}, 1)
        return self.lease_of(lease)

    def _own_lease(self, id: str, holder: str | None) -> LeaseRow:
        lease = self._user_lease(id)
        if lease.holder != (holder or self.actor):
            raise errors.NotHolder(holder=lease.holder)
        return lease

    def leases_refresh(self, id: str, holder: str | None = None) -> Lease:
        lease = self._own_lease(id, holder)
        lease.deadline = self.now + lease.ttl
        return self.lease_of(lease)

    def leases_revoke(self, id: str, holder: str | None = None) -> None:
        self._finish(self._own_lease(id, holder), "revoke")

    # --- locks -------------------------------------------------------------------------------------------------------

    def grant(self, name: str) -> Grant | None:
        """The lock as a reader sees it."""
        lock = self.state.locks.get(name)
        if lock is None:
            return None
        until = as_time(lock.lease.deadline) if lock.lease else None
        return Grant(name, lock.holder, lock.token, as_time(lock.acquired), until)

    def locks_acquire(self, name: str, holder: str, ttl: float | None = None, lease: str | None = None) -> Grant | None:
        bound = None if lease is None else self._user_lease(lease)
        lock = self.state.locks.get(name)
        if lock is None:
            token = (self.revision + 1) * 4096 + self._grants
            self._grants += 1
            self.state.locks[name] = LockRow(holder, token, self.now, bound if ttl is None else self._start(ttl))
            self.emit("lock", "", name, "acquire", {"holder": [None, holder], "token": [None, token]})
        elif lock.holder != holder:
            raise errors.Held(holder=lock.holder, until=as_time(lock.lease.deadline) if lock.lease else None)
        else:
            self._enter_again(lock, ttl, bound)
        return self.grant(name)

    def _enter_again(self, lock: LockRow, ttl: float | None, bound: LeaseRow | None) -> None:
        """The token stays; the later end wins, and 'until released' is the latest."""
        if ttl is None:
            self._drop(lock.lease)
            lock.lease = bound
        elif lock.lease is not None:
            self._not_shared(lock)
            if self.now + round(ttl * 1e6) > lock.lease.deadline:
                lock.lease.ttl = round(ttl * 1e6)
                lock.lease.deadline = self.now + lock.lease.ttl

    @staticmethod
    def _not_shared(lock: LockRow) -> None:
        if lock.lease is not None and lock.lease.user:
            raise errors.Invalid()

    def _own(self, name: str, holder: str, token: int | None) -> LockRow:
        lock = self.state.locks.get(name)
        if lock is None:
            raise errors.Fenced(current=None)
        if token is not None and token != lock.token:
            raise errors.Fenced(current=lock.token)
        if lock.holder != holder:
            raise errors.NotHolder(holder=lock.holder)
        return lock

    def locks_release(self, name: str, holder: str, token: int | None = None) -> bool:
        if name not in self.state.locks and token is None:
            return False
        self._own(name, holder, token)
        self._free(name, "release")
        return True

    def _free(self, name: str, op: str) -> None:
        lock = self.state.locks.pop(name)
        self._drop(lock.lease)
        self.emit("lock", "", name, op, {"holder": [lock.holder, None], "token": [lock.token, None]})

    def locks_refresh(self, name: str, holder: str, ttl: float | None = None, token: int | None = None) -> Grant | None:
        lock = self._own(name, holder, token)
        if lock.lease is not None:
            self._not_shared(lock)
            lock.lease.ttl = lock.lease.ttl if ttl is None else round(ttl * 1e6)
            lock.lease.deadline = self.now + lock.lease.ttl
        elif ttl is not None:
            lock.lease = self._start(ttl)
        return self.grant(name)

    def locks_check(self, name: str, token: int) -> None:
        lock = self.state.locks.get(name)
        if lock is None or lock.token != token:
            raise errors.Fenced(current=lock.token if lock else None)

    def check_fence(self, actor: str, name: str, token: int) -> None:
        """C15: the lock is held with this token, and by the caller; one that chose no name is nobody else."""
        self.locks_check(name, token)
        if actor != (holder := self.holder_of(name)) and not isinstance(actor, DerivedActor):
            raise errors.NotHolder(holder=holder)

    def holder_of(self, name: str) -> str:
        return self.state.locks[name].holder

    # --- txn and the clock -------------------------------------------------------------------------------------------

    def txn(self, conditions: Sequence[Condition], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> TxnResult:
        succeeded = all(self._holds(condition) for condition in conditions)
        return TxnResult(succeeded, [self.perform(op.op, op.args) for op in (then if succeeded else otherwise)])

    def _holds(self, condition: Condition) -> bool:
        version: int | None = None
        value: Any = None
        if condition.kind == "cell":
            run, cell = tuple(condition.key)
            found = self.state.cells.get((run, cell))
            version, value = (found.version, found.value) if found else (None, None)
        else:
            lock = self.state.locks.get(str(condition.key))
            version, value = (lock.token, lock.holder) if lock else (None, None)
        match condition:
            case Exists():
                return version is not None
            case NotExists():
                return version is None
            case VersionEquals(version=wanted):
                return version == wanted
            case ValueEquals(value=wanted):
                return version is not None and bool(exact(value) == exact(wanted))
        raise AssertionError(condition)

    def clock_reset(self) -> Any:
        before, after = self.now, self.clock.wall()
        if before - after <= FAR_AHEAD:
            raise errors.Invalid()
        for lease in self.state.leases:
            lease.deadline += after - before
            lease.created += after - before
        self.now = self.calm = after
        self.emit("clock", "", "clock", "reset", {"time": [before, after]})
        return as_time(after)
