"""Commands derived from operations: the line of an operation in its domain's table decides what its command takes.

An argument that an operation requires is positional, in the same order; one that it can do without is an option, named
like it. The usage of an operation (`cli="tag add ID TAGS..."`) says otherwise, for the sake of fingers. What arguments
mean, and their kinds, is in `holdfast.arguments`. Annotations are read as they are written, because resolving them
costs more time than most calls take.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.arguments import VOCABULARY, Kind, Meaning, kind_of
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.command import Command
from holdfast.operation import REGISTRY, Operation

_VARKEYWORDS: Final = 0x08


def operation_called(name: str, domain: str) -> Operation[..., Any] | None:
    """The operation that is this command, of a workspace itself or of a domain; no other domain is loaded."""
    found = (op for part in ("", domain) for op in REGISTRY.within(part))
    return next((op for op in found if op.command == name), None)


def derive(op: Operation[..., Any]) -> Command:
    """The command that is an operation."""
    from holdfast.faces.cli.call import perform

    name = op.command
    assert name is not None
    arguments = arguments_of(op)
    if op.route.irreversible:
        arguments = (*arguments, Argument("yes", "flag", help="do not ask whether it is meant"))
    # A list that an operation requires and a command can do without is empty then.
    empty: dict[str, Any] = {
        each.name: [] for each in arguments if each.rest and not each.required and each.name in _required(op)
    }
    return Command(
        name,
        op.route.help or op.summary,
        arguments,
        lambda session, given: perform(session, op, empty | given),
        op=op,
        relayed=op.kind in ("read", "write", "procedure") and not op.route.irreversible and not op.route.heavy,
    )


def arguments_of(op: Operation[..., Any]) -> tuple[Argument, ...]:
    """What its command takes: first the positional arguments, in their order."""
    required = _required(op)
    usage = [word for word in (op.route.cli or "").split() if not word.islower()] or [name.upper() for name in required]
    words = [_positional(op, word, required) for word in usage]
    taken = {word.name for word in words}
    return (*words, *(_argument(op, name, name in required) for name in _names(op) if name not in taken))


def argument_kind(op: Operation[..., Any], name: str) -> Kind:
    """The kind of an argument of an operation."""
    return kind_of(str(op.function.__annotations__[name]), _meaning(op, name))


def _names(op: Operation[..., Any]) -> tuple[str, ...]:
    """The arguments that a caller gives; the last may stand for any others by name."""
    code = op.function.__code__
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _VARKEYWORDS)
    return code.co_varnames[op.implicit_args : count]


def _required(op: Operation[..., Any]) -> tuple[str, ...]:
    code, defaults = op.function.__code__, op.function.__defaults__ or ()
    return code.co_varnames[op.implicit_args : code.co_argcount - len(defaults)]


def _positional(op: Operation[..., Any], word: str, required: tuple[str, ...]) -> Argument:
    """An argument as the usage has it: ID, [NOTE], TAGS..., [TAGS...]."""
    name = word.strip("[].").lower()
    needed = name in required and not word.startswith("[")
    return _argument(op, name, needed, word=True, rest="..." in word)


def _argument(
    op: Operation[..., Any], name: str, required: bool, *, word: bool = False, rest: bool = False
) -> Argument:
    meaning, annotation = _meaning(op, name), str(op.function.__annotations__[name])
    return Argument(
        name,
        kind_of(annotation, meaning),
        meaning.option,
        short=meaning.short,
        word=word,
        rest=rest,
        required=required,
        nothing=required and "None" in annotation,
        help=meaning.help,
        choices=meaning.choices,
        names=meaning.names,
    )


def _meaning(op: Operation[..., Any], name: str) -> Meaning:
    """As its own line says, as its type or its name means everywhere, or as its name and annotation tell."""
    usual = VOCABULARY.get(name, Meaning(""))
    own = op.route.arguments.get(name) or VOCABULARY.get(str(op.function.__annotations__[name])) or usual
    return own if isinstance(own, Meaning) else Meaning(own, usual.kind, usual.option, names=usual.names)
