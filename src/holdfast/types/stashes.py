"""Stashes, trails and links as operations answer them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.types.tasks import ImportProblem

StashType = Literal["resource", "artifact", "context", "counter", "lock"]
StashOperation = Literal["create", "set", "increment", "acquire", "release", "expire"]
TrailState = Literal["draft", "pending", "active", "completed", "abandoned"]
LinkType = Literal["belongs_to", "child_of", "branches_from", "scoped_to", "depends_on", "discovered_from", "related"]
TransferTable = Literal["crumbs", "trails", "links", "stashes", "stash_history"]


class Stash(msgspec.Struct, frozen=True):
    """Something that crumbs share. `trail` None: all of them. A held lock has a `token`, and an end if given one.

    `value` None: no value is set; of a lock, nobody holds it. `expires_at` is when the stash itself ends.
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
    """One saved change of a stash: the version and value after it; `changed_by` is a crumb's id, if one was named."""

    id: str
    stash_id: str
    version: int
    value: Any
    operation: StashOperation
    changed_by: str | None
    created_at: datetime


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
    """A link between two records. It never changes: another one is another link."""

    id: str
    link_type: LinkType
    from_id: str
    to_id: str
    created_at: datetime


class TransferReport(msgspec.Struct, frozen=True):
    """What became of every line of an import of tables, or would: ids by table, and what there is to say.

    `conflicts` are here already and differ, and were left alone; `skipped` were not imported at all; `warnings` are
    about records that were.
    """

    created: dict[str, list[str]]
    updated: dict[str, list[str]]
    unchanged: dict[str, list[str]]
    conflicts: list[ImportProblem]
    skipped: list[ImportProblem]
    warnings: list[ImportProblem]
    dry_run: bool = False
