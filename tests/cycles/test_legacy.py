"""Old formats of cycles (P8), one by one: where each field goes, what is kept, and what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.domains.cycles.rules import Key, problems
from holdfast.interchange.peer import Reading, read

SAMPLES = Path(__file__).parents[3] / "shared" / "samples" / "cycles"
KEY = Key("peer:spec:search", 3)
T1, T2, T3 = "2025-08-01T08:00:00Z", "2025-08-01T09:00:00Z", "2025-08-01T10:30:00Z"


def only(reading: Reading) -> dict[str, Any]:
    """The one document that was read, without any problem."""
    assert reading.problems == []
    (document,) = reading.documents.values()
    assert problems(document) == []
    return document


def v2(**changes: Any) -> dict[str, Any]:
    return {
        "version": 2,
        "cycle_id": "peer:spec:search:cycle:3",
        "sequence": 2,
        "metadata": {
            "spec_name": "search",
            "key_prefix": "peer:spec:search",
            "cycle_number": 3,
            "created_at": T1,
            "updated_at": T2,
            "status": "in_progress",
            "current_phase": "plan",
        },
        "context": {},
        "phases": {
            "plan": {"status": "in_progress", "started_at": T2, "sequence_at_start": 2, "errors": []},
            **{phase: {"status": "pending"} for phase in ("execute", "express", "review")},
        },
        "history": [{"timestamp": T2, "phase": "plan", "event": "started", "sequence": 2}],
        **changes,
    }


# --- the samples, where they are -------------------------------------------------------------------------------------


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
def test_p8_every_sample_reads_as_v2_and_keeps_every_value() -> None:
    files = sorted(SAMPLES.glob("*.json"))
    assert files
    for file in files:
        reading = read({file.stem: file.read_bytes()})
        assert reading.problems == [], file.name
        assert reading.documents, file.name
        assert not any(problems(document) for document in reading.documents.values()), file.name
        kept = json.dumps([*reading.documents.values(), reading.current])
        for leaf in texts(json.loads(file.read_bytes())):
            same = {"complete": "completed", "running": "in_progress", "EXECUTING": "execute"}.get(leaf, leaf)
            assert same in kept or same.replace(".", ":") in kept, f"{file.name}: {leaf}"


def texts(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        return [leaf for each in (value.values() if isinstance(value, dict) else value) for leaf in texts(each)]
    return [value] if isinstance(value, str) else []


# --- each format -----------------------------------------------------------------------------------------------------


def test_p8_a_v2_document_is_taken_as_it_is() -> None:
    reading = read({str(KEY): json.dumps(v2())})
    assert reading.documents == {KEY: v2()}
    assert reading.formats == {KEY: "v2"}


def test_p1_a_v2_document_whose_keys_have_dots_gets_colons() -> None:
    dotted = v2(cycle_id=KEY.dotted, metadata={**v2()["metadata"], "key_prefix": "peer.spec.search"})
    assert only(read({KEY.dotted: dotted})) == v2()


def test_p8_meta_and_cycle_become_one_document_each() -> None:
    cycle = {
        "cycle_number": 3,
        "instruction": "create-spec",
        "started_at": T1,
        "completed_at": T3,
        "phases": {
            phase: {"status": "complete", "output": {"of": phase}} for phase in ("plan", "execute", "express", "review")
        },
        "result": {"success": True},
        "insights": {"learnings": ["short names"]},
        "status": {"current_phase": "complete", "progress_percent": 100, "last_update": T3},
    }
    meta = {
        "spec_name": "search",
        "created_at": T1,
        "current_cycle": 4,
        "current_phase": "execute",
        "cycles": {
            "3": {"instruction": "create-spec", "status": "complete", "completed_at": T3},
            "4": {"instruction": "execute-tasks", "status": "running", "started_at": T3},
        },
    }
    reading = read({"words.before.peer.spec.search.cycle.3": cycle, "peer.spec.search.meta": json.dumps(meta).encode()})
    assert reading.problems == []
    assert reading.current == {"peer:spec:search": 4}
    third, fourth = reading.documents[KEY], reading.documents[Key(KEY.prefix, 4)]
    assert third["metadata"] == {
        "instruction": "create-spec",
        "spec_name": "search",
        "key_prefix": "peer:spec:search",
        "cycle_number": 3,
        "created_at": T1,
        "updated_at": T3,
        "status": "completed",
    }
    assert third["phases"]["review"] == {"status": "completed", "output": {"of": "review"}}
    assert third["context"]["legacy"]["document"] == {
        "result": {"success": True},
        "insights": {"learnings": ["short names"]},
        "status": {"progress_percent": 100},
    }
    assert (third["sequence"], third["history"]) == (1, [])
    assert (fourth["metadata"]["status"], fourth["metadata"]["current_phase"]) == ("in_progress", "execute")
    assert fourth["metadata"]["instruction"] == "execute-tasks"
    assert fourth["phases"]["plan"] == {"status": "pending"}
    assert fourth["context"] == {"legacy": {"spec": {"created_at": T1}}}


def test_p8_two_of_one_kind_are_both_kept() -> None:
    metas = {"peer.spec.search.meta": "one", "peer:spec:search:meta": "other"}
    document = only(read({name: {"current_cycle": 3, "created_at": T1, "by": by} for name, by in metas.items()}))
    assert sorted(each["by"] for name, each in document["context"]["legacy"].items() if "meta" in name) == [
        "one",
        "other",
    ]


@pytest.mark.parametrize("dot", [":", "."])
def test_p8_fragments_become_one_document(dot: str) -> None:
    fragments = {
        "current": "3",
        "3:metadata": {"cycle_number": 3, "instruction": "create-spec", "spec": "search", "created_at": T1}
        | {"status": "running", "phases_completed": ["plan"]},
        "3:plan": {"steps": ["one", "two"]},
        "3:plan_summary": "two steps",
        "3:execution": b'{"files": ["a.md"]}',
        "3:deliverables": ["a.md"],
        "3:context.peer_mode": "new",
        "3:improvements": "none",
    }
    reading = read({f"peer:spec:search:cycle:{name}".replace(":", dot): value for name, value in fragments.items()})
    document = only(reading)
    assert reading.current == {"peer:spec:search": 3}
    assert reading.formats == {KEY: "fragmented"}
    assert document["phases"]["plan"] == {"status": "completed", "output": {"steps": ["one", "two"]}}
    assert document["phases"]["execute"] == {"status": "in_progress", "output": {"files": ["a.md"]}}
    assert document["metadata"]["current_phase"] == "execute"
    assert document["metadata"]["spec_name"] == "search"
    assert document["context"] == {
        "peer_mode": "new",
        "legacy": {
            "fragments": {
                "deliverables": ["a.md"],
                "improvements": "none",
                "plan_summary": "two steps",
                "metadata": {"phases_completed": ["plan"]},
            }
        },
    }


def test_p8_fragments_that_are_parts_themselves_are_joined_with_the_others() -> None:
    fragments = {"context": {"a": 1, "b": 2}, "context.b": 3, "phases": {"plan": {"status": "running"}}, "plan": "half"}
    document = only(read({f"{KEY.dotted}.{name}": value for name, value in fragments.items()}))
    assert document["context"]["a"] == 1
    assert document["context"]["b"] == 2
    assert document["context"]["legacy"] == {"fragments": {"context": {"b": 3}}}
    assert document["phases"]["plan"] == {"status": "in_progress", "output": "half"}
    strict = only(read({f"{KEY.dotted}.context": {"b": 1}, f"{KEY.dotted}.context.b": True}))
    assert json.dumps(strict["context"]) == '{"b": 1, "legacy": {"fragments": {"context": {"b": true}}}}'
    reading = read({f"{KEY.dotted}.context": "all", f"{KEY.dotted}.context.b": 3})
    assert (reading.documents, len(reading.problems)) == ({}, 1)


def test_p8_a_collection_of_keys_is_read_key_by_key() -> None:
    keys = {"peer.global.cycle.current": "7", "peer.global.cycle.7.metadata": {"status": "initialized"}}
    reading = read({"a collection": {"_note": "from elsewhere", "keys": keys}})
    document = only(reading)
    assert reading.current == {"peer:global": 7}
    assert document["cycle_id"] == "peer:global:cycle:7"
    assert document["context"]["legacy"] == {"collection": {"_note": "from elsewhere"}}


def test_p8_a_text_that_is_no_json_is_the_value_of_a_fragment_as_it_is() -> None:
    document = only(
        read({"peer.global.cycle.1.plan": "1.10", "peer.global.cycle.1.status": "RUNNING"}),
    )
    assert document["phases"]["plan"]["output"] == "1.10"
    assert document["metadata"]["status"] == "in_progress"


def test_p8_the_1_0_draft_keeps_its_sequence_and_its_error_goes_to_the_phase() -> None:
    draft = {
        "schema_version": "1.0",
        "sequence": 4,
        "status": "EXECUTING",
        "metadata": {"instruction_name": "create-spec", "key_prefix": "peer:spec:search", "cycle_number": 3}
        | {"created_at": T1, "last_updated_at": T3},
        "phases": {
            "plan": {"status": "complete", "output": {}, "started_at": T1, "completed_at": T2},
            "execute": {"status": "in_progress", "started_at": T2, "completed_at": None},
            "express": {"status": "pending"},
            "review": {"status": "pending"},
        },
        "error_info": {"phase": "execute", "message": "denied", "details": {"file": "/x"}},
    }
    event: dict[str, Any] = {"event_id": "e-1", "timestamp": T2, "cycle_id": str(KEY), "phase": "plan"}
    event |= {"event_type": "phase_completed", "sequence_before": 2, "sequence_after": 3, "details": {"size": 9}}
    document = only(read({"a draft": draft, "an event": event}))
    assert document["sequence"] == 4
    assert document["metadata"]["instruction"] == "create-spec"
    assert (document["metadata"]["status"], document["metadata"]["current_phase"]) == ("in_progress", "execute")
    assert (document["metadata"]["created_at"], document["metadata"]["updated_at"]) == (T1, T3)
    assert document["phases"]["plan"]["sequence_at_complete"] == 3
    assert document["phases"]["execute"]["errors"] == [draft["error_info"]]
    assert document["history"] == [{"timestamp": T2, "phase": "plan", "event": "completed", "sequence": 3}]
    assert document["context"] == {"legacy": {"document": {"schema_version": "1.0"}, "events": [event]}}


def test_p8_events_that_a_document_does_not_bear_out_are_kept_beside_it() -> None:
    draft = {"schema_version": "1.0", "sequence": 2, "status": "PLANNING", "metadata": {"created_at": T1}}
    later: dict[str, Any] = {"cycle_id": str(KEY), "timestamp": T2, "phase": "plan", "event_type": "phase_completed"}
    later |= {"event_id": "e", "sequence_after": 9}
    document = only(read({str(KEY): draft, "peer.events.peer.spec.search.cycle.3": [later]}))
    assert (document["sequence"], document["history"]) == (2, [])
    assert document["context"]["legacy"]["events"] == [later]


def test_p8_the_shipped_1_1_keeps_its_error_and_what_it_has_beyond() -> None:
    shipped: dict[str, Any] = {
        "version": 1.1,
        "cycle_id": "peer.spec.search.cycle.3",
        "metadata": {
            "instruction_name": "create-spec",
            "spec_name": "search",
            "key_prefix": "peer.spec.search",
            "cycle_number": 3,
            "created_at": T1,
            "updated_at": T2,
            "status": "FAILED",
            "current_phase": "execute",
        },
        "context": {"peer_mode": "new", "legacy": {"older": 1}},
        "phases": {
            "plan": {"status": "completed", "output": {"steps": 2}},
            "execute": {"status": "failed", "error": "out of time", "attempts": 3},
            "express": {"status": "pending"},
            "review": {"status": "pending"},
        },
        "cycle_summary": "nothing came of it",
    }
    document = only(read({"peer.spec.search.cycle.3": shipped}))
    assert document["metadata"]["status"] == "failed"
    assert document["phases"]["execute"] == {"status": "failed", "errors": [{"message": "out of time"}]}
    assert document["context"] == {
        "peer_mode": "new",
        "legacy": {
            "document": {
                "version": 1.1,
                "context": {"legacy": {"older": 1}},
                "phases": {"execute": {"attempts": 3}},
                "cycle_summary": "nothing came of it",
            }
        },
    }


def test_p8_a_name_that_differs_from_the_key_is_kept_and_not_believed() -> None:
    document = only(read({"peer.spec.search.cycle.3": {"instruction": "x", "spec_name": "Search!", "started_at": T1}}))
    assert document["metadata"]["spec_name"] == "search"
    assert document["context"]["legacy"] == {"document": {"spec_name": "Search!"}}


def test_p8_a_cycle_without_any_time_is_told() -> None:
    reading = read({"peer.global.cycle.1.context.peer_mode": "new"})
    assert only(reading)["metadata"]["created_at"] == "1970-01-01T00:00:00Z"
    ((source, message),) = reading.notes
    assert (source, "no time" in message) == ("peer.global.cycle.1.context.peer_mode", True)


def test_p8_v2_takes_the_place_of_what_is_older_and_says_so() -> None:
    reading = read({KEY.dotted: v2(), f"{KEY.dotted}.plan": "the old plan", f"{KEY.dotted}.metadata": "{}"})
    assert only(reading) == v2()
    assert [source for source, _ in reading.notes] == [f"{KEY.dotted}.metadata", f"{KEY.dotted}.plan"]


def test_p8_what_others_put_into_a_v2_document_is_kept_under_legacy() -> None:
    given = v2(tool="x", context={"peer_mode": "new", "legacy": {"document": {"version": 1.1}}})
    given["metadata"] |= {"owner": "ann", "status": "IN_PROGRESS", "current_phase": "PLAN"}
    given["phases"]["plan"] |= {"status": "Running", "agent": "planner"}
    given["phases"]["deploy"] = {"status": "pending"}
    given["history"] = [{**v2()["history"][0], "by": "planner", "phase": "PLAN"}]
    document = only(read({KEY.dotted: given}))
    assert (document["metadata"], document["phases"], document["history"]) == tuple(
        v2()[part] for part in ("metadata", "phases", "history")
    )
    assert document["context"] == {
        "peer_mode": "new",
        "legacy": {
            "document": {"version": 1.1},
            "document_": {
                "tool": "x",
                "metadata": {"owner": "ann"},
                "phases": {"plan": {"agent": "planner"}, "deploy": {"status": "pending"}},
                "history": {"0": {"by": "planner"}},
            },
        },
    }
    assert only(read({KEY.dotted: {**document, "tool": "x"}}))["context"]["legacy"].keys() == {
        *("document", "document_", "document__")
    }
    again = {**given, "context": document["context"]}
    assert only(read({KEY.dotted: again})) == document, "what was kept already is not kept again"


@pytest.mark.parametrize("source", ["an-event", "peer.events.spec.search.cycle.3", f"{KEY}:events", f"{KEY}:event:1"])
def test_p8_an_event_by_itself_tells_the_time(source: str) -> None:
    event = {"event_id": "e", "event_type": "phase_started", "timestamp": T2, "phase": "plan", "sequence_after": 2}
    reading = read({source: {**event, "cycle_id": str(KEY)}})
    document = only(reading)
    assert (document["metadata"]["created_at"], reading.notes) == (T2, [])
    assert document["history"] == [{"timestamp": T2, "phase": "plan", "event": "started", "sequence": 2}]
    assert only(read({KEY.dotted: {"timestamp": T2}}))["metadata"]["created_at"] == T2


@pytest.mark.parametrize("document", [v2(sequence=2**52 + 1), {"schema_version": "1.0", "sequence": 2**60}])
def test_p8_a_sequence_that_nothing_could_follow_is_told(document: dict[str, Any]) -> None:
    reading = read({KEY.dotted: document})
    assert reading.documents == {}
    assert [key for key, _ in reading.problems] == [KEY.dotted]
    assert "sequence" in reading.problems[0][1]


# --- what cannot be read ---------------------------------------------------------------------------------------------

BAD = {
    "bad JSON": ("peer.spec.search.cycle.3", b'{"version": 2,'),
    "bad JSON of a fragment": ("peer.spec.search.cycle.3.plan", '{"steps": ['),
    "no UTF-8": ("peer.spec.search.cycle.3", b"\xff\xfe"),
    "no object": ("peer.spec.search.cycle.3", "12"),
    "deep": ("peer.spec.search.cycle.3", "[" * 100_000),
    "twice a key": ("peer.spec.search.cycle.3", '{"cycle_number": 3, "phases": {}, "phases": {}}'),
    "twice a key within": ("peer.spec.search.cycle.3.plan", '{"steps": [{"a": 1, "a": 2}]}'),
    "a name with a space": ("peer.spec.my feature.cycle.1", {"started_at": T1}),
    "a name with a dot": ("peer.spec.v1.2.cycle.1", {"started_at": T1}),
    "a number that is none": ("peer.spec.search.cycle.0", {"started_at": T1}),
    "no current": ("peer.spec.search.cycle.current", "the third"),
    "another cycle": ("peer.spec.search.cycle.3", {"cycle_number": 4}),
    "another prefix": ("peer.spec.search.cycle.3", {"metadata": {"key_prefix": "peer.spec.find"}}),
    "another id": ("peer.spec.search.cycle.3", {"cycle_id": "peer.spec.search.cycle.4"}),
    "an unknown status": ("peer.spec.search.cycle.3", {"status": "paused"}),
    "a status that is a number": ("peer.spec.search.cycle.3", {"status": 7}),
    "an unknown status of a phase": ("peer.spec.search.cycle.3", {"phases": {"plan": {"status": "nearly"}}}),
    "phases that are a list": ("peer.spec.search.cycle.3", {"phases": []}),
    "a phase that is a number": ("peer.spec.search.cycle.3", {"phases": {"plan": 1}}),
    "metadata that are a text": ("peer.spec.search.cycle.3.metadata", "soon"),
    "an unknown version": ("peer.spec.search.cycle.3", {"version": 3}),
    "phases out of order": ("peer.spec.search.cycle.3", {"phases": {"review": {"status": "complete"}}}),
    "two phases at once": (
        "peer.spec.search.cycle.3",
        {"phases": {"plan": {"status": "running"}, "execute": {"status": "running"}}},
    ),
    "meta with odd numbers": ("peer.spec.search.meta", {"current_cycle": 1, "cycles": {"one": {}}}),
    "meta with odd cycles": ("peer.spec.search.meta", {"current_cycle": 1, "cycles": {"1": "running"}}),
    "events of another cycle": ("peer.spec.search.cycle.3", {"event_id": "e", "cycle_id": "peer:global:cycle:1"}),
    "a list of texts": ("peer.spec.search.cycle.3", ["a"]),
    "no JSON at all": ("peer.spec.search.cycle.3", {"phases": {"plan": {"output": {1, 2}}}}),
}


@pytest.mark.parametrize("what", BAD)
def test_p8_what_cannot_be_read_is_told_by_its_key_and_nothing_of_it_is_answered(what: str) -> None:
    source, value = BAD[what]
    reading = read({source: value, "peer.global.cycle.1": {"started_at": T1}})
    assert list(reading.documents) == [Key("peer:global", 1)]
    assert [key for key, _ in reading.problems] == [source]
    assert reading.problems[0][1]


@pytest.mark.parametrize("value", [{"name": "x"}, b"\xff", "{", "plain"])
def test_p8_a_key_of_something_else_is_noted_and_stops_nothing(value: Any) -> None:
    reading = read({"package": value, "peer.global.cycle.1": {"started_at": T1}})
    assert (list(reading.documents), reading.problems) == ([Key("peer:global", 1)], [])
    assert reading.notes[0][0] == "package"


def test_p5_a_v2_document_that_breaks_a_rule_is_told_with_its_paths() -> None:
    broken = v2(sequence=1, extra=True, history=[{**v2()["history"][0], "event": ""}])
    reading = read({str(KEY): broken})
    assert reading.documents == {}
    ((source, message),) = reading.problems
    assert source == str(KEY)
    assert "$.history[0].event" in message
    assert "$.extra" not in message, "which is kept"


def test_p8_one_bad_fragment_keeps_the_whole_cycle_back() -> None:
    reading = read({f"{KEY}:plan": '{"half', f"{KEY}:metadata": {"created_at": T1}})
    assert reading.documents == {}
    assert [key for key, _ in reading.problems] == [f"{KEY}:plan"]


@pytest.mark.parametrize("suffix", ["", ".plan"])
def test_p8_the_same_key_with_colons_and_with_dots_is_told_if_the_two_differ(suffix: str) -> None:
    one, two = (v2(), v2(sequence=3)) if not suffix else ("a", "b")
    colons = f"{KEY}{suffix.replace('.', ':')}"
    reading = read({colons: one, f"{KEY.dotted}{suffix}": two})
    assert reading.documents == {}
    assert [key for key, _ in reading.problems] == [colons]
    if not suffix:
        assert only(read({colons: one, KEY.dotted: one})) == one
