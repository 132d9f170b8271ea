"""Leases: the one mechanism by which anything in a workspace expires.

Whatever can expire (a cell with a ttl, a lock, a waiter, a claim) refers to a lease row by its id. A lease that ends
takes everything bound to it along, in one transaction, through the enders that the domains registered. Expiry is a
write like any other: `sweep` runs at the start of a group, as actor `system`, before any body can see an expired
record. Renewal serializes with the sweep on the same row, so an expired lease can never be renewed.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast import errors
from holdfast.clock import FAR_AHEAD, LEAP
from holdfast.kernel.tx import SYSTEM, Snapshot, Tx
from holdfast.kernel.validate import check_name
from holdfast.types import DerivedActor

LEASE = "lease"  # a lease made by a user; any other kind is private to one record of that kind
SWEEP_SIZE = 256
NOBODY = (SYSTEM, "*")  # the workspace itself, and all agents

# What a domain does when a lease ends: remove the records bound to it and emit `op` for each.
Id = int | str
Ender = Callable[[Tx, Id, str], None]
_enders: list[Ender] = []


def wire(*enders: Ender) -> None:
    """Register the functions to call when a lease ends; called once by the workspace, which knows all domains."""
    _enders[:] = enders


# By kind of lock: what a domain does when the lock of a record, by its name, is released or expires. Wired like `wire`.
Freed = Callable[[Tx, str, str, str | None], None]
FREED: dict[str, Freed] = {}

# The newest of the deletions whose records a sweep at this time would remove for good; None if there is none.
Doomed = Callable[[Snapshot, int, int], int | None]
BACKED_UP = "backed up"  # in the memo of a sweep: what was deleted before this time is in a backup
LATER = "later"  # and when to come back for the rest, in microseconds, if a backup of that is yet to be made
BACKUP_TIME = 600_000_000  # for which a purge waits for its backup, which is made outside the turn
PURGES = ("retention", "trail")  # the kinds of leases that time such a removal
_doomed: list[Doomed] = []


def wire_purge(*doomed: Doomed) -> None:
    """Register the functions that know what a sweep would remove for good; called once, like `wire`."""
    _doomed[:] = doomed


def doomed(snapshot: Snapshot, now: int, wall: int) -> int | None:
    """Return the newest deletion whose records a sweep removes for good now: a backup must be newer than that."""
    due = f"SELECT 1 FROM leases WHERE deadline <= ? AND kind IN ({', '.join('?' * len(PURGES))})"
    if not snapshot.one(due, (now, *PURGES)):
        return None
    return max((at for ask in _doomed if (at := ask(snapshot, now, wall)) is not None), default=None)


def patience(snapshot: Snapshot, now: int, wall: int) -> int:
    """Return how long what destroys by itself must wait, in microseconds; 0 if it may act.

    It waits for a day after time has leaped, and as long as the workspace's time is ahead of the wall clock.
    """
    row = snapshot.one("SELECT calm FROM meta")
    assert row is not None
    left = row[0] + LEAP - now if row[0] else 0
    return max(left, LEAP if now - wall > FAR_AHEAD else 0, 0)


def next_purge(tx: Tx, otherwise: int) -> int:
    """Return how long what this sweep did not remove has to wait: `otherwise`, or for its backup."""
    wait: int = tx.memo.get(LATER, otherwise)
    return wait


def start(tx: Tx, kind: str, holder: str, ttl: int, id: str | None = None) -> str:
    """Create a lease that ends `ttl` microseconds from now and return its id."""
    id = id or tx.new_id()
    start_as(tx, id, kind, holder, ttl)
    return id


def start_as(tx: Tx, id: Id, kind: str, holder: str, ttl: int) -> None:
    """Create a lease with an id that its record has."""
    deadline = tx.now + ttl
    tx.run(
        "INSERT INTO leases (id, kind, holder, ttl, deadline, created) VALUES (?, ?, ?, ?, ?, ?)",
        (id, kind, holder, ttl, deadline, tx.now),
    )
    _expect(tx, deadline)


def renew(tx: Tx, id: Id, ttl: int | None = None, *, shorten: bool = True) -> bool:
    """Extend the lease to `ttl` (default: as granted) from now. False if it has ended. Emits nothing."""
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


def drop(tx: Tx, id: Id | None, kind: str) -> None:
    """Remove the private lease of a record that no longer needs it; a user's own lease stays."""
    if id is not None:
        tx.run("DELETE FROM leases WHERE id = ? AND kind = ?", (id, kind))


def finish(tx: Tx, id: Id, kind: str, op: str) -> None:
    """End a lease and everything bound to it, each with its event."""
    tx.run("DELETE FROM leases WHERE id = ?", (id,))
    for end in _enders:
        end(tx, id, op)
    if kind == LEASE:
        tx.emit(LEASE, str(id), op)


def sweep(tx: Tx) -> bool:
    """End at most SWEEP_SIZE leases that are due. True if there was any."""
    due = tx.all("SELECT id, kind FROM leases WHERE deadline <= ? ORDER BY deadline, id LIMIT ?", (tx.now, SWEEP_SIZE))
    for id, kind in due:
        finish(tx, id, kind, "expire")
    return bool(due)


def next_deadline(snapshot: Snapshot) -> tuple[int | None, int]:
    """Return the earliest deadline, by index, and the stamp of the last commit."""
    row = snapshot.one("SELECT (SELECT min(deadline) FROM leases), stamp FROM meta")
    if row is None or type(row[1]) is not int or not isinstance(row[0], int | None):
        raise errors.Corrupt(
            f"the store is damaged: {row!r} is stored where the next deadline and the last commit belong"
        )
    return row[0], row[1]


def shift(tx: Tx, by: int) -> None:
    """Shift every deadline after a reset of the clock."""
    tx.run("UPDATE leases SET deadline = deadline + ?, created = created + ?", (by, by))


def _expect(tx: Tx, deadline: int) -> None:
    if tx.deadline is None or deadline < tx.deadline:
        tx.deadline = deadline


# --- holders ---------------------------------------------------------------------------------------------------------


def holder_of(tx: Tx, holder: str | None, what: str = "holder") -> str:
    """Return the holder: as given, or the actor unless it was only derived."""
    name = name_of(tx.actor, holder, what)
    tx.saw(name)
    return name


def name_of(actor: str, given: str | None, what: str) -> str:
    """Return a name: as given, or the actor. Raises InvalidHolder for a derived actor: two agents may share it."""
    if given is None:
        if isinstance(actor, DerivedActor):
            source = "is derived from user and host" if "@" in actor else "is only the name of the token"
            message = f"this needs the name of the {what}: {actor!r} {source}, and two agents could share it"
            raise errors.InvalidHolder(message)
        return actor
    check_name(given, what)
    if given in NOBODY:
        raise errors.InvalidName(f"{given!r} cannot be a {what}", hint="choose another name", what=what)
    return given
