"""An MCP session: who calls, the workspace behind it, and the tokens of what they hold.

The tools for turn files need no more than this; a `Session` is a caller with a workspace.

Every operation of a tool goes through `call`, where a server puts its rules about roles and actors. Claims and locks
that a session took are remembered with their tokens, which it then sends by itself: a session that was paused and lost
its claim is fenced, also where another one works under the same name by now, and no model has to carry numbers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from holdfast import errors

if TYPE_CHECKING:
    from holdfast.faces.mcp.turn_session import SessionLock
    from holdfast.operation import Operation
    from holdfast.remote.aio import AsyncRemoteWorkspace
    from holdfast.types import Event
    from holdfast.workspace.aio import AsyncWorkspace


MOST_WAIT: Final = 60.0  # seconds: clients give up on a call soon after that


class Caller:
    """Who calls, one for each session. `turn_dir`: the folder of a working session, if the server has one."""

    def __init__(self, actor: str, turn_dir: str | None = None) -> None:
        self.actor = str(actor)  # also of one that was derived
        self.turn_dir = turn_dir
        self.taken: dict[str, SessionLock] = {}  # turn locks of this very session, by id
        self.told: dict[str, str | None] = {}  # of which turn files it knows what they said, and the digest of that

    def cancellable(self, request: Any) -> AbstractContextManager[Any]:
        """Around a request that can be cancelled by another one."""
        return nullcontext()


def check_wait(wait: float | None) -> float | None:
    """How long a call may wait: not longer than its client does."""
    if wait is not None and wait > MOST_WAIT:
        raise errors.Invalid(f"a call waits at most {MOST_WAIT:.0f} seconds, not {wait:g}", hint="ask again")
    return wait


REMEMBERED: Final = 1024  # claims and locks of one session; the oldest are forgotten first

Held = Literal["task", "lock", "path", "stash"]
R = TypeVar("R")


class Memory:
    """The tokens of one session."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[tuple[Held, str], int] = OrderedDict()

    def keep(self, kind: Held, id: str, token: int | None) -> None:
        """Something was taken, with this token."""
        self._tokens.pop((kind, id), None)
        if token is not None:
            self._tokens[kind, id] = token
        if len(self._tokens) > REMEMBERED:
            self._tokens.popitem(last=False)

    def find(self, kind: Held, id: str) -> int | None:
        """The token by which it was taken; None if it was not, or long ago."""
        return self._tokens.get((kind, id))

    def drop(self, kind: Held, id: str) -> None:
        """It was given back."""
        self._tokens.pop((kind, id), None)


class Session(Caller):
    """One caller on one workspace."""

    def __init__(
        self,
        workspace: AsyncWorkspace | AsyncRemoteWorkspace,
        actor: str,
        profile: str,
        memory: Memory,
        stopping: asyncio.Event | None = None,
        turn_dir: str | None = None,
    ) -> None:
        super().__init__(actor, turn_dir)
        self._workspace = workspace
        self._stopping = stopping or asyncio.Event()
        self.profile = profile
        self.memory = memory

    @property
    def tools(self) -> tuple[str, bool]:
        """Which tools it has: its profile, and whether those for turn files are among them."""
        return self.profile, self.turn_dir is not None

    async def call(self, name: str, /, *, fence: str | None = None, **given: Any) -> Any:
        """An operation, if the caller may; `fence` is a lock of the session that it must still hold."""
        from holdfast.operation import operation  # a caller of turn tools loads no workspace
        from holdfast.workspace.aio import while_serving

        op = operation(name)
        self.check(op, given)
        workspace = self._workspace
        if fence is not None:
            # Without a token nothing was taken here: 0 is none that was ever given, so that is refused.
            workspace = workspace.using(fence=(fence, self.memory.find("lock", fence) or 0))
        work = self.perform(workspace, op, given)
        return await (while_serving(op, work, self._stopping) if given.get("wait") or op.kind == "first" else work)

    async def next_event(self, **given: Any) -> Event | None:
        """The first event of a watch, or None at its timeout."""
        from holdfast.operation import operation
        from holdfast.workspace.aio import while_serving

        op = operation("watch")
        self.check(op, given)

        async def first() -> Event | None:
            async with self._workspace.watch(**given) as watch:
                return await anext(watch, None)

        return await while_serving(op, first(), self._stopping)

    async def revision(self) -> int:
        """The revision of the newest transaction."""
        return await self._workspace.revision()

    # what a server does otherwise

    def check(self, op: Operation[..., Any], given: dict[str, Any]) -> None:
        """Refuse what the caller may not do."""

    async def perform(self, workspace: Any, op: Operation[..., Any], given: dict[str, Any]) -> Any:
        """Run an operation."""
        return await op.on(workspace)(**given)
