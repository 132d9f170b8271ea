"""What the model's operations stand on: rows, time, transactions that leave nothing if they fail, the event list."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.testing import ManualClock
from holdfast.types import Event, as_time
from holdfast.types.agents import Agent, Message
from holdfast.types.stashes import ChannelMessage, Link, QueueState, StashType, Trail
from holdfast.types.tasks import TaskStatus, TaskType
from holdfast.types.threads import Checkpoint, Item, Write

LEAP = 24 * 3600 * 1_000_000  # microseconds that nobody has seen passing

Key = tuple[str, str]
K = TypeVar("K")
V = TypeVar("V")


def exact(value: Any) -> Any:
    """A form in which 1, 1.0 and True differ and the order of keys does not matter."""
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, exact(msgspec.structs.asdict(value))
    return type(value).__name__, repr(value)


class Table(dict[K, V]):
    """Rows that never change, only give way to others: to copy the table is enough."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Table[K, V]:
        return Table(self)


@dataclass(eq=False)
class LeaseRow:
    """What ends by itself: `user` leases have an id that users know, others belong to one cell, lock or task."""

    id: str
    holder: str
    ttl: int
    deadline: int
    created: int
    task: str = ""  # the one whose claim it is
    defers: str = ""  # the task that waits for its end

    @property
    def user(self) -> bool:
        return bool(self.id)


@dataclass
class CellRow:
    value: Any
    version: int
    revision: int
    updated: int
    lease: LeaseRow | None


@dataclass
class LockRow:
    holder: str
    token: int
    acquired: int
    lease: LeaseRow | None


@dataclass
class PathRow:
    """A path lock; without a lease of its own it lives as long as the claim on its task, or until it is released."""

    id: str
    patterns: tuple[str, ...]
    holder: str
    token: int
    shared: bool
    task: str | None
    reason: str | None
    acquired: int
    lease: LeaseRow | None


@dataclass(frozen=True)
class TaskRow:
    """A task without what others say of it: its claim's deadline is that of its lease, its depth that of its place."""

    number: int  # in the order of creation
    id: str
    title: str
    body: str
    type: TaskType
    priority: int
    parent_id: str | None
    tags: tuple[str, ...]
    grimoire_hint: str | None
    created: int
    updated: int
    version: int
    revision: int
    status: TaskStatus = "open"
    grimoire: str | None = None
    deleted: int | None = None
    deletion: str | None = None  # the task whose deletion took it along
    claimed_by: str | None = None
    claimed: int | None = None
    token: int | None = None
    ttl: int | None = None
    parked: bool = False
    assigned_to: str | None = None


@dataclass
class StashRow:
    """A stash; `value` is not that of a lock, which is who holds it."""

    id: str
    name: str
    type: StashType
    trail: str | None
    value: Any
    created: int
    lease: LeaseRow | None
    version: int = 0
    revision: int = 0
    updated: int = 0
    lock: LockRow | None = None
    gone: bool = False  # with its trail


@dataclass
class ItemRow:
    """An item of a queue."""

    value: Any
    created: int
    key: str | None
    state: QueueState = "ready"
    deliveries: int = 0
    token: int | None = None
    lease: LeaseRow | None = None  # on its delivery, or its delay


@dataclass
class QueueRow:
    """The items of a queue by number, and the last number."""

    last: int = 0
    items: dict[int, ItemRow] = field(default_factory=dict)


