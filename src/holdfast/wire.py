"""JSON to types and back: arguments from a request, results and errors as an answer, without a second list of types.

Arguments come from the path, the query and the body, which is an object. Values of any shape travel in the form of
`kernel.wire`, in which bytes survive; times are RFC 3339. Guarantee: what Python would answer in process can be had
back from what is sent, by `holdfast.remote`.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote_plus

import msgspec
from msgspec import UNSET, UnsetType

from holdfast import errors
from holdfast.kernel.values import from_wire
from holdfast.operation import Alias, Operation, operation
from holdfast.workspace.schema import answer_type, argument_types, parameters


def wired(result: Any) -> Any:
    """Any result in a form that JSON can carry: bytes marked as `kernel.wire` marks them."""
    return _wrap(msgspec.to_builtins(result, builtin_types=(bytes, datetime)))


def _wrap(item: Any) -> Any:
    kind = type(item)
    if kind is dict:
        if len(item) == 1 and str(next(iter(item))).startswith("$"):
            return {f"${key}": _wrap(value) for key, value in item.items()}
        return {key: _wrap(value) for key, value in item.items()}
    if kind is list or kind is tuple:
        return [_wrap(value) for value in item]
    if kind is bytes:
        return {"$bytes": msgspec.to_builtins(item)}
    if kind is float and not math.isfinite(item):
        raise errors.InvalidValue(f"{item!r} is not a number that JSON has")
    return item


MAX_DEPTH: Final = 160
EXACT: Final = "args"  # of a query: the arguments as a JSON object, for who cares whether 5 is a number
_encode = msgspec.json.Encoder().encode


class Plan(msgspec.Struct, frozen=True):
    """How the arguments of an operation are read and its answer is written."""

    hints: dict[str, Any]  # the arguments that have a name of their own
    body: type[msgspec.Struct]  # all of them, each may be unset
    decode: Callable[[bytes], Any]
    values: frozenset[str]  # arguments whose content is free
    lists: frozenset[str]  # arguments that may be given several times in a query
    required: frozenset[str]  # arguments that must be given
    extra: str | None  # the argument that takes whatever else is named
    aliases: tuple[Alias, ...]
    free: bool  # the answer has parts of any shape


@cache
def plan_of(name: str) -> Plan:
    """The plan of an operation."""
    op = operation(name)
    hints = argument_types(op)
    fields: list[tuple[str, Any, Any]] = []
    values, lists, extra = set(), set(), None
    for parameter in parameters(op):
        hint = hints[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = parameter.name
            continue
        fields.append((parameter.name, hint | UnsetType, UNSET))
        if is_free(hint):
            values.add(parameter.name)
        if any(get_origin(part) is not None and _is_list(part) for part in (hint, *get_args(hint))):
            lists.add(parameter.name)
    body = msgspec.defstruct(f"Arguments of {name}", fields, forbid_unknown_fields=extra is None, kw_only=True)
    decoder = msgspec.json.Decoder(body)
    own = {name: hint for name, hint in hints.items() if name != extra}
    required = {each.name for each in parameters(op) if each.default is each.empty and each.name != extra}
    return Plan(
        hints=own,
        body=body,
        decode=decoder.decode,
        values=frozenset(values),
        lists=frozenset(lists),
        required=frozenset(required),
        extra=extra,
        aliases=op.route.aliases,
        free=is_free(answer_type(op.function)),
    )


def _is_list(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Iterable) and not issubclass(origin, Mapping)


def is_free(hint: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Whether something of any shape can be inside a type."""
    if hint is Any or hint is object:
        return True
    if hint in seen:  # a type that holds itself
        return False
    inside: Iterable[Any] = get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        inside = (*get_type_hints(hint).values(), *hint.__subclasses__())
    return any(is_free(each, (*seen, hint)) for each in inside)


# --- arguments -------------------------------------------------------------------------------------------------------


def arguments(op: Operation[..., Any], path: dict[str, str], query: bytes, body: bytes) -> dict[str, Any]:
    """The arguments of a call.

    What does not fit its type is handed on as it came: the operation refuses it, in its own words and with its own
    code, as it would in process.
    """
    plan = plan_of(op.name)
    given = _from_body(plan, body) if body else {}
    if query:
        given = _merge(given, _from_query(plan, query))
    if path:
        given = _merge(given, {name: _fitted(plan, name, value, False) for name, value in path.items()})
    missing = plan.required - given.keys()
    if missing:
        raise errors.Invalid(f"{op.name} needs {' and '.join(sorted(missing))}")
    return given


def _from_body(plan: Plan, body: bytes) -> dict[str, Any]:
    check_depth(body)
    if not plan.values and plan.extra is None:
        with suppress(msgspec.DecodeError):  # what does not fit is looked at one by one
            return _set_fields(plan.decode(body))
    return _from_object(plan, body)


