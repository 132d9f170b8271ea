"""Taking a path lock: at once, or in line.

A lock is refused while another's lock stands in its way, and while somebody waits for paths that it would take: who
waits for a whole directory is not passed by for ever by those who want one file of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.domains import holding, waiting
from holdfast.domains.paths.patterns import check_patterns
from holdfast.domains.paths.rows import (
    PATH,
    Detail,
    clash,
    decode_detail,
    encode_detail,
    find,
    held,
    meeting,
    select,
    target_of,
)
from holdfast.domains.tasks.claims import authorise
from holdfast.domains.tasks.rows import Stored, lease_of, require
from holdfast.domains.tasks.texts import check_line
from holdfast.kernel import leases
from holdfast.kernel.events import Filter
from holdfast.kernel.names import check_flag, check_ttl
from holdfast.kernel.tx import Tx
from holdfast.ops import Steps
from holdfast.types.base import as_time
from holdfast.types.paths import PathLock

MAX_REASON = 500


def lock(
    patterns: str | Sequence[str],
    holder: str | None = None,
    ttl: float | None = None,
    shared: bool = False,
    task: str | None = None,
    reason: str | None = None,
    wait: float | None = None,
) -> Steps[PathLock]:
    """Lock paths and globs, and all below them. Another's in the way: Held, at once or after `wait` seconds in line.

    `shared` locks do not stand in each other's way. For a `task` that the holder has claimed, the lock ends with the
    claim, at the latest; otherwise after `ttl` seconds, or when it is released.
    """
    check_flag(shared=shared)
    wanted = Detail(check_patterns(patterns), shared, task, None if reason is None else _check_reason(reason))
    return waiting.attempting(_PathAttempt(wanted, holder, ttl), wait, Filter((PATH,), ""))


def _check_reason(reason: Any) -> str:
    return check_line(reason, "reason", MAX_REASON)


class _PathAttempt:
    """The attempt to lock paths."""

    def __init__(self, wanted: Detail, holder: str | None, ttl: float | None) -> None:
        self._wanted = wanted
        self._holder = holder
        self._ttl = ttl
        self._id: str | None = None  # of the lock it waits for
        self._ticket: str | None = None
        self._fresh: PathLock | None = None

    def __call__(self, tx: Tx) -> PathLock:
        holder = holding.holder_of(tx, self._holder)
        micros = None if self._ttl is None else check_ttl(self._ttl)
        task = None if self._wanted.task is None else _claimed(tx, self._wanted.task, holder)
        again = self._again(tx, holder, task)
        if again is not None:
            holding.forget(tx, self._ticket)
            return _run_on(tx, again, micros)
        _check_free(tx, self._wanted, holder, self._ticket)
        holding.forget(tx, self._ticket)
        self._fresh = _take(tx, self._wanted, holder, micros, task, self._id)
        return self._fresh

    def _again(self, tx: Tx, holder: str, task: Stored | None) -> PathLock | None:
        """The very lock, if the holder has it already."""
        wanted = (self._wanted.patterns, self._wanted.shared, None if task is None else task.id)
        mine = select(tx, " AND k.holder = ?", (holder,))
        return next((lock for lock in mine if (lock.patterns, lock.shared, lock.task) == wanted), None)

    def stay_in_line(self, tx: Tx) -> None:
        if self._ticket is None or not leases.renew(tx, self._ticket):
            self._id = self._id or tx.new_id()
            self._ticket = waiting.enqueue(tx, target_of(self._id), self._holder, encode_detail(self._wanted))

    def failed(self) -> None:
        self._fresh = None

    def withdraw(self, tx: Tx) -> None:
        if self._fresh is not None and find(tx, self._fresh.id) == self._fresh:
            target = target_of(self._fresh.id)
            row = holding.load(tx, target)
            assert row is not None
            holding.free(tx, target, row, "release")
        if self._ticket is not None and self._id is not None:
            holding.leave_line(tx, target_of(self._id), self._ticket)


def _claimed(tx: Tx, id: str, holder: str) -> Stored:
    """The task, if the holder has claimed it."""
    task = require(tx, id)
    authorise(tx, task, holder, None, "lock paths for it")
    return task


def _run_on(tx: Tx, lock: PathLock, micros: int | None) -> PathLock:
    """Locking again keeps the token; the later end wins, and without a ttl it does not end by itself."""
    row = holding.load(tx, target_of(lock.id))
    assert row is not None
    bound = row[4]
    if bound is not None and bound != _claim_lease(lock.task):
        if micros is not None:
            leases.renew(tx, bound, micros, shorten=False)
        else:
            leases.drop(tx, bound, PATH)
            tx.run("UPDATE locks SET lease = ? WHERE kind = ? AND name = ?", (_claim_lease(lock.task), PATH, lock.id))
    found = find(tx, lock.id)
    assert found is not None
    return found


def _claim_lease(task: str | None) -> str | None:
    return None if task is None else lease_of(task)


def _check_free(tx: Tx, wanted: Detail, holder: str, ticket: str | None) -> None:
    """Held if a lock stands in the way, or somebody who came earlier waits for one that would."""
    locks = select(tx, tail=" ORDER BY k.token")
    for lock in locks:
        met = clash(lock, wanted, holder)
        if met is not None:
            raise held(lock, *met)
    mine = [lock for lock in locks if lock.holder == holder]
    for other, name, place, detail, deadline in tx.all(
        "SELECT w.ticket, w.holder, w.place, w.detail, l.deadline FROM waiters w JOIN leases l ON l.id = w.ticket"
        " WHERE w.kind = ? AND w.scope = '' ORDER BY w.place",
        (PATH,),
    ):
        if other == ticket:
            return
        first = decode_detail(detail)
        if any(clash(lock, first, name) for lock in mine):
            continue  # who waits for the caller itself must not hold the caller up
        met = None if name == holder or (first.shared and wanted.shared) else meeting(first.patterns, wanted.patterns)
        if met is not None:
            raise held(_expected(name, place, first, deadline), *met, waits=True)


def _expected(holder: str, place: int, wanted: Detail, deadline: int) -> PathLock:
    """The lock that somebody waits for, as if they had it until their place in line ends."""
    until = as_time(deadline)
    return PathLock("", wanted.patterns, holder, place, wanted.shared, wanted.task, wanted.reason, until, until)


def _take(tx: Tx, wanted: Detail, holder: str, micros: int | None, task: Stored | None, id: str | None) -> PathLock:
    id = id or tx.new_id()
    name = None if task is None else task.id
    lease = _claim_lease(name) if micros is None else leases.start(tx, PATH, holder, micros)
    token = tx.new_token()
    detail = Detail(wanted.patterns, wanted.shared, name, wanted.reason)
    tx.run(
        "INSERT INTO locks (kind, scope, name, holder, token, acquired, lease, task, detail)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*target_of(id).key, holder, token, tx.now, lease, name, encode_detail(detail)),
    )
    holding.emit(
        tx,
        target_of(id),
        "acquire",
        holder=[None, holder],
        token=[None, token],
        patterns=[None, wanted.patterns],
        shared=[None, wanted.shared],
        task=[None, name],
        reason=[None, wanted.reason],
    )
    found = find(tx, id)
    assert found is not None
    return found
