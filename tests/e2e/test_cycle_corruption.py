"""Documents of cycles that somebody else changed, behind the workspace's back (P6): noticed, and brought back.

Each mutation goes through a connection of its own into the file. Whatever changed a document, the next read, the check
and the list say so, no step is taken on it, and `recover` brings back what was written, keeps what it found, and the
cycle goes on. The full number, and other mutations:

    CYCLE_MUTATIONS=1000 CYCLE_SEED=7 python -m pytest -p no:randomly tests/e2e/test_cycle_corruption.py
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel.store_files import FILE
from holdfast.types.cycles import CycleProblem
from tests.conformance.test_cycles import PHASES, bring_to

MUTATIONS = int(os.environ.get("CYCLE_MUTATIONS", "200"))
SEED = int(os.environ.get("CYCLE_SEED", "20260301"))
BATCH = 50  # mutations of one store: its log stays short
CYCLES = 6  # in a store, each at another place
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    3.5,
    "",
    "text",
    "pending",
    [],
    [1],
    {},
    {"status": "pending"},
)
Document = dict[str, Any]


# --- documents to break ----------------------------------------------------------------------------------------------


def fill(ws: holdfast.Workspace) -> list[str]:
    """Cycles at different places, with values of every type in them."""
    keys = []
    for number in range(CYCLES):
        context = {"ä": "ö ☃ \U0001f600", "quote": 'a "b" \\ c', "n": [0, -7, 1.5, 2**62, True, None]}
        key = ws.cycles.start(spec=f"s{number}", instruction="do", context=context).cycle_id
        phase = (*PHASES, "plan", "execute")[number]
        bring_to(ws, key, phase)
        ws.cycles.update_phase(key, phase, {"so": {"far": [1, "two"]}})
        ws.cycles.add_error(key, phase, "slow", {"attempt": number})
        keys.append(key)
    return keys


def same(one: Any, other: Any) -> bool:
    """Whether two values of JSON are the same, of the same types."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all that is inside a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for name, each in inside for found in ((*way, name), *places(each, (*way, name)))]


def holder(document: Any, way: tuple[Any, ...]) -> Any:
    """What has the last step of a way."""
    for step in way[:-1]:
        document = document[step]
    return document


# --- mutations -------------------------------------------------------------------------------------------------------


def flip(random: random.Random, raw: bytes, _: Document) -> bytes:
    """One to three bits."""
    changed = bytearray(raw)
    for _bit in range(random.randint(1, 3)):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(random: random.Random, raw: bytes, _: Document) -> bytes:
    """A part is missing, at the end or inside."""
    begin = random.randrange(len(raw))
    return raw[:begin] + raw[begin + random.randint(1, len(raw)) :]


def insert(random: random.Random, raw: bytes, _: Document) -> bytes:
    """Bytes that do not belong there."""
    at = random.randrange(len(raw) + 1)
    return (
        raw[:at] + random.choice((b"\x00", b" ", b"\xff\xfe", b"0", b'"', b",", b"}", b"null", b"[" * 5000)) + raw[at:]
    )


def as_json(change: Callable[[random.Random, Document], Any]) -> Callable[[random.Random, bytes, Document], bytes]:
    """A change of the document, written as JSON again."""

    def mutate(random: random.Random, _: bytes, document: Document) -> bytes:
        changed = deepcopy(document)
        answer = change(random, changed)
        return json.dumps(changed if answer is None else answer, ensure_ascii=random.random() < 0.5).encode()

    return mutate


def drop(random: random.Random, document: Document) -> None:
    """A field or an entry is missing."""
    way = random.choice(places(document))
    del holder(document, way)[way[-1]]


def retype(random: random.Random, document: Document) -> None:
    """A value becomes something else."""
    way = random.choice(places(document))
    holder(document, way)[way[-1]] = random.choice(OTHERS)


def reorder(random: random.Random, document: Document) -> None:
    """The history in another order, doubled, or with other numbers."""
    history = document["history"]
    how = random.randrange(4)
    if how == 0:
        history.append(history[0])
    elif how == 1:
        history.reverse()
        history.insert(0, dict(history[-1]))
    elif how == 2:
        entry = random.choice(history)
        entry["sequence"] += random.choice((-1, 1, 100))
    else:
        random.choice(history)["event"] = random.choice(("started", "completed", "failed", "noted"))


