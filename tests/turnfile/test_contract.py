"""The rules R1 to R8 of the locking contract, one by one; what each requirement F means in detail is tested beside."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from holdfast import turnfile
from holdfast.errors import Escalated, Held, Invalid, NotHolder
from holdfast.turnfile import Mail, Session, Transaction, WaitPolicy
from holdfast.turnfile import files as failpoints
from holdfast.turnfile.ledger import rules
from holdfast.turnfile.mailbox import parse, projection
from holdfast.turnfile.mailbox.cards import OPEN, TERMINAL
from holdfast.turnfile.mailbox.steps import STEPS
from holdfast.turnfile.model import MAILBOX, PROJECTION, QUESTIONS, TURNFILE, WORKLOG, Lock
from tests.turnfile.edits import append, lock, nothing, send, write
from tests.turnfile.mailboxes import BOLD
from tests.turnfile.sessions import is_whole, new_session, text_of


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A new session."""
    return new_session(tmp_path)


def files(session: Session) -> dict[str, str]:
    """Every file of the folder and what it says."""
    folder = Path(session.folder.path)
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def put(session: Session, path: str, text: str) -> None:
    """Write a file as another tool would: without asking anybody."""
    Path(session.folder.path, path).write_text(text)


# --- R1: the registry ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["MAILBOX.md", "WORKLOG.md", "OPEN_QUESTIONS.md", "docs/README.md"])
def test_r1_each_shared_file_is_edited_under_a_lock_of_the_ledger(session: Session, path: str) -> None:
    assert set(rules.REGISTRY) == session.guarded(session.read()) == {MAILBOX, WORKLOG, QUESTIONS, "docs/README.md"}
    seen: list[tuple[Lock, ...]] = []

    def body(edit: Transaction) -> None:
        seen.append(session.read().turnfile.locks)
        edit.write(path, (edit.read(path) or "") + "\n<!-- looked through -->\n")

    turnfile.transact([path], "ada", "edit", body, folder=session, wait=None)
    assert [held.files for held in seen[0]] == [(f"working-session/{path}",)]
    assert session.read().turnfile.locks == ()


def test_r1_the_projection_is_an_output_that_nobody_edits(session: Session) -> None:
    with pytest.raises(Invalid):
        turnfile.transact([PROJECTION], "ada", "edit", nothing, folder=session, wait=None)


def test_r1_lock_state_is_in_the_ledger_and_nowhere_else(session: Session) -> None:
    before = files(session)
    lock(session, MAILBOX)
    after = files(session)
    assert {path for path in after if after[path] != before.get(path)} <= {TURNFILE, ".TURNFILE.lock"}
    assert after[".TURNFILE.lock"] == ""


# --- R2: the ledger of locks, and leases by revision -----------------------------------------------------------------


def test_r2_a_lock_has_its_six_fields(session: Session) -> None:
    held = lock(session, MAILBOX, WORKLOG)
    assert held == Lock(
        "LOCK-ada-001", ("working-session/MAILBOX.md", "working-session/WORKLOG.md"), "ada", 2, 2, "test"
    )
    assert session.read().turnfile.locks == (held,)
    for field in ("files:", "holder:", "acquired_rev: 2", "lease_revs: 2", "reason:"):
        assert field in text_of(session, TURNFILE)


def test_r2_a_lock_is_advisory_an_edit_by_hand_is_found_and_not_prevented(session: Session) -> None:
    put(session, MAILBOX, BOLD)
    turnfile.tidy(session, "ada")
    held = lock(session, MAILBOX)
    put(session, MAILBOX, text_of(session, MAILBOX).replace("| Bob        | 1 ", "| Bob        | 7 "))
    assert "unread-count" in [problem.rule for problem in turnfile.check(session)]
    done = turnfile.unlock(session, held.id, "ada")
    assert "unread-count" in [problem.rule for problem in done.warnings]


def test_r2_a_lock_is_stale_only_by_revisions(session: Session) -> None:
    held = lock(session, MAILBOX)
    for revision in (3, 4):
        assert write(session).revision == revision
        with pytest.raises(Held):
            lock(session, MAILBOX, holder="bob")
    assert write(session).revision == 5 == held.acquired_rev + held.lease_revs + 1
    assert lock(session, MAILBOX, holder="bob").holder == "bob"


