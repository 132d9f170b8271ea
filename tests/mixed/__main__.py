"""`python -m tests.mixed`: callers of all faces at once; SEEDS seeds from FIRST on, about CALLS calls for each."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.amounts import seeds
from tests.long.ledger import record
from tests.mixed.judge import Verdict
from tests.mixed.run import play

CALLS: Final = int(os.environ.get("CALLS") or 25_000)  # acknowledged, of one seed
EVERY: Final = 600  # between two kills, about
RAM: Final = Path("/dev/shm")


def main() -> int:
    """0 if nothing is wrong with any seed; the folder of one that is wrong is kept."""
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # claims of killed callers expire, and are warned of
    wrong = 0
    for seed in seeds(1, 4):
        folder = Path(tempfile.mkdtemp(prefix="holdfast-mixed-", dir=RAM if RAM.is_dir() else None))
        verdict, kills = play(folder / "store", seed, CALLS, EVERY)
        for problem in verdict.problems[:20]:
            print(f"  {problem}", flush=True)
        if verdict.problems:
            print(f"  kept in {folder}", flush=True)
        else:
            shutil.rmtree(folder)
        wrong += len(verdict.problems)
        record(
            "mixed",
            range(seed, seed + 1),
            verdict.figures.pop("acknowledged"),
            len(verdict.problems),
            **_told(verdict, kills),
        )
    return 1 if wrong else 0


def _told(verdict: Verdict, kills: Counter[str]) -> dict[str, int]:
    figures = verdict.figures
    names = ("reads", "repeated", "refused", "grants", "unknown")
    stored = {"of_these_stored": figures["unknown, stored"]}
    return {name: figures[name] for name in names} | stored | {"kills": kills.total(), "of_the_server": kills["server"]}


if __name__ == "__main__":
    sys.exit(main())
