"""The event log: what it records, how it is listed, what compaction keeps (design section 5)."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Op, Workspace, errors
from holdfast.types import EVENT_KINDS
from tests.worlds.kinds import World


def put(run: str, cell: str, value: Any = 1) -> Op:
    """A set, as data."""
    return Op("cells.set", {"run": run, "cell": cell, "value": value})


def several(ws: Workspace) -> None:
    """A log with transactions of several events, several kinds, runs and actors, a delete and a lock."""
    ws.cells.set("run", "a", 0)
    ws.txn([], [put("run", "a", 1), put("run", "b"), put("other", "a")])
    other = ws.using(actor="other")
    other.locks.acquire("a", "other")
    other.txn([], [put("run", "a", 2), Op("cells.delete", {"run": "run", "cell": "b"}), put("run", "a", 3)])
    ws.leases.create(1000)
    ws.txn([], [put("run", f"many-{number}") for number in range(5)])


def test_an_event_says_who_did_what_when_to_which_version(world: World) -> None:
    ws = world.open("me")
    ws.cells.set("run", "cell", {"a": 1})
    world.clock.advance(2)
    ws.cells.delete("run", "cell")
    first, second = ws.events.list()
    assert (first.revision, first.position, first.cursor, first.actor) == (1, 0, "1-0", "me")
    assert (first.kind, first.scope, first.id, first.op) == ("cell", "run", "cell", "set")
    assert (first.version, first.data, first.redacted) == (1, {"value": {"a": 1}}, False)
    assert (second.op, second.version, second.data) == ("delete", 2, {})
    assert second.time - first.time == timedelta(seconds=2)


def test_a_lock_event_says_what_changed_from_what_to_what(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("lock", "me")
    ws.locks.release("lock", "me")
    assert [event.data for event in ws.events.list()] == [
        {"holder": [None, "me"], "token": [None, grant.token]},
        {"holder": ["me", None], "token": [grant.token, None]},
    ]


def test_renewals_and_reads_leave_no_event(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(10)
    ws.locks.acquire("lock", "me", ttl=10)
    ws.cells.set("run", "cell", 1, ttl=10)
    before = ws.revision
    ws.leases.refresh(lease.id)
    ws.locks.refresh("lock", "me")
    ws.locks.acquire("lock", "me", ttl=10)
    ws.cells.refresh_ttl("run", "cell", 10)
    ws.cells.get("run", "cell")
    assert ws.revision == before


def test_a_kind_that_no_event_has_is_refused_with_those_that_there_are(world: World) -> None:
    ws = world.open("me")
    for call in (ws.events.list, ws.watch):
        with pytest.raises(errors.InvalidFilter) as refused:
            call(kinds=["cell", "tsk"])
        assert "'tsk' is not a kind of event" in refused.value.message
        assert "task, cell, run, lock" in refused.value.hint
        assert set(refused.value.kinds) == set(EVENT_KINDS)


def test_events_are_listed_by_kind_id_scope_actor_and_time(world: World) -> None:
    ws = world.open("me")
    several(ws)
    everything = ws.events.list()
    assert [(e.revision, e.position) for e in everything] == sorted((e.revision, e.position) for e in everything)
    assert ws.events.list(kinds=["lock"]) == [e for e in everything if e.kind == "lock"] != []
    assert ws.events.list(kinds=["lock", "lease"]) == [e for e in everything if e.kind in ("lock", "lease")]
    assert ws.events.list(id="a") == [e for e in everything if e.id == "a"]
    assert {e.kind for e in ws.events.list(id="a")} == {"cell", "lock"}
    assert ws.events.list(id=("run", "a")) == [e for e in everything if (e.scope, e.id) == ("run", "a")]
    assert ws.events.list(kinds=["cell"], id=("run", "a")) == ws.events.list(id=("run", "a"))
    assert ws.events.list(actor="other") == [e for e in everything if e.actor == "other"] != []
    assert ws.events.list(kinds=["cell"], actor="other", id="b") == [e for e in everything if e.op == "delete"]
    assert ws.events.list(kinds=["cycle"]) == []
    world.clock.advance(5)
    ws.cells.set("run", "late", 1)
    since = everything[-1].time + timedelta(microseconds=1)
    assert [e.id for e in ws.events.list(since=since)] == ["late"]
    assert len(ws.events.list(since=everything[-1].time)) == len(everything) + 1


def test_events_are_listed_in_pages_by_cursor_without_loss_or_repetition(world: World) -> None:
    ws = world.open()
    several(ws)
    everything = ws.events.list()
    for size in (1, 2, 3, 100):
        pages = [ws.events.list(limit=size)]
        while pages[-1]:
            pages.append(ws.events.list(after=pages[-1][-1].cursor, limit=size))
        assert list(itertools.chain(*pages)) == everything
        assert all(len(page) == size for page in pages[:-2])


def test_the_list_sweeps_first_so_that_what_is_due_is_in_it(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=5)
    world.clock.advance(5)
    last = ws.events.list()[-1]
    assert (last.op, last.actor, last.version) == ("expire", "system", 2)


BAD: dict[str, dict[str, Any]] = {
    "kinds is a string": {"kinds": "cell"},
    "kinds of numbers": {"kinds": [1]},
    "kinds is empty": {"kinds": []},
    "id is a number": {"id": 7},
    "id is too long": {"id": ("a", "b", "c")},
    "actor is a number": {"actor": 7},
    "since is text": {"since": "yesterday"},
    "since after the calendar": {"since": datetime.fromisoformat("9999-12-31T23:59:59-23:59")},
    "since before the calendar": {"since": datetime.fromisoformat("0001-01-01T00:00:00+23:59")},
    "limit 0": {"limit": 0},
    "limit too high": {"limit": 1001},
    "limit True": {"limit": True},
    "negative": {"after": -1},
    "bool": {"after": True},
    "float": {"after": 1.0},
    "no cursor": {"after": "one"},
    "half a cursor": {"after": "1-"},
    "no revision": {"after": "-1"},
    "sign": {"after": "+1"},
    "other digits": {"after": "١"},
    "position beyond any": {"after": "1-99999999999999999999"},
    "revision beyond any": {"after": "9" * 30},
    "too many digits": {"after": "9" * 5000},
}


@pytest.mark.parametrize("what", BAD)
def test_a_filter_or_cursor_that_makes_no_sense_is_invalid(world: World, what: str) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    with pytest.raises(errors.Invalid):
        ws.events.list(**BAD[what])


# --- compaction ------------------------------------------------------------------------------------------------------


def test_compaction_keeps_the_newest_event_of_each_record_and_all_from_the_mark_on(world: World) -> None:
    ws = world.open()
    several(ws)
    everything = ws.events.list()
    gone = ws.events.compact(4)
    kept = [
        e
        for e in everything
        if e.revision >= 4
        or not any(
            (e.kind, e.scope, e.id) == (o.kind, o.scope, o.id) and e.version < o.version and o.revision < 4
            for o in everything
        )
    ]
    assert gone == len(everything) - len(kept) == 1
    assert ws.events.list(after=3) == [*(e for e in everything if e.revision >= 4), ws.events.list(kinds=["log"])[0]]
    assert ws.events.list() == ws.events.list(after=3)
    assert ws.cells.at("run", "a", 2).value == 1  # the newest below the mark
    assert ws.cells.at("other", "a", 1).value == 1
    with pytest.raises(errors.Compacted):
        ws.cells.at("run", "a", 1)


def test_a_cursor_below_the_mark_is_compacted_and_never_a_silent_gap(world: World) -> None:
    ws = world.open()
    several(ws)
    ws.events.compact(4)
    for cursor in (0, 1, 2, "0", "0-0", "2-0", "2-2"):
        with pytest.raises(errors.Compacted) as caught:
            ws.events.list(after=cursor)
        assert caught.value.compacted == 3
        with pytest.raises(errors.Compacted):
            list(ws.watch(after=cursor, timeout=0))
    assert ws.events.list(after=3)[0].revision == 4


def test_history_that_reaches_below_the_mark_gives_what_is_left_and_then_compacted(world: World) -> None:
    ws = world.open()
    for value in range(5):
        ws.cells.set("run", "cell", value)
    ws.events.compact(4)
    assert [version.version for version in ws.cells.history("run", "cell")] == [5, 4, 3]
    assert [version.version for version in ws.cells.history("run", "cell", before=4)] == [3]
    with pytest.raises(errors.Compacted):
        ws.cells.history("run", "cell", before=3)
    for version in (1, 2):
        with pytest.raises(errors.Compacted):
            ws.cells.at("run", "cell", version)
        with pytest.raises(errors.Compacted):
            ws.cells.restore("run", "cell", version)
    with pytest.raises(errors.Compacted):
        ws.cells.watch("run", "cell", after_version=1, timeout=0)


def test_versions_go_on_counting_after_compaction(world: World) -> None:
    ws = world.open()
    for _ in range(3):
        ws.cells.set("run", "kept", 1)
        ws.cells.set("run", "deleted", 1)
    ws.cells.set("gone", "cell", 1)
    ws.cells.delete("run", "deleted")
    ws.cells.delete_run("gone")
    tokens = [ws.locks.acquire("lock", "me").token]
    ws.locks.release("lock", "me")
    ws.events.compact(ws.revision + 1)
    assert ws.cells.set("run", "kept", 1) == 4
    assert ws.cells.set("run", "deleted", 1) == 5
    assert ws.cells.set("gone", "cell", 1) == 3
    tokens.append(ws.locks.acquire("lock", "me").token)
    assert tokens == sorted(set(tokens))
    assert [event.version for event in ws.events.list(kinds=["lock"])] == [3]


def test_compaction_is_an_event_itself_and_may_be_repeated(world: World) -> None:
    ws = world.open()
    for value in range(4):
        ws.cells.set("run", "cell", value)
    assert ws.events.compact(4) == 2
    assert ws.events.compact(4) == ws.events.compact(2) == 0
    assert ws.revision == 5
    assert ws.events.compact(6) == 1
    assert [event.op for event in ws.events.list()] == ["compact"]
    assert ws.cells.get("run", "cell").value == 3


def told(ws: Workspace, id: str) -> dict[int, tuple[Any, ...]]:
    """The notes, reasons, summaries and results of a task by version, as its history has them."""
    notes = {e.version: (e.op, e.changed_by, e.note) for e in ws.tasks.history(id) if e.note is not None}
    results = {-e.version: (e.op, e.changed_by, e.new_value) for e in ws.tasks.history(id, field="result")}
    return notes | results


def worked(ws: Workspace) -> str:
    """A task with a note or reason at every kind of step, and changes without any between them."""
    id = ws.tasks.create("worked").id
    for number in range(3):
        ws.tasks.note(id, f"note {number}")
    ws.tasks.claim(id)
    ws.tasks.release(id, reason="lunch")
    ws.tasks.claim(id)
    ws.tasks.block(id, reason="no key")
    ws.tasks.unblock(id)
    ws.tasks.claim(id)
    ws.tasks.complete(id, result={"pages": 3}, summary="done", review=True)
    ws.tasks.reject(id, reason="too short")
    ws.tasks.unblock(id)
    ws.tasks.claim(id)
    ws.tasks.complete(id, result={"pages": 9})
    ws.tasks.reopen(id, "one more")
    ws.tasks.delete(id, reason="a duplicate")
    ws.tasks.restore(id)
    ws.tasks.update(id, title="worked on")
    return id


def test_compaction_keeps_what_was_said_of_tasks_that_are_not_purged(world: World) -> None:
    ws = world.open("ann")
    id, gone = worked(ws), worked(ws)
    bare = ws.tasks.create("bare").id
    for priority in (1, 3, 0):
        ws.tasks.update(bare, priority=priority)
    before = told(ws, id), ws.tasks.resume(id).notes, ws.tasks.export(), ws.tasks.resume(id).ended
    assert len(before[0]) == 11
    ws.tasks.purge(gone)
    exported = [line for line in before[2] if gone not in line]
    assert ws.events.compact(ws.revision + 1) > 20
    assert (told(ws, id), ws.tasks.resume(id).notes, ws.tasks.export(), ws.tasks.resume(id).ended) == (
        *before[:2],
        exported,
        before[3],
    )
    assert [entry.op for entry in ws.tasks.history(gone)] == ["purge"]
    assert [entry.new_value for entry in ws.tasks.history(bare)] == [0]
    assert ws.check().ok


def test_compaction_keeps_how_the_last_claim_of_a_task_ended(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    id = ws.tasks.create("claimed").id
    ws.tasks.claim(id)
    ws.tasks.release(id, reason="lunch")
    other.tasks.claim(id)
    other.tasks.release(id)
    ws.tasks.update(id, priority=1)
    before = ws.tasks.resume(id)
    ws.events.compact(ws.revision + 1)
    after = ws.tasks.resume(id)
    assert (after.last_holder, after.ended, after.ended_at) == ("bob", "release", before.ended_at)
    with pytest.raises(errors.NotClaimOwner):
        ws.tasks.heartbeat(id)


def test_history_of_a_field_whose_past_is_compacted_says_so(world: World) -> None:
    ws = world.open()
    id = ws.tasks.create("task", priority=4).id
    ws.tasks.update(id, priority=3)
    ws.tasks.note(id, "a note")
    ws.tasks.update(id, priority=2)
    ws.tasks.update(id, body="text")
    world.clock.advance(60)
    ws.tasks.update(id, title="new")
    ws.events.compact(ws.revision + 1)
    assert [entry.field for entry in ws.tasks.history(id)] == ["title", "note"]
    assert [entry.field for entry in ws.tasks.history(id, field="note")] == ["note"]
    for before in (None, 6, 5, 3):
        with pytest.raises(errors.Compacted):
            ws.tasks.history(id, field="priority", before=before)
    with pytest.raises(errors.Compacted):
        ws.tasks.history(id, before=3)
    fresh = ws.tasks.create("fresh").id
    assert ws.tasks.history(fresh, field="body", before=9) == []
    late = ws.tasks.history(id)[0].changed_at
    assert ws.tasks.history(id, field="priority", since=late + timedelta(seconds=1)) == []
    ws.tasks.update(id, priority=0)
    assert [entry.new_value for entry in ws.tasks.history(id, field="priority")] == [0]
    assert ws.tasks.history(id, field="body", since=late + timedelta(seconds=1)) == []


def test_a_compacted_version_of_a_stash_cannot_be_restored_and_says_why(world: World) -> None:
    ws = world.open()
    stash = ws.stashes.create("notes", "context", value={"n": 1}).id
    for number in (2, 3, 4):
        ws.stashes.set_value(stash, {"n": number})
    ws.events.compact(4)
    for version in (1, 2):
        with pytest.raises(errors.Compacted):
            ws.stashes.restore(stash, version)
    with pytest.raises(errors.NotFound):
        ws.stashes.restore(stash, 9)
    assert ws.stashes.restore(stash, 3).value == {"n": 3}


def test_a_compaction_that_removes_nothing_voids_no_cursor(world: World) -> None:
    ws = world.open()
    for number in range(5):
        ws.tasks.create(f"task {number}")
    revision = ws.revision
    assert ws.events.compact(4) == 0
    assert ws.revision == revision
    assert len(ws.events.list(after=0)) == len(ws.events.list()) == 5
    assert ws.events.list().compacted is None


@pytest.mark.parametrize("before", [0, -1, 3, True, 1.5, "1", None])
def test_compaction_before_what_is_no_revision_is_invalid_and_nothing_changes(world: World, before: Any) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    with pytest.raises(errors.Invalid):
        ws.events.compact(before)
    assert ws.revision == 1


@pytest.mark.capability("local")  # every machine counts for itself
def test_refusals_are_counted_by_actor_and_code_and_are_no_events(world: World) -> None:
    ws = world.open("me")
    ws.cells.set("run", "cell", 1)
    ws.locks.acquire("lock", "me")
    before = ws.revision
    other = ws.using(actor="other")
    for _ in range(3):
        with pytest.raises(errors.Held):
            other.locks.acquire("lock", "other")
    with pytest.raises(errors.VersionMismatch):
        other.cells.cas("run", "cell", 7, 2)
    with pytest.raises(errors.VersionMismatch):
        ws.cells.cas("run", "cell", 7, 2)
    with pytest.raises(errors.NotFound):
        ws.cells.get("run", "absent")  # a mistake, but nobody stood in the way
    counted = {(each.actor, each.code): each.count for each in ws.events.refusals()}
    assert counted == {("other", "HELD"): 3, ("other", "VERSION_MISMATCH"): 1, ("me", "VERSION_MISMATCH"): 1}
    assert {each.code: each.count for each in ws.events.refusals(actor="me")} == {"VERSION_MISMATCH": 1}
    assert ws.revision == before
    last = max(each.last for each in ws.events.refusals())
    assert ws.events.refusals(since=last + timedelta(seconds=1)) == []
