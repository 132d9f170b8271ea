"""Eight processes take a task, its paths and send a message in one commit, and are killed with kill -9 meanwhile (A6).

Whoever is killed is replaced, and what it held expires. One of the processes is this module:
`python -m tests.e2e.test_one_commit NUMBER FOLDER CLOCK`; it has two agents, who take tasks in every form of a
transaction until the cell STOP is there, and say `won AGENT ID TOKEN`. The log has every commit whole: a claim comes
with its lock and its message, and never ends without its lock. Then the same commit alone, killed between two of its
statements and two of its writes to the disk: `python -m tests.e2e.test_one_commit PLACE TIMES FOLDER`.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, start, together
from tests.amounts import amount
from tests.conformance.test_one_commit import PARTS, in_block, in_body, in_txn, log, parts_in, taken_whole
from tests.e2e.task_kill_worker import LAST_WRITE, STATEMENT, Strike, watched
from tests.worlds.contents import contents

ROOT = Path(__file__).parents[2]
PROCESSES = 8
AGENTS = 2  # of each process
TASKS = 20
DIRECTORIES = 12
KILLS = amount(6, 12)
BETWEEN = range(20, 120)  # claims from one kill to the next
EXPIRE_AFTER = 4  # kills; the clock stands still otherwise
IDS, STOP = ("race", "ids"), ("race", "stop")
TTL = 60.0  # of the claims
GONE = (errors.Fenced, errors.NotClaimOwner, errors.InvalidTransition)  # to give back what has expired


# --- one of the processes --------------------------------------------------------------------------------------------


def say(*words: object) -> None:
    """One write of a short line is atomic: what the other side reads of it is whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def work(ws: holdfast.Workspace, ids: list[str]) -> None:
    """Take and give back, two at a time, so that there is always something to lose."""
    held: list[str] = []
    while ws.cells.find(*STOP) is None:
        parts = parts_in(PARTS, random.choice(ids), f"dir-{random.randrange(DIRECTORIES)}")
        try:
            claim = random.choice((in_body, in_block, in_txn))(ws, parts)[0]
            say("won", ws.actor, claim.id, claim.token)
            held.append(claim.id)
        except (errors.AlreadyClaimed, errors.Held):
            say("lost")
        if len(held) > random.randrange(3):
            try:
                ws.tasks.release(held.pop(0))
            except GONE:
                say("late")


def fight(number: str, folder: str, clock: str) -> None:
    """Both agents at the same moment."""
    with holdfast.open(folder, actor="process", clock=ManualClock(clock), busy_timeout=LONG) as ws:
        ids: list[str] = ws.cells.get(*IDS).value
        together(*(partial(work, ws.using(actor=f"{number}.{agent}"), ids) for agent in range(AGENTS)))


def take(ws: holdfast.Workspace) -> None:
    """The commit, under its key: repeated, it happens once."""
    in_txn(ws.using(key="once"), parts_in(PARTS, ws.cells.get(*IDS).value[0]))


def main() -> None:
    if sys.argv[1].isdigit():
        fight(*sys.argv[1:])
        return
    place, times, folder = sys.argv[1:]
    with watched(Path(folder), Strike(place, int(times))) as ws:
        take(ws)


