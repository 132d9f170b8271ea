"""Retention: closed tasks are soft-deleted after a while, and purged some time after that.

It runs by itself, at most once a day, with the first commit after it is due: its timer is a lease, and its changes are
a transaction of `system`. A closed task stays as long as a task below it does.
"""

from __future__ import annotations

from typing import Final

from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks.changes import erase, remove
from holdfast.domains.tasks.rows import DAY, RETENTION, by_seq, plan_retention
from holdfast.kernel.tx import Tx
from holdfast.kernel.validate import check_flag
from holdfast.operation import Do, Steps
from holdfast.types.tasks import Retired

SLICE: Final = 200  # tasks in one transaction, so that nobody waits long
_SOON: Final = 1_000_000
_CLOSED = (
    "SELECT seq FROM tasks t INDEXED BY tasks_closed WHERE status = 'closed' AND deleted IS NULL AND updated <= ?"
    " AND NOT EXISTS (SELECT 1 FROM tasks c WHERE c.parent = t.seq AND c.deleted IS NULL) ORDER BY updated, seq LIMIT ?"
)
_DELETED = (
    "SELECT seq FROM tasks t INDEXED BY tasks_deleted WHERE deleted IS NOT NULL AND deleted <= ?"
    " AND NOT EXISTS (SELECT 1 FROM tasks c WHERE c.parent = t.seq) ORDER BY deleted, seq LIMIT ?"
)


def sweep_retention(dry_run: bool = False) -> Steps[Retired]:
    """Delete and purge what is due now; with `dry_run` only count. It also runs by itself, once a day."""
    check_flag(dry_run=dry_run)
    part: Retired = yield Do(_try if dry_run else _part, keyed=True)
    done = part
    while not dry_run and part.deleted + part.purged >= SLICE:
        part = yield Do(_part)
        done = Retired(done.deleted + part.deleted, done.purged + part.purged)
    return done


def _part(tx: Tx) -> Retired:
    return retire(tx, SLICE)


def _try(tx: Tx) -> Retired:
    with tx.dry_run():
        return retire(tx, -1)


def retire(tx: Tx, limit: int) -> Retired:
    """Delete and purge what is due, at most `limit` tasks (-1: all)."""
    config = settings_of(tx).config
    done = {"deleted": 0, "purged": 0}
    for what, days, query in (
        ("purged", config.soft_delete_days, _DELETED),
        ("deleted", config.retention_days, _CLOSED),
    ):
        if days is None:
            continue
        cutoff = tx.now - round(days * DAY)
        # Leaves first; their parents have become leaves when the query runs again.
        while (left := limit - sum(done.values())) and (due := tx.all(query, (cutoff, left if limit > 0 else -1))):
            for (seq,) in due:
                task = by_seq(tx, seq)
                if what == "purged":
                    erase(tx, task)
                else:
                    remove(tx, task, seq)
            done[what] += len(due)
            tx.report_progress("retention", sum(done.values()))
    return Retired(**done)


def end_lease(tx: Tx, lease: str, op: str) -> None:
    """Retire a part of what is due when the timer fires, and set it again while tasks remain."""
    if lease != RETENTION:
        return
    part = retire(tx, SLICE)
    if part.deleted + part.purged >= SLICE:
        plan_retention(tx, _SOON)
    elif tx.one("SELECT 1 FROM tasks WHERE status = 'closed' AND deleted IS NULL LIMIT 1") or tx.one(
        "SELECT 1 FROM tasks WHERE deleted IS NOT NULL LIMIT 1"
    ):
        plan_retention(tx)
