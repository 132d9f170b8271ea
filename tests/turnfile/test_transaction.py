"""F3 to F8: locks are taken, kept and given back; an edit is all or nothing; waiting ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast import turnfile
from holdfast.errors import Escalated, FileChanged, Held, Invalid, NotFound, NotHolder
from holdfast.turnfile import Session, Transaction, WaitPolicy
from holdfast.turnfile.ledger import KEPT_NOTES, rules
from holdfast.turnfile.locks import acquire, release, verify
from holdfast.turnfile.mailbox import draft, parse
from holdfast.turnfile.model import MAILBOX, PROJECTION, SIGNAL_ARCHIVE, TURNFILE, WORKLOG, Lock
from tests.turnfile.edits import append, lock, nothing, send, write
from tests.turnfile.sessions import is_whole, new_session, text_of

QUESTIONS = "OPEN_QUESTIONS.md"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A new session."""
    return new_session(tmp_path)


# --- locks -----------------------------------------------------------------------------------------------------------


def test_f3_a_lock_has_the_revision_of_its_own_write(session: Session) -> None:
    taken = lock(session, "MAILBOX.md", "working-session/WORKLOG.md", "./MAILBOX.md")
    assert taken == Lock(
        "LOCK-ada-001", ("working-session/MAILBOX.md", "working-session/WORKLOG.md"), "ada", 2, 2, "test"
    )
    ledger = session.read()
    assert (ledger.revision, ledger.turnfile.locks) == (2, (taken,))


def test_f3_a_contender_that_sees_a_valid_overlap_writes_nothing(session: Session) -> None:
    taken = lock(session, "MAILBOX.md")
    before = text_of(session, TURNFILE)
    with pytest.raises(Held) as refusal:
        lock(session, "WORKLOG.md", "MAILBOX.md", holder="bob")
    assert (refusal.value.holder, refusal.value.lock_id, refusal.value.acquired_rev) == ("ada", taken.id, 2)
    with pytest.raises(Held):  # also another process of the same agent
        lock(session, "MAILBOX.md")
    assert text_of(session, TURNFILE) == before
    assert lock(session, "WORKLOG.md", holder="bob").acquired_rev == 3


def test_f4_a_stale_lock_is_cleared_by_who_needs_its_files(session: Session) -> None:
    stale = lock(session, "MAILBOX.md")
    write(session, 2)
    with pytest.raises(Held):
        lock(session, "MAILBOX.md", holder="bob")  # acquired at 2 for 2: valid at 4
    write(session)
    taken = lock(session, "MAILBOX.md", holder="bob")
    assert (taken.acquired_rev, session.read().turnfile.locks) == (6, (taken,))
    assert stale.acquired_rev == 2


def test_f4_anybody_may_clear_a_stale_lock_and_nobody_a_valid_one(session: Session) -> None:
    first, second = lock(session, "MAILBOX.md"), lock(session, "WORKLOG.md", lease_revs=9)
    with pytest.raises(Held, match=r"valid at revision [0-9]+; it is stale from revision [0-9]+ on"):
        turnfile.clear_stale(session, "bob", [first.id])
    assert turnfile.clear_stale(session, "bob") == []
    write(session, 2)
    assert {problem.rule for problem in turnfile.check(session)} == {"lock-stale"}
    assert turnfile.clear_stale(session, "bob") == [first]
    assert session.read().turnfile.locks == (second,)
    assert turnfile.check(session) == []
    with pytest.raises(NotFound):
        turnfile.clear_stale(session, "bob", ["none"])


def test_f3_renewing_begins_the_lease_again(session: Session) -> None:
    taken = lock(session, "MAILBOX.md")
    write(session, 3)
    assert turnfile.status(session).locks[0].stale
    (renewed,) = turnfile.renew_all(session, [taken.id], "ada")  # nobody took it meanwhile
    assert renewed == msgspec.structs.replace(taken, acquired_rev=6)
    assert turnfile.status(session).locks[0].revisions_left == 2
    with pytest.raises(NotHolder):
        turnfile.renew_all(session, [taken.id], "bob")


def test_f3_a_lock_that_somebody_else_has_now_cannot_be_renewed(session: Session) -> None:
    stale = lock(session, "MAILBOX.md")
    write(session, 3)
    other = msgspec.structs.replace(stale, id="other", holder="bob", acquired_rev=5)
    session.write(lambda ledger: ledger.with_lock(other), "bob")  # a tool that clears nothing
    with pytest.raises(Held):
        turnfile.renew_all(session, [stale.id], "ada")


