"""What a guard must not let pass (issue 22): files of submodules, closed workspaces, patches in other folders.

Each client asks as it does before an edit; what it is told and what it reads of the answer is its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.faces.cli.setup.line import line
from tests.cli.calling import Answer, Shell

Cli = Callable[..., Answer]
CLIENTS = ("claude", "codex", "cursor", "gemini")
NOBODY = 65534


def told(client: str, path: Path, **more: Any) -> str:
    """What a client says before it edits a file."""
    tool = {"tool_name": "Write", "tool_input": {"file_path": str(path)}}
    if client == "codex":
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b\n*** End Patch\n"
        tool = {"tool_name": "apply_patch", "tool_input": {"command": patch}}
    event = {"gemini": "BeforeTool", "cursor": "preToolUse"}.get(client, "PreToolUse")
    return json.dumps({"hook_event_name": event, "session_id": "s", **tool, **more})


def refuses(cli: Cli, client: str, path: Path) -> bool:
    """Whether the guard keeps a client from editing a file."""
    answer = cli("guard", "--hook", client, stdin=told(client, path))
    assert answer.code in (0, 2), answer
    return answer.code == 2 or '"deny"' in answer.out


# --- one root for paths ----------------------------------------------------------------------------------------------


@pytest.fixture
def superproject(made: Cli, shell: Shell, repository: Path, tmp_path: Path) -> Path:
    """A project with a workspace, a submodule `mod` and a repository `vendor/lib` that it does not know."""
    (tmp_path / "donor" / "src").mkdir(parents=True)
    donor = shell.at(tmp_path / "donor")
    (donor.folder / "src" / "a.py").write_text("a")
    donor.git("init", "-q", ".")
    donor.git("add", ".")
    donor.git("commit", "-q", "-m", "first")
    shell.git("submodule", "--quiet", "add", str(donor.folder), "mod")
    (repository / "vendor" / "lib").mkdir(parents=True)
    shell.at(repository / "vendor" / "lib").git("init", "-q", ".")
    return repository


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("mod", "mod/src/a.py"),
        ("mod/**", "mod/src/new.py"),
        ("mod/src/a.py", "mod/src/a.py"),
        ("vendor", "vendor/lib/z.py"),
        ("vendor/**", "vendor/lib/z.py"),
        ("vendor/lib/**", "vendor/lib/z.py"),
    ],
)
def test_i22_a_lock_holds_in_submodules_and_nested_repositories(
    made: Cli, superproject: Path, client: str, pattern: str, path: str
) -> None:
    assert made("path", "lock", pattern, "--actor", "other").code == 0
    assert made("path", "list", "--json").data[0]["patterns"] == [pattern], "from the root of the workspace"
    assert refuses(made, client, superproject / path)
    assert made("guard", path, "--actor", "b").code == 12
    for free in ("src/a.py", "docs/a.py"):
        assert not refuses(made, client, superproject / free)


@pytest.mark.parametrize("client", CLIENTS)
def test_i22_a_lock_taken_over_mcp_or_in_python_covers_the_same_file(
    made: Cli, superproject: Path, client: str
) -> None:
    """Those faces have no folder to count from, so their paths are from the root of the workspace already."""
    with holdfast.open(superproject / ".holdfast", actor="m") as workspace:
        workspace.paths.lock("mod/src/**")
    assert refuses(made, client, superproject / "mod" / "src" / "a.py")
    assert not refuses(made, client, superproject / "src" / "a.py")


def test_i22_a_path_is_one_name_from_inside_a_submodule_and_from_outside(
    made: Cli, superproject: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in (("mod", "mod/src/x"), ("vendor/lib", "vendor/lib/src/x"), ("src", "src/src/x")):
        monkeypatch.chdir(superproject / folder)
        assert made("path", "lock", "src/x", "--actor", "a").code == 0
        assert made("path", "list", "--path", "src/x", "--json").data[0]["patterns"] == [name]


def test_i22_a_submodule_in_a_linked_worktree_counts_from_that_worktree(
    made: Cli, superproject: Path, shell: Shell, tmp_path: Path
) -> None:
    shell.git("commit", "-q", "-m", "with a submodule")
    for place in (tmp_path / "wt", superproject / "inside"):  # clients make worktrees inside of the project too
        shell.git("worktree", "add", "-q", "--detach", str(place))
        shell.at(place).git("submodule", "--quiet", "update", "--init")
    made("path", "lock", "mod/src/**", "--actor", "other")
    for place in (tmp_path / "wt", superproject / "inside"):
        assert refuses(made, "claude", place / "mod" / "src" / "a.py")
        assert not refuses(made, "claude", place / "src" / "a.py")


def test_i22_repositories_below_a_workspace_without_git_do_not_share_names(
    made: Cli, project: Path, shell: Shell
) -> None:
    for name in ("one", "two"):
        (project / name).mkdir()
        shell.at(project / name).git("init", "-q", ".")
    made("path", "lock", "one/src/**", "--actor", "other")
    assert made("path", "list", "--json").data[0]["patterns"] == ["one/src/**"]
    assert refuses(made, "claude", project / "one" / "src" / "a.py")
    assert not refuses(made, "claude", project / "two" / "src" / "a.py")


def test_i22_with_a_workspace_elsewhere_a_submodule_belongs_to_its_superproject(
    cli: Cli, superproject: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DIR", str(tmp_path / "elsewhere"))
    assert cli("init", "--dir", str(tmp_path / "elsewhere")).code == 0
    assert cli("path", "lock", "mod/**", "--actor", "other").code == 0
    assert cli("path", "list", "--json").data[0]["patterns"] == ["mod/**"]
    assert refuses(cli, "claude", superproject / "mod" / "src" / "a.py")
    assert not refuses(cli, "claude", superproject / "src" / "a.py")


def test_i22_a_name_that_begins_with_two_dots_is_not_outside(made: Cli, repository: Path) -> None:
    assert made("path", "lock", "..a/b", "--actor", "other").code == 0
    assert refuses(made, "claude", repository / "..a" / "b")


def test_i22_every_file_of_an_edit_is_guarded_wherever_the_first_lies(
    made: Cli, repository: Path, tmp_path: Path
) -> None:
    made("path", "lock", "src/**", "--actor", "other")
    (tmp_path / "link").symlink_to(repository / "src")
    assert refuses(made, "claude", tmp_path / "link" / "a.py"), "a file is guarded by its real name too"
    assert made("guard", str(tmp_path / "free"), str(repository / "src" / "a.py"), "--actor", "b").code == 12
    patch = f"*** Begin Patch\n*** Add File: {tmp_path}/x\n*** Update File: {repository}/src/a.py\n*** End Patch\n"
    call = {"hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": {"command": patch}}
    assert made("guard", "--hook", "codex", stdin=json.dumps(call)).code == 2
    assert made("init", "--dir", str(tmp_path / "second" / ".holdfast")).code == 0
    several = made("guard", str(tmp_path / "second" / "y"), str(repository / "free"), "--actor", "b")
    assert (several.code, "several workspaces" in several.err) == (1, True)


# --- a workspace that nobody can look into ---------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_i22_a_store_that_is_gone_lets_nothing_pass(made: Cli, repository: Path, client: str) -> None:
    made("create", "something")
    for path in (repository / ".holdfast").glob("holdfast.db*"):
        path.rename(repository / path.name)
    answer = made("guard", "--hook", client, stdin=told(client, repository / "src" / "a.py"))
    assert (answer.code, answer.out) == (18, ""), "which the line of the hook takes for no decision"
    assert str(repository / ".holdfast") in answer.err
    assert made("guard", "src/a.py", "--actor", "b").code == 18
    ran = subprocess.run(
        ["sh", "-c", line(f"guard --hook {client}")],
        cwd=repository / "src",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2


def test_i22_a_store_that_is_gone_is_not_replaced_by_one_further_up(made: Cli, project: Path) -> None:
    inner = project / "inner"
    inner.mkdir()
    assert made("init", "--dir", str(inner / ".holdfast")).code == 0
    (inner / ".holdfast" / "holdfast.db").unlink()
    assert made("guard", str(inner / "a.py"), "--actor", "b").code == 18
    assert made("guard", "a.py", "--actor", "b").code == 0


def test_i22_what_setup_leaves_without_a_workspace_is_none(cli: Cli, repository: Path) -> None:
    assert cli("setup", "claude").code == 0
    assert (repository / ".holdfast" / "program").exists()
    assert not refuses(cli, "claude", repository / "src" / "a.py")


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project, the current folder, whose workspace this user may not look into."""
    root = Path(tempfile.mkdtemp())  # below none that only the user may enter
    (root / ".holdfast").mkdir()
    (root / ".holdfast" / "holdfast.db").touch()
    root.chmod(0o755)
    (root / ".holdfast").chmod(0)
    monkeypatch.chdir(root)
    yield root
    (root / ".holdfast").chmod(0o700)
    shutil.rmtree(root)


