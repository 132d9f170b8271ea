"""Agents as operations answer them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

Role = Literal["agent", "maintainer", "observer"]


class Agent(msgspec.Struct, frozen=True):
    """Somebody who works here. `seen_at` is its last write or heartbeat, to the second; None before the first.

    One that has not registered has no `registered_at`, and version 0.
    """

    name: str
    program: str
    model: str
    role: Role
    can: tuple[str, ...]
    registered_at: datetime | None
    seen_at: datetime | None
    version: int
    revision: int