def test_r2_no_clock_ends_a_lock(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    lock(session, MAILBOX)
    later = Session(session.folder.path, now=lambda: datetime(2099, 1, 1, tzinfo=UTC))
    for path in Path(session.folder.path).rglob("*"):
        os.utime(path, (0, 0))
    with pytest.raises(Held):
        lock(later, MAILBOX, holder="bob")
    assert not turnfile.status(later).locks[0].stale


def test_r2_taking_and_giving_back_are_a_revision_each(session: Session) -> None:
    held = lock(session, MAILBOX)
    assert (held.acquired_rev, session.read().revision) == (2, 2)
    assert turnfile.release(session, held.id, "ada").revision == 3


def test_r2_nobody_waits_for_ever(session: Session) -> None:
    lock(session, MAILBOX, lease_revs=1000)
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) < 50:
            write(session)  # the revision moves: waiting is not hopeless, and still ends

    with pytest.raises(Held):
        turnfile.transact(
            [MAILBOX], "bob", "x", nothing, folder=session, wait=WaitPolicy(interval=30, checks=20, pause=pause)
        )
    assert looks == [30] * 19
    looks.clear()
    with pytest.raises(Escalated):
        turnfile.transact([MAILBOX], "bob", "x", nothing, folder=session, wait=WaitPolicy(pause=looks.append))
    assert looks == [30.0]


# --- R2.1: verification ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rival", "wins"),
    [
        (Lock("LOCK-zzz", ("MAILBOX.md",), "bob", 1), True),  # an earlier revision
        (Lock("LOCK-aaa", ("./MAILBOX.md",), "bob", 2), True),  # the same revision, and the smaller id
        (Lock("LOCK-zzz", ("MAILBOX.md",), "bob", 2), False),
        (Lock("LOCK-aaa", ("MAILBOX.md",), "bob", 3), False),  # a later revision, whatever its id
        (Lock("LOCK-aaa", ("WORKLOG.md",), "bob", 1), False),  # another file
    ],
)
def test_r2_1_after_the_write_the_ledger_is_read_again_and_the_loser_yields(
    session: Session, monkeypatch: pytest.MonkeyPatch, rival: Lock, wins: bool
) -> None:
    def race(name: str) -> None:
        if name == "lock.acquired":
            monkeypatch.setattr(failpoints, "hook", None)
            put(session, TURNFILE, session.read().with_lock(rival).stamped(max(2, rival.acquired_rev), "bob").text)

    monkeypatch.setattr(failpoints, "hook", race)
    if wins:
        with pytest.raises(Held) as refusal:
            lock(session, MAILBOX)
        assert refusal.value.lock_id == rival.id
        assert [held.id for held in session.read().turnfile.locks] == [rival.id]
    else:
        assert lock(session, MAILBOX).id == "LOCK-ada-001"
        assert {held.id for held in session.read().turnfile.locks} == {"LOCK-ada-001", rival.id}


# --- R3: the nine steps ----------------------------------------------------------------------------------------------


