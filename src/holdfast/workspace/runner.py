"""How operations run: a runner turns an entry of the table into a call.

What several transactions and waits make up is a generator of steps; `drive` or `drive_async` runs it with the runner's
handlers, one for each kind of step. A read or a write needs no steps and is called directly. `Runner` runs operations
on an open workspace from threads, `LoopRunner` (aio.py) awaits them on an event loop, `TransactionRunner` runs them
inside a transaction, and `RemoteRunner` (remote/) drives requests to a server.

Before an operation that asks the rules, a runner looks whether one of the files that people edit in the workspace's
folder has changed (`Files`): one call of the operating system for each. Their content enters the store by a
transaction (`domains/routes.py`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from typing import Any, ClassVar, NoReturn

from holdfast import errors
from holdfast.clock import Signal, SystemClock, Wakeable
from holdfast.domains.routing import FILES
from holdfast.filesystem import Signature, signature_of
from holdfast.kernel.engine import Engine
from holdfast.kernel.group import Offer
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.wake import Watcher
from holdfast.operation import (
    Deadline,
    Do,
    Existed,
    Following,
    Handlers,
    IsGuarded,
    Listen,
    Look,
    Next,
    Operation,
    ReadFile,
    drive,
)
from holdfast.route import LOADING, say_existed
from holdfast.workspace.context import PLAIN_ANSWERS, Body, Context, check_reached, digest_of, surround, typed_answers

MAX_BYTES = 1_048_576
_FRESH = 1_000  # microseconds
_RETRY = 5_000_000
_TXN = ("conditions", "then", "otherwise")  # the arguments of a txn
_real_time = SystemClock().monotonic  # also in tests that own the time: files are edited in ours


class Files:
    """The documents of one folder, and their signatures when last looked at."""

    def __init__(self, folder: str) -> None:
        self._paths = {name: os.path.join(folder, file) for name, file in FILES.items()}
        self._seen: dict[str, Signature | None] = dict.fromkeys(FILES)
        self._put_off: dict[str, int] = {}  # what could not be loaded, and when to try again
        self._asked_by = 0
        self._asked_at = 0

    def changed(self, writing: bool) -> list[str]:
        """The documents whose files exist and have changed since the last call, and those that were put off.

        Of many threads that call at once one looks: what it saw within the last millisecond will do for the others.
        """
        me, now = get_ident(), _real_time()
        if me != self._asked_by and now - self._asked_at < _FRESH:
            return []
        self._asked_by, self._asked_at = me, now
        for name, at in [*self._put_off.items()] if self._put_off else ():
            if writing or now >= at:
                self._put_off.pop(name, None)
                self._seen[name] = None
        found = []
        for name, path in self._paths.items():
            signature = signature_of(path)
            if signature != self._seen[name]:
                self._seen[name] = signature
                if signature is not None:
                    found.append(name)
        return found

    def put_off(self, name: str) -> None:
        """Treat a document as changed before the next write, and before a read only after some seconds."""
        self._put_off[name] = _real_time() + _RETRY


def read_file(folder: str, name: str) -> tuple[str, str] | None:
    """A file's path and text; None if it does not exist. Raises Invalid or TooLarge for what cannot be a document."""
    path = os.path.join(folder, name)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for somebody to write into it
            raise errors.Invalid(f"{path} is not a file", hint="put a file there, or nothing")
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.Invalid(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
    if len(raw) > MAX_BYTES:
        raise errors.TooLarge(f"{path} has more than {MAX_BYTES} bytes", limit=MAX_BYTES)
    try:
        return path, raw.decode()
    except UnicodeDecodeError as error:
        raise errors.Invalid(f"{path} is not UTF-8: byte {error.start}", hint="save it as UTF-8") from error


Bound = Callable[..., Any]


class Runner:
    """Runs operations on an open workspace, in one context, from threads."""

    awaits: ClassVar[bool] = False
    drive: ClassVar[Callable[..., Any]] = staticmethod(drive)

    def __init__(self, engine: Engine, context: Context, files: Files) -> None:
        self.engine = engine
        self.context = context
        self.files = files
        self.submit: Callable[[Body, str], Any] = engine.submit
        self.do: Callable[[Body, str], Any] = engine.submit  # the same for a step of a procedure

    # --- operations as calls -----------------------------------------------------------------------------------------

    def bind(self, op: Operation[..., Any]) -> Bound:
        """The operation as a call."""
        match op.kind:
            case "read":
                return self._read(op)
            case "write":
                return self._write(op)
            case "procedure":
                return self._procedure(op)
            case "first":
                from holdfast.workspace.watch import first_of

                handlers = self._handlers()
                return lambda *args, **kwargs: self.drive(
                    first_of(self.watch(self._following(op, args, kwargs))), handlers
                )
        return lambda *args, **kwargs: self.watch(self._following(op, args, kwargs))

    def _read(self, op: Operation[..., Any]) -> Bound:
        read, engine, at_least = self._reader(op), self.engine, self.context.at_least
        reload = self.reload_rules if op.reloads_rules else None
        if reload is None and at_least is None and not op.listing:
            return read

        def call(*args: Any, **kwargs: Any) -> Any:
            if reload is not None:
                reload(writing=False)
            if at_least is not None:
                self.catch_up()
            if op.listing:
                engine.sweep_if_due()
            return read(*args, **kwargs)

        return call

    def _reader(self, op: Operation[..., Any]) -> Bound:
        """The read itself: all its statements see one snapshot."""
        engine, function, at_least = self.engine, op.asked_by(self.context.actor), self.context.at_least
        if op.plain and at_least is None:
            return engine.plain_reader(function, op.check_arguments)

        def read(*args: Any, **kwargs: Any) -> Any:
            def within(snapshot: Snapshot) -> Any:
                check_reached(snapshot, at_least)
                try:
                    return function(snapshot, *args, **kwargs)
                except TypeError:
                    op.check_arguments(args, kwargs)
                    raise

            return engine.read_snapshot(within)

        return read

    def _write(self, op: Operation[..., Any]) -> Bound:
        submit, function, actor = self.submit, op.function, self.context.actor
        reload = self.reload_rules if op.reloads_rules else None
        guarded = not self.context.plain

        def call(*args: Any, **kwargs: Any) -> Any:
            def body(tx: Tx) -> Any:
                try:
                    return function(tx, *args, **kwargs)
                except TypeError:
                    op.check_arguments(args, kwargs)
                    raise

            if reload is not None:
                reload()
            return submit(self.guard(op, args, kwargs, body) if guarded else body, actor)

        return call

    def _procedure(self, op: Operation[..., Any]) -> Bound:
        drive, handlers = self.drive, self._handlers()
        reload = self.reload_rules if op.reloads_rules else None
        guarded = not self.context.plain

        def call(*args: Any, **kwargs: Any) -> Any:
            if reload is not None:
                reload()
            steps = _steps(op, args, kwargs)
            if guarded:
                return drive(steps, {**handlers, Do: partial(self._do_guarded, op, args, kwargs)})
            return drive(steps, handlers)

        return call

    def _following(self, op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Following[Any]:
        """What a stream follows."""

        def find(snapshot: Snapshot) -> Following[Any]:
            check_reached(snapshot, self.context.at_least)
            try:
                found: Following[Any] = op.function(snapshot, *args, **kwargs)
            except TypeError:
                op.check_arguments(args, kwargs)
                raise
            return found

        self.catch_up()
        following: Following[Any] = self.engine.read_snapshot(find)
        return following

    # --- the context of a call ---------------------------------------------------------------------------------------

    def guard(self, op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any], body: Body) -> Body:
        """The body of an operation under this call's fence and key."""
        digest = b"" if self.context.key is None else digest_of(op, args, kwargs)
        given = dict(zip(_TXN, args, strict=False)) | kwargs if op.name == "txn" else None
        return surround(self.context, body, op.name, digest, typed_answers(op, given))

    def guard_users(self, body: Body) -> Body:
        """A user's body under this call's fence and key; of its result a key keeps what is plain data."""
        return body if self.context.plain else surround(self.context, body, "transact", b"", PLAIN_ANSWERS)

    def catch_up(self) -> None:
        """On a replica: catch up with what this call must have seen."""
        at_least = self.context.at_least
        if at_least is not None:
            self.engine.reach(at_least if isinstance(at_least, int) else None)

    def reload_rules(self, writing: bool = True) -> None:
        """Load the documents whose files have changed here since they were last loaded.

        A file with mistakes is logged, and what was in force before stays; `routes.check` reports them again. While
        the log cannot be reached a read goes on with that, and a write, which needs the log too, raises Unreachable.
        """
        for name in self.files.changed(writing):
            try:
                self._reload(name, writing)
            except (errors.Unavailable, errors.Invalid, errors.TooLarge) as error:
                if error.retryable:
                    self.files.put_off(name)
                if writing and isinstance(error, errors.Unreachable):
                    raise
                errors.warn(f"{FILES[name]} was not loaded: {error}")

    def _reload(self, name: str, writing: bool) -> None:
        with LOADING:
            from holdfast.domains import routes  # only a changed file needs it

        found = read_file(self.engine.folder, FILES[name])
        if found is None or not self.engine.read(lambda snapshot: routes.is_news(snapshot, name, *found)):
            return
        plain = Runner(self.engine, Context(self.context.actor), self.files)  # not under the key of a call
        if not writing:
            plain.do = partial(self.engine.submit, kind=Offer)
        for loaded in drive(routes.load((name,)), plain._handlers()):
            for problem in loaded.problems:
                errors.warn(str(problem))
            if not loaded.stored:
                errors.warn(
                    f"{loaded.file} has mistakes and is not used; what was loaded last stays, else the defaults"
                )

    # --- steps -------------------------------------------------------------------------------------------------------

    def _handlers(self) -> Handlers:
        return {
            Do: self._do,
            Look: self._look,
            Deadline: self._deadline,
            Listen: self._listen,
            Next: self._next,
            ReadFile: self._read_file,
            IsGuarded: lambda _: self.context.fence is not None or self.context.key is not None,
            Existed: lambda _: say_existed(),
        }

    def _do(self, step: Do) -> Any:
        return self.do(step.body, self.context.actor)

    def _do_guarded(self, op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any], step: Do) -> Any:
        """Only the transaction that decides the result of a procedure is fenced and keyed."""
        body = self.guard(op, args, kwargs, step.body) if step.keyed else step.body
        return self.do(body, self.context.actor)

    def _look(self, step: Look) -> Any:
        """Nothing on a replica, which may not know the newest, unless the read is needed."""
        actor, at_least = self.context.actor, self.context.at_least
        if step.needed:
            self.catch_up()
            self.engine.sweep_if_due()
        elif not self.context.plain or self.engine.journal is not None:
            return None

        def read(snapshot: Snapshot) -> Any:
            if step.needed:
                check_reached(snapshot, at_least)
            return step.read(snapshot, actor)

        return (self.engine.read_snapshot if step.whole else self.engine.read)(read)

    def _deadline(self, step: Deadline) -> int:
        return self.engine.clock.monotonic() + round(step.seconds * 1e6)

    def _listen(self, step: Listen) -> Watcher:
        return self.engine.watch(step.wanted, None, self.signal())

    def _read_file(self, step: ReadFile) -> tuple[str, str] | None:
        return read_file(self.engine.folder, step.name)

    # what an event loop does otherwise

    def watch(self, following: Following[Any]) -> Any:
        """An iterator over events."""
        with LOADING:
            from holdfast.workspace.watch import Watch  # most processes of the command line watch nothing

        return Watch(self.engine, following)

    def signal(self) -> Wakeable:
        """What wakes a caller that waits for an event."""
        return Signal()

    def _next(self, step: Next) -> Any:
        with LOADING:
            from holdfast.workspace.watch import next_event

        return next_event(self.engine, step.watcher, step.deadline)


