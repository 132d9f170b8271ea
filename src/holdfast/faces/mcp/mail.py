"""Mail tools: send or reply, and read what came in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from holdfast import errors
from holdfast.faces.mcp.marking import filled
from holdfast.faces.mcp.sessions import Session
from holdfast.faces.mcp.tasks import LISTED, WHOLE, Cursor, check_limit, message, page
from holdfast.types.txn import Op


async def mail_send(
    session: Session,
    body: str,
    to: Annotated[list[str] | None, 'agents; ["*"] is all; not needed with reply_to'] = None,
    subject: str | None = None,
    reply_to: Annotated[str | None, "message id"] = None,
    task: Annotated[str | None, "task it is about"] = None,
    type: Literal["notify", "request", "decision-required", "objection", "handoff-ready"] | None = None,
    ack: Annotated[bool, "ask for an acknowledgement"] = False,
) -> Any:
    """Send a message to other agents."""
    given: dict[str, Any] = {"body": body, "ack": ack, **filled(to=to, subject=subject, type=type)}
    if reply_to is not None:
        if task is not None:
            raise errors.Invalid("a reply is about what its thread is about", hint="leave out task")
        sent = await session.call("mail.reply", id=reply_to, **given)
    elif to is None or subject is None:
        raise errors.Invalid("a message needs to and subject", hint="or reply_to, the id of the message it answers")
    else:
        sent = await session.call("mail.send", **given, **filled(task=task))
    return {"id": sent.id, "thread": sent.thread, "to": list(sent.status)}


async def mail_inbox(
    session: Session,
    ack: Annotated[list[str] | None, "message ids to acknowledge first"] = None,
    all: Annotated[bool, "also what was acknowledged"] = False,
    thread: Annotated[str | None, "instead: the whole thread of this message id"] = None,
    limit: Annotated[int, "20, at most 100"] = LISTED,
    cursor: Cursor = None,
) -> Any:
    """My unread messages, newest first. Reading is not acknowledging."""
    limited = filled(limit=check_limit(limit), cursor=cursor)
    if ack:
        await session.call("txn", conditions=[], then=[Op("mail.ack", {"id": id}) for id in ack])
    if thread is not None:
        found = await session.call("mail.thread", id=thread, **limited)
        return page("messages", found, [message(each, WHOLE) for each in found])
    found = await session.call("mail.inbox", unread=not all, **limited)
    return page("messages", found, [message(each) for each in found])
