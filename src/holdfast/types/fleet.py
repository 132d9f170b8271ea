"""What people ask of a fleet: its status, its activity over time, the graph of its tasks. Loaded when first asked."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from holdfast.types import Refusal
from holdfast.types.agents import Role
from holdfast.types.cycles import CycleInfo
from holdfast.types.tasks import TaskStatus, TaskType


class GraphNode(msgspec.Struct, frozen=True):
    """A task in a graph.

    `depth` is the length of the longest chain of dependencies before it. `unblocks` counts the unfinished tasks that
    wait for it, directly or through others. `slack` is how many tasks longer its chain could be before it is the
    longest; None once it is closed. `critical`: it is part of a longest chain.
    """

    id: str
    title: str
    type: TaskType
    status: TaskStatus
    ready: bool
    priority: int
    parent_id: str | None
    claimed_by: str | None
    depth: int
    unblocks: int
    critical: bool
    slack: int | None


class GraphEdge(msgspec.Struct, frozen=True):
    """`id` depends on `on`, or is a child of it."""

    kind: Literal["depends", "parent"]
    id: str
    on: str


class TaskGraph(msgspec.Struct, frozen=True):
    """Tasks, their dependencies and what follows from them, at one revision.

    `critical_path` is a longest chain of unfinished tasks, first the one that comes first; it is empty if none depends
    on another. `tracks` are groups of unfinished tasks that can go on without each other, the largest first; a task
    without dependencies belongs to none. `blockers` are the ten tasks that unblock most.
    """

    revision: int
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    critical_path: tuple[str, ...]
    tracks: tuple[tuple[str, ...], ...]
    blockers: tuple[str, ...]


class Tally(msgspec.Struct, frozen=True):
    """What happened to claims, a number for each bucket. `fenced` counts refusals on this machine alone.

    `completed` also counts what then waits for a review; `closed` counts the tasks that became closed, by approval too.
    """

    claimed: list[int]
    completed: list[int]
    closed: list[int]
    released: list[int]
    expired: list[int]
    fenced: list[int]


class Activity(msgspec.Struct, frozen=True):
    """What the agents did between two moments, in buckets of so many seconds; the first begins at `since`.

    `agents` has those that did anything.
    """

    revision: int
    since: datetime
    until: datetime
    bucket: float
    total: Tally
    agents: dict[str, Tally]


class TaskCounts(msgspec.Struct, frozen=True):
    """How many tasks there are; an open one is ready or waiting. `closed_today`: and last changed since midnight."""

    ready: int
    waiting: int
    in_progress: int
    review: int
    blocked: int
    closed: int
    closed_today: int


class AgentState(msgspec.Struct, frozen=True):
    """An agent and the task it works on: since when, and until when its claim lasts, None while it is parked.

    `tasks` is how many it holds; the one shown ends first. `unacknowledged` is the mail that asks it for an
    acknowledgement or an answer, and has not got one.
    """

    name: str
    role: Role
    program: str
    seen_at: datetime | None
    tasks: int
    task: str | None
    title: str | None
    since: datetime | None
    until: datetime | None
    parked: bool
    unread: int
    unacknowledged: int


class Waiter(msgspec.Struct, frozen=True):
    """Somebody who waits in line for a lock, since when, and for which `patterns` if it is one of paths."""

    name: str
    since: datetime
    patterns: tuple[str, ...]


class LockState(msgspec.Struct, frozen=True):
    """A lock that is held, and who waits for it, in order. `patterns` are those of a path lock; `stash` is the trail
    and the name of the stash that a lock of a stash belongs to, such as "release 2/gate".

    `until` is None if it has no end: it lasts until it is released, or as long as the claim on `task`.
    """

    kind: Literal["path", "lock", "cell-lock", "stash-lock"]
    name: str
    scope: str
    patterns: tuple[str, ...]
    holder: str
    shared: bool
    task: str | None
    reason: str | None
    since: datetime
    until: datetime | None
    waiters: tuple[Waiter, ...]
    stash: str = ""


class Card(msgspec.Struct, frozen=True):
    """A task as a board shows it.

    `waits_for` counts the unfinished tasks it depends on (and 1 while it is deferred), `children` those below it.
    A task in the column ready with `assigned_to` is ready for that agent alone. `reason` and `by` say why
    it is blocked or what was done, and who said so; then `holds_up` counts the tasks that wait for it.
    """

    id: str
    title: str
    type: TaskType
    priority: int
    tags: tuple[str, ...]
    holder: str | None
    since: datetime | None
    until: datetime | None
    parked: bool
    created_at: datetime
    updated_at: datetime
    waits_for: int
    children: int
    children_closed: int
    reason: str | None
    by: str | None
    holds_up: int
    assigned_to: str | None = None


class Stretch(msgspec.Struct, frozen=True):
    """A time during which an agent held something: a claim on a task, or a lock.

    `end` None: it still holds it. `how` says how it ended. `since_before`: it began before the time asked for. `count`:
    so many short ones, one after the other; `id` is that of the first, and `how` the end that matters most.
    """

    id: str
    start: datetime
    end: datetime | None
    how: Literal["closed", "review", "blocked", "released", "expired"] | None
    since_before: bool = False
    count: int = 1


class Lane(msgspec.Struct, frozen=True):
    """What an agent held, one after the other, and when it sent mail. `locks` are path locks and named locks."""

    claims: list[Stretch]
    locks: list[Stretch]
    mail: list[datetime]


class Timeline(msgspec.Struct, frozen=True):
    """The agents between two moments, at one revision."""

    revision: int
    since: datetime
    until: datetime
    lanes: dict[str, Lane]


class ClaimEnd(msgspec.Struct, frozen=True):
    """A claim that ends within two minutes, or expired within the last hour; `held_by` says who holds the task now."""

    task: str
    title: str
    holder: str
    at: datetime
    expired: bool
    held_by: str | None


class Need(msgspec.Struct, frozen=True):
    """What only a person can move: a task, a message or a lock. `holds_up` tasks wait for it, at most 1,000 counted.

    `short` is the number of a message, such as m12, which stands for the id wherever one is taken.
    """

    kind: Literal["blocked", "review", "escalation", "mail", "lock"]
    id: str
    title: str
    reason: str | None
    by: str | None
    since: datetime
    holds_up: int
    short: str = ""


class FleetStatus(msgspec.Struct, frozen=True):
    """The fleet at one revision: who works on what, what is stuck, what needs a person.

    `needs_you` comes with what holds up most tasks first, then by age; `needs` counts all of them. `refusals` are those
    of the last hour on this machine. Lists have at most 1,000 entries, `needs_you` 100.
    """

    revision: int
    time: datetime
    tasks: TaskCounts
    agents: tuple[AgentState, ...]
    locks: tuple[LockState, ...]
    claims: tuple[ClaimEnd, ...]
    cycles: tuple[CycleInfo, ...]
    needs: int
    needs_you: tuple[Need, ...]
    refusals: tuple[Refusal, ...]
