"""`holdfast show`, `tree` and `log`: looking at tasks and at what happens. `undelete`, `dep
remove` and `tag remove` look before they act, to say so if they change nothing; `template delete` says so too.
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
from holdfast.faces.cli.call import Session, perform, run, tell, tell_compacted
from holdfast.faces.cli.command import Command, Run, command
from holdfast.faces.cli.derive import arguments_of, derive
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.views import tree_lines, view
from holdfast.operation import Operation
from holdfast.types import EVENT_KINDS, Page
from holdfast.workspace.watch import every

_NAMES: Final = {"depends_on": ("waits for", "needed by"), "related": ("related", "related")}


def show(session: Session, given: dict[str, Any]) -> int:
    """Print a task; as text with its links, the reason if it is not ready, and the paths that are locked for it."""
    with session.open() as workspace:
        task = workspace.tasks.get(**given)
        if session.out.json or session.out.quiet:
            session.out.result(Tasks.get, task)
            return 0
        around = [*_reasons(workspace, task), *_links(workspace, task), *_locks(workspace, task)]
    told = view(Tasks.get, task, session.out.colour)
    end = told.index("") if "" in told else len(told)  # where the body begins
    session.out.text(*told[:end], *(f"  {name:<11}{printable(what)}" for name, what in around), *told[end:])
    return 0


def _reasons(workspace: Any, task: Any) -> list[tuple[str, str]]:
    """Why it stands still: what its readiness says, and what was said when it was blocked or sent back."""
    if task.status == "open":
        return [("not ready", reason.text) for reason in workspace.tasks.explain(task.id).reasons]
    if task.status in ("blocked", "closed"):
        try:
            last = workspace.tasks.history(task.id, field="status", limit=1)
        except errors.Compacted:
            return []
        return [("because", last[0].note)] if last and last[0].note else []
    return []


def _links(workspace: Any, task: Any) -> list[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    links = [*every(workspace.tasks.dependencies, id=task.id)]
    waits = links and {id for reason in workspace.tasks.explain(task.id).reasons for id in reason.ids}
    for link in links:
        from_here, to_here = _NAMES.get(link.kind, ("found in", "led to"))
        name, other = (from_here, link.on) if link.id == task.id else (to_here, link.id)
        if name == "waits for" and other not in waits:
            name = "waited for"
        found.setdefault(name, []).append(other)
    return [(name, " ".join(ids)) for name, ids in found.items()]


def _locks(workspace: Any, task: Any) -> list[tuple[str, str]]:
    return [("locked", " ".join(lock.patterns)) for lock in every(workspace.paths.list, task=task.id)]


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


def delete_template(session: Session, given: dict[str, Any]) -> int:
    """Delete a template; say so if there is none."""
    if not run(session, Tasks.delete_template, given):
        tell(session, f"there is no template {given['name']}, so nothing was deleted")
    return 0


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
    Argument("id", word=True, help="the task at its root"),
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
    Argument("since", "past", help="since this moment, or for such as 12h"),
    Argument("by", option="--actor", help="by this actor alone"),
    Argument("kinds", "texts", choices=EVENT_KINDS, help="of this kind alone; may be repeated"),
    Argument("limit", "int", help=f"the newest so many ({_LAST})"),
    Argument("summary", "flag", help="count by actor, with what was refused: held, fenced, ..."),
    more="A change of a field is [old, new]. In a terminal, rows are shortened to its width; --json has all of it.",
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


show_task: Final = Command("show", Tasks.get.route.help, arguments_of(Tasks.get), show, op=Tasks.get, relayed=True)


def _as(op: Operation[..., Any], run: Run) -> Command:
    """The command of an operation, run by a function of ours."""
    return msgspec.structs.replace(derive(op), run=run)


undelete_task: Final = _as(Tasks.restore, undelete)
undepend: Final = _as(Tasks.undepend, remove_dependency)
untag: Final = _as(Tasks.remove_tags, remove_tags)
forget_template: Final = _as(Tasks.delete_template, delete_template)
