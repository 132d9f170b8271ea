"""What an imported record means for a task that exists, and whether all records fit together.

Everything a record changes goes through `rows` and is told in the task's history as "import"; a status is reached by
steps that exist. A claim is never taken away: the status of a task that somebody holds here stays. Called by
`importing`, which decides what is merged at all.

Asked before anything is written: what a record names must exist, nothing live may lie under what is deleted, and
neither parents nor dependencies may run in a circle. A record that does not fit is refused. If it is to be left out,
those that named it do not fit either; if it refuses the whole import, only the causes are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from holdfast.domains import link_types
from holdfast.domains.tasks.creation import stored_tags
from holdfast.domains.tasks.rows import DEPENDS_ON, Stored, adjust, by_seq, change, write_texts
from holdfast.domains.tasks.transitions import STEPS
from holdfast.domains.tasks.tree import KINDS
from holdfast.interchange.task_export import Note, Record, notes_of
from holdfast.kernel.tx import Tx
from holdfast.types import as_microseconds, as_time
from holdfast.types.tasks import ImportProblem, LinkKind, TaskStatus

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
        old = tuple(link_types.targets(tx, kind, task.id))
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
    for targets, put, by in (({*old} - {*new}, link_types.remove, -1), ({*new} - {*old}, link_types.add, 1)):
        for target in sorted(targets):
            put(tx, kind, task.id, target)
            if kind == DEPENDS_ON and not _finished(tx, target):
                adjust(tx, task.seq, waits=by)


def _finished(tx: Tx, id: str) -> bool:
    row = tx.one("SELECT seq FROM tasks WHERE id = ?", (id,))
    assert row is not None
    return by_seq(tx, row[0]).finished


_LIVE_BELOW = "SELECT c.id FROM tasks c JOIN tasks t ON t.seq = c.parent WHERE t.id = ? AND c.deleted IS NULL"


class Plan:
    """The records to be merged, in the order of the file, over the tasks as they are before."""

    def __init__(self, tx: Tx, skip_bad: bool) -> None:
        self.records: dict[str, Record] = {}
        self._excused: set[str] = set()  # lines that are bad themselves: not also a fault of those that name them
        self._tx = tx
        self._skip_bad = skip_bad
        self._tasks: dict[str, Stored | None] = {}
        self._named_by: dict[str, list[str]] = {}
        self._refused: list[ImportProblem] = []

    def task(self, id: str) -> Stored | None:
        """The task of that id as it was before the import, deleted or not."""
        if id not in self._tasks:
            row = self._tx.one("SELECT seq FROM tasks WHERE id = ?", (id,))
            self._tasks[id] = None if row is None else by_seq(self._tx, row[0])
        return self._tasks[id]

    def known(self, id: str) -> Stored:
        """The same of a task that exists."""
        task = self.task(id)
        assert task is not None
        return task

    def excuse(self, id: str) -> None:
        """The line of this id is bad, and that was told."""
        if not self._skip_bad:
            self._excused.add(id)

    def fit(self) -> list[ImportProblem]:
        """Take out what does not fit, and say why."""
        for record in self.records.values():
            for name in _names(record):
                self._named_by.setdefault(name, []).append(record.id)
        self._sift([*self.records])
        while self._break_circles(self._waits_for) or self._break_circles(self._is_under):
            pass  # what is taken out leaves the task as it was: that may close another circle
        return self._refused

    def downwards(self) -> list[str]:
        """The ids with parents before their children, so that nothing is moved under what is still to move."""
        depths: dict[str, int] = {}
        for id in self.records:
            way = [id]
            while way[-1] not in depths and (above := [*self._is_under(way[-1])]):
                way += above
            top = depths.setdefault(way[-1], 0)
            for down, at in enumerate(reversed(way)):
                depths[at] = top + down
        return sorted(self.records, key=depths.__getitem__)

    # --- each with what it names -------------------------------------------------------------------------------------

    def _sift(self, ids: list[str]) -> None:
        """Refuse those of the records that do not fit, then those that relied on them."""
        for id in ids:  # grows while it is walked
            record = self.records.get(id)
            problem = None if record is None else self._misfit(record)
            if record is not None and problem is not None:
                ids += self._refuse(record, problem)

    def _refuse(self, record: Record, message: str) -> list[str]:
        """Take a record out; answers those to be looked at again."""
        self._refused.append(ImportProblem(record.line, record.id, "error", message))
        del self.records[record.id]
        self.excuse(record.id)
        task = self.task(record.id)
        parent = [] if task is None or task.parent_id is None else [task.parent_id]
        return [*parent, *self._named_by.get(record.id, ())]

    def _misfit(self, record: Record) -> str | None:
        names = _names(record)
        if record.id in names:
            return "it names itself, as parent or in a link"
        unknown = [name for name in names if not self._counts(name) and self.task(name) is None]
        if unknown:
            return f"there is no task {', '.join(unknown)}, neither here nor among the lines that can be imported"
        if self._is_deleted(record.id):
            rows = self._tx.all(f"{_LIVE_BELOW} ORDER BY c.seq", (record.id,))
            live = [id for (id,) in rows if not self._counts(id)]
            if live:
                return f"it is deleted there, but here live tasks are below it: {', '.join(live[:5])}"
        elif record.parent_id is not None and self._is_deleted(record.parent_id):
            return f"its parent {record.parent_id} is deleted"
        return None

    def _counts(self, id: str) -> bool:
        """Whether a record speaks for this id."""
        return id in self.records or id in self._excused

    def _is_deleted(self, id: str) -> bool:
        """Whether a task will be; one that somebody holds here stays."""
        task = self.task(id)
        if id in self.records and (task is None or task.holder is None):
            return self.records[id].deleted is not None
        return task is not None and task.deleted is not None

    # --- all together ------------------------------------------------------------------------------------------------

    def _waits_for(self, id: str) -> Iterable[str]:
        return (
            self.records[id].links[DEPENDS_ON] if id in self.records else link_types.targets(self._tx, DEPENDS_ON, id)
        )

    def _is_under(self, id: str) -> Iterable[str]:
        one = self.records.get(id) or self.task(id)
        return () if one is None or one.parent_id is None else (one.parent_id,)

    def _break_circles(self, following: Callable[[str], Iterable[str]]) -> bool:
        """Refuse the last record of every circle; whether there was one."""
        done: set[str] = set()
        before = len(self._refused)
        for start in [*self.records]:
            while path := _circle(start, following, done):
                last = max((self.records[id] for id in path if id in self.records), key=lambda record: record.line)
                self._sift(self._refuse(last, f"that would be a circle: {' -> '.join(path)}"))
        return len(self._refused) > before


def _names(record: Record) -> list[str]:
    """The tasks that a record names."""
    parent = [] if record.parent_id is None else [record.parent_id]
    return [*parent, *(target for targets in record.links.values() for target in targets)]


def _circle(start: str, following: Callable[[str], Iterable[str]], done: set[str]) -> list[str] | None:
    """A way from `start` that comes back upon itself; None if there is none, and then all it reaches is done."""
    if start in done:
        return None
    path, on_path = [start], {start}
    ahead = [iter(following(start))]
    while path:
        for id in ahead[-1]:
            if id in on_path:
                return [*path[path.index(id) :], id]
            if id not in done:
                path.append(id)
                on_path.add(id)
                ahead.append(iter(following(id)))
                break
        else:
            ahead.pop()
            done.add(path[-1])
            on_path.discard(path.pop())
    return None
