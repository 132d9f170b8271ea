"""Agents, the mail between them, and the locks they hold on paths."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

Role = Literal["agent", "person", "maintainer", "observer"]


class Agent(msgspec.Struct, frozen=True):
    """An agent. `seen_at` is its last write or heartbeat, to the second; None before the first.

    An agent that has not registered has no `registered_at`, and version 0.
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
    """A message. `to` is how it was addressed; `status` maps each recipient to its status.

    `short` is its number in the workspace, such as m12, which stands for the id wherever one is taken. `warnings` are
    about the call that returned it.
    """

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
    short: str = ""
    warnings: tuple[str, ...] = ()


class MailThread(msgspec.Struct, frozen=True):
    """A thread: its first message, how many it has, when the last one was sent, and how many are unread by the caller.

    `wants`: one of them asks the caller for an answer or an acknowledgement that it has not got.
    """

    thread: str
    first: Message
    messages: int
    last_at: datetime
    unread: int
    wants: bool
    closed: bool


class MailHit(msgspec.Struct, frozen=True):
    """A message that a search found, with an excerpt that marks the matches with **."""

    message: Message
    snippet: str
    score: float


class MailStep(msgspec.Struct, frozen=True):
    """One step in the life of a message: its actor, the agent it was taken for, the time and a note."""

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
    """A lock on all paths that its patterns match, and on everything below them.

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


def looks_absolute(path: str) -> bool:
    """Whether a path that does not begin with / begins like one in a home folder, or on a drive of Windows."""
    drive = path[:1].isascii() and path[:1].isalpha() and path[1:3] in (":/", ":\\")
    return drive or path.startswith("~")
