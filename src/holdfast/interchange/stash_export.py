"""Stashes, their history, trails, links and crumbs as JSON lines: a file for each table.

A line has its keys in one order, and a table its lines: by id, the history by stash and version. Guarantee: the same
records make the same bytes, and what is imported elsewhere exports the same again. What is true in this workspace only
(revisions, fencing tokens) is left out. Also called by the import, to compare.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from holdfast import errors
from holdfast.domains.link_types import LINK
from holdfast.domains.stashes import MAX_EXPORT
from holdfast.domains.stashes.rows import ABANDONED, COLUMNS, SOURCE, STASH, TRAIL, Stored, taken, to_entry, to_stash
from holdfast.interchange import task_export
from holdfast.interchange.jsonl import Time
from holdfast.kernel.events import compacted_to
from holdfast.kernel.tx import Row, Snapshot
from holdfast.kernel.validate import check_id, check_limit
from holdfast.types import Page, as_time
from holdfast.types.stashes import LinkType, Stash, StashEntry, StashOperation, StashType, TrailState, TransferTable
from holdfast.wire import escape_controls, to_wire

TABLES: Final[tuple[TransferTable, ...]] = get_args(TransferTable)
TRAIL_COLUMNS: Final = "id, name, state, version, created, updated, ended, before"
STASH_COLUMNS: Final = f"{COLUMNS}, s.deleted"
LINK_COLUMNS: Final = "id, kind, source, target, created"
_encode = msgspec.json.Encoder().encode

Version = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class TrailLine(msgspec.Struct, frozen=True, kw_only=True):
    """A trail. `before` is its state before it was abandoned, `tasks` the tasks that were deleted with it."""

    trail_id: str
    name: str | None = None
    state: TrailState
    version: Version = 1
    created_at: Time
    updated_at: Time | None = None
    completed_at: Time | None = None
    before: TrailState | None = None
    tasks: tuple[str, ...] = ()


class LinkLine(msgspec.Struct, frozen=True, kw_only=True):
    """A link."""

    link_id: str
    link_type: LinkType
    from_id: str
    to_id: str
    created_at: Time


class StashLine(msgspec.Struct, frozen=True, kw_only=True):
    """A stash; its link tells its scope. The value is in the form that values have in JSON."""

    stash_id: str
    name: str
    stash_type: StashType
    value: Any = None
    version: Version
    created_at: Time
    updated_at: Time | None = None
    held_until: Time | None = None
    expires_at: Time | None = None
    deleted_at: Time | None = None


class TombstoneLine(msgspec.Struct, frozen=True, kw_only=True):
    """A stash, trail or link that is gone; `version` is that of its deletion."""

    id: str
    table: Literal["stashes", "trails", "links"]
    version: Version


class EntryLine(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a stash's history."""

    history_id: str
    stash_id: str
    version: Version
    value: Any = None
    operation: StashOperation
    changed_by: str | None = None
    created_at: Time


def export(snapshot: Snapshot, table: TransferTable, after: str | None, limit: int) -> Page[str]:
    """`stashes.export`."""
    check_limit(limit, MAX_EXPORT, "after")
    if table not in TABLES:
        raise errors.TableNotFound(f"{table!r} is not a table", hint=f"tables: {', '.join(TABLES)}")
    if after is not None:
        check_id(after, "after")
    if table == "crumbs":
        return task_export.export_by_id(snapshot, after or "", limit)
    if table == "tombstones":
        found = _tombstones(snapshot, after or "", limit + 1)
        page = Page(map(_text, found[:limit]))
        page.cursor = found[limit - 1].id if len(found) > limit else None
        return page
    if table == "stash_history":
        rows, more = _entries(snapshot, after or "", limit)
        page = Page(_text(entry_line(to_entry(row))) for row in rows)
        page.cursor = f"{rows[-1][0]}/{rows[-1][1]}" if more else None
        first = {row[0]: row[1] for row in reversed(rows) if row[0] != (after or "").partition("/")[0]}
        if any(version > 1 for version in first.values()):
            page.compacted = compacted_to(snapshot) or None
        return page
    columns, source, id, line_of = _SOURCES[table]
    rows, more = snapshot.page(
        f"SELECT {columns} FROM {source} WHERE {id} > ? ORDER BY {id} LIMIT ?", (after or "",), limit
    )
    page = Page(_text(line_of(snapshot, row)) for row in rows)
    page.cursor = rows[-1][0] if more else None
    return page


