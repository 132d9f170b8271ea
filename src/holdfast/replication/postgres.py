"""A log in PostgreSQL: a row for each entry, in one schema for all workspaces of a database.

An append is one INSERT on the condition that the row of the expected position is there, at the next position, which is
unique: no row, or a violation, means that another node was first. The last row of a workspace is never deleted, so the
end of the log is never lost. Every statement asks the primary, and every commit is on its disk before it is answered:
`synchronous_commit` is forced on and a server with `fsync=off` is refused.

All logs of a process on one database share a `Server`: a few connections, one that listens for NOTIFY and wakes the
logs it names, and a thread that notifies others after a commit. A notification is a hint. `tail` asks the server when
it was hinted at news, or knows of some, or has not asked for two seconds, or nobody listens; else there is none. A page
that was fetched is kept for a moment: whoever learned of news by it reads it again.
"""

from __future__ import annotations

import re
import select
import socket
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast import errors
from holdfast.clock import Signal
from holdfast.kernel.journal import LogMoved
from holdfast.replication.engine_log import EngineLog, SharedClient
from holdfast.replication.log import START, LostAnswer, Trimmed

PAGE = 500
PART = 4 * 1024 * 1024  # of a blob
CHANNEL = "holdfast"
_IDLE_CONNECTIONS = 4
_KEPT = 50_000  # microseconds for which a page is kept
_RECONNECT = 0.5
_NAMED = 500  # workspaces in one notification, which has at most 8000 bytes
_SETUP_LOCK = 0x686F6C64  # of a transaction that makes the tables

