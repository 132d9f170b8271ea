"""What the next agent on a task needs, as `tasks.resume` answers it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.types.mail import Message
from holdfast.types.paths import PathLock
from holdfast.types.tasks import Task


class ResumeEvent(msgspec.Struct, frozen=True):
    """Something that happened to the task; long values are left out of `changes`."""

    op: str
    actor: str
    at: datetime
    changes: dict[str, Any]
    note: str | None


class Resume(msgspec.Struct, frozen=True):
    """Where work on a task stopped.

    `last_holder` is who had it before the present holder, `ended` how that claim ended. `locks` are held for the task
    now; `left` are the patterns that the last holder had locked. What did not fit is counted in `omitted`.
    """

    task: Task
    last_holder: str | None
    ended: str | None
    ended_at: datetime | None
    locks: tuple[PathLock, ...]
    left: tuple[str, ...]
    notes: tuple[str, ...]
    messages: tuple[Message, ...]
    events: tuple[ResumeEvent, ...]
    omitted: dict[str, int]
