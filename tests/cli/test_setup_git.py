"""`holdfast setup git` (issue 7): the pre-commit hook is where git looks, keeps what is there, and stops a commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import Invalid
from holdfast.faces.cli.setup.clients import check, install, remove
from holdfast.faces.cli.setup.line import Choice


def git(root: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return subprocess.run(
        ["git", *who, *arguments], cwd=root, capture_output=True, text=True, env={**os.environ, **env}
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".holdfast").mkdir(parents=True)
    (project / ".holdfast" / "holdfast.db").touch()  # the line asks for no more; the program is a stand-in
    assert git(project, "init", "-q").returncode == 0
    (project / "file").write_text("x\n")
    assert git(project, "add", "file").returncode == 0
    return project


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose first `holdfast` refuses to let anything be committed; for where no file names another."""
    fake = tmp_path / "bin" / "holdfast"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "asked: $*" >&2\nexit 12\n')
    fake.chmod(0o755)
    return f"{fake.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("theirs", [None, "#!/bin/sh\nexit 0\n", "#!/usr/bin/env bash\nset -e\ntrue"])
def test_i7_a_commit_is_stopped_even_if_the_hook_that_was_there_exits_early(
    root: Path, path: str, theirs: str | None
) -> None:
    hook = root / ".git/hooks/pre-commit"
    if theirs is not None:
        hook.write_text(theirs)
        hook.chmod(0o755)
    install("git", root)
    (root / ".holdfast" / "program").unlink()
    refused = git(root, "commit", "-q", "-m", "x", PATH=path)
    assert refused.returncode != 0
    assert "asked: guard --staged" in refused.stderr
    remove("git", root)
    assert (hook.read_text() if hook.exists() else None) == theirs
    assert git(root, "commit", "-q", "-m", "x", PATH=path).returncode == 0


def test_i22_a_commit_is_refused_if_holdfast_is_missing_unless_there_is_no_workspace_or_it_is_lenient(
    root: Path, tmp_path: Path
) -> None:
    install("git", root)
    (root / ".holdfast" / "program").write_text("/nowhere/holdfast\n")
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("git", "sh"):
        (bare / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    refused = git(root, "commit", "-q", "-m", "x", PATH=str(bare))
    assert refused.returncode != 0
    assert "no program holdfast was found" in refused.stderr
    assert "holdfast setup git" in refused.stderr, "how to mend it"

    (root / ".holdfast" / "holdfast.db").rename(tmp_path / "kept")
    assert git(root, "commit", "-q", "-m", "x", PATH=str(bare)).returncode == 0
    (tmp_path / "kept").rename(root / ".holdfast" / "holdfast.db")
    install("git", root, Choice(lenient=True))
    (root / ".holdfast" / "program").unlink()
    passed = git(root, "commit", "-q", "--allow-empty", "-m", "y", PATH=str(bare))
    assert (passed.returncode, "no program holdfast was found" in passed.stderr) == (0, True)


def test_i7_hooks_that_the_project_keeps_elsewhere_are_found(root: Path) -> None:
    assert git(root, "config", "core.hooksPath", "tools/hooks").returncode == 0
    (change,) = install("git", root)
    assert change.path == root / "tools/hooks/pre-commit"
    assert change.path.stat().st_mode & 0o777 == 0o755
    assert check("git", root) == []


def test_i7_a_linked_worktree_shares_the_hook(root: Path, tmp_path: Path, path: str) -> None:
    assert git(root, "commit", "-q", "-m", "x").returncode == 0
    assert git(root, "worktree", "add", "-q", str(tmp_path / "other")).returncode == 0
    install("git", tmp_path / "other")
    (root / ".holdfast" / "program").unlink()
    assert (root / ".git/hooks/pre-commit").exists()
    assert git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "y", PATH=path).returncode != 0


def test_i7_hooks_that_serve_other_projects_too_are_left_alone(root: Path, tmp_path: Path) -> None:
    everywhere = tmp_path / "everywhere"
    everywhere.mkdir()
    assert git(root, "config", "core.hooksPath", str(everywhere)).returncode == 0
    for act in (install, check, remove):
        with pytest.raises(Invalid, match="outside of this project") as caught:
            act("git", root)
        assert "holdfast guard --staged" in caught.value.hint
    assert list(everywhere.iterdir()) == []


def test_i7_a_hook_that_git_does_not_run_is_not_woken_up(root: Path) -> None:
    hook = root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o644)
    with pytest.raises(Invalid, match="not executable"):
        install("git", root)
    assert "not executable" in check("git", root)[0].what
    assert hook.read_text() == "#!/bin/sh\nexit 1\n"


def test_i7_a_folder_without_git_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(Invalid, match="not a git repository"):
        install("git", tmp_path)
