"""Path locks as they are stored: rows of the one table of locks, with their patterns beside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from holdfast import errors
from holdfast.domains.holding import Target
from holdfast.domains.paths.patterns import covers, meet
from holdfast.kernel.tx import Row, Snapshot
from holdfast.types.base import as_time
from holdfast.types.paths import PathLock

PATH: Final = "path"
# It ends with its own lease or with the claim on its task, whichever comes first.
_COLUMNS = (
    "k.name, k.holder, k.token, k.acquired, k.task, k.detail,"
    " coalesce(min(l.deadline, c.deadline), l.deadline, c.deadline), (SELECT stamp FROM meta)"
)
_SOURCE = (
    "locks k LEFT JOIN leases l ON l.id = k.lease LEFT JOIN leases c ON c.id = 'task:' || k.task"
    f" WHERE k.kind = '{PATH}' AND k.scope = ''"
)


class Detail(msgspec.Struct, frozen=True, array_like=True):
    """What a path lock has besides what all locks have; also of one that is waited for."""

    patterns: tuple[str, ...]
    shared: bool = False
    task: str | None = None
    reason: str | None = None


encode_detail = msgspec.msgpack.Encoder().encode
decode_detail = lru_cache(maxsize=8192)(msgspec.msgpack.Decoder(Detail).decode)


def target_of(id: str) -> Target:
    """The lock of an id."""
    return Target(PATH, "", id)


def select(snapshot: Snapshot, where: str = "", params: Sequence[object] = (), tail: str = "") -> list[PathLock]:
    """Path locks that have not ended."""
    return [to_lock(row) for row in _live(snapshot, where, params, tail)]


def _live(snapshot: Snapshot, where: str = "", params: Sequence[object] = (), tail: str = "") -> list[Row]:
    rows = snapshot.all(f"SELECT {_COLUMNS} FROM {_SOURCE}{where}{tail}", params)
    return [row for row in rows if row[6] is None or not snapshot.is_past(row[6], row[7])]


def covering(snapshot: Snapshot, path: str) -> Iterator[tuple[PathLock, str]]:
    """Path locks that cover a path, oldest first, and the pattern by which each does."""
    for row in _live(snapshot, tail=" ORDER BY k.token"):
        for pattern in decode_detail(row[5]).patterns:
            if covers(pattern, path):
                yield to_lock(row), pattern
                break


def to_lock(row: Row) -> PathLock:
    """The public form."""
    id, holder, token, acquired, task, detail, deadline, _ = row
    what = decode_detail(detail)
    until = None if deadline is None else as_time(deadline)
    return PathLock(id, what.patterns, holder, token, what.shared, task, what.reason, as_time(acquired), until)


def find(snapshot: Snapshot, id: str) -> PathLock | None:
    """A lock by its id, or None."""
    found = select(snapshot, " AND k.name = ?", (id,))
    return found[0] if found else None


def clash(lock: PathLock, wanted: Detail, holder: str) -> tuple[str, str] | None:
    """The patterns by which a lock stands in the way of another that is wanted; None if it does not."""
    if lock.holder == holder or (lock.shared and wanted.shared):
        return None
    return meeting(lock.patterns, wanted.patterns)


def meeting(there: Iterable[str], wanted: Iterable[str]) -> tuple[str, str] | None:
    """The first two patterns that meet."""
    return next(((mine, theirs) for mine in wanted for theirs in there if meet(mine, theirs)), None)


def held(lock: PathLock, mine: str, theirs: str, waits: bool = False) -> errors.Held:
    """The refusal: which pattern meets which, who holds it or waits for it, until when."""
    when = "until it is released" if lock.expires_at is None else f"until {lock.expires_at.isoformat()}"
    how = "waited for, in line before, by" if waits else "shared by" if lock.shared else "locked by"
    why = f" for {lock.reason}" if lock.reason else ""
    same = mine if mine == theirs else f"{mine} meets {theirs}, which"
    return errors.Held(
        f"{same} is {how} {lock.holder} {when}{why}",
        hint="work on something else, ask the holder by mail, or wait: paths.lock(..., wait=seconds)",
        name=theirs,
        holder=lock.holder,
        until=lock.expires_at,
        lock=lock.id,
        pattern=mine,
        shared=lock.shared,
        task=lock.task,
    )
