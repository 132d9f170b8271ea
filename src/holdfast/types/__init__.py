"""What operations return: plain, frozen structs with aware times. This module has what all domains share.

The structs are the same in process, over HTTP (as JSON, times in RFC 3339) and on the command line. Each other module
of the package is loaded with the domain that needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeVar

import msgspec

from holdfast.errors import Corrupt, Invalid, InvalidFilter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CURSOR = r"([0-9]{1,18})(?:-([0-9]{1,18}))?"
Position = tuple[int, int]  # in the event log: revision, and place in it
END_OF_REVISION = 2**62


def as_time(microseconds: int) -> datetime:
    """An aware datetime from microseconds UTC, exactly. Raises Corrupt for any other value: it was stored as a time."""
    try:
        return _EPOCH + _MICROSECOND * microseconds
    except (TypeError, OverflowError) as error:
        raise Corrupt(f"the store is damaged: {microseconds!r:.100} is stored where a time belongs") from error


def as_microseconds(time: datetime) -> int:
    """The inverse of `as_time`; a time without a zone is read as local time. Raises Invalid beyond the calendar."""
    try:
        return (time.astimezone(UTC) - _EPOCH) // _MICROSECOND
    except (OverflowError, ValueError) as error:  # its zone moves it out of the years that a datetime has
        hint = "a time must lie between the years 1 and 9999 in UTC"
        raise Invalid(f"{time.isoformat()} is out of range", hint=hint) from error


class DerivedActor(str):
    """An actor that nobody chose. It may read and write, but not hold: two such names may be two callers."""

    __slots__ = ()


class Lease(msgspec.Struct, frozen=True):
    """A lease: it ends at `expires_at` with everything bound to it, unless it is refreshed."""

    id: str
    holder: str
    ttl: float
    created_at: datetime
    expires_at: datetime


class Grant(msgspec.Struct, frozen=True):
    """A lock with its holder. `token` grows with every grant; `expires_at` None means until released."""

    name: str
    holder: str
    token: int
    acquired_at: datetime
    expires_at: datetime | None
    scope: str = ""


# What an event can be about: a filter that names anything else is a mistake.
EVENT_KINDS: Final = (
    *("task", "cell", "run", "lock", "cell-lock", "lease", "path", "message", "agent"),
    *("template", "route", "config", "clock", "log", "stash", "stash-lock", "trail", "link"),
    *("cycle", "cycle-conflict", "queue", "channel", "sharing", "thread", "interrupt", "item", "undo"),
)


class Event(msgspec.Struct, frozen=True):
    """One entry of the event log.

    `data` holds what changed: field -> [old, new]; for a cell {"value": new}, nothing for a delete.
    """

    revision: int
    position: int
    time: datetime
    actor: str
    kind: str
    scope: str
    id: str
    op: str
    version: int
    data: dict[str, Any]
    redacted: bool = False

    @property
    def cursor(self) -> str:
        """The cursor that resumes after this event."""
        return f"{self.revision}-{self.position}"


def parse_cursor(cursor: int | str) -> Position:
    """Return the position of a cursor; a bare revision means its end."""
    if isinstance(cursor, int) and not isinstance(cursor, bool) and 0 <= cursor <= END_OF_REVISION:
        return cursor, END_OF_REVISION
    if isinstance(cursor, str) and (match := re.fullmatch(_CURSOR, cursor)):
        return int(match[1]), END_OF_REVISION if match[2] is None else int(match[2])
    raise InvalidFilter(
        f"{cursor!r} is not a cursor", hint="a cursor is a revision such as 42, or an event's cursor such as '42-0'"
    )


def to_cursor(position: Position) -> str:
    """A position as a cursor."""
    revision, place = position
    return str(revision) if place == END_OF_REVISION else f"{revision}-{place}"


class Progress(msgspec.Struct, frozen=True):
    """How far long-running work is; `total` is None where it is not known beforehand."""

    work: str
    done: int
    total: int | None = None


class Refusal(msgspec.Struct, frozen=True):
    """How often an actor's calls failed with this error code, and when last."""

    actor: str
    code: str
    count: int
    last: datetime


