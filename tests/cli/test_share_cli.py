"""`holdfast share` (issue 25): the file at the root of a worktree, its hook, and who reads it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.calling import PATIENCE, Answer, Shell

Cli = Callable[..., Answer]
FILE = "holdfast.jsonl"
# `holdfast share`, killed where it replaces the file, or where it commits what it has read.
KILLED = """
import os, signal, sys
from holdfast.faces.cli import main
from holdfast.kernel import failpoints
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "file":
    replace = os.replace
    os.replace = lambda old, new: die() if str(new).endswith(".jsonl") else replace(old, new)
else:
    failpoints.hook = lambda name: die() if name == "batch.commit" else None
main(["share"])
"""


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def shared(made: Cli, project: Path) -> Cli:
    """A project that shares two tasks, which are committed."""
    git(project, "init", "-q")
    first = made("create", "Write the lexer", "the body", "-q").id
    made("create", "Test the lexer", "--depends-on", first)
    assert made("share", "on").code == 0
    commit(project)
    return made


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")


def clone(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project.parent / "clone"
    git(project.parent, "clone", "-q", str(project), str(folder))
    monkeypatch.chdir(folder)
    return folder


def test_the_first_use_says_what_becomes_public(made: Cli, project: Path) -> None:
    refused = made("share")
    assert "needs a git worktree" in refused.err
    git(project, "init", "-q")
    (project / ".gitattributes").write_bytes(b"* text=auto")
    refused = made("share")
    assert (refused.code != 0, "holdfast share on" in refused.err) == (True, True)
    first = made("share", "on")
    assert first.out.startswith("what becomes public with the repository: tasks with their titles, bodies")
    assert "never claims, tokens, cells, mail or locks; notes and names of authors only if asked for" in first.out
    assert (project / ".gitattributes").read_bytes() == b"* text=auto\nholdfast.jsonl merge=union\n"
    again = made("share", "on", "--notes", "--authors")
    assert "becomes public" not in again.out
    assert (project / ".gitattributes").read_text().count("union") == 1
    assert "sharing    on, with notes and authors" in made("share", "status").out
    assert made("share", "off").code == 0
    assert made("share", "--staged").code == 0
    assert made("share").code != 0


def test_the_first_call_in_a_clone_claims_a_task(shared: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = clone(project, monkeypatch)
    claimed = shared("next", "--actor", "ada")
    assert claimed.code == 0
    assert "Write the lexer" in claimed.out
    assert f"made a workspace in {there / '.holdfast'}" in claimed.err
    assert "tasks: 2 created" in claimed.err
    again = shared("next", "--actor", "ada")
    assert (again.code, "created" in again.err) == (4, False)
    assert "not decided: files are read, and none is written" in shared("share", "status").out


@pytest.mark.parametrize("command", ["init", "prime", "next"])
def test_init_next_and_prime_read_what_is_new(
    shared: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    there = clone(project, monkeypatch)
    shared("init")
    monkeypatch.chdir(project)
    shared("create", "A third")
    shared("share")
    commit(project)
    monkeypatch.chdir(there)
    git(there, "pull", "-q")
    told = shared(command, "--actor", "ada") if command != "init" else shared("init")
    assert told.code == 0
    assert "tasks: 1 created" in told.err
    assert "created" not in shared("prime", "--actor", "ada").err


def test_a_workspace_elsewhere_reads_no_file_by_itself(
    shared: Cli, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone(project, monkeypatch)
    other = tmp_path / "other"
    assert shared("init", "--dir", str(other)).code == 0
    assert shared("next", "--actor", "ada", "--dir", str(other)).code == 4


def test_linked_worktrees_have_a_file_each_and_one_workspace(
    shared: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = project.parent / "linked"
    git(project, "worktree", "add", "-q", str(linked))
    shared("create", "A third")
    monkeypatch.chdir(linked)
    assert len((linked / FILE).read_text().splitlines()) == 2
    assert "3 lines in" in shared("share").out
    assert len((linked / FILE).read_text().splitlines()) == 3
    assert len((project / FILE).read_text().splitlines()) == 2
    assert not (linked / ".holdfast").exists()


def test_a_damaged_file_stops_nobody_and_is_not_written_over(shared: Cli, project: Path) -> None:
    good = (project / FILE).read_text()
    damaged = f'{good}{{"format": "holdfast.sh\n'.encode() + b"\xff\n"
    (project / FILE).write_bytes(damaged)
    claimed = shared("next", "--actor", "ada")
    assert claimed.code == 0
    assert "could not be read; line 3: error: invalid JSON" in claimed.err
    assert "holdfast share --skip-bad" in claimed.err
    assert shared("share").code != 0
    assert (project / FILE).read_bytes() == damaged
    assert shared("share", "--skip-bad").code == 0
    assert (project / FILE).read_text() == good


def test_the_good_lines_of_a_damaged_file_reach_a_new_clone_which_can_mend_it(
    shared: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (project / FILE).open("a") as file:
        file.write("damaged\n")
    commit(project)
    folder = clone(project, monkeypatch)
    claimed = shared("next", "--actor", "ada")
    assert claimed.code == 0
    assert "holdfast share on --skip-bad" in claimed.err
    assert shared("share", "on").code != 0
    assert shared("share", "on", "--skip-bad").code == 0
    assert "damaged" not in (folder / FILE).read_text()


def test_a_line_of_a_newer_program_is_never_dropped(shared: Cli, project: Path) -> None:
    text = (project / FILE).read_text() + '{"format": "holdfast.shared/2", "id": "hf-new"}\n'
    (project / FILE).write_text(text)
    assert shared("next", "--actor", "ada").code == 0
    for words in (("share",), ("share", "--skip-bad")):
        refused = shared(*words)
        assert refused.code != 0
        assert "lines of a newer Holdfast" in refused.err
    assert (project / FILE).read_text() == text


def test_a_conflict_is_resolved_by_writing_the_file(shared: Cli, project: Path) -> None:
    good = (project / FILE).read_text().splitlines()
    text = "\n".join(["<<<<<<< HEAD", *good, "=======", good[0], ">>>>>>> branch", ""])
    (project / FILE).write_text(text)
    assert shared("share").code == 0
    assert (project / FILE).read_text().splitlines() == good
    written = os.stat(project / FILE)
    assert shared("share").code == 0
    assert os.stat(project / FILE) == written  # what is the same is not written again


def test_show_names_the_younger_task_that_had_the_id(made: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = '{"format": "holdfast.task/1", "id": "hf-1", "title": "%s", "created_at": "2026-01-0%dT00:00:00Z"}\n'
    git(project, "init", "-q")
    made("import", "-", stdin=line % ("younger", 2))
    made("share", "on")
    commit(project)
    there = clone(project, monkeypatch)
    (there / FILE).unlink()
    made("init")
    made("import", "-", stdin=line % ("older", 1))
    git(there, "checkout", "-q", FILE)
    assert "1 created" in made("prime", "--actor", "ada").err
    shown = made("show", "hf-1").out
    assert "older" in shown
    assert "had this id too, and is younger" in shown


def test_purge_says_that_git_keeps_what_it_had(shared: Cli) -> None:
    id = shared("list", "-q").out.split()[0]
    assert "git keeps what was committed of it" in shared("purge", id, "--yes").err


@pytest.mark.parametrize("where", ["file", "store"])
def test_a_call_that_is_killed_leaves_the_file_whole(shared: Cli, project: Path, shell: Shell, where: str) -> None:
    before = (project / FILE).read_bytes()
    shared("create", "A third")
    process = subprocess.run([sys.executable, "-c", KILLED, where], cwd=project, env=shell.environ, timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert (project / FILE).read_bytes() == before
    assert shared("share").code == 0
    assert len((project / FILE).read_text().splitlines()) == 3
    assert [each.name for each in project.glob("*.partial")] == []
    assert "0 problems" not in shared("doctor").err


def test_the_hook_adds_the_file_to_each_commit(shared: Cli, project: Path, shell: Shell) -> None:
    assert shared("setup", "git", "--lenient").code == 0
    shared("create", "A third")
    (project / "code").write_text("x\n")
    git(project, "add", "code")
    who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    done = subprocess.run(
        ["git", *who, "commit", "-q", "-m", "x"],
        cwd=project,
        env=shell.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert git(project, "show", f"HEAD:{FILE}").count("\n") == 3
    assert git(project, "status", "--porcelain") == ""
