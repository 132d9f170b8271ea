"""What the next agent needs to continue a task.

Ordered by importance: the task, how the last claim ended, what it waits for and what is locked, then notes, messages
and events, newest first, as long as they fit. Guarantee: the result as JSON is not longer than the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from holdfast import errors
from holdfast.domains import task_hooks
from holdfast.domains.tasks.queries import author_of, gap
from holdfast.domains.tasks.rows import TASK, Stored, awaited_children, find, to_task
from holdfast.domains.tasks.tree import unfinished
from holdfast.kernel import events
from holdfast.kernel.tx import Snapshot
from holdfast.types import Event
from holdfast.types.agents import Message
from holdfast.types.tasks import Resume, ResumeEvent, TaskNote

BUDGET: Final = 8192
MIN_BUDGET: Final = 1024
MAX_BUDGET: Final = 1_048_576
_MESSAGES: Final = 500  # read at most; the others are only counted
_LONG: Final = 200  # bytes; longer values are omitted from events
_LEAST: Final = 64  # bytes of the shortest event
_PARTS: Final = ("waits_for", "children", "locks", "left", "notes", "messages", "events")
_CUT: Final = "… (cut)"
_size = msgspec.json.Encoder().encode
T = TypeVar("T")


def resume(snapshot: Snapshot, id: str, budget: int = BUDGET) -> Resume:
    """Return where work on a task stopped: last holder, locks, notes, messages, events; in `budget` bytes of JSON."""
    if type(budget) is not int or not MIN_BUDGET <= budget <= MAX_BUDGET:
        raise errors.Invalid(f"budget must be {MIN_BUDGET} to {MAX_BUDGET} bytes, not {budget!r}")
    task = find(snapshot, id)
    return _fit(snapshot, task, _Past(snapshot, task.id, budget), budget)


class _Past:
    """What happened to a task, newest first: only as much as the budget may take is kept, the rest is counted."""

    def __init__(self, snapshot: Snapshot, id: str, budget: int) -> None:
        self.end: Event | None = None
        self.notes: list[TaskNote] = []
        self.events: list[ResumeEvent] = []
        self.noted = self.happened = spent = 0
        for row in events.history(snapshot, TASK, "", id):
            event = events.to_event(row)
            if self.end is None and _ended(event):
                self.end = msgspec.structs.replace(event, data={"claimed_by": event.data["claimed_by"]})
            if isinstance(note := event.data.get("note"), str):
                self.noted += 1
                if spent <= budget:
                    author = author_of(event.data.get("author"))
                    self.notes.append(TaskNote(note, event.actor, event.time, event.op, author))
                    spent += min(len(note), budget // 4)  # of a longer one, no more is shown
            self.happened += 1
            if len(self.events) <= budget // _LEAST:
                self.events.append(_event(event))


def _ended(event: Event) -> str | None:
    """The agent whose claim an event ended."""
    was, now = event.data.get("claimed_by", (None, None))
    return was if now is None else None


def _fit(snapshot: Snapshot, stored: Stored, past: _Past, budget: int) -> Resume:
    task, end = to_task(stored), past.end
    bare = Resume(
        task=msgspec.structs.replace(task, body=""),
        last_holder=None if end is None else _ended(end),
        ended=None if end is None else end.op,
        ended_at=None if end is None else end.time,
        **dict.fromkeys(_PARTS, ()),
        omitted=dict.fromkeys(("body", *_PARTS), 999_999_999),
        compacted=gap(snapshot, task.id),
    )
    room = _Room(budget - len(_size(bare)))
    if room.left < 0:
        hint = f"give a budget of at least {budget - room.left}"
        raise errors.Invalid(f"the task alone takes {budget - room.left} bytes", hint=hint)
    hooks = task_hooks.ask()
    left = [] if end is None else hooks.freed(snapshot, stored.id, end.revision)
    messages, total = hooks.messages(snapshot, stored.id, _MESSAGES)
    whole = room.left
    body = room.text(task.body, whole * 2 // 5)
    children = awaited_children(snapshot, stored.seq, strict=True)
    parts: dict[str, Sequence[Any]] = {
        "waits_for": room.items("waits_for", unfinished(snapshot, stored.id), whole // 10),
        "children": room.items("children", children, whole // 10),
        "locks": room.items("locks", hooks.locks(snapshot, stored.id), whole // 5),
        "left": room.items("left", left, whole // 10),
        "notes": room.newest("notes", [_cut_note(note, whole // 4) for note in past.notes], past.noted),
        "messages": room.newest("messages", [_brief(message, whole // 8) for message in reversed(messages)], total),
        "events": room.newest("events", past.events, past.happened),
    }
    task = msgspec.structs.replace(task, body=room.more(body, task.body))
    found = {name: tuple(items) for name, items in parts.items()}
    return msgspec.structs.replace(bare, task=task, omitted=room.omitted, **found)


class _Room:
    """The bytes that are left, and the counts of what did not fit."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.omitted: dict[str, int] = {}

    def text(self, text: str, most: int) -> str:
        """Return a text, cut if it is longer than its share."""
        kept = _short(text, most)
        self.left -= len(_size(kept)) - 2
        if kept != text:
            self.omitted["body"] = len(text.encode()) - len(kept.encode()) + len(_CUT.encode())
        return kept

    def more(self, kept: str, text: str) -> str:
        """Give the remaining room to the text that was cut."""
        if kept == text:
            return kept
        self.left += len(_size(kept)) - 2
        self.omitted.pop("body")
        return self.text(text, self.left)

    def items(self, name: str, found: Iterable[T], most: int = MAX_BUDGET) -> list[T]:
        """Return as many items as fit, in order, into the room left and into a share of it."""
        kept: list[T] = []
        for item in found:
            size = len(_size(item)) + 1
            most -= size
            if self.omitted.get(name) or size > self.left or most < 0:
                self.omitted[name] = self.omitted.get(name, 0) + 1
            else:
                self.left -= size
                kept.append(item)
        return kept

    def newest(self, name: str, found: Iterable[T], total: int = 0) -> list[T]:
        """Return as many of the newest items as fit, oldest first; `total` counts also those not in `found`."""
        kept = self.items(name, found)[::-1]
        if total > len(kept):
            self.omitted[name] = total - len(kept)
        return kept


def _short(text: str, most: int) -> str:
    """Cut a text to a number of bytes of JSON."""
    if len(_size(text)) - 2 <= most:
        return text
    low, high = 0, min(len(text), most)
    while low < high:
        middle = (low + high + 1) // 2
        if len(_size(text[:middle] + _CUT)) - 2 <= most:
            low = middle
        else:
            high = middle - 1
    return text[:low] + _CUT


def _cut_note(note: TaskNote, most: int) -> TaskNote:
    return msgspec.structs.replace(note, text=_short(note.text, most))


def _brief(message: Message, most: int) -> Message:
    return msgspec.structs.replace(message, body=_short(message.body, most))


def _event(event: Event) -> ResumeEvent:
    changes = {
        field: value
        for field, value in event.data.items()
        if field not in ("note", "author") and len(_size(value)) <= _LONG
    }
    note = event.data.get("note")
    author = author_of(event.data.get("author"))
    return ResumeEvent(
        event.op, event.actor, event.time, changes, None if note is None else _short(note, _LONG), author
    )
