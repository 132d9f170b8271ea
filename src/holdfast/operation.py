"""Operations: one definition, from which Python, remote Python, HTTP, the command line and MCP are derived.

A domain is a module of functions over a transaction, and a class whose body is the table of its operations:

    class Cells(Domain[M]):
        set = write(set_cell, http="PUT /api/cells/{run}/{cell}", cli="cell set", help="Write a cell.")

Whatever a face needs to know of an operation is said on its line (`Route`), and nowhere else.

On `ws.cells` the method opens a transaction, on `tx.cells` it runs inside one, on `ws.aio.cells` it is awaitable;
the types follow. What several transactions and waits make up (waiting for a lock, say) is a procedure: a generator
of steps, written once and driven by threads and event loops alike.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

import msgspec

from holdfast.kernel.events import Filter
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.wake import Watcher
from holdfast.route import OBSERVED, Held, Late, Role, Route
from holdfast.types import Event

if TYPE_CHECKING:
    from inspect import Signature

    from holdfast.route import Declared
    from holdfast.workspace.watch import AsyncWatch, Watch


class Sync:
    """Marks a domain whose operations return."""


class Async:
    """Marks a domain whose operations are awaited."""


P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")
M = TypeVar("M", Sync, Async)

Kind = Literal["read", "write", "procedure", "first", "stream"]


class Registry(Mapping[str, "Operation[..., Any]"]):
    """Every operation by name, whatever has been imported: a look-up loads the domain it needs, a listing loads all."""

    def __init__(self) -> None:
        self._loaded: dict[str, Operation[..., Any]] = {}

    def add(self, op: Operation[..., Any]) -> None:
        """Enter an operation, as its domain is being defined."""
        self._loaded[op.name] = op

    def __getitem__(self, name: str) -> Operation[..., Any]:
        if name not in self._loaded:
            self._load(name.rpartition(".")[0])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._loaded)

    def __len__(self) -> int:
        self._load()
        return len(self._loaded)

    def within(self, domain: str) -> list[Operation[..., Any]]:
        """The operations of one domain, loading no other; of a workspace itself if it is ""."""
        self._load(domain)
        return [op for op in self._loaded.values() if op.name.rpartition(".")[0] == domain]

    @staticmethod
    def _load(domain: str | None = None) -> None:
        """Load a domain, or all of them. The workspace alone knows where they are."""
        import_module("holdfast.workspace.registry").load(domain)


REGISTRY = Registry()
operation = REGISTRY.__getitem__


def find_operation(name: Any) -> Operation[..., Any] | None:
    """An operation by name, or None for anything else."""
    return REGISTRY.get(name) if isinstance(name, str) else None


class Domain(Generic[M]):
    """A group of operations on a runner; subclasses list them."""

    prefix: ClassVar[str]
    held: ClassVar[Held | None] = None

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def __dir__(self) -> list[str]:
        """What a user can call; `help` shows the signature of each."""
        return [name for name in dir(type(self)) if not name.startswith("_") and name not in ("held", "prefix")]


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
        reloads_rules: bool = False,
        personal: bool = False,
        looking: bool = False,
    ) -> None:
        self.kind = kind
        self._given = function
        self.route = route
        self.listing = listing  # sweeps first if something is due
        self.plain = plain  # reads with one statement, which is a snapshot by itself
        self.reloads_rules = reloads_rules  # asks the routing rules, so a changed file is loaded first
        self.personal = personal  # a read whose function gets the actor too
        self.writes = kind in ("write", "procedure") and not looking  # a procedure may also only look
        self.name = ""
        self.held: Held | None = None
        self._annotations: dict[bool, dict[str, Any]] = {}

    def __set_name__(self, owner: type[Domain[Any]], name: str) -> None:
        self.method = self.__name__ = name
        self.__qualname__ = f"{owner.__name__}.{name}"
        self.__module__ = owner.__module__
        self.name = f"{owner.prefix}.{name}" if owner.prefix else name
        self.held = owner.held
        REGISTRY.add(self)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """What it does."""
        function = self._given.load() if isinstance(self._given, Late) else self._given
        self.__doc__ = function.__doc__
        return function

    def bind(self, domain: Domain[Any]) -> Any:
        """The callable for one domain object, kept there so that the next look-up is a plain attribute."""
        runner = domain._runner
        awaited: bool = getattr(runner, "awaits", False)
        bound: Any = runner.bind(self) if OBSERVED.by is None else OBSERVED.by.bind(self, runner)
        bound.__name__ = self.method
        bound.__qualname__ = self.__qualname__
        bound.__module__ = self.__module__
        bound.__doc__ = self.__doc__
        bound.__annotations__ = self._annotations.get(awaited) or self.annotations(awaited)
        bound.__wrapped__ = Shown(self, awaited)
        domain.__dict__[self.method] = bound
        return bound

    def __call__(self, domain: Domain[Any], /, *args: Any, **kwargs: Any) -> Any:
        """The same as on the domain: `Tasks.create(ws.tasks, "title")`. With it, `help` shows a method."""
        return getattr(domain, self.method)(*args, **kwargs)

    def annotations(self, awaited: bool) -> dict[str, Any]:
        """The annotations of a call, as they are written: resolving them costs more than most calls."""
        names = self.function.__code__.co_varnames[: self.implicit_args]
        found = {name: each for name, each in self.function.__annotations__.items() if name not in names}
        found["return"] = _returned(self.kind, found["return"], awaited)
        self._annotations[awaited] = found
        return found

    @cached_property
    def accepted(self) -> Signature:
        """What a caller may pass, without types."""
        from inspect import Signature, signature

        found = list(signature(self.function).parameters.values())[self.implicit_args :]
        return Signature([each.replace(annotation=each.empty) for each in found])

    def check_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError, about the call and not about its function, unless the call takes these arguments."""
        try:
            self.accepted.bind(*args, **kwargs)
        except TypeError as error:
            from holdfast.arguments import ELSEWHERE, meant  # errors are rare

            elsewhere, names = ELSEWHERE.get(self.name, {}), self.accepted.parameters
            strange = (name for name in kwargs if name not in names)
            more = "".join(f"; {how}" for name in strange if (how := elsewhere.get(name) or meant(name, names)))
            raise TypeError(f"{self.name}(): {error}; it takes {self.accepted}{more}") from None

    def signature(self, awaited: bool = False) -> Signature:
        """The signature of a call, with real types."""
        from inspect import signature
        from types import SimpleNamespace
        from typing import get_type_hints

        hints = get_type_hints(SimpleNamespace(__annotations__=self.annotations(awaited), __wrapped__=self.function))
        whole = signature(self.function)
        parameters = list(whole.parameters.values())[self.implicit_args :]
        return whole.replace(
            parameters=[each.replace(annotation=hints[each.name]) for each in parameters],
            return_annotation=hints["return"],
        )

    @property
    def __signature__(self) -> Signature:
        from inspect import Parameter

        called = self.signature()
        own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        return called.replace(parameters=[own, *called.parameters.values()])

    def on(self, workspace: Any) -> Callable[..., Any]:
        """The operation as a call of a workspace or transaction."""
        domain = self.name.rpartition(".")[0]
        call: Callable[..., Any] = getattr(getattr(workspace, domain) if domain else workspace, self.method)
        return call

    def asked_by(self, actor: str) -> Callable[..., Any]:
        """The function of a read, for this actor."""
        function = self.function
        return (lambda at, *args, **kwargs: function(at, actor, *args, **kwargs)) if self.personal else function

    @property
    def implicit_args(self) -> int:
        """Leading parameters supplied by the runner: the transaction, and the actor of a personal read."""
        return 0 if self.kind == "procedure" else 1 + self.personal

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    @property
    def role(self) -> Role:
        """The role that a token needs for it."""
        return self.route.role or ("agent" if self.writes else "read")

    @property
    def command(self) -> str | None:
        """The name of its command: what is not a positional argument."""
        usage = self.route.cli
        return usage if usage is None or usage.islower() else " ".join(filter(str.islower, usage.split()))

    def takes(self, name: str) -> bool:
        """Whether it has an argument of this name."""
        return name in self.function.__annotations__


