"""Processes that lock overlapping paths of one folder (A5): the log proves that no path ever had two holders.

`python -m tests.e2e.test_path_race NUMBER` is one of them. It does what it reads from stdin: `open FOLDER CLOCK`,
answered by `ready`; then `go STAY`, upon which it locks and releases patterns at random, waits in line every third
time, and says `got ID TOKEN` for each lock, `lost` for one that expired under it and `refused COUNT` before `end`. At
the turn STAY, if it has one, it takes a lock to keep, for the reason `KEPT`, and waits to be killed.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, start
from tests.conformance.test_path_lines import CHOICES, replay
from tests.conformance.test_paths import events
from tests.e2e.claim_worker import ROOT, Fighter, say

PROCESSES = 8
TURNS = 160
TTL = 60.0  # on a clock that stands still
WAIT = 100_000.0
KEPT = "until I am killed"
STAYERS = {0: 30, 1: 80}  # processes that keep a lock at some turn, and are killed as soon as the log says so
STRUCK = {2: 100, 3: 250}  # those that are killed wherever they are, when so many locks were granted
NEVER = -1


# --- in the process --------------------------------------------------------------------------------------------------


def race(ws: holdfast.Workspace, number: int, stay: int) -> None:
    """Lock and release, at random."""
    dice, refused = random.Random(number), 0
    for turn in range(TURNS):
        patterns = dice.sample(CHOICES, dice.choice((1, 1, 2)))
        if turn == stay:
            ws.paths.lock(patterns, ttl=TTL, wait=WAIT, reason=KEPT)
            sys.stdin.read()  # which never ends
        try:
            wait = WAIT if turn % 3 == 0 else None
            lock = ws.paths.lock(patterns, ttl=TTL, shared=dice.randrange(4) == 0, wait=wait)
        except errors.Held:
            refused += 1
            continue
        say("got", lock.id, lock.token)
        try:
            ws.paths.release(lock.id, token=lock.token)
        except errors.Fenced:
            say("lost")
    say("refused", refused)


def main() -> None:
    number = int(sys.argv[1])
    _, folder, clock = sys.stdin.readline().split()
    with holdfast.open(folder, actor=f"agent-{number}", clock=ManualClock(clock), busy_timeout=LONG) as ws:
        say("ready")
        _, stay = sys.stdin.readline().split()
        race(ws, number, int(stay))
    say("end")


# --- in the parent ---------------------------------------------------------------------------------------------------


class Racer(Fighter):
    """The parent's end of one such process."""

    def __init__(self, number: int) -> None:
        self.number = number
        command = [sys.executable, "-m", "tests.e2e.test_path_race", str(number)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)

    def kill(self) -> None:
        """kill -9; it is gone when this comes back."""
        super().kill()
        self._process.wait(LONG)


@contextmanager
def racers(folder: Path, clock: Path) -> Iterator[list[Racer]]:
    """Eight processes that have opened the folder."""
    with ExitStack() as stack:
        crowd = [stack.enter_context(Racer(number)) for number in range(PROCESSES)]
        for racer in crowd:
            racer.tell("open", folder, clock)
        for racer in crowd:
            assert racer.hear("ready") == []
        yield crowd


def told(lines: Sequence[list[str]]) -> Counter[str]:
    """What they have said: how many locks they got, lost, and were refused."""
    said = Counter(word for word, *_ in lines if word != "refused")
    said["refused"] = sum(int(rest[0]) for word, *rest in lines if word == "refused")
    return said


def check_grants(ws: holdfast.Workspace, lines: Sequence[list[str]]) -> Counter[str]:
    """Every lock that was told of is in the log, and no token was given twice; answers what happened how often."""
    log = events(ws)
    grants = {(event.id, event.data["token"][1]) for event in log if event.op == "acquire"}
    got = [(rest[0], int(rest[1])) for word, *rest in lines if word == "got"]
    assert len(set(got)) == len(got)
    assert set(got) <= grants
    assert len({token for _, token in grants}) == len(grants)
    return Counter(event.op for event in log)


