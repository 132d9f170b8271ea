"""Transactions from event loops: the same laws, and loops that are interrupted or gone (design section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import pytest

from holdfast import Transaction, errors
from holdfast.kernel.process_lock import Turns
from holdfast.testing.crowd import LONG, Line, finish, start, together
from tests.conformance.test_transactions import fail, interrupted_once
from tests.worlds.kinds import World

aio = pytest.mark.capability("aio")
local = pytest.mark.capability("local")
callables = pytest.mark.capability("callables")


@aio
@callables
def test_the_awaitable_twin_has_the_same_laws(world: World) -> None:
    ws = world.open()

    async def coroutine(tx: Transaction) -> None:
        tx.cells.set("run", "cell", 1)

    async def main() -> None:
        both = ws.aio
        assert await both.transact(lambda tx: (tx.cells.set("run", "a", 1), tx.revision)) == (1, 1)
        with pytest.raises(ValueError, match="mine"):
            await both.transact(lambda tx: (tx.cells.set("run", "gone", 1), fail()))
        with pytest.raises(errors.Invalid, match="coroutine"):
            await both.transact(coroutine)  # type: ignore[unused-coroutine]
        with pytest.raises(errors.Reentrant):
            await both.transact(lambda tx: ws.cells.set("run", "gone", 1))
        with pytest.raises(errors.Reentrant):
            await both.transact(lambda tx: ws.cells.find("run", "a"))
        await both.transact(lambda tx: None)
        assert (await both.cells.get("run", "a")).value == 1
        assert await both.cells.list("run") == ["a"]
        assert await both.revision() == 1
        assert (await both.check()).ok

    finish(main())


@aio
@callables
def test_a_body_on_a_loop_may_raise_stopiteration_without_stopping_the_others(world: World) -> None:
    ws = world.open()

    async def main() -> None:
        def stop(_: Transaction) -> None:
            raise StopIteration

        calls = [ws.aio.cells.set("run", "a", 1), ws.aio.transact(stop), ws.aio.cells.set("run", "b", 1)]
        first, error, last = await asyncio.gather(*calls, return_exceptions=True)
        assert (first, last) == (1, 1)
        assert isinstance(error, RuntimeError | StopIteration)

    finish(main())


@aio
@pytest.mark.capability("local")
def test_a_blocking_call_on_a_loop_with_calls_in_flight_is_answered_instead_of_a_hang(world: World) -> None:
    ws = world.open()

    async def main() -> None:
        task = asyncio.ensure_future(ws.aio.cells.set("run", "cell", 1))
        await asyncio.sleep(0)  # it has joined the group now, and waits for its loop to go on
        versions = [ws.cells.set("run", "cell", 2)]
        with ws.transaction() as tx:
            versions.append(tx.cells.set("run", "cell", 3))
        versions.append(await task)
        assert sorted(versions) == [1, 2, 3]

    finish(main())


@local
@aio
def test_a_blocking_call_takes_the_lead_over_from_its_loop_that_waits_for_another_process(world: World) -> None:
    ws = world.open()
    group = ws._engine.group
    elsewhere = Turns(ws._engine.folder)  # as another process has it
    assert elsewhere.take(LONG)

    class Noticed(dict[int, Any]):
        def pop(self, *args: Any) -> Any:
            found = super().pop(*args)
            if found is not None:
                elsewhere.give()  # not before the loop has been relieved of the lead
            return found

    group.take_overs = Noticed()

    async def main() -> None:
        task = asyncio.ensure_future(ws.aio.cells.set("run", "cell", 1))
        while not group.take_overs:
            await asyncio.sleep(0)  # until its loop leads, and waits for the turn
        assert ws.cells.set("run", "cell", 2) == 2
        assert await task == 1
        assert await ws.aio.cells.set("run", "cell", 3) == 3

    finish(main())
    elsewhere.close()


@local
@aio
def test_a_call_cancelled_while_it_waits_in_line_does_not_happen_and_the_others_do(world: World) -> None:
    ws = world.open()

    async def main() -> None:
        with Line(ws):
            tasks = [asyncio.ensure_future(ws.aio.cells.set("run", name, 1)) for name in "abc"]
            await asyncio.sleep(0)
            tasks[0].cancel()
            tasks[2].cancel()
            await asyncio.wait([tasks[0], tasks[2]])
        assert await tasks[1] == 1
        assert tasks[0].cancelled()
        assert tasks[2].cancelled()
        assert await ws.aio.cells.list("run") == ["b"]

    finish(main())


@local
@aio
def test_the_lead_is_passed_on_when_the_call_that_would_lead_is_cancelled(world: World) -> None:
    ws = world.open()

    async def main() -> Future[int]:
        with Line(ws) as line:
            task = asyncio.ensure_future(ws.aio.cells.set("run", "cancelled", 1))
            await asyncio.sleep(0)
            behind = await asyncio.to_thread(line.queue, lambda: ws.cells.set("run", "behind", 1))
        task.cancel()  # the blocker has given it the lead by now, or is about to
        await asyncio.wait([task])
        return behind

    assert finish(main()).result(LONG) == 1
    assert "behind" in ws.cells.list("run")


@local
@aio
def test_a_loop_that_is_interrupted_inside_a_body_answers_all_its_calls(world: World) -> None:
    ws = world.open()
    loop = asyncio.new_event_loop()
    try:
        bodies: Iterable[Callable[[Transaction], int]] = (
            lambda tx: tx.cells.set("run", "before", 1),
            interrupted_once("during"),
            lambda tx: tx.cells.set("run", "after", 1),
        )

        async def submit() -> list[int]:
            return await asyncio.gather(*(ws.aio.transact(body) for body in bodies))

        task = loop.create_task(submit())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(task)
        assert loop.run_until_complete(asyncio.wait_for(task, LONG / 6)) == [1, 1, 1]
    finally:
        loop.close()
    assert ws.cells.list("run") == ["after", "before", "during"]


@local
@aio
def test_a_loop_that_goes_away_with_calls_in_line_holds_up_nobody(world: World) -> None:
    ws = world.open()
    loop = asyncio.new_event_loop()

    async def leave_behind() -> asyncio.Future[int]:
        task = asyncio.ensure_future(ws.aio.cells.set("run", "abandoned", 1))
        await asyncio.sleep(0)
        return task

    with Line(ws) as line:
        abandoned = loop.run_until_complete(leave_behind())
        behind = line.queue(lambda: ws.cells.set("run", "behind", 1))
        loop.close()
    assert behind.result(LONG / 6) == 1
    assert start(lambda: ws.cells.set("run", "next", 1)).result(LONG / 6) == 1
    abandoned.cancelled()  # kept until here, so that its end is not the collector's doing


@aio
def test_threads_and_several_loops_on_one_workspace_lose_no_update(world: World) -> None:
    ws = world.open()

    def thread() -> None:
        for _ in range(20):
            ws.cells.increment("run", "count")

    async def task() -> None:
        for _ in range(5):
            await ws.aio.cells.increment("run", "count")

    async def tasks() -> None:
        await asyncio.gather(*(task() for _ in range(8)))

    together(*[thread] * 4, *[lambda: finish(tasks())] * 3)
    assert ws.cells.get("run", "count").value == 4 * 20 + 3 * 8 * 5
    assert ws.revision == 200
