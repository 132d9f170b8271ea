"""Claude Code: each case of the door with the real client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.clients.model import prompt
from tests.clients.scratch import PYTHON, Scratch, program


class Claude(Scratch):
    """A scratch repository in which Claude Code works."""

    def __init__(self, *setup: str) -> None:
        super().__init__("claude", *setup)
        (self.home / ".claude").mkdir()
        (self.home / ".claude" / "settings.json").write_text('{"enableAllProjectMcpServers": true}')

    def say(self, *steps: dict[str, Any], resume: str | None = None) -> str:
        """Let the model take these steps in a session; returns its id."""
        more = ["--resume", resume] if resume else []
        env = {
            **{"ANTHROPIC_BASE_URL": self.model.url, "ANTHROPIC_API_KEY": "stand-in", "DISABLE_AUTOUPDATER": "1"},
            **{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1"},
        }
        allowed = ["--permission-mode", "acceptEdits", "--allowedTools", "Write,Edit,Bash,mcp__holdfast"]
        words = [program("claude"), "-p", prompt(*steps), "--output-format", "json", *allowed, *more]
        said = self.run(*words, env=env, code=None)
        try:
            return str(json.loads(said[said.index("{") : said.rindex("}") + 1])["session_id"])
        except (ValueError, KeyError) as error:
            raise AssertionError(f"no answer: {said[-2000:]}") from error

    def write(self, name: str) -> dict[str, Any]:
        """The step that writes a file."""
        return {"tool": "Write", "input": {"file_path": str(self.root / name), "content": "x"}}


def _mcp(tool: str, **given: Any) -> dict[str, Any]:
    return {"tool": f"mcp__holdfast__{tool}", "input": given}


def locked() -> None:
    """Another agent's lock refuses the edit, with its name; what nobody locked is written."""
    with Claude() as at:
        at.holdfast("path", "lock", "src/**", "--actor", "bob")
        at.say(at.write("src/a"), at.write("free"))
        assert not at.wrote("src/a")
        assert at.wrote("free")
        assert at.model.heard("locked by bob")


def missing_program() -> None:
    """Without the program the edit is refused, with how to mend it."""
    with Claude() as at:
        at.remove_program()
        at.say(at.write("a"))
        assert not at.wrote("a")
        assert at.model.heard("holdfast setup claude")


def hanging_program() -> None:
    """A program that hangs refuses too."""
    with Claude() as at:
        at.hang_program()
        at.say(at.write("a"))
        assert not at.wrote("a")
        assert at.model.heard("took longer than 5 s")


def records() -> None:
    """Doctor says that the hooks never ran, and after a session that they did."""
    with Claude() as at:
        assert "claude guard: installed, never ran" in at.holdfast("doctor", code=None)
        at.say(at.write("a"))
        assert "claude guard: last ran just now" in at.holdfast("doctor", code=None)
        assert "claude prime: last ran just now" in at.holdfast("setup", "claude", "--check")


def tools() -> None:
    """The tools of MCP are listed and called."""
    with Claude() as at:
        at.say(_mcp("task_create", title="from the client"))
        assert [each["title"] for each in at.data("list")] == ["from the client"]


def identity() -> None:
    """A session has one name over MCP, in hooks and in its shell, also after a resume; another session has another."""
    with Claude() as at:
        run = {"tool": "Bash", "input": {"command": f"{PYTHON} -m holdfast where", "description": "who"}}
        first = at.say(_mcp("paths", action="lock", paths=["own/**"]), at.write("own/a"), run)
        (lock,) = at.data("path", "list")
        assert lock["holder"].startswith("claude-")
        assert at.wrote("own/a"), "it does not lock itself out"
        assert at.model.heard(f"actor      {lock['holder']}")
        at.say(at.write("own/b"))
        assert not at.wrote("own/b"), "another session"
        at.say(at.write("own/c"), resume=first)
        assert at.wrote("own/c"), "the same session, resumed"


def news() -> None:
    """Mail and a lost claim are reported at the next prompt; what is held is recalled when the agent wants to stop."""
    with Claude() as at:
        at.holdfast("create", "paint it")
        first = at.say(_mcp("task_claim"))
        (task,) = at.data("list")
        assert at.model.heard(f"you still hold {task['id']} (paint it)"), "at Stop"
        at.holdfast("release", task["id"], "--force", "--actor", "boss")
        at.holdfast("claim", task["id"], "--actor", "bob")
        at.holdfast("mail", "send", task["claimed_by"], "hello", "x", "--actor", "bob")
        at.model.asked.clear()
        at.say(resume=first)
        assert at.model.heard(f"you lost the claim on {task['id']}")
        assert at.model.heard("1 new message(s), from bob")


def end() -> None:
    """With --release the end of a session releases what it holds; without, the claim stays until it expires."""
    for words, holder in ((["--release"], False), ([], True)):
        with Claude(*words) as at:
            at.holdfast("create", "paint it")
            at.say(_mcp("task_claim"))
            (task,) = at.data("list")
            assert bool(task["claimed_by"]) is holder, task


def removal() -> None:
    """`setup --remove` leaves the tree as it was, with no empty folder."""
    with Claude() as at:
        at.say(at.write("a"))
        at.holdfast("setup", "claude", "--remove")
        (at.root / "a").unlink()
        assert at.tree() == at.before


def plugin() -> None:
    """The plugin passes the client's own validator, and its hooks refuse in a project that was not set up."""
    with Claude() as at:
        at.holdfast("setup", "claude", "--plugin", str(at.base / "plugin"))
        said = at.run(program("claude"), "plugin", "validate", str(at.base / "plugin"))
        assert "passed" in said.lower(), said


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Every case, by what it shows."""
    for case in (locked, missing_program, hanging_program, records, tools, identity, news, end, removal, plugin):
        yield (case.__doc__ or "").strip(), case
