"""Tidying: repair what `check` finds wrong in a session's files.

The ledger is repaired by one write, the other files by one transaction with its lock, so a file that somebody else
holds is waited for. Guarantee: no line is lost. Cards that leave the mailbox go to MAILBOX_ARCHIVE.md; every other line
that changed or went is kept in TIDY_LOG.md as it was, below the list of what was done, by the same replacement of files
that changed it. What cannot be repaired is left, and reported: a file that cannot be read, or whose merge was not
finished, and the status of a task that may mean anything. Called by the faces.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.errors import HoldfastError, Invalid, TooLarge
from holdfast.turnfile import archive, damage, report
from holdfast.turnfile.damage import unmerged
from holdfast.turnfile.escalation import held_error
from holdfast.turnfile.ledger import Ledger, check_name
from holdfast.turnfile.ledger.correction import corrected
from holdfast.turnfile.ledger.rules import blocking, is_stale
from holdfast.turnfile.locks import WaitPolicy
from holdfast.turnfile.mail import export
from holdfast.turnfile.mailbox import parse, projection
from holdfast.turnfile.mailbox.cards import ids_in, numbers_of
from holdfast.turnfile.mailbox.draft import agent_name
from holdfast.turnfile.mailbox.repair import repair, repair_archive
from holdfast.turnfile.model import ARCHIVE, MAILBOX, PROJECTION, QUESTIONS, TIDY_LOG, TURNFILE, WORKLOG, Lock, Problem
from holdfast.turnfile.session import Session
from holdfast.turnfile.transactions import Transaction, transact
from holdfast.turnfile.worklog import repair_questions, repair_worklog

_LEFT: Final = ("unreadable", "too-large", "missing", "unknown-status", damage.CONFLICT)  # what tidying does not repair
_LOG_HEAD: Final = "# Tidy log\n"
_NUL: Final = "�"  # what stands for a byte that is not text


class Repair(msgspec.Struct, frozen=True):
    """One repair: the file, the line where it was needed, and what was done."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


class TidyResult(msgspec.Struct, frozen=True):
    """The result of tidying: the repairs, the files written, the revision, and the problems that are left.

    Of a dry run the problems are those that nothing but a person can repair.
    """

    repairs: tuple[Repair, ...]
    files: tuple[str, ...]
    revision: int
    problems: tuple[Problem, ...]


def tidy(
    session: Session,
    actor: str,
    *,
    dry_run: bool = False,
    wait: WaitPolicy | None = WaitPolicy(),  # noqa: B008 - frozen
) -> TidyResult:
    """Repair a session's files; with `dry_run`, only say what would be done. Raises Held or Escalated."""
    agent_name(check_name("actor", actor), "actor")
    before = session.read()
    after, notes = corrected(before)
    shelf, _ = archive.shelves(session.folder)
    texts = _readable(session, before, shelf)
    wanted, found = _repaired(session, texts, shelf, after.turnfile.everyone)
    repairs = [Repair(TURNFILE, *note) for note in notes]
    if notes and not dry_run:
        repairs = _correct(session, actor)
    written = [TURNFILE] if repairs else []

    def body(edit: Transaction) -> list[Repair]:
        """Repair what is there when the files are ours; somebody else may have tidied them since."""
        now = {path: edit.read(path) for path in (*sources, TIDY_LOG)}
        new, done = _repaired(session, {**texts, **now}, shelf, edit.ledger.turnfile.everyone)
        new = {path: text for path, text in new.items() if path in now}
        done = [each for each in done if each.file in now]
        for path, text in new.items():
            edit.write(path, text)
        if done:
            entry = _entry(session.today(), actor, done, _lost_lines(now, new))
            edit.write(TIDY_LOG, (now[TIDY_LOG] or _LOG_HEAD) + entry)
        return done

    if found and dry_run:
        written += [*wanted, TIDY_LOG]
    elif found:
        sources = dict.fromkeys([*wanted, *([shelf] if MAILBOX in wanted else [])])
        done = transact([*sources, TIDY_LOG], actor, "tidy", body, folder=session, wait=wait, rehearse=True)
        found, written = done.result, [*written, *done.files]
    corrections = bool(repairs)
    written += [TIDY_LOG] if corrections else []
    repairs += found
    if MAILBOX not in wanted and _is_stale(session):
        export_it = [os.path.join(session.folder.path, path) for path in (MAILBOX, PROJECTION)]
        if dry_run or export(*export_it):
            repairs.append(Repair(PROJECTION, 1, f"made it again from {MAILBOX}"))
            written.append(PROJECTION)
    guarded = session.guarded(after).intersection(wanted)
    reached = after.revision + corrections + 2 * bool(guarded) if dry_run else None
    if aged := _aged(session, after, reached, actor, lambda lock: before.line("locks", lock.id)):
        repairs += aged
        written += [TURNFILE, TIDY_LOG]
    left = [
        problem
        for problem in report.check(session)
        if not dry_run or (problem.rule in _LEFT and problem.level == "error")
    ]
    return TidyResult(tuple(repairs), tuple(dict.fromkeys(written)), session.read().revision, tuple(left))


