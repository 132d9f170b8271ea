"""Callers of every face at once, killed in the middle of their work: a short slice of `python -m tests.mixed`.

And the judge is not blind: each way in which a store could betray its callers, told to it, is found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.amounts import first_seed
from tests.mixed.caller import OK, STASH, Call
from tests.mixed.judge import KILLED, Made, judge
from tests.mixed.run import play

CALLS = 2_000
EVERY = 200  # calls between two kills, about
Record = dict[str, list[Made]]


@pytest.mark.early
@pytest.mark.timeout(900)
def test_callers_of_all_faces_lose_and_double_nothing_when_they_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="holdfast")  # claims of killed callers expire, and are warned of
    verdict, kills = play(tmp_path / "store", first_seed(), CALLS, EVERY)
    with capsys.disabled():
        print(f"\nmixed faces, seed {first_seed()}: {dict(verdict.figures)}, killed {dict(kills)}")
    assert verdict.problems == []
    assert verdict.figures["acknowledged"] >= CALLS * 3 // 4  # the others are claims that found nothing
    assert kills


# --- that the judge is not blind -------------------------------------------------------------------------------------


@pytest.fixture
def told(tmp_path: Path) -> tuple[holdfast.Workspace, Record]:
    """A sound store and what its two callers were told, in the order of time."""
    ws = holdfast.open(tmp_path / "store", actor="judge")
    ws.stashes.create(STASH, "counter")
    made: Record = {"ann": [], "bob": []}
    now = 0

    def say(actor: str, op: str, args: Mapping[str, Any], code: str, answer: object) -> None:
        nonlocal now
        now += 10
        made[actor].append(Made(actor, Call(op, dict(args)), now, now + 5, code, answer))

    ann, bob = ws.using(actor="ann"), ws.using(actor="bob")
    for number in range(3):
        for actor, at in (("ann", ann), ("bob", bob)):
            place, value = {"run": "mixed", "cell": "cell"}, f"{actor} {number}"
            version = at.cells.set("mixed", "cell", value)
            say(actor, "cells.set", {**place, "value": value}, OK, [version, None])
            say(actor, "cells.increment", {"run": "mixed", "cell": "count"}, OK, at.cells.increment("mixed", "count"))
            cell = at.cells.get("mixed", "cell")
            say(actor, "cells.get", place, OK, [cell.value, cell.version, cell.revision])
    task = ann.tasks.create("task", tags=["work"])
    say("ann", "tasks.create", {"title": "task"}, OK, [task.id, task.version, task.revision, None])
    held = bob.tasks.claim_next(tags=["work"], ttl=60)
    assert held is not None
    say("bob", "tasks.claim_next", {"tags": ["work"]}, OK, [held.id, held.version, held.revision, held.token])
    bob.cells.increment("mixed", "count")
    say("bob", "cells.increment", {"run": "mixed", "cell": "count"}, KILLED, None)
    return ws, made


def test_a_sound_store_passes(told: tuple[holdfast.Workspace, Record]) -> None:
    ws, made = told
    with ws:
        verdict = judge(ws, made)
    assert verdict.problems == []
    assert verdict.figures["acknowledged"] == 20
    assert (verdict.figures["unknown"], verdict.figures["unknown, stored"], verdict.figures["reads"]) == (1, 1, 6)


def lost(made: Record) -> None:
    """Somebody was told of a version that the log does not have."""
    made["ann"].append(Made("ann", Call("cells.increment", {"run": "mixed", "cell": "count"}), 900, 905, OK, 77))


def doubled(made: Record) -> None:
    """What was called once is there twice."""
    del made["ann"][1]


def at_another_revision(made: Record) -> None:
    """The answer names a revision that is not that of the event."""
    task = made["ann"][-1]
    made["ann"][-1] = task._replace(answer=[*task.answer[:2], task.answer[2] - 1, None])


def to_two(made: Record) -> None:
    """Two were told that they have made the same change."""
    mine = made["ann"][0]
    made["bob"].insert(0, mine._replace(actor="bob"))


def later_first(made: Record) -> None:
    """A call that began when another had ended is before it in the log."""
    made["ann"][0] = made["ann"][0]._replace(began=1_000, ended=1_005)


def stale(made: Record) -> None:
    """A read began after a newer version was acknowledged."""
    made["ann"][2] = made["ann"][2]._replace(began=1_000, ended=1_005)


def refused_but_done(made: Record) -> None:
    """Somebody was refused, and it is there all the same."""
    made["bob"][-1] = made["bob"][-1]._replace(code="BUSY")


@pytest.mark.parametrize(
    ("betray", "found"),
    [
        (lost, "lost"),
        (doubled, "doubled"),
        (at_another_revision, "lost"),
        (to_two, "lost"),
        (later_first, "out of order"),
        (stale, "stale read"),
        (refused_but_done, "doubled"),
    ],
    ids=lambda each: each.__name__ if callable(each) else each.replace(" ", "-"),
)
def test_the_judge_finds(told: tuple[holdfast.Workspace, Record], betray: Callable[[Record], None], found: str) -> None:
    ws, made = told
    betray(made)
    with ws:
        verdict = judge(ws, made)
    assert verdict.figures[found] > 0, verdict.problems
