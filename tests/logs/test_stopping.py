"""A replica that differs from its log stops with Corrupt, alone and for good, until it is rebuilt; the others go on."""

from __future__ import annotations

from collections.abc import Callable

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel.store_files import FILE
from holdfast.testing.crowd import LONG, start
from tests.logs.nodes import RUN, Nodes, assert_equal, entries, value

# What somebody does to a replica behind its back, and what another node then does to the same rows.
DIVERGENCES: dict[str, tuple[str, Callable[[holdfast.Workspace], object]]] = {
    "a different row": ("UPDATE cells SET version = 7", lambda ws: ws.cells.set(RUN, "cell", "new")),
    "another value": ("UPDATE cells SET value = x'07'", lambda ws: ws.cells.set(RUN, "cell", "new")),
    "no such row": ("DELETE FROM cells", lambda ws: ws.cells.set(RUN, "cell", "new")),
    "no such row to delete": ("DELETE FROM cells", lambda ws: ws.cells.delete(RUN, "cell")),
    "a conflicting row": (
        "INSERT INTO locks SELECT 'lock', '', 'lock', 'me', 1, 1, NULL, NULL, NULL",
        lambda ws: ws.locks.acquire("lock"),
    ),
    "another revision": ("UPDATE meta SET revision = revision + 1", lambda ws: ws.cells.set(RUN, "new", 1)),
    "another event": ("UPDATE log SET actor = 'me'", lambda ws: ws.events.compact(before=ws.revision)),
    "no table": ("DROP TABLE waiters", lambda ws: _wait_in_line(ws)),
    "a table of another shape": (
        "DROP TABLE waiters; CREATE TABLE waiters (kind TEXT NOT NULL PRIMARY KEY, scope TEXT)",
        lambda ws: _wait_in_line(ws),
    ),
    "a table with another key": (
        "DROP TABLE waiters; CREATE TABLE waiters (kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,"
        " place INTEGER NOT NULL, ticket TEXT NOT NULL PRIMARY KEY, holder TEXT NOT NULL)",
        lambda ws: _wait_in_line(ws),
    ),
}


def _wait_in_line(ws: holdfast.Workspace) -> None:
    """Write to the table of waiters."""
    grant = ws.locks.acquire("contended", holder="first")
    with pytest.raises(errors.Held):
        ws.locks.acquire("contended", holder="second", wait=0)
    ws.locks.release("contended", holder="first", token=grant.token)


def spoil(nodes: Nodes, name: str, sql: str) -> None:
    """Change a replica behind its back."""
    connection = nodes.file(name)
    connection.execute(sql)
    connection.close()


def prepared(nodes: Nodes) -> tuple[holdfast.Workspace, holdfast.Workspace]:
    """Two equal nodes with something in them; the second follows only when it is asked."""
    a, b = nodes.open("a"), nodes.stale("b")
    for number in range(3):
        a.cells.set(RUN, "cell", number)
    assert_equal(a, b)
    return a, b


@pytest.mark.parametrize("case", DIVERGENCES)
def test_a_replica_that_differs_stops_for_reads_and_writes_and_the_others_go_on(nodes: Nodes, case: str) -> None:
    a, b = prepared(nodes)
    sql, change = DIVERGENCES[case]
    spoil(nodes, "b", sql)
    change(a)
    with pytest.raises(errors.Corrupt, match="differs from its log"):
        b.using(at_least="latest").cells.list(RUN)
    calls: tuple[Callable[[], object], ...] = (
        lambda: b.cells.get(RUN, "cell"),
        lambda: b.cells.list(RUN),
        lambda: b.revision,
        lambda: b.events.list(),
        lambda: b.watch(),
        lambda: b.check(),
        lambda: b.backup(nodes.folder / "backup"),
        lambda: b.cells.set(RUN, "cell", "mine"),
        lambda: b.transact(lambda tx: 1),
        lambda: b.transaction().__enter__(),
    )
    for call in calls:
        with pytest.raises(errors.Corrupt, match="differs from its log"):
            call()
    b.close()
    for _ in range(2):
        with pytest.raises(errors.Corrupt, match="differs from its log"):
            nodes.open("b")
    a.cells.set(RUN, "cell", "on")
    assert_equal(a, nodes.open("c"))


