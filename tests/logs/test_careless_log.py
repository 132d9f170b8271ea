"""Logs that raise what no log should: the replica makes of it what is safe, and a block's refusal is confirmed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast import errors
from holdfast.kernel.batch import follow
from holdfast.kernel.tx import SYSTEM
from holdfast.replication.log import MemoryLog
from holdfast.testing.crowd import LONG, Line, start
from tests.logs.nodes import RUN, Nodes, journal


class Careless(MemoryLog):
    """An adapter whose network library raises what it likes."""

    broken = ""
    puts = 0

    def _strike(self, method: str) -> None:
        if self.broken == method:
            raise ConnectionResetError("reset by peer")

    def append(self, entry: bytes, expected: int) -> int:
        position = super().append(entry, expected)
        self._strike("append")
        return position

    def head(self) -> int:
        self._strike("head")
        return super().head()

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        self._strike("tail")
        return super().tail(after)

    def put(self, blob: bytes) -> str:
        self.puts += 1
        self._strike("put")
        return super().put(blob)


@pytest.fixture
def log(nodes: Nodes) -> Careless:
    return Careless(clock=nodes.clock)


def test_an_append_that_broke_off_after_it_arrived_happened_once(nodes: Nodes, log: Careless) -> None:
    a = nodes.engine("a", log, pulse=False)
    log.broken = "append"
    assert [a.cells.increment(RUN, "cell") for _ in range(3)] == [1, 2, 3]
    log.broken = ""
    assert nodes.engine("b", log, pulse=False).cells.increment(RUN, "cell") == 4


@pytest.mark.parametrize("method", ["tail", "head"])
def test_anything_else_that_broke_off_is_unreachable(nodes: Nodes, log: Careless, method: str) -> None:
    a = nodes.engine("a", log, pulse=False)
    log.broken = method
    with pytest.raises(errors.Unreachable, match="reset by peer"):
        a.cells.compare_and_delete(RUN, "cell", 1)
    log.broken = ""
    assert a.cells.increment(RUN, "cell") == 1


def test_a_snapshot_that_could_not_be_put_is_not_made_again_before_there_is_more_to_say(
    nodes: Nodes, log: Careless
) -> None:
    log.snapshot_every = 5
    a = nodes.engine("a", log, pulse=False)
    log.broken = "put"
    for number in range(5):
        a.cells.set(RUN, "cell", number)
    replica = journal(a)
    with pytest.raises(errors.Unreachable):
        replica.maintain()
    assert not replica.needs_upkeep()
    assert log.puts == 1
    log.broken = ""
    a.cells.set(RUN, "cell", "more")
    assert replica.needs_upkeep()
    replica.maintain()
    assert log.puts == 2
    assert not replica.needs_upkeep()


def test_a_refusal_in_a_block_on_a_replica_that_is_behind_is_outrun_and_can_be_run_again(nodes: Nodes) -> None:
    a, b = nodes.engine("a", pulse=False), nodes.engine("b", pulse=False)
    b.cells.set(RUN, "cell", "old")

    def block() -> None:
        with b.transaction() as tx:
            assert start(lambda: a.cells.set(RUN, "cell", "new")).result(LONG) == 2  # the block has begun before
            tx.cells.cas(RUN, "cell", 2, "mine")

    with pytest.raises(errors.Outrun) as outrun:
        block()
    assert outrun.value.retryable
    with b.transaction() as tx:
        assert tx.cells.cas(RUN, "cell", 2, "mine") == 3
    with pytest.raises(errors.VersionMismatch), b.transaction() as tx:
        tx.cells.cas(RUN, "cell", 2, "late")


def test_following_beside_a_write_that_a_wrong_clock_forbids_is_not_forbidden(nodes: Nodes) -> None:
    a = nodes.engine("a", pulse=False)
    clock = type(nodes.clock)()
    b = nodes.open("b", clock=clock)
    a.cells.set(RUN, "cell", 1)
    with Line(b) as line:
        clock.jump(100)
        refused = line.queue(lambda: b.cells.set(RUN, "cell", 2))
        followed = line.queue(lambda: b._engine.submit(follow, SYSTEM))
    with pytest.raises(errors.ClockSkew):
        refused.result(LONG)
    assert followed.result(LONG) is None
    assert b.cells.get(RUN, "cell").value == 1
