"""What a record of a file means for a task: where the two differ, and bringing the task there.

Everything a record changes goes through `rows` and is told in the task's history as "import"; a status is reached by
steps that exist. A claim is never taken away: the status of a task that somebody holds here stays. Called by
`importing`, which decides what is merged at all.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.domains import links
from holdfast.domains.tasks.depending import KINDS
from holdfast.domains.tasks.exporting import notes_of
from holdfast.domains.tasks.records import Note, Record
from holdfast.domains.tasks.rows import DEPENDS_ON, Stored, adjust, by_seq, change, write_texts
from holdfast.domains.tasks.steps import STEPS
from holdfast.domains.tasks.tags import stored_tags
from holdfast.kernel.tx import Tx
from holdfast.types.base import as_microseconds, as_time
from holdfast.types.tasks import LinkKind, TaskStatus

OP: Final = "import"


# --- where they differ -----------------------------------------------------------------------------------------------


class Changes(msgspec.Struct):
    """What of a task a record would change."""

    columns: dict[str, Any]
    more: dict[str, Any]
    parent: bool
    status: bool
    notes: list[Note]

    @property
    def fields(self) -> list[str]:
        """What differs, in words; empty if nothing does."""
        columns = {{"hint": "grimoire_hint", "created": "created_at"}.get(name, name) for name in self.columns}
        rest = {"parent_id": self.parent, "status": self.status, "notes": bool(self.notes)}
        return sorted({*columns, *self.more, *(name for name, differs in rest.items() if differs)})


def differences(tx: Tx, task: Stored, record: Record) -> Changes:
    """What applying a record would change."""
    draft = record.draft
    wanted = {"title": draft.title, "type": draft.type, "priority": draft.priority, **record.extra}
    wanted["tags"] = stored_tags(draft.tags)
    if record.created is not None:
        wanted["created"] = record.created
    held = task.status == "in_progress"
    if held:
        wanted.pop("grimoire", None)  # which belongs to the claim
    else:
        wanted["deleted"] = record.deleted
    columns = {name: value for name, value in wanted.items() if getattr(task, name) != value}
    more: dict[str, Any] = {}
    if draft.body != task.body:
        more["body"] = (task.body, draft.body)
    if "tags" in columns:
        more["tags"] = (task.tag_list, draft.tags)
    if not held and ("deleted" in columns or _deleted_with(tx, task) != record.deleted_with):
        more["deleted"] = (task.deleted is not None, record.deleted is not None)
    for kind in KINDS:
        old = tuple(links.targets(tx, kind, task.id))
        if old != record.links[kind]:
            more[kind] = (old, record.links[kind])
    return Changes(
        columns,
        more,
        parent=task.parent_id != record.parent_id,
        status=not held and task.status != record.status,
        notes=_lacking(tx, task, record.notes),
    )


def _lacking(tx: Tx, task: Stored, notes: list[Note]) -> list[Note]:
    """The notes that the task does not have yet; each of its own counts once."""
    own = [(note.text, as_microseconds(note.at), note.by) for note in (notes_of(tx, task.id) if notes else ())]
    found = []
    for note in notes:
        same = next(
            (has for has in own if has[0] == note.text and note.at in (None, has[1]) and note.by in (None, has[2])),
            None,
        )
        if same is None:
            found.append(note)
        else:
            own.remove(same)
    return found


def route(source: TaskStatus, target: TaskStatus) -> list[TaskStatus]:
    """The shortest way from one status to another by steps that exist, without the first."""
    ways: list[list[TaskStatus]] = [[source]]
    for way in ways:  # grows while it is walked
        if way[-1] == target:
            return way[1:]
        ways += [[*way, step.target] for step in STEPS if step.source == way[-1] and step.target not in way]
    raise AssertionError(f"no way from {source} to {target}")


# --- bringing it there -----------------------------------------------------------------------------------------------


def merge(tx: Tx, seq: int, record: Record) -> Stored:
    """Give a task all that its record says but the parent, which has been seen to."""
    task = by_seq(tx, seq)
    changes = differences(tx, task, record)
    columns, more = changes.columns, changes.more
    if "deleted" in more:
        columns["deletion"] = None if record.deleted is None else _deletion(tx, task, record)
    if changes.notes:
        task, origins = _add_notes(tx, task, changes.notes, record.updated)
        if origins:
            more["notes"] = (None, origins)
    for kind in KINDS:
        if kind in more:
            _relink(tx, task, kind, *more[kind])
    texts = {"title": columns["title"]} if "title" in columns else {}
    if "body" in more:
        texts["body"] = record.draft.body
    if texts:
        write_texts(tx, seq, **texts)
    task = by_seq(tx, seq)  # as the links have left it
    if changes.status:
        *between, columns["status"] = route(task.status, record.status)
        for status in between:
            task = change(tx, task, OP, {"status": status}, updated=record.updated)
    if not columns and not more and record.updated not in (None, task.updated):  # what happened there was undone there
        more["updated_at"] = tuple(as_time(time).isoformat() for time in (task.updated, record.updated or 0))
    if columns or more:
        task = change(tx, task, OP, columns, more=more, updated=record.updated)
    return task


def _deletion(tx: Tx, task: Stored, record: Record) -> int:
    """The number of the task that this one was deleted with: itself, if the file names one that is not here."""
    row = tx.one("SELECT seq FROM tasks WHERE id = ?", (record.deleted_with,))
    return task.seq if row is None else row[0]


def _deleted_with(tx: Tx, task: Stored) -> str | None:
    row = tx.one("SELECT id FROM tasks WHERE seq = ?", (task.deletion,))
    return None if row is None else row[0]


def _add_notes(tx: Tx, task: Stored, notes: list[Note], updated: int | None) -> tuple[Stored, list[dict[str, Any]]]:
    """Append notes where history and search look; answers which of them are of another time or author."""
    row = tx.one("SELECT notes FROM task_texts WHERE seq = ?", (task.seq,))
    assert row is not None
    write_texts(tx, task.seq, notes="\n".join(text for text in (row[0], *(note.text for note in notes)) if text))
    origins = []
    for note in notes:
        task = change(tx, task, OP, {}, note=note.text, updated=updated)
        if note.at is not None or note.by is not None:
            at = None if note.at is None else as_time(note.at).isoformat()
            origins.append({"version": task.version, "at": at, "by": note.by})
    return task, origins


def _relink(tx: Tx, task: Stored, kind: LinkKind, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Remove and make links, and count what the task waits for."""
    for targets, put, by in (({*old} - {*new}, links.remove, -1), ({*new} - {*old}, links.add, 1)):
        for target in sorted(targets):
            put(tx, kind, task.id, target)
            if kind == DEPENDS_ON and not _finished(tx, target):
                adjust(tx, task.seq, waits=by)


def _finished(tx: Tx, id: str) -> bool:
    row = tx.one("SELECT seq FROM tasks WHERE id = ?", (id,))
    assert row is not None
    return by_seq(tx, row[0]).finished
