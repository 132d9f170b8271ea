"""What must be true of all cycles together. Called by `ws.check()`."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.domains.cycles import keys
from holdfast.domains.cycles.keys import Key
from holdfast.domains.cycles.rows import CYCLE, look
from holdfast.kernel.tx import Snapshot


def check(snapshot: Snapshot) -> Iterator[str]:
    """Problems: a document that is not what was written, or gone; a key that is none; a current cycle that is not."""
    there = {Key(*row) for row in snapshot.all("SELECT prefix, number FROM cycles")}
    logged = {keys.parse(id) for (id,) in snapshot.all("SELECT DISTINCT id FROM events WHERE kind = ?", (CYCLE,))}
    for key in sorted(there | logged, key=str):
        if keys.find(str(key)) != key:
            yield f"cycle {key}: that is no key of one"
            continue
        for problem in look(snapshot, key).problems:
            yield f"cycle {key}: {problem.path} {problem.message}"
    highest: dict[str, int] = {}
    for key in there | logged:
        if type(key.number) is int:
            highest[key.prefix] = max(highest.get(key.prefix, 0), key.number)
    current: dict[str, int] = dict(snapshot.all("SELECT prefix, number FROM cycle_currents"))
    for prefix, last in sorted(highest.items()):
        if prefix not in current:
            yield f"the current cycle of {prefix} is not recorded; its last one is {last}"
        elif current[prefix] < last:
            yield f"the current cycle of {prefix} is {current[prefix]}, and there is {last}"
