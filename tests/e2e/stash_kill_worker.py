"""A process that is killed in the middle of the end of a trail, and what both sides agree on.

`python -m tests.e2e.stash_kill_worker FOLDER OPERATION PLACE NUMBER`: the process kills itself when it has come to the
place for the NUMBER-th time. Places are those of `task_kill_worker`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import holdfast
from tests.e2e.task_kill_worker import Strike, watched

TRAIL_CELL = ("kill", "trail")
KEY = "once"
TASKS = 60
STASHES = 60


def prepare(ws: holdfast.Workspace, operation: str) -> None:
    """A trail with tasks, some of them in a tree, and stashes with a history; and others that it does not concern."""

    def body(tx: holdfast.Transaction) -> None:
        trail = tx.trails.create("trail", "active").id
        tasks: list[str] = []
        for number in range(TASKS):
            parent = tasks[number // 2] if number % 3 == 0 and tasks else None
            tasks.append(tx.tasks.create(f"task {number}", "body " * 40, parent_id=parent, tags=["old"]).id)
            if number % 4:
                tx.trails.add(trail, tasks[-1])
        for number in range(STASHES):
            for scope in (trail, None):
                stash = tx.stashes.create(f"stash-{number}", "context", {"text": f"word{number} " * 40}, trail=scope)
                tx.stashes.set_value(stash.id, {"text": "again " * 40})
        tx.cells.set(*TRAIL_CELL, trail)

    ws.transact(body)
    if operation == "restore":
        ws.trails.abandon(trail_of(ws))


def trail_of(ws: holdfast.Workspace) -> str:
    """The trail that is to end."""
    return str(ws.cells.get(*TRAIL_CELL).value)


OPERATIONS: dict[str, Callable[[holdfast.Workspace], object]] = {
    "abandon": lambda ws: ws.trails.abandon(trail_of(ws), "enough"),
    "complete": lambda ws: ws.trails.complete(trail_of(ws)),
    "restore": lambda ws: ws.trails.restore(trail_of(ws)),
}


def perform(ws: holdfast.Workspace, operation: str) -> None:
    """Do it under its key: repeated, it happens once."""
    OPERATIONS[operation](ws.using(key=KEY))


def main() -> None:
    folder, operation, place, number = sys.argv[1:]
    with watched(Path(folder), Strike(place, int(number))) as ws:
        perform(ws, operation)


if __name__ == "__main__":
    main()
