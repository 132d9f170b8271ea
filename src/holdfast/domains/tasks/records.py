"""What every format of an import comes to, and how a line of our own becomes one.

A `Record` passed every check that can be made of it alone; whether what it names exists is `importing`'s matter. What a
task has no place for is never dropped: it becomes a note, with a warning that names it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config
from holdfast.domains.tasks.creating import Draft, check_draft
from holdfast.domains.tasks.exporting import FORMAT, TaskLine
from holdfast.domains.tasks.texts import check_note
from holdfast.kernel.names import check_name
from holdfast.types.base import as_microseconds
from holdfast.types.tasks import LinkKind, TaskStatus

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
