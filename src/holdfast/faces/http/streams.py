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

HEARTBEAT: Final = 10.0  # seconds
PATIENCE: Final = 30.0  # with a client that does not read
GATHER: Final = 0.02  # events that follow within this time travel together
BATCH: Final = 500
CHECKED: Final = 1_000_000  # a token is looked at again after this time

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
    """How many watch under each token; one that has enough is refused more."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._watching: Counter[str] = Counter()
        self.cut = 0  # those that were let go because they did not read

    def __len__(self) -> int:
        return self._watching.total()

    @contextmanager
    def place(self, token: Token) -> Iterator[None]:
        """A place among them while somebody watches."""
        if self._watching[token.id] >= self._limit:
            raise TooManyWatchers(f"{self._limit} watch under this token already", limit=self._limit)
        self._watching[token.id] += 1
        try:
            yield
        finally:
            self._watching[token.id] -= 1
            if not self._watching[token.id]:
                del self._watching[token.id]


class Client:
    """One client that watches: sending to it, and noticing that it goes, or may not stay."""

    def __init__(self, token: Token, tokens: Tokens, stopping: asyncio.Event, receive: Receive, send: Send) -> None:
        self._token = token
        self._tokens = tokens
        self._stopping = stopping
        self._receive = receive
        self._send = send
        self._checked = _now()
        self.gone = False
        self.asides: list[bytes] = []  # to be said beside the events
        self.wake = asyncio.Event()  # something is to be sent, or to be noticed

    async def serve(self, body: Awaitable[None]) -> bool:
        """Run what sends to it until it goes; False if it was let go because it did not read."""
        leaving = asyncio.ensure_future(self._notice())
        try:
            await body
        except TimeoutError:
            return False
        finally:
            leaving.cancel()
        return True

    async def _notice(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.wake.set()

    async def start(self, cursor: str | None) -> None:
        """Begin, with a bookmark: from here on nothing is missed."""
        await self._send(frames.START)
        await self.write(frames.bookmark(cursor))

    async def write(self, chunk: bytes, more: bool = True) -> None:
        """Send, with patience; TimeoutError if the client does not read."""
        async with asyncio.timeout(PATIENCE):
            await self._send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def is_over(self, cursor: str | None) -> bool:
        """Whether there is nobody to send to any more: it has gone, the server stops, or its token was revoked."""
        if self.gone:
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

    async def sleep(self) -> bool:
        """Until something is to be done; False if a heartbeat has passed without."""
        try:
            async with asyncio.timeout(HEARTBEAT):
                await self.wake.wait()
        except TimeoutError:
            return False
        self.wake.clear()
        return True


async def follow_alone(op: Operation[..., Any], watch: AsyncWatch[Any], client: Client) -> None:
    """Send one client what comes, until its time is over."""

    def cursor() -> str | None:
        return watch.bookmark if op.name == "watch" else None

    coming: asyncio.Task[Any] | None = None
    await client.start(cursor())
    try:
        while not await client.is_over(cursor()):
            if coming is None:
                coming = asyncio.ensure_future(anext(watch))
                coming.add_done_callback(lambda _: client.wake.set())
            if not coming.done():
                if not await client.sleep():
                    await client.write(frames.bookmark(cursor()))
                continue
            done, coming = coming, None
            try:
                first = done.result()
            except StopAsyncIteration:
                return await client.write(frames.end(cursor()), more=False)
            except errors.HoldfastError as error:
                return await client.write(frames.error(error), more=False)
            await client.write(b"".join(frames.event(op, item) for item in (first, *watch.ready(BATCH))))
            await asyncio.sleep(GATHER)
    finally:
        if coming is not None:
            coming.cancel()
        watch.close()
