"""Turn tools: the turn files of one folder, for a client whose server was started with that folder.

Only over standard input and output, and only in the profile `all`: the folder is chosen by who starts the server, never
by a model. Who acts is the server's actor. Files are touched in a thread; a call whose client has gone stops waiting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from holdfast import errors, turnfile
from holdfast.faces.mcp.declaring import Tool, tool
from holdfast.faces.mcp.locking import check_wait
from holdfast.faces.mcp.marking import LONG, LONGEST, cut, filled
from holdfast.faces.mcp.sessions import Session
from holdfast.turnfile import mailing
from holdfast.turnfile.model import DEFAULT_LEASE_REVS

MOST: Final = 20  # problems, tasks, signals or messages in an answer
R = TypeVar("R")

Wait = Annotated[float | None, "look again after so many seconds, at most 60; then the maintainer is asked"]


async def turn_status(session: Session) -> Any:
    """Who holds which shared file and for how many revisions, what is unread, what is wrong."""
    found = await _beside(lambda: turnfile.status(files_of(session)))
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
        "tasks": _some(found.tasks),
        "signals": _some(newest),
        "problems": _some(found.problems),
        **filled(warnings=list(found.warnings) or None),
    }


async def turn_check(session: Session) -> Any:
    """Check the shared files against each other."""
    problems = await _beside(lambda: turnfile.check(files_of(session)))
    return {"errors": sum(each.level == "error" for each in problems), "problems": _some(problems)}


async def turn_lock(
    session: Session,
    files: Annotated[list[str], "such as MAILBOX.md"],
    reason: str,
    lease_revs: Annotated[int, "how many revisions it outlives; 2"] = DEFAULT_LEASE_REVS,
    wait: Wait = None,
) -> Any:
    """Lock shared files before you edit them. HELD tells who has one; give them back with turn_unlock."""
    check_wait(wait)

    def take(waiting: turnfile.Patience | None) -> turnfile.Lock:
        folder = files_of(session)
        claim = turnfile.claim_of(folder, files, _actor(session, folder), reason, lease_revs)
        return turnfile.acquire(folder, claim, waiting)

    return msgspec.to_builtins(await _waiting(take, wait))


async def turn_unlock(session: Session, lock: Annotated[str | None, "its id; all of mine without"] = None) -> Any:
    """Give locks back after the edit: MAILBOX.json is made fresh, and what is out of order is told."""

    def give_back() -> list[turnfile.Completion]:
        folder = files_of(session)
        actor = _actor(session, folder)
        mine = [each.id for each in folder.read().turnfile.locks if each.holder == actor]
        done, lost = turnfile.unlock_all(folder, [lock] if lock else mine, actor)
        if lost:
            raise lost[0]
        return done

    done = await _beside(give_back)
    return {"released": [{**_completed(each), "problems": _some(each.warnings)} for each in done]}


async def turn_mail_send(
    session: Session,
    body: str,
    to: Annotated[str | None, "an agent, several with commas, or all; not needed with reply_to"] = None,
    subject: str | None = None,
    reply_to: Annotated[str | None, "message id"] = None,
    type: Literal["notify", "request", "decision-required", "objection", "handoff-ready"] | None = None,
    priority: Literal["P0", "P1", "P2"] = "P1",
    wait: Wait = None,
) -> Any:
    """Send a message in MAILBOX.md, or answer one."""
    if reply_to is None and (not to or not subject):
        raise errors.Invalid("a message needs to and subject", hint="or reply_to, the id of the message it answers")
    check_wait(wait)

    def send(waiting: turnfile.Patience | None) -> turnfile.Mailed:
        hand = _hand(session, waiting)
        more: dict[str, Any] = {"body": body, "priority": priority, **filled(type=type)}
        if reply_to is not None:
            return hand.reply(reply_to, subject=subject or "", **more)
        return hand.send(to or "", subject or "", **more)

    return _mailed(await _waiting(send, wait))


async def turn_mail_list(
    session: Session,
    id: Annotated[str | None, "instead: this message, whole"] = None,
    all: Annotated[bool, "also what is not from or to me"] = False,
) -> Any:
    """My messages in MAILBOX.md that are not closed, newest first. Reading is not acknowledging."""
    if id is not None:
        found = await _beside(lambda: mailing.message(files_of(session), id))
        return {**found, **filled(body=cut(found.get("body") or "", LONGEST))}
    who = None if all else session.actor
    messages = await _beside(lambda: mailing.messages(files_of(session), who))
    shown = [{**each, "body": cut(each["body"], LONG)} for each in messages[:MOST]]
    return {"messages": shown, **filled(more=len(messages) - len(shown) or None)}


async def turn_mail_step(
    session: Session,
    id: str,
    step: Literal["ack", "action", "block", "close"],
    note: Annotated[str, "why; what you wait for"] = "",
    wait: Wait = None,
) -> Any:
    """Acknowledge a message, say that it is done or what it waits for; close one that you sent."""
    check_wait(wait)

    def do(waiting: turnfile.Patience | None) -> turnfile.Mailed:
        hand = _hand(session, waiting)
        return {"ack": hand.ack, "action": hand.action, "block": hand.block, "close": hand.close}[step](id, note)

    return _mailed(await _waiting(do, wait))


# --- parts -----------------------------------------------------------------------------------------------------------


def files_of(session: Session) -> turnfile.Session:
    """The working session that the server was started with."""
    if session.turn_dir is None:
        raise errors.Unsupported("this server has no turn files", hint="holdfast mcp --profile all --turn-dir FOLDER")
    return turnfile.Session(session.turn_dir)


def _actor(session: Session, folder: turnfile.Session) -> str:
    return folder.read().turnfile.spelled(session.actor)


def _hand(session: Session, waiting: turnfile.Patience | None) -> turnfile.Mailing:
    folder = files_of(session)
    return turnfile.Mailing(folder, _actor(session, folder), patience=waiting)


async def _beside(work: Callable[[], R]) -> R:
    """Touch files, beside the loop."""
    return await asyncio.to_thread(work)


async def _waiting(work: Callable[[turnfile.Patience | None], R], wait: float | None) -> R:
    """Touch files, and wait for a lock as long as the client does: not beyond its end."""
    gone = threading.Event()

    def pause(seconds: float) -> None:
        if gone.wait(seconds):
            raise errors.Unavailable("nobody waits for this call any more")

    patience = None if wait is None else turnfile.Patience(wait=max(0.0, wait), checks=2, pause=pause)
    try:
        return await asyncio.to_thread(work, patience)
    finally:
        gone.set()


def _mailed(mailed: turnfile.Mailed) -> dict[str, Any]:
    return {"id": mailed.id, "status": mailed.status, **_completed(mailed.completion)}


def _completed(done: turnfile.Completion) -> dict[str, Any]:
    return {"lock": done.lock_id, "files": list(done.files), "revision": done.revision}


def _some(items: Any) -> list[Any]:
    told = [msgspec.to_builtins(each) for each in items[:MOST]]
    return [*told, f"and {len(items) - MOST} more"] if len(items) > MOST else told


TOOLS: Final[tuple[Tool, ...]] = (
    tool(turn_status, reads=True),
    tool(turn_check, reads=True),
    tool(turn_lock),
    tool(turn_unlock),
    tool(turn_mail_send),
    tool(turn_mail_list, reads=True),
    tool(turn_mail_step),
)
