"""The planted bugs. The tests know nothing of them: they state guarantees."""

from __future__ import annotations

from tests.teeth import cycles, foundation, mail, paths, replication, stashes, tasks
from tests.teeth.bug import Bug

BUGS: list[Bug] = [
    *(*foundation.BUGS, *replication.BUGS, *tasks.BUGS, *mail.BUGS, *paths.BUGS, *stashes.BUGS, *cycles.BUGS),
]
