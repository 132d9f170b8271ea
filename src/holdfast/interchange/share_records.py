"""Shared tasks at work: what a line says that a task is to show, and the record of it that is written like an import.

A record can be refused, because what another workspace allows is too long here, say; then its line is kept as it is.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks.creation import check_assignee, check_draft, check_note
from holdfast.domains.tasks.details import check_ref, stored_refs
from holdfast.domains.tasks.rows import WAITING, Stored
from holdfast.domains.tasks.transitions import STATUSES
from holdfast.interchange.share_ids import Keys
from holdfast.interchange.share_lines import LINKS, Entry
from holdfast.interchange.share_state import Site, is_same, micros_of
from holdfast.interchange.task_export import Note, Record, told_of
from holdfast.kernel.tx import Tx
from holdfast.kernel.values import MAX_VALUE_BYTES, encode

# What a task can show later than its line says it, when another task has come or a claim has ended.
_COMES_BACK: Final = ("parent", *LINKS, "deferred_until", "deleted_with")


class Work(msgspec.Struct):
    """A shared task at work: its record, and its row here if it has one."""

    entry: Entry
    odd: dict[str, Any]
    changed: bool
    seq: int | None = None
    stored: Stored | None = None
    shown: dict[str, Any] = {}
    wanted: dict[str, Any] = {}

    @property
    def is_live(self) -> bool:
        """Whether it will not be deleted."""
        return self.wanted["deleted_at"] is None


class Records:
    """What shared tasks are to be here, by the limits and the settings of this workspace."""

    def __init__(self, tx: Tx, site: Site, keys: Keys) -> None:
        self._tx = tx
        self._site = site
        self._keys = keys
        self.config = settings_of(tx).config

    def of(self, task: Work, id: str, value: Any) -> Record:
        """What a task is to be, as an import says it. Raises Invalid or ValueError if it cannot be that here."""
        if value("status") not in STATUSES or value("status") == "in_progress":
            raise errors.Invalid(f"{value('status')!r} is not a status of a shared task")
        draft = check_draft(
            self.config,
            value("title"),
            value("body"),
            value("type"),
            value("priority"),
            value("tags"),
            value("grimoire_hint"),
            value("assigned_to"),
        )
        by = task.entry.value("created_by")
        for (_, text), author in task.entry.notes.items():
            check_note(text)
            check_assignee(author)
        check_assignee(by)
        encode(task.entry.value("result"), MAX_VALUE_BYTES)
        refs = stored_refs([check_ref(text, kind) for kind, text in value("refs")])
        deleted, created, until = (
            None if (time := value(field)) is None else micros_of(time)
            for field in ("deleted_at", "created_at", "deferred_until")
        )
        return Record(
            id,
            draft,
            value("status"),
            self._keys.id(value("parent")),
            {kind: tuple(sorted(filter(None, map(self._keys.id, value(kind))))) for kind in LINKS},
            created=created,
            updated=self.updated(task),
            deleted=deleted,
            deleted_with=None if deleted is None else self._keys.id(value("deleted_with")) or id,
            extra={"hint": draft.hint, "assignee": draft.assignee, "refs": refs},
            deferred=until if until is not None and until > self._tx.now else None,
            origin={} if by is None else {"created_by": by},
            result=task.entry.value("result"),
        )

    def lacking_notes(self, task: Work) -> list[Note]:
        """The notes that a task does not have yet."""
        if not task.changed or not task.entry.notes:
            return []
        assert task.stored is not None
        told, _ = told_of(self._tx, task.stored.id)
        has = {(note.at.isoformat(), note.text) for note in told}
        return [
            Note(text, micros_of(at), by, foreign=True)
            for (at, text), by in sorted(task.entry.notes.items())
            if (at, text) not in has
        ]

    def updated(self, task: Work) -> int:
        """When a task was changed last, as far as its line says; never in the future."""
        newest = max((cell.stamp.time for cell in task.entry.cells.values()), default=task.entry.made.time)
        return min(newest, self._tx.now)

    def want(self, task: Work) -> None:
        """What a task is to show, apart from links that are to be left out."""
        value = task.entry.value
        wanted = {field: value(field) for field in task.shown}
        said = task.changed and "assigned_to" in task.entry.cells
        if not said and not self._site.shares("assigned_to"):
            wanted["assigned_to"] = task.shown["assigned_to"]
        if wanted["status"] == "pending_merge" and wanted["deleted_at"] is not None:
            wanted["status"] = "open"
        for field in LINKS:
            wanted[field] = sorted({key for key in value(field) if self._keys.id(key) and key != task.entry.key})
        for field in ("parent", "deleted_with"):
            if self._keys.id(value(field)) is None:
                wanted[field] = None
        held = task.stored is not None and task.stored.status == "in_progress"
        if held or wanted["deleted_at"] is not None or wanted["status"] not in WAITING:
            wanted["deferred_until"] = None
        if wanted["deleted_at"] is None:
            wanted["deleted_with"] = None
        elif wanted["deleted_with"] is None:
            wanted["deleted_with"] = task.entry.key
        if wanted["created_at"] is None:
            wanted["created_at"] = task.shown["created_at"]
        task.wanted = wanted

    def odd(self, entry: Entry, shown: dict[str, Any]) -> dict[str, Any]:
        """What a task shows that its line does not say, which is no change of it."""
        odd = {
            field: value
            for field, value in shown.items()
            if not is_same(self._tx, field, value, entry.value(field), self._keys)
            or (field in ("parent", *LINKS) and value != entry.value(field))
        }
        if entry.value("created_at") is None:
            odd.pop("created_at")
        if not self._site.shares("assigned_to"):
            odd.pop("assigned_to", None)
        return odd

    def differing(self, task: Work) -> list[str]:
        """The fields that a task does not show as it is to; if its line is as it was, those that may come back."""
        differ = (
            field
            for field, value in task.wanted.items()
            if not is_same(self._tx, field, task.shown[field], value, self._keys)
        )
        return [field for field in differ if task.changed or field in _COMES_BACK]
