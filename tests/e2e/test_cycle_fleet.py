"""Four phase agents and a coordinator as processes on one store (P10): no update is lost, no invalid document is seen.

`python -m tests.e2e.test_cycle_fleet ROLE` is one of them; ROLE is a phase, `coordinator` or `observer`. It reads
`open FOLDER CYCLES SEED` from stdin, says `ready`, begins at `go`, and says at its end what it has done: `wrote KEY
COUNT` for each cycle, `error KEY TEXT` for each error that it noted, `refused COUNT`, `seen COUNT`, then `end`. Agents
watch for their turn and write with the sequence that they have read, which is often an old one: then they are merged,
skipped, or refused and read again. Pauses are reads and waits on a watch, as many as chance says. The full number:

    CYCLE_FLEET=500 python -m pytest -p no:randomly tests/e2e/test_cycle_fleet.py
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.domains.cycles import rules
from holdfast.testing.crowd import LONG, start
from holdfast.types.cycles import Cycle, PhaseName
from tests.e2e.claim_worker import ROOT, Fighter, say

CYCLES = int(os.environ.get("CYCLE_FLEET", "20"))
SEED = int(os.environ.get("CYCLE_SEED", "20260301"))
PHASES: tuple[PhaseName, ...] = ("plan", "execute", "express", "review")
ROLES = (*PHASES, "coordinator", "observer")
OVER = ("fleet", "over")
ATTEMPTS = 100  # of one write; nobody has so many rivals


# --- in the process --------------------------------------------------------------------------------------------------


class Worker:
    """What the processes have in common: pausing, and writing with the sequence that was read."""

    def __init__(self, ws: holdfast.Workspace, role: str, cycles: int, chance: random.Random) -> None:
        self.ws, self.role, self.cycles, self.chance = ws, role, cycles, chance
        self.wrote: Counter[str] = Counter()
        self.refused = 0

    def pause(self, key: str) -> None:
        """Some reads, or a wait for whatever happens next."""
        if self.chance.random() < 0.2:
            with self.ws.watch(["cycle"], id=key, timeout=self.chance.random() * 0.004) as watch:
                next(watch, None)
        for _ in range(self.chance.randrange(6)):
            self.ws.cycles.get(key)

    def write(
        self, key: str, sequence: int, step: Callable[..., Cycle], wanted: Callable[[Cycle], bool] = lambda _: True
    ) -> Cycle:
        """Take a step with the sequence that was read; if refused, read again, and stop if it is not wanted now."""
        for _ in range(ATTEMPTS):
            try:
                cycle = step(sequence=sequence)
            except errors.CycleConflict:
                self.refused += 1
                cycle = self.ws.cycles.get(key)
                if not wanted(cycle):
                    return cycle
                sequence = cycle.sequence
            else:
                self.wrote[key] += 1
                return cycle
        raise AssertionError(f"{self.role}: {ATTEMPTS} attempts to write to {key}")

    def tell(self) -> None:
        """Say what was done."""
        for key, count in self.wrote.items():
            say("wrote", key, count)
        say("refused", self.refused)


class Agent(Worker):
    """Waits for its phase's turn in each cycle, and works on it."""

    def run(self) -> None:
        """One cycle after the other."""
        place = ROLES.index(self.role)
        done, early = 0, dict[str, int]()
        with self.ws.watch(["cycle"], after=0, timeout=LONG * 10) as watch:
            for event in watch:
                document = event.data["document"]
                statuses = [document["phases"][phase]["status"] for phase in PHASES]
                early.setdefault(event.id, event.version)
                if statuses[place] == "pending" and statuses[:place] == ["completed"] * place:
                    stale = early[event.id] if self.chance.random() < 0.6 else event.version
                    if self.wrote[event.id] == 0:  # a later event of before its turn began
                        self.work(event.id, stale)
                        done += 1
                if done == self.cycles:
                    return
        raise AssertionError(f"{self.role} had a turn in {done} of {self.cycles} cycles")

    def work(self, key: str, stale: int) -> None:
        """Start, update, complete; now and then complete again, as one does who got no answer."""
        phase: Any = self.role
        self.pause(key)
        cycle = self.write(key, stale, partial(self.ws.cycles.start_phase, key, phase))
        for number in range(self.chance.randint(1, 4)):
            self.pause(key)
            step = partial(self.ws.cycles.update_phase, key, phase, {f"update-{number}": f"{self.role}-{number}"})
            cycle = self.write(key, cycle.sequence, step)
            say("update", key, f"update-{number}", f"{self.role}-{number}")
        self.pause(key)
        read = cycle.sequence
        cycle = self.write(key, read, partial(self.ws.cycles.complete_phase, key, phase))
        if self.chance.random() < 0.3:
            again = self.ws.cycles.complete_phase(key, phase, sequence=read)
            assert getattr(again.phases, phase) == getattr(cycle.phases, phase)


