"""Waiting for a lock, in line.

Who waits is a row with a lease of its own, which it renews: only the oldest live waiter may take a free lock, and one
that died blocks nobody. The steps are written once, for threads and event loops alike.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from holdfast import errors
from holdfast.domains.holding import WAITER, Target, emit, free, grant_of, holder_of, leave_line, load, take
from holdfast.kernel import leases
from holdfast.kernel.events import Filter
from holdfast.kernel.names import check_seconds
from holdfast.kernel.tx import GRANTS_PER_REVISION, Tx
from holdfast.kernel.wake import Watcher
from holdfast.ops import Deadline, Do, Listen, Next, Steps
from holdfast.types.base import Grant

WAITER_TTL = 10_000_000
RENEW_EVERY = 3.0
NO_REASON = ("wait", "acquire")  # events of a lock after which it is no more likely to be free


G = TypeVar("G", covariant=True)


class Attempt(Protocol[G]):
    """One call that takes a lock: its arguments, its place in line, and what it was granted."""

    def __call__(self, tx: Tx) -> G:
        """Take it, or Held."""

    def stay_in_line(self, tx: Tx) -> None:
        """Queue, or renew the place; a waiter that slept past its lease has lost it and queues again."""

    def failed(self) -> None:
        """What the last try was granted was not committed: its token may be another's by now."""

    def withdraw(self, tx: Tx) -> None:
        """The caller has gone: leave the line, and give back what was granted in that very moment."""


def acquiring(
    target: Target, holder: str | None, ttl: float | None, wait: float | None, lease: str | None
) -> Steps[Grant]:
    """The steps of taking a lock on one target."""
    attempt = LockAttempt(target, holder, ttl, lease)
    return attempting(attempt, wait, Filter((target.kind,), target.scope, target.name))


def attempting(attempt: Attempt[G], wait: float | None, news: Filter) -> Steps[G]:
    """The steps of taking any kind of lock; `news` are the events after which it may be free."""
    if wait is None:
        grant: G = yield Do(attempt, keyed=True)
        return grant
    check_seconds(wait, "wait")
    deadline = yield Deadline(wait)
    watcher = yield Listen(news)
    try:
        while True:
            try:
                grant = yield Do(attempt, keyed=True)
                return grant
            except errors.Held as refusal:
                yield Do(attempt.stay_in_line)
                if (yield from _woken(watcher, deadline)):
                    continue
                raise refusal from None
    except BaseException as error:
        if isinstance(error, Exception):
            attempt.failed()
        yield Do(attempt.withdraw)
        raise
    finally:
        watcher.close()


def _woken(watcher: Watcher, deadline: int) -> Steps[bool]:
    """Sleep until it is worth trying again: the lock may be free, or the place wants renewing. False at the end."""
    renew_at = yield Deadline(RENEW_EVERY)
    while True:
        event = yield Next(watcher, min(deadline, renew_at))
        if event is None:
            now: int = yield Deadline(0)
            return now < deadline
        if event.op not in NO_REASON or (yield Deadline(0)) >= renew_at:
            return True


class LockAttempt:
    """The attempt to lock one target."""

    def __init__(self, target: Target, holder: str | None, ttl: float | None, lease: str | None) -> None:
        self._target = target
        self._holder = holder
        self._ttl = ttl
        self._lease = lease
        self._ticket: str | None = None
        self._fresh: Grant | None = None  # what it was granted, if the lock was free

    def __call__(self, tx: Tx) -> Grant:
        grant = take(tx, self._target, self._holder, self._ttl, self._lease, self._ticket)
        self._fresh = grant if grant.token // GRANTS_PER_REVISION == tx.revision else None
        return grant

    def stay_in_line(self, tx: Tx) -> None:
        if self._ticket is None or not leases.renew(tx, self._ticket):
            self._ticket = enqueue(tx, self._target, self._holder)

    def failed(self) -> None:
        self._fresh = None

    def withdraw(self, tx: Tx) -> None:
        row = load(tx, self._target)
        if row is not None and grant_of(row) == self._fresh:
            free(tx, self._target, row, "release")
        if self._ticket is not None:
            leave_line(tx, self._target, self._ticket)


def enqueue(tx: Tx, target: Target, holder: str | None, detail: bytes | None = None) -> str:
    """Join the line for a target; answers the ticket."""
    holder = holder_of(tx, holder)
    ticket = leases.start(tx, WAITER, holder, WAITER_TTL)
    tx.run(
        "INSERT INTO waiters (kind, scope, name, place, ticket, holder, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*target.key, tx.new_token(), ticket, holder, detail),
    )
    emit(tx, target, "wait", waiter=[None, holder], ticket=[None, ticket])
    return ticket
