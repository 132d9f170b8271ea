"""What operations answer: plain, frozen structs with aware times.

They are the same in process, over HTTP (as JSON, times in RFC 3339) and on the command line.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def as_time(microseconds: int) -> datetime:
    """An aware datetime from microseconds UTC, exactly."""
    return _EPOCH + timedelta(0, microseconds // 1_000_000, microseconds % 1_000_000)


def as_microseconds(time: datetime) -> int:
    """The inverse of `as_time`; a time without a zone is taken as local."""
    return (time.astimezone(UTC) - _EPOCH) // _MICROSECOND


class Cell(msgspec.Struct, frozen=True):
    """A cell's value, and when and as what version it was written."""

    value: Any
    version: int
    revision: int
    updated_at: datetime


class CellInfo(msgspec.Struct, frozen=True):
    """What is known about a cell without reading its value; absent: `exists` is False, the rest None."""

    exists: bool
    version: int | None = None
    revision: int | None = None
    updated_at: datetime | None = None
    size: int | None = None
    expires_at: datetime | None = None


class CellVersion(msgspec.Struct, frozen=True):
    """One step in a cell's history; `value` is None and `deleted` True where it was deleted or expired."""

    version: int
    value: Any
    deleted: bool
    op: str
    revision: int
    time: datetime
    actor: str


class CellChange(msgspec.Struct, frozen=True):
    """What a watcher of a cell hears. `created`: there was no value before; `deleted`: there is none after."""

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


class Lease(msgspec.Struct, frozen=True):
    """A lease: it and everything bound to it ends at `expires_at` unless it is refreshed."""

    id: str
    holder: str
    ttl: float
    created_at: datetime
    expires_at: datetime


class Grant(msgspec.Struct, frozen=True):
    """A lock as held. `token` grows with every grant; `expires_at` None means until released."""

    name: str
    holder: str
    token: int
    acquired_at: datetime
    expires_at: datetime | None
    scope: str = ""


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
        """Where to resume to hear what follows this event."""
        return f"{self.revision}-{self.position}"


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


class Op(msgspec.Struct, frozen=True):
    """An operation as data, for `txn`: its name and its arguments, as in `Op("cells.set", {"run": ..., ...})`."""

    op: str
    args: dict[str, Any] = {}


class TxnResult(msgspec.Struct, frozen=True):
    """What `txn` did: whether the conditions held, and the answer of each operation that ran."""

    succeeded: bool
    results: list[Any]


class Report(msgspec.Struct, frozen=True):
    """What `ws.check()` found. `problems` is empty for a sound store."""

    problems: list[str]
    revision: int
    events: int
    records: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


# --- tasks -----------------------------------------------------------------------------------------------------------

TaskType = Literal["task", "feature", "bug", "epic", "chore"]
TaskStatus = Literal["open", "in_progress", "pending_merge", "blocked", "closed"]
LinkKind = Literal["depends_on", "discovered_from", "related"]

T = TypeVar("T")


class Page(list[T]):
    """A list that knows how to go on: `cursor` for the next page, None at the end.

    `total` is there on request, at most 10,000; `more` says that there are more than that.
    """

    cursor: str | None = None
    total: int | None = None
    more: bool = False


class Task(msgspec.Struct, frozen=True):
    """A task. `token` and `deadline` are those of the claim, while there is one that ends by itself."""

    id: str
    title: str
    body: str
    type: TaskType
    status: TaskStatus
    priority: int
    parent_id: str | None
    depth: int
    tags: tuple[str, ...]
    claimed_by: str | None
    claimed_at: datetime | None
    grimoire_hint: str | None
    grimoire: str | None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None
    version: int
    revision: int
    token: int | None = None
    deadline: datetime | None = None


class TaskInTree(Task, frozen=True, kw_only=True):
    """A task as part of a subtree: `relative_depth` is 0 for its root."""

    relative_depth: int


