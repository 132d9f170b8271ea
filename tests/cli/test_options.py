"""Every option of every command reaches the argument that it stands for, in a form which the operation takes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest

from holdfast.arguments import Kind
from holdfast.faces.cli.args import Argument, parse
from holdfast.faces.cli.call import _arguments
from holdfast.faces.cli.command import all_commands
from holdfast.operation import REGISTRY
from holdfast.schema import argument_types, parameters
from tests.cli.calling import Answer

Cli = Callable[..., Answer]

COMMANDS = {command.op.name: command for command in all_commands() if command.op is not None}
SAMPLES: dict[Kind, str] = {
    **dict.fromkeys(("text", "texts", "content", "names", "path", "paths", "lock", "stash"), "word"),
    **{"pairs": "word=1", "json": "null", "conditions": "[]", "operations": "[]"},
    **dict.fromkeys(("int", "ints", "number", "seconds"), "1"),
    **{"past": "2h", "future": "2h"},
}


class Here:
    """A session whose folder is the project's."""

    folder = "/project"
    place = SimpleNamespace(folder="/project/.holdfast")


def _line(argument: Argument) -> list[str]:
    if argument.kind == "flag":
        return [argument.option]
    value = argument.choices[0] if argument.choices else SAMPLES[argument.kind]
    return [f"{argument.option}={value}"]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_reaches_its_argument(name: str) -> None:
    op = REGISTRY[name]
    types = argument_types(op)
    collects = {each.name for each in parameters(op) if each.kind is each.VAR_KEYWORD}
    for argument in (each for each in COMMANDS[name].arguments if each.name in types):
        given, _ = parse(
            [msgspec.structs.replace(argument, word=False, required=False)], _line(argument), op.command or ""
        )
        session: Any = Here()
        sent = _arguments(session, op, given)
        if argument.name in collects:
            assert sent == {"word": "1"}
            continue
        assert sent.keys() == {argument.name}
        if argument.kind != "json" and str not in (hint := types[argument.name], *get_args(hint)):
            _fits(sent[argument.name], hint)


def _fits(value: Any, hint: Any) -> None:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        if not str(error).startswith("Invalid enum value 'word'"):  # which the operation refuses with those that it has
            raise


def test_the_history_of_a_thread_has_values_on_request(made: Cli) -> None:
    made("thread", "put", "chat", "01", '{"a": 1}')
    (plain,), (whole,) = (made("thread", "history", "chat", *more, "--json").data for more in ([], ["--values"]))
    assert plain != whole
    refused = made("thread", "history", "chat", "--value", "a=b")
    assert (refused.code, refused.err.splitlines()[0]) == (2, "holdfast: holdfast thread history has no option --value")
