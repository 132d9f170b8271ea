"""Tasks that travel with a repository: 10,000 written for the first time, and read with ten changes.

A call is what `holdfast share` does without the start of Python: the lines of the workspace, joined with those of the
file. Seconds of processor time, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import holdfast
from holdfast import Workspace
from holdfast.faces.cli.commands.transfer import all_lines, write_lines
from tests.bench.measure import Bench, Row

TASKS = 10_000
CHANGES = 10
BATCH = 1000


def run(bench: Bench) -> list[Row]:
    """Seconds of the first file, of the next one, of reading it with changes, and of a clone that reads all."""
    count = bench.count(TASKS, CHANGES)
    path = bench.folder / "holdfast.jsonl"
    with (
        holdfast.open(bench.folder / "one", actor="bench") as one,
        holdfast.open(bench.folder / "two", actor="bench") as two,
    ):
        _fill(one, count)
        first = _seconds(lambda: _write(one, path))
        cloned = _seconds(lambda: _read(two, path))
        _write(two, path)
        for task in two.tasks.list(limit=CHANGES):
            two.tasks.update(task.id, title="changed elsewhere")
        again = _seconds(lambda: _write(two, path))
        changed = _seconds(lambda: _read(one, path))
        assert len(one.tasks.search("elsewhere")) == CHANGES
    for what, seconds in (("first", first), ("next", again), ("read", changed), ("cloned", cloned)):
        bench.say(f"  {what:8} {seconds:6.2f} s")
    return [
        Row("share", f"write {TASKS:,} tasks for the first time", first, " s", at_most=1.0),
        Row("share", f"write {TASKS:,} tasks after {CHANGES} changes", again, " s", at_most=1.0),
        Row("share", f"read {TASKS:,} tasks with {CHANGES} changes", changed, " s", at_most=1.0),
        Row("share", f"read {TASKS:,} tasks into a new workspace", cloned, " s"),
    ]


def _fill(ws: Workspace, count: int) -> None:
    for start in range(0, count, BATCH):
        specs = [
            {"title": f"task {number}", "body": "What is to be done, in a few words. " * 5, "tags": ["a", "b"]}
            for number in range(start, min(start + BATCH, count))
        ]
        made = ws.tasks.bulk("create", tasks=specs).results
        for before, after in zip(made[::10], made[1::10], strict=False):
            ws.tasks.depend(after.id, before.id)


def _write(ws: Workspace, path: Path) -> None:
    ws.tasks.merge_shared()
    write_lines(str(path), all_lines(ws.tasks.shared_lines), replace=True)


def _read(ws: Workspace, path: Path) -> None:
    ws.tasks.merge_shared(path.read_text(encoding="utf-8").splitlines())


def _seconds(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
