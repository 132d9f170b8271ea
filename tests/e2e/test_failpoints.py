"""Processes that are killed, stopped or failed at every failpoint: nothing acknowledged is lost, nothing is half there.

Real processes on real files. Before COMMIT nothing of a group is there afterwards, after it all of it, and repeated
calls with the same keys happen once. A stopped process keeps its turn, and gives it back by going on or by dying. An
error at a failpoint is an error for those whom it concerns, and the next call works.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel import failpoints, migrations
from holdfast.kernel.store_files import FILE
from holdfast.testing.crowd import LONG, finish, start
from tests.e2e.failpoint_worker import COUNT, ROOT, RUN, Child, Told, call, ttl_at
from tests.logs.nodes import eventually

BATCH = ("batch.begin", "batch.swept", "batch.ran", "batch.commit", "batch.committed")
BACKUP = ("backup.copied", "backup.published")
MIGRATION = ("migration.apply", "migration.committed")
THREADS = 6


# --- what a workspace holds ------------------------------------------------------------------------------------------


def events_of(ws: holdfast.Workspace, actor: str) -> Iterator[holdfast.Event]:
    """All that an actor did."""
    cursor: int | str = 0
    while page := ws.events.list(actor=actor, after=cursor, limit=1000):
        yield from page
        cursor = page[-1].cursor


def transactions(ws: holdfast.Workspace, actor: str) -> dict[str, list[int]]:
    """What the log says that `call` did, by key, and what each must have answered: each whole, and each once."""
    found: dict[str, list[int]] = {}
    for revision, events in groupby(events_of(ws, actor), key=lambda event: event.revision):
        cell, lease, count = events
        assert (cell.kind, cell.op, lease.kind, lease.op) == ("cell", "set", "lease", "create")
        assert (count.kind, count.op, count.id) == ("cell", "increment", COUNT)
        key = cell.data["value"]
        assert key not in found, f"{key} happened twice"
        found[key] = [cell.version, revision, count.data["value"]]
    return found


def judge(folder: Path, actor: str, told: Told, *, in_its_turn: bool = True) -> None:
    """Open the workspace of a dead process: it holds what was durable, and what is repeated happens once.

    One that died `in_its_turn` had no time to commit more than it said.
    """
    ttl = ttl_at(told.at)
    with holdfast.open(folder, actor="judge") as ws:
        found = transactions(ws, actor)
        assert told.durable <= set(found) <= set(told.tried)
        assert not in_its_turn or told.durable == set(found)
        assert told.acks.items() <= found.items()
        assert ws.check().problems == []
        repeated = {key: call(ws.using(actor=actor), key, ttl, []) for key in told.tried}
        assert found.items() <= repeated.items()
        assert transactions(ws, actor) == repeated
        goes_on(ws)
        assert ws.check().problems == []


def goes_on(ws: holdfast.Workspace) -> None:
    """Write, lock, and hear of both."""
    with ws.watch(["cell", "lock"], after=ws.revision, timeout=LONG) as watch:
        ws.cells.set(RUN, "after", "it")
        grant = ws.locks.acquire("door", ttl=60)
        assert ws.locks.release("door", token=grant.token)
        heard = list(islice((event for event in watch if event.actor == ws.actor), 3))
    assert [(event.kind, event.op) for event in heard] == [("cell", "set"), ("lock", "acquire"), ("lock", "release")]


def kill(folder: Path, name: str, place: str, times: int) -> Told:
    """Have a process killed at a place."""
    with Child(folder, name, place, times, SIGKILL, THREADS) as child:
        told = child.end()
    assert told.at == place
    assert told.acks.keys() <= told.durable
    return told


# --- killed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", BATCH)
def test_a_group_killed_before_commit_never_was_and_after_it_is_there(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    all_told = {}
    for times in (1, 2, 3, 7, 20, 40):
        all_told[f"killed-{times}"] = told = kill(tmp_path / "store", f"killed-{times}", place, times)
        judge(tmp_path / "store", f"killed-{times}", told)
    everything = all_told.values()
    tried = sum(len(told.tried) for told in everything)
    durable = sum(len(told.durable) for told in everything)
    acked = sum(len(told.acks) for told in everything)
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        assert ws.cells.get(RUN, COUNT).value == tried
        found = {key for name in all_told for key in transactions(ws, name)}
    lost = {key for told in everything for key in told.acks} - found
    with capsys.disabled():
        print(
            f"\nkilled at {place}: {len(all_told)} kills, {tried} calls, {acked} acknowledged, "
            f"{durable - acked} durable and not acknowledged, {tried - durable} in flight, {len(lost)} lost"
        )
    assert not lost
    if place == "batch.committed":  # the group may have been everybody, so all that was tried may be durable
        assert durable > acked, "nobody was waiting for an answer: the test has lost its point"
    else:
        assert tried > durable, "nobody was in flight: the test has lost its point"


@pytest.mark.parametrize("place", BACKUP)
def test_a_backup_that_is_killed_has_its_name_only_if_it_is_whole(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    backups = acks = 0
    for times in (1, 3):
        told = kill(tmp_path / "store", f"killed-{times}", place, times)
        *before, last = told.backups
        assert told.saved == before
        assert (tmp_path / last).exists() == (place == "backup.published")
        for name, known in told.backups.items():
            if name != last or place == "backup.published":
                assert_whole(tmp_path / name, tmp_path / f"{name}-restored", known)
        judge(tmp_path / "store", f"killed-{times}", told, in_its_turn=False)
        with holdfast.open(tmp_path / "store", actor="judge") as ws:
            again = tmp_path / (f"{last}-again" if place == "backup.published" else last)
            assert_whole(ws.backup(again), tmp_path / f"{last}-new", set(told.tried))
        backups, acks = backups + len(told.backups), acks + len(told.acks)
    with capsys.disabled():
        print(f"\nkilled at {place}: 2 kills, {backups} backups, {acks} writes acknowledged beside them")


def assert_whole(backup: Path, folder: Path, known: set[str]) -> None:
    """The backup can be restored, is sound, and has at least what was known before it was made."""
    holdfast.restore(backup, folder)
    with holdfast.open(folder, actor="judge") as ws:
        assert ws.check().problems == []
        cells = {cell: ws.cells.get(RUN, cell).value for cell in {key.rpartition(".")[0] for key in known}}
    for key in known:
        cell, _, number = key.rpartition(".")
        assert int(cells[cell].rpartition(".")[2]) >= int(number), f"{key} is missing"


@pytest.mark.parametrize("place", MIGRATION)
@pytest.mark.parametrize("times", [1, 3])
def test_a_workspace_whose_maker_is_killed_is_made_by_the_next(tmp_path: Path, place: str, times: int) -> None:
    told = kill(tmp_path, "killed", place, times)
    *before, last = told.opened
    assert list(told.acks) == before
    for key in before:
        with holdfast.open(tmp_path / key, actor="judge") as ws:
            assert transactions(ws, "killed") == {key: told.acks[key]}
    assert schema_and_id(tmp_path / last)[0] == (0 if place == "migration.apply" else migrations.known())
    made = schema_and_id(tmp_path / last)[1]
    with holdfast.open(tmp_path / last, actor="judge") as ws:
        goes_on(ws)
        assert ws.check().problems == []
    assert schema_and_id(tmp_path / last) == (migrations.known(), made or schema_and_id(tmp_path / last)[1])


def schema_and_id(folder: Path) -> tuple[int, str]:
    """What the file says behind the back of its workspace."""
    connection = apsw.Connection(str(folder / FILE), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        schema = migrations.schema_of(connection)
        row = connection.execute("SELECT workspace FROM meta").fetchone() if schema else None
        return schema, str(row[0]) if row else ""
    finally:
        connection.close()


# --- stopped ---------------------------------------------------------------------------------------------------------

IMPATIENT = 0.1
stops = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc whether a process is stopped")


@stops
@pytest.mark.parametrize("end", [SIGCONT, SIGKILL])
@pytest.mark.parametrize("place", BATCH)
def test_a_process_stopped_in_its_turn_keeps_it_until_it_goes_on_or_dies(
    tmp_path: Path, place: str, end: Signals
) -> None:
    folder = tmp_path / "store"
    with Child(folder, "stopped", place, 5, SIGSTOP, THREADS) as child:
        durable = set(stopped_at(child, place).durable)
        with (
            holdfast.open(folder, actor="hasty", busy_timeout=IMPATIENT) as hasty,
            holdfast.open(folder, actor="patient", busy_timeout=LONG) as patient,
        ):
            assert_all_busy(hasty)
            assert set(transactions(hasty, "stopped")) == durable  # reading goes on
            assert list(events_of(hasty, "hasty")) == []
            assert hasty.check().problems == []
            waiting = start(lambda: patient.cells.set(RUN, "patient", 1))
            eventually(lambda: patient._engine.group._led)
            assert not waiting.done()
            child.send(end)
            assert waiting.result(LONG) == 1
            hasty._engine.group.busy_timeout = LONG  # what came too late must not stand in its way now
            goes_on(hasty)
        if end == SIGCONT:
            child.hear(lambda told: len(told.acks) > len(durable))
            child.send(SIGKILL)
        told = child.end()
        assert (told.durable == durable) == (end == SIGKILL)
        judge(folder, "stopped", told, in_its_turn=end == SIGKILL)


def stopped_at(child: Child, place: str) -> Told:
    """Wait until a process has stopped itself; answers what it has said."""
    told = child.hear(lambda told: told.at)
    assert told.at == place
    eventually(lambda: child.is_stopped)
    return told


def assert_all_busy(ws: holdfast.Workspace) -> None:
    """No way to write comes through, and each says so."""

    async def write() -> int:
        return await ws.aio.cells.set(RUN, "hasty", 1)

    with pytest.raises(errors.Busy):
        ws.cells.set(RUN, "hasty", 1)
    with pytest.raises(errors.Busy):
        ws.locks.acquire("door", ttl=60)
    with pytest.raises(errors.Busy), ws.transaction() as tx:
        tx.cells.set(RUN, "hasty", 1)
    with pytest.raises(errors.Busy):
        finish(write())


@stops
@pytest.mark.parametrize("place", MIGRATION)
def test_a_workspace_whose_maker_is_stopped_is_made_once(tmp_path: Path, place: str) -> None:
    with Child(tmp_path, "stopped", place, 1, SIGSTOP, 0) as child:
        (key,) = stopped_at(child, place).opened
        if place == "migration.committed":  # it is made, so it can be opened, but its maker has the turn
            with holdfast.open(tmp_path / key, busy_timeout=IMPATIENT) as hasty:
                assert_all_busy(hasty)
        else:
            with pytest.raises(errors.Busy):
                holdfast.open(tmp_path / key, busy_timeout=IMPATIENT)
        waiting = start(lambda: holdfast.open(tmp_path / key, actor="patient", busy_timeout=LONG))
        child.send(SIGCONT)
        with waiting.result(LONG) as ws:
            told = child.hear(lambda told: told.acks)
            goes_on(ws)
            assert transactions(ws, "stopped") == {key: told.acks[key]}
            assert ws.check().problems == []


@stops
@pytest.mark.parametrize("place", BACKUP)
def test_a_process_stopped_in_a_backup_is_in_nobodys_way(tmp_path: Path, place: str) -> None:
    with Child(tmp_path / "store", "stopped", place, 1, SIGSTOP, 0) as child:
        ((name, known),) = stopped_at(child, place).backups.items()
        with holdfast.open(tmp_path / "store", actor="other") as ws:
            goes_on(ws)
            assert (tmp_path / name).exists() == (place == "backup.published")
            assert_whole(ws.backup(tmp_path / "other"), tmp_path / "restored", known)
        child.send(SIGCONT)
        child.hear(lambda told: told.saved)
        assert_whole(tmp_path / name, tmp_path / "late", known)


# --- the names -------------------------------------------------------------------------------------------------------


def test_every_failpoint_has_a_name_in_the_list_and_every_name_is_a_failpoint() -> None:
    reached = {
        argument.value
        for path in (ROOT / "src").rglob("*.py")
        if "turnfile" not in path.parts  # which has no kernel, and failpoints of its own
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reach"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
    assert reached == set(failpoints.NAMES)
    assert len(set(failpoints.NAMES)) == len(failpoints.NAMES)


def test_nobody_sets_a_hook_in_production() -> None:
    script = """if True:
        import pkgutil, holdfast
        for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
            if not module.name.startswith("holdfast.testing") and not module.name.endswith("__main__"):
                __import__(module.name)
        with holdfast.open(":memory:") as ws:
            ws.cells.set("run", "cell", 1)
        print(holdfast.kernel.failpoints.hook)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG)
    assert (done.stdout, done.stderr) == ("None\n", "")
