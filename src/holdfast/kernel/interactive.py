"""`with ws.transaction()`: a transaction that holds the write lock while user code runs, under a watchdog.

It never re-runs. If the block is not done in time, the watchdog rolls it back and frees the lock for the others; every
later statement of the block is refused, and leaving it raises Timeout. Called by the workspace.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from holdfast import errors
from holdfast.kernel.batch import Batch
from holdfast.kernel.group import Exclusive, Group
from holdfast.kernel.journal import Moved
from holdfast.kernel.shield import SHIELD
from holdfast.kernel.tx import GuardedTx


@contextmanager
def interactive(group: Group, actor: str, timeout: float) -> Iterator[GuardedTx]:
    """Hold the lead and the turn for the block; commit at its end, roll back if it raises."""
    with SHIELD:
        group.lead_alone(Exclusive(_no_body, actor))
        try:
            if not group.turns.take(group.busy_timeout):
                raise group.turn_missed()
            batch = _begin(group)
        except BaseException:
            group.pass_on()
            raise
        yield from _watched(group, batch, batch.guarded(actor), timeout)


def _begin(group: Group) -> Batch:
    try:
        batch = Batch(group.writer)
        batch.begin()
        return batch
    except BaseException:
        group.turns.give()
        raise


def _watched(group: Group, batch: Batch, tx: GuardedTx, timeout: float) -> Iterator[GuardedTx]:
    late = threading.Event()

    def free() -> None:
        batch.rollback()
        batch.break_off_when(None)
        tx.end()
        group.exit()
        group.turns.give()
        group.pass_on()

    def bark() -> None:
        late.set()  # breaks off a statement that is running
        with tx.guard:
            if not tx.ended:
                free()

    watchdog = threading.Timer(timeout, bark)
    watchdog.daemon = True
    group.enter()
    batch.break_off_when(late.is_set)
    watchdog.start()
    try:
        with SHIELD.window():
            yield tx
        with tx.guard:
            if tx.ended and late.is_set():
                raise _too_late(timeout)
            batch.break_off_when(None)  # from here on it is not too late any more
            batch.absorb(tx)
            batch.commit()
    except Moved as moved:
        raise errors.Outrun() from moved
    except errors.HoldfastError as error:
        if late.is_set() and isinstance(error, errors.Timeout | errors.Closed):
            raise _too_late(timeout) from error
        _confirm(batch, error)
        raise
    finally:
        watchdog.cancel()
        with tx.guard:
            if group.body_thread == get_ident():  # the watchdog has not been here
                free()
    group.committed(batch.emitted, batch.deadline)


def _confirm(batch: Batch, refusal: errors.HoldfastError) -> None:
    """On a replica: a refusal that left the block must have seen everything, as an answer must."""
    try:
        batch.confirm()
    except Moved:
        raise errors.Outrun() from refusal


def _too_late(timeout: float) -> errors.Timeout:
    return errors.Timeout(
        f"the transaction was open for more than {timeout:g} s and was rolled back",
        hint="do slow work before the block, or use ws.transact(body); nothing of the block was written",
    )


def _no_body(_: object) -> None:
    raise errors.Reentrant()
