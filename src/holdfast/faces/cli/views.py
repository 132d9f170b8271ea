"""Results as short text for people: a line for each record of a list, a few lines for a single record.

A type without a view of its own is shown field by field, so every result has one. In a terminal a row of a list fits
into a line: its title or value is shortened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.faces.cli.output import printable, printable_lines
from holdfast.faces.cli.times import moment, readable, since, until
from holdfast.faces.cli.width import brief, fitted, json_line, title, whole, wrapped
from holdfast.types import Cell, CellChange, CellVersion, Event, Grant, Lease, Undone

if TYPE_CHECKING:
    from holdfast.operation import Operation
    from holdfast.types.agents import Agent, MailStep, PathLock
    from holdfast.types.cycles import Cycle, Resumption
    from holdfast.types.stashes import ChannelMessage, QueueItem, Stash, StashEntry, Subscription
    from holdfast.types.tasks import BulkResult, HistoryEntry, Origin, Readiness, Task, TaskInTree

_COLOURS: Final = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STATUS: Final = {
    "open": "green",
    "waiting": "dim",
    "in_progress": "cyan",
    "pending_merge": "yellow",
    "blocked": "red",
    "closed": "dim",
}
_FACT: Final = 13  # columns before a fact of a record
Paint = Callable[[str, str], str]


def view(op: Operation[..., Any], result: Any, colour: bool = False, width: int | None = None) -> list[str]:
    """The lines that show a result: of a read that returns one record every field, else a line for each record.

    `width` is that of the terminal: the rows of a list and of a stream are shortened to it, and those of the lists in a
    record, which otherwise is wrapped.
    """
    lines = _view(op, result, painter(colour))
    if isinstance(result, list | tuple | Event):
        return [fitted(line, width) for line in lines]
    return [each for at, line in enumerate(lines) for each in record_line(line, width, first=not at)]


def record_line(line: str, width: int | None, first: bool = False) -> list[str]:
    """A line of a record for a terminal: the first and the texts are wrapped, the rows of its lists shortened."""
    if "\x02" in line and not first:
        return [fitted(line, width)]
    return wrapped(line, width, _FACT if line.startswith("  ") and line[2:3] != " " else _FACT * first)


def _is_deed(op: Operation[..., Any]) -> bool:
    """Whether an operation does something, so that its result is what was changed; some are reads of one's own."""
    return op.kind != "read" or op.personal


def _view(op: Operation[..., Any], result: Any, paint: Paint) -> list[str]:
    if isinstance(result, list | tuple):
        return _list(op, result, paint)
    if isinstance(result, Cell):
        return [json_line(result.value)]
    if (answer := _ANSWERS.get(type(result).__name__)) is not None:
        return answer(result, paint)
    if not _is_deed(op):
        make: Callable[[Any, Paint], list[str]] | None = _maker(result, whole=True)
        if make is not None:
            return make(result, paint)
    elif _maker(result) is not None:
        return [_deed(op, result, paint) if type(result).__name__ == "Task" else row(result, paint)]
    return _fields(result) if isinstance(result, msgspec.Struct) else _plain_answer(result)


def _list(op: Operation[..., Any], items: Iterable[Any], paint: Paint) -> list[str]:
    rows = list(items)
    if rows and type(rows[0]).__name__ == "Task":
        width = max(len(task.id) for task in rows)
        lines = [_task_line(task, paint, width) for task in rows]
    elif rows and type(rows[0]).__name__ == "HistoryEntry":
        lines = _history(rows, paint)
    elif op.route.whole:
        from holdfast.faces.cli.mail_views import TEXTS

        lines = [line for item in rows for line in ("", *TEXTS[type(item).__name__](item, paint))][1:]
    else:
        lines = [row(item, paint) for item in rows]
    cursor = getattr(items, "cursor", None)
    if cursor is None or (op.takes("before") and getattr(items, "compacted", None) is not None):  # the rest is gone
        return lines
    option = next((name for name in ("cursor", "after", "before", "offset") if op.takes(name)), None)
    more = f"more: --{option} {cursor}" if option else "there are more after these"
    return [*lines, paint("dim", more)]