def test_f5_who_loses_to_a_lock_of_another_tool_removes_its_own_and_yields(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(session.folder.path, TURNFILE)
    before = text_of(session, TURNFILE)

    def race(name: str) -> None:
        if name == "lock.acquired":  # it read revision 1 too, and wrote the same revision 2 over ours, with both locks
            ledger = session.read()
            rival = Lock("LOCK-aaa", ("working-session/MAILBOX.md",), "bob", 2, 2, "raced")
            path.write_text(ledger.with_lock(rival).text)

    monkeypatch.setattr("holdfast.turnfile.files.hook", race)
    with pytest.raises(Held) as refusal:
        lock(session, "MAILBOX.md")
    assert refusal.value.lock_id == "LOCK-aaa"  # the same revision, and the smaller id
    monkeypatch.setattr("holdfast.turnfile.files.hook", None)
    assert [held.id for held in session.read().turnfile.locks] == ["LOCK-aaa"]
    assert before != text_of(session, TURNFILE)


def test_f5_who_wins_against_a_lock_of_another_tool_keeps_its_own(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(session.folder.path, TURNFILE)

    def race(name: str) -> None:
        if name == "lock.acquired":
            rival = Lock("zzz", ("MAILBOX.md",), "bob", 2, 2, "raced")
            path.write_text(session.read().with_lock(rival).text)

    monkeypatch.setattr("holdfast.turnfile.files.hook", race)
    assert lock(session, "MAILBOX.md").id == "LOCK-ada-001"


def test_f3_only_the_holder_releases(session: Session) -> None:
    taken = lock(session, "MAILBOX.md")
    with pytest.raises(NotHolder):
        turnfile.unlock(session, taken.id, "bob")
    with pytest.raises(NotFound):
        turnfile.unlock(session, "none", "ada")
    assert session.read().turnfile.locks == (taken,)


def test_f3_f12_releasing_after_an_edit_by_hand_makes_the_projection_fresh(session: Session) -> None:
    taken = lock(session, "MAILBOX.md")
    text, _ = draft.compose(text_of(session, MAILBOX), draft.Draft("ada", "bob", "by hand", "2026-06-12"))
    Path(session.folder.path, MAILBOX).write_text(text)
    assert {problem.rule for problem in turnfile.check(session)} == {"projection-stale"}
    completion = turnfile.unlock(session, taken.id, "ada")
    assert (completion.revision, completion.files, completion.warnings) == (3, (MAILBOX,), ())
    is_whole(session)
    assert session.read().turnfile.signals[0].detail == "completed LOCK-ada-001: MAILBOX.md, revision 3"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "working-session/../x"])
def test_f3_no_file_outside_can_be_locked_or_edited(session: Session, path: str) -> None:
    with pytest.raises(Invalid):
        lock(session, path)
    with pytest.raises(Invalid):
        turnfile.transact([path], "ada", "x", nothing, folder=session)
    assert session.read().revision == 1


@pytest.mark.parametrize(("files", "holder", "reason", "lease"), [
    ([], "ada", "x", 2),
    (["MAILBOX.md"], "", "x", 2),
    (["MAILBOX.md"], "a\nb", "x", 2),
    (["MAILBOX.md"], "ada", " ", 2),
    (["MAILBOX.md"], "ada", "a\nb", 2),
    (["MAILBOX.md"], "ada", "x", 0),
])  # fmt: skip
def test_f3_a_claim_that_makes_no_sense_is_refused(
    session: Session, files: list[str], holder: str, reason: str, lease: int
) -> None:
    with pytest.raises(Invalid):
        turnfile.lock_request(session, files, holder, reason, lease)


# --- transactions ----------------------------------------------------------------------------------------------------


def test_f6_a_transaction_takes_two_revisions_and_leaves_a_note(session: Session) -> None:
    with turnfile.transaction([WORKLOG], "ada", "log it", folder=session) as edit:
        assert edit.lock is not None
        assert session.read().turnfile.locks == (edit.lock,)
        edit.write(WORKLOG, (edit.read(WORKLOG) or "") + "- one\n")
        assert "- one" not in text_of(session, WORKLOG)
    assert edit.completion == turnfile.Completion("LOCK-ada-001", (WORKLOG,), 3, "SIG-001")
    ledger = session.read()
    assert (ledger.revision, ledger.turnfile.locks) == (3, ())
    assert ledger.turnfile.signals[0].detail == "completed LOCK-ada-001: WORKLOG.md, revision 3"
    assert text_of(session, WORKLOG).endswith("- one\n")
    is_whole(session)