class Worker:
    """The parent's end of one."""

    def __init__(self, number: int, *place: Path) -> None:
        self.number = number
        command = [sys.executable, "-m", "tests.e2e.test_one_commit", str(number), *map(str, place)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        self._said = start(self._hear)

    def _hear(self) -> list[list[str]]:
        assert self._process.stdout is not None
        with self._process.stdout:
            return [line.decode().split() for line in self._process.stdout]

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()

    def end(self) -> tuple[int, list[list[str]]]:
        """Wait for its end; answers how it ended, and all it has said."""
        return self._process.wait(LONG), self._said.result(LONG)


# --- the parent ------------------------------------------------------------------------------------------------------


@pytest.mark.early
@pytest.mark.timeout(600)
def test_a6_claim_lock_and_mail_of_processes_that_are_killed_are_in_the_log_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "store", tmp_path / "clock"
    clock = ManualClock(place[1])
    with holdfast.open(place[0], actor="judge", clock=clock, busy_timeout=LONG) as ws:
        ids = [ws.tasks.create(f"task {number}").id for number in range(TASKS)]
        ws.cells.set(*IDS, ids)
        before = ws.revision
        said = fight_and_kill(ws, clock, place)
        assert ws.check().problems == []
        clock.advance(TTL)
        ws.tasks.release_stale_claims()
        events = log(ws, before)
        figures = judge(events)
        claims = taken_whole(events)
        told = Counter(word for word, *_ in said)
        assert {(agent, id, int(token)) for word, *rest in said if word == "won" for agent, id, token in [rest]} <= {
            (claim.actor, claim.id, claim.data["token"][1]) for claim in claims
        }
        assert (ws.paths.list(), {ws.tasks.get(id).claimed_by for id in ids}) == ([], {None})
        assert ws.mail.unread("bob") == len(claims)
        assert ws.check().problems == []
    with holdfast.open(place[0], actor="judge", clock=clock) as ws:
        assert ws.check().problems == []
        assert [*itertools.islice(log(ws, before), len(events))] == events
    with capsys.disabled():
        print(
            f"\none commit: {PROCESSES} processes x {AGENTS} agents, {KILLS} kill -9, {len(claims)} commits of claim +"
            f" lock + mail, all whole; {told['lost']} attempts refused, {len(claims) - told['won']} commits by agents"
            f" that died before they said so; {figures['release']} given back, {figures['expire']} expired in"
            f" {figures['sweeps']} commits, each with its lock"
        )
    assert figures["expire"], "nobody was killed while it held something: the test has lost its point"


def fight_and_kill(ws: holdfast.Workspace, clock: ManualClock, place: Sequence[Path]) -> list[list[str]]:
    """Kill one after the other and start another in its place; answers what all have said."""
    numbers = itertools.count()
    alive = [Worker(next(numbers), *place) for _ in range(PROCESSES)]
    said: list[list[str]] = []
    try:
        with ws.watch(["task"], after=ws.revision) as watch:
            claims = (event for event in watch if event.op == "claim")
            for kill in range(1, KILLS + 1):
                agents = [next(claims).actor for _ in range(random.choice(BETWEEN))]
                seen = [worker for worker in alive if any(name.startswith(f"{worker.number}.") for name in agents)]
                victim = random.choice(seen)  # one that is at work, not one that has yet to start
                victim.kill()
                alive.remove(victim)
                alive.append(Worker(next(numbers), *place))
                code, heard = victim.end()
                assert code == -9
                said += heard
                if kill % EXPIRE_AFTER == 0:
                    clock.advance(TTL)
        ws.cells.set(*STOP, True)
        ends = [worker.end() for worker in alive]
        assert [code for code, _ in ends] == [0] * PROCESSES
        return said + [words for _, heard in ends for words in heard]
    finally:
        for worker in alive:
            worker.kill()
            worker.end()


def judge(events: Sequence[holdfast.Event]) -> Counter[str]:
    """A claim has one lock, which ends in the revision where the claim does; no directory has two holders at once."""
    figures: Counter[str] = Counter()
    locks: dict[str, tuple[str, str, str]] = {}  # of each task that is claimed: the lock, its directory, its holder
    for _, group in itertools.groupby(events, lambda event: event.revision):
        commit = [event for event in group if event.kind in ("task", "path")]
        ended = [event.id for event in commit if event.kind == "task" and event.op in ("release", "expire")]
        assert Counter(locks.pop(id)[0] for id in ended) == Counter(
            event.id for event in commit if event.kind == "path" and event.op in ("release", "expire")
        ), commit
        ops = {event.op for event in commit}
        assert ops in (set(), {"claim", "acquire"}, {"release"}, {"expire"}), commit
        if "expire" in ops:
            assert {event.actor for event in commit} == {"system"}
            figures["sweeps"] += 1
        figures += Counter(event.op for event in commit if event.kind == "task")
        for lock in commit:
            if lock.op == "acquire":
                task, (directory,) = lock.data["task"][1], lock.data["patterns"][1]
                assert task not in locks, lock
                assert {holder for _, where, holder in locks.values() if where == directory} <= {lock.actor}, lock
                locks[task] = lock.id, directory, lock.actor
    assert locks == {}
    return figures


# --- killed at a place -----------------------------------------------------------------------------------------------


def test_a6_the_commit_that_is_killed_between_statements_and_writes_is_there_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with holdfast.open(tmp_path / "start", actor="maker") as ws:
        ws.cells.set(*IDS, [ws.tasks.create("task").id])
        before, revision = contents(ws), ws.revision
    shutil.copytree(tmp_path / "start", tmp_path / "whole")
    places: Counter[str] = Counter()
    with watched(tmp_path / "whole", lambda place: places.update([place])) as ws:
        take(ws)
        passed = places.copy()
    strikes = [("batch.ran", 1), ("batch.commit", 1), ("batch.committed", 1)]
    strikes += [(STATEMENT, passed[STATEMENT] * part // 7) for part in range(2, 8)]
    strikes += [(LAST_WRITE, 1 + passed[LAST_WRITE] * part // 3) for part in range(3)]
    for place, times in strikes:
        folder = tmp_path / f"{place}-{times}"
        shutil.copytree(tmp_path / "start", folder)
        command = [sys.executable, "-m", "tests.e2e.test_one_commit", place, str(times), str(folder)]
        assert subprocess.run(command, cwd=ROOT, timeout=LONG).returncode == -9, (place, times)
        with holdfast.open(folder, actor="killed") as ws:
            if place != "batch.committed":
                assert contents(ws) == before, (place, times)
            take(ws)
            assert [claim.revision for claim in taken_whole(log(ws, revision))] == [revision + 1]
            assert ws.check().problems == []
    with capsys.disabled():
        print(
            f"\none commit, killed: {len(strikes)} kills in {passed[STATEMENT]} statements and {passed[LAST_WRITE]}"
            " writes of COMMIT; nothing was half there"
        )


if __name__ == "__main__":
    main()
