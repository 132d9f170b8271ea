"""Tasks, their history and handover, and the routes that rules choose for them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.types import ImportProblem
from holdfast.types.agents import Message, PathLock

TaskType = Literal["task", "feature", "bug", "epic", "chore"]
TaskStatus = Literal["open", "in_progress", "pending_merge", "blocked", "closed"]
LinkKind = Literal["depends_on", "discovered_from", "related"]
ImportFormat = Literal["holdfast", "beads", "github", "linear"]
ExportFormat = Literal["holdfast", "beads"]
Side = Literal["ours", "theirs"]
RefKind = Literal["branch", "commit", "pull_request", "url"]


class Origin(msgspec.Struct, frozen=True):
    """The importer of a task, and its past according to the file, which nobody here can vouch for."""

    imported_by: str
    imported_at: datetime
    created_by: str | None = None
    updated_at: datetime | None = None
    closed_at: datetime | None = None


class Author(msgspec.Struct, frozen=True):
    """The author and time of an imported note, as the file has them; None where it does not."""

    by: str | None = None
    at: datetime | None = None


class Ref(msgspec.Struct, frozen=True):
    """What a task refers to outside of the workspace."""

    kind: RefKind
    value: str

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


class Task(msgspec.Struct, frozen=True):
    """A task. `token` and `deadline` are those of the claim, if the claim can expire. `origin`: it was imported.

    `children` counts the tasks directly below it, `children_done` those of them that are closed. `assigned_to` is the
    agent that alone may claim it; before `deferred_until` it is not ready. `waiting`: it is open, and not ready because
    of other tasks or a deferral. `parked`: its claim stays without heartbeats, until `deadline` if there is one.
    `warnings` are about the call that returned it.
    """

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
    origin: Origin | None = None
    children: int = 0
    children_done: int = 0
    assigned_to: str | None = None
    deferred_until: datetime | None = None
    refs: tuple[Ref, ...] = ()
    waiting: bool = False
    parked: bool = False
    warnings: tuple[str, ...] = ()


class TaskInTree(Task, frozen=True, kw_only=True):
    """A task in a subtree; `relative_depth` is 0 for its root."""

    relative_depth: int


class HistoryEntry(msgspec.Struct, frozen=True):
    """One changed field of a task. A note without a change has the field "note".

    `changed_by` imported the note if it has an `author`.
    """

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
    author: Author | None = None


class TaskLink(msgspec.Struct, frozen=True):
    """A link between two tasks: `id` depends on, was discovered from, or is related to `on`."""

    kind: LinkKind
    id: str
    on: str


class Hit(msgspec.Struct, frozen=True):
    """A task that a search found; lower ranks are better. The snippet marks matches with **."""

    task: Task
    snippet: str
    rank: float


class Reason(msgspec.Struct, frozen=True):
    """Why a task is not ready: a stable code, a text, and the tasks it waits for."""

    code: Literal["status", "claimed", "deleted", "dependencies", "children", "assigned", "deferred"]
    text: str
    ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


class Readiness(msgspec.Struct, frozen=True):
    """Whether `claim_next` can claim a task, and all reasons if not."""

    id: str
    ready: bool
    reasons: tuple[Reason, ...]


class BulkItem(msgspec.Struct, frozen=True):
    """The outcome for one task of a bulk call."""

    id: str
    success: bool
    error: str | None = None
    code: str | None = None


class BulkResult(msgspec.Struct, frozen=True):
    """The outcome for each task, in the order given."""

    results: list[BulkItem]

    @property
    def failed(self) -> bool:
        """Whether a task was left as it was."""
        return not all(item.success for item in self.results)


class Retired(msgspec.Struct, frozen=True):
    """How many tasks retention has soft-deleted and purged, or would."""

    deleted: int
    purged: int


class TemplateNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task of a template, with the tasks below it. Other tasks depend on it by its `key`."""

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
    """A named tree of tasks; `parameters` maps each parameter to its default, None if it is required.

    `version` grows each time the template is set or deleted, and is what a condition `version_equals` compares; 0 is
    that of an older server, which does not send it.
    """

    name: str
    tree: TemplateNode
    parameters: dict[str, str | None]
    version: int = 0


