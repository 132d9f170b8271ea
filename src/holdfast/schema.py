"""The arguments and results of operations as types and as JSON Schemas, read from the signatures that Python sees.

Faces use them for OpenAPI, MCP tools and command lines. They are exact: a time has the format date-time, a result has
all its fields and no others, and any value has the form that values have on the wire. Imported only by faces and tests:
reading signatures costs time that a plain call need not pay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as kinds

from holdfast.kernel.validate import MAX_NAME_BYTES, MAX_SECONDS
from holdfast.operation import Operation, Step, operation
from holdfast.types import AnyCondition, Condition, Page

# The type of an argument on the wire, where its kinds must be distinguished.
_ON_THE_WIRE = {Sequence[Condition]: Sequence[AnyCondition]}


def argument_types(op: Operation[..., Any]) -> dict[str, Any]:
    """The types of an operation's arguments, as they travel."""
    hints = get_type_hints(op.function)
    return {each.name: _ON_THE_WIRE.get(hints[each.name], hints[each.name]) for each in parameters(op)}


@cache
def request_type(name: str) -> type[msgspec.Struct]:
    """The arguments of an operation as a struct, without functions, which do not travel."""
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
    """The parameters that a caller passes."""
    return list(inspect.signature(op.function).parameters.values())[op.implicit_args :]


@cache
def _names(name: str) -> list[str]:
    return [each.name for each in parameters(operation(name))]


