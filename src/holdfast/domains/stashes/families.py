"""Which tasks go and come back with a trail, and so may be deleted or restored by an import only together with it.

A trail is abandoned or restored with all that belongs to it, or not at all. A file tells of that in two places: the
line of the trail, and those of its tasks. `Families` says for each line of a task whether it has to wait because its
trail is left alone, or may be followed although the task was made here, because nothing but its end differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast import errors
from holdfast.domains import links
from holdfast.domains.stashes.exporting import LinkLine, TrailLine
from holdfast.domains.stashes.putting import trail_here
from holdfast.domains.stashes.states import ABANDONED, taken
from holdfast.domains.tasks.exporting import line_of
from holdfast.domains.tasks.importing import parse
from holdfast.domains.tasks.rows import Stored, require
from holdfast.kernel.tx import Tx

_ENDING: Final = ("deleted_at", "deleted_with", "updated_at", "notes")  # what deleting and restoring change in a line


class Families:
    """The tasks of trails that a file changes: `left` are left alone, `moved` are followed."""

    def __init__(self, tx: Tx, tasks: Iterable[str], members: Iterable[LinkLine]) -> None:
        self._tx = tx
        self._lines: dict[str, dict[str, Any]] = {}
        for text in tasks:
            raw = _read(text)
            if isinstance(raw.get("id"), str):
                self._lines[raw["id"]] = raw
        self._members: dict[str, list[str]] = {}  # of each trail, there
        for link in members:
            self._members.setdefault(link.to_id, []).append(link.from_id)

    def of(self, id: str, line: TrailLine | None) -> set[str]:
        """The tasks whose end a trail decides, here or there; without a line that can be read, all that it has."""
        row = trail_here(self._tx, id)
        roots: set[str] = set()
        if line is not None and line.state == ABANDONED:
            roots |= {*line.tasks, *self._members.get(id, ())}
        if row is not None and (line is None or row[2] == ABANDONED):
            roots |= {*taken(self._tx, id, row[3]), *links.sources(self._tx, "belongs_to", id)}
        return {
            *roots,
            *(task for task, raw in self._lines.items() if raw.get("deleted_with") in roots),
            *(each for root in roots for each in self._deleted_with(root)),
        }

    def _deleted_with(self, root: str) -> list[str]:
        rows = self._tx.all("SELECT id FROM tasks WHERE deletion = (SELECT seq FROM tasks WHERE id = ?)", (root,))
        return [id for (id,) in rows]

    def ending(self, tasks: Iterable[str]) -> set[str]:
        """Those that a line would delete or bring back."""
        return {id for id in tasks if self._ends(id) is not None}

    def followed(self, tasks: Iterable[str]) -> set[str]:
        """Those of them that differ in nothing else, so that nothing done here is lost."""
        return {id for id in tasks if (task := self._ends(id)) is not None and self._same(task)}

    def id_of(self, text: str) -> str | None:
        """The task that a line is about."""
        found = _read(text).get("id")
        return found if isinstance(found, str) else None

    def known(self, id: str) -> bool:
        """Whether the file has a line of this task."""
        return id in self._lines

    def lives(self, id: str) -> bool:
        """Whether the file has the task, and not as a deleted one."""
        return id in self._lines and "deleted_at" not in self._lines[id]

    def _ends(self, id: str) -> Stored | None:
        if id not in self._lines or not self._tx.one("SELECT 1 FROM tasks WHERE id = ?", (id,)):
            return None
        task = require(self._tx, id, deleted=True)
        return task if (task.deleted is None) != self.lives(id) else None

    def _same(self, task: Stored) -> bool:
        ours, theirs = _read(line_of(self._tx, task)), self._lines[task.id]
        notes = theirs.get("notes", [])
        return _rest(ours) == _rest(theirs) and all(note in notes for note in ours.get("notes", []))


def _rest(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in _ENDING}


def _read(text: str) -> dict[str, Any]:
    try:
        return parse(text) or {}
    except errors.Invalid:  # which the import of tasks tells
        return {}
