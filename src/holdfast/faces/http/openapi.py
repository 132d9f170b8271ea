"""The OpenAPI 3.1 document of a server, made from the routes and the types of the operations.

It is exact: every address, argument and header, the status of every response, the codes of every error. An address
that a stream shares with another operation is one entry with two kinds of content. `tests/http/schema_run.py` compares
the server with this document.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from holdfast import __version__, errors
from holdfast.faces.http import auth, calls
from holdfast.faces.http.calls import PREFIX, Route, Routes
from holdfast.faces.http.pages import EXTRAS
from holdfast.operation import Operation, operation
from holdfast.route import Role
from holdfast.schema import NAME, Shapes, argument_types, is_page, parameters, result_type
from holdfast.types import Report
from holdfast.wire import EXACT, plan_of

_QUERIED: Final = ("GET", "DELETE")
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_DESCRIPTION: Final = f"""Shared memory and traffic control for fleets of agents.

The arguments of a GET or DELETE may also be one JSON object, in `?{EXACT}=`. `/healthz` needs no token. The details of
an error are in `details`, and at the top level too."""
_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string", "minLength": 1}
# Headers: of every call, of every write, of some.
_CALL: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "X-Agent-ID": ("the actor; without it, and without a token bound to an actor, a call can hold nothing", _TEXT),
    "X-At-Least": (
        "a revision that the call must see, or `latest`",
        {"type": "string", "pattern": "^(latest|[0-9]{1,18})$"},
    ),
}
_WRITE: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Idempotency-Key": ("a name for this call: repeated within 24 h, it runs once and returns the same", _TEXT),
    "X-Fence": (
        "a token and its lock: `42 deploy`, `42 run/cell`, or for a lock stash its id, `42 trail/name` or"
        " `42 /name`; names percent-encoded",
        {"type": "string", "pattern": "^[0-9]{1,19} ([^ /]+|[^ /]*/[^ /]+)$"},
    ),
}
_SOME: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "If-Match": (
        'the version that is expected, `"3"`, or the ETag that was read',
        {"type": "string", "pattern": '^(W/)?"[0-9]{1,18}(-[0-9a-f]{16})?"$'},
    ),
    "If-None-Match": ("the ETag that was read: 304 if the answer is still the same", {"type": "string"}),
    "Last-Event-ID": ("the id of the last event that was heard: the stream resumes there", {"type": "string"}),
    "Prefer": ("whether a DELETE returns its result", {"type": "string", "examples": ["return=representation"]}),
}
# Headers of responses.
_VERSION: Final = {"description": "the version", "schema": {"type": "string", "pattern": '^(W/)?"[0-9]+"$'}}
_ANSWER: Final = {
    "description": "the version, if it has one, and what is answered; a stream has none",
    "schema": {"type": "string", "pattern": '^(W/)?"([0-9]+-)?[0-9a-f]{16}"$'},
}
_CURSOR: Final = {"description": "of the next page, if there is one", "schema": _TEXT}
_TOTAL: Final = {"description": "if asked for", "schema": {"type": "integer", "minimum": 0, "maximum": 10000}}
_COMPACTED: Final = {"description": "events up to this revision are gone; the page has what is left", "schema": _COUNT}
_LATER: Final = {"Retry-After": {"description": "seconds, if trying again may help", "schema": _COUNT}}
_TOKEN: Final = {"WWW-Authenticate": {"required": True, "schema": {"type": "string", "pattern": "^Bearer "}}}
_REFUSED: Final = {401: _TOKEN, 409: _LATER, 429: _LATER, 503: _LATER}
# The results of what a workspace offers beside its operations; that of `check` is a Report.
_EXTRA: Final[dict[str, Any]] = {
    "revision": {"revision": _COUNT, "clock_ahead": {"type": "number"}},
    "whoami": {
        "token": {"type": "string"},
        "role": {"type": "string", "enum": ["read", "agent", "admin"]},
        "actor": {"type": ["string", "null"]},
        "workspace": {"type": "string"},
    },
    "ticket": {"ticket": {"type": "string"}, "expires_in": {"type": "integer"}},
}
# What a server offers beside its workspaces: role, purpose, type and fields of the response.
_PAGES: Final[dict[str, tuple[Role, str, str, dict[str, Any]]]] = {
    "/readyz": ("read", "Whether requests can be served.", _JSON, {"status": {"const": "ready"}}),
    "/metrics": ("admin", "Counters and gauges, for Prometheus.", "text/plain", {}),
    "/openapi.json": ("read", "This document.", _JSON, {}),
}


@cache
def document() -> bytes:
    """The document as JSON."""
    shapes = Shapes("#/components/schemas/{name}")
    found: dict[str, Any] = {}
    for (path, method), routes in _addresses().items():
        found.setdefault(path, {})[method.lower()] = _operation(routes, shapes)
    for name, (method, role, summary, _) in EXTRAS.items():
        schema = _closed(_EXTRA[name]) if name in _EXTRA else shapes.returned(Report)
        found[f"/{PREFIX}/{name}"] = {method.lower(): _plain(name, method, role, summary, _JSON, schema)}
    for path, (role, summary, kind, fields) in _PAGES.items():
        schema = _closed(fields) if fields else {"type": "object" if kind == _JSON else "string"}
        found[path] = {"get": _plain(path[1:], "GET", role, summary, kind, schema) | {"servers": [{"url": "/"}]}}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Holdfast",
                "version": __version__,
                "description": _DESCRIPTION,
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [
                {"url": "/"},
                {"url": "/{workspace}", "variables": {"workspace": {"default": "main", "description": "its name"}}},
            ],
            "security": [{"token": []}],
            "paths": found,
            "components": {
                "schemas": shapes.named,
                "parameters": {name: _header(name, *meaning) for name, meaning in (_CALL | _WRITE | _SOME).items()},
                "responses": {name: _refusal(status, codes, shapes) for status, (name, codes) in _refusals().items()},
                "securitySchemes": {
                    "token": {"type": "http", "scheme": "bearer"},
                    "ticket": {"type": "apiKey", "in": "query", "name": auth.TICKET},
                },
            },
        }
    )


def _addresses() -> dict[tuple[str, str], list[Route]]:
    """The operations at each address: one, or one and a stream."""
    found: dict[tuple[str, str], list[Route]] = {}
    for route in sorted(Routes().all, key=lambda route: route.op.kind == "stream"):
        found.setdefault((route.path, route.method), []).append(route)
    return found


def _operation(routes: list[Route], shapes: Shapes) -> dict[str, Any]:
    main = routes[0]
    op = main.op
    also = 0 if op.route.http == f"{main.method} {main.path}" else op.route.also.index(f"{main.method} {main.path}") + 1
    described: dict[str, Any] = {
        "operationId": f"{op.name}-{also}" if also else op.name,
        "summary": op.summary,
        "description": "\n\n".join(inspect.getdoc(route.op.function) or "" for route in routes),
        "tags": [op.name.partition(".")[0]],
        "x-role": op.role,
        "x-operations": [route.op.name for route in routes],
        "parameters": _parameters(routes, shapes),
        "responses": _responses(routes, shapes),
    }
    if any(route.op.kind == "stream" for route in routes):
        described["security"] = [{"token": []}, {"ticket": []}]
    body = _body(main, shapes)
    return described if body is None else {**described, "requestBody": body}


def _plain(name: str, method: str, role: str, summary: str, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    """An address without an operation and without arguments."""
    good = {"description": "done", "content": {kind: {"schema": schema}}}
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["server"],
        "x-role": role,
        "responses": {"201" if method == "POST" else "200": good, **_refused(401, 403, 404, 421, 500, 503)},
    }


def _closed(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


# --- requests --------------------------------------------------------------------------------------------------------


def _parameters(routes: list[Route], shapes: Shapes) -> list[dict[str, Any]]:
    """In the path, in the query, and in headers; each once, if several operations take it."""
    found: dict[str, dict[str, Any]] = {}
    taken: dict[str, list[str]] = {}
    for route in routes:
        for each in _own_parameters(route, shapes):
            found.setdefault(each["name"], each)
            taken.setdefault(each["name"], []).append(route.op.name)
    for name, operations in taken.items():
        if len(operations) < len(routes):
            found[name] = {**found[name], "description": f"of {operations[0]} alone"}
    names = [*_CALL, *(_WRITE if routes[0].op.writes else ())]
    names += ["If-Match"] if "expected" in plan_of(routes[0].op.name).hints else []
    names += ["Prefer"] if routes[0].method == "DELETE" and not routes[0].op.route.answers else []
    names += ["If-None-Match"] if routes[0].method == "GET" and routes[0].op.kind != "stream" else []
    names += ["Last-Event-ID"] if routes[-1].op.kind == "stream" else []
    return [*found.values(), *({"$ref": f"#/components/parameters/{name}"} for name in names)]


def _own_parameters(route: Route, shapes: Shapes) -> Iterator[dict[str, Any]]:
    hints = argument_types(route.op)
    for name in route.names:
        schema = shapes.given(hints[name], name)
        text = "string" in (schema.get("type"), *(each.get("type") for each in schema.get("anyOf", ())))
        yield {"name": name, "in": "path", "required": True, "schema": NAME if text else schema}
    if route.method not in _QUERIED:
        return
    for each in _others(route):
        needed = each.default is inspect.Parameter.empty
        schema = _in_query(_argument(route.op, each, hints[each.name], shapes))
        yield {"name": each.name, "in": "query", "required": needed, "schema": schema}
    if route.polled:
        schema = {"type": "number", "minimum": 0, "maximum": calls.MAX_WAIT}
        yield {"name": calls.WAIT, "in": "query", "description": "seconds to wait for an event", "schema": schema}


def _in_query(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null, and a list of one item looks like the item: where both are possible, it is a list."""
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    lists = [each for each in kinds if each["type"] == "array"]
    if not lists:
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    items = lists[0].get("items") or lists[0]["prefixItems"][0]
    most = {"maxItems": lists[0]["minItems"]} if "prefixItems" in lists[0] else {}
    return {"type": "array", "items": items, "minItems": 1, **most}


