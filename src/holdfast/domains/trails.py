"""Trails: tasks and stashes that belong together, from a draft to their end.

Completing a trail releases its tasks and keeps its stashes; abandoning one deletes both, and `restore` can bring them
back as long as deleted tasks are kept. Each is one transaction. A task belongs to at most one trail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import link_types, locks
from holdfast.domains.stashes import A_TRAIL, erase, open_trail, rows
from holdfast.domains.tasks import changes
from holdfast.domains.tasks.creation import check_note
from holdfast.domains.tasks.rows import DAY
from holdfast.domains.tasks.rows import require as require_task
from holdfast.kernel import leases
from holdfast.kernel.events import IMPORT, compare, pasts
from holdfast.kernel.tx import Row, Snapshot, Tx
from holdfast.kernel.validate import any_of, check_id, check_limit, check_name
from holdfast.operation import Domain, Found, M, read, write
from holdfast.route import example
from holdfast.types import Page, as_time, counted
from holdfast.types.stashes import Trail, TrailState

BELONGS_TO: Final = "belongs_to"
BRANCHES_FROM: Final = "branches_from"
MAX_MEMBERS: Final = 10_000
_MEMBERS: Final = (
    "SELECT k.source FROM links k JOIN tasks t ON t.id = k.source"
    " WHERE k.kind = ? AND k.target = ? AND k.source > ? AND t.deleted IS NULL ORDER BY k.source LIMIT ?"
)
_COLUMNS: Final = "id, name, state, created, updated, ended, version, revision, before"


def to_trail(row: Row) -> Trail:
    """Return the public form of a row."""
    id, name, state, created, updated, ended, version, revision, _ = row
    end = None if ended is None else as_time(ended)
    return Trail(id, name, state, as_time(created), as_time(updated), end, version, revision)


def _load(snapshot: Snapshot, id: Any) -> Row:
    check_id(id)
    row = snapshot.one(f"SELECT {_COLUMNS} FROM trails WHERE id = ?", (id,))
    if row is None:
        raise errors.NotFound(f"there is no trail {id!r}", hint="trails.list() lists them", id=id)
    return row


def create(tx: Tx, name: str, state: TrailState = "draft") -> Trail:
    """Create a trail, by default as a draft."""
    check_name(name, "trail name")
    if state not in tuple(rows.STEPS):
        raise errors.InvalidTransition(f"a trail starts as one of {', '.join(rows.STEPS)}, not as {state!r}")
    id = tx.new_id()
    tx.run(
        "INSERT INTO trails (id, name, state, before, version, revision, created, updated, ended)"
        " VALUES (?, ?, ?, '', 1, ?, ?, ?, NULL)",
        (id, name, state, tx.revision, tx.now, tx.now),
    )
    _emit(tx, id, "create", 1, name=[None, name], state=[None, state])
    return to_trail(_load(tx, id))


def get(snapshot: Snapshot, id: str) -> Trail:
    """Return a trail. Raises NotFound."""
    return to_trail(_load(snapshot, id))


def _check_state(state: Any) -> None:
    if state not in (*rows.STEPS, *rows.ENDED):
        raise errors.InvalidFilter(f"{state!r} is not a state", hint=f"states: {', '.join((*rows.STEPS, *rows.ENDED))}")


def list_trails(
    snapshot: Snapshot, state: TrailState | Sequence[TrailState] | None = None, limit: int = 1000, after: str = ""
) -> Page[Trail]:
    """List trails in the order of creation; `after` is the last id of the previous page."""
    check_limit(limit, 1000, "after")
    where, params = any_of("state", state, _check_state)
    if not isinstance(after, str):
        raise errors.InvalidFilter(f"after must be the id of a trail, not {after!r}")
    if after:
        check_id(after, "after")
    found, more = snapshot.page(
        f"SELECT {_COLUMNS} FROM trails WHERE id > ?{where} ORDER BY id LIMIT ?", (after, *params), limit
    )
    return Page.of(map(to_trail, found), more, lambda trail: trail.id)


def set_state(tx: Tx, id: str, state: TrailState) -> Trail:
    """Advance a trail: from draft to pending or active, from pending to active. Raises InvalidTransition.

    "completed" and "abandoned" do the same as `complete` and `abandon`.
    """
    row = _load(tx, id)
    if state == "completed":
        return complete(tx, id)
    if state == "abandoned":
        return abandon(tx, id)
    if state not in rows.STEPS.get(row[2], ()):
        raise _no_way(row, state)
    return _change(tx, row, "state", {"state": state})


def _no_way(row: Row, state: Any) -> errors.InvalidTransition:
    ways = ", ".join(rows.WAYS.get(row[2], ())) or "none; trails.restore(id) restores an abandoned one"
    return errors.InvalidTransition(
        f"the trail {row[0]} is {row[2]} and cannot become {state!r}",
        hint=f"from {row[2]}: {ways}",
        state=row[2],
    )


def _change(tx: Tx, row: Row, op: str, columns: dict[str, Any], **more: Any) -> Trail:
    """Write the next version of a trail and its event."""
    changed = {**columns, "version": row[6] + 1, "revision": tx.revision, "updated": tx.now}
    assignments = ", ".join(f"{name} = ?" for name in changed)
    tx.run(f"UPDATE trails SET {assignments} WHERE id = ?", (*changed.values(), row[0]))
    if "state" in columns:
        more["state"] = [row[2], columns["state"]]
    _emit(tx, row[0], op, row[6] + 1, **more)
    return to_trail(_load(tx, row[0]))


def _emit(tx: Tx, id: str, op: str, version: int, **changes: Any) -> None:
    tx.emit(rows.TRAIL, id, op, version=version, data=msgspec.msgpack.encode(changes))


# --- membership ------------------------------------------------------------------------------------------------------


def add(tx: Tx, trail: str, task: str) -> Trail:
    """Add a task to a trail, if it is not in it already. Raises Exists if it belongs to another."""
    join(tx, task, trail)
    return get(tx, trail)


def join(tx: Tx, task: str, trail: str) -> str:
    """Return the link by which a task belongs to a trail, made if necessary. Raises Exists."""
    open_trail(tx, trail)
    own = require_task(tx, task).id
    others = [each for each in link_types.targets(tx, BELONGS_TO, own) if each != trail]
    if others:
        raise errors.Exists(
            f"the task {own} belongs to the trail {others[0]}", hint="remove it there first", id=own, trail=others[0]
        )
    return link_types.tie(tx, BELONGS_TO, own, trail)


def remove(tx: Tx, trail: str, task: str) -> bool:
    """Remove a task from a trail; False if it was not in it."""
    _load(tx, trail)
    return link_types.untie(tx, BELONGS_TO, require_task(tx, task, deleted=True).id, trail)


def members(snapshot: Snapshot, id: str, limit: int = MAX_MEMBERS, after: str = "") -> Page[str]:
    """List the ids of a trail's tasks, without deleted ones until they are restored; `after` is the last of a page."""
    check_limit(limit, MAX_MEMBERS, "after")
    if after != "":
        check_id(after, "after")
    found, more = snapshot.page(_MEMBERS, (BELONGS_TO, _load(snapshot, id)[0], after), limit)
    return Page.of((source for (source,) in found), more, str)


