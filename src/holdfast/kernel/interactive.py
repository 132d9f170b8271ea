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
from holdfast.kernel.tx import GuardedTx


@contextmanager
def interactive(group: Group, actor: str, timeout: float) -> Iterator[GuardedTx]:
    """Hold the lead and the turn for the block; commit at its end, roll back if it raises."""
    call = Exclusive(_no_body, actor)
    group.lead_alone(call)
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
        tx.end()
        group.body_thread = 0
        group.turns.give()
        group.pass_on()

    def bark() -> None:
        batch.interrupt()
        with tx.guard:
            if not tx.ended:
                late.set()
                batch.rollback()
                free()

    watchdog = threading.Timer(timeout, bark)
    watchdog.daemon = True
    group.body_thread = get_ident()
    watchdog.start()
    try:
        yield tx
        with tx.guard:
            if not late.is_set():
                batch.absorb(tx)
                batch.commit()
    except Exception:
        if late.is_set():
            raise errors.Timeout(_late(timeout), hint=_HINT) from None
        raise
    finally:
        watchdog.cancel()
        with tx.guard:
            if not late.is_set():
                batch.rollback()
                free()
    if late.is_set():
        raise errors.Timeout(_late(timeout), hint=_HINT)
    group.committed(batch.emitted, batch.deadline)


_HINT = "do slow work before the block, or use ws.transact(body); nothing of the block was written"


def _late(timeout: float) -> str:
    return f"the transaction was open for more than {timeout:g} s and was rolled back"


def _no_body(_: object) -> None:
    raise errors.Reentrant()
