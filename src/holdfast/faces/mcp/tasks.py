"""Task tools: create, list, show, claim, update, finish; their results are cut to what an agent needs next."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from holdfast import errors
from holdfast.faces.mcp.client import Session, as_step
from holdfast.faces.mcp.tool import LONG, LONGEST, cut, filled, picked, when
from holdfast.types import Page
from holdfast.types.agents import Message, PathLock
from holdfast.types.tasks import Resume, Task
from holdfast.wire import wired

LISTED: Final = 20
MOST_LISTED: Final = 100
SHOWN: Final = 8192  # bytes of a task with everything that belongs to it
WHOLE: Final = 1_048_576

Id = Annotated[str, "task id"]
Cursor = Annotated[str | None, "from the page before"]
DependsOn = Annotated[list[str] | None, "ids of tasks that must be closed first"]


async def task_create(
    session: Session,
    title: str,
    body: str | None = None,
    priority: Annotated[int | None, "0 (critical) to 4; 2"] = None,
    type: Literal["task", "feature", "bug", "epic", "chore"] | None = None,
    parent_id: str | None = None,
    tags: list[str] | None = None,
    depends_on: DependsOn = None,
) -> Any:
    """Create a task; its id is in the result."""
    given = filled(body=body, priority=priority, type=type, parent_id=parent_id, tags=tags, depends_on=depends_on)
    return row(await session.ws.tasks.create(title, **given))


async def task_list(
    session: Session,
    status: Literal["ready", "open", "in_progress", "pending_merge", "blocked", "closed", "any"] = "ready",
    mine: Annotated[bool, "only what I have claimed"] = False,
    tag: str | None = None,
    text: Annotated[str | None, "words to find, in tasks of any status by default"] = None,
    parent_id: str | None = None,
    limit: Annotated[int, "20, at most 100"] = LISTED,
    cursor: Cursor = None,
) -> Any:
    """List tasks, best first, without bodies. ready (default): open, unclaimed, nothing in the way."""
    check_limit(limit)
    if status == "ready" and not mine and text is None:
        tags = None if tag is None else [tag]
        found = await session.ws.tasks.ready(limit, tags=tags, parent_id=parent_id or None, cursor=cursor or None)
    else:
        found = await session.ws.tasks.list(
            status=None if status == "ready" or status == "any" else status,
            tag=tag or None,
            parent_id=parent_id or None,
            claimed_by=session.actor if mine else None,
            text=text or None,
            limit=limit,
            cursor=cursor or None,
        )
    return page("tasks", found, [row(task) for task in found]) | (await lost(session) if mine else {})


async def task_show(session: Session, id: Id, whole: Annotated[bool, "nothing cut"] = False) -> Any:
    """Show a task with body, notes, messages and recent events, newest kept: all that is needed to go on with it."""
    return resumed(await session.ws.tasks.resume(id, budget=WHOLE if whole else SHOWN))


async def task_claim(
    session: Session,
    id: Annotated[str | None, "default: the best ready one"] = None,
    tags: Annotated[list[str] | None, "without id: it must have these"] = None,
    can: Annotated[list[str] | None, "what I am able to do"] = None,
    ttl: Annotated[float | None, "seconds until it expires unless renewed"] = None,
) -> Any:
    """Claim a task, so that nobody else works on it. task null: nothing is ready."""
    if id is None:
        task = await session.ws.tasks.claim_next(tags=tags, can=can, ttl=ttl)
    elif tags is not None:
        raise errors.Invalid("tags cannot be combined with id", hint="give either")
    else:
        task = await _claim(session, id, can, ttl)
    return {"task": None if task is None else held(task)} | await lost(session)


async def _claim(session: Session, id: str, can: list[str] | None, ttl: float | None) -> Task:
    """Claim a task; one that this very session holds is renewed."""
    try:
        return await session.ws.tasks.claim(id, can=can, ttl=ttl)
    except errors.AlreadyClaimed as error:
        if error.details["holder"] != session.actor or session.tokens.token("task", id) is None:
            raise
        return await session.ws.tasks.heartbeat(id, ttl=ttl)


async def task_update(
    session: Session,
    id: Id,
    note: Annotated[str | None, "added to its history"] = None,
    title: str | None = None,
    body: str | None = None,
    priority: int | None = None,
    step: Annotated[
        Literal["unblock", "approve", "reject", "cancel", "reopen", "close"] | None,
        "approve or reject what is pending_merge, unblock what is blocked, cancel what is open or blocked, reopen what"
        " is closed, close what no other holds; note is its reason",
    ] = None,
    add_tags: list[str] | None = None,
    remove_tags: list[str] | None = None,
    add_depends_on: DependsOn = None,
    remove_depends_on: list[str] | None = None,
    expected: Annotated[int | None, "refuse unless it has this version"] = None,
) -> Any:
    """Change a task, all or nothing. For a task you hold it renews your claim; with id alone it does just that."""
    tasks, token = session.ws.tasks, session.tokens.token("task", id)
    fields = filled(title=title, priority=priority, expected=expected)
    if body is not None:
        fields["body"] = body  # also an empty one
    steps = [as_step(tasks.update, id=id, **fields, token=token)] if fields else []
    if note is not None and step is None:
        steps.append(as_step(tasks.note, id=id, text=note, token=token))
    if add_tags:
        steps.append(as_step(tasks.add_tags, id=id, tags=add_tags, token=token))
    if remove_tags:
        steps.append(as_step(tasks.remove_tags, id=id, tags=remove_tags, token=token))
    steps += [as_step(tasks.depend, id=id, on=on) for on in add_depends_on or ()]
    steps += [as_step(tasks.undepend, id=id, on=on) for on in remove_depends_on or ()]
    match step:
        case "unblock" | "approve":
            steps.append(as_step(getattr(tasks, step), id=id, note=note or None))
        case "reject" | "cancel" | "reopen" | "close":
            steps.append(as_step(getattr(tasks, step), id=id, reason=note or None))
    if not steps:
        try:
            return held(await tasks.heartbeat(id))
        except errors.NotClaimOwner as error:
            error.hint = error.hint or "give what to change; with id alone, task_update only renews a claim of yours"
            raise
    task: Task = await session.txn(steps, id, token)
    if task.claimed_by is None:
        session.tokens.forget("task", id)
    return row(task)


async def task_finish(
    session: Session,
    id: Id,
    action: Literal["done", "block", "release"] = "done",
    text: Annotated[str | None, "summary, or reason"] = None,
    review: Annotated[bool | None, "with done: somebody has to approve it; default: as its rules say"] = None,
) -> Any:
    """End your claim: done (its children come first), block (until somebody unblocks it), or release to others."""
    match action:
        case "done":
            task = await session.ws.tasks.complete(id, summary=text or None, review=review)
        case "block":
            task = await session.ws.tasks.block(id, reason=text or None)
        case "release":
            task = await session.ws.tasks.release(id, reason=text or None)
    return row(task)


# --- results ---------------------------------------------------------------------------------------------------------


def check_limit(limit: int) -> int:
    """Raise InvalidFilter unless a list may have so many entries."""
    if not 1 <= limit <= MOST_LISTED:
        raise errors.InvalidFilter(f"limit must be 1 to {MOST_LISTED}, not {limit}", hint="use cursor for more")
    return limit


def page(name: str, found: Any, rows: list[Any]) -> dict[str, Any]:
    """A list and the cursor of its next page."""
    return {name: rows, **filled(cursor=found.cursor if isinstance(found, Page) else None)}


def row(task: Task) -> dict[str, Any]:
    """A task in a list."""
    more = filled(holder=task.claimed_by, version=task.version, warnings=task.warnings or None)
    return picked(task, "id", "title", "status", "priority", "tags") | more


async def lost(session: Session) -> dict[str, Any]:
    """What this session held and has lost since it asked last, for it to stop that work, and what has a new id."""
    gone, renamed = await session.news()
    return filled(
        lost=tuple(picked(task, "id", "status") | filled(holder=task.claimed_by) for task in gone),
        renamed=renamed or None,
    )


def held(task: Task) -> dict[str, Any]:
    """A task that the caller holds: body, token and deadline."""
    more = filled(body=cut(task.body, LONGEST), token=task.token, deadline=when(task.deadline))
    return row(task) | more


def resumed(found: Resume) -> dict[str, Any]:
    """A task with what belongs to it."""
    task = found.task
    shown = filled(type=task.type, body=task.body, parent_id=task.parent_id, deadline=when(task.deadline))
    return filled(
        task=row(task) | shown,
        last_holder=found.last_holder,
        ended=found.ended,
        waits_for=found.waits_for,
        children=found.children,
        locks=tuple(path_lock(lock) for lock in found.locks),
        left=found.left,
        notes=tuple(filled(text=note.text, by=note.by, at=when(note.at)) for note in found.notes),
        messages=tuple(message(each, WHOLE) for each in found.messages),
        events=tuple(
            filled(op=event.op, by=event.actor, at=when(event.at), changes=wired(event.changes) or None)
            for event in found.events
        ),
        omitted=found.omitted or None,
        compacted=found.compacted,
    )


def path_lock(lock: PathLock) -> dict[str, Any]:
    """A path lock."""
    shown = picked(lock, "id", "patterns", "holder", "token", "task", "reason")
    return shown | filled(until=when(lock.expires_at), shared=lock.shared or None)


def message(found: Message, most: int = LONG) -> dict[str, Any]:
    """A message; a long text is cut."""
    shown = {
        "id": found.id,
        "from": found.sender,
        "to": found.to,
        "subject": found.subject,
        "body": cut(found.body, most),
        "type": found.type,
        "sent": when(found.sent_at),
        "status": found.status,
    }
    thread = None if found.thread == found.id else found.thread
    return shown | filled(thread=thread, task=found.task, answers=found.answers, ack=found.ack or None)
