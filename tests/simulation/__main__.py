"""`make sim`: one seed with its whole trace (SEED=7), or many (SEEDS=20000, from FIRST=0 on)."""

from __future__ import annotations

import os
import sys

from tests.long.ledger import record
from tests.simulation.campaign import Tally, campaign, try_seed
from tests.simulation.run import Outcome

EVERY = 500  # seeds between two lines of progress


def main() -> int:
    """0 if every seed held."""
    if os.environ.get("SEED"):
        return show(int(os.environ["SEED"]))
    first, count = int(os.environ.get("FIRST") or 0), int(os.environ.get("SEEDS") or 1000)

    def progress(tally: Tally) -> None:
        done = tally.seeds + len(tally.failures)
        if done % EVERY == 0:
            print(f"{done} of {count}, {len(tally.failures)} failing", flush=True)

    tally = campaign(range(first, first + count), progress)
    print(tally)
    record(
        "simulation",
        range(first, first + count),
        tally.seeds,
        len(tally.failures),
        operations=tally.operations,
        faults=tally.faults.total(),
    )
    for seed, report in sorted(tally.failures.items()):
        print(f"\nseed {seed} (make sim SEED={seed}):\n{report}")
    return 1 if tally.failures or not count else 0


def show(seed: int) -> int:
    """Play a seed and print what happened; the digest is that of the trace, the same each time."""
    result = try_seed(seed)
    if isinstance(result, Outcome):
        print("\n".join(result.trace))
        print(f"seed {seed} holds: {result.operations} operations, {result.faults.total()} faults")
        print(f"digest {result.digest}")
        return 0
    print(result[1])
    return 1


if __name__ == "__main__":
    sys.exit(main())