def _maker(item: Any, whole: bool = False) -> Any:
    """What makes the line of a record, or all of its lines; None if its type has none."""
    kind = type(item).__name__
    if kind in _MAIL:
        from holdfast.faces.cli import mail_views as mail

        return (mail.RECORDS if whole else mail.LINES).get(kind)
    return (_RECORDS if whole else _LINES).get(kind)


def row(item: Any, paint: Paint) -> str:
    """A record in a line, with its marks for `fitted`."""
    make: Callable[[Any, Paint], str] | None = _maker(item)
    if make is not None:
        return make(item, paint)
    if isinstance(item, str):
        return printable(item)
    if isinstance(item, msgspec.Struct) and type(item).__str__ is not msgspec.Struct.__str__:
        return printable(readable(str(item)))
    if isinstance(item, msgspec.Struct):
        values = [(name, getattr(item, name)) for name in item.__struct_fields__]
        filled = [f"{name} {_value(value)}" for name, value in values if value not in (None, "", (), [])]
        return "  ".join(filled)
    return json_line(item)


def _plain_answer(result: Any) -> list[str]:
    if result is None:
        return []
    if isinstance(result, datetime):
        return [moment(result)]
    return [printable(result) if isinstance(result, str) else json_line(result)]


def _fields(item: msgspec.Struct) -> list[str]:
    """Every field that says something."""
    return _pairs({name: getattr(item, name) for name in item.__struct_fields__})


def _pairs(values: dict[str, Any], whole: bool = False) -> list[str]:
    """A line for each value that says something, or for all; or several that are indented."""
    lines = []
    for key, value in values.items():
        name = printable(str(key)).replace("_", " ")
        inner = _inner(value) if key != "value" else []  # that stays JSON, as it was written
        if inner:
            lines += [f"{name}:", *(f"  {line}" for line in inner)]
        elif whole or (value is not None and value not in ("", (), [], {})):
            lines.append(f"{name}: {_value(value)}")
    return lines


def _inner(value: Any) -> list[str]:
    """The lines of a value that does not fit into one."""
    if isinstance(value, msgspec.Struct):
        return [row(value, _plain)] if _has_row(value) else _fields(value)
    if isinstance(value, dict):
        return _pairs(value, whole=True)
    if isinstance(value, list | tuple) and any(isinstance(each, msgspec.Struct | dict) for each in value):
        return [line for each in value for line in ([row(each, _plain)] if _has_row(each) else _listed(_inner(each)))]
    return printable_lines(value) if isinstance(value, str) and "\n" in value else []


def _listed(lines: list[str]) -> list[str]:
    """The lines of an item, marked as one."""
    return [f"{'- ' if not at else '  '}{line}" for at, line in enumerate(lines)]


def _has_row(item: Any) -> bool:
    """Whether a record has a line of its own."""
    own = isinstance(item, msgspec.Struct) and type(item).__str__ is not msgspec.Struct.__str__
    return own or _maker(item) is not None


# --- tasks -----------------------------------------------------------------------------------------------------------


def _task_line(task: Task, paint: Paint, width: int = 0) -> str:
    """A task in a row; `width` is that of the longest id."""
    state = "waiting" if task.waiting else task.status
    status = paint(_STATUS[state], f"{state:<11}")
    parts = [paint("bold", f"{task.id:<{width}}"), f"P{task.priority}", status, title(task.title)]
    if task.type != "task":
        parts.append(paint("dim", f"({task.type})"))
    if task.tags:
        parts.append(paint("dim", title("  ".join(f"#{tag}" for tag in task.tags))))
    if task.children:
        parts.append(paint("dim", f"{task.children_done}/{task.children}"))
    if task.claimed_by:
        parts.append(paint("cyan", f"@{printable(task.claimed_by)}"))
    elif task.assigned_to:
        parts.append(paint("yellow", f"for {printable(task.assigned_to)}"))
    if task.deferred_until:
        parts.append(paint("dim", f"deferred {until(task.deferred_until)}"))
    if task.deleted_at:
        parts.append(paint("red", "deleted"))
    return "  ".join(parts)


