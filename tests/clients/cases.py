"""What every client must show, by the same steps: its module says how it starts, writes and calls tools."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.clients.scratch import PYTHON, Scratch

Start = Callable[..., "Client"]


class Client(Scratch):
    """A scratch repository in which a client works."""

    @abstractmethod
    def say(self, *steps: dict[str, Any], resume: str | None = None) -> str:
        """Let the model take these steps in a session; returns its id."""

    @abstractmethod
    def write(self, name: str) -> dict[str, Any]:
        """The step that writes a file."""

    @abstractmethod
    def tool(self, name: str, **given: Any) -> dict[str, Any]:
        """The step that calls a tool over MCP."""

    @abstractmethod
    def shell(self, command: str) -> dict[str, Any]:
        """The step that runs a command in the client's shell."""


def locked(start: Start) -> None:
    """Another agent's lock refuses the edit, with its name; what nobody locked is written."""
    with start() as at:
        at.holdfast("path", "lock", "src/**", "--actor", "bob")
        at.say(at.write("src/a"), at.write("free"))
        assert at.wrote("free")
        assert not at.wrote("src/a")
        assert at.model.heard("locked by bob")


def missing_program(start: Start) -> None:
    """Without the program the edit is refused, with how to mend it."""
    with start() as at:
        at.remove_program()
        at.say(at.write("a"))
        assert not at.wrote("a")
        assert at.model.heard(f"holdfast setup {at.client}")


def hanging_program(start: Start) -> None:
    """A program that hangs refuses too."""
    with start() as at:
        at.hang_program()
        at.say(at.write("a"))
        assert not at.wrote("a")
        assert at.model.heard("took longer than 5 s")


def records(start: Start) -> None:
    """Doctor says that the hooks never ran, and after a session that they did; so does `setup --check`."""
    with start() as at:
        assert f"{at.client} guard: installed, never ran" in at.holdfast("doctor", code=None)
        at.say(at.write("a"))
        assert f"{at.client} guard: last ran just now" in at.holdfast("doctor", code=None)
        assert f"{at.client} prime: last ran just now" in at.holdfast("setup", at.client, "--check")


def tools(start: Start) -> None:
    """The tools of MCP are listed and called."""
    with start() as at:
        at.say(at.tool("task_create", title="from the client"))
        assert [each["title"] for each in at.data("list")] == ["from the client"]


def identity(start: Start) -> None:
    """A session has one name over MCP, in hooks and in its shell, also after a resume; another session has another."""
    with start() as at:
        who = at.shell(f"{PYTHON} -m holdfast where")
        first = at.say(at.tool("paths", action="lock", paths=["own/**"]), at.write("own/a"), who)
        (lock,) = at.data("path", "list")
        assert lock["holder"].startswith(f"{at.client}-"), lock
        assert at.wrote("own/a"), "it does not lock itself out"
        assert at.model.heard(f"actor      {lock['holder']}")
        at.say(at.write("own/b"))
        assert not at.wrote("own/b"), "another session"
        at.say(at.write("own/c"), resume=first)
        assert at.wrote("own/c"), "the same session, resumed"


def news(start: Start) -> None:
    """Mail and a lost claim are reported at the next prompt, mail also at work; what is held is recalled at a stop."""
    with start() as at:
        at.holdfast("create", "paint it")
        first = at.say(at.tool("task_claim"))
        (task,) = at.data("list")
        assert at.model.heard(f"you still hold {task['id']} (paint it)"), "at Stop"
        at.holdfast("release", task["id"], "--force", "--actor", "boss")
        at.holdfast("claim", task["id"], "--actor", "bob")
        at.holdfast("mail", "send", task["claimed_by"], "hello", "x", "--actor", "bob")
        at.model.asked.clear()
        at.say(resume=first)
        assert at.model.heard(f"you lost the claim on {task['id']}")
        assert at.model.heard("1 new message(s), from bob")
        write = f"{PYTHON} -m holdfast mail send {task['claimed_by']} again x --actor eve"
        forget = "rm .holdfast/sessions/.news.*"  # when it was told last
        at.say(at.shell(f"{write}; {forget}"), at.shell("true"), resume=first)
        assert at.model.heard("2 new message(s)"), "after a command of its shell"


def reminder(start: Start) -> None:
    """What a session holds is recalled at its next prompt, and only once when it wants to stop."""
    with start() as at:
        at.holdfast("create", "paint it")
        first = at.say(at.tool("task_claim"))
        (task,) = at.data("list")
        held = f"you still hold {task['id']} (paint it)"
        assert at.model.heard(held)
        once = at.model.most(held)
        at.model.asked.clear()
        at.say(resume=first)
        assert at.model.heard(f"you hold {task['id']}"), "at the prompt"
        assert at.model.most(held) <= once, "recalled again"


def decides(at: Client) -> None:
    """Hooks of a plugin refuse everything where no program is known, and else what another agent has locked."""
    (at.root / ".holdfast" / "program").unlink(missing_ok=True)  # as in every other project
    at.say(at.write("early"))
    assert not at.wrote("early"), "no program is known here"
    assert at.model.heard(f"holdfast setup {at.client}")
    (at.root / ".holdfast" / "program").write_text(f"{Path(PYTHON).with_name('holdfast')}\n")
    at.holdfast("path", "lock", "src/**", "--actor", "bob")
    at.say(at.write("src/a"), at.write("free"))
    assert at.wrote("free")
    assert not at.wrote("src/a")
    assert at.model.heard("locked by bob")


def end(start: Start) -> None:
    """With --release the end of a session releases what it holds; without, the claim stays until it expires."""
    for words, holder in ((["--release"], False), ([], True)):
        with start(*words) as at:
            at.holdfast("create", "paint it")
            at.say(at.tool("task_claim"))
            (task,) = at.data("list")
            assert bool(task["claimed_by"]) is holder, task


def removal(start: Start) -> None:
    """`setup --remove` leaves the tree as it was, with no empty folder."""
    with start() as at:
        at.say(at.write("a"))
        at.holdfast("setup", at.client, "--remove")
        (at.root / "a").unlink()
        assert at.tree() == at.before


SHARED = (locked, missing_program, hanging_program, records, tools, identity, news, reminder, removal)


def shared(start: Start, *more: Callable[[Start], None]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every case that all clients have, and more, by what it shows."""
    for case in (*SHARED, *more):
        yield (case.__doc__ or "").strip(), partial(case, start)
