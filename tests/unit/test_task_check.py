"""`ws.check()` finds whatever is kept for speed and is not what it is kept of: each thing broken by hand and found."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.kernel.store_files import FILE

BREAKS = {
    "UPDATE tasks SET waits = waits + 1 WHERE title = 'waits'": "counts its dependencies wrongly",
    "UPDATE tasks SET busy = 1 WHERE title = 'free'": "counts the children it waits for wrongly",
    "UPDATE tasks SET depth = 5 WHERE title = 'child'": "has a wrong depth",
    "UPDATE tasks SET parent = 99 WHERE title = 'child'": "has a parent that does not exist",
    "UPDATE tasks SET deleted = 1, deletion = 1 WHERE title = 'parent'": "is live under a deleted parent",
    "UPDATE tasks SET deleted = 1 WHERE title = 'claimed'": "is deleted although it is being worked on",
    "UPDATE tasks SET holder = NULL WHERE title = 'claimed'": "is claimed in part",
    "DELETE FROM leases WHERE kind = 'task'": "claimed without a lease",
    "UPDATE tasks SET children = 1 WHERE title = 'free'": "counts its children wrongly",
    "UPDATE tasks SET refs = '[[\"branch\", \"x\"]]' WHERE title = 'free'": "has other references in its text",
    "UPDATE tasks SET assignee = 'bob' WHERE title = 'free'": "has assigned_to 'bob', but None in the log",
    "INSERT INTO leases VALUES (-77, 'defer', 'system', 1, 9999999999999999, 1)": "a timer defers no task that waits",
    "UPDATE task_texts SET title = 'other' WHERE title = 'free'": "has no text",
    "UPDATE tasks SET record = (SELECT min(key) FROM records) WHERE title = 'free'": "does not know its key in the log",
    "DELETE FROM tasks_fts_docsize WHERE id = 1": "is not in the search index",
    "INSERT INTO leases VALUES (99, 'task', 'me', 1, 9e15, 0)": "a lease belongs to a task without a holder",
    "INSERT INTO task_texts VALUES (77, 'stray', '', '', '')": "a text belongs to no task",
    "INSERT INTO task_imports VALUES (77, 'beads', zeroblob(20), 1)": "not what an import keeps",
    "INSERT INTO task_imports VALUES (1, 'table', 'tasks', 7)": "not what an import keeps",
    "INSERT INTO links VALUES ('related', 'x', 'y', 'z', 0)": "a link has a missing end",
    "DELETE FROM task_tags": "task_tags is wrong",
    "DELETE FROM ready_tags": "ready_tags is wrong",
    "UPDATE tasks SET tags = '[\"other\"]' WHERE title = 'free'": "task_tags is wrong",
    "UPDATE tasks SET title = 'changed' WHERE title = 'child'": "has title 'changed', but 'child' in the log",
    "UPDATE tasks SET status = 'blocked' WHERE title = 'free'": "has status 'blocked', but 'open' in the log",
    "UPDATE task_texts SET body = 'changed' WHERE title = 'free'": "has body 'changed', but 'as agreed' in the log",
    "UPDATE tasks SET hint = 'other' WHERE title = 'free'": "has grimoire_hint 'other', but 'kiln' in the log",
    "UPDATE tasks SET version = 9 WHERE title = 'free'": "is at version 9",
    "DELETE FROM tasks WHERE title = 'free'": "is in the log, but not in the store",
    "INSERT INTO links SELECT 'depends_on', b.id, a.id, 'circle', 0 FROM tasks a, tasks b"
    " WHERE a.title = 'waits' AND b.title = 'awaited'": "in a cycle",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound workspace with one of everything."""
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        parent = ws.tasks.create("parent")
        ws.tasks.create("child", parent_id=parent.id)
        ws.tasks.create("free", tags=["a"], body="as agreed", grimoire_hint="kiln")
        awaited, waits = ws.tasks.create("awaited"), ws.tasks.create("waits")
        ws.tasks.depend(waits.id, awaited.id)
        ws.tasks.claim(ws.tasks.create("claimed").id)
        assert ws.check().ok
    return tmp_path / "store"


@pytest.mark.parametrize(("sql", "problem"), BREAKS.items(), ids=BREAKS.values())
def test_what_is_broken_is_found(folder: Path, sql: str, problem: str) -> None:
    connection = apsw.Connection(str(folder / FILE))
    connection.execute(sql)
    connection.close()
    with holdfast.open(folder, actor="me") as ws:
        assert any(problem in found for found in ws.check().problems), ws.check().problems


def test_a_long_chain_of_dependencies_is_no_circle(folder: Path) -> None:
    with holdfast.open(folder, actor="me") as ws:
        made = [item.id for item in ws.tasks.bulk("create", tasks=[{"title": "link"}] * 300).results]
        ws.transact(lambda tx: [tx.tasks.depend(*pair) for pair in zip(made[1:], made, strict=False)] and None)
        assert ws.check().ok
        assert ws.tasks.explain(made[-1]).reasons[0].ids == (made[-2],)
