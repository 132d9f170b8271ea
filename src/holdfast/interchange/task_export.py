"""Tasks as JSON lines, and the record that every import format becomes.

A line has everything that a task is, its links and notes included; what is true in this workspace only (version,
revision, the claim's token and deadline) is left out. Guarantee: the same task makes the same bytes, and what is
imported elsewhere exports the same again. Notes come from the log, where compaction leaves them.

A `Record` passed every check that needs no other record; `task_merge` checks whether what it names exists. A field that
tasks do not have is never dropped: it becomes a note, with a warning that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config
from holdfast.domains.tasks.creation import Draft, check_assignee, check_draft, check_note
from holdfast.domains.tasks.details import check_ref, stored_refs
from holdfast.domains.tasks.rows import COLUMNS, TASK, Stored, as_seen, missing, to_task
from holdfast.domains.tasks.sets import MAX_EXPORT
from holdfast.domains.tasks.transitions import STATUSES
from holdfast.domains.tasks.tree import KINDS
from holdfast.interchange.jsonl import Place, Time, moment
from holdfast.kernel import events
from holdfast.kernel.tx import PAGE_BYTES, Snapshot
from holdfast.kernel.validate import check_flag, check_limit, check_name
from holdfast.kernel.values import MAX_VALUE_BYTES, encode
from holdfast.types import Event, Page
from holdfast.types.tasks import ExportFormat, LinkKind, Ref, Task, TaskStatus, TaskType
from holdfast.wire import escape_controls

OP: Final = "import"  # what an import has changed
FORMAT: Final = "holdfast.task/1"
_encode = msgspec.json.Encoder(order="sorted").encode


class OriginLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The past of a task at another place. The importer matters in one workspace only, and is left out."""

    created_by: str | None = None
    updated_at: Time | None = None
    closed_at: Time | None = None


class NoteLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note with its time and author; None if nobody knows."""

    at: Time
    by: str | None
    text: str


class TaskLine(msgspec.Struct, frozen=True):
    """One line. Only `format`, `id` and `title` are required; the defaults are those of a new task.

    `depth` follows from `parent_id`. `deleted_with` is the task whose deletion included this one.
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
    assigned_to: str | None = None
    deferred_until: Time | None = None
    refs: tuple[Ref, ...] = ()
    created_at: Time | None = None
    updated_at: Time | None = None
    deleted_at: Time | None = None
    deleted_with: str | None = None
    depends_on: tuple[str, ...] = ()
    discovered_from: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    notes: tuple[NoteLine, ...] = ()
    result: Any = None
    origin: OriginLine | None = None


# A line says all that a task does, in one run of fields.
_values_of: Final = attrgetter(
    *(name for name in TaskLine.__struct_fields__ if name in Task.__struct_fields__ and name != "origin")
)


def export(snapshot: Snapshot, after: str | None, limit: int, include_deleted: bool, format: ExportFormat) -> Page[str]:
    """`tasks.export`."""
    check_limit(limit, MAX_EXPORT, "after")
    check_flag(include_deleted=include_deleted)
    live = "" if include_deleted else " AND t.deleted IS NULL"
    where = f"t.seq > ?{live} ORDER BY t.seq"
    if format == "holdfast":
        return _page(snapshot, where, _seq_of(snapshot, after), limit, live)
    if format == "beads":
        from holdfast.interchange.beads import write_issue  # it reads what is here

        return _page(snapshot, where, _seq_of(snapshot, after), limit, live, write_issue)
    raise errors.Invalid(f"format is holdfast or beads, not {format!r}")


def export_by_id(snapshot: Snapshot, after: str, limit: int) -> Page[str]:
    """A page of all tasks in the order of their ids, deleted ones included."""
    return _page(snapshot, "t.id > ? ORDER BY t.id", after, limit, "")


def _page(
    snapshot: Snapshot,
    where: str,
    after: int | str,
    limit: int,
    live: str,
    write: Callable[[str, list[Event]], str] | None = None,
) -> Page[str]:
    """A page of lines; `write` makes a line of another format from ours and the events of the task."""
    rows, more = snapshot.page(
        f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM tasks t WHERE {where} LIMIT ?", (after,), limit
    )
    page: Page[str] = Page()
    left = PAGE_BYTES
    for row in rows:  # notes, which are not in the row, count too
        task = as_seen(snapshot, row)
        line = line_of(snapshot, task, live)
        if write is not None:
            line = write(line, [events.to_event(row) for row in events.history(snapshot, TASK, "", task.id)][::-1])
        left -= len(line)
        if page and left < 0:
            more = True
            break
        page.append(line)
        page.cursor = task.id
    if not more:
        page.cursor = None
    return page


