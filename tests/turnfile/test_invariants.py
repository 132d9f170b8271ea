"""The invariants of the shared files (F10, R4), one by one, each with its line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.turnfile import invariants as invariants
from holdfast.turnfile.mailbox import parse, projection
from holdfast.turnfile.model import Problem
from tests.turnfile.mailboxes import BOLD, DIALECTS, EMPTY, MIXED, QUESTIONS, TABLE, WORKLOG


def check(text: str, name: str = "MAILBOX.md") -> list[Problem]:
    return invariants.check({name: text})


def line_of(text: str, piece: str) -> int:
    """The number of the first line that holds a piece."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if piece in line)


@pytest.mark.parametrize("name", DIALECTS)
def test_f10_a_coherent_mailbox_has_no_problem(name: str) -> None:
    assert check(DIALECTS[name]) == []
    assert check(DIALECTS[name].replace("\n", "\r\n")) == []


BAD: list[tuple[str, str, str, str, str]] = [
    # rule, text, what is replaced, by what, what stands in the line complained about
    ("unread-count", BOLD, "| 1      |", "| 2      |", "| Bob "),
    ("unread-count", BOLD, "| 1      |", "| one    |", "| Bob "),
    ("oldest-unread", BOLD, "| MSG-20260302-001 | first", "| MSG-20260302-002 | first", "| Bob "),
    ("oldest-unread", BOLD, "| Ada        | 0      | none ", "| Ada        | 0      | MSG-20260302-002 ", "| Ada "),
    (
        "snapshot-missing",
        BOLD,
        "| Bob        | 1      | MSG-20260302-001 | first turn |\n",
        "",
        "### MSG-20260302-001\n",
    ),
    ("snapshot-twice", BOLD, "| Maintainer |", "| ada |", "| ada "),
    (
        "queue-missing",
        BOLD,
        "| MSG-20260302-002 | Bob -> Ada | P2 | Pipes \\| and such |\n",
        "",
        "### MSG-20260302-002",
    ),
    ("queue-orphan", BOLD, "| MSG-20260302-001 | Ada -> Bob", "| MSG-20260302-003 | Ada -> Bob", "| MSG-20260302-003"),
    ("queue-terminal", BOLD, "**Status:** acknowledged", "**Status:** resolved", "| MSG-20260302-002 |"),
    (
        "queue-twice",
        BOLD,
        "| MSG-20260302-001 | Ada -> Bob | P1 | Read the plan |\n",
        "| MSG-20260302-001 | Ada -> Bob | P1 | Read the plan |\n| MSG-20260302-001 | x | P9 | again |\n",
        "P9",
    ),
    ("queue-status", TABLE, "| P0 | Unread |", "| P0 | blocked |", "| MSG-20260303-001 | 2026-03-03"),
    ("terminal-active", BOLD, "**Status:** acknowledged", "**Status:** closed", "**Status:** closed"),
    ("id-twice", BOLD, "### MSG-20260302-002", "### MSG-20260302-001", ""),
    ("id-order", BOLD, "### MSG-20260302-002", "### MSG-20260301-007", "### MSG-20260302-001\n"),
    ("id-form", BOLD, "### MSG-20260302-002", "### MSG-2026-2", "### MSG-2026-2"),
    ("id-closed", BOLD, "| MSG-20260301-001 |", "| MSG-20260302-001 |", "### MSG-20260302-001\n"),
    ("status-unknown", BOLD, "**Status:** unread", "**Status:** pondering", "pondering"),
    ("card-field", BOLD, "**Status:** unread\n", "", "### MSG-20260302-001\n"),
    ("card-field", BOLD, "**From:** Ada -> Bob", "**From:** Ada", "### MSG-20260302-001\n"),
    ("field-twice", MIXED, "**Status:** unread", "**Status:** actioned", "**Status:** actioned"),
    ("closed-twice", BOLD, "agreed |\n", "agreed |\n| MSG-20260301-001 | d | a -> b | closed | twice |\n", "twice"),
    ("closed-field", BOLD, "| Ada -> Bob | closed |", "|  | closed |", "agreed"),
    ("closed-field", BOLD, " | closed | agreed |", " |", "| MSG-20260301-001 |"),
    ("dense", BOLD, "```text", "```dense", "```dense"),
]


