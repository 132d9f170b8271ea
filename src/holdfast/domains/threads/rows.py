"""The rows of threads: whether a write may come, what a checkpoint is made of, and what `check` compares.

Invariant: a thread has its lock (`locks.named("thread:ID")`), and while somebody holds it nobody else changes the
thread. A thread that was deleted is known from the log: only a checkpoint without a parent begins it anew, so a run
that goes on after the deletion does not bring it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import locks
from holdfast.kernel.events import compare, pasts
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import check_name
from holdfast.kernel.values import is_text
from holdfast.types import as_time
from holdfast.types.threads import Thread

THREAD: Final = "thread"
INTERRUPT: Final = "interrupt"  # the kind of the events by which a person learns that a graph waits
MAX_BYTES: Final = 64 * 1024 * 1024  # of the values of one call
MAX_BODY: Final = 96 * 1024 * 1024  # of a request that brings them, as base64
MAX_TEXT: Final = 4096  # bytes of a namespace, a path, or the name of a channel
ROW: Final = "record, id, version, checkpoints, created, updated, revision, before"
_FIND: Final = f"SELECT {ROW} FROM threads WHERE id = ?"
_encode = msgspec.msgpack.Encoder().encode


class ThreadRow(msgspec.Struct):
    """The row of a thread."""

    record: int
    id: str
    version: int
    checkpoints: int
    created: int
    updated: int
    revision: int
    before: int

    def write(self, tx: Tx, op: str, checkpoints: int = 0, **facts: object) -> None:
        """Count what an operation did, and log it: how many checkpoints there were and are, and ids and sizes."""
        counts = {"checkpoints": [self.checkpoints, self.checkpoints + checkpoints]} if checkpoints else {}
        self.checkpoints += checkpoints
        self.version += 1
        self.revision, self.updated = tx.revision, tx.now
        tx.run(
            "UPDATE threads SET version = ?, revision = ?, updated = ?, checkpoints = ? WHERE record = ?",
            (self.version, tx.revision, tx.now, self.checkpoints, self.record),
        )
        tx.emit_of(self.record, op, self.version, _encode({**counts, **facts}))

    def shown(self) -> Thread:
        """Its public form."""
        return Thread(
            id=self.id,
            version=self.version,
            checkpoints=self.checkpoints,
            created_at=as_time(self.created),
            updated_at=as_time(self.updated),
            revision=self.revision,
        )


# --- arguments -------------------------------------------------------------------------------------------------------


def check_text(text: object, what: str, *, empty: bool = False) -> None:
    """Raise InvalidName unless it is a text that can name a namespace, a task or a channel."""
    if type(text) is not str:
        raise errors.InvalidName(f"{what} must be a str, not {type(text).__qualname__}", hint="", what=what)
    if not text and not empty:
        raise errors.InvalidName(f"{what} is empty", hint="", what=what)
    if not is_text(text) or "\0" in text or len(text.encode()) > MAX_TEXT:
        hint = f"it is text of at most {MAX_TEXT:,} bytes of UTF-8, without NUL"
        raise errors.InvalidName(f"{what} is not a name: {text[:80]!r}", hint=hint, what=what)


def check_names(id: str, checkpoint: str, ns: str, parent: str | None, run: str | None = None) -> None:
    """Raise InvalidName unless these can name a thread, a checkpoint, a namespace and what is before it."""
    check_name(id, "id")
    check_name(checkpoint, "checkpoint")
    check_text(ns, "ns", empty=True)
    for name, what in ((parent, "parent"), (run, "run")):
        if name is not None:
            check_name(name, what)


def too_large(size: int) -> errors.TooLarge:
    """The error for values that are more than one call may bring."""
    hint = "store large data elsewhere and a reference here"
    message = f"the values of this call take {size:,} bytes or more; the limit is {MAX_BYTES:,}"
    return errors.TooLarge(message, hint=hint, size=size, limit=MAX_BYTES)


# --- threads ---------------------------------------------------------------------------------------------------------


def find(snapshot: Snapshot, id: str) -> ThreadRow | None:
    """The row of a thread, or None."""
    row = snapshot.one(_FIND, (id,))
    return None if row is None else ThreadRow(*row)


def require(snapshot: Snapshot, id: str) -> ThreadRow:
    """The row of a thread. Raises ThreadNotFound."""
    check_name(id, "id")
    row = find(snapshot, id)
    if row is None:
        raise errors.ThreadNotFound(f"there is no thread {id!r}", id=id)
    return row


def lock_of(id: str) -> str:
    """The name of the lock of a thread."""
    return f"{THREAD}:{id}"


def check_token(tx: Tx, id: str, token: int | None) -> None:
    """Raise Fenced unless the lock of a thread is held with this token, NotHolder if another agent holds it.

    Without a token, raise Held if anybody holds it.
    """
    target = locks.named(lock_of(id))
    row = locks.load(tx, target)
    if token is not None:
        locks.refuse_other(f"the thread {id}", None if row is None else row[2], token)
        if row is not None and row[1] != tx.actor:
            raise locks.not_holder(target, row[1], tx.actor)
    elif row is not None:
        raise locks.held(target, row[1], row[5])


def open_thread(tx: Tx, id: str, token: int | None, ns: str, of: str, parent: str | None, *, writes: bool) -> ThreadRow:
    """The row of a thread that is about to get a checkpoint, or writes after one; made if need be.

    Raises ThreadNotFound if it was deleted, and what comes belongs to a run from before that.
    """
    check_token(tx, id, token)
    thread = find(tx, id)
    if thread is None:
        thread = _begin(tx, id, ns, of, parent, writes)
    elif thread.before and (of if writes else parent) is not None:
        needed = of if writes else parent
        assert needed is not None
        if not has_checkpoint(tx, thread.record, ns, needed) and not _made_after(needed, thread.before):
            raise _late(id)
    return thread


def _begin(tx: Tx, id: str, ns: str, of: str, parent: str | None, writes: bool) -> ThreadRow:
    record = tx.key_of(THREAD, id)
    last = tx.one("SELECT version, time FROM log WHERE record = ? ORDER BY version DESC LIMIT 1", (record,))
    version, deleted = last or (0, 0)
    if deleted and (ns or (not _made_after(of, deleted) if writes else parent is not None)):
        raise _late(id)
    thread = ThreadRow(record, id, version, 0, tx.now, tx.now, tx.revision, deleted)
    tx.run(
        f"INSERT INTO threads ({ROW}) VALUES (?, ?, ?, 0, ?, ?, ?, ?)",
        (record, id, version, tx.now, tx.now, tx.revision, deleted),
    )
    return thread


def _late(id: str) -> errors.ThreadNotFound:
    hint = "stop this run; one without a checkpoint begins the thread anew"
    return errors.ThreadNotFound(f"the thread {id!r} was deleted after this run had begun", hint=hint, id=id)


_UUID6_EPOCH: Final = 0x01B21DD213814000  # from 1582 to 1970, in units of 100 ns


def _made_after(id: str, time: int) -> bool:
    """Whether the id of a checkpoint, a UUID of version 6, says that it was made after a time."""
    digits = id.replace("-", "")
    try:
        made = (int(digits[:12] + digits[13:16], 16) - _UUID6_EPOCH) // 10
    except ValueError:
        return False
    return len(digits) == 32 and digits[12] == "6" and made > time


def has_checkpoint(snapshot: Snapshot, record: int, ns: str, id: str) -> bool:
    """Whether there is a checkpoint."""
    found = snapshot.one("SELECT 1 FROM checkpoints WHERE thread = ? AND ns = ? AND id = ?", (record, ns, id))
    return found is not None


# --- for check -------------------------------------------------------------------------------------------------------

_PROBLEMS: Final = {
    "the thread {} has not as many checkpoints as it counts": (
        "SELECT id FROM threads t WHERE checkpoints <> (SELECT count(*) FROM checkpoints WHERE thread = t.record)"
    ),
    "checkpoint {} belongs to no thread": (
        "SELECT id FROM checkpoints c WHERE NOT EXISTS (SELECT 1 FROM threads WHERE record = c.thread)"
    ),
    "a write after the checkpoint {} belongs to no thread": (
        "SELECT checkpoint FROM checkpoint_writes w WHERE NOT EXISTS (SELECT 1 FROM threads WHERE record = w.thread)"
    ),
    "checkpoint {} lacks a value": (
        "SELECT c.id || ' of channel ' || j.key FROM checkpoints c, json_each(c.channels) j WHERE NOT EXISTS"
        " (SELECT 1 FROM channel_values v"
        " WHERE v.thread = c.thread AND v.ns = c.ns AND v.channel = j.key AND v.version = j.value)"
    ),
    "a value of channel {} belongs to no checkpoint": (
        "SELECT channel FROM channel_values WHERE (thread, ns, channel, version) NOT IN (SELECT c.thread, c.ns, j.key,"
        " j.value FROM checkpoints c, json_each(c.channels) j)"
    ),
}
_ROWS: Final = ("version", "revision", "created", "updated", "checkpoints")


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report threads that differ from the log, and checkpoints, values and writes that do not fit together."""
    rows = f"SELECT id, {', '.join(_ROWS)} FROM threads"
    yield from compare(snapshot, THREAD, pasts(snapshot, THREAD), rows, _ROWS, {"checkpoints": 0})
    for problem, sql in _PROBLEMS.items():
        for (which,) in snapshot.all(sql):
            yield problem.format(which)


def require_list(given: Any, what: str) -> Sequence[Any]:
    """A list that a call has given. Raises InvalidValue."""
    if not isinstance(given, list | tuple):
        raise errors.InvalidValue(f"{what} must be a list, not {type(given).__name__}")
    return given
