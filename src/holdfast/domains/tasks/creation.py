"""Creating tasks, and the checks of titles, bodies, notes and tags."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config, settings_of
from holdfast.domains.tasks.rows import NO_CLAIM, TASK, Stored, adjust, require, warned
from holdfast.kernel.tx import Tx, index_new_text
from holdfast.kernel.validate import check_name
from holdfast.route import LOADING
from holdfast.types.tasks import Task, TaskType

MAX_NOTE: Final = 65_536
LIMITS: Final = "see limits in config.yaml"


def check_text(text: str, what: str, most: int, hint: str = "") -> str:
    """Return text of at most `most` bytes that can be stored. Raises InvalidValue or TooLarge."""
    if type(text) is not str:
        raise errors.InvalidValue(f"{what} must be a str, not {type(text).__name__}", hint="")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise errors.InvalidValue(f"{what} has a lone surrogate at position {error.start}", hint="") from error
    if "\0" in text:
        raise errors.InvalidValue(f"{what} has a NUL character", hint="")
    if size > most:
        raise errors.TooLarge(f"{what} has {size} bytes; the maximum is {most}", hint=hint, limit=most)
    return text


def check_line(text: str, what: str, most: int) -> str:
    """Return one line that is not blank, of at most `most` characters, without control characters."""
    if type(text) is str and len(text) > most:
        raise errors.TooLarge(f"{what} has {len(text)} characters; the maximum is {most}", hint=LIMITS, limit=most)
    check_text(text, what, 4 * most)
    if not text.strip():
        raise errors.InvalidValue(f"{what} is empty", hint="write one line")
    at = next((at for at, char in enumerate(text) if char < " " or "\x7f" <= char < "\xa0"), None)
    if at is not None:
        hint = "write one line of text"
        raise errors.InvalidValue(f"{what} has the control character U+{ord(text[at]):04X} at position {at}", hint=hint)
    return text


def check_note(note: str | None, what: str = "note") -> str | None:
    """Return a note or reason, or None. Raises InvalidValue or TooLarge."""
    return None if note is None else check_text(note, what, MAX_NOTE)


MAX_TAG = 128  # bytes


def check_tag(tag: str) -> str:
    """Return a tag. Raises InvalidTag if it has spaces at its ends or empty parts between slashes."""
    try:
        check_name(tag, "tag")
    except errors.InvalidName as error:
        raise errors.InvalidTag(error.message, tag=tag) from error
    if len(tag.encode()) > MAX_TAG:
        raise errors.InvalidTag(f"the tag {tag[:40]!r}... has more than {MAX_TAG} bytes", tag=tag)
    if tag != tag.strip() or not all(part.strip() for part in tag.split("/")):
        hint = "no spaces at the ends, and text on both sides of each /"
        raise errors.InvalidTag(f"{tag!r} is not a tag", hint=hint, tag=tag)
    return tag


def check_tags(tags: Sequence[str], most: int) -> tuple[str, ...]:
    """Return tags in order, each once. Raises InvalidTag."""
    if isinstance(tags, str) or not isinstance(tags, Sequence):
        raise errors.InvalidTag(f"tags must be a list, not {tags!r}", hint='such as tags=["backend"]')
    if not tags:
        return ()
    checked = tuple(sorted({check_tag(tag) for tag in tags}))
    if len(checked) > most:
        raise errors.InvalidTag(f"{len(checked)} tags; a task has at most {most}", hint="see limits in config.yaml")
    return checked


def stored_tags(tags: tuple[str, ...]) -> str:
    """Return tags as the row of a task stores them."""
    return msgspec.json.encode(tags).decode() if tags else "[]"


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
    assigned_to: str | None = None,
    depends_on: Sequence[str] = (),
    blocks: Sequence[str] = (),
) -> Task:
    """Create an open task, under a parent if given; its id is short. Raises ParentNotFound, or Invalid.

    It depends on the tasks `depends_on`, and those that it `blocks` depend on it.
    """
    config = settings_of(tx).config
    draft = check_draft(config, title, body, type, priority, tags, grimoire_hint, assigned_to)
    task = insert(tx, Placed(draft, require_parent(tx, parent_id)), config)
    if depends_on or blocks:
        with LOADING:
            from holdfast.domains.tasks.tree import depend
        for other in check_ids(depends_on, "depends_on"):
            depend(tx, task.id, other)
        for other in check_ids(blocks, "blocks"):
            depend(tx, other, task.id)
        task = require(tx, task.id)
    return with_assignee(tx, warned(tx, task))


def with_assignee(tx: Tx, task: Task) -> Task:
    """Return a task that was assigned, with a warning if nobody of that name was seen here."""
    if task.assigned_to is None:
        return task
    with LOADING:
        from holdfast.domains import agents

    return msgspec.structs.replace(task, warnings=(*task.warnings, *agents.unknown(tx, (task.assigned_to,), tx.actor)))


def check_ids(ids: Sequence[str], what: str) -> Sequence[str]:
    """Return a list of ids. Raises InvalidValue for anything else."""
    if isinstance(ids, str) or not isinstance(ids, Sequence):
        raise errors.InvalidValue(f"{what} must be a list of ids, not {ids!r}", hint='such as ["hf-7k2q"]')
    return ids


class Draft(msgspec.Struct, frozen=True):
    """A checked task that is not yet in the store."""

    title: str
    body: str
    type: TaskType
    priority: int
    tags: tuple[str, ...]
    hint: str | None
    assignee: str | None = None


def check_draft(
    config: Config,
    title: str,
    body: str = "",
    type: TaskType = "task",
    priority: int = 2,
    tags: Sequence[str] = (),
    hint: str | None = None,
    assignee: str | None = None,
) -> Draft:
    """Return a checked draft. Raises Invalid."""
    return Draft(
        check_title(title, config),
        check_body(body, config),
        check_type(type),
        check_priority(priority),
        check_tags(tags, config.max_tags),
        check_hint(hint),
        check_assignee(assignee),
    )


class Placed(msgspec.Struct, frozen=True):
    """A draft with its parent; an import also has its id and times."""

    draft: Draft
    parent: Stored | None = None
    id: str | None = None
    created: int | None = None
    updated: int | None = None


def insert(tx: Tx, placed: Placed, config: Config) -> Stored:
    """Store a draft as an open task; a child inherits its parent's hint."""
    return insert_all(tx, [placed], config)[0]