def test_f6_without_a_folder_the_session_is_the_one_of_the_environment_or_of_the_working_folder(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HOLDFAST_TURN_DIR", raising=False)
    monkeypatch.chdir(Path(session.folder.path).parent)
    with turnfile.transaction(["WORKLOG.md"], "ada", "log it") as edit:
        append(WORKLOG, "- here")(edit)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(NotFound, match="there is no folder"):
        turnfile.transact(["WORKLOG.md"], "ada", "log it", nothing)
    monkeypatch.setenv("HOLDFAST_TURN_DIR", session.folder.path)
    turnfile.transact(WORKLOG, "ada", "log it", append(WORKLOG, "- there"))  # one file is one file
    assert text_of(session, WORKLOG).splitlines()[-2:] == ["- here", "- there"]


def test_f6_f12_a_mail_edit_regenerates_the_projection_with_it(session: Session) -> None:
    completion = turnfile.transact([MAILBOX], "ada", "send", send("hello"), folder=session)
    assert completion.result == "MSG-20260612-001"
    assert "MSG-20260612-001" in text_of(session, PROJECTION)
    is_whole(session)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_f6_an_edit_that_fails_leaves_every_target_as_it_was(session: Session, error: type[BaseException]) -> None:
    before = session.texts([MAILBOX, PROJECTION, WORKLOG])

    def body(edit: Transaction) -> None:
        send("never")(edit)
        append(WORKLOG, "never")(edit)
        raise error

    with pytest.raises(error):
        turnfile.transact([MAILBOX, WORKLOG], "ada", "fail", body, folder=session)
    with pytest.raises(error), turnfile.transaction([MAILBOX, WORKLOG], "ada", "fail", folder=session) as edit:
        body(edit)
    assert session.texts([MAILBOX, PROJECTION, WORKLOG]) == before
    assert session.read().turnfile.locks == ()
    assert session.read().turnfile.signals == ()


def test_f6_f10_an_edit_that_breaks_an_invariant_is_not_written(session: Session) -> None:
    turnfile.transact([MAILBOX], "ada", "send", send("hello"), folder=session)
    before = text_of(session, MAILBOX)
    with pytest.raises(Invalid, match=r"would break MAILBOX.md: line \d+") as refusal:
        turnfile.transact(
            [MAILBOX],
            "ada",
            "break",
            lambda edit: edit.write(MAILBOX, before.replace("| 1 |", "| 7 |")),
            folder=session,
        )
    assert refusal.value.problems[0].file == MAILBOX
    assert text_of(session, MAILBOX) == before
    assert session.read().turnfile.locks == ()
    is_whole(session)


def test_f6_a_file_out_of_order_does_not_stop_an_edit_of_another(session: Session) -> None:
    path = Path(session.folder.path, MAILBOX)
    path.write_text(path.read_text().replace("| ada | 0 |", "| ada | 5 |"))
    turnfile.transact([WORKLOG], "ada", "log", append(WORKLOG, "- x"), folder=session)
    assert text_of(session, WORKLOG).endswith("- x\n")


def test_f6_drift_means_that_the_edit_is_made_again_on_what_is_there(session: Session) -> None:
    path = Path(session.folder.path, WORKLOG)
    runs = 0

    def body(edit: Transaction) -> None:
        nonlocal runs
        runs += 1
        append(WORKLOG, "- mine")(edit)
        if runs <= 3:  # an editor without our lock
            path.write_text(path.read_text() + f"- theirs {runs}\n")

    completion = turnfile.transact([WORKLOG], "ada", "drift", body, folder=session)
    assert runs == 4
    assert text_of(session, WORKLOG).endswith("- theirs 1\n- theirs 2\n- theirs 3\n- mine\n")
    assert (completion.lock_id, completion.revision) == ("LOCK-ada-001", 3)


def test_f6_drift_that_does_not_end_is_escalated(session: Session) -> None:
    path = Path(session.folder.path, WORKLOG)
    runs = 0

    def body(edit: Transaction) -> None:
        nonlocal runs
        runs += 1
        append(WORKLOG, "- mine")(edit)
        path.write_text(path.read_text() + f"- theirs {runs}\n")

    with pytest.raises(Escalated, match="at every retry") as refusal:
        turnfile.transact([WORKLOG], "ada", "drift", body, folder=session)
    assert runs == 4
    assert "- mine" not in text_of(session, WORKLOG)
    ledger = session.read()
    assert ledger.turnfile.locks == ()
    card = parse(text_of(session, MAILBOX)).card(refusal.value.notice)
    assert (card.get("type"), card.sender, card.receiver) == ("decision-required", "ada", "mia")
    assert "- files: WORKLOG.md\n- given up by: ada\n- lock_id: LOCK-ada-001" in card.body
    assert ledger.revision == 3  # the lock, and one write that gives it back and asks
    is_whole(session)


def test_f6_a_block_cannot_run_twice_so_drift_is_told(session: Session) -> None:
    path = Path(session.folder.path, WORKLOG)

    def block() -> None:
        with turnfile.transaction([WORKLOG], "ada", "drift", folder=session) as edit:
            append(WORKLOG, "- mine")(edit)
            path.write_text("theirs\n")

    with pytest.raises(FileChanged) as drift:
        block()
    assert drift.value.path == WORKLOG
    assert path.read_text() == "theirs\n"
    assert session.read().turnfile.locks == ()


def test_f4_a_holder_whose_lock_went_stale_fails_the_check_and_acquires_again(session: Session) -> None:
    runs = 0

    def body(edit: Transaction) -> None:
        nonlocal runs
        runs += 1
        append(WORKLOG, "- mine")(edit)
        if runs == 1:
            write(session, 3)

    completion = turnfile.transact([WORKLOG], "ada", "slow", body, folder=session)
    assert (runs, completion.revision) == (2, 8)  # 2 acquired, 3-5 others, 6 given back, 7 acquired, 8 released
    assert text_of(session, WORKLOG).count("- mine") == 1

    def block() -> None:
        with turnfile.transaction([WORKLOG], "ada", "x", folder=session) as edit:
            append(WORKLOG, "- lost")(edit)
            write(session, 3)

    with pytest.raises(NotHolder, match="went stale"):
        block()
    assert "- lost" not in text_of(session, WORKLOG)
    assert session.read().turnfile.locks == ()


def test_f6_a_lock_that_was_overridden_during_the_edit_writes_nothing(session: Session) -> None:
    taken: list[Lock | None] = []

    def block() -> None:
        with turnfile.transaction([MAILBOX], "ada", "x", folder=session) as edit:
            send("lost")(edit)
            assert edit.lock is not None
            taken.append(turnfile.override(session, edit.lock.id, "P0: leak", "bob", take=True).replaced_by)

    with pytest.raises(NotHolder, match="removed or replaced"):
        block()
    assert parse(text_of(session, MAILBOX)).cards == ()
    assert session.read().turnfile.locks == tuple(taken)


def test_f10_an_edit_may_leave_a_breach_as_it_was_but_make_none_worse(session: Session) -> None:
    path = Path(session.folder.path, WORKLOG)
    path.write_text("# Worklog\n\nNow Working (ada): idle\nNow Working (ada): idle\n")
    edit = "# Worklog\n\nOne more line\n" + path.read_text().removeprefix("# Worklog\n")

    def below(transaction: Transaction) -> None:
        transaction.write(WORKLOG, edit)

    done = turnfile.transact([WORKLOG], "ada", "x", below, folder=session)
    assert [(problem.rule, problem.line) for problem in done.warnings] == [("disorder", 6)]
    assert path.read_text() == edit

    def worse(transaction: Transaction) -> None:
        transaction.write(WORKLOG, edit + "Now Working (bob):\n")

    with pytest.raises(Invalid, match=r"would break WORKLOG.md: line 7: .*is empty") as refusal:
        turnfile.transact([WORKLOG], "ada", "x", worse, folder=session)
    assert [problem.line for problem in refusal.value.problems] == [7]


def test_f6_an_edit_can_run_under_a_lock_that_stays(session: Session) -> None:
    taken = lock(session, MAILBOX, WORKLOG, lease_revs=5)
    turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, "- x"), folder=session)  # a lock of one's own is found
    turnfile.transact([MAILBOX], "ada", "x", send("x"), folder=session, under=taken.id)
    [kept] = session.read().turnfile.locks
    assert (kept.id, kept.acquired_rev, session.read().revision) == (taken.id, 4, 4)
    with pytest.raises(NotHolder, match="does not cover"):
        turnfile.transact([QUESTIONS], "ada", "x", nothing, folder=session, under=taken.id)
    with pytest.raises(NotHolder):
        turnfile.transact([WORKLOG], "bob", "x", nothing, folder=session, under=taken.id)