@pytest.mark.parametrize(
    ("rule", "text", "old", "new", "where"), BAD, ids=[f"{bad[0]}-{n}" for n, bad in enumerate(BAD)]
)
def test_f10_each_breach_of_the_mailbox_is_found_with_its_line(
    rule: str, text: str, old: str, new: str, where: str
) -> None:
    assert old in text
    broken = text.replace(old, new, 1)
    found = [problem for problem in check(broken) if problem.rule == rule]
    assert found, check(broken)
    assert found[0].level == "error"
    assert found[0].file == "MAILBOX.md"
    if where:
        lines = (broken + "\n").splitlines(keepends=True)
        assert where in lines[found[0].line - 1]
    crlf = check(broken.replace("\n", "\r\n"))
    assert [(problem.line, problem.rule) for problem in crlf] == [
        (problem.line, problem.rule) for problem in check(broken)
    ]


@pytest.mark.parametrize(
    "line", ["**Retained:** why", "Retention rationale: why", "- Rationale: why", "**Rationale**: why"]
)
def test_f10_a_terminal_card_may_stay_with_a_line_that_says_why(line: str) -> None:
    queued = "| MSG-20260302-002 | Bob -> Ada | P2 | Pipes \\| and such |\n"
    closed = BOLD.replace(queued, "").replace("**Status:** acknowledged", "**Status:** closed")
    assert [problem.rule for problem in check(closed)] == ["terminal-active"]
    assert check(closed.replace("**Note:** this is text.", line)) == []
    assert [problem.rule for problem in check(closed.replace("**Note:** this is text.", "**Retained:**"))] != []


def test_f10_an_empty_mailbox_with_closed_rows_is_in_order_under_either_heading() -> None:
    row = "| MSG-20260301-001 | 2026-03-01 | Ada -> Bob | closed | agreed |\n"
    for heading in ("## Closed Summary", "## Closed Summary (Newest First)"):
        text = EMPTY.replace("## Closed Summary", heading) + row
        assert check(text) == []
        assert [one["id"] for one in projection.project(parse(text))["closed_summary"]] == ["MSG-20260301-001"]


def test_f10_an_order_that_no_heading_promises_is_only_warned_about() -> None:
    mixed = BOLD.replace("(Newest First)", "").replace("### MSG-20260302-002", "### MSG-20260301-007")
    mixed = mixed.replace("| MSG-20260302-002 |", "| MSG-20260301-007 |")
    assert check(mixed) == []  # oldest first
    third = "---\n\n### MSG-20260301-003\n\n**From:** Ada -> Bob\n**Status:** closed\n**Retained:** why\n\n## Closed"
    head, _, tail = mixed.rpartition("## Closed")
    found = check(head + third + tail)
    assert [(problem.level, problem.rule) for problem in found] == [("warning", "id-order")]


def test_f10_a_dense_block_with_a_paraphrase_is_fine() -> None:
    assert check(BOLD.replace("```text", "Paraphrase: all is well.\n\n```dense")) == []


def test_f10_a_fence_that_is_never_closed_is_a_warning_and_hides_nothing() -> None:
    text = BOLD.replace("The end.", "~~~\nThe end.")
    assert [(problem.level, problem.rule, problem.line) for problem in check(text)] == [
        ("warning", "fence-open", line_of(text, "~~~"))
    ]


def test_f10_a_new_id_is_above_all_of_its_day_and_no_open_message_is_lost() -> None:
    assert invariants.check({"MAILBOX.md": BOLD}, {"MAILBOX.md": BOLD}) == []
    lost = ["message-lost"]  # a fence in the old text mentions 009, which is no message
    for id, rules in (("MSG-20260302-000", [*lost, "id-reused", "id-order"]), ("MSG-20260302-003", lost)):
        other = BOLD.replace("### MSG-20260302-002", f"### {id}").replace("| MSG-20260302-002 |", f"| {id} |")
        assert [p.rule for p in invariants.check({"MAILBOX.md": other}, {"MAILBOX.md": BOLD})] == rules
    shorter = BOLD.replace("| MSG-20260301-001 | 2026-03-01 | Ada -> Bob | closed | agreed |\n", "")
    assert invariants.check({"MAILBOX.md": shorter}, {"MAILBOX.md": BOLD}) == []  # what is closed may be archived


def test_f12_a_stale_projection_fails_the_check_and_a_fresh_one_does_not() -> None:
    fresh = projection.render(BOLD, "working-session/MAILBOX.md", "2026-03-04T00:00:00Z")
    assert invariants.check({"ws/MAILBOX.md": BOLD, "ws/MAILBOX.json": fresh}) == []
    changed = BOLD.replace("Please read", "Please write")
    (problem,) = invariants.check({"ws/MAILBOX.md": changed, "ws/MAILBOX.json": fresh})
    assert (problem.file, problem.rule, problem.level) == ("ws/MAILBOX.json", "projection-stale", "error")


LEDGER = """\
turnfile:
  version: "0.1"
coordination:
  revision: {revision}
locks:
  LOCK-ada-001:
    files: ["working-session/MAILBOX.md"]
    holder: "ada"
    acquired_rev: 7
    lease_revs: 2
    reason: "x"
"""


