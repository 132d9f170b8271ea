"""Claude Code: each case of the door with the real client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.clients.cases import Client, decides, end, shared
from tests.clients.model import prompt
from tests.clients.scratch import program


def answer(said: str) -> dict[str, Any]:
    """The client's answer, which lines of its own may follow, such as one about a hook that it cancelled."""
    found, _ = json.JSONDecoder().raw_decode(said, said.index("{"))
    return dict(found)


class Claude(Client):
    """A scratch repository in which Claude Code works."""

    def __init__(self, *setup: str) -> None:
        super().__init__("claude", *setup)
        self.options: list[str] = []
        (self.home / ".claude").mkdir()
        (self.home / ".claude" / "settings.json").write_text('{"enableAllProjectMcpServers": true}')

    def say(self, *steps: dict[str, Any], resume: str | None = None) -> str:
        """Let the model take these steps in a session; returns its id."""
        more = ["--resume", resume] if resume else []
        env = {
            **{"ANTHROPIC_BASE_URL": self.model.url, "ANTHROPIC_API_KEY": "stand-in", "DISABLE_AUTOUPDATER": "1"},
            **{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "MCP_TIMEOUT": "120000"},
        }
        allowed = ["--permission-mode", "acceptEdits", "--allowedTools", "Write,Edit,Bash,mcp__holdfast"]
        words = [program("claude"), "-p", prompt(*steps), "--output-format", "json", *allowed, *self.options, *more]
        said = self.run(*words, env=env, code=None)
        try:
            return str(answer(said)["session_id"])
        except (ValueError, KeyError) as error:
            raise AssertionError(f"no answer: {said[-2000:]}") from error

    def write(self, name: str) -> dict[str, Any]:
        """The step that writes a file."""
        return {"tool": "Write", "input": {"file_path": str(self.root / name), "content": "x"}}

    def tool(self, name: str, **given: Any) -> dict[str, Any]:
        """The step that calls a tool over MCP."""
        return {"tool": f"mcp__holdfast__{name}", "input": given}

    def shell(self, command: str) -> dict[str, Any]:
        """The step that runs a command in the client's shell."""
        return {"tool": "Bash", "input": {"command": command, "description": "run"}}


def plugin() -> None:
    """The plugin passes the client's own validator, and its hooks decide in a project that was not set up."""
    with Claude() as at:
        at.holdfast("setup", "claude", "--remove")
        at.holdfast("setup", "claude", "--plugin", str(at.base / "plugin"))
        said = at.run(program("claude"), "plugin", "validate", str(at.base / "plugin"))
        assert "passed" in said.lower(), said
        at.options = ["--plugin-dir", str(at.base / "plugin")]
        decides(at)


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Every case, by what it shows."""
    yield from shared(Claude, end)
    yield (plugin.__doc__ or "").strip(), plugin