def test_f4_who_edits_under_its_own_lock_begins_its_lease_again_each_time(session: Session) -> None:
    taken = lock(session, WORKLOG, lease_revs=1)
    for number in range(5):  # which would make it stale at the second
        done = turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, f"- {number}"), folder=session)
        assert done.lock_id == taken.id
    assert turnfile.check(session) == []
    assert turnfile.unlock(session, taken.id, "ada").revision == 8


def test_f5_a_lock_that_stays_does_not_pass_behind_one_of_another_tool(session: Session) -> None:
    taken = lock(session, WORKLOG, lease_revs=9)
    later = Lock("by-another-tool", ("working-session/WORKLOG.md",), "bob", 3, 9, "lost")
    session.write(lambda ledger: ledger.with_agent("bob").with_lock(later), "bob")
    turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, "- x"), folder=session)
    ledger = session.read()
    assert rules.blocking(ledger.turnfile.locks, [WORKLOG], ledger.revision)[0] == taken


def test_f7_the_transaction_of_a_killed_process_of_ones_own_name_can_be_given_back(session: Session) -> None:
    claim = msgspec.structs.replace(turnfile.lock_request(session, [WORKLOG], "ada", "killed"), transaction=True)
    left = acquire(session, claim)
    assert "x-transaction: true" in session.read().text
    pauses: list[float] = []
    wait = WaitPolicy(interval=1.0, pause=pauses.append)
    with pytest.raises(Escalated) as caught:
        turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, "- x"), folder=session, wait=wait)
    assert f'turnfile.unlock(session, "{left.id}", holder)' in caught.value.hint
    assert pauses == [1.0]  # it was waited for, as it might have been alive
    with pytest.raises(Held, match="since revision 2") as refused:
        turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, "- x"), folder=session, wait=None)
    assert f'turnfile.unlock(session, "{left.id}", holder)' in refused.value.hint
    done = turnfile.unlock(session, left.id, "ada")
    assert (done.files, done.signal_id) == ((), None)
    assert not any("completed" in each.detail and left.id in each.detail for each in session.read().turnfile.signals)
    turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, "- x"), folder=session)
    assert turnfile.check(session) == []