def reword(random: random.Random, document: Document) -> None:
    """What every rule still allows: other words, another time, another output, one error less."""
    phase = document["metadata"]["current_phase"]
    how = random.randrange(8)
    if how == 0:
        document["context"]["quote"] = f"never said {random.random()}"
    elif how == 1:
        document["metadata"]["created_at"] = "2001-01-01T00:00:00Z"
    elif how == 2:
        document["phases"][phase]["output"]["so"]["far"].append(random.randrange(10))
    elif how == 3:
        document["phases"][phase]["errors"].pop()
    elif how == 4:
        document["metadata"]["instruction"] = "something else"
    elif how == 5:
        document["context"]["n"][random.choice((0, 4))] = random.choice((0.0, 1, "0"))
    elif how == 6:
        document["phases"][phase]["started_at"] = None
    else:
        del document["metadata"]["current_phase"]


def other_json(random: random.Random, document: Document) -> Any:
    """Something else altogether."""
    return random.choice((*OTHERS[1:], [document], {"document": document}, document["phases"]))


KINDS: dict[str, Callable[[random.Random, bytes, Document], bytes]] = {
    "bits flipped": flip,
    "cut": cut,
    "inserted": insert,
    "field missing": as_json(drop),
    "value of another type": as_json(retype),
    "history rewritten": as_json(reorder),
    "allowed by every rule": as_json(reword),
    "something else": as_json(other_json),
}
WHOLE = (
    "another cycle's",
    "its own of before",
    "its row of before",
    "text in place of bytes",
    "a number",
    "row gone",
    "row's sequence",
)


def mutate(db: apsw.Connection, random: random.Random, kind: str, key: str, old: bytes, other: bytes) -> bytes | None:
    """Change the row of a cycle; answers its bytes afterwards, None if it is gone."""
    prefix, _, number = key.rpartition(":cycle:")
    raw: Any
    (raw,) = db.execute("SELECT document FROM cycles WHERE prefix = ? AND number = ?", (prefix, number)).fetchall()[0]
    new: Any = None
    if kind in KINDS:
        new = KINDS[kind](random, raw, json.loads(raw))
    elif kind == "another cycle's":
        new = other
    elif kind == "its own of before":
        new = old
    elif kind == "its row of before":
        new = old
        db.execute(
            "UPDATE cycles SET sequence = ? WHERE prefix = ? AND number = ?",
            (json.loads(old)["sequence"], prefix, number),
        )
    elif kind == "text in place of bytes":
        text: bytes = random.choice((raw[:-1], raw + b"\xff", b"\xc3(", raw.replace(b"in_progress", b"pending")))
        db.execute(
            "UPDATE cycles SET document = CAST(? AS TEXT) WHERE prefix = ? AND number = ?", (text, prefix, number)
        )
        return text
    elif kind == "a number":
        new = random.choice((0, 42, 1.5, -1, 2**62))
    elif kind == "row's sequence":
        db.execute(
            "UPDATE cycles SET sequence = sequence + ? WHERE prefix = ? AND number = ?",
            (random.choice((-1, 1, 40)), prefix, number),
        )
        return bytes(raw)
    else:
        db.execute("DELETE FROM cycles WHERE prefix = ? AND number = ?", (prefix, number))
        return None
    db.execute("UPDATE cycles SET document = ? WHERE prefix = ? AND number = ?", (new, prefix, number))
    return new if isinstance(new, bytes) else str(new).encode()


def how_noticed(problems: list[CycleProblem]) -> str:
    """Which of the ways to notice it was."""
    told = problems[0].message
    for word, how in (
        ("is not JSON", "no JSON"),
        ("not what was written", "not what was written"),
        ("was not deleted", "gone"),
    ):
        if word in told:
            return how
    return "not its row's" if ", its row" in told else "a rule"


# --- the proof -------------------------------------------------------------------------------------------------------


def broken(ws: holdfast.Workspace, key: str) -> list[CycleProblem]:
    """What is wrong with a cycle, which everybody who looks is told."""
    with pytest.raises(errors.Corrupt) as caught:
        ws.cycles.get(key)
    problems = [CycleProblem(**problem) for problem in caught.value.details["problems"]]
    assert problems
    assert key in str(caught.value)
    before = ws.revision
    for call in (
        lambda: ws.cycles.export(key),
        lambda: ws.cycles.finish(key, "why"),
        lambda: ws.cycles.update_phase(key, "plan", {"a": 1}, sequence=1),
        lambda: ws.cycles.delete(key),
        lambda: ws.cycles.resume(spec=key.split(":")[2]),
    ):
        with pytest.raises(errors.Corrupt):
            call()
    assert ws.revision == before
    assert [info.status for info in ws.cycles.list() if info.key == key] == ["corrupt"]
    assert [info.key for info in ws.cycles.list() if info.status == "corrupt"] == [key]
    assert [line for line in ws.check().problems if line.startswith(f"cycle {key}: ")]
    return problems