def tree_lines(
    tasks: Sequence[TaskInTree], waits: dict[str, list[str]], colour: bool, width: int | None = None
) -> list[str]:
    """Trees of tasks with connectors, each with what it waits for; a parent comes before all below it."""
    paint = painter(colour)
    below: dict[str | None, list[TaskInTree]] = {}
    for task in tasks:
        below.setdefault(task.parent_id if task.relative_depth else None, []).append(task)
    lines: list[str] = []
    left = [(task, "", "") for task in reversed(below.get(None, ()))]
    while left:
        task, before, after = left.pop()
        marks = "".join(f"  {paint('yellow', f'waits for {id}')}" for id in waits.get(task.id, ()))
        lines.append(fitted(f"{before}{_task_line(task, paint)}{marks}", width))
        children = below.get(task.id, [])
        steps = [("├─ ", "│  ")] * (len(children) - 1) + [("└─ ", "   ")]
        drawn = [(child, f"{after}{step}", f"{after}{on}") for child, (step, on) in zip(children, steps, strict=False)]
        left += reversed(drawn)
    return lines


def _deed(op: Operation[..., Any], task: Task, paint: Paint) -> str:
    """A task after an operation, with its deadline if it was claimed."""
    held = f"  (held {until(task.deadline)})" if op.route.grants and task.deadline else ""
    return f"{_task_line(task, paint)}{paint('dim', held)}"


def imported(author: str | None, importer: str, at: datetime | None = None) -> str:
    """An author elsewhere, and the importer, whose act it is here."""
    return f"{author or 'somebody'}{'' if at is None else f' ({moment(at)})'}, imported by {importer}"


def _origin(origin: Origin) -> str:
    closed = "" if origin.closed_at is None else f", closed {moment(origin.closed_at)}"
    if origin.created_by is None:
        return f"imported by {origin.imported_by} {moment(origin.imported_at)}{closed}"
    return f"{imported(origin.created_by, origin.imported_by)} {moment(origin.imported_at)}{closed}"


def task_lines(task: Task, paint: Paint) -> list[str]:
    """A task field by field, and its body."""
    lines = [_task_line(task, paint)]
    fields = {
        "parent": task.parent_id,
        "workflow": task.grimoire or task.grimoire_hint,
        "children": f"{task.children_done} of {task.children} closed" if task.children else None,
        "assigned": task.assigned_to,
        "deferred": None if task.deferred_until is None else until(task.deferred_until),
        "claimed": None if task.claimed_at is None else f"{task.claimed_by} {since(task.claimed_at)}",
        "held": None if task.deadline is None else f"{until(task.deadline)} (token {task.token})",
        "refers to": ", ".join(map(str, task.refs)) or None,
        "created": moment(task.created_at),
        "origin": None if task.origin is None else _origin(task.origin),
        "updated": f"{moment(task.updated_at)} (version {task.version}, revision {task.revision})",
    }
    lines += [f"  {name:<11}{printable(value)}" for name, value in fields.items() if value]
    return [*lines, "", *printable_lines(task.body)] if task.body else lines


def _history(entries: Sequence[HistoryEntry], paint: Paint) -> list[str]:
    """A sentence for each version of a task, from the entries of its fields."""
    from holdfast.faces.cli.sentences import of_changes  # whoever claims needs none

    versions: dict[int, list[HistoryEntry]] = {}
    for entry in entries:
        versions.setdefault(entry.version, []).append(entry)
    lines = []
    for changes in versions.values():
        first = changes[0]
        by, author = first.changed_by, first.author
        who = by if author is None else imported(author.by, by, author.at)
        lines.append(_dated(first.changed_at, first.revision, of_changes(changes, who), paint))
    return lines


def _dated(time: datetime, revision: int, sentence: str, paint: Paint) -> str:
    return f"{paint('dim', f'{moment(time):<11}')}  {sentence}  {paint('dim', f'({revision})')}"


# --- the others ------------------------------------------------------------------------------------------------------


def _grant(grant: Grant, paint: Paint) -> str:
    name = f"{grant.scope}/{grant.name}" if grant.scope else grant.name
    return (
        f"{paint('bold', printable(name))}  @{printable(grant.holder)}  token {grant.token}{_until(grant.expires_at)}"
    )


