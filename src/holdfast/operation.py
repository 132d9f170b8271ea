"""Operations: one definition, from which Python, remote Python, HTTP, the command line and MCP are derived.

A domain is a module of functions over a transaction, and a class whose body is the table of its operations:

    class Cells(Domain[M]):
        set = write(set_cell, http="PUT /api/cells/{run}/{cell}", cli="cell set", mcp=True)

On `ws.cells` the method opens a transaction, on `tx.cells` it runs inside one, on `ws.aio.cells` it is awaitable;
the types follow. What several transactions and waits make up (waiting for a lock, say) is a procedure: a generator
of steps, written once and driven by threads and event loops alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

import msgspec

from holdfast.kernel.events import Filter
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.wake import Watcher
from holdfast.types import Event

if TYPE_CHECKING:
    from holdfast.workspace import Watch
    from holdfast.workspace.aio import AsyncWatch


class Sync:
    """Marks a domain whose operations return."""


class Async:
    """Marks a domain whose operations are awaited."""


P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")
S = TypeVar("S")  # a step
M = TypeVar("M", Sync, Async)

Kind = Literal["read", "write", "procedure", "first", "stream"]
REGISTRY: dict[str, Operation[..., Any]] = {}  # of the domains that are loaded
LATE: dict[str, str] = {}  # domains that are loaded when first used, and their modules


def operation(name: str) -> Operation[..., Any]:
    """An entry of the table, loading its domain if need be; KeyError if there is none."""
    home = LATE.get(name.partition(".")[0])
    if name not in REGISTRY and home is not None:
        import_module(home)
    return REGISTRY[name]


def find_operation(name: Any) -> Operation[..., Any] | None:
    """An entry of the table, or None for whatever else was given as its name."""
    try:
        return operation(name)
    except (KeyError, TypeError, AttributeError):
        return None


def load_all() -> None:
    """Load every domain: afterwards the table is whole."""
    for home in LATE.values():
        import_module(home)


class Alias(msgspec.Struct, frozen=True):
    """Another word for an argument on the wire. `opposite`: true says false of ours, and false says nothing."""

    name: str
    of: str
    opposite: bool = False


class Route(msgspec.Struct, frozen=True):
    """What the faces need to know of an operation.

    `also` are other addresses of it, `aliases` other words for its arguments. A stream may have the address of another
    operation: who asks for events gets the stream. `local`: takes a function, so it cannot travel. `heavy`: may take
    seconds, so a server does it beside its loop.
    """

    http: str | None = None
    cli: str | None = None
    mcp: bool = False
    also: tuple[str, ...] = ()
    aliases: tuple[Alias, ...] = ()
    local: bool = False
    heavy: bool = False


class Domain(Generic[M]):
    """A group of operations on a runner; subclasses list them."""

    prefix: ClassVar[str]

    def __init__(self, runner: Any) -> None:
        self._runner = runner


class Operation(Generic[P, R]):
    """An entry of the table: a function, its name, its kind and its routes."""

    def __init__(
        self,
        kind: Kind,
        function: Callable[..., Any],
        route: Route,
        *,
        listing: bool = False,
        plain: bool = False,
        routed: bool = False,
        personal: bool = False,
        looking: bool = False,
    ) -> None:
        self.kind = kind
        self.function = function
        self.route = route
        self.listing = listing  # sweeps first if something is due
        self.plain = plain  # reads with one statement, which is a snapshot by itself
        self.routed = routed  # asks the routing rules, so a changed file is loaded first
        self.personal = personal  # a read that also gets to know who asks
        self.writes = kind in ("write", "procedure") and not looking  # a procedure may also only look
        self.name = ""

    def __set_name__(self, owner: type[Domain[Any]], name: str) -> None:
        self.method = name
        self.name = f"{owner.prefix}.{name}" if owner.prefix else name
        REGISTRY[self.name] = self

    def bind(self, domain: Domain[Any]) -> Any:
        """The callable for one domain object, remembered there so that the next look-up is a plain attribute."""
        bound = domain._runner.bind(self)
        bound.__name__ = bound.__qualname__ = self.name
        bound.__doc__ = self.function.__doc__
        domain.__dict__[self.method] = bound
        return bound

    def asked_by(self, actor: str) -> Callable[..., Any]:
        """The function of a read, as this actor asks it."""
        function = self.function
        return (lambda at, *args, **kwargs: function(at, actor, *args, **kwargs)) if self.personal else function

    @property
    def given(self) -> int:
        """How many of its function's arguments the caller does not give: the transaction, and who asks."""
        return 0 if self.kind == "procedure" else 1 + self.personal

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


class Call(Operation[P, R]):
    """An operation that answers one result."""

    @overload
    def __get__(self, domain: None, owner: type) -> Call[P, R]: ...
    @overload
    def __get__(self, domain: Domain[Async], owner: type) -> Callable[P, Awaitable[R]]: ...
    @overload
    def __get__(self, domain: Domain[Sync], owner: type) -> Callable[P, R]: ...
    def __get__(self, domain: Domain[Any] | None, owner: type) -> Any:
        return self if domain is None else self.bind(domain)


