"""The OpenAPI 3.1 document of a server, made from the routes and the types of the operations."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Final

import msgspec

from holdfast import __version__
from holdfast.faces.http.calls import CREATING, role_of
from holdfast.faces.http.codec import plan_of
from holdfast.faces.http.routes import Route, Routes
from holdfast.schemas import argument_types, parameters, result_type

_REFERENCE: Final = "#/components/schemas/{name}"
_QUERIED: Final = ("GET", "DELETE")
_HEADERS: Final = {
    "X-Agent-ID": "who acts; without it, and without a token that is bound to an actor, nothing can be held",
    "Idempotency-Key": "a name for this call: repeated with it, it happens once and answers the same, for 24 hours",
    "X-Fence": "a token and what it is of: `42 deploy`, or `42 run/cell`; names percent-encoded",
    "X-At-Least": "a revision that the answer must have seen, or `latest`",
}
_ERROR: Final = {
    "type": "object",
    "required": ["error", "code", "details"],
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string"},
        "hint": {"type": "string"},
        "retryable": {"type": "boolean"},
        "details": {"type": "object"},
    },
}


@cache
def document() -> bytes:
    """The document as JSON."""
    found: dict[str, Any] = {}
    components: dict[str, Any] = {"Error": _ERROR}
    for route in Routes().all:
        found.setdefault(route.path, {})[route.method.lower()] = _operation(route, components)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Holdfast",
                "version": __version__,
                "description": "Shared memory and traffic control for fleets of agents.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "security": [{"token": []}],
            "paths": found,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _operation(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    op = route.op
    told: dict[str, Any] = {
        "operationId": op.name,
        "summary": op.summary,
        "description": inspect.getdoc(op.function) or "",
        "tags": [op.name.partition(".")[0]],
        "x-role": role_of(op),
        "parameters": _parameters(route, components),
        "responses": _responses(route, components),
    }
    body = _body(route, components)
    return told if body is None else {**told, "requestBody": body}


def _parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    hints = argument_types(route.op)
    found = [
        {"name": name, "in": "path", "required": True, "schema": _schema(hints[name], components)}
        for name in route.names
    ]
    if route.method in _QUERIED:
        found += [
            {
                "name": each.name,
                "in": "query",
                "required": each.default is inspect.Parameter.empty,
                "schema": _schema(hints[each.name], components),
            }
            for each in _others(route)
        ]
    return found + [
        {"name": name, "in": "header", "required": False, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in _HEADERS.items()
    ]


def _others(route: Route) -> list[inspect.Parameter]:
    return [each for each in parameters(route.op) if each.name not in route.names]


def _body(route: Route, components: dict[str, Any]) -> dict[str, Any] | None:
    others = _others(route)
    if route.method in _QUERIED or not others:
        return None
    hints = argument_types(route.op)
    wanted = [each.name for each in others if each.default is inspect.Parameter.empty]
    schema = {
        "type": "object",
        "properties": {each.name: _schema(hints[each.name], components) for each in others},
        "additionalProperties": plan_of(route.op.name).extra is not None,
    }
    if wanted:
        schema["required"] = wanted
    return {"required": bool(wanted), "content": {"application/json": {"schema": schema}}}


def _responses(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    refusal = {"description": "an error", "content": {"application/json": {"schema": {"$ref": _ref("Error")}}}}
    good: dict[str, Any]
    if route.op.kind == "stream":
        good = {"200": {"description": "events as they come", "content": {"text/event-stream": {}}}}
    else:
        schema = _schema(result_type(route.op.name), components)
        content = {"description": "done", "content": {"application/json": {"schema": schema}}}
        status = "201" if route.op.method in CREATING else "200"
        good = {status: content}
        if route.method == "DELETE":
            good["204"] = {"description": "done; send Prefer: return=representation to have the answer"}
    return {**good, "4XX": refusal, "5XX": refusal}


def _ref(name: str) -> str:
    return _REFERENCE.format(name=name)


def _schema(hint: Any, components: dict[str, Any]) -> dict[str, Any]:
    (schema,), found = msgspec.json.schema_components((hint,), ref_template=_REFERENCE)
    components.update(found)
    return schema
