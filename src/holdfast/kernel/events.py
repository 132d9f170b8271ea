"""The event log: one ordered list of everything that happened, and the cursors into it.

A record's history, a watch and an audit all read it. A cursor is a revision, or `revision-position` inside a
transaction. Compaction is explicit, keeps each record's newest event below its mark and what was said of tasks (see
`compact`), and never leaves a silent gap: a cursor below the mark raises Compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast import errors
from holdfast.kernel.tx import Row, Snapshot, Tx
from holdfast.kernel.validate import check_limit
from holdfast.kernel.values import is_text
from holdfast.types import END_OF_REVISION, EVENT_KINDS, Event, Page, Position, as_microseconds, as_time, parse_cursor

MAX_PAGE = 1000

_COLUMNS = "revision, position, time, actor, kind, scope, id, op, version, redacted, data"
_HISTORY = (
    f"SELECT {_COLUMNS} FROM events WHERE kind = ? AND scope = ? AND id = ? AND version < ?"
    " ORDER BY version DESC LIMIT ?"
)
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Filter(msgspec.Struct, frozen=True):
    """Selects events. `scope` and `id` narrow to one record; `version` skips its events up to that one."""

    kinds: tuple[str, ...] | None = None
    scope: str | None = None
    id: str | None = None
    version: int = 0
    actor: str | None = None
    since: int | None = None

    @property
    def record(self) -> tuple[str, str, str] | None:
        """The record, if the filter selects exactly one."""
        if self.kinds is None or len(self.kinds) != 1 or self.scope is None or self.id is None:
            return None
        return self.kinds[0], self.scope, self.id

    def matches(self, row: Row) -> bool:
        """Whether the filter selects an event row."""
        return (
            (self.kinds is None or row[4] in self.kinds)
            and (self.scope is None or row[5] == self.scope)
            and (self.id is None or row[6] == self.id)
            and row[8] > self.version
            and (self.actor is None or row[3] == self.actor)
            and (self.since is None or row[2] >= self.since)
        )

    def where(self) -> tuple[list[str], list[Any]]:
        """The filter as SQL."""
        parts: list[str] = []
        params: list[Any] = []
        tests = (("scope =", self.scope), ("id =", self.id), ("actor =", self.actor), ("time >=", self.since))
        for test, value in (*tests, ("version >", self.version or None)):
            if value is not None:
                parts.append(f"{test} ?")
                params.append(value)
        if self.kinds is not None:
            parts.append(f"kind IN ({', '.join('?' * len(self.kinds))})")
            params += self.kinds
        return parts, params


def _data(revision: int, data: bytes) -> dict[str, Any]:
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Corrupt(f"an event of revision {revision} cannot be read: {error}", revision=revision) from error


def to_event(row: Row) -> Event:
    """The public form of an event row."""
    revision, position, time, actor, kind, scope, id, op, version, redacted, data = row
    return Event(
        revision=revision,
        position=position,
        time=as_time(time),
        actor=actor,
        kind=kind,
        scope=scope,
        id=id,
        op=op,
        version=version,
        data={} if data is None else _data(revision, data),
        redacted=bool(redacted),
    )


def locate(snapshot: Snapshot, after: int | str | None) -> Position:
    """Return a checked starting point: now, or `after`, which must not be in the future or compacted.

    On a replica a future cursor raises Behind, because it may be in the past of another node.
    """
    revision, compacted = marks(snapshot)
    if after is None:
        return revision, END_OF_REVISION
    position = parse_cursor(after)
    if position[0] > revision:
        if snapshot.one("SELECT 1 FROM local_replica"):
            raise behind(revision, position[0])
        raise errors.InvalidFilter(
            f"the cursor {after} is in the future; the workspace is at revision {revision}", revision=revision
        )
    if position[0] < compacted:
        raise gone(compacted)
    return position


def marks(snapshot: Snapshot) -> tuple[int, int]:
    """Return the current revision, and the revision up to which history may be compacted."""
    row = snapshot.one("SELECT revision, compacted FROM meta")
    assert row is not None
    return row[0], row[1]


def behind(revision: int, wanted: int) -> errors.Behind:
    """The error of a store that has not reached a revision that the caller has seen."""
    return errors.Behind(
        f"this workspace is at revision {revision}, not yet at {wanted}", revision=revision, wanted=wanted
    )


def gone(compacted: int) -> errors.Compacted:
    """The error for a cursor below the mark."""
    return errors.Compacted(f"events up to revision {compacted} have been compacted", compacted=compacted)


def read_after(snapshot: Snapshot, after: Position, wanted: Filter, limit: int) -> tuple[list[Row], bool]:
    """Return a page of the next selected events, and whether there are more. Raises Compacted if some are gone."""
    where, params = wanted.where()
    # One record is read by its own index: its versions follow the order of its revisions.
    source, order = ("records CROSS JOIN log INDEXED BY log_record ON record = key", "version")
    if not wanted.record:
        source, order = ("log INDEXED BY log_revision CROSS JOIN records ON key = record", "revision, position")
    where.append("(revision, position) > (?, ?)")
    page = snapshot.page(
        f"SELECT {_COLUMNS} FROM {source} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?",
        [*params, *after],
        limit,
    )
    # Read after the events: if the mark is still below the cursor now, nothing was missing then.
    compacted = marks(snapshot)[1]
    if after[0] < compacted:
        raise gone(compacted)
    return page


def previous(snapshot: Snapshot, kind: str, scope: str, id: str, version: int) -> Row | None:
    """The event of the record just before `version`."""
    return snapshot.one(
        f"SELECT {_COLUMNS} FROM events WHERE kind = ? AND scope = ? AND id = ? AND version < ?"
        " ORDER BY version DESC LIMIT 1",
        (kind, scope, id, version),
    )


def history(snapshot: Snapshot, kind: str, scope: str, id: str, before: int | None, limit: int | None) -> list[Row]:
    """Return the record's events newest first, below version `before`. Raises Compacted if the next one is gone."""
    rows = snapshot.all(
        _HISTORY, (kind, scope, id, END_OF_REVISION if before is None else before, -1 if limit is None else limit)
    )
    if not rows:
        _check_gone(snapshot, kind, scope, id, before)
    return rows


