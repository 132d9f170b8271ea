"""`holdfast share` (issue 25): the file at the root of a worktree, its hook, and who reads it."""

from __future__ import annotations

import json
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
    said = " ".join(first.out.split())
    assert said.startswith("what becomes public with the repository: tasks with their titles, bodies, tags")
    assert "never claims, tokens, cells, mail or locks; notes and names of authors only if asked for" in said
    assert "next: holdfast setup git; git add holdfast.jsonl .gitattributes; git commit" in said
    assert max(map(len, (line for line in first.out.splitlines() if str(project) not in line))) <= 80
    assert (project / ".gitattributes").read_bytes() == b"* text=auto\nholdfast.jsonl merge=union\n"
    again = made("share", "on", "--notes", "--authors")
    assert "becomes public" not in again.out
    assert "notes and results and names of authors become public too, also those from before" in again.out
    assert "become public" not in made("share", "on", "--notes").out
    assert (project / ".gitattributes").read_text().count("union") == 1
    assert "sharing    on, with notes and authors" in made("share", "status").out
    assert made("share", "off").code == 0
    assert made("share", "--staged").code == 0
    assert made("share").code != 0


def test_notes_and_names_can_be_kept_back_again(shared: Cli, project: Path) -> None:
    id = shared("list", "-q").out.split()[0]
    shared("note", id, "the first note")
    assert shared("share", "on", "--notes", "--authors").code == 0
    back = shared("share", "on", "--no-notes", "--no-authors")
    assert "no new notes and results and names of authors become public;\nwhat was shared stays" in back.out
    shared("note", id, "the second note")
    shared("assign", id, "bob")
    assert shared("share").code == 0
    assert "the first note" in (project / FILE).read_text()
    assert "the second note" not in (project / FILE).read_text()
    assert "bob" not in (project / FILE).read_text()
    assert shared("share", "status").out.splitlines()[0] == "sharing    on"
    assert "become public;" not in shared("share", "on", "--no-notes").out
    assert shared("share", "on", "--notes", "--no-notes").code == 2
    assert shared("share", "on", "--notes").code == 0
    assert "the second note" in (project / FILE).read_text()


def test_what_is_done_already_is_not_what_comes_next(shared: Cli, project: Path) -> None:
    assert "next: holdfast setup git\n" in shared("share", "on").out
    assert shared("setup", "git").code == 0
    assert "next:" not in shared("share", "on").out
    shared("create", "A third")
    assert "next: git add holdfast.jsonl .gitattributes; git commit" in shared("share", "on").out


def test_a_call_that_is_refused_makes_no_workspace(shared: Cli, tmp_path: Path) -> None:
    for words in (("share",), ("share", "off")):
        refused = shared(*words, "--dir", str(tmp_path / "nowhere"))
        assert refused.code == 10
        assert not (tmp_path / "nowhere").exists()


def test_a_link_that_is_left_out_is_named_with_the_reason(shared: Cli, project: Path) -> None:
    first, second = reversed(shared("list", "-q").out.split())
    lines = (project / FILE).read_text().splitlines()
    kept = next(line for line in lines if '"depends_on"' in line)
    (gone,) = json.loads(kept)["depends_on"]
    child, parent = json.loads(kept)["id"], gone.partition("~")[0]
    assert {first, second} == {child, parent}
    (project / FILE).write_text(kept.replace(child, "hf-other").replace(parent, "hf-none") + "\n")
    assert shared("share").code == 0
    assert "left out   hf-other: its dependency hf-none is not here\n" in shared("share", "status").out


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


@pytest.mark.parametrize("claims", [True, False])
def test_the_good_lines_of_a_damaged_file_reach_a_new_clone_which_can_mend_it(
    shared: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, claims: bool
) -> None:
    with (project / FILE).open("a") as file:
        file.write("damaged\n")
    commit(project)
    folder = clone(project, monkeypatch)
    if claims:
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


def test_an_import_of_beads_leaves_out_what_was_deleted_there(made: Cli, project: Path) -> None:
    folder = project / ".beads"
    folder.mkdir()
    lines = [f'{{"id": "bd-{number}", "title": "issue {number}"}}\n' for number in range(3)]
    (folder / "issues.jsonl").write_text("".join(lines))
    (folder / "deletions.jsonl").write_text('{"id": "bd-1", "by": "zed"}\n')
    for name in (".beads", ".beads/issues.jsonl"):
        report = made("import", name).out
        assert "line 2 (bd-1): warning: deleted in beads: not imported" in report
    assert sorted(made("list", "-q").out.split()) == ["bd-0", "bd-2"]
    (folder / "deletions.jsonl").write_text("{\n")
    assert "line 1 of the deletions of beads cannot be read" in made("import", ".beads").err


def test_a_named_pipe_is_no_file_to_import(made: Cli, project: Path, shell: Shell) -> None:
    os.mkfifo(project / "pipe")
    refused = shell("import", "pipe")
    assert (refused.code, "is not a regular file" in refused.err) == (1, True)


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


