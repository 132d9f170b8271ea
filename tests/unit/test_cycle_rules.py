"""The rules of documents of cycles (P5), one by one, each with the path that it names; and that steps keep them all."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import errors
from holdfast.domains.cycles import document as documents
from holdfast.domains.cycles import rules
from holdfast.domains.cycles.rules import Key, parse

PHASES = rules.PHASES
SEED = Path(__file__).resolve().parents[2] / "../shared/samples/cycles/unified-v2.seed-example.json"
NOON = "2026-03-01T12:00:00Z"
Document = dict[str, Any]


def seed_like() -> Document:
    """A document in the shape of the seed's example: gaps in the history, and a sequence far above its last."""
    return {
        "version": 2,
        "cycle_id": "peer:spec:door-bell:cycle:3",
        "sequence": 42,
        "metadata": {
            "instruction": "create-spec",
            "spec_name": "door-bell",
            "key_prefix": "peer:spec:door-bell",
            "cycle_number": 3,
            "created_at": "2026-03-01T09:00:00Z",
            "updated_at": "2026-03-01T09:40:00+01:00",
            "status": "in_progress",
            "current_phase": "execute",
        },
        "context": {"peer_mode": "new", "spec_aware": True, "user_requirements": "It rings."},
        "phases": {
            "plan": {
                "status": "completed",
                "started_at": "2026-03-01T09:00:00Z",
                "completed_at": "2026-03-01T09:10:00.5Z",
                "sequence_at_start": 10,
                "sequence_at_complete": 15,
                "output": {"phases": [{"phase": "preparation", "steps": ["ask", "measure"]}], "risks": []},
                "errors": [],
            },
            "execute": {
                "status": "in_progress",
                "started_at": "2026-03-01T09:10:00Z",
                "sequence_at_start": 16,
                "output": {"progress": "wiring", "files_created": ["bell.md"]},
                "errors": ["one that is only a text", {"message": "another"}],
            },
            "express": {"status": "pending"},
            "review": {"status": "pending"},
        },
        "history": [
            {"timestamp": "2026-03-01T09:00:00Z", "phase": "plan", "event": "started", "sequence": 10},
            {"timestamp": "2026-03-01T09:10:00Z", "phase": "plan", "event": "completed", "sequence": 15},
            {"timestamp": "2026-03-01T09:10:00Z", "phase": "execute", "event": "started", "sequence": 16},
        ],
    }


def paths(document: Any) -> list[str]:
    """Where something is wrong."""
    return [problem.path for problem in rules.problems(document)]


def put(path: str, value: Any) -> Callable[[Document], None]:
    """Change one place of a document, such as `phases.plan.status`; a number is a place in a list."""
    *way, last = path.split(".")

    def change(document: Document) -> None:
        place: Any = document
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[int(last) if isinstance(place, list) else last] = value

    return change


def drop(path: str) -> Callable[[Document], None]:
    """Take one field out of a document."""
    *way, last = path.split(".")

    def change(document: Document) -> None:
        place: Any = document
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        del place[last]

    return change


def also(*changes: Callable[[Document], None]) -> Callable[[Document], None]:
    """All of them."""

    def change(document: Document) -> None:
        for each in changes:
            each(document)

    return change


# --- what is valid ---------------------------------------------------------------------------------------------------


def test_p5_a_document_in_the_shape_of_the_seed_is_valid() -> None:
    assert rules.problems(seed_like()) == []


@pytest.mark.skipif(not SEED.exists(), reason="the sample is not here")
def test_p5_the_seeds_own_example_is_valid_and_comes_back_as_it_was() -> None:
    document = json.loads(SEED.read_text())
    assert rules.problems(document) == []
    assert (document["sequence"], [entry["sequence"] for entry in document["history"]]) == (42, [10, 15, 16])


