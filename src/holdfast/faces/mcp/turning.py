"""The turn files of one folder as an offer: the profile `turn`, which has these tools and needs no workspace.

Only over standard input and output. The profile `all` of a workspace has the tools too, where its server was started
with a folder.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.faces.mcp import turn_locks, turn_mail, turn_reading, turn_work
from holdfast.faces.mcp.callers import Caller
from holdfast.faces.mcp.declaring import Tool, tool
from holdfast.faces.mcp.offering import MARKS, Offer, missing, parts_of

INSTRUCTIONS: Final = (
    "Turns at the shared files of a repository (MAILBOX.md, WORKLOG.md, OPEN_QUESTIONS.md) that others edit too. Begin"
    " with turn_status and turn_mail_list. turn_read shows a file, turn_edit changes it; or turn_lock it, read it, edit"
    " it, turn_unlock it. Each write adds a revision, and a lock is stale after so many: give it back soon. HELD:"
    f" another has the file; do something else, or wait. After NOT_HOLDER read the file again. {MARKS}"
)
TOOLS: Final[tuple[Tool, ...]] = (
    tool(turn_locks.turn_status, reads=True),
    tool(turn_locks.turn_check, reads=True),
    tool(turn_reading.turn_read, reads=True),
    tool(turn_work.turn_edit),
    tool(turn_locks.turn_lock),
    tool(turn_locks.turn_renew),
    tool(turn_locks.turn_unlock),
    tool(turn_locks.turn_clear),
    tool(turn_locks.turn_override, takes=True),
    tool(turn_work.turn_task),
    tool(turn_work.turn_signal),
    tool(turn_mail.turn_mail_send),
    tool(turn_mail.turn_mail_list, reads=True),
    tool(turn_mail.turn_mail_step),
)
FIXED: Final = {"turn": "Who holds what, open tasks, what is unread, what is wrong."}
TEMPLATES: Final = {"turn/{file}": "A shared file, whole."}
_NAMED: Final = {each.name: each for each in TOOLS}


async def read(session: Caller, uri: str) -> Any:
    """The content of a resource; NotFound if there is none of this name."""
    match parts_of(uri):
        case ["turn"]:
            return await turn_locks.turn_status(session)
        case ["turn", *names] if path := "/".join(names):
            file, text = await turn_reading.text_of(session, path)
            return {"file": file, "text": text}
    raise missing(uri, (*FIXED, *TEMPLATES))


TURNS: Final = Offer(INSTRUCTIONS, lambda _: _NAMED, FIXED, TEMPLATES, read)
