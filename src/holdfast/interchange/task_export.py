"""Tasks as JSON lines, and the record that every import format becomes.

A line says all that a task is, its links and notes included; what only this workspace can know (version, revision, the
claim's token and deadline) stays here. Guarantee: the same task makes the same bytes, so exports can be compared, and
an import of them exports as they were. Notes come from the log: what was compacted there is no longer told.

A `Record` passed every check that can be made of it alone; whether what it names exists is `importing`'s matter. What a
task has no place for is never dropped: it becomes a note, with a warning that names it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config
from holdfast.domains.tasks import MAX_EXPORT
from holdfast.domains.tasks.creation import Draft, check_draft, check_note
from holdfast.domains.tasks.rows import COLUMNS, TASK, Stored, as_seen, missing, to_task
from holdfast.kernel import events
from holdfast.kernel.tx import Snapshot
from holdfast.kernel.validate import check_flag, check_limit, check_name
from holdfast.types import as_microseconds
from holdfast.types.tasks import LinkKind, TaskStatus, TaskType

FORMAT: Final = "holdfast.task/1"
_encode = msgspec.json.Encoder(order="sorted").encode

Time = Annotated[datetime, msgspec.Meta(tz=True)]


class NoteLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note as it was written: when, by whom, what."""

    at: Time
    by: str
    text: str


class TaskLine(msgspec.Struct, frozen=True):
    """One line. Only `format`, `id` and `title` must be there; what is missing is as in a new task.

    `depth` follows from `parent_id`. `deleted_with` is the task whose deletion took this one along.
    """

    format: str
    id: str
    title: str
    body: str = ""
    type: TaskType = "task"
    status: TaskStatus = "open"
    priority: int = 2
    parent_id: str | None = None
    depth: int = 0
    tags: tuple[str, ...] = ()
    claimed_by: str | None = None
    claimed_at: Time | None = None
    grimoire_hint: str | None = None
    grimoire: str | None = None
    created_at: Time | None = None
    updated_at: Time | None = None
    deleted_at: Time | None = None
    deleted_with: str | None = None
    depends_on: tuple[str, ...] = ()
    discovered_from: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    notes: tuple[NoteLine, ...] = ()


def export(snapshot: Snapshot, after: str | None, limit: int, include_deleted: bool) -> list[str]:
    """`tasks.export`."""
    check_limit(limit, MAX_EXPORT)
    check_flag(include_deleted=include_deleted)
    live = "" if include_deleted else " AND t.deleted IS NULL"
    rows = snapshot.all(
        f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM tasks t WHERE t.seq > ?{live} ORDER BY t.seq LIMIT ?",
        (_seq_of(snapshot, after), limit),
    )
    return [_encode(_line(snapshot, as_seen(snapshot, row), live)).decode() for row in rows]


def export_by_id(snapshot: Snapshot, after: str, limit: int) -> list[str]:
    """A page of all tasks by their ids, the deleted ones too: where a line stands says nothing of when it was made."""
    rows = snapshot.all(
        f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM tasks t WHERE t.id > ? ORDER BY t.id LIMIT ?", (after, limit)
    )
    return [line_of(snapshot, as_seen(snapshot, row)) for row in rows]


def line_of(snapshot: Snapshot, task: Stored) -> str:
    """The line of a task, with its links to deleted ones."""
    return _encode(_line(snapshot, task, "")).decode()


def _seq_of(snapshot: Snapshot, after: str | None) -> int:
    if after is None:
        return 0
    check_name(after, "after")
    row = snapshot.one("SELECT seq FROM tasks WHERE id = ?", (after,))
    if row is None:
        raise missing(after, "after is the exact id of the last task of the page before")
    seq: int = row[0]
    return seq


def _line(snapshot: Snapshot, stored: Stored, live: str) -> TaskLine:
    task = to_task(stored)
    linked: dict[LinkKind, list[str]] = {"depends_on": [], "discovered_from": [], "related": []}
    for kind, target in snapshot.all(
        "SELECT k.kind, k.target FROM links k JOIN tasks t ON t.id = k.target"
        f" WHERE k.kind IN ('depends_on', 'discovered_from', 'related') AND k.source = ?{live} ORDER BY k.target",
        (task.id,),
    ):
        linked[kind].append(target)
    row = snapshot.one("SELECT id FROM tasks WHERE seq = ?", (stored.deletion,))
    return TaskLine(
        FORMAT,
        task.id,
        task.title,
        task.body,
        task.type,
        task.status,
        task.priority,
        task.parent_id,
        task.depth,
        task.tags,
        task.claimed_by,
        task.claimed_at,
        task.grimoire_hint,
        task.grimoire,
        task.created_at,
        task.updated_at,
        task.deleted_at,
        None if row is None else row[0],
        tuple(linked["depends_on"]),
        tuple(linked["discovered_from"]),
        tuple(linked["related"]),
        tuple(notes_of(snapshot, task.id)),
    )


