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
from holdfast.turnfile.model import (
    ARCHIVE,
    CLOSED,
    MAILBOX,
    QUESTIONS,
    SIGNAL_ARCHIVE,
    TIDY_LOG,
    TURNFILE,
    WORKLOG,
)
from tests.amounts import seeds
from tests.long.ledger import record
from tests.turnfile import disorder
from tests.turnfile.mailboxes import BOLD
from tests.turnfile.sessions import day, new_session, text_of

HEADER = ("# Last modified", "# Modified by", "  revision:")  # which every write changes
FILES = (TURNFILE, MAILBOX, ARCHIVE, CLOSED, SIGNAL_ARCHIVE, WORKLOG, QUESTIONS, TIDY_LOG)


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
    if rng.random() < 0.25 and (path := planted_conflict(rng, session)) is not None:
        an_unfinished_merge_is_left_alone(session, path)
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


def planted_conflict(rng: random.Random, session: Session) -> str | None:
    """Leave a file as git leaves an unfinished merge, beside all other disorder; returns its path."""
    texts = {path: text for path, text in session.texts(FILES).items() if text}
    before = dict(texts)
    if not disorder.unmerged(rng, texts):
        return None
    path = next(path for path in texts if texts[path] != before[path])
    Path(session.folder.path, path).write_text(texts[path])
    return path


def an_unfinished_merge_is_left_alone(session: Session, path: str) -> None:
    """The file stays as it is, and check names its line; then the merge is resolved, by taking the first side."""
    merging = text_of(session, path)
    dry = turnfile.tidy(session, "ada", dry_run=True)
    shown = turnfile.check(session)
    assert [each.rule for each in shown if each.file == path and each.rule == "conflict"] == ["conflict"], path
    assert all(each.file != path for each in dry.repairs), path
    assert any((each.file, each.rule) == (path, "conflict") for each in dry.problems), path
    with pytest.raises(errors.Invalid, match="resolve the merge first"):
        turnfile.transact([path], "ada", "x", lambda edit: edit.write(path, f"{merging}.\n"), folder=session, wait=None)
    assert text_of(session, path) == merging
    lines = merging.split("\n")
    at = lines.index("<<<<<<< HEAD")
    lines[at : at + 5] = [lines[at + 1]]
    Path(session.folder.path, path).write_text("\n".join(lines))


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


