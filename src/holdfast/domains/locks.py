"""Locks with leases and fencing tokens: every kind of lock is acquired, queued for, renewed and freed here.

All locks live in one table; `kind` says what is locked ('lock': a plain name, 'cell-lock': a cell, 'path': patterns of
paths), and names are never joined into one string. A token grows with every grant over all locks. Called by domains
whose records can be locked.

A waiter is a row with a lease of its own, which it renews: only the oldest live waiter may take a free lock, and one
that died blocks nobody. The steps are written once, as generators, for threads and event loops alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast import errors
from holdfast.domains.leases import require_lease
from holdfast.kernel import leases
from holdfast.kernel.events import Filter
from holdfast.kernel.leases import FREED, holder_of
from holdfast.kernel.tx import GRANTS_PER_REVISION, Row, Snapshot, Tx
from holdfast.kernel.validate import check_name, check_seconds, check_ttl
from holdfast.kernel.wake import Watcher
from holdfast.operation import Deadline, Do, Found, Listen, Next, Steps
from holdfast.types import Grant, as_time

WAITER = "lock-waiter"
COLUMNS = "k.name, k.holder, k.token, k.acquired, k.lease, l.deadline, k.scope"
SOURCE = "locks k LEFT JOIN leases l ON l.id = k.lease"
_ONE = f"FROM {SOURCE} WHERE k.kind = ? AND k.scope = ? AND k.name = ?"
_LOAD = f"SELECT {COLUMNS} {_ONE}"
_FIND = f"SELECT {COLUMNS}, (SELECT stamp FROM meta) {_ONE}"


class Target(msgspec.Struct, frozen=True):
    """What is locked: the same three columns in locks, waiters and events."""

    kind: str
    scope: str
    name: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}" if self.scope else self.name

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.scope, self.name


def grant_of(row: Row) -> Grant:
    """Return the public form of a lock's row, with the columns COLUMNS."""
    name, holder, token, acquired, _, deadline, scope = row
    return Grant(name, holder, token, as_time(acquired), None if deadline is None else as_time(deadline), scope)


def load(tx: Snapshot, target: Target) -> Row | None:
    """Return the row of a held lock, or None."""
    return tx.one(_LOAD, target.key)


def find(snapshot: Snapshot, target: Target) -> Row | None:
    """Return the row of a lock that is held now: it has not expired."""
    row = snapshot.one(_FIND, target.key)
    return None if row is None or (row[5] is not None and snapshot.is_past(row[5], row[7])) else row[:7]


def require(tx: Tx, target: Target) -> Row:
    """Return the row of a lock that must be held."""
    row = load(tx, target)
    assert row is not None
    return row


def _reload(tx: Tx, target: Target) -> Grant:
    return grant_of(require(tx, target))


# --- taking ----------------------------------------------------------------------------------------------------------


def take(
    tx: Tx, target: Target, holder: str | None, ttl: float | None, lease: str | None, ticket: str | None = None
) -> Grant:
    """Take a free lock, or enter a held one again. Raises Held. `ticket` is the caller's place in the queue."""
    holder = holder_of(tx, holder)
    micros = _length(tx, ttl, lease)
    row = load(tx, target)
    if row is not None:
        if row[1] != holder:
            raise held(target, row[1], row[5])
        _extend(tx, target, row, micros, lease)
        forget_ticket(tx, ticket)
        return _reload(tx, target)
    _check_first(tx, target, ticket)
    forget_ticket(tx, ticket)
    bound = leases.start(tx, target.kind, holder, micros) if micros is not None else lease
    token = tx.new_token()
    tx.run(
        "INSERT INTO locks (kind, scope, name, holder, token, acquired, lease) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*target.key, holder, token, tx.now, bound),
    )
    emit_lock(tx, target, "acquire", holder=[None, holder], token=[None, token])
    return _reload(tx, target)


