"""What an imported record changes in a task, and whether all records of an import fit together.

Every change of a record is in the task's history as "import"; a status is reached by steps that exist. A claim is never
taken away: the status of a task that is held here stays. Called by `task_import`, which decides what is merged.

A record fits if what it names exists, nothing live lies below what is deleted, and neither parents nor dependencies
form a cycle. With `skip_bad`, the records that name a refused one are refused too; otherwise only the causes are
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.domains import link_types
from holdfast.domains.tasks.creation import stored_tags
from holdfast.domains.tasks.details import set_deferral, text_of
from holdfast.domains.tasks.rows import DEPENDS_ON, WAITING, Stored, adjust, by_seq, change, require, write_texts
from holdfast.domains.tasks.transitions import STEPS
from holdfast.domains.tasks.tree import KINDS
from holdfast.interchange.jsonl import Import
from holdfast.interchange.task_export import OP, Note, Record, foreign, kept_in, told_of
from holdfast.kernel.tx import Tx
from holdfast.types import as_microseconds, as_time
from holdfast.types.tasks import LinkKind, TaskStatus

_NAMES: Final = {"hint": "grimoire_hint", "created": "created_at", "assignee": "assigned_to"}


# --- differences -----------------------------------------------------------------------------------------------


class Changes(msgspec.Struct):
    """What a record changes in a task."""

    columns: dict[str, Any]
    more: dict[str, Any]
    parent: bool
    status: bool
    notes: list[Note]

    @property
    def fields(self) -> list[str]:
        """The names of the fields that differ."""
        columns = {_NAMES.get(name, name) for name in self.columns}
        rest = {"parent_id": self.parent, "status": self.status, "notes": bool(self.notes)}
        return sorted({*columns, *self.more, *(name for name, differs in rest.items() if differs)})


def differences(tx: Tx, task: Stored, record: Record) -> Changes:
    """What merging a record changes."""
    draft = record.draft
    wanted = {"title": draft.title, "type": draft.type, "priority": draft.priority, **record.extra}
    wanted["tags"] = stored_tags(draft.tags)
    if record.created is not None:
        wanted["created"] = record.created
    held = task.status == "in_progress"
    if held:
        wanted.pop("grimoire", None)  # it belongs to the claim
    else:
        wanted["deleted"] = record.deleted
    columns = {name: value for name, value in wanted.items() if getattr(task, name) != value}
    more: dict[str, Any] = {}
    if draft.body != task.body:
        more["body"] = (task.body, draft.body)
    if "tags" in columns:
        more["tags"] = (task.tag_list, draft.tags)
    if "refs" in columns:
        more["refs"] = tuple([] if refs is None else msgspec.json.decode(refs) for refs in (task.refs, columns["refs"]))
    if not held and ("deleted" in columns or _deleted_with(tx, task) != record.deleted_with):
        more["deleted"] = (task.deleted is not None, record.deleted is not None)
    for kind in KINDS:
        old = tuple(link_types.targets(tx, kind, task.id))
        if old != record.links[kind]:
            more[kind] = (old, record.links[kind])
    past = foreign(task.origin)
    if task.imported is not None and (origin := _origin(task, record, past)) and past != origin:
        more["origin"] = (past, origin)
    if record.result is not None and (result := told_of(tx, task.id)[1]) != record.result:
        more["result"] = (result, record.result)
    return Changes(
        columns,
        more,
        parent=task.parent_id != record.parent_id,
        status=not held and task.status != record.status,
        notes=_lacking(tx, task, record.notes),
    )


def _origin(task: Stored, record: Record, past: dict[str, str]) -> dict[str, str]:
    """What a record says of its past; a time that says when the task was changed here, as an export does, says none."""
    own = as_time(task.updated)
    return {name: each for name, each in record.origin.items() if name in past or not _is_time(each, own)}


def _is_time(text: str, at: datetime) -> bool:
    try:
        return datetime.fromisoformat(text) == at
    except ValueError:  # a name
        return False


def _lacking(tx: Tx, task: Stored, notes: list[Note]) -> list[Note]:
    """The notes that the task does not have yet; each of its notes matches once."""
    own = [(note.text, as_microseconds(note.at), note.by) for note in (told_of(tx, task.id)[0] if notes else ())]
    kept: dict[str, Any] = {}
    for text, _, _ in own:
        kept |= kept_in(text)
    found = []
    for note in notes:
        fields = kept_in(note.text) if note.at is None and note.by is None else {}
        if fields and all(name in kept and kept[name] == value for name, value in fields.items()):
            continue
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
    """The shortest path from one status to another by steps that exist, without the first."""
    ways: list[list[TaskStatus]] = [[source]]
    for way in ways:  # which grows
        if way[-1] == target:
            return way[1:]
        ways += [[*way, step.target] for step in STEPS if step.source == way[-1] and step.target not in way]
    raise AssertionError(f"no path from {source} to {target}")


# --- merging -----------------------------------------------------------------------------------------------


def merge(tx: Tx, seq: int, record: Record) -> Stored:
    """Make a task what its record says, except for the parent, which is set before."""
    task = by_seq(tx, seq)
    changes = differences(tx, task, record)
    columns, more, past = changes.columns, changes.more, foreign(task.origin)
    if "deleted" in more:
        columns["deletion"] = None if record.deleted is None else _deletion(tx, task, record)
    if changes.notes:
        task = _add_notes(tx, task, changes.notes, record.updated)
    for kind in KINDS:
        if kind in more:
            _relink(tx, task, kind, *more[kind])
    texts = {"title": columns["title"]} if "title" in columns else {}
    if "body" in more:
        texts["body"] = record.draft.body
    if "refs" in more:
        texts["refs"] = text_of(more["refs"][1])
    if texts:
        write_texts(tx, seq, **texts)
    task = by_seq(tx, seq)  # the links have changed it
    if changes.status:
        *between, columns["status"] = route(task.status, record.status)
        for status in between:
            task = change(tx, task, OP, {"status": status}, updated=record.updated)
    if not columns and not more and record.updated not in (None, task.updated):  # changed in the file and changed back
        more["updated_at"] = tuple(as_time(time).isoformat() for time in (task.updated, record.updated or 0))
    if columns or more:
        task = change(tx, task, OP, columns, more=more, updated=record.updated)
    if record.deferred is not None and record.deferred > tx.now and task.status in WAITING and task.deleted is None:
        task = by_seq(tx, seq)
        if task.deferred != record.deferred:
            set_deferral(tx, task, record.deferred, OP, record.updated)
    known = {"imported_by": str(tx.actor), **(record.origin or past)}
    tx.run(
        "UPDATE tasks SET imported = ?, origin = ? WHERE seq = ?", (tx.now, msgspec.json.encode(known).decode(), seq)
    )
    return by_seq(tx, seq)


def _deletion(tx: Tx, task: Stored, record: Record) -> int:
    """The number of the task that this one was deleted with; its own if that task is not here."""
    row = tx.one("SELECT seq FROM tasks WHERE id = ?", (record.deleted_with,))
    return task.seq if row is None else row[0]


def _deleted_with(tx: Tx, task: Stored) -> str | None:
    row = tx.one("SELECT id FROM tasks WHERE seq = ?", (task.deletion,))
    return None if row is None else row[0]


def _add_notes(tx: Tx, task: Stored, notes: list[Note], updated: int | None) -> Stored:
    """Append notes for history and search; the event of a foreign one has its author and time as data."""
    row = tx.one("SELECT notes FROM task_texts WHERE seq = ?", (task.seq,))
    assert row is not None
    write_texts(tx, task.seq, notes="\n".join(text for text in (row[0], *(note.text for note in notes)) if text))
    for note in notes:
        at = None if note.at is None else as_time(note.at).isoformat()
        more = {"author": (None, {"by": note.by, "at": at})} if note.foreign else None
        task = change(tx, task, OP, {}, more=more, note=note.text, updated=updated)
    return task


def _relink(tx: Tx, task: Stored, kind: LinkKind, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Remove and create links, and count the tasks that this one waits for."""
    for targets, put, by in (({*old} - {*new}, link_types.remove, -1), ({*new} - {*old}, link_types.add, 1)):
        for target in sorted(targets):
            put(tx, kind, task.id, target)
            if kind == DEPENDS_ON and not require(tx, target, deleted=True).finished:
                adjust(tx, task.seq, waits=by)


