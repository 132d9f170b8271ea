"""`holdfast setup --plugin` (issue 22): a plugin for Claude Code and an extension for Gemini, whole and in their form.

`make clients` has the validator of the client itself look at it; this is what can be said without the client.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.faces.cli.setup.plugin import EIGHT
from tests.cli.calling import Answer
from tests.docs.generate import ROOT

Cli = Callable[..., Answer]
MANIFESTS = {"claude": ".claude-plugin/plugin.json", "gemini": "gemini-extension.json"}


@pytest.mark.parametrize("client", MANIFESTS)
def test_i22_a_plugin_has_manifest_hooks_server_commands_and_skill(cli: Cli, project: Path, client: str) -> None:
    done = cli("setup", client, "--plugin", "made", "--release")
    assert done.code == 0, done
    assert str(project / "made") in done.err, "it says how to install it"
    made = project / "made"
    manifest = json.loads((made / MANIFESTS[client]).read_text())
    assert (manifest["name"], manifest["version"].count(".")) == ("holdfast", 2)
    hooks = json.loads((made / "hooks/hooks.json").read_text())["hooks"]
    assert {"SessionStart", "SessionEnd"} < set(hooks)
    assert all("' holdfast " in each["hooks"][0]["command"] for (each,) in hooks.values())
    servers = manifest if client == "gemini" else json.loads((made / ".mcp.json").read_text())
    assert servers["mcpServers"]["holdfast"]["args"][-1] == "mcp"
    if client == "gemini":
        commands = {path.stem: tomllib.loads(path.read_text()) for path in (made / "commands/holdfast").iterdir()}
        assert all("{{args}}" in each["prompt"] for each in commands.values())
    else:
        texts = {path.stem: path.read_text() for path in (made / "commands").iterdir()}
        assert all(text.startswith("---\ndescription: ") and "$ARGUMENTS" in text for text in texts.values())
        commands = {name: {} for name in texts}
    assert {"next", "done", "status"} == set(commands)
    skill = (made / "skills/holdfast/SKILL.md").read_text()
    assert skill.startswith("---\nname: holdfast\ndescription: ")
    assert all(f"`{command}`" in skill for command, _ in EIGHT)


def test_i22_the_skill_explains_the_commands_of_the_page_for_agents() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    assert len(EIGHT) == 8
    assert all(f"`{command}`" in page for command, _ in EIGHT)


def test_i22_a_plugin_is_updated_and_other_files_are_left_alone(cli: Cli, project: Path) -> None:
    assert cli("setup", "claude", "--plugin", "made").code == 0
    (project / "made" / "commands" / "next.md").write_text("old")
    again = cli("setup", "claude", "--plugin", "made", "--json").data
    assert [each["what"] for each in again if each["path"].endswith("next.md")] == ["changed"]
    assert {each["what"] for each in again if not each["path"].endswith("next.md")} == {"unchanged"}
    (project / "theirs").mkdir()
    (project / "theirs" / "file").write_text("mine")
    refused = cli("setup", "claude", "--plugin", "theirs")
    assert (refused.code, "has other files" in refused.err) == (1, True), refused
    assert [path.name for path in (project / "theirs").iterdir()] == ["file"]
    assert not (project / ".holdfast").exists(), "it is for any project, so nothing is noted in this one"


@pytest.mark.parametrize("words", ["codex --plugin x", "git --plugin x", "claude --plugin x --remove"])
def test_i22_what_has_no_plugin_says_so(cli: Cli, project: Path, words: str) -> None:
    assert cli("setup", *words.split()).code == 2
    assert not (project / "x").exists()


def test_i22_the_hooks_of_a_plugin_decide_like_those_of_a_project(made: Cli, project: Path) -> None:
    made("setup", "claude", "--plugin", "made")
    made("setup", "git", "--check")
    (project / ".holdfast" / "program").write_text("/bin/false\n")
    hooks = json.loads((project / "made/hooks/hooks.json").read_text())["hooks"]
    command = hooks["PreToolUse"][0]["hooks"][0]["command"]
    told = json.dumps({"session_id": "s", "cwd": str(project), "tool_input": {"file_path": str(project / "x")}})
    done = subprocess.run(
        ["sh", "-c", command], cwd=project, input=told, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert (done.returncode, "Refused" in done.stderr) == (2, True), "a program that does not work refuses"


def test_i22_a_plugin_works_where_path_has_no_holdfast(cli: Cli, project: Path) -> None:
    assert cli("init").code == 0
    done = cli("setup", "claude", "--plugin", "my plugin", PATH="/usr/bin:/bin")
    assert done.code == 0
    assert f"claude --plugin-dir '{project / 'my plugin'}'" in done.err, "as a shell takes it"
    assert "PATH has no holdfast" in done.err
    assert Path((project / ".holdfast" / "program").read_text().strip()).name == "holdfast"
    assert not (project / "CLAUDE.md").exists(), "and nothing is beside the plugin"
    found = Path((project / ".holdfast" / "program").read_text().strip()).parent
    assert "PATH has no holdfast" not in cli("setup", "claude", "--plugin", "my plugin", PATH=str(found)).err
