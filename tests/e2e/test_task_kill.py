"""kill -9 in the middle of operations on hundreds of tasks: afterwards all of it is there, or nothing.

The process is killed at failpoints, between two statements of the operation, and between two writes to the disk, also
of those with which it commits. Then the store is sound, its search index is what the texts say, and the same call with
the same key brings it to where it would be had nobody been killed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import holdfast
from holdfast.kernel.store_files import FILE
from holdfast.testing.crowd import LONG
from tests.e2e.failpoint_worker import ROOT
from tests.e2e.task_kill_worker import LAST_WRITE, OPERATIONS, STATEMENT, WRITE, perform, prepare, watched
from tests.worlds.contents import contents

FAILPOINTS = ("batch.begin", "batch.ran", "batch.commit", "batch.committed")
PARTS = (0.05, 0.4, 0.75)  # of all statements, of the writes before COMMIT, and of those in it


class Outcome(NamedTuple):
    """What an operation makes of a workspace, without the ids that differ each time."""

    tasks: list[tuple[Any, ...]]
    ready: list[str]
    found: list[list[str]]
    events: Counter[tuple[Any, ...]]


def outcome(ws: holdfast.Workspace) -> Outcome:
    """As it is now."""
    tasks = ws.tasks.list(include_deleted=True, sort="created", limit=1000)
    titles = {task.id: task.title for task in tasks}
    assert tasks.cursor is None
    events = ws.events.list(kinds=["task"], limit=1000)
    while page := ws.events.list(kinds=["task"], after=events[-1].cursor, limit=1000):
        events += page
    return Outcome(
        sorted(
            (
                task.title,
                task.status,
                bool(task.deleted_at),
                titles.get(task.parent_id or ""),
                task.depth,
                task.tags,
                task.version,
            )
            for task in tasks
        ),
        sorted(task.title for task in ws.tasks.ready(limit=1000)),
        [
            sorted(hit.task.title for hit in ws.tasks.search(words, limit=100, include_deleted=True))
            for words in ("word7", "remember", "plan", "tree common1 word19*", "everything word8*")
        ],
        Counter((event.op, event.redacted) for event in events),
    )


def assert_sound(ws: holdfast.Workspace, folder: Path) -> None:
    """The store agrees with its log, and the search index with the texts."""
    assert ws.check().problems == []
    connection = apsw.Connection(str(folder / FILE))
    try:
        connection.execute("INSERT INTO tasks_fts (tasks_fts, rank) VALUES ('integrity-check', 1)")
    finally:
        connection.close()


def kill(folder: Path, operation: str, place: str, number: int) -> int:
    """Have a process killed; answers how large the write-ahead log is that it left."""
    command = [sys.executable, "-m", "tests.e2e.task_kill_worker", str(folder), operation, place, str(number)]
    assert subprocess.run(command, cwd=ROOT, timeout=LONG).returncode == -9
    return (folder / f"{FILE}-wal").stat().st_size


@pytest.mark.parametrize("operation", OPERATIONS)
def test_t12_t14_t19_an_operation_on_many_tasks_that_is_killed_is_there_whole_or_not_at_all(
    tmp_path: Path, operation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with holdfast.open(tmp_path / "start", actor="maker") as ws:
        prepare(ws)
        before = contents(ws)
    places, expected = undisturbed(tmp_path / "start", tmp_path / "whole", operation)
    strikes = [(place, 1) for place in FAILPOINTS]
    strikes += [(place, 1 + int(part * places[place])) for place in (STATEMENT, WRITE, LAST_WRITE) for part in PARTS]
    spilled = 0
    for place, number in strikes:
        folder = tmp_path / f"{place}-{number}"
        shutil.copytree(tmp_path / "start", folder)
        left = kill(folder, operation, place, number)
        spilled += place == STATEMENT and left > 0
        with holdfast.open(folder, actor="killed") as ws:
            if place == "batch.committed":
                assert outcome(ws) == expected
            else:
                assert contents(ws) == before
            assert_sound(ws, folder)
            perform(ws, operation)
            assert outcome(ws) == expected
            assert_sound(ws, folder)
    with capsys.disabled():
        print(
            f"\nkilled in {operation}: {len(strikes)} kills in {places[STATEMENT]} statements, {places[WRITE]} writes"
            f" before COMMIT and {places[LAST_WRITE]} in it; {spilled} of {len(PARTS)} between statements left pages"
            " on disk; nothing was half there"
        )
    assert spilled, "no page had reached the disk before COMMIT: the test has lost its point"


def undisturbed(start: Path, folder: Path, operation: str) -> tuple[Counter[str], Outcome]:
    """What the operation comes to if nobody is killed, and how often it passes each place on the way."""
    shutil.copytree(start, folder)
    reached: Counter[str] = Counter()
    with holdfast.open(folder, actor="judge") as ws:
        was = outcome(ws)
    with watched(folder, lambda place: reached.update([place])) as ws:
        perform(ws, operation)
        places = reached.copy()
        expected = outcome(ws)
        assert_sound(ws, folder)
    assert expected != was
    return places, expected