_LIVE_BELOW = "SELECT c.id FROM tasks c JOIN tasks t ON t.seq = c.parent WHERE t.id = ? AND c.deleted IS NULL"


class Plan:
    """The records to merge, in the order of the file, and the tasks as they were before the import."""

    def __init__(self, tx: Tx, found: Import, skip_bad: bool, expect: Set[str] = frozenset()) -> None:
        self.records: dict[str, Record] = {}
        self._tx = tx
        self._found = found
        self._skip_bad = skip_bad
        self._expect = expect
        self._excused: set[str | None] = set()  # bad records, which are no fault of those that name them
        self._tasks: dict[str, Stored | None] = {}
        self._named_by: dict[str, list[str]] = {}

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

    def fit(self) -> None:
        """Refuse the records that do not fit."""
        if not self._skip_bad:
            self._excused = {problem.id for problem in self._found.bad}
        for record in self.records.values():
            for name in _names(record):
                self._named_by.setdefault(name, []).append(record.id)
        self._sift([*self.records])
        while self._break_cycles(self._waits_for) or self._break_cycles(self._is_under):
            pass  # a refused record leaves its task as it was, which may close another cycle

    def downwards(self) -> list[str]:
        """The ids with parents before their children, so that no task is moved below one that moves later."""
        depths: dict[str, int] = {}
        for id in self.records:
            path = [id]
            while path[-1] not in depths and (above := [*self._is_under(path[-1])]):
                path += above
            top = depths.setdefault(path[-1], 0)
            for down, at in enumerate(reversed(path)):
                depths[at] = top + down
        return sorted(self.records, key=depths.__getitem__)

    # --- each record with what it names ------------------------------------------------------------------------------

    def _sift(self, ids: list[str]) -> None:
        """Refuse those of the records that do not fit, then those that relied on them."""
        for id in ids:  # which grows
            record = self.records.get(id)
            problem = None if record is None else self._misfit(record)
            if record is not None and problem is not None:
                ids += self._refuse(record, problem)

    def _refuse(self, record: Record, message: str) -> list[str]:
        """Refuse a record; returns the ids to check again."""
        self._found.refuse(record.place, message)
        del self.records[record.id]
        if not self._skip_bad:
            self._excused.add(record.id)
        task = self.task(record.id)
        parent = [] if task is None or task.parent_id is None else [task.parent_id]
        return [*parent, *self._named_by.get(record.id, ())]

    def _misfit(self, record: Record) -> str | None:
        names = _names(record)
        if record.id in names:
            return "it names itself, as parent or in a link"
        unknown = [name for name in names if not self._is_known(name)]
        if unknown:
            return f"there is no task {', '.join(unknown)}, neither here nor among the records that can be imported"
        if self._is_deleted(record.id):
            rows = self._tx.all(f"{_LIVE_BELOW} ORDER BY c.seq", (record.id,))
            live = [id for (id,) in rows if not self._counts(id)]
            if live:
                return f"deleted in the file, but here live tasks are below it: {', '.join(live[:5])}"
        elif record.parent_id is not None and self._is_deleted(record.parent_id):
            return f"its parent {record.parent_id} is deleted"
        return None

    def _is_known(self, id: str) -> bool:
        return self._counts(id) or id in self._expect or self.task(id) is not None

    def _counts(self, id: str) -> bool:
        """Whether the import has a record of this id."""
        return id in self.records or id in self._excused

    def _is_deleted(self, id: str) -> bool:
        """Whether a task will be deleted; one that is held here will not."""
        task = self.task(id)
        if id in self.records and (task is None or task.holder is None):
            return self.records[id].deleted is not None
        return task is not None and task.deleted is not None

    # --- all records together ----------------------------------------------------------------------------------------

    def _waits_for(self, id: str) -> Iterable[str]:
        return (
            self.records[id].links[DEPENDS_ON] if id in self.records else link_types.targets(self._tx, DEPENDS_ON, id)
        )

    def _is_under(self, id: str) -> Iterable[str]:
        one = self.records.get(id) or self.task(id)
        return () if one is None or one.parent_id is None else (one.parent_id,)

    def _break_cycles(self, following: Callable[[str], Iterable[str]]) -> bool:
        """Refuse the last record of every cycle; returns whether there was one."""
        done: set[str] = set()
        before = len(self._found.bad)
        for start in [*self.records]:
            while path := _cycle(start, following, done):
                last = max((self.records[id] for id in path if id in self.records), key=lambda record: record.place)
                self._sift(self._refuse(last, f"it would close a cycle: {' -> '.join(path)}"))
        return len(self._found.bad) > before


def _names(record: Record) -> list[str]:
    """The tasks that a record names."""
    parent = [] if record.parent_id is None else [record.parent_id]
    return [*parent, *(target for targets in record.links.values() for target in targets)]


def _cycle(start: str, following: Callable[[str], Iterable[str]], done: set[str]) -> list[str] | None:
    """A path from `start` that reaches itself again; None if there is none, and then all it reaches is done."""
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