def _tasks_of(tx: Tx, id: str) -> list[str]:
    """All of a trail's tasks."""
    return [source for (source,) in tx.all(_MEMBERS, (BELONGS_TO, id, "", -1))]


# --- its end ---------------------------------------------------------------------------------------------------------


def complete(tx: Tx, id: str) -> Trail:
    """Complete an active trail: its tasks stay but leave it, its stashes stay in it. Raises InvalidTransition."""
    row = _load(tx, id)
    if row[2] != "active":
        raise _no_way(row, "completed")
    released = link_types.untie_sources(tx, BELONGS_TO, id)
    return _change(tx, row, "complete", {"state": "completed", "ended": tx.now}, tasks=[released, []])


def abandon(tx: Tx, id: str, reason: str | None = None) -> Trail:
    """Abandon a trail: its tasks and stashes are deleted, and `restore` can bring them back.

    Raises Held while a lock of the trail is held, TaskActive while one of its tasks is claimed.
    """
    check_note(reason, "reason")
    row = _load(tx, id)
    if row[2] in rows.ENDED:
        raise _no_way(row, "abandoned")
    for stash, holder, deadline in tx.all(
        "SELECT s.id, k.holder, l.deadline FROM stashes s JOIN locks k ON k.kind = ? AND k.scope = '' AND k.name = s.id"
        " LEFT JOIN leases l ON l.id = k.lease WHERE s.trail = ? AND s.deleted IS NULL ORDER BY s.id LIMIT 1",
        (rows.STASH_LOCK, id),
    ):
        raise locks.held(rows.lock_of(stash), holder, deadline)
    going = _tasks_of(tx, id)
    for task in going:
        if require_task(tx, task, deleted=True).deleted is None:  # otherwise deleted with its parent
            changes.delete(tx, task, reason)
    stashes = [
        each for (each,) in tx.all("SELECT id FROM stashes WHERE trail = ? AND deleted IS NULL ORDER BY id", (id,))
    ]
    tx.run("UPDATE stashes SET deleted = ? WHERE trail = ? AND deleted IS NULL", (tx.now, id))
    rows.plan_purge(tx, id)
    columns = {"state": "abandoned", "before": row[2], "ended": tx.now}
    more = {} if reason is None else {"note": reason}
    return _change(tx, row, "abandon", columns, tasks=[going, []], stashes=[stashes, []], **more)


