"""`with ws.transaction()`: one transaction around a block, under a watchdog (design section 3)."""

from __future__ import annotations

import pytest

from holdfast import Transaction, errors
from holdfast.testing.crowd import LONG, start
from tests.conformance.test_transactions import WRONG
from tests.worlds.kinds import World

interactive = pytest.mark.capability("interactive")
local = pytest.mark.capability("local")


@interactive
@pytest.mark.parametrize("what", WRONG)
def test_the_workspace_called_inside_a_block_is_reentrant(world: World, what: str) -> None:
    ws = world.open()
    with ws.transaction() as tx:
        with pytest.raises(errors.Reentrant):
            WRONG[what](ws)
        tx.cells.set("run", "cell", 1)
    assert ws.cells.get("run", "cell").version == 1


@interactive
def test_a_block_commits_at_its_end_and_cannot_be_used_after_it(world: World) -> None:
    ws, other = world.open(), world.open("other")
    with ws.transaction() as tx:
        tx.cells.set("run", "a", 1)
        tx.locks.acquire("lock")
        tx.cells.set("run", "b", 2)
    assert (other.cells.list("run"), ws.revision) == (["a", "b"], 1)
    with pytest.raises(errors.Closed):
        tx.cells.set("run", "c", 3)
    with pytest.raises(errors.Closed):
        tx.cells.get("run", "a")
    assert other.cells.list("run") == ["a", "b"]


@interactive
@pytest.mark.parametrize("mistake", [ValueError, KeyboardInterrupt, StopIteration])
def test_a_block_that_raises_leaves_nothing_and_the_next_one_works(world: World, mistake: type[BaseException]) -> None:
    ws = world.open()
    kept: list[Transaction] = []

    def block() -> None:
        with ws.transaction() as tx:
            kept.append(tx)
            tx.cells.set("run", "cell", 1)
            raise mistake

    with pytest.raises(mistake):
        block()
    with pytest.raises(errors.Closed):
        kept[0].cells.set("run", "cell", 1)
    assert ws.revision == 0
    with ws.transaction() as tx:
        tx.cells.set("run", "cell", 1)
    assert ws.revision == 1


@interactive
def test_a_block_under_a_lost_fence_does_not_begin_and_one_with_a_key_is_invalid(world: World) -> None:
    ws = world.open()
    entered = []
    with pytest.raises(errors.Fenced), ws.using(fence=("lock", 1)).transaction():
        entered.append("fenced")
    with pytest.raises(errors.Invalid), ws.using(key="k").transaction():
        entered.append("keyed")
    assert (entered, ws.cells.set("run", "cell", 1)) == ([], 1)


@interactive
@local
def test_a_block_open_too_long_is_rolled_back_and_its_later_statements_never_commit(world: World) -> None:
    ws, other = world.open(), world.open("other")
    ws._engine.transaction_timeout = 0.05
    refused: list[str] = []

    def block() -> None:
        with ws.transaction() as tx:
            tx.cells.set("run", "late", 1)
            # Others get to write only after the watchdog has freed the store.
            assert start(lambda: ws.cells.set("run", "same", 1)).result(LONG) == 1
            assert start(lambda: other.cells.set("run", "other", 1)).result(LONG) == 1
            with pytest.raises(errors.Closed):
                tx.cells.set("run", "later", 1)
            with pytest.raises(errors.Closed):
                tx.cells.find("run", "late")
            refused.append("both")

    with pytest.raises(errors.Timeout):
        block()
    assert refused == ["both"]
    assert (ws.cells.list("run"), ws.revision) == (["other", "same"], 2)


@interactive
@local
def test_an_exception_of_a_block_that_was_rolled_back_in_time_is_a_timeout_too(world: World) -> None:
    ws = world.open()
    ws._engine.transaction_timeout = 0.05

    def block() -> None:
        with ws.transaction() as tx:
            tx.cells.set("run", "late", 1)
            start(lambda: ws.cells.set("run", "other", 1)).result(LONG)
            tx.cells.set("run", "late", 2)

    with pytest.raises(errors.Timeout):
        block()
    assert ws.cells.list("run") == ["other"]
    ws._engine.transaction_timeout = LONG
    with ws.transaction() as tx:
        tx.cells.set("run", "late", 1)
    assert ws.cells.list("run") == ["late", "other"]
