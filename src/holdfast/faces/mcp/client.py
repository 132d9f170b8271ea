"""An MCP session: its caller, the workspace behind it, and the tokens of what the caller holds.

A `Session` is a caller with a workspace. Tools call operations on `session.ws`, where a server checks roles and actors.

A session remembers the tokens of the claims and locks it took and sends them with later calls. So a session that was
paused and lost its claim is fenced, even if another one works under the same name by then, and no model has to carry
numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from holdfast import errors
from holdfast.faces.mcp.tool import Caller
from holdfast.operation import Async, Operation, operation_of
from holdfast.schema import named_arguments
from holdfast.types import Event, Op
from holdfast.types.tasks import Task
from holdfast.workspace.aio import while_serving
from holdfast.workspace.tokens import MemoryTokens, holder_of, learn, lookup_of, with_token, without_numbers
from holdfast.workspace.transaction import Root

if TYPE_CHECKING:
    from holdfast.remote.aio import AsyncRemoteWorkspace
    from holdfast.workspace.aio import AsyncWorkspace


_ASKED: Final = 20  # claims of a session that are looked at for losses
_TAKE: Final = "acquire it with the tool lock, then read again what you are about to write"
_ONE_OF_SEVERAL: Final = (
    "nobody can tell which session of this client calls: end the others, or start this server with"
    " `holdfast mcp --actor NAME`"
)
P = ParamSpec("P")
R = TypeVar("R")


class CheckedWorkspace(Root[Async]):
    """The operations of a workspace, as one session may call them."""

    awaits = True

    def __init__(self, session: Session, workspace: AsyncWorkspace | AsyncRemoteWorkspace) -> None:
        super().__init__(self)
        self._session = session
        self._workspace = workspace

    def bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """An operation as a call that the session checks first; it sends and remembers tokens."""
        return self._held(op) if op.held is not None and op.writes else self._checked(op)

    def _checked(self, op: Operation[..., Any]) -> Callable[..., Any]:
        session, workspace = self._session, self._workspace

        def call(*args: Any, **kwargs: Any) -> Any:
            given = named_arguments(op, args, kwargs)
            session.check(op, given)
            work = session.perform(workspace, op, given)
            waits = op.kind == "first" or given.get("wait")
            return while_serving(op, work, session.stopping) if waits else work

        return call

    def _held(self, op: Operation[..., Any]) -> Callable[..., Any]:
        session, checked = self._session, self._checked(op)

        async def call(*args: Any, **kwargs: Any) -> Any:
            given = named_arguments(op, args, kwargs)
            if (lookup := lookup_of(op, given)) is not None:
                given["id"] = (await lookup.on(self)(given["id"])).id
            sent, holder = with_token(session.tokens, op, given), holder_of(given, session.actor)
            try:
                result = await checked(**sent)
            except errors.Fenced as error:
                raise without_numbers(error, given, holder, sent) from error
            learn(session.tokens, op, given, result, holder)
            return result

        return call


class Session(Caller):
    """One caller on one workspace."""

    def __init__(
        self,
        workspace: AsyncWorkspace | AsyncRemoteWorkspace,
        actor: str,
        profile: str,
        tokens: MemoryTokens,
        stopping: asyncio.Event | None = None,
        turn_dir: str | None = None,
    ) -> None:
        super().__init__(actor, turn_dir)
        self._workspace = workspace
        self.stopping = stopping or asyncio.Event()
        self.ws = CheckedWorkspace(self, workspace)
        self.profile = profile
        self.tokens = tokens

    @property
    def tools(self) -> tuple[str, bool]:
        """Which tools it has: its profile, and whether those for turn files are among them."""
        return self.profile, self.turn_dir is not None

    async def fenced(self, lock: str | None) -> CheckedWorkspace:
        """The workspace for calls that fail unless this agent still holds the lock, if one is named.

        A lock that an earlier session of this agent has taken counts, unless this one has taken it before and lost it.
        """
        if lock is None:
            return self.ws
        token = self.tokens.token("lock", lock)
        if token is None:
            found = await self.ws.locks.find(lock)
            if found is None or found.holder != self.actor:
                who = "nobody does" if found is None else f"{found.holder} does"
                raise errors.Fenced(f"you do not hold the lock {lock}: {who}", hint=_TAKE, current=None)
            token = found.token
        return CheckedWorkspace(self, self._workspace.using(fence=(lock, token)))

    async def txn(self, steps: list[Op], id: str, token: int | None) -> Any:
        """Operations on a task in one transaction, by the token of the session's claim; returns the last result."""
        try:
            return (await self.ws.txn([], steps)).results[-1]
        except errors.Fenced as error:
            raise without_numbers(error, {}, self.actor, {"token": token}) from error

    async def news(self) -> tuple[list[Task], dict[str, str]]:
        """What nobody else says to a model, each once: the tasks whose claims this session took and has lost since,
        and those that go on under another id, by the id before."""
        lost, renamed = [], {}
        for id, token in list(self.tokens.believed("task").items())[:_ASKED]:
            try:
                task = await self.ws.tasks.get(id, include_deleted=True)
            except errors.TaskNotFound:  # purged
                self.tokens.forget("task", id)
                continue
            if (task.claimed_by, task.token) == (self.actor, token):
                continue
            if (new := await self._renamed(id, token)) is not None:
                self.tokens.remember(token, "task", new, was=("task", id))
                renamed[id] = new
            else:
                self.tokens.tell("task", id)
                lost.append(task)
        return lost, renamed

    async def _renamed(self, id: str, token: int) -> str | None:
        """The id now of a task that this session holds; None if it holds it no more."""
        for new in (await self.ws.tasks.sharing(id)).renamed.get(id, ()):
            if (await self.ws.tasks.get(new, include_deleted=True)).token == token:
                return new
        return None

    async def next_event(self, **given: Any) -> Event | None:
        """The first event of a watch, or None at its timeout."""

        async def first() -> Event | None:
            async with self.ws.watch(**given) as watch:
                return await anext(watch, None)

        return await while_serving(type(self.ws).watch, first(), self.stopping)

    async def revision(self) -> int:
        """The revision of the newest transaction."""
        return await self._workspace.revision()

    # overridden for sessions over HTTP

    def check(self, op: Operation[..., Any], given: dict[str, Any]) -> None:
        """Raise Forbidden unless the caller may make this call."""

    def perform(self, workspace: AsyncWorkspace | AsyncRemoteWorkspace, op: Operation[..., Any], given: Any) -> Any:
        """Run an operation; a stream is returned, anything else awaited."""
        return op.on(workspace)(**given)


