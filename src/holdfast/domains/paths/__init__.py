"""`ws.paths`: who edits which files. Locks on paths and globs, exclusive or shared, for as long as the work takes.

`patterns` says what a pattern covers and when two meet, `rows` how locks are stored, `locking` how one is taken. They
are locks like the others: token, lease, events, expiry; one taken for a task ends with the claim on it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast import errors
from holdfast.domains import holding
from holdfast.domains.holding import holder_of
from holdfast.domains.paths.locking import lock
from holdfast.domains.paths.patterns import check_path, covers
from holdfast.domains.paths.rows import PATH, clash, covering, find, held, select, target_of
from holdfast.domains.paths.rows import Detail as Detail
from holdfast.domains.tasks.rows import lease_of
from holdfast.domains.tasks.rows import require as require_task
from holdfast.kernel.names import check_flag, check_limit, check_name
from holdfast.kernel.tx import DerivedActor, Snapshot, Tx
from holdfast.ops import Domain, Found, M, procedure, read, read_as, write
from holdfast.types.paths import PathLock


def release(
    tx: Tx,
    id: str | None = None,
    task: str | None = None,
    holder: str | None = None,
    token: int | None = None,
    force: bool = False,
) -> int:
    """Free one lock by its id, or all of the holder's, or those of them that were taken for a task; answers how many.

    Another's lock: NotHolder, unless `force`, which the log tells. A wrong or lost token: Fenced.
    """
    check_flag(force=force)
    if id is None:
        if force and task is None and holder is None:
            raise errors.Invalid("by force one lock is released, or those for a task, or those of a holder")
        return _release_all(tx, task, holder, token, force)
    if task is not None:
        raise errors.Invalid("give id or task, not both")
    check_name(id, "id")
    if force and token is None:
        return _take_away(tx, find(tx, id))
    return int(holding.let_go(tx, target_of(id), holder, token))


def _release_all(tx: Tx, task: str | None, holder: str | None, token: int | None, force: bool) -> int:
    if token is not None:
        raise errors.Invalid("a token belongs to one lock", hint="give its id too")
    where, params = "", []
    if task is not None:
        where, params = " AND k.task = ?", [require_task(tx, task, deleted=True).id]
    if not force or holder is not None or task is None:
        where += " AND k.holder = ?"
        params.append(holder_of(tx, holder))
    locks = select(tx, where, params)
    for found in locks:
        if force:
            _take_away(tx, found)
        else:
            holding.let_go(tx, target_of(found.id), found.holder, None)
    return len(locks)


def _take_away(tx: Tx, found: PathLock | None) -> int:
    if found is None:
        return 0
    target = target_of(found.id)
    row = holding.load(tx, target)
    assert row is not None
    holding.free(tx, target, row, "release", forced=True)
    return 1


def refresh(tx: Tx, id: str, holder: str | None = None, ttl: float | None = None, token: int | None = None) -> PathLock:
    """Renew a lock, by default for as long as it was granted. Lost meanwhile: Fenced."""
    check_name(id, "id")
    found = find(tx, id)
    row = holding.load(tx, target_of(id))
    if found is not None and found.task is not None and row is not None and row[4] == lease_of(found.task):
        raise errors.Invalid(
            f"the lock lives as long as the claim on task {found.task}", hint="renew that: tasks.heartbeat(id)"
        )
    holding.prolong(tx, target_of(id), holder, ttl, token)
    return get(tx, id)


def get(snapshot: Snapshot, id: str) -> PathLock:
    """A lock by its id; NotFound if nobody holds it any more."""
    check_name(id, "id")
    found = find(snapshot, id)
    if found is None:
        raise errors.NotFound(f"there is no path lock {id!r}", hint="it expired or was released", id=id)
    return found


def list_paths(
    snapshot: Snapshot,
    path: str | None = None,
    holder: str | None = None,
    task: str | None = None,
    limit: int = 1000,
    after: str = "",
) -> list[PathLock]:
    """Locks that are held, by id, which is by age; those that cover a path, of a holder, for a task."""
    check_limit(limit, 1000)
    where, params = " AND k.name > ?", [after]
    if after != "":
        check_name(after, "after")
    for column, value in (("holder", holder), ("task", task)):
        if value is not None:
            check_name(value, column)
            where += f" AND k.{column} = ?"
            params.append(value)
    if path is None:
        return select(snapshot, where, [*params, limit], " ORDER BY k.name LIMIT ?")
    wanted = check_path(path)
    found = select(snapshot, where, params, " ORDER BY k.name")
    return [lock for lock in found if any(covers(pattern, wanted) for pattern in lock.patterns)][:limit]


def check_path_for(snapshot: Snapshot, me: str, path: str, actor: str | None = None) -> PathLock | None:
    """Pass if the actor may edit a path: the lock by which it holds it, None if nobody does; another's: Held."""
    if actor is not None:
        check_name(actor, "actor")
    who = me if actor is None else actor
    wanted = check_path(path)
    mine: PathLock | None = None
    theirs: errors.Held | None = None
    for found, pattern in covering(snapshot, wanted):
        if found.holder == who and not (actor is None and isinstance(me, DerivedActor)):
            mine = mine or found
        else:
            theirs = theirs or held(found, wanted, pattern)
    if mine is None and theirs is not None:
        raise theirs
    return mine


