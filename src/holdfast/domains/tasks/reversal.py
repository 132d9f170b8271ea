"""Taking back what one transaction did to tasks: the part of `undo` that knows what a task is made of.

A task gets back what the transaction replaced, as one change with the next version, so its counters, what depends on it
and the tags of ready tasks follow as after any other change. Claims never come back: what was in progress is open
again, and nobody holds it. Tasks are changed from the top of the tree as it was down, so no step closes a circle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import link_types
from holdfast.domains.tasks import creation, details, rows
from holdfast.domains.tasks.tree import KINDS, move
from holdfast.kernel import leases
from holdfast.kernel.tx import SYSTEM, Tx
from holdfast.types import Event, as_microseconds, as_time

UNDO: Final = "undo"
_SHOWN: Final = {name for name in rows.HISTORY if name not in ("token", "tags")}
# A plain field of the history, and its column.
_COLUMNS: Final = {
    **{name: name for name in ("title", "type", "priority", "grimoire")},
    **{"grimoire_hint": "hint", "assigned_to": "assignee"},
}
_OTHER: Final = ("body", "tags", "refs", "status", "token", "deleted", "parent_id", "deferred_until")
Link = tuple[str, str | None, str | None]  # a kind, and its target before and after
_LIVE_BELOW: Final = "SELECT id FROM tasks WHERE parent = ? AND deleted IS NULL ORDER BY seq LIMIT 6"


def refusal_of(event: Event, imported: int | None) -> str:
    """Why what an event says of a task cannot be taken back; empty if it can. `imported` is when the task last was."""
    was, now = event.data.get("claimed_by", (None, None))
    match event.op:
        case "purge":
            return "what was purged is gone"
        case "expire" | "due":
            return "its time had come"
        case "park":
            return "it changed a hold"
        case "import":
            return "an import is many transactions"
        case "rename":
            return "an older task has that id now"
        case "create" if imported is not None and as_time(imported) == event.time:
            return "an import is many transactions"
    if was is not None and event.op != "complete":
        return "it ended a hold"
    return "it granted a hold" if now is not None and event.op != "claim" else ""


def is_passing(event: Event, ended: set[int]) -> bool:
    """Whether an event changed nothing of a task that is still changed: a note, an id, a claim that has ended.

    Called for the newest event first; `ended` are the tokens of such claims, which this adds to.
    """
    was, now = event.data.get("token", (None, None))
    match event.op:
        case "release" | "expire" if was is not None:
            ended.add(was)
            return True
        case "claim":
            return now in ended
        case "park":
            return bool(ended)
    return event.op in ("note", "rename")


class Past:
    """What one transaction did to a task, by its events in order: what it replaced, and by what."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.is_new = self.has_note = False
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        self.links: dict[tuple[Any, str], bool] = {}  # whether there was one

    def add(self, event: Event) -> None:
        """Take in the next event."""
        self.is_new |= event.op == "create"
        self.has_note |= "note" in event.data
        for field, change in event.data.items():
            if field in KINDS:
                self.links.setdefault((field, change[0] or change[1]), change[0] is not None)
            elif field in _COLUMNS or field in _OTHER:
                self.before.setdefault(field, change[0])
                self.after[field] = change[1]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that it left with another value than before, with that."""
        if self.is_new:
            return {}
        return {field: old for field, old in self.before.items() if self.after[field] != old}

    @property
    def takes_away(self) -> bool:
        """Whether the task is deleted when this is taken back."""
        return self.is_new or self.fields.get("deleted") is True


class Reversal:
    """Takes back what one transaction did to some tasks."""

    def __init__(self, tx: Tx, revision: int, pasts: Sequence[Past]) -> None:
        self._tx = tx
        self._revision = revision
        self._pasts = {past.id: past for past in pasts}
        self._reopened: list[rows.Stored] = []
        self._closed: list[int] = []
        self.warnings: list[str] = []

    def run(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """Change every task; returns the version that each has now, and what changed. Raises Conflict."""
        order = sorted(self._pasts.values(), key=lambda past: self._depth(past.id))
        links: dict[str, list[Link]] = {past.id: [*self._remove_links(past)] for past in order}
        for past in order:  # once all that were added are gone
            links[past.id] += self._restore_links(past)
        found = {}
        for past in order:
            changes = self._revert(past, links[past.id])
            if changes:
                found[past.id] = rows.require(self._tx, past.id, deleted=True).version, changes
            if past.has_note:
                self.warnings.append(f"what was noted on {past.id} stays in its history")
        self._check_family()
        self._warn()
        return found

    # --- links and the tree ------------------------------------------------------------------------------------------

    def _remove_links(self, past: Past) -> Iterator[Link]:
        """Remove the links that were added; what is left of a transaction has no circle that it did not have."""
        for (kind, on), was_there in sorted(past.links.items()):
            if not was_there and link_types.remove(self._tx, kind, past.id, on):
                self._count(past.id, kind, on, -1)
                yield kind, on, None

    def _restore_links(self, past: Past) -> Iterator[Link]:
        for (kind, on), was_there in sorted(past.links.items()):
            if not was_there or link_types.find(self._tx, kind, past.id, on) is not None:
                continue
            rows.require(self._tx, on, deleted=True)
            path = link_types.path(self._tx, kind, on, past.id) if kind == rows.DEPENDS_ON else None
            if path is not None:
                message = (
                    f"the dependency of {past.id} on {on} would now close a circle: {' -> '.join([past.id, *path])}"
                )
                raise errors.WouldCreateCycle(message, hint="", id=past.id, path=[past.id, *path])
            link_types.add(self._tx, kind, past.id, on)
            self._count(past.id, kind, on, 1)
            yield kind, None, on

    def _count(self, id: str, kind: str, on: str, waits: int) -> None:
        if kind == rows.DEPENDS_ON and not rows.require(self._tx, on, deleted=True).finished:
            rows.adjust(self._tx, rows.require(self._tx, id, deleted=True).seq, waits=waits)

    def _depth(self, id: str) -> tuple[int, int]:
        """How deep a task is in the tree as it was, and its number. Raises WouldCreateCycle."""
        seq = rows.require(self._tx, id, deleted=True).seq
        path = [id]
        while (parent := self._parent_before(path[-1])) is not None:
            if parent in path:
                message = f"task {id} would now be below itself: {' -> '.join([*path, parent])}"
                raise errors.WouldCreateCycle(message, hint="", id=id, path=[*path, parent])
            path.append(parent)
        return len(path), seq

    def _parent_before(self, id: str) -> str | None:
        past = self._pasts.get(id)
        found: str | None = rows.require(self._tx, id, deleted=True).parent_id
        return found if past is None else past.fields.get("parent_id", found)

    # --- one task ----------------------------------------------------------------------------------------------------

    def _revert(self, past: Past, links: list[Link]) -> dict[str, Any]:
        """Give a task its former values in one change; returns field -> [old, new]."""
        task = rows.require(self._tx, past.id, deleted=True)
        fields = past.fields
        if past.after.get("token") not in (None, task.token):  # a claim that has ended: its route stays
            fields.pop("grimoire", None)
        if task.deleted is not None and not past.is_new and "deleted" not in fields:
            hint = f'restore it first: tasks.restore("{task.id}")'
            raise errors.Conflict(f"task {task.id} was deleted since", hint=hint, id=task.id)
        columns: dict[str, Any] = {}
        more = self._link_changes(task, links)
        task = rows.by_seq(self._tx, task.seq)
        self._restore_fields(task, fields, columns, more)
        self._restore_status(task, past, columns, more)
        self._restore_presence(task, past, columns, more)
        plain = self._defer(task, fields, columns, more)
        parent = fields.get("parent_id", task.parent_id)
        if not columns and not more and parent == task.parent_id:
            return {}
        shown = {rows.HISTORY[name]: [getattr(task, name), value] for name, value in columns.items() if name in _SHOWN}
        shown |= {field: list(change) for field, change in more.items()}
        self._write_texts(task, columns, more)
        more["undoes"] = (None, self._revision)
        if parent == task.parent_id:
            rows.change(self._tx, plain, UNDO, columns, more=more)
        else:
            shown["parent_id"] = [task.parent_id, parent]
            above = creation.require_parent(self._tx, parent)
            move(self._tx, plain, above, UNDO, columns=columns, more=more)
        if task.finished and not rows.by_seq(self._tx, task.seq).finished:
            self._reopened.append(task)
        return shown

    def _link_changes(self, task: rows.Stored, links: list[Link]) -> dict[str, Any]:
        """The links as an event says them: one of each kind; each other one gets an event of its own."""
        more: dict[str, Any] = {}
        for kind, old, new in links:
            if kind in more:
                task = rows.by_seq(self._tx, task.seq)
                rows.change(self._tx, task, UNDO, {}, more={kind: (old, new), "undoes": (None, self._revision)})
            else:
                more[kind] = (old, new)
        return more

    def _restore_fields(
        self, task: rows.Stored, fields: dict[str, Any], columns: dict[str, Any], more: dict[str, Any]
    ) -> None:
        for field, name in _COLUMNS.items():
            if field in fields and fields[field] != getattr(task, name):
                columns[name] = fields[field]
        if "body" in fields and (fields["body"] or "") != task.body:
            more["body"] = (task.body, fields["body"] or "")
        if "tags" in fields:
            tags = tuple(fields["tags"] or ())
            if tags != task.tag_list:
                columns["tags"], more["tags"] = creation.stored_tags(tags), (task.tag_list, tags)
        if "refs" in fields:
            refs, found = [(kind, value) for kind, value in fields["refs"] or ()], details.refs_in(task)
            if refs != found:
                columns["refs"], more["refs"] = details.stored_refs(refs), (found, refs)

    def _write_texts(self, task: rows.Stored, columns: dict[str, Any], more: dict[str, Any]) -> None:
        texts = {"title": columns["title"]} if "title" in columns else {}
        if "body" in more:
            texts["body"] = more["body"][1]
        if "refs" in more:
            texts["refs"] = details.text_of(more["refs"][1])
        if texts:
            rows.write_texts(self._tx, task.seq, **texts)

    def _restore_status(self, task: rows.Stored, past: Past, columns: dict[str, Any], more: dict[str, Any]) -> None:
        """Set the former status; instead of in progress a task becomes open, and whoever holds it loses it."""
        wanted = past.fields.get("status")
        if past.takes_away and task.active:
            wanted = "open"
        if wanted == "in_progress" or (wanted is None and task.holder is not None and "token" in past.fields):
            wanted = "open"
        if wanted is None:
            return
        if wanted == "closed" and task.status != "closed":
            self._closed.append(task.seq)
        if wanted != task.status:
            columns["status"] = wanted
        if task.holder is not None:
            leases.drop(self._tx, task.record, rows.TASK)
            columns |= rows.NO_CLAIM
            if task.holder != self._tx.actor:
                more["forced"] = (False, True)
                self.warnings.append(f"{task.holder} held {task.id}, and no longer does")

    def _restore_presence(self, task: rows.Stored, past: Past, columns: dict[str, Any], more: dict[str, Any]) -> None:
        """Delete what was created or restored, restore what was deleted."""
        if past.takes_away:
            if task.deleted is None:
                columns |= {"deleted": self._tx.now, "deletion": self._deletion(task)}
                more["deleted"] = (False, True)
        elif past.fields.get("deleted") is False and task.deleted is not None:
            if task.parent is not None and rows.by_seq(self._tx, task.parent).deleted is not None:
                message, hint = f"the parent of {task.id} is deleted", f'tasks.restore("{task.parent_id}") restores it'
                raise errors.ParentNotFound(message, hint=hint, id=task.id, parent_id=task.parent_id)
            columns |= {"deleted": None, "deletion": None}
            more["deleted"] = (True, False)

    def _deletion(self, task: rows.Stored) -> int:
        """The highest task above one that goes with it: `restore` brings them back together."""
        top = task
        while top.parent is not None and (above := self._pasts.get(top.parent_id or "")) and above.takes_away:
            top = rows.by_seq(self._tx, top.parent)
        return top.seq

    def _defer(
        self, task: rows.Stored, fields: dict[str, Any], columns: dict[str, Any], more: dict[str, Any]
    ) -> rows.Stored:
        """Set the timer of a deferral to what it was, if that is still to come; returns the task to change."""
        if "deferred_until" not in fields or columns.get("status", task.status) not in rows.WAITING:
            return task  # whatever ends the wait of a task ends its deferral
        if columns.get("deleted", task.deleted) is not None:
            return task
        former = fields["deferred_until"]
        deadline = None if former is None else as_microseconds(datetime.fromisoformat(former))
        if deadline is not None and deadline <= self._tx.now:
            self.warnings.append(f"{task.id} was deferred until {former}, which has passed")
            deadline = None
        if deadline == task.deferred:
            return task
        leases.drop(self._tx, rows.deferral(task), rows.DEFER)
        if deadline is not None:
            leases.start_as(self._tx, rows.deferral(task), rows.DEFER, SYSTEM, deadline - self._tx.now)
        columns["waits"] = task.waits - (task.deferred is not None) + (deadline is not None)
        more["deferred_until"] = tuple(
            None if at is None else as_time(at).isoformat() for at in (task.deferred, deadline)
        )
        return msgspec.structs.replace(task, deferred=None)  # so that the change does not end it once more

    # --- all together ------------------------------------------------------------------------------------------------

    def _check_family(self) -> None:
        """Raise Conflict if a task that was taken away has children, or a new one has tasks that wait for it."""
        for past in self._pasts.values():
            task = rows.require(self._tx, past.id, deleted=True)
            if not past.takes_away or task.deleted is None:
                continue
            children = [id for (id,) in self._tx.all(_LIVE_BELOW, (task.seq,))]
            waiting = [
                id
                for id in link_types.sources(self._tx, rows.DEPENDS_ON, task.id)
                if past.is_new and rows.require(self._tx, id, deleted=True).deleted is None
            ]
            for what, ids in (("has children", children), ("is one that others depend on", waiting)):
                if ids:
                    message = f"task {task.id} {what}: {', '.join(ids[:5])}"
                    hint = "undo what made them, or move them elsewhere, first"
                    raise errors.Conflict(message, hint=hint, id=task.id, children=children, dependents=waiting)

    def _warn(self) -> None:
        """Warn of tasks that were claimed meanwhile, and of parents that end before their children."""
        for seq in self._closed:
            if open_below := rows.awaited_children(self._tx, seq, True):
                shown = ", ".join(open_below[:5])
                self.warnings.append(f"{rows.by_seq(self._tx, seq).id} is closed, and its children {shown} are not")
        for task in self._reopened:
            for id in link_types.sources(self._tx, rows.DEPENDS_ON, task.id):
                other = rows.require(self._tx, id, deleted=True)
                if other.holder is not None and id not in self._pasts:
                    self.warnings.append(f"{id} depends on {task.id}; {other.holder} holds it, and keeps its claim")
            self.warnings += rows.warned(self._tx, rows.by_seq(self._tx, task.seq)).warnings
