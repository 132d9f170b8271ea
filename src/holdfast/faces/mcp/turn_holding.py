"""Which turn locks are a session's own: the ledger knows them by name, and two sessions may have the same.

A session remembers what it took, at which revisions it did something to it itself, and what the files said then. A lock
that another session of the name took, renewed or wrote under since is no longer its own: it is given back by id.
"""

from __future__ import annotations

import contextlib
from typing import Final

from holdfast import errors, turnfile
from holdfast.faces.mcp.callers import Caller
from holdfast.turnfile.files import digest
from holdfast.turnfile.ledger import locks

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
    for path in locks.files_of(lock, folder.workspace(folder.read())):
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
    return [each for each in held if path is None or path in locks.files_of(each, workspace)]


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
