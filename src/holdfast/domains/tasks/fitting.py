"""Whether the records of an import fit together, and with the tasks that are here.

Asked before anything is written: what a record names must exist, nothing live may lie under what is deleted, and
neither parents nor dependencies may run in a circle. A record that does not fit is refused. If it is to be left out,
those that named it do not fit either; if it refuses the whole import, only the causes are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.domains import links
from holdfast.domains.tasks.records import Record
from holdfast.domains.tasks.rows import DEPENDS_ON, Stored, by_seq
from holdfast.kernel.tx import Tx
from holdfast.types.tasks import ImportProblem

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
        return self.records[id].links[DEPENDS_ON] if id in self.records else links.targets(self._tx, DEPENDS_ON, id)

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