def _length(tx: Tx, ttl: float | None, lease: str | None) -> int | None:
    if lease is None:
        return None if ttl is None else check_ttl(ttl)
    if ttl is not None:
        raise errors.Invalid("give ttl or lease, not both", hint="a lock bound to a lease lives as long as the lease")
    require_lease(tx, lease)
    return None


def held(target: Target, holder: str, deadline: int | None) -> errors.Held:
    """The error with the current holder and the end of its grant."""
    until = None if deadline is None else as_time(deadline)
    when = "until it is released" if until is None else f"until {until.isoformat()}"
    return errors.Held(f"{target} is held by {holder} {when}", name=target.name, holder=holder, until=until)


def _extend(tx: Tx, target: Target, row: Row, micros: int | None, lease: str | None) -> None:
    """Re-entry keeps the token and counts nothing; the later end wins, and a lock without ttl never expires."""
    bound = row[4]
    if lease is not None and lease != bound:
        leases.drop(tx, bound, target.kind)
        bind(tx, target, lease)
    elif lease is None and micros is None and bound is not None:
        leases.drop(tx, bound, target.kind)
        bind(tx, target, None)
    elif micros is not None and bound is not None:
        _not_shared(tx, target, bound)
        leases.renew(tx, bound, micros, shorten=False)


def bind(tx: Tx, target: Target, lease: leases.Id | None) -> None:
    """Bind a held lock to another lease, or to none."""
    tx.run("UPDATE locks SET lease = ? WHERE kind = ? AND scope = ? AND name = ?", (lease, *target.key))


def _not_shared(tx: Tx, target: Target, bound: str) -> None:
    if tx.one("SELECT 1 FROM leases WHERE id = ? AND kind = ?", (bound, leases.LEASE)):
        hint = f'refresh the lease: leases.refresh("{bound}")'
        raise errors.Invalid(f"{target} is bound to the lease {bound}", hint=hint)


def _check_first(tx: Tx, target: Target, ticket: str | None) -> None:
    first = tx.one(
        "SELECT w.ticket, w.holder, l.deadline FROM waiters w JOIN leases l ON l.id = w.ticket"
        " WHERE w.kind = ? AND w.scope = ? AND w.name = ? ORDER BY w.place LIMIT 1",
        target.key,
    )
    if first is not None and first[0] != ticket:
        _, waiter, deadline = first
        until = as_time(deadline)
        message = f"{target} is free, but {waiter} is first in the queue until {until.isoformat()}"
        raise errors.Held(message, name=target.name, holder=waiter, until=until)


def leave_queue(tx: Tx, target: Target, ticket: str) -> None:
    """Give up a place in the queue, if it is still there."""
    if forget_ticket(tx, ticket):
        emit_lock(tx, target, "leave", ticket=[ticket, None])


def forget_ticket(tx: Tx, ticket: str | None) -> bool:
    """Remove a place from the queue; True if it was there."""
    if ticket is None:
        return False
    leases.drop(tx, ticket, WAITER)
    return bool(tx.run("DELETE FROM waiters WHERE ticket = ?", (ticket,)))


# --- renewing, releasing, checking -----------------------------------------------------------------------------------


def release_target(
    tx: Tx, target: Target, holder: str | None, token: int | None, changed_by: str | None = None
) -> bool:
    """Release a lock. Not held: False, or Fenced if a token was given. Raises NotHolder or Fenced."""
    holder = holder_of(tx, holder)
    row = load(tx, target)
    if row is None and token is None:
        return False
    row = _own(target, row, holder, token)
    free(tx, target, row, "release", changed_by=changed_by)
    return True


