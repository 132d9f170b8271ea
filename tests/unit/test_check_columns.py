"""`ws.check()` compares every stored field that the log has, or another table: each column of each table is altered.

Written through the checksums, as a page that was not written, or in the wrong place, is. A column that `check` cannot
compare is in `EXEMPT`, with the reason.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Workspace
from holdfast.kernel.migrations import load
from holdfast.kernel.store import connect_raw
from holdfast.kernel.store_files import FILE, MARK
from tests.unit.test_damaged_stores import furnish, go_on

ALL = "*"
NOT_LOGGED = "no event has it"
LEASE = "renewals emit no event"
EXEMPT = {
    ("meta", "workspace"): "the first of its kind: nothing else says what it is",
    ("meta", "schema"): "compared with the program when a store is opened",
    ("meta", "oldest_writer"): "compared with the program by each group",
    ("meta", "oldest_reader"): "compared with the program when a store is opened",
    ("meta", "stamp"): "a commit without an event moves it; `commit.mark` has it",
    ("meta", "compacted"): "a number that is too high hides events, which are found by their gap",
    ("meta", "calm"): NOT_LOGGED,
    **{
        ("log", column): "the log itself, which nothing repeats"
        for column in ("actor", "time", "op", "data", "redacted")
    },
    ("log", "seq"): "any number that keeps the order",
    ("log", "version"): "of a record that has no row: the first of a new one",
    **{("leases", column): LEASE for column in ("id", "kind", "holder", "ttl", "deadline", "created")},
    ("idempotency", ALL): "answers for 24 hours, which emit no event",
    ("waiters", ALL): "a place in a line, which ends with its lease",
    ("tasks", "deletion"): NOT_LOGGED,
    ("tasks", "ttl"): LEASE,
    ("tasks", "parked"): LEASE,
    ("tasks", "review"): NOT_LOGGED,
    ("tasks", "imported"): "times of imported tasks come from elsewhere",
    ("tasks", "origin"): NOT_LOGGED,
    ("task_texts", "notes"): "what a search looks through; readers get notes from the log",
    ("ready_tags_tidied", ALL): "how far a table is tidied: any place will do",
    ("ready_tags", ALL): "kept for speed: rows may be stale",
    ("links", "id"): "links between tasks are in the events of the tasks",
    ("links", "created"): "times of imported links come from elsewhere",
    ("local_files", ALL): "what this node has loaded: another answer loads it again",
    ("local_replica", ALL): "the log of a replicated workspace says it",
    ("stashes", "name"): NOT_LOGGED,
    ("stashes", "deleted"): "the time may come from an import; that it is deleted is compared with its trail",
    ("queue_items", "created"): NOT_LOGGED,
    ("queue_items", "key"): NOT_LOGGED,
    ("queue_items", "value"): "events have the sizes of items; the checksum of its page finds it",
    ("queue_items", "token"): "as good as a lease that ended: nobody knows it, and the item is delivered again",
    ("queue_items", "deliveries"): "a retry begins to count again; it is compared with the state",
    ("channel_messages", "created"): NOT_LOGGED,
    ("channel_messages", "sender"): NOT_LOGGED,
    ("channel_messages", "value"): "events have the sizes of messages; the checksum of its page finds it",
    ("channel_cursors", "subscriber"): "the newest event of a channel is of one subscriber",
    ("threads", "before"): "of a thread that was deleted before, whose events may be compacted",
    **{
        ("checkpoints", column): NOT_LOGGED
        for column in ("ns", "parent", "run", "created", "deltas", "metadata", "value")
    },
    ("checkpoints", "id"): "one of many that were put: events may be compacted",
    ("channel_values", "value"): "events have the sizes of values; the checksum of its page finds it",
    **{
        ("checkpoint_writes", column): "events have the sizes of writes; the checksum of its page finds it"
        for column in ("ns", "checkpoint", "task", "number", "path", "channel", "value")
    },
    ("items", "value"): "events have the sizes of items; the checksum of its page finds it",
    ("locks", "detail"): "what a path lock has besides is compared with its index",
    ("cycle_currents", "number"): "may be above the last cycle: one that was deleted",
    ("cycles", "created"): "times of imported cycles come from elsewhere",
    ("cycles", "updated"): "times of imported cycles come from elsewhere",
    ("cycles", "shared"): NOT_LOGGED,
    ("sharing", ALL): "settings, of which the events have what changed",
    ("shared", "version"): "another number compares the line with its task again",
    ("task_imports", ALL): "what a file said, to tell whether it has changed",
}


def columns() -> Iterator[tuple[str, str]]:
    connection = apsw.Connection(":memory:")
    for migration in load():
        connection.execute(migration.sql)
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall():
        if "_fts" not in str(name):
            yield from ((str(name), str(row[1])) for row in connection.execute(f"PRAGMA table_info({name})"))


COLUMNS = [each for each in columns() if each not in EXEMPT and (each[0], ALL) not in EXEMPT]


def furnish_more(ws: Workspace) -> None:
    """What the other tests of damage do without."""
    ws.tasks.set_template("review", {"title": "Review {what}"}, {"what": None})
    first, second, *_ = ws.mail.inbox("ada")
    ws.mail.close(first.id)
    ws.mail.action(second.id, "ada")
    trail = ws.trails.create("abandoned")
    ws.stashes.create("kept", "counter", trail=trail.id)
    ws.trails.abandon(trail.id)
    ws.stashes.create("gate", "lock", ttl=3600)
    ws.locks.acquire("build")
    jobs = ws.stashes.create("jobs", "queue").id
    ws.queues.put_all(jobs, [1, 2, 3])
    ws.queues.take(jobs)
    news = ws.stashes.create("news", "channel").id
    ws.channels.publish(news, 1)
    ws.channels.subscribe(news)
    ws.cycles.start("parser")
    ws.threads.put("chat", "01", None, {"log": "1"}, {"log": ["hi"]})
    ws.threads.put_writes("chat", "01", "task", [["log", "hello"]])
    ws.items.put("users/ada", "theme", {"color": "dark"}, ttl=3600)
    ws.tasks.merge_shared()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "store"
    folder.mkdir()
    (folder / "config.yaml").write_text("prefix: hf\n")
    with holdfast.open(folder, actor="me") as ws:
        furnish(ws)
        go_on(ws)
        furnish_more(ws)
        assert ws.check().problems == []
    (folder / MARK).write_bytes(b"")  # it would find some of it when the store is opened
    return folder


def changed(value: Any) -> Any:
    if isinstance(value, int):
        return value + 1
    return value + b"x" if isinstance(value, bytes) else f"{value or ''}x"


def alter(file: Path, table: str, column: str, row: int) -> bool:
    """Change one field; False if a constraint forbids it."""
    connection = connect_raw(str(file), apsw.SQLITE_OPEN_READWRITE)
    keys = [each[1] for each in connection.execute(f"PRAGMA table_info({table})") if each[5]]
    value, *key = connection.execute(
        f"SELECT {column}, {', '.join(keys)} FROM {table} ORDER BY {', '.join(keys)} LIMIT 1 OFFSET ?", (row,)
    ).fetchone()  # type: ignore[misc]
    try:
        where = " AND ".join(f"{each} IS ?" for each in keys)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (changed(value), *key))
        return connection.changes() == 1
    except apsw.ConstraintError:
        return False
    finally:
        connection.close()


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[f"{table}.{column}" for table, column in COLUMNS])
def test_check_finds_a_field_that_was_altered(sound: Path, tmp_path: Path, table: str, column: str) -> None:
    connection = connect_raw(str(sound / FILE), apsw.SQLITE_OPEN_READONLY)
    count = connection.execute(f"SELECT count(*) FROM {table}").get
    connection.close()
    assert count, "the store has no such row"
    for row in sorted({0, count - 1}):
        folder = shutil.copytree(sound, tmp_path / str(row))
        if alter(folder / FILE, table, column, row):
            try:
                with holdfast.open(folder, actor="me") as ws:
                    assert ws.check().problems, f"row {row} of {count}"
            except errors_of_a_damaged_store:
                continue


errors_of_a_damaged_store = (holdfast.errors.Corrupt, holdfast.errors.Unsupported, holdfast.errors.Behind)


def test_every_exemption_is_of_a_column_that_exists() -> None:
    known = set(columns())
    assert [each for each in EXEMPT if each not in known and (each[1] != ALL or each[0] not in dict(known))] == []