def _from_object(plan: Plan, content: bytes) -> dict[str, Any]:
    try:
        raw = parsed(content)
    except (ValueError, RecursionError) as error:
        raise errors.Invalid(f"the arguments are not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise errors.Invalid("arguments come as an object, by name", hint='such as {"title": "..."}')
    _rename(plan, raw)
    if plan.extra is not None and isinstance(raw.get(plan.extra), dict):
        raw |= raw.pop(plan.extra)
    return {name: _fitted(plan, name, value, True) for name, value in raw.items()}


def _rename(plan: Plan, given: dict[str, Any]) -> None:
    """Use our own words for arguments that have others."""
    for alias in plan.aliases:
        value = given.pop(alias.name, UNSET)
        if value is UNSET:
            continue
        if alias.opposite:
            if str(value).lower() not in ("true", "false"):
                raise errors.Invalid(f"{alias.name} is true or false")
            if str(value).lower() == "false":
                continue
            value = False
        if alias.of in given:
            raise errors.Invalid(f"{alias.name} is another word for {alias.of}: give one of them")
        given[alias.of] = value


def parsed(content: bytes) -> Any:
    """JSON, also with lone surrogates, which are none to msgspec: who gets them refuses them by name."""
    return json.loads(content) if b"\\ud" in content or b"\\uD" in content else msgspec.json.decode(content)


def _from_query(plan: Plan, query: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError as error:
        raise errors.Invalid(f"the query cannot be read: {error}") from error
    for name, value in pairs:
        if name in plan.lists:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise errors.Invalid(f"{name} is given twice")
        else:
            found[name] = value
    _rename(plan, found)
    exact = found.pop(EXACT, None)
    given = {name: _fitted(plan, name, value, False) for name, value in found.items()}
    return given if exact is None else _merge(given, _from_object(plan, exact.encode()))


def take_from_query(query: bytes, name: str) -> tuple[str | None, bytes]:
    """What a query says that is no argument of an operation, and the query without it."""
    parts = query.split(b"&")
    mine = [part for part in parts if part.partition(b"=")[0] == name.encode()]
    if not mine:
        return None, query
    if len(mine) > 1:
        raise errors.Invalid(f"{name} is given twice")
    value = unquote_plus(mine[0].partition(b"=")[2].decode("latin-1"))
    return value, b"&".join(part for part in parts if part not in mine)


def _fitted(plan: Plan, name: str, value: Any, strict: bool) -> Any:
    """An argument as its type, if it fits; a text may also be read as a number or a truth, if it is not `strict`."""
    hint = plan.hints.get(name)
    if hint is None and plan.extra is None:
        raise errors.Invalid(f"there is no argument {name[:80]!r}", hint=f"there are {', '.join(plan.hints)}")
    if strict and (hint is None or name in plan.values):
        value = from_wire(value)
    if hint is None:
        return value
    try:
        return msgspec.convert(value, hint, strict=strict)
    except msgspec.ValidationError:
        return value[0] if not strict and isinstance(value, list) and len(value) == 1 else value


def _set_fields(given: msgspec.Struct) -> dict[str, Any]:
    pairs = ((name, getattr(given, name)) for name in given.__struct_fields__)
    return {name: value for name, value in pairs if value is not UNSET}


def _merge(given: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    for name, value in more.items():
        if name in given and given[name] != value:
            raise errors.Invalid(f"{name} is given twice, and not the same")
    return given | more


def check_depth(body: bytes) -> None:
    """Refuse a body that is nested deeper than any of ours, before a parser sees it."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    inside = escaped = False
    for byte in body:
        if inside:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                inside = False
        elif byte == 0x22:
            inside = True
        elif byte in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise errors.Invalid(f"the body is nested more than {MAX_DEPTH} deep")
        elif byte in b"]}":
            depth -= 1


# --- answers ---------------------------------------------------------------------------------------------------------


def answer(op: Operation[..., Any], result: Any) -> bytes:
    """The result of an operation as JSON."""
    return _encode(wired(result)) if plan_of(op.name).free else _encode(result)


def failure(error: errors.HoldfastError) -> bytes:
    """An error as JSON: its data at the top level too, and never instead of what every error has."""
    details = {name: wired(value) for name, value in error.details.items()}
    own = {"error": error.message, "code": error.code, "hint": error.hint, "retryable": error.retryable}
    told = {**details, **own, "details": details}
    try:
        return _encode(told)
    except UnicodeEncodeError:  # it speaks of a text that is none
        return json.dumps(told, default=datetime.isoformat).encode()
