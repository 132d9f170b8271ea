"""Mail on a real folder (F11, F12): each change one transaction, with lock, invariants, projection and archive."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import errors, turnfile
from holdfast.turnfile import files, mail
from holdfast.turnfile import invariants as invariants
from holdfast.turnfile.archive import with_card
from holdfast.turnfile.locks import WaitPolicy, acquire, lock_request, release
from holdfast.turnfile.mail import Mail
from holdfast.turnfile.mailbox import parse, projection
from holdfast.turnfile.model import ARCHIVE
from holdfast.turnfile.session import Session
from tests import amounts
from tests.turnfile.mailboxes import BOLD, EMPTY, PLAIN, TABLE

LEDGER = """\
# TURNFILE.yaml
# Last modified revision: 3
# Modified by: ada

turnfile:
  version: "0.1"
  project: "harbour"
  workspace: "working-session/"

agents:
  ada:
    role: "agent"
    status: "idle"
  bob:
    role: "agent"
    status: "idle"

maintainer:
  id: "sam"
  status: "available"

coordination:
  revision: 3
  active_phase: null
  active_step: null
  tasks: {}

locks: {}

turn_queue: []

messages: []
"""
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
ID = "MSG-20260304-001"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    folder = tmp_path / "working-session"
    folder.mkdir()
    (folder / "TURNFILE.yaml").write_bytes(LEDGER.encode())
    (folder / "MAILBOX.md").write_bytes(EMPTY.encode())
    return Session(folder, now=lambda: NOON)


def text_of(session: Session, name: str = "MAILBOX.md") -> str:
    text = session.texts([name])[name]
    assert text is not None
    return text


def check(session: Session) -> None:
    """All is in order: invariants, projection, no lock left."""
    names = ("TURNFILE.yaml", "MAILBOX.md", "MAILBOX.json")
    everyone = session.read().turnfile.everyone
    assert invariants.check({name: text_of(session, name) for name in names}, None, everyone) == []
    assert session.read().turnfile.locks == ()


def test_f11_a_message_lives_from_sending_to_the_archive(session: Session) -> None:
    ada, bob, sam = Mail(session, "ada"), Mail(session, "bob"), Mail(session, "sam")
    sent = ada.send("bob", "Read the plan", body="Please.\n\n### Why\n\nBecause.", priority="P0")
    assert (sent.id, sent.status, sent.completion.revision) == (ID, "unread", 5)  # acquired at 4, released at 5
    check(session)
    answer = bob.reply(sent.id, body="Will do.")
    check(session)
    assert mail.message(session, sent.id)["status"] == "acknowledged"
    assert bob.block(sent.id, "the tide").status == "blocked"
    check(session)
    assert bob.ack(sent.id).status == "acknowledged"
    check(session)
    assert bob.action(sent.id, "read").status == "actioned"
    check(session)
    assert [one["id"] for one in mail.messages(session)] == [answer.id, sent.id]
    assert [one["id"] for one in mail.messages(session, "Ada", "unread")] == [answer.id]
    assert mail.messages(session, "sam") == []
    closed = ada.close(sent.id, "thanks")
    assert set(closed.completion.files) == {"MAILBOX.md", ARCHIVE}
    sam.close(answer.id)
    check(session)
    assert mail.messages(session) == []
    shown = mail.message(session, sent.id)
    assert (shown["status"], shown["body"]) == ("closed", "Please.\n\n### Why\n\nBecause.")
    assert [ack.split(" — ")[2] for ack in shown["ack"]] == [
        f"acknowledged: answered in {answer.id}",
        "blocked: the tide",
        "acknowledged.",
        "actioned: read",
        "closed: thanks",
    ]
    assert ada.send("bob", "next").id == "MSG-20260304-003"  # closed ids are not given again


def test_f12_the_projection_changes_in_the_same_transaction_as_the_mailbox(session: Session) -> None:
    Mail(session, "ada").send("bob", "x")
    said = json.loads(text_of(session, "MAILBOX.json"))
    assert said["generated_at"] == "2026-03-04T12:00:00Z"
    assert said["source_file"] == "working-session/MAILBOX.md"
    assert [one["id"] for one in said["active_messages"]] == [ID]
    assert not projection.is_stale(text_of(session), text_of(session, "MAILBOX.json"))


def test_f11_a_refused_step_leaves_every_byte_of_the_mailbox(session: Session) -> None:
    ada, bob = Mail(session, "ada"), Mail(session, "bob")
    ada.send("bob", "x")
    before = text_of(session), text_of(session, "MAILBOX.json")
    refusals: list[tuple[Callable[[], object], type[errors.HoldfastError]]] = [
        (lambda: ada.ack(ID), errors.NotRecipient),
        (lambda: bob.block(ID, "x"), errors.InvalidTransition),
        (lambda: bob.close(ID), errors.NotSender),
        (lambda: bob.ack("MSG-20260304-009"), errors.MessageNotFound),
        (lambda: ada.send("bob", "two\nlines"), errors.InvalidValue),
        (lambda: ada.send("bob", "x", body="### MSG-20260304-007"), errors.InvalidValue),
        (lambda: Mail(session, "a|b"), errors.InvalidName),
        (lambda: mail.message(session, "MSG-20260304-009"), errors.MessageNotFound),
    ]
    for do, error in refusals:
        with pytest.raises(error):
            do()
    assert (text_of(session), text_of(session, "MAILBOX.json")) == before
    assert session.read().turnfile.locks == ()


def test_f3_who_finds_the_mailbox_locked_writes_nothing(session: Session) -> None:
    acquire(session, lock_request(session, ["MAILBOX.md"], "bob", "by hand"))
    before = {path.name: path.read_bytes() for path in Path(session.folder.path).iterdir()}
    with pytest.raises(errors.Held):
        Mail(session, "ada", wait=None).send("bob", "x")
    assert {path.name: path.read_bytes() for path in Path(session.folder.path).iterdir()} == before
    lock = session.read().turnfile.locks[0]
    mine = Mail(session, "bob", under=lock.id)
    assert mine.send("ada", "under my own lock").id == ID
    assert [each.id for each in session.read().turnfile.locks] == [lock.id]


def test_the_ledgers_own_name_of_an_actor_holds_the_lock(session: Session) -> None:
    Mail(session, "Ada").send("Bob", "x")
    Mail(session, "Maintainer").send("ada", "y")
    assert {one.sender for one in session.read().turnfile.signals} == {"ada", "sam"}
    assert parse(text_of(session)).card(ID).sender == "Ada"


def test_f10_old_disorder_refuses_no_mail_only_an_ambiguous_id_cannot_be_addressed(session: Session) -> None:
    path = Path(session.folder.path) / "MAILBOX.md"
    drifted = BOLD.replace("| 1      | MSG", "| 7      | MSG").replace(
        "| MSG-20260302-002 | Bob -> Ada", "| MSG-X | Bob -> Ada"
    )
    path.write_bytes(drifted.encode())
    Mail(session, "bob").ack("MSG-20260302-001")  # what follows from the cards is put right
    check(session)
    path.write_bytes(BOLD.replace("### MSG-20260302-002", "### MSG-20260302-001").encode())
    uses: list[Callable[[], object]] = [
        lambda: Mail(session, "bob").ack("MSG-20260302-001"),
        lambda: mail.message(session, "MSG-20260302-001"),
        lambda: mail.verify(session, "MSG-20260302-001"),
    ]
    for use in uses:
        with pytest.raises(errors.Invalid, match="several cards"):
            use()
    sent = Mail(session, "bob").send("ada", "x")
    assert [problem.rule for problem in sent.completion.warnings] == ["disorder"]
    assert Mail(session, "ada").ack(sent.id).status == "acknowledged"
    assert Mail(session, "bob").close(sent.id).status == "closed"
    assert [problem.rule for problem in turnfile.check(session) if problem.level == "error"] == ["id-twice"]
    assert session.read().turnfile.locks == ()


def test_f9_a_v0_mailbox_is_written_in_its_own_dialect(session: Session) -> None:
    path = Path(session.folder.path) / "MAILBOX.md"
    path.write_bytes(PLAIN.replace("\n", "\r\n").encode())
    sent = Mail(session, "ada").send("bob", "again", body="text")
    Mail(session, "bob").action(sent.id, "done")
    Mail(session, "ada").close(sent.id)
    raw = path.read_bytes()
    assert raw.count(b"\r\n") == raw.count(b"\n")
    check(session)
    assert mail.message(session, sent.id)["body"] == "text"


def test_the_archive_keeps_cards_whole_whatever_its_line_ends() -> None:
    one = with_card(None, "### MSG-20260304-001\r\n\r\n**From:** a -> b\r\n")
    assert one == "# Mailbox Archive\r\n\r\n---\r\n\r\n### MSG-20260304-001\r\n\r\n**From:** a -> b\r\n"
    two = with_card("# Old\n\ntext", "### MSG-20260304-002\r\n\r\n**From:** a -> b\r\n")
    assert two == "# Old\n\ntext\n\n---\n\n### MSG-20260304-002\n\n**From:** a -> b\n"
    assert [card.id for card in parse(with_card(one, "### MSG-20260304-002\n")).cards] == [ID, "MSG-20260304-002"]


def test_f12_a_projection_is_exported_by_hand(session: Session, tmp_path: Path) -> None:
    source = Path(session.folder.path) / "MAILBOX.md"
    target = tmp_path / "out" / "BOX.json"
    target.parent.mkdir()
    assert mail.export(source, target) is True
    assert mail.export(source, target) is False
    assert not projection.is_stale(EMPTY, target.read_text())
    for bad in (source, tmp_path / "x.md"):
        with pytest.raises(errors.Invalid):
            mail.export(source, bad)
    with pytest.raises(errors.NotFound):
        mail.export(tmp_path / "nothing.md", target)
    link = tmp_path / "out" / "LINK.json"
    link.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(errors.Invalid):
        mail.export(source, link)
    assert not (tmp_path / "elsewhere.json").exists()


def test_a_folder_without_a_mailbox_says_so(session: Session) -> None:
    (Path(session.folder.path) / "MAILBOX.md").unlink()
    with pytest.raises(errors.NotFound):
        mail.messages(session)
    with pytest.raises(errors.NotFound):
        Mail(session, "ada").send("bob", "x")
    assert session.read().turnfile.locks == ()


def _sender(folder: str, name: str, count: int) -> None:
    hand = Mail(folder, name, wait=WaitPolicy(interval=0.5, checks=1000))
    for number in range(count):
        for attempt in range(50):
            try:
                sent = hand.send("bob" if name == "ada" else "ada", f"{name} {number}")
                break
            except errors.Held:
                if attempt == 49:
                    raise
        assert sent.status == "unread"


def test_f14_two_agents_that_send_at_once_lose_no_message_and_share_no_id(session: Session) -> None:
    count = int(os.environ.get("TURN_TRANSACTIONS", "40")) // 4
    spawn = multiprocessing.get_context("spawn")
    senders = [spawn.Process(target=_sender, args=(session.folder.path, name, count)) for name in ("ada", "bob")]
    for process in senders:
        process.start()
    for process in senders:
        process.join(300)
        assert process.exitcode == 0
    cards = parse(text_of(session)).cards
    subjects = sorted(card.get("subject") for card in cards if card.get("type") == "request")
    assert subjects == sorted(f"{name} {number}" for name in ("ada", "bob") for number in range(count))
    assert len({card.id for card in cards}) == len(cards)
    check(session)


def _close_and_die(folder: str, at: str, nth: int) -> None:
    left = [nth]

    def hook(name: str) -> None:
        left[0] -= name == at
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    files.hook = hook
    Mail(folder, "ada", wait=None).close(ID, "over")


@pytest.mark.parametrize("at", files.NAMES)
def test_f14_a_close_that_is_killed_leaves_the_card_in_one_place(session: Session, at: str) -> None:
    """The mailbox, its projection, the archive and the ledger change together, or not at all."""
    Mail(session, "ada").send("bob", "x", body="text")
    spawn = multiprocessing.get_context("spawn")
    died = 0
    for nth in (1, 2, 3):
        child = spawn.Process(target=_close_and_die, args=(session.folder.path, at, nth))
        child.start()
        child.join(300)
        died += child.exitcode == -signal.SIGKILL
        box, archive = parse(text_of(session)), parse(session.texts([ARCHIVE])[ARCHIVE] or "")
        assert (box.find(ID) is None) == (archive.find(ID) is not None)
        assert len(archive.cards) <= 1
        assert invariants.check({name: text_of(session, name) for name in ("MAILBOX.md", "MAILBOX.json")}) == []
        if box.find(ID) is None:
            break
        locks = session.read().turnfile.locks
        for lock in locks:
            release(session, lock.id, "ada")
    assert died


def unread(session: Session) -> dict[str, int]:
    return {each.agent.lower(): each.unread for each in turnfile.status(session).unread}


def test_f11_one_receivers_acknowledgement_does_not_speak_for_another(session: Session) -> None:
    sent = Mail(session, "ada").send("bob, cyd, Maintainer", "to three")
    assert unread(session) == {"bob": 1, "cyd": 1, "maintainer": 1}
    assert Mail(session, "bob").action(sent.id).status == "actioned"
    assert mail.message(session, sent.id)["status"] == "unread"  # the least advanced
    assert unread(session) == {"cyd": 1, "maintainer": 1}
    assert [each["id"] for each in mail.messages(session, "cyd", "unread")] == [sent.id]
    assert mail.messages(session, "bob", "unread") == []
    with pytest.raises(errors.InvalidTransition, match="it is actioned"):
        Mail(session, "bob").action(sent.id)
    Mail(session, "sam").ack(sent.id)  # the maintainer, by name
    Mail(session, "cyd").reply(sent.id, body="fine")
    assert mail.message(session, sent.id)["status"] == "acknowledged"
    assert [each["id"] for each in mail.messages(session, "cyd", "acknowledged")] == [sent.id]
    Mail(session, "sam").action(sent.id)
    Mail(session, "cyd").action(sent.id)
    assert mail.message(session, sent.id)["status"] == "actioned"
    check(session)


def test_f11_all_means_the_ledgers_agents_without_the_sender(session: Session) -> None:
    sent = Mail(session, "ada").send("all", "to everybody")
    assert unread(session) == {"bob": 1}
    session.write(lambda ledger: ledger.with_agent("cyd"), "ada")
    Mail(session, "bob").ack(sent.id)
    assert unread(session) == {"cyd": 1}
    assert mail.message(session, sent.id)["status"] == "unread"
    Mail(session, "cyd").ack(sent.id)
    assert mail.message(session, sent.id)["status"] == "acknowledged"
    check(session)


def test_f11_all_together_with_names_means_everyone_once(session: Session) -> None:
    one = Mail(session, "ada").send("all,bob", "to everybody")
    two = Mail(session, "ada").send("bob, everyone, Maintainer", "and the maintainer")
    assert [mail.message(session, each.id)["fields"]["to"] for each in (one, two)] == ["all", "all, Maintainer"]
    assert unread(session) == {"bob": 2, "maintainer": 1}
    assert [each["id"] for each in mail.messages(session, "bob", "unread")] == [two.id, one.id]
    Mail(session, "bob").ack(one.id)
    Mail(session, "bob").ack(two.id)
    assert mail.message(session, one.id)["status"] == "acknowledged"
    assert mail.message(session, two.id)["status"] == "unread"
    Mail(session, "sam").ack(two.id)
    assert mail.message(session, two.id)["status"] == "acknowledged"
    check(session)


def edit_worklog(session: Session, name: str) -> None:
    turnfile.transact(["WORKLOG.md"], name, "x", lambda edit: edit.write("WORKLOG.md", "# Worklog\n"), folder=session)


def lock_by_hand(session: Session, name: str) -> None:
    turnfile.unlock(session, acquire(session, lock_request(session, ["WORKLOG.md"], name, "x")).id, name)


JOINS: dict[str, Callable[[Session, str], object]] = {
    "send": lambda session, name: Mail(session, name).send("bob", "hello"),
    "send to all": lambda session, name: Mail(session, name).send("all", "hello"),
    "ack": lambda session, name: Mail(session, name).ack(ID),
    "close": lambda session, name: Mail(session, name).close(ID),
    "lock": lock_by_hand,
    "edit": edit_worklog,
    "task": lambda session, name: turnfile.tasks.add(session, f"T-{name}", "dig", name),
    "tidy": lambda session, name: turnfile.tidy(session, name),
}


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "mailed before"])
@pytest.mark.parametrize("join", [each for each in JOINS if each != "close"])  # which ends the message
def test_f11_an_agent_that_joins_while_a_message_to_all_is_open_leaves_all_in_order(
    session: Session, join: str, known: bool
) -> None:
    Mail(session, "ada").send("all", "the kiln is hot", type="notify")
    Mail(session, "bob").ack(ID)
    if known:  # as a receiver, before the ledger has that name
        Mail(session, "ada").send("dave", "join us")
    check(session)
    before = mail.message(session, ID)["ack"]
    for name in ("dave", "eve"):
        JOINS[join](session, name)
        assert [each for each in turnfile.check(session) if each.level == "error"] == []
        assert turnfile.tidy(session, "ada").repairs == ()
    assert mail.message(session, ID)["ack"][: len(before)] == before
    Mail(session, "ada").send("bob", "one more")
    check(session)
    assert session.read().turnfile.joining("ada") == ("ada",)


def test_f11_an_agent_that_joins_receives_open_messages_to_all_with_the_next_message_or_step(session: Session) -> None:
    Mail(session, "ada").send("all", "the kiln is hot")
    Mail(session, "bob").ack(ID)
    lock_by_hand(session, "dave")
    assert (unread(session), mail.message(session, ID)["status"]) == ({}, "acknowledged")
    turnfile.tidy(session, "ada")
    assert mail.message(session, ID)["status"] == "acknowledged"
    assert [each.newcomer for each in session.read().turnfile.agents] == [False, False, True]
    Mail(session, "eve").send("bob", "hello")
    assert unread(session) == {"bob": 1, "dave": 1, "eve": 1}
    assert mail.message(session, ID)["status"] == "unread"
    assert "newcomer" not in text_of(session, "TURNFILE.yaml")
    for name in ("dave", "eve"):
        Mail(session, name).ack(ID)
    assert mail.message(session, ID)["status"] == "acknowledged"
    check(session)


def test_f11_who_asks_the_maintainer_about_a_lock_joins_in_order(session: Session) -> None:
    Mail(session, "ada").send("all", "the kiln is hot")
    Mail(session, "bob").ack(ID)
    lock = acquire(session, lock_request(session, ["WORKLOG.md"], "bob", "x", 100))
    wait = WaitPolicy(interval=0, checks=3)
    with pytest.raises(errors.Escalated):
        turnfile.transact(["WORKLOG.md"], "dave", "x", lambda _: None, folder=session, wait=wait)
    release(session, lock.id, "bob")
    check(session)
    assert unread(session) == {"dave": 1, "maintainer": 1}


def test_f11_where_the_mailbox_needs_no_lock_who_writes_joins_all_the_same(session: Session) -> None:
    Mail(session, "ada").send("all", "the kiln is hot")
    Mail(session, "bob").ack(ID)
    free = Session(session.folder.path, registry=["WORKLOG.md"], now=lambda: NOON)
    Mail(free, "dave").send("bob", "hello")
    check(session)
    assert unread(session) == {"bob": 1, "dave": 1}


def test_f11_an_agent_that_joins_between_trial_and_write_of_a_message_waits_for_the_next_one(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mail(session, "ada").send("all", "the kiln is hot")
    Mail(session, "bob").ack(ID)

    def joins(name: str) -> None:
        if name == "body.done":
            monkeypatch.setattr(files, "hook", None)
            turnfile.tasks.add(session, "T-1", "dig", "eve")

    monkeypatch.setattr(files, "hook", joins)
    Mail(session, "dave").send("bob", "hello")
    check(session)
    assert unread(session) == {"bob": 1, "dave": 1}
    Mail(session, "dave").send("bob", "hello again")
    check(session)
    assert unread(session) == {"bob": 2, "dave": 1, "eve": 1}


def test_f11_no_command_leaves_disorder_whoever_joins_meanwhile(session: Session) -> None:
    for seed in amounts.seeds(4, 200):
        rng = random.Random(seed)
        done: list[object] = [seed]
        for _ in range(12):
            name, what = rng.choice(("ada", "bob", "cyd", "dave", "eve", f"n{rng.randrange(9)}")), rng.choice([*JOINS])
            open_ones = [card["id"] for card in mail.messages(session)]
            done.append((name, what))
            with contextlib.suppress(errors.NotRecipient, errors.NotSender, errors.InvalidTransition, errors.Exists):
                if what in ("ack", "close") and open_ones:
                    getattr(Mail(session, name), what)(rng.choice(open_ones))
                elif what not in ("ack", "close"):
                    JOINS[what](session, name)
            assert [each for each in turnfile.check(session) if each.level == "error"] == [], done


@pytest.mark.parametrize("name", ["all", "Everyone"])
def test_f11_nobody_is_named_all(session: Session, tmp_path: Path, name: str) -> None:
    uses: list[Callable[[], object]] = [
        lambda: Mail(session, name),
        lambda: lock_request(session, ["WORKLOG.md"], name, "x"),
        lambda: turnfile.init(Session(tmp_path / "new"), "kiln", [name]),
        lambda: turnfile.init(Session(tmp_path / "new"), "kiln", ["ada"], name),
        lambda: turnfile.tasks.claim(session, "T-1", name),
        lambda: turnfile.tasks.signal(session, name, "bob", "notify"),
        lambda: turnfile.tidy(session, name),
    ]
    for use in uses:
        with pytest.raises(errors.InvalidName, match="is reserved"):
            use()
    session.write(lambda ledger: ledger.with_agent(name), "ada")
    assert "reserved-name" in [problem.rule for problem in turnfile.check(session)]


def test_f10_a_status_ahead_of_one_of_the_receivers_is_found_and_tidied(session: Session) -> None:
    sent = Mail(session, "ada").send("bob, cyd", "to two")
    Mail(session, "bob").ack(sent.id)
    path = Path(session.folder.path) / "MAILBOX.md"
    path.write_text(path.read_text().replace("**Status:** unread", "**Status:** acknowledged"))
    assert "status-receivers" in [problem.rule for problem in turnfile.check(session)]
    turnfile.tidy(session, "ada")
    assert mail.message(session, sent.id)["status"] == "unread"
    check(session)


def test_f11_a_card_that_sinks_below_later_ones_a_bare_decision_and_a_strange_disposition_are_reported(
    session: Session,
) -> None:
    first = Mail(session, "ada").send("bob", "now")
    late = Session(session.folder.path, now=lambda: datetime(2026, 3, 1, tzinfo=UTC))
    assert [each.rule for each in Mail(late, "ada").send("bob", "before").completion.warnings] == ["clock-behind"]
    asked = Mail(session, "ada").send("Maintainer", "which?", type="decision-required", body="Options: a, b")
    (warning,) = asked.completion.warnings
    assert (warning.rule, "lacks decision needed, recommended, if delayed" in warning.message) == ("decision", True)
    with pytest.raises(errors.InvalidValue, match="'maybe' is not a disposition"):
        Mail(session, "sam").reply(asked.id, disposition="maybe")
    assert Mail(session, "sam").reply(asked.id, disposition="approved").status == "unread"
    assert Mail(session, "bob").ack(first.id).status == "acknowledged"


def test_r8_a_message_carries_files_and_verify_says_what_has_changed_since(session: Session) -> None:
    project = Path(session.folder.path).parent
    (project / "spec.md").write_bytes(b"one\n")
    (project / "raw.bin").write_bytes(b"\0\xff")
    sent = Mail(session, "ada").send(
        "bob", "handoff", type="handoff-ready", files=["spec.md", str(project / "raw.bin")]
    )
    assert [each["path"] for each in mail.message(session, sent.id)["payload"]] == ["spec.md", "raw.bin"]
    assert [(each.path, each.state, each.revision) for each in mail.verify(session, sent.id)] == [
        ("spec.md", "same", 3),
        ("raw.bin", "same", 3),
    ]
    (project / "spec.md").write_bytes(b"two\n")
    (project / "raw.bin").unlink()
    Mail(session, "ada").close(sent.id)  # the archive has the digests too
    assert [each.state for each in mail.verify(session, sent.id)] == ["changed", "missing"]
    check(session)
    with pytest.raises(errors.NotFound, match=r"no file gone\.md"):
        Mail(session, "ada").send("bob", "x", files=["gone.md"])
    with pytest.raises(errors.Invalid, match="not a file of the project"):
        Mail(session, "ada").send("bob", "x", files=["../x"])
    plain = Mail(session, "ada").send("bob", "x")
    with pytest.raises(errors.Invalid, match="carries no files"):
        mail.verify(session, plain.id)


def test_r8_a_line_of_a_file_that_is_damaged_is_told_and_not_left_out(session: Session) -> None:
    for name in ("one.md", "two.md"):
        Path(session.folder.path, "..", name).write_text(name)
    sent = Mail(session, "ada").send("bob", "hand over", files=["one.md", "two.md"])
    path = Path(session.folder.path, "MAILBOX.md")
    path.write_text(path.read_text().replace("**Payload:** one.md sha256:", "**Payload:** one.md sha256:x"))
    assert [(each.state, each.path.partition(" ")[0]) for each in mail.verify(session, sent.id)] == [
        ("same", "two.md"),
        ("damaged", "one.md"),
    ]
    assert "payload" in [problem.rule for problem in turnfile.check(session)]
    assert mail.message(session, sent.id)["damaged_payload"][0].startswith("one.md sha256:x")
    path.write_text(path.read_text().replace("**Payload:** two.md sha256:", "**Payload:** two.md sha256:x"))
    assert [each.state for each in mail.verify(session, sent.id)] == ["damaged", "damaged"]


def test_r8_every_dialect_can_carry_files(session: Session) -> None:
    project = Path(session.folder.path).parent
    (project / "spec.md").write_bytes(b"one\n")
    for text in (TABLE, PLAIN, BOLD):
        (Path(session.folder.path) / "MAILBOX.md").write_bytes(text.encode())
        sent = Mail(session, "ada").send("bob", "handoff", files=["spec.md", "working-session/TURNFILE.yaml"])
        assert [each.path for each in mail.verify(session, sent.id)] == ["spec.md", "working-session/TURNFILE.yaml"]


def test_f13_a_file_that_is_too_large_does_not_refuse_status_and_check_of_the_others(session: Session) -> None:
    Mail(session, "ada").send("bob", "x")
    (Path(session.folder.path) / "OPEN_QUESTIONS.md").write_bytes(b"x" * (files.MAX_BYTES + 1))
    assert unread(session) == {"bob": 1}
    assert [(each.file, each.rule) for each in turnfile.status(session).problems] == [
        ("OPEN_QUESTIONS.md", "too-large")
    ]
    assert [each.file for each in turnfile.check(session)][-1] == "OPEN_QUESTIONS.md"
    assert Mail(session, "bob").send("ada", "y").status == "unread"


def test_f10_priority_and_subject_of_a_row_that_drift_from_its_card_are_found(session: Session) -> None:
    path = Path(session.folder.path) / "MAILBOX.md"
    path.write_bytes(BOLD.replace("| P1 | Read the plan |", "| P0 | Burn the plan |").encode())
    rules = {problem.rule for problem in turnfile.check(session) if problem.file == "MAILBOX.md"}
    assert rules == {"queue-priority", "queue-subject"}
    path.write_bytes(BOLD.replace("| P1 | Read the plan |", "| P1 | Read the … |").encode())
    assert [problem for problem in turnfile.check(session) if problem.file == "MAILBOX.md"] == []
    path.write_bytes(BOLD.replace("| P1 | Read the plan |", "| P0 | Burn the plan |").encode())
    Mail(session, "bob").ack("MSG-20260302-001")
    check(session)


def test_f11_a_file_that_is_attached_twice_is_carried_once_and_one_that_no_card_can_name_says_why(
    session: Session,
) -> None:
    project = Path(session.folder.path).parent
    for name in ("one.md", "two.md", " lead.md"):
        (project / name).write_text(name)
    files = ["one.md", "two.md", "./one.md", str(project / "one.md")]
    sent = Mail(session, "ada").send("bob", "hand over", files=files)
    assert [each.path for each in mail.verify(session, sent.id)] == ["one.md", "two.md"]
    with pytest.raises(errors.Invalid, match=r"' lead\.md' begins with a blank") as refused:
        Mail(session, "ada").send("bob", "x", files=[" lead.md"])
    assert refused.value.hint == "rename the file, then attach it"
    with pytest.raises(errors.NotFound, match="there is no file"):
        Mail(session, "ada").send("bob", "x", files=[" gone.md"])