def _correct(session: Session, actor: str) -> list[Repair]:
    """Correct the ledger and log its lines that changed or went, in one write; returns the repairs."""
    repairs: list[Repair] = []

    def change(ledger: Ledger) -> Ledger:
        _check_log_is_free(session, ledger, actor)
        after, notes = corrected(ledger)
        repairs[:] = [Repair(TURNFILE, *note) for note in notes]
        return after

    def log(ledger: Ledger, after: Ledger) -> dict[str, str]:
        head = "" if session.folder.has(TIDY_LOG) else _LOG_HEAD
        lost = {TURNFILE: _lost(ledger.text, [after.text])}
        return {TIDY_LOG: head + _entry(session.today(), actor, repairs, lost)}

    session.write(change, actor, log)
    return repairs


def _check_log_is_free(session: Session, ledger: Ledger, actor: str) -> None:
    """Raise Held if the log needs a lock and somebody else has it."""
    if TIDY_LOG in session.guarded(ledger):
        for lock in blocking(ledger.turnfile.locks, [TIDY_LOG], ledger.revision, session.workspace(ledger)):
            if lock.holder != actor:
                raise held_error(lock, ledger.revision, "wait until it is released or stale, then tidy again")


def _aged(
    session: Session, ledger: Ledger, revision: int | None, actor: str, line: Callable[[Lock], int]
) -> list[Repair]:
    """Remove the locks that the revisions of tidying made stale; with a revision, only say which that will be.

    Each removal is a revision too, which may make the next lock stale.
    """
    gone: dict[str, Repair] = {}
    while True:
        now = session.read() if revision is None else ledger
        at = now.revision if revision is None else revision
        locks = [lock for lock in now.turnfile.locks if lock.id not in gone and is_stale(lock, at)]
        found = [Repair(TURNFILE, line(lock), f"removed the stale {lock.id}, held by {lock.holder}") for lock in locks]
        if not found:
            return [*gone.values()]
        gone |= {lock.id: each for lock, each in zip(locks, found, strict=True)}
        if revision is not None:
            revision += 1
            continue
        _correct(session, actor)


def _readable(session: Session, ledger: Ledger, shelf: str) -> dict[str, str | None]:
    """The texts of the files to repair; one that cannot be read or is not merged is left out: `check` reports it."""
    texts: dict[str, str | None] = {}
    guarded = session.guarded(ledger)
    for path in dict.fromkeys((MAILBOX, shelf, WORKLOG, QUESTIONS, *archive.paths(session.folder), *sorted(guarded))):
        try:
            text = session.text(path)
        except (Invalid, TooLarge):
            continue
        if unmerged(path, text or "") is None:
            texts[path] = text
    return texts


