"""Migrations in a replicated workspace: each is an entry of its own, which every node runs, or stops at."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel import migrations
from holdfast.kernel.maintenance import upgrade
from holdfast.kernel.migrations import Migration
from holdfast.replication.log import Migrated
from holdfast.replication.replica import Replica
from holdfast.testing.crowd import LONG, start, together
from tests.logs.nodes import RUN, Nodes, Wire, assert_equal, entries, value, write

OLD = migrations.load()
NEXT = len(OLD) + 1
EXTRA = Migration(NEXT, "CREATE TABLE extra (id INTEGER NOT NULL PRIMARY KEY);", 1, 1)
MORE = Migration(NEXT + 1, "CREATE TABLE more (id INTEGER NOT NULL PRIMARY KEY);", 1, 1)
LOCKING = Migration(NEXT, "CREATE TABLE locking (id INTEGER NOT NULL PRIMARY KEY);", NEXT, NEXT)


def know(monkeypatch: pytest.MonkeyPatch, steps: Sequence[Migration]) -> None:
    """Make this program know some migrations."""
    monkeypatch.setattr(migrations, "known", lambda: len(steps))


def migrated(nodes: Nodes) -> list[int]:
    """The migrations in the log."""
    return [entry.number for entry in entries(nodes.log) if isinstance(entry, Migrated)]


def has(node: holdfast.Workspace, table: str) -> bool:
    """Whether a node has a table."""
    return bool(
        node._engine.read(lambda snapshot: snapshot.one("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)))
    )


def test_the_first_node_makes_the_workspace_with_one_entry_for_each_migration(nodes: Nodes) -> None:
    a = nodes.engine("a", steps=[*OLD, EXTRA, MORE])
    assert migrated(nodes) == [*range(1, NEXT), NEXT, NEXT + 1]
    assert len(entries(nodes.log)) == NEXT + 1
    b = nodes.engine("b", steps=[*OLD, EXTRA, MORE])
    assert len(entries(nodes.log)) == NEXT + 1
    assert has(b, "extra")
    assert has(b, "more")
    assert_equal(a, b)


def test_a_new_additive_migration_is_an_entry_that_every_node_runs(nodes: Nodes) -> None:
    a = nodes.open("a")
    a.cells.set(RUN, "cell", 1)
    b = nodes.open("b")
    b.close()
    new = nodes.engine("new", steps=[*OLD, EXTRA])
    assert migrated(nodes) == [*range(1, NEXT), NEXT]
    new.transact(lambda tx: tx._tx.run("INSERT INTO extra VALUES (7)"))
    new.cells.set(RUN, "cell", 2)
    b, late = (nodes.engine(name, steps=[*OLD, EXTRA]) for name in ("b", "late"))
    assert migrated(nodes) == [*range(1, NEXT), NEXT]
    for node in (b, late):
        assert has(node, "extra")
        assert node._engine.read(lambda snapshot: snapshot.all("SELECT id FROM extra")) == [(7,)]
    assert_equal(new, b, late)


def test_a_node_that_lacks_a_migration_stops_with_behind_and_the_others_go_on(nodes: Nodes) -> None:
    old = nodes.stale("old")
    old.cells.set(RUN, "cell", 1)
    new = nodes.engine("new", steps=[*OLD, EXTRA])
    for call in (
        lambda: old.cells.set(RUN, "cell", 2),
        lambda: old.cells.get(RUN, "cell"),
        lambda: old.cells.list(RUN),
        lambda: old.transact(lambda tx: 1),
        lambda: old.watch(),
    ):
        with pytest.raises(errors.Behind, match=f"schema {NEXT}"):
            call()
    assert new.cells.set(RUN, "cell", 2) == 2
    old.close()
    with pytest.raises(errors.Behind):
        nodes.open("old")
    upgraded = nodes.engine("old", steps=[*OLD, EXTRA])
    assert upgraded.cells.set(RUN, "cell", 3) == 3
    assert_equal(upgraded, new)


def test_a_node_that_lacks_a_migration_stops_by_itself_while_nobody_asks_it(nodes: Nodes) -> None:
    old = nodes.open("old")
    with old.watch() as events:
        heard = start(lambda: next(events))
        nodes.engine("new", steps=[*OLD, EXTRA]).cells.set(RUN, "cell", 1)
        with pytest.raises(errors.Behind):
            heard.result(LONG / 12)


def test_a_node_that_stopped_at_a_migration_goes_on_there_once_it_has_it(nodes: Nodes) -> None:
    old = nodes.stale("old")
    other = nodes.stale("other")
    for _ in range(5):
        other.cells.increment(RUN, "cell")
    nodes.engine("new", steps=[*OLD, EXTRA])
    with pytest.raises(errors.Behind):
        old.cells.increment(RUN, "cell")
    old.close()
    assert nodes.engine("old", steps=[*OLD, EXTRA]).cells.increment(RUN, "cell") == 6


def test_a_migration_that_differs_in_its_text_is_corrupt(nodes: Nodes) -> None:
    nodes.engine("new", steps=[*OLD, EXTRA])
    another = Migration(NEXT, "CREATE TABLE extra (id TEXT NOT NULL PRIMARY KEY);", 1, 1)
    with pytest.raises(errors.Corrupt, match=f"migration {NEXT}"):
        nodes.engine("other", steps=[*OLD, another])
    old = nodes.engine("old", pulse=False, steps=[*OLD, EXTRA])
    assert old.cells.set(RUN, "cell", 1) == 1


def test_a_migration_that_fails_is_not_appended(nodes: Nodes) -> None:
    a = nodes.open("a")
    failing = Migration(NEXT, "CREATE TABLE good (id INTEGER NOT NULL PRIMARY KEY); CREATE TABLE cells (x);", 1, 1)
    with pytest.raises((apsw.SQLError, errors.HoldfastError)):
        nodes.engine("new", steps=[*OLD, failing])
    assert migrated(nodes) == list(range(1, NEXT))
    assert a.cells.set(RUN, "cell", 1) == 1
    assert_equal(a, nodes.open("new"))


def test_nodes_that_open_an_empty_log_at_once_make_one_workspace(nodes: Nodes) -> None:
    opened = together(*[lambda name=name: nodes.open(name) for name in "abcdef"])
    assert migrated(nodes) == list(range(1, NEXT))
    assert len({entry.workspace for entry in entries(nodes.log)}) == 1
    for node in opened:
        node.cells.increment(RUN, "cell")
    assert_equal(*opened)
    assert value(opened[0], "cell") == 6


def test_nodes_that_bring_the_same_migrations_at_once_append_each_of_them_once(nodes: Nodes) -> None:
    nodes.open("old").close()
    steps = [*OLD, EXTRA, MORE]
    opened = together(*[lambda name=name: nodes.engine(name, steps=steps) for name in "abcdef"])
    assert migrated(nodes) == [*range(1, NEXT), NEXT, NEXT + 1]
    assert_equal(*opened)


def test_a_node_brings_its_migrations_while_others_write(nodes: Nodes) -> None:
    old = nodes.open("old")

    def work() -> int:
        done = 0
        for _ in range(100):
            try:
                old.cells.increment(RUN, "cell")
                done += 1
            except errors.Behind:
                break
        return done

    working = start(work)
    new = nodes.engine("new", steps=[*OLD, EXTRA])
    done = working.result(LONG)
    new.using(at_least="latest").reach()
    assert (value(new, "cell") or 0) == done
    assert migrated(nodes) == [*range(1, NEXT), NEXT]


def test_a_new_workspace_runs_all_migrations_also_those_that_would_lock_others_out(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, [*OLD, LOCKING])
    a = nodes.engine("a", steps=[*OLD, LOCKING])
    assert migrated(nodes) == [*range(1, NEXT), NEXT]
    assert has(a, "locking")


def test_a_migration_that_locks_others_out_waits_for_an_upgrade_which_appends_it(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = nodes.stale("old")
    old.cells.set(RUN, "cell", 1)
    know(monkeypatch, [*OLD, LOCKING])
    new = nodes.engine("new", steps=[*OLD, LOCKING])
    assert migrated(nodes) == list(range(1, NEXT))
    assert new.cells.set(RUN, "cell", 2) == 2
    assert old.cells.set(RUN, "cell", 3) == 3
    new.close()
    steps = [*OLD, LOCKING]
    answer = upgrade(nodes.path("new"), nodes.clock, steps, Replica(nodes.log, nodes.clock, steps=steps))
    assert answer == NEXT
    assert migrated(nodes) == [*range(1, NEXT), NEXT]
    assert len(list(nodes.path("new").glob("before-schema-*.backup"))) == 1
    new = nodes.engine("new", steps=steps)
    assert new.cells.set(RUN, "cell", 4) == 4
    with pytest.raises(errors.Behind):
        old.cells.set(RUN, "cell", 5)
    assert_equal(new, nodes.engine("late", steps=steps))


def test_an_upgrade_with_nothing_to_do_appends_nothing(nodes: Nodes) -> None:
    a = nodes.open("a")
    a.cells.set(RUN, "cell", 1)
    nodes.open("b").close()
    assert holdfast.upgrade(nodes.path("b"), clock=nodes.clock, log=nodes.log) == NEXT - 1
    assert len(entries(nodes.log)) == NEXT
    assert_equal(a, nodes.open("b"))


def test_an_upgrade_over_a_cut_line_is_unreachable_and_changes_nothing(nodes: Nodes) -> None:
    wire = Wire(nodes.log)
    nodes.open("a", wire).close()
    wire.cut()
    steps = [*OLD, EXTRA]
    with pytest.raises(errors.Unreachable):
        upgrade(nodes.path("a"), nodes.clock, steps, Replica(wire, nodes.clock, steps=steps))
    wire.heal()
    assert migrated(nodes) == list(range(1, NEXT))
    assert nodes.open("a", wire).cells.set(RUN, "cell", 1) == 1


def test_a_node_joins_from_a_snapshot_past_a_migration(nodes: Nodes) -> None:
    a = nodes.engine("a", steps=[*OLD, EXTRA], snapshot_every=5, pulse=False)
    write(a, 30)
    assert NEXT not in migrated(nodes)
    late = nodes.engine("late", steps=[*OLD, EXTRA])
    assert has(late, "extra")
    assert_equal(a, late)
