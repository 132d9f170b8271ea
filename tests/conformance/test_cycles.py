"""PEER cycles (P1, P2): their keys, and how one begins.

Each refusal leaves the workspace as it was. The steps of a cycle, those that were meant for an older document, and how
cycles are listed, resumed and deleted, have modules of their own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast import Workspace, errors
from holdfast.testing.crowd import together
from holdfast.types.cycles import Cycle, PhaseName
from tests.conformance.test_stashes import refused
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

PHASES: tuple[PhaseName, ...] = ("plan", "execute", "express", "review")
KEY = "peer:spec:feature:cycle:1"


def bring_to(ws: Workspace, key: str, phase: PhaseName | None, status: str = "in_progress") -> Cycle:
    """Take a fresh cycle to where this phase stands so; None: to where all are completed."""
    for each in PHASES:
        if each == phase and status == "pending":
            break
        ws.cycles.start_phase(key, each)
        if each == phase and status == "in_progress":
            break
        if each == phase and status == "failed":
            return ws.cycles.fail_phase(key, each, "it broke")
        ws.cycles.complete_phase(key, each, {"made by": each})
        if each == phase:
            break
    return ws.cycles.get(key)


def statuses(cycle: Cycle) -> list[str]:
    """Of the four phases, in their order."""
    return [getattr(cycle.phases, phase).status for phase in PHASES]


def told(cycle: Cycle) -> list[tuple[str, str, int]]:
    """The history: phase, event and sequence of each entry."""
    return [(entry.phase, entry.event, entry.sequence) for entry in cycle.history]


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [KEY, "peer.spec.feature.cycle.1", "peer:spec.feature:cycle.1", "peer:spec:feature", "peer.spec.feature"],
)
def test_p1_a_cycle_is_found_by_its_key_with_colons_and_with_dots_and_by_its_prefix(world: World, key: str) -> None:
    ws = world.open()
    made = ws.cycles.start(spec="feature")
    assert made == ws.cycles.get(key)
    assert ws.cycles.start_phase(key, "plan").cycle_id == KEY
    assert ws.cycles.update_phase(key, "plan", {"a": 1}).cycle_id == KEY
    assert ws.cycles.add_error(key, "plan", "odd").cycle_id == KEY
    assert ws.cycles.complete_phase(key, "plan").cycle_id == KEY
    assert ws.cycles.export(key)["cycle_id"] == ws.cycles.recover(key).cycle.cycle_id == KEY
    assert ws.cycles.finish(key, "enough").cycle_id == KEY
    ws.cycles.delete(key)
    refused(ws, errors.NotFound, lambda: ws.cycles.get(KEY))


def test_p1_specs_instructions_and_what_has_neither_have_cycles_of_their_own(world: World) -> None:
    ws = world.open()
    given: list[tuple[dict[str, Any], str]] = [
        ({"spec": "x"}, "peer:spec:x"),
        ({"instruction": "x"}, "peer:instruction:x"),
        ({}, "peer:global"),
        ({"spec": "y", "instruction": "x"}, "peer:spec:y"),
    ]
    for args, prefix in given:
        cycle = ws.cycles.start(**args)
        assert (cycle.cycle_id, cycle.metadata.key_prefix) == (f"{prefix}:cycle:1", prefix)
        assert (cycle.metadata.spec_name, cycle.metadata.instruction) == (args.get("spec"), args.get("instruction"))
        assert cycle == ws.cycles.get(prefix.replace(":", "."))
    assert {info.number for info in ws.cycles.list()} == {1}


@pytest.mark.parametrize(
    "key",
    [
        *("", "peer", "peer:spec", "peer:spec:", "spec:a:cycle:1", "peer:spec:a:cycle", "peer:spec:a:cycle:"),
        *("peer:spec:a:cycle:0", "peer:spec:a:cycle:01", "peer:spec:a:cycle:-1", "peer:spec:a:cycle:1:plan"),
        *("peer:spec:a b:cycle:1", "peer:spec:a.b:cycle:1", "PEER:SPEC:a:cycle:1", "peer:global:a:cycle:1"),
        *("peer:spec:a:cycle:1\n", " peer:spec:a", "peer:spec:ä:cycle:1", "peer:spec:a:cycle:" + "9" * 30),
    ],
    ids=repr,
)
def test_p1_what_is_no_key_is_an_invalid_id(world: World, key: str) -> None:
    ws = world.open()
    ws.cycles.start(spec="a")
    for call in (ws.cycles.get, ws.cycles.export, ws.cycles.finish, ws.cycles.recover, ws.cycles.delete):
        refused(ws, errors.InvalidID, partial(call, key))
    refused(ws, errors.InvalidID, lambda: ws.cycles.start_phase(key, "plan"))
    refused(ws, errors.InvalidID, lambda: ws.cycles.fail_phase(key, "plan", "why"))


@pytest.mark.parametrize("key", ["peer:spec:b:cycle:1", "peer:spec:a:cycle:2", "peer:global", "peer.instruction.a"])
def test_p1_a_key_of_no_cycle_is_not_found(world: World, key: str) -> None:
    ws = world.open()
    ws.cycles.start(spec="a")
    for call in (ws.cycles.get, ws.cycles.export, ws.cycles.finish, ws.cycles.recover, ws.cycles.delete):
        refused(ws, errors.NotFound, partial(call, key))
    refused(ws, errors.NotFound, lambda: ws.cycles.start_phase(key, "plan"))


# --- beginning -------------------------------------------------------------------------------------------------------


def test_p2_the_first_document_is_version_2_at_sequence_1_with_nothing_begun(world: World) -> None:
    ws = world.open()
    made = ws.cycles.start("feature", "create-spec", {"user_requirements": "as told", "peer_mode": "continue"})
    now = made.metadata.created_at
    assert (made.version, made.cycle_id, made.sequence, made.history) == (2, KEY, 1, [])
    assert (made.metadata.status, made.metadata.current_phase, made.metadata.updated_at) == ("initialized", None, now)
    assert made.context == {"peer_mode": "continue", "spec_aware": True, "user_requirements": "as told"}
    assert statuses(made) == ["pending"] * 4
    assert made == ws.cycles.get(KEY)
    assert ws.cycles.export(KEY) == {
        "version": 2,
        "cycle_id": KEY,
        "sequence": 1,
        "metadata": {
            "instruction": "create-spec",
            "spec_name": "feature",
            "key_prefix": "peer:spec:feature",
            "cycle_number": 1,
            "created_at": ws.cycles.export(KEY)["metadata"]["created_at"],
            "updated_at": ws.cycles.export(KEY)["metadata"]["created_at"],
            "status": "initialized",
        },
        "context": made.context,
        "phases": {phase: {"status": "pending"} for phase in PHASES},
        "history": [],
    }


def test_p2_numbers_grow_by_1_within_a_prefix_and_the_last_one_is_the_current(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    for number in (1, 2, 3):
        for handle in (ws, other)[number % 2 :]:
            handle.cycles.start(instruction="other")
        assert ws.cycles.start(spec="s").metadata.cycle_number == number
        assert other.cycles.get("peer:spec:s").cycle_id == f"peer:spec:s:cycle:{number}"
    assert ws.cycles.get("peer:spec:s:cycle:1").metadata.cycle_number == 1, "those before stay"


@pytest.mark.kinds("every")
def test_p2_of_many_that_start_at_once_each_gets_a_cycle_of_its_own(world: World) -> None:
    handles = [world.open(f"agent-{number}") for number in range(6)]
    made = together(*(partial(ws.cycles.start, spec="s") for ws in handles))
    assert sorted(cycle.metadata.cycle_number for cycle in made) == [1, 2, 3, 4, 5, 6]
    assert handles[0].cycles.get("peer:spec:s").metadata.cycle_number == 6


def test_p2_a_key_that_is_taken_is_never_given_again(world: World) -> None:
    ws = world.open()
    document = ws.cycles.export(ws.cycles.start(spec="s").cycle_id)
    ahead = {**document, "cycle_id": "peer:spec:s:cycle:3", "metadata": {**document["metadata"], "cycle_number": 3}}
    ws.cycles.import_({"peer.spec.s.cycle.3": ahead, "peer.spec.s.cycle.current": 2})
    assert ws.cycles.get("peer:spec:s").cycle_id == "peer:spec:s:cycle:3"
    assert ws.cycles.start(spec="s").cycle_id == "peer:spec:s:cycle:4"
    assert ws.cycles.export("peer:spec:s:cycle:3") == ahead
    ws.cycles.finish("peer:spec:s:cycle:4", "not needed")
    ws.cycles.delete("peer:spec:s:cycle:4")
    assert ws.cycles.get("peer:spec:s").cycle_id == "peer:spec:s:cycle:3"
    assert ws.cycles.start(spec="s").cycle_id == "peer:spec:s:cycle:5"


@pytest.mark.parametrize(
    "name", ["", "a.b", "a:b", "a b", "-a", "_a", "ä", "a/b", "a\n", "x" * 201, 7, ["a"]], ids=repr
)
def test_p2_a_name_that_cannot_be_a_part_of_a_key_is_refused(world: World, name: Any) -> None:
    ws = world.open()
    for call in (ws.cycles.start, ws.cycles.list, ws.cycles.resume):
        for kind in ("spec", "instruction"):
            refused(ws, errors.InvalidName, partial(call, **{kind: name}))
    refused(ws, errors.InvalidName, lambda: ws.cycles.start("good", name))


@pytest.mark.parametrize("context", [[], "text", 7, {"a": float("nan")}, {"a": 2**64}, {"a": b"x"}], ids=repr)
def test_p2_a_context_that_no_document_can_have_is_refused(world: World, context: Any) -> None:
    ws = world.open()
    refused(ws, errors.InvalidValue, lambda: ws.cycles.start(spec="s", context=context))
    assert ws.cycles.list() == []
    assert ws.cycles.start(spec="s").metadata.cycle_number == 1
