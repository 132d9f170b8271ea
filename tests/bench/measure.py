"""What the subjects share: the place where stores go, alternating rounds, medians, and the rows of the table."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROUNDS = 5


class Row(NamedTuple):
    """One line of the table: a figure and the bar it has to reach; a bar may not apply on this machine."""

    subject: str
    what: str
    figure: float
    unit: str = "x"
    at_most: float | None = None
    at_least: float | None = None
    applies: bool = True

    @property
    def reached(self) -> bool:
        """Whether the figure is on the right side of its bar."""
        above = self.at_least is None or self.figure >= self.at_least
        return above and (self.at_most is None or self.figure <= self.at_most)


class Bench:
    """Where to put stores, how much to do (`scale` 1.0 is the real thing), and whom to tell."""

    def __init__(self, folder: Path, scale: float = 1.0, say: Callable[[str], None] = print) -> None:
        self.folder = folder
        self.scale = scale
        self.say = say

    def count(self, full: int, least: int = 1) -> int:
        """How many times, at this scale."""
        return max(least, round(full * self.scale))


def alternate(runs: dict[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """The figures of each run, taken in turns: A B A B ..."""
    figures: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            figures[name].append(run())
    return figures


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of neighbours: what slows the machine for a while slows both."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def percentile(sample: Iterable[float], percent: float) -> float:
    """The value that `percent` of the sample do not exceed."""
    ordered = sorted(sample)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def rate(operations: int, run: Callable[[], object]) -> float:
    """Operations a second of a run that does so many."""
    start = time.perf_counter()
    run()
    return operations / (time.perf_counter() - start)


def sync_rate(folder: Path, seconds: float) -> float:
    """How often a second the disk makes 4 KiB durable that are written over and over, as a log in use is."""
    descriptor = os.open(folder / "sync", os.O_RDWR | os.O_CREAT, 0o600)
    sync = getattr(os, "fdatasync", os.fsync)
    try:
        os.pwrite(descriptor, bytes(4096), 0)
        sync(descriptor)
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            os.pwrite(descriptor, bytes(4096), 0)
            sync(descriptor)
            done += 1
        return done / (time.perf_counter() - start)
    finally:
        os.close(descriptor)
        os.unlink(folder / "sync")
