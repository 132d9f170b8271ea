"""F10: old disorder refuses nothing, no edit makes a finding worse, and `tidy` leaves order and loses no line."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from holdfast import errors, turnfile
from holdfast.turnfile import Session, files
from holdfast.turnfile.locks import acquire, lock_request, release
from holdfast.turnfile.mail import Mail
from holdfast.turnfile.mailbox import parse
from holdfast.turnfile.model import ARCHIVE, MAILBOX, QUESTIONS, TIDY_LOG, TURNFILE, WORKLOG
from tests.amounts import seeds
from tests.long.ledger import record
from tests.turnfile import disorder
from tests.turnfile.mailboxes import BOLD
from tests.turnfile.sessions import day, new_session, text_of

HEADER = ("# Last modified", "# Modified by", "  revision:")  # which every write changes
FILES = (TURNFILE, MAILBOX, ARCHIVE, WORKLOG, QUESTIONS, TIDY_LOG)


def planted_session(folder: Path, texts: dict[str, str]) -> Session:
    here = folder / "working-session"
    here.mkdir(parents=True)
    for path, text in texts.items():
        (here / path).write_bytes(text.encode())
    return Session(here, now=day)


def errors_of(session: Session) -> list[str]:
    return [str(problem) for problem in turnfile.check(session) if problem.level == "error"]


def everything(session: Session) -> Counter[str]:
    return Counter(line for text in session.texts(FILES).values() for line in (text or "").splitlines() if line.strip())


def append(edit: turnfile.Transaction, text: str) -> None:
    edit.write(WORKLOG, (edit.read(WORKLOG) or "") + text)


def write(session: Session, path: str, text: str) -> turnfile.Completion:
    return turnfile.transact([path], "ada", "x", lambda edit: edit.write(path, text), folder=session)


def try_everything(session: Session, where: object) -> None:
    """Send, answer, close and edit: each works, or names the one thing in its way."""
    found = len(errors_of(session))
    sent = Mail(session, "ada", wait=None).send("bob", "after the disorder", body="text")
    Mail(session, "bob", wait=None).ack(sent.id)
    refusals: list[errors.HoldfastError] = []
    for card in parse(text_of(session, MAILBOX)).cards:
        for name, step in ((card.receivers[0] if card.receivers else "sam", "action"), (card.sender or "sam", "close")):
            mail = Mail(session, name, wait=None)
            try:
                mail.close(card.id) if step == "close" else mail.action(card.id)
            except errors.HoldfastError as refused:
                refusals.append(refused)
    own = (errors.InvalidTransition, errors.NotRecipient, errors.NotSender, errors.MessageNotFound)  # not its step
    others = [each for each in refusals if not isinstance(each, own)]
    assert [each for each in others if "several cards" not in each.message] == [], where
    turnfile.transact([WORKLOG], "bob", "log it", lambda edit: append(edit, "\n- logged\n"), folder=session, wait=None)
    assert len(errors_of(session)) <= found, where


@pytest.mark.early
def test_f10_planted_disorder_refuses_nothing_and_is_tidied_without_losing_a_line(tmp_path: Path) -> None:
    tried, wrong = seeds(12, 1000), list[str]()
    for seed in tried:
        try:
            disorder_is_tidied(seed, tmp_path / str(seed))
        except (AssertionError, errors.HoldfastError) as error:
            wrong.append(f"seed {seed}: {error}")
        shutil.rmtree(tmp_path / str(seed))
    record("planted", tried, len(tried), len(wrong))
    assert wrong == []


def disorder_is_tidied(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    texts = dict(rng.choice(disorder.bases()))
    where = (seed, disorder.plant(rng, texts))
    session = planted_session(folder, texts)
    if rng.random() < 0.5:
        try_everything(session, where)
    if "stale_lock" in where[1]:
        release_what_is_in_the_way(session)
    before, revision = everything(session), session.read().revision
    dry = turnfile.tidy(session, "ada", dry_run=True)
    assert (everything(session), session.read().revision) == (before, revision), where
    done = turnfile.tidy(session, "ada", wait=None)
    assert done.repairs == dry.repairs, where
    assert errors_of(session) == [], (where, done.repairs)
    header = Counter({line: count for line, count in before.items() if line.startswith(HEADER)})
    assert before - everything(session) - header == Counter(), where
    assert turnfile.tidy(session, "ada", wait=None).repairs == (), where


def release_what_is_in_the_way(session: Session) -> None:
    """A young lock of another on a file that needs a repair is waited for; its holder has gone, so it is released."""
    texts = {path: text for path, text in session.texts(FILES).items() if text is not None}
    copy = planted_session(Path(session.folder.path).parent / "copy", texts)
    try:
        turnfile.tidy(copy, "ada", wait=None)
    except errors.Held as held:
        release(session, held.details["lock_id"], "eve")  # who holds nothing else


@pytest.mark.parametrize("kind", disorder.KINDS, ids=lambda kind: kind.__name__)
def test_f10_each_kind_of_disorder_can_be_planted_and_is_found(kind: disorder.Plant, tmp_path: Path) -> None:
    for number, base in enumerate(disorder.bases()[:4]):
        texts = dict(base)
        session = planted_session(tmp_path / f"{number}-before", texts)
        turnfile.tidy(session, "ada", wait=None)
        assert errors_of(session) == []
        if not kind(random.Random(2), texts):
            continue
        session = planted_session(tmp_path / str(number), texts)
        turnfile.check(session)
        assert turnfile.tidy(session, "ada", wait=None).repairs, (kind, number)
        return
    pytest.fail("no session has a place for it")


def test_f10_an_edit_that_repairs_one_of_two_things_is_written(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, MAILBOX)
    both = BOLD.replace("| 1      |", "| 7      |").replace("### MSG-20260302-002", "### MSG-20260302-001")
    path.write_text(both)
    mended = both.replace("| 7      |", "| 1      |")
    done = write(session, MAILBOX, mended)
    assert [problem.rule for problem in done.warnings] == ["disorder"]
    with pytest.raises(errors.Invalid, match="would break"):
        write(session, MAILBOX, both)


def test_f10_an_emptied_worklog_and_a_nul_byte_are_refused(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    for text, rule in (("", "emptied"), (" \n", "emptied"), (text_of(session, WORKLOG) + "\0\n", "nul")):
        with pytest.raises(errors.Invalid) as refused:
            write(session, WORKLOG, text)
        assert [problem.rule for problem in refused.value.problems] == [rule]


def test_f10_a_mailbox_without_sections_is_an_error_of_its_own_that_tidy_repairs(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    Path(session.folder.path, MAILBOX).write_text("# Mailbox\n\nnotes\n")
    assert [problem.rule for problem in turnfile.check(session) if problem.file == MAILBOX] == ["no-sections"]
    with pytest.raises(errors.Invalid, match="no section `## Active Messages`"):
        Mail(session, "ada").send("bob", "x")
    turnfile.tidy(session, "ada")
    assert turnfile.check(session) == []
    Mail(session, "ada").send("bob", "x")
    assert turnfile.check(session) == []


def test_f10_who_tidies_after_somebody_else_reports_what_it_did_itself(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    for subject in ("one", "two"):
        Mail(session, "ada").send("bob", subject)
    path = Path(session.folder.path, MAILBOX)
    path.write_text(path.read_text().replace("### MSG-20260612-002", "### MSG-20260612-001"))
    lock = acquire(session, lock_request(session, [MAILBOX], "ada", "by hand", 100))
    reports = []

    def tidied_meanwhile(_: float) -> None:
        reports.append(turnfile.tidy(session, "ada"))
        Mail(session, "ada").send("bob", "three")  # takes the next id
        release(session, lock.id, "ada")
        path.write_text(path.read_text().replace("### MSG-20260612-004", "### MSG-20260612-001"))

    reports.append(turnfile.tidy(session, "cyd", wait=turnfile.WaitPolicy(1, 3, tidied_meanwhile)))
    told = ["; ".join(each.what for each in report.repairs if "is now" in each.what) for report in reports]
    assert told[0].startswith("MSG-20260612-001 is now MSG-20260612-003")
    assert told[1].startswith("MSG-20260612-001 is now MSG-20260612-005")
    assert turnfile.check(session) == []

    acquire(session, lock_request(session, [MAILBOX], "ada", "by hand", 100))
    path.write_text(path.read_text().replace("| bob | 3 |", "| bob | 7 |"))

    def mended_meanwhile(_: float) -> None:
        turnfile.tidy(session, "ada")
        release(session, session.read().turnfile.locks[0].id, "ada")

    nothing = turnfile.tidy(session, "cyd", wait=turnfile.WaitPolicy(1, 3, mended_meanwhile))
    assert (nothing.repairs, nothing.files) == ((), ())


def test_f10_two_who_tidy_the_ledger_do_not_both_say_that_they_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, TURNFILE)
    path.write_text(path.read_text().replace('status: "idle"', 'status: "sleepy"', 1))
    reports = []

    def first(name: str) -> None:
        if name == "file.locked":
            monkeypatch.setattr(files, "hook", None)
            path.write_text(path.read_text().replace('status: "sleepy"', 'status: "idle"'))

    monkeypatch.setattr(files, "hook", first)
    reports.append(turnfile.tidy(session, "ada"))
    assert (reports[0].repairs, reports[0].files) == ((), ())


@pytest.mark.parametrize("heading", ["## Inbox Snapshot", "## Open Queue", "## Active Messages", "## Closed Summary"])
def test_f10_a_heading_that_was_deleted_is_found_and_comes_back_above_what_it_headed(
    tmp_path: Path, heading: str
) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, MAILBOX)
    path.write_text(BOLD)
    turnfile.tidy(session, "ada")
    before = path.read_text()
    lines = before.splitlines(keepends=True)
    del lines[max(n for n, line in enumerate(lines) if line.startswith(heading))]  # one is in a code fence
    changed = "".join(lines)
    path.write_text(changed)
    assert "section-missing" in [problem.rule for problem in turnfile.check(session) if problem.file == MAILBOX]
    path.write_text(before)
    with pytest.raises(errors.Invalid, match="would break"):
        write(session, MAILBOX, changed)
    path.write_text(changed)
    turnfile.tidy(session, "ada")
    assert turnfile.check(session) == []
    tables = [line for line in path.read_text().splitlines() if line.startswith("|")]
    assert tables == [line for line in before.splitlines() if line.startswith("|")]
    assert [line.split(" (")[0].strip() for line in path.read_text().splitlines() if line.startswith("## ")] == [
        line.split(" (")[0].strip() for line in before.splitlines() if line.startswith("## ")
    ]


def test_f10_a_write_puts_a_deleted_heading_back_and_leaves_no_table_behind(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, MAILBOX)
    Mail(session, "ada").send("bob", "one")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(("## Open Queue", "## Inbox Snapshot"))))
    Mail(session, "ada").send("bob", "two")
    text = path.read_text()
    assert turnfile.check(session) == []
    assert text.count("| MSG-20260612-001 | ada -> bob |") == text.count("| Agent | Unread |") == 1


def test_f10_a_heading_of_an_empty_mailbox_that_was_deleted_is_found(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, MAILBOX)
    before = path.read_text()
    for heading in ("## Inbox Snapshot", "## Open Queue", "## Active Messages", "## Closed Summary"):
        path.write_text("".join(line for line in before.splitlines(True) if not line.startswith(heading)))
        assert "section-missing" in [problem.rule for problem in turnfile.check(session)], heading
        turnfile.tidy(session, "ada")
        assert turnfile.check(session) == []
        Mail(session, "ada").send("bob", "x")


def test_f10_a_mailbox_that_cannot_be_read_is_not_called_in_order(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    Path(session.folder.path, MAILBOX).write_bytes(b"# Mailbox\n\xff\n")
    for dry in (True, False):
        done = turnfile.tidy(session, "ada", dry_run=dry)
        assert (done.repairs, [problem.rule for problem in done.problems]) == ((), ["unreadable"])


@pytest.mark.parametrize("interval", [float("nan"), float("inf"), -1.0, 86401.0])
def test_f3_a_wait_is_a_number_of_seconds(tmp_path: Path, interval: float) -> None:
    session = new_session(tmp_path)
    wait = turnfile.WaitPolicy(interval=interval)
    with pytest.raises(errors.Invalid, match="the interval of a wait"):
        turnfile.transact([WORKLOG], "ada", "x", lambda edit: append(edit, "x"), folder=session, wait=wait)
