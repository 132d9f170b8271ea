"""Gemini CLI: each case of the door with the real client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from tests.clients.cases import Client, decides, end, shared
from tests.clients.model import prompt
from tests.clients.scratch import program


class Gemini(Client):
    """A scratch repository in which Gemini CLI works, in a folder that the person trusts, or not."""

    def __init__(self, *setup: str, trusted: bool = True) -> None:
        super().__init__("gemini", *setup)
        home = self.home / ".gemini"
        home.mkdir()
        security = {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": True}}
        (home / "settings.json").write_text(json.dumps({"security": security, "telemetry": {"enabled": False}}))
        trust = "TRUST_FOLDER" if trusted else "DO_NOT_TRUST"
        trusts = {str(self.root): trust, str(self.base / "extension"): "TRUST_FOLDER"}
        (home / "trustedFolders.json").write_text(json.dumps(trusts))

    def say(self, *steps: dict[str, Any], resume: str | None = None) -> str:
        """Let the model take these steps in a session; returns its id."""
        env = {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": self.model.url, "GEMINI_CLI_NO_RELAUNCH": "true"}
        words = [program("gemini"), "-p", prompt(*steps), "--approval-mode", "yolo", "--output-format", "json"]
        session = ["--resume", resume] if resume else ["--session-id", str(uuid4())]
        self.said = self.run(*words, "-m", "gemini-2.5-pro", *session, env=env, code=None)
        return resume or session[1]

    def write(self, name: str) -> dict[str, Any]:
        """The step that writes a file."""
        return {"tool": "write_file", "input": {"file_path": str(self.root / name), "content": "x"}}

    def tool(self, name: str, **given: Any) -> dict[str, Any]:
        """The step that calls a tool over MCP."""
        return {"tool": f"mcp_holdfast_{name}", "input": given}

    def shell(self, command: str) -> dict[str, Any]:
        """The step that runs a command in the client's shell."""
        return {"tool": "run_shell_command", "input": {"command": command}}


def untrusted() -> None:
    """In a folder that the person does not trust hooks do not run, and doctor says so."""
    with Gemini(trusted=False) as at:
        at.say(at.write("a"))
        assert "gemini guard: installed, never ran" in at.holdfast("doctor", code=None)


def extension() -> None:
    """The extension passes the client's own validator, and its hooks decide in a project that was not set up."""
    with Gemini() as at:
        made = str(at.base / "extension")
        at.holdfast("setup", "gemini", "--remove")
        at.holdfast("setup", "gemini", "--plugin", made)
        assert "successfully validated" in at.run(program("gemini"), "extensions", "validate", made)
        at.run(program("gemini"), "extensions", "install", made, "--consent")
        decides(at)


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Every case, by what it shows."""
    yield from shared(Gemini, end)
    yield (untrusted.__doc__ or "").strip(), untrusted
    yield (extension.__doc__ or "").strip(), extension