def named_arguments(op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names."""
    if not args:
        return kwargs
    return dict(zip(_names(op.name), args, strict=False)) | kwargs


@cache
def _returned(function: Callable[..., Any]) -> Any:
    """What a function says that it returns; of a generator of steps, their result."""
    answer = get_type_hints(function)["return"]
    arguments = get_args(answer)
    return arguments[2] if arguments and arguments[0] == Step else answer


def answer_type(function: Callable[..., Any]) -> Any:
    """The type that an operation returns: of a procedure its result, of a stream its items."""
    answer = _returned(function)
    arguments = get_args(answer)
    if get_origin(answer) is Page:  # travels as the list that it is
        return list[arguments[0]]  # type: ignore[valid-type]
    return arguments[0] if getattr(get_origin(answer), "__name__", "") == "Following" else answer


def result_type(name: str) -> Any:
    """The type of an operation's result; of a watch, its items, or None where it may time out."""
    op = operation(name)
    answer = answer_type(op.function)
    return answer | None if op.kind == "first" else answer


@cache
def is_page(name: str) -> bool:
    """Whether an operation returns a page, with a cursor to the next one."""
    return get_origin(_returned(operation(name).function)) is Page


def schemas(name: str, returning: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schemas of an operation's request and result, or of `returning` in place of its result."""
    request, result = Shapes(), Shapes()
    given, returned = request.given(request_type(name)), result.returned(returning or result_type(name))
    return {**given, "$defs": request.named}, {**returned, "$defs": result.named}


# --- JSON Schemas of types -------------------------------------------------------------------------------------------

_SECONDS: Final = {"minimum": 0, "maximum": MAX_SECONDS}
# Ranges of numbers, which the type of an argument or field does not express, by its name.
_RANGES: Final[dict[str, dict[str, Any]]] = {
    "depth": {"minimum": 0},
    "limit": {"minimum": 1},
    "position": {"minimum": 0},
    "priority": {"minimum": 0, "maximum": 4},
    "revision": {"minimum": 0},
    "size": {"minimum": 0},
    "timeout": _SECONDS,
    "ttl": {"exclusiveMinimum": 0, "maximum": MAX_SECONDS},
    "version": {"minimum": 0},
    "wait": _SECONDS,
}
# With padding, and with zeros in the bits left over: every content has one form.
_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
NAME: Final = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_BYTES, "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"}
_PLAIN: Final[dict[type[kinds.Type], dict[str, Any]]] = {
    kinds.NoneType: {"type": "null"},
    kinds.BoolType: {"type": "boolean"},
    kinds.IntType: {"type": "integer"},
    kinds.FloatType: {"type": "number"},
    kinds.StrType: {"type": "string"},
    kinds.DateTimeType: {"type": "string", "format": "date-time"},
}


class Shapes:
    """JSON Schemas of types; those of structs are kept by name and referred to.

    An argument may omit fields that have a default. A result has every field, and no other.
    """

    def __init__(self, reference: str = "#/$defs/{name}") -> None:
        self.named: dict[str, Any] = {}
        self._reference = reference

    def given(self, hint: Any, name: str = "") -> dict[str, Any]:
        """The schema of an argument of this type and name."""
        return ranged(self._shape(kinds.type_info(hint), whole=False), name)

    def returned(self, hint: Any) -> dict[str, Any]:
        """The schema of a result of this type."""
        return self._shape(kinds.type_info(hint), whole=True)

    def value(self) -> dict[str, Any]:
        """The schema of any value, as values travel."""
        reference = {"$ref": self._reference.format(name="Value")}
        if "Value" not in self.named:
            self.named["Value"] = _value(reference)
        return reference

    def _shape(self, kind: kinds.Type, whole: bool) -> dict[str, Any]:
        match kind:
            case kinds.AnyType():
                return self.value()
            case kinds.LiteralType(values=values):
                return {"type": "string", "enum": list(values)}
            case kinds.UnionType(types=types):
                return {"anyOf": [self._shape(each, whole) for each in types]}
            case kinds.DictType(value_type=each):
                return {"type": "object", "additionalProperties": self._shape(each, whole)}
            case kinds.TupleType(item_types=each):
                parts = [self._shape(part, whole) for part in each]
                return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
            case kinds.ListType(item_type=each) | kinds.VarTupleType(item_type=each):
                return {"type": "array", "items": self._shape(each, whole)}
            case kinds.StructType():
                return self._struct(kind, whole)
        return dict(_PLAIN[type(kind)])

    def _struct(self, kind: kinds.StructType, whole: bool) -> dict[str, Any]:
        name = kind.cls.__name__ if whole else f"{kind.cls.__name__}Input"
        reference = {"$ref": self._reference.format(name=name)}
        if name in self.named:
            return reference
        shape: dict[str, Any] = {"type": "object"}
        self.named[name] = shape  # before its fields: a struct may hold itself
        if documented := kind.cls.__dict__.get("__doc__"):  # its own words, not those of all structs
            shape["description"] = inspect.cleandoc(documented)
        properties: dict[str, Any] = {}
        if kind.tag_field is not None:
            properties[kind.tag_field] = {"const": kind.tag}
        required = [*properties]
        for field in kind.fields:
            properties[field.encode_name] = ranged(self._shape(field.type, whole), field.name)
            if whole or field.required:
                required.append(field.encode_name)
        shape |= {"properties": properties, "required": required}
        if whole or kind.forbid_unknown_fields:
            shape["additionalProperties"] = False
        return reference


def ranged(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """A schema whose numbers keep to the range of this name."""
    if "anyOf" in schema:
        return {"anyOf": [ranged(each, name) for each in schema["anyOf"]]}
    if schema.get("items"):
        return {**schema, "items": ranged(schema["items"], name)}
    return {**schema, **_RANGES.get(name, {})} if schema.get("type") in ("integer", "number") else schema


def _value(reference: dict[str, Any]) -> dict[str, Any]:
    marked = {"minProperties": 1, "maxProperties": 1, "propertyNames": {"pattern": r"^\$"}}
    content = {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}
    return {
        "description": 'Any value. Bytes are {"$bytes": base64}; an object whose only key begins with $ has one more.',
        "anyOf": [
            {"type": ["null", "boolean", "number", "string"]},
            {"type": "array", "items": reference},
            {
                "type": "object",
                "additionalProperties": reference,
                "if": marked,
                "then": {
                    "anyOf": [
                        {"propertyNames": {"pattern": r"^\$\$"}},
                        {"required": ["$bytes"], "properties": {"$bytes": content}},
                    ]
                },
            },
        ],
    }
