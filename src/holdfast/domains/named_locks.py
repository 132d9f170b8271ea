"""`ws.locks`: locks on names, each with one holder, a lease and a fencing token."""

from __future__ import annotations

from typing import Final

from holdfast import errors
from holdfast.domains import locks
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import check_flag, check_limit, page_bounds
from holdfast.operation import Domain, M, Steps, procedure, read, write
from holdfast.route import Held, example
from holdfast.types import Grant, Page


def acquire(
    name: str, holder: str | None = None, ttl: float | None = None, wait: float | None = None, lease: str | None = None
) -> Steps[Grant]:
    """Acquire the lock `name`, waiting in the queue for up to `wait` seconds. Raises Held if another holds it."""
    return locks.acquire_target(locks.named(name), holder, ttl, wait, lease)


MAX_REASON: Final = 4096  # characters


def check_force(force: bool, reason: str | None) -> None:
    """Raise Invalid unless `force` is a flag and the reason a text that the log can keep."""
    check_flag(force=force)
    if reason is None:
        return
    if not isinstance(reason, str) or len(reason) > MAX_REASON or any("\ud800" <= char <= "\udfff" for char in reason):
        raise errors.InvalidValue(f"a reason is a text of at most {MAX_REASON:,} characters")


def release(
    tx: Tx,
    name: str,
    holder: str | None = None,
    token: int | None = None,
    force: bool = False,
    reason: str | None = None,
) -> bool:
    """Release the lock; False if it was not held. Raises NotHolder, or Fenced for a wrong or lost token.

    `force` releases another's lock: late writes of its holder are refused, and the log keeps the `reason`.
    """
    check_force(force, reason)
    target = locks.named(name)
    if not force:
        return locks.release_target(tx, target, holder, token)
    row = locks.load(tx, target)
    if row is not None:
        locks.free(tx, target, row, "release", forced=True, reason=reason)
    return row is not None


def refresh(tx: Tx, name: str, holder: str | None = None, ttl: float | None = None, token: int | None = None) -> Grant:
    """Renew the lock, by default for as long as it was granted. Raises Fenced if it was lost, or NotHolder."""
    return locks.renew_target(tx, locks.named(name), holder, ttl, token)


def check_lock(snapshot: Snapshot, name: str, token: int) -> None:
    """Raise Fenced unless the lock is held with exactly this token."""
    locks.check_fence(snapshot, locks.named(name), token)


def find_lock(snapshot: Snapshot, name: str) -> Grant | None:
    """Return the current grant of the lock, or None if nobody holds it."""
    row = locks.find(snapshot, locks.named(name))
    return None if row is None else locks.grant_of(row)


def get_lock(snapshot: Snapshot, name: str) -> Grant:
    """Return the current grant of the lock. Raises NotFound if nobody holds it."""
    grant = find_lock(snapshot, name)
    if grant is None:
        raise errors.NotFound(
            f"nobody holds the lock {name!r}", hint="locks.list() lists those that are held", name=name
        )
    return grant


def list_locks(snapshot: Snapshot, prefix: str = "", limit: int = 1000, after: str = "") -> Page[Grant]:
    """List the held locks by name; `after` is the last name of the previous page."""
    check_limit(limit, 1000, "after")
    bounds, params = page_bounds("k.name", prefix, after)
    rows, more = snapshot.page(
        f"SELECT {locks.COLUMNS} FROM {locks.SOURCE} WHERE k.kind = ? AND k.scope = ''{bounds} ORDER BY k.name LIMIT ?",
        (locks.LOCK, *params),
        limit,
    )
    return Page.of(map(locks.grant_of, rows), more, lambda grant: grant.name)


# What examples need.
_LOCK: Final = "holdfast lock acquire deploy --ttl 60"
_HELD: Final = f"{_LOCK} --actor agent-2"


class Locks(Domain[M]):
    """`ws.locks`."""

    prefix = "locks"
    held = Held("lock", ("name",), ("name",))
    acquire = procedure(
        acquire,
        http="POST /api/locks/{name}/acquire",
        cli="lock acquire",
        help="Take a lock; exit code 12 if somebody else holds it.",
        examples=(_LOCK, example("holdfast lock acquire deploy --wait 1s  # exit code 12: agent-2 has it", _HELD)),
        grants=True,
        mcp="lock",
    )
    release = write(
        release,
        http="POST /api/locks/{name}/release",
        cli="lock release",
        done=("released {name}",),
        help="Free your lock, or by force another's.",
        examples=(
            example("holdfast lock release deploy", _LOCK),
            example("holdfast lock release deploy --force --reason 'agent-2 is gone'", _HELD),
        ),
        frees=True,
        nothing=("nobody holds {name}, so nothing was released",),
        mcp="lock action=release",
    )
    refresh = write(
        refresh,
        http="POST /api/locks/{name}/refresh",
        cli="lock refresh",
        help="Renew your lock; exit code 15 if it was lost meanwhile.",
        examples=(example("holdfast lock refresh deploy --ttl 60", _LOCK),),
        grants=True,
        mcp="lock action=renew",
    )
    check = read(
        check_lock,
        http="GET /api/locks/{name}/check",
        plain=True,
        cli="lock check",
        done=("{name} is held with the token {token}",),
        help="Pass if a lock is held with this token; exit code 15 if not.",
        examples=(example("holdfast lock check deploy 8192", _LOCK),),
        arguments={"token": "the fencing token"},
    )
    get = read(
        get_lock,
        http="GET /api/locks/{name}",
        plain=True,
        cli="lock get",
        help="Show who holds a lock.",
        examples=(example("holdfast lock get deploy", _LOCK),),
    )
    find = read(
        find_lock,
        http="GET /api/locks/{name}/find",
        plain=True,
        cli="lock find",
        help="Show who holds a lock; nothing if nobody does.",
        examples=(example("holdfast lock find deploy --json", _LOCK),),
        mcp="lock action=check",
    )
    list = read(
        list_locks,
        http="GET /api/locks",
        listing=True,
        cli="lock list [PREFIX]",
        help="List the locks that are held.",
        examples=("holdfast lock list", "holdfast lock list deploy --json"),
    )
