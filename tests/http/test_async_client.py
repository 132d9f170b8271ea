"""`ws.aio` over the wire: many calls at once, cancellation, several loops, closing, a server that goes and comes."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

import holdfast
from holdfast import errors
from holdfast.remote import protocol
from tests.http.inside import serving, token_of
from tests.http.running import PATIENCE, Running

Connected = Iterator[holdfast.RemoteWorkspace]


@pytest.fixture
def ws(tmp_path: Path) -> Connected:
    with serving(tmp_path) as server, holdfast.connect(server.url, token=token_of(server), actor="ann") as workspace:
        yield workspace


async def in_time(work: Awaitable[Any], seconds: float = PATIENCE) -> Any:
    """Await something that could wait for ever."""
    async with asyncio.timeout(seconds):
        return await work


async def taken(watch: Any, count: int) -> list[Any]:
    """The next events of a watch."""
    return [await in_time(anext(watch)) for _ in range(count)]


async def count_to(ws: holdfast.RemoteWorkspace, number: int) -> None:
    """So many calls at once, each of which must be answered, and happen once."""
    calls = [ws.aio.cells.increment("run", "count") for _ in range(number)]
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert not {repr(end) for end in ends if isinstance(end, BaseException)}
    assert {*ends} == set(range(1, number + 1))
    assert (await ws.aio.cells.get("run", "count")).value == number


def test_a_thousand_calls_at_once_are_each_answered_once_and_need_no_thousand_files(server: Running) -> None:
    """Many systems allow a process 256 open files, or 1024; some are open already, as in any program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with holdfast.connect(server.url, token=server.token, actor="ann") as ws:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 200, hard))
        try:
            asyncio.run(count_to(ws, 1000))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_watches_of_one_loop_each_hear_all_of_theirs_in_order(ws: holdfast.RemoteWorkspace) -> None:
    async def scene() -> None:
        cells = [ws.aio.watch(kinds=["cell"]) for _ in range(20)]
        both = [ws.aio.watch() for _ in range(20)]
        locks = [ws.aio.watch(kinds=["lock"]) for _ in range(20)]
        for number in range(25):
            await ws.aio.cells.set("run", "cell", number)
            await ws.aio.locks.acquire(f"lock-{number}")
        for watches, expected in (
            (cells, [f"cell {number + 1}" for number in range(25)]),
            (locks, [f"lock lock-{number}" for number in range(25)]),
            (both, [each for n in range(25) for each in (f"cell {n + 1}", f"lock lock-{n}")]),
        ):
            for watch in watches:
                heard = [
                    f"{e.kind} {e.version if e.kind == 'cell' else e.id}" for e in await taken(watch, len(expected))
                ]
                assert heard == expected
                watch.close()

    asyncio.run(scene())


def test_a_call_that_is_cancelled_while_it_waits_waits_no_longer_on_the_server(ws: holdfast.RemoteWorkspace) -> None:
    async def scene() -> list[str]:
        await ws.aio.locks.acquire("door")
        async with ws.aio.watch(kinds=["lock"]) as watch:
            waiting = asyncio.ensure_future(ws.using(actor="bob").aio.locks.acquire("door", wait=PATIENCE))
            first = (await taken(watch, 1))[0].op
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            rest = [event.op for event in await taken(watch, 1)]
            await ws.aio.locks.release("door")
            await ws.using(actor="carl").aio.locks.acquire("door")
            return [first, *rest, *(event.op for event in await taken(watch, 2))]

    assert asyncio.run(scene()) == ["wait", "leave", "release", "acquire"]


def test_calls_that_are_cancelled_in_the_middle_leave_the_others_and_the_next_as_they_are(
    ws: holdfast.RemoteWorkspace,
) -> None:
    chance = random.Random(7)

    async def scene() -> None:
        highest = 0
        for _ in range(5):
            calls = [asyncio.ensure_future(ws.aio.cells.increment("run", "count")) for _ in range(40)]
            doomed = chance.sample(calls, 20)
            for call in doomed:
                await asyncio.sleep(chance.random() / 500)
                call.cancel()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert not [end for end in ends if isinstance(end, Exception)], ends
            numbers = [end for end in ends if isinstance(end, int)]
            assert len({*numbers}) == len(numbers) >= 20
            assert min(numbers) > highest
            highest = max(numbers)
        # The server may still run a call whose caller has gone, so the count may be higher by now; never above 200.
        assert highest <= (await ws.aio.cells.get("run", "count")).value <= 200
        assert await ws.aio.cells.increment("run", "next") == 1

    asyncio.run(scene())


def test_a_watch_loses_nothing_when_who_waits_for_it_gives_up(ws: holdfast.RemoteWorkspace) -> None:
    async def scene() -> None:
        async with ws.aio.watch(kinds=["cell"]) as watch:
            gone = asyncio.ensure_future(anext(watch))
            await ws.aio.cells.get_or_init("run", "cell", 0)
            await gone
            for _ in range(3):
                given_up = asyncio.ensure_future(anext(watch))
                await asyncio.sleep(0)
                given_up.cancel()
            writing = asyncio.ensure_future(write())
            heard: list[int] = []
            while len(heard) < 150:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.001):
                        heard.append((await anext(watch)).version)
            await writing
        assert heard == list(range(2, 152))

    async def write() -> None:
        for number in range(150):
            await ws.aio.cells.set("run", "cell", number)

    asyncio.run(in_time(scene()))


