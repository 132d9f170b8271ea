"""Task tools: create, list, show, claim, update, finish; what they answer is cut to what an agent needs next."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from holdfast import errors
from holdfast.faces.mcp.session import Session
from holdfast.faces.mcp.text import LONG, LONGEST, cut, filled, when
from holdfast.types import Op, Page
from holdfast.types.agents import Message, PathLock
from holdfast.types.tasks import Resume, Task
from holdfast.wire import wired

LISTED: Final = 20
MOST_LISTED: Final = 100
SHOWN: Final = 8192  # bytes of a task with all that belongs to it
WHOLE: Final = 1_048_576
# What each step without a claim calls the words that go with it.
_REASONS: Final = {
    "unblock": "note",
    "approve": "note",
    **dict.fromkeys(("reject", "cancel", "reopen", "close"), "reason"),
}

Id = Annotated[str, "task id"]
Cursor = Annotated[str | None, "from the page before"]


async def task_create(
    session: Session,
    title: str,
    body: str | None = None,
    priority: Annotated[int | None, "0 (critical) to 4; 2"] = None,
    type: Literal["task", "feature", "bug", "epic", "chore"] | None = None,
    parent_id: str | None = None,
    tags: list[str] | None = None,
) -> Any:
    """Create a task."""
    given = {"title": title} | filled(body=body, priority=priority, type=type, parent_id=parent_id, tags=tags)
    return row(await session.call("tasks.create", **given))


async def task_list(
    session: Session,
    status: Literal["ready", "open", "in_progress", "pending_merge", "blocked", "closed", "any"] = "ready",
    mine: Annotated[bool, "only what I have claimed"] = False,
    tag: str | None = None,
    text: Annotated[str | None, "words to find; not with ready"] = None,
    parent_id: str | None = None,
    limit: Annotated[int, "20, at most 100"] = LISTED,
    cursor: Cursor = None,
) -> Any:
    """List tasks, best first, without bodies. ready (default): open, unclaimed, nothing in the way."""
    given = filled(parent_id=parent_id, limit=check_limit(limit), cursor=cursor)
    if status == "ready" and not mine and text is None:
        found = await session.call("tasks.ready", **given, **filled(tags=None if tag is None else [tag]))
    else:
        given |= filled(tag=tag, text=text, claimed_by=session.actor if mine else None)
        if status not in ("ready", "any"):
            given["status"] = status
        found = await session.call("tasks.list", **given)
    return page("tasks", found, [row(task) for task in found])


async def task_show(session: Session, id: Id, whole: Annotated[bool, "nothing cut"] = False) -> Any:
    """Show a task with body, notes, messages and recent events, newest kept: all that is needed to go on with it."""
    return resumed(await session.call("tasks.resume", id=id, budget=WHOLE if whole else SHOWN))


async def task_claim(
    session: Session,
    id: Annotated[str | None, "default: the best ready one"] = None,
    tags: Annotated[list[str] | None, "without id: it must have these"] = None,
    can: Annotated[list[str] | None, "what I am able to do"] = None,
    ttl: Annotated[float | None, "seconds until it is lost without a sign of life"] = None,
) -> Any:
    """Claim a task, so that nobody else works on it. task null: nothing is ready."""
    if id is None:
        task = await session.call("tasks.claim_next", **filled(tags=tags, can=can, ttl=ttl))
    elif tags is not None:
        raise errors.Invalid("tags choose a task, and id has chosen one", hint="give either")
    else:
        task = await session.call("tasks.claim", id=id, **filled(can=can, ttl=ttl))
    if task is None:
        return {"task": None}
    session.memory.keep("task", task.id, task.token)
    return {"task": held(task)}


async def task_update(
    session: Session,
    id: Id,
    note: Annotated[str | None, "added to its history"] = None,
    title: str | None = None,
    body: str | None = None,
    priority: int | None = None,
    step: Annotated[
        Literal["unblock", "approve", "reject", "cancel", "reopen", "close"] | None, "note is then its reason"
    ] = None,
    add_tags: list[str] | None = None,
    remove_tags: list[str] | None = None,
    depends_on: Annotated[list[str] | None, "ids that must be closed first"] = None,
    expected: Annotated[int | None, "refuse unless it has this version"] = None,
) -> Any:
    """Change a task, all or nothing. For a task you hold it renews your claim; with id alone it does just that."""
    token = filled(token=session.memory.find("task", id))
    fields = filled(title=title, priority=priority, expected=expected)
    if body is not None:
        fields["body"] = body  # which may be emptied
    steps = [Op("tasks.update", {"id": id, **fields, **token})] if fields else []
    if note is not None and step is None:
        steps.append(Op("tasks.note", {"id": id, "text": note, **token}))
    steps += [
        Op(f"tasks.{name}", {"id": id, "tags": tags, **token})
        for name, tags in (("add_tags", add_tags), ("remove_tags", remove_tags))
        if tags
    ]
    steps += [Op("tasks.depend", {"id": id, "on": on}) for on in depends_on or ()]
    if step is not None:
        steps.append(Op(f"tasks.{step}", {"id": id, **filled(**{_REASONS[step]: note})}))
    if not steps:
        return held(await session.call("tasks.heartbeat", id=id, **token))
    done = await session.call("txn", conditions=[], then=steps)
    task: Task = done.results[-1]
    if task.claimed_by is None:
        session.memory.drop("task", id)
    return row(task) | {"version": task.version}


async def task_finish(
    session: Session,
    id: Id,
    action: Literal["done", "block", "release"] = "done",
    text: Annotated[str | None, "summary, or reason"] = None,
) -> Any:
    """End your claim: done, block (cannot go on until somebody unblocks it), or release to others."""
    token = filled(token=session.memory.find("task", id))
    match action:
        case "done":
            task = await session.call("tasks.complete", id=id, **filled(summary=text), **token)
        case "block":
            task = await session.call("tasks.block", id=id, **filled(reason=text), **token)
        case "release":
            task = await session.call("tasks.release", id=id, **filled(reason=text), **token)
    session.memory.drop("task", id)
    return row(task)


# --- what is told ----------------------------------------------------------------------------------------------------


def check_limit(limit: int) -> int:
    """How many of a list are wanted, at most a hundred."""
    if not 1 <= limit <= MOST_LISTED:
        raise errors.InvalidFilter(f"limit is 1 to {MOST_LISTED}, not {limit}", hint="go on with the cursor")
    return limit


def page(name: str, found: Any, rows: list[Any]) -> dict[str, Any]:
    """A list and how to go on."""
    return {name: rows, **filled(cursor=found.cursor if isinstance(found, Page) else None)}


def row(task: Task) -> dict[str, Any]:
    """A task in a list."""
    return filled(
        id=task.id,
        title=task.title,
        status=task.status,
        priority=task.priority,
        tags=task.tags,
        holder=task.claimed_by,
    )


def held(task: Task) -> dict[str, Any]:
    """A task that the caller holds: what to do, by which token, until when."""
    more = filled(body=cut(task.body, LONGEST), token=task.token, deadline=when(task.deadline), version=task.version)
    return row(task) | more


def resumed(found: Resume) -> dict[str, Any]:
    """A task with what belongs to it."""
    task = found.task
    shown = filled(
        type=task.type, body=task.body, parent_id=task.parent_id, deadline=when(task.deadline), version=task.version
    )
    return filled(
        task=row(task) | shown,
        last_holder=found.last_holder,
        ended=found.ended,
        locks=tuple(path_lock(lock) for lock in found.locks),
        left=found.left,
        notes=found.notes,
        messages=tuple(message(each, WHOLE) for each in found.messages),
        events=tuple(
            filled(op=event.op, by=event.actor, at=when(event.at), changes=wired(event.changes) or None)
            for event in found.events
        ),
        omitted=found.omitted or None,
    )


def path_lock(lock: PathLock) -> dict[str, Any]:
    """A path lock."""
    told = filled(
        id=lock.id,
        patterns=lock.patterns,
        holder=lock.holder,
        token=lock.token,
        task=lock.task,
        reason=lock.reason,
        until=when(lock.expires_at),
    )
    return told | ({"shared": True} if lock.shared else {})


def message(found: Message, most: int = LONG) -> dict[str, Any]:
    """A message; a long text is cut."""
    kept = msgspec.structs.replace(found, body=cut(found.body, most))
    told = {
        "id": kept.id,
        "from": kept.sender,
        "to": kept.to,
        "subject": kept.subject,
        "body": kept.body,
        "type": kept.type,
        "sent": when(kept.sent_at),
        "status": kept.status,
    }
    more = filled(thread=None if kept.thread == kept.id else kept.thread, task=kept.task, answers=kept.answers)
    return told | more | ({"ack": True} if kept.ack else {})
