"""Power loss: whatever a failing power leaves of the files, no acknowledged commit is lost and none is half there.

Each scene is recorded once for a seed and judged in many crash states; a state that fails names itself, and the same
seed (`FIRST`) repeats it; `SEEDS` makes several recordings. The other tests see to it that the judge is not blind: a
store that syncs too little, a disk that lies and a synced write that is gone are found by what they lose. Nothing here
looks at a pragma.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from holdfast.kernel import activity
from holdfast.kernel.process_lock import OPEN, TURN
from holdfast.kernel.store import Store
from tests.amounts import amount, first_seed, seeds
from tests.long.ledger import record
from tests.power.disk import NAME, Entry, Mark, Operation, Sync, SyncFolder, Tape, Truncate, Write, contents
from tests.power.judge import MISSED, Judge
from tests.power.scenes import (
    CHECKPOINTS,
    CREATION,
    DATABASE,
    NEW_FOLDERS,
    PLAIN,
    SCENES,
    SHARE,
    Scene,
    Stage,
    knowing,
    play,
)
from tests.power.states import Change, Crash, Platter, crashes

ENOUGH = amount(4_000, 20_000)  # states of a seed
SEEDS = seeds(1, 1)
MOST_ROUNDS = 100


@pytest.fixture
def ram() -> Iterator[Path]:
    """A folder, on a RAM disk where there is one: how fast a real disk syncs does not matter here."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-power-", dir=shared if shared.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def seed() -> int:
    return first_seed()


def judge_of(scene: Scene, stage: Stage, ram: Path) -> Judge:
    return Judge(stage.promises, stage.files, ram / "state", opened_every=scene.opened_every, recover=scene.recover)


def told(judge: Judge) -> str:
    return f"{len(judge.problems)} states are wrong, among them:\n" + "\n".join(judge.problems[:20])


def changes_on(tape: Tape) -> dict[int, Change]:
    """Whatever has changed a file or a folder, by its number."""
    return {
        number: operation
        for number, operation in enumerate(tape.operations)
        if isinstance(operation, Write | Truncate | Entry)
    }


# --- the guarantee ---------------------------------------------------------------------------------------------------