async def some_of_all(ws: holdfast.RemoteWorkspace, run: str) -> list[int]:
    """Calls and a watch, as a program would."""
    async with ws.aio.watch(kinds=["cell"], id=(run, "cell")) as watch:
        await asyncio.gather(*(ws.aio.cells.set(run, "cell", number) for number in range(30)))
        return [event.version for event in await taken(watch, 30)]


def test_loops_after_each_other_and_in_several_threads_share_a_workspace(ws: holdfast.RemoteWorkspace) -> None:
    found: list[list[int]] = []
    for number in range(2):
        found.append(asyncio.run(some_of_all(ws, f"run-{number}")))
        ws.cells.set("run", "between", number)
    threads = [
        threading.Thread(target=lambda n=n: found.append(asyncio.run(some_of_all(ws, f"thread-{n}")))) for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [list(range(1, 31))] * 5


def test_a_loop_that_has_ended_is_not_kept(ws: holdfast.RemoteWorkspace) -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def scene() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await ws.aio.revision()

    for _ in range(3):
        asyncio.run(scene())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


SCRIPT = """
import asyncio, sys
import holdfast

async def main():
    global ws
    ws = holdfast.connect(sys.argv[1], token=sys.argv[2], actor="ann")
    watch, other = ws.aio.watch(), ws.aio.watch(kinds=["lock"])
    await asyncio.gather(*(ws.aio.cells.increment("run", "count") for _ in range(20)))
    await anext(watch)
    ignored = asyncio.ensure_future(ws.using(actor="bob").aio.cells.watch("run", "none"))
    await asyncio.sleep(0)
    if sys.argv[3] == "closed":
        other.close()
        await ws.aio.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["closed", "just left"])
def test_nothing_is_left_open_when_a_loop_ends(ws: holdfast.RemoteWorkspace, tmp_path: Path, how: str) -> None:
    """No warning of any kind, whatever is under way."""
    url, token = ws._wire.nodes.urls[0], (tmp_path / "token").read_text().strip()
    started = [sys.executable, "-W", "error", "-c", SCRIPT, url, token, how]
    found = subprocess.run(started, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_call_after_the_end_is_closed_as_in_process(ws: holdfast.RemoteWorkspace) -> None:
    async def scene() -> None:
        aio = ws.aio
        await aio.cells.set("run", "cell", 1)
        await aio.close()
        await aio.close()
        with pytest.raises(errors.Closed):
            await aio.cells.set("run", "cell", 2)
        with pytest.raises(errors.Closed):
            await aio.revision()

    asyncio.run(scene())
    assert ws.cells.get("run", "cell").value == 1  # the connections of another loop, or of none, are others
    ws.close()
    for late in (lambda: ws.cells.get("run", "cell"), lambda: ws.cells.set("run", "cell", 2), ws.watch):
        with pytest.raises(errors.Closed):
            late()


def test_a_watch_ends_when_its_connections_are_closed(
    ws: holdfast.RemoteWorkspace, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> str:
        watch = ws.aio.watch()
        await ws.aio.cells.set("run", "cell", 1)
        assert len(await taken(watch, 1)) == 1
        await ws.aio.close()
        try:
            await in_time(anext(watch), 5)
        except (StopAsyncIteration, errors.Closed, TimeoutError) as error:
            return type(error).__name__
        return "an event"

    end = asyncio.run(scene())
    gc.collect()  # so that a task which ended badly is told of here
    assert end in ("StopAsyncIteration", "Closed")
    assert caplog.records == []


def test_a_watch_that_is_closed_before_it_is_connected_keeps_no_call_waiting(ws: holdfast.RemoteWorkspace) -> None:
    async def scene() -> int:
        async with ws.aio.watch():
            pass
        return int(await in_time(ws.aio.cells.set("run", "cell", 1), 5))

    assert asyncio.run(scene()) == 1


def test_a_watch_that_is_closed_or_refused_says_so_each_time(ws: holdfast.RemoteWorkspace) -> None:
    async def scene() -> None:
        closed = ws.aio.watch()
        closed.close()
        refused = ws.aio.watch(after="nonsense")
        over = ws.aio.watch(timeout=0)
        for _ in range(2):
            for watch, end in (
                (closed, StopAsyncIteration),
                (refused, errors.InvalidFilter),
                (over, StopAsyncIteration),
            ):
                with pytest.raises(end):
                    await in_time(anext(watch))

    asyncio.run(scene())


def test_what_does_not_travel_is_unsupported_with_a_hint(ws: holdfast.RemoteWorkspace, tmp_path: Path) -> None:
    async def scene() -> None:
        with pytest.raises(errors.Unsupported, match="txn"):
            await ws.aio.transact(lambda tx: tx.cells.set("run", "cell", 1))  # type: ignore[attr-defined]
        with pytest.raises(errors.Unsupported, match="key"):
            await ws.aio.using(key="k").cells.transition("run", "cell", lambda value: value)

    asyncio.run(scene())
    with pytest.raises(errors.Invalid, match="loop"):
        _ = ws.aio


def test_a_backup_is_unsupported_on_both_sides(ws: holdfast.RemoteWorkspace, tmp_path: Path) -> None:
    async def scene() -> None:
        aio: Any = ws.aio
        with pytest.raises(errors.Unsupported):
            await aio.backup(str(tmp_path / "backup"))

    with pytest.raises(errors.Unsupported):
        ws.backup(str(tmp_path / "backup"))  # type: ignore[attr-defined]
    asyncio.run(scene())


def test_watches_outlive_a_server_that_is_killed_without_gap_or_repeat(server: Running) -> None:
    async def scene(ws: holdfast.RemoteWorkspace) -> None:
        everything, some = ws.aio.watch(), ws.aio.watch(kinds=["lock"])
        heard: list[str] = []
        again = server
        for number in range(3):
            await ws.aio.cells.set("run", f"before-{number}", 1)
            await ws.aio.locks.acquire(f"lock-{number}")
            heard += [event.id for event in await taken(everything, 1)]
            again.process.kill()
            again.process.wait(PATIENCE)
            again.end()
            with holdfast.open(server.folder, actor="bob") as here:
                here.cells.set("run", f"meanwhile-{number}", 1)
            again = await asyncio.to_thread(Running, server.folder, "--port", server.url.rpartition(":")[2])
            started.append(again)
            heard += [event.id for event in await taken(everything, 2)]
        assert heard == [f"{word}-{n}" for n in range(3) for word in ("before", "lock", "meanwhile")]
        assert [event.id for event in await taken(some, 3)] == [f"lock-{n}" for n in range(3)]

    started: list[Running] = []
    try:
        with holdfast.connect(server.url, token=server.token, actor="ann") as ws:
            asyncio.run(scene(ws))
    finally:
        for each in started:
            each.end()


@contextmanager
def mute(backlog: int = 100) -> Iterator[str]:
    """Where somebody listens who never answers; with no backlog, who does not even accept."""
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as listening:
        waiting = [socket.socket() for _ in range(0 if backlog else 8)]
        try:
            for each in waiting:  # who fill the line
                each.setblocking(False)
                with suppress(BlockingIOError):
                    each.connect(listening.getsockname())
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for each in waiting:
                each.close()


@pytest.mark.parametrize(("backlog", "unsure"), [(100, errors.OutcomeUnknown), (0, errors.Unreachable)])
def test_a_server_that_never_answers_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch, backlog: int, unsure: type[errors.HoldfastError]
) -> None:
    """What was sent may have happened; what could not even be sent has not."""
    monkeypatch.setattr(protocol, "PAUSE", 0.001)

    async def scene(ws: holdfast.RemoteWorkspace) -> None:
        with pytest.raises(errors.Unreachable):
            await in_time(ws.aio.cells.get("run", "cell"))
        with pytest.raises(unsure):
            await in_time(ws.aio.cells.set("run", "cell", 1))
        with pytest.raises(unsure):
            await in_time(ws.using(key="k").aio.cells.set("run", "cell", 1))
        with pytest.raises(unsure):
            await in_time(ws.aio.locks.acquire("door", wait=0.1))
        with pytest.raises(errors.Unreachable):
            await in_time(ws.aio.revision())

    with mute(backlog) as url, holdfast.connect(url, token="t", actor="ann", timeout=0.1) as ws:
        asyncio.run(scene(ws))
        with pytest.raises(errors.Unreachable):
            ws.cells.get("run", "cell")
        with pytest.raises(unsure):
            ws.cells.set("run", "cell", 1)


def test_a_watch_of_a_server_that_never_answers_keeps_nobody_waiting_longer_than_the_timeout() -> None:
    async def scene(ws: holdfast.RemoteWorkspace) -> None:
        watch = ws.aio.watch()
        with pytest.raises(errors.OutcomeUnknown):
            await in_time(ws.aio.cells.set("run", "cell", 1), 5)
        with pytest.raises(errors.Unreachable):
            await in_time(anext(watch), 5)

    with mute() as url, holdfast.connect(url, token="t", actor="ann", timeout=0.1) as ws:
        asyncio.run(scene(ws))


def test_the_client_works_on_the_loop_of_uvloop(ws: holdfast.RemoteWorkspace) -> None:
    """Its transports are transports of asyncio in all but their bases."""

    async def calls() -> None:
        async with ws.aio.watch(kinds=["cell"], timeout=PATIENCE) as watch:
            await count_to(ws, 20)
            assert [event.op for event in await taken(watch, 20)] == ["increment"] * 20

    uvloop.run(calls())
