"""Over pipes and over HTTP, in both eras of the protocol, on a folder and on a server: the same agent's day."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.faces.http.server import Server
from tests.amounts import LONG
from tests.http.inside import token_of
from tests.http.running import Running
from tests.mcp.clients import ERAS, PATIENCE, Agent, Era, Refused, over_http, over_stdio, played

Door = Callable[[str], AbstractAsyncContextManager[Agent]]
DOORS = ("stdio-legacy", "stdio-auto", "stdio-remote", "http-legacy", "http-auto")
# The doors for what the versions of the protocol do not change.
SOME = DOORS if LONG else ("stdio-auto", "stdio-remote", "http-auto")
some_doors = pytest.mark.parametrize("house", SOME, indirect=True)


class House:
    """A workspace behind a door: who comes in as an agent, and who uses it without one."""

    def __init__(self, door: Door, outside: holdfast.Workspace | holdfast.RemoteWorkspace) -> None:
        self.door = door
        self.outside = outside  # another process than the one that serves


@pytest.fixture(params=DOORS)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    transport, _, kind = request.param.partition("-")
    era: Era = "legacy" if kind == "legacy" else "auto"
    if transport == "stdio" and kind != "remote":
        folder = tmp_path / "folder"
        with holdfast.open(folder, actor="outside") as workspace:
            yield House(lambda actor: over_stdio(folder, actor, era=era), workspace)
        return
    running = Running(tmp_path / "running")
    try:
        with holdfast.connect(running.url, token=running.token, actor="outside") as remote:
            if kind == "remote":
                env = {"HOLDFAST_TOKEN": running.token}
                yield House(lambda actor: over_stdio(running.url, actor, env=env), remote)
            else:
                yield House(lambda actor: over_http(running.url, running.token, actor, era), remote)
        assert running.stop() == 0
    finally:
        running.end()


@played
async def test_every_core_tool_works_through_every_door(house: House) -> None:
    async with house.door("ann") as agent:
        names = {tool.name for tool in (await agent.client.list_tools()).tools}
        used: set[str] = set()

        async def call(tool: str, /, **given: object) -> dict[str, object]:
            used.add(tool)
            answer: dict[str, object] = await agent.call(tool, **given)
            return answer

        task = str((await call("task_create", title="work", body="do it"))["id"])
        assert await call("task_list") == await agent.read("holdfast://ready")
        assert "task" in await call("task_show", id=task)
        assert house.outside.tasks.get(task).status == "open"
        await call("task_claim", id=task)
        assert house.outside.tasks.get(task).claimed_by == "ann"
        await call("paths", action="lock", paths=["src/**"], task=task)
        await call("lock", name="deploy")
        await call("cell_set", run="r", cell="c", value={"n": 1}, lock="deploy")
        assert (await call("cell_get", run="r", cell="c"))["value"] == {"n": 1}
        await call("mail_send", to=["ann"], subject="note to self", body="eat")
        (message,) = (await agent.call("mail_inbox"))["messages"]
        assert await call("mail_inbox", ack=[message["id"]]) == {"messages": []}
        await call("task_update", id=task, note="nearly")
        assert (await call("task_finish", id=task, text="done"))["status"] == "closed"
        events = (await agent.call("watch", since_revision="0", timeout=0))["events"]
        assert {event["kind"] for event in events} >= {"task", "path", "lock", "cell", "message"}
        assert {event["by"] for event in events} == {"ann"}
        used.add("watch")
        assert used == names
        primed = await agent.read("holdfast://prime")
        assert (primed["actor"], primed["claims"], primed["unread"]) == ("ann", [], 0)


@played
async def test_refusals_keep_their_code_and_data_through_every_door(house: House) -> None:
    task = house.outside.tasks.create("work")
    house.outside.tasks.claim(task.id)
    house.outside.locks.acquire("deploy")
    house.outside.cells.set("r", "c", "old")
    async with house.door("ann") as agent:
        refused = await agent.refusal("task_claim", id=task.id)
        assert (refused.code, refused.details["holder"]) == ("ALREADY_CLAIMED", "outside")
        assert (await agent.refusal("task_finish", id=task.id)).code == "NOT_CLAIM_OWNER"
        refused = await agent.refusal("cell_set", run="r", cell="c", value="new", expected=5)
        assert (refused.code, refused.details["value"], refused.details["version"]) == ("VERSION_MISMATCH", "old", 1)
        assert (await agent.refusal("lock", name="deploy")).code == "HELD"
        assert (await agent.refusal("lock", name="deploy", wait=0.05)).code == "HELD"
        assert (await agent.refusal("lock", name="deploy", action="release")).code == "NOT_HOLDER"
        assert (await agent.refusal("task_show", id="hf-none")).code == "TASK_NOT_FOUND"
        assert (await agent.refusal("task_create", title="x", priority=9)).code == "INVALID_PRIORITY"
        assert (await agent.refusal("watch", since_revision=10**6)).code == "INVALID_FILTER"
        assert (await agent.refusal("task_create")).code == "INVALID"
        assert (await agent.refusal("task_finish", id=task.id, action="done", text="x" * 2_000_000)).code in (
            *("TOO_LARGE", "INVALID_VALUE"),
        )


@some_doors
@played
async def test_a_long_poll_is_woken_by_another_process(house: House) -> None:
    async with house.door("ann") as agent:
        since = (await agent.call("watch", timeout=0))["since_revision"]
        watching = asyncio.create_task(
            agent.call("watch", since_revision=since, kinds=["task"], timeout=60),
        )
        for number in range(3):  # each goes after the watch, and is answered while that waits
            await agent.call("cell_set", run="r", cell="c", value=number)
        assert not watching.done()
        task = await asyncio.to_thread(house.outside.tasks.create, "news")
        (event,) = (await watching)["events"]
        assert (event["kind"], event["op"], event["id"], event["by"]) == ("task", "create", task.id, "outside")


@some_doors
@played
async def test_a_cancelled_watch_ends_at_once_and_the_session_goes_on(house: House) -> None:
    async with house.door("ann") as agent:
        watching = asyncio.create_task(agent.call("watch", kinds=["task"], timeout=60))
        await agent.call("cell_set", run="r", cell="c", value=1)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        assert (await agent.call("watch", timeout=0))["events"] == []


@some_doors
@played
async def test_who_cancels_a_wait_for_a_lock_leaves_the_line(house: House) -> None:
    async with house.door("ann") as agent:
        house.outside.locks.acquire("deploy")
        waiting = asyncio.create_task(agent.call("lock", name="deploy", wait=60))
        await asyncio.to_thread(_until, lambda: _last(house.outside) == "wait")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(_until, lambda: _last(house.outside) != "wait")
        assert _last(house.outside) == "leave"  # and not only when its place in the line expired


def _last(ws: holdfast.Workspace | holdfast.RemoteWorkspace) -> str:
    """The last thing that happened to a lock."""
    return ws.events.list(kinds=["lock"], limit=1000)[-1].op


def _until(condition: Callable[[], bool]) -> None:
    """Look until it is so, and no longer than a test may take."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@some_doors
