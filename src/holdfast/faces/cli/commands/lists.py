"""`holdfast list` and `ready`, and why there is nothing to show: what waits for what, what others hold.

The reason goes to standard error, for people alone: a program sees that the answer is empty.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks import Tasks
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session, run, tell
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.derive import derive
from holdfast.faces.cli.times import until
from holdfast.filesystem import recorded_log
from holdfast.types import Page, counted

UNFINISHED: Final = ("open", "in_progress", "pending_merge", "blocked")
_OPEN_STATES: Final = {"waiting", "ready"}  # of open tasks, and no statuses
_LISTED: Final = 100
_MANY: Final = 1000  # tasks that are looked at to say why
_NAMED: Final = 2  # tasks that are named because others wait for them
_VIEW: Final = {"sort", "limit", "cursor", "total", "status"}  # what is no filter
_STATES: Final = {"in_progress": "in progress", "pending_merge": "in review", "blocked": "blocked"}


def show_list(session: Session, given: dict[str, Any]) -> int:
    """List tasks: the unfinished ones, unless others are asked for."""
    everything, closed, mine = (given.pop(name, False) for name in ("all", "closed", "mine"))
    if everything + closed + ("status" in given) > 1:
        raise Usage("--all, --closed and --status exclude each other", hint="give one of them")
    if not everything:
        given.setdefault("status", ["closed"] if closed else list(UNFINISHED))
    if closed:
        given.setdefault("sort", "-updated")
    if mine:
        found = _mine(session, given)
    elif not _OPEN_STATES.isdisjoint(given.get("status", ())):
        found = _in_state(session, given)
    else:
        found = run(session, Tasks.list, given, explains=True)
    if not found and "cursor" not in given and not session.out.quiet:
        tell(session, _none_listed(session, given, closed or everything, mine) + _as_known(session))
    return 0


def _in_state(session: Session, given: dict[str, Any]) -> list[Any]:
    """Print the tasks of some statuses, of which waiting and ready are two states of open ones."""
    if chosen := [name for name in ("cursor", "total") if name in given]:
        raise Usage(f"--status waiting cannot be combined with --{chosen[0]}", hint="holdfast help list")
    from holdfast.workspace.watch import every

    wanted, limit = {*given["status"]}, given.get("limit", _LISTED)
    asked = given | {"status": sorted(wanted - _OPEN_STATES | {"open"}), "limit": _MANY}
    found: list[Any] = []
    with session.open() as workspace:
        for task in every(workspace.tasks.list, **asked):
            state = "waiting" if task.waiting else "ready" if task.status == "open" else task.status
            if len(found) <= limit and not wanted.isdisjoint((state, task.status)):
                found.append(task)
    session.out.result(Tasks.list, found[:limit])
    if len(found) > limit:
        tell(session, f"there are more than {limit}: show more with --limit")
    return found


def _mine(session: Session, given: dict[str, Any]) -> list[Any]:
    """Print what the actor holds, and what is assigned to it; returns that."""
    chosen = [name for name in ("cursor", "claimed_by", "assigned_to", "sort", "total") if name in given]
    if chosen and chosen != ["sort"]:
        raise Usage(f"--mine cannot be combined with --{chosen[0].replace('_', '-')}", hint="holdfast help list")
    from holdfast.workspace.watch import every

    limit = given.pop("limit", 100)
    with session.open(named=True) as workspace:
        held = [*every(workspace.tasks.list, **given, claimed_by=workspace.actor)]
        ours = [*every(workspace.tasks.list, **given, assigned_to=workspace.actor)]
    known = {task.id for task in held}
    found = Page([*held, *(task for task in ours if task.id not in known)][:limit])
    session.out.result(Tasks.list, found)
    return found


def _none_listed(session: Session, given: dict[str, Any], finished: bool, mine: bool) -> str:
    """Why a list is empty: there is nothing, nothing fits, or all of it is closed."""
    filters = {name: value for name, value in given.items() if name not in _VIEW}
    with session.open(named=mine) as workspace:
        if mine:
            return f"{workspace.actor} holds no task, and none is assigned to that name"
        closed = 0 if finished else workspace.tasks.list(**filters, status="closed", limit=1, total=True).total
        some = closed or bool(workspace.tasks.list(limit=1))
    fits = " fits the filters" if filters or (not finished and given["status"] != list(UNFINISHED)) else ""
    if closed and given["status"] == list(UNFINISHED):
        return f"no unfinished task{fits or ' is left'}; {counted(closed, 'closed tasks')}: holdfast list --closed"
    if some:
        return "no task fits the filters" if fits else "no task is closed yet"
    return f"there are no tasks yet: holdfast create 'TITLE'{session.out.place} makes one"


def _as_known(session: Session) -> str:
    """What to add where nothing was found: on a replica whose log is away, that others may have written meanwhile."""
    folder = session.place.folder
    if folder is None or recorded_log(folder) is None:
        return ""
    with session.open_local() as workspace:
        state = workspace.node_state()
    return "" if state is None or state.lag is not None else "; that is as this node knows it: its log is away"


def show_ready(session: Session, given: dict[str, Any]) -> int:
    """List what is ready; say why if nothing is."""
    if not run(session, Tasks.ready, given, explains=True) and "cursor" not in given and not session.out.quiet:
        with session.open() as workspace:
            tell(session, why_none_ready(workspace, {*given} - {"limit"}) + _as_known(session))
    return 0


def why_none_ready(workspace: Any, filters: set[str]) -> str:
    """Why nothing is ready: a sentence, with what most tasks wait for."""
    if filters and workspace.tasks.ready(limit=1):
        return "no ready task fits the filters; holdfast ready lists every ready task"
    tasks = workspace.tasks.list(status=list(UNFINISHED), limit=_MANY)
    if not tasks:
        closed = workspace.tasks.list(status="closed", limit=1, total=True).total
        return f"nothing is ready: {'all tasks are closed' if closed else 'there are no tasks yet'}"
    parts = [*_waits(workspace, tasks), *_others(tasks)]
    more = "" if tasks.cursor is None else f", among the first {_MANY}"
    return f"nothing is ready: {', '.join(parts)}{more}"


def _waits(workspace: Any, tasks: list[Any]) -> list[str]:
    """How many tasks wait for which others."""
    waiting = {task.id for task in tasks if task.waiting and task.deferred_until is None}
    if not waiting:
        return []
    try:
        edges = workspace.tasks.graph().edges
    except errors.TooLarge:
        return [_counted(len(waiting), "waits", "wait", "for other tasks")]
    needs: dict[str, set[str]] = {}
    for edge in edges:
        task, on = (edge.id, edge.on) if edge.kind == "depends" else (edge.on, edge.id)
        if task in waiting:
            needs.setdefault(task, set()).add(on)
    parts: list[str] = []
    left = waiting
    while left and len(parts) < _NAMED:
        best = Counter(on for task in left for on in sorted(needs.get(task, ()))).most_common(1)
        if not best:
            break
        behind = {task for task in left if best[0][0] in needs.get(task, ())}
        parts.append(_counted(len(behind), "waits", "wait", f"for {best[0][0]}"))
        left = left - behind
    return [*parts, *([_counted(len(left), "waits", "wait", "for others")] if left else [])]


def _others(tasks: list[Any]) -> list[str]:
    """How many tasks cannot be claimed for a reason of their own."""
    parts = []
    for status, words in _STATES.items():
        if count := sum(task.status == status for task in tasks):
            parts.append(_counted(count, "is", "are", words))
    if deferred := [task.deferred_until for task in tasks if task.deferred_until is not None]:
        parts.append(_counted(len(deferred), "is", "are", f"deferred {until(min(deferred))}"))
    names = Counter(task.assigned_to for task in tasks if task.status == "open" and not task.waiting)
    parts += [_counted(count, "is", "are", f"assigned to {name}") for name, count in names.items() if name]
    if names[None]:
        parts.append(_counted(names[None], "needs", "need", "abilities that you lack"))
    return parts


def _counted(count: int, one: str, many: str, rest: str) -> str:
    return f"{count} {one if count == 1 else many} {rest}"


def _as(command: Command, run: Any, *more: Argument) -> Command:
    """The command of an operation, run by a function of ours, with more arguments."""
    own = {each.name for each in more}
    kept = (each for each in command.arguments if each.name not in own)
    return msgspec.structs.replace(command, run=run, arguments=(*kept, *more))


list_tasks: Final = _as(
    derive(Tasks.list),
    show_list,
    Argument(
        "status",
        "texts",
        short=next(each.short for each in derive(Tasks.list).arguments if each.name == "status"),
        option="--status",
        help="open, waiting, ready, in_progress, pending_merge, blocked or closed; may be repeated",
    ),
    Argument("all", "flag", help="also closed tasks"),
    Argument("closed", "flag", help="closed tasks alone, the latest first"),
    Argument("mine", "flag", help="what you hold, and what is assigned to you"),
)
ready_tasks: Final = _as(derive(Tasks.ready), show_ready)
