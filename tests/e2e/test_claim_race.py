"""Eight processes with four threads each fight for the same tasks: every task is claimed exactly once.

By `claim_next`, and by `claim(id)` where eight agents of four processes try to take each task. Then with kill -9 of
most of them in the middle of the work: expiry gives what they held back once, and every task is completed once. What
the agents were told and what the log says must agree. The full number of runs, which takes some minutes:

    CLAIM_RACE_RUNS=20 python -m pytest -p no:randomly tests/e2e/test_claim_race.py
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, start
from tests.amounts import amount
from tests.e2e.claim_worker import IDS, PARTIES, THREADS, TTL, Fighter

PROCESSES = 8
TASKS = 2000
RUNS = int(os.environ.get("CLAIM_RACE_RUNS", amount(1, 2)))
KILLED = 6
KILLS_FROM, KILLS_TO = 100, 1400  # between these claims of all


class Claim(NamedTuple):
    """Who has which task, by which token."""

    id: str
    agent: str
    token: int


@contextmanager
def fighters() -> Iterator[list[Fighter]]:
    """Eight processes."""
    with ExitStack() as stack:
        yield [stack.enter_context(Fighter(number)) for number in range(PROCESSES)]


def make_tasks(ws: holdfast.Workspace) -> list[str]:
    """Tasks of every priority, and their ids where the agents find them."""
    made = ws.tasks.bulk("create", tasks=[{"title": f"task {n}", "priority": n % 5} for n in range(TASKS)], atomic=True)
    ids = [item.id for item in made.results]
    ws.cells.set(*IDS, ids)
    return ids


def open_all(crowd: Sequence[Fighter], *place: Path) -> None:
    """Have every process open the workspace."""
    for fighter in crowd:
        fighter.tell("open", *place)
    for fighter in crowd:
        assert fighter.hear("ready") == []


def fight(crowd: Sequence[Fighter], how: str) -> list[list[str]]:
    """All at once; answers what they said."""
    for fighter in crowd:
        fighter.tell("go", how)
    return [line for heard in [start(partial(fighter.hear, "end")) for fighter in crowd] for line in heard.result(LONG)]


def claims_told(lines: list[list[str]]) -> list[Claim]:
    """The claims that agents were told they have."""
    return [Claim(id, agent, int(token)) for word, *rest in lines if word == "won" for agent, id, token in [rest]]


def task_events(ws: holdfast.Workspace) -> list[holdfast.Event]:
    """All that the log says of tasks."""
    events: list[holdfast.Event] = []
    while page := ws.events.list(kinds=["task"], after=events[-1].cursor if events else 0, limit=1000):
        events += page
    return events


def claims_logged(events: list[holdfast.Event], op: str = "claim") -> list[Claim]:
    """The claims that began, or ended, by an operation."""
    now = int(op == "claim")
    return [
        Claim(event.id, event.data["claimed_by"][now], event.data["token"][now]) for event in events if event.op == op
    ]


def process_of(claim: Claim) -> int:
    """The number of the process whose thread the agent is."""
    return int(claim.agent.partition(".")[0])


def doubles(ids: Sequence[str]) -> int:
    """How many of them are there more than once."""
    return sum(count > 1 for count in Counter(ids).values())


# --- everybody lives -------------------------------------------------------------------------------------------------


@pytest.mark.early
@pytest.mark.timeout(600 + 60 * RUNS)
@pytest.mark.parametrize("how", ["next", "ids"])
def test_t4_of_all_who_claim_a_task_at_the_same_moment_one_wins(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    won = lost = doubled = 0
    with fighters() as crowd:
        for run in range(RUNS):
            told, refused = race(crowd, tmp_path / f"store-{run}", how)
            won, lost, doubled = won + len(told), lost + refused, doubled + doubles([claim.id for claim in told])
            assert how == "next" or refused >= TASKS, "there was hardly a race"
    with capsys.disabled():
        print(
            f"\nclaim race by {'claim_next' if how == 'next' else 'claim(id)'}: {RUNS} runs, {PROCESSES} processes x"
            f" {THREADS} threads, {TASKS * RUNS} tasks, {won} claims won, {lost} lost, {doubled} double claims"
        )


def race(crowd: Sequence[Fighter], folder: Path, how: str) -> tuple[list[Claim], int]:
    """One run on a workspace of its own; answers the claims that were won, and how many were refused."""
    with holdfast.open(folder, actor="judge", busy_timeout=LONG) as ws:
        ids = make_tasks(ws)
        open_all(crowd, folder)
        lines = fight(crowd, how)
        told = claims_told(lines)
        events = task_events(ws)
        assert sorted(claim.id for claim in told) == sorted(ids)
        assert len({claim.token for claim in told}) == TASKS
        assert sorted(claims_logged(events)) == sorted(told)
        assert Counter(event.op for event in events) == {"create": TASKS, "claim": TASKS}
        assert sorted(held(ws, ids)) == sorted(told)
        assert len({process_of(claim) for claim in told}) > 1, "one process had them all"
        assert ws.check().problems == []
    lost = sum(int(rest[0]) for word, *rest in lines if word == "lost")
    assert lost == (TASKS * (PROCESSES * THREADS // PARTIES - 1) if how == "ids" else 0)
    return told, lost


def held(ws: holdfast.Workspace, ids: Sequence[str]) -> list[Claim]:
    """The claims that the tasks have now."""
    tasks = [ws.tasks.get(id) for id in ids]
    return [Claim(task.id, task.claimed_by, task.token) for task in tasks if task.claimed_by and task.token]


# --- most of them are killed -----------------------------------------------------------------------------------------


@pytest.mark.early
@pytest.mark.timeout(600 + 60 * RUNS)
def test_t6_what_killed_workers_held_comes_back_once_and_is_completed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures: Counter[str] = Counter()
    for run in range(RUNS):
        figures += race_with_kills(tmp_path / f"store-{run}", tmp_path / f"clock-{run}")
    with capsys.disabled():
        print(
            f"\nclaim race with kill -9: {RUNS} runs, {figures['killed']} processes killed, {figures['tasks']} tasks,"
            f" {figures['orphans']} claims orphaned, {figures['expired']} given back by expiry,"
            f" {figures['completed']} completed, {figures['unsaid']} of them by a worker that died before it said so"
        )
    assert figures["orphans"], "nobody was killed while it held something: the test has lost its point"


def race_with_kills(folder: Path, clock: Path) -> Counter[str]:
    """One run; answers its figures."""
    time = ManualClock(clock)
    with holdfast.open(folder, actor="judge", clock=time, busy_timeout=LONG) as ws, fighters() as crowd:
        ids = make_tasks(ws)
        open_all(crowd, folder, clock)
        victims = random.sample(crowd, KILLED)
        survivors = [fighter for fighter in crowd if fighter not in victims]
        lines = fight_and_kill(ws, crowd, victims)

        events = task_events(ws)
        orphans = held(ws, ids)
        assert Counter(event.op for event in events)["expire"] == 0  # the clock stands still
        assert {process_of(orphan) for orphan in orphans} <= {victim.number for victim in victims}
        assert ws.tasks.claim_next("judge") is None
        assert ws.check().problems == []

        time.advance(TTL + 1)
        lines += fight(survivors, "work")
        return judge(ws, ids, orphans, lines) + Counter(killed=KILLED)


def fight_and_kill(ws: holdfast.Workspace, crowd: Sequence[Fighter], victims: Sequence[Fighter]) -> list[list[str]]:
    """All at once; each victim is killed as soon as so many claims were made. Answers what all have said."""
    moments = sorted(random.sample(range(KILLS_FROM, KILLS_TO), len(victims)))
    with ws.watch(["task"], after=ws.revision) as watch:
        for fighter in crowd:
            fighter.tell("go", "work")
        hearing = [start(partial(fighter.hear, "end")) for fighter in crowd]
        claims = (event for event in watch if event.op == "claim")
        seen = 0
        for victim, moment in zip(victims, moments, strict=True):
            seen += sum(1 for _ in islice(claims, moment - seen))
            victim.kill()
        return [line for heard in hearing for line in heard.result(LONG)]


def judge(ws: holdfast.Workspace, ids: list[str], orphans: list[Claim], lines: list[list[str]]) -> Counter[str]:
    """Every orphaned claim ended once, and every task was completed once; what agents were told is in the log."""
    events = task_events(ws)
    logged, expired, completed = (claims_logged(events, op) for op in ("claim", "expire", "complete"))
    assert sorted(expired) == sorted(orphans)
    assert {event.actor for event in events if event.op == "expire"} <= {"system"}
    assert sorted(claim.id for claim in completed) == sorted(ids)
    assert sorted(logged) == sorted(expired + completed)  # each claim ended one way, once
    assert len({claim.token for claim in logged}) == len(logged)

    told = claims_told(lines)
    assert len(set(told)) == len(told)
    assert set(told) <= set(logged)
    done = [(id, agent) for word, *rest in lines if word == "done" for agent, id in [rest]]
    assert doubles([id for id, _ in done]) == 0
    assert set(done) <= {(claim.id, claim.agent) for claim in completed}
    assert {task_status(ws, id) for id in ids} == {("closed", None)}
    assert ws.check().problems == []
    return Counter(
        tasks=len(ids),
        orphans=len(orphans),
        expired=len(expired),
        completed=len(completed),
        unsaid=len(completed) - len(done),
    )


def task_status(ws: holdfast.Workspace, id: str) -> tuple[Any, ...]:
    """Its status, and who has it."""
    task = ws.tasks.get(id)
    return task.status, task.claimed_by
