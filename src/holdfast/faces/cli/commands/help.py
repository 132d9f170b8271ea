"""`holdfast help` and `schema`: the commands, for people and programs."""

from __future__ import annotations

import re
from typing import Any, Final

from holdfast.errors import HoldfastError, Invalid
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import GLOBAL, Session
from holdfast.faces.cli.command import PURPOSES, Command, all_commands, command, find, unknown

WIDTH: Final = 80
_WORD: Final = re.compile(r"""\#.*|(?:'[^']*'|"[^"]*"|\$\([^)]*\)|[^\s'"])+""")  # of sh, as examples have it
TASKS: Final = (
    *("create", "list", "ready", "show", "claim", "next", "release", "done", "block", "unblock", "approve", "reject"),
    *("close", "reopen", "cancel", "park", "edit", "update", "note", "tree", "search", "history", "resume", "explain"),
)
FIRST = """\
usage: holdfast COMMAND [WORDS] [--options]

start here
  holdfast init                          make a workspace in this project
  holdfast create 'write the parser'     make a task; its id is printed
  export HOLDFAST_ACTOR=agent-1          your name
  holdfast next                          claim the best task that is ready
  holdfast done ID 'what was done'       finish it
"""


@command("help", Argument("topic", "texts", word=True, rest=True, help="a command, a group or a topic"))
def show(session: Session, given: dict[str, Any]) -> int:
    """Print all commands, or help about a command or a topic."""
    topic = " ".join(given.get("topic", ()))
    session.out.text(*(_overview() if not topic else _about(topic)))
    return 0


def _about(topic: str) -> list[str]:
    if topic in TOPICS:
        return TOPICS[topic].strip("\n").splitlines()
    purpose = PURPOSES.get(topic.partition(" ")[0])
    members = [command for command in all_commands() if command.name.startswith(f"{topic} ")] if purpose else []
    if members:
        head = fold(f"holdfast {topic}: ", str(purpose))
        alone = [line for each in all_commands() if each.name == topic for line in (*describe(each), "")]
        return [head, "", *alone, *_rows(members), "", f"more: holdfast help {topic} WORD"]
    command, count = find(topic.split())
    if count != len(topic.split()):
        raise unknown(topic)
    return describe(command)


def _overview() -> list[str]:
    known = {command.name: command for command in all_commands()}
    alone = [name for name in known if " " not in name]
    tasks = [known[name] for name in TASKS]
    rest = [known[name] for name in alone if name not in TASKS]
    groups = [fold(f"  {name:<10} ", PURPOSES[name]) for name in sorted(PURPOSES)]
    more = fold("more: ", f"holdfast help COMMAND, or a topic: {', '.join(TOPICS)}")
    lines = [FIRST, "tasks", *_rows(tasks), "", "groups, each with subcommands", *groups]
    return [*lines, "", "others", *_rows(rest), "", more]


def _rows(commands: list[Command]) -> list[str]:
    width = max(len(command.name) for command in commands)
    return [fold(f"  {command.name:<{width}}  ", command.summary) for command in commands]


def fold(first: str, text: str) -> str:
    """Return a text in at most 80 columns, beside its first words."""
    from textwrap import fill

    return fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False)


def describe(command: Command) -> list[str]:
    """Return the arguments of a command, with examples."""
    from holdfast.faces.cli.examples import examples_of

    lines = [fold("usage: ", usage(command)), "", fold("", command.summary)]
    lines += ["", fold("", command.more)] if command.more else []
    lines += ["", *(row(argument) for argument in command.arguments)] if command.arguments else []
    lines += ["", "examples", *(line for each in examples_of(command) for line in _broken(each.line))]
    return [*lines, "", "options of every command: holdfast help options"]


def usage(command: Command) -> str:
    """Return a command line with all arguments in place."""
    needed = [f"{a.option} {a.label}" for a in command.arguments if a.required and not a.word]
    words = []
    for argument in command.arguments:
        if argument.word:
            label = f"{argument.label}..." if argument.rest or argument.after else argument.label
            label = f"-- {label}" if argument.after else label
            words.append(label if argument.required else f"[{label}]")
    rest = any(argument.rest for argument in command.arguments)  # it takes all following words
    parts = [*needed, *words] if rest else [*words, *needed]
    more = ["[--options]"] if any(not a.word for a in command.arguments) else []
    return " ".join(["holdfast", command.name, *parts, *more])


