"""The state of a session as data: locks and their leases, unread mail, tasks, signals, and all problems.

Reads all files at one moment and writes nothing. Called by the faces for `turn status` and `turn check`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from holdfast.errors import Invalid, NotFound, TooLarge
from holdfast.turnfile import archive, damage, invariants, mailbox
from holdfast.turnfile.ledger import Ledger, rules
from holdfast.turnfile.ledger.rules import lint
from holdfast.turnfile.ledger.sections import REGISTRY_KEY
from holdfast.turnfile.mailbox import projection
from holdfast.turnfile.model import ARCHIVE, CHECKED, MAILBOX, PROJECTION, TURNFILE, Agent, Lock, Problem, Signal, Task
from holdfast.turnfile.session import Session


class LockStatus(msgspec.Struct, frozen=True):
    """A lock and its state: stale once `revisions_left` is below 0; `beaten_by` is the lock that precedes it."""

    lock: Lock
    revisions_left: int
    stale: bool
    beaten_by: str | None = None


class Unread(msgspec.Struct, frozen=True):
    """The unread messages of one agent."""

    agent: str
    unread: int
    oldest: str


class Status(msgspec.Struct, frozen=True):
    """The state of a working session; `tasks` are those not done, `signals` the newest first."""

    folder: str
    project: str
    revision: int
    modified_by: str | None
    active_phase: str | None
    active_step: str | None
    agents: tuple[Agent, ...]
    locks: tuple[LockStatus, ...]
    unread: tuple[Unread, ...]
    tasks: tuple[Task, ...]
    signals: tuple[Signal, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


def status(session: Session) -> Status:
    """The state of a session. Raises NotFound, or Invalid if the ledger cannot be read."""
    texts, unreadable = _texts(session)
    ledger = session.ledger(texts[TURNFILE]) if TURNFILE in texts else session.read()
    turnfile = ledger.turnfile
    mail = texts.get(MAILBOX)
    inboxes = projection.inboxes(mailbox.parse(mail).cards, turnfile.everyone) if mail is not None else {}
    return Status(
        folder=session.folder.path,
        project=turnfile.project,
        revision=turnfile.revision,
        modified_by=turnfile.modified_by,
        active_phase=turnfile.active_phase,
        active_step=turnfile.active_step,
        agents=turnfile.agents,
        locks=tuple(_lock_status(session, ledger, lock) for lock in sorted(turnfile.locks, key=rules.precedence)),
        unread=tuple(Unread(inbox.agent, inbox.unread, inbox.oldest.id) for inbox in inboxes.values()),
        tasks=tuple(task for task in turnfile.tasks if task.state != "done"),
        signals=tuple(sorted(turnfile.signals, key=lambda signal: signal.rev, reverse=True)),
        problems=tuple(_problems(session, texts, unreadable)),
        warnings=tuple(session.warnings),
    )


def check(session: Session) -> list[Problem]:
    """All problems in a session's files: lint rules of the ledger, broken invariants, a stale projection."""
    return _problems(session, *_texts(session))


def _texts(session: Session, paths: Sequence[str] = CHECKED) -> tuple[dict[str, str | None], list[Problem]]:
    """The texts of some files at one moment, and a problem for each file that cannot be read."""
    try:
        return session.texts(paths), []
    except (Invalid, TooLarge):
        texts: dict[str, str | None] = {}
        found = []
        for path in paths:
            try:
                texts |= session.texts([path])
            except Invalid as error:
                found.append(Problem(path, 1, "error", "unreadable", error.message))
            except TooLarge as error:
                found.append(Problem(path, 1, "error", "too-large", f"{error.message}; it is not checked"))
        return texts, found


def _others(session: Session, texts: dict[str, str | None]) -> Iterator[Problem]:
    """The problems of the archives, and of other files that need a lock: whether they can be read, and are text."""
    guarded: Collection[str] = ()
    with contextlib.suppress(Invalid, NotFound):  # another rule reports it
        guarded = session.guarded(session.ledger(texts.get(TURNFILE)))
    archives = archive.paths(session.folder)
    others, found = _texts(session, [*archives, *sorted({*guarded} - {*CHECKED, *archives})])
    yield from found
    there = {path: text for path, text in others.items() if text is not None}
    for path, text in there.items():
        yield from damage.problems(path, text)
    cards = {path: there[path] for path in archive.paths(session.folder, ARCHIVE) if path in there}
    yield from archive.problems(cards, texts.get(MAILBOX) or "")


