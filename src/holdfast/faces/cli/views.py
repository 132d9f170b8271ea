"""Results as short text for people: a line for each record of a list, a few lines for a single record.

A type without a view of its own is shown field by field, so every result has one. In a terminal a row of a list fits
into a line: its title or value is shortened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.faces.cli.output import printable, printable_lines, short
from holdfast.types import Cell, CellChange, CellVersion, Event, Grant, Lease

if TYPE_CHECKING:
    from holdfast.operation import Operation
    from holdfast.types.agents import Agent, MailStep, Message, PathLock
    from holdfast.types.cycles import Cycle, Resumption
    from holdfast.types.stashes import Stash, StashEntry
    from holdfast.types.tasks import HistoryEntry, Origin, Task, TaskInTree

_COLOURS: Final = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STATUS: Final = {"open": "green", "in_progress": "cyan", "pending_merge": "yellow", "blocked": "red", "closed": "dim"}
_WIDE: Final = 160  # characters of a value in a line that no terminal shows
_LEAST: Final = 12  # columns that a title or value keeps
_COLOUR: Final = r"\x1b\[\d*m"
Paint = Callable[[str, str], str]


def view(op: Operation[..., Any], result: Any, colour: bool = False, width: int | None = None) -> list[str]:
    """The lines that show a result: of a read that returns one record every field, else a line for each record.

    `width` is that of the terminal; the rows of a list and of a stream are shortened to it.
    """
    row = isinstance(result, list | tuple | Event)
    return [_fitted(line, width if row else None) for line in _view(op, result, painter(colour))]


def _view(op: Operation[..., Any], result: Any, paint: Paint) -> list[str]:
    if isinstance(result, list | tuple):
        return _list(op, result, paint)
    if isinstance(result, Cell):
        return [_json(result.value)]
    if op.kind == "read" and not op.personal:
        whole = _RECORDS.get(type(result).__name__)
        if whole is not None:
            return whole(result, paint)
    elif type(result).__name__ in _LINES:
        return [_deed(op, result, paint) if type(result).__name__ == "Task" else _line(result, paint)]
    return _fields(result) if isinstance(result, msgspec.Struct) else _plain_answer(result)


def _list(op: Operation[..., Any], items: Iterable[Any], paint: Paint) -> list[str]:
    lines = [_line(item, paint) for item in items]
    cursor = getattr(items, "cursor", None)
    if cursor is None or (op.takes("before") and getattr(items, "compacted", None) is not None):  # the rest is gone
        return lines
    option = next((name for name in ("cursor", "after", "before", "offset") if op.takes(name)), "cursor")
    return [*lines, paint("dim", f"more: --{option} {cursor}")]


def _line(item: Any, paint: Paint) -> str:
    make = _LINES.get(type(item).__name__)
    if make is not None:
        return make(item, paint)
    if isinstance(item, str):
        return printable(item)
    if isinstance(item, msgspec.Struct) and type(item).__str__ is not msgspec.Struct.__str__:
        return printable(str(item))
    if isinstance(item, msgspec.Struct):
        values = [(name, getattr(item, name)) for name in item.__struct_fields__]
        filled = [f"{name} {_value(value)}" for name, value in values if value not in (None, "", (), [])]
        return "  ".join(filled)
    return _json(item)


def _plain_answer(result: Any) -> list[str]:
    if result is None:
        return []
    if isinstance(result, datetime):
        return [moment(result)]
    return [printable(result) if isinstance(result, str) else _json(result)]


def _fields(item: msgspec.Struct) -> list[str]:
    """Every field that says something."""
    lines = []
    for name in item.__struct_fields__:
        value = getattr(item, name)
        if value is None or value == () or value == [] or value == {}:
            continue
        if isinstance(value, list | tuple) and any(isinstance(each, msgspec.Struct) for each in value):
            lines += [f"{name}:", *(f"  {_line(each, _plain)}" for each in value)]
        elif isinstance(value, msgspec.Struct):
            lines.append(f"{name}: {_line(value, _plain)}")
        elif isinstance(value, str) and "\n" in value:
            lines += [f"{name}:", *(f"  {line}" for line in printable_lines(value))]
        else:
            lines.append(f"{name}: {_value(value)}")
    return lines


# --- tasks -----------------------------------------------------------------------------------------------------------


def _task_line(task: Task, paint: Paint) -> str:
    status = paint(_STATUS[task.status], f"{task.status:<11}")
    parts = [paint("bold", task.id), f"P{task.priority}", status, _title(task.title)]
    if task.type != "task":
        parts.append(paint("dim", f"({task.type})"))
    parts += [paint("dim", f"#{printable(tag)}") for tag in task.tags]
    if task.children:
        parts.append(paint("dim", f"{task.children_done}/{task.children}"))
    if task.claimed_by:
        parts.append(paint("cyan", f"@{printable(task.claimed_by)}"))
    elif task.assigned_to:
        parts.append(paint("yellow", f"for {printable(task.assigned_to)}"))
    if task.deferred_until:
        parts.append(paint("dim", f"deferred until {moment(task.deferred_until)}"))
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
        lines.append(_fitted(f"{before}{_task_line(task, paint)}{marks}", width))
        children = below.get(task.id, [])
        steps = [("├─ ", "│  ")] * (len(children) - 1) + [("└─ ", "   ")]
        drawn = [(child, f"{after}{step}", f"{after}{on}") for child, (step, on) in zip(children, steps, strict=False)]
        left += reversed(drawn)
    return lines


def _deed(op: Operation[..., Any], task: Task, paint: Paint) -> str:
    """A task after an operation, with its deadline if it was claimed."""
    held = f"  (held until {moment(task.deadline)})" if op.route.grants and task.deadline else ""
    return f"{_task_line(task, paint)}{paint('dim', held)}"


def _imported(author: str | None, importer: str, at: datetime | None = None) -> str:
    """An author elsewhere, and the importer, whose act it is here."""
    return f"{author or 'somebody'}{'' if at is None else f' ({moment(at)})'}, imported by {importer}"


def _origin(origin: Origin) -> str:
    closed = "" if origin.closed_at is None else f", closed {moment(origin.closed_at)}"
    if origin.created_by is None:
        return f"imported by {origin.imported_by} {moment(origin.imported_at)}{closed}"
    return f"{_imported(origin.created_by, origin.imported_by)} {moment(origin.imported_at)}{closed}"


def task_lines(task: Task, paint: Paint) -> list[str]:
    """A task field by field, and its body."""
    lines = [_task_line(task, paint)]
    fields = {
        "parent": task.parent_id,
        "workflow": task.grimoire or task.grimoire_hint,
        "children": f"{task.children_done} of {task.children} closed" if task.children else None,
        "assigned": task.assigned_to,
        "deferred": None if task.deferred_until is None else f"until {moment(task.deferred_until)}",
        "claimed": None if task.claimed_at is None else f"{task.claimed_by} since {moment(task.claimed_at)}",
        "until": None if task.deadline is None else f"{moment(task.deadline)} (token {task.token})",
        "refers to": ", ".join(map(str, task.refs)) or None,
        "created": moment(task.created_at),
        "origin": None if task.origin is None else _origin(task.origin),
        "updated": f"{moment(task.updated_at)} (version {task.version}, revision {task.revision})",
    }
    lines += [f"  {name:<11}{printable(value)}" for name, value in fields.items() if value]
    return [*lines, "", *printable_lines(task.body)] if task.body else lines


def _history(entry: HistoryEntry, paint: Paint) -> str:
    change = "" if entry.field == "note" else f"  {entry.field}: {_value(entry.old_value)} -> {_value(entry.new_value)}"
    note = f"  {_title(entry.note)}" if entry.note else ""
    by = entry.changed_by if entry.author is None else _imported(entry.author.by, entry.changed_by, entry.author.at)
    who = f"{moment(entry.changed_at)}  {printable(by)}"
    return f"{who}  {paint('bold', entry.op)}{change}{note}"


# --- the others ------------------------------------------------------------------------------------------------------


def _message_line(message: Message, paint: Paint) -> str:
    people = printable(f"{message.sender} -> {','.join(message.to)}")
    open_with = [name for name, status in message.status.items() if status == "unread"]
    unread = paint("yellow", printable(f"unread by {','.join(open_with)}")) if open_with else ""
    about = f"[{message.task}]" if message.task else ""
    parts = [paint("bold", message.id), moment(message.sent_at), people, _title(message.subject), about, unread]
    return "  ".join(part for part in parts if part)


def _message(message: Message, _: Paint) -> list[str]:
    return [_message_line(message, _plain), "", *printable_lines(message.body)]


def _grant(grant: Grant, paint: Paint) -> str:
    name = f"{grant.scope}/{grant.name}" if grant.scope else grant.name
    return (
        f"{paint('bold', printable(name))}  @{printable(grant.holder)}  token {grant.token}{_until(grant.expires_at)}"
    )


def _path_lock(lock: PathLock, paint: Paint) -> str:
    shared = "  shared" if lock.shared else ""
    about = f"  [{lock.task}]" if lock.task else ""
    why = f"  {_title(lock.reason)}" if lock.reason else ""
    what = printable(" ".join(lock.patterns))
    return f"{paint('bold', lock.id)}  {what}  @{printable(lock.holder)}{shared}{_until(lock.expires_at)}{about}{why}"


def _event(event: Event, paint: Paint) -> str:
    name = f"{event.scope}/{event.id}" if event.scope else event.id
    what = f"{paint('bold', event.op)} {event.kind} {printable(name)}"
    changed = {name: value for name, value in event.data.items() if (event.kind, name) != ("cycle", "document")}
    data = f"  {_shortened(changed)}" if changed else ""
    return f"{event.cursor}  {moment(event.time)}  {printable(event.actor)}  {what}{paint('dim', data)}"


def _cell_entry(entry: CellChange | CellVersion, paint: Paint) -> str:
    value = "deleted" if entry.deleted else _whole(entry.value if isinstance(entry, CellVersion) else entry.new)
    return f"{entry.version}  {moment(entry.time)}  {printable(entry.actor)}  {entry.op}  {value}"


def _agent(agent: Agent, paint: Paint) -> str:
    seen = f"seen {moment(agent.seen_at)}" if agent.seen_at else "not seen yet"
    what = " ".join(part for part in (agent.program, agent.model) if part)
    parts = [paint("bold", printable(agent.name)), agent.role, printable(what), seen, printable(" ".join(agent.can))]
    return "  ".join(part for part in parts if part)


def _lease(lease: Lease, paint: Paint) -> str:
    return f"{paint('bold', lease.id)}  @{printable(lease.holder)}{_until(lease.expires_at)}"


def _step(step: MailStep, paint: Paint) -> str:
    note = f"  {_title(step.note)}" if step.note else ""
    return f"{moment(step.at)}  {printable(step.actor)}  {paint('bold', step.op)}  {step.status or ''}{note}"


def _stash(stash: Stash, paint: Paint) -> str:
    trail = f"  [{stash.trail}]" if stash.trail else ""
    what = f"{paint('bold', stash.id)}  {stash.stash_type}  {printable(stash.name)}  version {stash.version}{trail}"
    return f"{what}  {_shortened(stash.value)}{_until(stash.held_until)}"


def _stash_entry(entry: StashEntry, paint: Paint) -> str:
    by = f"  [{printable(entry.changed_by)}]" if entry.changed_by else ""
    what = f"{entry.version}  {moment(entry.created_at)}  {paint('bold', entry.operation)}"
    return f"{what}{by}  {_shortened(entry.value)}"


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
    so_far = "" if found.partial is None else f", so far {_json(found.partial)}"
    return [_cycle(found.cycle, paint), f"  {found.phase} {begun}{so_far}"]


# By the names of their types, so that showing one loads no other.
_LINES: Final[dict[str, Callable[[Any, Paint], str]]] = {
    "Agent": _agent,
    "CellChange": _cell_entry,
    "CellVersion": _cell_entry,
    "Cycle": _cycle,
    "CycleInfo": lambda info, paint: _standing(info.key, info.status, info.current_phase, info.sequence, paint),
    "CycleProblem": lambda problem, paint: printable(f"{problem.path} {problem.message}"),
    "Event": _event,
    "Grant": _grant,
    "Hit": lambda hit, paint: f"{_task_line(hit.task, paint)}  {paint('dim', _title(hit.snippet))}",
    "HistoryEntry": _history,
    "Lease": _lease,
    "Link": lambda link, paint: f"{paint('bold', link.id)}  {link.from_id} {link.link_type} {link.to_id}",
    "MailHit": lambda hit, paint: f"{_message_line(hit.message, paint)}  {paint('dim', _title(hit.snippet))}",
    "MailStep": _step,
    "Message": _message_line,
    "PathLock": _path_lock,
    "Stash": _stash,
    "StashEntry": _stash_entry,
    "Task": _task_line,
    "TaskInTree": _task_line,
    "TaskLink": lambda link, paint: f"{link.id} {link.kind} {link.on}",
    "Trail": lambda trail, paint: f"{paint('bold', trail.id)}  {trail.state}  {printable(trail.name)}",
}
# Single records that are not shown field by field.
_RECORDS: Final[dict[str, Callable[[Any, Paint], list[str]]]] = {
    "Message": _message,
    "Resumption": _resumption,
    "Task": task_lines,
}


# --- parts -----------------------------------------------------------------------------------------------------------


def _title(text: str) -> str:
    """A text for people, which a terminal may get shortened."""
    return f"\x00{printable(text)}\x02" if text else ""


def _whole(value: Any) -> str:
    """A value, which a terminal may get shortened."""
    return f"\x00{_json(value)}\x02"


def _shortened(value: Any) -> str:
    """A value, shortened for everybody: --json has all of it."""
    return f"\x01{_json(value)}\x02"


def _fitted(line: str, width: int | None) -> str:
    """A line without its marks, the marked parts shortened to the width, the last ones first."""
    if "\x02" not in line:
        return line
    parts = _split(line)
    texts = parts[2::3]
    if width is None:
        texts = [text if mark == "\x00" else short(text, _WIDE) for mark, text in zip(parts[1::3], texts, strict=True)]
    else:
        excess = sum(_columns(re.sub(_COLOUR, "", text)) for text in (*parts[::3], *texts)) - width
        for at in range(len(texts) - 1, -1, -1):
            wide = _columns(texts[at])
            texts[at] = _cut(texts[at], max(wide - max(excess, 0), min(wide, _LEAST)))
            excess -= wide - _columns(texts[at])
    parts[2::3] = texts
    parts[1::3] = [""] * len(texts)
    return "".join(parts)


def _split(line: str) -> list[str]:
    """What may be shortened in a line, such as a title, and what is between: text, mark, part, ..., text."""
    *marked, rest = line.split("\x02")
    parts: list[str] = []
    for each in marked:
        at = max(each.rfind("\x00"), each.rfind("\x01"))
        parts += each[:at], each[at], each[at + 1 :]
    return [*parts, rest]


def _cut(text: str, most: int) -> str:
    """A text in so many columns."""
    if _columns(text) <= most:
        return text
    text = text[:most]
    while _columns(text) >= most:
        text = text[:-1]
    return f"{text.rstrip()}…"


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def moment(time: datetime) -> str:
    """A moment as people read it, in their own zone; in UTC at the ends of the calendar, which other zones leave."""
    try:
        return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{time.replace(tzinfo=None).isoformat(' ', 'seconds')}Z"


def _until(time: datetime | None) -> str:
    return "" if time is None else f"  until {moment(time)}"


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return printable(", ".join(value))
    return _json(value)


def _json(value: Any) -> str:
    """JSON that no terminal obeys: what is not printable is escaped, and means the same."""
    from holdfast.wire import wired

    text = msgspec.json.encode(wired(value)).decode()
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def painter(colour: bool) -> Paint:
    """How a word is given a colour, or left as it is."""
    return _painted if colour else _plain


def _plain(_: str, text: str) -> str:
    return text


def _painted(colour: str, text: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if text else ""
