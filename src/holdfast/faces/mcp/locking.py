"""Lock tools: locks on names, and on files. The session keeps the tokens, and sends them when a lock is given back.

A lock that nobody names a time for lives ten minutes: an agent that ends without a word must not hold one for ever.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from holdfast import errors
from holdfast.faces.mcp.callers import check_wait
from holdfast.faces.mcp.marking import filled, when
from holdfast.faces.mcp.sessions import Session
from holdfast.faces.mcp.tasks import path_lock
from holdfast.types.base import Grant
from holdfast.types.paths import PathLock
from holdfast.types.txn import Op

TTL: Final = 600.0

Ttl = Annotated[float | None, "seconds; 600"]
Wait = Annotated[float | None, "seconds to wait in line, at most 60"]


async def lock(
    session: Session,
    name: str,
    action: Literal["acquire", "release", "renew", "check"] = "acquire",
    ttl: Ttl = None,
    wait: Wait = None,
) -> Any:
    """A lock on a name, one holder at a time. HELD tells who has it; renew before it ends."""
    token = filled(token=session.memory.find("lock", name))
    match action:
        case "acquire":
            grant = await session.call(
                "locks.acquire", name=name, ttl=TTL if ttl is None else ttl, **filled(wait=check_wait(wait))
            )
        case "renew":
            grant = await session.call("locks.refresh", name=name, **filled(ttl=ttl), **token)
        case "release":
            released = await session.call("locks.release", name=name, **token)
            session.memory.drop("lock", name)
            return {"released": released}
        case "check":
            grant = await session.call("locks.find", name=name)
            return {"held": None if grant is None else _granted(grant)}
    session.memory.keep("lock", name, grant.token)
    return _granted(grant)


def _granted(grant: Grant) -> dict[str, Any]:
    return filled(name=grant.name, holder=grant.holder, token=grant.token, until=when(grant.expires_at))


async def paths(
    session: Session,
    action: Literal["lock", "release", "check"],
    paths: Annotated[list[str] | None, "repo-relative, globs with **; release without: all of mine"] = None,
    task: Annotated[str | None, "a task you hold: the lock ends with the claim"] = None,
    shared: Annotated[bool, "others may share it"] = False,
    reason: str | None = None,
    ttl: Ttl = None,
    wait: Wait = None,
) -> Any:
    """Lock files before you edit them. check: HELD if another has one of them."""
    match action:
        case "lock":
            given = filled(task=task, reason=reason, ttl=ttl or (None if task else TTL), wait=check_wait(wait))
            taken = await session.call("paths.lock", patterns=_needed(paths), shared=shared, **given)
            session.memory.keep("path", taken.id, taken.token)
            return path_lock(taken)
        case "release":
            return {"released": await _release(session, paths, task)}
    mine = [await session.call("paths.check", path=path) for path in _needed(paths)]
    return {"allowed": True, **filled(mine=tuple({found.id: path_lock(found) for found in mine if found}.values()))}


def _needed(paths: list[str] | None) -> list[str]:
    if not paths:
        raise errors.Invalid("no paths were given", hint='such as paths=["src/app/**"]')
    return paths


async def _release(session: Session, paths: list[str] | None, task: str | None) -> int:
    """Give back my locks: those whose patterns are all among the paths, those for a task, or all."""
    found: list[PathLock] = await session.call("paths.list", holder=session.actor, **filled(task=task))
    chosen = [each for each in found if paths is None or set(each.patterns) <= set(paths)]
    if not chosen:
        return 0
    steps = [
        Op("paths.release", {"id": each.id, **filled(token=session.memory.find("path", each.id))}) for each in chosen
    ]
    done = await session.call("txn", conditions=[], then=steps)
    for each in chosen:
        session.memory.drop("path", each.id)
    return sum(done.results)
