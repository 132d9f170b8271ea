"""Rolling backups outside the tree (issue 7): what `git clean` takes, `restore` brings back."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli.commands import store as rolling
from tests.cli.calling import Answer, Shell

Cli = Callable[..., Answer]
BOUND = 180  # seconds until something that should happen is taken for lost


@pytest.fixture
def rolled(shell: Shell, repository: Path) -> Shell:
    """Calls in a project in git that has a workspace, with rolling backups."""
    on = Shell(shell.folder, {name: value for name, value in shell.environ.items() if name != "HOLDFAST_ROLLING"})
    assert on("init").code == 0
    return on


def backups(shell: Shell) -> list[str]:
    """The backups that there are, oldest first."""
    return [each["file"] for each in shell("backup", "--list", "--json").data]


def titles(backup: str, folder: Path) -> set[str]:
    """The titles of the tasks in a backup."""
    target = folder / f"look-{os.path.basename(backup)}"
    if not target.exists():
        holdfast.restore(backup, target)
    with holdfast.open(target, actor="reader") as workspace:
        return {task.title for task in workspace.tasks.list()}


def until(happened: Callable[[], bool], what: str) -> None:
    """Look again and again until it has happened, for a bounded time."""
    end = time.monotonic() + BOUND
    while not happened():
        assert time.monotonic() < end, f"{what} did not happen in {BOUND} s"
        time.sleep(0.05)


def copied(shell: Shell, *wanted: str) -> None:
    """Wait until the newest backup has these tasks."""

    def happened() -> bool:
        found = backups(shell)
        return bool(found) and set(wanted) <= titles(found[-1], shell.folder.parent)

    until(happened, f"a backup with {wanted}")


# --- git clean ---------------------------------------------------------------------------------------------------


def test_what_git_clean_takes_restore_brings_back(rolled: Shell, repository: Path) -> None:
    parent = rolled("create", "parent", "--tag", "t", "-q").id
    rolled("create", "child", "--parent", parent)
    rolled("next", "--actor", "a")
    rolled("cell", "set", "r", "c", '{"deep": [1]}')
    rolled("agent", "register", "bob")
    rolled("mail", "send", "bob", "subject", "body", "--actor", "a")
    rolled("lock", "acquire", "deploy", "--actor", "a")
    before = {line: rolled(*line.split()).out for line in ("export", "cell get r c", "mail inbox --actor bob -q")}
    revision = int(json.loads(rolled("event", "list", "--json").out)["data"][-1]["revision"])
    until(lambda: any(b"deploy" in Path(file).read_bytes() for file in backups(rolled)), "a backup of the last write")

    rolled.git("clean", "-fdxq")
    assert not (repository / ".holdfast").exists()
    lost = rolled("list")
    assert lost.code == 10, "not an empty list"
    assert "holdfast restore" in lost.err

    answer = rolled("restore", "latest", "--json")
    assert answer.code == 0, answer.err
    assert answer.data["revision"] > revision + 10**9, "the revision leaps, so that no old token or cursor is good"
    assert {line: rolled(*line.split()).out for line in before} == before
    assert rolled("doctor", "--actor", "a").code == 0
    assert rolled.git("status", "--porcelain") == ""


@pytest.mark.parametrize("left", [True, False], ids=["emptied", "gone"])
def test_a_copy_that_comes_too_late_makes_no_workspace_where_one_was_removed(
    made: Cli, project: Path, left: bool
) -> None:
    store = project / ".holdfast"
    for part in store.glob("holdfast.db*"):
        part.unlink()
    if not left:
        shutil.rmtree(store)
    answer = made("backup", "--rolling", "--dir", str(store))
    refused = errors.Corrupt if left else errors.NotFound
    assert answer.code == refused.exit_code, "this process was started by a write, before the removal"
    assert list(store.glob("holdfast.db*")) == []
    assert store.exists() == left


def test_the_last_write_is_copied_too_however_soon_it_came_after_a_copy(rolled: Shell) -> None:
    rolled("create", "first")
    copied(rolled, "first")
    rolled("create", "second")  # while the copying process may still be there, and nothing is due again yet
    copied(rolled, "first", "second")


def test_cleaning_a_linked_worktree_takes_nothing(rolled: Shell, tmp_path: Path) -> None:
    rolled.git("worktree", "add", "-q", str(tmp_path / "beside"))
    beside = rolled.at(tmp_path / "beside")
    task = beside("create", "x", "-q").id
    beside.git("clean", "-fdxq")
    assert beside("list", "-q").id == task
    copied(beside, "x")
    assert backups(beside) == backups(rolled), "all worktrees have the same backups"


def test_a_call_does_not_wait_for_its_copy_and_leaves_no_open_pipe(rolled: Shell) -> None:
    answer = rolled("create", "x", timeout=BOUND)  # it would hang here if the copying process had its output
    assert (answer.code, answer.err) == (0, "")
    copied(rolled, "x")


# --- when --------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores that a copying process was started for; none is started."""
    stores: list[str] = []
    monkeypatch.setattr(rolling, "start_copying", lambda store, environ: stores.append(store))
    monkeypatch.setattr(rolling, "PAUSE", 0.01)
    return stores


