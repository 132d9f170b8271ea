"""Somebody removes files of a store that processes have open: nothing acknowledged is lost, no token is given twice.

"Delete the -wal" is common advice for SQLite. A process that has the file open continues on what has no name any more,
and one that opens it later makes a new one: both would claim the same task with the same token. Each process here is a
real one, and does what it is told: `python -m tests.e2e.test_removed_files FOLDER NAME`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel import failpoints
from holdfast.kernel.store_files import FILE
from tests.logs.nodes import eventually

ROOT = Path(__file__).parents[2]
WAL, SHM = f"{FILE}-wal", f"{FILE}-shm"
PARTS = {"shm": [SHM], "wal": [WAL], "both": [WAL, SHM], "the file": [FILE], "all": [FILE, WAL, SHM]}
parts = pytest.mark.parametrize("part", PARTS)


class Agent:
    """The parent's end of a process that has the workspace open."""

    def __init__(self, folder: Path, name: str) -> None:
        command = [sys.executable, "-m", "tests.e2e.test_removed_files", str(folder), name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)

    def __call__(self, what: str, *args: Any) -> Any:
        """Have it do something: its result, or the code and text of the error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([what, *args]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        """Close the workspace and end, in the ordinary way."""
        self.process.communicate(timeout=180)
        assert self.process.returncode == 0

    def __enter__(self) -> Self:
        return self

    def kill(self) -> None:
        """End it by kill -9, unless it has ended."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()

    def __exit__(self, *_: object) -> None:
        self.kill()


def remove(folder: Path, part: str) -> None:
    for name in PARTS[part]:
        (folder / name).unlink()


@pytest.fixture
def folder(on_disk: Path) -> Path:
    with holdfast.open(on_disk / "store", actor="maker") as ws:
        for number in range(40):
            ws.tasks.create(f"task {number}")
    return on_disk / "store"


def acknowledged(agent: Agent, count: int) -> dict[str, int]:
    """What an agent claims, with the tokens."""
    return dict(agent("claim") for _ in range(count))


def missing(folder: Path, claims: dict[str, int]) -> dict[str, int]:
    """The claims that the store does not have."""
    with holdfast.open(folder, actor="auditor") as ws:
        assert ws.check().ok
        return {id: token for id, token in claims.items() if ws.tasks.get(id).token != token}


@parts
def test_whoever_opens_a_store_that_lost_a_file_under_another_is_refused(folder: Path, part: str) -> None:
    with Agent(folder, "first") as first:
        claims = acknowledged(first, 5)
        remove(folder, part)
        with Agent(folder, "second") as second:
            code, text = second("claim")
            assert code == "UNAVAILABLE"
            assert "somebody has removed " in text
            assert "end the processes that have it open in the ordinary way" in text
            assert "rm " not in text
        code, text = first("claim")
        assert code == "CLOSED"
        assert "was removed or replaced while the workspace was open" in text
        assert first("read")[0] == "CLOSED"
        first.end()
        if FILE not in PARTS[part]:
            assert not missing(folder, claims)


@pytest.mark.parametrize("part", ["shm", "wal", "both"])
def test_what_a_removed_log_held_is_saved_although_its_process_is_killed(folder: Path, part: str) -> None:
    with Agent(folder, "first") as first:
        claims = acknowledged(first, 5)
        remove(folder, part)
        # The pulse finds out by itself; reads are refused from then on.
        eventually(lambda: first("read")[0] == "CLOSED")
        eventually(lambda: not missing_in_file(folder, claims))
        first.kill()
    assert not missing(folder, claims)


def missing_in_file(folder: Path, claims: dict[str, int]) -> set[int]:
    """The tokens that the file alone does not have, looked at in a copy."""
    copy = folder.parent / "copy.db"
    shutil.copy(folder / FILE, copy)
    connection = apsw.Connection(str(copy))
    found = {token for (token,) in connection.execute("SELECT token FROM tasks")}
    connection.close()
    return set(claims.values()) - found


def test_processes_that_had_it_open_before_are_told_alike_and_lose_nothing(folder: Path) -> None:
    with Agent(folder, "first") as first, Agent(folder, "second") as second:
        claims = acknowledged(first, 3) | acknowledged(second, 3)
        remove(folder, "both")
        assert first("claim")[0] == "CLOSED"
        assert second("claim")[0] == "CLOSED"
        first.end()
        second.end()
    assert not missing(folder, claims)