_columns_of = attrgetter(
    *("seq", "record", "id", "priority", "type", "parent", "depth", "revision", "created", "updated"),
    *("hint", "tags", "title", "assignee"),
)


def insert_all(tx: Tx, drafts: Sequence[Placed], config: Config) -> list[Stored]:
    """Store many drafts, each as an open task, table by table."""
    row = tx.one("SELECT max(seq) FROM tasks")
    first = ((row and row[0]) or 0) + 1
    tasks = []
    for number, draft in enumerate(drafts, first):
        id, record = _as_given(tx, draft.id) if draft.id else new_record(tx, config.prefix, number)
        tasks.append(_open(tx, draft, id, number, record))
    tx.many(
        "INSERT INTO tasks (seq, record, id, status, priority, waits, busy, children, ended, type, parent, depth,"
        " version, revision, created, updated, parked, hint, review, tags, title, assignee)"
        " VALUES (?, ?, ?, 'open', ?, 0, 0, 0, 0, ?, ?, ?, 1, ?, ?, ?, 0, ?, 0, ?, ?, ?)",
        [_columns_of(task) for task in tasks],
    )
    texts = [(task.seq, task.title, task.body, "", "") for task in tasks]
    tx.many("INSERT INTO task_texts (seq, title, body, notes, refs) VALUES (?, ?, ?, ?, ?)", texts)
    index_new_text(tx.many, "task_texts", texts)
    for table, tagged in (("task_tags", tasks), ("ready_tags", [task for task in tasks if task.ready])):
        tags = [(tag, task.priority, task.seq) for task in tagged for tag in task.tag_list]
        if tags:
            tx.many(f"INSERT INTO {table} (tag, priority, seq) VALUES (?, ?, ?)", tags)
    tx.emit_all("create", [(task.record, 1, _encode(_made(task))) for task in tasks])
    _count_children(tx, tasks)
    return tasks


def _count_children(tx: Tx, tasks: list[Stored]) -> None:
    """Have parents count their new children, each parent once."""
    added: dict[int, int] = {}
    for task in tasks:
        if task.parent is not None:
            added[task.parent] = added.get(task.parent, 0) + 1
    for parent, number in added.items():
        adjust(tx, parent, busy=number if settings_of(tx).strict else 0, children=number)


_SHORT = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's 32: no two look alike


