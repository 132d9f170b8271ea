"""Request and result schemas of operations, from the same types that Python sees.

Faces use them for OpenAPI, MCP tools and command lines. Imported only by faces and tests: reading signatures costs time
that a plain call need not pay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

import holdfast.transaction  # noqa: F401  # fills the table
from holdfast.ops import Operation, Step, load_all, operation
from holdfast.types.base import Page
from holdfast.types.txn import AnyCondition, Condition

load_all()


# What an argument is on the wire, where each kind of it must be told apart.
_ON_THE_WIRE = {Sequence[Condition]: Sequence[AnyCondition]}


def argument_types(op: Operation[..., Any]) -> dict[str, Any]:
    """The types of an operation's arguments, as they travel."""
    hints = get_type_hints(op.function)
    return {each.name: _ON_THE_WIRE.get(hints[each.name], hints[each.name]) for each in parameters(op)}


@cache
def request_type(name: str) -> type[msgspec.Struct]:
    """The arguments of an operation as a struct; arguments that are functions do not travel and are left out."""
    op = operation(name)
    hints = argument_types(op)
    fields = [
        _field(parameter, hints[parameter.name])
        for parameter in parameters(op)
        if get_origin(hints[parameter.name]) is not Callable
    ]
    return msgspec.defstruct("".join(part.title() for part in name.split(".")), fields, forbid_unknown_fields=True)


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:  # values of any name: on the wire they are a map
        return parameter.name, dict[str, hint], msgspec.field(default_factory=dict)
    if parameter.default is inspect.Parameter.empty:
        return parameter.name, hint
    return parameter.name, hint, parameter.default


def parameters(op: Operation[..., Any]) -> list[inspect.Parameter]:
    """The arguments that a caller gives."""
    return list(inspect.signature(op.function).parameters.values())[op.given :]


@cache
def answer_type(function: Callable[..., Any]) -> Any:
    """The type that an operation's function answers: of a procedure its result, of a stream its items."""
    answer = get_type_hints(function)["return"]
    arguments = get_args(answer)
    if get_origin(answer) is Page:  # travels as the list that it is
        return list[arguments[0]]  # type: ignore[valid-type]
    if arguments and arguments[0] == Step:  # a generator of steps
        return arguments[2]
    return arguments[0] if getattr(get_origin(answer), "__name__", "") == "Following" else answer


def result_type(name: str) -> Any:
    """The type of an operation's answer; of a watch, its items, or None where it may time out."""
    op = operation(name)
    answer = answer_type(op.function)
    return answer | None if op.kind == "first" else answer


def schemas(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schemas of an operation's request and result."""
    return msgspec.json.schema(request_type(name)), msgspec.json.schema(result_type(name))
