"""Damage of every kind is found: bytes that changed on the disk, and rows that somebody altered with another program.

A store with something of everything is copied, and each copy is damaged in one place that its number draws. `check`
must report it if any stored field differs, and neither `check` nor `doctor` nor any other call may raise anything but a
typed error. A damaged backup is not restored. `FIRST=1000 SEEDS=1000` damages other stores, and as many backups.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.kernel.store_files import FILE
from holdfast.testing import ManualClock
from tests.amounts import seeds
from tests.long.ledger import record
from tests.worlds.contents import contents

STORES = seeds(60, 1000)
BACKUPS = seeds(20, 260)
DOCTORED = seeds(6, 100)
PARTS = 10
# Kept for speed, and never answered: rows may be missing or stale.
UNREAD = {"ready_tags", "ready_tags_tidied"}
PAGE = 4096
OLDER = "older"  # the file as it was before its last changes


def furnish(ws: holdfast.Workspace) -> None:
    """Something of everything, with a past."""
    for number in range(12):
        ws.cells.set("run", f"cell-{number}", {"text": "value " * 20, "number": number})
        ws.cells.set("run", f"cell-{number}", number)
    ws.cells.set("run", "timed", 1, ttl=86400)
    parent = ws.tasks.create("parent", body="The body of the parent. " * 10, tags=["a", "b"])
    made = [
        ws.tasks.create(f"task {number}", body=f"body {number} " * 30, parent_id=parent.id, tags=["a"])
        for number in range(12)
    ]
    ws.tasks.depend(made[1].id, made[0].id)
    for task in made[2:6]:
        ws.tasks.claim(task.id, "me")
        ws.tasks.note(task.id, f"a note about {task.id}, long enough to be hit " * 3)
    ws.tasks.complete(made[2].id, "me", summary="done, as agreed", result={"files": ["a.py"]})
    ws.locks.acquire("deploy", ttl=86400)
    ws.paths.lock(["src/app/*.py", "docs/**"], "me", ttl=86400)
    ws.leases.create(86400)
    ws.agents.register("ada", program="p", model="m", can=["review"])
    for number in range(5):
        ws.mail.send("ada", f"subject {number}", f"the body of message {number} " * 10)
    trail = ws.trails.create("parser", state="active")
    for number in range(4):
        stash = ws.stashes.create(f"stash-{number}", "context", value={"depth": number, "text": "context " * 10})
        ws.stashes.set_value(stash.id, {"depth": number + 1, "text": "changed " * 10}, stash.version)
    ws.trails.add(trail.id, made[7].id)
    ws.using(key="key-1").cells.set("run", "keyed", 1)


def go_on(ws: holdfast.Workspace) -> None:
    """Something new of everything."""
    for number in range(12):
        ws.cells.set("run", f"cell-{number}", -number)
    for task in ws.tasks.list(status="open", limit=5):
        ws.tasks.update(task.id, title=f"{task.title}, later", body="Another body. " * 20)
    ws.tasks.create("the last task", tags=["b"])
    ws.mail.send("ada", "the last subject", "the last body")
    for stash in ws.stashes.list():
        ws.stashes.set_value(stash.id, {"depth": 99}, stash.version)
    ws.locks.release("deploy")
    ws.agents.register("ada", program="q", model="n", can=["build"])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store, and a backup of it beside it."""
    folder = tmp_path_factory.mktemp("sound")
    with holdfast.open(folder / "store", actor="me") as ws:
        furnish(ws)
    shutil.copy(folder / "store" / FILE, folder / "store" / OLDER)
    with holdfast.open(folder / "store", actor="me") as ws:
        go_on(ws)
        assert ws.check().ok
        ws.backup(folder / "backup")
    return folder


def state(folder: Path) -> Any:
    """Every stored field. None if reading is refused."""
    try:
        with holdfast.open(folder, actor="me") as ws:
            return {name: rows for name, rows in contents(ws).items() if name not in UNREAD}
    except (errors.HoldfastError, apsw.Error):
        return None


# --- one damage ------------------------------------------------------------------------------------------------------


def flip(draw: random.Random, file: Path) -> None:
    """Change bytes at one place, as a disk does."""
    data = bytearray(file.read_bytes())
    at, length = draw.randrange(100, len(data)), draw.choice((1, 1, 1, 4, 40))
    for place in range(at, min(at + length, len(data))):
        data[place] ^= 1 << draw.randrange(8)
    file.write_bytes(data)


