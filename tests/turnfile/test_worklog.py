"""Entries in WORKLOG.md (F8) and what is read of it and of OPEN_QUESTIONS.md (F10)."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.turnfile.invariants import check
from holdfast.turnfile.model import Lock
from holdfast.turnfile.worklog import note_override, parse_questions, parse_worklog
from tests.turnfile.mailboxes import QUESTIONS, WORKLOG

LOCK = Lock("LOCK-ada-001", ("working-session/MAILBOX.md",), "ada", 7, 2, "x")


def test_f8_an_override_is_logged_at_the_end_of_the_latest_session_and_nothing_else_changes() -> None:
    text = note_override(WORKLOG, LOCK, 12, "sam", "P0: the harbour burns", "2026-03-04")
    entry = """
### Override of LOCK-ada-001 at revision 12

2026-03-04 — sam overrode the lock LOCK-ada-001 of ada (acquired_rev 7, lease_revs 2) on working-session/MAILBOX.md \
at revision 12.
Reason: P0: the harbour burns
"""
    assert text.replace(entry, "") == WORKLOG
    assert text.index("## Session 2") < text.index("### Override") < text.index("## Session 1")
    assert check({"WORKLOG.md": text}) == []
    again = note_override(text, LOCK, 13, "sam", "again")
    assert again.index("at revision 12") < again.index("at revision 13")
    crlf = note_override(WORKLOG.replace("\n", "\r\n"), LOCK, 12, "sam", "P0: the harbour burns", "2026-03-04")
    assert crlf == text.replace("\n", "\r\n")


@pytest.mark.parametrize("text", ["", "# Worklog", "# Worklog\n", "# Worklog\n\nNow Working (ada): idle\n"])
def test_f8_a_worklog_without_sessions_gets_a_section_for_overrides(text: str) -> None:
    once = note_override(text, LOCK, 12, "sam", "P0")
    assert once.startswith(text)
    assert "## Overrides\n\n### Override of LOCK-ada-001 at revision 12\n" in once
    twice = note_override(once, LOCK, 13, "sam", "P0")
    assert twice.startswith(once)
    assert twice.count("## Overrides") == 1


def test_f8_a_reason_is_one_line() -> None:
    for reason in ("", "a\n## Session 9"):
        with pytest.raises(errors.InvalidValue):
            note_override(WORKLOG, LOCK, 12, "sam", reason)


def test_the_latest_session_is_told_by_date_and_number_not_by_place() -> None:
    log = parse_worklog(WORKLOG)
    assert log.latest is not None
    assert log.latest.title == "Session 2 — 2026-03-02"
    assert [(entry.agent, entry.owner, entry.status) for entry in log.latest.entries] == [("Ada", "bob", "In progress")]
    numbered = parse_worklog("## Session 10\n\n### A: x\n\n## Session 9\n")
    assert numbered.latest is not None
    assert numbered.latest.title == "Session 10"


def test_f10_questions_are_read_with_the_columns_that_a_table_has() -> None:
    assert [(q.id, q.state, q.status, q.resolution) for q in parse_questions(QUESTIONS)] == [
        ("OQ-001", "active", "active", "none"),
        ("OQ-D01", "deferred", None, None),
        ("OQ-R01", "resolved", None, "the near one"),
    ]