def test_f3_a_file_outside_the_registry_needs_no_lock(session: Session) -> None:
    completion = turnfile.transact(["docs/prd.md"], "ada", "draft", append("docs/prd.md", "# PRD"), folder=session)
    assert completion == turnfile.Completion(None, ("docs/prd.md",), 1, result="# PRD")
    assert text_of(session, "docs/prd.md") == "# PRD\n"
    wider = Session(session.folder.path, registry=["docs/prd.md"])
    assert (
        turnfile.transact(["docs/prd.md"], "ada", "draft", append("docs/prd.md", "x"), folder=wider).lock_id
        == "LOCK-ada-001"
    )


def test_f6_files_in_different_folders_are_replaced_as_one(session: Session) -> None:
    def body(edit: Transaction) -> None:
        append("docs/README.md", "- prd.md")(edit)
        append("docs/prd.md", "# PRD")(edit)
        append(WORKLOG, "- drafted")(edit)

    completion = turnfile.transact(["docs/README.md", "docs/prd.md", WORKLOG], "ada", "draft", body, folder=session)
    assert completion.files == ("docs/README.md", "docs/prd.md", WORKLOG)
    assert text_of(session, "docs/README.md").endswith("- prd.md\n")
    assert sorted(path.name for path in Path(session.folder.path, "docs").iterdir()) == ["README.md", "prd.md"]


def test_f6_an_edit_that_changes_nothing_leaves_no_note(session: Session) -> None:
    completion = turnfile.transact([WORKLOG], "ada", "look", nothing, folder=session)
    assert (completion.files, completion.signal_id, completion.revision) == ((), None, 3)
    assert session.read().turnfile.signals == ()


@pytest.mark.parametrize("path", [TURNFILE, PROJECTION])
def test_f6_what_follows_from_other_files_cannot_be_edited(session: Session, path: str) -> None:
    with pytest.raises(Invalid):
        turnfile.transact([path], "ada", "x", nothing, folder=session)


def test_f6_only_files_that_were_named_are_edited(session: Session) -> None:
    with pytest.raises(Invalid, match="not part of this transaction"):
        turnfile.transact([WORKLOG], "ada", "x", append(MAILBOX, "x"), folder=session)
    assert session.read().turnfile.locks == ()


