"""What a cell remembers, what it tells without its value, and how it ends (C3, C9, C10, C12)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import errors
from holdfast.domains import cell_history
from holdfast.kernel.tx import Snapshot
from holdfast.workspace import Workspace
from holdfast.workspace.transaction import Transaction
from tests.conformance.test_cells import Refusal
from tests.worlds.kinds import World


def steps(ws: Workspace, cell: str = "cell") -> list[tuple[int, Any, str]]:
    """The history of a cell, in short."""
    return [(step.version, step.value, step.op) for step in ws.cells.history("run", cell)]


# --- versions are never reset ----------------------------------------------------------------------------------------


def test_c3_the_version_survives_a_delete_and_the_history_keeps_the_delete(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "a")
    ws.cells.delete("run", "cell")
    assert ws.cells.set("run", "cell", "b") == 3
    assert ws.cells.get("run", "cell").version == 3
    assert steps(ws) == [(3, "b", "set"), (2, None, "delete"), (1, "a", "set")]
    assert [step.deleted for step in ws.cells.history("run", "cell")] == [False, True, False]


def test_c3_the_version_survives_an_expiry(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "a", ttl=5)
    world.clock.advance(5)
    assert ws.cells.set("run", "cell", "b") == 3
    assert steps(ws) == [(3, "b", "set"), (2, None, "expire"), (1, "a", "set")]


@pytest.mark.parametrize("again", ["set", "cas", "init", "get_or_init", "increment", "restore"])
def test_c3_every_way_to_make_a_deleted_cell_again_counts_on(world: World, again: str) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    ws.cells.delete("run", "cell")
    getattr(ws.cells, again)("run", "cell", *((None, 1) if again == "cas" else (1,)))
    assert ws.cells.get("run", "cell").version == 3


def test_c3_a_deleted_run_made_again_goes_on_from_its_highest_version(world: World) -> None:
    ws = world.open()
    for _ in range(7):
        ws.cells.set("run", "busy", 1)
    ws.cells.set("run", "quiet", 1)
    ws.cells.delete_run("run")
    highest = ws.cells.history("run", "busy")[0].version
    assert highest == 8  # the delete counts
    assert ws.cells.set("run", "quiet", 2) > highest
    assert ws.cells.set("run", "never was", 1) > highest
    assert ws.cells.set("run", "busy", 2) > highest
    ws.cells.delete_run("run")
    assert ws.cells.set("run", "busy", 3) > highest + 1
    assert ws.cells.set("other", "cell", 1) == 1


def test_c3_a_run_whose_cells_were_deleted_before_it_goes_on_from_its_highest_version_too(world: World) -> None:
    ws = world.open()
    for _ in range(5):
        ws.cells.set("run", "gone", 1)
    ws.cells.delete("run", "gone")
    ws.cells.delete_run("run")
    assert ws.cells.set("run", "fresh", 1) > 6


@pytest.mark.parametrize("end", ["delete", "expire", "delete_run"])
def test_c4_a_cell_made_again_with_the_same_value_never_matches_an_old_version(world: World, end: str) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "same", ttl=5)
    seen = ws.cells.get("run", "cell")
    ends: dict[str, Callable[[], object]] = {
        "delete": lambda: ws.cells.delete("run", "cell"),
        "expire": lambda: world.clock.advance(5),
        "delete_run": lambda: ws.cells.delete_run("run"),
    }
    ends[end]()
    ws.cells.set("run", "cell", "same")
    with pytest.raises(errors.VersionMismatch):
        ws.cells.cas("run", "cell", seen.version, "mine")
    with pytest.raises(errors.VersionMismatch):
        ws.cells.compare_and_delete("run", "cell", seen.version)
    assert ws.cells.get("run", "cell").value == "same"


# --- history, old values, restore ------------------------------------------------------------------------------------


def test_c9_history_tells_newest_first_who_wrote_what_when_and_how(world: World) -> None:
    one, other = world.open("one"), world.open("other")
    one.cells.init("run", "cell", 1)
    world.clock.advance(1)
    other.cells.cas("run", "cell", 1, 2)
    one.cells.increment("run", "cell", 3)
    one.cells.delete("run", "cell")
    told = one.cells.history("run", "cell")
    assert [(step.version, step.value, step.op, step.actor) for step in told] == [
        (4, None, "delete", "one"),
        (3, 5, "increment", "one"),
        (2, 2, "cas", "other"),
        (1, 1, "init", "one"),
    ]
    assert [step.revision for step in told] == [4, 3, 2, 1]
    assert told[-2].time - told[-1].time == timedelta(seconds=1)


def test_c9_the_history_of_a_cell_that_never_was_is_not_found(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "other", 1)
    with pytest.raises(errors.NotFound):
        ws.cells.history("run", "cell")


@pytest.mark.parametrize("limit", [1, 3, 4, 100])
def test_c9_pages_of_the_history_are_full_and_together_the_whole(world: World, limit: int) -> None:
    ws = world.open()
    for number in range(12):
        ws.cells.set("run", "cell", number)
        ws.cells.set("run", "noise", number)  # somebody else's events are filtered out before the limit
    pages = [ws.cells.history("run", "cell", limit=limit)]
    while pages[-1] and pages[-1][-1].version > 1:
        pages.append(ws.cells.history("run", "cell", limit=limit, before=pages[-1][-1].version))
    assert [step.version for page in pages for step in page] == list(range(12, 0, -1))
    assert all(len(page) == limit for page in pages[:-1])


def test_c9_before_is_an_exclusive_version(world: World) -> None:
    ws = world.open()
    for number in range(5):
        ws.cells.set("run", "cell", number)
    assert [step.version for step in ws.cells.history("run", "cell", before=4)] == [3, 2, 1]
    assert [step.version for step in ws.cells.history("run", "cell", before=4, limit=2)] == [3, 2]
    assert [step.version for step in ws.cells.history("run", "cell", before=100, limit=1)] == [5]
    assert ws.cells.history("run", "cell", before=1) == []


def test_c9_at_answers_an_old_value_with_its_version_revision_and_time(world: World) -> None:
    ws = world.open()
    seen = []
    for value in ("a", None, {"c": 1.0}):
        ws.cells.set("run", "cell", value)
        seen.append(ws.cells.get("run", "cell"))
        world.clock.advance(1)
    ws.cells.delete("run", "cell")
    assert [ws.cells.at("run", "cell", version) for version in (1, 2, 3)] == seen


@pytest.mark.parametrize("version", [2, 4], ids=["deleted then", "not yet"])
def test_c9_at_a_version_without_a_value_is_not_found(world: World, version: int) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "a")
    ws.cells.delete("run", "cell")
    ws.cells.set("run", "cell", "b")
    for look in (ws.cells.at, ws.cells.restore):
        with pytest.raises(errors.NotFound):
            look("run", "cell", version)
    assert ws.cells.get("run", "cell").version == 3


def test_c9_restore_writes_an_old_value_as_a_new_version(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", [1.0])
    ws.cells.set("run", "cell", "mistake")
    assert ws.cells.restore("run", "cell", 1) == 3
    assert repr(ws.cells.get("run", "cell").value) == "[1.0]"
    ws.cells.delete("run", "cell")
    assert ws.cells.restore("run", "cell", 2) == 5
    assert steps(ws)[0] == (5, "mistake", "restore")
    assert len(steps(ws)) == 5


def test_c9_compacted_history_gives_what_is_left_and_then_says_so(world: World) -> None:
    ws = world.open()
    for number in range(6):
        ws.cells.set("run", "cell", number)
    ws.events.compact(before=4)
    left = ws.cells.history("run", "cell")
    assert [step.version for step in left] == [6, 5, 4, 3]
    with pytest.raises(errors.Compacted):
        ws.cells.history("run", "cell", before=3)
    for version in (1, 2):
        with pytest.raises(errors.Compacted):
            ws.cells.at("run", "cell", version)
    assert ws.cells.at("run", "cell", 3).value == 2
    ws.cells.delete("run", "cell")
    assert ws.cells.set("run", "cell", 0) == 8


# --- about a cell, without its value ---------------------------------------------------------------------------------


def test_c10_info_tells_version_time_size_and_expiry(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "old", ttl=1)
    ws.cells.set("run", "cell", "x" * 100, ttl=60)
    found, info = ws.cells.get("run", "cell"), ws.cells.info("run", "cell")
    assert info.exists
    assert (info.version, info.revision, info.updated_at) == (found.version, found.revision, found.updated_at)
    assert info.size == 102  # as stored: two bytes say what and how long
    assert info.expires_at == found.updated_at + timedelta(seconds=60)
    ws.cells.set("run", "cell", "x")
    assert ws.cells.info("run", "cell").expires_at is None


def test_c10_info_of_an_absent_cell_is_exists_false_and_the_rest_none(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "deleted", 1)
    ws.cells.delete("run", "deleted")
    for cell in ("never", "deleted"):
        info = ws.cells.info("run", cell)
        assert info.exists is False
        assert (info.version, info.revision, info.updated_at, info.size, info.expires_at) == (None,) * 5


@pytest.mark.capability("local")
def test_c10_info_reads_none_of_the_pages_of_a_value_of_1_mb(world: World) -> None:
    import apsw

    ws = world.open()
    ws.cells.set("run", "cell", b"\xa5" * 1_000_000, ttl=60)
    pages = 1_000_000 // 4096

    def read_by(read: Any) -> int:
        connection = ws._engine.store.connect_reader()  # fresh, so that every page it needs is a miss in its cache
        try:
            read(Snapshot(connection, ws._engine.time), "run", "cell")
            return connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0]
        finally:
            connection.close()

    assert read_by(cell_history.find_cell) >= pages  # the measure is one
    assert 0 < read_by(cell_history.info) < 30
    assert 0 < read_by(cell_history.exists) < 30
    assert 0 < read_by(cell_history.ttl) < 30


@pytest.mark.capability("local")
@pytest.mark.capability("callables")
def test_c10_info_does_not_decode_the_value(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", b"\xa5" * 1_000_000)
    known = ws.cells.info("run", "cell")

    def look_at_rubbish(tx: Transaction) -> None:
        tx._tx.run("UPDATE cells SET value = x'c1'")  # what no decoder reads
        with pytest.raises(errors.Corrupt):
            tx.cells.get("run", "cell")
        assert tx.cells.info("run", "cell") == known
        raise Refusal  # so that it never happened

    with pytest.raises(Refusal):
        ws.transact(look_at_rubbish)
    assert len(ws.cells.get("run", "cell").value) == 1_000_000


# --- the end of a cell -----------------------------------------------------------------------------------------------


def test_c12_ttl_tells_the_seconds_that_remain_and_none_without_an_end(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=10)
    assert ws.cells.ttl("run", "cell") == 10
    world.clock.advance(9.25)
    assert ws.cells.ttl("run", "cell") == 0.75
    ws.cells.set("run", "endless", 1)
    assert ws.cells.ttl("run", "endless") is None
    with pytest.raises(errors.NotFound):
        ws.cells.ttl("run", "never was")


def test_c12_after_the_deadline_no_read_finds_the_cell(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "value", ttl=5)
    world.clock.advance(4.999999)
    assert ws.cells.get("run", "cell").value == "value"
    world.clock.advance(0.000001)
    assert ws.cells.find("run", "cell") is None
    assert not ws.cells.exists("run", "cell")
    assert not ws.cells.info("run", "cell").exists
    for read in (ws.cells.get, ws.cells.ttl):
        with pytest.raises(errors.NotFound):
            read("run", "cell")
    assert (ws.cells.list("run"), ws.cells.runs()) == ([], [])


def test_c12_after_the_deadline_no_write_finds_the_cell(world: World) -> None:
    ws = world.open()
    for cell in ("a", "b", "c", "d", "e"):
        ws.cells.set("run", cell, 100, ttl=5)
    world.clock.advance(5)
    assert ws.cells.delete("run", "a") is False
    assert ws.cells.refresh_ttl("run", "a", 60) is False
    with pytest.raises(errors.VersionMismatch) as caught:
        ws.cells.cas("run", "b", 1, "mine")
    assert caught.value.version is None
    assert ws.cells.cas("run", "b", None, "mine") == 3
    assert ws.cells.init("run", "c", "mine") == 3
    assert ws.cells.increment("run", "d") == 1
    assert ws.cells.get_or_init("run", "e", "mine").version == 3
    assert ws.cells.delete_run("run") == 4


def test_c12_an_expire_event_follows_without_other_traffic(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "value", ttl=5)
    changes = ws.cells.watch_stream("run", "cell")
    world.clock.advance(5)
    change = next(changes)
    assert (change.op, change.old, change.new, change.version) == ("expire", "value", None, 2)
    assert (change.deleted, change.actor) == (True, "system")
    [last] = ws.events.list(kinds=["cell"], after=1)
    assert (last.op, last.scope, last.id, last.version, last.revision) == ("expire", "run", "cell", 2, 2)


def test_c12_cells_end_at_their_own_deadlines_however_they_were_written(world: World) -> None:
    ws = world.open()
    for cell, ttl in (("late", 20), ("early", 5), ("middle", 10)):
        ws.cells.set("run", cell, 1, ttl=ttl)
    events = ws.watch(kinds=["cell"])
    for cell, pause in (("early", 5), ("middle", 5), ("late", 10)):
        world.clock.advance(pause)
        event = next(events)
        assert (event.op, event.id) == ("expire", cell)
    assert ws.cells.runs() == []


@pytest.mark.parametrize("ttl", [5, None], ids=["with an end", "without"])
def test_c12_refresh_ttl_gives_a_cell_another_end_and_changes_nothing_else(world: World, ttl: float | None) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=ttl)
    before, revision = ws.cells.get("run", "cell"), ws.revision
    world.clock.advance(4)
    assert ws.cells.refresh_ttl("run", "cell", 5) is True
    assert ws.cells.ttl("run", "cell") == 5
    assert ws.check().records["leases"] == 1  # the old one is gone
    world.clock.advance(4)
    assert ws.cells.get("run", "cell") == before
    assert (ws.revision, len(ws.events.list())) == (revision, revision)
    assert ws.cells.refresh_ttl("run", "cell", 0.5) is True  # also to an earlier end
    world.clock.advance(0.5)
    assert not ws.cells.exists("run", "cell")
    assert ws.cells.refresh_ttl("run", "cell", 5) is False
    assert ws.cells.refresh_ttl("run", "never was", 5) is False


def test_c12_a_set_without_ttl_removes_the_end_and_one_with_ttl_replaces_it(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=5)
    ws.cells.set("run", "cell", 2)
    assert ws.cells.ttl("run", "cell") is None
    assert ws.check().records["leases"] == 0
    ws.cells.set("run", "other", 1, ttl=5)
    ws.cells.set("run", "other", 2, ttl=50)
    world.clock.advance(6)
    assert ws.cells.list("run") == ["cell", "other"]
    assert ws.cells.ttl("run", "other") == 44
    assert [event.op for event in ws.events.list()] == ["set"] * 4


@pytest.mark.parametrize("write", ["cas", "increment", "restore"])
def test_c12_every_write_but_set_keeps_the_end(world: World, write: str) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=5)
    world.clock.advance(2)
    getattr(ws.cells, write)("run", "cell", *((1, 2) if write == "cas" else (1,)))
    assert ws.cells.ttl("run", "cell") == 3
    world.clock.advance(3)
    assert not ws.cells.exists("run", "cell")
    assert ws.cells.set("run", "cell", 0) == 4


@pytest.mark.capability("callables")
def test_c12_transitions_keep_the_end(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=5)
    ws.cells.transition("run", "cell", lambda value: value + 1)
    ws.cells.transition_or_init("run", "cell", 0, lambda value: value + 1)
    assert ws.cells.ttl("run", "cell") == 5
    world.clock.advance(5)
    assert not ws.cells.exists("run", "cell")


@pytest.mark.parametrize("end", ["delete", "delete_run"])
def test_c12_a_cell_deleted_before_its_deadline_does_not_expire_nor_its_successor(world: World, end: str) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=5)
    assert ws.cells.delete("run", "cell") if end == "delete" else ws.cells.delete_run("run") == 1
    assert ws.check().records["leases"] == 0  # nothing of it is left that could end
    ws.cells.set("run", "cell", 2)
    world.clock.advance(6)
    assert ws.cells.get("run", "cell").value == 2
    assert "expire" not in [event.op for event in ws.events.list()]
