"""A claim is written out for its speed: it must do what the general change of a task does."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.domains.routing.config import Parents, set_parents
from holdfast.domains.tasks import rows
from holdfast.kernel import leases
from holdfast.kernel.tx import Tx
from holdfast.types.tasks import Task

TTL = 60_000_000
TABLES = ("tasks", "leases", "log", "task_tags", "ready_tags")


def in_general(tx: Tx, task: rows.Stored, agent: str, ttl: int, grimoire: str, review: bool) -> Task:
    """A claim by the functions that every other change of a task uses."""
    columns = {"status": "in_progress", "holder": agent, "claimed": tx.now, "token": tx.new_token(), "ttl": ttl}
    columns |= {"grimoire": grimoire, "review": int(review)}
    leases.start_as(tx, task.record, rows.TASK, agent, ttl)
    return rows.to_task(rows.change(tx, task, "claim", columns, deadline=tx.now + ttl))


@pytest.mark.parametrize("parents", ["strict", "independent"])
@pytest.mark.parametrize("review", [False, True])
def test_a_claim_writes_and_returns_what_a_change_would(review: bool, parents: Parents) -> None:
    with holdfast.open(":memory:", actor="ann") as ws:
        ws.transact(lambda tx: set_parents(tx._tx, parents))
        parent = ws.tasks.create("parent", tags=["a"]).id
        fields = itertools.product((None, parent), ([], ["a", "b"]), (None, "own"))
        ids = [
            ws.tasks.create("task", "text", parent_id=parent_id, tags=tags, grimoire_hint=hint).id
            for parent_id, tags, hint in fields
        ]
        waiting = ws.tasks.create("waiting", tags=["c"]).id
        ws.tasks.depend(waiting, parent)
        again = ws.tasks.create("again", tags=["d"]).id
        ws.tasks.claim(again, "bob")
        ws.tasks.release(again, "bob")

        def both(tx: holdfast.Transaction, id: str) -> list[Any]:
            seen = []
            for claim in (in_general, rows.start_claim):
                with tx._tx.dry_run():
                    task = claim(tx._tx, rows.require(tx._tx, id), "eve", TTL, "general", review)
                    stored = {name: tx._tx.all(f"SELECT * FROM {name} ORDER BY 1, 2, 3") for name in TABLES}
                    seen.append((msgspec.structs.asdict(task), stored, tx._tx.deadline, dict(tx._tx.litter)))
                tx._tx.litter.clear()
                tx._tx.deadline = None
                tx._tx._grants = 0
            return seen

        for id in (parent, *ids, waiting, again):
            general, written_out = ws.transact(lambda tx, id=id: both(tx, id))  # type: ignore[misc]
            assert general == written_out, id
            assert general[0]["claimed_by"] == "eve"
