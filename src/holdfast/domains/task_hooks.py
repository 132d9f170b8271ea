"""What tasks need from later domains (mail, paths), which they cannot import: the registry sets these hooks.

In a module of its own, so that a program without tasks does not load them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.kernel.tx import Snapshot
    from holdfast.types.agents import Message, PathLock


class TaskHooks(Protocol):
    """What mail and paths know about a task."""

    def messages(self, snapshot: Snapshot, task: str, limit: int) -> tuple[list[Message], int]:
        """Return the last messages about a task, oldest first, and the number of all."""

    def open_messages(self, snapshot: Snapshot, task: str) -> list[str]:
        """Return the ids of the messages that are not closed."""

    def locks(self, snapshot: Snapshot, task: str) -> list[PathLock]:
        """Return the path locks held for a task."""

    def freed(self, snapshot: Snapshot, task: str, revision: int) -> list[str]:
        """Return the patterns of the locks that ended with its claim at a revision."""


_wired: list[TaskHooks] = []


def wire(hooks: TaskHooks) -> None:
    """Set the hooks; called once by the registry, which knows all domains."""
    _wired[:] = [hooks]


def ask() -> TaskHooks:
    """Return the hooks."""
    return _wired[0]