def test_f10_conflict_markers_are_found_refuse_writes_for_that_one_reason_and_are_left_by_tidy(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    sent = Mail(session, "ada").send("bob", "one")
    path = Path(session.folder.path, MAILBOX)
    path.write_text(
        path.read_text().replace(
            "**Status:** unread", "<<<<<<< HEAD\n**Status:** unread\n=======\n**Status:** blocked\n>>>>>>> theirs"
        )
    )
    merging = path.read_text()
    line = merging.split("\n").index("<<<<<<< HEAD") + 1
    found = [(each.file, each.line, each.rule, each.message) for each in turnfile.check(session)]
    assert found == [(MAILBOX, line, "conflict", "a conflict marker of git: resolve the merge first")]
    mail = Mail(session, "bob")
    refused = f"line {line}, has a conflict marker of git: resolve the merge first"
    with pytest.raises(errors.Invalid, match=refused):
        mail.send("ada", "x")
    with pytest.raises(errors.Invalid, match=refused):
        mail.ack(sent.id)
    with pytest.raises(errors.Invalid, match=refused):
        mail.reply(sent.id, body="y")
    for dry in (True, False):
        done = turnfile.tidy(session, "ada", dry_run=dry)
        assert (done.repairs, [each.rule for each in done.problems]) == ((), ["conflict"])
    assert path.read_text() == merging
    both = merging.replace("<<<<<<< HEAD\n", "").replace("=======\n**Status:** blocked\n>>>>>>> theirs\n", "")
    write(session, MAILBOX, both)
    assert turnfile.check(session) == []
    mail.ack(sent.id)


def test_f10_conflict_markers_in_the_fence_of_a_body_are_text_and_elsewhere_refused(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    markers = "<<<<<<< HEAD\none\n=======\ntwo\n>>>>>>> theirs"
    Mail(session, "ada").send("bob", "how it looks", body=f"```\n{markers}\n```")
    assert turnfile.check(session) == []
    with pytest.raises(errors.Invalid, match="conflict marker"):
        Mail(session, "ada").send("bob", "how it looks", body=markers)
    assert turnfile.check(session) == []


def test_f10_conflict_markers_of_the_ledger_are_the_only_finding(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    Mail(session, "ada").send("all", "one")
    Mail(session, "bob").ack("MSG-20260612-001")
    path = Path(session.folder.path, TURNFILE)
    path.write_text(path.read_text().replace("coordination:", "<<<<<<< HEAD\ncoordination:"))
    line = path.read_text().split("\n").index("<<<<<<< HEAD") + 1
    assert [(each.file, each.line, each.rule) for each in turnfile.check(session)] == [(TURNFILE, line, "conflict")]
    with pytest.raises(errors.Invalid, match="resolve the merge first"):
        Mail(session, "ada").send("bob", "x")


def test_f10_damage_of_an_archive_is_found_and_blocks_neither_sending_nor_closing(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    here = Path(session.folder.path)
    for subject in ("one", "two", "three"):
        Mail(session, "ada").send("bob", subject)
    Mail(session, "ada").close("MSG-20260612-003")
    (here / "docs").mkdir(exist_ok=True)
    for name in (ARCHIVE, CLOSED, SIGNAL_ARCHIVE, "docs/README.md"):
        before = (here / name).read_bytes() if (here / name).exists() else b""
        for damage, rule in ((b"\xff\n", "unreadable"), (b"a \0 byte\n", "nul")):
            (here / name).write_bytes(before + damage)
            assert [each.rule for each in turnfile.check(session) if each.file == name] == [rule], name
        assert turnfile.tidy(session, "ada").repairs, name
        assert [each.rule for each in turnfile.check(session) if each.file == name] == [], name
        (here / name).write_bytes(before + b"\xff\n")
    damaged = {name: (here / name).read_bytes() for name in (ARCHIVE, CLOSED, SIGNAL_ARCHIVE)}
    assert Mail(session, "ada").send("bob", "four").id == "MSG-20260612-004", "003 is in the archive"
    Mail(session, "ada").close("MSG-20260612-001")
    assert turnfile.mail.message(session, "MSG-20260612-001")["status"] == "closed"
    assert turnfile.mail.message(session, "MSG-20260612-003")["status"] == "closed"
    assert {name: (here / name).read_bytes() for name in damaged} == damaged
    turnfile.transact([WORKLOG], "ada", "x", lambda edit: append(edit, "- y\n"), folder=session)
    for _ in range(60):  # more signals than the ledger keeps
        turnfile.transact([WORKLOG], "ada", "x", lambda edit: append(edit, "- more\n"), folder=session)
    assert (here / SIGNAL_ARCHIVE).read_bytes() == damaged[SIGNAL_ARCHIVE]
    assert {each.rule for each in turnfile.check(session)} == {"unreadable"}


def test_f10_an_archived_card_with_the_id_of_another_is_found_and_gets_one_of_its_own(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    id = Mail(session, "ada").send("bob", "one").id
    other = f"\n---\n\n### {id}\n\n**From:** ada -> bob\n**Date:** 2026-06-12\n**Status:** closed\n\nAnother text.\n"
    path = Path(session.folder.path, ARCHIVE)
    path.write_text(f"# Mailbox Archive\n{other}")
    assert [(each.file, each.rule) for each in turnfile.check(session)] == [(ARCHIVE, "id-twice")]
    Mail(session, "ada").close(id)
    assert [(each.file, each.rule) for each in turnfile.check(session)] == [(ARCHIVE, "id-twice")]
    with pytest.raises(errors.Invalid, match="several archived cards"):
        turnfile.mail.message(session, id)
    turnfile.tidy(session, "ada")
    assert turnfile.check(session) == []
    bodies = [turnfile.mail.message(session, each)["body"] for each in (id, "MSG-20260612-002")]
    assert "Another text." in bodies[0] + bodies[1]
    assert Mail(session, "ada").send("bob", "two").id == "MSG-20260612-003"


def test_f10_a_card_that_lost_its_arrow_keeps_the_receiver_that_the_queue_names(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    Mail(session, "bob").send("ada", "one")
    path = Path(session.folder.path, MAILBOX)
    before = path.read_text()
    path.write_text(before.replace("**From:** bob -> ada", "**From:** bob ada"))
    turnfile.tidy(session, "cyd")
    assert turnfile.check(session) == []
    assert path.read_text() == before


def test_f10_a_write_warns_of_what_is_wrong_in_the_ledger(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    for _ in range(3):
        Mail(session, "bob").send("ada", "one")
    revision = session.read().revision
    path = Path(session.folder.path, TURNFILE)
    path.write_text(path.read_text().replace(f"revision: {revision}", "revision: 2"))
    sent = Mail(session, "bob").send("ada", "two").completion
    assert [(each.file, each.rule) for each in sent.warnings] == [(TURNFILE, "disorder")]
    turnfile.tidy(session, "ada")
    assert Mail(session, "bob").send("ada", "three").completion.warnings == ()


def test_f10_the_id_of_a_card_that_was_renamed_by_hand_is_given_to_no_other(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    for subject in ("one", "two"):
        Mail(session, "ada").send("bob", subject)
    path = Path(session.folder.path, MAILBOX)
    path.write_text(path.read_text().replace("### MSG-20260612-002", "### MSG-20261231-999"))
    turnfile.tidy(session, "ada")
    assert turnfile.check(session) == []
    assert "**Formerly:** MSG-20260612-002" in path.read_text()
    assert Mail(session, "ada").send("bob", "three").id == "MSG-20260612-003"
    Mail(session, "ada").close("MSG-20260612-003")
    Mail(session, "ada").close("MSG-20261231-999")
    assert Mail(session, "ada").send("bob", "four").id == "MSG-20260612-004"


def test_f10_a_message_that_cannot_be_addressed_says_why_and_names_tidy(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    id = Mail(session, "ada").send("bob", "one").id
    path = Path(session.folder.path, MAILBOX)
    before = path.read_text()
    card = before[before.index(f"### {id}") : before.index("## Closed Summary")]
    for text, told in (
        (before.replace(card, "") + f"\n{card}", "outside the section Active Messages"),
        (before.replace(f"### {id}", "### MSG-2026"), "no card has this heading"),
        (before.replace("**Status:** unread\n", ""), "without a status"),
    ):
        path.write_text(text)
        with pytest.raises((errors.MessageNotFound, errors.InvalidTransition), match=told) as refused:
            Mail(session, "bob").ack(id)
        assert "turnfile.tidy(session, actor)" in refused.value.hint
        turnfile.tidy(session, "ada")
        assert turnfile.check(session) == []


def test_f10_a_missing_mailbox_is_not_called_in_order_by_a_dry_run(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    Path(session.folder.path, MAILBOX).unlink()
    for dry in (True, False):
        done = turnfile.tidy(session, "ada", dry_run=dry)
        assert (done.repairs, [problem.rule for problem in done.problems]) == ((), ["missing"])


def test_f10_all_headings_that_were_deleted_are_found_and_come_back(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    for subject in ("one", "two"):
        Mail(session, "ada").send("bob", subject)
    Mail(session, "ada").close("MSG-20260612-001")
    path = Path(session.folder.path, MAILBOX)
    before = path.read_text()
    path.write_text("".join(line for line in before.splitlines(True) if not line.startswith("## ")))
    assert "section-missing" in [problem.rule for problem in turnfile.check(session)]
    turnfile.tidy(session, "ada")
    assert turnfile.check(session) == []
    titles = ("## Inbox", "## Open Queue", "## Active", "## Closed")
    kept = [[line for line in text.splitlines() if line.startswith(titles)] for text in (before, path.read_text())]
    assert kept[0] == kept[1]
    Mail(session, "ada").send("bob", "three")
    assert turnfile.check(session) == []


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


def with_registry(session: Session, listed: str) -> Path:
    path = Path(session.folder.path, TURNFILE)
    path.write_text(path.read_text().replace("turnfile:\n", f"turnfile:\n  x-registry:{listed}\n"))
    return path


def test_f10_a_registry_that_names_no_file_of_the_session_goes_into_the_log_and_frees_no_file(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    with_registry(session, ' ["../x"]')
    lock = acquire(session, lock_request(session, [WORKLOG], "ada", "by hand", 100))
    with pytest.raises(errors.Held):
        turnfile.transact([WORKLOG], "bob", "x", lambda edit: append(edit, "- b\n"), folder=session, wait=None)
    done = turnfile.tidy(session, "ada")
    assert [(each.file, "names no file" in each.what) for each in done.repairs] == [(TURNFILE, True)]
    assert (done.files, errors_of(session)) == ((TURNFILE, TIDY_LOG), [])
    assert '  x-registry: ["../x"]' in text_of(session, TIDY_LOG).splitlines()
    assert session.read().turnfile.registry is None
    with pytest.raises(errors.Held, match=lock.id):
        turnfile.transact([WORKLOG], "bob", "x", lambda edit: append(edit, "- b\n"), folder=session, wait=None)


@pytest.mark.parametrize(
    "listed",
    [
        ' ["WORKLOG.md", "../notes.md"]',
        ' ["../notes.md", WORKLOG.md]   # ours',
        '\n    - "../notes.md"   # why\n    - "WORKLOG.md"\n    - /etc/passwd',
        "\n  - WORKLOG.md\n  - ../notes.md",
    ],
)
def test_f10_an_entry_of_the_registry_that_is_no_file_of_the_session_refuses_nothing_and_is_removed_alone(
    tmp_path: Path, listed: str
) -> None:
    session = new_session(tmp_path)
    path = with_registry(session, listed)
    before = everything(session)
    sent = Mail(session, "ada").send("bob", "x")
    assert [(each.file, each.rule) for each in sent.completion.warnings] == [(TURNFILE, "disorder")]
    assert [each.level for each in turnfile.check(session) if each.rule == "registry"] == ["error"] * (
        2 if "passwd" in listed else 1
    )
    turnfile.tidy(session, "ada")
    assert (session.read().turnfile.registry, errors_of(session)) == ((WORKLOG,), [])
    lost = before - everything(session)
    assert [line for line in lost if "notes" in line or "registry" in line] == [], path.read_text()


def test_f10_one_unknown_dependency_among_others_is_removed_alone(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    for name in ("dig", "mix"):
        turnfile.tasks.add(session, name, "x", "ada")
    turnfile.tasks.add(session, "fire", "x", "ada", depends_on=["dig", "mix"])
    path = Path(session.folder.path, TURNFILE)
    path.write_text(path.read_text().replace('- "dig"', '- "dug"\n        - "dig"'))
    turnfile.tidy(session, "ada")
    task = session.read().turnfile.task("fire")
    assert (task and task.depends_on, errors_of(session)) == (("dig", "mix"), [])


def test_f10_a_ledger_that_is_repaired_is_logged_by_the_same_write(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    path = with_registry(session, ' ["../x", TIDY_LOG.md, WORKLOG.md]')
    Mail(session, "ada").send("bob", "one")
    mailbox = Path(session.folder.path, MAILBOX)
    mailbox.write_text(mailbox.read_text().replace("| bob | 1 |", "| bob | 7 |"))
    lock = acquire(session, lock_request(session, [TIDY_LOG], "eve", "reads it", 100))
    before = path.read_text()
    with pytest.raises(errors.Held, match=lock.id):
        turnfile.tidy(session, "ada", wait=None)
    assert path.read_text() == before, "nothing is repaired that cannot be logged"
    release(session, lock.id, "eve")
    acquire(session, lock_request(session, [MAILBOX], "eve", "by hand", 100))
    with pytest.raises(errors.Held):
        turnfile.tidy(session, "ada", wait=None)
    assert session.read().turnfile.registry == (TIDY_LOG, WORKLOG)
    assert '  x-registry: ["../x", TIDY_LOG.md, WORKLOG.md]' in text_of(session, TIDY_LOG).splitlines()


MEANT = {
    "done": ("Done", "DONE", "completed", "Complete", "finished", "closed"),
    "in_progress": ("In Progress", "in-progress", "IN_PROGRESS", "started", "wip"),
    "blocked": ("Blocked", "on hold", "waiting"),
    "pending": ("not_started", "Not started", "todo", "To Do", "open"),
    "claimed": ("Claimed", "assigned"),
}


@pytest.mark.parametrize(("status", "words"), MEANT.items(), ids=MEANT.keys())
def test_f10_the_status_of_a_task_becomes_the_one_that_it_means(
    tmp_path: Path, status: str, words: tuple[str, ...]
) -> None:
    session = new_session(tmp_path)
    for number in range(len(words)):
        turnfile.tasks.add(session, f"t{number}", "x", "ada")
    path, text = Path(session.folder.path, TURNFILE), text_of(session, TURNFILE)
    for word in words:
        text = text.replace('status: "pending"', f'status: "{word}"', 1)
    path.write_text(text)
    assert [task.state for task in session.read().turnfile.tasks] == [status] * len(words)
    turnfile.tidy(session, "ada")
    assert [task.status for task in session.read().turnfile.tasks] == [status] * len(words)
    assert "unknown-word" not in [each.rule for each in turnfile.check(session)]
    assert turnfile.tidy(session, "ada").repairs == ()


@pytest.mark.parametrize("word", ["fertig", "cancelled", "in review"])
def test_f10_a_status_without_a_known_meaning_stays_for_a_person_and_nobody_claims_it(
    tmp_path: Path, word: str
) -> None:
    session = new_session(tmp_path)
    turnfile.tasks.add(session, "fire", "x", "ada")
    path = Path(session.folder.path, TURNFILE)
    path.write_text(path.read_text().replace('status: "pending"', f'status: "{word}"'))
    before = path.read_text()
    for dry in (True, False):
        done = turnfile.tidy(session, "ada", dry_run=dry)
        assert (done.repairs, [each.rule for each in done.problems]) == ((), ["unknown-status"])
        assert "somebody must decide" in done.problems[0].message
    with pytest.raises(errors.InvalidStatus, match=word):
        turnfile.tasks.claim(session, "fire", "bob")
    assert path.read_text() == before


def test_f10_a_task_that_is_done_in_other_words_is_not_claimed_again(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    turnfile.tasks.add(session, "dig", "x", "ada")
    turnfile.tasks.add(session, "fire", "x", "ada", depends_on=["dig"])
    path = Path(session.folder.path, TURNFILE)
    path.write_text(path.read_text().replace('status: "pending"', 'status: "Done"', 1))
    with pytest.raises(errors.InvalidStatus, match="already done"):
        turnfile.tasks.claim(session, "dig", "bob")
    assert turnfile.tasks.claim(session, "fire", "bob").status == "claimed"
    assert [task.id for task in turnfile.status(session).tasks] == ["fire"]


def test_f10_a_word_of_the_ledger_in_another_spelling_keeps_its_meaning(tmp_path: Path) -> None:
    session = new_session(tmp_path, ["ada"])
    turnfile.tasks.add(session, "dig", "x", "ada", priority="P0")
    turnfile.tasks.signal(session, "ada", "all", "request_turn")
    path = Path(session.folder.path, TURNFILE)
    text = path.read_text().replace('role: "agent"', 'role: "Observer"').replace('status: "idle"', 'status: "Offline"')
    path.write_text(text.replace('priority: "P0"', 'priority: "p0"').replace('"request_turn"', '"Request Turn"'))
    turnfile.tidy(session, "ada")
    found = session.read().turnfile
    assert (found.agents[0].role, found.agents[0].status) == ("observer", "offline")
    assert (found.tasks[0].priority, found.signals[0].signal) == ("P0", "request_turn")


RESOLVED = (
    "## Resolved\n\n| ID | Question | Resolution |\n|----|----------|------------|\n| OQ-1 | {} | glazed too thin |\n"
)
ACTIVE = "## Active\n\n| ID | Question |\n|----|----------|\n| OQ-1 | Which clay for May? |\n"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["active first", "resolved first"])
def test_f10_an_open_question_with_the_id_of_a_resolved_one_gets_an_id_of_its_own(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, QUESTIONS)
    parts = (ACTIVE, RESOLVED.format("Why do the cups crack?"))
    path.write_text("# Open Questions\n\n" + "\n".join(parts[each] for each in order))
    done = turnfile.tidy(session, "ada")
    assert [each.what for each in done.repairs] == ["OQ-1 is now OQ-002"]
    assert "| OQ-002 | Which clay for May? |\n" in path.read_text()
    assert "| OQ-1 | Why do the cups crack? | glazed too thin |\n" in path.read_text()
    assert errors_of(session) == []


def test_f10_a_question_that_is_also_among_the_resolved_ones_is_removed_where_it_is_open(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, QUESTIONS)
    path.write_text(f"# Open Questions\n\n{ACTIVE}\n{RESOLVED.format('which  clay for May?')}")
    turnfile.tidy(session, "ada")
    assert path.read_text().count("OQ-") == 1
    assert errors_of(session) == []
