"""The values that PEER agents left behind: JSON, or the text or bytes of it. What is neither is Unreadable.

A text in a bucket may be JSON or just a text; nothing of it may be lost by taking it for the other. Called by `legacy`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import errors
from holdfast.domains.cycles.legacy.words import Document, Unreadable
from holdfast.kernel.values import check


def decoded(value: Any, plain: bool) -> Any:
    """A value that may be the text of JSON; with `plain`, any other text is a value too."""
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError as error:
            raise Unreadable(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    if isinstance(value, str):
        value = _parsed(value, plain)
    try:
        check(value, text=True)
    except errors.HoldfastError as error:
        raise Unreadable(error.message) from error
    return value


def _parsed(text: str, plain: bool) -> Any:
    """What a text is the JSON of. A word that is none stays a text if it may, and so does a number such as 1.10."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        if plain and text.lstrip()[:1] not in ("{", "[", '"'):
            return text
        raise Unreadable(f"it is not JSON: {error}") from error
    same = isinstance(value, dict | list | str) or msgspec.json.encode(value).decode() == text.strip()
    return value if same or not plain else text


def as_object(value: Any) -> Document:
    """A value that must be an object."""
    if not isinstance(value, dict):
        raise Unreadable(f"it is {'text' if isinstance(value, str) else type(value).__name__}, not an object")
    return value