# What a URL does not say: calls give up after a few seconds, and only the primary is asked.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 5000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": "holdfast",
    "target_session_attrs": "read-write",
}
_SETTINGS = (
    "SELECT current_setting('fsync'), set_config('synchronous_commit',"
    " CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),"
    " set_config('statement_timeout', '30s', false), set_config('lock_timeout', '5s', false)"
)
_TABLES: tuple[LiteralString, ...] = (
    "CREATE SCHEMA IF NOT EXISTS holdfast",
    "CREATE TABLE IF NOT EXISTS holdfast.workspaces (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " name text NOT NULL UNIQUE, trimmed bigint NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS holdfast.entries (workspace bigint NOT NULL REFERENCES holdfast.workspaces,"
    " position bigint NOT NULL, entry bytea NOT NULL, PRIMARY KEY (workspace, position))",
    "CREATE TABLE IF NOT EXISTS holdfast.blobs (workspace bigint NOT NULL REFERENCES holdfast.workspaces,"
    " ref text NOT NULL, part integer NOT NULL, put_at bigint NOT NULL, data bytea NOT NULL,"
    " PRIMARY KEY (workspace, ref, part))",
    "ALTER TABLE holdfast.entries ALTER COLUMN entry SET STORAGE EXTERNAL",  # compressed already
    "ALTER TABLE holdfast.blobs ALTER COLUMN data SET STORAGE EXTERNAL",
)
_END: LiteralString = (
    "coalesce((SELECT position FROM holdfast.entries WHERE workspace = %(w)s ORDER BY position DESC LIMIT 1), 0)"
)
_APPEND = (
    "INSERT INTO holdfast.entries (workspace, position, entry) SELECT %(w)s, %(expected)s + 1, %(entry)b WHERE EXISTS"
    " (SELECT 1 FROM holdfast.entries WHERE workspace = %(w)s AND position = %(expected)s)"
)
_APPEND_FIRST = (
    "INSERT INTO holdfast.entries (workspace, position, entry) SELECT %(w)s, 1, %(entry)b WHERE NOT EXISTS"
    " (SELECT 1 FROM holdfast.entries WHERE workspace = %(w)s)"
)
_TAIL: LiteralString = (
    "SELECT w.trimmed, e.position, e.entry FROM holdfast.workspaces w LEFT JOIN LATERAL (SELECT position, entry FROM"
    " holdfast.entries WHERE workspace = w.id AND position > %(after)s ORDER BY position LIMIT %(page)s) e ON true"
    " WHERE w.id = %(w)s ORDER BY e.position"
)
_PUT = (
    "INSERT INTO holdfast.blobs (workspace, ref, part, put_at, data)"
    f" VALUES (%(w)s, %(ref)s, %(part)s, {_END}, %(data)s)"
)
_TRIM = (
    f"UPDATE holdfast.workspaces SET trimmed = greatest(trimmed, least(%(before)s, {_END})) WHERE id = %(w)s"
    " RETURNING trimmed"
)
_DELETE_ENTRIES = (
    f"DELETE FROM holdfast.entries WHERE workspace = %(w)s AND position <= %(trimmed)s AND position < {_END}"
)
# A notification is a commit too, and need not be on disk: the append before it is.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
_DELETE_BLOBS: LiteralString = "DELETE FROM holdfast.blobs WHERE workspace = %(w)s AND put_at < %(trimmed)s"

_RIGHTS = "give the role the rights that docs/engines.md names, in PostgreSQL"
# What a refused connection says, and what to do about it.
_REFUSALS = {
    'database ".*" does not exist': "correct the database in the address, or make it",
    "invalid port number": "correct the port in the address",
    r'authentication failed|no password supplied|pg_hba\.conf|role ".*" (?:does not exist|is not permitted)': (
        "give every process on this folder the login as libpq takes it: PGPASSFILE, PGSERVICE, PGUSER; see"
        " docs/engines.md, PostgreSQL"
    ),
    "permission denied for database": _RIGHTS,
}
R = TypeVar("R")
Connection = psycopg.Connection[tuple[Any, ...]]


class _Page(NamedTuple):
    """Entries that were fetched, and until when they are kept."""

    after: int
    entries: list[tuple[int, bytes]]
    until: int


_NO_PAGE = _Page(START, [], 0)


class PostgresLog(EngineLog["Server"]):
    """The log of one workspace in a database. `conninfo` is what libpq takes: an address, or keywords and values."""

    def __init__(self, conninfo: str, workspace: str, *, create: bool = False) -> None:
        super().__init__(Server.of(conninfo), workspace, create)
        self._id = 0  # the workspace's number, once it is known
        self._page = _NO_PAGE  # the last one that had entries

    def head(self) -> int:
        (end,) = self._one(f"SELECT {_END}", {})
        self._end = max(self._end, end)
        return int(end)

    def time(self) -> int:
        return int(self._one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", {})[0])

    def append(self, entry: bytes, expected: int) -> int:
        self._check_size(entry)
        server, workspace = self._open(), self._workspace()
        statement = _APPEND if expected else _APPEND_FIRST
        values = {"w": workspace, "expected": expected, "entry": entry}
        with server.connection(lost=LostAnswer) as connection:
            try:
                moved = connection.execute(statement, values).rowcount == 0
            except psycopg.errors.UniqueViolation:
                moved = True
        if moved:
            self.hint()
            raise LogMoved
        self._end = max(self._end, expected + 1)
        server.appended(workspace, self)
        return expected + 1

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        kept = self._page
        if kept.after == after and self._clock.monotonic() < kept.until:
            return kept.entries
        self._page = _NO_PAGE
        if after >= self._end and self._is_silent():
            return ()
        workspace = self._workspace()
        with self._asking():
            rows = self._all(_TAIL, {"after": after, "page": PAGE, "w": workspace})
        if not rows:
            raise self._gone("restore the database")
        if after < rows[0][0]:
            raise Trimmed(rows[0][0])
        page = [(position, bytes(entry)) for _, position, entry in rows if position is not None]
        if page:
            self._end = max(self._end, page[-1][0])
            self._page = _Page(after, page, self._clock.monotonic() + _KEPT)
        return page

    def put(self, blob: bytes) -> str:
        ref = self._ids.new(self._clock.wall())
        parts = self._parted(blob, PART)
        workspace = self._workspace()
        with self._open().connection() as connection, connection.transaction():
            for part, data in enumerate(parts):
                connection.execute(_PUT, {"w": workspace, "ref": ref, "part": part, "data": data})
        return ref

    def get(self, ref: str) -> bytes:
        found = self._all(
            "SELECT data FROM holdfast.blobs WHERE workspace = %(w)s AND ref = %(ref)s ORDER BY part", {"ref": ref}
        )
        if not found:
            self._forget()  # the tail must not come from memory now
            raise KeyError(ref)
        return b"".join(data for (data,) in found)

    def trim(self, before: int) -> None:
        workspace = self._workspace()
        self._forget()
        with self._open().connection() as connection, connection.transaction():
            row = connection.execute(_TRIM, {"w": workspace, "before": before}).fetchone()
            assert row is not None
            for statement in (_DELETE_ENTRIES, _DELETE_BLOBS):
                connection.execute(statement, {"w": workspace, "trimmed": row[0]})

    def _forget(self) -> None:
        self._page = _NO_PAGE
        self.hint()

    @property
    def id(self) -> int:
        """The workspace's number in the database, 0 while it is unknown."""
        return self._id

    def _workspace(self) -> int:
        """The workspace's number. Raises NotFound if there is none of this name, and it shall not be made."""
        if not self._id:
            with self._open().connection() as connection:
                found = _find_workspace(connection, self.name)
                if found is None and self._create:
                    found = _make_workspace(connection, self.name)
            if found is None:
                raise self._unknown()
            self._id = found
        return self._id

    def _one(self, statement: LiteralString, values: dict[str, Any]) -> tuple[Any, ...]:
        return self._all(statement, values)[0]

    def _all(self, statement: LiteralString, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        values = {"w": self._workspace(), **values}
        with self._open().connection() as connection:
            return connection.cursor(binary=True).execute(statement, values).fetchall()


def _find_workspace(connection: Connection, name: str) -> int | None:
    try:
        row = connection.execute("SELECT id FROM holdfast.workspaces WHERE name = %s", (name,)).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return None
    return None if row is None else int(row[0])


def _make_workspace(connection: Connection, name: str) -> int | None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))  # CREATE IF NOT EXISTS races
        if connection.execute("SELECT to_regclass('holdfast.blobs')").fetchone() == (None,):  # else no right is needed
            for statement in _TABLES:
                connection.execute(statement)
        connection.execute("INSERT INTO holdfast.workspaces (name) VALUES (%s) ON CONFLICT DO NOTHING", (name,))
    return _find_workspace(connection, name)


class Server(SharedClient):
    """One database as this process reaches it: its connections, and its notifications."""

    def __init__(self, conninfo: str) -> None:
        try:
            given = conninfo_to_dict(conninfo)
        except psycopg.ProgrammingError:
            raise errors.Invalid(
                "this is not the address of a PostgreSQL database",
                hint='such as "postgresql://host/db?workspace=team-a"; special characters are written %40',
            ) from None  # its message may repeat the password
        super().__init__(_address(given))
        self._conninfo = make_conninfo(**{**_DEFAULTS, **given})
        self._secrets = [str(given[name]) for name in ("password", "sslpassword") if given.get(name)]
        self._idle: list[Connection] = []
        self._logs: weakref.WeakSet[PostgresLog] = weakref.WeakSet()
        self._listener: threading.Thread | None = None
        self._wake: socket.socket | None = None
        self._is_listening = False
        self._news: set[int] = set()
        self._pid = 0  # of the connection that notifies
        self._notify = Signal()
        self._notifier: threading.Thread | None = None

    # --- connections -------------------------------------------------------------------------------------------------

    @contextmanager
    def connection(self, lost: type[Exception] = errors.Unreachable) -> Iterator[Connection]:
        """A connection for one call. What fails before it is sent is Unreachable, what breaks midway is `lost`."""
        connection = self._borrow()
        try:
            yield connection
        except psycopg.Error as error:
            definite = error.sqlstate is not None and error.sqlstate[:2] not in ("08", "57") and not connection.broken
            raise (self._failure(error) if definite else lost(self._say(error))) from error
        finally:
            self._give_back(connection)

    def _borrow(self) -> Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self.connect()
            if not _is_dead(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            keep = not self._closed and not connection.closed and len(self._idle) < _IDLE_CONNECTIONS
            if keep and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def connect(self) -> Connection:
        """Return a new connection to the primary, on which a commit is durable. Raises Unreachable or Invalid."""
        try:
            connection: Connection = psycopg.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise self._failure(error) from None
        try:
            row = connection.execute(_SETTINGS).fetchone()
            assert row is not None
            if row[0] != "on":
                raise errors.Invalid(
                    f"the server at {self.address} runs with fsync=off, so it may lose what it acknowledged",
                    hint="set fsync = on in postgresql.conf and restart it",
                )
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise errors.Unreachable(self._say(error)) from None
            raise
        return connection

    def _failure(self, error: psycopg.Error) -> errors.Unreachable:
        """The error of a call that did nothing. Of a refused login the client has the text alone."""
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return errors.LogRefused(self._say(error), hint=_RIGHTS)
        for told, hint in _REFUSALS.items():
            if not error.sqlstate and re.search(told, str(error)):
                return errors.LogRefused(self._say(error), hint=hint)
        return errors.Unreachable(self._say(error))

    def _say(self, error: Exception) -> str:
        """What an engine's error says, in one line and without passwords."""
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return f"{self.address}: {text}"

    # --- notifications -----------------------------------------------------------------------------------------------

    def listens(self, log: PostgresLog) -> bool:
        return self._is_listening

    def listen(self, log: PostgresLog) -> None:
        with self._lock:
            self._logs.add(log)
            if self._listener is None and not self._closed:
                self._wake, ear = socket.socketpair()
                self._listener = threading.Thread(target=self._listen, args=(ear,), name="holdfast-listen", daemon=True)
                self._listener.start()

    def _listen(self, ear: socket.socket) -> None:
        """In a thread: hear of the appends of others, and connect again after an outage."""
        with ear:
            while not self._closed:
                try:
                    with self.connect() as connection:
                        connection.execute(f"LISTEN {CHANNEL}")
                        self._is_listening = True
                        self.wake()  # whatever happened while nobody listened
                        self._hear(connection, ear)
                except (psycopg.Error, OSError, errors.HoldfastError):
                    self._is_listening = False
                    select.select([ear.fileno()], [], [], _RECONNECT)
                finally:
                    self._is_listening = False

    def _hear(self, connection: Connection, ear: socket.socket) -> None:
        while not self._closed:
            for heard in connection.notifies(timeout=0):
                if heard.pid != self._pid:
                    self.wake({int(number) for number in heard.payload.split(",")})
            select.select([connection.fileno(), ear.fileno()], [], [])

    def wake(self, workspaces: set[int] | None = None) -> None:
        """Wake the logs of some workspaces, or all."""
        with self._lock:
            logs = [log for log in self._logs if workspaces is None or log.id in workspaces]
        for log in logs:
            log.wake()

    def appended(self, workspace: int, by: PostgresLog) -> None:
        """Wake the logs of a workspace in this process now, and those in others soon; `by` knows what it appended."""
        with self._lock:
            others = [log for log in self._logs if log.id == workspace and log is not by]
        for log in others:
            log.wake()
        by.wake_waiters()
        with self._lock:
            self._news.add(workspace)
            if self._notifier is None and not self._closed:
                self._notifier = threading.Thread(target=self._tell, name="holdfast-notify", daemon=True)
                self._notifier.start()
        self._notify.set()

    def _tell(self) -> None:
        """In a thread: notify other processes of what was appended; what comes meanwhile goes together."""
        while True:
            with self._lock:
                news = [str(self._news.pop()) for _ in range(min(len(self._news), _NAMED))]
                if not news and self._closed:
                    return
            if not news:
                self._notify.wait()
                continue
            try:
                with self.connection() as connection:
                    self._pid = connection.info.backend_pid
                    connection.execute(_NOTIFY, (CHANNEL, ",".join(news)))
            except errors.HoldfastError:
                continue  # others look by themselves every two seconds

    # --- the end -----------------------------------------------------------------------------------------------------

    def release(self, log: PostgresLog) -> None:
        last = self._count_out()
        with self._lock:
            self._logs.discard(log)
            if not last:
                return
            idle, self._idle = self._idle, []
            wake, listener, notifier = self._wake, self._listener, self._notifier
        self._notify.set()
        if wake is not None:
            wake.close()
        for thread in (listener, notifier):
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        for connection in (*idle, *self._idle):
            connection.close()


def _is_dead(connection: Connection) -> bool:
    """Whether the server has closed an idle connection, as a restart does: then what is sent on it is lost."""
    if connection.closed:
        return True
    return bool(select.select([connection.fileno()], [], [], 0)[0])  # an idle connection has nothing to say but its end


def _address(given: dict[str, Any]) -> str:
    """Where a database is, for messages: without user and password."""
    hosts = str(given.get("host") or given.get("service") or "localhost")
    ports = f":{given['port']}" if given.get("port") else ""
    return f"postgresql://{hosts}{ports}/{given.get('dbname', '')}"