def recovered(
    ws: holdfast.Workspace, key: str, sound: Document, raw: bytes | None, problems: list[CycleProblem]
) -> bool:
    """Bring it back, and see that it is what was written; answers whether something was lost."""
    answer = ws.cycles.recover(key)
    assert (answer.problems, answer.recovered_from) == (problems, sound["sequence"])
    assert answer.snapshot == (None if raw is None else raw.decode("utf-8", "backslashreplace"))
    document = ws.cycles.export(key)
    entry = document["history"].pop()
    assert (entry["event"], entry["sequence"], document["sequence"]) == ("recovered", *[sound["sequence"] + 1] * 2)
    updated = {**sound["metadata"], "updated_at": document["metadata"]["updated_at"]}
    assert same(document, {**sound, "sequence": sound["sequence"] + 1, "metadata": updated})
    event = ws.events.list(kinds=["cycle"], id=key, limit=1000)[-1]
    assert (event.op, event.version) == ("recover", sound["sequence"] + 1)
    assert (event.data["snapshot"], event.data["recovered_from"]) == (answer.snapshot, sound["sequence"])
    phase = sound["metadata"]["current_phase"]
    then = ws.cycles.update_phase(key, phase, {"goes": "on"}, sequence=sound["sequence"] + 1)
    assert then.sequence == sound["sequence"] + 2
    assert ws.cycles.validate(ws.cycles.export(key)) == []
    assert ws.cycles.recover(key).problems == []
    return bool(answer.lost)


def end(ws: holdfast.Workspace, key: str) -> None:
    """Bring a cycle to its end."""
    found = ws.cycles.resume(spec=key.split(":")[2])
    while found.phase is not None:
        if not found.started:
            ws.cycles.start_phase(key, found.phase)
        ws.cycles.complete_phase(key, found.phase, {"at": "last"})
        found = ws.cycles.resume(spec=key.split(":")[2])
    assert ws.cycles.finish(key).metadata.status == "completed"


def run(folder: Path, chance: random.Random, kinds: list[str], seen: Counter[tuple[str, str]]) -> int:
    """Mutations of one store; answers how many left the document as it was."""
    harmless = 0
    with holdfast.open(folder, actor="watchful") as ws:
        keys = fill(ws)
        first = {key: json.dumps(ws.cycles.export(key)).encode() for key in keys}
        for key in keys:
            ws.cycles.add_error(key, ws.cycles.export(key)["metadata"]["current_phase"], "again")
        db = apsw.Connection(str(folder / FILE))
        db.set_busy_timeout(10_000)
        for kind in kinds:
            key, other = chance.sample(keys, 2)
            sound = ws.cycles.export(key)
            raw = mutate(db, chance, kind, key, first[key], json.dumps(ws.cycles.export(other)).encode())
            if kind != "row's sequence" and raw is not None and is_same(raw, sound):
                assert same(ws.cycles.export(key), sound)
                harmless += 1
                seen[kind, "the same document"] += 1
                continue
            problems = broken(ws, key)
            seen[kind, how_noticed(problems)] += 1
            lost = recovered(ws, key, sound, raw, problems)
            assert lost == (kind != "row's sequence"), "what the broken document said is told"
        db.close()
        assert ws.check().problems == []
        for key in keys:
            end(ws, key)
        assert ws.check().problems == []
    return harmless


def is_same(raw: bytes, sound: Document) -> bool:
    """Whether bytes still say what was written."""
    try:
        return same(json.loads(raw), sound)
    except (ValueError, RecursionError):
        return False