def _lock_status(session: Session, ledger: Ledger, lock: Lock) -> LockStatus:
    first = rules.beaten_by(lock, ledger.turnfile.locks, ledger.revision, session.workspace(ledger))
    left = rules.revisions_left(lock, ledger.revision)
    return LockStatus(lock, left, rules.is_stale(lock, ledger.revision), first.id if first else None)


def _problems(session: Session, texts: dict[str, str | None], unreadable: list[Problem]) -> list[Problem]:
    there = {path: text for path, text in texts.items() if text is not None}
    missing = [*unreadable, *_others(session, texts), *_missing_registry_files(session, there.get(TURNFILE))]
    if texts.get(TURNFILE, "") is None:
        error = session.no_ledger_error()
        missing.append(Problem(TURNFILE, 1, "error", "missing", f"{error.message}; {error.hint}"))
    if PROJECTION in there and texts.get(MAILBOX, "") is None:
        words = "restore it from version control, or create an empty one: turnfile.restore(session)"
        missing.append(Problem(MAILBOX, 1, "error", "missing", f"there is no {MAILBOX}, only {PROJECTION}; {words}"))
    if MAILBOX in there and texts.get(PROJECTION, "") is None:
        words = f"there is no {PROJECTION}; turnfile.restore(session) creates it"
        missing.append(Problem(PROJECTION, 1, "warning", "missing", words))
    missing += _lost(session, there.get(MAILBOX), there.get(PROJECTION))
    # A stale lock is an error of the invariants and a warning of lint: report the error alone.
    known = ("lock-stale", "unreadable", damage.CONFLICT)
    found = [problem for problem in lint(there.get(TURNFILE, "")) if problem.rule not in known]
    everyone = _everyone(session, there.get(TURNFILE))
    return sorted(
        [
            *missing,
            *(
                each
                for each in invariants.check(there, None, everyone or ())
                if everyone is not None or each.rule not in _OF_NAMES
            ),
            *(found if TURNFILE in there else []),
        ]
    )


def _lost(session: Session, mail: str | None, projected: str | None) -> Iterator[Problem]:
    """The messages that the projection alone still has; without a mailbox another rule says so."""
    for each in archive.lost(session.folder, mail, projected) if mail is not None else ():
        id = each.get("id") or "a message"
        words = f"{id} has no card in {MAILBOX}, only this file has it; turnfile.tidy(session, actor) brings it back"
        yield Problem(PROJECTION, 1, "error", "only-projected", words)


# Findings that depend on whom `all` means: unknown while the ledger cannot be read.
_OF_NAMES: Final = ("unread-count", "oldest-unread", "snapshot-missing", "status-receivers")


def _everyone(session: Session, text: str | None) -> tuple[str, ...] | None:
    """The agents of the ledger; None if it cannot be read."""
    try:
        return session.ledger(text).turnfile.everyone
    except (Invalid, NotFound):  # another rule reports it
        return None


def _missing_registry_files(session: Session, text: str | None) -> Iterator[Problem]:
    """Warn about files that the ledger's registry lists and that do not exist: they may be mistyped."""
    try:
        ledger = session.ledger(text)
    except (Invalid, NotFound):  # another rule reports it
        return
    place = session.workspace(ledger)
    listed = [path for path in ledger.turnfile.registry or () if rules.is_inside(path, place)]
    for path in sorted({rules.normalize(path, place) for path in listed}):
        try:
            there = session.folder.has(path)
        except Invalid:  # not a regular file
            there = False
        if not there and path != MAILBOX:
            words = f"{REGISTRY_KEY} lists {path}, which does not exist"
            yield Problem(TURNFILE, ledger.line("turnfile", REGISTRY_KEY), "warning", "registry", words)