def test_f6_the_ledger_keeps_the_newest_notes_and_the_last_of_every_agent(session: Session) -> None:
    turnfile.transact([WORKLOG], "bob", "x", append(WORKLOG, "- bob"), folder=session)
    for place in range(KEPT_NOTES + 4):
        turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, f"- {place}"), folder=session)
    signals = session.read().turnfile.signals
    assert len(signals) == KEPT_NOTES + 1
    assert [signal.sender for signal in signals] == ["ada"] * KEPT_NOTES + ["bob"]
    assert signals[0].id == f"SIG-{KEPT_NOTES + 5:03d}"
    assert turnfile.check(session) == []


# --- waiting ---------------------------------------------------------------------------------------------------------


def policy(session: Session, *happenings: Callable[[], object], checks: int = 20) -> WaitPolicy:
    """A wait in whose pauses things happen, one after the other, and then nothing more."""
    left = list(happenings)

    def pause(seconds: float) -> None:
        assert seconds == 30.0
        if left:
            left.pop(0)()

    return WaitPolicy(checks=checks, pause=pause)


def test_f7_a_lock_that_is_released_is_taken_by_who_waits(session: Session) -> None:
    taken = lock(session, WORKLOG)
    waiting = policy(session, lambda: write(session), lambda: turnfile.unlock(session, taken.id, "ada"))
    completion = turnfile.transact([WORKLOG], "bob", "x", append(WORKLOG, "- x"), folder=session, wait=waiting)
    assert completion.lock_id == "LOCK-bob-001"
    assert all(signal.signal != "blocked" for signal in session.read().turnfile.signals)


def test_f7_a_revision_that_stands_still_over_two_checks_is_escalated_by_mail(session: Session) -> None:
    held = lock(session, WORKLOG, lease_revs=9)
    with pytest.raises(Escalated) as refusal:
        turnfile.transact([WORKLOG], "bob", "x", nothing, folder=session, wait=policy(session))
    assert refusal.value.notice == "MSG-20260612-001"
    card = parse(text_of(session, MAILBOX)).card("MSG-20260612-001")
    assert (card.get("type"), card.get("priority"), card.sender) == ("decision-required", "P0", "bob")
    assert card.receiver == "mia"  # by her own name, so that the message counts as hers
    assert [(inbox.agent, inbox.unread) for inbox in turnfile.status(session).unread] == [("mia", 1)]
    for fact in (held.id, "holder: ada", "acquired_rev: 2", "revision: 2"):
        assert fact in card.body
    assert (refusal.value.lock_id, refusal.value.holder, refusal.value.acquired_rev) == (held.id, "ada", 2)
    assert session.read().turnfile.locks == (held,)
    is_whole(session)


def test_f7_the_maintainer_is_asked_once_per_lock(session: Session) -> None:
    lock(session, WORKLOG, lease_revs=9)
    for holder in ("bob", "cyd", "bob"):
        with pytest.raises(Escalated) as refusal:
            turnfile.transact([WORKLOG], holder, "x", nothing, folder=session, wait=policy(session))
        assert refusal.value.notice == "MSG-20260612-001"
    assert session.read().revision == 3  # only the first one wrote
    assert len(parse(text_of(session, MAILBOX)).cards) == 1


def test_f7_where_the_mailbox_is_locked_the_ledger_takes_a_signal_once(session: Session) -> None:
    held = lock(session, MAILBOX)
    before = text_of(session, MAILBOX)
    for holder in ("bob", "cyd", "bob"):
        with pytest.raises(Escalated) as refusal:
            turnfile.transact([MAILBOX], holder, "x", nothing, folder=session, wait=policy(session))
        assert refusal.value.notice == "SIG-001"
    ledger = session.read()
    [signal] = ledger.turnfile.signals
    assert (signal.sender, signal.receiver, signal.signal) == ("bob", "mia", "blocked")
    assert signal.detail == f"blocked by {held.id}: holder ada, acquired_rev 2, last seen revision 2"
    assert (ledger.revision, ledger.turnfile.locks) == (3, (held,))
    assert text_of(session, MAILBOX) == before


def test_f7_where_somebody_else_has_the_mailbox_the_ledger_takes_the_signal(session: Session) -> None:
    lock(session, WORKLOG, lease_revs=9)
    lock(session, MAILBOX, holder="cyd", lease_revs=9)
    with pytest.raises(Escalated) as refusal:
        turnfile.transact([WORKLOG], "bob", "x", nothing, folder=session, wait=policy(session))
    assert refusal.value.notice == "SIG-001"


def test_f7_a_lock_acquired_anew_is_asked_about_anew(session: Session) -> None:
    held = lock(session, MAILBOX)
    for told in ("SIG-001", "SIG-002"):
        with pytest.raises(Escalated) as refusal:
            turnfile.transact([MAILBOX], "bob", "x", nothing, folder=session, wait=policy(session))
        assert refusal.value.notice == told
        turnfile.renew_all(session, [held.id], "ada")


