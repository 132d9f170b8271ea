"""`holdfast run --next` (issue 22): any program as a worker. It takes, renews, completes or releases, and goes on."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from tests.amounts import amount
from tests.cli.calling import HOLDFAST, Shell, ended
from tests.docs.generate import ROOT

Start = Callable[..., "subprocess.Popen[str]"]
NEXT = ("run", "--next", "--actor", "w")


@pytest.fixture
def made(shell: Shell) -> Shell:
    assert shell("init").code == 0
    return shell


def statuses(shell: Shell) -> list[str]:
    return [each["status"] for each in shell("list", "--all", "--json").data]


def test_i22_the_next_task_is_in_the_environment_and_ends_by_the_exit_code(made: Shell) -> None:
    none = made(*NEXT, "--", "true")
    assert (none.code, none.err) == (4, made("next", "--actor", "w").err)
    assert "nothing is ready: there are no tasks yet" in none.err
    assert made(*NEXT, "-q", "--", "true").err == ""
    assert made(*NEXT, "--tag", "x", "--loop", "--", "true").code == 4
    task = made("create", "paint it", "-q").id
    show = 'echo "$HOLDFAST_TASK|$HOLDFAST_TASK_TITLE|$HOLDFAST_ACTOR"; echo "$HOLDFAST_TASK_JSON"; exit 3'
    failed = made(*NEXT, "--", "sh", "-c", show)
    first, whole = failed.out.splitlines()
    assert (failed.code, first) == (3, f"{task}|paint it|w")
    assert json.loads(whole)["id"] == task
    assert statuses(made) == ["open"]
    assert made(*NEXT, "--", "true").code == 0
    assert statuses(made) == ["closed"]


def test_i22_a_command_finds_the_program_also_where_it_is_not_on_path(made: Shell) -> None:
    made("create", "one")
    words = ("run", "--next", "--actor", "a", "--", "sh", "-c", 'holdfast note "$HOLDFAST_TASK" "from inside"')
    ran = made.with_(PATH="/usr/bin:/bin")(*words)
    assert ran.code == 0, ran
    assert "from inside" in made("show", made("list", "--all", "-q").out.strip()).out


def test_i22_a_loop_takes_all_that_fits_and_ends(made: Shell, project: Path) -> None:
    for number in range(5):
        made("create", f"t{number}", "--tag", "red" if number % 2 else "blue")
    log = project / "log"
    loop = made(*NEXT, "--loop", "--tag", "blue", "--", "sh", "-c", f'echo "$HOLDFAST_TASK_TITLE" >> {log}')
    assert (loop.code, log.read_text().split()) == (0, ["t0", "t2", "t4"])
    assert Counter(statuses(made)) == {"closed": 3, "open": 2}


def test_i22_a_task_that_always_fails_is_blocked_and_does_not_stop_the_others(made: Shell, project: Path) -> None:
    bad = made("create", "bad", "--priority", "0", "-q").id
    made("create", "good")
    script = f'echo "$HOLDFAST_TASK_TITLE" >> {project / "log"}; [ "$HOLDFAST_TASK_TITLE" = good ]'
    loop = made(*NEXT, "--loop", "--", "sh", "-c", script)
    assert loop.code == 0
    assert loop.err.count(f"{bad} is ready again: the command ended with 1") == 2
    assert loop.err.count(f"{bad} is blocked: the command ended with 1, as the 2 times before") == 1
    assert (project / "log").read_text().split() == ["bad", "bad", "bad", "good"]
    shown = made("show", bad, "--json").data
    assert shown["status"] == "blocked"
    assert "ended with 1" in made("history", bad).out


def test_i22_what_the_command_ends_itself_is_left_as_it_is(made: Shell) -> None:
    made("create", "x")
    holdfast = shlex.join(HOLDFAST)
    done = made(*NEXT, "--", "sh", "-c", f'{holdfast} block "$HOLDFAST_TASK" "no paint"')
    assert done.code == 0, done
    assert statuses(made) == ["blocked"]


@pytest.mark.parametrize(
    "words",
    [("--task", "hf-1", "--next"), (), ("--task", "hf-1", "--loop"), ("--task", "hf-1", "--tag", "x")],
)
def test_i22_words_that_exclude_each_other_are_refused(made: Shell, words: tuple[str, ...]) -> None:
    assert made("run", *words, "--actor", "w", "--", "true").code == 2


def test_i22_the_hint_for_a_missing_command_keeps_what_was_given(made: Shell) -> None:
    assert "holdfast run --next --loop -- COMMAND;" in made(*NEXT, "--loop").err


def test_i22_a_loop_that_is_told_to_end_releases_its_task(made: Shell, started: Start) -> None:
    made("create", "x")
    run = started(*NEXT, "--loop", "--", "sh", "-c", "echo begun; exec sleep 300")
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    run.terminate()
    assert ended(run).code == 128 + signal.SIGTERM
    assert statuses(made) == ["open"]


@pytest.mark.parametrize("trap", ["", "trap 'exit 0' INT;", "trap 'exit 1' INT;"])
@pytest.mark.parametrize("whole", [False, True], ids=["run alone", "its group"])
def test_i22_ctrl_c_ends_the_loop_and_completes_nothing(made: Shell, started: Start, trap: str, whole: bool) -> None:
    made("create", "x")
    made("create", "y")
    script = f"{trap} echo begun; while :; do sleep 0.05; done"
    run = started(*NEXT, "--loop", "--", "bash", "-c", script)
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    if whole:
        os.killpg(run.pid, signal.SIGINT)
    else:
        run.send_signal(signal.SIGINT)
    assert ended(run).code == 128 + signal.SIGINT
    assert statuses(made) == ["open", "open"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_i22_a_second_signal_kills_a_command_that_will_not_end(made: Shell, started: Start, number: int) -> None:
    made("create", "x")
    script = "trap 'echo asked' INT TERM; echo begun; while :; do sleep 0.05; done"
    run = started(*NEXT, "--", "bash", "-c", script)
    assert run.stdout is not None
    for word in ("begun\n", "asked\n"):
        assert run.stdout.readline() == word
        run.send_signal(number)
    assert ended(run).code == 128 + number
    assert statuses(made) == ["open"]


WORKERS, TASKS, KILLS = 8, amount(60, 200), amount(8, 20)


@pytest.mark.early
def test_i22_killed_workers_and_commands_lose_no_task_and_complete_none_twice(
    made: Shell, started: Start, project: Path
) -> None:
    """8 workers, killed with -9 or their command is, in the middle of the work: one accepted completion each."""
    with holdfast.open(project / ".holdfast", actor="boss") as workspace:
        for number in range(TASKS):
            workspace.tasks.create(f"t{number}")
        script = 'echo $$; sleep 0.05; [ "$(od -An -N1 -tu1 /dev/urandom)" -gt 12 ]'  # some fail
        chance = random.Random(os.getpid())
        names = iter(range(10_000))
        running: list[subprocess.Popen[str]] = []

        def work() -> None:
            words = ("run", "--next", "--loop", "--wait", "3", "--ttl", "5", "--actor", f"w{next(names)}")
            running.append(started(*words, "--", "sh", "-c", script, stderr=subprocess.DEVNULL))

        for _ in range(WORKERS):
            work()
        kills = 0
        while kills < KILLS:
            victim = chance.choice(running)
            assert victim.stdout is not None
            pid = victim.stdout.readline().strip()  # its command has begun
            if not pid:  # it has ended, since nothing was ready
                running.remove(victim)
                work()
                continue
            with suppress(ProcessLookupError):
                os.kill(victim.pid if kills % 2 else int(pid), signal.SIGKILL)
            if kills % 2:
                running.remove(victim)
                work()
            kills += 1
        end = time.monotonic() + 300
        while any(task.status not in ("closed", "blocked") for task in workspace.tasks.list(limit=1000)):
            assert time.monotonic() < end, "tasks are left over"
            for worker in running[:]:
                if worker.poll() is not None:
                    running.remove(worker)
                    work()
            time.sleep(0.1)
        found = Counter(task.status for task in workspace.tasks.list(limit=1000))
        assert found["closed"] + found["blocked"] == TASKS
        completions = Counter(
            event.id for event in every(workspace) if event.kind == "task" and event.op in ("complete", "close")
        )
        assert set(completions.values()) == {1}
        assert len(completions) == found["closed"]
        print(f"\n{WORKERS} workers, {TASKS} tasks, {kills} kills: {len(completions)} completed once, others blocked")
        assert workspace.check().ok


def every(workspace: holdfast.Workspace) -> list[holdfast.Event]:
    """The whole log."""
    found: list[holdfast.Event] = []
    after = None
    while True:
        page = workspace.events.list(kinds=["task"], after=after, limit=1000)
        found += page
        if page.cursor is None:
            return found
        after = page.cursor


def test_i22_the_page_for_agents_runs_as_it_is_written(made: Shell, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    script = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "holdfast").write_text(f'#!/bin/sh\nexec {shlex.join(HOLDFAST)} "$@"\n')
    (programs / "holdfast").chmod(0o755)
    done = made.with_(PATH=f"{programs}:{os.environ['PATH']}").run(["bash", "-euo", "pipefail", "-c", script])
    assert done.code == 0, done
    assert re.search(r"hf-\w+: Write its tests", done.out), "one of the fleet took it"
    assert statuses(made) == ["closed"] * 3
    table = re.findall(r"^\| `holdfast (\w+)", text, re.MULTILINE)
    assert table == ["next", "note", "done", "path", "guard", "mail", "status", "resume"]
