"""A process that is killed in the middle of one large operation on tasks; what it does is also the parent's reference.

`python -m tests.e2e.task_kill_worker FOLDER OPERATION PLACE NUMBER`: the process kills itself when it has come to the
place for the NUMBER-th time. A place is a failpoint, or `statement` (before one begins), `write` (before SQLite writes
to a file) or `last write` (before it does so in COMMIT). SQLite has hardly any memory for changed pages, so that they
are on disk long before that.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import apsw

import holdfast
from holdfast.kernel import failpoints
from tests.e2e.faulty_vfs import Call, faulty_disk

ROOT_CELL = ("kill", "root")
KEY = "once"
PAGES = 20
NODES = 100
TREE = 200
CREATED = 300
STATEMENT, WRITE, LAST_WRITE = "statement", "write", "last write"
Reach = Callable[[str], None]


# --- the operations --------------------------------------------------------------------------------------------------


def prepare(ws: holdfast.Workspace) -> None:
    """A tree of tasks with texts, tags and dependencies inside and from outside; a template; bystanders."""

    def body(tx: holdfast.Transaction) -> None:
        ids = [tx.tasks.create("tree", "the root of all", type="epic").id]
        for number in range(1, TREE):
            parent = ids[(number - 1) // 3]
            task = tx.tasks.create(f"tree {number}", text(number), priority=number % 5, parent_id=parent, tags=["old"])
            ids.append(task.id)
            if number % 10 == 0:
                tx.tasks.depend(task.id, ids[number - 5])
            if number % 20 == 0:
                outside = tx.tasks.create(f"outside {number}", tags=["old", "outside"])
                tx.tasks.depend(outside.id, task.id)
                tx.tasks.note(task.id, f"remember {number}")
        tx.cells.set(*ROOT_CELL, ids[0])

    ws.transact(body)
    ws.tasks.set_template("plan", template(), {"what": None})


def text(number: int) -> str:
    """A body with words of its own among others."""
    return f"word{number} " + " ".join(f"common{number % other}" for other in range(2, 40))


def template() -> dict[str, Any]:
    """A root, ten branches and their leaves, each of which depends on the one before."""
    leaves = [
        {
            "title": f"leaf {n} of {{what}}",
            "body": text(n),
            "tags": ["new"],
            "key": f"leaf-{n}",
            "depends_on": [f"leaf-{n - 1}"] if n else [],
        }
        for n in range(NODES - 11)
    ]
    branches = [{"title": f"branch {n} of {{what}}", "children": leaves[n::10]} for n in range(10)]
    return {"title": "plan of {what}", "children": branches}


def create_in_bulk(ws: holdfast.Workspace) -> None:
    """Many tasks at once, all or nothing; every second one in the tree."""
    root = ws.cells.get(*ROOT_CELL).value
    specs: list[dict[str, Any]] = [
        {
            "title": f"bulk {n}",
            "body": text(n),
            "tags": ["new", f"part-{n % 7}"],
            "parent_id": root if n % 2 else None,
        }
        for n in range(CREATED)
    ]
    ws.tasks.bulk("create", tasks=specs, atomic=True)


OPERATIONS: dict[str, Callable[[holdfast.Workspace], object]] = {
    "bulk": create_in_bulk,
    "delete": lambda ws: ws.tasks.delete(ws.cells.get(*ROOT_CELL).value),
    "from_template": lambda ws: ws.tasks.from_template("plan", what="everything"),
    "purge": lambda ws: ws.tasks.purge(ws.cells.get(*ROOT_CELL).value),
}


def perform(ws: holdfast.Workspace, operation: str) -> None:
    """Do it under its key: repeated, it happens once."""
    OPERATIONS[operation](ws.using(key=KEY))


# --- the places ------------------------------------------------------------------------------------------------------


@contextmanager
def watched(folder: Path, reach: Reach) -> Iterator[holdfast.Workspace]:
    """The workspace, open; `reach` is told of every place that its operations come to."""
    with ExitStack() as stack:
        disk = stack.enter_context(faulty_disk())
        ws = stack.enter_context(holdfast.open(folder, actor="killed"))
        ws._engine.pulse.stop()  # nobody but the operation comes to a place
        writer = ws._engine.store.writer
        writer.pragma("cache_size", PAGES)

        place = WRITE

        def at_failpoint(name: str) -> None:
            nonlocal place
            if name == "batch.commit":
                place = LAST_WRITE
            reach(name)

        def wrote(call: Call) -> int:
            if call == "write":
                reach(place)
            return 0

        writer.trace_v2(apsw.SQLITE_TRACE_STMT, lambda _: reach(STATEMENT))
        failpoints.hook = at_failpoint
        disk.error = wrote  # type: ignore[method-assign]
        try:
            yield ws
        finally:
            writer.trace_v2(0)
            failpoints.hook = None


class Strike:
    """Kills the process, at a place."""

    def __init__(self, place: str, number: int) -> None:
        self._place, self._left = place, number

    def __call__(self, place: str) -> None:
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                # To this very thread: not one instruction more of it runs.
                signal.pthread_kill(threading.get_ident(), signal.SIGKILL)


def main() -> None:
    folder, operation, place, number = sys.argv[1:]
    with watched(Path(folder), Strike(place, int(number))) as ws:
        perform(ws, operation)


if __name__ == "__main__":
    main()