def history_page(
    snapshot: Snapshot, kind: str, scope: str, id: str, before: int | None, limit: int
) -> tuple[list[Row], bool]:
    """Return a page of the record's events newest first, and whether there are older ones. Raises Compacted."""
    start = END_OF_REVISION if before is None else before
    rows, more = snapshot.page(_HISTORY, (kind, scope, id, start), limit)
    if not rows:
        _check_gone(snapshot, kind, scope, id, before)
    return rows, more


def _check_gone(snapshot: Snapshot, kind: str, scope: str, id: str, before: int | None) -> None:
    """Raise Compacted if the record had events below version `before`."""
    if before is not None and before > 1:
        compacted = marks(snapshot)[1]
        oldest = snapshot.one(
            "SELECT min(revision) FROM events WHERE kind = ? AND scope = ? AND id = ?", (kind, scope, id)
        )
        if oldest is not None and oldest[0] is not None and oldest[0] <= compacted:
            raise gone(compacted)


def list_events(
    snapshot: Snapshot,
    kinds: Sequence[str] | None = None,
    id: str | tuple[str, str] | None = None,
    actor: str | None = None,
    since: datetime | None = None,
    after: int | str | None = None,
    limit: int = 100,
) -> Page[Event]:
    """Return events in order, from `after` (a cursor) or `since` (a time); by default from the oldest kept."""
    check_limit(limit, MAX_PAGE, "after an event")
    start = (marks(snapshot)[1], END_OF_REVISION) if after is None else locate(snapshot, after)
    if since is not None and not isinstance(since, datetime):
        raise errors.InvalidFilter(f"since must be a datetime, not {type(since).__name__}")
    wanted = make_filter(kinds, id, actor, None if since is None else as_microseconds(since))
    rows, more = read_after(snapshot, start, wanted, limit)
    page = Page(to_event(row) for row in rows)
    page.cursor = page[-1].cursor if more else None
    return page


