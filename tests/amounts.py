"""How much a test does: enough to judge a change in CI, and more in the long run (`make long`, which sets `LONG=1`).

A programme of the long run goes in slices: `FIRST` is the first seed of a slice and `SEEDS` how many it has, so that
two slices with different seeds do different work. Without them CI begins at a number that the commit draws, so that
each commit tries new seeds, and the long run at 0.
"""

from __future__ import annotations

import os
import random
import subprocess
from functools import cache
from pathlib import Path

LONG = bool(os.environ.get("LONG"))


def amount(ci: int, long: int) -> int:
    """How many of something this run tries."""
    return long if LONG else ci


def seeds(ci: int, long: int) -> range:
    """The seeds that this run tries."""
    first = first_seed()
    return range(first, first + int(os.environ.get("SEEDS") or amount(ci, long)))


def first_seed() -> int:
    """Where this run begins."""
    if os.environ.get("FIRST"):
        return int(os.environ["FIRST"])
    return 0 if LONG else int(commit()[:8] or "0", 16)


def chance(of: str) -> random.Random:
    """The draws of one test: those of the commit in CI, so that who tests the commit again sees the same; else new."""
    return random.Random() if LONG else random.Random(f"{first_seed()} {of}")


@cache
def commit() -> str:
    """The commit that is tested; empty without a repository."""
    command = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()
