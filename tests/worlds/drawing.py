"""On which kinds of workspaces a conformance test runs.

A test about order, time, waiting, fences, keys, watches or races runs on every kind. A module or a test marked
`kinds("drawn")` is about something else: it runs on a file, over HTTP, and on one more kind, which the seed of the run
draws for each test. So every run covers new ground, and `--randomly-seed` repeats it. Two nodes prove nothing that
three do not, and run only when all kinds are asked for. A kind on a real engine takes longer: the seed draws it for one
test in so many, whatever the test is about.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from tests.amounts import LONG
from tests.worlds.kinds import KINDS, EngineWorld, FileWorld, JetStreamClusterWorld, RemoteWorld, TwoNodesWorld, World

EVERY, DRAWN, ALL = "every", "drawn", "all"
ALWAYS: tuple[type[World], ...] = (FileWorld, RemoteWorld)
ONLY_WITH_ALL: tuple[type[World], ...] = (TwoNodesWorld,)
ENGINES: tuple[type[World], ...] = tuple(kind for kind in KINDS if issubclass(kind, EngineWorld))
# Three NATS servers beside all other tests on two cores elect too often: a cluster is met in the long run.
DRAWN_ENGINES = tuple(kind for kind in ENGINES if LONG or kind is not JetStreamClusterWorld)
ONE_IN = 12  # tests of a run that meet an engine


def draw(test: str, wanted: str, needed: Iterable[str], seed: int) -> Sequence[type[World]]:
    """The kinds for one test; `wanted` is "every" or "drawn", `needed` are the capabilities of a kind that it uses."""
    able = [kind for kind in KINDS if kind not in ONLY_WITH_ALL and kind.capabilities.issuperset(needed)]
    others = [kind for kind in able if kind not in ALWAYS and kind not in ENGINES]
    if wanted == DRAWN and others:
        others = [random.Random(f"{seed} {test}").choice(others)]
    chance = random.Random(f"{seed} {test} on an engine")
    engines = [chance.choice(DRAWN_ENGINES)] if chance.randrange(ONE_IN) == 0 else []
    return [kind for kind in able if kind in (*ALWAYS, *others, *engines)]


def choose(names: str, needed: Iterable[str]) -> Sequence[type[World]]:
    """The kinds that `--kinds` names: "all", or names with commas between them. ValueError for an unknown name."""
    known = {kind.kind: kind for kind in KINDS}
    chosen = list(known) if names == ALL else names.split(",")
    if unknown := sorted(set(chosen) - set(known)):
        raise ValueError(f"no such kind: {', '.join(unknown)}; there are {', '.join(known)}")
    return [kind for kind in KINDS if kind.kind in chosen and kind.capabilities.issuperset(needed)]
