"""Turn tools for turns: how the shared files stand, and the locks on them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from holdfast import turnfile
from holdfast.faces.mcp.callers import Caller
from holdfast.faces.mcp.marking import LONG, cut, filled
from holdfast.faces.mcp.turn_calls import Wait, acted, completed, doubts, files_of, some, waiting
from holdfast.turnfile.model import DEFAULT_LEASE_REVS


async def turn_status(session: Caller) -> Any:
    """Who holds which shared file and for how many revisions, open tasks, what is unread, what is wrong."""
    found = await asyncio.to_thread(lambda: turnfile.status(files_of(session)))
    locks = [
        {
            "id": each.lock.id,
            "holder": each.lock.holder,
            "files": list(each.lock.files),
            "revisions_left": each.revisions_left,
            "stale": each.stale,
            **filled(reason=cut(each.lock.reason, LONG)),
        }
        for each in found.locks
    ]
    newest = sorted(found.signals, key=lambda signal: signal.rev, reverse=True)
    return {
        "revision": found.revision,
        "locks": locks,
        "unread": {each.agent: each.unread for each in found.unread if each.unread},
        "tasks": some(found.tasks),
        "signals": some(newest),
        "problems": some(found.problems),
        **filled(warnings=list(found.warnings) or None),
    }


async def turn_check(session: Caller) -> Any:
    """Check the shared files against each other."""
    problems = await asyncio.to_thread(lambda: turnfile.check(files_of(session)))
    return {"errors": sum(each.level == "error" for each in problems), "problems": some(problems)}


async def turn_lock(
    session: Caller,
    files: Annotated[list[str], "such as MAILBOX.md"],
    reason: str,
    lease_revs: Annotated[int, "how many revisions it outlives; 2"] = DEFAULT_LEASE_REVS,
    wait: Wait = None,
) -> Any:
    """Lock shared files before you read and edit them by hand. HELD tells who has one; turn_unlock gives them back."""

    def take(folder: turnfile.Session, actor: str, patience: turnfile.Patience | None) -> dict[str, Any]:
        claim = turnfile.claim_of(folder, files, actor, reason, lease_revs)
        return {**msgspec.to_builtins(turnfile.acquire(folder, claim, patience)), **doubts(claim.warnings)}

    return await waiting(session, take, wait)


async def turn_renew(session: Caller, lock: Annotated[str, "its id"]) -> Any:
    """Begin the lease of my lock again, before it is stale."""
    return msgspec.to_builtins(await acted(session, lambda folder, actor: turnfile.renew(folder, lock, actor)))


async def turn_unlock(session: Caller, lock: Annotated[str | None, "its id; all of mine without"] = None) -> Any:
    """Give locks back after the edit: MAILBOX.json is made fresh, and what is out of order is told."""

    def give_back(folder: turnfile.Session, actor: str) -> list[turnfile.Completion]:
        mine = [each.id for each in folder.read().turnfile.locks if each.holder == actor]
        done, lost = turnfile.unlock_all(folder, [lock] if lock else mine, actor)
        if lost:
            raise lost[0]
        return done

    done = await acted(session, give_back)
    return {"released": [completed(each) for each in done]}


async def turn_clear(session: Caller, lock: Annotated[str | None, "its id; all stale ones without"] = None) -> Any:
    """Remove stale locks, of anybody."""
    chosen = [lock] if lock else []
    gone = await acted(session, lambda folder, actor: turnfile.clear_stale(folder, actor, chosen))
    return {"cleared": [{"id": each.id, "holder": each.holder} for each in gone]}


async def turn_override(
    session: Caller,
    lock: Annotated[str, "its id"],
    reason: Annotated[str, "begins with P0, and says what is at stake"],
    take: Annotated[bool, "and get one on the same files"] = False,
) -> Any:
    """Only in an emergency: take somebody's valid lock away. The worklog says so."""
    done = await acted(session, lambda folder, actor: turnfile.override(folder, lock, reason, actor, take=take))
    return {
        "overridden": done.lock.id,
        "holder": done.lock.holder,
        **filled(mine=done.replaced_by and done.replaced_by.id),
        "files": list(done.files),
        "revision": done.revision,
        "problems": some(done.problems),
    }
