"""F3, F11: what there is to say about a name or a file that may have been mistyped, as Python sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import turnfile
from holdfast.errors import Invalid, InvalidValue
from holdfast.turnfile import Session
from holdfast.turnfile.ledger.rules import REGISTRY
from holdfast.turnfile.mail import messages
from holdfast.turnfile.model import MAILBOX, WORKLOG, Problem
from tests.turnfile.sessions import new_session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return new_session(tmp_path, ("ada", "bob"))


def rules(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.rule for problem in problems]


def test_f3_a_transaction_tells_that_somebody_joined_once(session: Session) -> None:
    for expected in (["new-agent"], []):
        with turnfile.transaction([WORKLOG], "adda", "x", folder=session) as edit:
            edit.write(WORKLOG, (edit.read(WORKLOG) or "") + "- x\n")
        assert edit.completion is not None
        assert rules(edit.completion.warnings) == expected


def test_f3_an_edit_that_was_made_again_still_tells_who_joined(session: Session) -> None:
    ran: list[int] = []

    def body(edit: turnfile.Transaction) -> None:
        ran.append(1)
        if len(ran) == 1:
            Path(session.folder.path, WORKLOG).write_text("# Worklog\n\nsomebody was here\n")
        edit.write(WORKLOG, (edit.read(WORKLOG) or "") + "- x\n")

    done = turnfile.transact([WORKLOG], "adda", "x", body, folder=session)
    assert (len(ran), [rule for rule in rules(done.warnings) if rule == "new-agent"]) == (2, ["new-agent"])


def test_f3_who_needs_no_lock_joins_nothing_and_is_not_told(session: Session) -> None:
    with turnfile.transaction(["notes.md"], "adda", "x", folder=session) as edit:
        edit.write("notes.md", "x\n")
    assert edit.completion is not None
    assert (edit.completion.warnings, session.read().revision) == ((), 1)
    assert not session.read().turnfile.lists("adda")


def test_f3_a_ledger_that_lists_nobody_can_be_used(tmp_path: Path) -> None:
    session = new_session(tmp_path, ())
    claim = turnfile.lock_request(session, [WORKLOG], "ada", "x")
    [problem] = claim.warnings
    assert problem.message == "ada is new, and is added to the ledger; known: mia"
    assert turnfile.acquire(session, claim).holder == "ada"
    assert turnfile.lock_request(session, [WORKLOG], "ada", "x").warnings == ()


def test_f3_a_name_in_another_case_is_another_one_and_told(session: Session) -> None:
    [problem] = turnfile.lock_request(session, [WORKLOG], "ADA", "x").warnings
    assert "did you mean ada?" in problem.message


def test_f3_a_claim_tells_of_files_that_may_not_be_those_meant(session: Session) -> None:
    claim = turnfile.lock_request(session, [WORKLOG, "Mailbox.md", ".gitignore"], "ada", "x")
    assert rules(claim.warnings) == ["missing", "no-lock-needed"]
    assert "did you mean MAILBOX.md?" in claim.warnings[0].message
    with pytest.raises(Invalid, match="pattern"):
        turnfile.lock_request(session, ["*.md"], "ada", "x")


def test_f3_a_registry_given_in_python_comes_before_that_of_the_ledger(session: Session) -> None:
    file = Path(session.folder.path, "TURNFILE.yaml")
    file.write_text(file.read_text().replace("turnfile:\n", "turnfile:\n  x-registry: [plan.md]\n"))
    assert session.guarded(session.read()) == {MAILBOX, "plan.md"}
    assert Session(session.folder.path, registry=[WORKLOG]).guarded(session.read()) == {WORKLOG}
    file.write_text(file.read_text().replace("[plan.md]", "[]"))
    assert session.guarded(session.read()) == {MAILBOX}
    file.write_text(file.read_text().replace("x-registry: []", "x-registry: [plan.md, ../secrets.md]"))
    assert session.guarded(session.read()) == {"plan.md", *REGISTRY}


def test_f8_who_takes_a_lock_over_is_known_afterwards(session: Session) -> None:
    lock = turnfile.acquire(session, turnfile.lock_request(session, [WORKLOG], "ada", "x"))
    done = turnfile.override(session, lock.id, "P0: she is gone", "cyd", take=True)
    assert rules(done.problems) == ["new-agent"]
    assert turnfile.lint(session.read().text) == []


def test_f11_a_mailing_tells_of_receivers_whom_nobody_knows(session: Session) -> None:
    mail = turnfile.Mail(session, "ada")
    assert rules(mail.send("Bob, all", "x").completion.warnings) == []
    [problem] = mail.send("bbo", "x").completion.warnings
    assert (problem.rule, "bbo is not in the ledger; known: ada, bob, mia" in problem.message) == ("unknown-name", True)


def test_f11_a_status_that_there_is_not_is_refused(session: Session) -> None:
    with pytest.raises(InvalidValue, match="unred"):
        messages(session, status="unred")
    assert messages(session, status="closed") == []
