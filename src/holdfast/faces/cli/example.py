"""An example of a command: what it shows, what must have happened before, and how it ends."""

from __future__ import annotations

import msgspec


class Example(msgspec.Struct, frozen=True):
    """A line of the shell, those that must have been run before it, and the exit code that it ends with."""

    line: str
    given: tuple[str, ...] = ()
    code: int = 0
