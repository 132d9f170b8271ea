"""`ws.aio` of a workspace behind a server: every operation awaitable, over connections of the event loop.

A watch counts from the call that made it: whatever this workspace sends afterwards waits until the watch is connected,
so it is seen. Connections end with the loop that they belong to, or with `await ws.aio.close()`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Generic, Literal, TypeVar

import httpx

from holdfast import errors
from holdfast.context import Context, Fence
from holdfast.ops import Async, Operation, drive_async
from holdfast.remote.answers import failure
from holdfast.remote.requests import Args, Kwargs, no_function
from holdfast.remote.sending import Pause, Resuming, Send, asking, calling
from holdfast.remote.wire import Address, streaming
from holdfast.transaction import Root
from holdfast.types.base import Report

BUFFER: Final = 1024  # events that a watch has fetched and nobody has taken: then it stops reading
R = TypeVar("R")
E = TypeVar("E")


class AsyncWire:
    """The connections of one event loop to one server."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self.loop = loop
        self._client = httpx.AsyncClient(**address.options(httpx.AsyncHTTPTransport))
        self._keeper: AsyncGenerator[None, None] | None = None
        self.opening: set[asyncio.Future[None]] = set()  # watches that are not connected yet

    async def ask(self, what: str, context: Context) -> dict[str, Any]:
        """Something of the workspace itself."""
        answer: dict[str, Any] = await self._drive(asking(what, context))
        return answer

    async def call(self, op: Operation[..., Any], args: Args, kwargs: Kwargs, context: Context) -> Any:
        """Do it, and answer what the operation answers."""
        return await self._drive(calling(op, args, kwargs, context))

    async def _drive(self, steps: Any) -> Any:
        await self.keep()
        while self.opening:
            await asyncio.wait(self.opening)
        return await drive_async(steps, self._perform)

    async def _perform(self, step: Send | Pause) -> httpx.Response | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        request = step.request
        return await self._client.request(
            request.method,
            request.path,
            params=tuple(request.query),
            content=request.body,
            headers=step.headers,
            timeout=self.address.patience(step),
        )

    async def stream(self, resuming: Resuming, give: Callable[[list[Any]], Awaitable[None]]) -> None:
        """Hand over events as they come, until the watch is over; resumes by itself."""
        await self.keep()
        while True:
            broken: httpx.TransportError | None = None
            try:
                async with self._client.stream(**streaming(resuming)) as answer:
                    if not answer.is_success:
                        raise failure(await answer.aread(), answer.status_code)
                    async for line in answer.aiter_lines():
                        await give(resuming.heard(line))
                        if resuming.over:
                            return
            except httpx.TransportError as error:
                broken = error
            await asyncio.sleep(resuming.broke(broken))

    async def keep(self) -> None:
        """Have the loop close the connections when it ends: it ends its generators then, and this is one."""
        if self._keeper is None:
            self._keeper = _until_the_end(self._client)
            await anext(self._keeper)

    async def close(self) -> None:
        """Close them."""
        if self._keeper is not None:
            await self._keeper.aclose()
        await self._client.aclose()


async def _until_the_end(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.aclose()


class AsyncRemoteWorkspace(Root[Async]):
    """The awaitable twin of a workspace behind a server, bound to the running event loop."""

    def __init__(self, wire: AsyncWire, context: Context) -> None:
        super().__init__(self)
        self._wire = wire
        self._context = context

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop it belongs to."""
        return self._wire.loop

    def using(
        self,
        actor: str | None = None,
        fence: Fence | None = None,
        key: str | None = None,
        at_least: int | Literal["latest"] | None = None,
    ) -> AsyncRemoteWorkspace:
        """The same workspace with another call context."""
        given = {"actor": actor, "fence": fence, "key": key, "at_least": at_least}
        return AsyncRemoteWorkspace(self._wire, self._context.with_(**given))

    async def revision(self) -> int:
        """The revision of the newest transaction."""
        revision: int = (await self._wire.ask("revision", self._context))["revision"]
        return revision

    async def check(self) -> Report:
        """Have the server compare the state with the log; needs the role admin."""
        return Report(**await self._wire.ask("check", self._context))

    async def transact(self, body: Callable[..., R]) -> R:
        """Unsupported: a function does not travel."""
        raise no_function("transact")

    async def close(self) -> None:
        """Close the connections of this loop; the server goes on."""
        await self._wire.close()

    def bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """An operation as an awaitable call on the server."""
        wire, context = self._wire, self._context
        if op.kind == "stream":
            return lambda *args, **kwargs: AsyncRemoteWatch(wire, Resuming(op, args, kwargs, context))
        if op.route.http is None:
            return lambda *args, **kwargs: _refuse(no_function(op.name))
        return lambda *args, **kwargs: wire.call(op, args, kwargs, context)


async def _refuse(error: errors.HoldfastError) -> None:
    raise error


class AsyncRemoteWatch(Generic[E]):
    """An async iterator over events as they come from a server. It ends at its timeout; close it or just drop it."""

    def __init__(self, wire: AsyncWire, resuming: Resuming) -> None:
        self._events: asyncio.Queue[Any] = asyncio.Queue(BUFFER)
        self._end: BaseException | None = None
        connected = wire.loop.create_future()
        wire.opening.add(connected)
        connected.add_done_callback(wire.opening.discard)
        self._task = asyncio.ensure_future(_pump(wire, resuming, self._events, connected))
        self._dropped = weakref.finalize(self, _cancel, wire.loop, self._task)
        self._dropped.atexit = False

    def __aiter__(self) -> AsyncRemoteWatch[E]:
        return self

    async def __anext__(self) -> E:
        if self._end is not None:
            raise self._end
        item = await self._events.get()
        if isinstance(item, _End):
            self._end = item.reason
            raise self._end
        event: E = item
        return event

    def close(self) -> None:
        """Stop watching."""
        self._end = self._end or StopAsyncIteration()
        self._dropped.detach()
        self._task.cancel()

    async def __aenter__(self) -> AsyncRemoteWatch[E]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class _End:
    """The last thing that a watch hears."""

    def __init__(self, reason: BaseException) -> None:
        self.reason = reason


async def _pump(
    wire: AsyncWire, resuming: Resuming, events: asyncio.Queue[Any], connected: asyncio.Future[None]
) -> None:
    """Fetch the events of a watch; apart from who takes them, so that a taker who gives up loses none."""

    async def give(found: list[Any]) -> None:
        if resuming.connected and not connected.done():
            connected.set_result(None)
        for event in found:
            await events.put(event)

    end: BaseException = StopAsyncIteration()
    try:
        await wire.stream(resuming, give)
    except errors.HoldfastError as error:
        end = error
    finally:
        if not connected.done():
            connected.set_result(None)
    await events.put(_End(end))


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and with it the task
        loop.call_soon_threadsafe(task.cancel)