@contextmanager
def ordinary() -> Iterator[bool]:
    """Not as root, who may look into everything; whether that is who it was."""
    if os.geteuid() != 0:
        yield False
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield True
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.parametrize("client", CLIENTS)
def test_i22_a_workspace_closed_to_this_user_lets_nothing_pass(cli: Cli, closed: Path, client: str) -> None:
    text = told(client, closed / "a.py")
    how: dict[str, Any] = {"cwd": closed, "capture_output": True, "text": True, "check": False}
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}
    cli("guard", "--hook", client, stdin=text)  # which loads all that the user who follows may not read
    with ordinary() as was_root:
        by_itself = cli("guard", "--hook", client, stdin=text)
    assert (by_itself.code, "cannot be read" in by_itself.err) == (16, True), by_itself
    who: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if was_root else {}
    by_line = subprocess.run(["sh", "-c", line(f"guard --hook {client}")], input=text, env=env, **how, **who)
    assert by_line.returncode == 2, by_line


# --- patches in another folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("cd src && apply_patch <<'EOF'", 2),
        ("cd 'src/deep' && apply_patch <<'EOF'", 2),
        ("apply_patch <<'EOF'", 0),
        ("cd docs && apply_patch <<'EOF'", 0),
        ("cd $(echo src) && apply_patch <<'EOF'", 1),
    ],
)
def test_i22_a_patch_is_guarded_in_the_folder_where_it_is_applied(
    made: Cli, repository: Path, command: str, code: int
) -> None:
    made("path", "lock", "src/**", "--actor", "other")
    call = f"{command}\n*** Begin Patch\n*** Update File: a.py\n@@\n-a\n+b\n*** End Patch\nEOF\n"
    payload = {"hook_event_name": "PreToolUse", "cwd": str(repository), "tool_name": "Bash"}
    for more in ({}, {"workdir": str(repository)}, {"workdir": "."}):
        asked = json.dumps({**payload, "tool_input": {"command": call, **more}})
        assert made("guard", "--hook", "codex", stdin=asked).code == code
    asked = json.dumps({**payload, "tool_input": {"command": call, "workdir": "src"}})
    assert made("guard", "--hook", "codex", stdin=asked).code == (code or 2)