class Shown:
    """What `help` and `inspect` see of a bound operation: computed when somebody looks, because binding is hot."""

    __slots__ = ("_awaited", "op")

    def __init__(self, op: Operation[..., Any], awaited: bool) -> None:
        self.op = op
        self._awaited = awaited

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.op.function

    @property
    def __signature__(self) -> Signature:
        return self.op.signature(self._awaited)


def operation_of(call: Any) -> Operation[..., Any]:
    """The operation that a call such as `ws.tasks.create` runs."""
    op: Operation[..., Any] = call.__wrapped__.op
    return op


def _returned(kind: Kind, annotation: str, awaited: bool) -> Any:
    """The annotation of what a call returns, given that of its function, which is text."""
    from holdfast.workspace.watch import AsyncWatch, Watch

    inner = annotation.partition("[")[2][:-1]
    match kind:
        case "stream":
            return (AsyncWatch if awaited else Watch)[inner]
        case "first":
            annotation = f"{inner} | None"
        case "procedure":
            annotation = inner
    return Coroutine[Any, Any, annotation] if awaited else annotation  # type: ignore[valid-type]


class Call(Operation[P, R]):
    """An operation that returns one result."""

    @overload
    def __get__(self, domain: None, owner: type) -> Call[P, R]: ...
    @overload
    def __get__(self, domain: Domain[Async], owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, domain: Domain[Sync], owner: type) -> Callable[P, R]: ...
    def __get__(self, domain: Domain[Any] | None, owner: type) -> Any:
        return self if domain is None else self.bind(domain)


