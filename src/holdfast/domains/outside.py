"""What domains behind tasks know of one. Tasks cannot import them: transaction.py wires here whom to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.kernel.tx import Snapshot

if TYPE_CHECKING:  # loaded with the domains that answer
    from holdfast.types.mail import Message
    from holdfast.types.paths import PathLock


class Outside(Protocol):
    """What there is to ask."""

    def messages(self, snapshot: Snapshot, task: str, limit: int) -> tuple[list[Message], int]:
        """The last messages about a task, oldest of them first, and how many there are."""

    def open_messages(self, snapshot: Snapshot, task: str) -> list[str]:
        """The ids of those that are not closed."""

    def locks(self, snapshot: Snapshot, task: str) -> list[PathLock]:
        """The path locks that are held for a task."""

    def freed(self, snapshot: Snapshot, task: str, revision: int) -> list[str]:
        """The patterns of those that ended with its claim, at a revision."""


_wired: list[Outside] = []


def wire(outside: Outside) -> None:
    """Tell tasks whom to ask; called once by transaction.py, which knows all domains."""
    _wired[:] = [outside]


def ask() -> Outside:
    """Whoever was wired."""
    return _wired[0]
