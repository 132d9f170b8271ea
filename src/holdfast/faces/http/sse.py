"""Server-sent events: frames, one client's stream, and channels that encode each event once for many clients.

A client that reconnects with `Last-Event-ID` gets what followed, without gap or repeat. When there is no event for a
while, a bookmark moves its cursor past events that its filter left out. A client that does not read is disconnected
after a while and loses nothing: it resumes from its last id. Watches of a whole workspace without a timeout share a
channel per filter; a watch of one record, or with a timeout, is read for its client alone.

A channel is one watch of a workspace with a filter, and the last events that came through it, as bytes. A client has a
position in the log. While the channel reaches back to it, the client gets the events after it from the channel; a
client further behind, or with an older cursor, reads the log by itself until it has caught up. So a slow client delays
no other, and no event is skipped.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Final, Literal

from holdfast import errors, wire
from holdfast.clock import SystemClock
from holdfast.errors import TooManyWatchers
from holdfast.faces.http.auth import Headers, Token
from holdfast.faces.http.calls import header_lines
from holdfast.faces.http.request import Request
from holdfast.faces.http.sessions import Sessions
from holdfast.operation import Operation, operation
from holdfast.types import Event, Position, parse_cursor, to_cursor
from holdfast.workspace.watch import AsyncWatch

_LINES: Final = header_lines((b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"))


def event_frame(op: Operation[..., Any], item: Any) -> bytes:
    """An event. In a watch of a workspace its id is a cursor, in a watch of one record its version."""
    last = item.cursor if isinstance(item, Event) else item.version
    return f"id: {last}\ndata: ".encode() + wire.answer(op, item) + b"\n\n"


def ready_frames(op: Operation[..., Any], watch: AsyncWatch[Any]) -> tuple[list[tuple[Any, bytes]], bool]:
    """Events that have come already, with their frames, and whether these are all: of large ones only a few."""
    found: list[tuple[Any, bytes]] = []
    size = 0
    while len(found) < BATCH and size < CHUNK:
        if not (next_one := watch.ready(1)):
            return found, True
        frame = event_frame(op, next_one[0])
        size += len(frame)
        found.append((next_one[0], frame))
    return found, False


def server_frame(event: Literal["bookmark", "end", "stop"], cursor: str | None) -> bytes:
    """A message of the server: no more events up to this cursor; and the watch is over, or the server stops."""
    id = "" if cursor is None else f"id: {cursor}\n"
    retry = "retry: 1000\n" if event == "stop" else ""  # reconnect in a second
    return f"event: {event}\n{id}{retry}data: {{}}\n\n".encode()


def error_frame(failure: errors.HoldfastError) -> bytes:
    """The watch has failed."""
    return b"event: error\ndata: " + wire.failure(failure, failure.message, failure.hint) + b"\n\n"


def progress_frame(content: Any) -> bytes:
    """Progress of long-running work; without an id, because it is not part of the log."""
    return b"event: progress\ndata: " + wire.json_bytes(content) + b"\n\n"


HEARTBEAT: Final = 10_000_000  # microseconds
READ_TIMEOUT: Final = 30_000_000  # microseconds after which a client that does not read is disconnected
GATHER: Final = 0.02  # seconds: events within this time are sent together
BATCH: Final = 500  # events that are sent together at most
CHUNK: Final = 1024 * 1024  # bytes after which no more of them are
TOKEN_CHECK_EVERY: Final = 1_000_000  # microseconds after which a token is checked again

_now = SystemClock().monotonic  # real time, also in tests with a clock of their own


def resume_from(op: Operation[..., Any], headers: Headers, given: dict[str, Any]) -> None:
    """Resume after `Last-Event-ID`, which wins over the address."""
    last = headers.get(b"last-event-id", b"").decode("latin-1")
    if last and op.name == "watch":
        given["after"] = last
    elif last:
        if not last.isdigit() or len(last) > 18:
            raise errors.InvalidFilter(f"{last[:80]!r} is not a version", hint="send the id of the last event")
        given["after_version"] = int(last)


class Watchers:
    """The connected clients, limited per token, each checked every second."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._under: Counter[str] = Counter()
        self._clients: set[Client] = set()
        self._looking: asyncio.Task[None] | None = None
        self.cut = 0  # clients disconnected because they did not read

    def __len__(self) -> int:
        return len(self._clients)

    @contextmanager
    def place(self, token: Token, client: Client) -> Iterator[None]:
        """Count a client while it watches. Raises TooManyWatchers at the limit of its token."""
        if self._under[token.id] >= self._limit:
            raise TooManyWatchers(f"this token has {self._limit} watchers already", limit=self._limit)
        self._under[token.id] += 1
        self._clients.add(client)
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        try:
            yield
        finally:
            self._clients.discard(client)
            self._under[token.id] -= 1
            if not self._under[token.id]:
                del self._under[token.id]

    def wake(self) -> None:
        """Wake every client."""
        for client in self._clients:
            client.wake.set()

    async def _look(self) -> None:
        """Check all clients by one timer: two for every event and client would cost more than the events."""
        while self._clients:
            await asyncio.sleep(1.0)
            now = _now()
            for client in list(self._clients):
                client.look(now)
        self._looking = None


