"""What the turn tools share: the folder, the actor, how long a call waits, and the locks of this MCP session.

A session remembers the locks that it took, the revisions at which it renewed them itself, and the texts that it has
seen since. A lock that another session of the same actor took, renewed or wrote under is not its own any more; it is
released by id alone. The folder is chosen by the person who starts the server, never by a model, and the actor is the
server's. Files are read and written in a thread; a call whose client has gone stops waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from holdfast import errors, turnfile
from holdfast.faces.mcp.tool import Caller, check_wait, filled
from holdfast.hints import turn_for_tools
from holdfast.turnfile.files import digest
from holdfast.turnfile.ledger import rules

REMEMBERED: Final = 1024  # locks of one session; the oldest are forgotten first


class SessionLock:
    """A lock that this session took: the revisions at which it renewed it, and the texts of files it has seen since."""

    def __init__(self, revision: int) -> None:
        self.revisions = {revision}
        self._seen: set[tuple[str, str | None]] = set()

    def see(self, path: str, text: str | None) -> None:
        """Remember that the session has seen this text of a file."""
        self._seen.add((path, digest(text)))

    def has_seen(self, path: str, text: str | None) -> bool:
        """Whether the session has seen this text of a file, so that replacing it loses nobody's edit."""
        return (path, digest(text)) in self._seen


def remember(session: Caller, folder: turnfile.Session, lock: turnfile.Lock) -> None:
    """Remember a lock that was just taken, and which texts of its files the session has read before.

    A file that has changed since must be read again before it can be replaced.
    """
    session.taken.pop(lock.id, None)
    session.taken[lock.id] = taken = SessionLock(lock.acquired_rev)
    for path in rules.files_of(lock, folder.workspace(folder.read())):
        with contextlib.suppress(errors.HoldfastError):  # a file that cannot be read cannot be replaced either
            text = folder.texts([path])[path]
            if path in session.read and session.read[path] == digest(text):
                taken.see(path, text)
    if len(session.taken) > REMEMBERED:
        del session.taken[next(iter(session.taken))]


def is_own(session: Caller, lock: turnfile.Lock) -> bool:
    """Whether this session took a lock, and it alone has renewed it since."""
    taken = session.taken.get(lock.id)
    return taken is not None and lock.acquired_rev in taken.revisions


def locks_of(folder: turnfile.Session, actor: str, path: str | None = None) -> list[turnfile.Lock]:
    """The locks of an actor, from any session; with `path`, those that cover it."""
    ledger = folder.read()
    workspace = folder.workspace(ledger)
    held = [each for each in ledger.turnfile.locks if each.holder == actor]
    return [each for each in held if path is None or path in rules.files_of(each, workspace)]


def selected_locks(session: Caller, folder: turnfile.Session, actor: str, lock: str | None) -> list[str]:
    """The given lock, or all of this session. Raises NotFound if it has none; the hint names others of its actor."""
    if lock is not None:
        return [lock]
    held = locks_of(folder, actor)
    found = [each.id for each in held if is_own(session, each)]  # some may be stale
    if not found:
        others = ", ".join(each.id for each in held)
        hint = f"another session with your name took or used {others}; if it has ended, pass the id"
        raise errors.NotFound("this session holds no lock", hint=hint if others else "turn_status lists the locks")
    return found


def remember_renewals(session: Caller, before: list[turnfile.Lock], after: dict[str, int]) -> None:
    """Remember the revisions at which the session renewed locks that were its own before.

    Ownership is checked now, when concurrent calls of the session have been remembered too.
    """
    for lock in before:
        taken = session.taken.get(lock.id)
        if taken is not None and lock.id in after and lock.acquired_rev in taken.revisions:
            taken.revisions.add(after[lock.id])


def remember_write(session: Caller, before: list[turnfile.Lock], done: turnfile.Completion) -> turnfile.Completion:
    """Remember a write under a lock that is kept: if it changed a file, it renewed the lock."""
    if done.lock_id is not None and done.files:
        remember_renewals(session, before, {done.lock_id: done.revision})
    return done


def has_seen(session: Caller, held: list[str], path: str, text: str | None) -> bool:
    """Whether the session has seen this text of a file since it took one of these locks."""
    return any(id in held and taken.has_seen(path, text) for id, taken in list(session.taken.items()))


def remember_text(session: Caller, path: str, text: str) -> None:
    """Remember that the session has seen this text of a file: it read it, or writes it."""
    session.read[path] = digest(text)
    for taken in list(session.taken.values()):  # other calls of the session run concurrently
        taken.see(path, text)


MOST: Final = 20  # problems, tasks, signals or messages in one result
R = TypeVar("R")

Wait = Annotated[float | None, "seconds until a second check, at most 60; then the maintainer is asked"]


def files_of(session: Caller) -> turnfile.Session:
    """The working session of this server. Raises Unsupported without one."""
    if session.turn_dir is None:
        raise errors.Unsupported("this server has no turn files", hint="holdfast mcp --turn-dir FOLDER")
    return turnfile.Session(session.turn_dir)


async def run(session: Caller, work: Callable[[turnfile.Session, str], R]) -> R:
    """Call `work` with the folder and the actor, in a thread."""

    def act() -> R:
        folder = files_of(session)
        return work(folder, folder.spelled(session.actor))

    return await asyncio.to_thread(act)


async def run_waiting(
    session: Caller, work: Callable[[turnfile.Session, str, turnfile.WaitPolicy | None], R], wait: float | None
) -> R:
    """Like `run`, also with a policy to wait for locks, which ends when the client has gone."""
    check_wait(wait)
    gone = threading.Event()

    def pause(seconds: float) -> None:
        if gone.wait(seconds):
            raise errors.Unavailable("the client of this call has gone")

    policy = None if wait is None else turnfile.WaitPolicy(interval=max(0.0, wait), checks=2, pause=pause)
    try:
        return await run(session, lambda folder, actor: work(folder, actor, policy))
    finally:
        gone.set()


def completion_data(done: turnfile.Completion) -> dict[str, Any]:
    """The result of a transaction, with its warnings."""
    return {"lock": done.lock_id, "files": list(done.files), "revision": done.revision, **warnings_data(done.warnings)}


def warnings_data(warnings: Any) -> dict[str, Any]:
    """Warnings as `problems` of a result; nothing without any."""
    return filled(problems=first(warnings) or None)


def _with_tools(item: Any) -> Any:
    """A problem with tools in place of calls; any other item as it is."""
    if not isinstance(item, turnfile.Problem):
        return item
    return msgspec.structs.replace(item, message=turn_for_tools(item.message))


def first(items: Any) -> list[Any]:
    """The first items as data, and how many more there are."""
    shown = [msgspec.to_builtins(_with_tools(each)) for each in items[:MOST]]
    return [*shown, f"and {len(items) - MOST} more"] if len(items) > MOST else shown
