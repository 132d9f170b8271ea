"""F7, F3: what it costs to ask, and that it is asked once and by the way that is open."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import turnfile
from holdfast.errors import Escalated
from holdfast.turnfile import Session, WaitPolicy
from holdfast.turnfile.ledger import rules
from holdfast.turnfile.mailbox import parse
from holdfast.turnfile.model import MAILBOX, TURNFILE, WORKLOG
from tests.turnfile.edits import lock, nothing, send, write
from tests.turnfile.sessions import is_whole, new_session, text_of


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A new session."""
    return new_session(tmp_path)


def asked(session: Session, who: str = "bob") -> str:
    """What asks the maintainer, after a vain wait for the worklog."""
    with pytest.raises(Escalated) as refusal:
        turnfile.transact(
            [WORKLOG], who, "x", nothing, folder=session, wait=WaitPolicy(interval=1.0, pause=lambda _: None)
        )
    return str(refusal.value.notice)


def test_f3_to_ask_ages_the_lease_of_the_holder_by_one_revision_only(session: Session) -> None:
    held = lock(session, WORKLOG)  # for 2 revisions
    write(session)
    assert asked(session).startswith("MSG-")
    ledger = session.read()
    assert (ledger.revision, rules.revisions_left(held, ledger.revision)) == (4, 0)
    assert ledger.turnfile.locks == (held,)  # valid: who asked does not get it by asking
    assert asked(session, "cyd") == asked(session)  # asked already: nothing is written
    assert session.read().revision == 4
    is_whole(session)


def test_f3_a_question_that_cannot_be_mailed_costs_one_revision_too(session: Session) -> None:
    turnfile.transact([MAILBOX], "ada", "x", send("hello"), folder=session)
    path = Path(session.folder.path, MAILBOX)
    path.write_text("# Mailbox\n")  # without a section for cards
    before = path.read_bytes()
    lock(session, WORKLOG)
    revision = session.read().revision
    assert asked(session).startswith("SIG-")
    assert session.read().revision == revision + 1
    assert path.read_bytes() == before


def test_f7_who_holds_the_mailbox_by_hand_can_ask_about_another_file(session: Session) -> None:
    lock(session, WORKLOG, lease_revs=9)
    mine = lock(session, MAILBOX, holder="bob", lease_revs=9)
    assert asked(session) == "MSG-20260612-001"
    assert mine in session.read().turnfile.locks
    is_whole(session)


def test_f6_the_note_of_a_question_names_a_lock_that_nobody_has(session: Session) -> None:
    lock(session, WORKLOG, lease_revs=9)
    asked(session)
    assert "completed LOCK-bob-001: MAILBOX.md, revision 3" in text_of(session, TURNFILE)
    assert lock(session, MAILBOX, holder="bob").id == "LOCK-bob-002"


def test_f7_a_question_that_makes_the_lock_stale_says_to_try_again(session: Session) -> None:
    lock(session, WORKLOG)
    write(session)
    write(session)  # its last revision
    with pytest.raises(Escalated, match="asks the maintainer") as refusal:
        turnfile.transact(
            [WORKLOG], "bob", "x", nothing, folder=session, wait=WaitPolicy(interval=1.0, pause=lambda _: None)
        )
    assert "is stale now: try again" in str(refusal.value.hint)
    assert lock(session, WORKLOG, holder="bob").holder == "bob"


def test_f7_what_was_asked_by_mail_is_not_asked_by_signal_too(session: Session) -> None:
    lock(session, WORKLOG, lease_revs=50)
    message = asked(session)
    lock(session, MAILBOX, lease_revs=50)
    revision = session.read().revision
    assert asked(session) == message
    assert session.read().revision == revision


def test_f7_what_was_asked_by_signal_is_not_asked_by_mail_too(session: Session) -> None:
    lock(session, WORKLOG, lease_revs=50)
    mailbox = lock(session, MAILBOX, holder="cyd", lease_revs=50)
    signal = asked(session)
    turnfile.unlock(session, mailbox.id, "cyd")
    assert asked(session) == signal
    assert parse(text_of(session, MAILBOX)).cards == ()
