"""`ws.aio` of a workspace behind a server: every operation awaitable, over connections of the event loop.

A watch counts from the call that made it: whatever this workspace sends afterwards waits until the watch is connected,
so it is seen. Connections end with the loop that they belong to, or with `await ws.aio.close()`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from holdfast import errors
from holdfast.operation import Async, Handlers, drive_async
from holdfast.remote import NodeRefused, leave, leaving, signed
from holdfast.remote.aio_pool import AioPool
from holdfast.remote.failover import Nodes
from holdfast.remote.http1 import Broken, Response
from holdfast.remote.protocol import (
    Elsewhere,
    Pause,
    Reach,
    RemoteRunner,
    Send,
    Steps,
    no_backup,
    no_block,
    no_function,
)
from holdfast.remote.stream import SILENCE, Resuming, check_events
from holdfast.types import Report
from holdfast.workspace.context import Context
from holdfast.workspace.transaction import InContext

AT_ONCE: Final = 64  # calls that are sent at the same time; the others wait for their turn
BUFFER: Final = 1024  # events that a watch fetches ahead: then it stops reading
R = TypeVar("R")
E = TypeVar("E")


class AsyncWire:
    """The connections of one event loop to one server, or to several nodes."""

    awaits: Final = True

    def __init__(self, nodes: Nodes, loop: asyncio.AbstractEventLoop, forget: Callable[[], object]) -> None:
        self.nodes = nodes
        self._loop = weakref.ref(loop)  # which is not kept: it knows us, and ends when its owner drops it
        self._pools = [AioPool(address.peer) for address in nodes.addresses]
        self._handlers: Handlers = {Send: self._send, Pause: self._pause, Elsewhere: self._leave}
        self._forget = forget
        self._keeper: AsyncGenerator[None, None] | None = None
        self._closed = False
        self._room = asyncio.Semaphore(AT_ONCE)
        self._opening: set[asyncio.Future[None]] = set()  # watches that are not connected yet
        self._fetching: set[asyncio.Task[None]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it belongs to."""
        loop = self._loop()
        if loop is None:
            raise errors.Closed("the event loop of this workspace has ended", hint="use ws.aio of the one that runs")
        return loop

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Closed("the connections of this event loop are closed")

    async def drive(self, steps: Steps[R]) -> R:
        """Run the steps of a call to its result."""
        self._check_open()
        await self.keep()
        while self._opening:
            await asyncio.wait(self._opening)
        return await drive_async(steps, self._handlers)

    def _pause(self, step: Pause) -> Awaitable[None]:
        return asyncio.sleep(step.seconds)

    async def _send(self, step: Send) -> Response:
        if step.request.wait != 0.0:  # it may wait for one that comes after it
            return await self._request(step)
        async with self._room:
            return await self._request(step)

    async def _request(self, step: Send) -> Response:
        self._check_open()
        sent, outgoing = self.nodes.request(step)
        with leaving(self.nodes, sent.node):
            response = await self._pools[sent.node].request(outgoing)
        return signed(self.nodes, sent, response)

    async def _leave(self, step: Elsewhere) -> Reach:
        return leave(self.nodes, step)

    def watch(self, resuming: Resuming) -> AsyncRemoteWatch[Any]:
        """An async iterator over events."""
        return AsyncRemoteWatch(self, resuming)

    def start_watch(self, resuming: Resuming, events: asyncio.Queue[Any]) -> asyncio.Task[None]:
        """Fetch the events of a watch in a task of its own: a caller that stops waiting for one loses none."""
        self._check_open()
        connected = self.loop.create_future()
        self._opening.add(connected)
        task = asyncio.ensure_future(self._fetch(resuming, events, connected))
        self._fetching.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._fetching.discard(task)
            self._opening.discard(connected)
            if not connected.done():
                connected.set_result(None)
            if not task.cancelled():
                task.exception()  # which is raised where the events are taken
            if not events.full():  # otherwise the taker is not waiting
                events.put_nowait(_END)

        task.add_done_callback(ended)
        return task

    async def _fetch(self, resuming: Resuming, events: asyncio.Queue[Any], connected: asyncio.Future[None]) -> None:
        """Put events into the queue as they come, until the watch ends; resumes by itself."""
        await self.keep()
        resuming.nodes = len(self.nodes)
        while True:
            broken: Exception | None = None
            sent, outgoing = self.nodes.request(resuming.step(), watch=True)
            try:
                async with self._pools[sent.node].stream(outgoing) as answer:
                    if not answer.head.is_success:
                        raise NodeRefused(resuming.refused(await answer.read(), answer.head.status))
                    check_events(answer.head)
                    answer.silence = SILENCE
                    async for line in answer.lines():
                        found = resuming.heard(line)
                        if resuming.connected and not connected.done():
                            self._opening.discard(connected)
                            connected.set_result(None)
                        for event in found:
                            await events.put(event)
                        if resuming.over:
                            return
            except (Broken, NodeRefused) as error:
                broken = error
            self.nodes.leave(sent.node)
            await asyncio.sleep(resuming.broke(broken))

    async def keep(self) -> None:
        """Have the loop close the connections when it ends: it ends its generators then, and this is one."""
        if self._keeper is None:
            self._keeper = self._until_the_end()
            await anext(self._keeper)

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._forget()
            await self._close_pools()

    async def _close_pools(self) -> None:
        for pool in self._pools:
            await pool.close()

    async def close(self) -> None:
        """Close them; watches end."""
        self._closed = True
        for task in list(self._fetching):
            task.cancel()
        if self._keeper is not None:
            await self._keeper.aclose()
        await self._close_pools()


