"""Damage of every kind is found: bytes that changed on the disk, and rows that somebody altered with another program.

A store with something of everything is copied, and each copy is damaged in one place that a seed draws. `check` must
report it if any stored field differs, and neither `check` nor `doctor` may raise anything but a typed error. A damaged
backup is not restored.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.kernel.store import FILE
from tests.amounts import amount
from tests.worlds.contents import contents

STORES = amount(60, 1000)
BACKUPS = amount(20, 200)
SLICES = 10
# Kept for speed, and never answered: rows may be missing or stale.
UNREAD = {"ready_tags", "ready_tags_tidied"}


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


@pytest.fixture
def seed() -> int:
    return random.randrange(10**6)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store, and a backup of it beside it."""
    folder = tmp_path_factory.mktemp("sound")
    with holdfast.open(folder / "store", actor="me") as ws:
        furnish(ws)
        assert ws.check().ok
        ws.backup(folder / "backup")
    return folder


def state(folder: Path) -> Any:
    """Every stored field; None if reading it raises a typed error."""
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
    source, target = (4096 * draw.randrange(1, len(data) // 4096) for _ in range(2))
    data[target : target + 4096] = data[source : source + 4096]
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


DAMAGES = (flip, zero, misplace, alter)


@pytest.mark.parametrize("part", range(SLICES))
def test_no_damage_goes_unnoticed_and_none_crashes(sound: Path, tmp_path: Path, part: int, seed: int) -> None:
    before = state(sound / "store")
    unnoticed, crashed = [], []
    for number in range(part, STORES, SLICES):
        folder = tmp_path / str(number)
        shutil.copytree(sound / "store", folder)
        draw = random.Random(f"{seed} {number}")
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
        if not found and after not in (before, None):  # None: whoever reads it is told
            unnoticed.append(f"{number} {damage.__name__}: {difference(before, after)}")
    assert (unnoticed, crashed) == ([], [])


def difference(before: Any, after: Any) -> Any:
    return [
        (name, old, new)
        for name in before
        for old, new in zip(before[name], after.get(name, []), strict=False)
        if old != new
    ][:2]


def test_doctor_reports_damage_and_never_raises(sound: Path, tmp_path: Path, seed: int) -> None:
    for number in range(amount(6, 100)):
        folder = tmp_path / str(number)
        shutil.copytree(sound / "store", folder)
        draw = random.Random(f"doctor {seed} {number}")
        draw.choice(DAMAGES)(draw, folder / FILE)
        assert main(["doctor", "--dir", str(folder)]) in (0, 1)


def test_a_damaged_backup_is_never_restored(sound: Path, tmp_path: Path, seed: int) -> None:
    for number in range(BACKUPS):
        copy = tmp_path / f"{number}.backup"
        shutil.copy(sound / "backup", copy)
        shutil.copy(sound / "backup.sha256", tmp_path / f"{copy.name}.sha256")
        draw = random.Random(f"backup {seed} {number}")
        whole = copy.read_bytes()
        draw.choice((flip, zero, misplace))(draw, copy)
        if copy.read_bytes() == whole:
            continue
        with pytest.raises((errors.Corrupt, errors.Invalid)):
            holdfast.restore(copy, tmp_path / "new")
        assert not (tmp_path / "new" / FILE).exists()
