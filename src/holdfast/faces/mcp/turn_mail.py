"""Turn tools for mail: messages in MAILBOX.md, as cards that everybody can read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

from holdfast import errors, turnfile
from holdfast.faces.mcp import turn_holding
from holdfast.faces.mcp.callers import Caller
from holdfast.faces.mcp.marking import LONG, LONGEST, cut, filled
from holdfast.faces.mcp.turn_calls import MOST, Wait, completed, files_of, waiting
from holdfast.turnfile import mailing
from holdfast.turnfile.mailbox.steps import Disposition
from holdfast.turnfile.model import MAILBOX


async def turn_mail_send(
    session: Caller,
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

    def send(hand: turnfile.Mailing) -> turnfile.Mailed:
        more: dict[str, Any] = {"body": body, "priority": priority, **filled(type=type)}
        if reply_to is not None:
            return hand.reply(reply_to, subject=subject or "", **more)
        return hand.send(to or "", subject or "", **more)

    return await _mailed(session, send, wait)


async def turn_mail_list(
    session: Caller,
    id: Annotated[str | None, "instead: this message, whole"] = None,
    all: Annotated[bool, "also what is not from or to me"] = False,
) -> Any:
    """My messages in MAILBOX.md that are not closed, newest first. Reading is not acknowledging."""
    if id is not None:
        found = await asyncio.to_thread(lambda: mailing.message(files_of(session), id))
        return {**found, **filled(body=cut(found.get("body") or "", LONGEST))}
    who = None if all else session.actor
    messages = await asyncio.to_thread(lambda: mailing.messages(files_of(session), who))
    shown = [{**each, "body": cut(each["body"], LONG)} for each in messages[:MOST]]
    return {"messages": shown, **filled(more=len(messages) - len(shown) or None)}


async def turn_mail_step(
    session: Caller,
    id: str,
    step: Literal["ack", "action", "block", "close"],
    note: Annotated[str, "why; what you wait for"] = "",
    disposition: Annotated[Disposition | None, "of one you close"] = None,
    wait: Wait = None,
) -> Any:
    """Acknowledge a message, say that it is done or what it waits for; close one that you sent."""
    if disposition is not None and step != "close":
        raise errors.Invalid("only who closes a message says what became of it", hint="disposition goes with close")

    def do(hand: turnfile.Mailing) -> turnfile.Mailed:
        if step == "close":
            return hand.close(id, note, disposition=disposition or "closed")
        return {"ack": hand.ack, "action": hand.action, "block": hand.block}[step](id, note)

    return await _mailed(session, do, wait)


async def _mailed(
    session: Caller, change: Callable[[turnfile.Mailing], turnfile.Mailed], wait: float | None
) -> dict[str, Any]:
    def mail(folder: turnfile.Session, actor: str, patience: turnfile.Patience | None) -> turnfile.Mailed:
        before = turn_holding.named(folder, actor, MAILBOX)
        mailed = change(turnfile.Mailing(folder, actor, patience=patience))
        turn_holding.wrote(session, before, mailed.completion)
        return mailed

    done = await waiting(session, mail, wait)
    return {"id": done.id, "status": done.status, **completed(done.completion)}
