"""The form in which values, arguments, results and errors travel as JSON, shared by servers and clients.

Values of any shape keep their types: bytes become `{"$bytes": base64}`, and an object whose only key begins with `$`
gets one more `$`. Times are RFC 3339. Arguments come from the path, the query and the body of a request. Guarantee:
`holdfast.remote` gets back what the operation returns in process.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from holdfast import errors
from holdfast.arguments import ELSEWHERE, meant
from holdfast.kernel import values
from holdfast.kernel.values import Node, Value, bad_scalar, path_of, short, too_deep
from holdfast.operation import Operation, operation
from holdfast.route import Alias

MAX_DEPTH: Final = 160  # of a request's body
EXACT: Final = "args"  # in a query: all arguments as one JSON object, which tells 5 from "5"
PASSING_KEY: Final = "key=passing"  # another: the key is the client's own, and kept only if the call changes something
PYTHON_HINTS: Final = "hints=python"  # a preference of our own clients: hints name calls, and not addresses
_STRING: Final = rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?'  # of JSON; the last may lack its end
_PLAIN: Final = frozenset((str, int, bool, type(None), datetime))  # what JSON, or its encoder, carries as it is
_KEPT: Final = (str, int, float, bytes, type(None), msgspec.Struct)  # by JSON, as what they are
_INFINITE: Final = float("inf")
_encode = msgspec.json.Encoder().encode


# --- values ----------------------------------------------------------------------------------------------------------


# Control characters, separators of lines and direction: JSON leaves them bare, a terminal or a reader of lines may obey
# them. The second has them in UTF-8. Compiled when the first text needs it.
_OBEYED: Final = "[\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
_OBEYED_BYTES: Final = rb"\x7f|\xc2[\x80-\x9f]|\xe2(?:\x80[\xa8-\xae]|\x81[\xa6-\xa9])"


def json_bytes(value: Any) -> bytes:
    """JSON on one line that no terminal obeys and no reader of lines splits, for every face.

    JSON itself escapes only the control characters below U+0020.
    """
    encoded = _encode(value)
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    return re.sub(_OBEYED_BYTES, lambda found: b"\\u%04x" % ord(found[0].decode()), encoded)


def json_text(value: Any) -> str:
    """The same as text; words that are not UTF-8, which an error may show, are escaped too."""
    try:
        return json_bytes(value).decode()
    except UnicodeEncodeError:
        from json import dumps

        return dumps(value, separators=(",", ":"))


def escape_controls(text: str) -> str:
    """Escape the characters that JSON leaves bare and somebody may obey, which can only stand in its strings."""
    if text.isascii() and "\x7f" not in text:
        return text
    return re.sub(_OBEYED, lambda found: f"\\u{ord(found[0]):04x}", text)


def to_wire(value: object) -> Value:
    """A value in the form that JSON can carry; InvalidValue if it is not a value (JSON would turn NaN into null)."""
    values.check(value, text=True)
    wrapped: Value = _wrap(value)
    return wrapped


def wired(result: Any) -> Any:
    """A result of any type in the form that JSON can carry; times are left to the encoder."""
    return _wrap(msgspec.to_builtins(result, builtin_types=(bytes, datetime)))


def _wrap(item: Any) -> Any:
    kind = type(item)
    if kind is dict:
        dollar = "$" if _is_marked(item) else ""
        return {
            f"{dollar}{key}" if dollar else key: value if type(value) in _PLAIN else _wrap(value)
            for key, value in item.items()
        }
    if kind is list or kind is tuple:
        return [value if type(value) in _PLAIN else _wrap(value) for value in item]
    if kind is bytes:
        return {"$bytes": binascii.b2a_base64(item, newline=False).decode()}
    if kind is float and not -_INFINITE < item < _INFINITE:  # nor NaN
        raise errors.InvalidValue(f"{item!r} is not a number that JSON has")
    return item


def from_wire(obj: object, most: int = values.MAX_DEPTH) -> Value:
    """The value whose JSON form was parsed into `obj`; InvalidValue if that form is malformed or too deep.

    Looks at the shape only. The ranges and the text are checked when the value is encoded.
    """
    return _unwrap(obj, None, most)


def _unwrap(item: Any, parent: Node | None, most: int) -> Value:
    kind = type(item)
    if kind is not list and kind is not dict:
        if kind is str or kind is int or kind is float or kind is bool or item is None:
            return item  # type: ignore[no-any-return]
        raise bad_scalar(parent, item)
    marked = kind is dict and _is_marked(item)
    if marked and not next(iter(item)).startswith("$$"):
        return _unwrap_bytes(item, parent)  # a scalar, so no level of depth
    node: Node = (item, parent[1] + 1 if parent else 1, parent)
    if node[1] > most:
        raise too_deep(node)
    if kind is list:
        return [_unwrap(child, node, most) for child in item]
    return {key[1:] if marked else key: _unwrap(child, node, most) for key, child in item.items()}


def _unwrap_bytes(item: dict[str, object], parent: Node | None) -> bytes:
    ((key, text),) = item.items()
    where = path_of(parent, item)
    if key != "$bytes":
        hint = "an object whose only key begins with $ is sent with one more $"
        raise errors.InvalidValue(f"{where} has the unknown marker {short(repr(key), 40)}", hint=hint, path=where)
    try:
        data = binascii.a2b_base64(text) if type(text) is str else None
    except ValueError:
        data = None
    # The decoder skips characters outside the alphabet; only text that encodes the same way again was well-formed.
    if data is None or binascii.b2a_base64(data, newline=False).decode() != text:
        hint = "standard alphabet, with padding"
        raise errors.InvalidValue(f"$bytes of {where} is not base64", hint=hint, path=where)
    return data


def _is_marked(box: dict[Any, Any]) -> bool:
    if len(box) != 1:
        return False
    key = next(iter(box))
    return type(key) is str and key.startswith("$")


# --- arguments -------------------------------------------------------------------------------------------------------


class Plan(msgspec.Struct, frozen=True):
    """How the arguments of an operation are read and its result is written."""

    hints: dict[str, Any]  # types of the arguments, but for `extra`
    decode: Callable[[bytes], Any]  # a body as a struct of the arguments, each of which may be unset
    values: frozenset[str]  # arguments that take any value
    lists: frozenset[str]  # arguments that may be given several times in a query, or once with commas between
    required: frozenset[str]
    extra: str | None  # the argument that collects all other names (`**fields`)
    aliases: tuple[Alias, ...]
    free: bool  # the result has parts of any shape
    elsewhere: dict[str, str]  # what other operations take, and how


@cache
def plan_of(name: str) -> Plan:
    """The plan of an operation."""
    from holdfast import schema  # reading signatures costs time that a program which sends nothing need not pay

    op = operation(name)
    parameters = schema.parameters(op)
    extra = next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), None)
    hints = {name: hint for name, hint in schema.argument_types(op).items() if name != extra}
    fields = [(name, hint | UnsetType, UNSET) for name, hint in hints.items()]
    body = msgspec.defstruct(f"Arguments of {name}", fields, forbid_unknown_fields=extra is None, kw_only=True)
    return Plan(
        hints=hints,
        decode=msgspec.json.Decoder(body).decode,
        values=frozenset(name for name, hint in hints.items() if is_free(hint)),
        lists=frozenset(name for name, hint in hints.items() if any(map(_is_list, (hint, *get_args(hint))))),
        required=frozenset(each.name for each in parameters if each.default is each.empty and each.name != extra),
        extra=extra,
        aliases=op.route.aliases,
        free=is_free(schema.answer_type(op.function)),
        elsewhere=ELSEWHERE.get(op.name, {}),
    )


def _is_list(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Iterable) and not issubclass(origin, Mapping)


def is_free(hint: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Whether a type has room for a value of any shape."""
    if hint is Any or hint is object:
        return True
    if hint in seen:  # a type that contains itself
        return False
    inside: Iterable[Any] = get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        inside = (*get_type_hints(hint).values(), *hint.__subclasses__())
    return any(is_free(each, (*seen, hint)) for each in inside)