def test_f7_waiting_ends_even_while_the_revision_moves(session: Session) -> None:
    lock(session, WORKLOG, lease_revs=99)
    moving = policy(session, *[lambda: write(session)] * 9, checks=5)
    with pytest.raises(Held) as refusal:
        turnfile.transact([WORKLOG], "bob", "x", nothing, folder=session, wait=moving)
    assert not isinstance(refusal.value, Escalated)
    assert session.read().revision == 6  # four pauses


def test_f7_the_usual_wait_ends_early_when_the_ledger_changes(session: Session) -> None:
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            write(session)

    session.await_change(30.0, 1, pause)
    assert len(looks) == 3
    session.await_change(30.0, 1, pause)  # it has changed already
    assert len(looks) == 3
    session.await_change(0.2, 2, looks.append)
    assert len(looks) == 13


# --- override --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["", "because", "P1: late", "xP0x", "this is not P0", "P01", "P0", " P0: "])
def test_f8_an_override_needs_a_p0_reason(session: Session, reason: str) -> None:
    held = lock(session, MAILBOX)
    with pytest.raises(Invalid, match="P0"):
        turnfile.override(session, held.id, reason, "bob")
    assert session.read().turnfile.locks == (held,)


def test_f8_an_override_removes_the_lock_and_leaves_a_trace(session: Session) -> None:
    held = lock(session, MAILBOX)
    path = Path(session.folder.path, MAILBOX)  # the holder had begun by hand, and left it out of order
    text, _ = draft.compose(path.read_text(), draft.Draft("ada", "bob", "half done", "2026-06-12"))
    path.write_text(text.replace("| bob | 1 |", "| bob | 0 |"))
    done = turnfile.override(session, held.id, "P0: credentials in the mailbox", "mia")
    assert (done.lock, done.replaced_by, done.revision, done.problems) == (held, None, 3, ())
    assert session.read().turnfile.locks == ()
    is_whole(session)
    log = text_of(session, WORKLOG)
    for words in (held.id, "revision 3", "mia", "P0: credentials in the mailbox"):
        assert words in log
    signal = session.read().turnfile.signals[0]
    assert (signal.sender, signal.receiver) == ("mia", "ada")
    with pytest.raises(NotFound):
        turnfile.override(session, held.id, "P0: again", "mia")


def test_f8_an_override_may_replace_the_lock(session: Session) -> None:
    held = lock(session, WORKLOG)
    done = turnfile.override(session, held.id, "P0: broken log", "bob", take=True)
    assert done.replaced_by == Lock("LOCK-bob-001", held.files, "bob", 3, 2, "P0: broken log")
    assert session.read().turnfile.locks == (done.replaced_by,)


def test_f8_who_holds_the_worklog_learns_of_the_entry_about_an_override(session: Session) -> None:
    log = lock(session, WORKLOG, holder="cyd")
    held = lock(session, MAILBOX)
    done = turnfile.override(session, held.id, "P0: credentials", "mia")
    assert [(each.rule, each.level) for each in done.problems] == [("locked", "warning")]
    assert log.id in done.problems[0].message
    words = {each.receiver: each.detail for each in session.read().turnfile.signals}
    assert "read it before you save" in words["cyd"]
    assert "override of" in words["ada"]
    assert held.id in text_of(session, WORKLOG)
    assert [each.id for each in session.read().turnfile.locks] == [log.id]


def test_f13_status_tells_who_holds_what_and_what_is_unread(session: Session) -> None:
    turnfile.transact([MAILBOX], "ada", "send", send("one"), folder=session)
    turnfile.transact([MAILBOX], "ada", "send", send("two"), folder=session)
    held = lock(session, MAILBOX)
    rival = Lock("zzz", ("MAILBOX.md",), "bob", 7, 1, "raced")
    session.write(lambda ledger: ledger.with_lock(rival), "bob")
    told = turnfile.status(session)
    assert [(one.lock.id, one.revisions_left, one.beaten_by) for one in told.locks] == [
        (held.id, 1, None),
        ("zzz", 1, held.id),
    ]
    assert [(one.agent, one.unread, one.oldest) for one in told.unread] == [("bob", 2, "MSG-20260612-001")]
    assert msgspec.json.encode(told)


