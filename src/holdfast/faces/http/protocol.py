"""uvicorn's HTTP/1.1, with a limit for what comes before a body: nobody has shown a token by then.

Headers end where they end: what follows a body in chunks is no header. Together they have at most 64 KiB, and half a
minute to arrive; else 431 or 408, and the connection is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADERS: Final = 64 * 1024
MAX_COUNT: Final = 128
TOO_LARGE: Final = f"headers are at most {MAX_COUNT}, and {MAX_HEADERS} bytes together"
SLOW: Final = 30.0  # seconds


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._before_body = True
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Bytes have come; those before a body are counted."""
        while data and self._before_body and not self.transport.is_closing():
            room = MAX_HEADERS - self._size
            piece, data = data[:room], data[room:]
            self._size += len(piece)
            super().data_received(piece)
            if self._before_body and self._size and (self._size >= MAX_HEADERS or len(self.headers or ()) > MAX_COUNT):
                return self._refuse(b"431 Request Header Fields Too Large", "HEADERS_TOO_LARGE", TOO_LARGE)
        if data and not self.transport.is_closing():
            super().data_received(data)
        if self._before_body and self._size and self._timer is None:
            self._timer = self.loop.call_later(
                SLOW, self._refuse, b"408 Request Timeout", "TIMEOUT", "the headers did not come in time"
            )

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._before_body = True

    def on_headers_complete(self) -> None:
        """Its headers have ended: what is told later is told to nobody."""
        super().on_headers_complete()
        self._before_body, self._size = False, 0
        self.headers = []
        self._in_time()

    def on_message_complete(self) -> None:
        """It has ended; what follows is the next one."""
        super().on_message_complete()
        self._before_body = True

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has gone."""
        self._in_time()
        super().connection_lost(exc)

    def _in_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: bytes, code: str, what: str) -> None:
        self._in_time()
        told = {
            "error": what,
            "code": code,
            "hint": "send fewer and shorter ones",
            "retryable": False,
            "details": {},
        }
        body = msgspec.json.encode(told)
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
            % (status, len(body), body)
        )
        self.transport.close()
