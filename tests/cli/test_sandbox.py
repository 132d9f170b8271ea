"""Sandboxes (issue 22): what was committed is reported as done, reads work where files can be read, writes say why not.

A sandbox is a mount namespace in which folders are read-only, made with bubblewrap or unshare: file modes mean nothing
to root. Where neither can make one these tests are skipped, but for those that need none.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.cli.calling import HOLDFAST, Answer, Shell


def confined(read_only: Path, command: list[str]) -> list[str]:
    """The command in a place where a folder is read-only."""
    if shutil.which("bwrap"):
        return ["bwrap", "--dev-bind", "/", "/", "--ro-bind", str(read_only), str(read_only), "--", *command]
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && cd "$PWD" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, "sh", str(read_only), *command]


@cache
def can_confine() -> bool:
    done = subprocess.run(confined(Path("/usr"), ["touch", "/usr/holdfast-probe"]), capture_output=True, text=True)
    return "Read-only" in done.stderr


def obeying(command: list[str]) -> list[str]:
    """The command in a process to which the modes of files mean something, also as root."""
    drop = "from tests.unit.read_only_worker import *; obey_modes(); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", drop, *command]


@pytest.fixture
def sandbox() -> None:
    if not can_confine():
        pytest.skip("neither bwrap nor unshare can make a read-only folder here")


@pytest.fixture
def rolled(shell: Shell, repository: Path) -> Shell:
    """A project in git with a workspace, whose writes are copied to the user's state folder."""
    on = Shell(shell.folder, {name: value for name, value in shell.environ.items() if name != "HOLDFAST_ROLLING"})
    assert on("init").code == 0
    return on


def check_told_once(shell: Shell, call: object) -> None:
    """A write is done, told as one object, with a warning the first time and none the second."""
    assert callable(call)
    first: Answer = call("create", "one", "--json")
    assert first.code == 0, first
    assert first.data["title"] == "one"
    (warning,) = map(json.loads, first.err.splitlines())
    assert "no backup is kept outside the tree" in warning["note"]
    second: Answer = call("create", "two")
    assert (second.code, second.err) == (0, "")
    assert [each["title"] for each in shell("list", "--json").data] == ["one", "two"], "each was made once"


