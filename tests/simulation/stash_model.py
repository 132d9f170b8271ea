"""The laws of stashes as plain Python, on top of the model of tasks, path locks and mail.

Spelled out from the requirements, S2 to S10; nothing is shared with the implementation but the types of the answers and
errors. What is random, the store chooses: the ids of stashes, links and history entries. Trails are in `trail_model`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.types import Grant, as_time
from holdfast.types.stashes import Link, Stash, StashEntry, StashType
from tests.conformance.model_base import LeaseRow, LockRow, StashRow
from tests.simulation.mail_model import MailModel

NEEDED = {"resource": {"uri", "kind"}, "artifact": {"path", "producer", "checksum"}, "context": set[str]()}
SAVED = {"lock": ("acquire", "release"), "counter": ("set", "increment")}
MOST_SAVED = 1_000_000

StashId = str | tuple[str | None, str]
Tie = tuple[str, str, str]  # type, from, to


class StashModel(MailModel):
    """A workspace with stashes as its users imagine it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.next_stashes: deque[str] = deque()
        self.tie_ids: dict[Tie, str] = {}
        self.entry_ids: dict[tuple[str, int], str] = {}  # of the history: by stash and version

    # --- as seen -----------------------------------------------------------------------------------------------------

    def _is_over(self, lease: LeaseRow | None) -> bool:
        return lease is not None and lease.deadline <= self.time()

    def _found(self, id: StashId) -> StashRow | None:
        """A stash that is there, by its id or its scope and name; past its end it is not."""
        for row in self.state.stashes.values():
            if id in (row.id, (row.trail, row.name)) and not row.gone and not self._is_over(row.lease):
                return row
        return None

    def _stash(self, id: StashId) -> StashRow:
        row = self._found(id)
        if row is None:
            raise errors.NotFound()
        return row

    def _lock_stash(self, id: StashId) -> StashRow:
        row = self._stash(id)
        if row.type != "lock":
            raise errors.InvalidStashType()
        return row

    def _held(self, row: StashRow) -> LockRow | None:
        """Who holds it; past its end nobody does."""
        return None if row.lock is None or self._is_over(row.lock.lease) else row.lock

    def _seen_value(self, row: StashRow) -> Any:
        lock = self._held(row)
        if lock is None:
            return row.value
        return {"holder": lock.holder, "acquired_at": as_time(lock.acquired).isoformat().replace("+00:00", "Z")}

    def shown_stash(self, row: StashRow) -> Stash:
        """A stash as its readers see it."""
        lock = self._held(row)
        return Stash(
            id=row.id,
            name=row.name,
            stash_type=row.type,
            value=self._seen_value(row),
            version=row.version + (row.lock is not None and lock is None),  # once its end is swept
            trail=row.trail,
            created_at=as_time(row.created),
            updated_at=as_time(row.updated),
            revision=row.revision,
            token=None if lock is None else lock.token,
            held_until=None if lock is None or lock.lease is None else as_time(lock.lease.deadline),
            expires_at=None if row.lease is None else as_time(row.lease.deadline),
        )

    def stashes_get(self, id: StashId) -> Stash:
        return self.shown_stash(self._stash(id))

    def stashes_find(self, name: str, trail: str | None = None) -> Stash | None:
        row = self._found((trail, name))
        return None if row is None else self.shown_stash(row)

    def stashes_history(self, id: StashId) -> list[StashEntry]:
        """One entry for each saved change; what was compacted is not told any more."""
        own = self._stash(id).id
        told = [event for event in self.events if (event.kind, event.id) == ("stash", own) and self.remembers(event)]
        return [
            StashEntry(e.data["id"], own, e.version, e.data["value"], e.op, e.data["changed_by"], e.time)  # type: ignore[arg-type]
            for e in told
        ]

    # --- making, changing --------------------------------------------------------------------------------------------

    def stashes_create(
        self,
        name: str,
        stash_type: StashType,
        value: Any = None,
        trail: str | None = None,
        ttl: float | None = None,
        changed_by: str | None = None,
    ) -> Stash:
        self._check_value(stash_type, value)
        if stash_type == "counter":
            value = {"value": _count(value)}
        if trail is not None:
            self._open_trail(trail)
        self._check_free(trail, name)
        id = self.next_stashes.popleft() if self.next_stashes else "of a refusal"
        lease = None if ttl is None else self._start(ttl, self.actor)
        row = self.state.stashes[id] = StashRow(id, name, stash_type, trail, value, self.now, lease)
        if trail is not None:
            self._tie("scoped_to", id, trail)
        self._write(row, "create", value, changed_by)
        return self.shown_stash(row)

    def _open_trail(self, id: str) -> None:
        raise NotImplementedError

    def _check_free(self, trail: str | None, name: str) -> None:
        """S6: unique in its scope."""
        if self._found((trail, name)) is not None:
            raise errors.DuplicateName()

    @staticmethod
    def _check_value(type: StashType, value: Any) -> None:
        if value is None:
            return
        if type == "lock" or not isinstance(value, dict):
            raise errors.InvalidValue()
        if type == "counter":
            _count(value)
        elif not all(isinstance(value.get(key), str) for key in NEEDED[type]):
            raise errors.InvalidValue()

    def _write(self, row: StashRow, op: str, value: Any, changed_by: str | None = None, changes: int = 1) -> None:
        """S5: one version for each change, one entry of the history for all that are saved at once."""
        if changed_by:
            self._task(changed_by, deleted=True)
        row.version, row.revision, row.updated = row.version + changes, self.revision + 1, self.now
        row.value = None if row.type == "lock" else value
        entry = self.entry_ids.get((row.id, row.version), "of a refusal")
        self.emit("stash", "", row.id, op, {"value": value, "changed_by": changed_by, "id": entry}, row.version)

    def _check_version(self, row: StashRow, expected: int | None) -> None:
        if expected not in (None, row.version):
            raise errors.VersionMismatch(expected=expected, version=row.version, value=self._seen_value(row))

    def stashes_set_value(
        self, id: StashId, value: Any, expected: int | None = None, changed_by: str | None = None
    ) -> Stash:
        row = self._stash(id)
        if row.type == "lock":
            raise errors.InvalidStashType()
        self._check_value(row.type, value)
        self._check_version(row, expected)
        self._write(row, "set", value, changed_by)
        return self.shown_stash(row)

    def stashes_increment(self, id: StashId, delta: int = 1, changed_by: str | None = None) -> int:
        row = self._stash(id)
        if row.type != "counter":
            raise errors.InvalidStashType()
        count = _count({"value": _count(row.value) + delta})
        self._write(row, "increment", {"value": count}, changed_by)
        return count

    def stashes_save(
        self,
        id: StashId,
        expected: int,
        version: int,
        operation: str,
        value: Any = None,
        holder: str | None = None,
        changed_by: str | None = None,
        released_by: str | None = None,
    ) -> Stash:
        """S2: what was done to it in memory, if it is still what it was done to."""
        row = self._stash(id)
        if operation not in SAVED.get(row.type, ("set",)):
            raise errors.InvalidStashType()
        self._check_version(row, expected)
        if not expected < version <= expected + MOST_SAVED:
            raise errors.Invalid()
        if row.type == "lock":
            assert holder is not None
            self._follow(row, operation, holder, version - expected, released_by)
            value = self._seen_value(row)
        self._check_value(row.type, None if row.type == "lock" else value)
        self._write(row, operation, value, changed_by, version - expected)
        return self.shown_stash(row)

    # --- locks -------------------------------------------------------------------------------------------------------

    def _follow(self, row: StashRow, operation: str, holder: str, changes: int, released_by: str | None) -> None:
        """Who holds a lock takes it again or gives it back; who does not, takes it first, when the other has let go."""
        before = None if row.lock is None else row.lock.holder
        let_go = before not in (None, holder)
        take = before != holder or operation == "acquire"
        if (let_go and released_by != before) or changes < let_go + take + (operation == "release"):
            if operation == "acquire":
                raise errors.Held(holder=before)
            raise errors.NotHolder(holder=before)
        if let_go or (before is not None and operation == "release"):
            self._free_stash(row, "release")
        if operation == "acquire":
            self._take_stash(row, holder, None)

    def _take_stash(self, row: StashRow, holder: str, ttl: float | None) -> LockRow:
        if row.lock is None:
            token = (self.revision + 1) * 4096 + self._grants
            self._grants += 1
            row.lock = LockRow(holder, token, self.now, None if ttl is None else self._start(ttl, holder))
            self.emit("stash-lock", "", row.id, "acquire", {"holder": [None, holder], "token": [None, token]})
        elif row.lock.holder != holder:
            raise errors.Held(holder=row.lock.holder)
        else:
            self._enter_again(row.lock, ttl, None)
        return row.lock

    def _free_stash(self, row: StashRow, op: str) -> None:
        assert row.lock is not None
        lock, row.lock = row.lock, None
        self._drop(lock.lease)
        self.emit("stash-lock", "", row.id, op, {"holder": [lock.holder, None], "token": [lock.token, None]})

    def stashes_acquire(
        self, id: StashId, holder: str, ttl: float | None = None, changed_by: str | None = None
    ) -> Grant:
        row = self._lock_stash(id)
        lock = self._take_stash(row, holder, ttl)
        self._write(row, "acquire", self._seen_value(row), changed_by)
        return self._granted(row.id, lock)

    def _granted(self, id: str, lock: LockRow) -> Grant:
        until = None if lock.lease is None else as_time(lock.lease.deadline)
        return Grant(id, lock.holder, lock.token, as_time(lock.acquired), until)

    def stashes_release(self, id: StashId, holder: str, token: int | None = None, changed_by: str | None = None) -> int:
        row = self._lock_stash(id)
        current = None if row.lock is None else row.lock.token
        if token is not None and token != current:
            raise errors.Fenced(current=current)
        if row.lock is None or row.lock.holder != holder:
            raise errors.NotHolder(holder=None if row.lock is None else row.lock.holder)
        self._free_stash(row, "release")
        self._write(row, "release", None, changed_by)
        return row.version

    def stashes_refresh(self, id: StashId, holder: str, ttl: float | None = None, token: int | None = None) -> Grant:
        row = self._lock_stash(id)
        lock = row.lock
        if lock is None or (token is not None and token != lock.token):
            raise errors.Fenced(current=None if lock is None else lock.token)
        if lock.holder != holder:
            raise errors.NotHolder(holder=lock.holder)
        if lock.lease is not None:
            lock.lease.ttl = lock.lease.ttl if ttl is None else round(ttl * 1e6)
            lock.lease.deadline = self.now + lock.lease.ttl
        elif ttl is not None:
            lock.lease = self._start(ttl)
        return self._granted(row.id, lock)

    def locks_check(self, name: str, token: int) -> None:
        """C15: the id of a stash is a fence too, and no two grants share a token."""
        row = self.state.stashes.get(name)
        if row is None or row.lock is None:
            super().locks_check(name, token)
        elif row.lock.token != token:
            raise errors.Fenced(current=row.lock.token)

    def holder_of(self, name: str) -> str:
        row = self.state.stashes.get(name)
        return super().holder_of(name) if row is None or row.lock is None else row.lock.holder

    # --- the end -----------------------------------------------------------------------------------------------------

    def stashes_delete(self, id: StashId) -> None:
        row = self._stash(id)
        if row.lock is not None:
            raise errors.Held(holder=row.lock.holder)
        self._erase(row, "delete")

    def _erase(self, row: StashRow, op: str) -> None:
        """S8: the stash and its link go, and what the history said of it."""
        if row.trail is not None:
            self._untie("scoped_to", row.id, row.trail)
        del self.state.stashes[row.id]
        self._drop(row.lease)
        for index, event in enumerate(self.events[self._first :], self._first):
            if (event.kind, event.id) == ("stash", row.id):
                self.events[index] = msgspec.structs.replace(event, data={}, redacted=True)
        self.emit("stash", "", row.id, op, {}, row.version + 1)

    def _finish(self, lease: LeaseRow, op: str) -> None:
        """S10: a holder whose time is over is swept, and a stash whose time is over, with its holder."""
        if lease not in self.state.leases:
            return  # its lock has ended with the stash, in the same sweep
        for row in [*self.state.stashes.values()]:
            if row.lock is not None and (row.lock.lease is lease or row.lease is lease):
                row.lock.lease = None if row.lock.lease is lease else row.lock.lease
                self._free_stash(row, op)
                if row.lease is lease or not self._is_over(row.lease):
                    self._write(row, op, None)
            if row.lease is lease:
                row.lease = None
                self._erase(row, op)
        super()._finish(lease, op)

    # --- links -------------------------------------------------------------------------------------------------------

    def _tie(self, kind: str, source: str, target: str) -> None:
        if (kind, source, target) not in self.state.ties:
            id = self.tie_ids.get((kind, source, target), "of a refusal")
            self.state.ties[kind, source, target] = Link(id, kind, source, target, as_time(self.now))  # type: ignore[arg-type]
            self.emit("link", "", id, "create", {"link_type": kind, "from_id": source, "to_id": target})

    def _untie(self, kind: str, source: str, target: str) -> bool:
        link = self.state.ties.pop((kind, source, target), None)
        if link is not None:
            self.emit("link", "", link.id, "delete", {"link_type": kind, "from_id": source, "to_id": target})
        return link is not None


def _count(value: Any) -> int:
    """S4: what is missing is 0; a counter has nothing but its number, which fits into int64."""
    count = 0 if value is None else value.get("value", 0)
    if type(count) is not int or (value and {*value} != {"value"}) or not -(2**63) <= count < 2**63:
        raise errors.InvalidValue()
    return count
