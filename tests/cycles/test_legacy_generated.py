"""Old formats of cycles (P8), generated: every value of what is read is in the document, and that keeps every rule."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domains.cycles.rules import PHASES, Key, problems
from holdfast.interchange.peer import Reading, read

WORDS = {"complete": "completed", "error": "failed", "running": "in_progress", "execution": "execute"}
ACTIVITIES = {"PLANNING": "plan", "EXECUTING": "execute", "EXPRESSING": "express", "REVIEWING": "review"}
FRAGMENTS = ("plan_summary", "deliverables", "express_summary", "review_summary", "improvements", "of_its_own")

texts = st.text(st.characters(codec="utf-8"), max_size=8).map(lambda text: f"~{text}")  # never JSON
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts
scalars = scalars.filter(lambda value: value not in (float("inf"), float("-inf")))
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(texts, values, max_size=3)
names = st.text("abcXYZ019-_", min_size=1, max_size=8).map(lambda text: f"n{text}")
prefixes = st.builds(lambda kind, name: f"peer:{kind}:{name}", st.sampled_from(("spec", "instruction")), names)
keys = st.builds(Key, prefixes | st.just("peer:global"), st.integers(1, 99))
times = st.datetimes(datetime(2000, 1, 1), datetime(2049, 12, 31)).map(lambda time: f"{time.isoformat()}Z")


@st.composite
def phases(draw: st.DrawFn, done: str, going: str, failed: str) -> tuple[dict[str, Any], str]:
    """Phases as far as a cycle may have come, in the words of a format; and the word for where the cycle stands."""
    count = draw(st.integers(0, 4))
    last = draw(st.sampled_from(("pending", going, failed))) if count < 4 else "pending"
    made: dict[str, Any] = {}
    for place, phase in enumerate(PHASES):
        status = done if place < count else last if place == count else "pending"
        made[phase] = {"status": status} | draw(objects)
        if status != "pending":
            made[phase] |= draw(st.fixed_dictionaries({"output": values}, optional={"started_at": times}))
        if status == done and draw(st.booleans()):
            made[phase]["completed_at"] = draw(times)
    if count == 4:
        return made, "completed"
    return made, "failed" if last == failed else "in_progress" if count or last == going else "initialized"


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    elif value is not None:
        yield value


def marks(value: Any) -> set[str]:
    return {f"{type(leaf).__name__} {leaf!r}" for leaf in leaves(value)}


def judge(entries: dict[str, Any], key: Key) -> Reading:
    """Read both ways, as values and as bytes, and look for every leaf."""
    reading = read(entries)
    encode = msgspec.json.encode
    encoded = {name: value.encode() if isinstance(value, str) else encode(value) for name, value in entries.items()}
    assert read(encoded).documents == reading.documents
    assert reading.problems == []
    assert key in reading.documents
    for document in reading.documents.values():
        assert problems(document) == []
    kept = marks([*reading.documents.values(), list(reading.current.values())])
    for leaf in leaves(list(entries.values())):
        assert known(leaf) & kept, leaf
    return reading


def known(leaf: Any) -> set[str]:
    """What may stand for a leaf: itself, or the word that means the same."""
    found = {leaf}
    if isinstance(leaf, str):
        found |= {WORDS.get(leaf.lower(), leaf.lower()), leaf.replace(".", ":"), ACTIVITIES.get(leaf, leaf)}
        found |= {int(leaf)} if leaf.isdigit() and leaf.isascii() else set()
    return marks(list(found))


@given(keys, phases("complete", "running", "error"), objects, st.data())
def test_p8_nothing_of_meta_and_cycle_is_dropped(
    key: Key, stage: tuple[dict[str, Any], str], extra: dict[str, Any], data: st.DataObject
) -> None:
    made, standing = stage
    status: dict[str, Any] = {"last_update": data.draw(times)} | data.draw(objects)
    if standing == "completed":
        status["current_phase"] = "complete"
    if standing == "failed":
        status |= {"error_phase": "execution", "error_message": data.draw(texts)}
    cycle = {"cycle_number": key.number, "instruction": data.draw(texts), "started_at": data.draw(times), **extra}
    cycle |= {"phases": made, "status": status, "result": data.draw(values), "insights": data.draw(values)}
    other = str(key.number + 1)
    mentions: dict[str, Any] = {
        str(key.number): {"status": "complete", "completed_at": data.draw(times)} | data.draw(objects)
    }
    mentions[other] = {"status": "running", "instruction": data.draw(texts), "started_at": data.draw(times)}
    meta: dict[str, Any] = {
        "created_at": data.draw(times),
        "current_cycle": key.number + 1,
        "current_phase": "execution",
    }
    meta |= {"cycles": mentions} | data.draw(objects)
    dotted = key.dotted
    reading = judge({f"a-dump.{dotted}": cycle, f"{key.prefix.replace(':', '.')}.meta": meta}, key)
    assert reading.current == {key.prefix: key.number + 1}
    assert set(reading.documents) == {key, Key(key.prefix, key.number + 1)}


@given(keys, phases("completed", "in_progress", "failed"), st.sampled_from(".:"), st.data())
def test_p8_nothing_of_fragments_is_dropped(
    key: Key, stage: tuple[dict[str, Any], str], dot: str, data: st.DataObject
) -> None:
    made, standing = stage
    metadata: dict[str, Any] = {
        "cycle_number": key.number,
        "created_at": data.draw(times),
        "instruction": data.draw(texts),
    }
    metadata |= {"phases_completed": [name for name, phase in made.items() if phase["status"] == "completed"]}
    metadata |= {"status": standing.upper()} | data.draw(objects)
    fragments: dict[str, Any] = {f"{key}:metadata": metadata, f"{key.prefix}:cycle:current": str(key.number)}
    for name, phase in made.items():
        whole = phase["status"] not in ("completed", "pending") or data.draw(st.booleans())
        if whole or phase["status"] == "completed":
            value = phase if whole else phase["output"]
            fragments[f"{key}:{'execution' if name == 'execute' else name}"] = value
    chosen = data.draw(st.dictionaries(st.sampled_from(FRAGMENTS), values | texts, max_size=3))
    fragments |= {f"{key}:{name}": value for name, value in chosen.items()}
    fragments |= {f"{key}:context.{name}": data.draw(values) for name in data.draw(st.lists(names, max_size=2))}
    if standing == "completed":
        fragments[f"{key}:completed_at"] = data.draw(times)
    reading = judge({name.replace(":", dot): value for name, value in fragments.items()}, key)
    assert reading.documents[key]["metadata"]["status"] == standing


@given(keys, phases("complete", "in_progress", "error"), st.integers(1, 99), st.data())
def test_p8_nothing_of_the_1_0_draft_and_its_events_is_dropped(
    key: Key, stage: tuple[dict[str, Any], str], sequence: int, data: st.DataObject
) -> None:
    made, standing = stage
    going = [name for name, phase in made.items() if phase["status"] == "in_progress"]
    status = next((word for word, phase in ACTIVITIES.items() if [phase] == going), standing.upper())
    metadata: dict[str, Any] = {
        "instruction_name": data.draw(texts),
        "key_prefix": key.prefix,
        "cycle_number": key.number,
    }
    metadata |= {"created_at": data.draw(times), "last_updated_at": data.draw(times)} | data.draw(objects)
    document: dict[str, Any] = {"schema_version": "1.0", "sequence": sequence, "status": status, "metadata": metadata}
    document |= {"context": data.draw(objects), "phases": made} | data.draw(objects)
    if data.draw(st.booleans()):
        document["error_info"] = {"phase": data.draw(st.sampled_from(PHASES)), "message": data.draw(texts)}
    event = st.fixed_dictionaries(
        {
            "event_id": texts,
            "timestamp": times | texts,
            "cycle_id": st.just(str(key)),
            "phase": st.sampled_from(PHASES),
            "event_type": st.sampled_from(("phase_started", "phase_completed", "phase_failed", "noted")),
            "sequence_before": st.integers(0, 99),
            "sequence_after": st.integers(0, 99),
            "details": objects,
        }
    )
    events = {f"event-{number}": told for number, told in enumerate(data.draw(st.lists(event, max_size=4)))}
    reading = judge({"a document": document, **events}, key)
    assert reading.documents[key]["sequence"] == sequence
    alone = read(events)
    assert alone.problems == []
    assert all(problems(each) == [] for each in alone.documents.values())


@given(keys, phases("completed", "in_progress", "failed"), st.sampled_from((1, 1.1, "1.1")), st.data())
def test_p8_nothing_of_the_shipped_1_1_is_dropped(
    key: Key, stage: tuple[dict[str, Any], str], version: Any, data: st.DataObject
) -> None:
    made, standing = stage
    for phase in made.values():
        if phase["status"] == "failed":
            phase["error"] = data.draw(texts)
    metadata: dict[str, Any] = {"instruction_name": data.draw(texts), "key_prefix": key.prefix.replace(":", ".")}
    metadata |= {"cycle_number": key.number, "created_at": data.draw(times), "updated_at": data.draw(times)}
    metadata |= {"status": standing.upper(), "spec_name": data.draw(names)} | data.draw(objects)
    document: dict[str, Any] = {"version": version, "cycle_id": key.dotted, "metadata": metadata, "phases": made}
    document |= {"context": data.draw(objects), "cycle_summary": data.draw(values), "insights": data.draw(values)}
    reading = judge({"whatever": document}, key)
    assert (reading.documents[key]["sequence"], reading.documents[key]["history"]) == (1, [])


KNOWN = (
    *("version", "schema_version", "cycle_id", "sequence", "status", "metadata", "context", "phases", "history"),
    *("plan", "execute", "execution", "express", "review", "output", "errors", "error", "error_info", "error_phase"),
    *("error_message", "started_at", "completed_at", "created_at", "updated_at", "current_phase", "phases_completed"),
    *("key_prefix", "cycle_number", "spec_name", "instruction", "cycles", "current_cycle", "event_id", "event_type"),
    *("phase", "timestamp", "sequence_after", "keys", "legacy", "1", "2"),
)
odd = st.sampled_from((1, 2, 1.1, "1", "complete", "PLANNING", "running", "plan", "phase_started", True, [], {}))
odd |= st.sampled_from(("peer.spec.x", "peer:spec:x:cycle:1", "2025-08-01T08:00:00Z", "{", "[1", '"', "\udcff", 2**70))
jumble = st.recursive(
    scalars | odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KNOWN), inner, max_size=6),
)
suffixes = st.sampled_from(("", ":current", ":1", *(f":1:{name}" for name in KNOWN), ":1:context.legacy", ":1:1:1"))
sources = suffixes.map(lambda suffix: f"peer:spec:x:cycle{suffix}") | st.just("peer.spec.x.meta") | st.text(max_size=9)


@settings(max_examples=300)
@given(st.dictionaries(sources, jumble | st.binary(max_size=20), max_size=6))
def test_p8_whatever_there_is_is_read_or_told_and_never_raises(entries: dict[str, Any]) -> None:
    reading = read(entries)
    assert all(problems(document) == [] for document in reading.documents.values())
    assert all(message for _, message in reading.problems)
    told = {source for source, _ in (*reading.problems, *reading.notes)}
    used = {source for names in reading.sources.values() for source in names}
    collections = {name for name, value in entries.items() if isinstance(value, dict) and "keys" in value}
    currents = {name for name in entries if name.endswith("cycle:current")}
    bad = {name for name in entries if name.startswith("peer:spec:x:cycle:1") and not reading.documents}
    assert set(entries) <= told | used | collections | currents | bad, "each has become something, or is told"
