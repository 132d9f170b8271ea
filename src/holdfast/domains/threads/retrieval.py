"""What can be read of threads: a checkpoint with its values and writes, and lists, newest first.

Guarantee: the values and writes of a checkpoint are read by one statement, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.threads.rows import ROW, ThreadRow, check_names, check_text, require
from holdfast.kernel.tx import PAGE_BYTES, Row, Snapshot
from holdfast.kernel.validate import check_flag, check_limit, check_name, page_bounds
from holdfast.kernel.values import check, decode
from holdfast.types import Page, as_time
from holdfast.types.threads import Checkpoint, Thread, Write

MOST: Final = 1000  # checkpoints or threads of one page
BATCH: Final = 256  # checkpoints that are read at once to find those with some metadata
COLUMNS: Final = "t.id, c.ns, c.id, c.parent, c.run, c.created, c.metadata, c.channels"
# The values of a checkpoint, and what tasks wrote after it.
_VALUES: Final = (
    "SELECT NULL, NULL, v.channel, v.value, NULL FROM json_each(?3) j CROSS JOIN channel_values v"
    " ON v.thread = ?1 AND v.ns = ?2 AND v.channel = j.key AND v.version = j.value"
)
_WRITES: Final = (
    "SELECT task, number, channel, value, path FROM checkpoint_writes"
    " WHERE thread = ?1 AND ns = ?2 AND checkpoint = ?{}"
)
_BOTH: Final = f"{_VALUES} UNION ALL {_WRITES.format(4)}"
_ALONE: Final = _WRITES.format(3)
_BELOW: Final = " AND c.id <= ? AND (c.id, c.thread, c.ns) < (?, ?, ?)"
_json = msgspec.json.Encoder().encode
_channels = msgspec.json.Decoder(dict[str, str]).decode


def get_thread(snapshot: Snapshot, id: str) -> Thread:
    """Return a thread. Raises ThreadNotFound."""
    return require(snapshot, id).shown()


def find_checkpoint(snapshot: Snapshot, id: str, checkpoint: str | None = None, ns: str = "") -> Checkpoint | None:
    """Return a checkpoint with its values and writes, by default the newest of a thread; None if there is none."""
    check_names(id, checkpoint or "-", ns, None)
    one, params = ("", ()) if checkpoint is None else (" AND c.id = ?", (checkpoint,))
    row = snapshot.one(
        f"SELECT t.record, {COLUMNS}, c.value FROM threads t JOIN checkpoints c ON c.thread = t.record"
        f" WHERE t.id = ? AND c.ns = ?{one} ORDER BY c.id DESC LIMIT 1",
        (id, ns, *params),
    )
    return None if row is None else _whole(row[1:], _parts(snapshot, row[0], row[1:]))


def get_checkpoint(snapshot: Snapshot, id: str, checkpoint: str | None = None, ns: str = "") -> Checkpoint:
    """Return a checkpoint with its values and writes, by default the newest of a thread. Raises NotFound."""
    found = find_checkpoint(snapshot, id, checkpoint, ns)
    if found is None:
        require(snapshot, id)
        which = f"checkpoint {checkpoint!r}" if checkpoint else "checkpoint"
        raise errors.NotFound(
            f"the thread {id!r} has no {which} in the namespace {ns!r}", hint="threads.history(id) lists them"
        )
    return found


def list_threads(snapshot: Snapshot, prefix: str = "", limit: int = 100, after: str = "") -> Page[Thread]:
    """List threads by id; `after` is the last one of the previous page."""
    check_limit(limit, MOST, "after")
    bounds, params = page_bounds("id", prefix, after)
    rows, more = snapshot.page(f"SELECT {ROW} FROM threads WHERE 1{bounds} ORDER BY id LIMIT ?", params, limit)
    return Page.of((ThreadRow(*row).shown() for row in rows), more, lambda each: each.id)


def list_checkpoints(
    snapshot: Snapshot,
    id: str | None = None,
    ns: str | None = None,
    where: dict[str, Any] | None = None,
    older_than: str | None = None,
    values: bool = False,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[Checkpoint]:
    """List checkpoints, newest first: of a thread or of all, of a namespace or of all.

    `where` has metadata that they must have, `older_than` is the id of a checkpoint; `values` also returns their values
    and writes.
    """
    check_limit(limit, MOST, "cursor")
    check_flag(values=values)
    if where is not None and type(where) is not dict:
        raise errors.InvalidFilter(f"where must be an object, not {type(where).__name__}")
    check(where, text=True)
    place = None if cursor is None else _place(cursor)
    selected, params = _selected(id, ns, older_than)
    found: list[Checkpoint] = []
    left, more = PAGE_BYTES, True
    while more:
        bound, start = ("", ()) if place is None else (_BELOW, (place[0], *place))
        sql = f"{selected}{bound} ORDER BY c.id DESC, c.thread DESC, c.ns DESC LIMIT ?"
        rows, more = snapshot.page(sql, (*params, *start), BATCH if where else limit + 1)
        for row in rows:
            record, *columns = row
            if not where or _has(columns[6], where):
                if len(found) == limit:
                    return _page(found, place)
                parts = _parts(snapshot, record, columns) if values else []
                left -= len(columns[-1]) + sum([len(part[3]) for part in parts])
                if found and left < 0:
                    return _page(found, place)
                found.append(_whole(columns, parts) if values else _light(columns))
            place = columns[2], record, columns[1]
    return Page(found)


def _selected(id: str | None, ns: str | None, older_than: str | None) -> tuple[str, list[str]]:
    """The statement without its order and place, and its parameters."""
    parts, params = ["1"], []
    for column, text, what in (("t.id =", id, "id"), ("c.id <", older_than, "older_than")):
        if text is not None:
            check_name(text, what)
            parts.append(f"{column} ?")
            params.append(text)
    if ns is not None:
        check_text(ns, "ns", empty=True)
        parts.append("c.ns = ?")
        params.append(ns)
    source = "checkpoints c JOIN threads t ON t.record = c.thread"
    return f"SELECT c.thread, {COLUMNS}, c.value FROM {source} WHERE {' AND '.join(parts)}", params


def _place(cursor: str) -> tuple[str, int, str]:
    try:
        return msgspec.json.decode(cursor, type=tuple[str, int, str])
    except (msgspec.DecodeError, TypeError) as error:
        raise errors.InvalidFilter(f"{cursor!r:.80} is not a cursor", hint="send the cursor of a page") from error


def _page(found: list[Checkpoint], place: tuple[str, int, str] | None) -> Page[Checkpoint]:
    page = Page(found)
    page.cursor = _json(place).decode()
    return page


def _has(metadata: bytes, where: dict[str, Any]) -> bool:
    known: Any = decode(metadata)
    return all(key in known and known[key] == value for key, value in where.items())


def _light(row: Sequence[Any]) -> Checkpoint:
    """A checkpoint without its values, from COLUMNS."""
    thread, ns, id, parent, run, created, metadata, channels = row[:8]
    known: Any = decode(metadata)
    return Checkpoint(thread, ns, id, parent, run, as_time(created), known, _channels(channels))


def _parts(snapshot: Snapshot, record: int, row: Sequence[Any]) -> list[Row]:
    """The rows of its values and writes."""
    _, ns, id, *_, channels, _ = row
    if channels == "{}":
        return snapshot.all(_ALONE, (record, ns, id))
    return snapshot.all(_BOTH, (record, ns, channels, id))


def _whole(row: Sequence[Any], parts: Sequence[Row]) -> Checkpoint:
    """A checkpoint with its values and writes."""
    values: dict[str, Any] = {}
    writes: list[Write] = []
    for task, number, channel, data, path in parts:
        if task is None:
            values[channel] = decode(data)
        else:
            writes.append(Write(task, number, channel, decode(data), path))
    if len(writes) > 1:
        writes.sort(key=lambda each: (each.path, each.task, each.number))
    thread, ns, id, parent, run, created, metadata, channels, value = row
    known: Any = decode(metadata)
    when, versions = as_time(created), _channels(channels)
    return Checkpoint(thread, ns, id, parent, run, when, known, versions, decode(value), values, writes)
