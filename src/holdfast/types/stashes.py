"""Stashes, trails and links as operations return them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

StashType = Literal["resource", "artifact", "context", "counter", "lock", "queue", "channel"]
StashOperation = Literal["create", "set", "increment", "acquire", "release", "expire"]
QueueState = Literal["ready", "delayed", "taken", "dead"]
TrailState = Literal["draft", "pending", "active", "completed", "abandoned"]
LinkType = Literal["belongs_to", "child_of", "branches_from", "scoped_to", "depends_on", "discovered_from", "related"]
TransferTable = Literal["crumbs", "trails", "links", "stashes", "stash_history", "tombstones"]


class Stash(msgspec.Struct, frozen=True):
    """A value that crumbs share, those of one `trail` or (None) all. A held lock has a `token`.

    `value` None: no value is set, or nobody holds the lock. `expires_at` is when the stash itself expires.
    """

    id: str
    name: str
    stash_type: StashType
    value: Any
    version: int
    trail: str | None
    created_at: datetime
    updated_at: datetime
    revision: int
    token: int | None = None
    held_until: datetime | None = None
    expires_at: datetime | None = None


class StashEntry(msgspec.Struct, frozen=True):
    """One recorded change of a stash: the version and value after it; `changed_by` is the id of a task, if given."""

    id: str
    stash_id: str
    version: int
    value: Any
    operation: StashOperation
    changed_by: str | None
    created_at: datetime


class QueueItem(msgspec.Struct, frozen=True):
    """An item of a queue, which is a stash; its number is its place. `deliveries` counts how often it was taken.

    A taken one has a holder and a token until it is acknowledged, and its lease ends at `until`, as does a delay.
    """

    queue: str
    number: int
    state: QueueState
    value: Any
    deliveries: int
    created_at: datetime
    key: str | None = None
    token: int | None = None
    holder: str | None = None
    until: datetime | None = None


class QueueSize(msgspec.Struct, frozen=True):
    """How many items of a queue are in each state; `dead` counts the dead letters."""

    ready: int
    delayed: int
    taken: int
    dead: int


class ChannelMessage(msgspec.Struct, frozen=True):
    """A message of a channel, which is a stash. Numbers begin at 1 and have no gap."""

    channel: str
    number: int
    sender: str
    created_at: datetime
    value: Any


class Subscription(msgspec.Struct, frozen=True):
    """Where a subscriber of a channel is: all up to `cursor` is acknowledged.

    `unread` messages are kept after that; `lost` ones came before those and are not kept any more.
    """

    channel: str
    subscriber: str
    cursor: int
    unread: int
    lost: int


class Trail(msgspec.Struct, frozen=True):
    """A trail: crumbs and stashes that belong together, until it is completed or abandoned at `ended_at`."""

    id: str
    name: str
    state: TrailState
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    version: int
    revision: int


class Link(msgspec.Struct, frozen=True):
    """A link between two records. Links never change."""

    id: str
    link_type: LinkType
    from_id: str
    to_id: str
    created_at: datetime
