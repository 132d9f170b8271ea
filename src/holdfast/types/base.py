"""What every domain answers with: times, events, leases, grants, pages and reports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def as_time(microseconds: int) -> datetime:
    """An aware datetime from microseconds UTC, exactly."""
    return _EPOCH + timedelta(0, microseconds // 1_000_000, microseconds % 1_000_000)


def as_microseconds(time: datetime) -> int:
    """The inverse of `as_time`; a time without a zone is taken as local."""
    return (time.astimezone(UTC) - _EPOCH) // _MICROSECOND


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


class Refusal(msgspec.Struct, frozen=True):
    """How often an actor was refused with an error of this code, and when last."""

    actor: str
    code: str
    count: int
    last: datetime


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


T = TypeVar("T")


class Page(list[T]):
    """A list that knows how to go on: `cursor` for the next page, None at the end.

    `total` is there on request, at most 10,000; `more` says that there are more than that.
    """

    cursor: str | None = None
    total: int | None = None
    more: bool = False
