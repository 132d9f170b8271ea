"""What a person wants to see at a glance, as data: who holds what and for how long, what is unread, what is wrong.

Reads all files at one moment, and writes nothing. Called by the command line for `turn status` and `turn check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.errors import Invalid, NotFound
from holdfast.turnfile import invariants as invariants
from holdfast.turnfile import mailbox
from holdfast.turnfile.ledger import Ledger, rules
from holdfast.turnfile.ledger.rules import lint
from holdfast.turnfile.ledger.sections import REGISTRY_KEY
from holdfast.turnfile.mailbox import derived
from holdfast.turnfile.model import (
    MAILBOX,
    PROJECTION,
    QUESTIONS,
    TURNFILE,
    WORKLOG,
    Agent,
    Lock,
    Problem,
    Signal,
    Task,
)
from holdfast.turnfile.session import Session

_LOOKED_AT: Final = (TURNFILE, MAILBOX, PROJECTION, WORKLOG, QUESTIONS)


class Holding(msgspec.Struct, frozen=True):
    """A lock, and how it stands: `revisions_left` below 0 is stale; `beaten_by` names the lock that comes first."""

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
    """A working session at a glance."""

    folder: str
    project: str
    revision: int
    modified_by: str | None
    active_phase: str | None
    active_step: str | None
    agents: tuple[Agent, ...]
    locks: tuple[Holding, ...]
    unread: tuple[Unread, ...]
    tasks: tuple[Task, ...]
    signals: tuple[Signal, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


def status(session: Session) -> Status:
    """How a session stands. Raises NotFound, or Invalid for a ledger that cannot be read."""
    texts, unreadable = _texts(session)
    ledger = session.ledger(texts[TURNFILE]) if TURNFILE in texts else session.read()
    turnfile = ledger.turnfile
    mail = texts.get(MAILBOX)
    inboxes = derived.inboxes(mailbox.parse(mail).cards) if mail is not None else {}
    return Status(
        folder=session.folder.path,
        project=turnfile.project,
        revision=turnfile.revision,
        modified_by=turnfile.modified_by,
        active_phase=turnfile.active_phase,
        active_step=turnfile.active_step,
        agents=turnfile.agents,
        locks=tuple(_holding(session, ledger, lock) for lock in sorted(turnfile.locks, key=rules.precedence)),
        unread=tuple(Unread(inbox.agent, inbox.unread, inbox.oldest.id) for inbox in inboxes.values()),
        tasks=tuple(task for task in turnfile.tasks if task.status != "done"),
        signals=turnfile.signals,
        problems=tuple(_problems(session, texts, unreadable)),
        warnings=tuple(session.warnings),
    )


def check(session: Session) -> list[Problem]:
    """All that is wrong in a session's files: the rules of the ledger, the invariants, and a stale projection."""
    return _problems(session, *_texts(session))


def _texts(session: Session) -> tuple[dict[str, str | None], list[Problem]]:
    """What the files say, all at one moment; and a problem for each that is no text, which does not hide the others."""
    try:
        return session.texts(_LOOKED_AT), []
    except Invalid:
        texts: dict[str, str | None] = {}
        found = []
        for path in _LOOKED_AT:
            try:
                texts |= session.texts([path])
            except Invalid as error:
                found.append(Problem(path, 1, "error", "unreadable", error.message))
        return texts, found


def _holding(session: Session, ledger: Ledger, lock: Lock) -> Holding:
    first = rules.beaten_by(lock, ledger.turnfile.locks, ledger.revision, session.workspace(ledger))
    left = rules.revisions_left(lock, ledger.revision)
    return Holding(lock, left, rules.is_stale(lock, ledger.revision), first.id if first else None)


def _problems(session: Session, texts: dict[str, str | None], unreadable: list[Problem]) -> list[Problem]:
    there = {path: text for path, text in texts.items() if text is not None}
    missing = [*unreadable, *_unlisted(session, there.get(TURNFILE))]
    if texts.get(TURNFILE, "") is None:
        missing.append(Problem(TURNFILE, 1, "error", "missing", f"there is no {TURNFILE}"))
    if PROJECTION in there and texts.get(MAILBOX, "") is None:
        words = "take it back from version control, or make an empty one: turn init --missing"
        missing.append(Problem(MAILBOX, 1, "error", "missing", f"there is no {MAILBOX}, only its projection; {words}"))
    if MAILBOX in there and texts.get(PROJECTION, "") is None:
        missing.append(Problem(PROJECTION, 1, "warning", "missing", f"there is no projection of {MAILBOX}"))
    # The invariants tell a stale lock as an error, and lint as a warning: once is enough, and the stricter counts.
    found = [problem for problem in lint(there.get(TURNFILE, "")) if problem.rule not in ("lock-stale", "unreadable")]
    return sorted([*missing, *invariants.check(there), *(found if TURNFILE in there else [])])


def _unlisted(session: Session, text: str | None) -> Iterator[Problem]:
    """A warning for each file that the ledger's registry lists and that is not there: it may be mistyped."""
    try:
        ledger = session.ledger(text)
        listed = sorted(session.guarded(ledger)) if ledger.turnfile.registry is not None else []
    except (Invalid, NotFound):  # told by others
        return
    for path in listed:
        try:
            there = session.folder.has(path)
        except Invalid:  # what is there is no file
            there = False
        if not there and path != MAILBOX:
            words = f"{REGISTRY_KEY} lists {path}, and there is no such file"
            yield Problem(TURNFILE, ledger.line("turnfile", REGISTRY_KEY), "warning", "registry", words)