@pytest.mark.early
@pytest.mark.timeout(amount(900, 1200))
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_no_acknowledged_commit_is_lost_with_the_power(
    scene: Scene, ram: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = play(scene, ram / "scene", seed)
    judge = judge_of(scene, stage, ram)
    with knowing(scene):
        for draw in range(MOST_ROUNDS):
            for crash in crashes(stage.tape, scene.name, seed, draw, share=SHARE):
                judge.judge(crash)
            if len(judge) >= scene.states:
                break
    kinds = ", ".join(f"{len(states)} {kind}" for kind, states in judge.verified.items())
    with capsys.disabled():
        print(
            f"\npower loss, {scene.name}: {len(stage.tape.operations)} operations on disk, "
            f"{len(stage.promises) - 1 + len(stage.files)} acknowledgements; {len(judge)} different states verified "
            f"({kinds}) of {judge.generated} made, {judge.opened} of them opened as a workspace; acknowledged commits "
            f"looked for {judge.acknowledged} times, {judge.lost} lost"
        )
        wrong = len(judge.problems) + judge.lost
        record(
            "power",
            range(seed, seed + 1),
            len(judge),
            wrong,
            commits_looked_for=judge.acknowledged,
            opened=judge.opened,
        )
    assert not judge.problems, told(judge)
    assert judge.lost == 0
    assert judge.opened
    assert len(judge) >= scene.states
    assert all(judge.verified.values())


def test_the_scenes_together_have_enough_states() -> None:
    assert sum(scene.states for scene in SCENES) >= ENOUGH


@pytest.mark.parametrize("scene", NEW_FOLDERS, ids=lambda scene: scene.name)
def test_the_folder_of_a_new_workspace_is_as_durable_as_what_is_in_it(scene: Scene, ram: Path, seed: int) -> None:
    stage = play(scene, ram / "scene", seed)
    judge = judge_of(scene, stage, ram)
    for crash in crashes(stage.tape, scene.name, seed, 0):
        judge.judge(crash)
    assert not judge.problems, told(judge)


# --- that the judge is not blind -------------------------------------------------------------------------------------


def kept(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """All files but those written without SQLite: refusals, and who has the store or the turn."""
    left_out = (activity.FILE, OPEN, TURN)
    return {name: content for name, content in files.items() if not name.endswith(left_out)}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_the_tape_has_everything_that_was_done_to_the_files(scene: Scene, ram: Path, seed: int) -> None:
    tape = play(scene, ram / "scene", seed).tape
    assert kept(Platter(tape).files(changes_on(tape).values())) == kept(contents(ram / "scene"))
    assert NAME not in apsw.vfs_names()


def test_a_store_that_syncs_too_little_is_found_by_what_it_loses(
    ram: Path, seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Store._settings
    monkeypatch.setattr(Store, "_settings", lambda store: settings(store) | {"synchronous": 1})
    stage = play(PLAIN, ram / "scene", seed)
    monkeypatch.undo()
    judge = judge_of(PLAIN, stage, ram)
    findings = [judge.judge(crash) for crash in crashes(stage.tape, PLAIN.name, seed, 0, share=SHARE)]
    with capsys.disabled():
        print(
            f"\npower loss, synchronous=NORMAL: {len(judge.problems)} of {len(findings)} states have lost acknowledged "
            f"commits, {judge.lost} in all"
        )
    assert judge.lost > 0
    # NORMAL loses the newest commits, and breaks none; the note beside the store says so if it was not lost too.
    assert {finding.problem for finding in findings} == {"", MISSED}


class Lie(NamedTuple):
    """What a disk says that it has done, and has not."""

    about: str
    scene: Scene
    claimed: Callable[[Tape, Operation], bool]


LIES = (
    Lie("every sync", PLAIN, lambda tape, operation: isinstance(operation, Sync)),
    Lie("folders", CREATION, lambda tape, operation: isinstance(operation, SyncFolder)),
    Lie(
        "the database at checkpoints",
        CHECKPOINTS,
        lambda tape, operation: isinstance(operation, Sync) and operation.file == tape.file_at(DATABASE),
    ),
)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.about)
def test_a_disk_that_lies_is_found(lie: Lie, ram: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    stage = play(lie.scene, ram / "scene", seed)
    judge = judge_of(lie.scene, stage, ram)
    for crash in crashes(
        stage.tape, lie.scene.name, seed, 0, share=SHARE, claimed=lambda operation: lie.claimed(stage.tape, operation)
    ):
        judge.judge(crash)
    with capsys.disabled():
        print(
            f"\npower loss, a disk that lies about {lie.about}: {len(judge.problems)} of {judge.generated} states are "
            f"wrong, {judge.lost} acknowledged commits lost"
        )
    assert judge.problems


def test_a_synced_write_that_is_gone_is_found(ram: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    stage = play(PLAIN, ram / "scene", seed)
    judge = judge_of(PLAIN, stage, ram)
    operations = stage.tape.operations
    end = max(number for number, operation in enumerate(operations) if isinstance(operation, Mark))
    changes = {number: change for number, change in changes_on(stage.tape).items() if number < end}
    (log,) = [change.file for change in changes.values() if isinstance(change, Entry) and "-wal" in change.path]
    writes = [number for number, change in changes.items() if isinstance(change, Write) and change.file == log]
    for gone in [None, *writes]:
        left = [change for number, change in changes.items() if number != gone]
        state = Platter(stage.tape).files(left)
        judge.judge(Crash(f"without {gone}", state, "kept", len(stage.promises) - 1, frozenset()))
        assert bool(judge.problems) == (gone is not None)
    with capsys.disabled():
        print(f"\npower loss, a synced write is gone: {len(judge.problems)} of {len(writes)} found")
    assert len(judge.problems) == len(writes)