@pytest.mark.parametrize(
    "change",
    [
        *(put(f"metadata.{name}", None) for name in ("instruction", "spec_name", "current_phase")),
        *(drop(f"metadata.{name}") for name in ("instruction", "spec_name", "current_phase")),
        *(put(f"phases.express.{name}", None) for name in ("started_at", "completed_at", "output", "errors")),
        *(put(f"phases.express.{name}", None) for name in ("sequence_at_start", "sequence_at_complete")),
        drop("phases.plan.errors"),
        drop("phases.plan.output"),
        put("context", {}),
        put("history.1.timestamp", "1999-01-01T00:00:00-12:00"),
        also(
            put("cycle_id", "peer.spec.door-bell.cycle.3"), put("metadata.key_prefix", "peer.spec.door-bell")
        ),  # dots will do
        also(
            put("history", []),
            *(put(f"phases.{phase}.sequence_at_start", None) for phase in ("plan", "execute")),
            put("phases.plan.sequence_at_complete", None),
        ),  # from before there were sequences
        also(put("metadata.status", "failed"), put("phases.execute.status", "failed")),
        put("metadata.status", "failed"),
    ],
)
def test_p5_what_is_optional_may_be_left_out_or_null(change: Callable[[Document], None]) -> None:
    document = seed_like()
    change(document)
    assert rules.problems(document) == []


