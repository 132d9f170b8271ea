"""The planted bugs. The tests know nothing of them: they state guarantees."""

from __future__ import annotations

from tests.teeth import cycles, door, foundation, mail, paths, replication, server, stashes, tasks, threads, turnfiles
from tests.teeth.bug import Bug

_MODULES = (foundation, replication, tasks, mail, paths, stashes, cycles, threads, turnfiles, server, door)
BUGS: list[Bug] = [bug for module in _MODULES for bug in module.BUGS]