def arguments(op: Operation[..., Any], path: dict[str, str], query: bytes, body: bytes) -> dict[str, Any]:
    """The arguments of a call.

    An argument that does not fit its type is passed on unchanged: the operation refuses it with the same message and
    code as in process.
    """
    plan = plan_of(op.name)
    given = _from_body(plan, body) if body else {}
    if query:
        _merge(given, _from_query(plan, query))
    for name, value in path.items():
        fitted = value if plan.hints.get(name) is str else _fitted(plan, name, value, False)
        if given.setdefault(name, fitted) != fitted:
            raise errors.Invalid(f"{name} is given twice, with different values")
    missing = plan.required - given.keys()
    if missing:
        raise errors.Invalid(f"{op.name} needs {' and '.join(sorted(missing))}")
    return given


def _from_body(plan: Plan, body: bytes) -> dict[str, Any]:
    check_depth(body)
    if not plan.values and plan.extra is None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # then each argument is read by itself
            given = _set_fields(plan.decode(body))
            if body.count(b":") != len(given):
                check_keys(body)
            return given
    return _from_object(plan, body)


def _from_object(plan: Plan, content: bytes, what: str = "the body") -> dict[str, Any]:
    try:
        raw = parsed(content)
    except UnicodeDecodeError as error:
        hint = 'encode text as UTF-8; bytes in a value travel as {"$bytes": BASE64}'
        raise errors.Invalid(f"{what} is not UTF-8", hint=hint) from error
    except (ValueError, RecursionError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise errors.Invalid(f"{what} is not JSON: {why}") from error
    if not isinstance(raw, dict):
        raise errors.Invalid(f"{what} must be a JSON object", hint=f"an object with {', '.join(plan.hints)}")
    _rename(plan, raw)
    if plan.extra is not None and isinstance(raw.get(plan.extra), dict):
        _merge(raw, raw.pop(plan.extra))
    return {name: _fitted(plan, name, value, True) for name, value in raw.items()}


def _rename(plan: Plan, given: dict[str, Any]) -> None:
    """Replace aliases of arguments by their names."""
    for alias in plan.aliases:
        value = given.pop(alias.name, UNSET)
        if value is UNSET:
            continue
        if alias.opposite:
            if str(value).lower() not in ("true", "false"):
                raise errors.Invalid(f"{alias.name} must be true or false")
            if str(value).lower() == "false":
                continue
            value = False
        if alias.of in given:
            raise errors.Invalid(f"{alias.name} is an alias of {alias.of}: give one of them")
        given[alias.of] = value


def parsed(content: bytes) -> Any:
    """Parse JSON. Raises Invalid for a duplicate key, and ValueError for what is not JSON.

    Lone surrogates, which msgspec does not read, are kept: the operation refuses them by name.
    """
    if b"\\ud" in content or b"\\uD" in content:
        import json  # here, as the other parsers: the command line loads this module for each call

        return json.loads(content.decode(), object_pairs_hook=_unique)
    found = msgspec.json.decode(content)
    # Every key has a colon. If there are no more colons than keys, none was lost; most documents are so shallow.
    colons = content.count(b":")
    if colons and (type(found) is not dict or colons != _shallow_keys(found)):
        check_keys(content)
    return found


def _shallow_keys(found: dict[str, Any]) -> int:
    return len(found) + sum(len(value) for value in found.values() if type(value) is dict)


def check_keys(content: bytes | str) -> None:
    """Raise Invalid if an object of this JSON has a key twice: parsers keep the last value and lose the others."""
    if (":" if isinstance(content, str) else b":") not in content:  # type: ignore[operator]
        return
    import json

    text = content if isinstance(content, str) else content.decode()
    json.loads(text, object_pairs_hook=_unique, parse_int=str, parse_float=str)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise errors.Invalid(f"duplicate key {twice[:80]!r}", hint="give each key of an object once")
    return found


def _from_query(plan: Plan, query: bytes) -> dict[str, Any]:
    from urllib.parse import parse_qsl

    check_escapes(query, "the query")
    found: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except UnicodeError as error:
        raise errors.Invalid("the query is not UTF-8", hint="percent-encode the bytes of its UTF-8 form") from error
    except ValueError as error:
        raise errors.Invalid(f"the query cannot be read: {error}") from error
    for name, value in pairs:
        if name in plan.lists:
            found.setdefault(name, []).extend(value.split(","))
        elif name in found:
            raise errors.Invalid(f"duplicate argument {name}")
        else:
            found[name] = value
    _rename(plan, found)
    exact = found.pop(EXACT, None)
    given = {name: _fitted(plan, name, value, False) for name, value in found.items()}
    if exact is not None:
        _merge(given, _from_object(plan, exact.encode(), EXACT))
    return given


_BAD_ESCAPE: Final = rb"%(?![0-9A-Fa-f]{2})"


def check_escapes(given: bytes, what: str, error: type[errors.Invalid] = errors.Invalid) -> None:
    """Raise Invalid for a percent sign that encodes nothing: left as it is, two spellings would mean one name."""
    if b"%" in given and re.search(_BAD_ESCAPE, given):
        message = f"{what} contains % without two hexadecimal digits after it"
        raise error(message, hint="percent-encode it; the sign itself is %25")


def take_from_query(query: bytes, name: str) -> tuple[str | None, bytes]:
    """A parameter of a query that is not an argument of the operation, and the query without it."""
    from urllib.parse import unquote_plus

    parts = query.split(b"&")
    mine = [part for part in parts if part.partition(b"=")[0] == name.encode()]
    if not mine:
        return None, query
    if len(mine) > 1:
        raise errors.Invalid(f"duplicate parameter {name}")
    check_escapes(mine[0], name)
    try:
        value = unquote_plus(mine[0].partition(b"=")[2].decode("ascii"), errors="strict")
    except UnicodeDecodeError as error:
        raise errors.Invalid(f"{name} is not UTF-8", hint="percent-encode the bytes of its UTF-8 form") from error
    return value, b"&".join(part for part in parts if part not in mine)


def _fitted(plan: Plan, name: str, value: Any, strict: bool) -> Any:
    """An argument as its type, if it fits; unless `strict`, text may also be read as a number or a bool."""
    hint = plan.hints.get(name)
    if hint is None and plan.extra is None:
        raise errors.Invalid(f"unknown argument {name[:80]!r}", hint=plan.elsewhere.get(name) or _meant(plan, name))
    if strict and (hint is None or name in plan.values):
        value = from_wire(value)
    if hint is None or hint is Any:
        return value
    try:
        return msgspec.convert(value, hint, strict=strict)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the other: a lone surrogate
        return value[0] if not strict and isinstance(value, list) and len(value) == 1 else value


def _meant(plan: Plan, name: str) -> str:
    """What to do about an argument that an operation does not have."""
    return f"{meant(name, plan.hints)} the arguments are {', '.join(plan.hints)}".lstrip()


def _set_fields(given: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name in given.__struct_fields__ if (value := getattr(given, name)) is not UNSET}


def _merge(given: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if given.setdefault(name, value) != value:
            raise errors.Invalid(f"{name} is given twice, with different values")


def check_depth(body: bytes) -> None:
    """Refuse a body that is nested too deeply, before a parser sees it."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for byte in re.sub(_STRING, b"", body):
        if byte in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise errors.Invalid(f"the body is nested more than {MAX_DEPTH} deep")
        elif byte in b"]}":
            depth -= 1


# Arguments that are objects of arguments: a tuple in them may stand for a list, as in the operation itself.
_NESTED: Final = {("tasks.bulk", "tasks"), ("tasks.set_template", "tree"), ("routes.decide", "task")}


def argument_to_wire(op: str, name: str, value: Any) -> Any:
    """An argument in the form that JSON can carry. Raises InvalidValue for what JSON would turn into something else."""
    plan = plan_of(op)
    hint = plan.hints.get(name, Any)
    if hint is Any or (name in plan.values and (op, name) not in _NESTED):
        return _values_to_wire(value, hint, name)
    if isinstance(value, float) and value - value != 0.0 and float in (hint, *get_args(hint)):
        return str(value)  # JSON has no such number; the operation refuses the word as it would the number
    return _kept(value, name, datetime in get_args(hint))


def _values_to_wire(value: Any, hint: Any, name: str) -> Any:
    """Values, in the lists, objects and structs that `hint` has around them."""
    if hint is Any:
        return to_wire(value)
    if isinstance(value, msgspec.Struct):
        types = get_type_hints(type(value))
        free = {each: to_wire(getattr(value, each)) for each in value.__struct_fields__ if types[each] is Any}
        return wired(msgspec.structs.replace(value, **dict.fromkeys(free))) | free
    for each in (hint, *get_args(hint)):
        if _is_list(each) and isinstance(value, list | tuple):
            return [_values_to_wire(item, get_args(each)[0], name) for item in value]
        if get_origin(each) in (dict, Mapping) and isinstance(value, Mapping):
            return to_wire(value if get_origin(each) is dict else dict(value))
    return _kept(value, name, False)  # the operation refuses it


def _kept(value: Any, name: str, times: bool) -> Any:
    """What is not a value, unless JSON would change it."""
    if type(value) not in _PLAIN or type(value) is datetime:
        _check_kept(value, name, times)
    return wired(value)


def _check_kept(item: Any, name: str, times: bool) -> None:
    """Raise InvalidValue if JSON would keep an item, or something inside it, as another type."""
    if isinstance(item, list | tuple):
        for each in item:
            _check_kept(each, name, times)
    elif isinstance(item, Mapping):
        for key, each in item.items():
            if type(key) is not str:
                raise errors.InvalidValue(
                    f"{name} has a key of type {type(key).__qualname__}", hint="keys are plain str"
                )
            _check_kept(each, name, times)
    elif not (isinstance(item, _KEPT) or (times and isinstance(item, datetime))) or item != item:  # which NaN is
        bad = bad_scalar(None, item)
        raise errors.InvalidValue(bad.message.replace("$", name, 1).replace("stored", "sent"), hint=bad.hint)


# --- results ---------------------------------------------------------------------------------------------------------


def answer(op: Operation[..., Any], result: Any) -> bytes:
    """The result of an operation as JSON."""
    return json_bytes(wired(result)) if plan_of(op.name).free else json_bytes(result)


def failure(error: errors.HoldfastError, message: str, hint: str) -> bytes:
    """An error as JSON, with its message and hint in the words of its reader.

    Its details stand at the top level too, where they never replace what every error has.
    """
    details = {name: wired(value) for name, value in error.details.items()}
    own = {"error": message, "code": error.code, "hint": hint, "retryable": error.retryable}
    content = {**details, **own, "details": details}
    try:
        return json_bytes(content)
    except UnicodeEncodeError:  # it quotes a text with a lone surrogate
        import json

        return escape_controls(json.dumps(content, default=datetime.isoformat)).encode()