class Client:
    """One client that watches: sends to it, and notices that it disconnects, does not read, or lost its token."""

    def __init__(self, token: Token, sessions: Sessions, stopping: asyncio.Event, request: Request) -> None:
        self._token = token
        self._sessions = sessions
        self._stopping = stopping
        self._request = request
        self._task = asyncio.current_task()
        self._sending: int | None = None  # when the current write began
        self._quiet = self._checked = _now()  # when something was sent last, and the token checked
        self._gone = self._cut = False
        self.beat = False  # a bookmark is due
        self.asides: list[bytes] = []  # frames to send beside the events
        self.wake = asyncio.Event()  # there is something to send or to notice

    async def serve(self, body: Awaitable[None]) -> bool:
        """Run the stream until the client disconnects; False if it was disconnected because it did not read."""
        leaving = asyncio.ensure_future(self._notice())
        try:
            await body
        except asyncio.CancelledError:
            if not self._cut or self._task is None:
                raise
            self._task.uncancel()
            return False
        finally:
            leaving.cancel()
        return True

    async def _notice(self) -> None:
        await self._request.left()
        self._gone = True
        self.wake.set()

    def look(self, now: int) -> None:
        """Disconnect it if it has not read for too long; request a bookmark if nothing was sent for a while."""
        if self._sending is not None and now - self._sending > READ_TIMEOUT and self._task is not None:
            self._cut = True
            self._task.cancel()
        elif self._sending is None and now - self._quiet > HEARTBEAT:
            self.beat = True
            self.wake.set()

    async def start(self, cursor: str | None) -> None:
        """Start the response with a bookmark: no event after it is missed."""
        self._request.start(200, _LINES)
        await self.write(server_frame("bookmark", cursor))

    async def write(self, chunk: bytes, more: bool = True) -> None:
        """Send, as soon as there is room in the buffer."""
        self._sending = _now()
        await self._request.write(chunk, more)
        self._sending, self._quiet, self.beat = None, _now(), False

    async def is_over(self, cursor: str | None) -> bool:
        """Whether the stream ends: the client disconnected, the server stops, or the token was revoked."""
        if self._gone:
            return True
        if self._stopping.is_set():
            await self.write(server_frame("stop", cursor), more=False)
            return True
        if _now() - self._checked > TOKEN_CHECK_EVERY:
            self._checked = _now()
            try:
                self._sessions.check(self._token)
            except errors.HoldfastError as error:
                await self.write(error_frame(error), more=False)
                return True
        return False

    async def sleep(self) -> None:
        """Sleep until there is something to do."""
        await self.wake.wait()
        self.wake.clear()


class DirectStream:
    """A watch for one client alone: of one record, or with a timeout."""

    def __init__(self, op: Operation[..., Any], watch: AsyncWatch[Any], client: Client) -> None:
        self._op = op
        self._watch = watch
        self._client = client
        self._coming: asyncio.Task[Any] | None = None
        self._sent: str | None = None

    def _cursor(self) -> str | None:
        """The cursor up to which everything was sent."""
        if self._op.name == "watch" and (self._coming is None or not self._coming.done()):
            self._sent = self._watch.bookmark
        return self._sent

    async def follow(self) -> None:
        """Send events until the timeout."""
        client = self._client
        await client.start(self._cursor())
        try:
            while not await client.is_over(self._cursor()):
                if self._coming is None:
                    self._coming = asyncio.ensure_future(anext(self._watch))
                    self._coming.add_done_callback(lambda _: client.wake.set())
                if self._coming.done():
                    if not await self._send(self._coming):
                        return
                elif client.beat:
                    await client.write(server_frame("bookmark", self._cursor()))
                else:
                    await client.sleep()
        finally:
            if self._coming is not None:
                self._coming.cancel()
            self._watch.close()

    async def _send(self, came: asyncio.Task[Any]) -> bool:
        """Send the events that came; False if the watch ended."""
        try:
            first = event_frame(self._op, came.result())
        except StopAsyncIteration:
            await self._client.write(server_frame("end", self._cursor()), more=False)
            return False
        except errors.HoldfastError as error:
            await self._client.write(error_frame(error), more=False)
            return False
        await self._client.write(b"".join([first, *(frame for _, frame in ready_frames(self._op, self._watch)[0])]))
        self._coming = None
        await asyncio.sleep(GATHER)
        return True