# --- what is not -----------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[Document], None], str]] = {
    **{f"no {name}": (drop(name), f"$.{name}") for name in ("version", "cycle_id", "sequence", "metadata", "context")},
    **{f"no {name}": (drop(name), f"$.{name}") for name in ("phases", "history")},
    "another field": (put("colour", "red"), "$.colour"),
    **{f"version {v!r}": (put("version", v), "$.version") for v in (1, 3, "2", 2.0, True, None)},
    **{f"sequence {v!r}": (put("sequence", v), "$.sequence") for v in (0, -1, "42", 42.0, True, None)},
    **{f"cycle_id {v!r}": (put("cycle_id", v), "$.cycle_id") for v in ("", "peer:spec:a", "x:cycle:3", 7, None)},
    "context is a list": (put("context", []), "$.context"),
    "metadata is a list": (put("metadata", []), "$.metadata"),
    "phases is null": (put("phases", None), "$.phases"),
    "history is an object": (put("history", {}), "$.history"),
    **{
        f"no metadata.{name}": (drop(f"metadata.{name}"), f"$.metadata.{name}")
        for name in ("key_prefix", "cycle_number", "created_at", "updated_at", "status")
    },
    "more metadata": (put("metadata.owner", "me"), "$.metadata.owner"),
    **{f"prefix {v!r}": (put("metadata.key_prefix", v), "$.metadata.key_prefix") for v in ("peer", "peer:spec:", 7)},
    **{f"number {v!r}": (put("metadata.cycle_number", v), "$.metadata.cycle_number") for v in (0, "3", 3.0, None)},
    **{
        f"{name} {v!r}": (put(f"metadata.{name}", v), f"$.metadata.{name}")
        for name in ("created_at", "updated_at")
        for v in ("", "yesterday", "2026-03-01", "2026-03-01T12:00:00", "2026-13-01T12:00:00Z", 7, None)
    },
    **{
        f"status {v!r}": (put("metadata.status", v), "$.metadata.status")
        for v in ("", "IN_PROGRESS", "pending", 7, None)
    },
    **{f"current {v!r}": (put("metadata.current_phase", v), "$.metadata.current_phase") for v in ("", "execution", 7)},
    **{f"{name} is 7": (put(f"metadata.{name}", 7), f"$.metadata.{name}") for name in ("instruction", "spec_name")},
    **{f"no {phase}": (drop(f"phases.{phase}"), f"$.phases.{phase}") for phase in PHASES},
    "a fifth phase": (put("phases.rest", {"status": "pending"}), "$.phases.rest"),
    "a phase is a text": (put("phases.review", "pending"), "$.phases.review"),
    "no status of a phase": (drop("phases.review.status"), "$.phases.review.status"),
    **{f"phase {v!r}": (put("phases.review.status", v), "$.phases.review.status") for v in ("", "complete", [7], None)},
    "a phase has more": (put("phases.review.colour", "red"), "$.phases.review.colour"),
    **{
        f"{name} {v!r}": (put(f"phases.plan.{name}", v), f"$.phases.plan.{name}")
        for name in ("started_at", "completed_at")
        for v in ("soon", 7)
    },
    **{
        f"{name} {v!r}": (put(f"phases.plan.{name}", v), f"$.phases.plan.{name}")
        for name in ("sequence_at_start", "sequence_at_complete")
        for v in (0, "10", 10.0, True)
    },
    "errors is a text": (put("phases.plan.errors", "odd"), "$.phases.plan.errors"),
    "an entry is a text": (put("history.1", "completed"), "$.history[1]"),
    **{
        f"no {name} of an entry": (drop(f"history.1.{name}"), f"$.history[1].{name}")
        for name in ("timestamp", "phase", "event", "sequence")
    },
    "an entry has more": (put("history.2.by", "me"), "$.history[2].by"),
    "an entry at no time": (put("history.2.timestamp", None), "$.history[2].timestamp"),
    "an entry of no phase": (put("history.2.phase", "execution"), "$.history[2].phase"),
    **{f"event {v!r}": (put("history.2.event", v), "$.history[2].event") for v in ("", 7, None)},
    **{f"its sequence {v!r}": (put("history.2.sequence", v), "$.history[2].sequence") for v in (0, "16", None)},
    # what must agree
    "another prefix": (put("metadata.key_prefix", "peer:spec:other"), "$.cycle_id"),
    "another kind of prefix": (put("metadata.key_prefix", "peer:instruction:door-bell"), "$.cycle_id"),
    "another number": (put("metadata.cycle_number", 4), "$.cycle_id"),
    "another spec": (put("metadata.spec_name", "other"), "$.metadata.spec_name"),
    "another instruction": (
        also(
            put("cycle_id", "peer:instruction:door-bell:cycle:3"),
            put("metadata.key_prefix", "peer:instruction:door-bell"),
        ),
        "$.metadata.instruction",
    ),
    "execute before plan": (
        also(
            put("phases.plan.status", "failed"),
            put("metadata.status", "failed"),
            drop("phases.plan.sequence_at_complete"),
        ),
        "$.phases.execute.status",
    ),
    "express before execute": (put("phases.express.status", "completed"), "$.phases.express.status"),
    "review before express": (put("phases.review.status", "failed"), "$.phases.review.status"),
    "two in progress": (put("phases.express.status", "in_progress"), "$.phases"),
    "initialized and begun": (put("metadata.status", "initialized"), "$.metadata.status"),
    "completed and going on": (put("metadata.status", "completed"), "$.metadata.status"),
    "a failed phase and going on": (put("phases.execute.status", "failed"), "$.metadata.status"),
    "another is current": (put("metadata.current_phase", "plan"), "$.metadata.current_phase"),
    "history goes back": (put("history.2.sequence", 15), "$.history[2].sequence"),
    "history above sequence": (put("sequence", 15), "$.sequence"),
    "started elsewhere": (put("phases.execute.sequence_at_start", 17), "$.phases.execute.sequence_at_start"),
    "completed elsewhere": (put("phases.plan.sequence_at_complete", 14), "$.phases.plan.sequence_at_complete"),
    "a start that nobody tells": (drop("phases.plan.sequence_at_start"), "$.phases.plan.sequence_at_start"),
    "a completion of nothing": (put("history.2.event", "completed"), "$.phases.execute.sequence_at_start"),
    "started twice": (put("history.2.phase", "plan"), "$.history"),
    "pending but begun": (
        also(put("phases.execute.status", "pending"), put("metadata.current_phase", None)),
        "$.phases.execute.status",
    ),
    "completed but not": (
        also(
            put("phases.plan.status", "in_progress"),
            put("phases.execute", {"status": "pending"}),
            put("metadata.current_phase", "plan"),
            lambda document: document["history"].pop(),
        ),
        "$.phases.plan.status",
    ),
    # what cannot be stored
    "not a number": (put("context.n", float("nan")), "$"),
    "too large a number": (put("phases.plan.output", 2**63), "$"),
    "half a character": (put("context.text", "\ud800"), "$"),
    "too long": (put("context.text", "x" * (1024 * 1024)), "$"),
    "bytes": (put("phases.plan.output.risks", [{"data": b"x"}]), "$.phases.plan.output.risks[0].data"),
    "a tuple": (put("context.pair", (1, 2)), "$"),
}


@pytest.mark.parametrize("name", WRONG)
def test_p5_what_breaks_a_rule_is_told_by_its_path(name: str) -> None:
    change, path = WRONG[name]
    document = seed_like()
    change(document)
    found = rules.problems(document)
    assert path in [problem.path for problem in found]
    assert all(problem.message and "\n" not in problem.message for problem in found)