def zero(draw: random.Random, file: Path) -> None:
    """Lose a run of bytes."""
    data = bytearray(file.read_bytes())
    at, length = draw.randrange(100, len(data)), draw.choice((16, 100, 512, 4096))
    data[at : at + length] = bytes(len(data[at : at + length]))
    file.write_bytes(data)


def misplace(draw: random.Random, file: Path) -> None:
    """Write one page where another belongs."""
    data = bytearray(file.read_bytes())
    source, target = (PAGE * draw.randrange(1, len(data) // PAGE) for _ in range(2))
    data[target : target + PAGE] = data[source : source + PAGE]
    file.write_bytes(data)


def swap(draw: random.Random, file: Path) -> None:
    """Write two pages each where the other belongs."""
    data = bytearray(file.read_bytes())
    one, other = (PAGE * draw.randrange(1, len(data) // PAGE) for _ in range(2))
    data[one : one + PAGE], data[other : other + PAGE] = data[other : other + PAGE], data[one : one + PAGE]
    file.write_bytes(data)


def stale(draw: random.Random, file: Path) -> None:
    """Lose the last write of a page."""
    data, older = bytearray(file.read_bytes()), file.with_name(OLDER).read_bytes()
    changed = [at for at in range(PAGE, len(older), PAGE) if older[at : at + PAGE] != data[at : at + PAGE]]
    at = draw.choice(changed)
    data[at : at + PAGE] = older[at : at + PAGE]
    file.write_bytes(data)


def blank(draw: random.Random, file: Path) -> None:
    """Lose a page: it reads as zeros."""
    data = bytearray(file.read_bytes())
    at = PAGE * draw.randrange(1, len(data) // PAGE)
    data[at : at + PAGE] = bytes(PAGE)
    file.write_bytes(data)


def alter(draw: random.Random, file: Path) -> None:
    """Change one field of one row with another program."""
    connection = apsw.Connection(str(file), vfs="unix")
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%_fts%'")
    names = [name for (name,) in tables.fetchall() if name not in UNREAD]
    names = [name for name in names if connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()]
    table = draw.choice(names)
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    keys = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]
    rows = connection.execute(f"SELECT * FROM {table}").fetchall()
    row = dict(zip(columns, draw.choice(rows), strict=True))
    column = draw.choice(columns)
    where = " AND ".join(f"{key} = ?" for key in keys)
    try:
        connection.execute(
            f"UPDATE {table} SET {column} = ? WHERE {where}", (changed(draw, row[column]), *(row[key] for key in keys))
        )
    except apsw.ConstraintError:
        connection.execute("UPDATE task_texts SET body = body || '!'")
    connection.close()


def changed(draw: random.Random, value: Any) -> Any:
    if isinstance(value, int):
        return value + draw.choice((-1, 1, 1000))
    if isinstance(value, bytes):
        at = draw.randrange(len(value)) if value else 0
        return value[:at] + bytes([(value[at] if value else 0) ^ 1]) + value[at + 1 :]
    return f"{value or ''}x"


DAMAGES = (flip, zero, misplace, swap, stale, blank, alter)


@pytest.mark.timeout(600 + len(STORES))
@pytest.mark.parametrize("part", range(PARTS))
def test_no_damage_goes_unnoticed_and_none_crashes(
    sound: Path, tmp_path: Path, part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(sound / "store")
    unnoticed, crashed, differing = [], [], 0
    for number in STORES[part::PARTS]:
        folder = tmp_path / str(number)
        shutil.copytree(sound / "store", folder)
        draw = random.Random(f"store {number}")
        damage = draw.choice(DAMAGES)
        damage(draw, folder / FILE)
        try:
            with holdfast.open(folder, actor="me") as ws:
                found = ws.check().problems
        except errors.HoldfastError as error:
            found = [error.message]
        except Exception as error:
            crashed.append(f"{number} {damage.__name__}: {error!r}")
            continue
        after = state(folder)
        differing += after != before
        if not found and after not in (before, None):  # None: whoever reads it is told
            unnoticed.append(f"{number} {damage.__name__}: {difference(before, after)}")
        shutil.rmtree(folder)
    wrong = len(unnoticed) + len(crashed)
    with capsys.disabled():
        record("stores", STORES, len(STORES[part::PARTS]), wrong, changed_what_is_read=differing)
    assert (unnoticed, crashed) == ([], [])


def calls(ws: holdfast.Workspace, ids: dict[str, list[str]]) -> Iterator[Callable[[], object]]:
    """Reads of everything, and a write in each domain."""
    for id in ids["tasks"]:
        yield from (partial(read, id) for read in (ws.tasks.get, ws.tasks.history, ws.tasks.resume, ws.tasks.explain))
    for number in range(12):
        yield from (partial(read, "run", f"cell-{number}") for read in (ws.cells.get, ws.cells.history))
    for id in ids["stashes"]:
        yield from (partial(read, id) for read in (ws.stashes.get, ws.stashes.history))
    yield from (ws.tasks.list, ws.tasks.ready, ws.events.list, ws.agents.list, ws.locks.list, ws.paths.list)
    yield from (ws.stashes.list, ws.trails.list, ws.links.list)
    yield lambda: ws.cells.list("run")
    yield lambda: ws.tasks.search("body")
    yield lambda: ws.mail.inbox("ada")
    yield lambda: ws.tasks.claim_next("me")
    yield lambda: ws.tasks.create("one more")
    yield lambda: ws.mail.send("ada", "one more", "text")
    yield lambda: ws.cells.increment("run", "count")
    yield lambda: ws.locks.acquire("one more", ttl=60)


@pytest.mark.timeout(600 + len(STORES))
@pytest.mark.parametrize("part", range(PARTS))
def test_no_call_on_a_damaged_store_raises_an_untyped_error(sound: Path, tmp_path: Path, part: int) -> None:
    with holdfast.open(sound / "store", actor="me") as ws:
        ids = {"tasks": [task.id for task in ws.tasks.list()], "stashes": [stash.id for stash in ws.stashes.list()]}
    raised = []
    for number in STORES[part::PARTS]:
        folder = tmp_path / str(number)
        shutil.copytree(sound / "store", folder)
        draw = random.Random(f"calls {number}")
        damage = draw.choice((misplace, swap, stale))  # whose pages have right checksums
        damage(draw, folder / FILE)
        try:
            ws = holdfast.open(folder, actor="me")
        except errors.HoldfastError:
            continue
        for call in calls(ws, ids):
            try:
                call()
            except errors.HoldfastError:
                continue
            except Exception as error:
                raised.append(f"{number} {damage.__name__}: {error!r}")
        ws.close()
        shutil.rmtree(folder)
    assert raised == []


def test_a_task_that_is_only_in_the_log_is_corrupt(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        lost, purged = (ws.tasks.create(title).id for title in ("lost", "purged"))
        ws.tasks.delete(purged)
        ws.tasks.purge(purged)
        ws._engine.store.writer.execute("DELETE FROM tasks WHERE id = ?", (lost,))
        with pytest.raises(errors.Corrupt, match=f"task {lost} is in the log, but not in the store"):
            ws.tasks.get(lost)
        for id in (purged, "hf-nope"):
            with pytest.raises(errors.TaskNotFound):
                ws.tasks.get(id)


def test_an_error_of_a_users_function_stays_as_it_is(sound: Path, tmp_path: Path) -> None:
    """Also where the store is damaged: it is not the cause."""
    shutil.copytree(sound / "store", tmp_path / "store")
    swap(random.Random(4), tmp_path / "store" / FILE)

    def fail(*_: object) -> Any:
        raise KeyError("mine")

    with holdfast.open(tmp_path / "store", actor="me") as ws:
        assert not ws.check().ok
        with pytest.raises(KeyError, match="mine"):
            ws.transact(fail)


def test_an_error_of_ours_on_a_sound_store_is_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(tmp_path / "store", actor="me", clock=ManualClock()) as ws:
        ws.agents.register("ada")
        monkeypatch.setattr("holdfast.domains.agents.as_time", len)
        for _ in range(2):
            with pytest.raises(TypeError, match="has no len"):
                ws.agents.list()
        ws._engine.store.writer.execute("DELETE FROM records WHERE kind = 'agent'")
        ws._engine.clock.advance(61)  # type: ignore[attr-defined]
        with pytest.raises(errors.Corrupt, match="the store is damaged: the revision is 1") as caught:
            ws.agents.list()
        assert "restore the latest backup" in caught.value.hint


def difference(before: Any, after: Any) -> Any:
    return [
        (name, old, new)
        for name in before
        for old, new in zip(before[name], after.get(name, []), strict=False)
        if old != new
    ][:2]


def test_doctor_reports_damage_and_never_raises(sound: Path, tmp_path: Path) -> None:
    for number in DOCTORED:
        folder = tmp_path / str(number)
        shutil.copytree(sound / "store", folder)
        draw = random.Random(f"doctor {number}")
        draw.choice(DAMAGES)(draw, folder / FILE)
        assert main(["doctor", "--dir", str(folder)]) in (0, 1)


def test_a_damaged_backup_is_never_restored(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = 0
    for number in BACKUPS:
        copy = tmp_path / f"{number}.backup"
        shutil.copy(sound / "backup", copy)
        shutil.copy(sound / "backup.sha256", tmp_path / f"{copy.name}.sha256")
        draw = random.Random(f"backup {number}")
        whole = copy.read_bytes()
        draw.choice((flip, zero, misplace))(draw, copy)
        if copy.read_bytes() == whole:
            continue
        damaged += 1
        with pytest.raises((errors.Corrupt, errors.Invalid)):
            holdfast.restore(copy, tmp_path / "new")
        assert not (tmp_path / "new" / FILE).exists()
    with capsys.disabled():
        record("backups", BACKUPS, damaged, 0, whole=len(BACKUPS) - damaged)


# --- what can be read is saved ---------------------------------------------------------------------------------------

LEFT_OUT = ("meta", "local_", "sqlite_", *UNREAD)


def rows_of(file: Path) -> dict[str, set[Any]]:
    connection = apsw.Connection(str(file), vfs="unix")
    made = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%_fts%'")
    tables = [str(name) for (name,) in made.fetchall()]
    tables = [name for name in tables if not name.startswith(LEFT_OUT)]
    found = {name: set(connection.execute(f"SELECT * FROM {name}")) for name in tables}
    connection.close()
    return found


@pytest.mark.parametrize("pages", [1, 3])
def test_what_can_be_read_around_a_damaged_page_is_saved(
    sound: Path, tmp_path: Path, pages: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """As doctor advises where there is no backup: no row but those of the pages themselves is missing."""
    whole = rows_of(sound / "store" / FILE)
    draw, saved = random.Random(5), 0
    for number in range(len(DOCTORED) * 3):
        folder = tmp_path / str(number)
        shutil.copytree(sound / "store", folder)
        data = bytearray((folder / FILE).read_bytes())
        for _ in range(pages):
            data[PAGE * draw.randrange(1, len(data) // PAGE) + 2000] ^= 1
        (folder / FILE).write_bytes(data)
        backup = tmp_path / f"{number}.backup"
        assert main(["--dir", str(folder), "backup", str(backup)]) == errors.Corrupt.exit_code
        capsys.readouterr()
        if main(["--dir", str(folder), "backup", "--damaged", str(backup)]) == errors.Corrupt.exit_code:
            assert not backup.exists()  # a page without which nothing can be found
            continue
        told = capsys.readouterr().err
        assert main(["--dir", str(tmp_path / f"{number}.new"), "restore", str(backup)]) == 0
        left = rows_of(tmp_path / f"{number}.new" / FILE)
        missing = {name: rows - left[name] for name, rows in whole.items() if not rows <= left[name]}
        assert all(left[name] <= rows for name, rows in whole.items()), "a row was invented"
        assert sum(map(len, missing.values())) <= 150 * pages, {name: len(rows) for name, rows in missing.items()}
        for name in missing:
            assert name in told
        with holdfast.open(tmp_path / f"{number}.new", actor="me") as ws:
            assert not any(problem.startswith("SQLite") for problem in ws.check().problems)
            ws.tasks.search("body")
            ws.tasks.create("one more")
        saved += 1
    assert saved >= len(DOCTORED) // pages
    assert "backup --damaged FILE" in doctored(folder, capsys)


def test_what_lies_between_two_damaged_pages_is_saved(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        ws.tasks.bulk("create", tasks=[{"title": f"task {number}"} for number in range(500)])
    file = tmp_path / "store" / FILE
    with closing(apsw.Connection(str(file), vfs="unix")) as connection:
        leaves = "SELECT pageno, ncell FROM dbstat WHERE name = 'tasks' AND pagetype = 'leaf' ORDER BY path"
        pages: list[Any] = connection.execute(leaves).fetchall()
    whole, data = rows_of(file)["tasks"], bytearray(file.read_bytes())
    hit = pages[1], pages[-2]
    assert len(pages) > 10
    for number, _ in hit:
        data[PAGE * (number - 1) + 2000] ^= 1
    file.write_bytes(data)
    backup = holdfast.salvage(tmp_path / "store", tmp_path / "saved.backup")
    holdfast.restore(backup, tmp_path / "new")
    left = rows_of(tmp_path / "new" / FILE)["tasks"]
    assert left < whole
    assert len(whole) - len(left) == sum(rows for _, rows in hit)


def doctored(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["--dir", str(folder), "doctor"]) == 1
    return capsys.readouterr().out