def renew_target(tx: Tx, target: Target, holder: str | None, ttl: float | None, token: int | None) -> Grant:
    """Renew a held lock for `ttl` seconds from now, by default as long as it was granted for."""
    row = _own(target, load(tx, target), holder_of(tx, holder), token)
    micros = None if ttl is None else check_ttl(ttl)
    bound = row[4]
    if bound is not None:
        _not_shared(tx, target, bound)
        leases.renew(tx, bound, micros)
    elif micros is not None:
        bind(tx, target, leases.start(tx, target.kind, row[1], micros))
    return _reload(tx, target)


def _own(target: Target, row: Row | None, holder: str, token: int | None) -> Row:
    """Return the lock's row. Raises Fenced or NotHolder unless the caller holds it."""
    if row is None:
        hint = f"if {target} is the right name, {errors.Fenced.default_hint}"
        raise errors.Fenced(f"nobody holds {target}: it expired or was released", hint=hint, current=None)
    if token is not None and row[2] != token:
        raise _other_token(target, row[2], token)
    if row[1] != holder:
        raise not_holder(target, row[1], holder)
    return row


def not_holder(target: Target, holder: str, other: str) -> errors.NotHolder:
    """The error for a caller that does what only the holder may do."""
    hint = f"ask {holder} by mail, or wait until it is released or expires"
    return errors.NotHolder(f"{target} is held by {holder}, not by {other}", hint=hint, holder=holder)


def free(
    tx: Tx,
    target: Target,
    row: Row,
    op: str,
    forced: bool = False,
    changed_by: str | None = None,
    reason: str | None = None,
) -> None:
    """End a grant, and notify the domain whose record was locked."""
    end(tx, target, row, op, forced, reason)
    if target.kind in FREED:
        FREED[target.kind](tx, target.name, op, changed_by)


def end(tx: Tx, target: Target, row: Row, op: str, forced: bool = False, reason: str | None = None) -> None:
    """End a grant without notifying the domain."""
    tx.run("DELETE FROM locks WHERE kind = ? AND scope = ? AND name = ?", target.key)
    leases.drop(tx, row[4], target.kind)
    more: dict[str, Any] = {"forced": [False, True]} if forced else {}
    if reason is not None:
        more["note"] = reason
    emit_lock(tx, target, op, holder=[row[1], None], token=[row[2], None], **more)


def check_fence(snapshot: Snapshot, target: Target, token: int) -> str:
    """Return the holder of a lock. Raises Fenced unless it is held now, unexpired, with exactly this token."""
    row = find(snapshot, target)
    refuse_other(target, None if row is None else row[2], token)
    holder: str = row[1] if row is not None else ""
    return holder


def refuse_other(what: object, current: int | None, token: int) -> None:
    """Raise Fenced unless the token is that of the current grant, None if there is none."""
    if current is None:
        raise errors.Fenced(f"{what} is no longer held", current=None)
    if type(token) is not int or current != token:
        raise _other_token(what, current, token)


def _other_token(what: object, current: int, token: object) -> errors.Fenced:
    hint = "stop: somebody holds it with another token now; if that is you, send the token of your latest grant"
    return errors.Fenced(f"{what} is held with token {current}, not {token}", hint=hint, current=current)


def end_lease(tx: Tx, lease: leases.Id, op: str) -> None:
    """Free the locks bound to an ended lease; a waiter with it leaves the queue."""
    _free_all(tx, "lease", lease, op)
    for kind, scope, name in tx.all("SELECT kind, scope, name FROM waiters WHERE ticket = ?", (lease,)):
        leave_queue(tx, Target(kind, scope, name), str(lease))


def end_claim(tx: Tx, task: str, op: str) -> None:
    """Free the locks taken for a task whose claim has ended, with or without a lease of their own."""
    _free_all(tx, "task", task, op)


def _free_all(tx: Tx, column: str, value: leases.Id, op: str) -> None:
    for kind, scope, name in tx.all(f"SELECT kind, scope, name FROM locks WHERE {column} = ? ORDER BY token", (value,)):
        target = Target(kind, scope, name)
        free(tx, target, require(tx, target), op)


