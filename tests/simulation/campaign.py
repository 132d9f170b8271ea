"""Many seeds, on every core, and what they add up to."""

from __future__ import annotations

import logging
import multiprocessing
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.simulation.run import Outcome, play

# Every kind of fault that a campaign must have met; a kind that never happens proves nothing.
KINDS = (
    "crash: kill",
    "crash: power loss",
    "crash: disk lost",
    "pause",
    "partition",
    "line: unreachable",
    "line: conflict",
    "line: request lost",
    "line: answer lost",
    "line: late",
    "line: twice",
    "line: lagging",
    "line: repeated",
    "clock an hour",
    "clock a year",
    "clock backwards",
    "an idle night",
    "all clocks leap",
    "disk full",
)


@dataclass
class Tally:
    """What a campaign was made of."""

    seeds: int = 0
    operations: int = 0
    reads: int = 0
    heard: int = 0
    revisions: int = 0
    largest_group: int = 0
    fewest_operations: int = 2**31
    fewest_faults: int = 2**31
    done: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.seeds += 1
        self.operations += outcome.operations
        self.reads += outcome.reads
        self.heard += outcome.heard
        self.revisions += outcome.revisions
        self.largest_group = max(self.largest_group, outcome.largest_group)
        self.fewest_operations = min(self.fewest_operations, outcome.operations)
        self.fewest_faults = min(self.fewest_faults, outcome.faults.total())
        self.done += outcome.done
        self.faults += outcome.faults
        self.reached += outcome.reached

    def __str__(self) -> str:
        lines = [
            f"{self.seeds} seeds: {self.operations} operations (at least {self.fewest_operations} a seed), "
            f"{self.reads} of them reads; {self.revisions} revisions; groups of up to {self.largest_group}; "
            f"{self.heard} events heard by watchers; "
            f"{self.faults.total()} faults (at least {self.fewest_faults} a seed)",
            "  answered: " + ", ".join(f"{op} {count}" for op, count in sorted(self.done.items())),
            "  faults: " + ", ".join(f"{kind} {self.faults[kind]}" for kind in KINDS),
            "  failpoints: " + ", ".join(f"{name} {count}" for name, count in sorted(self.reached.items())),
            f"  failing seeds: {', '.join(map(str, sorted(self.failures))) or 'none'}",
        ]
        return "\n".join(lines)


def try_seed(seed: int) -> Outcome | tuple[int, str]:
    """One seed; what went wrong as text, so that it can cross processes."""
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # wrong clocks and cut lines are warned of, rightly
    try:
        return play(seed)
    except Exception as error:
        return seed, "".join(traceback.format_exception(error))


def campaign(seeds: Iterable[int], progress: Callable[[Tally], None] = lambda tally: None) -> Tally:
    """Play seeds on every core; failures are collected, not raised."""
    tally = Tally()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for result in pool.imap_unordered(try_seed, seeds, chunksize=5):
            if isinstance(result, Outcome):
                tally.add(result)
            else:
                tally.failures[result[0]] = result[1]
            progress(tally)
    return tally
