"""Watching over HTTP: server-sent events, each with the cursor after it as its id.

A client that comes back with `Last-Event-ID` hears what followed, without gap or repeat. When nothing comes for a
while a bookmark does, which moves the cursor on over what the client did not want to hear. A client that does not read
is let go after a while, with nothing lost: its last id is where it resumes. The hub of the workspace reads each commit
once for all; a slow client falls back to reading the log for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from holdfast import errors
from holdfast.aio_watch import AsyncWatch
from holdfast.faces.http import codec
from holdfast.faces.http.gate import Headers
from holdfast.ops import Operation
from holdfast.types.base import Event

HEARTBEAT: Final = 10.0  # seconds
PATIENCE: Final = 30.0  # with a client that does not read
GATHER: Final = 0.02  # events that follow within this time travel together
BATCH: Final = 500

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_START: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
]


def resume_from(op: Operation[..., Any], headers: Headers, given: dict[str, Any]) -> None:
    """`Last-Event-ID` is where to resume; who comes back knows better than the address it came by.

    The ids of a watch over everything are cursors, those of one record are its versions.
    """
    last = headers.get(b"last-event-id", b"").decode("latin-1")
    if last and op.name == "watch":
        given["after"] = last
    elif last:
        if not last.isdigit() or len(last) > 18:
            raise errors.InvalidFilter(f"{last[:80]!r} is not a version", hint="send the id of the last event")
        given["after_version"] = int(last)


class Stream:
    """One client that watches."""

    def __init__(self, op: Operation[..., Any], watch: AsyncWatch[Any], receive: Receive, send: Send) -> None:
        self._op = op
        self._watch = watch
        self._receive = receive
        self._send = send
        self.cut = False  # because it did not read

    async def serve(self, stopping: asyncio.Event) -> None:
        """Send what comes until the client goes, the watch ends, or the server stops."""
        gone = asyncio.ensure_future(self._disconnected())
        stop = asyncio.ensure_future(stopping.wait())
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": _START})
            await self._write(self._bookmark())
            await self._follow(gone, stop)
        except TimeoutError:  # it did not read; its connection ends here, and it resumes where it stopped
            self.cut = True
        finally:
            gone.cancel()
            stop.cancel()
            self._watch.close()

    async def _follow(self, gone: asyncio.Future[None], stop: asyncio.Future[Any]) -> None:
        while True:
            coming = asyncio.ensure_future(anext(self._watch))
            try:
                while not coming.done() and not gone.done() and not stop.done():
                    await asyncio.wait((coming, gone, stop), timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                    if not coming.done() and not gone.done() and not stop.done():
                        await self._write(self._bookmark())
            finally:
                if not coming.done():
                    coming.cancel()
            if gone.done():
                return
            if not coming.done():
                await self._end(b"event: stop\n" + self._bookmark_id() + b"retry: 1000\ndata: {}\n\n")
                return
            try:
                first = coming.result()
            except StopAsyncIteration:
                await self._end(b"event: end\n" + self._bookmark_id() + b"data: {}\n\n")
                return
            except errors.HoldfastError as error:
                await self._end(b"event: error\ndata: " + codec.failure(error) + b"\n\n")
                return
            await self._write(b"".join(self._event(event) for event in (first, *self._watch.ready(BATCH))))
            await asyncio.sleep(GATHER)

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _write(self, chunk: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _end(self, chunk: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    def _event(self, event: Any) -> bytes:
        last = event.cursor if isinstance(event, Event) else event.version
        return f"id: {last}\ndata: ".encode() + codec.answer(self._op, event) + b"\n\n"

    def _bookmark(self) -> bytes:
        return b"event: bookmark\n" + self._bookmark_id() + b"data: {}\n\n"

    def _bookmark_id(self) -> bytes:
        return f"id: {self._watch.bookmark}\n".encode() if self._op.name == "watch" else b""
