"""What clients asked and heard: the only evidence the judges have of what was promised.

An operation of a client has an actor of its own, so the log tells which revision, if any, was its doing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast import errors
from holdfast.types import DerivedActor

# Refusals of the machinery, not of the operation: nothing happened.
NOTHING_HAPPENED = (
    errors.Unreachable,
    errors.Busy,
    errors.Behind,
    errors.ClockSkew,
    errors.DiskFull,
    errors.Closed,
)


@dataclass
class Asked:
    """An operation that a client asked for."""

    actor: str
    node: str
    op: str
    args: dict[str, Any]
    fence: tuple[str, int] | None
    floor: int  # the newest revision acknowledged to anybody when it was asked
    begun: int  # when
    key: str | None = None
    nameless: bool = False  # it chose no name, so the token of its fence alone decides
    attempts: int = 0
    # what the body saw when it ran last
    revision: int = 0
    now: int = 0
    # how it ended: "answered", "refused" (by the operation), "failed" (nothing happened) or "unknown"
    ending: str = ""
    answer: Any = None
    error: errors.HoldfastError | None = None

    @property
    def caller(self) -> str:
        """Who calls, as a workspace knows it."""
        return DerivedActor(self.actor) if self.nameless else self.actor


@dataclass
class Looked:
    """A read: what it saw, of which revision, at what time of its node."""

    node: str
    op: str
    args: dict[str, Any]
    floor: int  # what it had to have seen
    revision: int
    now: int
    answer: Any


@dataclass
class History:
    """Everything that was asked in one run."""

    asked: list[Asked] = field(default_factory=list)
    looked: list[Looked] = field(default_factory=list)
    newest: int = 0  # the newest revision acknowledged to anybody

    def acknowledge(self, revision: int) -> None:
        """Somebody knows of this revision now."""
        self.newest = max(self.newest, revision)
