"""The laws of path locks as plain Python, on top of the model of tasks.

What a pattern covers is not worked out: a table says it, for the few patterns and paths that are used. Two patterns
meet if they cover a path in common, so the table has one for each pair that does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.types import as_time
from holdfast.types.agents import PathLock
from holdfast.types.tasks import Task, TaskStatus
from tests.conformance.model_base import LeaseRow, PathRow, TaskRow
from tests.conformance.task_model import TaskModel

PATHS = ("src/a.py", "src/b.py", "src/api/a.py", "src/api/c.md", "docs/a.py", "docs/b.md")
COVERS: dict[str, frozenset[str]] = {
    "src": frozenset({"src/a.py", "src/b.py", "src/api/a.py", "src/api/c.md"}),
    "src/api": frozenset({"src/api/a.py", "src/api/c.md"}),
    "src/*.py": frozenset({"src/a.py", "src/b.py"}),
    "docs/**": frozenset({"docs/a.py", "docs/b.md"}),
    "**/a.py": frozenset({"src/a.py", "src/api/a.py", "docs/a.py"}),
}


class PathModel(TaskModel):
    """A workspace with tasks and path locks as its users imagine it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.next_paths: deque[str] = deque()  # ids are random: the store chooses

    # --- as seen -----------------------------------------------------------------------------------------------------

    def _ends(self, row: PathRow) -> int | None:
        """When it ends by itself, at the latest with the claim on its task."""
        leases = (row.lease, self.lease_on(row.task) if row.task is not None else None)
        return min((lease.deadline for lease in leases if lease is not None), default=None)

    def _live(self) -> list[PathRow]:
        """Those that neither their own time nor that of the claim has ended, though they may not have been swept."""
        ends = ((row, self._ends(row)) for row in self.state.paths.values())
        return [row for row, end in ends if end is None or end > self.time()]

    def shown_path(self, row: PathRow) -> PathLock:
        """A lock as its readers see it."""
        ends = self._ends(row)
        return PathLock(
            id=row.id,
            patterns=row.patterns,
            holder=row.holder,
            token=row.token,
            shared=row.shared,
            task=row.task,
            reason=row.reason,
            acquired_at=as_time(row.acquired),
            expires_at=None if ends is None else as_time(ends),
        )

    def _refusal(self, row: PathRow, mine: str) -> errors.Held:
        ends = self._ends(row)
        until = None if ends is None else as_time(ends)
        return errors.Held(holder=row.holder, until=until, lock=row.id, pattern=mine, shared=row.shared, task=row.task)

    def paths_check(self, path: str, actor: str) -> PathLock | None:
        """One's own lock, None if nobody has one, or the refusal by the oldest."""
        covering = [row for row in self._live() if any(path in COVERS[pattern] for pattern in row.patterns)]
        mine = [row for row in covering if row.holder == actor]
        if covering and not mine:
            raise self._refusal(covering[0], path)
        return self.shown_path(mine[0]) if mine else None

    # --- taking ------------------------------------------------------------------------------------------------------

    def paths_lock(
        self,
        patterns: Sequence[str],
        holder: str,
        ttl: float | None = None,
        shared: bool = False,
        task: str | None = None,
        reason: str | None = None,
    ) -> PathLock:
        if task is not None:
            self._own_claim(self._task(task), holder, None, None)
        elif ttl is None:
            ttl = 3600.0  # the setting path_lock_timeout
        wanted = tuple(sorted({*patterns}))
        for row in self.state.paths.values():
            if (row.holder, row.patterns, row.shared, row.task) == (holder, wanted, shared, task):
                self._run_on(row, ttl)
                return self.shown_path(row)
        for row in self.state.paths.values():
            mine = next((one for one in wanted if any(COVERS[one] & COVERS[other] for other in row.patterns)), None)
            if row.holder != holder and not (row.shared and shared) and mine is not None:
                raise self._refusal(row, mine)
        token = (self.revision + 1) * 4096 + self._grants
        self._grants += 1
        id = self.next_paths.popleft() if self.next_paths else "of a refusal"
        lease = None if ttl is None else self._start(ttl, holder)
        row = PathRow(id, wanted, holder, token, shared, task, reason, self.now, lease)
        self.state.paths[id] = row
        told = {"holder": holder, "token": token, "patterns": wanted, "shared": shared, "task": task, "reason": reason}
        self.emit("path", "", id, "acquire", {name: [None, value] for name, value in told.items()})
        return self.shown_path(row)

    def _run_on(self, row: PathRow, ttl: float | None) -> None:
        """The later end wins, and that of the claim is the latest."""
        if ttl is None:
            self._drop(row.lease)
            row.lease = None
        elif row.lease is not None and self.now + round(ttl * 1e6) > row.lease.deadline:
            row.lease.ttl = round(ttl * 1e6)
            row.lease.deadline = self.now + row.lease.ttl

    # --- keeping and giving back -------------------------------------------------------------------------------------

    def _own_path(self, id: str, holder: str, token: int | None) -> PathRow:
        row = self.state.paths.get(id)
        if row is None:
            raise errors.Fenced(current=None)
        if token is not None and token != row.token:
            raise errors.Fenced(current=row.token)
        if row.holder != holder:
            raise errors.NotHolder(holder=row.holder)
        return row

    def paths_refresh(self, id: str, holder: str, ttl: float | None = None, token: int | None = None) -> PathLock:
        row = self.state.paths.get(id)
        if row is not None and row.lease is None and row.task is not None:
            raise errors.Invalid()
        row = self._own_path(id, holder, token)
        if row.lease is not None:
            row.lease.ttl = row.lease.ttl if ttl is None else round(ttl * 1e6)
            row.lease.deadline = self.now + row.lease.ttl
        elif ttl is not None:
            row.lease = self._start(ttl, holder)
        return self.shown_path(row)

    def paths_release(
        self,
        id: str | None = None,
        task: str | None = None,
        holder: str | None = None,
        token: int | None = None,
        force: bool = False,
    ) -> int:
        if id is None:
            return self._release_paths(task, holder, force)
        if id not in self.state.paths and token is None:
            return 0
        row = self.state.paths[id] if force else self._own_path(id, holder or self.actor, token)
        self._free_path(row, "release", forced=force)
        return 1

    def _release_paths(self, task: str | None, holder: str | None, force: bool) -> int:
        """Those of the holder, those of them for a task, or by force those for a task whoever holds them."""
        if task is not None:
            self._task(task, deleted=True)
        anybody = force and holder is None and task is not None
        gone = [
            row
            for row in self.state.paths.values()
            if task in (None, row.task) and (anybody or row.holder == (holder or self.actor))
        ]
        for row in gone:
            self._free_path(row, "release", forced=force)
        return len(gone)

    def _free_path(self, row: PathRow, op: str, forced: bool = False) -> None:
        del self.state.paths[row.id]
        self._drop(row.lease)
        told = {"holder": [row.holder, None], "token": [row.token, None]}
        self.emit("path", "", row.id, op, told | ({"forced": [False, True]} if forced else {}))

    # --- what ends them ----------------------------------------------------------------------------------------------

    def _let_go(self, row: TaskRow, op: str, target: TaskStatus, note: str | None = None, **more: object) -> Task:
        """The claim's end is that of the locks taken for it."""
        task = super()._let_go(row, op, target, note, **more)
        for lock in [lock for lock in self.state.paths.values() if lock.task == row.id]:
            self._free_path(lock, "expire" if op == "expire" else "release")
        return task

    def _finish(self, lease: LeaseRow, op: str) -> None:
        if lease not in self.state.leases:
            return  # its lock has ended with a claim, in the same sweep
        for row in [row for row in self.state.paths.values() if row.lease is lease]:
            row.lease = None
            self._free_path(row, op)
        super()._finish(lease, op)