def test_f10_a_stale_lock_that_nobody_cleared_fails_the_check_from_revision_ten_on() -> None:
    assert check(LEDGER.format(revision=9), "TURNFILE.yaml") == []
    (problem,) = check(LEDGER.format(revision=10), "TURNFILE.yaml")
    assert (problem.rule, problem.level, problem.line) == ("lock-stale", "error", 6)
    (problem,) = check("a: 1\na: 2\n", "TURNFILE.yaml")
    assert (problem.rule, problem.level, problem.line) == ("unreadable", "error", 2)
    assert "line 2" not in problem.message  # the problem names it already


def test_f10_a_coherent_worklog_and_its_questions_have_no_problem() -> None:
    assert check(WORKLOG, "WORKLOG.md") == []
    assert check(QUESTIONS, "OPEN_QUESTIONS.md") == []
    assert check("", "WORKLOG.md") == []
    assert check("", "OPEN_QUESTIONS.md") == []


@pytest.mark.parametrize(
    ("rule", "old", "new", "where"),
    [
        ("status-twice", "Maintainer Focus: the harbour", "Now Working (Ada): two things", "Now Working (Ada)"),
        ("status-empty", "Maintainer Focus: the harbour", "Maintainer Focus:", "Maintainer Focus"),
        ("status-stale", "Now Working (bob): the plan", "Now Working (bob): idle", "Now Working (bob)"),
    ],
)
def test_f10_each_breach_of_the_worklog_is_found_with_its_line(rule: str, old: str, new: str, where: str) -> None:
    text = WORKLOG.replace(old, new, 1)
    (problem,) = check(text, "WORKLOG.md")
    assert (problem.rule, problem.level, problem.line) == (rule, "error", line_of(text, where))


def test_f10_a_worklog_without_a_status_block_or_with_a_lost_section_is_warned_about() -> None:
    bare = WORKLOG[WORKLOG.index("## Session 2") :]
    assert [(p.rule, p.level) for p in check(bare, "WORKLOG.md")] == [("status-block", "warning")]
    gone = WORKLOG.replace("Now Working (ada): idle\n", "")
    (problem,) = check(gone, "WORKLOG.md")
    assert (problem.rule, problem.level, problem.line) == ("status-missing", "warning", line_of(gone, "### Ada"))
    lost = WORKLOG.replace("| Session 1 |", "| Session 9 |")
    (problem,) = check(lost, "WORKLOG.md")
    assert (problem.rule, problem.level, problem.line) == ("decision-section", "warning", line_of(lost, "Session 9"))


@pytest.mark.parametrize(
    ("rule", "old", "new", "where"),
    [
        ("question-twice", "OQ-D01", "OQ-001", "Which ship"),
        ("question-id", "| OQ-D01 |", "| |", "Which ship"),
        ("question-state", "| active | none |", "| Resolved. | none |", "OQ-001"),
        ("question-state", "| active | none |", "| deferred | none |", "OQ-001"),
        ("question-open", "| the near one |", "| none |", "OQ-R01"),
        ("question-open", "| the near one |", "|  |", "OQ-R01"),
        ("question-resolved", "| active | none |", "|  | the far one |", "OQ-001"),
        ("question-resolved", "| active | none |", "| open | the far one |", "OQ-001"),
    ],
)
def test_f10_each_breach_of_the_questions_is_found_with_its_line(rule: str, old: str, new: str, where: str) -> None:
    text = QUESTIONS.replace(old, new, 1)
    (problem,) = check(text, "OPEN_QUESTIONS.md")
    assert (problem.rule, problem.level, problem.line) == (rule, "error", line_of(text, where))


def test_f10_a_question_with_an_unknown_status_is_warned_about() -> None:
    (problem,) = check(QUESTIONS.replace("| active | none |", "| pondered | none |"), "OPEN_QUESTIONS.md")
    assert (problem.level, problem.rule) == ("warning", "question-status")


def test_f10_files_that_have_no_invariants_are_not_looked_at() -> None:
    assert invariants.check({"docs/README.md": "### MSG-20260302-001\n", "other.md": "x"}) == []


def test_the_pure_modules_start_without_yaml_database_or_kernel() -> None:
    names = ("mailbox.steps", "mailbox.projection", "invariants", "worklog", "skeleton")
    code = "import sys; import " + ", ".join(f"holdfast.turnfile.{name}" for name in names)
    code += "; print(*(name for name in sys.modules if name.split('.')[0] in ('ruamel', 'apsw')"
    code += " or name.startswith(('holdfast.kernel', 'holdfast.workspace', 'holdfast.domains'))))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