def test_a_deletion_arrives_and_does_not_come_back(shared: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = (project / FILE).read_bytes()
    there = clone(project, monkeypatch)
    shared("init")
    monkeypatch.chdir(project)
    id = shared("list", "-q").out.split()[0]
    shared("delete", id)
    shared("share")
    commit(project)
    monkeypatch.chdir(there)
    git(there, "pull", "-q")
    assert "tasks: 1 deleted" in shared("prime", "--actor", "ada").err
    (there / FILE).write_bytes(old)  # a branch from before
    shared("share", "on")
    assert shared("list", "-q").out.split() != []
    assert id not in shared("list", "-q").out
    assert (there / FILE).read_bytes() == (project / FILE).read_bytes()
    late = project.parent / "late"
    git(project.parent, "clone", "-q", str(project), str(late))
    monkeypatch.chdir(late)
    assert "tasks: 1 created\n" in shared("init").err  # what is deleted is none that was made
    assert id not in shared("list", "-q").out


@pytest.mark.parametrize("command", [("share",), ("share", "on"), ("next", "--actor", "ada")])
def test_a_named_pipe_in_the_place_of_the_file_stops_nobody(
    shared: Cli, project: Path, shell: Shell, command: tuple[str, ...]
) -> None:
    (project / FILE).unlink()
    os.mkfifo(project / FILE)
    answer = shell(*command)
    assert (answer.code == 0) == (command[0] == "next")
    assert "is not a regular file" in answer.err
    assert "move it out of the way" in answer.err


def test_a_rule_for_git_is_added_at_once_or_not_at_all(
    made: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(project, "init", "-q")
    rules = project / ".gitattributes"
    rules.write_bytes(b"* text=auto\r\n*.png binary")
    rules.chmod(0o640)
    written = os.stat(rules).st_ino

    replace = os.replace

    def full(old: Path, new: Path) -> None:
        if Path(new).name == rules.name:
            raise OSError(28, "No space left on device", str(new))
        replace(old, new)

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", full)
        assert "cannot be written" in made("share", "on").err
    assert (rules.read_bytes(), os.stat(rules).st_ino) == (b"* text=auto\r\n*.png binary", written)
    assert made("share", "on").code == 0
    assert rules.read_bytes() == b"* text=auto\r\n*.png binary\nholdfast.jsonl merge=union\n"
    assert (os.stat(rules).st_ino != written, os.stat(rules).st_mode & 0o777) == (True, 0o640)
    assert sorted(each.name for each in project.glob(".git*")) == [".git", ".gitattributes"]


@pytest.fixture
def hooked(shared: Cli, project: Path, shell: Shell) -> Callable[..., None]:
    """Git in a project with the hook, which has a task more than the file, and code that is not committed yet."""
    assert shared("setup", "git", "--lenient").code == 0
    shared("create", "A third")
    (project / "code").write_text("x\n")
    (project / "other").write_text("x\n")

    def run(*words: str) -> None:
        who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        command, env = ["git", *who, *words], shell.environ
        done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr

    return run


def in_head(project: Path) -> list[str]:
    """The files of the newest commit."""
    return git(project, "show", "--name-only", "--format=", "HEAD").split()


@pytest.mark.parametrize("how", [("add", "code"), ("add", "-A")])
def test_the_hook_adds_the_file_to_each_commit(
    hooked: Callable[..., None], project: Path, how: tuple[str, ...]
) -> None:
    hooked(*how)
    hooked("commit", "-q", "-m", "x")
    assert git(project, "show", f"HEAD:{FILE}").count("\n") == 3
    assert git(project, "status", "--porcelain", "--untracked-files=no") == ""


def test_a_commit_of_all_changes_takes_the_file_along(hooked: Callable[..., None], project: Path, shared: Cli) -> None:
    hooked("add", "code")
    hooked("commit", "-q", "-m", "x")
    (project / "code").write_text("y\n")
    shared("create", "A fourth")
    hooked("commit", "-q", "-a", "-m", "y")
    assert in_head(project) == ["code", FILE]
    assert git(project, "status", "--porcelain", "--untracked-files=no") == ""


def test_a_commit_of_chosen_files_has_those_alone(hooked: Callable[..., None], project: Path) -> None:
    before = (project / FILE).read_bytes()
    hooked("add", "code", "other")
    hooked("commit", "-q", "-m", "x", "code")
    assert in_head(project) == ["code"]
    assert git(project, "status", "--porcelain") == "A  other\n"
    assert (project / FILE).read_bytes() == before
    hooked("commit", "-q", "-m", "y")
    assert in_head(project) == [FILE, "other"]


def test_a_branch_without_the_file_stays_without(hooked: Callable[..., None], project: Path) -> None:
    hooked("checkout", "-q", "--orphan", "pages")
    hooked("rm", "-r", "-q", "-f", ".")
    (project / "page").write_text("x\n")
    hooked("add", "page")
    hooked("commit", "-q", "-m", "x")
    assert in_head(project) == ["page"]
    assert not (project / FILE).exists()
    hooked("checkout", "-q", "main")
    assert len((project / FILE).read_text().splitlines()) == 2
