"""What one node acknowledged every other node has seen when it writes, and when it is asked to have seen it.

Reads are local; writes are not: a body whose answer rests on a replica that was behind runs again. Nodes that others
have to overtake have no pulse, so that they follow only when they must.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.testing.crowd import LONG, Line, start, together
from tests.logs.nodes import RUN, Nodes, Wire, assert_equal, entries, value

# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_write_is_seen_on_another_node_by_whoever_asks_for_its_revision_or_for_the_latest(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")
    a.cells.set(RUN, "cell", 1)
    assert value(b, "cell") is None
    assert b.using(at_least=a.revision).cells.get(RUN, "cell").value == 1
    a.cells.set(RUN, "cell", 2)
    assert value(b, "cell") == 1
    assert b.using(at_least="latest").cells.get(RUN, "cell").value == 2
    a.cells.set(RUN, "other", 3)
    assert b.cells.list(RUN) == ["cell"]
    assert b.using(at_least="latest").cells.list(RUN) == ["cell", "other"]
    assert_equal(a, b)


def test_a_node_follows_by_itself(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    with b.cells.watch_stream(RUN, "cell") as changes:
        a.cells.set(RUN, "cell", 1)
        assert start(lambda: next(changes)).result(LONG).new == 1
    assert value(b, "cell") == 1


def test_a_plain_read_asks_the_log_for_nothing(nodes: Nodes) -> None:
    a = nodes.open("a")
    a.cells.set(RUN, "cell", 1)
    wire = Wire(nodes.log)
    b = nodes.stale("b", wire)
    wire.calls.clear()
    assert (value(b, "cell"), b.cells.list(RUN), b.revision, b.cells.history(RUN, "cell")[0].version) == (
        1,
        ["cell"],
        1,
        1,
    )
    assert b.using(at_least=1).cells.get(RUN, "cell").value == 1
    assert wire.calls == []


def test_a_plain_read_never_goes_backwards(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    done = threading.Event()

    def look() -> list[tuple[int, int]]:
        seen = []
        while not done.is_set():
            seen.append((b.revision, value(b, "cell") or 0))
        return seen

    looking = start(look)
    for _ in range(100):
        a.cells.increment(RUN, "cell")
    assert b.using(at_least="latest").cells.get(RUN, "cell").value == 100
    done.set()
    seen = looking.result(LONG)
    assert seen == sorted(seen)


def test_a_revision_that_nobody_made_is_behind(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")
    a.cells.set(RUN, "cell", 1)
    for node in (a, b):
        with pytest.raises(errors.Behind) as caught:
            node.using(at_least=2).cells.get(RUN, "cell")
        assert (caught.value.revision, caught.value.wanted) == (1, 2)
        with pytest.raises(errors.Behind):
            node.using(at_least=2).cells.set(RUN, "cell", 2)
    assert value(b, "cell") == 1


def test_the_latest_is_what_was_acknowledged_before_the_call_however_fast_the_log_grows(nodes: Nodes) -> None:
    a = nodes.open("a")
    a.cells.set(RUN, "cell", "before the call")

    class Growing(Wire):
        def head(self) -> Any:
            if growing:
                start(lambda: a.cells.increment(RUN, "count")).result(LONG)
            return super().head()

    growing: list[bool] = []
    b = nodes.stale("b", Growing(nodes.log))
    a.cells.set(RUN, "cell", "acknowledged")
    growing.append(True)
    assert b.using(at_least="latest").cells.get(RUN, "cell").value == "acknowledged"


# --- events ----------------------------------------------------------------------------------------------------------


def test_a_cursor_of_another_node_can_be_followed_and_listed_from(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")
    for number in range(3):
        a.cells.set(RUN, "cell", number)
    cursor = a.revision - 1
    assert [event.revision for event in b.events.list(after=cursor)] == [3]
    a.cells.set(RUN, "cell", 3)
    with b.watch(after=4) as events:
        assert b.revision == 4
        a.cells.set(RUN, "cell", 4)
        b.using(at_least="latest").reach()
        assert next(events).revision == 5
    a.cells.set(RUN, "cell", 5)
    last = a.events.list(after=5)[0].cursor
    assert b.events.list(after=last) == []
    assert b.revision == 6


def test_a_cursor_of_the_future_is_behind_on_every_node(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")
    a.cells.set(RUN, "cell", 1)
    for node in (a, b):
        with pytest.raises(errors.Behind):
            node.events.list(after=2)
        with pytest.raises(errors.Behind):
            node.watch(after="2-0")


# --- writing at once -------------------------------------------------------------------------------------------------


def test_increments_by_threads_on_three_nodes_lose_nothing(nodes: Nodes) -> None:
    members = [nodes.open(name) for name in "abc"]

    def work(node: holdfast.Workspace, number: int) -> Callable[[], list[int | float]]:
        return lambda: [node.cells.increment(RUN, f"cell {(number + turn) % 3}") for turn in range(15)]

    answers = together(*(work(node, thread) for node in members for thread in range(4)))
    assert sum(len(answer) for answer in answers) == 180
    assert_equal(*members)
    assert [value(members[0], f"cell {number}") for number in range(3)] == [60, 60, 60]
    assert members[0].revision == 180


def test_a_lock_never_has_two_holders_over_all_nodes_and_its_tokens_grow(nodes: Nodes) -> None:
    members = [nodes.open(name) for name in "abc"]
    inside: list[int] = []
    tokens: list[int] = []

    def work(node: holdfast.Workspace, holder: str) -> Callable[[], None]:
        def run() -> None:
            for _ in range(4):
                grant = node.locks.acquire("lock", holder=holder, wait=LONG)
                inside.append(1)
                assert len(inside) == 1
                tokens.append(grant.token)
                inside.pop()
                node.locks.release("lock", holder=holder, token=grant.token)

        return run

    together(*(work(node, f"{number}-{thread}") for number, node in enumerate(members) for thread in range(2)))
    assert len(tokens) == 24
    assert tokens == sorted(set(tokens))
    assert_equal(*members)


def test_a_key_repeated_on_another_node_gets_the_first_answer(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")
    first = a.using(actor="me", key="once").cells.increment(RUN, "cell")
    assert b.using(actor="me", key="once").cells.increment(RUN, "cell") == first == 1
    assert b.using(actor="me", key="again").cells.increment(RUN, "cell") == 2
    keyed = [node.using(actor="me", key="body") for node in (a, b)]
    assert [node.transact(lambda tx: tx.cells.increment(RUN, "cell")) for node in keyed] == [3, 3]


def test_a_token_is_fenced_on_every_node_once_another_node_has_taken_the_lock(nodes: Nodes) -> None:
    a, b = nodes.stale("a"), nodes.stale("b")
    old = a.locks.acquire("lock", holder="one", ttl=5)
    nodes.clock.advance(5)
    new = b.locks.acquire("lock", holder="two")
    assert new.token > old.token
    with pytest.raises(errors.Fenced):
        a.using(fence=("lock", old.token)).cells.set(RUN, "cell", "late")
    assert value(a, "cell") is None


# --- on a replica that is behind -------------------------------------------------------------------------------------


def test_a_write_on_a_replica_that_is_behind_has_seen_everything_acknowledged(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")
    a.cells.set(RUN, "cell", "new")
    assert value(b, "cell") is None
    assert b.cells.get_or_init(RUN, "cell", "default").value == "new"
    a.cells.set(RUN, "cell", "newer")
    with pytest.raises(errors.VersionMismatch) as mismatch:
        b.cells.cas(RUN, "cell", 1, "old")
    assert (mismatch.value.version, mismatch.value.value) == (2, "newer")
    a.cells.set(RUN, "doomed", 1)
    assert b.cells.delete(RUN, "doomed") is True
    with pytest.raises(errors.NotFound):
        a.cells.transition(RUN, "doomed", lambda value: value)
    a.cells.set(RUN, "taken", 1)
    with pytest.raises(errors.Exists):
        b.cells.init(RUN, "taken", 2)
    assert_equal(a, b)


@pytest.mark.parametrize("asked", ["cas", "delete", "get_or_init", "transact", "acquire"])
def test_an_answer_that_rests_on_a_tail_that_lagged_is_given_only_after_running_again(nodes: Nodes, asked: str) -> None:
    a = nodes.open("a")
    a.cells.set(RUN, "cell", "old")
    wire = Wire(nodes.log)
    b = nodes.stale("b", wire)
    a.cells.set(RUN, "cell", "new")
    a.cells.set(RUN, "other", 1)
    a.locks.acquire("lock")
    wire.once("tail", "lagging", "lagging", "lagging")  # three entries of which one, then none is shown
    match asked:
        case "cas":
            with pytest.raises(errors.VersionMismatch) as mismatch:
                b.cells.cas(RUN, "cell", None, "mine")
            assert mismatch.value.value == "new"
        case "delete":
            assert b.cells.delete(RUN, "other") is True
        case "get_or_init":
            assert b.cells.get_or_init(RUN, "other", 2).value == 1
        case "transact":
            assert b.transact(lambda tx: tx.cells.list(RUN)) == ["cell", "other"]
        case "acquire":
            with pytest.raises(errors.Held):
                b.locks.acquire("lock")


def test_a_body_outrun_by_another_node_runs_again_and_what_it_did_before_does_not_count(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")
    runs: list[Any] = []

    def body(tx: holdfast.Transaction) -> int:
        found = tx.cells.find(RUN, "cell")
        runs.append(None if found is None else found.value)
        if len(runs) < 4:
            start(lambda: a.cells.set(RUN, "cell", len(runs))).result(LONG)
        tx.cells.set(RUN, f"run {len(runs)}", True)
        return len(runs)

    assert b.transact(body) == 4
    assert runs == [None, 1, 2, 3]
    assert_equal(a, b)
    assert a.using(at_least="latest").cells.list(RUN) == ["cell", "run 4"]


def test_calls_that_wait_in_line_on_one_node_are_one_entry_of_the_log(nodes: Nodes) -> None:
    a, b = nodes.stale("a"), nodes.stale("b")
    before = nodes.log.head()
    with Line(a) as line:
        waiting = [line.queue(lambda: a.cells.increment(RUN, "cell")) for _ in range(20)]
        failing = line.queue(lambda: a.cells.cas(RUN, "cell", 99, 0))
    assert sorted(call.result(LONG) for call in waiting) == list(range(1, 21))
    with pytest.raises(errors.VersionMismatch):
        failing.result(LONG)
    assert len(entries(nodes.log)) == before + 1
    assert_equal(a, b)


# --- blocks ----------------------------------------------------------------------------------------------------------


def test_a_block_is_a_conflict_at_its_end_if_another_node_wrote_meanwhile_and_leaves_nothing(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")

    def block() -> None:
        with b.transaction() as tx:
            tx.cells.set(RUN, "mine", 1)
            start(lambda: a.cells.set(RUN, "theirs", 1)).result(LONG)

    with pytest.raises(errors.Conflict):
        block()
    assert_equal(a, b)
    assert b.cells.list(RUN) == ["theirs"]
    with b.transaction() as tx:
        assert tx.cells.get(RUN, "theirs").value == 1
        tx.cells.set(RUN, "mine", 2)
    assert a.using(at_least="latest").cells.get(RUN, "mine").value == 2


def test_a_block_that_only_read_is_a_conflict_too_for_it_may_have_read_what_was_no_longer_so(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")

    def block() -> None:
        with b.transaction() as tx:
            start(lambda: a.cells.set(RUN, "cell", 1)).result(LONG)
            assert tx.cells.find(RUN, "cell") is None

    with pytest.raises(errors.Conflict):
        block()
    with b.transaction() as tx:
        assert tx.cells.get(RUN, "cell").value == 1


def test_a_block_that_raises_leaves_nothing_anywhere(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    with pytest.raises(ZeroDivisionError), b.transaction() as tx:
        tx.cells.set(RUN, "cell", 1 / 0)
    assert b.cells.set(RUN, "cell", 1) == 1
    assert_equal(a, b)


def test_a_node_called_inside_a_transaction_of_another_node_is_reentrant(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    with pytest.raises(errors.Reentrant):
        a.transact(lambda tx: b.cells.set(RUN, "cell", 1))
    with a.transaction(), pytest.raises(errors.Reentrant):
        b.cells.set(RUN, "cell", 1)
    assert b.cells.set(RUN, "cell", 1) == 1


def test_a_node_called_inside_a_transaction_of_another_is_reentrant_also_when_that_one_left_its_own(
    nodes: Nodes,
) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    entered, leave = threading.Event(), threading.Event()

    def block() -> None:
        with a.transaction():
            entered.set()
            assert leave.wait(LONG)

    other = start(block)
    assert entered.wait(LONG)
    with b.transaction():
        leave.set()
        other.result(LONG)
        with pytest.raises(errors.Reentrant):
            a.cells.set(RUN, "cell", 1)
