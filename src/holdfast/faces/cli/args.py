"""Reading a command line: positional arguments in order, `--options` anywhere, `--` before what must not be an option.

Made for a program that is started for every call: it imports nothing that the call itself would not need. What a
command takes is a list of `Argument`; help, completion and docs/cli.md are made from the same list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.arguments import Kind
from holdfast.errors import HoldfastError, Invalid

REPEATED: Final = ("texts", "ints", "pairs", "paths")
_TEXTS: Final = ("BODY", "DESCRIPTION", "DETAIL", "ERROR", "NOTE", "REASON", "SUBJECT", "SUMMARY", "TITLE")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Usage(HoldfastError, code="USAGE", status=400, exit_code=2):
    """The command line cannot be understood."""


class Argument(msgspec.Struct, frozen=True):
    """Something a command takes: by its place among the words, or by its option.

    `word`: it has a place. `rest`: it takes all words that are left; `after`: all that follow `--`, for a command that
    takes other words too. `nothing`: the word none means None. Unless said, an option is named like the argument, and
    like one of them if it may be repeated.
    """

    name: str
    kind: Kind = "text"
    option: str = ""
    short: str = ""
    word: bool = False
    rest: bool = False
    after: bool = False
    required: bool = False
    nothing: bool = False
    help: str = ""
    choices: tuple[str, ...] = ()
    of: str = ""  # what the value is called in help, such as SECONDS

    def __post_init__(self) -> None:
        if not self.option:
            one = self.name.removesuffix("s") if self.kind in REPEATED and self.name != "status" else self.name
            msgspec.structs.force_setattr(self, "option", f"--{one.replace('_', '-')}")

    @property
    def label(self) -> str:
        """What help calls its value."""
        return self.of or self.option.lstrip("-").upper().replace("-", "_")


def parse(arguments: Sequence[Argument], argv: Sequence[str], command: str) -> dict[str, Any]:
    """What was given, by the names of the arguments; Usage if it does not fit."""
    options = {argument.option: argument for argument in arguments}
    options |= {argument.short: argument for argument in arguments if argument.short}
    given: dict[str, Any] = {}
    words: list[str] = []
    after = next((argument for argument in arguments if argument.after), None)
    tokens = iter(argv)
    for token in tokens:
        if token == "--" and after is not None:
            given[after.name] = list(tokens)
        elif token == "--":
            words.extend(tokens)
        elif not _is_option(token):
            words.append(token)
        else:
            _take_option(options, token, tokens, given, command)
    _take_words(arguments, words, given, command)
    missing = [a for a in arguments if a.required and a.name not in given]
    if missing:
        labels = " and ".join(_usage(argument) for argument in missing)
        usage = " ".join(["holdfast", command, *(_usage(argument) for argument in arguments if argument.required)])
        raise Usage(f"holdfast {command} needs {labels}", hint=f"{usage}; holdfast help {command}")
    fields = [each.option for each in arguments if each.name in _CHANGED.get(command, ())]
    if fields and not any(each.name in given for each in arguments if each.option in fields):
        hint = f"give {', '.join(fields[:-1])} or {fields[-1]}; holdfast help {command}"
        raise Usage(f"holdfast {command} needs something to change", hint=hint)
    return given


def _usage(argument: Argument) -> str:
    """How an argument is given: as a word, or after its option."""
    return argument.label if argument.word or argument.after else f"{argument.option} {argument.label}"


def _is_option(token: str) -> bool:
    """Whether a word is an option: a lone - is not, nor is a number below zero."""
    return len(token) > 1 and token[0] == "-" and not (token[1].isdigit() or token[1] == ".")


def _names_option(token: str) -> bool:
    """Whether a word can only be an option: a text may begin with a dash, too."""
    return token.startswith("--") and token[2:].partition("=")[0].replace("-", "").isalnum()


def _take_option(
    options: dict[str, Argument], token: str, tokens: Iterable[str], given: dict[str, Any], command: str
) -> None:
    name, equals, value = token.partition("=") if token.startswith("--") else (token, "", "")
    argument, on = options.get(name), True
    if argument is None and name.startswith("--no-"):
        argument, on = options.get(f"--{name[5:]}"), False
    if argument is None or not (on or argument.kind == "flag"):
        raise _unknown(name, options, command)
    if argument.kind == "flag":
        if equals:
            raise Usage(f"{name} takes no value")
        _put(given, argument, on)
        return
    if not equals:
        following = next(iter(tokens), None)
        if following is None:
            raise Usage(f"{name} needs a value", hint=f"{name} {argument.label}")
        if following in options or _names_option(following):
            hint = f"{name} {argument.label}; a value that begins with dashes is given as {name}={following}"
            raise Usage(f"{name} needs a value before {following}", hint=hint)
        value = following
    _put(given, argument, convert(argument, value, name))


def _take_words(arguments: Sequence[Argument], words: list[str], given: dict[str, Any], command: str) -> None:
    places = [a for a in arguments if a.word and not a.after and (a.required or a.name not in given)]
    for argument in places:
        if argument.rest or not words:
            break
        _put(given, argument, convert(argument, words.pop(0)))
    rest = next((argument for argument in arguments if argument.rest), None)
    if rest is not None and words:
        if rest.kind in REPEATED:
            for word in words:
                _put(given, rest, convert(rest, word))
        else:
            _put(given, rest, convert(rest, " ".join(words)))
        words = []
    if words:
        raise _too_many(arguments, words, command)


def _too_many(arguments: Sequence[Argument], words: list[str], command: str) -> Usage:
    """The refusal of words that a command has no place for."""
    places = [argument for argument in arguments if argument.word and not argument.after]
    what = " ".join(words)
    if any(argument.label in _TEXTS for argument in places):
        hint = f"put quotes around a text of several words; holdfast help {command}"
        return Usage(f"holdfast {command} has no place for {what!r}", hint=hint)
    meant = next((a for a in arguments if not a.word and words[0] in a.choices), None)
    hint = f"did you mean {meant.option} {words[0]}? " if meant is not None else ""
    taken = " and ".join(argument.label for argument in places)
    wrong = f"takes only {taken}" if places else "takes only options"
    return Usage(f"holdfast {command} {wrong}, not also {what!r}", hint=f"{hint}holdfast help {command}")


def _put(given: dict[str, Any], argument: Argument, value: Any) -> None:
    if argument.kind in REPEATED:
        given[argument.name] = [*given.get(argument.name, ()), value]
    else:
        given[argument.name] = value  # of several options the last counts, so that an alias can be overridden


# The options of which a command needs one.
_CHANGED: Final = {"update": ("title", "body", "priority", "type", "grimoire_hint")}
# Options that a command does not have, and what does what they would.
_MEANT: Final = {
    **dict.fromkeys((("mail send", "--from"), ("mail reply", "--from")), "the sender is --actor"),
    **{
        (command, option): f"the file is a plain word: holdfast {command} FILE"
        for command in ("export", "backup")
        for option in ("--out", "--output", "-o", "--to")
    },
    ("update", "--status"): "the status changes with holdfast done, block, unblock, cancel, close or reopen",
}


_WHO: Final = {"--holder", "--from", "--agent", "--as"}  # what some commands and other programs call the actor


def _unknown(name: str, options: Iterable[str], command: str) -> Usage:
    bare = {option.lstrip("-"): option for option in options}  # all begin alike, which is no likeness
    near, meant = bare.get(nearest(name.lstrip("-"), bare) or ""), _MEANT.get((command, name))
    if name in _WHO and "actor" in bare:
        near = "--actor"
    also = f"{meant}; " if meant else f"did you mean {near}? " if near else ""
    whole = f"holdfast {command}".rstrip()
    return Usage(f"{whole} has no option {name}", hint=f"{also}holdfast help {command or 'options'} lists all")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """What was probably meant."""
    from difflib import get_close_matches  # only who made a mistake needs it

    found = get_close_matches(name, list(known), n=1)
    return found[0] if found else None


# --- values ----------------------------------------------------------------------------------------------------------


def convert(argument: Argument, text: str, name: str = "") -> Any:
    """A value from its text; Usage if it is none of this kind. `name` is the option that was typed, if one was."""
    if argument.nothing and text == "none":
        return None
    name = name or (argument.label if argument.word else argument.option)
    if argument.choices and text not in argument.choices:
        raise Usage(f"{name} must be one of {', '.join(argument.choices)}, not {text!r}")
    read, meaning = _KINDS[argument.kind]
    try:
        return read(text)
    except (ValueError, OverflowError) as error:
        also, hint = (", or none", argument.help) if argument.nothing else ("", "")
        raise Usage(f"{name} must be {meaning}{also}, not {text[:80]!r}", hint=hint) from error


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def seconds(text: str) -> float:
    """A duration: 90, 90s, 15m, 2h, 1d."""
    unit = _UNITS.get(text[-1:], None)
    return float(text) if unit is None else float(text[:-1]) * unit


def _moment(text: str, plain: int) -> Any:
    """A moment: RFC 3339, or a duration from now: -2h, +2h; one without a sign counts forwards or backwards."""
    from datetime import UTC, datetime, timedelta

    sign = {"+": 1, "-": -1}.get(text[:1])
    if sign is None and not (text[:1].isdigit() and text[-1:] in _UNITS):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.astimezone()
    distance = timedelta(seconds=seconds(text if sign is None else text[1:]))
    try:
        return datetime.now(UTC) + distance * (sign or plain)
    except OverflowError as error:
        raise Usage(f"{text} is out of range") from error


def _json(text: str) -> Any:
    from holdfast.wire import check_keys, from_wire

    content = sys.stdin.read() if text == "-" else text
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        why = str(error).removeprefix("JSON is malformed: ")
        if not content.strip():
            why = "it is empty"
        elif content.strip() in ("True", "False", "None"):
            why = "JSON has true, false and null"
        elif content.strip()[0] not in '{["' and not content.strip()[-1].isdigit():
            why = "text needs double quotes"
        raise Usage(
            f"{content[:80]!r} is not JSON: {why}",
            hint="quote it for the shell; a text is '\"text\"', - reads JSON from standard input",
        ) from error
    try:
        check_keys(content)
    except Invalid as error:
        raise Usage(error.message, hint=error.hint) from error
    return from_wire(found)


def _typed(text: str, wanted: Any, label: str, hint: str) -> Any:
    try:
        return msgspec.convert(_json(text), wanted)
    except msgspec.ValidationError as error:
        raise Usage(f"{label} cannot be read: {error}", hint=hint) from error


def _conditions(text: str) -> Any:
    from holdfast.types import CONDITION_HINT, AnyCondition

    return _typed(text, list[AnyCondition], "the conditions", CONDITION_HINT)


def _operations(text: str) -> Any:
    from holdfast.types import OPERATION_HINT, Op

    return _typed(text, list[Op], "the operations", OPERATION_HINT)


def _stash(text: str) -> str:
    """What names a stash: a word that is neither an id nor a path is the name of a global one."""
    from holdfast.ids import is_uuid7

    return text if "/" in text or is_uuid7(text) else f"/{text}"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(text)
    return name, value


_MOMENT: Final = "a moment such as 2026-03-01T12:00:00Z, or a duration such as 2h"
# How a text becomes a value of each kind, and what it must be for that.
_KINDS: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "text": (str, "text"),
    "texts": (str, "text"),
    "content": (lambda text: sys.stdin.read() if text == "-" else text, "text"),
    "names": (lambda text: text.split(",") if "," in text else text, "a name, or several with commas"),
    "pairs": (_pair, "NAME=VALUE"),
    "int": (int, "a whole number"),
    "ints": (int, "a whole number"),
    "number": (_number, "a number"),
    "seconds": (seconds, "a number of seconds, or a duration such as 90s, 15m, 2h or 1d"),
    "past": (lambda text: _moment(text, -1), _MOMENT),
    "future": (lambda text: _moment(text, 1), _MOMENT),
    "json": (_json, "JSON"),
    "conditions": (_conditions, "JSON"),
    "operations": (_operations, "JSON"),
    "path": (str, "a path"),
    "paths": (str, "a path"),
    "lock": (str, "an id or a path"),
    "stash": (_stash, "a stash"),
}