# --- hooks that do not run -------------------------------------------------------------------------------------------


def test_i22_doctor_and_check_report_hooks_that_are_gone_or_switched_off(shell: Shell, repository: Path) -> None:
    assert shell("init").code == 0
    assert shell("setup", "claude", "--no-mcp").code == 0
    assert shell("doctor").code == 0
    settings = repository / ".claude" / "settings.json"
    kept = settings.read_text()
    for text, what in (
        (kept.replace("holdfast guard --hook claude", "holdfast prime --hook claude"), "is not up to date"),
        (json.dumps({**json.loads(kept), "disableAllHooks": True}), "switches all hooks off"),
        (None, "does not exist"),
    ):
        settings.unlink() if text is None else settings.write_text(text)
        for call in (("doctor",), ("setup", "claude", "--check")):
            found = shell(*call)
            assert (found.code, what in found.out) == (1, True), found
    assert shell("setup", "claude", "--remove").code == 0
    assert shell("doctor").code == 0, "it is not wanted here"


# --- what no client sends ---------------------------------------------------------------------------------------------

STRANGE = {
    "a path with a NUL": ('{"tool_input": {"file_path": "src/a\\u0000b"}}', "names a path with a NUL"),
    "a folder with a NUL": ('{"cwd": "/a\\u0000b", "tool_input": {"file_path": "x"}}', "names a path with a NUL"),
    "a folder of a command with a NUL": (
        '{"tool_input": {"workdir": "a\\u0000b", "file_path": "x"}}',
        "names a path with a NUL",
    ),
    "deep JSON": ('{"tool_input": ' + "[" * 50_000 + "]" * 50_000 + "}", "needs the client's JSON on standard input"),
    "a path that is too long": ('{"tool_input": {"file_path": "' + "d/" * 5000 + 'x"}}', ""),
    "a name that is too long": ('{"tool_input": {"file_path": "' + "d" * 5000 + '/x"}}', ""),
}


@pytest.mark.parametrize("what", STRANGE)
def test_input_that_no_client_sends_is_refused_in_words(shell: Shell, repository: Path, what: str) -> None:
    assert shell("init").code == 0
    assert shell("setup", "claude").code == 0
    text, words = STRANGE[what]
    for client in CLIENTS:
        asked = text.replace('"file_path": "', '"command": "*** Add File: ') if client == "codex" else text
        ran = shell.run(["sh", "-c", line(f"guard --hook {client}")], asked)
        refused = ran.code == 2 or '"deny"' in ran.out
        assert (refused or not words, words in ran.err, "Traceback" in ran.err) == (True, True, False), (client, ran)
    begun = shell("prime", "--hook", "claude", stdin=text)
    assert "Traceback" not in begun.err, begun


# --- names that look like other places -------------------------------------------------------------------------------