def _text(line: msgspec.Struct) -> str:
    return escape_controls(_encode(line).decode())


def _entries(snapshot: Snapshot, after: str, limit: int) -> tuple[list[Row], bool]:
    stash, _, version = after.partition("/")
    if after and not (version.isdecimal() and len(version) < 19):
        raise errors.InvalidID(f"after is STASH_ID/VERSION of the last line of the previous page, not {after!r}")
    return snapshot.page(
        "SELECT e.id, e.version, e.op, e.time, e.data FROM events e JOIN stashes s ON s.id = e.id"
        " WHERE e.kind = ? AND e.scope = '' AND (e.id, e.version) > (?, ?) AND e.data IS NOT NULL"
        " ORDER BY e.id, e.version LIMIT ?",
        (STASH, stash, int(version or 0)),
        limit,
    )


GONE: Final[dict[Literal["stashes", "trails", "links"], str]] = {"links": LINK, "stashes": STASH, "trails": TRAIL}


def _tombstones(snapshot: Snapshot, after: str, limit: int) -> list[TombstoneLine]:
    """What the log has and the tables have not, by id."""
    found = [
        TombstoneLine(id=id, table=table, version=1 if table == "links" else version)  # a link never changes
        for table, kind in GONE.items()
        for id, version in snapshot.all(
            "SELECT id, (SELECT max(version) FROM log WHERE record = r.key) FROM records r"
            f" WHERE kind = ? AND scope = '' AND id > ? AND NOT EXISTS (SELECT 1 FROM {table} t WHERE t.id = r.id)"
            " ORDER BY id LIMIT ?",
            (kind, after, limit),
        )
    ]
    return sorted(found, key=lambda line: line.id)[:limit]


# --- from rows to lines ----------------------------------------------------------------------------------------------


def trail_line(snapshot: Snapshot, row: Row) -> TrailLine:
    """The line of a row of TRAIL_COLUMNS."""
    id, name, state, version, created, updated, ended, before = row
    return TrailLine(
        trail_id=id,
        name=name,
        state=state,
        version=version,
        created_at=as_time(created),
        updated_at=as_time(updated),
        completed_at=_time(ended),
        before=before or None,
        tasks=tuple(taken(snapshot, id, version)) if state == ABANDONED else (),
    )


def link_line(row: Row) -> LinkLine:
    """The line of a row of LINK_COLUMNS."""
    id, kind, source, target, created = row
    return LinkLine(link_id=id, link_type=kind, from_id=source, to_id=target, created_at=as_time(created))


def stash_line(row: Row) -> StashLine:
    """The line of a row of STASH_COLUMNS."""
    stash = to_stash(Stored(*row[:-1]))
    return StashLine(
        stash_id=stash.id,
        value=to_wire(stash.value),
        deleted_at=_time(row[-1]),
        **{name: getattr(stash, name) for name in _OF_STASH},
    )


def entry_line(entry: StashEntry) -> EntryLine:
    """The line of an entry of a stash's history."""
    same = {name: getattr(entry, name) for name in _OF_ENTRY}
    return EntryLine(history_id=entry.id, value=to_wire(entry.value), **same)


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else as_time(microseconds)


_OF_STASH: Final = tuple({*StashLine.__struct_fields__} & {*Stash.__struct_fields__} - {"value"})
_OF_ENTRY: Final = tuple({*EntryLine.__struct_fields__} & {*StashEntry.__struct_fields__} - {"value"})
# Of each table its columns, source, id column, and the line of a row.
_SOURCES: Final[dict[str, tuple[str, str, str, Callable[[Snapshot, Row], Any]]]] = {
    "trails": (TRAIL_COLUMNS, "trails", "id", trail_line),
    "links": (LINK_COLUMNS, "links", "id", lambda _, row: link_line(row)),
    "stashes": (STASH_COLUMNS, SOURCE, "s.id", lambda _, row: stash_line(row)),
}
