"""Leases: the one mechanism by which anything in a workspace ends by itself.

Whatever can expire (a cell with a ttl, a lock, a waiter, later a claim) hangs on a lease row by its id. A lease
that ends takes everything on it along, in one transaction, through the enders that the domains gave. Expiry is a
write like any other: `sweep` runs at the start of a group, as actor `system`, before any body can see what is past
its deadline. Renewing serialises with the sweep on the same row, so an expired lease can never be renewed.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.kernel.tx import Snapshot, Tx

LEASE = "lease"  # a lease made by a user; other kinds carry one record of that kind
SWEEP_SIZE = 256

# What a domain does when a lease ends: remove what hangs on it and emit `op` for each.
Ender = Callable[[Tx, str, str], None]
_enders: list[Ender] = []


def wire(*enders: Ender) -> None:
    """Tell the kernel who must act when a lease ends; called once by workspace.py, which knows all domains."""
    _enders[:] = enders


def start(tx: Tx, kind: str, holder: str, ttl: int, id: str | None = None) -> str:
    """A new lease that ends `ttl` microseconds from now; answers its id."""
    id = id or tx.new_id()
    tx.run(
        "INSERT INTO leases (id, kind, holder, ttl, deadline, created) VALUES (?, ?, ?, ?, ?, ?)",
        (id, kind, holder, ttl, tx.now + ttl, tx.now),
    )
    _expect(tx, tx.now + ttl)
    return id


def renew(tx: Tx, id: str, ttl: int | None = None, *, shorten: bool = True) -> bool:
    """Let the lease end `ttl` (default: as granted) from now; False if it has ended. Emits nothing."""
    row = tx.one("SELECT ttl, deadline FROM leases WHERE id = ?", (id,))
    if row is None:
        return False
    ttl = row[0] if ttl is None else ttl
    deadline = tx.now + ttl
    if not shorten and deadline <= row[1]:
        return True
    tx.run("UPDATE leases SET ttl = ?, deadline = ? WHERE id = ?", (ttl, deadline, id))
    _expect(tx, deadline)
    return True


def drop(tx: Tx, id: str | None, kind: str) -> None:
    """Remove the private lease of a record that no longer needs it; a user's own lease stays."""
    if id is not None:
        tx.run("DELETE FROM leases WHERE id = ? AND kind = ?", (id, kind))


def finish(tx: Tx, id: str, kind: str, op: str) -> None:
    """End a lease: it and everything on it goes, each with its event."""
    tx.run("DELETE FROM leases WHERE id = ?", (id,))
    for end in _enders:
        end(tx, id, op)
    if kind == LEASE:
        tx.emit(LEASE, id, op)


def sweep(tx: Tx) -> bool:
    """End what is due, at most SWEEP_SIZE leases in this transaction; True if any was."""
    due = tx.all("SELECT id, kind FROM leases WHERE deadline <= ? ORDER BY deadline, id LIMIT ?", (tx.now, SWEEP_SIZE))
    for id, kind in due:
        finish(tx, id, kind, "expire")
    return bool(due)


def next_deadline(snapshot: Snapshot) -> tuple[int | None, int]:
    """The earliest deadline of all, by index, and the stamp of the last commit."""
    row = snapshot.one("SELECT (SELECT min(deadline) FROM leases), stamp FROM meta")
    assert row is not None
    return row[0], row[1]


def shift(tx: Tx, by: int) -> None:
    """Move every deadline, when the clock was put right."""
    tx.run("UPDATE leases SET deadline = deadline + ?, created = created + ?", (by, by))


def _expect(tx: Tx, deadline: int) -> None:
    if tx.deadline is None or deadline < tx.deadline:
        tx.deadline = deadline
