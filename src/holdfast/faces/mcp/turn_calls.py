"""What turn tools have in common: whose folder, who acts, how long a call waits, how its outcome is told.

The folder is chosen by who starts the server, never by a model, and who acts is the server's actor. Files are touched
in a thread; a call whose client has gone stops waiting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from holdfast import errors, turnfile
from holdfast.faces.mcp.callers import Caller, check_wait
from holdfast.faces.mcp.marking import filled

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
