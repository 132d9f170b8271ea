"""The workspace: what users hold.

`open(path)` gives a `Workspace`; its domains (`ws.cells`, `ws.locks`, ...) run each operation as a transaction of
its own. `Transaction`, which `ws.transact(body)` and `with ws.transaction()` hand out, has the same domains and
runs them inside one transaction. `ws.aio` is the awaitable twin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import errors
from holdfast.clock import Clock
from holdfast.filesystem import is_moving, recorded_log
from holdfast.kernel.activity import listen
from holdfast.kernel.engine import Engine
from holdfast.kernel.events import marks
from holdfast.kernel.leases import next_deadline
from holdfast.kernel.store_files import FILE
from holdfast.kernel.values import MAX_VALUE_BYTES
from holdfast.operation import Sync
from holdfast.types import NodeState, Progress, Report
from holdfast.workspace.context import PLAIN_ANSWERS, Closing, Context, check_context, derive_actor, surround
from holdfast.workspace.registry import CHECKERS
from holdfast.workspace.runner import Files, Runner
from holdfast.workspace.transaction import InContext, Transaction, user_body

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.kernel.journal import Journal
    from holdfast.replication.log import CommitLog
    from holdfast.replication.replica import Replica
    from holdfast.workspace.aio import AsyncWorkspace

R = TypeVar("R")


class Workspace(InContext[Sync], Closing):
    """One workspace, for use by any number of threads. Close it, or use it as a context manager."""

    _runner: Runner

    def __init__(self, engine: Engine, context: Context, files: Files | None = None) -> None:
        super().__init__(Runner(engine, context, files or Files(engine.folder)))
        self._engine = engine
        self._context = context
        self._aio: AsyncWorkspace | None = None

    def _within(self, context: Context) -> Workspace:
        return Workspace(self._engine, context, self._runner.files)

    def transact(self, body: Callable[[Transaction], R]) -> R:
        """Run `body(tx)` in one transaction and return its result once that is durable.

        The body may run again, perhaps in another thread: it touches nothing but its `tx`.
        """
        self._runner.reload_rules()
        result: R = self._engine.submit(self._runner.guard_users(user_body(body)), self._context.actor)
        return result

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One transaction around a block: committed at its end, rolled back if it raises or takes more than 5 s."""
        from holdfast.kernel.group import interactive

        if self._context.key is not None:
            raise errors.Invalid("a block cannot be skipped, so it cannot have a key", hint="use ws.transact(body)")
        self._runner.reload_rules()
        self._engine.reach(None)  # a block cannot run again, so on a replica it begins with all that was acknowledged
        with interactive(self._engine.group, self._context.actor, self._engine.transaction_timeout) as tx:
            surround(self._context, lambda _: None, "transaction", b"", PLAIN_ANSWERS)(tx)
            yield Transaction(tx)

    @property
    def aio(self) -> AsyncWorkspace:
        """The awaitable twin, for the running event loop."""
        if self._aio is None or not self._aio._is_here():
            from holdfast.workspace.aio import AsyncWorkspace

            self._aio = AsyncWorkspace(self)
        return self._aio

    @property
    def revision(self) -> int:
        """The revision of the newest transaction."""
        return int(self._engine.read(lambda snapshot: marks(snapshot)[0]))

    @property
    def actor(self) -> str:
        """The name that calls through this object act under."""
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

    def reach(self) -> None:
        """On a replica: catch up with what `using(at_least=...)` asks for."""
        self._runner.catch_up()

    def node_state(self, *, ask: bool = True) -> NodeState | None:
        """How this node of a replicated workspace is; None for a workspace in a file.

        With `ask`, the default, its log is asked where it ends and how durable it is. Without, nothing is sent.
        """
        journal = self._engine.journal
        return None if journal is None else journal.state(ask)

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

    def __reduce__(self) -> Any:
        raise errors.Unsupported(
            "a workspace cannot be pickled or copied",
            hint="open the folder again where you need it: holdfast.open(path)",
        )

    def __repr__(self) -> str:
        return f"<Workspace {str(self._engine.folder)!r} actor={self.actor!r}>"


def with_context(workspace: Workspace, context: Context) -> Workspace:
    """The same workspace for calls in this context, whole: for faces, which read it off a request."""
    return workspace._within(check_context(context))


