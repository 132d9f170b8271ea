"""The workspace: what users hold.

`open(path)` gives a `Workspace`; its domains (`ws.cells`, `ws.locks`, ...) run each operation as a transaction of
its own. `Transaction`, which `ws.transact(body)` and `with ws.transaction()` hand out, has the same domains and
runs them inside one transaction. `ws.aio` is the awaitable twin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from holdfast import errors
from holdfast.domains.routing import FILES
from holdfast.kernel.activity import Progress, listen
from holdfast.kernel.clock import Clock, Signal
from holdfast.kernel.engine import Engine
from holdfast.kernel.events import marks
from holdfast.kernel.leases import next_deadline
from holdfast.kernel.tx import Snapshot
from holdfast.kernel.validate import check_seconds
from holdfast.kernel.values import MAX_VALUE_BYTES
from holdfast.kernel.wake import Watcher
from holdfast.operation import (
    Deadline,
    Do,
    Following,
    Listen,
    Look,
    Next,
    Operation,
    ReadFile,
    Step,
    Sync,
    drive,
    operation,
)
from holdfast.types import Event, Op, Report
from holdfast.workspace.context import (
    LATEST,
    PLAIN_ANSWERS,
    Body,
    Context,
    Fence,
    check_context,
    check_reached,
    derive_actor,
    digest_of,
    surround,
    typed_answers,
)
from holdfast.workspace.rulefiles import Files, read_file
from holdfast.workspace.transaction import CHECKERS, Root, Transaction, user_body

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.replication.log import CommitLog
    from holdfast.replication.replica import Replica
    from holdfast.workspace.aio import AsyncWorkspace

R = TypeVar("R")
E = TypeVar("E")


def next_event(engine: Engine, watcher: Watcher, deadline: int | None) -> Event | None:
    """Sleep until the watcher has an event, or None at the deadline."""
    signal = watcher.signal
    assert isinstance(signal, Signal)
    while True:
        event = watcher.take()
        if event is not None or (deadline is not None and engine.clock.monotonic() >= deadline):
            return event
        engine.clock.wait_until(deadline, signal)


class Watch(Generic[E]):
    """An iterator over events as they come. It ends at its timeout; close it, use it in `with`, or just drop it."""

    def __init__(self, engine: Engine, following: Following[E]) -> None:
        timeout = check_seconds(following.timeout, "timeout", True)
        self._engine = engine
        self._convert = following.convert
        self._deadline = None if timeout is None else engine.clock.monotonic() + timeout
        engine.check_usable()
        self._watcher = engine.watch(following.wanted, following.after, Signal())

    def __iter__(self) -> Watch[E]:
        return self

    def __next__(self) -> E:
        self._engine.check_usable()
        event = next_event(self._engine, self._watcher, self._deadline)
        if event is None:
            self.close()
            raise StopIteration
        item: E = self._engine.read(lambda snapshot: self._convert(snapshot, event))
        return item

    def close(self) -> None:
        """Stop watching."""
        self._watcher.close()

    def __enter__(self) -> Watch[E]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Workspace(Root[Sync]):
    """One workspace, for use by any number of threads. Close it, or use it as a context manager."""

    def __init__(self, engine: Engine, context: Context, files: Files | None = None) -> None:
        super().__init__(self)
        self._engine = engine
        self._context = context
        self._files = files or Files(engine.folder)
        self._aio: AsyncWorkspace | None = None

    # what a user calls

    def using(
        self,
        actor: str | None = None,
        fence: Fence | None = None,
        key: str | None = None,
        at_least: int | Literal["latest"] | None = None,
    ) -> Workspace:
        """The same workspace for calls with this actor, fence, key or at_least; what is not given stays as it was.

        `at_least` is a revision that a read must have reached, or "latest": whatever was acknowledged before, anywhere.
        """
        given = {"actor": actor, "fence": fence, "key": key, "at_least": at_least}
        return Workspace(self._engine, self._context.with_(**given), self._files)

    def acting(self, context: Context) -> Workspace:
        """The same workspace for calls in this context, whole: for faces, which read it off a request."""
        return Workspace(self._engine, check_context(context), self._files)

    def transact(self, body: Callable[[Transaction], R]) -> R:
        """Run `body(tx)` in one transaction and answer its result once that is durable.

        The body may run again, perhaps in another thread: it touches nothing but its `tx`.
        """
        self.load_files()
        result: R = self._engine.submit(self.transact_body(body), self._context.actor)
        return result

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One transaction around a block: committed at its end, rolled back if it raises or takes more than 5 s."""
        from holdfast.kernel.group import interactive

        if self._context.key is not None:
            raise errors.Invalid("a block cannot be skipped, so it cannot have a key", hint="use ws.transact(body)")
        self.load_files()
        with interactive(self._engine.group, self._context.actor, self._engine.transaction_timeout) as tx:
            surround(self._context, lambda _: None, "transaction", b"", PLAIN_ANSWERS)(tx)
            yield Transaction(tx)

    @property
    def aio(self) -> AsyncWorkspace:
        """The awaitable twin, for the running event loop."""
        from holdfast.workspace import aio as aio

        if self._aio is None or self._aio.loop is not aio.running_loop():
            self._aio = aio.AsyncWorkspace(self)
        return self._aio

    @property
    def revision(self) -> int:
        """The revision of the newest transaction."""
        revision: int = self._engine.read(lambda snapshot: marks(snapshot)[0])
        return revision

    @property
    def actor(self) -> str:
        """Who acts through this object."""
        return str(self._context.actor)

    @property
    def clock_ahead(self) -> float:
        """Seconds by which the workspace's time runs ahead of this machine's clock; above 300 one of them is wrong."""
        _, stamp = self._engine.read(next_deadline)
        return self._engine.time.ahead(stamp) / 1e6

    def check(self) -> Report:
        """Compare the state with the log and have SQLite check the file; `report.ok` if nothing was found."""
        from holdfast.kernel import maintenance

        report: Report = self._engine.read_snapshot(lambda snapshot: maintenance.check(snapshot, CHECKERS))
        return report

    def backup(self, path: str | os.PathLike[str]) -> Path:
        """Write a consistent copy to a new file while others go on; `holdfast.restore` makes a workspace of it."""
        from pathlib import Path

        from holdfast.kernel import maintenance

        target = Path(path)
        self.reach()
        self._engine.read(
            lambda snapshot: snapshot.copy_to(lambda c: maintenance.backup(c, target, self._engine.clock.wall()))
        )
        return target

    def checkpoint(self) -> None:
        """Bring the write-ahead log into the file now; SQLite also does so by itself, within somebody's commit."""
        self._engine.checkpoint()

    @contextmanager
    def progress(self, listener: Callable[[Progress], None]) -> Iterator[None]:
        """While in this block, hear how far long work on this store is (import, backup, retention).

        The listener is called in the thread that works, with `work`, `done` and `total`; it hands over and returns.
        """
        stop = listen(self._engine.store.path, listener)
        try:
            yield
        finally:
            stop()

    @property
    def is_lost(self) -> bool:
        """Whether its file was removed or replaced: then every call is Closed, or soon will be."""
        return self._engine.store.is_lost

    def close(self) -> None:
        """Finish what is queued and close."""
        self._engine.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise errors.Unsupported(
            "a workspace cannot be pickled or copied",
            hint="open the folder again where you need it: holdfast.open(path)",
        )

    def __repr__(self) -> str:
        return f"<Workspace {str(self._engine.folder)!r} actor={self.actor!r}>"

    # how operations run

    def bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """An operation as a call on this workspace."""
        call = self._bind(op)
        return self.after_loading(call) if op.routed else call

    def _bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        match op.kind:
            case "read":
                read = self.bind_read(op)
                return read if self._context.at_least is None and not op.listing else self._after_preparing(op, read)
            case "write":
                engine, actor = self._engine, self._context.actor
                return lambda *args, **kwargs: engine.submit(self.body_of(op, args, kwargs), actor)
            case "procedure":
                return lambda *args, **kwargs: drive(
                    op.function(*args, **kwargs), lambda step: self._perform(op, args, kwargs, step)
                )
            case "first":
                return lambda *args, **kwargs: self._first(self.following(op, args, kwargs))
        return lambda *args, **kwargs: Watch(self._engine, self.following(op, args, kwargs))

    def bind_read(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """A read as a call: all its statements see one snapshot."""
        engine, function, at_least = self._engine, op.asked_by(self._context.actor), self._context.at_least
        if op.plain and at_least is None:
            return engine.plain_reader(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            def read(snapshot: Snapshot) -> Any:
                check_reached(snapshot, at_least)
                return function(snapshot, *args, **kwargs)

            return engine.read_snapshot(read)

        return call

    def after_loading(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call that asks the rules, which may have changed in their file."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self.load_files()
            return call(*args, **kwargs)

        return run

    def load_files(self) -> None:
        """Load the documents whose files this node has changed since it last loaded them.

        What is wrong in one is logged, and what was in force before stays; `routes.check` tells it again.
        """
        for name in self._files.changed():
            try:
                self._load_file(name)
            except (errors.Unavailable, errors.Invalid, errors.TooLarge) as error:
                _warn("%s was not loaded: %s", FILES[name], error)
                if error.retryable:
                    self._files.forget(name)  # the next call tries again

    def _load_file(self, name: str) -> None:
        from holdfast.domains import routes  # only who changed a file needs it

        found = read_file(self._engine.folder, FILES[name])
        if found is None or not self._engine.read(lambda snapshot: routes.is_news(snapshot, name, *found)):
            return
        plain = Workspace(self._engine, Context(self._context.actor), self._files)  # not under the key of a call
        op = operation("routes.reload")
        for loaded in drive(routes.load((name,)), lambda step: plain._perform(op, (), {}, step)):
            for problem in loaded.problems:
                _warn("%s", problem)
            if not loaded.stored:
                _warn("%s has mistakes: what was in force before stays", loaded.file)

    def reach(self) -> None:
        """On a replica: catch up with what this call must have seen."""
        at_least = self._context.at_least
        if at_least is not None:
            self._engine.reach(None if at_least == LATEST else at_least)

    def _after_preparing(self, op: Operation[..., Any], read: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.reach()
            if op.listing:
                self._engine.sweep_if_due()
            return read(*args, **kwargs)

        return call

    def body_of(self, op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Body:
        """A write as a body, with its context around it."""
        function = op.function
        if self._context.plain:
            return lambda tx: function(tx, *args, **kwargs)
        return self.guarded(op, args, kwargs, lambda tx: function(tx, *args, **kwargs))

    def guarded(self, op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any], body: Body) -> Body:
        """A body of an operation under this call's fence and key."""
        digest = b"" if self._context.key is None else digest_of(op, args, kwargs)
        return surround(self._context, body, op.name, digest, typed_answers(op, _branches(op, args, kwargs)))

    def transact_body(self, body: Callable[[Transaction], R]) -> Body:
        """A user's body under this call's fence and key; of its answer a key keeps what is plain data."""
        run = user_body(body)
        return run if self._context.plain else surround(self._context, run, "transact", b"", PLAIN_ANSWERS)

    def following(self, op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Following[Any]:
        """What a stream operation follows."""

        def find(snapshot: Snapshot) -> Following[Any]:
            check_reached(snapshot, self._context.at_least)
            found: Following[Any] = op.function(snapshot, *args, **kwargs)
            return found

        self.reach()
        following: Following[Any] = self._engine.read_snapshot(find)
        return following

    def _first(self, following: Following[E]) -> E | None:
        with Watch(self._engine, following) as watch:
            return next(watch, None)

    def step_body(self, op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any], step: Do) -> Body:
        """A procedure's transaction; only the one that decides its answer is fenced and keyed."""
        if step.keyed and not self._context.plain:
            return self.guarded(op, args, kwargs, step.body)
        return step.body

    def look(self, look: Look) -> Any:
        """What a procedure can find before its transaction: nothing on a replica, which may not know the newest."""
        if not self._context.plain or self._engine.journal is not None:
            return None
        actor = self._context.actor
        read = self._engine.read_snapshot if look.whole else self._engine.read
        return read(lambda snapshot: look.read(snapshot, actor))

    def _perform(self, op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any], step: Step) -> Any:
        engine = self._engine
        match step:
            case Do() as do:
                return engine.submit(self.step_body(op, args, kwargs, do), self._context.actor)
            case Look() as look:
                return self.look(look)
            case Deadline(seconds=seconds):
                return engine.clock.monotonic() + round(seconds * 1e6)
            case Listen(wanted=wanted):
                return engine.watch(wanted, None, Signal())
            case Next(watcher=watcher, deadline=deadline):
                return next_event(engine, watcher, deadline)
            case ReadFile(name=name):
                return read_file(engine.folder, name)


def _warn(message: str, *args: object) -> None:
    from logging import getLogger

    getLogger("holdfast").warning(message, *args)


def _branches(
    op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Callable[[bool], Sequence[Op]] | None:
    """Of a txn: which operations it ran."""
    if op.name != "txn":
        return None
    given = dict(zip(("conditions", "then", "otherwise"), args, strict=False)) | kwargs
    return lambda succeeded: given["then"] if succeeded else given.get("otherwise", ())


def open_workspace(
    path: str | os.PathLike[str],
    *,
    actor: str | None = None,
    clock: Clock | None = None,
    max_value_bytes: int = MAX_VALUE_BYTES,
    busy_timeout: float = 10.0,
    transaction_timeout: float = 5.0,
    vfs: str | None = None,
    log: CommitLog | None = None,
) -> Workspace:
    """Open the workspace in a folder, made on first use; ":memory:" is a private one for tests, gone on close.

    With a `log` the folder is this node's replica of a workspace that other nodes share through the same log.
    """
    context = check_context(Context(derive_actor() if actor is None else actor))
    engine = Engine(
        path,
        clock=clock,
        max_value_bytes=max_value_bytes,
        busy_timeout=busy_timeout,
        transaction_timeout=transaction_timeout,
        vfs=vfs,
        journal=None if log is None else replica_of(log, clock),
    )
    workspace = Workspace(engine, context)
    workspace.load_files()
    return workspace


def replica_of(log: CommitLog, clock: Clock | None) -> Replica:
    """This node's side of a log."""
    from holdfast.replication.replica import Replica

    return Replica(log, clock)
