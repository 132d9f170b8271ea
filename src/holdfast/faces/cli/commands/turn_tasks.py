"""`holdfast turn tasks` and `holdfast turn signal`: what the ledger says about work, and short words to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from holdfast import turnfile
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands.turn import task_line
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.turning import DIR, acting, session_of, warn
from holdfast.faces.cli.words import Argument
from holdfast.turnfile import tasks
from holdfast.turnfile.ledger.people import newcomers, strangers
from holdfast.turnfile.model import SignalWord, Task


def listed(session: Session, given: dict[str, Any]) -> int:
    """The tasks of the ledger."""
    found = session_of(session, given).read().turnfile.tasks
    found = tuple(task for task in found if given.get("all") or task.status != "done")
    session.out.say([msgspec.to_builtins(task) for task in found], *(printable(task_line(task)) for task in found))
    return 0


def add(session: Session, given: dict[str, Any]) -> int:
    """Add a task."""
    more = {name: given[name] for name in ("priority", "depends_on") if name in given}
    return _change(session, given, lambda files, id, who: tasks.add(files, id, given["description"], who, **more))


def claim(session: Session, given: dict[str, Any]) -> int:
    """Take a task."""
    return _change(session, given, tasks.claim)


def done(session: Session, given: dict[str, Any]) -> int:
    """Finish a task."""
    return _change(session, given, tasks.done)


def _change(session: Session, given: dict[str, Any], change: Callable[[turnfile.Session, str, str], Task]) -> int:
    files = session_of(session, given)
    actor = acting(session, given, files, "actor")
    new = newcomers(files.read(), actor)
    task = change(files, given["task"], actor)
    session.out.say({**msgspec.to_builtins(task), "warnings": warn(new)}, printable(task_line(task)))
    return 0


def signal(session: Session, given: dict[str, Any]) -> int:
    """Leave a signal."""
    files = session_of(session, given)
    sender, receiver = acting(session, given, files, "from"), given.get("to", "all")
    unknown = strangers(files.read(), sender, receiver)
    sent = tasks.signal(files, sender, receiver, given["word"], given.get("detail", ""))
    line = f"{sent.id}  {sent.sender} -> {sent.receiver}  {sent.signal}"
    session.out.say({**msgspec.to_builtins(sent), "warnings": warn(unknown)}, printable(line))
    return 0


_TASK = Argument("task", option="--task", word=True, required=True, help="its id in the ledger")

COMMANDS = (
    Command(
        "turn tasks list",
        "List the tasks of the ledger that are not done.",
        (Argument("all", "flag", "--all", help="also those that are"), DIR),
        listed,
    ),
    Command(
        "turn tasks add",
        "Add a task that nobody owns yet.",
        (
            Argument("task", option="--task", word=True, required=True, help="its id: a new one"),
            Argument("description", option="--description", word=True, required=True, help="what to do, in one line"),
            Argument("priority", option="--priority", of="P", help="P0, P1 or P2 (P1)"),
            Argument(
                "depends_on", "texts", "--depends-on", of="TASK", help="done before it; may be given several times"
            ),
            DIR,
        ),
        add,
    ),
    Command("turn tasks claim", "Take a task whose dependencies are done.", (_TASK, DIR), claim),
    Command("turn tasks done", "Finish your task.", (_TASK, DIR), done),
    Command(
        "turn signal",
        "Leave a short word in the ledger, to an agent or to all.",
        (
            Argument("word", option="--word", word=True, required=True, choices=get_args(SignalWord), help="which"),
            Argument("detail", option="--detail", word=True, help="what about, in one line"),
            Argument("to", option="--to", help="who it is for (all)"),
            Argument("from", option="--from", help="who says it; else --actor, HOLDFAST_ACTOR"),
            DIR,
        ),
        signal,
    ),
)
