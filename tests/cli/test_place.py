"""Which workspace is meant, and why (issue 7): one store for a project, however many worktrees it has."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import errors
from tests.cli.calling import Answer, Shell

Cli = Callable[..., Answer]


def workspace(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The workspace that is meant in a folder, and why."""
    monkeypatch.chdir(folder)
    told = cli("where", "--json").data
    return told["workspace"], told["why"]


# --- what is named -----------------------------------------------------------------------------------------------


def test_the_order_is_dir_or_url_then_holdfast_dir_then_holdfast_url_then_what_is_found(
    made: Cli, project: Path
) -> None:
    environ = {"HOLDFAST_DIR": str(project / "b"), "HOLDFAST_URL": "http://127.0.0.1:9"}

    def where(*words: str, **environ: str) -> tuple[str, str]:
        told = made("where", "--json", *words, **environ).data
        return told["workspace"], told["why"]

    assert where("--dir", "a", **environ) == (str(project / "a"), "--dir")
    assert where("--url", "http://127.0.0.1:8", **environ) == ("http://127.0.0.1:8", "--url")
    assert where(**environ) == (str(project / "b"), "HOLDFAST_DIR")
    assert where(HOLDFAST_URL="http://127.0.0.1:9") == ("http://127.0.0.1:9", "HOLDFAST_URL")
    assert where() == (str(project / ".holdfast"), "found in this folder")
    assert where(HOLDFAST_DIR="", HOLDFAST_URL="") == where(), "an empty variable names nothing"


def test_two_names_at_once_are_refused(made: Cli) -> None:
    assert made("where", "--dir", "a", "--url", "http://127.0.0.1:8").code == 2


def test_a_project_may_be_named_instead_of_its_workspace(made: Cli, project: Path) -> None:
    task = made("create", "x", "-q").id
    for named in (str(project), str(project / ".holdfast"), "."):
        assert [each["id"] for each in made("list", "--json", "--dir", named).data] == [task]


def test_a_folder_that_was_named_is_made_by_the_first_write(cli: Cli, project: Path) -> None:
    assert cli("create", "x", "--dir", "new").code == 0
    assert (project / "new" / "holdfast.db").exists()
    assert cli("create", "x", HOLDFAST_DIR=str(project / "newer")).code == 0
    assert cli("list", "-q", HOLDFAST_DIR=str(project / "newer")).id.startswith("hf-")


# --- what is not there -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "ready",
        "show hf-1",
        "cell get r c",
        "lock list",
        "mail inbox --actor a",
        "log",
        "export",
        "watch",
        "tree",
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_reading_a_workspace_that_is_not_there_is_not_found_never_an_empty_list(
    cli: Cli, project: Path, words: str, named: bool
) -> None:
    more = ["--dir", "missing"] if named else []
    answer = cli(*words.split(), *more)
    assert (answer.code, answer.out) == (10, "")
    assert "there is no workspace" in answer.err
    assert list(project.iterdir()) == [], "reading makes nothing"


def test_a_folder_that_was_named_wrongly_is_not_a_workspace_in_which_nothing_is_ready(cli: Cli, project: Path) -> None:
    for environ, words in (({}, ("--dir", "mistyped")), ({"HOLDFAST_DIR": str(project / "mistyped")}, ())):
        assert cli("next", "--actor", "a", *words, **environ).code == 10


def test_an_empty_name_is_a_mistake_not_some_other_workspace(made: Cli) -> None:
    for words in (("--dir", ""), ("--dir=",), ("--url", "")):
        assert made("list", *words).code == 2, "a variable of the script was not set"


