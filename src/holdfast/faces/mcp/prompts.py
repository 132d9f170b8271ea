"""Prompts, which clients show as slash commands (`next`, `done`, `handoff`, `standup`), and completion.

A prompt is what a person says to the model in one word: the steps in the words of the tools, and between the marks what
the workspace has on it now. Completion offers the ids of tasks, the names of agents, tags, runs and cells; what is
typed may be the beginning of an id or a part of a title.
"""

from __future__ import annotations

from typing import Final

from holdfast import errors
from holdfast.faces.mcp.client import Session
from holdfast.faces.mcp.coordination import TEMPLATES
from holdfast.faces.mcp.tasks import LISTED, SHOWN, resumed, row
from holdfast.faces.mcp.tool import Prompt, marked

_OFFERED: Final = 100  # the most that the protocol allows
_LOOKED_AT: Final = 500


async def _next(session: Session, given: dict[str, str]) -> str:
    tags = [given["tag"]] if given.get("tag") else None
    ready = await session.ws.tasks.ready(LISTED, tags=tags)
    with_tags = f" with tags {tags}" if tags else ""
    return (
        f"Take the best ready task: task_claim{with_tags}. Read it with task_show. Lock the files you will edit with"
        " paths (action lock, task: its id). Do the work; note progress with task_update, which keeps your claim alive."
        " End it with task_finish and a summary. If nothing is ready, say so and stop. Ready now:\n"
        + marked({"tasks": [row(task) for task in ready]})
    )


async def _done(session: Session, given: dict[str, str]) -> str:
    id = given["task"]
    said = f' and text "{given["summary"]}"' if given.get("summary") else " and a summary of what was done as text"
    return (
        f"Finish the task {id}: check that all it asks for is done and that nothing of it is left uncommitted or"
        f" unsaid. If so: task_finish with id {id}, action done{said}. If not, say what is missing and go on with it."
        " The task:\n" + marked(resumed(await session.ws.tasks.resume(id, budget=SHOWN)))
    )


async def _handoff(session: Session, given: dict[str, str]) -> str:
    id = given["task"]
    mail = f" Write the same to {given['to']}: mail_send, task {id}, type handoff-ready." if given.get("to") else ""
    return (
        f"Hand over the task {id}: add a note with task_update that says what is done, what is left, where it stands"
        f" (branch, files, commands that show it) and what you would do next.{mail} Then task_finish with id {id} and"
        " action release, so that another agent can claim it. The task:\n"
        + marked(resumed(await session.ws.tasks.resume(id, budget=SHOWN)))
    )


async def _standup(session: Session, given: dict[str, str]) -> str:
    tasks = session.ws.tasks
    content = {
        "me": session.actor,
        "in progress": [row(task) for task in await tasks.list(status="in_progress", limit=LISTED)],
        "blocked": [row(task) for task in await tasks.list(status="blocked", limit=LISTED)],
        "ready": [row(task) for task in await tasks.ready(LISTED)],
        "closed last": [row(task) for task in await tasks.list(status="closed", limit=LISTED)],
    }
    return (
        "Tell me in a few lines how the work stands: who works on what, what is stuck and why, what comes next, what"
        " needs a person. Look further with task_show and mail_inbox where it matters. The workspace now:\n"
        + marked(content)
    )


_TASK: Final = ("the id of a task", True)
PROMPTS: Final = {
    each.name: each
    for each in (
        Prompt("next", "Take the next ready task and work on it.", {"tag": ("only tasks with this tag", False)}, _next),
        Prompt("done", "Finish a task.", {"task": _TASK, "summary": ("what was done", False)}, _done),
        Prompt(
            "handoff", "Hand a task over to another agent.", {"task": _TASK, "to": ("who goes on", False)}, _handoff
        ),
        Prompt("standup", "Say how the work stands.", {}, _standup),
    )
}


# --- completion ------------------------------------------------------------------------------------------------------


async def complete(session: Session, of: str, argument: str, typed: str, known: dict[str, str]) -> list[str]:
    """What an argument of a prompt, or of the template of a resource, may be; nothing for another `of`.

    Raises NotFound for an argument that it does not have.
    """
    names = PROMPTS[of].arguments if of in PROMPTS else _PLACES.get(of)
    if names is None:
        return []
    if argument not in names:
        raise errors.NotFound(f"{of[:200]!r} has no argument {argument[:80]!r} to complete")
    match argument:
        case "task" | "id":
            return await _tasks(session, typed)
        case "to":
            return [agent.name for agent in await session.ws.agents.list(typed, limit=_OFFERED)]
        case "tag":
            ready = await session.ws.tasks.ready(_LOOKED_AT)
            return sorted({tag for task in ready for tag in task.tags if tag.startswith(typed)})[:_OFFERED]
        case "run":
            return list(await session.ws.cells.runs(typed, limit=_OFFERED))
        case "cell" if known.get("run"):
            return list(await session.ws.cells.list(known["run"], typed, limit=_OFFERED))
    return []


_PLACES: Final = {
    f"holdfast://{place}": [part[1:-1] for part in place.split("/") if part.startswith("{")] for place in TEMPLATES
}


async def _tasks(session: Session, typed: str) -> list[str]:
    """The ids of tasks that begin so, or have it in their title: mine first, then what is open."""
    tasks, word = session.ws.tasks, typed.casefold()
    found = [
        *await tasks.list(claimed_by=session.actor, limit=_LOOKED_AT),
        *await tasks.ready(_LOOKED_AT),
        *await tasks.list(limit=_LOOKED_AT),
    ]
    fits = (task.id for task in found if task.id.startswith(typed) or word in task.title.casefold())
    return list(dict.fromkeys(fits))[:_OFFERED]
