"""Continue mode after kill -9 (P7): whoever comes next is told the right phase and what it has, and goes on to the end.

`python -m tests.e2e.test_cycle_resume FOLDER PLACE NUMBER` goes on with the cycle, or starts it, until it comes to a
failpoint for the NUMBER-th time, where it kills itself. With `endless PHASE` for a place it goes on to that phase and
updates it without end, one line `ack COUNT` for each, until it is killed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.kernel import failpoints
from holdfast.testing.crowd import LONG
from holdfast.types.cycles import PhaseName, Resumption
from tests.e2e.claim_worker import ROOT, say
from tests.e2e.task_kill_worker import Strike

SPEC = "killed"
KEY = f"peer:spec:{SPEC}:cycle:1"
PHASES: tuple[PhaseName, ...] = ("plan", "execute", "express", "review")
PARTS = 2  # updates of a phase
STEPS = 2 + len(PHASES) * (PARTS + 2)
MOST = 100_000  # updates of one that is never killed
ENDLESS = "endless"
State = tuple[str | None, bool, Any]


# --- in the process --------------------------------------------------------------------------------------------------


def resumed(ws: holdfast.Workspace) -> Resumption:
    """Where to go on; the cycle is started if there is none."""
    try:
        return ws.cycles.resume(spec=SPEC)
    except errors.NotFound:
        ws.cycles.start(spec=SPEC)
        return ws.cycles.resume(spec=SPEC)


def go_on(ws: holdfast.Workspace, until: str | None = None) -> None:
    """Step by step to the end, or until a phase is in progress, knowing nothing but what `resume` says."""
    while (found := resumed(ws)).phase is not None:
        key, sequence, phase = found.cycle.cycle_id, found.cycle.sequence, found.phase
        have = len(found.partial or {})
        if not found.started:
            ws.cycles.start_phase(key, phase, sequence=sequence)
        elif phase == until:
            return
        elif have < PARTS:
            ws.cycles.update_phase(key, phase, {f"part-{have}": phase}, sequence=sequence)
        else:
            ws.cycles.complete_phase(key, phase, sequence=sequence)
    ws.cycles.finish(found.cycle.cycle_id, sequence=found.cycle.sequence)


def update_endlessly(ws: holdfast.Workspace, phase: Any) -> None:
    """Until somebody kills this process."""
    go_on(ws, until=phase)
    for count in range(1, MOST):
        ws.cycles.update_phase(KEY, phase, {"count": count, "part-0": phase})
        say("ack", count)


def main() -> None:
    folder, place, number = sys.argv[1:]
    with holdfast.open(folder, actor="worker") as ws:
        if place == ENDLESS:
            update_endlessly(ws, number)
        else:
            failpoints.hook = Strike(place, int(number))
            go_on(ws)


# --- in the parent ---------------------------------------------------------------------------------------------------


def expected(steps: int) -> State:
    """What `resume` must say after so many steps, from 1 on to the last but one."""
    place, within = divmod(steps - 1, PARTS + 2)
    if place == len(PHASES):
        return None, False, None
    partial = {f"part-{number}": PHASES[place] for number in range(within - 1)}
    return PHASES[place], within > 0, partial or None


def state(ws: holdfast.Workspace) -> State:
    """What it says."""
    found = ws.cycles.resume(spec=SPEC)
    return found.phase, found.started, found.partial


def command(folder: Path, *words: object) -> list[str]:
    """How to run a worker."""
    return [sys.executable, "-m", "tests.e2e.test_cycle_resume", str(folder), *map(str, words)]


def assert_whole(ws: holdfast.Workspace) -> None:
    """A cycle at its end, with every step once."""
    cycle = ws.cycles.get(KEY)
    assert (cycle.metadata.status, cycle.sequence) == ("completed", STEPS)
    for phase in PHASES:
        assert getattr(cycle.phases, phase).output == {f"part-{number}": phase for number in range(PARTS)}
    told = [(entry.phase, entry.event) for entry in cycle.history]
    assert told == [*((p, event) for p in PHASES for event in ("started", "completed")), ("review", "finished")]
    assert [event.version for event in ws.events.list(kinds=["cycle"], limit=1000)] == list(range(1, STEPS + 1))
    assert ws.check().problems == []
    with pytest.raises(errors.CycleCompleted):
        ws.cycles.resume(spec=SPEC)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("place", "number"), [("batch.commit", 2), ("batch.committed", 1)])
def test_p7_a_cycle_whose_agents_are_killed_after_every_step_is_resumed_where_it_stands(
    tmp_path: Path, place: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each process takes one step and dies: before the commit of the next, or when its own is durable and not told."""
    kills = 0
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        for step in range(1, STEPS + 1):
            code = subprocess.run(command(tmp_path / "store", place, number), cwd=ROOT, timeout=LONG).returncode
            kills += code == -9
            assert code == (0 if step == STEPS and number == 2 else -9)
            assert ws.cycles.get(KEY).sequence == step
            if step < STEPS:
                assert state(ws) == expected(step)
            assert ws.cycles.validate(ws.cycles.export(KEY)) == []
        assert_whole(ws)
    with capsys.disabled():
        print(f"\nkilled at {place}: {kills} processes for {STEPS} steps of a cycle, each resumed where it stood")


@pytest.mark.timeout(900)
def test_p7_a_phase_that_is_killed_while_it_writes_is_resumed_with_its_newest_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = []
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        for phase in PHASES:
            last = 0
            with subprocess.Popen(
                command(tmp_path / "store", ENDLESS, phase), stdout=subprocess.PIPE, cwd=ROOT
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:  # also what it said before it died
                    last = int(line.split()[1])
                    if last == 3 + 4 * PHASES.index(phase):
                        process.kill()
            assert process.returncode == -9
            found = ws.cycles.resume(spec=SPEC)
            assert (found.cycle.cycle_id, found.phase, found.started) == (KEY, phase, True)
            assert found.partial["count"] in (last, last + 1), "what was acknowledged is there"
            assert found.partial["part-0"] == phase
            counts.append(found.partial["count"])
            assert ws.cycles.validate(ws.cycles.export(KEY)) == []
            assert ws.check().problems == []
        go_on(ws)
        cycle = ws.cycles.get(KEY)
        assert cycle.metadata.status == "completed"
        assert [getattr(cycle.phases, phase).output["count"] for phase in PHASES] == counts
    with capsys.disabled():
        print(f"\nkilled while writing: the four phases had {counts} updates, of which none that was told is lost")


if __name__ == "__main__":
    main()