class TransactionRunner:
    """Runs operations inside a transaction; a write that fails leaves nothing of itself behind."""

    awaits: ClassVar[bool] = False

    def __init__(self, tx: Tx) -> None:
        self.tx = tx

    def bind(self, op: Operation[..., Any]) -> Bound:
        """The operation as a call."""
        tx, function = self.tx, op.asked_by(self.tx.actor)
        match op.kind:
            case "read" | "write":
                writes = op.kind == "write"

                def call(*args: Any, **kwargs: Any) -> Any:
                    try:
                        if not writes:
                            return function(tx, *args, **kwargs)
                        with tx.savepoint():
                            return function(tx, *args, **kwargs)
                    except TypeError:
                        op.check_arguments(args, kwargs)
                        raise

                return call
            case "procedure":
                handlers = self._handlers()

                def procedure(*args: Any, **kwargs: Any) -> Any:
                    with tx.savepoint():
                        return drive(_steps(op, args, kwargs), handlers)

                return procedure
        raise errors.Invalid(f"{op.name} cannot be used inside a transaction", hint="watch outside, before or after it")

    def _handlers(self) -> Handlers:
        tx = self.tx
        return {
            Do: lambda step: step.body(tx),
            Look: lambda step: step.read(tx, tx.actor),
            ReadFile: _cannot_read,
            IsGuarded: lambda _: True,
            Existed: lambda _: None,
            **dict.fromkeys((Deadline, Listen, Next), _cannot_wait),
        }


def _steps(op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The steps of a procedure."""
    try:
        return op.function(*args, **kwargs)
    except TypeError:
        op.check_arguments(args, kwargs)
        raise


def _cannot_read(step: ReadFile) -> NoReturn:
    raise errors.Unsupported(f"{step.name} is not read inside a transaction", hint="call it before or after")


def _cannot_wait(_: object) -> NoReturn:
    raise errors.Invalid("waiting is not possible inside a transaction", hint="leave out wait=, and wait before it")
