"""What happens before the power fails.

A scene prepares a folder unrecorded, then plays on a `Stage`: a recorded folder on which each call that returned is
acknowledged before the next one is made. Between two acknowledgements there is one commit, or a step that leaves the
content as it is (a checkpoint, a close); so the promises are all the pictures that a crash may show. A seed draws how
large the values are and what else is written in between, so that each seed makes another recording.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import holdfast
from holdfast import Exists, Op, Transaction, Workspace, errors
from holdfast.kernel import migrations
from holdfast.kernel.migrations import Migration
from holdfast.kernel.store_files import FILE
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, Line, finish
from tests.amounts import amount
from tests.power.disk import Mark, Tape, Write, recorded
from tests.power.judge import NOTHING, STORE, picture
from tests.power.states import crashes

RUN = "run"
GROUP = 6
BACKUP = "backup"
DATABASE = f"{STORE}/{FILE}"
KNOWN = migrations.known()
ADDITIVE = [
    Migration(KNOWN + number, f"CREATE TABLE extra_{number} (id INTEGER NOT NULL PRIMARY KEY, more TEXT);", 1, 1)
    for number in (1, 2, 3)
]
LOCKING = [Migration(KNOWN + 1, "CREATE TABLE extra (id INTEGER NOT NULL PRIMARY KEY);", KNOWN + 1, 1)]


class Stage:
    """A recorded folder, its clock, and the promises made so far."""

    def __init__(self, tape: Tape, first: bytes, draw: Random) -> None:
        self.draw = draw
        self.tape = tape
        self.root = Path(tape.root)
        self.store = self.root / STORE
        self.clock = ManualClock()
        self.promises = [first]
        self.files: dict[str, tuple[bytes, int]] = {}  # pictures of other files, and the promise that needs them

    def open(self) -> Workspace:
        """The workspace of the scene."""
        return holdfast.open(self.store, actor="me", clock=self.clock)

    def acknowledged(self) -> None:
        """A call has returned: what the store shows now is promised."""
        self.promises.append(picture(self.root / DATABASE))
        self.tape.add(Mark(len(self.promises) - 1))
        self.clock.advance(0.001)  # no two commits have the same time

    def acknowledged_file(self, path: str) -> None:
        """A file beside the store is promised; the store's next promise is not to be seen without it."""
        self.files[path] = (picture(self.root / path), len(self.promises))
        self.tape.add(Mark(path))

    def writes_to_database(self) -> int:
        """How often the database itself was written, which only a checkpoint does."""
        database = self.tape.file_at(DATABASE)
        return sum(isinstance(operation, Write) and operation.file == database for operation in self.tape.operations)


class Scene(NamedTuple):
    """What is there before, what is recorded, and how its states are made and read."""

    name: str
    play: Callable[[Stage], None]
    prepare: Callable[[Path, Random], None]
    states: int  # different ones that are verified at least
    opened_every: int = 20  # of so many states one is opened as a workspace
    recover: Callable[[Path], None] = lambda _: None  # what a user would do before opening it again
    migrations: Sequence[Migration] = ()  # what the program knows beyond the schema of today


def play(scene: Scene, root: Path, seed: int) -> Stage:
    """Prepare and play a scene in a new folder."""
    root.mkdir()
    draw = Random(f"{scene.name} {seed}")
    scene.prepare(root, draw)
    copy = root.with_suffix(".copy")
    shutil.copytree(root, copy)
    with knowing(scene), recorded(root) as tape:
        stage = Stage(tape, picture(copy / DATABASE), draw)
        scene.play(stage)
    return stage


@contextmanager
def knowing(scene: Scene) -> Iterator[None]:
    """Be the program that knows the scene's migrations."""
    steps = [*migrations.load(), *scene.migrations]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "load", lambda: steps)
        patch.setattr(migrations, "known", lambda: len(steps))
        yield


# --- what callers do -------------------------------------------------------------------------------------------------


def both(tx: Transaction, number: int) -> None:
    """Two cells: there is no half of it."""
    tx.cells.set(RUN, "left", number)
    tx.cells.set(RUN, "right", [number] * 20)


def refused(tx: Transaction) -> None:
    """Writes, and then must not have."""
    tx.cells.set(RUN, "never", 1)
    raise errors.Conflict("not this one")


def swap(ws: Workspace, number: int) -> None:
    """A transaction as data: one cell goes, another comes."""
    gone = Op("cells.delete", {"run": RUN, "cell": "big"})
    ws.txn([Exists("cell", (RUN, "big"))], [gone, Op("cells.set", {"run": RUN, "cell": "small", "value": number})])


