"""The rows of queues and their items: a row for each queue that counts its items by state, and a row for each item.

Invariant: whoever changes an item changes the counts in the same transaction, and logs both in one event of the queue.
So `check` compares the items with the counts and the counts with the log, and no size is ever counted. An item keeps
its number, which is its place, until it is acknowledged or discarded. Called by the queues, by the stashes when one is
removed, and by the kernel when a lease ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.domains.stashes import rows
from holdfast.domains.stashes.rows import QUEUE, StashId
from holdfast.kernel import leases
from holdfast.kernel.events import compare, pasts, redact
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.values import INT_MAX, INT_MIN, decode
from holdfast.types.stashes import QueueState

READY, DELAYED, TAKEN, DEAD = STATES = ("ready", "delayed", "taken", "dead")
LEASE: Final = "queue-item"  # the kind of the leases on items
_COUNTED: Final = ("last", *STATES)
_QUEUE: Final = f"SELECT record, stash, version, {', '.join(_COUNTED)} FROM queues WHERE"
_encode = msgspec.msgpack.Encoder().encode


class Queue(msgspec.Struct):
    """The row of a queue."""

    record: int
    stash: str
    version: int = 0
    last: int = 0
    ready: int = 0
    delayed: int = 0
    taken: int = 0
    dead: int = 0

    def write(self, tx: Tx, op: str, by: dict[str, int], **facts: object) -> None:
        """Add to the counts, and log what they were and are, with further facts."""
        changes = {name: [getattr(self, name), getattr(self, name) + more] for name, more in by.items() if more}
        for name, (_, new) in changes.items():
            setattr(self, name, new)
        self.version += 1
        tx.run(
            "UPDATE queues SET version = ?, revision = ?, last = ?, ready = ?, delayed = ?, taken = ?, dead = ?"
            " WHERE record = ?",
            (self.version, tx.revision, self.last, self.ready, self.delayed, self.taken, self.dead, self.record),
        )
        tx.emit_of(self.record, op, self.version, _encode({**changes, **facts}))


def find(snapshot: Snapshot, id: StashId) -> tuple[str, Queue | None]:
    """The id of a queue, and its row; one that was never put into has none."""
    stash = rows.require_type(snapshot, id, QUEUE).id
    row = snapshot.one(f"{_QUEUE} stash = ?", (stash,))
    return stash, None if row is None else Queue(*row)


def open_queue(tx: Tx, id: StashId) -> Queue:
    """The row of a queue, made if need be."""
    stash, queue = find(tx, id)
    if queue is None:
        queue = Queue(tx.key_of(QUEUE, stash), stash)
        tx.run(
            "INSERT INTO queues (record, stash, version, revision, last, ready, delayed, taken, dead)"
            " VALUES (?, ?, 0, ?, 0, 0, 0, 0, 0)",
            (queue.record, stash, tx.revision),
        )
    return queue


def lease_of(queue: int, number: int) -> str:
    """Return the id of the lease on an item, of its delivery or its delay."""
    return f"{QUEUE}:{queue}:{number}"


def as_stored(token: int) -> int | None:
    """A token as a statement takes it; one that SQLite cannot hold was never granted, and None equals nothing there."""
    return token if INT_MIN <= token <= INT_MAX else None


def holder_of_item(snapshot: Snapshot, stash: str, token: int) -> str | None:
    """Return who has taken the item of a queue with this token; None if nobody has, or has no more."""
    row = snapshot.one(
        "SELECT l.holder FROM queue_items i JOIN queues q ON q.record = i.queue"
        " JOIN leases l ON l.id = 'queue:' || i.queue || ':' || i.number WHERE i.token = ? AND q.stash = ?",
        (as_stored(token), stash),
    )
    return None if row is None else str(row[0])


# --- giving back ------------------------------------------------------------------------------------------------------


def give_back(tx: Tx, queue: Queue, number: int, deliveries: int, op: str, delay: int = 0) -> QueueState:
    """Make a taken item ready, delayed or dead."""
    state: QueueState = "dead" if deliveries >= _max_deliveries(tx, queue) else "delayed" if delay else "ready"
    if state == DELAYED:
        leases.start(tx, LEASE, tx.actor, delay, lease_of(queue.record, number))
    _move(tx, queue, number, state)
    queue.write(tx, op, {TAKEN: -1, state: 1}, item=number)
    return state


def _move(tx: Tx, queue: Queue, number: int, state: str) -> None:
    tx.run(
        "UPDATE queue_items SET state = ?, token = NULL WHERE queue = ? AND number = ?", (state, queue.record, number)
    )


def _max_deliveries(tx: Tx, queue: Queue) -> int:
    row = tx.one("SELECT value FROM stashes WHERE id = ?", (queue.stash,))
    return rows.setting(QUEUE, None if row is None else decode(row[0]))


def end_lease(tx: Tx, lease: str, op: str) -> None:
    """Give back an item whose lease or delay has ended."""
    record, number = map(int, lease.split(":")[1:])
    row = tx.one(f"{_QUEUE} record = ?", (record,))
    item = tx.one("SELECT state, deliveries FROM queue_items WHERE queue = ? AND number = ?", (record, number))
    if row is None or item is None:
        return  # the queue went in the same sweep
    queue = Queue(*row)
    if item[0] == TAKEN:
        give_back(tx, queue, number, item[1], op)
    else:
        _move(tx, queue, number, READY)
        queue.write(tx, op, {DELAYED: -1, READY: 1}, item=number)


# --- for the stashes, and for check ----------------------------------------------------------------------------------


def erase(tx: Tx, stash: str, op: str) -> None:
    """Remove the items of a queue that is removed."""
    row = tx.one(f"{_QUEUE} stash = ?", (stash,))
    if row is None:
        return
    queue = Queue(*row)
    # Those whose ids begin with queue:RECORD: ; the semicolon follows the colon.
    tx.run("DELETE FROM leases WHERE id > ? AND id < ?", (f"{QUEUE}:{queue.record}:", f"{QUEUE}:{queue.record};"))
    tx.run("DELETE FROM queue_items WHERE queue = ?", (queue.record,))
    tx.run("DELETE FROM queues WHERE record = ?", (queue.record,))
    redact(tx, QUEUE, "", stash)
    tx.emit_of(queue.record, op, queue.version + 1, None)


_PROBLEMS: Final = {
    "the items of the queue {} are not as many as it counts": (
        "SELECT stash FROM queues q WHERE (ready, delayed, taken, dead) <> (SELECT "
        + ", ".join(f"count(*) FILTER (WHERE state = '{state}')" for state in STATES)
        + " FROM queue_items WHERE queue = q.record)"
    ),
    "item {} belongs to no queue, or is beyond its last": (
        "SELECT i.queue || ':' || i.number FROM queue_items i WHERE NOT EXISTS"
        " (SELECT 1 FROM queues q WHERE q.record = i.queue AND i.number BETWEEN 1 AND q.last)"
    ),
    "item {} has a token, but is not taken, or a lease that its state does not need": (
        "SELECT i.queue || ':' || i.number FROM queue_items i WHERE (i.state = 'taken') <> (i.token IS NOT NULL)"
        " OR (i.state IN ('taken', 'delayed')) <> EXISTS (SELECT 1 FROM leases l"
        f" WHERE l.id = 'queue:' || i.queue || ':' || i.number AND l.kind = '{LEASE}')"
    ),
    "item {} has not been delivered as its state says": (
        "SELECT queue || ':' || number FROM queue_items WHERE state NOT IN ('ready', 'delayed', 'taken', 'dead')"
        " OR deliveries < (state <> 'ready')"
    ),
    "lease {} belongs to an item that does not exist": (
        f"SELECT id FROM leases l WHERE kind = '{LEASE}' AND NOT EXISTS (SELECT 1 FROM queue_items i"
        " WHERE l.id = 'queue:' || i.queue || ':' || i.number)"
    ),
    "the queue {} is not a stash of that type": (
        "SELECT stash FROM queues q WHERE NOT EXISTS"
        " (SELECT 1 FROM stashes s WHERE s.id = q.stash AND s.type = 'queue')"
    ),
}


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report queues that differ from the log, and items that differ from their queue or have no lease."""
    defaults = dict.fromkeys(_COUNTED, 0)
    columns = ("version", "revision", *_COUNTED)
    yield from compare(
        snapshot, QUEUE, pasts(snapshot, QUEUE), f"SELECT stash, {', '.join(columns)} FROM queues", columns, defaults
    )
    for problem, sql in _PROBLEMS.items():
        for (which,) in snapshot.all(sql):
            yield problem.format(which)
