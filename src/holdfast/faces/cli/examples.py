"""Examples that help shows and docs/cli.md has. A test runs each: first what is `given`, then the line itself.

They speak of two tasks, hf-7k2q and hf-3m9x, which the test makes, and act as agent-1.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Example(msgspec.Struct, frozen=True):
    """A line of the shell, and those that must have been run before it."""

    line: str
    given: tuple[str, ...] = ()


EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {}
