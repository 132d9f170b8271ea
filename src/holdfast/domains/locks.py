"""`ws.locks`: locks on plain names, with leases and fencing tokens; one holder at a time, and a late one is fenced."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import errors
from holdfast.domains.holding import COLUMNS, SOURCE, Target, check_fence, grant_of, let_go, probe_target, prolong
from holdfast.domains.waiting import acquiring
from holdfast.kernel.names import check_limit, check_name, page_bounds
from holdfast.kernel.tx import GRANTS_PER_REVISION, Snapshot, Tx
from holdfast.ops import Domain, Found, M, Steps, procedure, read, write
from holdfast.types.base import Grant

LOCK = "lock"


def named(name: str) -> Target:
    """The target of a plain lock."""
    check_name(name, "lock name")
    return Target(LOCK, "", name)


def acquire(
    name: str, holder: str | None = None, ttl: float | None = None, wait: float | None = None, lease: str | None = None
) -> Steps[Grant]:
    """Take the lock `name`. Held by another: Held, at once or after waiting `wait` seconds in line."""
    return acquiring(named(name), holder, ttl, wait, lease)


def release(tx: Tx, name: str, holder: str | None = None, token: int | None = None) -> bool:
    """Free the lock; False if it was not held. Another's lock: NotHolder; a wrong or lost token: Fenced."""
    return let_go(tx, named(name), holder, token)


def refresh(tx: Tx, name: str, holder: str | None = None, ttl: float | None = None, token: int | None = None) -> Grant:
    """Renew the lock, by default for as long as it was granted. Lost meanwhile: Fenced."""
    return prolong(tx, named(name), holder, ttl, token)


def check_lock(snapshot: Snapshot, name: str, token: int) -> None:
    """Pass if the lock is held with exactly this token, otherwise Fenced."""
    check_fence(snapshot, named(name), token)


def find_lock(snapshot: Snapshot, name: str) -> Grant | None:
    """Who holds the lock, or None."""
    row = snapshot.one(
        f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM {SOURCE} WHERE k.kind = ? AND k.scope = ? AND k.name = ?",
        named(name).key,
    )
    if row is None or (row[5] is not None and snapshot.is_past(row[5], row[7])):
        return None
    return grant_of(row[:7])


def get_lock(snapshot: Snapshot, name: str) -> Grant:
    """Who holds the lock; NotFound if nobody does."""
    grant = find_lock(snapshot, name)
    if grant is None:
        raise errors.NotFound(f"nobody holds the lock {name!r}", name=name)
    return grant


def list_locks(snapshot: Snapshot, prefix: str = "", limit: int = 1000, after: str = "") -> list[Grant]:
    """Locks that are held, by name; `after` is the last name of the page before."""
    check_limit(limit, 1000)
    bounds, params = page_bounds("k.name", prefix, after)
    rows = snapshot.all(
        f"SELECT {COLUMNS} FROM {SOURCE} WHERE k.kind = ? AND k.scope = ''{bounds} ORDER BY k.name LIMIT ?",
        (LOCK, *params, limit),
    )
    return [grant_of(row) for row in rows]


def probe(tx: Tx, name: str) -> Found | None:
    """What a condition sees of a plain lock."""
    return probe_target(tx, named(name))


def check(snapshot: Snapshot) -> Iterator[str]:
    """Problems: a lock that the log does not say is held, a binding to nothing, a token from the future."""
    for kind, scope, name, op, token, bound, ceiling in snapshot.all(
        "SELECT k.kind, k.scope, k.name,"
        " (SELECT op FROM events e WHERE e.kind = k.kind AND e.scope = k.scope AND e.id = k.name"
        "  AND op NOT IN ('wait', 'leave') ORDER BY version DESC LIMIT 1),"
        " k.token, k.lease IS NULL OR k.lease = 'task:' || k.task OR EXISTS (SELECT 1 FROM leases WHERE id = k.lease),"
        " (SELECT revision FROM meta) FROM locks k"
    ):
        what = f"{kind} {Target(kind, scope, name)}"
        if op != "acquire":
            yield f"{what} is held, but its last event is {op}"
        if not bound:
            yield f"{what} is bound to a lease that does not exist"
        if token // GRANTS_PER_REVISION > ceiling:
            yield f"{what} has a token from a revision that does not exist"
    for (ticket,) in snapshot.all(
        "SELECT ticket FROM waiters WHERE NOT EXISTS (SELECT 1 FROM leases WHERE id = ticket)"
    ):
        yield f"waiter {ticket} has no lease"
    for id, kind in snapshot.all(
        "SELECT id, kind FROM leases l WHERE (kind LIKE '%lock%' OR kind = 'path')"
        " AND NOT EXISTS (SELECT 1 FROM locks WHERE lease = l.id)"
        " AND NOT EXISTS (SELECT 1 FROM waiters WHERE ticket = l.id)"
    ):
        yield f"lease {id} is a {kind}'s, but nothing is on it"


class Locks(Domain[M]):
    """`ws.locks`."""

    prefix = "locks"
    acquire = procedure(acquire, http="POST /api/locks/{name}/acquire", cli="lock acquire", mcp=True)
    release = write(release, http="POST /api/locks/{name}/release", cli="lock release", mcp=True)
    refresh = write(refresh, http="POST /api/locks/{name}/refresh", cli="lock refresh", mcp=True)
    check = read(check_lock, http="GET /api/locks/{name}/check", cli="lock check", plain=True)
    get = read(get_lock, http="GET /api/locks/{name}", cli="lock get", plain=True)
    find = read(find_lock, http="GET /api/locks/{name}/find", plain=True)
    list = read(list_locks, http="GET /api/locks", cli="lock list", mcp=True, listing=True)
