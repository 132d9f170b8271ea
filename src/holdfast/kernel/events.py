"""The event log: one ordered list of everything that happened, and the cursors into it.

A record's history, a watch and an audit all read it. A cursor is a revision, or `revision-position` inside a
transaction. Compaction is explicit, keeps each record's newest event below its mark and what was said of tasks (see
`compact`), and never leaves a silent gap: a cursor below the mark raises Compacted. So does one from after a backup
that was restored: the revision leaps, and what lies between is of a time that was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
_STORY = (
    f"SELECT {_COLUMNS} FROM events WHERE kind = ? AND scope = ? AND id = ? AND version > ? ORDER BY version LIMIT ?"
)
_OLDEST = "SELECT version, revision FROM events WHERE kind = ? AND scope = ? AND id = ? ORDER BY version LIMIT 1"
_COMPACTION = (
    "SELECT data FROM log WHERE record = (SELECT key FROM records WHERE kind = 'log' AND scope = '' AND id = 'log')"
    " ORDER BY version DESC LIMIT 1"
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
    if after is None:
        return marks(snapshot)[0], END_OF_REVISION
    position = parse_cursor(after)
    _check_reached(snapshot, position[0], f"the cursor {after}")
    return position


def check_revision(snapshot: Snapshot, revision: int) -> None:
    """Raise Invalid unless this is a revision up to the newest one, and Compacted below the mark of compaction."""
    if type(revision) is not int or revision < 0:
        raise errors.Invalid(f"revision must be a whole number from 0, not {revision!r}")
    _check_reached(snapshot, revision, f"revision {revision}")


def _check_reached(snapshot: Snapshot, wanted: int, what: str) -> None:
    revision, compacted = marks(snapshot)
    if wanted > revision:
        if snapshot.one("SELECT 1 FROM local_replica"):
            raise behind(revision, wanted)
        raise errors.InvalidFilter(
            f"{what} is in the future; the workspace is at revision {revision}", revision=revision
        )
    _check_kept(snapshot, wanted, compacted)


def _check_kept(snapshot: Snapshot, revision: int, leap: int) -> None:
    """Raise Compacted unless everything after a revision is in the log, which has that of this very history.

    `leap`: where revisions go on without a gap, behind the last compaction or restore.
    """
    if revision >= leap:
        return
    compacted = compacted_to(snapshot)
    if revision < compacted:
        raise gone(compacted)
    if revision != compacted and not snapshot.one("SELECT 1 FROM log WHERE revision = ? LIMIT 1", (revision,)):
        raise errors.Compacted(
            f"revision {revision} is of a time that was left out: a backup from before it was restored", compacted=leap
        )


def marks(snapshot: Snapshot) -> tuple[int, int]:
    """Return the current revision, and the one above which no revision is missing: of a compaction or a restore."""
    row = snapshot.one("SELECT revision, compacted FROM meta")
    assert row is not None
    return row[0], row[1]


def compacted_to(snapshot: Snapshot) -> int:
    """Return the revision up to which events may have been compacted; 0 if none were."""
    row = marks(snapshot)[1] and snapshot.one(_COMPACTION)
    return _data(0, row[0])["compacted"][1] if row else 0


def behind(revision: int, wanted: int) -> errors.Behind:
    """The error of a store that has not reached a revision that the caller has seen."""
    return errors.Behind(
        f"this workspace is at revision {revision}, not yet at {wanted}", revision=revision, wanted=wanted
    )


def gone(compacted: int, hint: str | None = None) -> errors.Compacted:
    """The error for a cursor below the mark, or something else that needs what is gone."""
    return errors.Compacted(f"events up to revision {compacted} have been compacted", hint=hint, compacted=compacted)


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
    _check_kept(snapshot, after[0], marks(snapshot)[1])
    return page


def of_revision(snapshot: Snapshot, revision: int) -> list[Event]:
    """Return all events of a transaction in order. Raises Invalid for a revision to come, Compacted, and NotFound."""
    compacted = compacted_to(snapshot)
    if 0 < revision <= compacted:
        raise gone(compacted, "what it changed is no longer known: set by hand what should be there")
    if revision:  # no transaction has 0
        check_revision(snapshot, revision)
    source = "log INDEXED BY log_revision CROSS JOIN records ON key = record"
    rows = snapshot.all(f"SELECT {_COLUMNS} FROM {source} WHERE revision = ? ORDER BY position", (revision,))
    if not rows:
        message = f"there is no transaction with the revision {revision}"
        raise errors.NotFound(message, hint="events.list() shows those of each transaction", revision=revision)
    return [to_event(row) for row in rows]


def newest_by(snapshot: Snapshot, actor: str, below: int) -> int | None:
    """Return the revision of an actor's newest transaction below a revision; None if there is none."""
    row = snapshot.one(
        "SELECT revision FROM log INDEXED BY log_revision WHERE revision < ? AND actor = ?"
        " ORDER BY revision DESC, position DESC LIMIT 1",
        (below, actor),
    )
    return None if row is None else int(row[0])