def emit_lock(tx: Tx, target: Target, op: str, **changes: list[object]) -> None:
    """Log what happened to a lock: field -> [old, new]."""
    tx.emit(target.kind, target.name, op, scope=target.scope, data=msgspec.msgpack.encode(changes))


def probe_target(tx: Tx, target: Target) -> Found | None:
    """What a condition sees of any lock: its token as version, its holder as value."""
    row = load(tx, target)
    return None if row is None else Found(row[2], row[1])


WAITER_TTL = 10_000_000
RENEW_EVERY = 3.0
NOT_FREEING = ("wait", "acquire")  # events of a lock that do not free it


G = TypeVar("G", covariant=True)


class Attempt(Protocol[G]):
    """One call that takes a lock: its arguments, its place in the queue, and its grant."""

    def __call__(self, tx: Tx) -> G:
        """Take the lock. Raises Held."""

    def stay_in_queue(self, tx: Tx) -> None:
        """Queue, or renew the place; a waiter that slept past its lease has lost it and queues again."""

    def failed(self) -> None:
        """Forget the last grant, which was not committed: its token may belong to another by now."""

    def withdraw(self, tx: Tx) -> None:
        """Leave the queue because the caller is gone, and release a lock granted at the same moment."""


def acquire_target(
    target: Target, holder: str | None, ttl: float | None, wait: float | None, lease: str | None
) -> Steps[Grant]:
    """The steps of acquiring a lock on one target."""
    attempt = LockAttempt(target, holder, ttl, lease)
    return acquire_by(attempt, wait, Filter((target.kind,), target.scope, target.name))


def acquire_by(attempt: Attempt[G], wait: float | None, news: Filter) -> Steps[G]:
    """The steps of acquiring any kind of lock; `news` selects the events after which it may be free."""
    if wait is None:
        grant: G = yield Do(attempt, keyed=True)
        return grant
    check_seconds(wait, "wait")
    deadline = yield Deadline(wait)
    watcher = yield Listen(news)
    body: Callable[[Tx], G] = attempt
    try:
        while True:
            try:
                grant = yield Do(body, keyed=True)
                return grant
            except errors.Held as refusal:
                yield Do(attempt.stay_in_queue)
                body = partial(_once_more, attempt)
                if (yield from _woken(watcher, deadline)):
                    continue
                if wait:
                    refusal.hint = f"still held after {wait:g} s: wait longer with wait=SECONDS, or watch it and retry"
                raise refusal from None
    except BaseException as error:
        if isinstance(error, Exception):
            attempt.failed()
        yield Do(attempt.withdraw)
        raise
    finally:
        watcher.close()


def _once_more(attempt: Attempt[G], tx: Tx) -> G:
    """An attempt of somebody who waits in line already."""
    try:
        return attempt(tx)
    except errors.Held as refusal:
        refusal.again = True
        raise


def _woken(watcher: Watcher, deadline: int) -> Steps[bool]:
    """Sleep until a retry is worthwhile: the lock may be free, or the place must be renewed. False at the deadline."""
    renew_at = yield Deadline(RENEW_EVERY)
    while True:
        event = yield Next(watcher, min(deadline, renew_at))
        if event is None:
            now: int = yield Deadline(0)
            return now < deadline
        if event.op not in NOT_FREEING or (yield Deadline(0)) >= renew_at:
            return True


class LockAttempt:
    """The attempt to lock one target."""

    def __init__(self, target: Target, holder: str | None, ttl: float | None, lease: str | None) -> None:
        self._target = target
        self._holder = holder
        self._ttl = ttl
        self._lease = lease
        self._ticket: str | None = None
        self._fresh: Grant | None = None  # its grant, if the lock was free

    def __call__(self, tx: Tx) -> Grant:
        grant = take(tx, self._target, self._holder, self._ttl, self._lease, self._ticket)
        self._fresh = grant if grant.token // GRANTS_PER_REVISION == tx.revision else None
        return grant

    def stay_in_queue(self, tx: Tx) -> None:
        if self._ticket is None or not leases.renew(tx, self._ticket):
            self._ticket = enqueue(tx, self._target, self._holder)

    def failed(self) -> None:
        self._fresh = None

    def withdraw(self, tx: Tx) -> None:
        row = load(tx, self._target)
        if row is not None and grant_of(row) == self._fresh:
            free(tx, self._target, row, "release")
        if self._ticket is not None:
            leave_queue(tx, self._target, self._ticket)


