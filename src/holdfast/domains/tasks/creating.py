"""Making tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config
from holdfast.domains.routing.settings import settings_of
from holdfast.domains.tasks.rows import TASK, Stored, new_id, require, to_task
from holdfast.domains.tasks.tags import check_tags, stored_tags
from holdfast.domains.tasks.texts import LIMITS, check_line, check_text
from holdfast.kernel import fts
from holdfast.kernel.names import check_name
from holdfast.kernel.tx import Tx
from holdfast.types.tasks import Task, TaskType

TYPES: tuple[TaskType, ...] = get_args(TaskType)
PRIORITIES = range(5)
_encode = msgspec.msgpack.Encoder().encode


def create(
    tx: Tx,
    title: str,
    body: str = "",
    type: TaskType = "task",
    priority: int = 2,
    parent_id: str | None = None,
    tags: Sequence[str] = (),
    grimoire_hint: str | None = None,
) -> Task:
    """Make an open task, under a parent if one is named; its id is short enough to remember."""
    config = settings_of(tx).config
    draft = check_draft(config, title, body, type, priority, tags, grimoire_hint)
    return to_task(insert(tx, draft, require_parent(tx, parent_id), config))


class Draft(msgspec.Struct, frozen=True):
    """A task that passed every check and is not yet in the store."""

    title: str
    body: str
    type: TaskType
    priority: int
    tags: tuple[str, ...]
    hint: str | None


def check_draft(
    config: Config,
    title: str,
    body: str = "",
    type: TaskType = "task",
    priority: int = 2,
    tags: Sequence[str] = (),
    hint: str | None = None,
) -> Draft:
    """Refuse what cannot be a task."""
    return Draft(
        check_title(title, config),
        check_body(body, config),
        check_type(type),
        check_priority(priority),
        check_tags(tags, config.max_tags),
        check_hint(hint),
    )


class Placed(msgspec.Struct, frozen=True):
    """A draft with its place; an import knows its id and times as well."""

    draft: Draft
    parent: Stored | None = None
    id: str | None = None
    created: int | None = None
    updated: int | None = None


def insert(
    tx: Tx,
    draft: Draft,
    parent: Stored | None,
    config: Config,
    id: str | None = None,
    created: int | None = None,
    updated: int | None = None,
) -> Stored:
    """Put a draft into the store as an open task; a child inherits its parent's hint. An import knows the times."""
    return insert_all(tx, [Placed(draft, parent, id, created, updated)], config)[0]


def insert_all(tx: Tx, drafts: Sequence[Placed], config: Config) -> list[Stored]:
    """Put many into the store, each as an open task, table by table."""
    row = tx.one("SELECT max(seq) FROM tasks")
    first = ((row and row[0]) or 0) + 1
    taken: set[str] = set()
    tasks = [_open(tx, draft, first + number, config, taken) for number, draft in enumerate(drafts)]
    tx.many(
        "INSERT INTO tasks (seq, id, status, priority, waits, busy, type, parent, depth, version, revision, created,"
        " updated, parked, hint, review, tags, title)"
        " VALUES (?, ?, 'open', ?, 0, 0, ?, ?, ?, 1, ?, ?, ?, 0, ?, 0, ?, ?)",
        [
            (
                t.seq,
                t.id,
                t.priority,
                t.type,
                t.parent,
                t.depth,
                t.revision,
                t.created,
                t.updated,
                t.hint,
                t.tags,
                t.title,
            )
            for t in tasks
        ],
    )
    texts = [(task.seq, task.title, task.body, "") for task in tasks]
    tx.many("INSERT INTO task_texts (seq, title, body, notes) VALUES (?, ?, ?, ?)", texts)
    fts.learn_new(tx.many, "task_texts", texts)
    tags = [(tag, task.priority, task.seq) for task in tasks for tag in task.tag_list]
    for table in ("task_tags", "ready_tags"):  # a new task is ready
        if tags:
            tx.many(f"INSERT INTO {table} (tag, priority, seq) VALUES (?, ?, ?)", tags)
    tx.emit_all(TASK, "create", [(task.id, 1, _encode(_made(task))) for task in tasks])
    return tasks


def _open(tx: Tx, placed: Placed, seq: int, config: Config, taken: set[str]) -> Stored:
    draft, parent = placed.draft, placed.parent
    id = placed.id or new_id(tx, config.prefix, seq, taken)
    taken.add(id)
    return Stored(
        seq=seq,
        id=id,
        status="open",
        priority=draft.priority,
        waits=0,
        busy=0,
        type=draft.type,
        parent=None if parent is None else parent.seq,
        depth=0 if parent is None else parent.depth + 1,
        version=1,
        revision=tx.revision,
        created=tx.now if placed.created is None else placed.created,
        updated=tx.now if placed.updated is None else placed.updated,
        deleted=None,
        deletion=None,
        holder=None,
        claimed=None,
        token=None,
        ttl=None,
        parked=0,
        hint=parent.hint if draft.hint is None and parent is not None else draft.hint,
        grimoire=None,
        review=0,
        tags=stored_tags(draft.tags),
        title=draft.title,
        body=draft.body,
        parent_id=None if parent is None else parent.id,
        deadline=None,
    )


def _made(task: Stored) -> dict[str, Any]:
    """What the event of a creation says: every field that was given."""
    given = {
        "status": task.status,
        "title": task.title,
        "body": task.body or None,
        "type": task.type,
        "priority": task.priority,
        "parent_id": task.parent_id,
        "tags": task.tag_list or None,
        "grimoire_hint": task.hint,
    }
    return {field: (None, value) for field, value in given.items() if value is not None}


# --- checks ----------------------------------------------------------------------------------------------------------


def require_parent(tx: Tx, parent_id: str | None) -> Stored | None:
    """The parent named; ParentNotFound if there is none, or if it is deleted."""
    if parent_id is None:
        return None
    check_name(parent_id, "parent_id")
    try:
        return require(tx, parent_id)
    except errors.TaskNotFound as error:
        raise errors.ParentNotFound(
            f"there is no task {parent_id!r} to be the parent", hint=error.hint, parent_id=parent_id
        ) from error


def check_title(title: str, config: Config) -> str:
    """One line."""
    return check_line(title, "title", config.max_title)


def check_body(body: str, config: Config) -> str:
    """Text, as long as the configuration allows."""
    return check_text(body, "body", config.max_body, LIMITS)


def check_type(type_: TaskType) -> TaskType:
    """One of the types."""
    if type_ not in TYPES:
        raise errors.InvalidType(
            f"{type_!r} is not a type of task", hint=f"types: {', '.join(TYPES)}", types=list(TYPES)
        )
    return type_


def check_priority(priority: int) -> int:
    """0 (critical) to 4 (backlog)."""
    if type(priority) is not int or priority not in PRIORITIES:
        raise errors.InvalidPriority(f"a priority is 0 (critical) to 4 (backlog), not {priority!r}")
    return priority


def check_hint(hint: str | None) -> str | None:
    """The name of a grimoire, or None."""
    if hint is not None:
        check_name(hint, "grimoire_hint")
    return hint
