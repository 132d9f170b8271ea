"""`holdfast.connect`: the same workspace over HTTP, with the same operations, types and errors.

A function of a cell's value (`cells.transition`) runs here, in a loop of compare-and-swap. A body cannot travel, so
`transact` and `transaction` are Unsupported; `txn` can.
A call is tried again only where that is safe: reads, and writes that carry an idempotency key. A watch that loses its
connection resumes by itself behind the last event it gave, without gap or repeat. With several servers, nodes of one
log, both go on at another node.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar
from weakref import WeakKeyDictionary

from holdfast import errors
from holdfast.operation import Handlers, Sync, drive
from holdfast.remote.failover import Address, Nodes, Sent
from holdfast.remote.http1 import Broken, Response
from holdfast.remote.pool import Pool
from holdfast.remote.protocol import (
    Elsewhere,
    Pause,
    Reach,
    RemoteRunner,
    Request,
    Send,
    Steps,
    no_backup,
    no_block,
    no_function,
)
from holdfast.remote.stream import SILENCE, Resuming, check_events
from holdfast.types import Report
from holdfast.workspace.context import Closing, Context, check_context, derive_actor
from holdfast.workspace.transaction import InContext

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from holdfast.remote.aio import AsyncRemoteWorkspace, AsyncWire


R = TypeVar("R")
E = TypeVar("E")


class Wire:
    """The connections to one server, or to several nodes."""

    awaits: Final = False

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self._pools = [Pool(address.peer) for address in nodes.addresses]
        self._closed = False
        self._handlers: Handlers = {Send: self._send, Pause: self._pause, Elsewhere: self._leave}

    def close(self) -> None:
        """Close them."""
        self._closed = True
        for pool in self._pools:
            pool.close()

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Closed("this workspace is closed")

    def drive(self, steps: Steps[R]) -> R:
        """Run the steps of a call to its result."""
        return drive(steps, self._handlers)

    def _pause(self, step: Pause) -> None:
        time.sleep(step.seconds)

    def _leave(self, step: Elsewhere) -> Reach:
        return leave(self.nodes, step)

    def _send(self, step: Send) -> Response:
        self._check_open()
        sent, outgoing = self.nodes.request(step)
        with leaving(self.nodes, sent.node):
            response = self._pools[sent.node].request(outgoing)
        return signed(self.nodes, sent, response)

    def watch(self, resuming: Resuming) -> RemoteWatch[Any]:
        """An iterator over events."""
        return RemoteWatch(self, resuming)

    def stream(self, resuming: Resuming) -> Generator[Any, None, None]:
        """Events as they come, after a first None once it is connected; resumes by itself."""
        begun, resuming.nodes = False, len(self.nodes)
        while True:
            self._check_open()
            broken: Exception | None = None
            sent, outgoing = self.nodes.request(resuming.step(), watch=True)
            try:
                with self._pools[sent.node].stream(outgoing) as answer:
                    if not answer.head.is_success:
                        raise NodeRefused(resuming.refused(answer.read(), answer.head.status))
                    check_events(answer.head)
                    answer.silence = SILENCE
                    for line in answer.lines():
                        events = resuming.heard(line)
                        if resuming.connected and not begun:
                            begun = True
                            yield None
                        yield from events
                        if resuming.over:
                            return
            except (Broken, NodeRefused) as error:
                broken = error
            self.nodes.leave(sent.node)
            time.sleep(resuming.broke(broken))


class NodeRefused(Exception):
    """A node cannot watch, and another may."""


def leave(nodes: Nodes, step: Elsewhere) -> Reach:
    """Leave the node that sent a response, if there is one; returns how many there are, and the time of a call."""
    if step.response is not None:
        nodes.leave(step.response.node)
    return Reach(len(nodes), nodes.addresses[0].timeout)


@contextmanager
def leaving(nodes: Nodes, node: int) -> Iterator[None]:
    """Leave a node if the connection to it breaks."""
    try:
        yield
    except Broken:
        nodes.leave(node)
        raise


def signed(nodes: Nodes, sent: Sent, response: Response) -> Response:
    """The response of a node, which says which one sent it."""
    response.node = sent.node
    if response.is_success and len(nodes) > 1:
        nodes.answered(sent)
    return response


class RemoteWorkspace(InContext[Sync], Closing):
    """A workspace behind a server."""

    def __init__(self, wire: Wire, context: Context) -> None:
        super().__init__(RemoteRunner(wire, context))
        self._wire = wire
        self._context = context
        self._loops: WeakKeyDictionary[AbstractEventLoop, AsyncWire] = WeakKeyDictionary()

    def _within(self, context: Context) -> RemoteWorkspace:
        other = RemoteWorkspace(self._wire, context)
        other._loops = self._loops
        return other

    @property
    def aio(self) -> AsyncRemoteWorkspace:
        """The awaitable twin, for the running event loop."""
        from holdfast.remote.aio import AsyncRemoteWorkspace, AsyncWire
        from holdfast.workspace.aio import running_loop

        loop = running_loop()
        wire = self._loops.get(loop)
        if wire is None:
            wire = self._loops[loop] = AsyncWire(self._wire.nodes, loop, lambda: self._loops.pop(loop, None))
        return AsyncRemoteWorkspace(wire, self._context)

    @property
    def revision(self) -> int:
        """The revision of the newest transaction."""
        return int(self._runner.ask("revision")["revision"])

    @property
    def clock_ahead(self) -> float:
        """Seconds by which the workspace's time runs ahead of the server's clock."""
        return float(self._runner.ask("revision")["clock_ahead"])

    @property
    def actor(self) -> str:
        """The name that calls through this object act under."""
        return str(self._context.actor)

    def whoami(self) -> dict[str, Any]:
        """What the server knows of this caller: `token` (its id), `role`, `actor` if the token is bound to one."""
        told: dict[str, Any] = self._runner.ask("whoami")
        return told

    def check(self) -> Report:
        """Have the server compare the state with the log; needs the role admin."""
        return Report(**self._runner.ask("check"))

    if not TYPE_CHECKING:  # a type checker reports their use

        def transact(self, body: Callable[..., object]) -> NoReturn:
            """Raises Unsupported: a function does not travel. `ws.txn(conditions, then)` does."""
            raise no_function("transact")

        def transaction(self) -> NoReturn:
            """Raises Unsupported: a block does not travel. `ws.txn(conditions, then)` does."""
            raise no_block()

        def backup(self, path: str) -> NoReturn:
            """Raises Unsupported: a backup is made where the store is."""
            raise no_backup()

    def close(self) -> None:
        """Close the connections; the server goes on."""
        self._wire.close()

    def __repr__(self) -> str:
        urls = self._wire.nodes.urls
        return f"<RemoteWorkspace {urls[0] if len(urls) == 1 else urls!r} actor={self.actor!r}>"


class RemoteWatch(Closing, Generic[E]):
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


def connect(
    url: str | Sequence[str],
    *,
    token: str | Sequence[str] | None = None,
    actor: str | None = None,
    timeout: float = 30.0,
    verify: str | bool | Sequence[str] = True,
) -> RemoteWorkspace:
    """The workspace behind a server: `http://host:port`, `.../NAME` for a named one, `unix:///path` for a socket.

    With several, which are nodes of one log, a client that loses its node goes on at the next: its reads never go
    backwards, its writes happen once, its watches resume. The token is given, for all or for each, or in
    HOLDFAST_TOKEN, or in the file that HOLDFAST_TOKEN_FILE names. `verify` is the certificate of a server that made
    its own, or one for each. A call gives up `timeout` seconds after it began, retries included; one that waits for
    others, so much later.
    """
    context = check_context(Context(derive_actor() if actor is None else actor))
    urls = _for_each(url, 1)
    tokens, trusted = _for_each(token, len(urls)), _for_each(verify, len(urls))
    if not urls or len({*map(str, urls)}) < len(urls) or len(tokens) != len(urls) or len(trusted) != len(urls):
        raise errors.Invalid(
            f"{len(urls)} addresses, {len({*map(str, urls)})} different ones, {len(tokens)} tokens and {len(trusted)}"
            " certificates do not go together",
            hint="name each server once, and give one token or certificate for all or one for each",
        )
    each = zip(urls, tokens, trusted, strict=True)
    addresses = [Address(where, own, timeout, trust) for where, own, trust in each]
    return RemoteWorkspace(Wire(Nodes(addresses)), context)


def ask_ticket(url: str, token: str, verify: str | bool) -> str:
    """A ticket that opens the page of a server once, with the rights of a token."""
    address = Address("/".join(url.split("/")[:3]), token, 30.0, verify)
    pool = Pool(address.peer)
    try:
        answer = pool.request(address.outgoing(Send(Request("POST", "/ui/ticket", [], None, False, 0.0), {})))
    except Broken as error:
        raise errors.Unreachable(f"{address.url} does not answer: {error}") from error
    finally:
        pool.close()
    if answer.status == 401:
        raise errors.Unauthorized(f"{address.url} does not know this token", hint=f"holdfast login {url}")
    try:
        if answer.status != 201:
            raise ValueError
        return str(json.loads(answer.content)["ticket"])
    except (ValueError, KeyError, TypeError) as error:
        raise errors.Unavailable(f"{address.url} answered {answer.status}", hint="it may be an older server") from error


def _for_each(given: Any, count: int) -> list[Any]:
    """What was given for each server, or for all."""
    return list(given) if isinstance(given, list | tuple) else [given] * count