def test_the_hint_says_how_to_rebuild_and_rebuilding_makes_an_equal_replica(nodes: Nodes) -> None:
    a, b = prepared(nodes)
    spoil(nodes, "b", "UPDATE cells SET version = 7")
    a.cells.set(RUN, "cell", "new")
    with pytest.raises(errors.Corrupt) as caught:
        b.cells.set(RUN, "cell", "mine")
    assert "holdfast.rebuild(path)" in caught.value.hint
    b.close()
    aside = holdfast.rebuild(nodes.path("b"), log=nodes.log, clock=nodes.clock)
    assert aside.parent == nodes.path("b")
    evidence = apsw.Connection(str(aside))
    assert evidence.execute("SELECT version FROM cells").fetchall() == [(7,)]
    evidence.close()
    b = nodes.open("b")
    assert_equal(a, b)
    assert b.cells.set(RUN, "cell", "mine") == 5


def test_rebuilding_a_sound_replica_does_no_harm(nodes: Nodes) -> None:
    a, b = prepared(nodes)
    b.close()
    holdfast.rebuild(nodes.path("b"), log=nodes.log, clock=nodes.clock)
    assert_equal(a, nodes.open("b"))


def test_rebuilding_twice_at_the_same_moment_keeps_what_was_set_aside_first(nodes: Nodes) -> None:
    _, b = prepared(nodes)
    b.close()
    aside = [holdfast.rebuild(nodes.path("b"), log=nodes.log, clock=nodes.clock) for _ in range(2)]
    assert len(set(aside)) == 2
    assert all(path.is_file() for path in aside)


def test_rebuilding_where_no_replica_is_finds_none(nodes: Nodes) -> None:
    nodes.path("b").mkdir()
    with pytest.raises(errors.NotFound):
        holdfast.rebuild(nodes.path("b"), log=nodes.log, clock=nodes.clock)
    assert entries(nodes.log) == []


def test_whoever_still_has_a_rebuilt_replica_open_is_told_that_it_is_gone(nodes: Nodes) -> None:
    a, b = prepared(nodes)
    holdfast.rebuild(nodes.path("b"), log=nodes.log, clock=nodes.clock)
    with pytest.raises(errors.Closed):
        b.cells.set(RUN, "cell", "lost")
    assert value(a, "cell") == 2
    assert_equal(a, nodes.open("b"))


def test_whoever_watches_on_a_node_that_stops_is_told(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    a.cells.set(RUN, "cell", 1)
    b.using(at_least="latest").reach()
    with b.watch() as events:
        heard = start(lambda: next(events))
        spoil(nodes, "b", "UPDATE cells SET version = 7")
        a.cells.set(RUN, "cell", 2)
        with pytest.raises(errors.Corrupt):
            heard.result(LONG / 12)


def test_whoever_waits_for_a_lock_on_a_node_that_stops_is_told(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    a.locks.acquire("lock")
    a.cells.set(RUN, "cell", 1)
    with a.watch() as events:
        waiting = start(lambda: b.locks.acquire("lock", wait=1000))
        assert start(lambda: next(events)).result(LONG).op == "wait"
    spoil(nodes, "b", "UPDATE cells SET version = 7")
    a.cells.set(RUN, "cell", 2)
    with pytest.raises(errors.Corrupt):
        b.using(at_least="latest").reach()
    a.locks.release("lock")
    with pytest.raises(errors.Corrupt):
        waiting.result(LONG / 12)


def test_a_replica_that_lost_its_newest_commits_with_the_power_finds_them_in_the_log(nodes: Nodes) -> None:
    a, b = prepared(nodes)
    b.cells.set(RUN, "mine", 1)
    b.close()
    copy = nodes.path("c")
    copy.mkdir()
    b = nodes.stale("b")
    with nodes.file("b") as connection, apsw.Connection(str(copy / FILE)) as target:
        connection.execute("SELECT 1")
        with target.backup("main", connection, "main") as progress:
            progress.step(-1)
    b.cells.set(RUN, "mine", 2)
    a.cells.set(RUN, "mine", 3)
    assert_equal(a, b, nodes.open("c"))
