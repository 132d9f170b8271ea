"""Which folder `holdfast turn` works in: a linked worktree is told, a symlink out of the project is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.calling import Answer, Shell

Cli = Callable[..., Answer]


def test_f3_in_a_linked_worktree_only_a_folder_that_is_there_is_named(
    shell: Shell, repository: Path, tmp_path: Path
) -> None:
    shell.git("commit", "-q", "--allow-empty", "-m", "x")
    linked = tmp_path / "linked"
    shell.git("worktree", "add", "-q", str(linked))
    (linked / "sub").mkdir()
    there = shell.at(linked / "sub")
    assert "linked git worktree" not in there("turn", "status").err  # there is no session, here or in the main one
    assert there("turn", "init", "--agent", "ada").err == ""
    assert f"{repository / 'sub' / 'working-session'} has no TURNFILE.yaml" in there("turn", "status").err
    shell.at(_made(repository / "sub"))("turn", "init", "--agent", "ada")
    told = there("turn", "status").err
    assert f"uses {repository / 'sub' / 'working-session'}" in told
    assert shell.at(repository / "sub")("turn", "status").err == ""


def test_f3_a_link_to_the_main_worktrees_session_is_no_copy(shell: Shell, repository: Path, tmp_path: Path) -> None:
    shell.git("commit", "-q", "--allow-empty", "-m", "x")
    assert shell("turn", "init", "--agent", "ada").code == 0
    shell.git("worktree", "add", "-q", str(tmp_path / "linked"))
    os.symlink(repository / "working-session", tmp_path / "linked" / "working-session")
    answer = shell.at(tmp_path / "linked")("turn", "lock", "WORKLOG.md", "--holder", "ada", "--reason", "x")
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize("link", ["working-session", "sub"])
def test_f2_a_folder_whose_link_leads_out_of_the_repository_is_refused(
    shell: Shell, repository: Path, tmp_path: Path, link: str
) -> None:
    outside = _made(tmp_path / "outside")
    os.symlink(outside, repository / link)
    folder = link if link == "working-session" else "sub/working-session"
    for words in (("init", "--agent", "ada"), ("status",), ("lock", "x.md", "--holder", "ada", "--reason", "x")):
        answer = shell("turn", *words, "--dir", folder, "--json")
        assert answer.code == 1
        assert "symlink" in answer.error["error"]
        assert str(outside) in answer.error["hint"]
    assert list(outside.iterdir()) == []
    assert shell("turn", "init", "--dir", str(outside)).code == 0  # named itself, it is what somebody wants


def test_f2_without_a_repository_a_link_may_not_leave_the_folder_it_lies_in(
    cli: Cli, project: Path, tmp_path: Path
) -> None:
    os.symlink(_made(tmp_path / "outside"), project / "working-session")
    assert cli("turn", "init", "--json").error["code"] == "INVALID"
    os.unlink(project / "working-session")
    os.symlink(_made(project / "real"), project / "working-session")
    assert cli("turn", "init").code == 0


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