def _seq_of(snapshot: Snapshot, after: str | None) -> int:
    if after is None:
        return 0
    check_name(after, "after")
    row = snapshot.one("SELECT seq FROM tasks WHERE id = ?", (after,))
    if row is None:
        raise missing(after, "after is the exact id of the last task of the previous page")
    seq: int = row[0]
    return seq


def line_of(snapshot: Snapshot, stored: Stored, live: str = "") -> str:
    """The line of a task, with its links to the tasks `t` that fulfil the condition `live`."""
    task = to_task(stored)
    linked: dict[LinkKind, list[str]] = {"depends_on": [], "discovered_from": [], "related": []}
    for kind, target in snapshot.all(
        "SELECT k.kind, k.target FROM links k JOIN tasks t ON t.id = k.target"
        f" WHERE k.kind IN ('depends_on', 'discovered_from', 'related') AND k.source = ?{live} ORDER BY k.target",
        (task.id,),
    ):
        linked[kind].append(target)
    deletion = stored.deletion and snapshot.one("SELECT id FROM tasks WHERE seq = ?", (stored.deletion,))
    links, (notes, result) = map(tuple, linked.values()), told_of(snapshot, task.id)
    past = foreign(stored.origin)
    origin = msgspec.convert(past, OriginLine) if past else None
    deleted_with = deletion[0] if deletion else None
    fields: tuple[Any, ...] = (FORMAT, *_values_of(task), deleted_with, *links, tuple(notes), result, origin)
    return escape_controls(_encode(TaskLine(*fields)).decode())


def foreign(origin: str | None) -> dict[str, str]:
    """What is stored of a task's past elsewhere, as the file said it."""
    known = {} if origin is None else msgspec.json.decode(origin, type=dict[str, str])
    return {name: value for name, value in known.items() if name in OriginLine.__struct_fields__}


def told_of(snapshot: Snapshot, id: str) -> tuple[list[NoteLine], Any]:
    """The notes of a task and the reasons given for its steps, oldest first, and its newest result.

    An imported note has the author and time of its file.
    """
    notes, results = [], list[Any]()
    for row in events.history(snapshot, TASK, "", id):
        event = events.to_event(row)
        if "result" in event.data and not results:
            results.append(event.data["result"][1])
        if "note" in event.data:
            notes.append(note_of(event))
    return notes[::-1], results[0] if results else None


def note_of(event: Event) -> NoteLine:
    """The note of an event that has one."""
    author = event.data.get("author", (None, {"by": event.actor}))[1]
    at = event.time if author.get("at") is None else datetime.fromisoformat(author["at"])
    return NoteLine(at, author.get("by"), event.data["note"])


NO_FIELD: Final = "tasks have no such field"


class Note(msgspec.Struct, frozen=True):
    """A note to add, by the import itself or, if it is `foreign`, by somebody else at another time."""

    text: str
    at: int | None = None
    by: str | None = None
    foreign: bool = False


class Record(msgspec.Struct):
    """A task as a file describes it. `extra` are columns that only some formats have; others leave them alone.

    `claim` of a task in progress: its holder, and a note about it. `withheld`: its status has to wait for a claim here.
    `waited` is what is kept of a deferral that is over, and of one that is to come.
    """

    id: str
    draft: Draft
    status: TaskStatus
    parent_id: str | None
    links: dict[LinkKind, tuple[str, ...]]
    created: int | None
    updated: int | None  # None: the time of the import
    deleted: int | None = None
    deleted_with: str | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    deferred: int | None = None
    waited: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    claim: tuple[str, str] | None = None
    notes: list[Note] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    withheld: bool = False
    origin: dict[str, str] = msgspec.field(default_factory=dict)  # of OriginLine, as JSON
    result: Any = None
    place: Place = Place("", 0, None)
    digest: bytes = b""

    def keep(self, fields: dict[str, Any], why: str) -> None:
        """Keep fields that tasks do not have in a note, and warn. Raises TooLarge if no note could hold them."""
        if fields:
            text, names = _encode(fields).decode(), ", ".join(sorted(fields))
            check_note(text, f"the note that would keep {names}")
            self.notes.append(Note(text))
            self.warnings.append(f"{why}, kept in a note: {names}")


