"""Three servers over one log, and clients that lose their node and go on at another.

Real server processes on a real PostgreSQL, killed with kill -9 while a client writes, reads and watches: every
acknowledged write happened once, reads never go backwards, and a watch hears everything once and in order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.filesystem import LOG_URL
from holdfast.testing.crowd import LONG, start
from tests.amounts import amount
from tests.http.running import Running, command
from tests.worlds.postgres import shared_server

RUN = "run"
WRITES = amount(60, 600)


class Fleet:
    """Nodes of one log, each with a server, which a test kills and starts again."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.url = f"{shared_server().url}&workspace=fleet-{os.urandom(6).hex()}"
        self.folders = [folder / f"node-{number}" for number in range(count)]
        for each in self.folders:
            holdfast.open(self.url, folder=each, actor="fleet", create=True).close()
        self.servers = [Running(each) for each in self.folders]

    def connect(self, actor: str = "ann") -> holdfast.RemoteWorkspace:
        """A client of all of them."""
        servers = [server.url for server in self.servers]
        return holdfast.connect(servers, token=[server.token for server in self.servers], actor=actor)

    def kill(self, number: int) -> None:
        """Kill a server with kill -9."""
        self.servers[number].end()

    def end(self) -> None:
        """Kill them all."""
        for server in self.servers:
            server.end()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Three nodes."""
    with ExitStack() as ends:
        fleet = Fleet(tmp_path)
        ends.callback(fleet.end)
        yield fleet


class Progress:
    """How many writes were acknowledged; a test waits for it."""

    def __init__(self) -> None:
        self._count = 0
        self._moved = threading.Condition()

    def step(self) -> None:
        """One more."""
        with self._moved:
            self._count += 1
            self._moved.notify_all()

    def reach(self, count: int) -> None:
        """Wait for so many."""
        with self._moved:
            assert self._moved.wait_for(lambda: self._count >= count, LONG)


@pytest.mark.early
def test_a_client_that_loses_its_node_goes_on_at_another_and_nothing_is_lost_or_doubled(fleet: Fleet) -> None:
    progress, done = Progress(), threading.Event()
    with fleet.connect() as ws, fleet.connect("watcher") as watching, fleet.connect("reader") as reading:
        ws.cells.set(RUN, "count", 0)
        watch = watching.watch(["cell"], id=(RUN, "count"), timeout=LONG)

        def write() -> list[int]:
            answers = []
            for _ in range(WRITES):
                answers.append(int(ws.cells.increment(RUN, "count")))
                progress.step()
            done.set()
            return answers

        def hear() -> list[object]:
            with watch:
                return [event.data["value"] for event in islice(watch, WRITES)]

        def read() -> list[int]:
            seen = []
            while not done.is_set():
                seen.append(int(reading.cells.get(RUN, "count").value))
            return seen

        writing, hearing, looking = start(write), start(hear), start(read)
        progress.reach(WRITES // 3)
        fleet.kill(0)
        progress.reach(2 * WRITES // 3)
        fleet.kill(1)
        answers, heard, seen = writing.result(LONG), hearing.result(LONG), looking.result(LONG)
        assert answers == list(range(1, WRITES + 1)), "each write happened once"
        assert heard == answers, "the watch heard all of them, once and in order"
        assert seen == sorted(seen), "no read went backwards"
        assert ws.cells.get(RUN, "count").value == WRITES


@pytest.mark.early
def test_an_awaiting_client_goes_on_at_another_node_too(fleet: Fleet) -> None:
    async def scene() -> None:
        ws = fleet.connect().aio
        heard: list[object] = []
        watch = ws.watch(["cell"], id=(RUN, "count"), after=0, timeout=LONG)

        async def hear() -> None:
            async for event in watch:
                heard.append(event.data["value"])
                if len(heard) == WRITES:
                    return

        hearing = asyncio.ensure_future(hear())
        seen = []
        for number in range(1, WRITES + 1):
            assert await ws.cells.increment(RUN, "count") == number
            seen.append((await ws.cells.get(RUN, "count")).value)
            if number == WRITES // 2:
                await asyncio.to_thread(fleet.kill, 0)
        assert seen == list(range(1, WRITES + 1))
        await asyncio.wait_for(hearing, LONG)
        assert heard == seen
        await ws.close()

    asyncio.run(scene())


def test_a_client_finds_the_one_node_that_is_left_and_says_if_there_is_none(fleet: Fleet) -> None:
    with fleet.connect() as ws:
        grant = ws.locks.acquire("door", ttl=60)
        fleet.kill(0)
        fleet.kill(1)
        assert ws.locks.get("door").token == grant.token
        assert ws.using(fence=("door", grant.token)).cells.set(RUN, "cell", 1) == 1
        with ws.watch(after=0, timeout=LONG) as watch:
            assert next(watch).kind == "lock"
        fleet.kill(2)
        with pytest.raises(errors.Unreachable):
            ws.cells.get(RUN, "cell")
        with pytest.raises(errors.Unreachable):
            ws.cells.set(RUN, "cell", 2)
        with pytest.raises(errors.Unreachable):
            ws.watch()


def test_a_node_whose_workspace_left_says_where_it_goes_on_and_not_to_restore_a_backup(fleet: Fleet) -> None:
    """A restored backup would be a second workspace beside the one that goes on."""
    fleet.kill(0)
    holdfast.detach(fleet.folders[0])
    node = fleet.servers[1]
    answer = node.call("PUT", "/api/cells/run/cell", json={"value": 1})
    assert (answer.status_code, answer.json()["code"]) == (503, "CLOSED")
    assert f"left this log at revision 0, for {socket.gethostname()}:{fleet.folders[0]}" in answer.json()["error"]
    assert answer.json()["hint"].startswith("continue there; `holdfast backup --damaged FILE`")
    assert node.call("GET", "/readyz").json()["hint"] == answer.json()["hint"]
    with holdfast.connect(node.url, token=node.token, actor="ann") as ws, pytest.raises(errors.Closed) as refusal:
        ws.cells.get(RUN, "cell")
    assert refusal.value.hint.startswith("continue there; holdfast.salvage(path, file)")
    where = [sys.executable, "-m", "holdfast", "where", "--dir", str(fleet.folders[1])]
    said = subprocess.run(where, capture_output=True, text=True, check=False).stdout
    assert "continue there; holdfast backup --damaged FILE" in said
    assert "restore a backup" not in said


def test_a_node_that_starts_while_its_log_is_away_serves_reads_at_once_and_stops_cleanly(tmp_path: Path) -> None:
    """The releasing of old claims, a write, waits for the log beside; its patience is over much later."""
    folder = tmp_path / "node"
    with holdfast.open(f"{shared_server().url}&workspace=away-{os.urandom(6).hex()}", folder=folder, create=True) as ws:
        ws.using(actor="ann").cells.set(RUN, "cell", 1)
    (folder / LOG_URL).write_text("postgresql://localhost:1/nothing?workspace=team")
    server = Running(folder)
    try:
        assert "holdfast_upkeep_failures_total 0\n" in server.call("GET", "/metrics").text
        assert server.call("GET", f"/api/cells/{RUN}/cell").json()["value"] == 1
        assert server.stop() == 0
    finally:
        server.end()


def test_a_server_that_is_stopped_while_it_starts_stops_cleanly(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    url = f"{shared_server().url}&workspace=away-{os.urandom(6).hex()}"
    holdfast.open(url, folder=folder, actor="ann", create=True).close()
    (folder / LOG_URL).write_text("postgresql://localhost:1/nothing?workspace=team")
    server = subprocess.Popen(command(folder, "--port", "0"), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        assert "the log cannot be reached" in server.stderr.readline()
        server.send_signal(signal.SIGTERM)
        assert server.wait(LONG) == 0
    finally:
        server.kill()
        server.communicate()


def test_addresses_and_tokens_that_do_not_go_together_are_invalid() -> None:
    here, there = "http://127.0.0.1:1", "http://127.0.0.1:2"
    for urls, tokens in (([], "a"), ([here, here], "a"), ([here, there], ["a"])):
        with pytest.raises(errors.Invalid, match="do not go together"):
            holdfast.connect(urls, token=tokens)
    with pytest.raises(errors.Invalid, match="not the address of a server"):
        holdfast.connect([here, "there"], token="a")
    with holdfast.connect([here, there], token="a", actor="ann") as ws:
        assert repr(ws) == f"<RemoteWorkspace {[here, there]} actor='ann'>"
