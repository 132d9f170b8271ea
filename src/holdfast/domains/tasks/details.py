"""What people add to a task: who is to do it, when, and what it refers to outside of the workspace.

An assigned task is ready for its assignee alone. A deferred one counts a wait, which ends with a lease: the kernel's
one way for anything to expire. References are searched with the texts of the task.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains.tasks import rows
from holdfast.domains.tasks.claims import renew, time_left
from holdfast.domains.tasks.creation import check_assignee, check_line, with_assignee
from holdfast.kernel import leases
from holdfast.kernel.tx import SYSTEM, Tx
from holdfast.types import as_time
from holdfast.types.tasks import RefKind, Task

KINDS: Final[tuple[RefKind, ...]] = get_args(RefKind)
MAX_REF: Final = 2000  # characters
MAX_REFS: Final = 100


def assign(tx: Tx, id: str, assignee: str | None) -> Task:
    """Let one agent alone claim a task, None for everybody; whoever holds it keeps it. Raises InvalidName.

    Warns of a name that was not seen here, with the nearest known one.
    """
    check_assignee(assignee)
    task = rows.require(tx, id)
    renew(tx, task)
    if task.assignee != assignee:
        rows.change(tx, task, "assign", {"assignee": assignee})
    return with_assignee(tx, rows.to_task(rows.require(tx, id)))


def unassign(tx: Tx, id: str) -> Task:
    """Let everybody claim a task again."""
    return assign(tx, id, None)


def defer(tx: Tx, id: str, until: datetime | None) -> Task:
    """Let an open or blocked task wait until a time, which its event `due` reports; None ends the wait.

    A claim, and whatever ends the task, ends it too. Raises InvalidStatus if somebody works on it, or it is closed.
    """
    task = rows.require(tx, id)
    if task.status not in rows.WAITING:
        message = f"task {id} is {task.status}: only one that is {' or '.join(rows.WAITING)} can be deferred"
        raise errors.InvalidStatus(message, hint="", id=id, status=task.status)
    left = None if until is None else time_left(tx, until)
    deadline = None if left is None else tx.now + left
    if deadline == task.deferred:
        return rows.to_task(task)
    set_deferral(tx, task, deadline, "defer")
    return rows.to_task(rows.require(tx, id))


def set_deferral(tx: Tx, task: rows.Stored, deadline: int | None, op: str, updated: int | None = None) -> None:
    """Let a task wait until a time to come, or no more; `updated` as in `rows.change`."""
    leases.drop(tx, rows.deferral(task), rows.DEFER)
    if deadline is not None:
        leases.start_as(tx, rows.deferral(task), rows.DEFER, SYSTEM, deadline - tx.now)
    waits = task.waits - (task.deferred is not None) + (deadline is not None)
    times = (None if at is None else as_time(at).isoformat() for at in (task.deferred, deadline))
    rows.change(tx, task, op, {"waits": waits}, more={"deferred_until": tuple(times)}, updated=updated)


def end_lease(tx: Tx, lease: int, op: str) -> None:
    """The time of a deferred task has come."""
    task = rows.by_record(tx, -lease)
    columns, more = rows.end_deferral(tx, task, {})
    rows.change(tx, task, "due", columns, more=more)


def add_ref(tx: Tx, id: str, value: str, kind: RefKind | None = None) -> Task:
    """Note on a task what it refers to: a branch, commit, pull request or address; nothing if it is there.

    Without a kind, it is guessed: an address (of a pull request, if it looks so), a hash, #7 or else a branch.
    """
    ref = check_ref(value, kind)
    task = rows.require(tx, id)
    renew(tx, task)
    refs = refs_in(task)
    if ref in refs:
        return rows.to_task(task)
    if len(refs) >= MAX_REFS:
        raise errors.TooLarge(f"a task has at most {MAX_REFS} references", limit=MAX_REFS)
    return _write(tx, task, "add_ref", [*refs, ref])


def remove_ref(tx: Tx, id: str, value: str, kind: RefKind | None = None) -> Task:
    """Remove a reference from a task, of any kind if none is given; nothing if it has none."""
    value = check_ref(value, kind)[1]
    task = rows.require(tx, id)
    renew(tx, task)
    refs = refs_in(task)
    left = [ref for ref in refs if ref[1] != value or kind not in (None, ref[0])]
    return rows.to_task(task) if left == refs else _write(tx, task, "remove_ref", left)


def refs_in(task: rows.Stored) -> list[tuple[str, str]]:
    """Return the references of a task as (kind, value)."""
    return [] if task.refs is None else [(ref.kind, ref.value) for ref in rows.refs_of(task.refs)]


def _write(tx: Tx, task: rows.Stored, op: str, refs: list[tuple[str, str]]) -> Task:
    stored = stored_refs(refs)
    rows.write_texts(tx, task.seq, refs=text_of(refs))
    rows.change(tx, task, op, {"refs": stored}, more={"refs": (refs_in(task), refs)})
    return rows.to_task(rows.require(tx, task.id))


def stored_refs(refs: list[tuple[str, str]]) -> str | None:
    """Return references as the row of a task stores them."""
    return msgspec.json.encode(refs).decode() if refs else None


def text_of(refs: list[tuple[str, str]]) -> str:
    """Return references as the text that a search looks through."""
    return "\n".join(value for _, value in refs)


def check_ref(value: str, kind: RefKind | None) -> tuple[str, str]:
    """Return the kind and the value of a reference. Raises InvalidType, InvalidValue or TooLarge."""
    value = check_line(value, "value", MAX_REF).strip()
    return _guess(value) if kind is None else _check_kind(kind), value


def _check_kind(kind: RefKind) -> RefKind:
    if kind not in KINDS:
        hint = f"kinds: {', '.join(KINDS)}"
        raise errors.InvalidType(f"{kind!r} is not a kind of reference", hint=hint, kinds=list(KINDS))
    return kind


def _guess(value: str) -> RefKind:
    if re.match(r"https?://", value):
        return "pull_request" if re.search(r"/(pull|pulls|merge_requests)/\d+", value) else "url"
    if re.fullmatch(r"#\d+|[\w.-]+/[\w.-]+#\d+", value):
        return "pull_request"
    return "commit" if re.fullmatch(r"[0-9a-f]{7,64}", value) else "branch"
