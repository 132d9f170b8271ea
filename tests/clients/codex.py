"""Codex: each case of the door with the real client.

The hooks of a project run only once a person has trusted them (`/hooks`); the cases stand in for that with the client's
own option, but for the one that shows what happens before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.clients.cases import Client, shared
from tests.clients.model import prompt
from tests.clients.scratch import program

_CONFIG = """\
model = "gpt-5.4"
model_provider = "stand-in"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.stand-in]
name = "stand-in"
base_url = "{url}/v1"
env_key = "STAND_IN"
wire_api = "responses"
[projects."{root}"]
trust_level = "trusted"
"""


class Codex(Client):
    """A scratch repository in which Codex works."""

    def __init__(self, *setup: str) -> None:
        super().__init__("codex", *setup)
        self.env["CODEX_HOME"] = str(self.home)
        self.env["STAND_IN"] = "x"
        (self.home / "config.toml").write_text(_CONFIG.format(url=self.model.url, root=self.root))

    def say(self, *steps: dict[str, Any], resume: str | None = None, trusted: bool = True) -> str:
        """Let the model take these steps in a session; returns its id."""
        words = [program("codex"), "exec", "--json", *(["--dangerously-bypass-hook-trust"] if trusted else [])]
        words += ["resume", resume] if resume else []
        said = self.run(*words, prompt(*steps), code=None)
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        ids = [each["thread_id"] for each in events if each.get("type") == "thread.started"]
        assert ids, f"no session: {said[-2000:]}"
        return str(ids[0])

    def write(self, name: str) -> dict[str, Any]:
        """The step that writes a file."""
        patch = f"*** Begin Patch\n*** Add File: {name}\n+x\n*** End Patch\n"
        return {"tool": "exec_command", "input": {"cmd": f"apply_patch <<'EOF'\n{patch}EOF\n"}}

    def tool(self, name: str, **given: Any) -> dict[str, Any]:
        """The step that calls a tool over MCP."""
        return {"tool": name, "namespace": "mcp__holdfast", "input": given}

    def shell(self, command: str) -> dict[str, Any]:
        """The step that runs a command in the client's shell."""
        return {"tool": "exec_command", "input": {"cmd": command}}


def untrusted() -> None:
    """Hooks that nobody trusted do not run, and doctor says so."""
    with Codex() as at:
        at.say(at.write("a"), trusted=False)
        assert at.wrote("a"), "this client ignores them silently"
        assert "codex guard: installed, never ran" in at.holdfast("doctor", code=None)


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Every case, by what it shows."""
    yield from shared(Codex)
    yield (untrusted.__doc__ or "").strip(), untrusted
