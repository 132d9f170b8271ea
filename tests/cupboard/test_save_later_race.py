"""Eight processes load one stash, change it in memory and save it later, all at once: nothing is lost.

A counter: each save that is accepted counts, each other one was VersionMismatch. A lock: who saved an `acquire` is
alone until it has saved its `release`, as a file tells to which each holder appends when it comes and goes. In full:

    CUPBOARD_RACE=200 python -m pytest -p no:randomly tests/cupboard/test_save_later_race.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.cupboard import Cupboard, Stash
from holdfast.cupboard.tables import Table
from holdfast.testing.crowd import LONG, start
from tests.e2e.claim_worker import ROOT, Fighter, say

PROCESSES = 8
LOOPS = int(os.environ.get("CUPBOARD_RACE", "40"))
LOOKS = 100_000  # at a lock that others hold, before something is wrong


# --- in the process --------------------------------------------------------------------------------------------------


def count(table: Table[Stash], id: str, holder: str, diary: Path) -> Counter[str]:
    """Load, increment and save, again and again."""
    told: Counter[str] = Counter()
    for _ in range(LOOPS):
        stash = table.get(id)
        stash.increment(1)
        try:
            table.set(id, stash)
            told["won"] += 1
        except errors.VersionMismatch:
            told["lost"] += 1
    return told


def hold(table: Table[Stash], id: str, holder: str, diary: Path) -> Counter[str]:
    """Load the lock when it is free, acquire and save; who has it says so in the diary, and gives it back."""
    told: Counter[str] = Counter()
    with open(diary, "ab", buffering=0) as file:
        for _ in range(LOOPS):
            lock = free_lock(table, id, told)
            lock.acquire(holder)
            try:
                table.set(id, lock)
            except errors.VersionMismatch:
                told["lost"] += 1
                continue
            file.write(f"{holder} comes\n".encode())
            told["won"] += 1
            file.write(f"{holder} goes\n".encode())
            lock.release(holder)
            table.set(id, lock)
    return told


def free_lock(table: Table[Stash], id: str, told: Counter[str]) -> Stash:
    """The lock, loaded while nobody held it."""
    for _ in range(LOOKS):
        lock = table.get(id)
        if lock.value is None:
            return lock
        with pytest.raises(errors.Held):
            lock.acquire("me")
        told["held"] += 1
    raise AssertionError("the lock is never free")


def main() -> None:
    how, number = sys.argv[1:]
    folder, id, diary = sys.stdin.readline().split()
    cupboard = Cupboard()
    cupboard.attach({"path": folder, "actor": f"agent-{number}"})
    table = cupboard.table("stashes")
    table.get(id)
    say("ready")
    sys.stdin.readline()
    for word, times in {"count": count, "hold": hold}[how](table, id, f"agent-{number}", Path(diary)).items():
        say(word, times)
    cupboard.detach()
    say("end")


# --- in the parent ---------------------------------------------------------------------------------------------------


class Saver(Fighter):
    """The parent's end of one such process."""

    def __init__(self, how: str, number: int) -> None:
        self.number = number
        command = [sys.executable, "-m", "tests.cupboard.test_save_later_race", how, str(number)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


@contextmanager
def race(how: str, *place: object) -> Iterator[Counter[str]]:
    """All at the same moment; what they have told, summed up."""
    with ExitStack() as stack:
        crowd = [stack.enter_context(Saver(how, number)) for number in range(PROCESSES)]
        for saver in crowd:
            saver.tell(*place)
        for saver in crowd:
            assert saver.hear("ready") == []
        for saver in crowd:
            saver.tell("go")
        heard = [start(partial(saver.hear, "end")) for saver in crowd]
        told: Counter[str] = Counter()
        for word, times in [line for each in heard for line in each.result(LONG + LOOPS)]:
            told[word] += int(times)
        yield told


@pytest.mark.timeout(600 + LOOPS)
def test_s2_increments_that_are_saved_later_never_collapse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        id = ws.stashes.create("count", "counter").id
        with race("count", tmp_path / "store", id, tmp_path / "diary") as told:
            stash, history = ws.stashes.get(id), ws.stashes.history(id)
        assert told["won"] + told["lost"] == PROCESSES * LOOPS
        assert (stash.value, stash.version) == ({"value": told["won"]}, told["won"] + 1)
        assert [(entry.version, entry.value["value"]) for entry in history] == [
            (number + 1, number) for number in range(told["won"] + 1)
        ]
        assert ws.check().problems == []
    share = told["lost"] / told.total()
    with capsys.disabled():
        print(
            f"\nsave-it-later race, increments: {PROCESSES} processes x {LOOPS} loops, {told['won']} saved,"
            f" {told['lost']} lost by VersionMismatch ({share:.0%}), final value {stash.value['value']}"
        )
    assert told["lost"], "there was no race"


@pytest.mark.timeout(600 + LOOPS)
def test_s2_a_lock_that_is_acquired_and_saved_later_never_has_two_holders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        id = ws.stashes.create("lock", "lock").id
        with race("hold", tmp_path / "store", id, tmp_path / "diary") as told:
            lock, history = ws.stashes.get(id), ws.stashes.history(id)
        diary = [line.split() for line in (tmp_path / "diary").read_text().splitlines()]
        assert told["won"] + told["lost"] == PROCESSES * LOOPS
        assert len(diary) == 2 * told["won"]
        for comes, goes in zip(diary[::2], diary[1::2], strict=True):
            assert (comes[1], goes) == ("comes", [comes[0], "goes"]), "two had the lock at once"
        assert [entry.operation for entry in history] == ["create", *["acquire", "release"] * told["won"]]
        assert [entry.value["holder"] for entry in history if entry.value] == [comes for comes, _ in diary[::2]]
        assert (lock.value, lock.version) == (None, 2 * told["won"] + 1)
        assert ws.check().problems == []
    share = told["lost"] / (told["won"] + told["lost"])
    with capsys.disabled():
        print(
            f"\nsave-it-later race, locks: {PROCESSES} processes x {LOOPS} loops, {told['won']} acquired and released,"
            f" {told['lost']} lost by VersionMismatch ({share:.0%}), {told['held']} looks at a held lock,"
            " at most 1 holder"
        )
    assert told["lost"], "there was no race"


if __name__ == "__main__":
    main()
