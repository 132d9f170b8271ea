"""Where a workspace can only be read (issue 22): reads work in every state of its files, writes raise ReadOnly.

The reader is a process that obeys the modes of files, also as root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import ManualClock
from tests.amounts import amount

READER = [sys.executable, "-m", "tests.unit.read_only_worker"]
UNABLE = "root cannot give up a capability here"
KILLED = """
import os, sys, holdfast
ws = holdfast.open(sys.argv[1], actor="killed")
ws.tasks.create("killed")
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A workspace with a task that is ready, and one whose claim has expired but has not been swept."""
    path = tmp_path / "workspace"
    with holdfast.open(path, actor="a", clock=ManualClock()) as ws:  # years ago
        ws.tasks.create("ready")
        ws.tasks.claim(ws.tasks.create("due").id, ttl=60)
    yield path
    for each in tmp_path.iterdir():
        each.chmod(0o700)


def copied(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder, folder.with_name(name)))


def locked_up(folder: Path) -> Path:
    for path in folder.iterdir():
        path.chmod(0o400)
    folder.chmod(0o500)
    return folder


def look(*folders: Path) -> list[Any]:
    done = subprocess.run([*READER, *map(str, folders)], capture_output=True, text=True, timeout=300)
    if UNABLE in done.stderr:
        pytest.skip(UNABLE)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_i22_reads_work_in_every_state_of_the_files_and_writes_are_refused(folder: Path) -> None:
    """Closed by all, left by a killed process, the same without the index, and open elsewhere."""
    killed = copied(folder, "killed")
    assert subprocess.run([sys.executable, "-c", KILLED, str(killed)]).returncode == -9
    assert (killed / "holdfast.db-wal").stat().st_size
    bare = copied(killed, "bare")
    (bare / "holdfast.db-shm").unlink()
    live = copied(folder, "live")
    with holdfast.open(live, actor="b") as ws:
        ws.tasks.create("live")
        states = {"workspace": folder, "killed": killed, "bare": bare, "live": live}
        found = dict(zip(states, look(*map(locked_up, states.values())), strict=True))
    more = {"workspace": [], "killed": ["killed"], "bare": ["killed"], "live": ["live"]}
    for name, seen in found.items():
        titles = {"ready", "due", *more[name]}
        assert ({*seen["list"]}, {*seen["ready"]}) == (titles, titles), f"{name}: the expired claim is left out"
        assert seen["get"] in titles
        assert seen["check"] == [], name
        assert seen["refused"] == ["READ_ONLY"] * 4, name
        assert ({*seen["aio"][0]}, seen["aio"][1]) == (titles, "READ_ONLY"), name
    assert not (folder / "holdfast.db-wal").exists(), "it left nothing"


def test_i22_a_log_that_lost_commits_is_corrupt_for_a_reader_too(folder: Path) -> None:
    killed = copied(folder, "killed")
    assert subprocess.run([sys.executable, "-c", KILLED, str(killed)]).returncode == -9
    (killed / "holdfast.db-wal").unlink()
    (killed / "holdfast.db-shm").unlink()
    done = subprocess.run([*READER, str(locked_up(killed))], capture_output=True, text=True, timeout=300)
    if UNABLE in done.stderr:
        pytest.skip(UNABLE)
    assert "the store lacks commits that it acknowledged" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes where others may only read")
def test_i22_a_reader_without_locks_never_sees_half_of_a_commit(folder: Path) -> None:
    folder.chmod(0o500)
    reader = subprocess.Popen([*READER, "follow", str(folder)], stderr=subprocess.PIPE, text=True)
    try:
        for number in range(amount(20, 500)):
            with holdfast.open(folder, actor="b") as ws:
                ws.transact(lambda tx, n=number: [tx.tasks.create(f"{n} {part}") for part in "ab"])  # type: ignore[misc]
            if reader.poll() is not None:
                break
        with holdfast.open(folder, actor="b") as ws:
            ws.transact(lambda tx: [tx.tasks.create("end"), tx.tasks.create("end")])
        _, said = reader.communicate(timeout=300)
    finally:
        reader.kill()
    if UNABLE in said:
        pytest.skip(UNABLE)
    assert reader.returncode == 0, said
