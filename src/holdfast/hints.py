"""Errors in the words of the face they appear in: Python, the command line, HTTP or MCP.

An error says what to do once, as a Python program would do it: `tasks.claim("hf-7k2m")`, `turnfile.status(session)`,
`wait=60`, or a phrase of `OTHERWISE`. Each face shows the hint through its function here; a call that a face does not
have stays as it is.
A message that names types of Python, or quotes what msgspec says, is shown in the words of JSON through `in_json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.arguments import VOCABULARY
from holdfast.errors import (
    LEAVE_OUT_ACTOR,
    NAME_YOURSELF,
    NAME_YOURSELF_REMOTELY,
    SEND_TOKEN,
    InvalidValue,
    ReadOnly,
)
from holdfast.types import CONDITION_HINT, OPERATION_HINT
from holdfast.types.agents import looks_absolute

if TYPE_CHECKING:
    import ast

    from holdfast.operation import Operation

_CONDITIONS: Final = (
    'a condition is {"if": "exists", "kind": "cell", "key": ["run-1", "owner"]}, the same with "not_exists",'
    ' "version_equals" with "version", or "value_equals" with "value"'
)
_OPERATIONS: Final = 'an operation is {"op": "cells.get", "args": {"run": "run-1", "cell": "owner"}}'
_VALUES: Final = "values are JSON at most 128 deep, whole numbers of 64 bits"
_NAME_YOURSELF: Final = (
    "export HOLDFAST_ACTOR=agent-1, or add --actor agent-1",
    "send the header X-Agent-ID: agent-1",
    "start this server with `holdfast mcp --actor agent-1`",
)
_OUT_OF_SANDBOX: Final = (
    f"{ReadOnly.default_hint}; in the sandbox of an agent two ways remain: the MCP tools of holdfast, which run outside"
    " of it, or that the client makes the folder a writable root (Codex: sandbox_workspace_write.writable_roots)"
)
# Phrases for what is not an operation, in the words of the command line, HTTP and MCP; {at} is `--dir FOLDER` if given.
OTHERWISE: Final = {
    **dict.fromkeys((NAME_YOURSELF, NAME_YOURSELF_REMOTELY), _NAME_YOURSELF),
    LEAVE_OUT_ACTOR: (
        "leave out --actor, and unset HOLDFAST_ACTOR",
        "leave out the header X-Agent-ID",
        "start this server without --actor and HOLDFAST_ACTOR",
    ),
    SEND_TOKEN: ("holdfast login URL", "send the header Authorization: Bearer TOKEN", ""),
    "holdfast.upgrade(path)": ("holdfast upgrade{at}", *["`holdfast upgrade`"] * 2),
    "holdfast.salvage(path, file)": (
        "holdfast backup --damaged FILE{at}",
        *["`holdfast backup --damaged FILE`"] * 2,
    ),
    "holdfast.rebuild(path, ahead=True)": ("holdfast rebuild --ahead{at}", *["`holdfast rebuild --ahead`"] * 2),
    "holdfast.rebuild(path)": ("holdfast rebuild{at}", *["`holdfast rebuild`"] * 2),
    "holdfast.open(path, log=...)": ("holdfast init --log URL{at}", *["`holdfast init --log URL`"] * 2),
    "holdfast.replicate(path, log)": ("holdfast replicate URL{at}", *["`holdfast replicate URL`"] * 2),
    "with ws.using(key=...) a call can be repeated safely": (
        "with --key NAME a command can be repeated safely",
        "with the header Idempotency-Key a call can be repeated safely",
        "a tool has no key that makes repeating it safe",
    ),
    "verify=False": ("--unverified", "", ""),
    "create=True makes it": ("--create makes it", "", ""),
    "ws.backup(path)": ("holdfast backup{at}", *["`holdfast backup`"] * 2),
    "session.read().turnfile.tasks": ("`holdfast turn tasks list --all{at}`", "", "turn_status"),
    ReadOnly.default_hint: (_OUT_OF_SANDBOX, "", ""),
    CONDITION_HINT: (_CONDITIONS,) * 3,
    OPERATION_HINT: (_OPERATIONS,) * 3,
    InvalidValue.default_hint: (_VALUES,) * 3,
    # A tool that writes a cell has one argument for both: 0 is no version.
    ", None, value)": (", 'none', 'VALUE')", ", expected=null)", ", expected=0)"),
    "None for 'absent'": ("none for 'absent'", *["null for 'absent'"] * 2),
    "None for no end": ("none for no end", *["null for no end"] * 2),
    "True, False or None": ("true, false or null",) * 3,
}
SHELL, HTTP, TOOLS = range(3)

_INSIDE: Final = r"""(?:[^()"]|"(?:[^"\\]|\\.)*")*"""  # of a call: a path in quotes may have brackets
_UNTOUCHED: Final = re.compile(rf"(\b[a-z]+(?:\.[A-Za-z_]+)+\({_INSIDE}\))")
_CALL: Final = re.compile(rf"\b(?:ws\.)?([a-z]+\.[a-z_]+)\(({_INSIDE})\)")
_NAMED: Final = re.compile(r"(?<![?&])\b([a-z][a-z_]*)=([A-Za-z0-9]+|\[\.\.\.\]|\[\"[^\]]*\"\])")
_TEXT: Final = re.compile(r"""\b[a-z_]+=(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_LIST: Final = re.compile(r"\b([a-z][a-z_]*)=(\[[\"{][^\]]*\]|\{\"[^}]*\})")
_CONSTANT: Final = re.compile(r"\b[a-z_]+=(?:True|False)\b")
# The turn command for each call of `holdfast.turnfile`.
TURN_COMMANDS: Final = {
    **{"init": "init", "restore": "init --missing", "status": "status", "check": "check"},
    **{"tidy": "tidy", "transact": "transact", "mail.verify": "mail verify"},
    **{"acquire": "lock", "unlock": "unlock", "renew_all": "renew", "clear_stale": "clear", "override": "override"},
    **{"tasks.claim": "tasks claim", "mail.messages": "mail list", "mail.export": "mail export"},
}
_TURN_CALL: Final = re.compile(r"\bturnfile\.([A-Za-z_.]+)\(([^()]*)\)")
_TURN: Final = re.compile(r"`holdfast turn ((?:mail |tasks )?[a-z]+)([^`]*)`")
_OPTION: Final = re.compile(r" --[a-z-]+")
# Which tool does what a turn command of another name does, and what only a person at a shell can do.
_TURN_TOOLS: Final = {
    **{"lint": "turn_check", "transact": "turn_edit", "tasks list": "turn_status"},
    **dict.fromkeys(("tasks add", "tasks claim", "tasks done"), "turn_task"),
    **{"mail show": "turn_mail_list", "mail reply": "turn_mail_send"},
    **dict.fromkeys(("mail ack", "mail action", "mail block", "mail close"), "turn_mail_step"),
}
_SHELL_ONLY: Final = ("init", "mail export")


def waiting(pattern: str) -> str:
    """The call that waits for a lock on a pattern, as hints have it."""
    import json  # errors are rare

    name = f"./{pattern}" if looks_absolute(pattern) else pattern
    return f"paths.lock([{json.dumps(name, ensure_ascii=False)}], wait=60)"


def for_shell(hint: str, at: Sequence[str] = ()) -> str:
    """Commands in place of calls, and options in place of arguments; `at` are the options that name the workspace."""
    from shlex import quote

    place = options_of(at)

    def command(call: re.Match[str]) -> str:
        op = _operation(call[1])
        if op is None or op.command is None:
            return call[0]
        named = [f"{_name(name)} {quote(text)}" for name, text in _texts(call[2])]
        named = [_NAMED.sub(_option, each) for each in _named(call[2])] + named
        return " ".join(["holdfast", op.command, *map(quote, _values(call[2])), *named]) + place

    def json(argument: re.Match[str]) -> str:
        return argument[0] if argument[2].startswith('["') else f"{_name(argument[1])} {quote(_json(argument[2]))}"

    hint = turn_for_shell(_otherwise(hint, SHELL).replace("{at}", place), at)
    return _translated(hint, command, lambda text: _NAMED.sub(_option, _LIST.sub(json, text)))


def turn_for_shell(text: str, at: Sequence[str] = ()) -> str:
    """Commands in place of calls on turn files alone: a problem of a file may quote what looks like something else."""
    place = options_of(at)
    return _TURN_CALL.sub(lambda call: _turn_command(call, "--dir", place), text)


def for_http(hint: str) -> str:
    """Addresses in place of calls."""

    def address(call: re.Match[str]) -> str:
        op, values = _operation(call[1]), _values(call[2])
        if op is None or op.route.http is None:
            return call[0]
        parts = re.findall(r"{[a-z_]+}", op.route.http)
        where = op.route.http
        for part, value in zip(parts, values, strict=False):
            where = where.replace(part, value, 1)
        left = [*zip(op.accepted.parameters, values, strict=False)][len(parts) :] if "[" not in call[2] else []
        fields = [f"{name}={value}" for name, value in left if value.isdecimal()] + _fields(call[2])
        return f"{where} with {' and '.join(fields)}" if fields else where

    return _translated(_otherwise(hint, HTTP), address, _in_fields)


def for_tools(hint: str, offered: Collection[str] = ()) -> str:
    """Tools in place of calls; `offered` are those that the caller has."""

    def tool(call: re.Match[str]) -> str:
        op = _operation(call[1])
        if op is None:
            return call[0]
        derived, named = op.name.replace(".", "_"), _named(call[2])
        name = derived if derived in offered else op.route.mcp
        # No tool takes something from another agent, and the core profile has none for what an agent seldom needs.
        if not name or (name != derived and "force=True" in named):
            return f"`{for_shell(call[0])}` (in a shell)"
        return " ".join([name, *_values(call[2]), *_fields(call[2])])

    hint = turn_for_tools(_otherwise(hint, TOOLS))
    return _translated(hint, tool, lambda text: _in_fields(text.replace("--reason '", "reason '")))


def turn_for_tools(text: str) -> str:
    """Tools in place of calls on turn files alone."""
    return _TURN.sub(_turn_tool, _TURN_CALL.sub(lambda call: _turn_command(call, "--turn-dir"), text))


def options_of(at: Sequence[str]) -> str:
    """Options as they follow a command, or nothing."""
    from shlex import quote

    return "".join(f" {quote(word)}" for word in at)


def _translated(hint: str, call: Callable[[re.Match[str]], str], text: Callable[[str], str]) -> str:
    """A hint with its calls and what is between them each put into other words, so that no name in a call is."""
    parts, at = list[str](), 0
    for each in _CALL.finditer(hint):
        parts += [_between_calls(hint[at : each.start()], text), call(each)]
        at = each.end()
    return "".join([*parts, _between_calls(hint[at:], text)])


def _between_calls(hint: str, put: Callable[[str], str]) -> str:
    """A hint with its arguments put into other words, except those of calls that are left as they are."""
    return "".join(part if number % 2 else put(part) for number, part in enumerate(_UNTOUCHED.split(hint)))


def _in_fields(text: str) -> str:
    """Arguments as JSON writes them."""
    return _CONSTANT.sub(_lower, _LIST.sub(_field, text))


def _lower(argument: re.Match[str]) -> str:
    """An argument that is true or false, as JSON writes it."""
    return argument[0].lower()


def _otherwise(hint: str, face: int) -> str:
    for phrase, words in OTHERWISE.items():
        hint = hint.replace(phrase, words[face] or phrase)
    return hint


def _operation(name: str) -> Operation[..., object] | None:
    from holdfast.operation import find_operation  # turn files load nothing of a workspace

    return find_operation(name)


def _parsed(arguments: str) -> ast.Call | None:
    """The arguments of a call; None if they are no Python."""
    import ast  # errors are rare

    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
    except SyntaxError:
        return None
    return call if isinstance(call, ast.Call) else None


def _values(arguments: str) -> list[str]:
    """The literal positional arguments of a call: ids and paths, but not a name such as `id`, which stands for one."""
    import ast

    call = _parsed(arguments)
    try:
        values = [ast.literal_eval(each) for each in call.args if not isinstance(each, ast.Name)] if call else []
    except ValueError:
        return []
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [str(one) for one in flat if one is not ...]


def _texts(arguments: str) -> list[tuple[str, str]]:
    """The named arguments of a call that are texts, such as the name of a subscriber."""
    import ast

    call = _parsed(arguments)
    named = [] if call is None else [(each.arg, each.value) for each in call.keywords]
    return [
        (name, value.value)
        for name, value in named
        if name is not None and isinstance(value, ast.Constant) and isinstance(value.value, str)
    ]


def _named(arguments: str) -> list[str]:
    """The other named arguments of a call, as they are written."""
    texts = _TEXT.sub("", arguments)
    return [each[0] for each in _NAMED.finditer(texts)]


def _fields(arguments: str) -> list[str]:
    """The named arguments of a call, with values as JSON writes them."""
    constants = [each.replace("=True", "=true") for each in _named(arguments)]
    return constants + [f"{name}={_quoted(text)}" for name, text in _texts(arguments)]


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)


def _field(argument: re.Match[str]) -> str:
    return f'"{argument[1]}": {_json(argument[2])}'


def _json(literal: str) -> str:
    return literal.replace(": None", ": null")


def _name(argument: str) -> str:
    """The option of an argument."""
    meaning = VOCABULARY.get(argument)
    return (meaning.option if meaning is not None else "") or f"--{argument.replace('_', '-')}"


def _option(argument: re.Match[str]) -> str:
    option, value = _name(argument[1]), argument[2]
    if not value.startswith("["):
        return option if value == "True" else f"{option} {value}"
    if option == f"--{argument[1]}":  # given once for each
        option = option.removesuffix("s")
    each = value[1:-1].replace('"', "").split(", ")
    return " ".join(f"{option} {option[2:].upper() if one == '...' else one}" for one in each)


def _turn_command(call: re.Match[str], folder: str, place: str = "") -> str:
    """The command for a call on turn files, with the ids and paths that the call names."""
    from shlex import quote

    if call[1] == "Session":
        return " ".join([folder, *map(quote, _values(call[2]))])
    if call[1] not in TURN_COMMANDS:
        return call[0]
    return f"`{' '.join(['holdfast turn', TURN_COMMANDS[call[1]], *map(quote, _values(call[2]))])}{place}`"


def _turn_tool(command: re.Match[str]) -> str:
    name, rest = command[1], command[2]
    if name in _SHELL_ONLY:
        return f"`holdfast turn {name}{rest}`"
    return _TURN_TOOLS.get(name, f"turn_{name.replace(' ', '_')}") + _OPTION.sub("", rest)


# --- messages --------------------------------------------------------------------------------------------------------

JSON_TYPES: Final = {
    **{"array": "a list", "list": "a list", "tuple": "a list", "object": "an object", "dict": "an object"},
    **{"str": "a string", "int": "a whole number", "float": "a number", "bytes": "bytes"},
    **{"bool": "true or false", "null": "null", "NoneType": "null"},
    "datetime": "a time such as 2026-03-01T12:00:00Z",
    **{"None": "null", "True": "true", "False": "false", "True or False": "true or false"},
}
_TYPE: Final = re.compile(
    r"\b(be|holds|is|are|not) (?:an? )?"
    r"(str|int|float|bool|dict|list|tuple|bytes|NoneType|None|True or False|True|False)"
    r"(?=$|[,;:.]| (?:at|of|or|by|with|outside)\b)"
)
_TIME: Final = re.compile(r"\bbe a datetime(?:, not str\b)?")
_MOMENT: Final = "a time such as 2026-03-01T12:00:00Z"
_TUPLE: Final = re.compile(r"\(((?:\w+|'[^']*')(?:, (?:\w+|'[^']*'))*),?\)")  # in what is said of a key
# What msgspec says of a part that does not fit, whose place is such as $[0].version.
_AT: Final = r"(?: - at `(?:\$\.)?([^`]+)`)?"
_WRONG_TYPE: Final = re.compile(rf"Expected `([^`]+)`, got `([^`]+)`{_AT}")
_WRONG_VALUE: Final = re.compile(rf"Invalid (?:enum )?value ('.*?'|[0-9]+){_AT}")
_WRONG_TIME: Final = re.compile(
    rf"(?:Invalid RFC3339 encoded datetime|Expected `datetime` with a timezone component){_AT}"
)
_LACKING: Final = re.compile(rf"Object missing required field `([^`]+)`{_AT}")
_UNKNOWN: Final = re.compile(rf"Object contains unknown field `([^`]+)`{_AT}")


def in_json(message: str, face: int) -> str:
    """A message with the types of JSON in place of those of Python."""
    message = _WRONG_TYPE.sub(_wrong_type, _otherwise(message, face))
    message = _WRONG_VALUE.sub(lambda found: f"{found[2] or 'it'} cannot be {found[1]}", message)
    message = _LACKING.sub(lambda found: f'{found[2] or "it"} lacks "{found[1]}"', message)
    message = _UNKNOWN.sub(lambda found: f'{found[2] or "it"} has the unknown field "{found[1]}"', message)
    if message.startswith("the key of "):
        message = _TUPLE.sub(r"[\1]", message)
    message = _WRONG_TIME.sub(lambda found: f"{found[1] or 'it'} must be {_MOMENT}", message)
    message = _TIME.sub(f"be {_MOMENT}", message)
    return _TYPE.sub(lambda found: f"{found[1]} {JSON_TYPES[found[2]]}", message)


def _wrong_type(found: re.Match[str]) -> str:
    wanted = [JSON_TYPES.get(each, each) for each in found[1].split(" | ") if each != "null"]
    return f"{found[3] or 'it'} must be {' or '.join(wanted)}, not {JSON_TYPES.get(found[2], found[2])}"
