"""Threads of graphs, their checkpoints, and items that outlive them, as operations return them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Thread(msgspec.Struct, frozen=True):
    """A thread: the checkpoints of a graph and of its subgraphs. `version` counts what was done to it."""

    id: str
    version: int
    checkpoints: int
    created_at: datetime
    updated_at: datetime
    revision: int


class Write(msgspec.Struct, frozen=True):
    """What a task wrote to a channel after a checkpoint; `number` is its place among the writes of the task."""

    task: str
    number: int
    channel: str
    value: Any
    path: str


class Checkpoint(msgspec.Struct, frozen=True):
    """The state of a graph at one moment, in the namespace of the graph ("") or of a subgraph.

    `channels` has the version of each channel that has a value. A list without values leaves out `value`, `values` and
    `writes`.
    """

    thread: str
    ns: str
    id: str
    parent: str | None
    run: str | None
    created_at: datetime
    metadata: dict[str, Any]
    channels: dict[str, str]
    value: Any = None
    values: dict[str, Any] = {}
    writes: list[Write] = []


class Item(msgspec.Struct, frozen=True):
    """A value under a key of a namespace, whose labels have / between; `expires_at` None: it stays."""

    namespace: str
    key: str
    value: dict[str, Any]
    version: int
    created_at: datetime
    updated_at: datetime
    ttl: float | None
    expires_at: datetime | None
