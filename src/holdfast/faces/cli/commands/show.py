"""`holdfast show`, `tree` and `log`: looking at tasks and at what happens. `undelete`, `dep remove` and
`tag remove` look before they act, to say so if they change nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.events import Events
from holdfast.domains.tasks import Tasks
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session, perform, tell, tell_compacted
from holdfast.faces.cli.command import Command, Run, command
from holdfast.faces.cli.derive import arguments_of, derive
from holdfast.faces.cli.mail_views import section
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.times import readable
from holdfast.faces.cli.views import Paint, painter, record_line, task_lines, tree_lines
from holdfast.faces.cli.width import title
from holdfast.operation import Operation
from holdfast.types import EVENT_KINDS, Page
from holdfast.types.agents import Message, PathLock
from holdfast.types.tasks import Reason, Task, TaskNote
from holdfast.workspace.watch import every

_NAMES: Final = {"depends_on": ("waits for", "needed by"), "related": ("related", "related")}
_NEAR: Final = 20  # linked tasks, children, notes and messages that are shown; the rest is counted
_NOTES: Final = 65_536  # bytes of notes, locks and mail


class Linked(msgspec.Struct, frozen=True):
    """A task that another is linked with, and how: waits for, waited for, needed by, related, found in, led to."""

    relation: str
    id: str
    status: str
    title: str
    claimed_by: str | None
    waiting: bool = False


class Shown(Task, frozen=True, kw_only=True):
    """A task with what belongs to it; `more` counts what is left out, by the name of the field."""

    reasons: tuple[Reason, ...] = ()
    because: str | None = None
    links: tuple[Linked, ...] = ()
    subtasks: tuple[Task, ...] = ()
    locks: tuple[PathLock, ...] = ()
    notes: tuple[TaskNote, ...] = ()
    messages: tuple[Message, ...] = ()
    more: dict[str, int] = msgspec.field(default_factory=dict)
    renamed: tuple[str, ...] = ()  # younger tasks that had this id


def show(session: Session, given: dict[str, Any]) -> int:
    """Print a task with all that belongs to it: why it is not ready, links, children, notes, locks and mail."""
    out = session.out
    with session.open() as workspace:
        task = workspace.tasks.get(**given)
        around = {} if out.quiet else _around(workspace, task)
    shown = Shown(**msgspec.structs.asdict(task), **around)
    if out.json or out.quiet:
        out.result(Tasks.get, shown)
    else:
        out.text(*_lines(session, shown))
    return 0


def _lines(session: Session, task: Shown) -> Iterator[str]:
    """The text of a task: facts, body, then lists."""
    paint, place, more, width = painter(session.out.colour), session.out.place, task.more, session.out.width
    lines = task_lines(task, paint)
    end = lines.index("") if "" in lines else len(lines)  # where the body begins
    yield from (each for at, line in enumerate(lines[:end]) for each in record_line(line, width, first=not at))
    facts = [("not ready", readable(reason.text)) for reason in task.reasons]
    facts += [("because", task.because)] if task.because else []
    if task.renamed:
        are = "is" if len(task.renamed) == 1 else "are"
        facts.append(("renamed", f"{', '.join(task.renamed)} had this id too, and {are} younger"))
    told = (f"  {name:<11}{printable(what)}" for name, what in facts)
    yield from (each for line in (*told, *lines[end:]) for each in record_line(line, width))
    lists = (
        ("links", [_linked(each, paint) for each in task.links], "dep list"),
        ("children", task.subtasks, "tree"),
        ("locks", task.locks, "path list --task"),
        ("notes", task.notes, "history"),
        ("mail", task.messages, "mail about"),
    )
    for head, items, other in lists:
        left = more.get({"children": "subtasks", "mail": "messages"}.get(head, head))
        rest = f"and {left} more: holdfast {other} {task.id}{place}" if left else ""
        yield from (each for line in section(head, items, paint, rest) for each in record_line(line, width))


def _linked(link: Linked, paint: Paint) -> str:
    status = paint("dim" if link.status == "closed" else "yellow", "waiting" if link.waiting else link.status)
    holder = f"  {paint('cyan', f'@{printable(link.claimed_by)}')}" if link.claimed_by else ""
    return f"{link.relation:<11}{paint('bold', link.id)}  {status}  {title(link.title)}{holder}"


def _around(workspace: Any, task: Any) -> dict[str, Any]:
    """What belongs to a task, as far as somebody reads it."""
    if task.deleted_at is not None:
        return {"reasons": workspace.tasks.explain(task.id).reasons}
    known = workspace.tasks.resume(task.id, _NOTES)
    renamed = workspace.tasks.sharing(task.id).renamed
    children = workspace.tasks.list(parent_id=task.id, limit=_NEAR) if task.children else []
    links, left = _links(workspace, task)
    notes, messages = known.notes[-_NEAR:], known.messages[-_NEAR:]
    more = {
        "links": left,
        "subtasks": task.children - len(children),
        "notes": len(known.notes) - len(notes) + known.omitted.get("notes", 0),
        "messages": len(known.messages) - len(messages) + known.omitted.get("messages", 0),
        "locks": known.omitted.get("locks", 0),
    }
    return {
        "reasons": workspace.tasks.explain(task.id).reasons if task.status == "open" else (),
        "because": _because(workspace, task),
        "links": tuple(links),
        "subtasks": tuple(children),
        "locks": known.locks,
        "notes": notes,
        "messages": messages,
        "renamed": tuple(renamed.get(task.id, ())),
        "more": {name: count for name, count in more.items() if count > 0},
    }


def _because(workspace: Any, task: Any) -> str | None:
    """What was said when a task was blocked or ended."""
    if task.status not in ("blocked", "closed"):
        return None
    try:
        last = workspace.tasks.history(task.id, field="status", limit=1)
    except errors.Compacted:
        return None
    return last[0].note if last else None


def _links(workspace: Any, task: Any) -> tuple[list[Linked], int]:
    """The tasks that it is linked with, what it waits for first, and how many are left out."""
    order = ("waits for", "needed by", "found in", "led to", "related", "waited for")
    found: list[Linked] = []
    links = [*islice(every(workspace.tasks.dependencies, id=task.id), _MOST)]
    for link in links[: 2 * _NEAR]:
        from_here, to_here = _NAMES.get(link.kind, ("found in", "led to"))
        relation, other = (from_here, link.on) if link.id == task.id else (to_here, link.id)
        near = workspace.tasks.get(other, include_deleted=True)
        status = "deleted" if near.deleted_at else near.status
        if relation == "waits for" and status in ("closed", "deleted"):
            relation = "waited for"
        found.append(Linked(relation, near.id, status, near.title, near.claimed_by, near.waiting))
    found.sort(key=lambda each: order.index(each.relation))
    return found[:_NEAR], len(links) - len(found[:_NEAR])


def undelete(session: Session, given: dict[str, Any]) -> int:
    """Restore a task; say so if it is not deleted."""
    task = _found(session, Tasks.get, given["id"], include_deleted=True)
    code = perform(session, Tasks.restore, given)
    if task is not None and task.deleted_at is None:
        tell(session, f"task {task.id} is not deleted, so nothing was restored")
    return code


def remove_dependency(session: Session, given: dict[str, Any]) -> int:
    """Remove a link; say so if there is none, and if there is the reverse one."""
    links = _found(session, Tasks.dependencies, given["id"])
    code = perform(session, Tasks.undepend, given)
    id, on, kind = given["id"], given["on"], given.get("kind", "depends_on")
    there = {(link.kind, link.id, link.on) for link in links or ()}
    if links is None or (kind, id, on) in there:
        return code
    has, lacks, option = "depends on", "does not depend on", ""
    if kind != "depends_on":
        has, lacks, option = f"has a link {kind} to", f"has no link {kind} to", f" --kind {kind}"
    command = f"holdfast dep remove {on} {id}{option}{session.out.place}"
    reverse = f"; {on} {has} {id}: {command} removes that" if (kind, on, id) in there else ""
    tell(session, f"{id} {lacks} {on}, so nothing was removed{reverse}")
    return code


def remove_tags(session: Session, given: dict[str, Any]) -> int:
    """Remove tags; say which of them the task does not have."""
    task = _found(session, Tasks.get, given["id"])
    code = perform(session, Tasks.remove_tags, given)
    missing = [] if task is None else [tag for tag in given["tags"] if tag not in task.tags]
    if missing:
        what = "nothing was removed" if len(missing) == len(given["tags"]) else "only the others were removed"
        tell(session, f"{task.id} has no tag {' or '.join(missing)}, so {what}")
    return code


def _found(session: Session, op: Operation[..., Any], id: str, **more: Any) -> Any:
    """What a read finds; None if it fails, as the call itself will, or if the call may repeat an old answer."""
    if session.may_repeat:
        return None
    try:
        with session.open() as workspace:
            return op.on(workspace)(id, **more)
    except errors.HoldfastError:
        return None


_MOST: Final = 10_000


@command(
    "tree",
    Argument("id", word=True, help="the task at its root", names="task"),
    Argument("limit", "int", help="at most so many"),
    op=Tasks.subtree,
    relayed=True,
)
def tree(session: Session, given: dict[str, Any]) -> int:
    """Show a task and all below it; without an id, every tree in which something is unfinished."""
    limit = given.get("limit", _MOST)
    _check_limit(limit)
    with session.open() as workspace:
        roots = [given["id"]] if "id" in given else _roots(workspace)
        tasks = (task for root in roots for task in every(workspace.tasks.subtree, id=root))
        found = [*islice(tasks, limit + 1)]
        shown = found[:limit]
        waits = {} if session.out.json or session.out.quiet else _waits(workspace, given.get("id"))
    if session.out.json or session.out.quiet:
        session.out.result(Tasks.subtree, shown)
    else:
        session.out.text(*tree_lines(shown, waits, session.out.colour, session.out.width))
    if len(found) > limit:
        session.out.note(f"there are more than {limit} tasks", "" if limit == _MOST else "show more with --limit")
    return 0


def _roots(workspace: Any) -> list[str]:
    """The ids of the trees in which something is unfinished, though their root may be closed."""
    waiting = ["open", "in_progress", "pending_merge", "blocked"]
    tasks = {task.id: task for task in every(workspace.tasks.list, status=waiting, limit=_PAGE)}
    roots: dict[str, None] = {}
    for task in tasks.values():
        if task.parent_id is None:
            roots[task.id] = None
        elif task.parent_id not in tasks:
            roots[[*every(workspace.tasks.ancestors, id=task.id)][-1].id] = None
    return [*roots]


def _waits(workspace: Any, root: str | None) -> dict[str, list[str]]:
    """What each unfinished task waits for; nothing if there are too many to say."""
    found: dict[str, list[str]] = {}
    try:
        graph = workspace.tasks.graph(root)
    except errors.TooLarge:
        return {}
    for edge in graph.edges:
        if edge.kind == "depends":
            found.setdefault(edge.id, []).append(edge.on)
    return found


_PAGE: Final = 1000
_LAST: Final = 50


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= _MOST:
        raise errors.InvalidFilter(f"--limit must be 1 to {_MOST}")


@command(
    "log",
    Argument("since", "past", help="since then: 12h, yesterday, 'monday 9:00' or a moment"),
    Argument("by", option="--actor", help="by this actor alone", names="agent"),
    Argument("kinds", "texts", choices=EVENT_KINDS, help="of this kind alone; may be repeated"),
    Argument("limit", "int", help=f"the newest so many ({_LAST})"),
    Argument("summary", "flag", help="count by actor, with what was refused: held, fenced, ..."),
    more="The number at the end of a row is its revision. In a terminal, rows are shortened to its width; --json has"
    " all of it.",
    relayed=True,
)
def log(session: Session, given: dict[str, Any]) -> int:
    """Tell what happened: the newest events, or their sum with --summary."""
    limit = given.get("limit", _LAST)
    _check_limit(limit)
    since = given.get("since")
    with session.open() as workspace:
        wanted: dict[str, Any] = {"kinds": given.get("kinds"), "actor": given.get("by"), "since": since, "limit": _PAGE}
        first = workspace.events.list(**wanted)
        events = _events(workspace, wanted, first)
        if given.get("summary"):
            refused = workspace.events.refusals(since=since, actor=given.get("by"))
            compacted = first.compacted
            _summarize(session, events, refused, compacted)
        else:
            newest = Page(deque(events, maxlen=limit))
            compacted = newest.compacted = first.compacted if newest[:1] == first[:1] else None
            session.out.result(Events.list, newest)
            if not newest and not session.out.quiet:
                tell(session, "nothing that fits has happened" if given else "nothing has happened yet")
    tell_compacted(session, compacted)
    return 0


def _events(workspace: Any, wanted: dict[str, Any], first: Page[Any]) -> Iterator[Any]:
    yield from first
    if first.cursor is not None:
        yield from every(workspace.events.list, **wanted, after=first.cursor)


def _summarize(session: Session, events: Iterator[Any], refused: list[Any], compacted: int | None) -> None:
    done: dict[str, Counter[str]] = {}
    for event in events:
        done.setdefault(event.actor, Counter())[f"{event.kind} {event.op}"] += 1
    refusals: dict[str, dict[str, int]] = {}
    for each in refused:
        refusals.setdefault(each.actor, {})[each.code] = each.count
    names = sorted({*done, *refusals})
    told = {name: {"events": dict(done.get(name, {})), "refusals": refusals.get(name, {})} for name in names}
    lines = []
    for name in names:
        lines.append(printable(name))
        lines += [f"  {count:>6}  {what}" for what, count in done.get(name, Counter()).most_common()]
        lines += [f"  {count:>6}  refused: {code}" for code, count in refusals.get(name, {}).items()]
    session.out.say(told, *(lines or ["nothing happened"]), compacted=compacted)


show_task: Final = Command(
    "show", Tasks.get.route.help, arguments_of(Tasks.get), show, op=Tasks.get, relayed=True, prints=Shown
)


def _as(op: Operation[..., Any], run: Run) -> Command:
    """The command of an operation, run by a function of ours."""
    return msgspec.structs.replace(derive(op), run=run)


undelete_task: Final = _as(Tasks.restore, undelete)
undepend: Final = _as(Tasks.undepend, remove_dependency)
untag: Final = _as(Tasks.remove_tags, remove_tags)