@played
async def test_agents_that_race_for_tasks_never_get_the_same(house: House) -> None:
    tasks = {house.outside.tasks.create(f"work {number}").id for number in range(20)}

    async def work(actor: str) -> list[str]:
        got: list[str] = []
        async with house.door(actor) as agent:
            while (task := (await agent.call("task_claim"))["task"]) is not None:
                got.append(task["id"])
                await agent.call("task_finish", id=task["id"])
        return got

    ann, bob = await asyncio.gather(work("ann"), work("bob"))
    assert len(ann) + len(bob) == 20
    assert {*ann, *bob} == tasks


@some_doors
@played
async def test_two_agents_that_want_one_task_get_one_yes(house: House) -> None:
    async with house.door("ann") as ann, house.door("bob") as bob:
        for number in range(10):
            task = house.outside.tasks.create(f"work {number}")
            claims = [agent.call("task_claim", id=task.id) for agent in (ann, bob)]
            ends = await asyncio.gather(*claims, return_exceptions=True)
            (refused,) = [end for end in ends if isinstance(end, BaseException)]
            assert isinstance(refused, Refused)
            assert refused.code == "ALREADY_CLAIMED"


# --- over pipes ------------------------------------------------------------------------------------------------------


def spawn(folder: Path) -> subprocess.Popen[bytes]:
    """A server for whoever holds its pipes, that has answered once."""
    command = [sys.executable, "-m", "holdfast", "mcp", "--dir", str(folder), "--actor", "ann"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    process.stdin.flush()
    assert b'"id":1' in process.stdout.readline()
    return process


def test_a_server_over_pipes_ends_when_they_close_and_has_said_nothing_else(tmp_path: Path) -> None:
    holdfast.open(tmp_path / "folder", actor="maker").close()  # one that it made would be told on standard error
    process = spawn(tmp_path / "folder")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_over_pipes_ends_by_a_signal_while_its_pipes_are_open(tmp_path: Path, number: int) -> None:
    process = spawn(tmp_path / "folder")
    try:
        process.send_signal(number)
        assert process.wait(PATIENCE) != 0
    finally:
        process.kill()
        process.communicate()
    with holdfast.open(tmp_path / "folder", actor="bob") as ws:
        assert ws.check().ok


def test_what_is_no_json_does_not_end_a_server_over_pipes(tmp_path: Path) -> None:
    process = spawn(tmp_path / "folder")
    out, _ = process.communicate(b'nonsense\n[]\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n', timeout=PATIENCE)
    assert b'"id":2' in out.splitlines()[-1]
    assert process.returncode == 0


def test_what_was_asked_before_the_pipes_close_is_answered(tmp_path: Path) -> None:
    process = spawn(tmp_path / "folder")
    asked = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(2, 40)]
    out, _ = process.communicate(b"".join(json.dumps(each).encode() + b"\n" for each in asked), timeout=PATIENCE)
    assert {json.loads(line)["id"] for line in out.splitlines()} == {each["id"] for each in asked}
    assert process.returncode == 0