class AsyncRemoteWorkspace(InContext[Async]):
    """The awaitable twin of a workspace behind a server, bound to the running event loop."""

    def __init__(self, wire: AsyncWire, context: Context) -> None:
        super().__init__(RemoteRunner(wire, context))
        self._wire = wire
        self._context = context

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop it belongs to."""
        return self._wire.loop

    def _within(self, context: Context) -> AsyncRemoteWorkspace:
        return AsyncRemoteWorkspace(self._wire, context)

    async def revision(self) -> int:
        """The revision of the newest transaction."""
        return int((await self._runner.ask("revision"))["revision"])

    async def check(self) -> Report:
        """Have the server compare the state with the log; needs the role admin."""
        return Report(**await self._runner.ask("check"))

    if not TYPE_CHECKING:  # a type checker reports their use

        async def transact(self, body: Callable[..., object]) -> NoReturn:
            """Raises Unsupported: a function does not travel. `ws.txn(conditions, then)` does."""
            raise no_function("transact")

        def transaction(self) -> NoReturn:
            """Raises Unsupported: a block does not travel. `ws.txn(conditions, then)` does."""
            raise no_block()

        async def backup(self, path: str) -> NoReturn:
            """Raises Unsupported: a backup is made where the store is."""
            raise no_backup()

    async def close(self) -> None:
        """Close the connections of this loop; the server goes on."""
        await self._wire.close()


class AsyncRemoteWatch(Generic[E]):
    """An async iterator over events as they come from a server. It ends at its timeout; close it or just drop it."""

    def __init__(self, wire: AsyncWire, resuming: Resuming) -> None:
        self._events: asyncio.Queue[Any] = asyncio.Queue(BUFFER)
        self._task = wire.start_watch(resuming, self._events)
        self._closed = False
        self._dropped = weakref.finalize(self, _cancel, wire.loop, self._task)
        self._dropped.atexit = False

    def __aiter__(self) -> AsyncRemoteWatch[E]:
        return self

    async def __anext__(self) -> E:
        while not self._closed and not (self._task.done() and self._events.empty()):
            item = await self._events.get()
            if item is not _END:
                event: E = item
                return event
        raise self._end()

    def _end(self) -> BaseException:
        """The reason why no more events come."""
        if self._closed:
            return StopAsyncIteration()
        if self._task.cancelled():
            return errors.Closed("the connections of this event loop are closed")
        return self._task.exception() or StopAsyncIteration()

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        self._dropped.detach()
        self._task.cancel()

    async def __aenter__(self) -> AsyncRemoteWatch[E]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


_END: Final = object()  # the last item of the queue: the task that fetched events has ended


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and with it the task
        loop.call_soon_threadsafe(task.cancel)
