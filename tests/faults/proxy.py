"""A TCP proxy that can be cut: then bytes stop in both directions, as when a cable is pulled, and nobody is told."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path

_CHUNK = 65536


class Proxies:
    """Proxies on one event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def add(self, target: int | Path) -> Proxy:
        """Forward a new port of this machine to this one, or to a socket in a folder."""
        proxy = Proxy(target)
        asyncio.run_coroutine_threadsafe(proxy.serve(), self._loop).result()
        return proxy

    def call(self, proxies: list[Proxy], cut: bool) -> None:
        """Cut or heal some at once."""
        for proxy in proxies:
            self._loop.call_soon_threadsafe(proxy.cut if cut else proxy.heal)

    def drop(self, proxies: list[Proxy]) -> None:
        """Close every connection of some; new ones are accepted."""
        for proxy in proxies:
            self._loop.call_soon_threadsafe(proxy.drop)

    def part(self, proxies: list[Proxy], seconds: float) -> None:
        """Cut some off for so long."""
        self.call(proxies, cut=True)
        time.sleep(seconds)
        self.call(proxies, cut=False)

    def close(self) -> None:
        """End the loop with everything on it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class Proxy:
    """One port that leads to another, or to a socket in a folder."""

    def __init__(self, target: int | Path) -> None:
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def serve(self) -> None:
        """Listen on a port of the system's choice."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Hold all bytes back from now on."""
        self._open.clear()

    def heal(self) -> None:
        """Drop what was held back with its connections, and forward again: what a cut has lost stays lost."""
        self.drop()
        self._open.set()

    def drop(self) -> None:
        """Close all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._open.wait()
            there, back = await self._connect()
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(back)
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        self._writers -= {writer, back}

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, Path):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection("127.0.0.1", self._target)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
