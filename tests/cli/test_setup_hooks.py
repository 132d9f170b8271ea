"""What hooks are told and answer (issue 7): a name for each session, the files of an edit, what each client wants."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.faces.cli.setup.hooks import (
    actor_of,
    answer,
    client_of,
    event_of,
    paths_of,
    session_of,
)
from tests.cli.calling import Shell

AGENTS = ["claude", "codex", "cursor", "gemini"]
PATCH = """*** Begin Patch
*** Update File: src/a.py
*** Move to: src/b.py
@@
-*** Delete File: not/this.py
+*** Add File: nor/that.py
*** Add File: /abs/new.py
+x
  *** Delete File: old name.py
*** End Patch
"""
PATCHED = ["src/a.py", "src/b.py", "/abs/new.py", "old name.py"]
IN_SRC = "cd src && apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF\n"
WRITE = {"file_path": "src/x.py", "content": "path"}


@pytest.mark.parametrize("space", ["\u00a0", "\u2003", "\u3000", "\u0085", "\x0b", "\t \u00a0", ""])
def test_a_header_of_a_patch_is_found_after_any_white_space(space: str) -> None:
    """Codex takes off all of it before it looks for one."""
    patch = f"*** Begin Patch\n*** Add File: new.py\n+x\n{space}*** Update File: src/a.py\n@@\n-a\n+b\n*** End Patch\n"
    assert paths_of("codex", {"tool_name": "apply_patch", "tool_input": {"command": patch}}) == ["new.py", "src/a.py"]


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("SessionStart", "start"),
        ("sessionStart", "start"),
        ("PreCompact", "compact"),
        ("preCompact", "compact"),
        ("PreCompress", "compact"),
        ("PreToolUse", "edit"),
        ("preToolUse", "edit"),
        ("BeforeTool", "edit"),
        ("Stop", "stop"),
        ("AfterAgent", "stop"),
        ("SessionEnd", "end"),
        ("sessionEnd", "end"),
        ("UserPromptSubmit", "prompt"),
        ("PostToolUse", "after"),
        ("AfterTool", "after"),
        ("postToolUse", "after"),
        ("PermissionRequest", None),
        ("", None),
        (7, None),
    ],
)
def test_i7_every_clients_name_of_an_event_is_known(name: object, event: str | None) -> None:
    assert event_of({"hook_event_name": name}) == event


@pytest.mark.parametrize("client", AGENTS)
def test_i7_two_sessions_never_share_a_name_and_one_keeps_its_own(client: str) -> None:
    first, second = {"session_id": "s-1"}, {"session_id": "s-2"}
    assert actor_of(client, first, {}) == f"{client}-{sha256(b's-1').hexdigest()[:8]}"
    assert actor_of(client, first, {}) == actor_of(client, {**first, "hook_event_name": "PreToolUse"}, {})
    assert actor_of(client, first, {}) != actor_of(client, second, {})


def test_i22_a_name_that_was_given_is_the_one_of_hooks_and_commands_alike() -> None:
    payload = {"session_id": "s-1"}
    assert actor_of("claude", payload, {"HOLDFAST_ACTOR": "reviewer"}) == "reviewer"
    assert actor_of("claude", payload, {"HOLDFAST_ACTOR": ""}) == actor_of("claude", payload, {})


def test_i7_cursor_is_one_agent_even_where_it_runs_the_hooks_of_claude_code() -> None:
    payload = {"conversation_id": "c-1", "session_id": "c-1", "cursor_version": "3.1", "hook_event_name": "preToolUse"}
    assert client_of("claude", payload) == client_of("cursor", payload) == "cursor"
    assert client_of("claude", {"session_id": "s"}) == "claude"
    assert session_of("cursor", {"conversation_id": "c-1"}) == session_of("cursor", {"session_id": "c-1"}) == "c-1"


@pytest.mark.parametrize("payload", [None, [], "x", 7, {}, {"session_id": 7}, {"session_id": ""}, {"tool_input": "x"}])
@pytest.mark.parametrize("client", AGENTS)
def test_i7_a_payload_that_tells_nothing_names_nobody_and_no_file(client: str, payload: Any) -> None:
    assert session_of(client, payload) is None
    assert actor_of(client, payload, {}) is None
    with pytest.raises(Invalid, match="names no file to edit"):
        paths_of(client, payload)
    assert event_of(payload) is None
    assert client_of(client, payload) == client


@pytest.mark.parametrize(
    ("client", "payload", "paths"),
    [
        ("claude", {"cwd": "/p", "tool_name": "Write", "tool_input": WRITE}, ["/p/src/x.py"]),
        ("claude", {"cwd": "/p", "tool_name": "Edit", "tool_input": {"file_path": "/q/x.py"}}, ["/q/x.py"]),
        ("claude", {"tool_name": "NotebookEdit", "tool_input": {"notebook_path": "/p/n.ipynb"}}, ["/p/n.ipynb"]),
        ("gemini", {"cwd": "/p", "tool_name": "replace", "tool_input": WRITE}, ["/p/src/x.py"]),
        ("cursor", {"workspace_roots": ["/w"], "tool_name": "Write", "tool_input": WRITE}, ["/w/src/x.py"]),
        ("cursor", {"tool_name": "Delete", "tool_input": {"path": "x.py"}}, ["x.py"]),
        (
            "codex",
            {"cwd": "/p", "tool_name": "apply_patch", "tool_input": {"command": PATCH}},
            ["/p/src/a.py", "/p/src/b.py", "/abs/new.py", "/p/old name.py"],
        ),
        (
            "codex",  # which takes the patch out of the shell command, and applies it itself
            {"cwd": "/p", "tool_name": "Bash", "tool_input": {"command": f"apply_patch <<'EOF'\n{PATCH}EOF\n"}},
            ["/p/src/a.py", "/p/src/b.py", "/abs/new.py", "/p/old name.py"],
        ),
        ("codex", {"cwd": "/p", "tool_name": "Bash", "tool_input": {"command": "cat src/a.py"}}, []),
        ("codex", {"cwd": "/p", "tool_name": "Bash", "tool_input": {"command": ["cat", "src/a.py"]}}, []),
        ("codex", {"tool_name": "Bash", "tool_input": {"command": ["apply_patch", PATCH]}}, PATCHED),
        ("codex", {"tool_name": "apply_patch", "tool_input": {"input": PATCH}}, PATCHED),
        (
            "codex",
            {"cwd": "/p", "tool_name": "Bash", "tool_input": {"command": IN_SRC, "workdir": "w"}},
            ["/p/w/src/a"],
        ),
        ("codex", {"cwd": "/p", "tool_name": "apply_patch", "tool_input": {"command": IN_SRC}}, ["/p/src/a"]),
    ],
)
def test_i7_the_files_of_an_edit_are_found(client: str, payload: dict[str, Any], paths: list[str]) -> None:
    assert paths_of(client, payload) == paths


@pytest.mark.parametrize(
    ("before", "folder"),
    [
        ("apply_patch <<'EOF'\n", ""),
        ('apply_patch "', ""),
        ("applypatch '", ""),
        ("apply_patch \"$(cat <<'EOF'\n", ""),
        ("cd src && apply_patch <<'EOF'\n", "src/"),
        ("  cd src;apply_patch <<EOF\n", "src/"),
        ("cd src\napply_patch <<EOF\n", "src/"),
        ("cd -- 'src/käse and more' && apply_patch <<EOF\n", "src/käse and more/"),
        ("cd /abs/src && apply_patch <<-EOF\n", "/abs/src/"),
        ("bash -lc 'cd src && apply_patch <<EOF\n", "src/"),
    ],
)
def test_i22_a_patch_in_a_command_counts_from_where_the_command_goes(before: str, folder: str) -> None:
    command = f"{before}*** Begin Patch\n*** Update File: a.py\n*** End Patch\nEOF\n"
    if before.startswith("bash"):
        command += "'"
    told = {"cwd": "/p", "tool_name": "Bash", "tool_input": {"command": command}}
    assert paths_of("codex", told) == [os.path.join("/p", folder, "a.py")]
    told["tool_input"] = {"command": ["bash", "-lc", command]}
    if not before.startswith("bash"):
        assert paths_of("codex", told) == [os.path.join("/p", folder, "a.py")]


@pytest.mark.parametrize(
    "before",
    [
        "cd $HOME && apply_patch <<EOF\n",
        "cd ~/x && apply_patch <<EOF\n",
        "cd - && apply_patch <<EOF\n",
        "cd && apply_patch <<EOF\n",
        "cd src && cd deep && apply_patch <<EOF\n",
        "cd src || apply_patch <<EOF\n",
        "pushd src; apply_patch <<EOF\n",
        "(cd src; apply_patch <<EOF\n",
        "cat <<EOF | (cd src; apply_patch)\n",
        "cd 'src && apply_patch <<EOF\n",
        "cd s* && apply_patch <<EOF\n",
        "env -C src apply_patch <<EOF\n",
        "cat <<EOF\n",
        "apply_patch <<E\n*** Begin Patch\n*** Add File: b\n+x\n*** End Patch\nE\ncd src && apply_patch <<'EOF'\n",
    ],
)
def test_i22_a_patch_of_which_nobody_can_tell_the_folder_is_refused(before: str) -> None:
    command = f"{before}*** Begin Patch\n*** Update File: a.py\n*** End Patch\nEOF\n"
    for given in (command, ["bash", "-lc", command]):
        with pytest.raises(Invalid, match="nobody can tell which files") as refused:
            paths_of("codex", {"cwd": "/p", "tool_name": "Bash", "tool_input": {"command": given}})
        assert "cd FOLDER && apply_patch" in str(refused.value.hint)


@pytest.mark.parametrize("client", AGENTS)
def test_i7_at_the_start_the_text_reaches_the_agent(client: str) -> None:
    stdout, stderr, code = answer(client, "start", 'you "are"\nhere')
    told = json.loads(stdout)
    said = told["additional_context"] if client == "cursor" else told["hookSpecificOutput"]["additionalContext"]
    assert (said, stderr, code) == ('you "are"\nhere', "", 0)


@pytest.mark.parametrize("client", AGENTS)
def test_i7_a_refused_edit_is_blocked_with_its_reason(client: str) -> None:
    for text in ("src/** is held by b", ""):
        stdout, stderr, code = answer(client, "edit", text, blocked=True)
        if client == "cursor":
            told = json.loads(stdout)
            assert (told["permission"], code) == ("deny", 0)
            reason = told["agent_message"]
        else:
            assert (stdout, code) == ("", 2)
            reason = stderr
        assert text in reason
        assert reason.strip()


@pytest.mark.parametrize("client", AGENTS)
def test_i7_nothing_to_say_is_said_in_the_way_the_client_bears(client: str) -> None:
    nothing = ("{}" if client in ("cursor", "gemini") else "", "", 0)
    assert answer(client, "start", "") == answer(client, "compact", " \n") == answer(client, "edit", "") == nothing
    assert (answer(client, "edit", "news") == nothing) == (client != "claude"), "the others do not hear it"


@pytest.mark.parametrize("client", AGENTS)
def test_i7_before_compaction_nothing_is_ever_blocked(client: str) -> None:
    stdout, stderr, code = answer(client, "compact", "your claims", blocked=True)
    assert (stderr, code) == ("", 0)
    assert ("your claims" in stdout) == (client == "claude")


def test_i7_a_hook_does_not_load_what_only_setup_needs() -> None:
    code = "import sys, holdfast.faces.cli.setup.hooks; print('subprocess' in sys.modules, 'tempfile' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


# --- the MCP server --------------------------------------------------------------------------------------------------

WITHOUT_MCP = "import sys; sys.modules['mcp'] = None; from holdfast.faces.cli import main; sys.exit(main(sys.argv[1:]))"
TOLD = "MCP needs a package that is not installed: "
INSTALL = "pip install 'holdfast[mcp]'"


def without_mcp(folder: Path) -> str:
    """A program holdfast in an environment of its own that lacks the packages of the extra."""
    here, venv = Path(sys.executable).parents[1], folder / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "lib").symlink_to(here / "lib")
    (venv / "bin/python").symlink_to(Path(sys.executable).resolve())
    shutil.copy(here / "pyvenv.cfg", venv)
    program = venv / "bin/holdfast"
    program.write_text(f'#!/bin/sh\nexec {venv}/bin/python -c "{WITHOUT_MCP}" "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("client", ["claude", "codex"])  # whose files are JSON, and TOML
def test_a_server_that_cannot_start_for_want_of_the_extra_is_told_by_setup_check_and_doctor(
    shell: Shell, tmp_path: Path, client: str
) -> None:
    base = without_mcp(tmp_path)
    assert shell("init").code == 0
    done = shell.run([base, "setup", client])
    assert done.code == 0
    checked, doctor = shell("setup", client, "--check"), shell("doctor")
    assert (checked.code, doctor.code) == (1, 1)
    for told in (done.err, checked.out, doctor.out):
        assert f"the MCP server does not start: {TOLD}" in told
        assert INSTALL in told
    assert shell("setup", client, "--no-mcp").code == 0
    assert TOLD not in shell("setup", client, "--check").out


def test_check_says_nothing_of_runs_where_nothing_was_set_up(shell: Shell) -> None:
    assert shell("init").code == 0
    checked = shell("setup", "claude", "--check")
    assert checked.code == 1
    assert "CLAUDE.md does not exist" in checked.out
    assert "never ran" not in checked.out
