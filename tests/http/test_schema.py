"""The server does what its OpenAPI document says, and the document says enough to notice if it did not.

A slice of the run in `schema_run`; the whole is `python -m tests.http.schema_run`.
"""

from __future__ import annotations

import json
import pkgutil
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import jsonschema_rs
import msgspec
import pytest

import holdfast
from holdfast import types
from holdfast.faces.http.calls import Route, Routes
from holdfast.faces.http.openapi import document
from holdfast.schema import argument_types, parameters
from holdfast.types import Cell
from holdfast.types.tasks import Task
from holdfast.wire import EXACT, wired
from tests.amounts import amount
from tests.http.running import Running
from tests.http.schema_run import ACTOR, World, guide_of, run

CALLS: Final = amount(450, 2000)
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TASK: Final = Task(
    "hf-1", "title", "", "task", "open", 2, None, 0, ("tag",), None, None, None, None, NOW, NOW, None, 1, 1
)
NEITHER: Final[tuple[Any, ...]] = ("no", [], 2)
# What an answer could have wrong, by the part of it that is changed: UNSET leaves it out.
WRONG: Final[dict[str, Any]] = {
    "a field that is not there": {"deadline": msgspec.UNSET},
    "a field of another name": {"owner": "ann"},
    "a time that is none": {"created_at": "yesterday"},
    "a time without a zone": {"created_at": "2026-01-02T03:04:05"},
    "a status that is none": {"status": "done"},
    "a priority that is none": {"priority": 7},
    "a version before the first": {"version": -1},
    "a text instead of a list": {"tags": "tag"},
}


def test_c2_every_call_that_a_compacted_past_refuses_says_so_in_the_document(server: Running, tmp_path: Path) -> None:
    paths = json.loads(document())["paths"]
    with holdfast.open(tmp_path / "store", actor=ACTOR) as ws:
        task = ws.tasks.create("a task")
        for value in range(3):
            ws.cells.set("run", "cell", value)
        ws.events.compact(ws.revision)
    for path, query in (
        ("/api/activity", ""),
        ("/api/timeline", ""),
        ("/api/tasks/{id}/as-of", "?revision=1"),
        ("/api/cells/{run}/{cell}/as-of", "?revision=1"),
        ("/api/cells/{run}/{cell}/history", "?before=2"),
    ):
        answer = server.call("GET", path.format(id=task.id, run="run", cell="cell") + query, server.token)
        assert answer.status_code == 410, (path, answer.text)
        assert "410" in paths[path]["get"]["responses"], path


@pytest.mark.early
@pytest.mark.timeout(600)
def test_every_operation_answers_as_the_document_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(tmp_path / "store", CALLS)
    with capsys.disabled():
        print(f"\n{made.table().splitlines()[-1]} of {len(made.targets)} operations")
    assert made.faults == {}
    assert sum(target.ways.total() for target in made.targets) == CALLS


def test_what_is_neither_true_nor_false_is_refused(server: Running) -> None:
    accepted = []
    with holdfast.connect(server.url, token=server.token, actor=ACTOR) as ws:
        world = World(ws, server.folder)
        for route in Routes().all:
            for name, hint in argument_types(route.op).items():
                for wrong in NEITHER if hint in (bool, bool | None) else ():
                    answer = call(server, route, {"body": "text", **guide_of(route)(world), name: wrong})
                    accepted += [] if answer.status_code == 400 else [f"{route.op.name} {name}={wrong!r}"]
    assert accepted == []


def call(server: Running, route: Route, known: dict[str, Any]) -> httpx.Response:
    path = "/".join(quote(known[part[1:-1]]) if part.startswith("{") else part for part in route.path.split("/"))
    taken = {each.name for each in parameters(route.op)} - set(route.names)
    given = {name: value for name, value in known.items() if name in taken}
    queried = {"params": {EXACT: json.dumps(given)}} if route.method in ("GET", "DELETE") else {"json": given}
    return server.call(route.method, path, headers={"x-agent-id": ACTOR}, **queried)


def test_every_answer_has_all_the_fields_that_the_document_requires() -> None:
    modules = [import_module(f"holdfast.types.{each.name}") for each in pkgutil.iter_modules(types.__path__)]
    classes = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    structs = [each for each in classes if issubclass(each, msgspec.Struct)]
    assert len(structs) > 20
    assert [each.__name__ for each in structs if each.__struct_config__.omit_defaults] == []


def test_every_route_of_the_table_is_in_the_document() -> None:
    paths = json.loads(document())["paths"]
    described = {
        (method.upper(), path, name)
        for path, methods in paths.items()
        for method, operation in methods.items()
        for name in operation.get("x-operations", ())
    }
    assert described == {(route.method, route.path, route.op.name) for route in Routes().all}
    names = [operation["operationId"] for methods in paths.values() for operation in methods.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("what", WRONG)
def test_the_document_notices_an_answer_with(what: str) -> None:
    told = msgspec.to_builtins(TASK)
    assert schema_of("Task").is_valid(told)
    changed = {name: value for name, value in {**told, **WRONG[what]}.items() if value is not msgspec.UNSET}
    assert not schema_of("Task").is_valid(changed)


@pytest.mark.parametrize(
    "value", [None, 1.5, "text", b"bytes", [b""], {}, {"$": 1}, {"$bytes": "x"}, {"a": 1, "$b": b"c"}]
)
def test_a_value_on_the_wire_is_one_for_the_document(value: Any) -> None:
    assert schema_of("Cell").is_valid(json.loads(json.dumps(msgspec.to_builtins(wired(Cell(value, 1, 1, NOW))))))


@pytest.mark.parametrize("value", [{"$bytes": "x"}, {"$bytes": 1}, {"$other": 1}, [{"$": 1}]])
def test_what_no_value_looks_like_on_the_wire_is_none_for_the_document(value: Any) -> None:
    cell = msgspec.to_builtins(Cell(1, 1, 1, NOW)) | {"value": value}
    assert not schema_of("Cell").is_valid(cell)


def schema_of(name: str) -> jsonschema_rs.Draft202012Validator:
    described = json.loads(document())
    schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
