"""The operation table: complete, and with a schema for everything that travels."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from holdfast.arguments import VOCABULARY
from holdfast.domains.cells import Cells
from holdfast.faces.cli.command import all_commands
from holdfast.faces.mcp.profiles import CORE
from holdfast.operation import REGISTRY, operation
from holdfast.schema import is_page, request_type, result_type, schemas
from holdfast.workspace.context import digest_of

TRAVELLING = sorted(name for name, op in REGISTRY.items() if not op.route.local and op.kind != "stream")
# Signatures that others rely on (requirements/interfaces.md).
PINNED = {
    "cells.set": ["run", "cell", "value", "ttl", "lease"],
    "cells.get": ["run", "cell"],
    "cells.find": ["run", "cell"],
    "cells.exists": ["run", "cell"],
    "cells.delete": ["run", "cell"],
    "cells.cas": ["run", "cell", "expected", "value"],
    "cells.init": ["run", "cell", "value"],
    "cells.get_or_init": ["run", "cell", "default"],
    "cells.transition": ["run", "cell", "fn"],
    "cells.transition_or_init": ["run", "cell", "initial", "fn"],
    "cells.history": ["run", "cell", "limit", "before"],
    "cells.increment": ["run", "cell", "delta"],
    "cells.compare_and_delete": ["run", "cell", "expected"],
    "cells.refresh_ttl": ["run", "cell", "ttl"],
    "cells.ttl": ["run", "cell"],
    "cells.acquire_lock": ["run", "cell", "holder", "ttl"],
    "cells.watch": ["run", "cell", "after_version", "timeout"],
    "leases.create": ["ttl", "holder"],
    "leases.refresh": ["id"],
    "leases.revoke": ["id"],
    "leases.get": ["id"],
    "leases.list": [],
    "locks.acquire": ["name", "holder", "ttl", "wait", "lease"],
    "locks.release": ["name", "holder", "token"],
    "locks.refresh": ["name", "holder", "ttl", "token"],
    "locks.check": ["name", "token"],
    "locks.get": ["name"],
    "locks.list": [],
    "events.list": ["kinds", "id", "actor", "since", "after", "limit"],
    "events.compact": ["before"],
    "txn": ["conditions", "then", "otherwise"],
    "watch": ["kinds", "id", "after", "timeout"],
}


def parameters(name: str) -> list[str]:
    op = REGISTRY[name]
    names = list(inspect.signature(op.function).parameters)
    return names[op.implicit_args :]


@pytest.mark.parametrize("name", PINNED)
def test_a_pinned_signature_begins_as_promised(name: str) -> None:
    assert parameters(name)[: len(PINNED[name])] == PINNED[name]


@pytest.mark.parametrize("name", TRAVELLING)
def test_every_operation_that_travels_has_request_and_result_schemas(name: str) -> None:
    request, result = schemas(name)
    fields = request["$defs"][request["$ref"].rsplit("/", 1)[1]]["properties"]
    assert list(fields) == parameters(name)
    assert result


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_operation_says_what_it_does(name: str) -> None:
    assert REGISTRY[name].summary.endswith((".", ":")), REGISTRY[name].function


def test_no_two_operations_share_a_route_or_a_command() -> None:
    streams = {op for op in REGISTRY.values() if op.kind == "stream"}  # which may share the address of another
    for face, ops in (("http", streams), ("http", {*REGISTRY.values()} - streams), ("cli", REGISTRY.values())):
        taken = [route for op in ops if (route := op.command if face == "cli" else op.route.http) is not None]
        taken += [route for op in ops if face == "http" for route in op.route.also]
        assert sorted(taken) == sorted(set(taken))


def test_every_operation_that_takes_plain_data_can_be_reached_over_http() -> None:
    assert [name for name, op in REGISTRY.items() if not op.route.local and op.route.http is None] == []


# No command: a shell has no function to give them.
NO_COMMAND = ("cells.transition", "cells.transition_or_init")


def test_i7_every_operation_is_a_command() -> None:
    assert [name for name, op in REGISTRY.items() if op.command is None] == sorted(NO_COMMAND)
    assert all(REGISTRY[name].route.local for name in NO_COMMAND)
    commands = {command.name for command in all_commands()}
    assert [op.command for op in REGISTRY.values() if op.command is not None and op.command not in commands] == []


def test_every_route_names_arguments_that_exist() -> None:
    for name, op in REGISTRY.items():
        placeholders = [part[1:-1] for part in (op.route.http or "").split("/") if part.startswith("{")]
        assert set(placeholders) <= set(parameters(name)), name


def test_a_request_round_trips_through_json() -> None:
    request: Any = request_type("cells.set")(run="r", cell="c", value={"a": [1, 2.5, None]})
    assert msgspec.json.decode(msgspec.json.encode(request), type=request_type("cells.set")) == request


def test_an_operation_reached_through_the_class_is_its_table_entry() -> None:
    assert REGISTRY["cells.set"] is Cells.set


# --- what a line says is true ----------------------------------------------------------------------------------------

COMMANDS = sorted(name for name, op in REGISTRY.items() if op.route.cli is not None)


def optional(name: str) -> set[str]:
    found = list(inspect.signature(REGISTRY[name].function).parameters.values())
    return {each.name for each in found if each.default is not each.empty or each.kind is each.VAR_KEYWORD}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_usage_names_arguments_and_brackets_those_that_may_be_omitted(name: str) -> None:
    words = [word for word in (REGISTRY[name].route.cli or "").split() if not word.islower()]
    bracketed = {word.strip("[].").lower() for word in words if word.startswith("[")}
    plain = {word.strip("[].").lower() for word in words} - bracketed
    lists = {word.strip("[].").lower() for word in words if word.endswith("...]")}  # which are empty then
    assert bracketed | plain <= set(parameters(name))
    assert not plain & optional(name)
    assert bracketed - lists <= optional(name)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_line_speaks_of_arguments_and_tools_that_exist(name: str) -> None:
    op = REGISTRY[name]
    named = {*op.route.arguments, *op.route.shapes, *op.route.admin_only, op.route.names_actor, op.route.confined_by}
    assert named - {""} <= set(parameters(name))
    assert {*op.route.mcp.split()[:1]} <= {tool.name for tool in CORE}


@pytest.mark.parametrize("name", [name for name, op in REGISTRY.items() if op.route.grants or op.route.frees])
def test_what_is_granted_and_freed_has_a_name_in_calls_and_results(name: str) -> None:
    op = REGISTRY[name]
    assert op.writes
    assert op.held is not None
    assert not op.held.lookup or f"{name.partition('.')[0]}.{op.held.lookup}" in REGISTRY
    if op.route.frees:
        assert {*op.held.arguments, "token"} <= set(parameters(name))
    else:
        results = [each for each in get_args(result_type(name)) or (result_type(name),) if each is not type(None)]
        assert {*op.held.fields, op.held.holder, "token"} <= set(results[0].__struct_fields__)


def test_every_word_of_the_vocabulary_is_used() -> None:
    used = {argument for name in REGISTRY for argument in parameters(name)}
    used |= {kind for op in REGISTRY.values() for kind in op.function.__annotations__.values()}
    assert VOCABULARY.keys() - used == set()


# What an operation returns is one page (tests/conformance/test_pages.py), or what holds lists has a bound: for each
# operation that returns a list without pages, and for each record with lists or values in it, what keeps it small.
UNPAGED = {
    "events.refusals": "two files of 1 MB, counted by actor and code",
    "routes.check": "1,000 problems of each of two files",
    "routes.reload": "1,000 problems of each of two files",
    "cycles.validate": "1,000 problems",
    "cycles.export": "a document, which is a value",
    "queues.put_all": "1,000 numbers",
    "items.find_all": "64 MiB, else TooLarge",
    "items.namespaces": "1,000 names",
}
VALUE = "a value has at most max_value_bytes, 1 MiB"
GIVEN = "as long as what was given, which a server bounds by its body"
BOUNDS = {
    "Activity": "1,000,000 numbers",
    "Agent": "100 abilities",
    "BulkResult": "10,000 tasks, as given",
    "Cell": VALUE,
    "CellChange": "two values",
    "ChannelMessage": VALUE,
    "Checkpoint": "the 64 MiB of a put, and what tasks wrote after it; a list ends a page by its bytes",
    "Cycle": VALUE,
    "CycleComparison": "two documents",
    "CyclePhase": VALUE,
    "Event": "one change; a watch hands over 4 MiB at a time",
    "FleetStatus": "1,000 entries of each list",
    "ImportProblem": GIVEN,
    "ImportReport": GIVEN,
    "Item": "64 MiB",
    "Lane": "200,000 events of a timeline",
    "Loaded": "1,000 problems",
    "LockState": "100 patterns, and 1,000 who wait",
    "MailHit": "one message",
    "Message": "10,000 recipients",
    "PathLock": "100 patterns",
    "QueueItem": VALUE,
    "Readiness": "five reasons",
    "Reason": "1,000 ids",
    "Recovery": "1,000 problems, and two documents",
    "Resume": "its budget",
    "ResumeEvent": "its budget",
    "Resumption": "a document",
    "Reverted": "as its transaction, or nothing beyond 4 MiB",
    "RouteReport": "a rules file has at most 1 MiB",
    "SharedReport": GIVEN,
    "Sharing": "1,000 of each",
    "Stash": VALUE,
    "Tally": "10,000 buckets",
    "Task": "tags are given at once",
    "TaskGraph": "50,000 tasks",
    "TaskInTree": "as a task",
    "TaskTemplate": "1,000 tasks",
    "TemplateNode": "1,000 tasks",
    "Timeline": "200,000 events",
    "TxnResult": "32 MiB, else TooLarge",
    "Waiter": "100 patterns",
    "Write": "64 MiB",
    "Undone": "the records of a transaction, with 4 MiB of their changes",
}


def _holds_many(kind: Any) -> bool:
    return get_origin(kind) in (list, tuple, dict) or kind in (Any, list, tuple, dict)


def _records(kind: Any, seen: set[Any]) -> None:
    """The structs in a type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind in seen:
            return
        seen.add(kind)
        kinds = tuple(get_type_hints(kind).values())
    else:
        kinds = get_args(kind)
    for each in kinds:
        _records(each, seen)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_c2_what_an_operation_returns_is_a_page_or_has_a_bound(name: str) -> None:
    if is_page(name):
        return
    kind = result_type(name)
    assert not _holds_many(kind) or name in UNPAGED, f"{name} returns {kind}: return a Page, or bound it"
    records = set[Any]()
    _records(kind, records)
    large = {
        each.__name__
        for each in records
        if any(_holds_many(part) for field in get_type_hints(each).values() for part in (field, *get_args(field)))
    }
    assert large <= {*BOUNDS}, f"what bounds {', '.join(large - {*BOUNDS})}?"


def test_a_key_that_was_used_before_an_operation_became_several_steps_is_still_that_of_the_same_call() -> None:
    """Keys live for a day, also over an upgrade: `queues.put` was one transaction in 0.2.0."""
    digest = digest_of(operation("queues.put"), ("q", 1), {"key": "k"})
    assert digest.hex() == "554d327ce4205cb9bd0cd2d5d5636ba38885e91b"
