"""Processes on one file: no increment is lost, no lock of a stash has two holders, no trail ends by half.

`python -m tests.e2e.test_stash_races NUMBER` is one of eight. It does what it reads from stdin: `open FOLDER`, answered
by `ready`; then `go WORK TURNS`, upon which it says `got` for each count or token that it was given, then `end`. The
full number of increments, 500 by each:

    STASH_RACE=500 python -m pytest -p no:randomly tests/e2e/test_stash_races.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.testing.crowd import LONG, start
from tests.amounts import amount
from tests.e2e.claim_worker import ROOT, Fighter, say
from tests.e2e.stash_kill_worker import OPERATIONS, perform, prepare, trail_of
from tests.e2e.task_kill_worker import LAST_WRITE, STATEMENT, WRITE, watched

PROCESSES = 8
TURNS = int(os.environ.get("STASH_RACE", amount(30, 60)))
LOCKED = max(TURNS // 3, 10)
COUNTER, DOOR, SUM = (None, "n"), (None, "door"), (None, "sum")
PARTS = (0.1, 0.5, 0.9)  # of the way through an operation
FAILPOINTS = ("batch.begin", "batch.ran", "batch.commit", "batch.committed")


# --- in the process --------------------------------------------------------------------------------------------------


def count(ws: holdfast.Workspace, turns: int) -> None:
    """Add 1, again and again, for a task of its own."""
    task = ws.tasks.create(ws.actor).id
    for _ in range(turns):
        say("got", ws.stashes.increment(COUNTER, changed_by=task))


def hold(ws: holdfast.Workspace, turns: int) -> None:
    """Take the lock, add to what only its holder may touch, by reading and writing; every third time without a line."""
    refused = done = 0
    while done < turns:
        try:
            grant = ws.stashes.acquire(DOOR, wait=None if done % 3 == 0 and refused < turns else LONG)
        except errors.Held:
            refused += 1
            continue
        value = ws.stashes.get(SUM).value["total"]
        ws.stashes.set_value(SUM, {"total": value + 1})
        ws.stashes.release(DOOR, token=grant.token)
        say("got", grant.token)
        done += 1
    say("refused", refused)


WORKS = {"count": count, "hold": hold}


def main() -> None:
    number = int(sys.argv[1])
    _, folder = sys.stdin.readline().split()
    with holdfast.open(folder, actor=f"agent-{number}", busy_timeout=LONG) as ws:
        say("ready")
        _, work, turns = sys.stdin.readline().split()
        WORKS[work](ws, int(turns))
    say("end")


# --- races -----------------------------------------------------------------------------------------------------------


class Racer(Fighter):
    """The parent's end of one such process."""

    def __init__(self, number: int) -> None:
        self.number = number
        command = [sys.executable, "-m", "tests.e2e.test_stash_races", str(number)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


@contextmanager
def racers(folder: Path) -> Iterator[list[Racer]]:
    """Eight processes that have opened the workspace."""
    with ExitStack() as stack:
        crowd = [stack.enter_context(Racer(number)) for number in range(PROCESSES)]
        for racer in crowd:
            racer.tell("open", folder)
        for racer in crowd:
            assert racer.hear("ready") == []
        yield crowd


def race(crowd: Sequence[Racer], work: str, turns: int) -> list[list[list[str]]]:
    """All at once; answers what each of them said."""
    for racer in crowd:
        racer.tell("go", work, turns)
    return [heard.result(LONG * 2) for heard in [start(partial(racer.hear, "end")) for racer in crowd]]


def got(lines: list[list[str]]) -> list[int]:
    """The numbers that a process was given."""
    return [int(rest[0]) for word, *rest in lines if word == "got"]


@pytest.mark.timeout(900)
def test_s2_s5_eight_processes_that_increment_lose_nothing_and_the_history_is_whole_and_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    total = PROCESSES * TURNS
    with holdfast.open(tmp_path / "store", actor="judge", busy_timeout=LONG) as ws:
        ws.stashes.create("n", "counter")
        with racers(tmp_path / "store") as crowd:
            answers = [got(lines) for lines in race(crowd, "count", TURNS)]
        stash, history = ws.stashes.get(COUNTER), ws.stashes.history(COUNTER)
        assert (stash.value, stash.version) == ({"value": total}, total + 1)
        assert sorted(number for each in answers for number in each) == list(range(1, total + 1))
        assert all(each == sorted(each) for each in answers)
        assert [(entry.operation, entry.version, entry.value) for entry in history] == [
            ("create", 1, {"value": 0}),
            *(("increment", number + 1, {"value": number}) for number in range(1, total + 1)),
        ]
        who = {number: f"agent-{racer}" for racer, each in enumerate(answers) for number in each}
        titles = {id: ws.tasks.get(id).title for id in {str(entry.changed_by) for entry in history[1:]}}
        assert [titles[str(entry.changed_by)] for entry in history[1:]] == [
            who[number] for number in range(1, total + 1)
        ]
        turns = sum(one.changed_by != two.changed_by for one, two in pairwise(history[1:]))
        assert len({entry.id for entry in history}) == total + 1
        assert ws.check().problems == []
    with capsys.disabled():
        print(
            f"\nstash race: {PROCESSES} processes x {TURNS} increments = {stash.value['value']}, {len(history)} entries"
            f" of history, {turns} changes of process on the way"
        )
    assert turns >= PROCESSES, "one after the other: there was hardly a race"


@pytest.mark.timeout(900)
def test_s2_s10_eight_processes_that_acquire_and_release_a_stash_never_hold_it_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    total = PROCESSES * LOCKED
    with holdfast.open(tmp_path / "store", actor="judge", busy_timeout=LONG) as ws:
        ws.stashes.create("door", "lock")
        ws.stashes.create("sum", "context", {"total": 0})
        with racers(tmp_path / "store") as crowd:
            said = race(crowd, "hold", LOCKED)
        tokens = [token for lines in said for token in got(lines)]
        refusals = sum(int(rest[0]) for lines in said for word, *rest in lines if word == "refused")
        history = ws.stashes.history(DOOR)
        assert ws.stashes.get(SUM).value == {"total": total}, "two were inside at once"
        assert ws.stashes.get(SUM).version == total + 1
        assert [entry.operation for entry in history] == ["create", *("acquire", "release") * total]
        assert [entry.version for entry in history] == list(range(1, 2 * total + 2))
        double = sum(one.value is not None and two.value is not None for one, two in pairwise(history))
        held = Counter(entry.value["holder"] for entry in history if entry.operation == "acquire")
        assert held == {f"agent-{number}": LOCKED for number in range(PROCESSES)}
        assert len(set(tokens)) == total
        assert (ws.stashes.get(DOOR).value, ws.check().records["waiters"], ws.check().problems) == (None, 0, [])
    with capsys.disabled():
        print(
            f"\nstash lock race: {PROCESSES} processes x {LOCKED} holds, {refusals} refused at once,"
            f" {double} double holders"
        )


# --- kills -----------------------------------------------------------------------------------------------------------


def contents(ws: holdfast.Workspace) -> dict[str, Any]:
    """All that the end of a trail could change."""
    trail = trail_of(ws)
    return {
        "trail": ws.trails.get(trail).state,
        "members": ws.trails.members(trail),
        "tasks": [task.id for task in ws.tasks.list(limit=1000)],
        "stashes": sorted((stash.id, stash.version, stash.value["text"]) for stash in ws.stashes.list()),
        "links": [link.id for link in ws.links.list()],
        "events": Counter((event.kind, event.op) for event in events(ws)),
    }


def events(ws: holdfast.Workspace) -> Iterator[holdfast.Event]:
    """The whole log."""
    cursor: int | str = 0
    while page := ws.events.list(after=cursor, limit=1000):
        yield from page
        cursor = page[-1].cursor


def undisturbed(begin: Path, folder: Path, operation: str) -> tuple[Counter[str], dict[str, Any]]:
    """How often the operation comes to each place if nobody is killed, and what it leads to."""
    shutil.copytree(begin, folder)
    reached: Counter[str] = Counter()
    with watched(folder, lambda place: reached.update([place])) as ws:
        perform(ws, operation)
        places = reached.copy()
        return places, contents(ws)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_s12_the_end_of_a_trail_that_is_killed_is_there_whole_or_not_at_all(
    tmp_path: Path, operation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with holdfast.open(tmp_path / "begin", actor="maker") as ws:
        prepare(ws, operation)
        before = contents(ws)
    places, after = undisturbed(tmp_path / "begin", tmp_path / "whole", operation)
    assert after != before
    strikes = [(place, 1) for place in FAILPOINTS]
    strikes += [(place, 1 + int(part * places[place])) for place in (STATEMENT, WRITE, LAST_WRITE) for part in PARTS]
    outcomes: Counter[str] = Counter()
    for place, number in strikes:
        folder = tmp_path / f"{place}-{number}"
        shutil.copytree(tmp_path / "begin", folder)
        command = [sys.executable, "-m", "tests.e2e.stash_kill_worker", str(folder), operation, place, str(number)]
        assert subprocess.run(command, cwd=ROOT, timeout=LONG).returncode == -9
        with holdfast.open(folder, actor="killed") as ws:
            left = contents(ws)
            assert left == (after if place == "batch.committed" else before)
            assert ws.check().problems == []
            outcomes["whole" if left == after else "nothing"] += 1
            perform(ws, operation)
            assert contents(ws) == after
            assert ws.check().problems == []
        shutil.rmtree(folder)
    with capsys.disabled():
        print(
            f"\nkilled in trails.{operation}: {len(strikes)} kills in {places[STATEMENT]} statements,"
            f" {places[WRITE]} writes before COMMIT and {places[LAST_WRITE]} in it;"
            f" {outcomes['nothing']} left nothing, {outcomes['whole']} all of it"
        )


if __name__ == "__main__":
    main()