def _path_lock(lock: PathLock, paint: Paint) -> str:
    shared = "  shared" if lock.shared else ""
    about = f"  [{lock.task}]" if lock.task else ""
    why = f"  {title(lock.reason)}" if lock.reason else ""
    what = " ".join(lock.patterns)
    return f"{paint('bold', title(what))}  @{printable(lock.holder)}{shared}{_until(lock.expires_at)}{about}{why}"


def _event(event: Event, paint: Paint) -> str:
    from holdfast.faces.cli.sentences import of_event

    return _dated(event.time, event.revision, of_event(event), paint)


def _cell_entry(entry: CellChange | CellVersion, paint: Paint) -> str:
    value = "deleted" if entry.deleted else whole(entry.value if isinstance(entry, CellVersion) else entry.new)
    return f"{entry.version}  {moment(entry.time)}  {printable(entry.actor)}  {entry.op}  {value}"


def _agent(agent: Agent, paint: Paint) -> str:
    seen = f"seen {moment(agent.seen_at)}" if agent.seen_at else "not seen yet"
    what = " ".join(part for part in (agent.program, agent.model) if part)
    parts = [paint("bold", printable(agent.name)), agent.role, printable(what), seen, printable(" ".join(agent.can))]
    return "  ".join(part for part in parts if part)


def _lease(lease: Lease, paint: Paint) -> str:
    return f"{paint('bold', lease.id)}  @{printable(lease.holder)}{_until(lease.expires_at)}"


def _step(step: MailStep, paint: Paint) -> str:
    from holdfast.faces.cli.sentences import deed_of

    said = f": {title(step.note)}" if step.note else ""
    return f"{paint('dim', f'{moment(step.at):<11}')}  {printable(step.actor)} {deed_of(step.op)} it{said}"


def _stash(stash: Stash, paint: Paint) -> str:
    trail = f"  [{stash.trail}]" if stash.trail else ""
    what = f"{paint('bold', stash.id)}  {stash.stash_type}  {printable(stash.name)}  version {stash.version}{trail}"
    value = "" if stash.value is None else f"  {brief(stash.value)}"
    return f"{what}{value}{_until(stash.held_until)}"


def _stash_entry(entry: StashEntry, paint: Paint) -> str:
    by = f"  [{printable(entry.changed_by)}]" if entry.changed_by else ""
    what = f"{entry.version}  {moment(entry.created_at)}  {paint('bold', entry.operation)}"
    return f"{what}{by}  {brief(entry.value)}"


def _queue_item(item: QueueItem, paint: Paint) -> str:
    token = "" if item.token is None else f"  token {item.token}"
    holder = "" if item.holder is None else f"  @{printable(item.holder)}"
    what = f"{paint('bold', str(item.number))}  {item.state}  delivered {item.deliveries}{token}{holder}"
    return f"{what}{_until(item.until)}  {brief(item.value)}"


def _cycle(cycle: Cycle, paint: Paint) -> str:
    metadata = cycle.metadata
    return _standing(cycle.cycle_id, metadata.status, metadata.current_phase, cycle.sequence, paint)


def _standing(key: str, status: str, phase: str | None, sequence: int, paint: Paint) -> str:
    where = f" in {phase}" if phase and status in ("in_progress", "failed") else ""
    colour = {"completed": "green", "in_progress": "cyan", "initialized": "dim"}.get(status, "red")
    return f"{paint('bold', key)}  {paint(colour, status)}{where}  {paint('dim', f'sequence {sequence}')}"


def _resumption(found: Resumption, paint: Paint) -> list[str]:
    if found.phase is None:
        return [_cycle(found.cycle, paint), "  finish is left"]
    begun = "is in progress" if found.started else "comes next"
    so_far = "" if found.partial is None else f", so far {json_line(found.partial)}"
    return [_cycle(found.cycle, paint), f"  {found.phase} {begun}{so_far}"]


def _channel_message(message: ChannelMessage, paint: Paint) -> str:
    who = f"{moment(message.created_at)}  {printable(message.sender)}"
    return f"{paint('bold', str(message.number))}  {who}  {brief(message.value)}"