def test_r3_the_nine_steps_come_in_their_order(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    before = session.texts([MAILBOX, PROJECTION, WORKLOG])
    steps: list[str] = []

    def note(name: str) -> None:
        if name not in ("lock.acquired", "body.done", "targets.checked", "journal.written", "lock.released"):
            return
        steps.append(name)
        folder = Path(session.folder.path)
        if name != "lock.released":  # nothing of the edit is in place before the journal is there
            assert all((folder / path).read_text() == text for path, text in before.items())
            assert "LOCK-ada-001" in (folder / TURNFILE).read_text()

    def body(edit: Transaction) -> str:
        assert [held.id for held in session.read().turnfile.locks] == ["LOCK-ada-001"]
        edit.write(WORKLOG, (edit.read(WORKLOG) or "") + "- sent\n")
        return send("hello")(edit)

    monkeypatch.setattr(failpoints, "hook", note)
    done = turnfile.transact([MAILBOX, WORKLOG], "ada", "nine steps", body, folder=session, wait=None)
    assert steps == ["lock.acquired", "body.done", "targets.checked", "journal.written", "lock.released"]
    ledger = session.read().turnfile
    assert (ledger.revision, ledger.locks) == (3, ())
    assert ledger.signals[0].detail == f"completed {done.lock_id}: {', '.join(done.files)}, revision {done.revision}"
    is_whole(session)


def test_r3_a_step_that_fails_aborts_the_write(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    before = session.texts([MAILBOX, PROJECTION, WORKLOG])
    for place in ("body.done", "targets.checked"):

        def fail(name: str, place: str = place) -> None:
            if name == place:
                raise RuntimeError(place)

        monkeypatch.setattr(failpoints, "hook", fail)
        with (
            pytest.raises(RuntimeError),
            turnfile.transaction([MAILBOX], "ada", "x", folder=session, wait=None) as edit,
        ):
            send("hello")(edit)
        monkeypatch.setattr(failpoints, "hook", None)
        assert session.texts([MAILBOX, PROJECTION, WORKLOG]) == before
        assert session.read().turnfile.locks == ()


def test_r3_the_lock_is_checked_again_before_the_write(session: Session) -> None:
    before = text_of(session, MAILBOX)

    def slowly() -> None:
        with turnfile.transaction([MAILBOX], "ada", "x", folder=session, wait=None) as edit:
            send("hello")(edit)
            write(session, 3)  # the lease has run out meanwhile

    with pytest.raises(NotHolder):
        slowly()
    assert text_of(session, MAILBOX) == before


# --- R4: invariants --------------------------------------------------------------------------------------------------


def replaced(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


@pytest.mark.parametrize(
    ("path", "change", "rule"),
    [
        (MAILBOX, replaced("| 1      |", "| 2      |"), "unread-count"),  # 1
        (MAILBOX, replaced("| MSG-20260302-001 | Ada -> Bob | P1 | Read the plan |\n", ""), "queue-missing"),  # 2
        (MAILBOX, replaced("### MSG-20260302-002", "### MSG-20260302-001"), "id-twice"),  # 3
        (MAILBOX, replaced("### MSG-20260302-002", "### MSG-20260301-007"), "id-order"),  # 3
        (MAILBOX, replaced("**Status:** acknowledged", "**Status:** closed"), "terminal-active"),  # 6
        (WORKLOG, replaced("Now Working (ada): idle\n", "Now Working (ada):\n"), "status-empty"),
        (QUESTIONS, lambda text: text + "| OQ-001 | Which glaze? | pending | 2026-06-12 |\n", "question-open"),
    ],
)
def test_r4_an_edit_that_breaks_an_invariant_is_refused_with_its_line(
    session: Session, path: str, change: Callable[[str], str], rule: str
) -> None:
    put(session, MAILBOX, BOLD)
    before = text_of(session, path)

    def body(edit: Transaction) -> None:
        edit.write(path, change(edit.read(path) or ""))

    with pytest.raises(Invalid) as refusal:
        turnfile.transact([path], "ada", "x", body, folder=session, wait=None)
    assert rule in [problem.rule for problem in refusal.value.problems]
    assert refusal.value.line >= 1
    assert text_of(session, path) == before
    assert session.read().turnfile.locks == ()


@pytest.mark.parametrize("digits", [3, 9, 10])
def test_r4_the_next_id_is_the_highest_of_the_day_and_one_whatever_is_mentioned(session: Session, digits: int) -> None:
    def sent(subject: str) -> str:
        found: str = turnfile.transact([MAILBOX], "ada", "x", send(subject), folder=session, wait=None).result
        return found

    mention = f"See MSG-20260612-{'9' * digits}"
    put(session, MAILBOX, text_of(session, MAILBOX).replace("## Quick Reply", f"{mention}.\n\n## Quick Reply"))
    first = sent("hello")
    number = int(first.rpartition("-")[2])
    assert [sent(mention), sent("again")] == [f"MSG-20260612-{number + more:03d}" for more in (1, 2)]
    assert number < 10


def test_r4_an_id_that_was_taken_meanwhile_is_computed_anew(session: Session) -> None:
    tried: list[str] = []

    def body(edit: Transaction) -> str:
        tried.append(send("mine")(edit))
        if len(tried) == 1:  # another tool sends one without any lock, and takes the id
            box = text_of(session, MAILBOX)
            theirs: dict[str, str] = {MAILBOX: box}

            class Theirs:
                read = staticmethod(lambda path: theirs[path])
                write = staticmethod(theirs.__setitem__)

            send("theirs", "bob", "ada")(Theirs)  # type: ignore[arg-type]
            put(session, MAILBOX, theirs[MAILBOX])
        return tried[-1]

    done = turnfile.transact([MAILBOX], "ada", "x", body, folder=session, wait=None)
    assert tried == ["MSG-20260612-001", "MSG-20260612-002"]
    assert done.result == "MSG-20260612-002"
    assert {card.id: card.get("subject") for card in parse(text_of(session, MAILBOX)).cards} == {
        "MSG-20260612-001": "theirs",
        "MSG-20260612-002": "mine",
    }
    is_whole(session)


# --- R5: the projection ----------------------------------------------------------------------------------------------


def test_r5_every_change_of_the_mailbox_regenerates_the_projection_with_it(session: Session) -> None:
    ada, bob = Mail(session, "ada", wait=None), Mail(session, "bob", wait=None)
    id = ada.send("bob", "hello").id
    steps: list[Callable[[], object]] = [
        lambda: bob.ack(id),
        lambda: bob.block(id, "the kiln"),
        lambda: bob.reply(id, body="soon"),
        lambda: bob.action(id),
        lambda: ada.close(id, "thanks"),
    ]
    for step in steps:
        before = text_of(session, PROJECTION)
        step()
        mailbox, projected = session.texts([MAILBOX, PROJECTION]).values()
        assert projected != before
        assert not projection.is_stale(mailbox or "", projected or "")


# --- R6: conflicts and recovery --------------------------------------------------------------------------------------


def test_r6_drift_is_found_and_the_edit_made_again_on_what_is_there(session: Session) -> None:
    runs: list[str] = []

    def body(edit: Transaction) -> None:
        runs.append(edit.read(WORKLOG) or "")
        if len(runs) == 1:
            put(session, WORKLOG, runs[0] + "- by hand\n")
        edit.write(WORKLOG, runs[-1] + "- by ada\n")

    turnfile.transact([WORKLOG], "ada", "x", body, folder=session, wait=None)
    assert len(runs) == 2
    assert text_of(session, WORKLOG).endswith("- by hand\n- by ada\n")


def test_r6_who_loses_precedence_removes_its_lock_and_begins_again(session: Session) -> None:
    runs: list[int] = []

    def body(edit: Transaction) -> None:
        assert edit.lock is not None
        runs.append(edit.lock.acquired_rev)
        if len(runs) == 1:  # a lock of another tool, on an earlier revision; it is gone when we try again
            rival = Lock("LOCK-aaa", ("WORKLOG.md",), "bob", 1, 2)
            put(session, TURNFILE, session.read().with_lock(rival).text)
        append(WORKLOG, "- by ada")(edit)

    def pause(_: float) -> None:
        if session.read().turnfile.lock("LOCK-aaa") is not None:
            turnfile.release(session, "LOCK-aaa", "bob")

    turnfile.transact([WORKLOG], "ada", "x", body, folder=session, wait=WaitPolicy(pause=pause))
    assert runs == [2, 5]  # ours went at revision 3, theirs at 4
    assert text_of(session, WORKLOG).count("- by ada\n") == 1
    assert session.read().turnfile.locks == ()


def test_r6_contention_that_does_not_move_is_put_to_the_maintainer_with_the_facts(session: Session) -> None:
    held = lock(session, WORKLOG, lease_revs=9)
    with pytest.raises(Escalated) as refusal:
        turnfile.transact([WORKLOG], "bob", "x", nothing, folder=session, wait=WaitPolicy(pause=lambda _: None))
    card = parse(text_of(session, MAILBOX)).card(refusal.value.notice)
    assert (card.get("type"), card.receiver) == ("decision-required", "mia")
    for fact in (f"lock_id: {held.id}", "holder: ada", "acquired_rev: 2", "last seen coordination.revision: 2"):
        assert f"- {fact}" in card.body.splitlines()


# --- R7: override ----------------------------------------------------------------------------------------------------


def test_r7_an_override_states_reason_and_lock_removes_it_reconciles_and_is_logged(session: Session) -> None:
    held = lock(session, MAILBOX)
    put(session, MAILBOX, text_of(session, MAILBOX).replace("| bob | 0 |", "| bob | 5 |"))  # the holder left it so
    with pytest.raises(Invalid):
        turnfile.override(session, held.id, "I am in a hurry", "mia")
    done = turnfile.override(session, held.id, "P0: unsafe state", "mia")
    assert session.read().turnfile.lock(held.id) is None
    log = text_of(session, WORKLOG)
    for fact in (held.id, f"revision {done.revision}", "P0: unsafe state", "mia"):
        assert fact in log
    is_whole(session)
    assert turnfile.override(session, lock(session, MAILBOX).id, "P0: again", "mia", take=True).replaced_by is not None


# --- R8: boundaries --------------------------------------------------------------------------------------------------


def test_r8_statuses_are_those_of_the_message_lifecycle() -> None:
    assert set(OPEN) == {"unread", "acknowledged", "actioned", "blocked", "deferred"}  # deferring keeps it open
    assert set(TERMINAL) == {"closed", "resolved", "superseded", "withdrawn", "abandoned"}
    assert {target for _, target in STEPS.values()} == set(OPEN) - {"unread", "deferred"}


def test_r8_an_escalation_is_a_decision_as_maintainers_want_it(session: Session) -> None:
    lock(session, WORKLOG, lease_revs=9)
    with pytest.raises(Escalated) as refusal:
        turnfile.transact([WORKLOG], "bob", "x", nothing, folder=session, wait=WaitPolicy(pause=lambda _: None))
    body = parse(text_of(session, MAILBOX)).card(refusal.value.notice).body
    for part in ("**Decision needed:**", "**Options:**", "**Recommended:**", "**If delayed:**"):
        assert part in body
    assert 2 <= sum(line[:2] in ("1.", "2.", "3.", "4.") for line in body.splitlines()) <= 4


def test_r8_the_projection_says_its_schema_and_keeps_what_others_put_on_a_card(session: Session) -> None:
    token = "REV-20260301-plan-01-h0a1b2c3d"
    put(session, MAILBOX, BOLD.replace("**Type:** request", f"**Type:** request\n**Revision token:** {token}", 1))
    Mail(session, "ada", wait=None).send("bob", "hello")
    said = msgspec.json.decode(text_of(session, PROJECTION))
    assert all(said[key] for key in ("schema_id", "schema_version", "projection_kind"))
    assert token in [message["fields"].get("revision_token") for message in said["active_messages"]]


def test_r8_the_ledger_is_the_clock(session: Session) -> None:
    seen = [session.read().revision]
    held = lock(session, MAILBOX)
    seen.append(session.read().revision)
    turnfile.unlock(session, held.id, "ada")
    seen.append(session.read().revision)
    assert seen == [1, 2, 3]
    assert held.acquired_rev == 2
    assert session.read().turnfile.header_revision == 3


def test_f7_processes_of_one_name_share_its_lock_and_all_send(session: Session) -> None:
    def send(number: int) -> list[str]:
        hand = Mail(Session(session.folder.path), "ada")
        return [hand.send("bob", f"{number}-{each}").id for each in range(3)]

    with ThreadPoolExecutor(6) as pool:
        ids = [id for sent in pool.map(send, range(6)) for id in sent]
    assert len(set(ids)) == 18
    assert session.read().turnfile.locks == ()
    assert [each for each in session.read().turnfile.signals if each.signal == "blocked"] == []
    assert turnfile.check(session) == []
