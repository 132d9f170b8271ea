"""Stale claims, on demand: what the sweep does by itself, and what is older than somebody has patience for."""

from __future__ import annotations

from holdfast.domains.tasks.rows import TASK
from holdfast.kernel import leases
from holdfast.kernel.names import check_seconds
from holdfast.kernel.tx import Tx
from holdfast.ops import Do, Steps

# Claims whose last sign of life, which is a ttl before the deadline, lies too far back.
_AGED = (
    "SELECT l.id FROM tasks t JOIN leases l ON l.id = 'task:' || t.id WHERE t.holder IS NOT NULL AND NOT t.parked"
    " AND l.deadline - l.ttl <= ? AND l.deadline > ? ORDER BY l.id"
)
_SWEPT = "SELECT count(*) FROM events WHERE +kind = ? AND op = 'expire' AND revision > ?"


def release_stale_claims(timeout: float | None = None) -> Steps[int]:
    """Reopen the tasks whose claims have ended, or have shown no sign of life for `timeout` seconds; how many.

    Claims end by themselves in time: this is for those who do not want to wait. The actor is `system`.
    """
    age = check_seconds(timeout, "timeout", allow_none=True)
    count: int = yield Do(lambda tx: _mark(tx, age), keyed=True)
    yield Do(_finish)
    return count


def _mark(tx: Tx, age: int | None) -> int:
    """Let what is too old end now; what was due has been swept just before, at the start of the group."""
    row = tx.one(_SWEPT, (TASK, tx.began))
    swept = 0 if row is None else row[0]
    aged = [] if age is None else tx.all(_AGED, (tx.now - age, tx.now))
    for (id,) in aged:
        tx.run("UPDATE leases SET deadline = ? WHERE id = ?", (tx.now, id))
    return int(swept) + len(aged)


def _finish(tx: Tx) -> None:
    """End what is due: nothing, because the sweep came before, except inside a transaction, where none does."""
    for (id,) in tx.all("SELECT id FROM leases WHERE kind = ? AND deadline <= ? ORDER BY id", (TASK, tx.now)):
        leases.finish(tx, id, TASK, "expire")
