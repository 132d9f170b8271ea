"""Tasks that have another id than they were made with: an older one came from elsewhere, and the id is its own.

A claim goes on through a rename. Its token says which task a call means that names the former id; a call without a
token means the task that has the id now, and is warned of the one that its agent holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks.rows import Stored, by_seq, require
from holdfast.kernel.tx import SYSTEM, Tx
from holdfast.types.tasks import Task

# The lines of shared tasks have the id that each was made with.
_RENAMED: Final = (
    "SELECT t.seq, t.token, t.holder FROM shared s JOIN tasks t ON t.seq = s.seq"
    " WHERE s.key > ?1 || '~' AND s.key < ?1 || '~~' AND t.id <> ?1 AND t.deleted IS NULL"
)


def require_held(tx: Tx, id: str, token: int | None) -> Stored:
    """Return the task to change, as `require` does; the one that had the id before, if the token is of a claim on it.

    Raises TaskNotFound.
    """
    try:
        task = require(tx, id)
    except errors.TaskNotFound:
        if (found := _one(tx, id, token=token)) is None:
            raise
        return found
    if token is None or task.token == token:
        return task
    return _one(tx, id, token=token) or task


def held_by(tx: Tx, id: str, agent: str) -> Stored | None:
    """A task that an agent holds and that had an id before another one."""
    return _one(tx, id, holder=agent)


def _one(tx: Tx, id: str, *, token: int | None = None, holder: str | None = None) -> Stored | None:
    """The task that had an id before another one, by its claim. Any token is compared, also one that SQLite cannot."""
    for seq, its_token, its_holder in tx.all(_RENAMED, (id,)):
        if its_holder is not None and (its_token == token or its_holder == holder):
            return by_seq(tx, seq)
    return None


def others(tx: Tx, id: str) -> list[str]:
    """The tasks that had an id before another one."""
    return [by_seq(tx, seq).id for seq, *_ in tx.all(f"{_RENAMED} ORDER BY s.key LIMIT 5", (id,))]


def is_now(id: str, new: str) -> str:
    """What became of an id."""
    return f"{id} is {new} now: an older task has its id"


def followed(task: Task, id: str) -> Task:
    """The result of a call that named a task by an id, with a warning if it has another one now."""
    return task if task.id == id else warn(task, (is_now(id, task.id),))


def edited(tx: Tx, task: Task, id: str) -> Task:
    """The same for what everybody may do: also with a warning if the caller holds a task that had this id before."""
    mine = None if tx.actor in (task.claimed_by, SYSTEM) or task.id != id else held_by(tx, id, tx.actor)
    if mine is None:
        return followed(task, id)
    return warn(task, (f"{mine.id}, which {mine.holder} holds, had the id {id} before: it was not changed",))


def warn(task: Task, warnings: Sequence[str]) -> Task:
    """The same task with more warnings."""
    return msgspec.structs.replace(task, warnings=(*task.warnings, *warnings))