def open_workspace(
    path: str | os.PathLike[str],
    *,
    actor: str | None = None,
    clock: Clock | None = None,
    max_value_bytes: int = MAX_VALUE_BYTES,
    busy_timeout: float = 10.0,
    transaction_timeout: float = 5.0,
    vfs: str | None = None,
    log: str | CommitLog | None = None,
    patience: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    create: bool = False,
) -> Workspace:
    """Open the workspace in a folder, made on first use; ":memory:" is a private one for tests, gone on close.

    One that cannot be written from here is opened for reads: what is due is left out of them, writes raise ReadOnly.

    With a `log` the folder is this node's replica of a workspace that other nodes share through the same log. While
    that cannot be reached a write waits for it, `patience` seconds (12 by default) at most, then raises Unreachable.

    `open("postgresql://host/db?workspace=team-a", folder=".holdfast")` opens a log by its address, which the folder
    records without secrets: from then on the folder is enough. `open(".holdfast", log=address)` does the same. With
    `create` a workspace that the log lacks is made.
    """
    if str(path).startswith(("http:/", "https:/", "unix:/")):  # a Path has one slash
        raise errors.Invalid(f"{path} is an address, not a folder", hint="use holdfast.connect(url)")
    context = check_context(Context(derive_actor() if actor is None else actor))
    if isinstance(log, str):
        path, folder, log = _address_first(path, log, folder), path, None
    if is_moving(path if folder is None else folder):
        from holdfast.replication.moves import finish

        finish(path if folder is None else folder, log, patience, busy_timeout)
    path, url = _by_address(path, folder, log)
    owned = None
    if url is not None:
        from holdfast.replication import address

        log = owned = address.connect(url, create=create)
    try:
        named = folder is not None  # by its address: perhaps for the first time
        with address.joining(path, str(url), owned, patience) if named and owned is not None else nullcontext():
            engine = _open_engine(
                path,
                clock=clock,
                max_value_bytes=max_value_bytes,
                busy_timeout=busy_timeout,
                transaction_timeout=transaction_timeout,
                vfs=vfs,
                journal=None if log is None else replica_of(log, clock, patience, owns=owned is not None),
            )
    except BaseException:
        if owned is not None:
            owned.close()
        raise
    if log is None:
        _check_logless(engine)
    if url is not None:
        address.record(engine.folder, url)
    return _workspace(engine, context)


def open_briefly(folder: str, actor: str | None, busy_timeout: float | None = None) -> Workspace:
    """Open the workspace in a folder for one call: as `open_workspace`, but no thread starts until somebody watches.

    `busy_timeout` is how many seconds a write waits for its turn, if not as long as usual.
    """
    if is_moving(folder) or recorded_log(folder) is not None:
        return open_workspace(folder, actor=actor)  # the thread follows the log
    context = check_context(Context(derive_actor() if actor is None else actor))
    waits = {} if busy_timeout is None else {"busy_timeout": busy_timeout}
    engine = _open_engine(folder, journal=None, brief=True, **waits)
    _check_logless(engine)
    return _workspace(engine, context)


def _check_logless(engine: Engine) -> None:
    """Close the engine and raise Busy if its workspace went to a log while this process was about to open it."""
    if is_moving(engine.folder) or recorded_log(engine.folder) is not None:
        engine.close()
        raise errors.Busy(f"{engine.folder} has just been taken to a log", hint="open it again")


def _workspace(engine: Engine, context: Context) -> Workspace:
    engine.diagnosis.checkers = CHECKERS
    workspace = Workspace(engine, context)
    workspace._runner.reload_rules(writing=False)
    return workspace


def _open_engine(path: str | os.PathLike[str], *, journal: Journal | None, **options: Any) -> Engine:
    """Open a store; one that can only be read from here is opened for reads."""
    try:
        return Engine(path, journal=journal, **options)
    except errors.ReadOnly as refusal:
        if journal is not None or not os.path.exists(os.path.join(path, FILE)):
            raise
        from holdfast.kernel.read_only import ReadOnlyEngine

        return ReadOnlyEngine(path, refusal, **options)


def _address_first(path: str | os.PathLike[str], log: str, folder: str | os.PathLike[str] | None) -> str:
    """The address that stands in `log`, with the folder before it. Raises Invalid if it is none, or one too many."""
    from holdfast.replication.address import is_address, parse

    if is_address(path):
        raise errors.Invalid(_NOT_BOTH)
    if folder is not None:
        raise errors.Invalid("the folder was given twice, as path and as folder=", hint="give it once")
    parse(log)
    return log


_NOT_BOTH = "give the address of a log or log=, not both"


def _by_address(
    path: str | os.PathLike[str], folder: str | os.PathLike[str] | None, log: CommitLog | None
) -> tuple[str | os.PathLike[str], str | None]:
    """The folder to open, and the address of its log: the one given, or the one that the folder records."""
    if log is None and folder is None and ":/" not in str(path):
        return path, recorded_log(path)
    from holdfast.replication.address import EXAMPLE, is_address

    if not is_address(path):
        if folder is not None:
            raise errors.Invalid("folder= goes with the address of a log", hint="holdfast.open(folder) opens a folder")
        return path, None if log is not None else recorded_log(path)
    if log is not None:
        raise errors.Invalid(_NOT_BOTH)
    if folder is None:
        hint = f'holdfast.open("{EXAMPLE}", folder=".holdfast")'
        raise errors.Invalid("a log needs a folder for this node's replica", hint=hint)
    return folder, str(path)


open_workspace.__qualname__ = "holdfast.open"  # as Python names it in the error of a call with wrong arguments


def replica_of(log: CommitLog, clock: Clock | None, patience: float | None = None, *, owns: bool = False) -> Replica:
    """This node's side of a log, which it closes if it `owns` it."""
    from holdfast.replication.log import PATIENCE
    from holdfast.replication.replica import Replica

    return Replica(log, clock, patience=PATIENCE if patience is None else patience, owns=owns)