class Stream(Operation[P, R]):
    """An operation that answers an iterator of events."""

    @overload
    def __get__(self, domain: None, owner: type) -> Stream[P, R]: ...
    @overload
    def __get__(self, domain: Domain[Async], owner: type) -> Callable[P, AsyncWatch[R]]: ...
    @overload
    def __get__(self, domain: Domain[Sync], owner: type) -> Callable[P, Watch[R]]: ...
    def __get__(self, domain: Domain[Any] | None, owner: type) -> Any:
        return self if domain is None else self.bind(domain)


# --- what procedures and streams are made of -------------------------------------------------------------------------


class Do(msgspec.Struct, frozen=True):
    """Run a body in a transaction. `keyed`: it is the one whose answer an idempotency key keeps."""

    body: Callable[[Tx], Any]
    keyed: bool = False


class Look(msgspec.Struct, frozen=True):
    """Read beforehand, to save the transaction; a fenced or keyed call does not, and gets None.

    It gets to know who asks. `whole`: all its statements see one snapshot.
    """

    read: Callable[[Snapshot, str], Any]
    whole: bool = False


class Deadline(msgspec.Struct, frozen=True):
    """Answers the moment `seconds` from now, for `Next`."""

    seconds: float


class Listen(msgspec.Struct, frozen=True):
    """Start a watcher, from now on."""

    wanted: Filter


class Next(msgspec.Struct, frozen=True):
    """Wait for the watcher's next event; None at the deadline."""

    watcher: Watcher
    deadline: int | None


class ReadFile(msgspec.Struct, frozen=True):
    """Read a file of the workspace's folder: its path and text, None if there is none."""

    name: str


Step = Do | Look | Deadline | Listen | Next | ReadFile
Steps = Generator[Step, Any, R]


def drive(steps: Generator[S, Any, R], perform: Callable[[S], Any]) -> R:
    """Run steps to their result."""
    try:
        step = next(steps)
        while True:
            try:
                answer = perform(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        result: R = stop.value
        return result


async def drive_async(steps: Generator[S, Any, R], perform: Callable[[S], Awaitable[Any]]) -> R:
    """Run steps to their result, on an event loop.

    Once it is cancelled, what the steps still do to clean up runs to its end, also if it is cancelled again.
    """
    from asyncio import CancelledError, ensure_future, shield

    ending = False
    try:
        step = next(steps)
        while True:
            try:
                answer = await (shield(ensure_future(perform(step))) if ending else perform(step))
            except BaseException as error:
                ending = ending or isinstance(error, CancelledError)
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        result: R = stop.value
        return result


class Following(msgspec.Struct, Generic[E], frozen=True):
    """What a stream reads: which events, from where, for how long, and what to make of each."""

    wanted: Filter
    after: int | str | None
    timeout: float | None
    convert: Callable[[Snapshot, Event], E]


class Found(msgspec.Struct, frozen=True):
    """What a condition of `txn` sees of a record that exists."""

    version: int
    value: Any


# --- how a domain's table is written ---------------------------------------------------------------------------------


def read(
    function: Callable[Concatenate[Snapshot, P], R],
    http: str | None = None,
    cli: str | None = None,
    mcp: bool = False,
    *,
    listing: bool = False,
    plain: bool = False,
    routed: bool = False,
    heavy: bool = False,
) -> Call[P, R]:
    """A read. `listing` sweeps first if something is due; `plain` promises to use a single statement."""
    return Call("read", function, Route(http, cli, mcp, heavy=heavy), listing=listing, plain=plain, routed=routed)


def read_as(
    function: Callable[Concatenate[Snapshot, str, P], R],
    http: str | None = None,
    cli: str | None = None,
    mcp: bool = False,
    *,
    listing: bool = False,
) -> Call[P, R]:
    """A read whose answer depends on who asks: the function gets the actor too."""
    return Call("read", function, Route(http, cli, mcp), listing=listing, personal=True)


def write(
    function: Callable[Concatenate[Tx, P], R],
    http: str | None = None,
    cli: str | None = None,
    mcp: bool = False,
    *,
    also: tuple[str, ...] = (),
    aliases: tuple[Alias, ...] = (),
    local: bool = False,
    routed: bool = False,
    heavy: bool = False,
) -> Call[P, R]:
    """A write: one transaction."""
    return Call("write", function, Route(http, cli, mcp, also, aliases, local, heavy), routed=routed)


def procedure(
    function: Callable[P, Steps[R]],
    http: str | None = None,
    cli: str | None = None,
    mcp: bool = False,
    *,
    routed: bool = False,
    heavy: bool = False,
    looking: bool = False,
) -> Call[P, R]:
    """Several transactions and waits; `looking` promises to change nothing."""
    return Call("procedure", function, Route(http, cli, mcp, heavy=heavy), routed=routed, looking=looking)


def first(
    function: Callable[Concatenate[Snapshot, P], Following[E]],
    http: str | None = None,
    cli: str | None = None,
    mcp: bool = False,
) -> Call[P, E | None]:
    """The next event of a stream, or None at its timeout."""
    return Call("first", function, Route(http, cli, mcp))


def stream(
    function: Callable[Concatenate[Snapshot, P], Following[E]],
    http: str | None = None,
    cli: str | None = None,
    mcp: bool = False,
) -> Stream[P, E]:
    """An iterator of events that ends at its timeout."""
    return Stream("stream", function, Route(http, cli, mcp))