class OneOfSeveral(Session):
    """The caller is one of several sessions of a client, and nobody can tell which: it has no name to hold by."""

    def __init__(self, several: str, *given: Any) -> None:
        super().__init__(*given)
        self._several = several

    def perform(self, workspace: AsyncWorkspace | AsyncRemoteWorkspace, op: Operation[..., Any], given: Any) -> Any:
        """Run an operation; a refusal for want of a name says why there is none."""
        work = super().perform(workspace, op, given)
        return self._said(work) if isawaitable(work) else work

    async def _said(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except errors.InvalidHolder as error:
            raise error.among(self._several, _ONE_OF_SEVERAL) from None


class BoundActor:
    """The actor that the token of a server is bound to, which the first call asks for; a failed question is repeated.

    What is listed does not wait for it: a client starts this server although the other one is away.
    """

    def __init__(self, ask: Callable[[], str | None] | None) -> None:
        self._ask = ask
        self._asking: asyncio.Future[str | None] | None = None
        self.name: str | None = None

    async def settle(self) -> None:
        """Know it from here on. Raises what the server raises."""
        if self._ask is None:
            return
        if self._asking is None:
            self._asking = asyncio.ensure_future(asyncio.to_thread(self._ask))
        asking = self._asking
        try:
            self.name = await asyncio.shield(asking)
        except errors.HoldfastError:
            if self._asking is asking:
                self._asking = None
            raise


def as_step(call: Callable[P, Awaitable[Any]], /, *args: P.args, **kwargs: P.kwargs) -> Op:
    """A call with keyword arguments as data, for `txn`: `as_step(ws.tasks.note, id=id, text=text)`."""
    return Op(operation_of(call).name, kwargs)
