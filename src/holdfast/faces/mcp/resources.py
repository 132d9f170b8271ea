"""Resources: what can be read without a tool, by the program or the person in front of it.

`holdfast://prime` is what an agent must know when it begins: its claims, its unread mail, what is ready.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast import errors
from holdfast.faces.mcp.offering import missing, parts_of
from holdfast.faces.mcp.sessions import Session
from holdfast.faces.mcp.state import cell_get
from holdfast.faces.mcp.tasks import LISTED, page, row, task_show

PRIMED: Final = 5  # ready tasks at the beginning
FIXED: Final = {
    "prime": "What I hold, my unread mail, what is ready.",
    "ready": "Tasks that can be claimed, best first.",
}
TEMPLATES: Final = {
    "task/{id}": "A task with body, notes, messages and events.",
    "cell/{run}/{cell}": "A shared value.",
}


async def read(session: Session, uri: str) -> Any:
    """The content of a resource; NotFound if there is none of this name."""
    match parts_of(uri):
        case ["prime"]:
            return await _prime(session)
        case ["ready"]:
            found = await session.call("tasks.ready", limit=LISTED)
            return page("tasks", found, [row(task) for task in found])
        case ["task", id]:
            return await task_show(session, id, whole=True)
        case ["cell", run, cell]:
            return await cell_get(session, run, cell, whole=True)
    raise missing(uri, (*FIXED, *TEMPLATES))


async def _prime(session: Session) -> Any:
    ready = await session.call("tasks.ready", limit=PRIMED)
    told = {"actor": session.actor, "ready": [row(task) for task in ready]}
    try:
        unread = await session.call("mail.unread")
    except errors.InvalidHolder as error:  # nobody chose its name, so it can hold nothing
        return told | {"hint": error.hint}
    claims = await session.call("tasks.list", claimed_by=session.actor, limit=LISTED)
    return told | {"claims": [row(task) for task in claims], "unread": unread}
