"""A fleet of three nodes, each with a whole store of its own, that share one workspace through a log.

Shows: what one node writes the others have; of three that claim at once each gets another task; a token that one node
grants is checked on all; a node that joins late has the same workspace. Here the log is in memory; with
`holdfast.open(folder, log="postgresql://...")` or `"nats://..."` the nodes are on three machines.

    python examples/three_nodes.py
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import holdfast
from holdfast import errors
from holdfast.replication.log import MemoryLog


def main(folder: Path) -> None:
    """Three nodes, then a fourth."""
    log = MemoryLog()
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(holdfast.open(folder / name, actor=name, log=log))
            for name in ("north", "south", "west")
        ]
        north, south, west = nodes
        north.tasks.bulk("create", tasks=[{"title": f"region {n}"} for n in range(3)])
        with ThreadPoolExecutor(3) as pool:
            claims = list(pool.map(lambda node: node.using(at_least=north.revision).tasks.claim_next(), nodes))
        print(f"three nodes claimed {len({task.id for task in claims if task})} different tasks")

        grant = north.locks.acquire("deploy", ttl=60)
        south.using(at_least="latest").cells.set("deploy", "by", "south")  # no fence: allowed
        north.locks.release("deploy", token=grant.token)
        west.using(at_least="latest").locks.acquire("deploy", ttl=60)
        try:
            north.using(fence=("deploy", grant.token)).cells.set("deploy", "by", "north")
        except errors.Fenced:
            print("north lost the lock: its late write is refused, also on another node")

        late = stack.enter_context(holdfast.open(folder / "late", actor="late", log=log)).using(at_least="latest")
        print(
            f"a fourth node joined: {late.cells.get('deploy', 'by').value} wrote last, {len(late.tasks.list())} tasks"
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