class NodeState(msgspec.Struct, frozen=True):
    """A node of a replicated workspace: how far it has followed its log, and what it did since it was opened."""

    node: str
    engine: str
    position: int  # in the log, of the last entry that is applied here
    end: int | None  # of the log; None if it was not asked, or cannot be reached
    away: str  # why it cannot be reached
    doubts: list[str]  # what may lose an acknowledged commit, in words for an operator
    behind: float  # seconds since this node last had everything that the log showed
    appends: int  # groups of this node in the log
    moved: int  # groups that ran again, because another node was first
    patience: float  # seconds that calls waited for the log

    @property
    def lag(self) -> int | None:
        """Positions from here to the end of the log; None if the end is not known."""
        return None if self.end is None else max(0, self.end - self.position)


class Report(msgspec.Struct, frozen=True):
    """The result of `ws.check()`. `problems` is empty for a sound store."""

    problems: list[str]
    revision: int
    events: int
    records: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def counted(count: int, plural: str) -> str:
    """A number of things: "1 entry", "2 entries"."""
    if count != 1:
        return f"{count} {plural}"
    ending, singular = next(each for each in (("ies", "y"), ("shes", "sh"), ("s", "")) if plural.endswith(each[0]))
    return f"1 {plural.removesuffix(ending)}{singular}"


class ImportProblem(msgspec.Struct, frozen=True):
    """What an import has to say about one record. An error keeps the record out; a warning does not.

    `line` is 0 in an import of entries by key, where `id` is the key; `file` is named where an import has several.
    `differences` of a conflict, by path: the value here and the value in the import.
    """

    line: int
    id: str | None
    severity: Literal["error", "warning"]
    message: str
    file: str = ""
    differences: dict[str, str] = {}

    def __str__(self) -> str:
        place = f"{self.file} line {self.line}".lstrip() if self.line else self.file
        name = f" ({self.id})" if place and self.id else self.id or ""
        return f"{place}{name}: {self.severity}: {self.message}"


class Reverted(msgspec.Struct, frozen=True):
    """What an undo did to one record, or would do: field -> [old, new], and the new version.

    `changes` is empty once those of the records before are 4 MiB.
    """

    kind: str
    id: str
    version: int
    changes: dict[str, Any]
    scope: str = ""

    def __str__(self) -> str:
        name = f"{self.scope}/{self.id}" if self.scope else self.id
        parts = [_told(field, old, new) for field, (old, new) in self.changes.items()]
        return f"{self.kind} {name}: {', '.join(parts) or 'more than is shown'}"


def _told(field: str, old: Any, new: Any) -> str:
    if field == "deleted":
        return "deleted" if new else "brought back"
    return f"{field.replace('_', ' ')} {_brief(old)} -> {_brief(new)}"


def _brief(value: Any) -> str:
    """A value in a few words: texts as they are, lists with commas, anything else as JSON."""
    if isinstance(value, list | tuple):
        value = ", ".join(str(each[-1]) if isinstance(each, list | tuple) else str(each) for each in value)
    elif value is not None and not isinstance(value, str):
        value = msgspec.json.encode(value).decode()
    text = value or "none"
    return text if len(text) <= 60 else f"{text[:57]}..."


class Undone(msgspec.Struct, frozen=True):
    """What an undo of the transaction `undone` took back, or would take back.

    `revision` is that of the undo, None for a dry run. `left` are the events that `partial` left as they are.
    """

    undone: int
    revision: int | None
    records: list[Reverted]
    left: list[str] = []
    warnings: list[str] = []
    dry_run: bool = False


class ImportReport(msgspec.Struct, frozen=True):
    """What an import did with every record, or would do: ids by table, in the order of the file.

    `conflicts` were changed here and in the import, or deleted here, and were left alone; `skipped` were not imported
    at all; `warnings` are about records that were.
    """

    created: dict[str, list[str]]
    updated: dict[str, list[str]]
    unchanged: dict[str, list[str]]
    conflicts: list[ImportProblem]
    skipped: list[ImportProblem]
    warnings: list[ImportProblem]
    dry_run: bool = False


