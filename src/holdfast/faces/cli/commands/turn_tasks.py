"""`holdfast turn tasks` and `holdfast turn signal`: what the ledger says about work, and short words to others."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands.turn import task_line
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.turning import DIR, acting, session_of
from holdfast.faces.cli.words import Argument
from holdfast.turnfile import tasks
from holdfast.turnfile.model import SignalWord, Task


def listed(session: Session, given: dict[str, Any]) -> int:
    """The tasks of the ledger."""
    found = session_of(session, given).read().turnfile.tasks
    found = tuple(task for task in found if given.get("all") or task.status != "done")
    session.out.say([msgspec.to_builtins(task) for task in found], *(printable(task_line(task)) for task in found))
    return 0


def claim(session: Session, given: dict[str, Any]) -> int:
    """Take a task."""
    files = session_of(session, given)
    return _told(session, tasks.claim(files, given["task"], acting(session, given, files, "actor")))


def done(session: Session, given: dict[str, Any]) -> int:
    """Finish a task."""
    files = session_of(session, given)
    return _told(session, tasks.done(files, given["task"], acting(session, given, files, "actor")))


def _told(session: Session, task: Task) -> int:
    session.out.say(msgspec.to_builtins(task), printable(task_line(task)))
    return 0


def signal(session: Session, given: dict[str, Any]) -> int:
    """Leave a signal."""
    files = session_of(session, given)
    sender = acting(session, given, files, "from")
    sent = tasks.signal(files, sender, given.get("to", "all"), given["word"], given.get("detail", ""))
    session.out.say(msgspec.to_builtins(sent), printable(f"{sent.id}  {sent.sender} -> {sent.receiver}  {sent.signal}"))
    return 0


_TASK = Argument("task", option="--task", word=True, required=True, help="its id in the ledger")

COMMANDS = (
    Command(
        "turn tasks list",
        "List the tasks of the ledger that are not done.",
        (Argument("all", "flag", "--all", help="also those that are"), DIR),
        listed,
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