def check_token(snapshot: Snapshot, id: str, token: int) -> None:
    """Pass if the lock is held with exactly this token, otherwise Fenced."""
    check_name(id, "id")
    found = find(snapshot, id)
    if found is None:
        raise errors.Fenced(f"the path lock {id} is not held any more", current=None)
    if type(token) is not int or found.token != token:
        raise errors.Fenced(f"the path lock {id} is held with token {found.token}, not {token}", current=found.token)


# --- for other domains, and the whole workspace ----------------------------------------------------------------------


def of_task(snapshot: Snapshot, task: str) -> list[PathLock]:
    """The locks that are held for a task."""
    return select(snapshot, " AND k.task = ?", (task,), " ORDER BY k.name")


def freed(snapshot: Snapshot, task: str, revision: int) -> list[str]:
    """The patterns of the locks for a task that ended at a revision."""
    rows = snapshot.all(
        "SELECT a.data FROM events e JOIN events a ON a.kind = e.kind AND a.scope = e.scope AND a.id = e.id"
        " AND a.op = 'acquire' WHERE e.revision = ? AND e.kind = ? AND e.op IN ('expire', 'release')",
        (revision, PATH),
    )
    said = [msgspec.msgpack.decode(data) for (data,) in rows]
    return sorted({pattern for each in said if each["task"][1] == task for pattern in each["patterns"][1]})


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition of `txn` sees of a path lock: its token as version, its holder as value."""
    check_name(id, "id")
    return holding.probe_target(tx, target_of(id))


def check(snapshot: Snapshot) -> Iterator[str]:
    """Problems: locks that stand in each other's way, or outlive the claim they were taken for."""
    locks = select(snapshot, tail=" ORDER BY k.token")
    for number, one in enumerate(locks):
        for other in locks[number + 1 :]:
            met = clash(one, Detail(other.patterns, other.shared), other.holder)
            if met is not None:
                yield f"path locks {one.id} and {other.id} are held at once, by {one.holder} and {other.holder}"
    for (id,) in snapshot.all(
        "SELECT name FROM locks k WHERE kind = ? AND task IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM tasks t WHERE t.id = k.task AND t.holder = k.holder)",
        (PATH,),
    ):
        yield f"path lock {id} was taken for a claim that is over"


class Paths(Domain[M]):
    """`ws.paths`."""

    prefix = "paths"
    lock = procedure(lock, http="POST /api/paths/lock", cli="path lock", mcp=True)
    release = write(release, http="POST /api/paths/release", cli="path release", mcp=True)
    refresh = write(refresh, http="POST /api/paths/{id}/refresh", cli="path refresh")
    check = read_as(check_path_for, http="GET /api/paths/check", cli="path check", mcp=True)
    check_token = read(check_token, http="GET /api/paths/{id}/check", plain=True)
    get = read(get, http="GET /api/paths/{id}", cli="path get", plain=True)
    list = read(list_paths, http="GET /api/paths", cli="path list", mcp=True, listing=True)