ELSEWHERE = ("~n", "c:\\x", "c:/x", "~/x")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_file_whose_name_looks_absolute_is_guarded_locked_and_committed(
    shell: Shell, repository: Path, name: str
) -> None:
    assert shell("init").code == 0
    assert shell("setup", "git").code == 0
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("x")
    shell.git("add", "-A")
    shell.git("commit", "-q", "-m", "x")
    assert shell("guard", f"./{name}", "--actor", "bob").code == 0
    assert shell("guard", name, "--actor", "bob").code == 0, "it exists, so it is no home folder"
    assert shell("path", "lock", name, "--actor", "ada").code == 0
    (repository / name).write_text("y")
    shell.git("add", "-A")
    for refused in (
        shell("guard", f"./{name}", "--actor", "bob"),
        shell.with_(HOLDFAST_ACTOR="bob").run(["git", "commit", "-q", "-m", "y"]),
    ):
        assert refused.code
        assert "locked by ada" in refused.err
    assert shell("path", "release", name, "--actor", "ada").code == 0
    shell.git("commit", "-q", "-m", "y")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_edits_a_file_whose_name_looks_absolute(made: Cli, repository: Path, client: str) -> None:
    assert not refuses(made, client, repository / "~n")
    assert made("path", "lock", "./~n", "--actor", "other").code == 0
    assert refuses(made, client, repository / "~n")


def test_a_home_folder_is_no_name_in_the_project(made: Cli, repository: Path) -> None:
    for words in (["guard"], ["path", "lock"], ["path", "check"]):
        for path in ("~/x", "C:\\x"):
            refused = made(*words, path, "--actor", "ada")
            assert (refused.code, "is absolute" in refused.err, f"./{path}" in refused.err) == (1, True, True), refused
    assert made("path", "lock", "./~/x", "--actor", "ada").code == 0


# --- hints -----------------------------------------------------------------------------------------------------------


def proposed(answer: str) -> list[str]:
    """The command that a hint proposes, as its words."""
    found = re.search(r"wait: holdfast (path lock .*?) --wait 60", answer)
    assert found is not None, answer
    return shlex.split(found[1])


@pytest.mark.parametrize("served", [False, True])
def test_a_hint_names_a_path_from_where_the_caller_stands(
    shell: Shell, repository: Path, started: Callable[..., Any], served: bool
) -> None:
    assert shell("init").code == 0
    if served:
        server = started("serve", "--port", "0")
        assert server.stdout is not None
        while not (repository / ".holdfast" / "server.sock").exists() and server.poll() is None:
            assert server.stdout.readline()
    (repository / "docs").mkdir()
    (repository / "app" / "(group)").mkdir(parents=True)
    assert shell("path", "lock", "src/file", "-f", "app/**", "--actor", "ada").code == 2
    assert shell("path", "lock", "src/file", "./-f", "app/**", "--actor", "ada").code == 0
    for where, name in (("src", "file"), ("docs", "../src/file"), ("src", "../-f"), (".", "./-f")):
        at = shell.at(repository / where)
        for words in (("guard",), ("path", "check"), ("path", "lock")):
            refused = at(*words, name, "--actor", "bob")
            assert refused.code == 12
            assert proposed(refused.err) == ["path", "lock", name], words
        said = at("path", "lock", name, "--actor", "bob", "--json").error
        assert proposed(said["hint"]) == ["path", "lock", name]
    two = shell.at(repository / "docs")("guard", "../src/file", "../app/(group)/x", "--actor", "bob")
    assert [proposed(line)[-1] for line in two.err.splitlines() if "wait" in line] == [
        "../src/file",
        "../app/(group)/x",
    ]


def test_the_hint_of_a_commit_works_in_the_folder_where_it_was_refused(shell: Shell, repository: Path) -> None:
    for words in (["init"], ["setup", "git"], ["path", "lock", "src/file", "--actor", "ada"]):
        assert shell(*words).code == 0
    (repository / "src" / "file").write_text("y")
    shell.git("add", "-A")
    at = shell.at(repository / "src" / "deep").with_(HOLDFAST_ACTOR="bob")
    refused = at.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "y"])
    assert refused.code
    again = at(*proposed(refused.err), "--json")
    assert (again.code, again.error["details"]["pattern"]) == (12, "src/file")


@pytest.mark.parametrize("client", CLIENTS)
def test_the_hint_of_a_hook_works_wherever_the_shell_of_the_agent_stands(
    made: Cli, repository: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("path", "lock", "src/file", "--actor", "ada")
    answer = made("guard", "--hook", client, stdin=told(client, repository / "src" / "file"))
    said = json.loads(answer.out)["user_message"] if client == "cursor" else answer.err
    words = proposed(said)
    assert words[-1] == str(repository / "src" / "file")
    for folder in ("src", "src/deep", "."):
        monkeypatch.chdir(repository / folder)
        again = made(*words, "--actor", "bob", "--json")
        assert (again.code, again.error["details"]["pattern"]) == (12, "src/file")