@pytest.mark.early
@pytest.mark.timeout(900)
def test_p6_every_change_of_a_document_by_somebody_else_is_noticed_and_what_was_written_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED)
    kinds = [(*KINDS, *WHOLE)[number % (len(KINDS) + len(WHOLE))] for number in range(MUTATIONS)]
    chance.shuffle(kinds)
    seen: Counter[tuple[str, str]] = Counter()
    harmless = sum(
        run(tmp_path / f"store-{first}", chance, kinds[first : first + BATCH], seen)
        for first in range(0, MUTATIONS, BATCH)
    )
    ways: Counter[str] = Counter()
    for (_, way), count in seen.items():
        ways[way] += count
    with capsys.disabled():
        print(f"\n{MUTATIONS} mutations of stored cycles, {MUTATIONS - harmless} changed one and all were noticed;")
        print("  " + ", ".join(f"{way} {count}" for way, count in ways.most_common()))
        for kind in (*KINDS, *WHOLE):
            told = ", ".join(f"{way} {count}" for (each, way), count in sorted(seen.items()) if each == kind)
            print(f"  {kind}: {told}")
    assert sum(seen.values()) == MUTATIONS
    assert MUTATIONS < 200 or {"no JSON", "a rule", "not what was written", "gone", "not its row's"} <= {*ways}


def test_p6_an_event_that_nobody_can_read_is_noticed_and_the_version_before_comes_back(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="watchful") as ws:
        key = fill(ws)[0]
        sound = ws.cycles.export(key)
        before = ws.cycles.export(key, sound["sequence"] - 1)
        db = apsw.Connection(str(tmp_path / "store" / FILE))
        db.execute(
            "UPDATE log SET data = x'c1' WHERE version = ?"
            " AND record = (SELECT key FROM records WHERE kind = 'cycle' AND id = ?)",
            (sound["sequence"], key),
        )
        db.close()
        problems = broken(ws, key)
        answer = ws.cycles.recover(key)
        assert (answer.problems, answer.recovered_from) == (problems, before["sequence"])
        assert answer.cycle.sequence == sound["sequence"] + 1, "no sequence is used twice"
        assert answer.snapshot is not None
        assert same(json.loads(answer.snapshot), sound)
        assert "$.phases.plan.errors" in {problem.path for problem in answer.lost}
        assert same(ws.cycles.export(key)["phases"], before["phases"])
        assert ws.check().problems == []
        end(ws, key)


def test_p6_a_row_that_nobody_wrote_is_taken_as_it_is_or_can_be_deleted(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        first = ws.cycles.start(spec="s").cycle_id
        document = ws.cycles.export(first)
    for number, text in ((2, document), (3, "no document")):
        if isinstance(text, dict):
            metadata = {**document["metadata"], "cycle_number": number}
            text = json.dumps({**document, "cycle_id": f"peer:spec:s:cycle:{number}", "metadata": metadata})
        raw = apsw.Connection(str(tmp_path / "store" / FILE))
        raw.execute(
            "INSERT INTO cycles SELECT prefix, ?, sequence, revision, created, updated, ?, shared FROM cycles"
            " WHERE number = 1",
            (number, text),
        )
        raw.close()
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        told = "\n".join(ws.check().problems)
        assert "cycle:2" in told
        assert "cycle:3" in told
        assert "the current cycle of peer:spec:s is 1, but 3 exists" in told
        recovered = ws.cycles.recover("peer:spec:s:cycle:2")
        assert (recovered.recovered_from, recovered.lost) == (0, [])
        with pytest.raises(errors.Corrupt) as hopeless:
            ws.cycles.recover("peer:spec:s:cycle:3")
        assert "force" in hopeless.value.hint
        ws.cycles.delete("peer:spec:s:cycle:3", force=True)
        assert ws.cycles.start(spec="s").metadata.cycle_number == 4
        assert ws.check().problems == []


def test_p2_a_current_cycle_that_was_forgotten_is_told_and_the_next_start_mends_it(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        ws.cycles.start(spec="s")
        ws.cycles.start(spec="s")
    raw = apsw.Connection(str(tmp_path / "store" / FILE))
    raw.execute("DELETE FROM cycle_currents")
    raw.close()
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        assert ws.check().problems == ["the current cycle of peer:spec:s is not recorded; its last one is 2"]
        assert ws.cycles.start(spec="s").metadata.cycle_number == 3
        assert ws.check().problems == []


def test_an_event_that_cannot_be_read_is_corrupt_and_no_crash(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        ws.cells.set("run", "cell", 1)
    raw = apsw.Connection(str(tmp_path / "store" / FILE))
    raw.execute("UPDATE log SET data = x'c1'")
    raw.close()
    with holdfast.open(tmp_path / "store", actor="judge") as ws, pytest.raises(errors.Corrupt):
        ws.events.list()