REACH: Final = 4096  # events that a channel keeps,
REACH_BYTES: Final = 16 * 1024 * 1024  # if they are not larger than this together
GATHER_LEAST: Final = 0.01  # seconds: events within this time are sent together,
GATHER_EACH: Final = 0.00001  # plus a little for every client, because sending takes time
GATHER_MOST: Final = 0.05

WATCH: Final = operation("watch")
Opened = Callable[[str | None], AsyncWatch[Event]]  # opens a watch after a cursor, or from now on


class Channel:
    """One watch for many clients."""

    def __init__(self, watch: AsyncWatch[Event]) -> None:
        self._watch = watch
        self._events: deque[tuple[Position, bytes]] = deque()
        self._size = 0  # bytes of them
        self.floor: Position = parse_cursor(watch.bookmark)  # every event after it is kept
        self._newest: tuple[Position, bytes] = (self.floor, b"")  # before the newest events, and their bytes
        self._gathering = False  # it has read an event that it has not published
        self.failed = False
        self.clients: set[Client] = set()
        self._task = asyncio.ensure_future(self._run())

    @property
    def bookmark(self) -> str:
        """A cursor up to which everything has been published."""
        return to_cursor(self.position) if self._gathering else self._watch.bookmark

    def after(self, position: Position) -> bytes | None:
        """The frames after a position; None if the channel does not reach back to it."""
        if self.failed or position < self.floor:
            return None
        if self._newest[0] == position:
            return self._newest[1]
        missed = takewhile(lambda each: each[0] > position, reversed(self._events))
        return b"".join([frame for _, frame in missed][::-1])

    @property
    def position(self) -> Position:
        """The position of its last event."""
        return self._events[-1][0] if self._events else self.floor

    async def _run(self) -> None:
        """Publish events. If this fails, each client finds out the reason by reading the log itself."""
        try:
            async for first in self._watch:
                self._gathering = True
                await asyncio.sleep(min(GATHER_LEAST + GATHER_EACH * len(self.clients), GATHER_MOST))
                self._publish([(first, event_frame(WATCH, first)), *ready_frames(WATCH, self._watch)[0]])
                self._gathering = False
        except errors.HoldfastError:
            return
        finally:
            self.failed = True
            self.wake()

    def _publish(self, events: list[tuple[Event, bytes]]) -> None:
        behind = self.position
        framed = [(parse_cursor(event.cursor), frame) for event, frame in events]
        self._events.extend(framed)
        self._size += sum(len(frame) for _, frame in framed)
        while len(self._events) > REACH or (self._size > REACH_BYTES and len(self._events) > 1):
            self.floor, frame = self._events.popleft()
            self._size -= len(frame)
        self._newest = behind, b"".join(frame for _, frame in framed)
        self.wake()

    def wake(self) -> None:
        """Wake every client."""
        for client in self.clients:
            client.wake.set()

    def close(self) -> None:
        """Stop watching."""
        self._task.cancel()
        self._watch.close()


class Channels:
    """The channels of one workspace."""

    def __init__(self) -> None:
        self._open: dict[Any, Channel] = {}

    def announce(self, frame: bytes) -> None:
        """Send a frame beside the events to every client."""
        for channel in self._open.values():
            for client in channel.clients:
                client.asides.append(frame)
            channel.wake()

    async def follow(self, wanted: Any, watch: AsyncWatch[Event], opened: Opened, client: Client) -> None:
        """Send a client the events it wants, starting with those of `watch`."""
        await client.start(watch.bookmark)
        try:
            while True:
                cursor = await _catch_up(watch, client)
                watch.close()
                behind = cursor and await self._share(wanted, cursor, opened, client)
                if behind is None:
                    return
                watch = opened(behind)
                await asyncio.sleep(0)  # other tasks run, however often this client falls behind
        except errors.HoldfastError as error:
            await client.write(error_frame(error), more=False)
        finally:
            watch.close()

    async def _share(self, wanted: Any, cursor: str, opened: Opened, client: Client) -> str | None:
        """Follow the channel from a cursor; returns a cursor to catch up from, or None if the client is done."""
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
                    await client.write(server_frame("bookmark", cursor))
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
    """Send a client what it missed, from the log; returns the cursor after that, or None if the client is done."""
    while True:
        missed, all_of_them = ready_frames(WATCH, watch)
        if missed:
            await client.write(b"".join([frame for _, frame in missed]))
        if await client.is_over(watch.bookmark):
            return None
        if all_of_them:
            return watch.bookmark