# --- over HTTP -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def watching(server: Server, era: Era) -> AsyncIterator[tuple[Agent, asyncio.Task[object]]]:
    """An agent that watches, and is known to."""
    hub = server.spaces.get("").workspace._engine.hub
    async with over_http(server.url, token_of(server), "ann", era) as agent:
        task = asyncio.create_task(agent.call("watch", timeout=60))
        await asyncio.to_thread(_until, lambda: len(hub) > 0)
        yield agent, task


@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_watch_leaves_no_watcher_in_the_server(server: Server, era: Era) -> None:
    @played
    async def play() -> None:
        async with watching(server, era) as (agent, task):
            task.cancel()
            hub = server.spaces.get("").workspace._engine.hub
            await asyncio.to_thread(_until, lambda: len(hub) == 0)
            assert (await agent.call("watch", timeout=0))["events"] == []

    play()


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_vanishes_leaves_no_watcher_in_the_server(server: Server, era: Era) -> None:
    code = (
        "import asyncio, sys; from tests.mcp.clients import over_http\n"
        "async def main():\n"
        "    async with over_http(sys.argv[1], sys.argv[2], 'ann', sys.argv[3]) as agent:\n"
        "        await agent.call('watch', timeout=60)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", code, server.url, token_of(server), era]
    root = Path(__file__).parents[2]
    client = subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    hub = server.spaces.get("").workspace._engine.hub
    try:
        _until(lambda: len(hub) > 0)
    finally:
        client.kill()
        client.wait()
    _until(lambda: len(hub) == 0)


@pytest.mark.parametrize("era", ERAS)
def test_a_server_that_stops_tells_who_waits_to_ask_again(server: Server, era: Era) -> None:
    @played
    async def play() -> None:
        async with watching(server, era) as (_, task):
            server.stop()
            with pytest.raises(Refused) as raised:
                await task
            assert raised.value.code == "UNAVAILABLE"

    play()