def test_f4_the_lock_check_is_about_one_acquisition(session: Session) -> None:
    taken = lock(session, WORKLOG)
    release(session, taken.id, "ada")
    again = lock(session, WORKLOG)
    assert again.id == taken.id  # nobody noted the first
    with pytest.raises(NotHolder):
        verify(session, session.read(), taken)


def test_f6_a_text_must_be_a_str(session: Session) -> None:
    with (
        pytest.raises(Invalid, match=r"^text must be a str, not int$"),
        turnfile.transaction([WORKLOG], "ada", "x", folder=session) as edit,
    ):
        edit.write(WORKLOG, 5)  # type: ignore[arg-type]
    assert session.read().turnfile.locks == ()


@pytest.mark.parametrize("rehearse", [True, False])
def test_f6_what_a_refused_edit_and_one_without_changes_cost(session: Session, rehearse: bool) -> None:
    def refused(edit: turnfile.Transaction) -> None:
        raise Invalid("no")

    costs = []
    for body in (refused, lambda edit: None):
        before = session.read().revision
        with contextlib.suppress(Invalid):
            turnfile.transact([WORKLOG], "ada", "x", body, folder=session, rehearse=rehearse)
        costs.append(session.read().revision - before)
    assert costs == ([0, 0] if rehearse else [2, 2])


def test_f8_a_lock_is_named_by_its_id_and_the_revision_of_its_acquisition(session: Session) -> None:
    first = lock(session, WORKLOG, holder="ada", lease_revs=1)
    named = f"{first.id}@{first.acquired_rev}"
    session.write(lambda ledger: ledger.without_locks(first.id), "ada")
    again = msgspec.structs.replace(first, holder="bob", acquired_rev=session.read().revision + 1, lease_revs=9)
    session.write(lambda ledger: ledger.with_lock(again), "bob")  # a tool that uses the id again
    for remove in (
        lambda: turnfile.override(session, named, "P0: leak", "cyd"),
        lambda: turnfile.clear_stale(session, "cyd", [named]),
    ):
        with pytest.raises(NotFound, match="is not the lock of revision 2 any more: bob acquired it at 4"):
            remove()
    with pytest.raises(NotFound, match="was not acquired at revision 99: bob acquired it at 4"):
        turnfile.override(session, f"{first.id}@99", "P0: leak", "cyd")
    assert session.read().turnfile.locks == (again,)
    done = turnfile.override(session, f"{again.id}@{again.acquired_rev}", "P0: leak", "cyd")
    assert (done.lock, session.read().turnfile.locks) == (again, ())


def test_f5_r2_1_a_lock_that_lost_goes_with_every_command_of_its_holder(session: Session) -> None:
    def beaten() -> Lock:
        mine = lock(session, WORKLOG, holder="ada", lease_revs=50)
        rival = Lock("by-another-tool", ("working-session/WORKLOG.md",), "bob", mine.acquired_rev - 1, 90, "first")
        session.write(lambda ledger: ledger.with_agent("bob").with_lock(rival), "bob")
        return mine

    def under(mine: Lock) -> None:
        turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, "- x"), folder=session, under=mine.id, wait=None)

    uses: list[Callable[[Lock], object]] = [
        lambda mine: turnfile.renew_all(session, [mine.id], "ada"),
        lambda mine: lock(session, WORKLOG, holder="ada"),
        under,
    ]
    for use in uses:
        mine = beaten()
        with pytest.raises((Held, NotHolder)):
            use(mine)
        assert [each.id for each in session.read().turnfile.locks] == ["by-another-tool"]
        session.write(lambda ledger: ledger.without_locks("by-another-tool"), "bob")


def test_r3_notes_that_leave_the_ledger_are_in_its_archive(session: Session) -> None:
    for number in range(2 * KEPT_NOTES):
        turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, f"- {number}"), folder=session)
    text = text_of(session, SIGNAL_ARCHIVE)
    archived = [line.split('"')[1] for line in text.splitlines() if line.startswith("- id:")]
    kept = [signal.id for signal in session.read().turnfile.signals]
    assert archived + kept[::-1] == [f"SIG-{number:03d}" for number in range(1, 2 * KEPT_NOTES + 1)]
    assert "completed LOCK-ada-001: WORKLOG.md, revision 3" in text
    Path(session.folder.path, SIGNAL_ARCHIVE).write_text("x" * 5_000_000)  # a full one is followed by the next
    turnfile.transact([WORKLOG], "ada", "x", append(WORKLOG, "- last"), folder=session)
    assert "SIG-011" in text_of(session, SIGNAL_ARCHIVE.replace(".", "_2."))