def restore(tx: Tx, id: str) -> Trail:
    """Restore an abandoned trail with what was deleted with it and not purged since. Raises InvalidTransition."""
    row = _load(tx, id)
    if row[2] != "abandoned":
        raise errors.InvalidTransition(f"the trail {id} is {row[2]}, not abandoned", state=row[2])
    went = rows.taken(tx, id, row[6])
    gone = [require_task(tx, task, deleted=True) for task in link_types.sources(tx, BELONGS_TO, id)]
    for task in sorted(gone, key=lambda each: each.depth):  # parents first
        if task.id in went:
            changes.restore(tx, task.id)
    tx.run("UPDATE stashes SET deleted = NULL WHERE trail = ? AND deleted IS NOT NULL", (id,))
    rows.stop_purge(tx, id)
    return _change(tx, row, "restore", {"state": row[8], "before": "", "ended": None})


def end_lease(tx: Tx, lease: str, op: str) -> None:
    """Purge the stashes of an abandoned trail when it can no longer be restored."""
    trail = lease.removeprefix(rows.purge_of(""))
    wait = leases.patience(tx, tx.now, tx.wall_clock())
    ended = tx.one("SELECT ended FROM trails WHERE id = ?", (trail,))
    if wait or (ended is not None and ended[0] >= tx.memo.get(leases.BACKED_UP, 0)):
        leases.start(tx, rows.TRAIL, tx.actor, wait or leases.next_purge(tx, DAY), lease)
        return
    for stash, version, bound in tx.all(
        "SELECT id, version, lease FROM stashes WHERE trail = ? AND deleted IS NOT NULL ORDER BY id", (trail,)
    ):
        erase(tx, stash, version, bound, "purge")


def doomed(snapshot: Snapshot, now: int, wall: int) -> int | None:
    """When the newest of the trails was abandoned whose stashes are purged now; see `leases.doomed`."""
    row = snapshot.one(
        "SELECT max(t.ended) FROM leases l JOIN trails t ON t.id = substr(l.id, ?)"
        " WHERE l.deadline <= ? AND l.kind = ?",
        (len(rows.purge_of("")) + 1, now, rows.TRAIL),
    )
    return None if row is None or leases.patience(snapshot, now, wall) else row[0]


def delete(tx: Tx, id: str) -> None:
    """Delete a trail without members. Raises Conflict while it has any.

    Stashes deleted with an abandoned trail are purged; its tasks stay deleted, and `tasks.restore` restores each.
    """
    row = _load(tx, id)
    stashes = tx.all("SELECT 1 FROM stashes WHERE trail = ? AND deleted IS NULL", (id,))
    tasks = _tasks_of(tx, id)
    if tasks or stashes:
        raise errors.Conflict(
            f"the trail {id} still has {counted(len(tasks), 'tasks')} and {counted(len(stashes), 'stashes')}",
            hint="remove or delete them first, or abandon the trail",
        )
    for stash, version, lease in tx.all("SELECT id, version, lease FROM stashes WHERE trail = ?", (id,)):
        erase(tx, stash, version, lease, "delete")
    link_types.untie_sources(tx, BELONGS_TO, id)
    for target in link_types.targets(tx, BRANCHES_FROM, id):
        link_types.untie(tx, BRANCHES_FROM, id, target)
    rows.stop_purge(tx, id)
    tx.run("DELETE FROM trails WHERE id = ?", (id,))
    _emit(tx, id, "delete", row[6] + 1, state=[row[2], None])


