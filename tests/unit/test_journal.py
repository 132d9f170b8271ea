"""Long programmes go on where they were interrupted: what passed for the same sources is not run again."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journal import SOURCES, Journal, run, state_of
from tests.long.__main__ import STEPS, Step, passed
from tests.teeth import __main__ as teeth
from tests.teeth.bug import Bug
from tests.teeth.bugs import BUGS

HOLDING = """
import fcntl, subprocess, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
subprocess.run(["sleep", "1000"], pass_fds=[lock.fileno()])
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "journal"


def test_a_second_start_knows_what_the_first_one_finished(path: Path) -> None:
    Journal(path, "state").add("one", verdict="caught")
    Journal(path, "state").add("two", verdict="SURVIVED")
    found = Journal(path, "state").finished
    assert {name: step["verdict"] for name, step in found.items()} == {"one": "caught", "two": "SURVIVED"}


def test_what_was_finished_for_other_sources_does_not_count(path: Path) -> None:
    Journal(path, "state").add("one")
    assert Journal(path, "other").finished == {}


def test_a_line_that_was_not_written_whole_is_left_out_and_harms_no_other(path: Path) -> None:
    Journal(path, "state").add("one")
    path.write_text(path.read_text() + '{"state": "state", "st')
    Journal(path, "state").add("two")
    assert list(Journal(path, "state").finished) == ["one", "two"]


def test_a_restart_forgets_everything(path: Path) -> None:
    journal = Journal(path, "state")
    journal.add("one")
    journal.restart()
    assert journal.finished == Journal(path, "state").finished == {}


def test_the_state_is_that_of_what_the_tests_run(tmp_path: Path) -> None:
    for name in SOURCES:
        (tmp_path / name).write_text("")
    first = state_of(tmp_path)
    (tmp_path / "README.md").write_text("another text")
    assert state_of(tmp_path) == first
    (tmp_path / "src").write_text("another line")
    assert state_of(tmp_path) != first


def test_a_command_that_takes_too_long_ends_with_its_children(tmp_path: Path) -> None:
    held = tmp_path / "held"
    with pytest.raises(subprocess.TimeoutExpired):
        run([sys.executable, "-c", HOLDING, str(held)], {}, 2, shown=False)
    with held.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits for whoever still has it


def test_a_bug_is_judged_once_unless_the_run_broke_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted: list[str] = []
    verdicts = {BUGS[0].name: "caught", BUGS[1].name: "SURVIVED", BUGS[2].name: "BROKE"}

    def plant(bug: Bug, catcher: str | None) -> tuple[str, str]:
        planted.append(bug.name)
        return verdicts[bug.name], "a test"

    monkeypatch.setattr(teeth, "plant", plant)
    for _ in range(2):
        journal = Journal(path, "state")
        assert [teeth.judged(bug, journal) for bug in BUGS[:3]] == ["caught", "SURVIVED", "BROKE"]
    assert planted == [BUGS[0].name, BUGS[1].name, BUGS[2].name, BUGS[2].name]


@pytest.mark.parametrize("still", [True, False])
def test_the_test_that_caught_a_bug_is_tried_before_the_others(still: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bug, runs = BUGS[0], list[str]()

    def judge(tests: tuple[str, ...], source: Path) -> tuple[str, str]:
        assert bug.bad in (source / "holdfast" / bug.file).read_text()
        runs.append(tests[0])
        return ("SURVIVED", "no test failed") if tests[0] == "known" and not still else ("caught", tests[0])

    monkeypatch.setattr(teeth, "judge", judge)
    assert teeth.plant(bug, "known") == ("caught", "known" if still else bug.tests[0])
    assert runs == (["known"] if still else ["known", bug.tests[0]])


def test_a_long_run_that_passed_is_not_run_again_and_one_that_failed_is(path: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    script = "import os, sys; open(sys.argv[1], 'a').write(os.environ['WORD']); sys.exit(int(sys.argv[2]))"
    good = Step("good", ("-c", script, str(runs), "0"), {"WORD": "g"})
    bad = Step("bad", ("-c", script, str(runs), "1"), {"WORD": "b"})
    for _ in range(2):
        assert [passed(step, Journal(path, "state")) for step in (good, bad)] == [True, False]
    assert runs.read_text() == "gbb"


def test_the_long_runs_have_different_names() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS) >= 8