def test_a_current_folder_that_is_gone_is_told_and_does_not_matter_where_one_is_named(
    made: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = project / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert made("list").code == 10
    assert made("list", "--dir", str(project / ".holdfast")).code == 0


def test_a_write_makes_no_workspace_where_none_was_named(cli: Cli, project: Path) -> None:
    answer = cli("create", "x")
    assert answer.code == 10
    assert "holdfast init" in answer.err
    assert list(project.iterdir()) == []


# --- what is found -----------------------------------------------------------------------------------------------


def test_it_is_found_upwards_and_the_nearest_is_meant(
    made: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    assert workspace(made, deep, monkeypatch) == (str(project / ".holdfast"), "found above this folder")
    assert made("init", "--dir", str(project / "a" / ".holdfast")).code == 0
    assert workspace(made, deep, monkeypatch)[0] == str(project / "a" / ".holdfast")
    assert workspace(made, project, monkeypatch)[0] == str(project / ".holdfast")


def test_an_empty_folder_of_the_name_is_no_workspace(cli: Cli, project: Path) -> None:
    (project / ".holdfast").mkdir()
    assert cli("where").code == 10


def test_two_worktrees_and_their_subfolders_have_one_store(
    cli: Cli, shell: Shell, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.git("worktree", "add", "-q", str(tmp_path / "beside"))
    shell.git("worktree", "add", "-q", "inside")
    assert cli("init").code == 0
    store = str(repository / ".holdfast")
    for root in (repository, tmp_path / "beside", repository / "inside"):
        own = root == repository
        why = "found in this git repository" if own else "found in its main git worktree"
        assert workspace(cli, root, monkeypatch) == (store, why)
        assert workspace(cli, root / "src" / "deep", monkeypatch) == (store, why)
    monkeypatch.chdir(tmp_path / "beside" / "src")
    task = cli("create", "from a worktree", "-q").id
    told = cli("where").out
    assert "in its main git worktree" in told
    assert str(tmp_path / "beside") in told
    monkeypatch.chdir(repository)
    assert cli("list", "-q").id == task
    assert not (tmp_path / "beside" / ".holdfast").exists()


def test_init_in_a_linked_worktree_puts_it_into_the_main_one(
    cli: Cli, shell: Shell, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.git("worktree", "add", "-q", str(tmp_path / "beside"))
    monkeypatch.chdir(tmp_path / "beside" / "src")
    assert cli("init", "--json").data == {"folder": str(repository / ".holdfast"), "made": True, "backups": 0}
    assert cli("where").code == 0


def test_git_does_not_see_the_workspace(cli: Cli, shell: Shell, repository: Path) -> None:
    assert cli("init").code == 0
    assert cli("next", "--actor", "a").code == 4
    assert shell.git("status", "--porcelain") == ""


def test_a_moved_repository_still_finds_it(
    cli: Cli, shell: Shell, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.git("worktree", "add", "-q", str(tmp_path / "beside"))
    assert cli("init").code == 0
    repository.rename(tmp_path / "moved")
    shell.at(tmp_path / "moved").git("worktree", "repair", str(tmp_path / "beside"))
    assert workspace(cli, tmp_path / "beside", monkeypatch)[0] == str(tmp_path / "moved" / ".holdfast")


@pytest.mark.parametrize("name", ["project.git", "hub/.bare", "hub/.git"])
def test_the_worktrees_of_a_bare_repository_have_one_store(
    name: str, cli: Cli, shell: Shell, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / name
    bare.parent.mkdir(exist_ok=True)
    shell.git("clone", "-q", "--bare", str(repository), str(bare))
    if name == "hub/.bare":
        (bare.parent / ".git").write_text("gitdir: ./.bare\n")
    trees = [tmp_path / "hub" / "one", tmp_path / "two"]
    for number, tree in enumerate(trees):
        shell.at(bare).git("worktree", "add", "-q", "-b", f"b{number}", str(tree))
    monkeypatch.chdir(trees[0] / "src")
    assert cli("init").code == 0
    found = {workspace(cli, tree / "src" / "deep", monkeypatch)[0] for tree in trees}
    assert len(found) == 1
    store = Path(found.pop())
    assert (store / "holdfast.db").exists()
    assert not any(store.is_relative_to(tree) for tree in trees), "removing a worktree must not remove it"
    if name != "project.git":
        assert workspace(cli, tmp_path / "hub", monkeypatch)[0] == str(store)


def test_a_submodule_is_a_project_of_its_own_that_uses_the_outer_store_until_it_has_one(
    cli: Cli, shell: Shell, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    at = shell.at(outer)
    at.git("init", "-q", ".")
    at.git("submodule", "--quiet", "add", str(repository), "lib/sub")
    monkeypatch.chdir(outer)
    assert cli("init").code == 0
    inside = outer / "lib" / "sub" / "src"
    assert workspace(cli, inside, monkeypatch)[0] == str(outer / ".holdfast")
    assert cli("init", "--json").data["folder"] == str(outer / "lib" / "sub" / ".holdfast")
    assert workspace(cli, inside, monkeypatch)[0] == str(outer / "lib" / "sub" / ".holdfast")
    assert workspace(cli, outer / "lib", monkeypatch)[0] == str(outer / ".holdfast")


def test_a_nested_project_in_a_worktree_has_its_own(
    cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("init").code == 0
    nested = repository / "src" / "nested"
    nested.mkdir()
    assert cli("init", "--dir", str(nested / ".holdfast")).code == 0
    assert workspace(cli, nested, monkeypatch)[0] == str(nested / ".holdfast")
    assert workspace(cli, repository / "src", monkeypatch)[0] == str(repository / ".holdfast")


def test_init_in_a_nested_project_leaves_it_and_names_how_to_make_one_for_the_repository(
    cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested, shared = repository / "src" / "nested", repository / ".holdfast"
    (nested / "deep").mkdir(parents=True)
    assert cli("init", "--dir", str(nested / ".holdfast")).code == 0
    for folder in (nested, nested / "deep"):
        monkeypatch.chdir(folder)
        assert cli("init", "--json").data == {"folder": str(nested / ".holdfast"), "made": False, "backups": 0}
        assert workspace(cli, folder, monkeypatch)[0] == str(nested / ".holdfast")
    assert not shared.exists()
    assert f"holdfast init --dir {shared}\n" in cli("init").out
    assert cli("init", "--dir", str(shared)).code == 0
    assert cli("init").out == f"there is a workspace in {nested / '.holdfast'}\n"
    monkeypatch.chdir(repository / "src")
    assert cli("init", "--json").data["folder"] == str(shared)


def test_files_that_only_look_like_git_do_not_mislead(
    made: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (("text", "not a pointer"), ("gone", "gitdir: /nowhere/at/all"), ("binary", "\0" * 9)):
        (project / name).mkdir()
        (project / name / ".git").write_text(content)
        assert workspace(made, project / name, monkeypatch)[0] == str(project / ".holdfast")
    (project / "empty" / ".git").mkdir(parents=True)
    assert workspace(made, project / "empty", monkeypatch)[0] == str(project / ".holdfast")


def test_a_link_to_the_project_leads_to_the_same_store(
    made: Cli, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(project)
    task = made("create", "x", "-q").id
    assert made("list", "-q", "--dir", str(tmp_path / "link")).id == task
    monkeypatch.chdir(tmp_path / "link")
    assert made("list", "-q").id == task


# --- init and where ----------------------------------------------------------------------------------------------


def test_init_never_overwrites(made: Cli, project: Path) -> None:
    made("create", "precious")
    before = made("export").out
    answer = made("init", "--json")
    assert answer.data == {"folder": str(project / ".holdfast"), "made": False, "backups": 0}
    assert made("export").out == before != ""


def test_init_leaves_somebody_elses_database_as_it_is(cli: Cli, project: Path) -> None:
    folder = project / ".holdfast"
    folder.mkdir()
    (folder / "holdfast.db").write_bytes(b"not a database, but somebody wants it")
    assert cli("init").code != 0
    assert (folder / "holdfast.db").read_bytes() == b"not a database, but somebody wants it"


@pytest.mark.parametrize("left", ["holdfast.db-wal", "holdfast.db-shm", "commit.mark", "open.lock"])
def test_what_is_left_of_a_store_is_reported_and_no_other_is_used_or_made(
    cli: Cli, project: Path, tmp_path: Path, left: str
) -> None:
    outer, folder = tmp_path / ".holdfast", project / ".holdfast"
    assert cli("init", "--dir", str(outer)).code == 0
    folder.mkdir()
    (folder / left).write_bytes(b"commits")
    named = ["--dir", str(folder)]
    for words in (
        ["list"],
        ["create", "x"],
        ["create", "x", *named],
        ["list", *named],
        ["init"],
        ["where"],
        ["serve", "--port", "0"],
        ["doctor"],
    ):
        answer = cli(*words)
        assert answer.code == (1 if words == ["doctor"] else errors.Corrupt.exit_code), words
        told = answer.out if words == ["doctor"] else answer.err
        assert f"holdfast.db in {folder} is gone, but {left} is left" in told
        assert "restore the latest backup into a new folder" in told
        assert "init" not in told
    for words in (["upgrade"], ["backup", "--damaged", str(tmp_path / "saved")], ["detach"]):
        assert "is gone, but" in cli(*words).err
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith("holdfast.db")) == (
        [left] if left.startswith("holdfast.db") else []
    )
    assert (folder / left).read_bytes() == b"commits"
    assert cli("list", "-q", "--dir", str(outer)).out == ""


def test_a_restored_workspace_has_its_log(made: Cli, tmp_path: Path) -> None:
    for number in range(3):
        made("cell", "set", "run", "step", str(number))
    made("backup", str(tmp_path / "saved"))
    before = made("log").out
    restored = ["--dir", str(tmp_path / "restored")]
    assert made("restore", str(tmp_path / "saved"), *restored).code == 0
    assert made("log", *restored).out == before != ""
    assert "compacted" not in made("event", "list", *restored).err
    assert made("activity", *restored).code == 0
    assert made("cell", "set", "run", "step", "4", *restored).code == 0
    assert made("activity", *restored).code == 0
    assert made("timeline", *restored).code == 0


def test_where_says_who_acts_and_whether_it_may_hold(made: Cli) -> None:
    derived = made("where", "--json").data
    assert (derived["may_hold"], "derived" in derived["actor_from"]) == (False, True)
    named = made("where", "--json", HOLDFAST_ACTOR="b").data
    assert (named["actor"], named["actor_from"], named["may_hold"]) == ("b", "HOLDFAST_ACTOR", True)
    given = made("where", "--json", "--actor", "a", HOLDFAST_ACTOR="b").data
    assert (given["actor"], given["actor_from"]) == ("a", "--actor")


def test_where_tells_a_bad_name_without_obeying_it(made: Cli) -> None:
    answer = made("where", HOLDFAST_ACTOR="a\x1b[31m\nworkspace  /elsewhere")
    assert "\x1b" not in answer.out + answer.err
    assert "\nworkspace  /elsewhere" not in answer.out


def test_where_says_of_a_named_folder_that_there_is_none_yet(cli: Cli, project: Path) -> None:
    told = cli("where", "--dir", "new")
    assert told.code == 0
    assert "there is none yet" in told.out
    assert not os.path.exists("new")


def test_what_is_done_where_the_store_is_refuses_a_server_that_was_named(cli: Cli, project: Path) -> None:
    there = {"HOLDFAST_URL": "http://127.0.0.1:1"}
    for words in (("init",), ("token", "list"), ("token", "create"), ("restore", "latest"), ("backup",)):
        answer = cli(*words, "--json", **there)
        assert (answer.code, answer.error["code"]) == (1, "UNSUPPORTED"), words
    assert list(project.iterdir()) == []


def test_an_empty_actor_is_a_mistake_not_somebody_else(made: Cli) -> None:
    assert made("create", "x", "--actor", "", HOLDFAST_ACTOR="other").code == 2


def test_a_workspace_that_a_write_makes_is_told(cli: Cli, project: Path) -> None:
    answer = cli("create", "x", "--dir", "new")
    assert answer.code == 0
    assert "made" in answer.err
    assert cli("create", "y", "--dir", "new").err == ""


def test_the_command_that_is_proposed_next_names_the_folder_too(cli: Cli, project: Path) -> None:
    assert "next: holdfast create 'a first task' --dir 'a b'; holdfast help" in cli("init", "--dir", "a b").out
    assert "next: holdfast create 'a first task'; holdfast help" in cli("init").out
    task = cli("create", "x", "--dir", "a b", "-q").id
    refused = cli("done", task, "--dir", "a b", "--actor", "ada")
    assert f"holdfast claim {task} --dir 'a b'" in refused.err
    assert (
        f"holdfast claim {task} --dir 'a b'" in cli("--dir=a b", "--json", "done", task, "--actor", "ada").error["hint"]
    )