class ImportPart(msgspec.Struct, frozen=True):
    """What a part of a larger import knows of the rest: the numbers of its lines in their files, by table, and the ids
    that other parts bring, which a dry run takes for present.
    """

    numbers: dict[str, list[int]] = {}
    expect: list[str] = []


T = TypeVar("T")


class Page(list[T]):
    """A list with the `cursor` of the next page, None on the last; a page may end before its `limit`, by its bytes.

    The cursor is passed as `cursor`, `after`, `before` or `offset`, whichever the operation takes; versions and
    offsets are numbers: `before=int(page.cursor)`.

    `total` is counted on request, up to 10,000; `more` is True if there are more than that.

    `compacted`: the page reaches a past that was compacted, up to this revision. It has what is left; if it lists the
    newest first, its cursor leads to Compacted.
    """

    cursor: str | None = None
    compacted: int | None = None
    total: int | None = None
    more: bool = False

    @classmethod
    def of(cls, items: Iterable[T], more: bool, key: Callable[[T], object]) -> Page[T]:
        """A page of these items; if there are more, the key of the last one is its cursor."""
        page = cls(items)
        page.cursor = str(key(page[-1])) if more else None
        return page


class Condition(msgspec.Struct, frozen=True, tag_field="if"):
    """A condition of `txn` on one record. `key` is its id, or its path such as (run, cell)."""

    kind: str
    key: str | tuple[str, ...]


class Exists(Condition, frozen=True, tag="exists"):
    """The record exists."""


class NotExists(Condition, frozen=True, tag="not_exists"):
    """The record does not exist."""


class VersionEquals(Condition, frozen=True, tag="version_equals"):
    """The record exists at exactly this version; for a lock, its token."""

    version: int


class ValueEquals(Condition, frozen=True, tag="value_equals"):
    """The record exists with exactly this value; for a lock, its holder. 1, 1.0 and True are different."""

    value: Any


AnyCondition = Exists | NotExists | VersionEquals | ValueEquals
# Phrases of hints, as of `holdfast.errors`.
CONDITION_HINT: Final = (
    "a condition is Exists(kind, key), NotExists(kind, key), VersionEquals(kind, key, version) or"
    ' ValueEquals(kind, key, value); such as Exists("cell", (run, cell))'
)
OPERATION_HINT: Final = 'use Op("cells.set", {"run": ..., "cell": ..., "value": ...})'


class Op(msgspec.Struct, frozen=True):
    """An operation as data, for `txn`: its name and its arguments, as in `Op("cells.set", {"run": ..., ...})`."""

    op: str
    args: dict[str, Any] = {}


class TxnResult(msgspec.Struct, frozen=True):
    """The result of `txn`: whether the conditions held, and the result of each operation that ran."""

    succeeded: bool
    results: list[Any]


class Cell(msgspec.Struct, frozen=True):
    """A cell's value, its version and the time of its last write."""

    value: Any
    version: int
    revision: int
    updated_at: datetime


class CellInfo(msgspec.Struct, frozen=True):
    """A cell without its value. If it does not exist, `exists` is False and the rest None."""

    exists: bool
    version: int | None = None
    revision: int | None = None
    updated_at: datetime | None = None
    size: int | None = None
    expires_at: datetime | None = None


class CellVersion(msgspec.Struct, frozen=True):
    """One version in a cell's history; where it was deleted or expired, `value` is None and `deleted` True."""

    version: int
    value: Any
    deleted: bool
    op: str
    revision: int
    time: datetime
    actor: str


class CellChange(msgspec.Struct, frozen=True):
    """A change that a watcher of a cell receives. `created`: no value before; `deleted`: no value after."""

    run: str
    cell: str
    old: Any
    new: Any
    created: bool
    deleted: bool
    op: str
    version: int
    revision: int
    time: datetime
    actor: str