def _header(name: str, meaning: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": meaning, "schema": schema}


def _others(route: Route) -> list[inspect.Parameter]:
    return [each for each in parameters(route.op) if each.name not in route.names]


def _body(route: Route, shapes: Shapes) -> dict[str, Any] | None:
    others = _others(route)
    if route.method in _QUERIED or not others:
        return None
    schema = _arguments(route.op.name, others, shapes)
    needed = any(each in schema for each in ("required", "oneOf"))
    return {"required": needed, "content": {_JSON: {"schema": schema}}}


def _arguments(name: str, given: list[inspect.Parameter], shapes: Shapes) -> dict[str, Any]:
    """Arguments as an object."""
    op, extra = operation(name), plan_of(name).extra
    hints = argument_types(op)
    own = [each for each in given if each.name != extra]
    properties = {each.name: _argument(op, each, hints[each.name], shapes) for each in own}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if extra is not None:
        schema["additionalProperties"] = shapes.given(hints[extra])
    wanted = [each.name for each in own if each.default is inspect.Parameter.empty]
    for alias in op.route.aliases:
        same = {"type": "boolean"} if alias.opposite else properties[alias.of]
        properties[alias.name] = {**same, "description": f"{'no ' * alias.opposite}{alias.of}, as an alias"}
        if alias.of in wanted:
            wanted.remove(alias.of)
            schema["oneOf"] = [{"required": [alias.of]}, {"required": [alias.name]}]
        else:
            schema["not"] = {"required": [alias.of, alias.name]}
    if wanted:
        schema["required"] = wanted
    return schema


def _argument(op: Operation[..., Any], argument: inspect.Parameter, hint: Any, shapes: Shapes) -> dict[str, Any]:
    more = op.route.shapes.get(argument.name)  # of a dict of which more is known than its type says
    if isinstance(more, str):
        inner = operation(more)
        schema = _arguments(inner.name, parameters(inner), shapes)
        if get_origin(hint) is not None and issubclass(get_origin(hint), Sequence):
            return {"type": "array", "items": schema}
        return {name: value for name, value in schema.items() if name != "required"}
    if more is not None:
        return shapes.given(more)
    schema = shapes.given(hint, argument.name)
    plain = argument.default is not inspect.Parameter.empty and argument.default not in (None, ())
    return {**schema, "default": argument.default} if plain else schema


# --- responses -------------------------------------------------------------------------------------------------------


def _responses(routes: list[Route], shapes: Shapes) -> dict[str, Any]:
    good: dict[str, Any] = {}
    for route in routes:
        status = "201" if route.op.route.creates else "200"
        answer = good.setdefault(status, {"description": "done", "content": {}})
        schema = shapes.returned(result_type(route.op.name))
        if route.op.route.finds:
            good["200"] = {"description": "it was there already", "content": {_JSON: {"schema": schema}}}
        if route.op.kind == "stream":
            answer["content"][_EVENTS] = {"schema": _event(schema)}
        else:
            answer["content"][_JSON] = {"schema": schema}
            headers = _answer_headers(route)
            answer |= {"headers": headers} if headers else {}
    if routes[0].method == "GET" and routes[0].op.kind != "stream":
        good["304"] = {"description": "as in If-None-Match", "headers": {"ETag": _ANSWER}}
    if routes[0].method == "DELETE" and not routes[0].op.route.answers:
        good["204"] = {"description": "done; send Prefer: return=representation to get the result"}
    return good | _refused(*sorted(_statuses(routes)))


def _statuses(routes: list[Route]) -> set[int]:
    """The statuses of errors at an address."""
    found = {400, 401, 403, 404, 413, 421, 500, 503}
    for route in routes:
        names = plan_of(route.op.name).hints.keys()
        found |= {409} if route.op.writes or "token" in names else set()
        gone = any(error in (route.op.__doc__ or "") for error in ("Compacted", "MessagesLost"))
        found |= {410} if route.op.kind == "stream" or gone else set()
        found |= {415} if route.method not in _QUERIED and _others(route) else set()
        found |= {429} if route.op.kind == "stream" else set()
        found |= {410, 501} if route.op.route.nests else set()  # those of what it runs; a file is not read inside
    return found


def _answer_headers(route: Route) -> dict[str, Any]:
    return _own_headers(route) | ({"ETag": _ANSWER} if route.method == "GET" else {})


def _own_headers(route: Route) -> dict[str, Any]:
    name = route.op.name
    if is_page(name) or route.polled:
        more = {"X-Total-Count": _TOTAL} if "total" in plan_of(name).hints else {}
        return {"X-Next-Cursor": _CURSOR, "X-Compacted": _COMPACTED, **more}
    kind = result_type(name)
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    structs = [each for each in kinds if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    versions = {get_type_hints(each).get("version") for each in structs}
    if versions <= {None}:
        return {}
    return {"ETag": {**_VERSION, "required": versions == {int} and NoneType not in kinds}}


def _event(schema: dict[str, Any]) -> dict[str, Any]:
    """A server-sent event: an event of the log, or a message of the server."""
    content = {"type": "string", "contentMediaType": _JSON}
    return {
        "type": "object",
        "required": ["data"],
        "properties": {
            "event": {"type": "string", "enum": ["message", "bookmark", "progress", "end", "stop", "error"]},
            "id": {"type": "string", "description": "where to resume: a cursor, or the version of a record"},
            "retry": {"type": "integer"},
            "data": content,
        },
        "if": {"properties": {"event": {"const": "message"}}},
        "then": {"required": ["id"], "properties": {"data": {**content, "contentSchema": schema}}},
    }


@cache
def _refusals() -> dict[int, tuple[str, list[str]]]:
    """For each status the name of a class of errors, and the codes that have the status."""
    found: dict[int, tuple[str, list[str]]] = {}
    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, errors.HoldfastError):
            codes = found.setdefault(each.status, (each.__name__, []))[1]
            codes += [] if each.code in codes else [each.code]
    return found


def _refused(*statuses: int) -> dict[str, Any]:
    return {str(each): {"$ref": f"#/components/responses/{_refusals()[each][0]}"} for each in statuses}


def _refusal(status: int, codes: list[str], shapes: Shapes) -> dict[str, Any]:
    shapes.named["Error"] = {
        "type": "object",
        "required": ["error", "code", "hint", "retryable", "details"],
        "properties": {
            **{name: {"type": "string"} for name in ("error", "code", "hint")},
            "retryable": {"type": "boolean"},
            "details": {"type": "object", "additionalProperties": shapes.value()},
        },
    }
    schema = {"$ref": "#/components/schemas/Error", "properties": {"code": {"enum": codes}}}
    described: dict[str, Any] = {"description": ", ".join(codes), "content": {_JSON: {"schema": schema}}}
    return {**described, "headers": _REFUSED[status]} if status in _REFUSED else described
