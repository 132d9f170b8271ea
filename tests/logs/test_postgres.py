"""The contract of a log on a real PostgreSQL server, and what is its own: durability, secrets, outages, hints."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psycopg
import pytest

import holdfast
from holdfast import errors
from holdfast.clock import Signal
from holdfast.replication.log import START, LostAnswer
from holdfast.replication.postgres import PART, PostgresLog, Server
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, together
from holdfast.testing.log_contract import *  # noqa: F403
from tests.logs.nodes import RUN, eventually
from tests.worlds.postgres import PostgresServer, shared_server

PASSWORD = "s3cret-p4ssw0rd"


@pytest.fixture
def name() -> str:
    """A workspace that nobody else has."""
    return f"team-{os.urandom(6).hex()}"


@pytest.fixture
def log(name: str) -> Iterator[PostgresLog]:
    """A fresh log."""
    log = PostgresLog(shared_server().url, name, create=True)
    yield log
    log.close()


@pytest.fixture  # type: ignore[no-redef]
def peer(name: str) -> Iterator[PostgresLog]:
    """Another client, as another process would have: it hears of the first only through the server."""
    log = PostgresLog(f"{shared_server().url}&application_name=peer", name, create=True)
    yield log
    log.close()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that may be stopped and killed."""
    server = PostgresServer()
    yield server
    server.remove()


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


# --- the waist -------------------------------------------------------------------------------------------------------


def test_a_constructor_needs_no_server_and_a_call_is_unreachable() -> None:
    log = PostgresLog("postgresql://localhost:1/nothing", "w")
    for call in (log.head, log.time, lambda: log.append(b"x", START), lambda: log.tail(START), lambda: log.put(b"x")):
        with pytest.raises(errors.Unreachable, match="localhost:1"):
            call()
    log.close()
    with pytest.raises(errors.Unreachable, match="closed"):
        log.head()


def test_an_unknown_workspace_is_made_only_if_asked(name: str) -> None:
    log = PostgresLog(shared_server().url, name)
    with pytest.raises(errors.NotFound, match=name):
        log.head()
    made = PostgresLog(shared_server().url, name, create=True)
    assert made.head() == log.head() == START
    made.close()
    log.close()


def test_a_database_without_our_tables_has_no_workspace(server: PostgresServer) -> None:
    log = PostgresLog(server.url, "w")
    with pytest.raises(errors.NotFound):
        log.head()
    log.close()
    made = together(*(lambda n=n: PostgresLog(server.url, f"w{n}", create=True) for n in range(4)))
    assert together(*(log.head for log in made)) == [START] * 4
    for log in made:
        log.close()


def test_workspaces_of_one_database_share_nothing(log: PostgresLog, name: str) -> None:
    other = PostgresLog(shared_server().url, f"{name}-2", create=True)
    log.append(b"mine", START)
    blob = log.put(b"mine")
    assert (other.head(), list(other.tail(START))) == (START, [])
    with pytest.raises(KeyError):
        other.get(blob)
    assert other.append(b"theirs", START) == 1
    other.close()


def test_a_blob_of_several_parts_comes_back_whole(log: PostgresLog) -> None:
    blob = os.urandom(2 * PART + 7)
    assert log.get(log.put(blob)) == blob


def test_a_page_that_was_fetched_is_not_asked_for_again_for_a_moment(log: PostgresLog) -> None:
    def change(entry: bytes) -> list[tuple[int, bytes]]:
        """Change the entry behind the back of the log, so that one that was kept can be told from it."""
        where = f"WHERE workspace = {log.id} RETURNING 1"
        query(shared_server().url, f"UPDATE holdfast.entries SET entry = '{entry.decode()}' {where}")
        return [(position, entry)]

    log._clock = clock = ManualClock()
    position = log.append(b"one", START)
    assert list(log.tail(START)) == [(position, b"one")]
    two = change(b"two")
    assert list(log.tail(START)) == [(position, b"one")]
    clock.advance(1)
    assert list(log.tail(START)) == two
    three = change(b"three")
    with pytest.raises(KeyError):
        log.get("gone")
    assert list(log.tail(START)) == three
    four = change(b"four")
    assert list(log.tail(position)) == []
    assert list(log.tail(START)) == four


def test_the_last_row_is_never_deleted(log: PostgresLog) -> None:
    (end, _) = fill(log, 5)[-1]  # noqa: F405
    log.trim(end)
    rows = query(
        shared_server().url,
        f"SELECT position FROM holdfast.entries e JOIN holdfast.workspaces w ON w.id = e.workspace"
        f" WHERE w.name = '{log.name}'",
    )
    assert rows == [(end,)]


def test_logs_of_one_process_share_connections_and_close_them_with_the_last(server: PostgresServer) -> None:
    logs = [PostgresLog(server.url, f"w{number}", create=True) for number in range(20)]
    signals = [Signal() for _ in logs]
    for log, waiter in zip(logs, signals, strict=True):
        log.enroll(waiter)
        log.append(b"x", START)
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'"
    assert query(server.url, count)[0][0] <= 4  # type: ignore[operator]
    for log in logs:
        log.close()
    eventually(lambda: query(server.url, count) == [(0,)])
    assert not any(key[2] == server.url for key in Server._clients)


