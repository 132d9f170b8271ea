"""A node's own tables and what FTS5 keeps stay out of the log, so that no replica breaks another's search."""

from __future__ import annotations

import holdfast
from holdfast.replication.follower import is_shared
from tests.logs.nodes import RUN, Nodes, assert_equal, changed_tables, entries, value, write
from tests.worlds.contents import contents

INDEX = "CREATE VIRTUAL TABLE notes_fts USING fts5(body)"
CHECK = "INSERT INTO notes_fts(notes_fts) VALUES('integrity-check')"
LOCAL = "CREATE TABLE local_notes (id INTEGER NOT NULL PRIMARY KEY, body TEXT)"


def with_index(nodes: Nodes, name: str) -> holdfast.Workspace:
    """A node that keeps a search index and a table of its own."""
    node = nodes.stale(name)
    for sql in (INDEX, LOCAL):
        node._engine.store.writer.execute(sql)
    return node


def note(node: holdfast.Workspace, number: int, body: str) -> None:
    """Write a cell, index it, and remember it locally, all in one transaction."""

    def run(tx: holdfast.Transaction) -> None:
        tx.cells.set(RUN, f"note {number}", body)
        tx._tx.run("INSERT INTO notes_fts(rowid, body) VALUES (?, ?)", (number, body))
        tx._tx.run("INSERT INTO local_notes VALUES (?, ?)", (number, body))

    node.transact(run)


def hits(node: holdfast.Workspace, word: str) -> list[int]:
    """What a node's own index finds."""
    rows = node._engine.read(lambda snapshot: snapshot.all("SELECT rowid FROM notes_fts(?) ORDER BY rowid", (word,)))
    return [row[0] for row in rows]


def test_the_index_and_its_shadow_tables_stay_out_of_the_log(nodes: Nodes) -> None:
    a, b = with_index(nodes, "a"), with_index(nodes, "b")
    for number in range(10):
        note((a, b)[number % 2], number, f"word{number} common")
    tables = changed_tables(nodes.log)
    assert {"cells", "log", "meta", "records"} <= tables
    assert [table for table in tables if "fts" in table or table.startswith(("local_", "sqlite_"))] == []
    assert_equal(a, b)
    assert value(a, "note 9") == "word9 common"


def test_every_node_keeps_an_index_of_its_own_that_stays_sound(nodes: Nodes) -> None:
    a, b = with_index(nodes, "a"), with_index(nodes, "b")
    for number in range(40):
        note((a, b)[number % 2], number, f"word{number} common " * 20)
    assert_equal(a, b)
    for node, theirs in ((a, 0), (b, 1)):
        node._engine.store.writer.execute(CHECK)
        assert hits(node, "common") == list(range(theirs, 40, 2))
        assert hits(node, f"word{10 + theirs}") == [10 + theirs]
        assert hits(node, f"word{11 - theirs}") == []


def test_a_nodes_own_rows_are_committed_with_what_the_log_has_and_rolled_back_with_it(nodes: Nodes) -> None:
    a, b = with_index(nodes, "a"), with_index(nodes, "b")
    note(a, 1, "one")
    before = len(entries(nodes.log))
    assert a._engine.read(lambda snapshot: snapshot.all("SELECT id FROM local_notes")) == [(1,)]
    assert b._engine.read(lambda snapshot: snapshot.all("SELECT id FROM local_notes")) == []
    a.transact(lambda tx: tx._tx.run("DELETE FROM local_notes WHERE id = 99"))
    assert len(entries(nodes.log)) == before
    assert_equal(a, b)


def test_a_node_that_joins_anew_has_a_sound_index(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    b = with_index(nodes, "b")
    for sql in (INDEX, LOCAL):
        a._engine.store.writer.execute(sql)
    for number in range(10):
        note(b, number, f"word{number} common")
        note(a, 100 + number, f"word{number} common")
    write(a, 40)
    assert b.using(at_least="latest").cells.get(RUN, "cell").value == 40
    b._engine.store.writer.execute(CHECK)
    note(b, 500, "word500 common")
    assert hits(b, "word500") == [500]
    assert_equal(a, b)


def test_what_replicas_are_compared_by_is_what_they_share(nodes: Nodes) -> None:
    a = with_index(nodes, "a")
    note(a, 1, "one")
    shared = {"cells", "log", "records", "idempotency", "leases", "locks", "meta", "waiters", "tasks", "links"}
    assert contents(a).keys() >= shared
    assert not any("_fts" in table or table.startswith("local_") for table in contents(a))
    assert [
        is_shared(table) for table in ("cells", "notes_fts", "notes_fts_data", "local_replica", "sqlite_stat1")
    ] == [
        True,
        False,
        False,
        False,
        False,
    ]