def row(argument: Argument) -> str:
    """Return the line for an argument."""
    if argument.word:
        name = argument.label
    elif argument.kind == "flag":
        name = argument.option
    else:
        name = f"{argument.option} {argument.label}"
    if argument.short:
        name = f"{name}, {argument.short}"
    return fold(f"  {name:<28} ", argument.help)


def options() -> list[str]:
    """Return the lines for the options of every command."""
    return [row(argument) for argument in GLOBAL]


@command("schema", Argument("command", "texts", word=True, rest=True, required=True, help="the command"))
def schema(session: Session, given: dict[str, Any]) -> int:
    """Print the JSON Schema of a command's output with --json."""
    command, _ = find(given["command"])
    if command.op is None:
        raise Invalid(f"{command.name} is not a single operation", hint="docs/cli.md describes its output")
    from holdfast import schema as schemas
    from holdfast.faces.cli.output import SCHEMA_VERSION

    try:
        _, result = schemas.schemas(command.op.name, command.prints)
    except HoldfastError as error:
        raise Invalid(f"{command.name} has no schema: {error}") from error
    definitions = result.pop("$defs")
    properties: dict[str, Any] = {"schema_version": {"const": SCHEMA_VERSION}, "data": result}
    if schemas.is_page(command.op.name):
        properties |= {"cursor": {"type": "string"}, "total": {"type": "integer"}}
    whole = {"type": "object", "properties": properties, "required": ["schema_version", "data"], "$defs": definitions}
    import msgspec

    session.out.text(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())
    return 0


TOPICS: Final = {
    "options": "options of every command, before or after it\n" + "\n".join(options()),
    "workspace": """
Which workspace a command works on, in this order:
  --dir FOLDER, --url URL      as given
  HOLDFAST_DIR, HOLDFAST_URL   from the environment
  .holdfast                    found upwards from the current folder; all
                               worktrees of a git repository share the one of
                               the main worktree
holdfast where prints which it is and why. Servers need a token: HOLDFAST_TOKEN,
HOLDFAST_TOKEN_FILE, or holdfast login URL once.
""",
    "actors": """
Every call has an actor: --actor NAME, else HOLDFAST_ACTOR, else user@host,
which may read, create and change but not claim, lock or mail: two sessions
would share that name. Choose a name for each agent session; holdfast setup does
that for the clients it supports.
The tokens of claims and locks are remembered for each actor and sent
automatically, so an agent that lost its claim without noticing is refused
(exit code 15) instead of overwriting others' work.
""",
    "json": """
--json, or HOLDFAST_JSON=1, prints {"schema_version": 1, "data": ...}; if there
is another page, also "cursor", for --cursor. watch, event and cell streams
print such a line for each event. Bytes are {"$bytes": base64}, times RFC 3339.
holdfast schema COMMAND prints the JSON Schema of the output. Errors go to
standard error: {"schema_version": 1, "error", "code", "hint", "details"}.
""",
    "exit-codes": """
   0  done                          12  held by another, or already claimed
   1  error                         13  not the holder
   2  usage                         14  would create a cycle
   3  timeout                       15  fenced: the claim or lock was lost
   4  next: nothing is ready        16  unavailable, retry
   9  version mismatch, conflict    17  compacted: the history is gone
  10  not found                     18  corrupt
  11  bad transition               130  interrupted; 141 broken pipe
""",
    "times": """
Durations are seconds, or like 90s, 15m, 2h, 1d, 1w. Times are RFC 3339
(2026-03-01T12:00:00Z), or durations: --since 2h is two hours ago, --until 2h in
two hours. Or as you say it, in your time zone: today, yesterday, tomorrow,
monday, 'friday 9:00', 'tomorrow noon', 17:30, 9am, 'in 2 days', '3 hours ago'.
A day begins at midnight; a weekday or a time of day is the next one, or with
--since the last one.
""",
}


def _broken(line: str) -> list[str]:
    """A line of sh, continued on others where it is too long for a terminal."""
    if len(line) <= WIDTH - 2:
        return [f"  {line}"]
    parts = [""]
    for word in _WORD.findall(line):
        fits = len(parts[-1]) + len(word) <= WIDTH - 7  # four columns before it, a space, and what continues it
        parts[-1:] = [f"{parts[-1]} {word}".lstrip()] if fits or not parts[-1] else [parts[-1], word]
    return ["  " + each for each in " \\\n  ".join(parts).split("\n")]
