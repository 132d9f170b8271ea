"""Turn tools for turns: how the shared files stand, and the locks on them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from holdfast import errors, turnfile
from holdfast.faces.mcp import turn_holding
from holdfast.faces.mcp.callers import Caller
from holdfast.faces.mcp.marking import LONG, cut, filled
from holdfast.faces.mcp.turn_calls import Wait, acted, completed, doubts, files_of, some, waiting
from holdfast.turnfile.model import DEFAULT_LEASE_REVS

OfMine = Annotated[str | None, "its id; all of this session without"]


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
        lock = turnfile.acquire(folder, claim, patience)
        turn_holding.take(session, folder, lock)
        return {**msgspec.to_builtins(lock), **doubts(claim.warnings)}

    return await waiting(session, take, wait)


async def turn_renew(session: Caller, lock: OfMine = None) -> Any:
    """Begin the lease of locks again, before they are stale."""

    def again(folder: turnfile.Session, actor: str) -> list[turnfile.Lock]:
        before = turn_holding.named(folder, actor)
        done = turnfile.renew_all(folder, turn_holding.chosen(session, folder, actor, lock), actor)
        turn_holding.used(session, before, {each.id: each.acquired_rev for each in done})
        return done

    return {"renewed": msgspec.to_builtins(await acted(session, again))}


async def turn_unlock(session: Caller, lock: OfMine = None) -> Any:
    """Give locks back after the edit: MAILBOX.json is made fresh, and what is out of order is told."""

    def give_back(folder: turnfile.Session, actor: str) -> list[dict[str, Any]]:
        released: list[dict[str, Any]] = []
        lost: dict[str, errors.HoldfastError] = {}
        for id in turn_holding.chosen(session, folder, actor, lock):
            try:
                released.append(completed(turnfile.unlock(folder, id, actor)))
            except (errors.NotHolder, errors.NotFound) as error:
                lost[id] = error
            session.taken.pop(id, None)
        for first in lost.values():  # whose details tell of all
            first.details |= {"released": released, "lost": list(lost)}
            raise first
        return released

    return {"released": await acted(session, give_back)}


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

    def push(folder: turnfile.Session, actor: str) -> turnfile.Overridden:
        done = turnfile.override(folder, lock, reason, actor, take=take)
        if done.replaced_by is not None:
            turn_holding.take(session, folder, done.replaced_by)
        return done

    done = await acted(session, push)
    return {
        "overridden": done.lock.id,
        "holder": done.lock.holder,
        **filled(mine=done.replaced_by and done.replaced_by.id),
        "files": list(done.files),
        "revision": done.revision,
        "problems": some(done.problems),
    }