def new_record(tx: Tx, prefix: str, count: int) -> tuple[str, int]:
    """Return an id that no task here has or had, as short as `count` tasks allow, and its key in the log."""
    length = 4
    while 32**length < 64 * count:
        length += 1
    for attempt in range(64):
        bits = int(tx.new_id().replace("-", "")[-15:], 16)
        size = length + attempt // 16
        id = f"{prefix}-{''.join(_SHORT[bits >> 5 * place & 31] for place in range(size))}"
        key = tx.new_record(TASK, id)
        if key is not None:
            return id, key
    raise errors.Unavailable("no unused task id was found")


def _as_given(tx: Tx, id: str) -> tuple[str, int]:
    """The id of a task that is brought from elsewhere, and its key."""
    key = tx.new_record(TASK, id)
    assert key is not None, "whoever brings a task has looked for its id"
    return id, key


# The columns that are the same in all new tasks: open, waiting for nothing, live, unclaimed and not routed yet.
_NEW: Final[dict[str, Any]] = {
    **{"status": "open", "waits": 0, "busy": 0, "children": 0, "ended": 0},
    **{"version": 1, "deleted": None, "deletion": None},
    **{**NO_CLAIM, "deadline": None, "grimoire": None, "review": 0},
}


def _open(tx: Tx, placed: Placed, id: str, seq: int, record: int) -> Stored:
    draft, parent = placed.draft, placed.parent
    return Stored(
        **_NEW,
        seq=seq,
        record=record,
        id=id,
        priority=draft.priority,
        type=draft.type,
        parent=None if parent is None else parent.seq,
        depth=0 if parent is None else parent.depth + 1,
        revision=tx.revision,
        created=tx.now if placed.created is None else placed.created,
        updated=tx.now if placed.updated is None else placed.updated,
        hint=parent.hint if draft.hint is None and parent is not None else draft.hint,
        tags=stored_tags(draft.tags),
        title=draft.title,
        body=draft.body,
        assignee=draft.assignee,
        parent_id=None if parent is None else parent.id,
    )


def _made(task: Stored) -> dict[str, Any]:
    """The data of a creation's event: every field that was given."""
    given: dict[str, Any] = {"status": task.status, "title": task.title, "body": task.body or None, "type": task.type}
    given |= {"priority": task.priority, "parent_id": task.parent_id}
    given |= {"tags": task.tag_list or None, "grimoire_hint": task.hint, "assigned_to": task.assignee}
    return {field: (None, value) for field, value in given.items() if value is not None}


# --- checks ----------------------------------------------------------------------------------------------------------


def require_parent(tx: Tx, parent_id: str | None) -> Stored | None:
    """Return the parent, or None. Raises ParentNotFound if it does not exist or is deleted."""
    if parent_id is None:
        return None
    check_name(parent_id, "parent_id")
    try:
        return require(tx, parent_id)
    except errors.TaskNotFound as error:
        message = f"there is no task {parent_id!r} to be the parent"
        raise errors.ParentNotFound(message, hint=error.hint, parent_id=parent_id) from error


def check_title(title: str, config: Config) -> str:
    """Return a title of one line. Raises InvalidValue or TooLarge."""
    return check_line(title, "title", config.max_title)


def check_body(body: str, config: Config) -> str:
    """Return a body of at most the configured size. Raises InvalidValue or TooLarge."""
    return check_text(body, "body", config.max_body, LIMITS)


def check_type(type_: TaskType) -> TaskType:
    """Return a type of task. Raises InvalidType."""
    if type_ not in TYPES:
        hint = f"types: {', '.join(TYPES)}"
        raise errors.InvalidType(f"{type_!r} is not a type of task", hint=hint, types=list(TYPES))
    return type_


def check_priority(priority: int) -> int:
    """Return a priority of 0 (critical) to 4 (backlog). Raises InvalidPriority."""
    if type(priority) is not int or priority not in PRIORITIES:
        raise errors.InvalidPriority(f"priority must be a number from 0 (critical) to 4 (backlog), not {priority!r}")
    return priority


def check_assignee(assignee: str | None) -> str | None:
    """Return the name of an agent, or None. Raises InvalidName."""
    if assignee is not None:
        check_name(assignee, "assigned_to")
    return assignee


def check_hint(hint: str | None) -> str | None:
    """Return the name of a grimoire, or None. Raises InvalidName."""
    if hint is not None:
        check_name(hint, "grimoire_hint")
    return hint