def make_filter(
    kinds: Sequence[str] | None, id: str | tuple[str, str] | None, actor: str | None = None, since: int | None = None
) -> Filter:
    """Return a checked filter; `id` is a record's id, or (scope, id) such as (run, cell)."""
    if kinds is not None and not isinstance(kinds, list | tuple | set | frozenset):
        raise errors.InvalidFilter(f"kinds must be a list, not {kinds!r}", hint='use kinds=["cell", "lock"]')
    if kinds is not None and not kinds:
        raise errors.InvalidFilter("an empty list of kinds matches nothing", hint="omit kinds to match every event")
    scope: str | None = None
    if isinstance(id, tuple | list) and len(id) == 2:
        scope, id = id
    for text in (*(text for text in (scope, id, actor) if text is not None), *(kinds or ())):
        if not isinstance(text, str) or not is_text(text):
            raise errors.InvalidFilter(f"kinds, ids and actors must be names, or an id (scope, id), not {text!r}")
    for kind in kinds or ():
        if kind not in EVENT_KINDS:
            raise errors.InvalidFilter(
                f"{kind!r} is not a kind of event", hint=f"kinds: {', '.join(EVENT_KINDS)}", kinds=list(EVENT_KINDS)
            )
    return Filter(None if kinds is None else tuple(kinds), scope, id, 0, actor, since)


def _has(table: str, key: str, start: str = "") -> str:
    """A condition: an event's data, msgpack, has this key. A short text that equals the key passes too."""
    return f"instr({table}.data, X'{bytes([0xA0 + len(key)]).hex()}{key.encode().hex()}{start}')"


def _ends_claim(table: str) -> str:
    """A condition: the event ended a claim, so `claimed_by` does not change from nothing."""
    return f"({_has(table, 'claimed_by')} AND NOT {_has(table, 'claimed_by', '92c0')})"


_NEWER = "SELECT 1 FROM log AS newer WHERE newer.record = log.record AND newer.version > log.version"
_COMPACT = (
    f"DELETE FROM log WHERE revision < ?1 AND EXISTS ({_NEWER} AND newer.revision < ?1)"
    " AND NOT (data IS NOT NULL AND (SELECT kind FROM records WHERE key = record) = 'task'"
    f" AND ({_has('log', 'note')} OR {_has('log', 'result')} OR {_ends_claim('log')}"
    f" AND NOT EXISTS ({_NEWER} AND newer.revision < ?1 AND {_ends_claim('newer')})))"
)


def compact(tx: Tx, before: int) -> int:
    """Delete events below revision `before`; returns how many.

    Each record keeps its newest event below the mark. A task also keeps, until it is purged, the events with a note,
    summary, result or reason, and the one that ended its last claim: these are all that the log alone has of it.
    """
    revision, compacted = marks(tx)
    if isinstance(before, bool) or not isinstance(before, int) or not 0 < before <= revision + 1:
        raise errors.InvalidFilter(f"before must be a revision from 1 to {revision + 1}, not {before!r}")
    if before - 1 <= compacted:
        return 0
    gone_now = tx.run(_COMPACT, (before,))
    tx.run("UPDATE meta SET compacted = ? WHERE id = 1", (before - 1,))
    tx.emit("log", "log", "compact", data=msgspec.msgpack.encode({"compacted": [compacted, before - 1]}))
    return gone_now


def redact(tx: Tx, kind: str, scope: str, id: str) -> None:
    """Blank the events of a purged record: the events stay, their data goes."""
    tx.run(
        "UPDATE log SET data = NULL, redacted = 1 WHERE redacted = 0"
        " AND record = (SELECT key FROM records WHERE kind = ? AND scope = ? AND id = ?)",
        (kind, scope, id),
    )
