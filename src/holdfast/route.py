"""What a line of a domain's table says of its operation: address, rights, tokens, usage, help, examples.

Every face reads it, so a fact about an operation stands in one place: on its line. So is the observer of calls,
which everything that makes or carries them asks for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from holdfast.arguments import Meaning

Role = Literal["read", "agent", "admin"]  # each may do what those before it may
ANY: Final = "*"  # every value of an argument


class Alias(msgspec.Struct, frozen=True):
    """Another word for an argument on the wire. `opposite`: true says false of ours, and false says nothing."""

    name: str
    of: str
    opposite: bool = False


class Example(msgspec.Struct, frozen=True):
    """A line of the shell for help and docs/cli.md, and the lines that must run before it. A test runs every one.

    They speak of two tasks, hf-7k2q and hf-3m9x, which the test makes, and act as agent-1.
    """

    line: str
    after: tuple[str, ...] = ()


def example(line: str, *after: str) -> Example:
    """An example that needs other lines before it."""
    return Example(line, after)


class Held(msgspec.Struct, frozen=True):
    """What the operations of a domain grant and free: something with one holder and a fencing token.

    `arguments` name it in a call, `fields` in a result, whose field `holder` says who has it. `lookup` is the read that
    finds it by a path such as TRAIL/NAME; its token is remembered under its id.
    """

    kind: str
    arguments: tuple[str, ...]
    fields: tuple[str, ...]
    holder: str = "holder"
    lookup: str = ""


# Held while a domain, or a module that needs several, is loaded on first use. Without it two threads that import a
# package and a module inside it wait for each other, and Python hands one of them a module that is not whole.
LOADING: Final = threading.RLock()


class Late:
    """A module of functions for a table, loaded when one of them is first used: an agent starts us for every call."""

    def __init__(self, module: str, name: str = "") -> None:
        self._module = module
        self._name = name

    def __getattr__(self, name: str) -> Late:
        return Late(self._module, name)

    def load(self) -> Callable[..., Any]:
        """The function."""
        with LOADING:
            function: Callable[..., Any] = getattr(import_module(self._module), self._name)
        return function


if TYPE_CHECKING:  # making it takes longer than all other classes here
    from contextlib import AbstractContextManager
    from typing import TypedDict

    from holdfast.operation import Operation

    class Declared(TypedDict, total=False):
        """What a line of a domain's table can say; see `Route`."""

        http: str
        also: tuple[str, ...]
        aliases: tuple[Alias, ...]
        heavy: bool
        body: int
        creates: bool
        finds: str
        answers: bool
        role: Role
        admin_only: Mapping[str, object]
        private: bool
        names_actor: str
        confined_by: str
        grants: bool
        frees: bool
        whole: bool
        irreversible: str
        done: tuple[str, ...]
        nothing: tuple[str, ...]
        nests: bool
        shapes: Mapping[str, Any]
        arguments: Mapping[str, Meaning | str]
        cli: str
        help: str
        examples: tuple[str | Example, ...]
        mcp: str


class Route(msgspec.Struct, frozen=True):
    """What the faces need to know of an operation.

    HTTP: `http` is its address, `also` are other ones, and `aliases` other words for its arguments. A stream may share
    the address of another operation: a client that accepts events gets the stream. `heavy`: it may take seconds, so a
    server runs it in a thread. `body`: how many bytes a request may have. `creates`: the answer is 201. `finds`:
    an argument with which it may find there already what it would add: then it is 200. `answers`: a
    DELETE returns what is left, and not 204.

    Rights: `role` is what a token needs (read, or agent for what writes, unless said); `admin_only` has values of
    arguments that take the role admin (ANY: any value), besides `force`, which always does. A token bound to an actor
    acts for nobody else: `names_actor` is an argument that says who acts, besides those that always do; `private` marks
    a read that is made for one actor; `confined_by` is the argument that confines an operation to what its actor holds.

    Tokens: `grants` and `frees` what its domain calls `held`. `irreversible`: what nobody can undo, as a
    sentence with arguments in braces: a person is asked first. `nests`: it runs other operations. `local`: it takes a
    function, so it cannot travel.

    Command line: `cli` is the command and its positional arguments, as in "tag add ID TAGS..." (`...` takes all that
    are left, brackets enclose what may be omitted; without any, the required arguments are positional), `help` its
    purpose in a sentence, `examples` lines that run. `done`: the sentence for people in place of a bare True, number or
    nothing, with arguments and the result in braces, as in {result:tasks}; `nothing`: what to say if the result is
    False, 0 or an empty list. Of several the first counts whose arguments were given. `whole`: a list shows each record
    with its text. `arguments` describes those that mean something else than `holdfast.arguments` says; `shapes` has
    what is known of a dict beyond its type: a type, or the name of the operation whose arguments it holds. `mcp` is the
    tool of the core profile that does it, with the argument that says so.
    """

    http: str | None = None
    also: tuple[str, ...] = ()
    aliases: tuple[Alias, ...] = ()
    heavy: bool = False
    body: int = 4 * 1024 * 1024
    creates: bool = False
    finds: str = ""
    answers: bool = False
    role: Role | None = None
    admin_only: Mapping[str, object] = {}
    private: bool = False
    names_actor: str = ""
    confined_by: str = ""
    grants: bool = False
    frees: bool = False
    whole: bool = False
    irreversible: str = ""
    done: tuple[str, ...] = ()
    nothing: tuple[str, ...] = ()
    nests: bool = False
    local: bool = False
    shapes: Mapping[str, Any] = {}
    arguments: Mapping[str, Meaning | str] = {}
    cli: str | None = None
    help: str = ""
    examples: tuple[str | Example, ...] = ()
    mcp: str = ""


# --- who sees the calls ----------------------------------------------------------------------------------------------


class Observer(Protocol):
    """Sees the calls of operations, and their way from one process to another."""

    def bind(self, op: Operation[..., Any], runner: Any) -> Callable[..., Any]:
        """What `runner.bind(op)` returns, observed."""

    def incoming(self, carrier: Mapping[str, str]) -> AbstractContextManager[None]:
        """A block that serves a request with these headers."""

    def outgoing(self, headers: dict[str, str]) -> None:
        """Add the trace of the caller to the headers of a request."""


class Observed:
    """The observer of operations: none, unless `holdfast.telemetry` is on."""

    by: Observer | None = None


OBSERVED: Final = Observed()


# --- who hears that nothing was added --------------------------------------------------------------------------------

_EXISTED: Final = ContextVar[list[bool] | None]("holdfast-existed", default=None)


@contextmanager
def hearing_existed() -> Iterator[list[bool]]:
    """A block of a face: the list is not empty once a call of it has found there already what it would add."""
    heard = list[bool]()
    before = _EXISTED.set(heard)
    try:
        yield heard
    finally:
        _EXISTED.reset(before)


def say_existed() -> None:
    """Say to the face that made this call, if one listens, that it has added nothing."""
    heard = _EXISTED.get()
    if heard is not None:
        heard.append(True)
