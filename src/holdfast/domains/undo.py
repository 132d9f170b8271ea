"""`ws.undo()`: take back one transaction by a new one, all of it or nothing.

Tasks, cells and the values of stashes get back what the log says they had before, if nobody has changed them since; the
result is their next version, and the history keeps both. What cannot be taken back refuses the whole: holds that were
granted or ended, mail that was sent, what was purged. An undo is a transaction like any other, so undoing it redoes.
Its last event has the kind `undo` and the revision that it took back as its id: so `last` goes back step by step, and
never redoes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import cell_history, cells
from holdfast.domains.cell_history import CELL, VALUE_MAP, load_cell
from holdfast.domains.stashes import rows as stash_rows
from holdfast.domains.tasks import rows as task_rows
from holdfast.domains.tasks.reversal import UNDO, Past, Reversal, is_passing, refusal_of
from holdfast.kernel import events
from holdfast.kernel.tx import PAGE_BYTES, Tx
from holdfast.kernel.validate import check_flag
from holdfast.kernel.values import decode
from holdfast.types import END_OF_REVISION, Event, Reverted, Undone

Record = tuple[str, str, str]  # kind, scope, id
MAX_NAMED: Final = 1000  # that an error names; its text counts all
_packed = msgspec.msgpack.Encoder().encode
EVENT: Final = "undo"  # its id is the revision that was taken back
_LOOKED_BACK: Final = 100  # transactions, for the one that a hint names
_RUN: Final = cells.RUN  # marks the highest version of a run that was deleted: nothing to take back
_HOLDS: Final = ("lock", "cell-lock", "lease", "path", "stash-lock")
_SAVED: Final = ("set", "increment")
_NOTE: Final = "note"
_SHARING: Final = "sharing"
_READ: Final = "read"
_VALUED: Final = ("resource", "artifact", "context", stash_rows.COUNTER)


def undo(
    tx: Tx,
    revision: int | None = None,
    last: bool = False,
    dry_run: bool = False,
    partial: bool = False,
    others: bool = False,
    force: bool = False,
) -> Undone:
    """Take back the transaction of a revision, or with `last` one's own newest one that is not taken back yet.

    `dry_run` only reports. Raises NotUndoable if it also granted or ended a hold, sent mail or purged; `partial` takes
    back the rest. Raises Conflict if something was changed since, unless forced, and NotUndoable for others'
    transactions without `others`.
    """
    check_flag(last=last, dry_run=dry_run, partial=partial, others=others, force=force)
    revision = _chosen(tx, revision, last)
    found = events.of_revision(tx, revision)
    _check_own(tx, found[0], others)
    _check_done(tx, revision)
    kept, left = _sort(tx, found)
    if left and not (partial and kept):
        raise _not_undoable(revision, left, _hint(tx, revision, last, bool(kept)))
    records = _by_record(kept)
    if not force and not _only_notes(kept):
        _check_unchanged(tx, revision, records)
    with tx.dry_run() as trial:
        reverted, warnings = _revert(tx, revision, records)
        if not reverted:
            hint = _hint(tx, revision, last, False)
            raise errors.NotUndoable(_nothing(revision, kept), hint=hint, revision=revision, events=[])
        tx.emit(EVENT, str(revision), UNDO, data=_packed({"redo": _is_undo(tx, revision)}))
        if not dry_run:
            trial.keep()
    named = [f"{_name(event)} {event.op}: {why}" for event, why in left]
    return Undone(revision, None if dry_run else tx.revision, reverted, named, warnings, dry_run)


# --- which transaction -----------------------------------------------------------------------------------------------


def _chosen(tx: Tx, revision: int | None, last: bool) -> int:
    if last == (revision is not None):
        hint = "last=True takes back your newest one; events.list() shows the revision of each"
        raise errors.Invalid("undo takes one transaction: the one of a revision, or your last", hint=hint)
    if revision is not None:
        if type(revision) is not int or revision < 0:
            raise errors.Invalid(f"revision must be a whole number from 0, not {revision!r}")
        return revision
    newest = next(_own(tx, tx.revision), None)
    if newest is None:
        message = f"{tx.actor} has changed nothing that the log still has and that is not taken back"
        raise errors.NotFound(message, hint="name yourself as you did then, or give a revision")
    return newest


def _own(tx: Tx, below: int) -> Iterator[int]:
    """One's own transactions below a revision, newest first: what was done or redone, and not taken back since.

    Reading shared tasks is nothing that one did: others made what it brings.
    """
    while (found := events.newest_by(tx, tx.actor, below)) is not None:
        below = found
        shared = events.find_in(tx, found, _SHARING)
        if not _is_undo(tx, found) and _undone_by(tx, found) is None and (shared is None or shared.op != _READ):
            yield found


def _is_undo(tx: Tx, revision: int) -> bool:
    """Whether a transaction took something back; one that takes back an undo is a redo, and none."""
    event = events.find_in(tx, revision, EVENT)
    return event is not None and not event.data.get("redo")


def _undone_by(tx: Tx, revision: int) -> int | None:
    """The transaction by which somebody took one back that nobody did again; None if it stands."""
    chain = [revision]  # each taken back by the next
    while (row := events.newest_at(tx, EVENT, "", str(chain[-1]), END_OF_REVISION)) is not None:
        chain.append(row[0])
    return None if len(chain) % 2 else chain[1]


def _check_done(tx: Tx, revision: int) -> None:
    """Raise NotUndoable if a transaction is taken back already."""
    by = _undone_by(tx, revision)
    if by is not None:
        message, hint = (
            f"revision {revision} is already taken back, by revision {by}",
            f"undo revision {by} to do it again",
        )
        raise errors.NotUndoable(message, hint=hint, revision=revision, events=[])


def _hint(tx: Tx, revision: int, last: bool, partial: bool) -> str | None:
    """What else can be done: `partial`, which the error proposes itself, or with `last` the transaction before."""
    if partial or not last:
        return None if partial else ""
    for found in itertools.islice(_own(tx, revision), _LOOKED_BACK):
        if found <= events.compacted_to(tx):
            break
        if _can_be_undone(tx, found):
            return f"revision {found} is your change before it"
    return ""


def _can_be_undone(tx: Tx, revision: int) -> bool:
    kept, left = _sort(tx, events.of_revision(tx, revision))
    if left or _only_notes(kept):
        return False
    records = _by_record(kept)
    try:
        _check_unchanged(tx, revision, records)
        with tx.dry_run():
            return bool(_revert(tx, revision, records)[0])
    except (errors.Conflict, errors.Invalid, errors.NotFound):
        return False


def _only_notes(kept: list[Event]) -> bool:
    return all(event.kind == task_rows.TASK and event.op == _NOTE for event in kept)


def _nothing(revision: int, kept: list[Event]) -> str:
    """Why a transaction has nothing to take back."""
    tasks = [event for event in kept if event.kind == task_rows.TASK]
    noted = dict.fromkeys(event.id for event in tasks if "note" in event.data)
    if noted:
        return f"revision {revision} only noted something on {', '.join([*noted][:5])}, and notes stay in the history"
    claimed = dict.fromkeys(event.id for event in tasks if event.op == "claim")
    if claimed and len(tasks) == len(kept):
        return f"revision {revision} only claimed {', '.join([*claimed][:5])}, and that claim has ended"
    return f"revision {revision} left nothing that could be taken back"


def _check_own(tx: Tx, event: Event, others: bool) -> None:
    if event.actor != tx.actor and not others:
        message = f"revision {event.revision} is a transaction of {event.actor}, not of {tx.actor}"
        hint = "others=True takes back those of others; a token needs the role admin for it"
        raise errors.NotUndoable(message, hint=hint, revision=event.revision, actor=event.actor, events=[])


# --- what can be taken back ------------------------------------------------------------------------------------------


def _sort(tx: Tx, found: list[Event]) -> tuple[list[Event], list[tuple[Event, str]]]:
    """The events that can be taken back, and those that cannot, each with the reason."""
    completed = {event.id for event in found if event.kind == task_rows.TASK and event.op == "complete"}
    kept, left = [], []
    for event in found:
        if event.kind in (_RUN, EVENT) or _went_with(tx, event, completed):
            continue
        why = _refusal(tx, event)
        if why:
            left.append((event, why))
        else:
            kept.append(event)
    return kept, left


def _went_with(tx: Tx, event: Event, completed: set[str]) -> bool:
    """Whether this is the end of a lock of paths that was taken for a task, and ended when that was completed."""
    if event.kind != "path" or event.op != "release":
        return False
    row = events.previous(tx, event.kind, event.scope, event.id, event.version)
    given: list[Any] = [None, None] if row is None else events.to_event(row).data.get("task", [None, None])
    return given[1] in completed


def _refusal(tx: Tx, event: Event) -> str:
    if event.redacted:
        return "it was purged since"
    if event.kind in _HOLDS:
        return "it changed a hold"
    match event.kind:
        case task_rows.TASK:
            row = tx.one("SELECT imported FROM tasks WHERE id = ?", (event.id,))
            return refusal_of(event, None if row is None else row[0])
        case cell_history.CELL:
            return "its time had come" if event.op == "expire" else ""
        case stash_rows.STASH:
            return _stash_refusal(tx, event)
        case "message":
            return "mail that was sent is read"
        case "sharing" if event.op == _READ:
            return "others made what came with the repository"
    return "only tasks, cells and the values of stashes can be taken back"


def _stash_refusal(tx: Tx, event: Event) -> str:
    if event.op not in _SAVED or "at" in event.data:
        return "only the values of stashes can be taken back"
    row = tx.one("SELECT type FROM stashes WHERE id = ? AND deleted IS NULL", (event.id,))
    if row is None or row[0] not in _VALUED:
        return "the stash is gone, or has no value of its own"
    return "" if events.previous(tx, event.kind, "", event.id, event.version) else "its former value is not known"


def _not_undoable(revision: int, left: list[tuple[Event, str]], hint: str | None) -> errors.NotUndoable:
    named = "; ".join(f"{_name(event)} {event.op} ({why})" for event, why in left[:5])
    more = f" and {len(left) - 5} more" if len(left) > 5 else ""
    message = f"revision {revision} cannot be taken back: {named}{more}"
    those = [
        {"kind": event.kind, "scope": event.scope, "id": event.id, "op": event.op, "reason": why}
        for event, why in left[:MAX_NAMED]
    ]
    return errors.NotUndoable(message, hint=hint, revision=revision, events=those)


def _name(event: Event) -> str:
    return f"{event.kind} {event.scope}/{event.id}" if event.scope else f"{event.kind} {event.id}"


def _by_record(kept: list[Event]) -> dict[Record, list[Event]]:
    records: dict[Record, list[Event]] = {}
    for event in kept:
        records.setdefault((event.kind, event.scope, event.id), []).append(event)
    return records


def _check_unchanged(tx: Tx, revision: int, records: dict[Record, list[Event]]) -> None:
    """Raise Conflict, with who and when, if a record has changed since."""
    changed = [event for record in records if (event := _changed_since(tx, record, revision)) is not None]
    if not changed:
        return
    named = "; ".join(
        f"{_name(event)} by {event.actor} at {event.time.isoformat()} ({event.op}, revision {event.revision})"
        for event in changed[:5]
    )
    more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
    hint = "undo the later changes first; force=True overwrites them, for which a token needs the role admin"
    those = [
        {
            **{"kind": event.kind, "scope": event.scope, "id": event.id, "version": event.version, "op": event.op},
            **{"actor": event.actor, "time": event.time, "revision": event.revision},
        }
        for event in changed[:MAX_NAMED]
    ]
    raise errors.Conflict(f"changed since revision {revision}: {named}{more}", hint=hint, changed=those)


def _changed_since(tx: Tx, record: Record, revision: int) -> Event | None:
    """The newest event after which a record is not as it was after a revision; None if there is none.

    It is as it was in spite of a note, another id, a claim that came and went, what was taken back, and how.
    """
    kind, scope, id = record
    row = events.newest_at(tx, kind, scope, id, END_OF_REVISION)
    ended: set[int] = set()  # the claims that have come and gone
    while row is not None and row[0] > revision:
        event = events.to_event(row)
        if not (_leaves_all(tx, event, revision) or (kind == task_rows.TASK and is_passing(event, ended))):
            return event
        row = events.previous(tx, kind, scope, id, event.version)
    return None


def _leaves_all(tx: Tx, event: Event, revision: int) -> bool:
    """Whether a record is as it was after a revision in spite of an event: what was taken back, and how."""
    if _undone_by(tx, event.revision) is not None:
        return True
    undo = events.find_in(tx, event.revision, EVENT)
    return undo is not None and int(undo.id) > revision


# --- taking it back --------------------------------------------------------------------------------------------------


def _revert(tx: Tx, revision: int, records: dict[Record, list[Event]]) -> tuple[list[Reverted], list[str]]:
    pasts = {}
    for (kind, _, id), those in records.items():
        if kind == task_rows.TASK:
            pasts[id] = Past(id)
            for event in those:
                pasts[id].add(event)
    tasks = Reversal(tx, revision, list(pasts.values()))
    changed = tasks.run()
    reverted = []
    for (kind, scope, id), those in records.items():
        if kind == task_rows.TASK:
            if id in changed:
                version, changes = changed[id]
                reverted.append(Reverted(kind, id, version, changes))
            continue
        before = events.previous(tx, kind, scope, id, those[0].version)
        revert = _revert_cell if kind == CELL else _revert_stash
        found = revert(tx, scope, id, None if before is None else before[-1])
        if found is not None:
            reverted.append(found)
    return _bounded(reverted), tasks.warnings


def _bounded(reverted: list[Reverted]) -> list[Reverted]:
    """The records with their changes, as long as these are PAGE_BYTES in all."""
    left = PAGE_BYTES
    for at, record in enumerate(reverted):
        left -= len(_packed(record.changes))
        if left < 0:
            reverted[at] = msgspec.structs.replace(record, changes={})
    return reverted


def _revert_cell(tx: Tx, run: str, cell: str, before: bytes | None) -> Reverted | None:
    """Write the value that a cell had, or delete it again; it expires as it would have now."""
    old = load_cell(tx, run, cell)
    value = None if old is None else old.value
    if before is not None:
        data = before[len(VALUE_MAP) :]
        version = cells.put(tx, run, cell, data, old, UNDO, None if old is None else old.lease)
        gone = {"deleted": [True, False]} if old is None else {}
        return Reverted(CELL, cell, version, {"value": [value, decode(data)], **gone}, run)
    if old is None:
        return None
    version = cells.remove(tx, run, cell, old.version, old.lease, UNDO)
    return Reverted(CELL, cell, version, {"value": [value, None], "deleted": [False, True]}, run)


def _revert_stash(tx: Tx, _: str, id: str, before: bytes | None) -> Reverted:
    """Write the value that a stash had."""
    stored = stash_rows.require(tx, id)
    assert before is not None, "its first value is not taken back"
    entry: Any = decode(before)
    value = entry["value"]
    stash_rows.write(tx, id, "set", stored.version + 1, value)
    return Reverted(stash_rows.STASH, id, stored.version + 1, {"value": [stored.value, value]})
