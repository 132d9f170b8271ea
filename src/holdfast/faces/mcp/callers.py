"""Callers: what any tool can know of who calls it, whatever stands behind the server.

The tools for turn files need no more than this; a `Session` is a caller with a workspace.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from holdfast import errors

if TYPE_CHECKING:
    from holdfast.faces.mcp.turn_holding import Taken

MOST_WAIT: Final = 60.0  # seconds: clients give up on a call soon after that


class Caller:
    """Who calls, one for each session. `turn_dir`: the folder of a working session, if the server has one."""

    def __init__(self, actor: str, turn_dir: str | None = None) -> None:
        self.actor = str(actor)  # also of one that was derived
        self.turn_dir = turn_dir
        self.taken: dict[str, Taken] = {}  # turn locks of this very session, by id
        self.told: dict[str, str | None] = {}  # of which turn files it knows what they said, and the digest of that

    def cancellable(self, request: Any) -> AbstractContextManager[Any]:
        """Around a request that can be cancelled by another one."""
        return nullcontext()


def check_wait(wait: float | None) -> float | None:
    """How long a call may wait: not longer than its client does."""
    if wait is not None and wait > MOST_WAIT:
        raise errors.Invalid(f"a call waits at most {MOST_WAIT:.0f} seconds, not {wait:g}", hint="ask again")
    return wait