def test_a_write_asks_for_a_copy_and_a_read_does_not(cli: Cli, repository: Path, asked: list[str]) -> None:
    store = str(repository / ".holdfast")
    assert cli("init", HOLDFAST_ROLLING="1").code == 0
    for line in ("list", "where", "ready", "next --actor a", "cell exists r c", "prime", "doctor"):
        cli(*line.split(), HOLDFAST_ROLLING="1")
    assert asked == []
    for line in ("create x", "next --actor a", "cell set r c 1", "lock acquire l --actor a", "import -"):
        assert cli(*line.split(), HOLDFAST_ROLLING="1").code == 0, line
        assert asked == [store], line
        asked.clear()
    assert cli("import", "-", "--dry-run", HOLDFAST_ROLLING="1").code == 0
    assert cli("show", "hf-0000", HOLDFAST_ROLLING="1").code == 10
    assert cli("claim", "hf-0000", "--actor", "a", HOLDFAST_ROLLING="1").code == 10
    assert asked == [], "what changed nothing needs no copy"


def test_rolling_can_be_turned_off(cli: Cli, repository: Path, asked: list[str]) -> None:
    cli("init")
    cli("create", "x", HOLDFAST_ROLLING="0")
    assert asked == []


def test_outside_git_no_copies_are_made(made: Cli, asked: list[str]) -> None:
    made("create", "x", HOLDFAST_ROLLING="1")
    assert asked == []