def find_in(snapshot: Snapshot, revision: int, kind: str) -> Event | None:
    """The first event of this kind in a transaction."""
    source = "log INDEXED BY log_revision CROSS JOIN records ON key = record"
    row = snapshot.one(f"SELECT {_COLUMNS} FROM {source} WHERE revision = ? AND kind = ? LIMIT 1", (revision, kind))
    return None if row is None else to_event(row)


def previous(snapshot: Snapshot, kind: str, scope: str, id: str, version: int) -> Row | None:
    """The event of the record just before `version`."""
    return snapshot.one(
        f"SELECT {_COLUMNS} FROM events WHERE kind = ? AND scope = ? AND id = ? AND version < ?"
        " ORDER BY version DESC LIMIT 1",
        (kind, scope, id, version),
    )


def newest_at(snapshot: Snapshot, kind: str, scope: str, id: str, revision: int) -> Row | None:
    """The newest event of the record at or below a revision."""
    return snapshot.one(
        f"SELECT {_COLUMNS} FROM events WHERE kind = ? AND scope = ? AND id = ? AND revision <= ?"
        " ORDER BY version DESC LIMIT 1",
        (kind, scope, id, revision),
    )


def history_page(
    snapshot: Snapshot, kind: str, scope: str, id: str, before: int | None, limit: int
) -> tuple[list[Row], bool]:
    """Return a page of the record's events newest first, and whether there are older ones. Raises Compacted."""
    start = END_OF_REVISION if before is None else before
    rows, more = snapshot.page(_HISTORY, (kind, scope, id, start), limit)
    if not rows and before is not None and before > 1 and (compacted := cut_below(snapshot, kind, scope, id)):
        raise gone(compacted)
    return rows, more


def history(
    snapshot: Snapshot, kind: str, scope: str, id: str, before: int | None = None, at_once: int = MAX_PAGE
) -> Iterator[Row]:
    """Yield the record's events newest first, below version `before`, reading so many at once. Raises Compacted."""
    more = True
    while more:
        rows, more = history_page(snapshot, kind, scope, id, before, at_once)
        yield from rows
        before = rows[-1][8] if rows else before


def story_page(
    snapshot: Snapshot, kind: str, scope: str, id: str, after: int | None, limit: int
) -> tuple[list[Row], bool, int | None]:
    """Return a page of the record's events oldest first, above version `after`, and whether there are newer ones.

    The third is the mark, if the page begins with the oldest event and older ones were compacted. Raises Compacted if
    they should come after `after`.
    """
    rows, more = snapshot.page(_STORY, (kind, scope, id, after or 0), limit)
    compacted = cut_below(snapshot, kind, scope, id) if rows else None
    if compacted is None or previous(snapshot, kind, scope, id, rows[0][8]):
        return rows, more, None
    if after is not None and after + 1 < rows[0][8]:
        raise gone(compacted)
    return rows, more, compacted if after is None else None


def cut_below(snapshot: Snapshot, kind: str, scope: str, id: str) -> int | None:
    """Return the mark, if compaction has taken the record's oldest events; None if all are left.

    A cell of a run that was deleted and created again may begin above version 1: below the mark that looks the same.
    """
    compacted = compacted_to(snapshot)
    oldest = compacted and snapshot.one(_OLDEST, (kind, scope, id))
    return compacted if oldest and oldest[0] > 1 and oldest[1] <= compacted else None


def list_events(
    snapshot: Snapshot,
    kinds: Sequence[str] | None = None,
    id: str | tuple[str, str] | None = None,
    actor: str | None = None,
    since: datetime | None = None,
    after: int | str | None = None,
    limit: int = 100,
) -> Page[Event]:
    """Return events in order, from `after` (a cursor) or `since` (a time); by default from the oldest kept.

    `compacted` of the page says up to which revision older ones are gone. Raises Compacted for an `after` below that.
    """
    check_limit(limit, MAX_PAGE, "after an event")
    start = (compacted_to(snapshot), END_OF_REVISION) if after is None else locate(snapshot, after)
    if since is not None and not isinstance(since, datetime):
        raise errors.InvalidFilter(f"since must be a datetime, not {type(since).__name__}")
    wanted = make_filter(kinds, id, actor, None if since is None else as_microseconds(since))
    rows, more = read_after(snapshot, start, wanted, limit)
    page = Page(to_event(row) for row in rows)
    page.cursor = page[-1].cursor if more else None
    page.compacted = _missing(snapshot, wanted, start[0]) if after is None else None
    return page