def check_free(ws: holdfast.Workspace) -> None:
    """Nothing is left: whoever wants everything gets it at once."""
    assert ws.paths.list() == []
    assert ws.paths.release(ws.paths.lock("**").id) == 1
    report = ws.check()
    assert (report.problems, report.records["waiters"], report.records["leases"]) == ([], 0, 0)


@pytest.mark.timeout(600)
def test_a5_processes_that_lock_overlapping_patterns_never_hold_one_path_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, clock = tmp_path / "store", tmp_path / "clock"
    with (
        holdfast.open(store, actor="judge", clock=ManualClock(clock), busy_timeout=LONG) as ws,
        racers(store, clock) as crowd,
    ):
        for racer in crowd:
            racer.tell("go", NEVER)
        lines = [
            line for heard in [start(partial(racer.hear, "end")) for racer in crowd] for line in heard.result(LONG)
        ]
        said, happened = told(lines), check_grants(ws, lines)
        locks, most = replay(events(ws))
        assert said["got"] == locks == happened["acquire"] == happened["release"]
        assert said["got"] + said["refused"] == PROCESSES * TURNS
        assert (said["lost"], happened["expire"]) == (0, 0)
        assert min(said["refused"], happened["wait"]) > 0, "there was hardly a race"
        assert most > 1, "nothing was ever held at the same time: the race proves little"
        check_free(ws)
    with capsys.disabled():
        print(
            f"\npath race: {PROCESSES} processes x {TURNS} turns, {locks} locks, {said['refused']} refused,"
            f" {happened['wait']} waits in line, at most {most} locks at once, 0 conflicts"
        )


@pytest.mark.timeout(600)
def test_a5_what_killed_processes_had_locked_is_free_when_its_time_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, clock = tmp_path / "store", tmp_path / "clock"
    time = ManualClock(clock)
    with holdfast.open(store, actor="judge", clock=time, busy_timeout=LONG) as ws, racers(store, clock) as crowd:
        lines = race_and_kill(ws, time, crowd)
        time.advance(TTL + 1)
        assert ws.paths.lock("nowhere").holder == "judge"  # a write, which sweeps
        assert ws.paths.release() == 1
        said, happened = told(lines), check_grants(ws, lines)
        log = events(ws)
        locks, most = replay(log)
        kept = {event.id for event in log if event.op == "acquire" and event.data["reason"][1] == KEPT}
        expired = {event.id for event in log if event.op == "expire"}
        assert len(kept) == len(STAYERS)
        assert kept <= expired, "what was never released has expired"
        assert {event.actor for event in log if event.op == "expire"} == {"system"}
        assert locks == happened["release"] + happened["expire"]
        assert said["lost"] <= happened["expire"] - len(kept)
        check_free(ws)
    with capsys.disabled():
        print(
            f"\npath race with kill -9: {PROCESSES} processes x {TURNS} turns, {len(STAYERS) + len(STRUCK)} killed,"
            f" {locks} locks, {happened['expire']} expired, {said['lost']} of them under a living holder,"
            f" {said['refused']} refused, {happened['wait']} waits in line, at most {most} locks at once, 0 conflicts"
        )


def race_and_kill(ws: holdfast.Workspace, time: ManualClock, crowd: Sequence[Racer]) -> list[list[str]]:
    """All at once; after each kill so much time passes that what the dead one held, and all others hold, expires."""
    agents = {f"agent-{racer.number}": racer for racer in crowd}
    moments = {moment: crowd[number] for number, moment in STRUCK.items()}
    with ws.watch(["path"], after=ws.revision) as watch:
        for racer in crowd:
            racer.tell("go", STAYERS.get(racer.number, NEVER))
        hearing = [start(partial(racer.hear, "end")) for racer in crowd]
        grants = (event for event in watch if event.op == "acquire")
        killed: set[int] = set()
        for count, event in enumerate(grants, start=1):
            stays = event.data["reason"][1] == KEPT
            victim = agents[event.data["holder"][1]] if stays else moments.get(count)
            if victim is not None:
                victim.kill()
                killed.add(victim.number)
                time.advance(TTL + 1)
            if killed == {*STAYERS, *STRUCK}:
                break
        return [line for heard in hearing for line in heard.result(LONG)]


if __name__ == "__main__":
    main()
