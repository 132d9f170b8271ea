"""Many clients that watch the same: each event is read, judged and encoded once, and sent to all of them.

A channel is one watch of a workspace with a filter, and the last events that came through it, as bytes. A client has a
position in the log. As long as the channel reaches back to it, the client is sent what lies behind; one that has fallen
further back, or comes with an older cursor, reads the log for itself until it has caught up. So a slow client costs
nobody else anything, and nobody is ever skipped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Final

from holdfast import errors
from holdfast.aio_watch import AsyncWatch
from holdfast.faces.http import frames
from holdfast.faces.http.streams import BATCH, Client
from holdfast.kernel.events import Position, parse_cursor, to_cursor
from holdfast.ops import operation
from holdfast.types.base import Event

REACH: Final = 4096  # events that a channel remembers
GATHER: Final = 0.01  # seconds: events that follow within this time travel together,
GATHER_EACH: Final = 0.00001  # and a little longer for every client, because sending to all of them takes its time
GATHER_MOST: Final = 0.05

WATCH: Final = operation("watch")
Opened = Callable[[str | None], AsyncWatch[Event]]  # a watch after a cursor, or from now on


class Channel:
    """One watch for many clients."""

    def __init__(self, watch: AsyncWatch[Event]) -> None:
        self._watch = watch
        self._events: deque[tuple[Position, bytes]] = deque()
        self.floor: Position = parse_cursor(watch.bookmark)  # everything behind it is remembered
        self._newest: tuple[Position, bytes] = (self.floor, b"")  # what came last, in one piece, and behind what
        self._gathering = False  # it has taken an event which it has not handed on
        self.failed = False
        self.clients: set[Client] = set()
        self._task = asyncio.ensure_future(self._run())

    @property
    def bookmark(self) -> str:
        """A cursor up to which everything has been handed on."""
        return to_cursor(self.position) if self._gathering else self._watch.bookmark

    def after(self, position: Position) -> bytes | None:
        """What came behind a position; None if the channel does not reach back to it."""
        if self.failed or position < self.floor:
            return None
        if self._newest[0] == position:
            return self._newest[1]
        missed = takewhile(lambda each: each[0] > position, reversed(self._events))
        return b"".join([frame for _, frame in missed][::-1])

    @property
    def position(self) -> Position:
        """Of its last event."""
        return self._events[-1][0] if self._events else self.floor

    async def _run(self) -> None:
        """Hand on what comes. Whatever ends this, each client finds out for itself by reading on its own."""
        try:
            async for first in self._watch:
                self._gathering = True
                await asyncio.sleep(min(GATHER + GATHER_EACH * len(self.clients), GATHER_MOST))
                self._hand_on([first, *self._watch.ready(BATCH)])
                self._gathering = False
        except errors.HoldfastError:
            return
        finally:
            self.failed = True
            self.wake()

    def _hand_on(self, events: list[Event]) -> None:
        behind = self.position
        told = [(parse_cursor(event.cursor), frames.event(WATCH, event)) for event in events]
        self._events.extend(told)
        while len(self._events) > REACH:
            self.floor = self._events.popleft()[0]
        self._newest = behind, b"".join(frame for _, frame in told)
        self.wake()

    def wake(self) -> None:
        """Have every client look."""
        for client in self.clients:
            client.wake.set()

    def close(self) -> None:
        """Nobody listens any more."""
        self._task.cancel()
        self._watch.close()


class Channels:
    """The channels of one workspace."""

    def __init__(self) -> None:
        self._open: dict[Any, Channel] = {}

    def announce(self, frame: bytes) -> None:
        """Say something beside the events to every client."""
        for channel in self._open.values():
            for client in channel.clients:
                client.asides.append(frame)
            channel.wake()

    async def follow(self, wanted: Any, watch: AsyncWatch[Event], opened: Opened, client: Client) -> None:
        """Send a client what comes of what it wants, beginning with what `watch` has."""
        await client.start(watch.bookmark)
        try:
            while True:
                cursor = await _catch_up(watch, client)
                watch.close()
                behind = cursor and await self._share(wanted, cursor, opened, client)
                if behind is None:
                    return
                watch = opened(behind)
                await asyncio.sleep(0)  # however often it falls behind, others get their turn
        except errors.HoldfastError as error:
            await client.write(frames.error(error), more=False)
        finally:
            watch.close()

    async def _share(self, wanted: Any, cursor: str, opened: Opened, client: Client) -> str | None:
        """Follow the channel from a cursor on; answers a cursor to catch up from, None if the client is done."""
        channel = self._open.get(wanted)
        if channel is None or channel.failed:
            channel = self._open[wanted] = Channel(opened(None))
        channel.clients.add(client)
        position = parse_cursor(cursor)
        try:
            while not await client.is_over(cursor):
                chunk = channel.after(position)
                if chunk is None:
                    return cursor
                if chunk or client.asides:
                    if chunk:
                        position = channel.position
                        cursor = to_cursor(position)
                    asides, client.asides = client.asides, []
                    await client.write(b"".join((*asides, chunk)))
                elif client.beat:
                    cursor = channel.bookmark
                    position = max(position, parse_cursor(cursor))
                    await client.write(frames.bookmark(cursor))
                else:
                    await client.sleep()
            return None
        finally:
            channel.clients.discard(client)
            if not channel.clients:
                channel.close()
                if self._open.get(wanted) is channel:
                    del self._open[wanted]


async def _catch_up(watch: AsyncWatch[Event], client: Client) -> str | None:
    """Send a client what it has missed, from the log; answers the cursor behind that, None if the client is done."""
    while True:
        missed = watch.ready(BATCH)
        if missed:
            await client.write(b"".join(frames.event(WATCH, event) for event in missed))
        if await client.is_over(watch.bookmark):
            return None
        if len(missed) < BATCH:
            return watch.bookmark
