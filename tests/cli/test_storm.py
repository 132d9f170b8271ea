"""Shell loops that call `holdfast next` until nothing is ready (issue 7): each task is taken exactly once.

A few loops on few tasks here; CLI_STORM_TASKS=1000 CLI_STORM_LOOPS=16 is the long form.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import holdfast
from tests.cli.calling import HOLDFAST, Shell

TASKS: Final = int(os.environ.get("CLI_STORM_TASKS", "40"))
LOOPS: Final = int(os.environ.get("CLI_STORM_LOOPS", "8"))
TTL: Final = 1  # seconds that the claim of the loop that is killed outlives it
WAIT: Final = 3  # seconds after which a loop believes that nothing is ready: longer than that claim lives
BOUND: Final = 300 + 2 * TASKS

# Take, tell, finish, tell; the exit code of the last `next` is told at the end.
LOOP: Final = """
while id=$({holdfast} next -q --wait {wait}) || {{ code=$?; false; }}; do
    echo "took $id"
    {holdfast} done "$id" -q > /dev/null || echo "lost $id $?"
    echo "finished $id"
done
echo "ended $code"
"""
# Does the same with a short claim, but stops in the middle of its second task.
VICTIM: Final = """
id=$({holdfast} next -q --ttl 60) && echo "took $id" && {holdfast} done "$id" -q > /dev/null && echo "finished $id"
id=$({holdfast} next -q --ttl {ttl}) && echo "took $id"
exec sleep 1000
"""


def start(shell: Shell, script: str, actor: str) -> subprocess.Popen[str]:
    """A shell that runs a script as an actor."""
    call = " ".join(f"'{word}'" for word in HOLDFAST)
    return subprocess.Popen(
        ["bash", "-c", script.format(holdfast=call, wait=WAIT, ttl=TTL)],
        cwd=shell.folder,
        env=shell.environ | {"HOLDFAST_ACTOR": actor},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def stocked(shell: Shell) -> Shell:
    """A workspace with the tasks."""
    assert shell("init").code == 0
    for first in range(0, TASKS, 1000):
        tasks = [{"title": f"task {n}"} for n in range(first, min(first + 1000, TASKS))]
        assert shell("bulk", "create", "--tasks", "-", stdin=json.dumps(tasks)).code == 0
    return shell


def told(lines: list[str], word: str) -> list[str]:
    """What the loops said with a word."""
    return [line.split(" ", 1)[1] for line in lines if line.startswith(f"{word} ")]


@pytest.mark.timeout(BOUND + 300)
def test_every_task_is_taken_once_and_the_one_of_a_killed_loop_again(
    stocked: Shell, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = [start(stocked, LOOP, f"loop-{n}") for n in range(LOOPS - 1)]
    victim = start(stocked, VICTIM, "victim")
    try:
        assert victim.stdout is not None
        said = [victim.stdout.readline().strip() for _ in range(3)]
        os.killpg(victim.pid, signal.SIGKILL)
        victim.communicate(timeout=BOUND)
        ended = [process.communicate(timeout=BOUND) for process in running]
    finally:
        for process in (victim, *running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    lines = [line for out, _ in ended for line in out.splitlines()]
    errors = "".join(err for _, err in ended).replace("holdfast: nothing is ready\n", "").splitlines()
    assert [
        line for line in errors if not line.startswith("holdfast: claims expired, and their tasks are open again: ")
    ] == []
    assert told(lines, "ended") == ["4"] * (LOOPS - 1), "every loop ended because nothing was ready"
    assert told(lines, "lost") == []

    assert [line.split()[0] for line in said] == ["took", "finished", "took"]
    first, lost = said[0].split()[1], said[2].split()[1]
    taken, finished = Counter(told(lines, "took")), Counter(told(lines, "finished"))
    assert taken[first] == 0
    assert taken[lost] == 1, "the task of the killed loop was taken by another"
    assert len(taken) == TASKS - 1
    assert set(taken.values()) == {1}
    assert finished == taken

    claims, completions, expiries = history(project)
    assert len(claims) == TASKS
    assert {task: count for task, count in claims.items() if count != 1} == {lost: 2}
    assert set(completions.values()) == {1}
    assert completions.keys() == claims.keys()
    assert expiries == {lost: 1}

    zombie = stocked("done", lost, "--actor", "victim", "--json")
    assert (zombie.code, zombie.error["code"]) == (15, "FENCED")
    assert "your claim" in zombie.error["error"], "by the token that was remembered for it, not by its name alone"
    assert stocked("doctor", "--actor", "judge").code == 0
    share = Counter(line.split()[0] for line in holders(project).values())
    with capsys.disabled():
        print(f"\n{TASKS} tasks, {LOOPS} loops, one killed: each taken once, shares {sorted(share.values())}")


def history(project: Path) -> Iterator[Counter[str]]:
    """How often each task was claimed, completed and lost by expiry, from the event log."""
    with holdfast.open(project / ".holdfast", actor="judge") as workspace:
        events, after = list[holdfast.Event](), None
        while page := workspace.events.list(kinds=["task"], after=after, limit=1000):
            events += page
            after = page[-1].cursor
    for op in ("claim", "complete", "expire"):
        yield Counter(event.id for event in events if event.op == op)


def holders(project: Path) -> dict[str, str]:
    """Who completed each task."""
    with holdfast.open(project / ".holdfast", actor="judge") as workspace:
        found: dict[str, str] = {}
        after = None
        while page := workspace.events.list(kinds=["task"], after=after, limit=1000):
            found |= {event.id: event.actor for event in page if event.op == "complete"}
            after = page[-1].cursor
    return found