def enqueue(tx: Tx, target: Target, holder: str | None, detail: bytes | None = None) -> str:
    """Join the queue for a target; returns the ticket."""
    holder = holder_of(tx, holder)
    ticket = leases.start(tx, WAITER, holder, WAITER_TTL)
    tx.run(
        "INSERT INTO waiters (kind, scope, name, place, ticket, holder, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*target.key, tx.new_token(), ticket, holder, detail),
    )
    emit_lock(tx, target, "wait", waiter=[None, holder], ticket=[None, ticket])
    return ticket


LOCK = "lock"


def named(name: str) -> Target:
    """Return the target of a plain lock."""
    check_name(name, "lock name")
    return Target(LOCK, "", name)


def probe(tx: Tx, name: str) -> Found | None:
    """What a condition of `txn` sees of a plain lock."""
    return probe_target(tx, named(name))


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report locks that are not held according to the log, missing leases, and tokens from the future."""
    last = (
        "(SELECT {} FROM events e WHERE e.kind = k.kind AND e.scope = k.scope AND e.id = k.name"
        " AND op NOT IN ('wait', 'leave') ORDER BY version DESC LIMIT 1)"
    )
    for kind, scope, name, holder, acquired, op, time, data, token, bound, ceiling in snapshot.all(
        "SELECT k.kind, k.scope, k.name, k.holder, k.acquired,"
        f" {last.format('op')}, {last.format('time')}, {last.format('data')},"
        " k.token, k.lease IS NULL"
        "  OR k.lease = (SELECT key FROM records WHERE kind = 'task' AND scope = '' AND id = k.task)"
        "  OR EXISTS (SELECT 1 FROM leases WHERE id = k.lease),"
        " (SELECT revision FROM meta) FROM locks k"
    ):
        what = f"{kind} {Target(kind, scope, name)}"
        if op != "acquire":
            yield f"{what} is held, but its last event is {op}"
        else:
            said = msgspec.msgpack.decode(data)
            since = acquired if kind == "stash-lock" else time  # that of an imported one comes from elsewhere
            if (holder, token, acquired) != (said["holder"][1], said["token"][1], since):
                yield f"{what} is held by {holder} with token {token} since {acquired}, but not in the log"
        if not bound:
            yield f"{what} is bound to a lease that does not exist"
        if token // GRANTS_PER_REVISION > ceiling:
            yield f"{what} has a token from a revision that does not exist"
    for (ticket,) in snapshot.all(
        "SELECT ticket FROM waiters WHERE NOT EXISTS (SELECT 1 FROM leases WHERE id = ticket)"
    ):
        yield f"waiter {ticket} has no lease"
    for name, task in snapshot.all(
        "SELECT name, task FROM locks k WHERE task IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM records r WHERE r.kind = 'task' AND r.scope = '' AND r.id = k.task)"
    ):
        yield f"lock {name} was taken for task {task}, which does not exist"
    for id, kind in snapshot.all(
        "SELECT id, kind FROM leases l WHERE (kind LIKE '%lock%' OR kind = 'path')"
        " AND NOT EXISTS (SELECT 1 FROM locks WHERE lease = l.id)"
        " AND NOT EXISTS (SELECT 1 FROM waiters WHERE ticket = l.id)"
    ):
        yield f"lease {id} belongs to a {kind} that does not exist"
