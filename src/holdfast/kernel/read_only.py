"""A workspace in a place where it can only be read, such as the sandbox of an agent: reads work, writes are refused.

SQLite reads a file in WAL mode together with its log and the index of that. While somebody else has the store open all
three are there, and are opened read-only: the locks work, so a read sees whole commits. When nobody has, there is only
the file, and SQLite could not make the others here. Then it is opened as immutable, without locks, and each read makes
sure afterwards that nothing has touched the file meanwhile, or is done again. A log that was left without its index
is read through a private copy.

Nothing can be swept here, so a read that needs it works on a copy in memory in which what is due has ended, as the next
writer will end it. Nobody writes through this engine, which therefore has no pulse, and cannot be watched. Made by
`open_workspace` when an ordinary engine is refused.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final, NoReturn
from urllib.parse import quote

import apsw

from holdfast import errors
from holdfast.clock import RESET, Now, Wakeable
from holdfast.filesystem import signature_of
from holdfast.ids import Ids
from holdfast.kernel import migrations
from holdfast.kernel.engine import Engine
from holdfast.kernel.events import Filter
from holdfast.kernel.leases import sweep
from holdfast.kernel.process_lock import Turns
from holdfast.kernel.store import Store, connect_raw, has_commit, lacking, refuse_inherited
from holdfast.kernel.translation import translated
from holdfast.kernel.tx import SYSTEM, Snapshot, Tx

_TRIES: Final = 5
_WAL: Final = "-wal"
_HEADER: Final = "SELECT revision, stamp FROM meta"
_FOOTER: Final = "UPDATE meta SET revision = ?, stamp = ?"
_SETTINGS: Final = {"mmap_size": 0, "trusted_schema": 0, "cell_size_check": 1, "temp_store": 2, "query_only": 1}


class NoTurns(Turns):
    """The place in the queue of writers of a process that cannot write: the turn never comes."""

    def __init__(self, refusal: errors.ReadOnly) -> None:
        self._refusal = refusal
        self.actor = ""
        self.waited = 0.0

    def try_take(self) -> bool:
        return False

    def take(self, timeout: float) -> bool:
        return False

    def take_later(self, taken: Callable[[], None]) -> Callable[[], bool]:
        return lambda: True

    def missed(self, effect: str) -> errors.ReadOnly:  # type: ignore[override]  # no other process is to blame
        return errors.ReadOnly(self._refusal.message, hint=self._refusal.hint)

    def give(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class ReadStore(Store):
    """Connections to the files of a store as they are, or to a copy in memory in which what is due has ended."""

    def __init__(self, folder: str, busy_timeout: float, vfs: str | None = None) -> None:
        super().__init__(folder, durable=False, busy_timeout=busy_timeout, vfs=vfs, salvage=True)
        self._mine = threading.local()  # what this thread saw of the files when it opened them without locks
        self._copy: _Copy | None = None

    def connect(self, *, in_turn: bool = False, create: bool = False) -> apsw.Connection:
        """Open a connection that can only read: to the copy, as long as the files are as they were then."""
        if self.closed:
            raise self.refusal()
        refuse_inherited(self.path)
        with self._counting, translated():
            if self._copy is not None and not self._copy.is_current(self._signatures()):
                self._drop_copy()
            self._mine.seen = None
            connection = self._open_files() if self._copy is None else self._settled(self._copy.connect())
            self._connections.add(connection)
            return connection

    def connect_reader(self) -> apsw.Connection:
        return self.connect()

    def is_intact(self) -> bool:
        """Whether what this thread opened last without locks has stayed as it was."""
        seen = self._mine.seen
        return seen is None or seen == self._signatures()

    def end_due(self, time: Now) -> None:
        """Read from now on from a copy in which everything that is due has ended, until somebody writes."""
        with self._counting, translated():
            self._drop_copy()
            source = self._open_files()
            copy = _Copy(source, self._mine.seen)
            _end_due(copy.keeper, time)
            self._copy = copy

    def close(self) -> None:
        super().close()
        self._drop_copy()

    def _drop_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()

    def _open_files(self) -> apsw.Connection:
        for _ in range(_TRIES):
            mark = self.files.marked()
            self._mine.seen = None
            try:
                connection = self._settled(connect_raw(self.path, apsw.SQLITE_OPEN_READONLY, self._vfs))
            except (apsw.CantOpenError, apsw.ReadOnlyError):
                self._mine.seen = self._signatures()
                connection = self._open_unlocked()
            if mark is None or has_commit(connection, mark):
                return connection
            connection.close()
            if self.is_intact():
                raise lacking(mark)
        raise errors.Busy("others open and close the workspace all the time", hint="retry")

    def _open_unlocked(self) -> apsw.Connection:
        if os.path.exists(self.path + _WAL) and os.path.getsize(self.path + _WAL):
            return self._open_unpacked()
        address = f"file:{quote(self.path)}?immutable=1"
        return self._settled(connect_raw(address, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, self._vfs))

    def _open_unpacked(self) -> apsw.Connection:
        """Read a copy of the file and of its log, whose index is missing here."""
        import shutil
        import tempfile

        try:
            with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
                target = os.path.join(folder, os.path.basename(self.path))
                for part in ("", _WAL):
                    shutil.copyfile(self.path + part, target + part)
                with closing(connect_raw(target, apsw.SQLITE_OPEN_READWRITE, self._vfs)) as source:
                    copy = _Copy(source, None)
        except OSError as error:
            raise errors.ReadOnly(
                f"{self.path}{_WAL} has commits, but its index is missing, and no private copy can be made:"
                f" {error.strerror or error}",
                hint="open the workspace once where it can be written, or set TMPDIR to a folder that can be",
            ) from error
        return self._settled(copy.keeper)

    def _settled(self, connection: apsw.Connection) -> apsw.Connection:
        try:
            connection.set_busy_timeout(self.busy_ms)
            for pragma, wanted in _SETTINGS.items():
                connection.pragma(pragma, wanted)
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
        except BaseException:
            connection.close(True)
            raise
        return connection

    def _signatures(self) -> object:
        return signature_of(self.path), signature_of(self.path + _WAL)


class _Copy:
    """A copy of a store in memory, which lives as long as a connection to it."""

    _numbers = itertools.count()

    def __init__(self, source: apsw.Connection, seen: object) -> None:
        self._source = source
        self._seen = seen  # of the files, if the source has no locks on them
        self._version = source.pragma("data_version")
        self._address = f"file:/holdfast-{os.getpid()}-{next(self._numbers)}?vfs=memdb"
        self.keeper = self.connect(apsw.SQLITE_OPEN_CREATE)
        content = bytearray(source.serialize("main"))
        content[18:20] = b"\1\1"  # not in WAL mode any more, which needs files
        with closing(apsw.Connection(":memory:")) as private:  # the one kind that takes bytes cannot be shared
            private.deserialize("main", bytes(content))
            with self.keeper.backup("main", private, "main") as backup:
                backup.step()

    def connect(self, flags: int = 0) -> apsw.Connection:
        """Another connection to it."""
        return apsw.Connection(self._address, flags=flags | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)

    def is_current(self, signatures: object) -> bool:
        """Whether nobody has written to its source since."""
        if self._seen is not None:
            return self._seen == signatures
        return bool(self._source.pragma("data_version") == self._version)

    def close(self) -> None:
        """Let it go, once those who read it have closed their connections."""
        self.keeper.close()
        self._source.close()


class ReadOnlyEngine(Engine):
    """Runs reads on one workspace that cannot be written from here; everything else raises ReadOnly.

    Every read opens a connection of its own, to the files or to the newest copy.
    """

    store: ReadStore

    def __init__(self, path: str | os.PathLike[str], refusal: errors.ReadOnly, **options: Any) -> None:
        self._refusal = refusal
        super().__init__(path, **options, pulse=False)
        self.group.busy_timeout = 0.0  # the turn never comes

    def _open(self, durable: bool, busy_timeout: float, vfs: str | None, ids: Ids) -> None:
        self.store = ReadStore(self.folder, busy_timeout, vfs)
        self.turns = NoTurns(self._refusal)
        with closing(self.store.connect()) as connection, translated():
            if migrations.schema_of(connection) < migrations.known():
                raise errors.Behind("this store is older than this program, and cannot be upgraded from here")

    def borrow(self) -> Snapshot:
        self.check_usable()
        return Snapshot(self.store.connect(), self.time)

    def give_back(self, snapshot: Snapshot) -> None:
        snapshot.close()

    def read(self, function: Callable[[Snapshot], Any]) -> Any:
        """Read; again if somebody wrote meanwhile, and no lock kept the read from seeing half of that."""
        for _ in range(_TRIES):
            try:
                found = super().read(function)
            except Exception:
                if self.store.is_intact():
                    raise
            else:
                if self.store.is_intact():
                    return found
        raise errors.Busy("others write to the workspace all the time, and no lock can be taken here", hint="retry")

    def plain_reader(
        self, function: Callable[..., Any], check_arguments: Callable[[Any, Any], None]
    ) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            def within(snapshot: Snapshot) -> Any:
                try:
                    return function(snapshot, *args, **kwargs)
                except TypeError:
                    check_arguments(args, kwargs)
                    raise

            return self.read(within)

        return call

    def due(self) -> bool:
        """False: what has expired ends in a copy, which is read from now on."""
        if super().due():
            self.store.end_due(self.time)
        return False

    def watch(self, wanted: Filter, after: int | str | None, signal: Wakeable) -> NoReturn:
        raise errors.ReadOnly(f"{self._refusal.message}; it cannot be watched either", hint=self._refusal.hint)


def _end_due(connection: apsw.Connection, time: Now) -> None:
    """End what is due, as a writer would before anything else."""
    revision, stamp = connection.execute(_HEADER).fetchone()  # type: ignore[misc]
    now, ids, more = time.read(stamp), Ids(), True
    memo: dict[str, Any] = {}
    with connection:
        while more:
            tx = Tx(connection, connection.execute, time, ids, now, revision + 1, SYSTEM, 0, revision, memo, {}, {}, 0)
            more = sweep(tx)
            revision += bool(tx.events)
            tx.end()
        connection.execute(_FOOTER, (revision, stamp // RESET * RESET + now))
