"""`holdfast.connect`: the same workspace over the wire, with the same operations, types and errors.

What takes a function (`transact`, `transaction`, `cells.transition`) cannot travel and is Unsupported; `txn` can.
A call is tried again only where that is safe: reads, and writes that carry an idempotency key. A watch that loses its
connection resumes by itself behind the last event it gave, without gap or repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar
from weakref import WeakKeyDictionary

from holdfast.context import Context, Fence, check_context, derive_actor
from holdfast.ops import Operation, Sync
from holdfast.remote.requests import no_backup, no_function
from holdfast.remote.sending import Resuming
from holdfast.remote.wire import Address, Wire
from holdfast.transaction import Root
from holdfast.types.base import Report

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from pathlib import Path

    from holdfast.remote.aio import AsyncRemoteWorkspace, AsyncWire

R = TypeVar("R")
E = TypeVar("E")


class RemoteWorkspace(Root[Sync]):
    """A workspace behind a server."""

    def __init__(self, wire: Wire, context: Context) -> None:
        super().__init__(self)
        self._wire = wire
        self._context = context
        self._loops: WeakKeyDictionary[AbstractEventLoop, AsyncWire] = WeakKeyDictionary()

    def using(
        self,
        actor: str | None = None,
        fence: Fence | None = None,
        key: str | None = None,
        at_least: int | Literal["latest"] | None = None,
    ) -> RemoteWorkspace:
        """The same workspace for calls with this actor, fence, key or at_least; what is not given stays as it was."""
        given = {"actor": actor, "fence": fence, "key": key, "at_least": at_least}
        other = RemoteWorkspace(self._wire, self._context.with_(**given))
        other._loops = self._loops
        return other

    @property
    def aio(self) -> AsyncRemoteWorkspace:
        """The awaitable twin, for the running event loop."""
        from holdfast.aio import running_loop
        from holdfast.remote.aio import AsyncRemoteWorkspace, AsyncWire

        loop = running_loop()
        wire = self._loops.get(loop)
        if wire is None:
            wire = self._loops[loop] = AsyncWire(self._wire.address, loop, lambda: self._loops.pop(loop, None))
        return AsyncRemoteWorkspace(wire, self._context)

    @property
    def revision(self) -> int:
        """The revision of the newest transaction."""
        revision: int = self._wire.ask("revision", self._context)["revision"]
        return revision

    @property
    def clock_ahead(self) -> float:
        """Seconds by which the workspace's time runs ahead of the server's clock."""
        ahead: float = self._wire.ask("revision", self._context)["clock_ahead"]
        return ahead

    @property
    def actor(self) -> str:
        """Who acts through this object."""
        return str(self._context.actor)

    def check(self) -> Report:
        """Have the server compare the state with the log; needs the role admin."""
        return Report(**self._wire.ask("check", self._context))

    def transact(self, body: Callable[..., R]) -> R:
        """Unsupported: a function does not travel."""
        _no_function("transact")

    def transaction(self) -> NoReturn:
        """Unsupported: a block does not travel."""
        _no_function("transaction")

    def backup(self, path: str) -> Path:
        """Unsupported: a backup is made where the store is."""
        raise no_backup()

    def close(self) -> None:
        """Close the connections; the server goes on."""
        self._wire.close()

    def __enter__(self) -> RemoteWorkspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteWorkspace {self._wire.address.url!r} actor={self.actor!r}>"

    def bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """An operation as a call on the server."""
        wire, context = self._wire, self._context
        if op.kind == "stream":
            return lambda *args, **kwargs: RemoteWatch(wire, Resuming(op, args, kwargs, context))
        if op.route.http is None:
            return lambda *args, **kwargs: _no_function(op.name)
        return lambda *args, **kwargs: wire.call(op, args, kwargs, context)


class RemoteWatch(Generic[E]):
    """An iterator over events as they come from a server. It ends at its timeout; close it or use it in `with`."""

    def __init__(self, wire: Wire, resuming: Resuming) -> None:
        self._events = wire.stream(resuming)
        next(self._events)  # connected: from here on nothing is missed

    def __iter__(self) -> RemoteWatch[E]:
        return self

    def __next__(self) -> E:
        event: E = next(self._events)
        return event

    def close(self) -> None:
        """Stop watching."""
        self._events.close()

    def __enter__(self) -> RemoteWatch[E]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _no_function(name: str) -> NoReturn:
    raise no_function(name)


def connect(
    url: str,
    *,
    token: str | None = None,
    actor: str | None = None,
    timeout: float = 30.0,
    verify: str | bool = True,
) -> RemoteWorkspace:
    """The workspace behind a server: `http://host:port`, `.../NAME` for a named one, `unix:///path` for a socket.

    The token is given, or in HOLDFAST_TOKEN, or in the file that HOLDFAST_TOKEN_FILE names. `verify` is the server's
    certificate if it made its own.
    """
    context = check_context(Context(derive_actor() if actor is None else actor))
    return RemoteWorkspace(Wire(Address(url, token, timeout, verify)), context)