MOVES: tuple[Callable[[Workspace, int], object], ...] = (
    lambda ws, number: ws.cells.set(RUN, f"cell-{number % 4}", {"number": number}),
    lambda ws, number: ws.cells.increment(RUN, "count"),
    lambda ws, number: ws.cells.set(RUN, "brief", number, ttl=100),
    lambda ws, number: ws.locks.acquire("lock", ttl=100),
    lambda ws, number: ws.locks.refresh("lock", ttl=120),  # a commit without an event
    lambda ws, number: ws.transact(partial(both, number=number)),
    lambda ws, number: ws.using(key=f"key-{number}").cells.increment(RUN, "once"),
    lambda ws, number: ws.cells.set(RUN, "big", "x" * (9000 + number * 997 % 9000)),
    swap,
    lambda ws, number: ws.locks.release("lock"),
    lambda ws, number: ws.leases.create(100),
    lambda ws, number: ws.cells.delete(RUN, "brief"),
)


def perform(stage: Stage, ws: Workspace, moves: int, first: int = 0) -> None:
    """So many calls, one after the other, each acknowledged; the seed draws others in between."""
    for number in range(first, first + moves):
        if stage.draw.random() < 0.25:
            text = "y" * stage.draw.choice((1, 100, 4000, stage.draw.randrange(20_000)))
            ws.cells.set(RUN, f"drawn-{stage.draw.randrange(3)}", text)
            stage.acknowledged()
        MOVES[number % len(MOVES)](ws, number)
        stage.acknowledged()


# --- what is there before --------------------------------------------------------------------------------------------


def no_folder(_: Path, __: Random) -> None:
    """Nothing at all."""


def empty(root: Path, _: Random) -> None:
    """A folder for the store, and nothing in it."""
    (root / STORE).mkdir()


def existing(root: Path, _: Random) -> None:
    """A store with a little in it, closed."""
    with holdfast.open(root / STORE, actor="me", clock=ManualClock()) as ws:
        ws.cells.set(RUN, "cell-0", "old")
        ws.cells.set(RUN, "kept", "from before")


def only_backup(root: Path, draw: Random) -> None:
    """A backup, and no folder for the store."""
    existing(root, draw)
    with holdfast.open(root / STORE, actor="me", clock=ManualClock()) as ws:
        ws.backup(root / BACKUP)
    shutil.rmtree(root / STORE)


def backup_and_folder(root: Path, draw: Random) -> None:
    """A backup, and an empty folder to restore it into."""
    only_backup(root, draw)
    empty(root, draw)


def crashed(root: Path, draw: Random) -> None:
    """A store whose power has failed before, in the middle of a commit."""
    before = root.with_suffix(".before")
    before.mkdir()
    existing(before, draw)
    with recorded(before) as tape:
        stage = Stage(tape, NOTHING, draw)
        with stage.open() as ws:
            perform(stage, ws, 6)
    torn = [crash for crash in crashes(tape, "before", draw.randrange(10**6), 0) if crash.kind == "torn"]
    empty(root, draw)
    for path, content in draw.choice(torn).files.items():
        (root / path).write_bytes(content)


# --- what is recorded ------------------------------------------------------------------------------------------------


def one_caller(stage: Stage) -> None:
    """One caller; in the end a cell and a lease expire, and the sweep of them is a commit of its own."""
    with stage.open() as ws:
        perform(stage, ws, 2 * len(MOVES) + 5)
        stage.clock.advance(130)
        ws.locks.list()
        stage.acknowledged()


def groups(stage: Stage) -> None:
    """Groups, again and again."""
    with stage.open() as ws:
        for turn in range(8):
            grouped(stage, ws, turn)


def grouped(stage: Stage, ws: Workspace, turn: int) -> None:
    """Several threads, one of them refused, then several tasks, in one commit each."""
    with Line(ws) as line:
        calls = [line.queue(partial(ws.transact, partial(both, number=number))) for number in range(GROUP)]
        calls += [line.queue(partial(ws.transact, partial(count, number=number))) for number in range(GROUP)]
        no = line.queue(partial(ws.transact, refused))
    assert [call.result(LONG) for call in calls] == [None] * len(calls)
    assert isinstance(no.exception(LONG), errors.Conflict)
    stage.acknowledged()
    finish(tasks(ws, turn))
    stage.acknowledged()