class Coordinator(Worker):
    """Starts cycles, notes errors of whatever is in progress, and ends each cycle after its review."""

    def run(self) -> None:
        """One cycle after the other."""
        for _ in range(self.cycles):
            key = self.ws.cycles.start(spec="fleet").cycle_id
            self.wrote[key] += 1
            self.follow(key)
        self.ws.cells.set(*OVER, True)

    def follow(self, key: str) -> None:
        """Until it is at its end."""
        with self.ws.watch(["cycle"], id=key, after=0, timeout=LONG * 10) as watch:
            for event in watch:
                phases = event.data["document"]["phases"]
                if phases["review"]["status"] == "completed":
                    self.write(key, event.version, partial(self.ws.cycles.finish, key))
                    return
                going = [phase for phase in PHASES if phases[phase]["status"] == "in_progress"]
                if going and self.chance.random() < 0.4:
                    self.note(key, going[0], event.version)
        raise AssertionError(f"{key} never came to its end")

    def note(self, key: str, phase: PhaseName, sequence: int) -> None:
        """Note an error, if the phase still goes on when it is its turn."""
        self.pause(key)
        text, before = f"{key.rpartition(':')[2]}-{phase}-{sequence}", self.wrote[key]
        step = partial(self.ws.cycles.add_error, key, phase, text)
        self.write(key, sequence, step, lambda cycle: getattr(cycle.phases, phase).status == "in_progress")
        if self.wrote[key] > before:
            say("error", key, phase, text)


class Observer(Worker):
    """Reads every version that it hears of, and what is there then: all valid, each once, in order."""

    def run(self) -> None:
        """Until all is over."""
        last: Counter[str] = Counter()
        reads = 0
        with self.ws.watch(["cycle", "cell"], after=0, timeout=LONG * 10) as watch:
            for event in watch:
                if event.kind == "cell":
                    say("seen", sum(last.values()), reads)
                    return
                assert event.version == last[event.id] + 1, "a version was left out"
                last[event.id] = event.version
                assert rules.problems(event.data["document"]) == []
                assert self.ws.cycles.export(event.id, event.version) == event.data["document"]
                present = self.ws.cycles.export(event.id)
                assert self.ws.cycles.validate(present) == []
                assert present["sequence"] >= event.version
                reads += 2
        raise AssertionError("it was never over")


def main() -> None:
    (role,) = sys.argv[1:]
    _, folder, cycles, seed = sys.stdin.readline().split()
    kind: type[Any] = {"coordinator": Coordinator, "observer": Observer}.get(role, Agent)
    with holdfast.open(folder, actor=role, busy_timeout=LONG) as ws:
        worker = kind(ws, role, int(cycles), random.Random(f"{seed}-{role}"))
        say("ready")
        assert sys.stdin.readline() == "go\n"
        worker.run()
        worker.tell()
    say("end")


# --- in the parent ---------------------------------------------------------------------------------------------------


