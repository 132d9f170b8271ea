"""`ws.queues`: items that one worker at a time takes, in order, each delivered at least once.

A queue is a stash of the type `queue`; its value has the settings. Its items are rows of their own: putting and taking
one costs the same however many there are, and is no version of the stash. An item keeps its number, which is its place,
until it is acknowledged or discarded. Taking it starts a lease with a token; if that ends, or the holder gives the item
back, it is ready again at its place, or a dead letter once it was delivered `max_deliveries` times.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from holdfast import errors
from holdfast.arguments import Meaning
from holdfast.domains.stashes import rows
from holdfast.domains.stashes.queue_rows import (
    DEAD,
    LEASE,
    READY,
    STATES,
    TAKEN,
    Queue,
    as_stored,
    find,
    give_back,
    holder_of_item,
    lease_of,
    open_queue,
)
from holdfast.domains.stashes.rows import QUEUE, StashId
from holdfast.kernel import leases
from holdfast.kernel.events import Filter
from holdfast.kernel.leases import holder_of
from holdfast.kernel.tx import Row, Snapshot, Tx
from holdfast.kernel.validate import any_of, check_limit, check_name, check_seconds, check_ttl
from holdfast.kernel.values import decode, encode
from holdfast.operation import Deadline, Do, Domain, Existed, Listen, M, Next, Steps, procedure, read, write
from holdfast.route import example
from holdfast.types import Page, as_time
from holdfast.types.stashes import QueueItem, QueueSize, QueueState

TTL: Final = 300.0  # seconds that an item is taken for, unless said
MOST: Final = 1000  # items of one put or page
_OFFERS: Final = ("put", "nack", "expire", "retry")  # events after which an item may be ready
_ITEM: Final = (
    "SELECT i.number, i.state, i.deliveries, i.created, i.token, i.key, l.holder, l.deadline, i.value"
    " FROM queue_items i LEFT JOIN leases l ON l.id = 'queue:' || i.queue || ':' || i.number WHERE i.queue = ?"
)
_FIRST: Final = "SELECT number, deliveries FROM queue_items WHERE queue = ? AND state = 'ready' ORDER BY number LIMIT 1"


# --- putting ---------------------------------------------------------------------------------------------------------


def put(id: StashId, value: Any, key: str | None = None) -> Steps[int]:
    """Add an item to the end of a queue and return its number.

    While the queue has an item with this `key`, nothing is added, and the number of that one is returned.
    """
    number: int = yield Do(partial(_put, id=id, value=value, key=key), keyed=True)
    if number < 0:
        yield Existed()
    return abs(number)


def _put(tx: Tx, id: StashId, value: Any, key: str | None) -> int:
    """Add an item; its number, below 0 if it was there already, which an idempotency key remembers so, too."""
    if key is not None:
        check_name(key, "key")
        stash, queue = find(tx, id)
        if queue is not None:
            known = tx.one("SELECT number FROM queue_items WHERE queue = ? AND key = ?", (queue.record, key))
            if known is not None:
                return -int(known[0])
        id = stash
    return _append(tx, id, [value], key)


def put_all(tx: Tx, id: StashId, values: Sequence[Any]) -> list[int]:
    """Add items to the end of a queue, at most 1,000, next to each other; returns their numbers."""
    if not isinstance(values, list | tuple):
        raise errors.InvalidValue(f"values come in a list, not {type(values).__name__}", hint="put takes a single one")
    if len(values) > MOST:
        raise errors.TooLarge(f"at most {MOST} items in one call, not {len(values)}", limit=MOST)
    if not values:
        rows.require_type(tx, id, QUEUE)
        return []
    last = _append(tx, id, values, None)
    return list(range(last - len(values) + 1, last + 1))


def _append(tx: Tx, id: StashId, values: Sequence[Any], key: str | None) -> int:
    """Add items and return the number of the last."""
    encoded = [encode(value, tx.max_value_bytes) for value in values]
    queue = open_queue(tx, id)
    tx.many(
        "INSERT INTO queue_items (queue, number, state, deliveries, created, token, key, value)"
        " VALUES (?, ?, 'ready', 0, ?, NULL, ?, ?)",
        [(queue.record, queue.last + at, tx.now, key, data) for at, data in enumerate(encoded, 1)],
    )
    queue.write(tx, "put", {"last": len(values), READY: len(values)}, bytes=sum(map(len, encoded)))
    return queue.last


# --- taking ----------------------------------------------------------------------------------------------------------


class _EmptyError(Exception):
    """Nothing is ready. Raised so that no idempotency key keeps the answer while the call still waits."""


def take(
    id: StashId, holder: str | None = None, ttl: float = TTL, wait: float | None = None
) -> Steps[QueueItem | None]:
    """Take the first ready item for `ttl` seconds, waiting for up to `wait` seconds; None if there is none.

    Acknowledge it with its token before its lease ends, or another worker gets it.
    """
    micros = check_ttl(ttl)
    body = partial(_take, id=id, holder=holder, ttl=micros)
    if wait is None:
        found: QueueItem | None = yield Do(body, keyed=True)
        return found
    check_seconds(wait, "wait")
    deadline = yield Deadline(wait)
    own = yield Do(lambda tx: rows.require_type(tx, id, QUEUE).id)
    watcher = yield Listen(Filter((QUEUE,), "", own))
    try:
        while True:
            try:
                found = yield Do(partial(_take_any, id=own, holder=holder, ttl=micros), keyed=True)
                return found
            except _EmptyError:
                event = yield Next(watcher, deadline)
                while event is not None and event.op not in _OFFERS:
                    event = yield Next(watcher, deadline)
                if event is None:
                    return None
    finally:
        watcher.close()


def _take_any(tx: Tx, id: str, holder: str | None, ttl: int) -> QueueItem:
    found = _take(tx, id, holder, ttl)
    if found is None:
        raise _EmptyError
    return found


def _take(tx: Tx, id: StashId, holder: str | None, ttl: int) -> QueueItem | None:
    holder = holder_of(tx, holder)
    _, queue = find(tx, id)
    first = None if queue is None else tx.one(_FIRST, (queue.record,))
    if queue is None or first is None:
        return None
    number, deliveries = first
    token = tx.new_token()
    tx.run(
        "UPDATE queue_items SET state = 'taken', deliveries = ?, token = ? WHERE queue = ? AND number = ?",
        (deliveries + 1, token, queue.record, number),
    )
    leases.start(tx, LEASE, holder, ttl, lease_of(queue.record, number))
    queue.write(tx, "take", {READY: -1, TAKEN: 1}, item=number, holder=holder, token=token)
    return _get(tx, queue, number)


def refresh(tx: Tx, id: StashId, token: int, ttl: float | None = None, holder: str | None = None) -> QueueItem:
    """Renew the lease on a taken item, by default for as long as it was taken for. Raises Fenced if it was lost."""
    queue, number, _ = _taken(tx, id, token, holder)
    leases.renew(tx, lease_of(queue.record, number), None if ttl is None else check_ttl(ttl))
    return _get(tx, queue, number)


def ack(tx: Tx, id: StashId, token: int, holder: str | None = None) -> int:
    """Acknowledge a taken item: it leaves the queue. Returns its number. Raises Fenced if its lease was lost."""
    queue, number, _ = _taken(tx, id, token, holder)
    leases.drop(tx, lease_of(queue.record, number), LEASE)
    tx.run("DELETE FROM queue_items WHERE queue = ? AND number = ?", (queue.record, number))
    queue.write(tx, "ack", {TAKEN: -1}, item=number)
    return number


def nack(tx: Tx, id: StashId, token: int, delay: float | None = None, holder: str | None = None) -> QueueState:
    """Give a taken item back to its place, ready now or after `delay` seconds. Raises Fenced if its lease was lost.

    Returns its state: an item that was delivered `max_deliveries` times is a dead letter.
    """
    micros = check_seconds(delay, "delay", allow_none=True)
    queue, number, deliveries = _taken(tx, id, token, holder)
    leases.drop(tx, lease_of(queue.record, number), LEASE)
    return give_back(tx, queue, number, deliveries, "nack", micros or 0)


def _taken(tx: Tx, id: StashId, token: int, holder: str | None) -> tuple[Queue, int, int]:
    """The queue, number and deliveries of the item that the caller has taken. Raises Fenced or NotHolder."""
    holder = holder_of(tx, holder)
    if type(token) is not int:
        raise errors.Invalid(f"token must be the int that take returned, not {token!r}")
    stash, queue = find(tx, id)
    record = None if queue is None else queue.record
    taken = "SELECT number, deliveries FROM queue_items WHERE token = ? AND queue = ?"
    row = tx.one(taken, (as_stored(token), record))
    if queue is None or row is None:
        raise errors.Fenced(
            f"no item of the queue {stash} is taken with token {token}: it was acknowledged, or its lease ended",
            hint="stop the work on it, and take the next item",
            current=None,
        )
    current = holder_of_item(tx, stash, token)
    if current != holder:
        hint = f"ask {current} by mail, or wait until its lease ends"
        raise errors.NotHolder(f"item {row[0]} is taken by {current}, not by {holder}", hint=hint, holder=current)
    return queue, row[0], row[1]


def pop(tx: Tx, id: StashId) -> QueueItem | None:
    """Remove the last ready item of a queue and return it, without a lease; None if nothing is ready.

    For a queue that is also read as a list, whose newest entry is withdrawn. Work that must not be lost is taken.
    """
    _, queue = find(tx, id)
    if queue is None:
        return None
    row = tx.one(f"{_ITEM} AND i.state = '{READY}' ORDER BY i.number DESC LIMIT 1", (queue.record,))
    if row is None:
        return None
    item = _item(queue.stash, row)
    tx.run("DELETE FROM queue_items WHERE queue = ? AND number = ?", (queue.record, item.number))
    queue.write(tx, "pop", {READY: -1}, item=item.number)
    return item


# --- reading ---------------------------------------------------------------------------------------------------------


def size(snapshot: Snapshot, id: StashId) -> QueueSize:
    """Return how many items a queue has in each state."""
    _, queue = find(snapshot, id)
    return QueueSize(0, 0, 0, 0) if queue is None else QueueSize(queue.ready, queue.delayed, queue.taken, queue.dead)


def _check_state(state: Any) -> None:
    if state not in STATES:
        raise errors.InvalidFilter(f"{state!r} is not a state of an item", hint=f"states: {', '.join(STATES)}")


def list_items(
    snapshot: Snapshot,
    id: StashId,
    state: QueueState | Sequence[QueueState] | None = None,
    limit: int = 100,
    after: int = 0,
) -> Page[QueueItem]:
    """List the items of a queue in order, or those in some states: `dead` for the dead letters, `ready` for the next.

    `after` is the number of the last item of the previous page.
    """
    check_limit(limit, MOST, "after")
    where, params = any_of("i.state", state, _check_state)
    if type(after) is not int or not 0 <= after < 2**63:
        raise errors.InvalidFilter(f"after must be the number of an item, not {after!r}")
    stash, queue = find(snapshot, id)
    if queue is None:
        return Page()
    found, more = snapshot.page(
        f"{_ITEM}{where} AND i.number > ? ORDER BY i.number LIMIT ?", (queue.record, *params, after), limit
    )
    return Page.of((_item(stash, row) for row in found), more, lambda item: item.number)


def _get(tx: Tx, queue: Queue, number: int) -> QueueItem:
    row = tx.one(f"{_ITEM} AND i.number = ?", (queue.record, number))
    assert row is not None
    return _item(queue.stash, row)


def _item(stash: str, row: Row) -> QueueItem:
    number, state, deliveries, created, token, key, holder, deadline, value = row
    return QueueItem(
        queue=stash,
        number=number,
        state=state,
        value=decode(value),
        deliveries=deliveries,
        created_at=as_time(created),
        key=key,
        token=token,
        holder=holder if state == TAKEN else None,
        until=None if deadline is None else as_time(deadline),
    )


# --- dead letters ----------------------------------------------------------------------------------------------------


def retry(tx: Tx, id: StashId, number: int | None = None) -> int:
    """Put a dead letter back to its place, or all of them, as if never delivered; returns how many."""
    return _bury(tx, id, number, "retry", "UPDATE queue_items SET state = 'ready', deliveries = 0", READY)


def discard(tx: Tx, id: StashId, number: int | None = None) -> int:
    """Remove a dead letter, or all of them, for good; returns how many."""
    return _bury(tx, id, number, "discard", "DELETE FROM queue_items", None)


def _bury(tx: Tx, id: StashId, number: int | None, op: str, sql: str, to: str | None) -> int:
    if number is not None and (type(number) is not int or not 0 < number < 2**63):
        raise errors.Invalid(f"number must be that of an item, not {number!r}")
    stash, queue = find(tx, id)
    where, params = ("", ()) if number is None else (" AND number = ?", (number,))
    gone = queue and tx.run(f"{sql} WHERE queue = ? AND state = 'dead'{where}", (queue.record, *params))
    if queue is None or not gone:
        if number is not None:
            hint = f'queues.list("{stash}", state="dead") lists them'
            raise errors.NotFound(f"the queue {rows.require(tx, stash).name!r} has no dead letter {number}", hint=hint)
        return 0
    which = {} if number is None else {"item": number}
    queue.write(tx, op, {DEAD: -gone, **({to: gone} if to else {})}, **which)
    return int(gone)


# What examples need.
_JOBS: Final = "holdfast stash create jobs --type queue"
_JOB: Final = """holdfast queue put jobs '{"file": "a.py"}'"""
_TAKE: Final = "holdfast queue take jobs --ttl 60"


class Queues(Domain[M]):
    """`ws.queues`."""

    prefix = "queues"
    put = procedure(
        put,
        http="POST /api/queues/{id}/put",
        cli="queue put",
        done=(
            "item {result} {existed} has the key {key}: nothing was added",
            "put in item {result} with the key {key}",
            "put in item {result}",
        ),
        help="Add an item to the end of a queue and print its number.",
        examples=(example(_JOB, _JOBS), example("holdfast queue put jobs '\"b.py\"' --item-key b.py", _JOBS)),
        creates=True,
        finds="key",
        arguments={"key": Meaning("add nothing while the queue has an item with this key", option="--item-key")},
    )
    put_all = write(
        put_all,
        http="POST /api/queues/{id}/put-all",
        cli="queue put-all",
        nothing=("there was no item to put in",),
        help="Add several items to a queue, next to each other.",
        examples=(example("""holdfast queue put-all jobs '["a.py", "b.py"]'""", _JOBS),),
        creates=True,
        arguments={"values": Meaning("the items, a JSON list; - reads it from standard input", "json")},
    )
    take = procedure(
        take,
        http="POST /api/queues/{id}/take",
        cli="queue take",
        help="Take the first ready item of a queue; exit code 4 if there is none.",
        examples=(
            example(_TAKE, _JOBS, _JOB),
            example("holdfast queue take jobs --wait 1s  # exit code 4: nothing is ready", _JOBS),
        ),
        nothing=("nothing in the queue is ready",),
    )
    refresh = write(
        refresh,
        http="POST /api/queues/{id}/refresh",
        cli="queue refresh",
        help="Renew the lease on an item that you took; exit code 15 if it was lost.",
        examples=(example("holdfast queue refresh jobs 16384 --ttl 60", _JOBS, _JOB, _TAKE),),
        arguments={"token": "the token of the item"},
    )
    ack = write(
        ack,
        http="POST /api/queues/{id}/ack",
        cli="queue ack",
        done=("item {result} is done",),
        help="Acknowledge an item that you took: it leaves the queue.",
        examples=(example("holdfast queue ack jobs 16384", _JOBS, _JOB, _TAKE),),
        arguments={"token": "the token of the item"},
    )
    nack = write(
        nack,
        http="POST /api/queues/{id}/nack",
        cli="queue nack",
        help="Give an item that you took back to its place, and print its state.",
        examples=(example("holdfast queue nack jobs 16384 --delay 30", _JOBS, _JOB, _TAKE),),
        arguments={"token": "the token of the item"},
    )
    pop = write(
        pop,
        http="POST /api/queues/{id}/pop",
        cli="queue pop",
        help="Remove and print the last ready item of a queue; exit code 4 if none is.",
        examples=(example("holdfast queue pop jobs", _JOBS, _JOB),),
        nothing=("nothing in the queue is ready",),
    )
    size = read(
        size,
        http="GET /api/queues/{id}/size",
        listing=True,
        cli="queue size",
        help="Count the items of a queue by state.",
        examples=(example("holdfast queue size jobs --json", _JOBS),),
    )
    list = read(
        list_items,
        http="GET /api/queues/{id}/items",
        listing=True,
        cli="queue list",
        nothing=("there are no such items in the queue",),
        help="List the items of a queue in order.",
        examples=(example("holdfast queue list jobs --state dead", _JOBS),),
        arguments={"state": "ready, delayed, taken or dead"},
    )
    retry = write(
        retry,
        http="POST /api/queues/{id}/retry",
        cli="queue retry ID [NUMBER]",
        done=("{result:items} can be taken again",),
        help="Put dead letters back to their places, and print how many.",
        examples=(example("holdfast queue retry jobs", _JOBS),),
        nothing=("the queue has no dead letters",),
    )
    discard = write(
        discard,
        http="POST /api/queues/{id}/discard",
        cli="queue discard ID [NUMBER]",
        done=("removed {result:dead letters}",),
        help="Remove dead letters for good, and print how many.",
        examples=(example("holdfast queue discard jobs --yes", _JOBS),),
        nothing=("the queue has no dead letters",),
        irreversible="this removes dead letters of the queue",
    )
