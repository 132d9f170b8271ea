"""Server-sent events as bytes: events with the cursor behind them as their id, and what a server says beside them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.faces.http import codec
from holdfast.ops import Operation
from holdfast.types.base import Event

START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-accel-buffering", b"no"),
    ],
}


def event(op: Operation[..., Any], item: Any) -> bytes:
    """Something that happened. The ids of a watch over everything are cursors, those of one record its versions."""
    last = item.cursor if isinstance(item, Event) else item.version
    return f"id: {last}\ndata: ".encode() + codec.answer(op, item) + b"\n\n"


def bookmark(cursor: str | None) -> bytes:
    """Nothing happened that was asked for, up to here."""
    return b"event: bookmark\n" + _id(cursor) + b"data: {}\n\n"


def stop(cursor: str | None) -> bytes:
    """The server stops; ask again in a second, from here."""
    return b"event: stop\n" + _id(cursor) + b"retry: 1000\ndata: {}\n\n"


def end(cursor: str | None) -> bytes:
    """The time that was asked for is over."""
    return b"event: end\n" + _id(cursor) + b"data: {}\n\n"


def error(failure: errors.HoldfastError) -> bytes:
    """It cannot go on."""
    return b"event: error\ndata: " + codec.failure(failure) + b"\n\n"


def progress(content: Any) -> bytes:
    """How far some long work is; it has no id, because it is no part of the log."""
    return b"event: progress\ndata: " + msgspec.json.encode(content) + b"\n\n"


def _id(cursor: str | None) -> bytes:
    return b"" if cursor is None else f"id: {cursor}\n".encode()