def _subscription(subscription: Subscription, paint: Paint) -> str:
    lost = f"  {subscription.lost} lost" if subscription.lost else ""
    what = f"{paint('bold', printable(subscription.subscriber))}  at {subscription.cursor}"
    return f"{what}  {subscription.unread} unread{lost}"


def _readiness(found: Readiness, paint: Paint) -> list[str]:
    if found.ready:
        return [f"{paint('bold', found.id)} is {paint('green', 'ready')}"]
    reasons = [printable(readable(reason.text)) for reason in found.reasons]
    if len(reasons) == 1:
        return [f"{paint('bold', found.id)} is not ready: {reasons[0]}"]
    return [f"{paint('bold', found.id)} is not ready:", *(f"  {reason}" for reason in reasons)]


def _bulk(found: BulkResult, paint: Paint) -> list[str]:
    """What became of each task, and of how many."""
    lines = []
    for item in found.results:
        said = paint("green", "done") if item.success else f"{paint('red', 'refused')}: {item.error}"
        lines.append(f"{paint('bold', printable(item.id or '-'))}  {printable(readable(said)) if item.error else said}")
    done = sum(item.success for item in found.results)
    return [*lines, f"{done} done, {len(lines) - done} refused"]


def _undone(found: Undone, paint: Paint) -> list[str]:
    """What was taken back, record by record, and how to do it again."""
    if found.revision is None:
        lines = [f"would take back revision {found.undone}"]
    else:
        held = any("claimed_by" in record.changes or not record.changes for record in found.records)  # or it may be
        again = "" if held else paint("dim", f"; holdfast undo {found.revision} does it again")
        lines = [f"took back revision {found.undone}, as revision {found.revision}{again}"]
    lines += [f"  {row(record, paint)}" for record in found.records]
    return lines + [f"  left as it is: {printable(left)}" for left in found.left]


# Answers of several lines, whatever was asked.
_ANSWERS: Final[dict[str, Callable[[Any, Paint], list[str]]]] = {
    **{"BulkResult": _bulk, "Readiness": _readiness, "Undone": _undone}
}
# By the names of their types, so that showing one loads no other.
_LINES: Final[dict[str, Callable[[Any, Paint], str]]] = {
    "Agent": _agent,
    "CellChange": _cell_entry,
    "CellVersion": _cell_entry,
    "ChannelMessage": _channel_message,
    "Cycle": _cycle,
    "CycleInfo": lambda info, paint: _standing(info.key, info.status, info.current_phase, info.sequence, paint),
    "CycleProblem": lambda problem, paint: printable(f"{problem.path} {problem.message}"),
    "Event": _event,
    "Grant": _grant,
    "Hit": lambda hit, paint: f"{_task_line(hit.task, paint)}  {paint('dim', title(hit.snippet))}",
    "HistoryEntry": lambda entry, paint: _history([entry], paint)[0],
    "Lease": _lease,
    "Link": lambda link, paint: f"{paint('bold', link.id)}  {link.from_id} {link.link_type} {link.to_id}",
    "MailStep": _step,
    "PathLock": _path_lock,
    "QueueItem": _queue_item,
    "Stash": _stash,
    "StashEntry": _stash_entry,
    "Subscription": _subscription,
    "Task": _task_line,
    "TaskInTree": _task_line,
    "TaskLink": lambda link, paint: f"{link.id} {link.kind} {link.on}",
    "Trail": lambda trail, paint: f"{paint('bold', trail.id)}  {trail.state}  {printable(trail.name)}",
}
# Types that `mail_views` shows.
_MAIL: Final = frozenset({"MailHit", "MailThread", "Message", "Resume", "ResumeEvent"})
# Single records that are not shown field by field.
_RECORDS: Final[dict[str, Callable[[Any, Paint], list[str]]]] = {
    "Resumption": _resumption,
    "Task": task_lines,
}


# --- parts -----------------------------------------------------------------------------------------------------------


def _until(time: datetime | None) -> str:
    return "" if time is None else f"  {until(time)}"


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, str):
        return printable(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return printable(", ".join(value))
    return json_line(value)


def painter(colour: bool) -> Paint:
    """How a word is given a colour, or left as it is."""
    return _painted if colour else _plain


def _plain(_: str, text: str) -> str:
    return text


def _painted(colour: str, text: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if text else ""