def kept_in(note: str) -> dict[str, Any]:
    """The fields that `Record.keep` has put into a note; none if it is another note."""
    if not note.startswith("{"):
        return {}
    try:
        fields = msgspec.json.decode(note)
    except msgspec.DecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def past_of(created_by: str | None, updated_at: datetime | None, closed_at: datetime | None) -> dict[str, str]:
    """What a file says of a task's past, checked, as it is stored."""
    if created_by is not None:
        check_name(created_by, "created_by")
    for name, at in (("updated_at", updated_at), ("closed_at", closed_at)):
        moment(at, name)
    updated_at, closed_at = (None if at is None else at.astimezone(UTC) for at in (updated_at, closed_at))
    known: dict[str, str] = msgspec.to_builtins(OriginLine(created_by, updated_at, closed_at))
    return known


def check_fields(raw: dict[str, Any], config: Config) -> Draft:
    """What a line says of a new task, refused with the words of `tasks.create`; and its status."""
    if "title" not in raw:
        raise errors.Invalid('the field "title" is missing')
    if raw.get("status", "open") not in STATUSES:
        raise errors.Invalid(f"{raw['status']!r} is not a status: statuses are {', '.join(STATUSES)}")
    given = {name: raw[name] for name in ("title", "body", "type", "priority", "tags") if name in raw}
    return check_draft(config, **given, hint=raw.get("grimoire_hint"))


def _no_line(format: Any) -> str:
    """Why a line of another format is not one of ours."""
    wanted = f'a line of an export has "format": "{FORMAT}"'
    if format is None:
        return f'the field "format" is missing: {wanted}'
    if str(format).startswith(FORMAT.partition("/")[0] + "/"):
        return f"it is of a newer Holdfast, with the format {format!r}: update Holdfast here"
    if str(format).startswith("holdfast.shared/"):
        return "it is of tasks that travel with a repository, which holdfast share reads"
    return f'"format" is {format!r}: {wanted}'


def read_own(raw: dict[str, Any], config: Config) -> Record:
    """The record of a line of our own format."""
    if raw.get("format") != FORMAT:
        raise errors.Invalid(_no_line(raw.get("format")))
    draft = check_fields(raw, config)
    line = msgspec.convert(raw, TaskLine)
    if line.grimoire is not None:
        check_name(line.grimoire, "grimoire")
    record = Record(
        line.id,
        draft,
        "open" if line.status == "in_progress" else line.status,
        line.parent_id,
        {kind: tuple(sorted({*getattr(line, kind)})) for kind in KINDS},
        created=moment(line.created_at, "created_at"),
        updated=moment(line.updated_at, "updated_at"),
        deleted=moment(line.deleted_at, "deleted_at"),
        deleted_with=None if line.deleted_at is None else line.deleted_with or line.id,
        extra={
            "hint": line.grimoire_hint,
            "grimoire": line.grimoire,
            "assignee": check_assignee(line.assigned_to),
            "refs": stored_refs([check_ref(ref.value, ref.kind) for ref in line.refs]),
        },
        deferred=moment(line.deferred_until, "deferred_until"),
    )
    if record.status == "pending_merge" and record.deleted is not None:
        raise errors.Invalid("a task that is pending merge cannot be deleted")
    for note in line.notes:
        check_note(note.text, "a note")
        if note.by is not None:
            check_name(note.by, "the author of a note")
        record.notes.append(Note(note.text, moment(note.at, "the time of a note"), note.by, foreign=True))
    if line.origin is not None:
        record.origin = past_of(line.origin.created_by, line.origin.updated_at, line.origin.closed_at)
    if line.result is not None:
        encode(line.result, MAX_VALUE_BYTES)  # raises for a result that cannot be stored
        record.result = line.result
    left = {name: value for name, value in raw.items() if name not in TaskLine.__struct_fields__}
    if line.status == "in_progress":
        since = "" if line.claimed_at is None else f" since {line.claimed_at.isoformat()}"
        record.claim = (line.claimed_by or "", f"in progress when it was exported, claimed by {line.claimed_by}{since}")
    else:
        left |= {name: raw[name] for name in ("claimed_by", "claimed_at") if name in raw}
    record.keep(left, NO_FIELD)
    return record
