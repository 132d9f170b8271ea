"""`holdfast help`, `holdfast completion` and `holdfast schema`: what there is, for people, shells and programs."""

from __future__ import annotations

from typing import Any

from holdfast.errors import HoldfastError, Invalid
from holdfast.faces.cli.command import PURPOSES, Command, all_commands, find, unknown
from holdfast.faces.cli.session import GLOBAL, Session
from holdfast.faces.cli.words import Argument

TASKS = (
    *("create", "list", "ready", "show", "claim", "next", "release", "done", "block", "unblock", "approve", "reject"),
    *("close", "reopen", "cancel", "park", "update", "note", "tree", "search", "history", "resume", "explain"),
)
FIRST = """\
usage: holdfast COMMAND [WORDS] [--options]

to begin
  holdfast init                          make a workspace in this project
  holdfast create 'write the parser'     make a task; its id is printed
  export HOLDFAST_ACTOR=agent-1          who you are
  holdfast next                          claim the best task that is ready
  holdfast done ID 'what was done'       finish it
"""


def show(session: Session, given: dict[str, Any]) -> int:
    """Tell all commands, a group of them, one, or a topic."""
    topic = " ".join(given.get("topic", ()))
    session.out.text(*(_overview() if not topic else _about(topic)))
    return 0


def _about(topic: str) -> list[str]:
    from holdfast.faces.cli.topics import TOPICS

    if topic in TOPICS:
        return TOPICS[topic].strip("\n").splitlines()
    purpose = PURPOSES.get(topic.partition(" ")[0])
    members = [command for command in all_commands() if command.name.startswith(f"{topic} ")] if purpose else []
    if members:
        return [
            f"holdfast {topic}: {purpose}",
            "",
            *_rows(members),
            "",
            f"holdfast help {topic} WORD tells more",
        ]
    command, count = find(topic.split())
    if count != len(topic.split()):
        raise unknown(topic)
    return describe(command)


def _overview() -> list[str]:
    from holdfast.faces.cli.topics import TOPICS

    known = {command.name: command for command in all_commands()}
    alone = [name for name in known if " " not in name]
    tasks = [known[name] for name in TASKS]
    rest = [known[name] for name in alone if name not in TASKS]
    groups = [f"  {name:<10} {PURPOSES[name]}" for name in sorted(PURPOSES)]
    more = f"holdfast help COMMAND tells more; topics: {', '.join(TOPICS)}"
    return [
        FIRST,
        "tasks",
        *_rows(tasks),
        "",
        "groups, followed by a word",
        *groups,
        "",
        "others",
        *_rows(rest),
        "",
        more,
    ]


def _rows(commands: list[Command]) -> list[str]:
    width = max(len(command.name) for command in commands)
    return [f"  {command.name:<{width}}  {command.summary}" for command in commands]


def describe(command: Command) -> list[str]:
    """What a command takes, with examples."""
    from holdfast.faces.cli.examples import EXAMPLES

    lines = [f"usage: {usage(command)}", "", command.summary]
    lines += ["", command.more] if command.more else []
    lines += ["", *(row(argument) for argument in command.arguments)] if command.arguments else []
    lines += ["", "examples", *(f"  {example.line}" for example in EXAMPLES.get(command.name, ()))]
    return [*lines, "", "options of every command: holdfast help options"]


def usage(command: Command) -> str:
    """A command line with everything in its place."""
    needed = [f"{a.option} {a.label}" for a in command.arguments if a.required and not a.word]
    words = []
    for argument in command.arguments:
        if argument.word:
            label = f"{argument.label}..." if argument.rest or argument.after else argument.label
            label = f"-- {label}" if argument.after else label
            words.append(label if argument.required else f"[{label}]")
    rest = any(argument.rest for argument in command.arguments)  # it takes what follows
    parts = [*needed, *words] if rest else [*words, *needed]
    more = ["[--options]"] if any(not a.word for a in command.arguments) else []
    return " ".join(["holdfast", command.name, *parts, *more])


def row(argument: Argument) -> str:
    """A line about an argument."""
    if argument.word:
        name = argument.label
    elif argument.kind == "flag":
        name = argument.option
    else:
        name = f"{argument.option} {argument.label}"
    if argument.short:
        name = f"{name}, {argument.short}"
    return f"  {name:<28} {argument.help}"


def options() -> list[str]:
    """What every command takes."""
    return [row(argument) for argument in GLOBAL]


def complete(session: Session, given: dict[str, Any]) -> int:
    """Print a script that completes commands and options."""
    from holdfast.faces.cli.completing import script

    session.out.text(script(given["shell"]))
    return 0


def schema(session: Session, given: dict[str, Any]) -> int:
    """Print the JSON Schema of what a command answers with --json."""
    command, _ = find(given["command"])
    if command.op is None:
        raise Invalid(f"{command.name} is no single operation", hint="docs/cli.md tells what it answers")
    from holdfast import schemas
    from holdfast.faces.cli.output import SCHEMA_VERSION

    try:
        _, result = schemas.schemas(command.op)
    except HoldfastError as error:
        raise Invalid(f"{command.name} has no schema: {error}") from error
    definitions = result.pop("$defs")
    properties: dict[str, Any] = {"schema_version": {"const": SCHEMA_VERSION}, "data": result}
    if schemas.is_page(command.op):
        properties |= {"cursor": {"type": "string"}, "total": {"type": "integer"}}
    told = {"type": "object", "properties": properties, "required": ["schema_version", "data"], "$defs": definitions}
    import msgspec

    session.out.text(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    return 0


COMMANDS = (
    Command(
        "help",
        "Tell what there is, or about a command or a topic.",
        (Argument("topic", "texts", "--topic", word=True, rest=True, help="a command, a group or a topic"),),
        show,
    ),
    Command(
        "completion",
        "Print a script that completes commands in your shell.",
        (Argument("shell", option="--shell", word=True, required=True, choices=("bash", "zsh", "fish"), help="which"),),
        complete,
    ),
    Command(
        "schema",
        "Print the JSON Schema of what a command answers with --json.",
        (Argument("command", "texts", "--command", word=True, rest=True, required=True, help="the command"),),
        schema,
    ),
)
