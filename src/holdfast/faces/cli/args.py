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
    names: str = ""  # what the value names, for completion: as in `Meaning`

    def __post_init__(self) -> None:
        if not self.option:
            one = self.name.removesuffix("s") if self.kind in REPEATED and self.name != "status" else self.name
            msgspec.structs.force_setattr(self, "option", f"--{one.replace('_', '-')}")

    @property
    def label(self) -> str:
        """What help calls its value."""
        return self.of or self.option.lstrip("-").upper().replace("-", "_")


def options_of(own: Sequence[Argument], common: Sequence[Argument]) -> dict[str, Argument]:
    """What may be typed: an option of the command hides a common one, except that of a word, which has a place."""
    words = [argument for argument in own if argument.word]
    others = [argument for argument in own if not argument.word]
    return {name: each for each in (*words, *common, *others) for name in (each.option, each.short) if name}


def parse(
    own: Sequence[Argument], argv: Sequence[str], command: str, common: Sequence[Argument] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was given, by name: the arguments of the command, and the common ones. Raises Usage if it does not fit."""
    arguments = own
    options = options_of(own, common)
    given: dict[str, Any] = {}
    outer: dict[str, Any] = {}
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
            argument, value = _read_option(options, token, tokens, command)
            _put(outer if argument in common else given, argument, value)
    if "--" not in argv and _lacks_quotes(arguments, words, given):
        raise _unquoted(words, _said(argv, options), command)
    _refuse_second_id(arguments, words, command)
    _take_words(arguments, words, given, command)
    missing = [a for a in arguments if a.required and a.name not in given]
    if missing:
        labels = " and ".join(_usage(argument) for argument in missing)
        flags = [each.option for each in own if each.kind == "flag" and given.get(each.name)]
        usage = " ".join(["holdfast", command, *flags, *map(_usage, (each for each in own if each.required))])
        raise Usage(f"holdfast {command} needs {labels}", hint=f"{usage}; holdfast help {command}")
    fields = [each.option for each in arguments if each.name in _CHANGED.get(command, ())]
    if fields and not any(each.name in given for each in arguments if each.option in fields):
        hint = f"give {', '.join(fields[:-1])} or {fields[-1]}; holdfast help {command}"
        raise Usage(f"holdfast {command} needs something to change", hint=hint)
    return given, outer


def _usage(argument: Argument) -> str:
    """How an argument is given: as a word, or after its option."""
    return argument.label if argument.word or argument.after else f"{argument.option} {argument.label}"


def _is_option(token: str) -> bool:
    """Whether a word is an option: a lone - is not, nor is a number below zero."""
    return len(token) > 1 and token[0] == "-" and not (token[1].isdigit() or token[1] == ".")


def _names_option(token: str) -> bool:
    """Whether a word can only be an option: a text may begin with a dash, too."""
    return token.startswith("--") and token[2:].partition("=")[0].replace("-", "").isalnum()


def _read_option(options: dict[str, Argument], token: str, tokens: Iterable[str], command: str) -> tuple[Argument, Any]:
    """The argument of an option, and its value. Raises Usage if there is no such option, or it has no value."""
    name, equals, value = token.partition("=") if token.startswith("--") else (token, "", "")
    argument, on = options.get(name), True
    if argument is None and name.startswith("--no-"):
        argument, on = options.get(f"--{name[5:]}"), False
    if argument is None or not (on or argument.kind == "flag"):
        raise _unknown(name, options, command)
    if argument.kind == "flag":
        if equals:
            raise Usage(f"{name} takes no value")
        return argument, on
    if not equals:
        following = next(iter(tokens), None)
        if following is None:
            raise Usage(f"{name} needs a value", hint=f"{name} {argument.label}")
        if following in options or _names_option(following):
            hint = f"{name} {argument.label}; a value that begins with dashes is given as {name}={following}"
            raise Usage(f"{name} needs a value before {following}", hint=hint)
        value = following
    return argument, convert(argument, value, name)


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


def _lacks_quotes(arguments: Sequence[Argument], words: list[str], given: dict[str, Any]) -> bool:
    """Whether words for a title and a body may be one title without its quotes: none of them has a space."""
    places = [argument.name for argument in arguments if argument.word]
    if places != ["title", "body"] or len(words) < 2 or not given.keys().isdisjoint(places) or "-" in words[:2]:
        return False
    return len(words) > 2 or not any(each.isspace() for word in words for each in word)


def _unquoted(words: list[str], said: list[str], command: str) -> Usage:
    """The refusal of such words, with the two commands that can be meant."""
    from shlex import join

    meant = [[" ".join(words)], [words[0], "--body", " ".join(words[1:])]]
    commands = [join(["holdfast", command, *each, *said]) for each in meant]
    message = f"is {' '.join(words)!r} the title, or is {words[0]!r} the title and the rest its body?"
    return Usage(message, hint=", or ".join(commands), commands=commands)


def _refuse_second_id(arguments: Sequence[Argument], words: list[str], command: str) -> None:
    """Refuse a second id where a text belongs: `close A B` must not close A because of "B" and leave B open."""
    places = [argument for argument in arguments if argument.word]
    if len(words) != 2 or len(places) < 2 or places[0].name != "id" or places[1].name not in _EXPLANATIONS:
        return
    (first, second), text = words, places[1]
    prefix = first.rpartition("-")[0]
    if prefix and len(second) == len(first) and second.rpartition("-")[0] == prefix:
        meant = f"holdfast {command} {second} in a command of its own, or {text.option} {second} for the text"
        raise Usage(f"is {second!r} a second task, or the {text.name} for {first}?", hint=meant)


def _said(argv: Sequence[str], options: dict[str, Argument]) -> list[str]:
    """The options of a command line, with their values."""
    found: list[str] = []
    tokens = iter(argv)
    for token in tokens:
        if _is_option(token):
            argument = options.get(token)
            valued = argument is not None and argument.kind != "flag"
            found += [token, next(tokens)] if valued else [token]
    return found


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


def _unknown(name: str, options: Iterable[str], command: str) -> Usage:
    from holdfast.faces.cli.synonyms import ELSEWHERE, OPTIONS

    known = list(options)
    bare = {option.lstrip("-"): option for option in known}  # all begin alike, which is no likeness
    meant = _MEANT.get((command, name))
    near = next((each for each in OPTIONS.get(name, ()) if each in known), None)
    if near is None:
        meant = meant or ELSEWHERE.get(name)
    near = near or bare.get(nearest(name.lstrip("-"), bare) or "")
    also = f"{meant}; " if meant else f"did you mean {near}? " if near else ""
    whole = f"holdfast {command}".rstrip()
    return Usage(f"{whole} has no option {name}", hint=f"{also}holdfast help {command or 'options'} lists all")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """What was probably meant: what begins so, or differs by a slip or two of the fingers; else nothing."""
    names = sorted(known)
    begun = [each for each in names if len(name) > 2 and each.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    slips = min(2, len(name) // 3)
    distance, best = min(((_slips(name, each), each) for each in names), default=(slips + 1, ""))
    return best if distance <= slips else None


def _slips(one: str, other: str) -> int:
    """How many letters must be added, left out, changed or swapped with the next to make one word of another."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                row[j] = min(row[j], older[j - 2] + 1)
    return row[-1]


# --- values ----------------------------------------------------------------------------------------------------------


def convert(argument: Argument, text: str, name: str = "") -> Any:
    """A value from its text; Usage if it is none of this kind. `name` is the option that was typed, if one was."""
    if argument.nothing and text == "none":
        return None
    name = name or (argument.label if argument.word else argument.option)
    if argument.choices and text not in argument.choices:
        raise Usage(f"{name} must be one of {', '.join(argument.choices)}, not {text!r}")
    named = _NAMED.get(argument.name) if argument.kind in ("int", "ints") else None
    read, meaning = named or _KINDS[argument.kind]
    if argument.kind == "seconds" and text[:1] == "-" and text[-1] in _UNITS:
        raise Usage(f"{name} is a length of time, which cannot be {text[:80]!r}", hint=f"did you mean {text[1:80]}?")
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
    """A moment: RFC 3339, a duration (one without a sign counts forwards or backwards), or as people say it."""
    from datetime import UTC, datetime, timedelta

    sign = {"+": 1, "-": -1}.get(text[:1])
    if sign is None and not (text[-1:] in _UNITS and text[:-1].replace(".", "", 1).isdigit()):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            from holdfast.faces.cli.times import spoken

            return spoken(text, datetime.now().astimezone(), plain)
        return moment if moment.tzinfo else moment.astimezone()
    if sign is not None and text[1:].isdigit():
        raise Usage(f"{text} has no unit", hint=f"{text}s, {text}m, {text}h or {text}d")
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
    except RecursionError as error:
        raise Usage("the JSON is nested too deep", hint="a value has at most 128 levels") from error
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


def _priority(text: str) -> int:
    """A priority: 1, P1, or its name in other programs."""
    lower = text.lower()
    return _PRIORITIES[lower] if lower in _PRIORITIES else int(lower.removeprefix("p"))


_PRIORITIES: Final = {"critical": 0, "urgent": 0, "high": 1, "medium": 2, "normal": 2, "low": 3, "backlog": 4}
_EXPLANATIONS: Final = ("reason", "summary")
_MOMENT: Final = "a moment such as 2h, tomorrow, 'monday 9:00', 2026-03-01 or 2026-03-01T12:00:00Z"
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
# The same for numbers of a name.
_NAMED: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "priority": (_priority, "0 (first) to 4, P0 to P4, or critical, high, medium, low or backlog"),
}