@dataclass
class ChannelRow:
    """The messages that a channel has kept, and its cursors."""

    messages: list[ChannelMessage] = field(default_factory=list)
    cursors: dict[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return self.messages[-1].number if self.messages else 0

    @property
    def first(self) -> int:
        return self.messages[0].number if self.messages else 1


@dataclass
class ThreadRow:
    """A thread; `again`: there was one before with this id."""

    created: int
    again: bool
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    deltas: dict[str, tuple[str, ...]] = field(default_factory=dict)
    values: dict[tuple[str, str], Any] = field(default_factory=dict)  # by channel and version
    writes: dict[tuple[str, str, int], Write] = field(default_factory=dict)  # by checkpoint, task and number


class TrailRow(NamedTuple):
    """A trail; of an abandoned one, the state it was in before and the tasks that went with it."""

    trail: Trail
    before: str = ""
    taken: tuple[str, ...] = ()


class Kept(NamedTuple):
    """What an idempotency key remembers."""

    arguments: Any
    answer: Any
    expires: int


@dataclass
class State:
    """Everything a transaction can take back."""

    cells: dict[Key, CellRow]
    locks: dict[str, LockRow]
    leases: list[LeaseRow]  # in the order of creation
    keys: dict[tuple[str, str, str], Kept]
    newest: Table[tuple[str, str, str], int]  # the last version of each (kind, scope, id), for ever
    tasks: Table[str, TaskRow] = field(default_factory=Table)  # in the order of creation
    links: Table[tuple[str, str, str], None] = field(default_factory=Table)  # kind, from, to
    purged: Table[str, int] = field(default_factory=Table)  # the last version of tasks that are gone for good
    paths: dict[str, PathRow] = field(default_factory=dict)  # in the order of their tokens
    agents: Table[str, Agent] = field(default_factory=Table)  # those that registered
    actors: Table[str, int] = field(default_factory=Table)  # those that acted, and when first
    messages: Table[str, Message] = field(default_factory=Table)  # in the order they were sent
    stashes: dict[str, StashRow] = field(default_factory=dict)
    queues: dict[str, QueueRow] = field(default_factory=dict)  # by stash, once something was put
    channels: dict[str, ChannelRow] = field(default_factory=dict)  # by stash, once somebody has used it
    trails: Table[str, TrailRow] = field(default_factory=Table)
    ties: Table[tuple[str, str, str], Link] = field(default_factory=Table)  # links as `ws.links` tells them
    cycles: Table[str, dict[int, Any]] = field(default_factory=Table)  # every version, by sequence
    threads: dict[str, ThreadRow] = field(default_factory=dict)
    items: Table[tuple[str, str], Item] = field(default_factory=Table)


class Ledger:
    """Transactions over a State, and what they emitted."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.state = State({}, {}, [], {}, Table())
        self.events: list[Event] = []
        self.revision = 0
        self._anchor = self._stamp = (0, clock.monotonic())
        self.calm = 0  # when time leaped last
        self._first = 0  # index of the first event of the transaction in progress

    def time(self) -> int:
        """The law of time: never before the last commit plus what the monotonic clock measured since."""
        committed, since = self._anchor
        return max(self.clock.wall(), committed + self.clock.monotonic() - since)

    def transact(self, actor: str, body: Callable[[], Any]) -> Any:
        """All or nothing; one revision if anything was emitted."""
        self.actor, self.now, self._first, self._grants = actor, self.time(), len(self.events), 0
        committed, since = self._stamp
        if committed and self.now - committed - (self.clock.monotonic() - since) > LEAP:
            self.calm = self.now
        result = self.part(body)
        if len(self.events) > self._first:
            self._stamp = (self.now, self.clock.monotonic())
        self.revision += len(self.events) > self._first
        self._anchor = (self.now, self.clock.monotonic())
        return result

    def part(self, body: Callable[[], Any]) -> Any:
        """All or nothing, within a transaction."""
        before, events = copy.deepcopy(self.state), len(self.events)
        try:
            return body()
        except Exception:
            self.state = before
            del self.events[events:]
            raise

    def emit(self, kind: str, scope: str, id: str, op: str, data: dict[str, Any], version: int = 0) -> int:
        version = version or self.newest(kind, scope, id) + 1
        self.state.newest[kind, scope, id] = version
        position = len(self.events) - self._first
        self.events.append(
            Event(self.revision + 1, position, as_time(self.now), self.actor, kind, scope, id, op, version, data, False)
        )
        return version

    def newest(self, kind: str, scope: str, id: str) -> int:
        return self.state.newest.get((kind, scope, id), 0)
