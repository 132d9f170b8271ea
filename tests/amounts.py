"""How much a test does: enough to judge a change in CI, and more in the long run (`make long`, which sets `LONG=1`)."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("LONG"))


def amount(ci: int, long: int) -> int:
    """How many of something this run tries."""
    return long if LONG else ci
