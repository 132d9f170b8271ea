"""Agents, the mail between them, and the locks they hold on paths."""

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


MailType = Literal["notify", "request", "decision-required", "objection", "handoff-ready"]
MailStatus = Literal["unread", "acknowledged", "actioned", "blocked", "closed"]


class Message(msgspec.Struct, frozen=True):
    """A message. `to` is how it was addressed, `status` where it stands with each who received it."""

    id: str
    thread: str
    sender: str
    to: tuple[str, ...]
    subject: str
    body: str
    type: MailType
    priority: int
    ack: bool
    task: str | None
    answers: str | None
    sent_at: datetime
    closed_at: datetime | None
    status: dict[str, MailStatus]
    version: int
    revision: int


class MailHit(msgspec.Struct, frozen=True):
    """A message that a search found, and where: a piece of its text, what was found between **."""

    message: Message
    snippet: str
    score: float


class MailStep(msgspec.Struct, frozen=True):
    """One step in the life of a message: who took it, for whom, when, and what they said."""

    message: str
    op: str
    agent: str
    actor: str
    at: datetime
    status: MailStatus | None
    note: str | None
    version: int
    revision: int


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