@pytest.mark.parametrize("document", [None, [], "text", 7, True, 1.5, [seed_like()]], ids=repr)
def test_p5_what_is_no_object_is_no_document(document: Any) -> None:
    assert paths(document) == ["$"]


def test_p5_all_that_is_wrong_is_told_at_once() -> None:
    document = seed_like()
    for name in ("version 1", "no context", "no metadata.status", "another field", "event 7", "phase 'complete'"):
        WRONG[name][0](document)
    assert sorted(paths(document)) == [
        *("$.colour", "$.context", "$.history[2].event", "$.metadata.status"),
        *("$.phases.review.status", "$.version"),
    ]


# --- steps -----------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=5,
)
ERRORS = st.text("abc", min_size=1, max_size=3).map(lambda text: documents.error_entry(text, None))
PHASE = st.sampled_from(PHASES)
STEPS = st.one_of(
    *(st.builds(documents.starting, PHASE),) * 3,
    *(st.builds(documents.completing, PHASE, VALUES),) * 3,
    st.builds(documents.updating, PHASE, VALUES),
    st.builds(documents.erring, PHASE, ERRORS),
    st.builds(documents.failing, PHASE, ERRORS),
    st.builds(documents.finishing, st.none() | ERRORS),
)
KEYS = ("peer:spec:s:cycle:1", "peer:instruction:i:cycle:20", "peer:global:cycle:3")


def next_step(document: Document) -> documents.Step:
    """The step that brings a cycle on: so that documents come far."""
    going = [phase for phase in PHASES if document["phases"][phase]["status"] == "in_progress"]
    pending = [phase for phase in PHASES if document["phases"][phase]["status"] == "pending"]
    if going:
        return documents.completing(going[0], {"made": len(pending)})
    return documents.starting(pending[0]) if pending else documents.finishing(None)


@settings(max_examples=300, deadline=None)
@given(key=st.sampled_from(KEYS), steps=st.lists(st.tuples(STEPS, st.booleans()), max_size=25), context=VALUES)
def test_p3_p5_what_legal_steps_make_is_valid_and_a_refused_one_changes_nothing(
    key: str, steps: list[tuple[documents.Step, bool]], context: Any
) -> None:
    document = documents.first(parse(key), None, {"given": context}, NOON)
    assert rules.problems(document) == []
    for step, help_along in steps:
        for each in [*([next_step(document)] if help_along else ()), step]:
            before = deepcopy(document)
            try:
                after = documents.after(document, each, NOON)
            except errors.InvalidTransition:
                assert document == before
                continue
            assert document == before, "a step makes another document"
            assert rules.problems(after) == []
            assert after["sequence"] == before["sequence"] + 1
            assert after["history"][: len(before["history"])] == before["history"]
            added = after["history"][len(before["history"]) :]
            assert [entry["sequence"] for entry in added] == [after["sequence"]] * len(added)
            document = after


@settings(max_examples=200, deadline=None)
@given(value=VALUES, patch=VALUES)
def test_p3_a_merge_patch_applied_twice_is_applied_once(value: Any, patch: Any) -> None:
    once = documents.merge_patch(deepcopy(value), patch)
    assert documents.merge_patch(deepcopy(once), patch) == once
    if isinstance(patch, dict):
        assert all(name not in once for name, change in patch.items() if change is None)
        kept = value if isinstance(value, dict) else {}
        assert all(once[name] == each for name, each in kept.items() if name not in patch)
    else:
        assert once == patch


def test_p1_a_key_knows_its_parts() -> None:
    key = parse("peer.spec.door-bell.cycle.12")
    assert (key, str(key), key.dotted) == (
        Key("peer:spec:door-bell", 12),
        "peer:spec:door-bell:cycle:12",
        "peer.spec.door-bell.cycle.12",
    )
    assert (key.spec, key.instruction) == ("door-bell", None)
    assert (parse("peer:global:cycle:1").spec, parse("peer:instruction:i:cycle:1").instruction) == (None, "i")
    assert sorted(map(parse, ("peer:spec:a:cycle:10", "peer:spec:a:cycle:9", "peer:global:cycle:11"))) == [
        parse(each) for each in ("peer:global:cycle:11", "peer:spec:a:cycle:9", "peer:spec:a:cycle:10")
    ]