def notes_of(snapshot: Snapshot, id: str) -> list[NoteLine]:
    """The notes of a task and the reasons given for its steps, oldest first.

    An imported note is of whom and when its file said: the import's own event, a later one, lists that by version.
    """
    found: dict[int, NoteLine] = {}
    for row in reversed(events.history(snapshot, TASK, "", id, None, None)):
        event = events.to_event(row)
        for origin in event.data["notes"][1] if "notes" in event.data else ():
            if origin["version"] in found:
                found[origin["version"]] = _as_written(found[origin["version"]], origin["at"], origin["by"])
        if "note" in event.data:
            found[event.version] = NoteLine(event.time, event.actor, event.data["note"])
    return list(found.values())


def _as_written(note: NoteLine, at: str | None, by: str | None) -> NoteLine:
    return NoteLine(note.at if at is None else datetime.fromisoformat(at), note.by if by is None else by, note.text)


NO_PLACE: Final = "no place in a task"


class Note(msgspec.Struct, frozen=True):
    """A note to be added; without a time or an author it is of the import's own."""

    text: str
    at: int | None = None
    by: str | None = None


class Record(msgspec.Struct):
    """A task as a file has it, checked by itself; whether what it names exists is another matter.

    `extra` are columns of which only some formats speak; of what a format does not speak the task keeps its own.
    """

    id: str
    draft: Draft
    status: TaskStatus
    parent_id: str | None
    links: dict[LinkKind, tuple[str, ...]]
    created: int | None
    updated: int | None  # None: when it is imported
    deleted: int | None = None
    deleted_with: str | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    claim: tuple[str, str] | None = None  # it was in progress: who had it, and a note that says so
    notes: list[Note] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    withheld: bool = False  # its status has to wait for a claim
    line: int = 0
    digest: bytes = b""

    def keep(self, fields: dict[str, Any], why: str) -> None:
        """Keep what a task has no place for: in a note, and say so. TooLarge if no note could hold it."""
        if fields:
            text = msgspec.json.encode(fields, order="sorted").decode()
            names = ", ".join(sorted(fields))
            check_note(text, f"the note that would keep {names}")
            self.notes.append(Note(text))
            self.warnings.append(f"{why}, kept in a note: {names}")


def moment(time: datetime | None, what: str) -> int | None:
    """A time of a file as microseconds; what the store could not sort by is refused."""
    if time is None:
        return None
    try:
        found = as_microseconds(time)
    except OverflowError as error:
        raise errors.InvalidValue(f"{what} is out of range: {time.isoformat()}", hint="") from error
    if found < 0:
        raise errors.InvalidValue(f"{what} lies before 1970: {time.isoformat()}", hint="")
    return found


def read_own(raw: dict[str, Any], config: Config) -> Record:
    """The record that a line of our own format stands for."""
    if raw.get("format") != FORMAT:
        raise errors.Invalid(f"format is {raw.get('format')!r}, not {FORMAT!r}")
    line = msgspec.convert(raw, TaskLine)
    if line.grimoire is not None:
        check_name(line.grimoire, "grimoire")
    record = Record(
        line.id,
        check_draft(config, line.title, line.body, line.type, line.priority, line.tags, line.grimoire_hint),
        "open" if line.status == "in_progress" else line.status,
        line.parent_id,
        {
            "depends_on": tuple(sorted({*line.depends_on})),
            "discovered_from": tuple(sorted({*line.discovered_from})),
            "related": tuple(sorted({*line.related})),
        },
        created=moment(line.created_at, "created_at"),
        updated=moment(line.updated_at, "updated_at"),
        deleted=moment(line.deleted_at, "deleted_at"),
        deleted_with=None if line.deleted_at is None else line.deleted_with or line.id,
        extra={"hint": line.grimoire_hint, "grimoire": line.grimoire},
    )
    if record.status == "pending_merge" and record.deleted is not None:
        raise errors.Invalid("a task that is pending merge cannot be deleted")
    for note in line.notes:
        check_note(note.text, "a note")
        check_name(note.by, "the author of a note")
        record.notes.append(Note(note.text, moment(note.at, "the time of a note"), note.by))
    left = {name: value for name, value in raw.items() if name not in TaskLine.__struct_fields__}
    if line.status == "in_progress":
        since = "" if line.claimed_at is None else f" since {line.claimed_at.isoformat()}"
        record.claim = (line.claimed_by or "", f"in progress when it was exported, claimed by {line.claimed_by}{since}")
    else:
        left |= {name: raw[name] for name in ("claimed_by", "claimed_at") if name in raw}
    record.keep(left, NO_PLACE)
    return record
