"""A node whose line to the log is cut refuses to write, goes on reading, and goes on altogether once it is healed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

import pytest

from holdfast import errors
from holdfast.kernel.migrations import known
from holdfast.testing.crowd import LONG, finish, start
from holdfast.testing.faulty_log import Fault, Method
from tests.logs.nodes import LITTLE_PATIENCE, RUN, Nodes, Wire, assert_equal, entries, eventually, journal, value


@pytest.fixture
def wire(nodes: Nodes) -> Wire:
    """The line of the node that is cut off; nobody waits long for it."""
    nodes.patience = LITTLE_PATIENCE
    return Wire(nodes.log)


def test_writes_are_unreachable_and_leave_nothing_and_plain_reads_go_on(nodes: Nodes, wire: Wire) -> None:
    a, b = nodes.open("a"), nodes.open("b", wire)
    b.cells.set(RUN, "cell", 1)
    wire.cut()
    writes: tuple[Callable[[], object], ...] = (
        lambda: b.cells.set(RUN, "cell", 2),
        lambda: b.cells.delete(RUN, "absent"),
        lambda: b.cells.get_or_init(RUN, "cell", 2),
        lambda: b.transact(lambda tx: tx.cells.set(RUN, "cell", 2)),
        lambda: b.transaction().__enter__(),
        lambda: b.locks.acquire("lock"),
        lambda: b.locks.acquire("lock", wait=1),
    )
    for write in writes:
        with pytest.raises(errors.Unreachable):
            write()
    assert (value(b, "cell"), b.cells.list(RUN), b.revision, len(b.events.list())) == (1, ["cell"], 1, 1)
    assert b.using(at_least=1).cells.get(RUN, "cell").value == 1
    assert b.check().problems == []
    a.cells.set(RUN, "cell", 3)
    assert value(b, "cell") == 1
    wire.heal()
    assert b.cells.increment(RUN, "cell") == 4
    assert_equal(a, b)


def test_whoever_must_have_seen_more_than_the_node_has_is_told_that_it_cannot(nodes: Nodes, wire: Wire) -> None:
    a, b = nodes.open("a"), nodes.stale("b", wire)
    a.cells.set(RUN, "cell", 1)
    wire.cut()
    with pytest.raises(errors.Unreachable):
        b.using(at_least="latest").cells.find(RUN, "cell")
    with pytest.raises(errors.Unreachable):
        b.using(at_least="latest").cells.list(RUN)
    with pytest.raises((errors.Unreachable, errors.Behind)):
        b.using(at_least=1).cells.get(RUN, "cell")
    with pytest.raises((errors.Unreachable, errors.Behind)):
        b.events.list(after=1)
    wire.heal()
    assert b.using(at_least="latest").cells.list(RUN) == ["cell"]


def test_lists_answer_as_of_the_last_sweep(nodes: Nodes, wire: Wire) -> None:
    b = nodes.open("b", wire)
    b.cells.set(RUN, "cell", 1, ttl=5)
    b.locks.acquire("lock", ttl=5)
    wire.cut()
    nodes.clock.advance(5)
    assert b.cells.list(RUN) == ["cell"]
    assert [grant.name for grant in b.locks.list()] == ["lock"]
    assert (b.cells.find(RUN, "cell"), b.locks.find("lock")) == (None, None)
    wire.heal()
    assert (b.cells.list(RUN), b.locks.list()) == ([], [])


def test_awaited_lists_answer_as_of_the_last_sweep_too(nodes: Nodes, wire: Wire) -> None:
    b = nodes.stale("b", wire)
    b.cells.set(RUN, "cell", 1, ttl=5)
    wire.cut()
    nodes.clock.advance(5)

    async def main() -> list[str]:
        return await b.aio.cells.list(RUN)

    assert finish(main()) == ["cell"]


@pytest.mark.parametrize("fault", ["request lost", "conflict", "late"])
def test_lists_answer_as_of_the_last_sweep_also_if_nobody_knows_what_became_of_the_sweep(
    nodes: Nodes, wire: Wire, fault: Fault
) -> None:
    b = nodes.stale("b", wire)
    b.cells.set(RUN, "cell", 1, ttl=5)
    wire.always("append", fault)
    nodes.clock.advance(5)
    assert b.cells.list(RUN) == ["cell"]


def test_a_node_that_was_cut_off_follows_by_itself_once_it_is_healed(nodes: Nodes, wire: Wire) -> None:
    a, b = nodes.open("a"), nodes.open("b", wire)
    with b.watch() as events:
        wire.cut()
        for number in range(20):
            a.cells.set(RUN, "cell", number)
        heard = start(lambda: [next(events).version for _ in range(20)])
        wire.heal()
        assert heard.result(LONG) == list(range(1, 21))
    assert value(b, "cell") == 19


def test_whoever_waits_for_a_lock_while_the_line_is_cut_is_told_so(nodes: Nodes, wire: Wire) -> None:
    a, b = nodes.open("a"), nodes.open("b", wire)
    a.locks.acquire("lock")
    with a.watch() as events:
        waiting = start(lambda: b.locks.acquire("lock", wait=60))
        assert start(lambda: next(events)).result(LONG).op == "wait"
    wire.cut()
    a.locks.release("lock")

    def given_up() -> bool:
        nodes.clock.advance(4)  # the place in line wants renewing
        return waiting.done()

    eventually(given_up)
    with pytest.raises(errors.Unreachable):
        waiting.result(LONG)


def test_a_replica_can_be_opened_for_reading_while_the_log_is_cut(
    nodes: Nodes, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = nodes.open("a"), nodes.open("b", wire)
    b.cells.set(RUN, "cell", 1)
    b.close()
    a.cells.set(RUN, "cell", 2)
    wire.cut()
    with caplog.at_level(logging.WARNING, "holdfast"):
        b = nodes.open("b", wire)
    assert any("cannot be reached" in record.message for record in caplog.records)
    assert (value(b, "cell"), b.cells.list(RUN)) == (1, ["cell"])
    with pytest.raises(errors.Unreachable):
        b.cells.set(RUN, "cell", 3)
    wire.heal()
    assert b.cells.increment(RUN, "cell") == 3
    assert_equal(a, b)


def test_a_replica_opened_while_the_log_was_cut_is_still_of_one_domain_with_the_other_nodes(
    nodes: Nodes, wire: Wire
) -> None:
    a, b = nodes.open("a"), nodes.open("b", wire)
    b.close()
    wire.cut()
    b = nodes.open("b", wire)
    wire.heal()
    with pytest.raises(errors.Reentrant):
        a.transact(lambda tx: b.cells.set(RUN, "cell", 1))


def test_a_new_replica_cannot_be_made_while_the_log_is_cut_and_can_be_later(nodes: Nodes, wire: Wire) -> None:
    a = nodes.open("a")
    a.cells.set(RUN, "cell", 1)
    wire.cut()
    for _ in range(2):
        with pytest.raises(errors.Unreachable):
            nodes.open("b", wire)
    wire.heal()
    assert_equal(a, nodes.open("b", wire))


@pytest.mark.parametrize("calls", range(1, 6))
def test_a_new_replica_whose_line_is_cut_anywhere_on_the_way_can_be_made_later(nodes: Nodes, calls: int) -> None:
    a = nodes.engine("a", snapshot_every=3)
    for number in range(4):
        a.cells.set(RUN, "cell", number)
    journal(a).maintain()
    a.cells.set(RUN, "cell", "last")

    class Failing(Wire):
        left = calls

        def _choose(self, method: Method) -> Fault | None:
            self.left -= 1
            return "unreachable" if self.left < 0 else None

    wire = Failing(nodes.log)
    nodes.patience = LITTLE_PATIENCE
    try:
        b = nodes.open("b", wire)
    except errors.Unreachable:
        wire.left = 1000
        b = nodes.open("b", wire)
    wire.left = 10**6
    assert_equal(a, b)
    assert value(b, "cell") == "last"


def test_an_open_that_fails_leaves_no_descriptor_behind(nodes: Nodes, wire: Wire) -> None:
    wire.cut()
    with pytest.raises(errors.Unreachable):
        nodes.open("b", wire)
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        with pytest.raises(errors.Unreachable):
            nodes.open("b", wire)
    assert len(os.listdir("/dev/fd")) == before


def test_closing_a_node_that_is_cut_off_needs_no_log(nodes: Nodes, wire: Wire) -> None:
    b = nodes.open("b", wire)
    b.cells.set(RUN, "cell", 1, ttl=5)
    wire.cut()
    nodes.clock.advance(5)
    b.close()
    with pytest.raises(errors.Closed):
        b.cells.get(RUN, "cell")
    assert len(entries(nodes.log)) == known() + 1


def test_awaited_calls_on_a_node_that_is_cut_off(nodes: Nodes, wire: Wire) -> None:
    a, b = nodes.open("a"), nodes.open("b", wire)
    b.cells.set(RUN, "cell", 1)

    async def main() -> None:
        wire.cut()
        results = await asyncio.gather(*(b.aio.cells.increment(RUN, "cell") for _ in range(8)), return_exceptions=True)
        assert {type(result) for result in results} == {errors.Unreachable}
        assert (await b.aio.cells.get(RUN, "cell")).value == 1
        with pytest.raises(errors.Unreachable):
            await b.aio.using(at_least="latest").cells.get(RUN, "cell")
        wire.heal()
        assert await b.aio.cells.increment(RUN, "cell") == 2

    finish(main())
    assert_equal(a, b)