class ResumeEvent(msgspec.Struct, frozen=True):
    """An event of the task; `changes` omits long values."""

    op: str
    actor: str
    at: datetime
    changes: dict[str, Any]
    note: str | None
    author: Author | None = None


class TaskNote(msgspec.Struct, frozen=True):
    """What was said about a task, by whom, when, and with which operation: note, complete, block and others.

    With an `author`, `by` imported it.
    """

    text: str
    by: str
    at: datetime
    op: str
    author: Author | None = None


class Resume(msgspec.Struct, frozen=True):
    """Where work on a task stopped.

    `last_holder` held the task before the current holder, and `ended` says how that claim ended. `waits_for` are the
    tasks that must be done first and are not, `children` the unfinished ones directly below it. `locks` are held for
    the task now; `left` are the patterns that the last holder had locked. `omitted` counts what did not fit.
    `compacted`: older events of the task are gone, up to this revision; notes are kept.
    """

    task: Task
    last_holder: str | None
    ended: str | None
    ended_at: datetime | None
    waits_for: tuple[str, ...]
    children: tuple[str, ...]
    locks: tuple[PathLock, ...]
    left: tuple[str, ...]
    notes: tuple[TaskNote, ...]
    messages: tuple[Message, ...]
    events: tuple[ResumeEvent, ...]
    omitted: dict[str, int]
    compacted: int | None = None


class Problem(msgspec.Struct, frozen=True):
    """A problem in a file. An error rejects the part that contains it; a warning changes nothing."""

    file: str
    line: int
    severity: Literal["error", "warning"]
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}: {self.message}"

    @property
    def failed(self) -> bool:
        """Whether it is an error."""
        return self.severity == "error"


class Verdict(msgspec.Struct, frozen=True):
    """The result of one matcher: matched, or the first reason why not."""

    name: str
    matched: bool
    reason: str


class RouteReport(msgspec.Struct, frozen=True):
    """How a task is routed and why: the verdict of every matcher in order, and the properties they read."""

    selected_grimoire: str
    matched_by: str
    reason: str
    require_review: bool
    needs: tuple[str, ...]
    evaluation: tuple[Verdict, ...]
    task_properties: dict[str, Any]


class Loaded(msgspec.Struct, frozen=True):
    """The result of loading a file: whether its rules are in force, how many there are, and the problems found."""

    file: str
    stored: bool
    matchers: int
    problems: tuple[Problem, ...]

    @property
    def failed(self) -> bool:
        """Whether the file has an error."""
        return any(problem.failed for problem in self.problems)


class Sharing(msgspec.Struct, frozen=True):
    """How tasks travel with a repository. `on` is None until somebody decided: files are read, and none is written.

    `notes` and `authors`: these travel too. `renamed` maps an id to the tasks that had it and are younger than the one
    that keeps it. `left_out` maps a task to what it does not show of its line, and why: a parent that would close a
    circle, say, or a dependency that is not here.
    """

    on: bool | None
    notes: bool
    authors: bool
    site: str | None
    revision: int
    renamed: dict[str, list[str]] = {}
    left_out: dict[str, list[str]] = {}


class SharedReport(msgspec.Struct):
    """What lines of a shared file changed here: ids of tasks, and names of templates.

    `ended` are tasks whose claim ended, because they were finished elsewhere. `renamed` maps ids to longer ones.
    `problems` are damaged lines that were skipped; `warnings` say what is left out, and why.
    """

    created: list[str] = []
    updated: list[str] = []
    deleted: list[str] = []
    ended: list[str] = []
    templates: list[str] = []
    renamed: dict[str, str] = {}
    warnings: list[str] = []
    problems: list[ImportProblem] = []
