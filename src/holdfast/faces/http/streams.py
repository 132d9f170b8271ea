"""Watching over HTTP: one client and what is sent to it, as server-sent events.

A client that comes back with `Last-Event-ID` hears what followed, without gap or repeat. When nothing comes for a
while a bookmark does, which moves the cursor on over what the client did not want to hear. A client that does not read
is let go after a while, with nothing lost: its last id is where it resumes. Whoever watches everything without an end
shares a channel with those who want the same (see `channels`); one record, or a watch with a timeout, is read for its
client alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

from holdfast import errors
from holdfast.aio_watch import AsyncWatch
from holdfast.faces.http import frames
from holdfast.faces.http.gate import Headers
from holdfast.faces.http.refusals import TooManyWatchers
from holdfast.faces.http.tokens import Token, Tokens
from holdfast.kernel.clock import SystemClock
from holdfast.ops import Operation

HEARTBEAT: Final = 10_000_000  # microseconds
PATIENCE: Final = 30_000_000  # with a client that does not read
GATHER: Final = 0.02  # seconds: events that follow within this time travel together
BATCH: Final = 500
CHECKED: Final = 1_000_000  # microseconds, after which a token is looked at again

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_now = SystemClock().monotonic  # also in tests that own the time


def resume_from(op: Operation[..., Any], headers: Headers, given: dict[str, Any]) -> None:
    """`Last-Event-ID` is where to resume; who comes back knows better than the address it came by."""
    last = headers.get(b"last-event-id", b"").decode("latin-1")
    if last and op.name == "watch":
        given["after"] = last
    elif last:
        if not last.isdigit() or len(last) > 18:
            raise errors.InvalidFilter(f"{last[:80]!r} is not a version", hint="send the id of the last event")
        given["after_version"] = int(last)


class Watchers:
    """Who watches, how many under each token, and a look at each of them every second."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._under: Counter[str] = Counter()
        self._clients: set[Client] = set()
        self._looking: asyncio.Task[None] | None = None
        self.cut = 0  # those that were let go because they did not read

    def __len__(self) -> int:
        return len(self._clients)

    @contextmanager
    def place(self, token: Token, client: Client) -> Iterator[None]:
        """A place among them while somebody watches; a token that has enough of them gets no more."""
        if self._under[token.id] >= self._limit:
            raise TooManyWatchers(f"{self._limit} watch under this token already", limit=self._limit)
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
        """Have each of them look."""
        for client in self._clients:
            client.wake.set()

    async def _look(self) -> None:
        """One timer for all: two for every event and client would cost more than the events."""
        while self._clients:
            await asyncio.sleep(1.0)
            now = _now()
            for client in list(self._clients):
                client.look(now)
        self._looking = None


class Client:
    """One client that watches: sending to it, and noticing that it goes, does not read, or may not stay."""

    def __init__(self, token: Token, tokens: Tokens, stopping: asyncio.Event, receive: Receive, send: Send) -> None:
        self._token = token
        self._tokens = tokens
        self._stopping = stopping
        self._receive = receive
        self._send = send
        self._task = asyncio.current_task()
        self._sending: int | None = None  # since when
        self._quiet = self._checked = _now()  # since when
        self._gone = self._cut = False
        self.beat = False  # nothing was sent for a while: a bookmark is due
        self.asides: list[bytes] = []  # to be said beside the events
        self.wake = asyncio.Event()  # something is to be sent, or to be noticed

    async def serve(self, body: Awaitable[None]) -> bool:
        """Run what sends to it until it goes; False if it was let go because it did not read."""
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
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self.wake.set()

    def look(self, now: int) -> None:
        """Let it go if it has not read for too long; have a bookmark sent if it has heard nothing for a while."""
        if self._sending is not None and now - self._sending > PATIENCE and self._task is not None:
            self._cut = True
            self._task.cancel()
        elif self._sending is None and now - self._quiet > HEARTBEAT:
            self.beat = True
            self.wake.set()

    async def start(self, cursor: str | None) -> None:
        """Begin, with a bookmark: from here on nothing is missed."""
        await self._send(frames.START)
        await self.write(frames.bookmark(cursor))

    async def write(self, chunk: bytes, more: bool = True) -> None:
        """Send, as soon as there is room for it."""
        self._sending = _now()
        await self._send({"type": "http.response.body", "body": chunk, "more_body": more})
        self._sending, self._quiet, self.beat = None, _now(), False

    async def is_over(self, cursor: str | None) -> bool:
        """Whether there is nobody to send to any more: it has gone, the server stops, or its token was revoked."""
        if self._gone:
            return True
        if self._stopping.is_set():
            await self.write(frames.stop(cursor), more=False)
            return True
        if _now() - self._checked > CHECKED:
            self._checked = _now()
            try:
                self._tokens.check(self._token)
            except errors.HoldfastError as error:
                await self.write(frames.error(error), more=False)
                return True
        return False

    async def sleep(self) -> None:
        """Until something is to be done."""
        await self.wake.wait()
        self.wake.clear()


class Alone:
    """What one client watches that nobody shares with it: one record, or with a timeout."""

    def __init__(self, op: Operation[..., Any], watch: AsyncWatch[Any], client: Client) -> None:
        self._op = op
        self._watch = watch
        self._client = client
        self._coming: asyncio.Task[Any] | None = None
        self._told: str | None = None

    def _cursor(self) -> str | None:
        """Up to where it has been told everything."""
        if self._op.name == "watch" and (self._coming is None or not self._coming.done()):
            self._told = self._watch.bookmark
        return self._told

    async def follow(self) -> None:
        """Send what comes, until the time is over."""
        client = self._client
        await client.start(self._cursor())
        try:
            while not await client.is_over(self._cursor()):
                if self._coming is None:
                    self._coming = asyncio.ensure_future(anext(self._watch))
                    self._coming.add_done_callback(lambda _: client.wake.set())
                if self._coming.done():
                    if not await self._tell(self._coming):
                        return
                elif client.beat:
                    await client.write(frames.bookmark(self._cursor()))
                else:
                    await client.sleep()
        finally:
            if self._coming is not None:
                self._coming.cancel()
            self._watch.close()

    async def _tell(self, came: asyncio.Task[Any]) -> bool:
        """Send what has come; False if that was the end."""
        try:
            items = [came.result(), *self._watch.ready(BATCH)]
        except StopAsyncIteration:
            await self._client.write(frames.end(self._cursor()), more=False)
            return False
        except errors.HoldfastError as error:
            await self._client.write(frames.error(error), more=False)
            return False
        await self._client.write(b"".join(frames.event(self._op, item) for item in items))
        self._coming = None
        await asyncio.sleep(GATHER)
        return True