# --- hooks for other domains -----------------------------------------------------------------------------------------


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition sees of a trail: its state."""
    row = tx.one(f"SELECT {_COLUMNS} FROM trails WHERE id = ?", (id,))
    return None if row is None else Found(row[6], row[2])


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report trails that differ from the log, members of missing trails, and deleted stashes of a live trail."""
    past = pasts(snapshot, rows.TRAIL)
    columns = ("name", "state", "version", "revision", "created", "updated")
    yield from compare(snapshot, rows.TRAIL, past, f"SELECT id, {', '.join(columns)} FROM trails", columns)
    for id, state, before, ended in snapshot.all("SELECT id, state, before, ended FROM trails"):
        step = past[id].fields.get("state") if id in past else None
        was = step.old if step is not None and state == rows.ABANDONED else ""
        since = step.time if step is not None and state in rows.ENDED else None
        if step is not None and step.op != IMPORT and (before, ended) != (was, since):
            yield f"trail {id} ended as {before!r} at {ended}, but as {was!r} at {since} in the log"
    for kind in (BELONGS_TO, rows.SCOPED_TO):
        for source, target in snapshot.all(
            "SELECT source, target FROM links WHERE kind = ? AND NOT EXISTS (SELECT 1 FROM trails WHERE id = target)",
            (kind,),
        ):
            yield f"{source} is linked to the trail {target}, which does not exist"
    for source, count in snapshot.all(
        "SELECT source, count(*) FROM links WHERE kind = ? GROUP BY source HAVING count(*) > 1", (BELONGS_TO,)
    ):
        yield f"task {source} belongs to {count} trails"
    for (id,) in snapshot.all(
        "SELECT s.id FROM stashes s JOIN trails t ON t.id = s.trail"
        " WHERE s.deleted IS NOT NULL AND t.state <> 'abandoned'"
    ):
        yield f"stash {id} is deleted, but its trail is not abandoned"


# What examples need.
ON_TRAIL: Final = (A_TRAIL, "holdfast trail add $(holdfast trail list -q) hf-7k2q")
_GONE: Final = (A_TRAIL, "holdfast trail abandon $(holdfast trail list -q)")


class Trails(Domain[M]):
    """`ws.trails`."""

    prefix = "trails"
    create = write(
        create,
        http="POST /api/trails",
        cli="trail create",
        help="Make a trail.",
        examples=("holdfast trail create parser", "trail=$(holdfast trail create parser -q)"),
        arguments={"state": "draft (which it is unless said), pending or active"},
        creates=True,
    )
    get = read(
        get,
        http="GET /api/trails/{id}",
        cli="trail get",
        help="Show a trail.",
        examples=(example("holdfast trail get $(holdfast trail list -q)", A_TRAIL),),
    )
    list = read(
        list_trails,
        http="GET /api/trails",
        cli="trail list",
        help="List trails, oldest first.",
        examples=(example("holdfast trail list --state active", A_TRAIL),),
    )
    set_state = write(
        set_state,
        http="PUT /api/trails/{id}/state",
        cli="trail state",
        help="Bring a trail on: to pending, active, or its end.",
        examples=(example("holdfast trail state $(holdfast trail list -q) active", "holdfast trail create parser"),),
    )
    add = write(
        add,
        http="POST /api/trails/{trail}/tasks",
        cli="trail add",
        help="Let a task belong to a trail.",
        examples=(example("holdfast trail add $(holdfast trail list -q) hf-7k2q", A_TRAIL),),
        arguments={"task": "the task's id"},
    )
    remove = write(
        remove,
        http="POST /api/trails/{trail}/tasks/remove",
        cli="trail remove",
        done=("{task} does not belong to the trail any more",),
        help="Let a task belong to a trail no more.",
        nothing=("task {task} does not belong to the trail {trail}, so nothing was removed",),
        examples=(example("holdfast trail remove $(holdfast trail list -q) hf-7k2q", *ON_TRAIL),),
        arguments={"task": "the task's id"},
    )
    members = read(
        members,
        http="GET /api/trails/{id}/tasks",
        cli="trail tasks",
        help="List the ids of the tasks that belong to a trail.",
        examples=(example("holdfast trail tasks $(holdfast trail list -q)", *ON_TRAIL),),
    )
    complete = write(
        complete,
        http="POST /api/trails/{id}/complete",
        cli="trail complete",
        help="End an active trail; its tasks and stashes stay.",
        examples=(example("holdfast trail complete $(holdfast trail list -q)", *ON_TRAIL),),
    )
    abandon = write(
        abandon,
        http="POST /api/trails/{id}/abandon",
        cli="trail abandon ID [REASON]",
        help="End a trail and delete its tasks and stashes; restore brings them back.",
        examples=(example("holdfast trail abandon $(holdfast trail list -q) 'a dead end'", *ON_TRAIL),),
    )
    restore = write(
        restore,
        http="POST /api/trails/{id}/restore",
        cli="trail restore",
        help="Bring back an abandoned trail, with what went with it.",
        examples=(example("holdfast trail restore $(holdfast trail list -q --state abandoned)", *_GONE),),
    )
    delete = write(
        delete,
        http="DELETE /api/trails/{id}",
        cli="trail delete",
        done=("deleted the trail {id}",),
        help="Delete a trail that nothing belongs to any more.",
        examples=(example("holdfast trail delete $(holdfast trail list -q --state abandoned)", *_GONE),),
    )