def test_only_one_process_copies_at_a_time(cli: Cli, repository: Path, asked: list[str]) -> None:
    cli("init")
    cli("create", "x")
    store = str(repository / ".holdfast")
    folder = Path(rolling.folder_of(store, os.environ))
    folder.mkdir(parents=True)
    with open(folder / "copying", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert rolling.roll(store, os.environ) is None
        cli("create", "y", HOLDFAST_ROLLING="1")
    assert rolling.backups_of(store, os.environ) == []
    assert rolling.roll(store, os.environ) in rolling.backups_of(store, os.environ)


def test_nothing_new_is_not_copied_again(cli: Cli, repository: Path, asked: list[str]) -> None:
    cli("init")
    cli("create", "x")
    store = str(repository / ".holdfast")
    assert rolling.roll(store, os.environ) is not None
    assert rolling.roll(store, os.environ) is None
    cli("create", "y")
    assert rolling.roll(store, os.environ) is not None
    assert len(rolling.backups_of(store, os.environ)) == 2


def test_the_newest_stay_and_the_last_of_each_day_for_a_week(project: Path) -> None:
    store = str(project / ".holdfast")
    folder = Path(rolling.folder_of(store, os.environ))
    folder.mkdir(parents=True)
    names = [f"202603{day:02}T{hour:02}0000.000000.backup" for day in range(1, 15) for hour in (8, 12, 16)]
    names += [f"20260320T{minute:02}0000.000000.backup" for minute in range(20)]
    for name in names:
        (folder / name).write_text("")
    (folder / "mine.txt").write_text("not ours")
    rolling.keep(store, os.environ)
    kept = sorted(path.name for path in folder.iterdir())
    assert "mine.txt" in kept
    kept.remove("mine.txt")
    assert kept == sorted([*names[-10:], *(f"202603{day:02}T160000.000000.backup" for day in range(9, 15))])


def test_backups_are_for_their_owner_alone(cli: Cli, repository: Path, asked: list[str]) -> None:
    cli("init")
    cli("create", "x")
    store = str(repository / ".holdfast")
    copy = rolling.roll(store, os.environ)
    assert copy is not None
    assert os.stat(copy).st_mode & 0o077 == 0
    assert not Path(copy).is_relative_to(repository)


# --- before what cannot be undone --------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["purge", "import", "compact"])
def test_a_snapshot_is_taken_before_what_cannot_be_undone(made: Cli, project: Path, tmp_path: Path, what: str) -> None:
    task = made("create", "precious", "-q").id
    made("delete", task)
    made("create", "other")
    line = {"purge": f"purge {task} --yes", "import": "import -", "compact": "event compact 3 --yes"}[what]
    new = made("export").out.replace("other", "new") if what == "import" else ""
    answer = made(*line.split(), "--prefer", "theirs", stdin=new) if new else made(*line.split())
    assert answer.code == 0, answer.err
    (copy,) = rolling.backups_of(str(project / ".holdfast"), os.environ)
    assert titles(copy, tmp_path) == {"other"}
    assert made("restore", copy, "--dir", str(tmp_path / "again")).code == 0
    assert made("undelete", task, "--dir", str(tmp_path / "again")).code == 0
    found = made("list", "--json", "--dir", str(tmp_path / "again")).data
    assert {each["title"] for each in found} == {"precious", "other"}


def test_an_import_that_is_only_tried_takes_none(made: Cli, project: Path) -> None:
    assert made("import", "-", "--dry-run").code == 0
    assert rolling.backups_of(str(project / ".holdfast"), os.environ) == []


def test_what_changes_nothing_leaves_no_backup(made: Cli, project: Path) -> None:
    made("create", "x")
    assert made("import", "-", stdin="junk\n").code == 1
    assert made("import", "-").code == 0
    assert made("purge", "hf-0000", "--yes").code == 10
    assert rolling.backups_of(str(project / ".holdfast"), os.environ) == []


def test_rotation_leaves_a_backup_that_a_user_made(made: Cli, project: Path) -> None:
    made("create", "x")
    asked_for = made("backup").out.strip()
    for number in range(rolling.KEPT + 1):
        made("delete", task := made("create", f"task {number}", "-q").id)
        assert made("purge", task, "--yes").code == 0
    found = rolling.backups_of(str(project / ".holdfast"), os.environ)
    assert found[0] == asked_for, "by the time that it was made, beside the others"
    assert len(found) == rolling.KEPT + 1


# --- restore and backup ------------------------------------------------------------------------------------------


def test_restore_refuses_to_overwrite(made: Cli, project: Path) -> None:
    made("create", "x")
    assert made("backup").code == 0
    made("create", "y")
    before = made("export").out
    answer = made("restore", "latest", "--json")
    assert (answer.code, answer.error["code"]) == (1, "EXISTS")
    assert made("export").out == before
    assert all(word not in answer.err for word in ("rm ", "delete", "remove"))


def test_restore_without_a_word_lists_and_changes_nothing(made: Cli, project: Path) -> None:
    made("create", "x")
    copy = made("backup").out.strip()
    answer = made("restore")
    assert answer.code == 0
    assert copy in answer.out
    assert [each["file"] for each in made("restore", "--json").data] == [copy]


def test_restore_of_what_is_not_there_or_damaged_makes_nothing(cli: Cli, project: Path) -> None:
    assert cli("restore", "latest").code == 10
    assert cli("restore", "missing.backup").code == 10
    cli("create", "x", "--dir", "other")
    assert cli("backup", "bad.backup", "--dir", "other").code == 0
    content = (project / "bad.backup").read_bytes()
    (project / "bad.backup").write_bytes(content[:8192] + b"\xa5" * (len(content) - 8192))
    assert cli("restore", "bad.backup").code == 18
    (project / "no.backup").write_bytes(b"something else")
    assert cli("restore", "no.backup").code == 1
    assert not (project / ".holdfast" / "holdfast.db").exists()


def test_a_backup_never_overwrites(made: Cli, project: Path) -> None:
    (project / "copy").write_text("mine")
    assert made("backup", "copy").code == 1
    assert (project / "copy").read_text() == "mine"


def test_a_backup_without_a_name_lies_beside_the_rolling_ones_and_where_tells_it(made: Cli) -> None:
    made("create", "x")
    copy = made("backup", "--json").data["file"]
    assert made("where", "--json").data["backups"] == [copy]
    assert copy in made("doctor", "--actor", "a").out


def test_init_tells_of_backups_of_what_was_here(made: Cli, project: Path) -> None:
    made("create", "x")
    made("backup")
    shutil.rmtree(project / ".holdfast")
    assert made("init", "--json").data["backups"] == 1


@pytest.mark.parametrize("named", ["--dir", "HOLDFAST_DIR"])
def test_restore_finds_the_backups_of_a_project_that_is_named(made: Cli, project: Path, named: str) -> None:
    words = ("--dir", str(project)) if named == "--dir" else ()
    environ = {} if words else {"HOLDFAST_DIR": str(project)}
    made("create", "x", *words, **environ)
    before = made("export", *words, **environ).out
    assert made("backup", *words, **environ).code == 0
    for path in (project / ".holdfast").glob("holdfast.db*"):
        path.unlink()
    answer = made("restore", "latest", *words, **environ)
    assert answer.code == 0, answer.err
    assert made("export", *words, **environ).out == before
    assert (project / ".holdfast" / "holdfast.db").exists(), "where it was"
