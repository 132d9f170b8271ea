"""Taking, renewing and releasing path locks.

A lock is refused while it overlaps another holder's lock, or paths that an earlier waiter waits for: a waiter for a
directory is not overtaken by later waiters for files inside it. One taken for a task ends with the claim on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import errors
from holdfast.domains import locks
from holdfast.domains.named_locks import check_force
from holdfast.domains.paths import LISTED, get, named, patterns, pick
from holdfast.domains.paths.patterns import PATH, Detail, check_patterns, clash, find, held, select, target_of
from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks.claims import authorise
from holdfast.domains.tasks.creation import check_line
from holdfast.domains.tasks.rows import Stored
from holdfast.domains.tasks.rows import require as require_task
from holdfast.ids import is_uuid7
from holdfast.kernel import leases
from holdfast.kernel.events import Filter
from holdfast.kernel.leases import holder_of
from holdfast.kernel.tx import Tx
from holdfast.kernel.validate import check_flag, check_ttl
from holdfast.operation import Steps
from holdfast.types import as_time
from holdfast.types.agents import PathLock

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
    """Lock paths and globs, and everything below them, waiting for up to `wait` seconds. Raises Held.

    `shared` locks may overlap each other. For a `task` that the holder has claimed, the lock ends with the claim at the
    latest; otherwise after `ttl` seconds, by default `path_lock_timeout` of the settings (1 h), or when it is released.
    """
    check_flag(shared=shared)
    why = None if reason is None else check_line(reason, "reason", MAX_REASON)
    wanted = Detail(check_patterns(patterns), shared, task, why)
    return locks.acquire_by(_PathAttempt(wanted, holder, ttl), wait, Filter((PATH,), ""))


class _PathAttempt:
    """The attempt to lock paths."""

    def __init__(self, wanted: Detail, holder: str | None, ttl: float | None) -> None:
        self._wanted = wanted
        self._holder = holder
        self._ttl = ttl
        self._id: str | None = None  # of the lock that it waits for
        self._ticket: str | None = None
        self._fresh: PathLock | None = None

    def __call__(self, tx: Tx) -> PathLock:
        holder = holder_of(tx, self._holder)
        micros = None if self._ttl is None else check_ttl(self._ttl)
        task = None if self._wanted.task is None else _claimed(tx, self._wanted.task, holder)
        if micros is None and task is None:
            micros = settings_of(tx).config.path_lock_timeout
        again = self._again(tx, holder, task)
        if again is not None:
            locks.forget_ticket(tx, self._ticket)
            return _run_on(tx, again, micros)
        _check_free(tx, self._wanted, holder, self._ticket)
        locks.forget_ticket(tx, self._ticket)
        self._fresh = _take(tx, self._wanted, holder, micros, task, self._id)
        return self._fresh

    def _again(self, tx: Tx, holder: str, task: Stored | None) -> PathLock | None:
        """The same lock, if the holder has it already."""
        wanted = (self._wanted.patterns, self._wanted.shared, None if task is None else task.id)
        where, params = patterns.may_overlap(self._wanted.patterns)
        mine = select(tx, f"{where} AND k.holder = ?", [*params, holder])
        return next((lock for lock in mine if (lock.patterns, lock.shared, lock.task) == wanted), None)

    def stay_in_queue(self, tx: Tx) -> None:
        if self._ticket is None or not leases.renew(tx, self._ticket):
            self._id = self._id or tx.new_id()
            self._ticket = locks.enqueue(tx, target_of(self._id), self._holder, patterns.encode_detail(self._wanted))

    def failed(self) -> None:
        self._fresh = None

    def withdraw(self, tx: Tx) -> None:
        if self._fresh is not None and find(tx, self._fresh.id) == self._fresh:
            _free(tx, self._fresh)
        if self._ticket is not None and self._id is not None:
            locks.leave_queue(tx, target_of(self._id), self._ticket)


def _claimed(tx: Tx, id: str, holder: str) -> Stored:
    """The task. Raises NotClaimOwner unless the holder has claimed it."""
    task = require_task(tx, id)
    authorise(tx, task, holder, None, "lock paths for it")
    return task


def _run_on(tx: Tx, lock: PathLock, micros: int | None) -> PathLock:
    """Locking again keeps the token; the later end wins, and without a ttl that of the claim it is taken for."""
    bound = locks.require(tx, target_of(lock.id))[4]
    claim = _claim_lease(tx, lock.task)
    if bound is not None and bound != claim:
        if micros is not None:
            leases.renew(tx, bound, micros, shorten=False)
        else:
            leases.drop(tx, bound, PATH)
            locks.bind(tx, target_of(lock.id), claim)
    return get(tx, lock.id)


def _claim_lease(tx: Tx, task: str | None) -> int | None:
    return None if task is None else require_task(tx, task).record


def _check_free(tx: Tx, wanted: Detail, holder: str, ticket: str | None) -> None:
    """Raise Held if a lock overlaps, or an earlier waiter waits for one that would."""
    for lock in select(tx, *patterns.may_overlap(wanted.patterns), " ORDER BY k.token"):
        met = clash(lock, wanted, holder)
        if met is not None:
            raise held(lock, *met)
    for other, name, place, detail, deadline in tx.all(
        "SELECT w.ticket, w.holder, w.place, w.detail, l.deadline FROM waiters w JOIN leases l ON l.id = w.ticket"
        " WHERE w.kind = ? AND w.scope = '' ORDER BY w.place",
        (PATH,),
    ):
        if other == ticket:
            return
        first = patterns.decode_detail(detail)
        expected = _expected(name, place, first, deadline)
        met = clash(expected, wanted, holder)
        # A waiter for the caller's own lock must not block the caller.
        if met is not None and not _waits_for(tx, holder, name, first):
            raise held(expected, *met, waits=True)


def _waits_for(tx: Tx, holder: str, waiter: str, wanted: Detail) -> bool:
    """Whether a lock of the holder is in the way of a waiter."""
    where, params = patterns.may_overlap(wanted.patterns)
    mine = select(tx, f"{where} AND k.holder = ?", [*params, holder])
    return any(clash(lock, wanted, waiter) for lock in mine)


def _expected(holder: str, place: int, wanted: Detail, deadline: int) -> PathLock:
    """The lock that a waiter waits for, as if held until its place in the queue expires."""
    until = as_time(deadline)
    return PathLock("", wanted.patterns, holder, place, wanted.shared, wanted.task, wanted.reason, until, until)


def _take(tx: Tx, wanted: Detail, holder: str, micros: int | None, task: Stored | None, id: str | None) -> PathLock:
    id = id or tx.new_id()
    name = None if task is None else task.id
    claim = None if task is None else task.record
    lease = claim if micros is None else leases.start(tx, PATH, holder, micros)
    token = tx.new_token()
    detail = Detail(wanted.patterns, wanted.shared, name, wanted.reason)
    tx.run(
        "INSERT INTO locks (kind, scope, name, holder, token, acquired, lease, task, detail)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*target_of(id).key, holder, token, tx.now, lease, name, patterns.encode_detail(detail)),
    )
    patterns.index(tx, id, wanted.patterns)
    given = {"holder": holder, "token": token, **msgspec.structs.asdict(detail)}
    locks.emit_lock(tx, target_of(id), "acquire", **{field: [None, value] for field, value in given.items()})
    return get(tx, id)


def release(
    tx: Tx,
    id: str | None = None,
    task: str | None = None,
    holder: str | None = None,
    token: int | None = None,
    force: bool = False,
    reason: str | None = None,
) -> int:
    """Release one lock by its id or pattern, or all of the holder's, or those taken for a task; returns how many.

    A lock with several patterns is released by its id. Raises NotHolder for another's lock, unless `force`, which is
    logged with the `reason`, and Fenced for a wrong or lost token.
    """
    check_force(force, reason)
    if id is None:
        if force and task is None and holder is None:
            raise errors.Invalid("force needs an id, a task or a holder", hint="say which locks to release")
        return _release_all(tx, task, holder, token, force, reason)
    if task is not None:
        raise errors.Invalid("give id or task, not both")
    if force and token is None:
        theirs = [lock for lock in named(tx, id) if is_uuid7(id) or holder in (None, lock.holder)]
        found = pick(theirs, None, id, entire=True)
        if found is not None:
            _free(tx, found, True, reason)
        return int(found is not None)
    found = pick(named(tx, id), holder_of(tx, holder), id, entire=True)
    return int(locks.release_target(tx, target_of(id if found is None else found.id), holder, token))


def _release_all(
    tx: Tx, task: str | None, holder: str | None, token: int | None, force: bool, reason: str | None
) -> int:
    if token is not None:
        raise errors.Invalid("a token belongs to one lock", hint="give its id too")
    where, params = "", []
    if task is not None:
        where, params = " AND k.task = ?", [require_task(tx, task, deleted=True).id]
    if not force or holder is not None or task is None:
        where += " AND k.holder = ?"
        params.append(holder_of(tx, holder))
    taken = select(tx, where, params)
    for found in taken:
        if force:
            _free(tx, found, True, reason)
        else:
            locks.release_target(tx, target_of(found.id), found.holder, None)
    return len(taken)


def _free(tx: Tx, found: PathLock, forced: bool = False, reason: str | None = None) -> None:
    target = target_of(found.id)
    locks.free(tx, target, locks.require(tx, target), "release", forced=forced, reason=reason)


def refresh(tx: Tx, id: str, holder: str | None = None, ttl: float | None = None, token: int | None = None) -> PathLock:
    """Renew a lock by id or pattern, by default for as long as before. Raises Fenced if it was lost, or NotHolder."""
    who = holder_of(tx, holder)
    found = pick(named(tx, id), who, id)
    if found is None and not is_uuid7(id):
        lost = f"if {who} had it, it was lost: stop the work done under it, lock it again and read the files anew"
        raise errors.Fenced(
            f"{who} holds no path lock with the id or pattern {id!r}", hint=f"{LISTED}; {lost}", current=None
        )
    id = id if found is None else found.id
    row = locks.load(tx, target_of(id))
    if found is not None and found.task is not None and row is not None and row[4] == _claim_lease(tx, found.task):
        hint = f'renew the claim: tasks.heartbeat("{found.task}")'
        raise errors.Invalid(f"the lock lives as long as the claim on task {found.task}", hint=hint)
    locks.renew_target(tx, target_of(id), holder, ttl, token)
    return get(tx, id)
