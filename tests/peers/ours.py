"""Holdfast itself: a file in this process, by an event loop or by threads, and a server that speaks HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import shutil
import threading
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar

import holdfast
from holdfast import AsyncWorkspace, RemoteWorkspace, Workspace
from holdfast.remote.aio import AsyncRemoteWorkspace
from tests.bench.load_server import Served
from tests.bench.task_rows import Plan, make_store
from tests.http.running import command
from tests.peers.peer import CALLERS, VALUE, Heard, Peer

RUN, COUNTER, CELL, WATCHED = "peers", "counter", "small", "watched"
AGENTS = [f"agent-{number:02}" for number in range(CALLERS)]


class _Ours(Peer):
    needs: ClassVar[str] = "make setup"

    def __init__(self, home: Path, tasks: int) -> None:
        super().__init__(home, tasks)
        self.version = holdfast.__version__
        self.folder = home / "workspace"

    def fill(self) -> None:
        """A store with the tasks, and one small value; written once, copied for each form."""
        original = self.home.parent / "original"
        if not original.exists():
            make_store(original, Plan(self.tasks, plain=True))
        shutil.copytree(original, self.folder)
        with holdfast.open(self.folder, actor="peers") as ws:
            ws.cells.set(RUN, CELL, VALUE)
            ws.cells.set(RUN, COUNTER, 0)


class _ByLoop(_Ours):
    aio: AsyncWorkspace | AsyncRemoteWorkspace

    async def claim(self, caller: int) -> object:
        """`tasks.claim_next`"""
        return await self.aio.tasks.claim_next(AGENTS[caller])

    async def count(self, caller: int) -> object:
        """`cells.increment`"""
        return await self.aio.cells.increment(RUN, COUNTER)

    async def get(self, caller: int) -> object:
        """`cells.get`"""
        return await self.aio.cells.get(RUN, CELL)

    async def watch(self, heard: Heard) -> None:
        """`watch` on one cell."""
        gates = [asyncio.Event() for _ in heard.heard]
        watchers = [asyncio.ensure_future(self._watch(heard, n, gate)) for n, gate in enumerate(gates)]
        await asyncio.gather(*(gate.wait() for gate in gates))
        await self.change(heard)
        await asyncio.gather(*watchers)

    async def _watch(self, heard: Heard, number: int, gate: asyncio.Event) -> None:
        async with self.aio.watch(kinds=["cell"], id=(RUN, WATCHED), timeout=30) as events:
            gate.set()
            async for _ in events:
                if heard.note(number):
                    break

    async def change(self, heard: Heard) -> None:
        """Make the changes by this workspace."""
        await heard.make(lambda: self.aio.cells.set(RUN, WATCHED, VALUE))


class ByTasks(_ByLoop):
    """A file, by tasks of an event loop; watchers hear of what another process writes."""

    name = "Holdfast"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open, with a second process on the same file."""
        self.fill()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        child = context.Process(target=_writer, args=(theirs, str(self.folder)))
        child.start()
        theirs.close()
        with holdfast.open(self.folder, actor="peers") as ws:
            self.aio = ws.aio
            yield
        self._pipe.send(0)
        child.join()
        self._pipe.close()

    async def change(self, heard: Heard) -> None:
        """The other process makes the changes."""
        self._pipe.send(heard.changes)
        heard.called.extend(await asyncio.to_thread(self._pipe.recv))


def _writer(pipe: Connection, folder: str) -> None:
    with holdfast.open(folder, actor="writer") as ws:
        while count := pipe.recv():
            called = []
            for _ in range(count):
                time.sleep(0.004)
                called.append(time.perf_counter())
                ws.cells.set(RUN, WATCHED, VALUE)
            pipe.send(called)


class ByThreads(_Ours):
    """A file, by threads of this process, which also watch it."""

    name = "Holdfast"
    form = "threads"
    ws: Workspace

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open."""
        self.fill()
        with holdfast.open(self.folder, actor="peers") as self.ws:
            yield

    def claim(self, caller: int) -> object:
        """`tasks.claim_next`"""
        return self.ws.tasks.claim_next(AGENTS[caller])

    def count(self, caller: int) -> object:
        """`cells.increment`"""
        return self.ws.cells.increment(RUN, COUNTER)

    def get(self, caller: int) -> object:
        """`cells.get`"""
        return self.ws.cells.get(RUN, CELL)

    async def watch(self, heard: Heard) -> None:
        """`watch` on one cell, in a thread each."""
        gate = threading.Barrier(len(heard.heard) + 1)

        def listen(number: int) -> None:
            with self.ws.watch(kinds=["cell"], id=(RUN, WATCHED), timeout=30) as events:
                gate.wait()
                for _ in events:
                    if heard.note(number):
                        break

        threads = [threading.Thread(target=listen, args=(number,)) for number in range(len(heard.heard))]
        for thread in threads:
            thread.start()
        gate.wait()
        for _ in range(heard.changes):
            time.sleep(0.004)
            heard.called.append(time.perf_counter())
            self.ws.cells.set(RUN, WATCHED, VALUE)
        for thread in threads:
            thread.join()


class ByServer(_ByLoop):
    """`holdfast serve` in a process of its own, and our client on an event loop."""

    name = "Holdfast server"
    remote: RemoteWorkspace

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Served and connected."""
        self.fill()
        with Served(command(self.folder, "--port", "0"), self.folder) as served:
            url = f"http://127.0.0.1:{served.port}"
            with holdfast.connect(url, token=served.token, actor="peers") as self.remote:
                self.aio = self.remote.aio
                yield
