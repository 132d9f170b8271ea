"""A project set up for Claude Code, and a session of it whose edit meets another agent's lock. Needs no model.

Shows: `holdfast setup claude`, what it writes, what a new session reads first, and an edit that is refused before it
happens. A stand-in plays Claude Code: it runs the hooks of .claude/settings.json as Claude Code does, with JSON on
standard input.

    python examples/claude_code.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


class ClaudeCode:
    """A session: it runs the hooks of the project, and an exit code of 2 forbids what it was about to do."""

    def __init__(self, project: Path, session: str) -> None:
        self.project, self.session = project, session
        self._hooks = json.loads((project / ".claude/settings.json").read_text())["hooks"]

    def fire(self, event: str, tool: str = "", **more: object) -> tuple[int, str]:
        """The exit code of the last hook of an event, and what all of them said."""
        given = {"hook_event_name": event, "session_id": self.session, "cwd": str(self.project), **more}
        code, said = 0, ""
        for entry in self._hooks[event]:
            if not re.fullmatch(entry.get("matcher", ".*"), tool):
                continue
            for hook in entry["hooks"]:
                done = subprocess.run(
                    ["sh", "-c", hook["command"]],
                    input=json.dumps(given),
                    cwd=self.project,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                code, said = done.returncode, said + done.stdout + done.stderr
        return code, said

    def edit(self, path: str) -> str:
        """Edit a file, unless a hook forbids it."""
        where = {"file_path": str(self.project / path)}
        code, said = self.fire("PreToolUse", "Edit", tool_name="Edit", tool_input=where)
        return f"refused: {said.strip().splitlines()[0]}" if code == 2 else "edited"


def main(project: Path) -> None:
    """Set up, lock, and try to edit."""

    def holdfast(*words: str) -> str:
        command = [sys.executable, "-m", "holdfast", *words]
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=True).stdout.strip()

    subprocess.run(["git", "init", "-q", "."], cwd=project, check=True)
    holdfast("init")
    holdfast("setup", "claude")
    print("written:", *sorted(path.name for path in project.iterdir() if path.name not in (".git", ".holdfast")))
    task = holdfast("create", "Tidy the parser", "-q")
    holdfast("claim", task, "--actor", "ada")
    holdfast("path", "lock", "src/parser/**", "--task", task, "--actor", "ada")

    claude = ClaudeCode(project, "3f2a91c0-0000-4000-8000-000000000001")
    _, said = claude.fire("SessionStart", source="startup")
    print("the session reads what to do:", "holdfast next" in said)
    print("README.md:", claude.edit("README.md"))
    print("src/parser/lexer.py:", claude.edit("src/parser/lexer.py"))
    holdfast("done", task, "it is tidy", "--actor", "ada")
    print("after ada is done:", claude.edit("src/parser/lexer.py"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(HOLDFAST_ROLLING="0", HOME=scratch)
        for name in ("HOLDFAST_ACTOR", "HOLDFAST_DIR", "HOLDFAST_URL"):
            os.environ.pop(name, None)
        folder = Path(scratch, "project")
        folder.mkdir()
        main(folder.resolve())
