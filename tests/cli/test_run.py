"""Keeping a claim and waiting (issue 7): run, watch, and a next that waits, with real processes."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.cli.calling import Answer, Shell, ended

Cli = Callable[..., Answer]
Start = Callable[..., "subprocess.Popen[str]"]
LONG = "180"  # seconds that something may take before it is taken for lost


# --- run ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def task(shell: Shell, project: Path) -> str:
    assert shell("init").code == 0
    return shell("create", "x", "-q").id


def show(shell: Shell, task: str) -> Any:
    return shell("show", task, "--json").data


def test_run_has_the_exit_code_and_the_streams_of_its_command(shell: Shell, task: str) -> None:
    run = ("run", "--task", task, "--actor", "a", "--")
    answer = shell(*run, "sh", "-c", 'cat; echo "$HOLDFAST_TASK $HOLDFAST_ACTOR"; echo err >&2; exit 7', stdin="in\n")
    assert answer == (7, f"in\n{task} a\n", "err\n")
    assert shell(*run, "sh", "-c", "kill -TERM $$").code == 128 + signal.SIGTERM
    assert shell(*run, "true").code == 0
    assert show(shell, task)["claimed_by"] == "a"


def test_run_passes_options_behind_the_dashes_to_the_command(shell: Shell, task: str) -> None:
    assert (
        shell("run", "--task", task, "--actor", "a", "--", "echo", "--json", "-q", "--", "x").out == "--json -q -- x\n"
    )


def test_run_keeps_the_claim_alive_past_its_ttl(shell: Shell, task: str, started: Start, project: Path) -> None:
    wait = f"echo begun; while [ ! -e {shlex.quote(str(project / 'go'))} ]; do sleep 0.05; done"
    run = started("run", "--task", task, "--ttl", "1.5", "--actor", "a", "--", "bash", "-c", wait)
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    assert shell("next", "--wait", "4", "--actor", "b").code == 4, "it outlives its time twice"
    assert show(shell, task)["claimed_by"] == "a"
    (project / "go").touch()
    assert ended(run).code == 0


def test_run_ends_the_command_when_the_claim_is_lost(shell: Shell, task: str, started: Start, project: Path) -> None:
    script = "trap 'echo told to end; exit' TERM; echo begun $$; while :; do sleep 0.05; done"
    run = started("run", "--task", task, "--ttl", "6", "--actor", "a", "--", "bash", "-c", script)
    assert run.stdout is not None
    assert run.stdout.readline().startswith("begun")
    assert shell("release", task, "--force", "--actor", "boss").code == 0
    assert shell("claim", task, "--actor", "b").code == 0
    answer = ended(run)
    assert answer.code in (13, 15)
    assert answer.out == "told to end\n"
    assert show(shell, task)["claimed_by"] == "b"


def test_run_that_is_told_to_end_ends_its_command(shell: Shell, task: str, started: Start) -> None:
    script = "trap 'echo told to end; exit' TERM; echo begun $$; while :; do sleep 0.05; done"
    run = started("run", "--task", task, "--actor", "a", "--", "bash", "-c", script)
    assert run.stdout is not None
    assert run.stdout.readline().startswith("begun")
    run.terminate()
    answer = ended(run)  # its output is open until the command has ended too
    assert answer.out == "told to end\n", "else a command works on without a claim"
    assert answer.code != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_run_done_releases_what_a_signal_ended(shell: Shell, task: str, started: Start, number: int) -> None:
    script = "trap 'exit 0' TERM; echo begun $$; while :; do sleep 0.05; done"
    run = started("run", "--task", task, "--done", "--actor", "a", "--", "bash", "-c", script)
    assert run.stdout is not None
    assert run.stdout.readline().startswith("begun")
    run.send_signal(number)
    assert ended(run).code == 128 + number
    assert (show(shell, task)["status"], show(shell, task)["claimed_by"]) == ("open", None)


@pytest.mark.parametrize(("command", "status"), [("true", "closed"), ("false", "open"), ("/no/such/program", "open")])
def test_run_done_completes_what_succeeded_and_releases_what_failed(
    shell: Shell, task: str, command: str, status: str
) -> None:
    answer = shell("run", "--task", task, "--done", "--actor", "a", "--", command)
    assert (answer.code == 0) == (status == "closed")
    assert "Traceback" not in answer.err
    assert (show(shell, task)["status"], show(shell, task)["claimed_by"]) == (status, None)


def test_run_does_not_start_what_somebody_else_holds(shell: Shell, task: str, project: Path) -> None:
    shell("claim", task, "--actor", "b")
    assert shell("run", "--task", task, "--actor", "a", "--", "touch", "started").code == 12
    assert shell("run", "--task", "hf-0000", "--actor", "a", "--", "touch", "started").code == 10
    assert shell("run", "--task", task, "--actor", "a").code == 2
    assert not (project / "started").exists()


def test_run_goes_on_with_ones_own_claim(shell: Shell, task: str) -> None:
    shell("next", "--actor", "a", "--ttl", "600")
    assert shell("run", "--task", task, "--done", "--actor", "a", "--", "true").code == 0


@pytest.mark.parametrize("done", [(), ("--done",)])
def test_run_keeps_a_claim_from_before_when_its_command_cannot_start(
    shell: Shell, task: str, done: tuple[str, ...]
) -> None:
    shell("claim", task, "--actor", "a", "--ttl", "1h")
    until = datetime.fromisoformat(show(shell, task)["deadline"])
    answer = shell("run", "--task", task, *done, "--actor", "a", "--", "nosuchprogram")
    assert answer.code == 1
    assert "nosuchprogram could not be started" in answer.err
    assert f"a still holds task {task}" in answer.err
    after = show(shell, task)
    assert after["claimed_by"] == "a"
    assert abs(datetime.fromisoformat(after["deadline"]) - until) < timedelta(minutes=1), "nor is it shortened"
    shell("park", task, "--actor", "a")
    assert shell("run", "--task", task, *done, "--actor", "a", "--", "nosuchprogram").code == 1
    assert (show(shell, task)["claimed_by"], show(shell, task)["deadline"]) == ("a", None), "it is parked again"


def test_run_says_that_a_task_is_open_again_when_its_command_cannot_start(shell: Shell, task: str) -> None:
    answer = shell("run", "--task", task, "--actor", "a", "--", "nosuchprogram")
    assert answer.code == 1
    assert f"task {task} is open again" in answer.err
    assert (show(shell, task)["status"], show(shell, task)["claimed_by"]) == ("open", None)


def waiting(project: Path) -> str:
    """A command that says that it has begun, and ends well when it may."""
    return f"echo begun; while [ ! -e {shlex.quote(str(project / 'go'))} ]; do sleep 0.05; done"


def rename(project: Path, task: str) -> str:
    """Read the line of an older task with this id, as `next` does after a pull; returns the id that it has now."""
    line = {"format": "holdfast.shared/1", "id": task, "uid": "abcdefgh1234", "title": "older", "made": "5@abcd"}
    with holdfast.open(project / ".holdfast", actor="reader") as ws:
        lines = [json.dumps(line | {"created_at": "2001-01-01T00:00:00+00:00"})]
        return str(ws.tasks.merge_shared(lines).renamed[task])


@pytest.mark.parametrize("ttl", ["60", "1.5"])
def test_run_follows_a_task_that_gets_another_id(
    shell: Shell, task: str, started: Start, project: Path, ttl: str
) -> None:
    words = ("--done", "--ttl", ttl, "--actor", "a", "--", "bash", "-c", waiting(project))
    run = started("run", "--task", task, *words)
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    new = rename(project, task)
    if ttl == "1.5":
        assert shell("next", "--wait", "4", "--actor", "b", "-q").id == task, "the older one is free"
        assert show(shell, new)["claimed_by"] == "a", "the claim is renewed"
    (project / "go").touch()
    answer = ended(run)
    assert answer.code == 0, answer
    assert f"{task} is {new} now: an older task has its id" in answer.err
    assert (show(shell, new)["status"], show(shell, new)["title"]) == ("closed", "x")
    assert show(shell, task)["status"] == ("in_progress" if ttl == "1.5" else "open")


def test_the_commands_of_a_holder_follow_a_task_that_gets_another_id(shell: Shell, task: str, project: Path) -> None:
    a = ("--actor", "a")
    assert shell("claim", task, *a).code == 0
    new = rename(project, task)
    told = f"{task} is {new} now: an older task has its id"
    for words in (("note", task, "half of it"), ("heartbeat", task), ("note", new, "by its own")):
        answer = shell(*words, *a)
        assert (answer.code, told in answer.err) == (0, task in words), answer
    assert f"other gave it the id {new}" not in shell("history", new).out
    assert f"gave it the id {new}, because an older task has the id {task}" in shell("history", new).out
    assert "NOT" not in shell("guard", "src/x.py", *a).err
    assert shell("done", new, *a).code == 0
    assert shell("note", task, "on the older one", *a).code == 0, "the token of the claim is forgotten by both names"
    assert show(shell, task)["status"] == "open"


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        (("release", "--force", "--actor", "boss"), 15),
        (("close", "--force", "--actor", "boss"), 15),
        (("release", "--actor", "a"), 11),
        (("block", "no paint", "--actor", "a"), 11),
        (("done", "--actor", "a"), 0),
        (("close", "--actor", "a"), 0),
    ],
)
def test_run_done_ends_well_only_if_its_task_was_completed(
    shell: Shell, task: str, started: Start, project: Path, deed: tuple[str, ...], code: int
) -> None:
    run = started("run", "--task", task, "--done", "--actor", "a", "--", "bash", "-c", waiting(project))
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    assert shell(deed[0], task, *deed[1:]).code == 0
    (project / "go").touch()
    answer = ended(run)
    assert answer.code == code, answer
    assert bool(answer.err) == (code != 0)


# --- watch -------------------------------------------------------------------------------------------------------


def test_watch_is_woken_by_another_process(shell: Shell, started: Start, task: str) -> None:
    watch = started("watch", "--after", "0", "--json")
    assert watch.stdout is not None
    assert json.loads(watch.stdout.readline())["data"]["id"] == task, "it has caught up and waits"
    shell("cell", "set", "r", "c", "1", "--actor", "b")
    event = json.loads(watch.stdout.readline())["data"]
    assert (event["kind"], event["scope"], event["id"], event["actor"]) == ("cell", "r", "c", "b")


@pytest.mark.parametrize(
    ("thing", "line"),
    [
        ("task.{task}", "note {task} hello"),
        ("lock.deploy", "lock acquire deploy"),
        ("cell.r/c", "cell set r c 1"),
        ("cell.c", "cell set r c 1"),
    ],
)
def test_watch_for_one_thing_ends_with_its_first_event(
    shell: Shell, started: Start, task: str, thing: str, line: str
) -> None:
    after = str(show(shell, task)["revision"])
    watch = started("watch", "--for", thing.format(task=task), "--after", after, "--once", "--timeout", LONG, "--json")
    shell("create", "something else")
    shell("cell", "set", "other", "d", "1")
    shell("lock", "acquire", "other", "--actor", "b")
    assert shell(*line.format(task=task).split(), "--actor", "a").code == 0
    answer = ended(watch)
    assert answer.code == 0, answer.err
    assert answer.data["actor"] == "a"


def test_watch_tells_a_timeout_from_something(made: Cli) -> None:
    made("create", "x")
    assert made("watch", "--timeout", "0.05").code == 3
    assert made("watch", "--once", "--timeout", "0.05").code == 3
    assert made("watch", "--after", "0", "--timeout", "0.05").code == 0
    assert made("watch", "--after", "0", "--kind", "lock", "--timeout", "0.05").code == 3


@pytest.mark.parametrize("thing", ["task", "task.", "nonsense.x", ".x"])
def test_watch_for_what_is_nothing_is_a_mistake(made: Cli, thing: str) -> None:
    assert made("watch", "--for", thing, "--timeout", "1").code == 2


def test_watch_after_what_is_no_revision_is_a_mistake(made: Cli) -> None:
    assert made("watch", "--after", "yesterday", "--timeout", "0.05").code in (1, 2)


# --- next --wait -------------------------------------------------------------------------------------------------


def test_next_waits_and_is_woken_by_another_process(made: Cli, shell: Shell) -> None:
    create = shell.start("create", "late")  # starting takes it longer than us to wait
    answer = made("next", "--wait", LONG, "--actor", "a", "--json")
    assert ended(create).code == 0
    assert answer.data["title"] == "late"


def test_next_that_waits_takes_only_what_it_wants_and_then_says_so(made: Cli, shell: Shell) -> None:
    create = shell.start("create", "other", "--tag", "frontend")
    answer = made("next", "--tag", "backend", "--wait", "1.5", "--actor", "a")
    assert ended(create).code == 0
    assert (answer.code, answer.out) == (4, "")
    assert made("list", "--status", "open", "--json").data[0]["title"] == "other"


def test_next_takes_what_becomes_ready_when_another_is_done(made: Cli, shell: Shell) -> None:
    first, second = (made("create", f"task {n}", "-q").id for n in range(2))
    made("dep", "add", second, first)
    made("claim", first, "--actor", "a")
    done = shell.start("done", first, "--actor", "a")
    assert made("next", "--wait", LONG, "--actor", "b", "-q").id == second
    assert ended(done).code == 0