class Member(Fighter):
    """The parent's end of one such process."""

    def __init__(self, role: str) -> None:
        self.role = role
        command = [sys.executable, "-m", "tests.e2e.test_cycle_fleet", role]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


def run_fleet(folder: Path) -> dict[str, list[list[str]]]:
    """All of them, until it is over; answers what each has said."""
    with ExitStack() as stack:
        fleet = [stack.enter_context(Member(role)) for role in ROLES]
        for member in fleet:
            member.tell("open", folder, CYCLES, SEED)
        for member in fleet:
            assert member.hear("ready") == []
        for member in fleet:
            member.tell("go")
        listening = {member.role: start(partial(member.hear, "end")) for member in fleet}
        return {role: heard.result(LONG * 10) for role, heard in listening.items()}


def words(lines: list[list[str]], word: str) -> list[list[str]]:
    """The lines that begin with a word, without it."""
    return [rest for first, *rest in lines if first == word]


def events(ws: holdfast.Workspace, kind: str) -> list[holdfast.Event]:
    """All events of a kind."""
    found: list[holdfast.Event] = []
    cursor: int | str = 0
    while page := ws.events.list(kinds=[kind], after=cursor, limit=1000):
        found += page
        cursor = page[-1].cursor
    return found


@pytest.mark.timeout(1200)
def test_p10_four_agents_and_a_coordinator_lose_no_update_and_no_invalid_document_is_ever_visible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    with holdfast.open(folder, actor="judge", busy_timeout=LONG) as ws:
        said = run_fleet(folder)
        keys = [f"peer:spec:fleet:cycle:{number}" for number in range(1, CYCLES + 1)]
        wrote: Counter[str] = Counter()
        for lines in said.values():
            for key, count in words(lines, "wrote"):
                wrote[key] += int(count)
        written: dict[str, list[int]] = {key: [] for key in keys}
        for event in events(ws, "cycle"):
            written[event.id].append(event.version)
        updates: dict[tuple[str, str], dict[str, str]] = {}
        for phase in PHASES:
            for key, name, text in words(said[phase], "update"):
                updates.setdefault((key, phase), {})[name] = text
        noted = Counter((key, phase, text) for key, phase, text in words(said["coordinator"], "error"))
        for key in keys:
            cycle = ws.cycles.get(key)
            assert (cycle.metadata.status, cycle.sequence) == ("completed", wrote[key])
            assert written[key] == list(range(1, cycle.sequence + 1)), "a gap"
            assert len(cycle.history) == 9
            for phase in PHASES:
                found = getattr(cycle.phases, phase)
                assert found.output == updates[key, phase], "an update was lost"
                there = Counter((key, phase, str(error["message"])) for error in found.errors)
                assert there == Counter({each: n for each, n in noted.items() if each[:2] == (key, phase)})
        total = sum(wrote.values())
        ((seen, reads),) = words(said["observer"], "seen")
        assert int(seen) == total == sum(map(len, written.values()))
        outcomes = Counter(event.op for event in events(ws, "cycle-conflict"))
        refused = sum(int(count) for lines in said.values() for (count,) in words(lines, "refused"))
        assert outcomes["refuse"] == refused, "a conflict was not logged"
        assert ws.check().problems == []
    with capsys.disabled():
        print(
            f"\ncycle fleet: {CYCLES} cycles, 4 agents, a coordinator and an observer; {total} writes,"
            f" {sum(map(len, updates.values()))} updates and {sum(noted.values())} errors of which 0 lost; conflicts:"
            f" {outcomes['merge']} merged, {outcomes['skip']} skipped, {outcomes['refuse']} refused and written anew or"
            f" given up; {reads} documents read by the observer, 0 invalid"
        )
    assert CYCLES < 20 or all(outcomes[how] for how in ("merge", "skip", "refuse")), outcomes


if __name__ == "__main__":
    main()