# --- durability and secrets ------------------------------------------------------------------------------------------


def test_commits_are_durable_whatever_the_server_has_as_its_default() -> None:
    server = PostgresServer("synchronous_commit=off")
    try:
        log = PostgresLog(server.url, "w", create=True)
        log.append(b"x", START)
        with log._open().connection() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        log.close()
    finally:
        server.remove()


def test_a_server_without_fsync_is_refused() -> None:
    server = PostgresServer("fsync=off")
    try:
        log = PostgresLog(server.url, "w", create=True)
        with pytest.raises(errors.Invalid, match="fsync=off"):
            log.head()
        log.close()
    finally:
        server.remove()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{PASSWORD}@localhost:1/db",
        f"postgresql://me@localhost:1/db?password={PASSWORD}",
        f"host=localhost port=1 password={PASSWORD}",
        f"postgresql://me:{PASSWORD}@localhost:1/db?nonsense={PASSWORD}",
        f"postgresql://me:{PASSWORD}%zz@localhost:1/db",
    ],
)
def test_no_message_shows_a_password(url: str) -> None:
    with pytest.raises((errors.Unreachable, errors.Invalid)) as caught:
        PostgresLog(url, "w").head()
    error: BaseException | None = caught.value
    while error is not None:
        assert PASSWORD not in f"{error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


# --- outages ---------------------------------------------------------------------------------------------------------


def test_a_log_finds_its_server_again_after_a_restart_and_nothing_is_in_doubt(server: PostgresServer) -> None:
    log = PostgresLog(server.url, "w", create=True)
    log.append(b"one", START)
    server.stop()
    with pytest.raises(errors.Unreachable):
        log.append(b"two", 1)
    server.start()
    assert log.append(b"two", 1) == 2
    assert [entry for _, entry in log.tail(START)] == [b"one", b"two"]
    log.close()


def test_waiters_are_woken_when_the_server_is_back_and_hear_of_others(server: PostgresServer) -> None:
    log = PostgresLog(server.url, "w", create=True)
    peer = PostgresLog(f"{server.url}&application_name=peer", "w", create=True)
    signal_, position = Signal(), log.append(b"one", START)
    peer.enroll(signal_)
    assert list(peer.tail(START)) == [(1, b"one")]
    eventually(lambda: peer._open().listens(peer))
    server.stop(signal.SIGKILL)
    eventually(lambda: not peer._open().listens(peer))
    while signal_.wait(0):
        pass
    server.start()
    assert signal_.wait(LONG), "everybody is woken when the connection is there again"
    eventually(lambda: peer._open().listens(peer))
    while signal_.wait(0):
        pass
    log.append(b"two", position)
    assert signal_.wait(LONG)
    assert list(peer.tail(position)) == [(2, b"two")]
    log.close()
    peer.close()


def test_an_append_cut_off_midway_is_a_lost_answer(log: PostgresLog) -> None:
    """Its row waits for another transaction that wants the same position; then its connection is ended."""
    log.append(b"one", START)
    url = shared_server().url
    with psycopg.connect(url) as blocker:
        blocker.execute(
            "INSERT INTO holdfast.entries SELECT id, 2, 'theirs' FROM holdfast.workspaces WHERE name = %s", (log.name,)
        )
        waits = "pid <> pg_backend_pid() AND wait_event_type = 'Lock' AND query LIKE 'INSERT INTO holdfast.entries%'"

        def end() -> bool:
            eventually(lambda: query(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {waits}"))
            return False

        def append() -> bool:
            with pytest.raises(LostAnswer):
                log.append(b"two", 1)
            return True

        assert together(append, end) == [True, False]
    assert log.head() == 2
    assert list(log.tail(1)) == [(2, b"theirs")]


def test_three_nodes_write_through_a_crash_of_the_server_and_nothing_is_lost_or_doubled(
    server: PostgresServer, tmp_path: object
) -> None:
    """The outage is shorter than the patience of a write, so none fails."""
    logs = [PostgresLog(f"{server.url}&application_name=n{n}", "w", create=True) for n in range(3)]
    nodes = [holdfast.open(f"{tmp_path}/node-{n}", actor=f"n{n}", log=log) for n, log in enumerate(logs)]

    def work(node: holdfast.Workspace) -> int:
        return len([node.cells.increment(RUN, "cell") for _ in range(20)])

    def crash() -> int:
        eventually(lambda: nodes[0].cells.find(RUN, "cell") is not None)
        server.stop(signal.SIGKILL)
        server.start()
        return 0

    assert together(crash, *(lambda node=node: work(node) for node in nodes)) == [0, 20, 20, 20]
    for node in nodes:
        assert node.using(at_least="latest").cells.get(RUN, "cell").value == 60
        assert node.check().problems == []
        node.close()
    for log in logs:
        log.close()