class Stream(Operation[P, R]):
    """An operation that returns an iterator of events."""

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
    """Run a body in a transaction. `keyed`: it is the one whose result an idempotency key keeps."""

    body: Callable[[Tx], Any]
    keyed: bool = False


class Look(msgspec.Struct, frozen=True):
    """Read beforehand, to save the transaction; a fenced or keyed call does not, and gets None.

    `read` gets the snapshot and the actor. `whole`: all its statements see one snapshot. `needed`: there is no
    transaction to save, so every call reads, after a sweep if something is due.
    """

    read: Callable[[Snapshot, str], Any]
    whole: bool = False
    needed: bool = False


class Deadline(msgspec.Struct, frozen=True):
    """The moment `seconds` from now, for `Next`."""

    seconds: float


class Listen(msgspec.Struct, frozen=True):
    """Start a watcher, from now on."""

    wanted: Filter


class Next(msgspec.Struct, frozen=True):
    """Wait for the watcher's next event; None at the deadline."""

    watcher: Watcher
    deadline: int | None


class ReadFile(msgspec.Struct, frozen=True):
    """Read a file of the workspace's folder: its path and text, or None if it does not exist."""

    name: str


class IsGuarded(msgspec.Struct, frozen=True):
    """Ask whether one transaction must decide the call: it is fenced, keyed, or a part of a transaction."""


class Existed(msgspec.Struct, frozen=True):
    """Say that what the call would add was there already; a transaction has no face that hears it."""


Step = Do | Look | Deadline | Listen | Next | ReadFile | IsGuarded | Existed
Steps = Generator[Step, Any, R]
# How each kind of step is done: by threads, on an event loop, inside a transaction, over HTTP.
Handlers = Mapping[type, Callable[[Any], Any]]


def drive(steps: Generator[Any, Any, R], handlers: Handlers) -> R:
    """Run steps to their result."""
    try:
        step = next(steps)
        while True:
            try:
                answer = handlers[type(step)](step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        result: R = stop.value
        return result


async def drive_async(steps: Generator[Any, Any, R], handlers: Handlers) -> R:
    """Run steps to their result on an event loop; a handler may return an awaitable.

    Once it is cancelled, what the steps still do to clean up runs to its end, also if it is cancelled again.
    """
    from asyncio import CancelledError, ensure_future, shield  # programs without an event loop need it not

    ending = False
    try:
        step = next(steps)
        while True:
            try:
                answer = handlers[type(step)](step)
                if hasattr(answer, "__await__"):
                    answer = await (shield(ensure_future(answer)) if ending else answer)
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
    *,
    listing: bool = False,
    plain: bool = False,
    reloads_rules: bool = False,
    **declared: Unpack[Declared],
) -> Call[P, R]:
    """A read. `listing` sweeps first if something is due; `plain` promises to use a single statement."""
    return Call("read", function, Route(**declared), listing=listing, plain=plain, reloads_rules=reloads_rules)


def read_as(
    function: Callable[Concatenate[Snapshot, str, P], R],
    *,
    listing: bool = False,
    reloads_rules: bool = False,
    **declared: Unpack[Declared],
) -> Call[P, R]:
    """A read whose result depends on the actor: the function gets it too."""
    return Call("read", function, Route(**declared), listing=listing, personal=True, reloads_rules=reloads_rules)


def write(
    function: Callable[Concatenate[Tx, P], R],
    *,
    local: bool = False,
    reloads_rules: bool = False,
    **declared: Unpack[Declared],
) -> Call[P, R]:
    """A write: one transaction. `local`: it takes a function, so it cannot travel."""
    return Call("write", function, Route(local=local, **declared), reloads_rules=reloads_rules)


def procedure(
    function: Callable[P, Steps[R]], *, reloads_rules: bool = False, looking: bool = False, **declared: Unpack[Declared]
) -> Call[P, R]:
    """Several transactions and waits; `looking` promises to change nothing."""
    return Call("procedure", function, Route(**declared), reloads_rules=reloads_rules, looking=looking)


def first(
    function: Callable[Concatenate[Snapshot, P], Following[E]], **declared: Unpack[Declared]
) -> Call[P, E | None]:
    """The next event of a stream, or None at its timeout."""
    return Call("first", function, Route(**declared))


def stream(function: Callable[Concatenate[Snapshot, P], Following[E]], **declared: Unpack[Declared]) -> Stream[P, E]:
    """An iterator of events that ends at its timeout."""
    return Stream("stream", function, Route(**declared))
