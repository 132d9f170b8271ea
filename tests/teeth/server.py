"""Planted bugs: the server, and the form in which calls travel."""

from __future__ import annotations

from tests.teeth.bug import Bug

RAW = ("tests/http/test_raw_bytes.py",)

BUGS: list[Bug] = [
    Bug(
        "keys that are not UTF-8 become one key",
        "faces/http/calls.py",
        '(unquote_to_bytes(given) if b"%" in given else given).decode()',
        '(unquote_to_bytes(given) if b"%" in given else given).decode(errors="replace")',
        RAW,
    ),
    Bug(
        "of a key that stands twice in a body the last value counts",
        "wire.py",
        "    if len(found) != len(pairs):\n",
        "    if len(found) > len(pairs):\n",
        RAW,
    ),
    Bug(
        "a body that is not UTF-8 is a failure of the server",
        "wire.py",
        "suppress(msgspec.DecodeError, UnicodeDecodeError):",
        "suppress(msgspec.DecodeError):",
        RAW,
    ),
]