def test_i22_a_write_whose_copy_cannot_be_made_is_done(rolled: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    elsewhere = rolled.with_(XDG_STATE_HOME=str(tmp_path / "file" / "state"))
    check_told_once(rolled, elsewhere)
    assert "no new one is kept outside the tree" in elsewhere("doctor").out


@pytest.mark.usefixtures("sandbox")
def test_i22_a_write_in_a_sandbox_that_may_only_write_to_the_project_is_done(rolled: Shell, tmp_path: Path) -> None:
    state = Path(rolled.environ["XDG_STATE_HOME"])
    state.mkdir(exist_ok=True)

    def call(*words: str) -> Answer:
        return rolled.run(confined(state, [*HOLDFAST, *words]))

    check_told_once(rolled, call)


@pytest.fixture
def reader(shell: Shell, repository: Path) -> Iterator[Callable[..., Answer]]:
    """Calls where the workspace can only be read: `ada` holds src/deep, `bob` looks."""
    for words in (["init"], ["create", "one"], ["path", "lock", "src/deep/**", "--actor", "ada"]):
        assert shell(*words).code == 0
    store = repository / ".holdfast"
    modes = {path: path.stat().st_mode for path in (*store.iterdir(), store)}
    for path in modes:
        path.chmod(0o500 if path.is_dir() else 0o400)
    outer = shell.with_(PYTHONPATH=str(Path(__file__).parents[2]), HOLDFAST_ACTOR="bob")
    yield lambda *words, stdin="": outer.run(obeying([*HOLDFAST, *words]), stdin)
    for path, mode in modes.items():
        path.chmod(mode)


def test_i22_reads_work_where_files_can_only_be_read_and_writes_name_the_ways_out(
    reader: Callable[..., Answer], repository: Path
) -> None:
    listed = reader("list", "--json")
    if "cannot give up a capability" in listed.err:
        pytest.skip(listed.err)
    (task,) = listed.data
    assert task["title"] == "one"
    assert "one" in reader("show", task["id"]).out
    assert "one" in reader("ready").out
    assert "one" in reader("prime").out
    held = reader("guard", "src/deep/file")
    assert (held.code, "ada" in held.err) == (12, True)
    assert reader("guard", "src/file").code == 0
    payload = {"session_id": "s", "tool_name": "Write", "tool_input": {"file_path": str(repository / "src/deep/file")}}
    hook = reader("guard", "--hook", "claude", stdin=json.dumps(payload))
    assert (hook.code, "ada" in hook.err) == (2, True), hook
    assert re.search(r"^ok +schema", reader("doctor").out, re.MULTILINE)
    for words in (["create", "two"], ["next"], ["note", task["id"], "x"], ["mail", "send", "ada", "s", "b"]):
        refused = reader(*words)
        assert (refused.code, refused.out) == (16, ""), refused
        assert "cannot be written from here" in refused.err
        assert "MCP tools" in refused.err
        assert "writable_roots" in refused.err


def test_i22_who_looks_at_a_setup_needs_to_write_nothing(shell: Shell, repository: Path) -> None:
    for words in (["init"], ["setup", "claude"]):
        assert shell(*words).code == 0
    folders = [repository, repository / ".claude"]
    modes = [folder.stat().st_mode for folder in folders]
    for folder in folders:
        folder.chmod(0o500)
    try:
        outer = shell.with_(PYTHONPATH=str(Path(__file__).parents[2]))
        check = outer.run(obeying([*HOLDFAST, "setup", "claude", "--check"]))
    finally:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
    if "cannot give up a capability" in check.err:
        pytest.skip(check.err)
    assert "can be written" not in check.out, check
    assert (check.code, "everything is in place" in check.out) == (0, True), check


def test_i22_setup_in_a_linked_worktree_says_how_a_sandbox_there_can_write(
    shell: Shell, repository: Path, tmp_path: Path
) -> None:
    assert shell("init").code == 0
    shell.git("worktree", "add", "-q", str(tmp_path / "linked"))
    linked = shell.at(tmp_path / "linked")
    said = linked("setup", "codex").err
    assert f"the workspace is in {repository / '.holdfast'}, outside of this project" in said
    assert "two ways remain: the MCP tools" in said
    assert "writable_roots" in said
    assert "one way remains: sandbox.filesystem.allowWrite" in linked("setup", "claude", "--no-mcp").err
    assert "outside" not in linked("setup", "git").err
    assert "outside" not in shell("setup", "codex").err


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("client", ["claude", "codex", "cursor", "gemini"])
def test_setup_in_a_sandbox_that_cannot_write_to_the_workspace_changes_nothing(
    shell: Shell, repository: Path, tmp_path: Path, client: str
) -> None:
    assert shell("init").code == 0
    shell.git("worktree", "add", "-q", str(tmp_path / "linked"))
    linked = shell.at(tmp_path / "linked")

    def call(*words: str) -> Answer:
        return linked.run(confined(repository, [*HOLDFAST, "setup", client, *words]))

    def names() -> list[str]:
        return sorted(str(path) for path in linked.folder.rglob("*"))

    before = names()
    for _ in range(2):
        refused = call()
        assert (refused.code, refused.out) == (16, ""), refused
        assert f"{repository / '.holdfast'} cannot be written from here" in refused.err
        assert "nothing was changed" in refused.err
        assert "in the sandbox of an agent, run this outside of it" in refused.err
        assert names() == before
        assert shell("setup", "git").code == 0, "the program is named already, but this worktree is not noted"
    assert call("--check").code == 1
    assert linked("setup", client).code == 0
    there = names()
    again = call()
    assert (again.code, "unchanged" in again.out) == (0, True), "there is nothing to write"
    refused = call("--remove")
    assert (refused.code, "cannot be written from here" in refused.err) == (16, True), refused
    assert names() == there
