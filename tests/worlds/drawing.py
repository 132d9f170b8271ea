"""On which kinds of workspaces a conformance test runs.

A test about order, time, waiting, fences, keys, watches or races runs on every kind. A module or a test marked
`kinds("drawn")` is about something else: it runs on a file, over HTTP, and on one more kind, which the seed of the run
draws for each test. So every run covers new ground, and `--randomly-seed` repeats it. Two nodes prove nothing that
three do not, and run only when all kinds are asked for.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from tests.worlds.kinds import KINDS, FileWorld, RemoteWorld, TwoNodesWorld, World

EVERY, DRAWN, ALL = "every", "drawn", "all"
ALWAYS: tuple[type[World], ...] = (FileWorld, RemoteWorld)
ONLY_WITH_ALL: tuple[type[World], ...] = (TwoNodesWorld,)


def draw(test: str, wanted: str, needed: Iterable[str], seed: int) -> Sequence[type[World]]:
    """The kinds for one test; `wanted` is "every" or "drawn", `needed` are the capabilities of a kind that it uses."""
    able = [kind for kind in KINDS if kind not in ONLY_WITH_ALL and kind.capabilities.issuperset(needed)]
    if wanted == EVERY:
        return able
    others = [kind for kind in able if kind not in ALWAYS]
    drawn = [random.Random(f"{seed} {test}").choice(others)] if others else []
    return [kind for kind in able if kind in ALWAYS or kind in drawn]


def choose(names: str, needed: Iterable[str]) -> Sequence[type[World]]:
    """The kinds that `--kinds` names: "all", or names with commas between them. ValueError for an unknown name."""
    known = {kind.kind: kind for kind in KINDS}
    chosen = list(known) if names == ALL else names.split(",")
    if unknown := sorted(set(chosen) - set(known)):
        raise ValueError(f"no such kind: {', '.join(unknown)}; there are {', '.join(known)}")
    return [kind for kind in KINDS if kind.kind in chosen and kind.capabilities.issuperset(needed)]
