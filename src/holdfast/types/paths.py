"""Path locks as operations answer them."""

from __future__ import annotations

from datetime import datetime

import msgspec


class PathLock(msgspec.Struct, frozen=True):
    """A lock on all paths that its patterns name, and on everything below them.

    It ends at `expires_at`, or with the claim on `task`, or when it is released.
    """

    id: str
    patterns: tuple[str, ...]
    holder: str
    token: int
    shared: bool
    task: str | None
    reason: str | None
    acquired_at: datetime
    expires_at: datetime | None
