"""F13: the rules of TURNFILE.yaml, one by one, with lines."""

from __future__ import annotations

import pytest

from holdfast.errors import Invalid
from holdfast.turnfile.ledger import read
from holdfast.turnfile.ledger.rules import lint
from holdfast.turnfile.model import Problem
from tests.turnfile.ledgers import RISING, TIDY
from tests.turnfile.mailboxes import SAMPLES

LOCK = 'locks:\n  k:\n    files: ["MAILBOX.md"]\n    holder: "%s"\n    acquired_rev: %d\n    reason: "x"\n'


def rules(text: str) -> set[tuple[str, str]]:
    """Level and rule of all that is found."""
    return {(problem.level, problem.rule) for problem in lint(text)}


def test_f13_a_tidy_file_has_no_problem() -> None:
    assert lint(TIDY) == []


CASES = {
    "document marker": ("---\n" + TIDY, "error", "document-marker", "---"),
    "current task": (
        TIDY.replace('current_task: "glaze"', "current_task: kiln"),
        "error",
        "unknown-task",
        "task: kiln",
    ),
    "dependency": (TIDY.replace('["clay"]', "[mud]"), "error", "unknown-dependency", "[mud]"),
    "completed before claimed": (TIDY.replace("completed_rev: 5", "completed_rev: 1"), "error", "order", "d_rev: 1"),
    "claim of the future": (TIDY.replace("claim_rev: 6", "claim_rev: 8"), "error", "future-revision", "claim_rev: 8"),
    "completed in the future": (
        TIDY.replace("completed_rev: 5", "completed_rev: 9"),
        "error",
        "future-revision",
        "completed_rev: 9",
    ),
    "signal of the future": (
        TIDY.replace("rev: 5\n    detail", "rev: 8\n    detail"),
        "error",
        "future-revision",
        "SIG-002",
    ),
    "lock of the future": (TIDY.replace("locks: {}\n", LOCK % ("ada", 9)), "error", "future-revision", "acquired_rev"),
    "unknown holder": (TIDY.replace("locks: {}\n", LOCK % ("zoe", 7)), "error", "unknown-holder", "holder"),
    "unknown owner": (TIDY.replace('owner: "bob"', 'owner: "zoe"'), "error", "unknown-owner", '"zoe"'),
    "duplicate signal": (TIDY.replace("SIG-002", "SIG-001"), "error", "duplicate-signal", "SIG-001"),
    "signal id": (TIDY.replace("SIG-002", "S2"), "error", "schema", "S2"),
    "status": (TIDY.replace('status: "in_progress"', "status: busy"), "error", "unknown-status", "busy"),
    "status of another spelling": (TIDY.replace('status: "done"', "status: Done"), "error", "unknown-word", "Done"),
    "older status": (TIDY.replace('status: "in_progress"', "status: not_started"), "warning", "unknown-word", "not_st"),
    "role": (TIDY.replace('role: "agent"', "role: boss", 1), "error", "unknown-word", "boss"),
    "missing section": (TIDY.replace("turn_queue: []\n", ""), "error", "schema", "# TURNFILE"),
    "empty signal": (TIDY.replace("messages:\n", "messages:\n  - {}\n"), "error", "schema", "  - {}"),
    "unknown key": (TIDY.replace("locks: {}", "colour: red\nlocks: {}"), "warning", "unknown-key", "colour"),
    "unknown field": (TIDY.replace('  id: "mia"', '  id: "mia"\n  mood: good'), "warning", "unknown-key", "mood"),
    "stale lock": (TIDY.replace("locks: {}\n", LOCK % ("ada", 4)), "warning", "lock-stale", "  k:"),
    "done without completed_rev": (
        TIDY.replace("completed_rev: 5", "completed_rev: null"),
        "warning",
        "no-completed-rev",
        "    clay:",
    ),
    "early claim": (TIDY.replace('status: "done"', 'status: "pending"'), "warning", "early-claim", "    glaze:"),
    "oldest signal first": (RISING, "warning", "signal-order", "SIG-002"),
    "header": (TIDY.replace("revision: 7\n# M", "revision: 6\n# M"), "warning", "header", "  revision: 7"),
    "too deep": (TIDY + "x-deep: " + "[" * 7 + "]" * 7 + "\n", "warning", "depth", "# TURNFILE"),
    "a tab": (TIDY.replace("  revision: 7", "\trevision: 7"), "error", "unreadable", "\trevision"),
    "two documents": (TIDY + "---\na: 1\n", "error", "unreadable", "---"),
    "a duplicate key": (TIDY + "locks: {}\n# end", "error", "unreadable", "locks: {}"),
}


@pytest.mark.parametrize(("text", "level", "rule", "words"), CASES.values(), ids=CASES.keys())
def test_f13_each_rule_finds_its_line(text: str, level: str, rule: str, words: str) -> None:
    found = [problem for problem in lint(text) if (problem.level, problem.rule) == (level, rule)]
    assert found, lint(text)
    lines = [number for number, line in enumerate(text.split("\n"), 1) if words in line]
    assert {problem.line for problem in found} <= set(lines), (found, lines)
    assert all(problem.file == "TURNFILE.yaml" for problem in found)


def test_f4_a_lock_at_its_last_revision_is_not_stale() -> None:
    assert rules(TIDY.replace("locks: {}\n", LOCK % ("ada", 5))) == set()


def test_f13_a_lock_without_a_reason_is_found_and_the_time_of_its_acquisition_is_known() -> None:
    lock = LOCK.replace('    reason: "x"\n', "") % ("ada", 5)
    assert rules(TIDY.replace("locks: {}\n", lock)) == {("error", "lock-reason")}
    timed = LOCK % ("ada", 5) + '    acquired_at: "2026-03-01T12:00:00Z"\n'
    assert rules(TIDY.replace("locks: {}\n", timed)) == set()


def test_f13_a_problem_reads_like_a_compilers() -> None:
    assert str(Problem("TURNFILE.yaml", 3, "error", "schema", "x is missing")) == (
        "TURNFILE.yaml:3: error: x is missing [schema]"
    )


@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples are not here")
def test_f13_real_files_have_no_errors() -> None:
    for path in SAMPLES.rglob("*TURNFILE.yaml"):
        assert [problem for problem in lint(path.read_text()) if problem.level == "error"] == []


def test_f13_a_part_of_a_ledger_is_linted_as_of_the_highest_revision_it_speaks_of() -> None:
    entry = '  {id}:\n    files: ["working-session/MAILBOX.md"]\n    holder: "{holder}"\n    acquired_rev: {rev}\n'
    entry += '    reason: "x"\n'
    part = (
        "# quoted\nlocks:\n" + entry.format(id="old", holder="ada", rev=4) + entry.format(id="new", holder="?", rev=9)
    )
    found = [(problem.line, problem.rule) for problem in lint(part) if "section" not in problem.message]
    assert found == [
        (1, "schema"),  # the revision
        (3, "lock-stale"),
        (5, "unknown-holder"),
        (10, "unknown-holder"),
    ]
    with pytest.raises(Invalid, match="revision is missing"):  # it is nothing to work with
        read(part)
