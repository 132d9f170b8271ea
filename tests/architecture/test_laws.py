"""The laws of the house: what a schema may hold, what a module may contain. Imports and rooms are in test_rooms.py."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.kernel.migrations import SCHEMA_FOLDER, load
from holdfast.replication.follower import is_shared
from tests.architecture.frames import depths
from tests.architecture.house import ROOT, SOURCE, name_of
from tests.http.running import Running

MODULES = sorted(SOURCE.rglob("*.py"))
# What is pure in turn files: text in, text out.
TURN_PURE = ["model", "ledger", "mailbox", "invariants", "worklog"]


@pytest.mark.parametrize("path", [path for path in MODULES if "turnfile" in path.parts], ids=name_of)
def test_what_is_pure_in_turn_files_touches_no_file_and_no_clock(path: Path) -> None:
    pure = path.relative_to(SOURCE / "turnfile").with_suffix("").parts[0] in TURN_PURE
    touches = re.search(
        r"^\s*(import|from) (os|io|pathlib|time|fcntl|subprocess|tempfile|shutil)\b|\bopen\(", path.read_text(), re.M
    )
    assert not (pure and touches), touches


def test_every_module_opens_with_its_purpose() -> None:
    assert [name_of(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_every_public_function_and_class_says_what_it_does() -> None:
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    silent = [
        f"{name_of(path)}.{node.name}"
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, defined)
        and not node.name.startswith(("_", "test_"))  # a test's name is a sentence already
        and not node.decorator_list  # overloads
        and not ast.get_docstring(node)
    ]
    assert silent == []


def test_no_error_is_swallowed() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"bare except in {name_of(path)}"
                assert not all(isinstance(part, ast.Pass) for part in node.body), f"swallowed in {name_of(path)}"


@pytest.fixture
def schema() -> apsw.Connection:
    connection = apsw.Connection("")
    for migration in load():
        connection.execute(migration.sql)
    return connection


def test_every_table_has_an_explicit_primary_key_whose_columns_are_not_null(schema: apsw.Connection) -> None:
    tables = [str(name) for (name,) in schema.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = [name for name in tables if "_fts" not in name]  # which FTS5 makes by itself
    assert tables
    for table in tables:
        columns = list(schema.execute(f"PRAGMA table_info({table})"))
        key = [column for column in columns if column[5]]
        assert key, f"{table} has no primary key"
        assert all(column[3] for column in key), f"{table} has a nullable key"


def test_what_replicas_do_not_share_is_told_by_its_name(schema: apsw.Connection) -> None:
    """Tables of a node's own are `local_*`, those of FTS5 `*_fts`: that is how the session leaves them out."""
    tables = list(schema.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
    assert all(str(name).endswith("_fts") for name, sql in tables if "using fts5" in str(sql).lower())
    shared = {str(name) for name, _ in tables if is_shared(str(name))}
    assert shared >= {"meta", "records", "log", "leases", "locks", "cells"}
    assert "local_replica" not in shared


def test_the_schema_has_no_triggers_autoincrement_clock_or_randomness(schema: apsw.Connection) -> None:
    assert not list(schema.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'"))
    views = [name for (name,) in schema.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")]
    assert views == ["events"]  # the log with the names of its records: nothing is written through a view
    sql = "".join(path.read_text() for path in Path(SCHEMA_FOLDER).glob("*.sql"))
    code = re.sub(r"--.*", "", sql)
    forbidden = r"autoincrement|current_time|current_date|random|julianday|strftime|datetime\s*\(|unixepoch"
    assert not re.search(forbidden, code, re.IGNORECASE)


def test_no_statement_in_the_source_asks_the_database_for_time_or_chance() -> None:
    forbidden = re.compile(r"CURRENT_TIMESTAMP|\brandom\(\)|randomblob|strftime\('|unixepoch\(", re.IGNORECASE)
    for path in MODULES:
        assert not forbidden.search(path.read_text()), name_of(path)


def test_large_values_live_in_rowid_tables_as_the_last_column(schema: apsw.Connection) -> None:
    for table, column in (("cells", "value"), ("log", "data"), ("idempotency", "answer")):
        assert list(schema.execute(f"PRAGMA table_info({table})"))[-1][1] == column
        sql = schema.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get
        assert "WITHOUT ROWID" not in str(sql).upper()


def test_only_the_clock_module_reads_the_time_and_only_ids_draws_randomness() -> None:
    allowed = {
        "holdfast.clock": "time",
        "holdfast.ids": "urandom",
        "holdfast.faces.cli.relay": "urandom",  # a key for a call: loading the ids would take longer than the call
    }
    for path in MODULES:
        module = name_of(path)
        if module in allowed or ".testing" in module or ".demo" in module:
            continue
        found = re.search(
            r"\btime\.(time|monotonic|perf_counter)|urandom|import random|import secrets|uuid4", path.read_text()
        )
        assert not found, f"{module}: {found}"


HEAVY = {"asyncio", "hashlib", "httpx", "logging", "multiprocessing", "rich", "ruamel", "tempfile", "wcmatch"}


def test_importing_holdfast_brings_no_asyncio_and_no_heavy_module() -> None:
    code = "import holdfast, sys; holdfast.open; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY.isdisjoint(loaded), HEAVY & set(loaded)


def test_an_agent_that_claims_at_the_command_line_waits_for_no_heavy_module(tmp_path: Path) -> None:
    code = "import sys; from holdfast.faces.cli import main; main(['next', '-q']); print(*sorted(sys.modules))"
    environment = {**os.environ, "HOLDFAST_DIR": str(tmp_path / "store"), "HOLDFAST_ACTOR": "me"}
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        ws.tasks.create("task")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    late = {"decimal", "enum", "re._compiler", "uuid", "holdfast.hints", "holdfast.domains.cells"}
    unwanted = {*HEAVY, *late, "json", "subprocess", "urllib"}
    assert unwanted.isdisjoint(done.stdout.split()), unwanted & set(done.stdout.split())


@pytest.mark.parametrize(
    "words", [["next", "-q"], ["ready", "--json"], ["guard", "x"], ["cell", "get", "run", "status"]]
)
def test_a_command_compiles_nothing_and_starts_no_thread(tmp_path: Path, words: list[str]) -> None:
    """The first call of `compile`, as a `NamedTuple` makes, takes as long as ten modules, and a thread almost so."""
    code = """
import _thread, builtins, sys
import threading  # which starts threads by a name of its own
from holdfast.faces.cli import main
real = compile
def refused(*args, **more):
    if str(args[1]).endswith(".py"):  # a module that was edited since it was compiled
        return real(*args, **more)
    raise AssertionError(f"compiled, or started: {str(args)[:200]}")
builtins.compile = threading._start_new_thread = _thread.start_new_thread = refused
code = main(sys.argv[1:])
print(code, "holdfast.domains.tasks" in sys.modules)
"""
    environment = {**os.environ, "HOLDFAST_DIR": str(tmp_path / "store"), "HOLDFAST_ACTOR": "me"}
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        ws.tasks.create("task")
        ws.cells.set("run", "status", 1)
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == f"0 {words[0] in ('next', 'ready')}", done.stderr


def test_what_a_command_has_not_loaded_is_whole_once_it_is_used() -> None:
    code = """
import sys
from holdfast.faces.cli import _import_msgspec
_import_msgspec()
missing = ["decimal", "enum", "uuid", "re._compiler", "typing_extensions", "msgspec.inspect"]
assert not [name for name in missing if name in sys.modules], sys.modules.keys()
import datetime, typing, msgspec, re
Name = typing.Annotated[str, msgspec.Meta(pattern="^[a-z]+$")]
assert type(typing.ForwardRef("x")).__name__ == "ForwardRef" and typing.get_type_hints(msgspec.Struct) is not None
assert msgspec.convert("ada", Name) == "ada" and typing.Pattern[str].__origin__ is re.Pattern
assert sys.modules["re"].fullmatch is re.fullmatch and re.fullmatch("a+", "aa")[0] == "aa"
import re._parser, decimal, enum, uuid, msgspec.inspect
assert isinstance(re.compile("x"), re.Pattern) and isinstance(re.A, enum.Flag) and not hasattr(re, "none")
assert decimal.Decimal("1.5") + 1 == decimal.Decimal("2.5") and uuid.uuid4().is_safe in uuid.SafeUUID
assert msgspec.json.schema(int) == {"type": "integer"} and msgspec.inspect.type_info(int)
assert datetime.datetime.strptime("2026", "%Y").year == 2026 and datetime.UTC
assert msgspec.json.decode(b'"2026-11-17T07:00:00Z"', type=datetime.datetime).tzinfo == datetime.UTC
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_command_through_a_server_loads_next_to_nothing(tmp_path: Path) -> None:
    """Neither apsw nor msgspec, nor what of the standard library takes long: a server has all of it."""
    code = "import sys; from holdfast.faces.cli import main; main(['next', '-q']); print(*sorted(sys.modules))"
    before = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True)
    server = Running(tmp_path / "store")
    try:
        environment = {**os.environ, "HOLDFAST_DIR": str(tmp_path / "store"), "HOLDFAST_ACTOR": "me"}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    finally:
        server.end()
    added = set(done.stdout.split()) - set(before.stdout.split())
    ours = {
        "holdfast",
        "holdfast.client_sessions",
        "holdfast.faces",
        "holdfast.faces.cli",
        "holdfast.faces.cli.location",
        "holdfast.faces.cli.relay",
    }
    assert added == {*ours, "holdfast.private_socket", "__future__", "_socket", "gc"}


def test_no_tracked_file_names_a_machine_path_or_a_package_index() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    forbidden = re.compile(r"/(work|root)/|files\.pythonhosted|pypi\.org|index-url", re.IGNORECASE)
    for name in tracked.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ".sql", ""} and path.is_file() and path != Path(__file__):
            found = forbidden.search(path.read_text(errors="replace"))
            assert not found, f"{name}: {found}"


def test_every_public_name_is_there_and_nothing_else_is() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert set(holdfast.__all__) <= set(dir(holdfast))
    assert not hasattr(holdfast, "no_such_name")


def test_a_program_that_uses_no_tasks_does_not_load_them() -> None:
    code = (
        "import sys, holdfast; ws = holdfast.open(':memory:', actor='me'); ws.cells.set('run', 'cell', 1);"
        "ws.cells.list('run');"
        "print(*(name for name in sys.modules if '.tasks' in name or 'matchers' in name)); ws.tasks.ready();"
        "print('holdfast.domains.tasks' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\nTrue\n"


def test_a_claim_reaches_its_statements_in_ten_frames() -> None:
    assert max(depths().values()) <= 10
