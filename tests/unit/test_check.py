"""`ws.check()` finds what is wrong: each test damages a store behind its back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Op, Workspace
from holdfast.kernel.store_files import FILE


def test_a_store_that_sqlite_finds_broken_is_reported_and_not_read_further(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, actor="me") as ws:
        ws.cells.set("run", "cell", 1)
        ws.locks.acquire("lock")
    connection = apsw.Connection(str(tmp_path / FILE))
    root = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE name IN ('log', 'locks')"))
    size = connection.pragma("page_size")
    connection.close()
    with open(tmp_path / FILE, "r+b") as file:  # a misdirected write: the page of one table lands on another
        file.seek((root["log"] - 1) * size)
        page = file.read(size)
        file.seek((root["locks"] - 1) * size)
        file.write(page)
    with holdfast.open(tmp_path, actor="me") as ws:
        problems = ws.check().problems
        assert problems
        assert all(problem.startswith("SQLite: ") for problem in problems)


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace with something of everything."""
    with holdfast.open(tmp_path, actor="me") as ws:
        ws.cells.set("run", "cell", 1)
        ws.cells.set("run", "cell", 2)
        ws.cells.set("run", "timed", 1, ttl=60)
        ws.txn([], [Op("cells.set", {"run": "run", "cell": name, "value": name}) for name in "ab"])
        lease = ws.leases.create(60)
        ws.locks.acquire("lock", ttl=60)
        ws.locks.acquire("bound", lease=lease.id)
        ws.paths.lock(["src/app/*.py", "docs"])
        assert ws.check().ok
        yield ws


def damage(folder: Path, sql: str) -> None:
    connection = apsw.Connection(str(folder / FILE))
    connection.execute(sql)
    assert connection.changes() > 0
    connection.close()


DAMAGES = {
    "UPDATE cells SET value = x'05' WHERE cell = 'cell'": "differs from its newest event",
    "UPDATE cells SET version = 7 WHERE cell = 'cell'": "differs from its newest event",
    "UPDATE cells SET size = size + 1 WHERE cell = 'cell'": "differs from its newest event",
    "DELETE FROM cells WHERE cell = 'cell'": "is in the log, but not in the store",
    "UPDATE cells SET record = record + 1 WHERE cell = 'cell'": "does not know its key in the log",
    "UPDATE cells SET lease = 'none' WHERE cell = 'timed'": "bound to a lease that does not exist",
    "UPDATE cells SET lease = NULL WHERE cell = 'timed'": "a cell that does not exist",
    "DELETE FROM log WHERE revision = 1": "revisions above 0",
    "DELETE FROM log WHERE revision = 4 AND position = 0": "has a gap",
    "UPDATE log SET actor = 'you' WHERE revision = 4 AND position = 1": "more than one time or actor",
    "UPDATE log SET time = time + 1 WHERE revision = 4 AND position = 1": "more than one time or actor",
    "UPDATE log SET version = 2 WHERE revision = 1": "has version 2 twice",
    "UPDATE log SET version = 3 WHERE revision = 1": "do not follow the order of revisions",
    "UPDATE meta SET revision = revision + 1": "but the newest event has",
    "UPDATE log SET op = 'release' WHERE record = (SELECT key FROM records WHERE kind = 'lock' AND id = 'lock')": (
        "is held, but its last event is release"
    ),
    "UPDATE locks SET lease = 'none' WHERE name = 'bound'": "bound to a lease that does not exist",
    "UPDATE locks SET token = 4096 * 1000 WHERE name = 'lock'": "a token from a revision that does not exist",
    "DELETE FROM locks WHERE name = 'lock'": "belongs to a lock that does not exist",
    "INSERT INTO waiters VALUES ('lock', '', 'lock', 1, 'none', 'you', NULL)": "has no lease",
    "UPDATE leases SET deadline = created - 1 WHERE kind = 'lease'": "ends before it starts",
    "DELETE FROM log WHERE record IN (SELECT key FROM records WHERE kind = 'lease')": "is not in the log",
    "DELETE FROM records WHERE kind = 'cell' AND id = 'cell'": "has an event of no record",
    "UPDATE log SET seq = seq + 100 WHERE revision = 2": "do not follow those before it",
    "DELETE FROM path_prefixes WHERE prefix = 'src/app/'": "is not indexed under 'src/app/'",
    "UPDATE path_prefixes SET prefix = 'docs/a/' WHERE prefix = 'docs/'": "under 'docs/a/', where it has no pattern",
    "INSERT INTO path_prefixes VALUES ('docs/', 'gone')": "path lock gone is indexed under 'docs/'",
}


@pytest.mark.parametrize("sql", DAMAGES)
def test_check_finds_a_store_that_is_not_what_its_log_says(ws: Workspace, tmp_path: Path, sql: str) -> None:
    damage(tmp_path, sql)
    report = ws.check()
    assert not report.ok
    assert any(DAMAGES[sql] in problem for problem in report.problems), report.problems


def test_check_has_sqlite_look_at_its_file(ws: Workspace, tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / FILE))
    connection.pragma("writable_schema", 1)
    connection.execute("DELETE FROM sqlite_schema WHERE name = 'cells_lease'")  # its pages belong to nobody now
    connection.close()
    with holdfast.open(tmp_path, actor="another") as another:
        assert any(problem.startswith("SQLite: ") for problem in another.check().problems)


def test_check_changes_nothing(ws: Workspace) -> None:
    assert ws.check() == ws.check()
