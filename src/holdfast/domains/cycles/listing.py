"""The list of cycles: one line for each, also for one whose document is broken."""

from __future__ import annotations

from typing import get_args

from holdfast import errors
from holdfast.domains.cycles import keys
from holdfast.domains.cycles.keys import Key
from holdfast.domains.cycles.rows import look, vanished
from holdfast.kernel.names import check_limit
from holdfast.kernel.tx import Row, Snapshot
from holdfast.types.base import as_time
from holdfast.types.cycles import CycleInfo, ListedStatus

_END = ("\U0010ffff", 0)  # after every prefix


def list_cycles(
    snapshot: Snapshot,
    spec: str | None = None,
    instruction: str | None = None,
    status: ListedStatus | None = None,
    limit: int = 100,
    after: str = "",
) -> list[CycleInfo]:
    """Cycles by prefix and number, all or those of a spec or an instruction; `after` is the last key of a page."""
    check_limit(limit, 1000)
    if status is not None and status not in get_args(ListedStatus):
        raise errors.InvalidFilter(f"{status!r} is not a status", hint=f"one of {', '.join(get_args(ListedStatus))}")
    start = Key("", 0) if after == "" else keys.parse(after)
    prefix = None if spec is None and instruction is None else keys.prefix_of(spec, instruction)
    where, params = ("", ()) if prefix is None else (" AND prefix = ?", (prefix,))
    missing = vanished(snapshot, prefix)
    found: list[CycleInfo] = []
    while len(found) < limit:
        rows = snapshot.all(
            "SELECT prefix, number, sequence, revision, created, updated FROM cycles"
            f" WHERE (prefix, number) > (?, ?){where} ORDER BY prefix, number LIMIT ?",
            (start.prefix, start.number, *params, limit),
        )
        end = rows[-1][:2] if len(rows) == limit else _END
        rows = sorted([*rows, *(row for row in missing if (start.prefix, start.number) < row[:2] <= end)])
        infos = [_info(snapshot, row) for row in rows]
        found += [info for info in infos if status in (None, info.status)][: limit - len(found)]
        if end == _END:
            break
        start = Key(*end)
    return found


def _info(snapshot: Snapshot, row: Row) -> CycleInfo:
    key = Key(row[0], row[1])
    found = look(snapshot, key)
    broken = bool(found.problems) or found.document is None
    metadata = {} if broken or found.document is None else found.document["metadata"]
    return CycleInfo(
        key=str(key),
        number=key.number,
        sequence=row[2],
        status=metadata.get("status", "corrupt"),
        current_phase=metadata.get("current_phase"),
        created_at=as_time(row[4]),
        updated_at=as_time(row[5]),
        revision=row[3],
    )
