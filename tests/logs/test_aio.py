"""`ws.aio` on a replica: the loop is never held up by the log, and tasks get the guarantees that threads get."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import errors
from holdfast.testing.crowd import LONG, finish, start, together
from tests.logs.nodes import RUN, Nodes, Wire, assert_equal, at, entries, value


def test_64_tasks_lose_nothing_and_share_entries_of_the_log(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    before = len(entries(nodes.log))

    async def main() -> list[int | float]:
        return await asyncio.gather(*(a.aio.cells.increment(RUN, "cell") for _ in range(64)))

    assert sorted(finish(main())) == list(range(1, 65))
    assert len(entries(nodes.log)) - before < 64
    assert_equal(a, b)


def test_tasks_on_two_nodes_of_one_loop_and_threads_on_a_third_lose_nothing(nodes: Nodes) -> None:
    a, b, c = nodes.open("a"), nodes.open("b"), nodes.open("c")

    async def main() -> None:
        for _ in range(5):
            await asyncio.gather(*(node.aio.cells.increment(RUN, "cell") for node in (a, b) for _ in range(10)))

    def work() -> None:
        for _ in range(50):
            c.cells.increment(RUN, "cell")

    together(lambda: finish(main()), work)
    assert_equal(a, b, c)
    assert value(a, "cell") == 150


def test_awaited_reads_have_seen_what_they_ask_for(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")

    async def main() -> None:
        a.cells.set(RUN, "cell", 1)
        assert await b.aio.cells.find(RUN, "cell") is None
        assert (await b.aio.using(at_least="latest").cells.get(RUN, "cell")).value == 1
        a.cells.set(RUN, "cell", 2)
        assert (await b.aio.using(at_least=a.revision).cells.get(RUN, "cell")).value == 2
        a.cells.set(RUN, "other", 1)
        assert await b.aio.using(at_least="latest").cells.list(RUN) == ["cell", "other"]
        with pytest.raises(errors.Behind):
            await b.aio.using(at_least=99).cells.get(RUN, "cell")
        a.cells.set(RUN, "cell", 3)
        assert await b.aio.events.list(after=a.revision) == []
        with pytest.raises(errors.Behind):
            await b.aio.events.list(after=99)
        a.cells.set(RUN, "cell", 4)
        assert (await b.aio.cells.get_or_init(RUN, "cell", 0)).value == 4
        with pytest.raises(errors.VersionMismatch):
            await b.aio.cells.cas(RUN, "cell", 1, 0)

    finish(main())
    assert_equal(a, b)


def test_awaited_watches_follow_other_nodes(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")

    async def main() -> list[int]:
        a.cells.set(RUN, "cell", 0)
        async with b.aio.watch(after=a.revision) as events:
            writing = asyncio.to_thread(lambda: [a.cells.set(RUN, "cell", number) for number in range(10)])
            task = asyncio.ensure_future(writing)
            heard = [(await anext(events)).version for _ in range(10)]
            await task
            return heard

    assert finish(main()) == list(range(2, 12))


def test_the_loop_goes_on_while_the_log_does_not_answer(nodes: Nodes) -> None:
    stuck, go = threading.Event(), threading.Event()
    slow: list[bool] = []

    class Slow(Wire):
        def append(self, entry: bytes, expected: int) -> int:
            if slow:
                stuck.set()
                assert go.wait(LONG)
            return super().append(entry, expected)

    a = nodes.open("a", Slow(nodes.log))

    async def main() -> None:
        slow.append(True)
        writing = asyncio.ensure_future(a.aio.cells.set(RUN, "cell", 1))
        await asyncio.to_thread(stuck.wait, LONG)
        for _ in range(10):
            await asyncio.sleep(0)
            assert await a.aio.cells.find(RUN, "cell") is None
        go.set()
        assert await writing == 1

    finish(main())


def test_a_cancelled_task_happens_once_or_not_at_all_and_holds_up_nobody(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")

    async def main() -> int:
        done = 0
        for number in range(30):
            tasks = [asyncio.ensure_future(a.aio.cells.increment(RUN, f"cell {number}")) for _ in range(4)]
            for _ in range(number % 3):
                await asyncio.sleep(0)
            tasks[1].cancel()
            tasks[2].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            kept = [result for result in results if not isinstance(result, asyncio.CancelledError)]
            assert len(kept) >= 2
            assert all(isinstance(result, int) for result in kept)
            assert len(kept) <= (await a.aio.cells.get(RUN, f"cell {number}")).value <= 4
            done += 1
        return done

    assert finish(main()) == 30
    assert_equal(a, b)


def test_a_loop_that_stops_in_the_middle_leaves_the_node_to_others(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")

    async def main() -> None:
        for _ in range(8):
            asyncio.ensure_future(a.aio.cells.increment(RUN, "cell"))  # noqa: RUF006
        await asyncio.sleep(0)

    asyncio.run(main())
    found = start(lambda: a.cells.increment(RUN, "cell")).result(LONG)
    assert 1 <= found <= 9
    assert_equal(a, b)


def test_outrun_tasks_run_again(nodes: Nodes) -> None:
    a, b = nodes.stale("a"), nodes.stale("b")
    left = [3]

    def outrun() -> None:
        if threading.current_thread().name == "holdfast-commit" and left[0]:
            left[0] -= 1
            start(lambda: b.cells.increment(RUN, "cell")).result(LONG)

    async def main() -> int | float:
        return await a.aio.cells.increment(RUN, "cell")

    with at("log.append", outrun):
        assert finish(main()) == 4
    assert_equal(a, b)


def test_faults_of_the_line_reach_tasks_as_they_reach_threads(nodes: Nodes) -> None:
    wire = Wire(nodes.log)
    a, b = nodes.stale("a", wire), nodes.stale("b")

    async def main() -> None:
        wire.once("append", "answer lost")
        assert await a.aio.cells.increment(RUN, "cell") == 1
        wire.always("append", "late")
        with pytest.raises(errors.OutcomeUnknown):
            await a.aio.using(key="once").cells.increment(RUN, "cell")
        wire.heal()
        wire.deliver()
        assert await a.aio.using(key="once").cells.increment(RUN, "cell") == 2
        wire.always("append", "conflict")
        with pytest.raises(errors.Busy):
            await a.aio.cells.increment(RUN, "cell")
        wire.heal()
        assert await a.aio.cells.increment(RUN, "cell") == 3

    finish(main())
    assert_equal(a, b)


def test_waiting_for_a_lock_held_on_another_node(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    grant = a.locks.acquire("lock")

    async def main() -> int:
        async with a.aio.watch() as events:
            waiting = asyncio.ensure_future(b.aio.locks.acquire("lock", wait=LONG))
            assert (await anext(events)).op == "wait"
        a.locks.release("lock", token=grant.token)
        return (await waiting).token

    assert finish(main()) > grant.token


def test_a_node_closed_while_others_write_finishes_what_it_has_begun(nodes: Nodes) -> None:
    a, b, c = nodes.open("a"), nodes.open("b"), nodes.open("c")
    some = threading.Barrier(4)

    def work() -> int:
        done = 0
        for number in range(200):
            if number == 5:
                some.wait(LONG)
            try:
                b.cells.increment(RUN, "cell")
                done += 1
            except errors.Closed:
                break
        return done

    def steady() -> int:
        for number in range(60):
            if number == 5:
                some.wait(LONG)
            a.cells.increment(RUN, "cell")
        return 60

    working = [start(work), start(work), start(steady)]
    some.wait(LONG)
    b.close()
    done = sum(future.result(LONG) for future in working)
    assert_equal(a, c)
    assert value(a, "cell") == done
    assert_equal(a, nodes.open("b"))


def test_a_node_closed_while_tasks_write_answers_all_of_them(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")

    async def main() -> int:
        tasks = [asyncio.ensure_future(b.aio.cells.increment(RUN, "cell")) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.to_thread(b.close)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} <= {int, errors.Closed}
        return sum(isinstance(result, int) for result in results)

    done = finish(main())
    a.using(at_least="latest").reach()
    assert (value(a, "cell") or 0) == done


def test_a_body_that_raises_what_would_end_a_thread_ends_neither_the_worker_nor_the_lead(nodes: Nodes) -> None:
    a = nodes.open("a")

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        with pytest.raises(errors.Unavailable, match="KeyboardInterrupt"):
            await a.aio.transact(stop)
        assert await a.aio.cells.increment(RUN, "cell") == 1

    finish(main())
    assert a.cells.increment(RUN, "cell") == 2
