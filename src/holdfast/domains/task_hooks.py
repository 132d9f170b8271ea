"""What tasks ask of later domains (mail, paths), which they cannot import: the registry wires the answers here.

Apart from `tasks`, so that a program that uses no tasks does not load them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.kernel.tx import Snapshot
    from holdfast.types.agents import Message, PathLock


class TaskHooks(Protocol):
    """What mail and paths know of a task."""

    def messages(self, snapshot: Snapshot, task: str, limit: int) -> tuple[list[Message], int]:
        """The last messages about a task, oldest of them first, and how many there are."""

    def open_messages(self, snapshot: Snapshot, task: str) -> list[str]:
        """The ids of those that are not closed."""

    def locks(self, snapshot: Snapshot, task: str) -> list[PathLock]:
        """The path locks that are held for a task."""

    def freed(self, snapshot: Snapshot, task: str, revision: int) -> list[str]:
        """The patterns of those that ended with its claim, at a revision."""


_wired: list[TaskHooks] = []


def wire(hooks: TaskHooks) -> None:
    """Set the hooks; called once by the registry, which knows all domains."""
    _wired[:] = [hooks]


def ask() -> TaskHooks:
    """The hooks that were wired."""
    return _wired[0]