def test_a_store_that_another_program_opened_after_its_log_was_removed_is_refused(folder: Path) -> None:
    with Agent(folder, "first") as first:
        acknowledged(first, 3)
        remove(folder, "both")
        foreign = apsw.Connection(str(folder / FILE))  # makes new files, as any SQLite shell does
        foreign.execute("SELECT count(*) FROM tasks").fetchall()
        assert (folder / WAL).exists()
        with Agent(folder, "second") as second:
            code, text = second("claim")
            assert code == "UNAVAILABLE"
            assert "replaced" in text
        assert first("claim")[0] == "CLOSED"
        foreign.close()


@pytest.mark.parametrize("part", ["shm", "wal", "both"])
def test_a_file_removed_within_a_commit_leaves_its_outcome_unknown(folder: Path, part: str) -> None:
    with holdfast.open(folder, actor="me") as ws:
        with removed_at("batch.commit", folder, part), pytest.raises(errors.OutcomeUnknown, match="removed"):
            ws.tasks.claim_next("me")
        with pytest.raises(errors.Closed, match="removed or replaced"):
            ws.tasks.claim_next("me")
    with holdfast.open(folder, actor="me") as ws:
        assert len(ws.tasks.list(claimed_by="me")) <= 1
        assert ws.check().ok


@contextmanager
def removed_at(place: str, folder: Path, part: str) -> Iterator[None]:
    def hook(name: str) -> None:
        if name == place:
            failpoints.hook = None
            remove(folder, part)

    failpoints.hook = hook
    try:
        yield
    finally:
        failpoints.hook = None


def test_tokens_grow_over_a_removal(folder: Path) -> None:
    with Agent(folder, "first") as first:
        claims = acknowledged(first, 5)
        remove(folder, "wal")
        assert first("claim")[0] == "CLOSED"
        first.end()
    with Agent(folder, "second") as second:
        later = acknowledged(second, 5)
    assert min(later.values()) > max(claims.values())
    assert not set(later) & set(claims)


@pytest.mark.parametrize("move", ["replaced by a copy", "moved away"])
def test_a_store_that_is_moved_or_replaced_is_left_alone(folder: Path, move: str) -> None:
    with Agent(folder, "first") as first:
        claims = acknowledged(first, 3)
        if move == "moved away":
            folder.rename(folder.with_name("moved"))
        else:
            shutil.copy(folder / FILE, folder / "copy")
            (folder / "copy").rename(folder / FILE)
        assert first("claim")[0] == "CLOSED"
        if move == "moved away":
            assert not missing(folder.with_name("moved"), claims)
        else:
            with Agent(folder, "second") as second:
                assert second("claim")[0] == "UNAVAILABLE"


def test_a_folder_removed_under_an_open_workspace_is_named(folder: Path) -> None:
    with holdfast.open(folder, actor="me") as ws:
        shutil.rmtree(folder)
        for call in (lambda: ws.tasks.claim_next("me"), lambda: ws.tasks.list()):
            with pytest.raises(errors.Closed, match=f"the folder {folder} was removed or replaced") as caught:
                call()
            assert "restore a backup" in caught.value.hint
    assert not folder.exists()


def test_commits_of_a_removed_log_whose_process_is_killed_at_once_are_missed(folder: Path) -> None:
    with Agent(folder, "first") as first:
        claims = acknowledged(first, 5)
        remove(folder, "both")
        first.kill()
    lost = ""
    try:
        assert not missing(folder, claims)  # it had saved them already
    except errors.Corrupt as error:
        lost = error.message
    assert not lost or "lacks commits that it acknowledged" in lost


@pytest.mark.parametrize("left", [[WAL], [SHM], [WAL, SHM]])
def test_a_store_that_was_removed_but_for_its_log_is_not_made_anew(folder: Path, left: list[str]) -> None:
    with Agent(folder, "first") as first:
        acknowledged(first, 3)
        first.kill()
    for name in {FILE, WAL, SHM}.difference(left):
        (folder / name).unlink()
    with pytest.raises(errors.Corrupt, match=f"{FILE} in .* is gone, but .* left: .*nothing is made") as caught:
        holdfast.open(folder, actor="me")
    assert "restore the latest backup into a new folder" in caught.value.hint
    assert [(folder / name).exists() for name in left] == [True] * len(left)


