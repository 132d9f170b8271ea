"""Commands: what each is called, takes and does, and how one is found by its words.

Most are derived from operations (`derive`); those that are more than one operation are made by hand, in the folder
`commands`. Looking one up loads no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.faces.cli.args import Argument, Usage, nearest

if TYPE_CHECKING:
    from holdfast.faces.cli.call import Session
    from holdfast.operation import Operation

Run = Callable[["Session", dict[str, Any]], int]


class Command(msgspec.Struct, frozen=True):
    """A command. `run` performs it and returns the exit code; `more` is what help says beyond the arguments.

    `relayed`: a server may carry it out for others. It prints by its session, touches no file and starts no process.
    """

    name: str
    summary: str
    arguments: tuple[Argument, ...]
    run: Run
    more: str = ""
    op: Operation[..., Any] | None = None  # whose result it prints
    relayed: bool = False
    prints: Any = None  # the type of what it prints, if that is more


def command(
    name: str,
    *arguments: Argument,
    more: str = "",
    op: Operation[..., Any] | None = None,
    relayed: bool = False,
) -> Callable[[Run], Command]:
    """Make a command of a function, whose documentation begins with what the command is for."""

    def make(run: Run) -> Command:
        return Command(name, (run.__doc__ or "").partition("\n")[0], arguments, run, more, op, relayed)

    return make


# Commands made by hand, and their modules.
_MODULES: Final = {
    "agents": ("setup", "guard", "prime"),
    "cycle": ("cycle export", "cycle import", "cycle old-keys", "cycle show", "cycle validate"),
    "demo": ("bench", "demo"),
    "doctor": ("doctor", "version"),
    "edit": ("create", "edit", "undo"),
    "fleet": ("activity", "board", "graph", "status", "timeline"),
    "lists": ("list", "ready"),
    "completion": ("completion",),
    "help": ("help", "schema"),
    "mcp": ("mcp",),
    "page": ("session list", "session revoke", "ui"),
    "nodes": ("detach", "rebuild", "replicate"),
    "run": ("next", "run"),
    "share": ("purge", "share", "share off", "share on", "share status"),
    "server": ("login", "serve", "token create", "token list", "token revoke"),
    "show": ("dep remove", "log", "show", "tag remove", "tree", "undelete"),
    "stash": ("stash export", "stash import"),
    "store": ("init", "where", "backup", "restore", "upgrade"),
    "transfer": ("export", "import"),
    "concerns": ("watch",),
    "turn": (
        *("turn init", "turn status", "turn check", "turn tidy", "turn lint", "turn signal"),
        *("turn tasks list", "turn tasks add", "turn tasks claim", "turn tasks done"),
    ),
    "turn_edit": ("turn edit", "turn transact"),
    "turn_locks": ("turn lock", "turn unlock", "turn renew", "turn clear", "turn override"),
    "turn_mail": (
        *(
            "turn mail send",
            "turn mail list",
            "turn mail show",
            "turn mail verify",
            "turn mail reply",
            "turn mail export",
        ),
        *("turn mail ack", "turn mail action", "turn mail block", "turn mail close"),
    ),
}
HAND_MADE: Final = {name: module for module, names in _MODULES.items() for name in names}
# Groups of commands: what each is about, and the domain of those that are operations; a word alone is about tasks.
_GROUPS: Final = {
    "agent": ("who works here", "agents"),
    "cell": ("shared state, by run and name", "cells"),
    "channel": ("messages that each subscriber reads; a channel is a stash", "channels"),
    "clock": ("the workspace's time", "clock"),
    "cycle": ("PEER cycles: plan, execute, express, review", "cycles"),
    "dep": ("what a task waits for", "tasks"),
    "event": ("the log of all that happened", "events"),
    "lease": ("ends what hangs on it, unless refreshed", "leases"),
    "item": ("values that outlive a thread, by namespace and key", "items"),
    "link": ("links between tasks, trails and stashes", "links"),
    "lock": ("exclusive rights by name, with fencing tokens", "locks"),
    "mail": ("messages between agents", "mail"),
    "path": ("locks on files and folders", "paths"),
    "queue": ("items that one worker at a time takes; a queue is a stash", "queues"),
    "ref": ("branches, commits, pull requests and addresses of a task", "tasks"),
    "route": ("which rules a task falls under", "routes"),
    "session": ("browsers that are signed in to a server", None),
    "share": ("tasks that travel with a git repository", "tasks"),
    "stash": ("state that tasks share, typed and versioned", "stashes"),
    "tag": ("the tags of a task", "tasks"),
    "template": ("trees of tasks to make again", "tasks"),
    "thread": ("checkpoints of graphs, such as LangGraph's", "threads"),
    "token": ("who may use a server", None),
    "trail": ("tasks and stashes that belong together", "trails"),
    "turn": ("take turns editing a repository's shared files; needs no workspace", None),
}
PURPOSES: Final = {name: purpose for name, (purpose, _) in _GROUPS.items()}
DOMAINS: Final = {name: domain for name, (_, domain) in _GROUPS.items()}
_LONGEST: Final = 3  # words of a command


def find(words: Sequence[str]) -> tuple[Command, int]:
    """The command that the first words name, and how many they are; Usage if there is none."""
    first = words[0]
    if first in HAND_MADE and (first not in _GROUPS or words[1:2] == [] or words[1].startswith("-")):
        return hand_made(first), 1
    if first in _GROUPS:
        return _find_in_group(first, words)
    from holdfast.faces.cli.derive import derive, operation_called

    op = operation_called(first, "tasks")
    if op is not None:
        return derive(op), 1
    from holdfast.faces.cli.synonyms import ALIASES, GROUPLESS

    if first in GROUPLESS and not all(word.startswith("-") for word in words[1:2]):
        raise _groupless(words)
    if first not in ALIASES:
        raise unknown(first)
    same = ALIASES[first].split()
    command, count = find([*same, *words[1:]])
    return command, count - len(same) + 1


def _find_in_group(group: str, given: Sequence[str]) -> tuple[Command, int]:
    words = list(takewhile(lambda word: not word.startswith("-"), given[:_LONGEST]))
    for count in range(len(words), 1, -1):
        if (name := " ".join(words[:count])) in HAND_MADE:
            return hand_made(name), count
    domain = _GROUPS[group][1]
    if len(words) > 1 and domain is not None:
        from holdfast.faces.cli.derive import derive, operation_called

        op = operation_called(" ".join(words[:2]), domain)
        if op is not None:
            return derive(op), 2
    names = [command.name for command in all_commands()]
    inner = " ".join(words[:2])  # a group in a group, such as `turn mail`
    group = inner if any(name.startswith(f"{inner} ") for name in names) else group
    more = words[len(group.split()) :]
    members = members_of(group, names)
    near = _same(more[0], members) or nearest(more[0], members) if more else None
    if near is None and more:  # dep ID, tag ID TAG, lock NAME: the verb was left out
        near = next((f"{verb} {more[0]}" for verb in ("add", "acquire") if verb in members), None)
    also = f"did you mean {group} {near}? " if near else ""
    wrong = f"there is no command {f'{group} {more[0]}'!r}" if more else f"holdfast {group} needs a subcommand"
    if not more and len(given) > len(words):
        wrong, also = f"holdfast {group} needs a subcommand before {given[len(words)]}", "options come after it; "
    raise Usage(wrong, hint=f"{also}{group} has {', '.join(members)}")


def _same(word: str, members: Sequence[str]) -> str | None:
    """The member that does what a word of another group says."""
    from holdfast.faces.cli.synonyms import SUBCOMMANDS

    return next((each for each in SUBCOMMANDS.get(word, ()) if each in members), None)


def members_of(group: str, names: Iterable[str]) -> list[str]:
    """The words that can follow a group."""
    found = (name[len(group) + 1 :].partition(" ")[0] for name in names if name.startswith(f"{group} "))
    return list(dict.fromkeys(found))


def _groupless(words: Sequence[str]) -> Usage:
    """The refusal of a group that commands on tasks do not have."""
    near = ""
    with suppress(Usage):
        near = f"did you mean holdfast {find(words[1:])[0].name}? " if words[1:] else ""
    return Usage(
        f"there is no command {' '.join(words[:2])!r}",
        hint=f"{near}commands on tasks have no group: holdfast create, list, show, claim, ...; holdfast help lists all",
    )


def unknown(name: str) -> Usage:
    """The refusal of a word that is no command, with what was meant: by its meaning, else by its letters."""
    from holdfast.faces.cli.synonyms import ALIASES, GROUPLESS, INSTEAD

    if name in GROUPLESS:
        return _groupless([name])
    names = {*ALIASES, *(command.name.partition(" ")[0] for command in all_commands())}
    near = nearest(name, names)
    also = f"{INSTEAD[name]}; " if name in INSTEAD else f"did you mean {ALIASES.get(near, near)}? " if near else ""
    return Usage(f"there is no command {name!r}", hint=f"{also}holdfast help lists all")


def hand_made(name: str) -> Command:
    """A command of the folder `commands`."""
    module = import_module(f"holdfast.faces.cli.commands.{HAND_MADE[name]}")
    return next(each for each in vars(module).values() if isinstance(each, Command) and each.name == name)


def all_commands() -> list[Command]:
    """Every command, by name; this loads every domain."""
    from holdfast.faces.cli.derive import derive
    from holdfast.operation import REGISTRY

    found = {name: hand_made(name) for name in HAND_MADE}
    names = {op.command: op for op in REGISTRY.values() if op.command is not None}
    found |= {name: derive(op) for name, op in names.items() if name not in found}
    return [found[name] for name in sorted(found)]
