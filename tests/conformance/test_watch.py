"""Watching: the next event, streams over everything, resuming from any cursor (C17)."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import pytest

from holdfast import Event, Workspace, errors
from holdfast.kernel.wake import BUFFER
from holdfast.testing.crowd import LONG, finish, start
from holdfast.workspace.watch import Watch
from tests.amounts import amount
from tests.conformance.test_events import put, several
from tests.worlds.kinds import World

R = TypeVar("R")
local = pytest.mark.capability("local")
aio = pytest.mark.capability("aio")


def until(future: Future[R], step: Callable[[], object]) -> R:
    """Do `step` again and again until somebody else, who heeds it, is done."""
    for _ in range(10_000):
        if wait([future], timeout=0.005).done:
            break
        step()
    return future.result(LONG)


def count_up(ws: Workspace) -> Callable[[], object]:
    """A call that changes the cell everybody watches."""
    return lambda: ws.cells.increment("run", "cell")


def watching(stream: Iterator[Event]) -> Watch[Event]:
    """A watch that has read all there was: from now on it is handed what is committed."""
    assert isinstance(stream, Watch)
    assert stream._watcher.take() is None
    assert stream._watcher.live
    return stream


# --- one cell --------------------------------------------------------------------------------------------------------


def test_c17_watch_answers_the_next_change_with_old_and_new_value(world: World) -> None:
    ws, other = world.open(), world.open("other")
    ws.cells.set("run", "cell", 0)
    change = until(start(lambda: ws.cells.watch("run", "cell")), count_up(other))
    assert change is not None
    assert change.new == change.old + 1 == change.version - 1
    assert (change.run, change.cell, change.op, change.actor) == ("run", "cell", "increment", "other")
    assert (change.created, change.deleted) == (False, False)
    assert change.revision == change.version


def test_c17_watch_answers_none_at_its_timeout(world: World) -> None:
    ws = world.open()
    assert ws.cells.watch("run", "cell", timeout=0) is None
    assert until(start(lambda: ws.cells.watch("run", "cell", timeout=30)), lambda: world.clock.advance(30)) is None


def test_c17_watch_after_a_version_gives_the_change_that_follows_it_at_once(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "a")
    ws.cells.set("run", "cell", "b")
    ws.cells.delete("run", "cell")
    ws.cells.set("run", "cell", None)
    seen = [ws.cells.watch("run", "cell", after_version=version, timeout=0) for version in range(5)]
    assert seen[4] is None
    changes = [change for change in seen if change is not None]
    assert [(c.version, c.old, c.new) for c in changes] == [
        (1, None, "a"),
        (2, "a", "b"),
        (3, "b", None),
        (4, None, None),
    ]
    assert [(c.created, c.deleted) for c in changes] == [(True, False), (False, False), (False, True), (True, False)]


@pytest.mark.parametrize("version", [2, -1, True, "1", 1.0])
def test_c17_a_version_that_the_cell_never_had_is_invalid(world: World, version: Any) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    with pytest.raises(errors.Invalid):
        ws.cells.watch("run", "cell", after_version=version, timeout=0)


def test_c17_a_stream_of_a_cell_gives_every_change_and_ends_at_its_timeout(world: World) -> None:
    ws, other = world.open(), world.open("other")
    stream = ws.cells.watch_stream("run", "cell", timeout=10)
    for value in range(3):
        other.cells.set("run", "cell", value)
        other.cells.set("run", "another", value)
    assert [next(stream).new for _ in range(3)] == [0, 1, 2]
    other.cells.delete("run", "cell")
    assert next(stream).deleted
    world.clock.advance(10)
    assert list(stream) == []
    assert list(stream) == []


def test_c17_a_stream_wakes_from_its_wait_when_its_time_is_over(world: World) -> None:
    ws = world.open()
    stream = ws.cells.watch_stream("run", "cell", timeout=20)
    assert until(start(lambda: list(stream)), lambda: world.clock.advance(20)) == []


def test_c17_the_expiry_of_a_cell_is_a_change_that_comes_without_other_traffic(world: World) -> None:
    ws = world.open()
    stream = ws.cells.watch_stream("run", "cell")
    ws.cells.set("run", "cell", "short", ttl=5)
    assert next(stream).new == "short"
    world.clock.advance(5)
    change = next(stream)
    assert (change.op, change.actor, change.old, change.deleted) == ("expire", "system", "short", True)
    assert change.version == 2


# --- everything ------------------------------------------------------------------------------------------------------


def test_c17_a_watch_starts_from_the_call_and_not_from_the_first_next(world: World) -> None:
    ws, other = world.open(), world.open("other")
    ws.cells.set("run", "before", 1)
    watch = ws.watch()
    other.cells.set("run", "between", 1)
    ws.cells.set("run", "after", 1)
    assert [next(watch).id for _ in range(2)] == ["between", "after"]


def test_c17_a_watch_may_ask_for_kinds_for_an_id_and_for_a_scope_and_id(world: World) -> None:
    ws = world.open()
    several(ws)
    everything = ws.events.list()

    def seen(**wanted: Any) -> list[Event]:
        return list(ws.watch(after=0, timeout=0, **wanted))

    assert seen() == everything
    assert seen(kinds=["lock", "lease"]) == [e for e in everything if e.kind in ("lock", "lease")] != []
    assert seen(id="a") == [e for e in everything if e.id == "a"] != []
    assert seen(id=("run", "a")) == [e for e in everything if (e.scope, e.id) == ("run", "a")] != []
    assert seen(kinds=["cell"], id=("run", "a")) == seen(id=("run", "a"))
    assert seen(kinds=["lock"], id=("", "a")) == [e for e in everything if e.kind == "lock"]
    assert seen(kinds=["lock"], id=("run", "a")) == []


@local
@pytest.mark.parametrize(
    "wanted",
    [{}, {"kinds": ["lock", "lease"]}, {"id": "a"}, {"id": ("run", "a")}, {"kinds": ["cell"], "id": ("run", "a")}],
    ids=str,
)
def test_c17_a_watch_that_waits_hears_the_same_as_one_that_reads_the_log(world: World, wanted: dict[str, Any]) -> None:
    ws = world.open()
    live = watching(ws.watch(timeout=10, **wanted))
    several(ws)
    after = list(ws.watch(after=0, timeout=0, **wanted))
    assert [next(live) for _ in after] == after != []
    world.clock.advance(10)
    assert list(live) == []


def test_c17_a_watch_resumed_from_any_cursor_sees_exactly_what_follows(world: World) -> None:
    ws = world.open()
    several(ws)
    everything = ws.events.list()
    assert len({event.revision for event in everything}) < len(everything)
    for number, event in enumerate(everything):
        assert list(ws.watch(after=event.cursor, timeout=0)) == everything[number + 1 :]
        assert ws.events.list(after=event.cursor) == everything[number + 1 :]
    for revision in range(ws.revision + 1):
        following = [event for event in everything if event.revision > revision]
        assert list(ws.watch(after=revision, timeout=0)) == following
        assert list(ws.watch(after=str(revision), timeout=0)) == following
    mine = [event for event in everything if event.id == "a"]
    for number, event in enumerate(mine):
        assert list(ws.watch(id="a", after=event.cursor, timeout=0)) == mine[number + 1 :]


def test_c17_a_watch_from_a_cursor_goes_on_with_what_comes(world: World) -> None:
    ws, other = world.open(), world.open("other")
    several(ws)
    watch = ws.watch(after="2-1")
    caught_up = ws.events.list(after="2-1")
    assert [next(watch) for _ in caught_up] == caught_up
    other.cells.set("run", "new", 1)
    assert next(watch).id == "new"


@pytest.mark.parametrize("after", [2, "2", "2-0", -1, True, "x", "1-", "1-99999999999999999999", "9" * 5000])
def test_c17_a_cursor_of_the_future_or_none_at_all_is_refused(world: World, after: Any) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    with pytest.raises(world.beyond if after in (2, "2", "2-0") else errors.Invalid):
        list(ws.watch(after=after, timeout=0))


@pytest.mark.parametrize(
    "wanted", [{"kinds": "cell"}, {"kinds": []}, {"id": ("a", "b", "c")}, {"timeout": -1}, {"timeout": "1"}]
)
def test_c17_a_watch_that_makes_no_sense_is_invalid(world: World, wanted: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid):
        list(world.open().watch(**{"timeout": 0, **wanted}))


def test_c17_events_of_other_handles_arrive_in_order(world: World) -> None:
    ws = world.open()
    others = [world.open(f"actor-{number}") for number in range(3)]
    watch = ws.watch()
    for number in range(12):
        others[number % 3].cells.set("run", f"cell-{number}", number)
        event = next(watch)
        assert (event.id, event.actor, event.revision) == (f"cell-{number}", f"actor-{number % 3}", number + 1)


def test_c17_what_many_write_at_once_arrives_without_gap_or_repetition(world: World) -> None:
    ws = world.open()
    watch = ws.watch(kinds=["cell"])
    heard = start(lambda: [event.revision for event in itertools.islice(watch, 90)])
    writers = [world.open(f"actor-{number}") for number in range(3)]
    works = [start(lambda w=writer: [count_up(w)() for _ in range(30)]) for writer in writers]  # type: ignore[misc]
    for work in works:
        work.result(LONG)
    assert heard.result(LONG) == list(range(1, 91))


# --- slow, gone, and many --------------------------------------------------------------------------------------------


def write_many(ws: Workspace, number: int) -> list[str]:
    """Write so many cells in as few transactions as possible; answers their names."""
    names = [f"cell-{n:05}" for n in range(number)]
    for first in range(0, number, 128):
        ws.txn([], [put("run", name) for name in names[first : first + 128]])
    return names


def test_c17_a_watch_that_is_far_behind_reads_the_log_at_its_own_pace(world: World) -> None:
    ws = world.open()
    watch = ws.watch()
    names = write_many(ws, BUFFER + 300)
    assert [next(watch).id for _ in names] == names


@local
def test_c17_a_waiting_watch_that_falls_behind_its_buffer_is_not_skipped(world: World) -> None:
    ws = world.open()
    watch = watching(ws.watch())
    names = write_many(ws, BUFFER + 300)
    assert next(watch).id == names[0]
    more = write_many(ws, 5)
    assert [next(watch).id for _ in range(len(names) - 1 + len(more))] == [*names[1:], *more]


@pytest.mark.capability("store")
def test_c17_a_watch_that_is_behind_gets_compacted_when_that_happens_under_it(world: World) -> None:
    ws = world.open()
    watch = ws.watch()
    for value in range(3):
        ws.cells.set("run", "cell", value)
    ws.events.compact(4)
    world.settle()
    for _ in range(2):
        with pytest.raises(errors.Compacted):
            next(watch)


@local
def test_c17_a_watch_that_fell_behind_its_buffer_gets_compacted_when_that_happens_under_it(world: World) -> None:
    ws = world.open()
    watch = watching(ws.watch())
    write_many(ws, BUFFER + 300)
    for value in range(2):
        ws.cells.set("run", "again", value)
    assert ws.events.compact(ws.revision + 1) == 1
    with pytest.raises(errors.Compacted):
        next(watch)


@local
def test_c17_a_watch_that_has_not_heard_yet_gets_compacted_and_writers_do_not(world: World) -> None:
    ws, other = world.open(), world.open("other")
    watch = watching(ws.watch())
    ws._engine.pulse.stop()  # it hears of the other's commits late, as on a busy machine
    for value in range(5):
        other.cells.set("run", "cell", value)
    other.events.compact(other.revision + 1)
    assert ws.cells.set("run", "mine", 1) == 1
    if world.kind == "memory":  # one engine: it has heard of everything by now
        assert [next(watch).op for _ in range(7)] == ["set"] * 5 + ["compact", "set"]
    else:
        with pytest.raises(errors.Compacted):
            next(watch)
    fresh = watching(ws.watch())
    assert ws.cells.set("run", "mine", 2) == 2
    assert next(fresh).id == "mine"


@local
def test_c17_a_watch_that_goes_away_is_freed(world: World) -> None:
    ws = world.open()
    watches = [watching(ws.watch()), *(ws.cells.watch_stream("run", f"cell-{number}") for number in range(10))]
    hub = ws._engine.hub
    assert len(hub) == 11
    ws.cells.set("run", "cell-0", 1)
    watches.clear()
    gc.collect()
    assert len(hub) == 0
    assert len(hub._by_record) == 0
    ended = ws.watch(timeout=0)
    assert (list(ended), len(hub)) == ([], 0)
    assert (ws.cells.watch("run", "cell", timeout=0), len(hub)) == (None, 0)


@local
def test_c17_a_watch_that_is_closed_or_left_as_a_block_is_freed(world: World) -> None:
    ws = world.open()
    hub = ws._engine.hub
    watch = watching(ws.watch())
    with ws.watch(after=0) as block, ws.cells.watch_stream("run", "cell") as stream:
        ws.cells.set("run", "cell", 1)
        assert (next(block).id, next(stream).new, len(hub)) == ("cell", 1, 3)
    assert len(hub) == 1
    watch.close()
    watch.close()
    assert len(hub) == 0

    async def main() -> int:
        async with ws.aio.watch(timeout=0) as watch:
            assert [event async for event in watch] == []
        return len(hub)

    assert finish(main()) == 0


@pytest.mark.early
def test_c17_many_watches_on_different_cells_each_hear_just_their_own(world: World) -> None:
    ws, many = world.open(), 2000 if "store" in world.capabilities else amount(400, 2000)  # connections, over HTTP
    streams = [ws.cells.watch_stream("run", f"cell-{number:05}", timeout=10) for number in range(many)]
    names = write_many(world.open("other"), many)
    assert [next(stream).cell for stream in streams] == names
    world.clock.advance(10)
    assert [len(list(stream)) for stream in streams] == [0] * many


@aio
@local
def test_c17_two_thousand_tasks_that_wait_on_different_cells_each_hear_just_their_own(world: World) -> None:
    ws = world.open()

    async def main() -> list[str]:
        streams = [ws.aio.cells.watch_stream("run", f"cell-{number:05}") for number in range(2000)]
        heard = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0)
        assert sum(watcher.live for watcher in ws._engine.hub._watchers) == 2000
        await asyncio.to_thread(write_many, ws, 2000)
        return [change.cell for change in await asyncio.gather(*heard)]

    assert finish(main()) == [f"cell-{number:05}" for number in range(2000)]


# --- on an event loop ------------------------------------------------------------------------------------------------


@aio
def test_c17_async_for_gives_what_comes_and_ends_at_its_timeout(world: World) -> None:
    ws, other = world.open(), world.open("other")

    async def main() -> list[str]:
        watch = ws.aio.watch(kinds=["cell"], timeout=10)
        await ws.aio.revision()  # also a watch over the wire is there when the next call of its workspace is answered
        await asyncio.to_thread(other.cells.set, "run", "a", 1)
        heard = []
        async for event in watch:
            heard.append(event.id)
            if event.id == "a":
                await ws.aio.cells.set("run", "b", 1)
            else:
                world.clock.advance(10)
        return heard

    assert finish(main()) == ["a", "b"]


@aio
def test_c17_the_awaitable_watch_of_a_cell_answers_a_change_or_none(world: World) -> None:
    ws = world.open()

    async def main() -> None:
        assert await ws.aio.cells.watch("run", "cell", timeout=0) is None
        waiting = asyncio.ensure_future(ws.aio.cells.watch("run", "cell", after_version=0, timeout=10))
        await asyncio.sleep(0)
        await ws.aio.cells.set("run", "cell", 7)
        change = await waiting
        assert change is not None
        assert (change.old, change.new, change.created) == (None, 7, True)

    finish(main())


@aio
@pytest.mark.capability("prompt")
def test_c17_the_awaitable_watch_of_a_cell_ends_at_its_timeout(world: World) -> None:
    ws = world.open()

    async def main() -> None:
        waiting = asyncio.ensure_future(ws.aio.cells.watch("run", "cell", timeout=10))
        await asyncio.sleep(0)
        world.clock.advance(10)
        assert await waiting is None

    finish(main())


@aio
@local
def test_c17_a_task_that_is_cancelled_while_it_watches_frees_its_watcher(world: World) -> None:
    ws = world.open()

    async def main() -> None:
        waiting = asyncio.ensure_future(ws.aio.cells.watch("run", "cell"))
        await asyncio.sleep(0)
        assert len(ws._engine.hub) == 1
        waiting.cancel()
        await asyncio.wait([waiting])

    finish(main())
    gc.collect()
    assert len(ws._engine.hub) == 0


@pytest.mark.capability("callables")
def test_c17_a_watch_inside_a_transaction_is_invalid(world: World) -> None:
    with pytest.raises(errors.Invalid):
        world.open().transact(lambda tx: tx.watch(timeout=0))


def test_a_watch_that_must_start_from_a_revision_not_reached_is_behind(world: World) -> None:
    ws = world.open()
    with pytest.raises(errors.Behind):
        ws.using(at_least=99).watch(timeout=0)
    with pytest.raises(errors.Behind):
        ws.using(at_least=99).cells.watch("run", "cell", timeout=0)
