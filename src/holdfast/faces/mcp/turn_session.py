"""What turn tools share: the folder, who acts, how long a call waits, and which locks are the session's own.

A session remembers what it took, at which revisions it did something to it itself, and what the files said then. A lock
that another session of the name took, renewed or wrote under since is no longer its own: it is given back by id.

The folder is chosen by who starts the server, never by a model, and who acts is the server's actor. Files are touched
in a thread; a call whose client has gone stops waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from holdfast import errors, turnfile
from holdfast.faces.mcp.session import Caller, check_wait
from holdfast.faces.mcp.text import filled
from holdfast.turnfile.files import digest
from holdfast.turnfile.ledger import rules

REMEMBERED: Final = 1024  # locks of one session; the oldest are forgotten first


class Taken:
    """A lock that a session took: the revisions that are its own doing, and what it has seen of the files since."""

    def __init__(self, revision: int) -> None:
        self.revisions = {revision}
        self._seen: set[tuple[str, str | None]] = set()

    def see(self, path: str, text: str | None) -> None:
        """The session knows that a file says this."""
        self._seen.add((path, digest(text)))

    def has_seen(self, path: str, text: str | None) -> bool:
        """True if the session knows this text of a file: to replace it loses nobody's edit."""
        return (path, digest(text)) in self._seen


def take(session: Caller, folder: turnfile.Session, lock: turnfile.Lock) -> None:
    """Remember a lock that was just taken.

    Of its files the session knows what it was told before, if they still say that; the others it must read now.
    """
    session.taken.pop(lock.id, None)
    session.taken[lock.id] = taken = Taken(lock.acquired_rev)
    for path in rules.files_of(lock, folder.workspace(folder.read())):
        with contextlib.suppress(errors.HoldfastError):  # what cannot be read is not replaced either
            text = folder.texts([path])[path]
            if path in session.told and session.told[path] == digest(text):
                taken.see(path, text)
    if len(session.taken) > REMEMBERED:
        del session.taken[next(iter(session.taken))]


def mine(session: Caller, folder: turnfile.Session, actor: str) -> list[turnfile.Lock]:
    """The locks that this session took and nobody else used since; some may be stale."""
    return [each for each in named(folder, actor) if is_mine(session, each)]


def is_mine(session: Caller, lock: turnfile.Lock) -> bool:
    """True if this session took a lock, and whoever did something to it since was this session."""
    taken = session.taken.get(lock.id)
    return taken is not None and lock.acquired_rev in taken.revisions


def named(folder: turnfile.Session, actor: str, path: str | None = None) -> list[turnfile.Lock]:
    """The locks of a name, by whichever session."""
    ledger = folder.read()
    workspace = folder.workspace(ledger)
    held = [each for each in ledger.turnfile.locks if each.holder == actor]
    return [each for each in held if path is None or path in rules.files_of(each, workspace)]


def chosen(session: Caller, folder: turnfile.Session, actor: str, lock: str | None) -> list[str]:
    """The lock that is meant, or all of this session. Raises NotFound without any, with those of its name as hint."""
    if lock is not None:
        return [lock]
    found = [each.id for each in mine(session, folder, actor)]
    if not found:
        others = ", ".join(each.id for each in named(folder, actor))
        hint = f"another session of your name took or used {others}: if that session has ended, name the id"
        raise errors.NotFound("this session holds no lock", hint=hint if others else "turn_status shows who holds what")
    return found


def used(session: Caller, before: list[turnfile.Lock], after: dict[str, int]) -> None:
    """Remember the revisions at which the session itself began leases again, of those locks that were its own before.

    That is looked up now, when another call of the session that came in between has been remembered too.
    """
    for lock in before:
        taken = session.taken.get(lock.id)
        if taken is not None and lock.id in after and lock.acquired_rev in taken.revisions:
            taken.revisions.add(after[lock.id])


def wrote(session: Caller, before: list[turnfile.Lock], done: turnfile.Completion) -> turnfile.Completion:
    """Remember a write under a lock that stays: if it changed something, it began the lease again."""
    if done.lock_id is not None and done.files:
        used(session, before, {done.lock_id: done.revision})
    return done


def has_seen(session: Caller, held: list[str], path: str, text: str | None) -> bool:
    """True if the session knows what a file says, since it took one of these locks."""
    return any(id in held and taken.has_seen(path, text) for id, taken in list(session.taken.items()))


def saw(session: Caller, path: str, text: str) -> None:
    """Remember that the session knows what a file says: it was told so, or makes it so from what it knew."""
    session.told[path] = digest(text)
    for taken in list(session.taken.values()):  # other calls of the session run beside this one
        taken.see(path, text)


MOST: Final = 20  # problems, tasks, signals or messages in an answer
R = TypeVar("R")

Wait = Annotated[float | None, "look again after so many seconds, at most 60; then the maintainer is asked"]


def files_of(session: Caller) -> turnfile.Session:
    """The working session that the server was started with."""
    if session.turn_dir is None:
        raise errors.Unsupported("this server has no turn files", hint="holdfast mcp --turn-dir FOLDER")
    return turnfile.Session(session.turn_dir)


def acting(session: Caller, folder: turnfile.Session) -> str:
    """Who acts, as the ledger spells the name."""
    return folder.read().turnfile.spelled(session.actor)


async def acted(session: Caller, work: Callable[[turnfile.Session, str], R]) -> R:
    """Touch files as somebody, beside the loop."""

    def act() -> R:
        folder = files_of(session)
        return work(folder, acting(session, folder))

    return await asyncio.to_thread(act)


async def waiting(
    session: Caller, work: Callable[[turnfile.Session, str, turnfile.Patience | None], R], wait: float | None
) -> R:
    """Touch files as somebody, and wait for a lock as long as the client does: not beyond its end."""
    check_wait(wait)
    gone = threading.Event()

    def pause(seconds: float) -> None:
        if gone.wait(seconds):
            raise errors.Unavailable("nobody waits for this call any more")

    patience = None if wait is None else turnfile.Patience(wait=max(0.0, wait), checks=2, pause=pause)
    try:
        return await acted(session, lambda folder, actor: work(folder, actor, patience))
    finally:
        gone.set()


def completed(done: turnfile.Completion) -> dict[str, Any]:
    """What a transaction did, and what it found beside."""
    return {"lock": done.lock_id, "files": list(done.files), "revision": done.revision, **doubts(done.warnings)}


def doubts(warnings: Any) -> dict[str, Any]:
    """What to tell beside an answer: a name that may be mistyped, a file that is not there or out of order."""
    return filled(problems=some(warnings) or None)


def some(items: Any) -> list[Any]:
    """The first of many, and how many more there are."""
    told = [msgspec.to_builtins(each) for each in items[:MOST]]
    return [*told, f"and {len(items) - MOST} more"] if len(items) > MOST else told
