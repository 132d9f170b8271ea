"""Gemini CLI: each case of the door with the real client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.clients.model import prompt
from tests.clients.scratch import Scratch, program


class Gemini(Scratch):
    """A scratch repository in which Gemini CLI works, in a folder that the person trusts, or not."""

    def __init__(self, *setup: str, trusted: bool = True) -> None:
        super().__init__("gemini", *setup)
        home = self.home / ".gemini"
        home.mkdir()
        security = {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": True}}
        (home / "settings.json").write_text(json.dumps({"security": security, "telemetry": {"enabled": False}}))
        trust = "TRUST_FOLDER" if trusted else "DO_NOT_TRUST"
        (home / "trustedFolders.json").write_text(json.dumps({str(self.root): trust}))

    def say(self, *steps: dict[str, Any]) -> str:
        """Let the model take these steps in a session; returns what the client printed."""
        env = {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": self.model.url, "GEMINI_CLI_NO_RELAUNCH": "true"}
        words = [program("gemini"), "-p", prompt(*steps), "--approval-mode", "yolo", "--output-format", "json"]
        return self.run(*words, "-m", "gemini-2.5-pro", env=env, code=None)

    def write(self, name: str) -> dict[str, Any]:
        """The step that writes a file."""
        return {"tool": "write_file", "input": {"file_path": str(self.root / name), "content": "x"}}


def locked() -> None:
    """Another agent's lock refuses the edit, with its name; what nobody locked is written."""
    with Gemini() as at:
        at.holdfast("path", "lock", "src/**", "--actor", "bob")
        said = at.say(at.write("src/a"), at.write("free"))
        assert at.wrote("free"), said
        assert not at.wrote("src/a")
        assert at.model.heard("locked by bob")


def missing_program() -> None:
    """Without the program the edit is refused, with how to mend it."""
    with Gemini() as at:
        at.remove_program()
        at.say(at.write("a"))
        assert not at.wrote("a")
        assert at.model.heard("holdfast setup gemini")


def tools() -> None:
    """The tools of MCP are listed and called, and what is held is recalled when the agent wants to stop."""
    with Gemini() as at:
        at.holdfast("create", "paint it")
        said = at.say({"tool": "mcp_holdfast_task_claim", "input": {}})
        (task,) = at.data("list")
        assert task["claimed_by"], said
        assert at.model.heard(f"you still hold {task['id']} (paint it)")


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Every case, by what it shows."""
    for case in (locked, missing_program, tools):
        yield (case.__doc__ or "").strip(), case
