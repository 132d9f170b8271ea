"""Commands: what each is called, takes and does, and how one is found by its words.

Most are operations of the table (`deriving`); those that are more than one operation are made by hand, in the folder
`commands`. A command is looked for without loading the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.faces.cli.words import Argument, Usage, nearest

if TYPE_CHECKING:
    from holdfast.faces.cli.session import Session

Run = Callable[["Session", dict[str, Any]], int]


class Command(msgspec.Struct, frozen=True):
    """A command. `run` does it and answers its exit code; `more` is what help says beyond the arguments."""

    name: str
    summary: str
    arguments: tuple[Argument, ...]
    run: Run
    more: str = ""
    op: str | None = None  # the operation it is


# Commands made by hand, and their modules.
HAND_MADE: Final = {
    **dict.fromkeys(("init", "where"), "places"),
    **dict.fromkeys(("backup", "restore", "upgrade"), "backups"),
    **dict.fromkeys(("export", "import"), "transfer"),
    **dict.fromkeys(("cycle export", "cycle import", "cycle show", "cycle validate"), "cycle"),
    **dict.fromkeys(("stash export", "stash import"), "stash"),
    **dict.fromkeys(("token create", "token list", "token revoke"), "token"),
    **dict.fromkeys(("help", "completion", "schema"), "help"),
    **dict.fromkeys(("setup", "guard", "prime"), "agents"),
    "bench": "bench",
    "demo": "demo",
    "doctor": "doctor",
    "log": "log",
    "login": "login",
    "mcp": "mcp",
    "next": "next",
    "run": "run",
    "serve": "serve",
    "show": "show",
    "tree": "tree",
    "watch": "watch",
}
# Groups of commands that are operations, and their domains; what has no group is about tasks.
GROUPS: Final = {
    "agent": "agents",
    "cell": "cells",
    "clock": "clock",
    "cycle": "cycles",
    "event": "events",
    "lease": "leases",
    "link": "links",
    "lock": "locks",
    "mail": "mail",
    "path": "paths",
    "route": "routes",
    "stash": "stashes",
    "trail": "trails",
    "dep": "tasks",
    "tag": "tasks",
    "template": "tasks",
    "txn": "",
}
_GROUPED: Final = {name.partition(" ")[0] for name in HAND_MADE if " " in name} | (GROUPS.keys() - {"txn"})
PURPOSES: Final = {
    "agent": "who works here",
    "cell": "shared state, by run and name",
    "clock": "the workspace's time",
    "cycle": "PEER cycles: plan, execute, express, review",
    "dep": "what a task waits for",
    "event": "the log of all that happened",
    "lease": "ends what hangs on it, unless refreshed",
    "link": "links between tasks, trails and stashes",
    "lock": "exclusive rights by name, with fencing tokens",
    "mail": "messages between agents",
    "path": "locks on files and folders",
    "route": "which rules a task falls under",
    "stash": "state that tasks share, typed and versioned",
    "tag": "the tags of a task",
    "template": "trees of tasks to make again",
    "token": "who may use a server",
    "trail": "tasks and stashes that belong together",
}


def find(words: Sequence[str]) -> tuple[Command, int]:
    """The command that the first words name, and how many they are; Usage if there is none."""
    first = words[0]
    if first in HAND_MADE:
        return hand_made(first), 1
    if first in _GROUPED:
        return _find_in_group(first, words)
    from holdfast.faces.cli.deriving import derive, operation_called

    op = operation_called(first, GROUPS.get(first, "tasks"))
    if op is None:
        raise unknown(first)
    return derive(op), 1


def _find_in_group(group: str, words: Sequence[str]) -> tuple[Command, int]:
    words = words[:1] if len(words) > 1 and words[1].startswith("-") else words
    name = " ".join(words[:2])
    if len(words) > 1:
        if name in HAND_MADE:
            return hand_made(name), 2
        from holdfast.faces.cli.deriving import derive, operation_called

        op = operation_called(name, GROUPS.get(group, "tasks"))
        if op is not None:
            return derive(op), 2
    members = [command.name.partition(" ")[2] for command in all_commands() if command.name.startswith(f"{group} ")]
    near = nearest(words[1], members) if len(words) > 1 else None
    also = f"did you mean {group} {near}? " if near else ""
    told = f"there is no command {name!r}" if len(words) > 1 else f"holdfast {group} is followed by another word"
    raise Usage(told, hint=f"{also}{group} has {', '.join(members)}")


def unknown(name: str) -> Usage:
    """The refusal of a word that is no command."""
    near = nearest(name, {command.name.partition(" ")[0] for command in all_commands()})
    also = f"did you mean {near}? " if near else ""
    return Usage(f"there is no command {name!r}", hint=f"{also}holdfast help lists all")


def hand_made(name: str) -> Command:
    """A command of the folder `commands`."""
    module = import_module(f"holdfast.faces.cli.commands.{HAND_MADE[name]}")
    found: Command = next(command for command in module.COMMANDS if command.name == name)
    return found


def all_commands() -> list[Command]:
    """Every command, by name; this loads every domain."""
    from holdfast.faces.cli.deriving import derive, operations

    found = {name: hand_made(name) for name in HAND_MADE}
    names = {op.route.cli: op for op in operations() if op.route.cli is not None}
    found |= {name: derive(op) for name, op in names.items() if name not in found}
    return [found[name] for name in sorted(found)]