def count(tx: Transaction, number: int) -> None:
    """One more in a cell of this thread's own."""
    tx.cells.increment(RUN, f"thread-{number}")


async def tasks(ws: Workspace, turn: int) -> None:
    """Several tasks that are ready at once."""
    await asyncio.gather(*(ws.aio.cells.set(RUN, f"task-{number}", turn) for number in range(GROUP)))


def checkpoints(stage: Stage) -> None:
    """Every mode, first behind a reader that keeps it from finishing; automatic ones; two writers in turn."""
    with stage.open() as ws, stage.open() as other:
        connection = ws._engine.store.connect()
        reader = ws._engine.store.connect_reader()
        modes = ("PASSIVE", "FULL", "RESTART", "TRUNCATE") * 2
        for number, mode in enumerate(modes):
            reader.execute("BEGIN; SELECT count(*) FROM events").fetchall()
            perform(stage, ws if number % 2 else other, 3, 3 * number)
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            reader.execute("ROLLBACK")
            written = stage.writes_to_database()
            connection.execute(f"PRAGMA wal_checkpoint({mode})")
            assert stage.writes_to_database() > written or mode == "PASSIVE"  # which gives way to any reader
        reader.close()
        connection.close()
        written = stage.writes_to_database()
        for each in (ws, other):
            each._engine.store.writer.wal_autocheckpoint(12)
        for number in range(len(MOVES)):
            perform(stage, (ws, other)[number % 2], 1, number)
        assert stage.writes_to_database() > written


def open_and_write(stage: Stage) -> None:
    """The store is made, or migrated, and used."""
    with stage.open() as ws:
        stage.acknowledged()
        perform(stage, ws, 3)


def backing_up(stage: Stage) -> None:
    """Backups between writes, into the folder beside the store."""
    with stage.open() as ws:
        for number in range(3):
            perform(stage, ws, 3, 3 * number)
            name = f"{BACKUP}-{number}"
            ws.backup(stage.root / name)
            stage.acknowledged_file(name)
            assert picture(stage.root / name, without="local_backup") == stage.promises[-1]


def restoring(stage: Stage) -> None:
    """A backup becomes a workspace, which is opened and used."""
    holdfast.restore(stage.root / BACKUP, stage.store, clock=stage.clock)
    stage.acknowledged()
    with stage.open() as ws:
        perform(stage, ws, 3)


def restore_again(folder: Path) -> None:
    """After a crash in a restore: where there is no store, restore once more."""
    if not (folder / FILE).exists():
        holdfast.restore(folder.parent / BACKUP, folder, clock=ManualClock())


def upgrading(stage: Stage) -> None:
    """A migration that locks older programs out, after a backup; then a program that knows it writes."""
    assert holdfast.upgrade(stage.store, clock=stage.clock) == KNOWN + 1
    (backup,) = stage.store.glob("before-schema-*.backup")
    stage.acknowledged_file(f"{STORE}/{backup.name}")
    stage.acknowledged()
    with stage.open() as ws:
        perform(stage, ws, 3)


def closing(stage: Stage) -> None:
    """The last close checkpoints and removes the log, the next write begins a new one; again and again."""
    for number in range(5):
        with stage.open() as ws:
            perform(stage, ws, 3, 3 * number)


SHARE = amount(1, 5) / 5  # of the states of each crash point that are made


def part_of(states: int) -> int:
    """How many states of a scene this run verifies at least; `states` is for the long run."""
    return round(states * SHARE)


PLAIN = Scene("one caller", one_caller, existing, part_of(3500))
CHECKPOINTS = Scene("checkpoints", checkpoints, existing, part_of(4000))
CREATION = Scene("creation", open_and_write, empty, part_of(1500), opened_every=1)
SCENES = (
    PLAIN,
    Scene("groups", groups, existing, part_of(3000)),
    CHECKPOINTS,
    CREATION,
    Scene("migration", open_and_write, existing, part_of(1500), opened_every=3, migrations=ADDITIVE),
    Scene("backup", backing_up, existing, part_of(1500)),
    Scene("restore", restoring, backup_and_folder, part_of(1500), opened_every=3, recover=restore_again),
    Scene("upgrade", upgrading, existing, part_of(1000), opened_every=3, migrations=LOCKING),
    Scene("close and reopen", closing, existing, part_of(1500)),
    Scene("a second crash", one_caller, crashed, part_of(1000)),
)
NEW_FOLDERS = (
    Scene("creation in a new folder", open_and_write, no_folder, 1),
    Scene("restore into a new folder", restoring, only_backup, 1),
)