def _repaired(
    session: Session, texts: dict[str, str | None], shelf: str, everyone: tuple[str, ...]
) -> tuple[dict[str, str], list[Repair]]:
    """The new texts of the files that need a repair, and the repairs; `shelf` is the archive that takes cards."""
    used = "\n".join(archive.texts(session.folder, session.archived))
    mail = texts.get(MAILBOX)
    lost = archive.lost(session.folder, mail, session.text(PROJECTION)) if mail is not None else []
    new: dict[str, str] = {}
    repairs: list[Repair] = []
    for path, text in texts.items():
        if text is None or path == TIDY_LOG:
            continue
        plain = text.replace("\0", _NUL)
        done = [(plain[: plain.index(_NUL)].count("\n") + 1, "replaced NUL bytes")] if plain != text else []
        if path == MAILBOX:
            known = archive.renamed(mail or "", session.text(PROJECTION))
            mended = repair(plain, used, session.today(), everyone, lost, known)
            after, done = mended.text, [*done, *mended.done]
            for card in mended.archived:
                new[shelf] = archive.with_card(new.get(shelf, texts.get(shelf)), card)
        elif path in (WORKLOG, QUESTIONS):
            after, notes = repair_worklog(plain) if path == WORKLOG else repair_questions(plain)
            done += notes
        else:
            after = new.get(path, text).replace("\0", _NUL)
        if after != text:
            new[path] = after
            repairs += [Repair(path, *note) for note in done]
    return new, repairs + _own_ids(session, texts, new, used)


def _own_ids(session: Session, texts: dict[str, str | None], new: dict[str, str], used: str) -> list[Repair]:
    """Give the archived cards ids of their own, in the new texts of their archives; returns the repairs."""
    now = {**texts, **new}
    seen: dict[str, set[str]] = {}
    for card in parse(now.get(MAILBOX) or "").cards:
        seen.setdefault(card.id, set()).add(card.content.text.strip())
    taken = numbers_of([*ids_in(used), *(id for text in now.values() for id in ids_in(text or "")), *seen])
    repairs: list[Repair] = []
    for path in archive.paths(session.folder, ARCHIVE):
        if (text := now.get(path)) is not None:
            mended = repair_archive(text, seen, taken, session.today())
            repairs += [Repair(path, *note) for note in mended.done]
            if mended.text != text:
                new[path] = mended.text
    return repairs


def _lost_lines(before: dict[str, str | None], after: dict[str, str]) -> dict[str, list[str]]:
    """The lines that changed files no longer have; a card may have gone from the mailbox to an archive."""
    mail = [path for path in after if path == MAILBOX or path.startswith(ARCHIVE.removesuffix(".md"))]
    groups = {" and ".join(mail): mail, **{path: [path] for path in after if path not in mail}}
    return {
        name: _lost("\n".join(before[path] or "" for path in paths), [after[path] for path in paths])
        for name, paths in groups.items()
        if paths
    }


def _lost(before: str, after: list[str]) -> list[str]:
    """The lines that are in none of the new texts as often as they were."""
    left = Counter(line for text in after for line in text.splitlines())
    lost = []
    for line in before.splitlines():
        left[line] -= 1
        if left[line] < 0 and line.strip():
            lost.append(line)
    return lost


def _entry(date: str, actor: str, repairs: list[Repair], lost: dict[str, list[str]]) -> str:
    """An entry of the log: what was done, and the lines that changed or went, as they were."""
    lines = ["", f"## {date}, {actor}", "", *(f"- {repair}" for repair in repairs)]
    marks = [mark for old in lost.values() for line in old for mark in re.findall(r"`{3,}", line)]
    fence = "`" * (max(map(len, marks), default=3) + 1)
    for path, old in lost.items():
        if old:
            lines += ["", f"{path} had these lines:", "", f"{fence}text", *old, fence]
    return "\n".join([*lines, ""])


def _is_stale(session: Session) -> bool:
    try:
        texts = session.texts([MAILBOX, PROJECTION])
    except HoldfastError:
        return False
    mail, projected = texts[MAILBOX], texts[PROJECTION]
    return (
        mail is not None
        and unmerged(MAILBOX, mail) is None
        and (projected is None or projection.is_stale(mail, projected))
    )
