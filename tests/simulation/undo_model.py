"""What an undo means, as plain Python, on top of the model of everything else (record 0059 and 0066).

Known are the transactions that the workload takes back: writes of cells, and steps of single tasks. Everything comes
from the list of all events; a transaction that took something back ends with an event of the kind `undo`.
"""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast.types import Event, Reverted, Undone
from tests.conformance.model_base import TaskRow
from tests.simulation.thread_model import ThreadModel

# The operations whose transactions are taken back, or refused.
UNDOABLE = (
    *("cells.set", "cells.cas", "cells.init", "cells.increment", "cells.delete", "cells.delete_run"),
    *("tasks.create", "tasks.update", "tasks.add_tags", "tasks.assign", "tasks.note", "undo"),
    *("tasks.claim", "tasks.claim_next", "tasks.complete"),
    *("tasks.release", "tasks.block", "tasks.park", "locks.acquire", "mail.send", "leases.create"),
)
_BACK = ("title", "body", "type", "priority", "grimoire", "grimoire_hint", "tags", "assigned_to")
Record = tuple[str, str, str]


class UndoModel(ThreadModel):
    """A workspace in which transactions are taken back."""

    compacted = 0

    def undo(self, revision: int, others: bool) -> Undone:
        if revision <= self.compacted:
            raise errors.Compacted()
        if self._is_undone(revision):
            raise errors.NotUndoable()
        found = [event for event in self.log() if event.revision == revision]
        completed = {event.id for event in found if event.op == "complete"}
        records: dict[Record, list[Event]] = {}
        for event in found:
            if event.kind in ("run", "undo") or self._goes_with(event, completed):
                continue
            if self._is_refused(event):
                raise errors.NotUndoable()
            records.setdefault((event.kind, event.scope, event.id), []).append(event)
        only_notes = all((event.kind, event.op) == ("task", "note") for those in records.values() for event in those)
        if not only_notes and any(self._has_changed(record, revision) for record in records):
            raise errors.Conflict()
        redo = self._is_undo(revision)
        done = {record: self._revert(record, those, revision) for record, those in self._in_order(records)}
        reverted = [Reverted(*key[::2], done[key], {}, key[1]) for key in records if done[key]]
        if not reverted:
            raise errors.NotUndoable()
        self.emit("undo", "", str(revision), "undo", {"redo": redo})
        return Undone(revision, self.revision + 1, reverted)

    # --- what can be taken back --------------------------------------------------------------------------------------

    def _goes_with(self, event: Event, completed: set[str]) -> bool:
        """The end of a lock of paths that was taken for a task."""
        if (event.kind, event.op) != ("path", "release"):
            return False
        taken = next(e for e in self.events if (e.kind, e.id, e.op) == ("path", event.id, "acquire"))
        return taken.data.get("task", [None, None])[1] in completed

    @staticmethod
    def _is_refused(event: Event) -> bool:
        if event.redacted or event.kind not in ("cell", "task"):
            return True
        was, now = event.data.get("claimed_by", (None, None))
        took = was is not None and event.op != "complete"
        return event.op == "park" or took or (now is not None and event.op != "claim")

    def _since(self, record: Record, revision: int) -> list[Event]:
        return [e for e in self.events if (e.kind, e.scope, e.id) == record and e.revision > revision]

    def _has_changed(self, record: Record, revision: int) -> bool:
        """Whether a record is not as it was after a revision: notes, ended claims and undone changes do not count."""
        ended: set[int] = set()  # the tokens of claims that came and went
        for event in reversed(self._since(record, revision)):
            taken = self._taken_back_by(event.revision)
            if self._is_undone(event.revision) or (taken is not None and taken > revision):
                continue
            was, now = event.data.get("token", (None, None))
            if event.kind == "task" and event.op in ("release", "expire") and was is not None:
                ended.add(was)
            elif event.kind != "task" or not (
                event.op == "note" or (event.op == "claim" and now in ended) or (event.op == "park" and ended)
            ):
                return True
        return False

    def _taken_back_by(self, revision: int) -> int | None:
        """What a transaction took back."""
        return next((int(e.id) for e in self.events if (e.kind, e.revision) == ("undo", revision)), None)

    def _is_undo(self, revision: int) -> bool:
        taken = self._taken_back_by(revision)
        return taken is not None and not self._is_undo(taken)

    def _is_undone(self, revision: int) -> bool:
        undos = [event.revision for event in self.events if (event.kind, event.id) == ("undo", str(revision))]
        return bool(undos) and not self._is_undone(undos[-1])

    # --- taking it back ----------------------------------------------------------------------------------------------

    def _in_order(self, records: dict[Record, list[Event]]) -> list[tuple[Record, list[Event]]]:
        return sorted(records.items(), key=lambda item: item[0][0] != "task")

    def _revert(self, record: Record, those: list[Event], revision: int) -> int:
        """Returns the version that it has now; 0 if nothing was changed."""
        kind, scope, id = record
        if kind == "task":
            return self._revert_task(self.state.tasks[id], those, revision)
        first = those[0].version
        before = [e for e in self.events if (e.kind, e.scope, e.id) == record and e.version < first]
        if before and "value" in before[-1].data:
            return self._keep(scope, id, before[-1].data["value"], "undo")
        return self._remove(scope, id, "undo") if (scope, id) in self.state.cells else 0

    def _revert_task(self, row: TaskRow, those: list[Event], revision: int) -> int:
        old: dict[str, Any] = {}
        new: dict[str, Any] = {}
        for event in those:
            for name, change in event.data.items():
                if isinstance(change, list) and len(change) == 2:
                    old.setdefault(name, change[0])
                    new[name] = change[1]
        back = {} if those[0].op == "create" else {name: value for name, value in old.items() if new[name] != value}
        if new.get("token") not in (None, row.token):  # a claim that has ended: its route stays
            back.pop("grimoire", None)
        goes = those[0].op == "create" or back.get("deleted") is True
        fields: dict[str, Any] = {name: value for name, value in back.items() if name in _BACK}
        if "tags" in fields:
            fields["tags"] = tuple(fields["tags"] or ())
        if row.deleted is not None and not goes and "deleted" not in back and those[0].op != "create":
            raise errors.Conflict()
        status = "open" if back.get("status") == "in_progress" else back.get("status")
        if status is None and row.claimed_by is not None and "token" in back:
            status = "open"
        more: dict[str, Any] = {"undoes": [None, revision]}
        if status is not None:
            fields["status"] = status
            if row.claimed_by is not None:
                fields |= {"claimed_by": None, "claimed": None, "token": None, "ttl": None, "parked": False}
                more |= {"forced": [False, True]} if row.claimed_by != self.actor else {}
        if goes and row.deleted is None:
            self._refuse_family(row, is_new=those[0].op == "create")
            fields |= {"deleted": self.now, "deletion": row.id}
        elif back.get("deleted") is False and row.deleted is not None:
            if row.parent_id is not None and self.state.tasks[row.parent_id].deleted is not None:
                raise errors.ParentNotFound(parent_id=row.parent_id)
            fields |= {"deleted": None, "deletion": None}
        if not {name for name, value in fields.items() if getattr(row, name) != value}:
            return 0
        if row.claimed_by is not None and status is not None:
            self._drop(self.lease_on(row.id))
        changed = self._change(row, "undo", more=more, **fields)
        if row.claimed_by is not None and status is not None:
            self._free_paths_of(row.id)
        return changed.version

    def _refuse_family(self, row: TaskRow, is_new: bool) -> None:
        children = [child.id for child in self._children(row.id)]
        waiting = [of for kind, of, on in self.state.links if (kind, on) == ("depends_on", row.id)]
        if children or (is_new and any(self.state.tasks[id].deleted is None for id in waiting)):
            raise errors.Conflict(children=children[:6])

    def _free_paths_of(self, id: str) -> None:
        """The end of a claim is that of the locks that were taken for it."""
        for lock in [lock for lock in self.state.paths.values() if lock.task == id]:
            self._free_path(lock, "release")