class HistoryEntry(msgspec.Struct, frozen=True):
    """One changed field of a task; a note alone has the field "note"."""

    task_id: str
    field: str
    old_value: Any
    new_value: Any
    changed_at: datetime
    changed_by: str
    note: str | None
    op: str
    version: int
    revision: int


class TaskLink(msgspec.Struct, frozen=True):
    """A link between two tasks: `id` depends on, was discovered from, or is related to `on`."""

    kind: LinkKind
    id: str
    on: str


class Hit(msgspec.Struct, frozen=True):
    """A task that a search found, the better the lower its rank; the words found are marked with ** in the snippet."""

    task: Task
    snippet: str
    rank: float


class Reason(msgspec.Struct, frozen=True):
    """Why a task is not ready: a stable code, words, and the tasks that are in the way."""

    code: Literal["status", "claimed", "deleted", "dependencies", "children"]
    text: str
    ids: tuple[str, ...] = ()


class Readiness(msgspec.Struct, frozen=True):
    """Whether a task can be claimed by `claim_next`, and if not, all the reasons."""

    id: str
    ready: bool
    reasons: tuple[Reason, ...]


class BulkItem(msgspec.Struct, frozen=True):
    """What became of one task of a bulk call."""

    id: str
    success: bool
    error: str | None = None
    code: str | None = None


class BulkResult(msgspec.Struct, frozen=True):
    """What became of each task, in the order given."""

    results: list[BulkItem]


class Retired(msgspec.Struct, frozen=True):
    """How many tasks retention has soft-deleted and purged, or would."""

    deleted: int
    purged: int


class TemplateNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task of a template: its fields, and the tasks below it. Others depend on it by its `key`."""

    title: str
    body: str = ""
    type: TaskType = "task"
    priority: int = 2
    tags: tuple[str, ...] = ()
    grimoire_hint: str | None = None
    key: str | None = None
    depends_on: tuple[str, ...] = ()
    children: tuple[TemplateNode, ...] = ()


class TaskTemplate(msgspec.Struct, frozen=True):
    """A named tree of tasks; `parameters` has the default of each, None where a value must be given."""

    name: str
    tree: TemplateNode
    parameters: dict[str, str | None]


# --- documents: the configuration and the routing rules ---------------------------------------------------------------


class Problem(msgspec.Struct, frozen=True):
    """Something wrong in a file. An error refuses the part it is in; a warning changes nothing."""

    file: str
    line: int
    severity: Literal["error", "warning"]
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}: {self.message}"


class Verdict(msgspec.Struct, frozen=True):
    """What one matcher said: matched, or the first reason why not."""

    name: str
    matched: bool
    reason: str


class RouteReport(msgspec.Struct, frozen=True):
    """How a task is routed and why: every matcher in order, and what they looked at."""

    selected_grimoire: str
    matched_by: str
    reason: str
    require_review: bool
    needs: tuple[str, ...]
    evaluation: tuple[Verdict, ...]
    task_properties: dict[str, Any]


class Loaded(msgspec.Struct, frozen=True):
    """What came of loading a file: whether its rules are in force now, how many there are, and what was wrong."""

    file: str
    stored: bool
    matchers: int
    problems: tuple[Problem, ...]


# --- imports ---------------------------------------------------------------------------------------------------------


class ImportProblem(msgspec.Struct, frozen=True):
    """Something about one line of an import. An error keeps its record out; a warning only tells."""

    line: int
    id: str | None
    severity: Literal["error", "warning"]
    message: str

    def __str__(self) -> str:
        return f"line {self.line}{f' ({self.id})' if self.id else ''}: {self.severity}: {self.message}"


class ImportReport(msgspec.Struct, frozen=True):
    """What became of every record of an import, or would: ids in the order of the file, and what there is to say.

    `conflicts` were changed on both sides and left alone; `skipped` were not imported at all; `warnings` are about
    records that were.
    """

    created: list[str]
    updated: list[str]
    unchanged: list[str]
    conflicts: list[ImportProblem]
    skipped: list[ImportProblem]
    warnings: list[ImportProblem]
    dry_run: bool = False