def _missing(snapshot: Snapshot, wanted: Filter, compacted: int) -> int | None:
    """Return the mark, if the filter may select events at or below it."""
    if not compacted or (wanted.record and not cut_below(snapshot, *wanted.record)):
        return None
    newest = snapshot.one(  # it is the newest of its record, so compaction has left it
        "SELECT time FROM log WHERE revision <= ? ORDER BY revision DESC, position DESC LIMIT 1", (compacted,)
    )
    return compacted if newest is None or wanted.since is None or wanted.since <= newest[0] else None


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
    gone_now = tx.run(_COMPACT, (before,))
    if not gone_now:
        return 0  # nothing is missing, so every cursor goes on
    mark = before - 1
    if mark < compacted:  # below a restore: no revision that was left out becomes a place to go on from
        mark = (tx.one("SELECT max(revision) FROM log WHERE revision < ?", (before,)) or (0,))[0]
    old = compacted_to(tx)
    tx.run("UPDATE meta SET compacted = max(compacted, ?) WHERE id = 1", (mark,))
    tx.emit("log", "log", "compact", data=msgspec.msgpack.encode({"compacted": [old, max(old, mark)]}))
    return gone_now


def redact(tx: Tx, kind: str, scope: str, id: str) -> None:
    """Blank the events of a purged record: the events stay, their data goes."""
    tx.run(
        "UPDATE log SET data = NULL, redacted = 1 WHERE redacted = 0"
        " AND record = (SELECT key FROM records WHERE kind = ? AND scope = ? AND id = ?)",
        (kind, scope, id),
    )


# --- what `check` compares -------------------------------------------------------------------------------------------

_PAST = (
    "SELECT record, id, op, version, revision, time, data FROM log JOIN records ON key = record"
    " WHERE kind = ? AND scope = '' ORDER BY record, version"
)
_ENDS = ("delete", "forget", "purge")  # an event without data ends a record too
IMPORT = "import"  # by which a record gets times from elsewhere


class Change(msgspec.Struct, frozen=True):
    """The last change of a field."""

    old: Any
    new: Any
    time: int
    op: str


class Past:
    """What the log says of one record, from the last gap that compaction left, or since it was last made."""

    def __init__(self) -> None:
        self.op = ""
        self.version = self.revision = self.updated = 0
        self.created: int | None = None  # unknown after a gap, and of what was imported
        self.ended = self.whole = True
        self.fields: dict[str, Change] = {}

    def add(
        self, op: str, version: int, revision: int, time: int, changes: Mapping[str, tuple[Any, Any]] | None
    ) -> None:
        """Take in the next event; `changes` None: it has no data."""
        gap = version != self.version + 1
        if self.ended or gap:
            self.fields, self.whole = {}, not gap
            self.created = None if gap or op == IMPORT else time
        self.ended = changes is None or op in _ENDS
        self.op, self.version, self.revision, self.updated = op, version, revision, time
        self.fields |= {name: Change(old, new, time, op) for name, (old, new) in (changes or {}).items()}

    def expect(self, name: str, defaults: Mapping[str, Any]) -> tuple[Any] | None:
        """What a column must have, None if the log does not say."""
        match name:
            case "version" | "revision":
                return (getattr(self, name),)
            case "updated":
                return None if self.op == IMPORT else (self.updated,)
            case "created":
                return None if self.created is None else (self.created,)
        if name in self.fields:
            return (self.fields[name].new,)
        return (defaults[name],) if self.whole and name in defaults else None


def pairs(data: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The changes of an event that has them as field -> [old, new]; a note is none."""
    return {name: (each[0], each[1]) for name, each in data.items() if isinstance(each, list) and len(each) == 2}


def pasts(
    snapshot: Snapshot, kind: str, read: Callable[[dict[str, Any]], Mapping[str, tuple[Any, Any]]] = pairs
) -> dict[str, Past]:
    """What the log says of every record of a kind without scopes, by id."""
    found: dict[str, Past] = {}
    for _, id, op, version, revision, time, data in snapshot.all(_PAST, (kind,)):
        found.setdefault(id, Past()).add(op, version, revision, time, None if data is None else read(_decode(data)))
    return found


def compare(
    snapshot: Snapshot,
    kind: str,
    found: Mapping[str, Past],
    rows: str,
    columns: Sequence[str],
    defaults: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Report each column that differs from the log, and each record that only one of the two has.

    `rows` selects the id and the columns: version, revision, created, updated, or fields of the events.
    """
    there = set()
    for id, *values in snapshot.all(rows):
        there.add(id)
        past = found.get(id)
        if past is None or past.ended:
            yield f"{kind} {id} is in the store, but not in the log"
            continue
        for name, value in zip(columns, values, strict=True):
            expected = past.expect(name, defaults or {})
            if expected is not None and expected[0] != value:
                yield f"{kind} {id} has the {name} {value!r:.100}, but {expected[0]!r:.100} in the log"
    for id, past in found.items():
        if id not in there and not past.ended:
            yield f"{kind} {id} is in the log, but not in the store"