@pytest.mark.parametrize("left", [["commit.mark", "open.lock"], ["commit.mark"], ["open.lock"]])
def test_a_store_that_was_removed_after_a_clean_end_is_not_made_anew(folder: Path, left: list[str]) -> None:
    """SQLite has removed the other parts: what notes that a store was there is left. Its tokens would come again."""
    with holdfast.open(folder, actor="me") as ws:
        ws.locks.acquire("deploy", ttl=3600)
        ws.backup(folder.parent / "backup")
    (folder / FILE).unlink()
    for name in {"commit.mark", "open.lock"}.difference(left):
        (folder / name).unlink()
    for _ in range(2):
        with pytest.raises(
            errors.Corrupt, match=f"{FILE} in .* is gone, but {left[0]}.* left: .*nothing is made"
        ) as told:
            holdfast.open(folder, actor="me")
        assert "restore the latest backup into a new folder; to begin anew" in told.value.hint
    for other in (holdfast.upgrade, lambda at: holdfast.salvage(at, at / "saved")):
        with pytest.raises(errors.Corrupt, match="is gone, but"):
            other(folder)
    assert not (folder / FILE).exists()
    holdfast.restore(folder.parent / "backup", folder)  # whoever asks for it gets tokens that are higher than any
    with holdfast.open(folder, actor="me") as ws:
        assert ws.locks.list()[0].name == "deploy"
        assert ws.locks.acquire("other", ttl=3600).token > 10**9 * 4096


@pytest.mark.parametrize("size", [None, 0])
def test_what_a_half_made_first_start_left_is_no_store(tmp_path: Path, size: int | None) -> None:
    """Killed before the file was there, or before it had a page: nothing was acknowledged."""
    folder = tmp_path / "store"
    folder.mkdir()
    for name in (".gitignore", "gate.lock", "turn.lock", "open.lock", "commit.mark"):
        (folder / name).touch()
    (folder / "turn.lock").write_text("1 me 1".ljust(256))
    if size is not None:
        (folder / FILE).touch()
    with holdfast.open(folder, actor="me") as ws:
        assert ws.tasks.create("x").title == "x"


def test_files_that_sqlite_removes_and_makes_again_disturb_nobody(folder: Path) -> None:
    """The last connection of all removes them; a process that reopens its only connection makes them again."""
    with holdfast.open(folder, actor="me", vfs=None) as ws:
        first = ws.tasks.claim_next("me")
        assert first is not None
        store = ws._engine.store
        ws._engine.group.submit(lambda tx: None, "me")
        ws._engine.pulse.stop()
        ws._engine.hub.close()
        ws._engine._drain()
        store.reopen_writer()  # as after a failed commit
        assert not (folder / WAL).exists()
        with holdfast.open(folder, actor="other") as other:
            assert other.tasks.claim_next("other") is not None
            assert ws.tasks.get(first.id).claimed_by == "me"
            assert ws.tasks.claim_next("me") is not None
        assert ws.tasks.claim_next("me") is not None


def test_many_that_open_and_close_at_once_are_never_refused(folder: Path) -> None:
    """The last one removes the files while the next one opens them."""
    code = (
        "import sys, holdfast\n"
        "for number in range(40):\n"
        "    with holdfast.open(sys.argv[1], actor=sys.argv[2]) as ws:\n"
        "        ws.cells.increment('run', 'count')\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder), f"agent-{number}"], stderr=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    assert [process.communicate()[1] for process in running] == [""] * len(running)
    with holdfast.open(folder, actor="me") as ws:
        assert ws.cells.get("run", "count").value == 40 * len(running)


# --- in the process --------------------------------------------------------------------------------------------------


def main() -> None:
    folder, name = sys.argv[1:]
    ws: holdfast.Workspace | None = None
    for line in sys.stdin:
        what, *args = json.loads(line)
        try:
            ws = ws or holdfast.open(folder, actor=name)
            doing: dict[str, Callable[..., Any]] = {"claim": claim, "read": read}
            print(json.dumps(doing[what](ws, *args)), flush=True)
        except errors.HoldfastError as error:
            print(json.dumps([error.code, str(error)]), flush=True)
    if ws is not None:
        ws.close()


def claim(ws: holdfast.Workspace) -> tuple[str, int | None]:
    task = ws.tasks.claim_next(ws.actor)
    assert task is not None
    return task.id, task.token


def read(ws: holdfast.Workspace) -> tuple[str, int]:
    return "ok", ws.revision


if __name__ == "__main__":
    main()
