"""The locks between processes: the turn of the writer, and the presence of everybody who has the store open.

SQLite's busy handler lets a busy process starve a lone one. So processes queue at a gate file and then at a turn file
(`flock`: gate, turn, release the gate): the process that waits at the gate is next, whatever the current holder does.
A process that dies releases its locks. Correctness never rests on this: SQLite's own lock stays underneath. `flock`
has no timeout, so a contended lock is waited for in a helper thread, with a deadline. Used by the group and by
maintenance.

`Presence` is a shared lock that a process holds while it has connections, on a file that says which files they are
on. Somebody who removes the write-ahead log or its index under a connection splits the store: the next process would
make new ones, and neither would see the other's commits. With the lock it finds out, and is refused. Used by the store.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.kernel.signals import SHIELD
from holdfast.types import as_time

if TYPE_CHECKING:
    from queue import SimpleQueue

GATE = "gate.lock"
TURN = "turn.lock"
OPEN = "open.lock"
PURGE = "purge.lock"
_now = SystemClock().monotonic  # real time, also in tests with a clock of their own
_RECORD = 256  # bytes that say who has the turn, or which files are open
_MARKED = " marked"
_PASSING = 0.2  # seconds after which a presence is believed


class Holder(msgspec.Struct, frozen=True):
    """The process that has the turn: who writes, since when (microseconds UTC), and whether it is stopped."""

    pid: int
    actor: str
    since: int
    stopped: bool


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal, where the system tells."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


def _advice(pid: int, stopped: bool) -> str:
    if stopped:
        return f"it is stopped, and nobody can pass it: let it continue (kill -CONT {pid}), or end it (kill -9 {pid})"
    return f"retry; if it never ends, look at process {pid}"


def locked(paths: Sequence[str], effect: str) -> errors.Busy:
    """The error for files that another program has locked for SQLite, without the turn; it is named where possible."""
    for pid in _lock_owners(paths, ("POSIX", "WRITE")):
        return errors.Busy(
            f"process {pid} has locked the database, such as a tool that has it open; {effect}",
            hint=_advice(pid, stopped := _is_stopped(pid)),
            pid=pid,
            stopped=stopped,
        )
    return errors.Busy(f"another program has locked the database; {effect}")


def _lock_owners(paths: Sequence[str], wanted: tuple[str, str]) -> Iterator[int]:
    """The other processes that have a lock of this kind on these files, where the system tells.

    Asking the files would need them open, and closing them again would drop the locks of SQLite.
    """
    with contextlib.suppress(OSError):
        inodes = {str(os.stat(path).st_ino) for path in paths if os.path.exists(path)}
        with open("/proc/locks", encoding="ascii") as file:
            for line in file:
                _, kind, _, mode, pid, place, *_ = line.replace("->", "").split()
                theirs = place.rpartition(":")[2] in inodes and int(pid) not in (0, os.getpid())  # 0: cannot be told
                if theirs and (kind, mode) == wanted:
                    yield int(pid)


class Turns:
    """This process's place in the queue of writers. Only one thread, the leader, uses it at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._jobs: SimpleQueue[Callable[[], None] | None] | None = None
        self.actor = ""  # who asks for the turn, for others who wait
        self.waited = 0.0  # seconds, for the turn that was taken last
        self._signed = ("", b"")  # the actor that signed last, and its record
        self._open()

    def _open(self) -> None:
        self._gate = _lock_file(self._folder, GATE)
        self._turn = _lock_file(self._folder, TURN)

    def try_take(self) -> bool:
        """Take the turn if it is free and nobody waits for it."""
        try:
            fcntl.flock(self._gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._sign(self._turn)
        self.waited = 0.0
        return True

    def _sign(self, turn: int) -> None:
        """Write into the turn file whose turn it is; the file's time says since when."""
        actor, record = self._signed
        if not record or actor != self.actor:
            record = f"{os.getpid()} {self.actor}".encode()[:_RECORD].ljust(_RECORD)
            self._signed = (self.actor, record)
        os.pwrite(turn, record, 0)

    def holder(self) -> Holder | None:
        """The process that took the turn last, None if the file does not name one."""
        pid, _, actor = os.pread(self._turn, _RECORD, 0).decode("utf-8", "replace").rstrip().partition(" ")
        if not pid.isdecimal():
            return None
        return Holder(int(pid), actor, os.fstat(self._turn).st_mtime_ns // 1000, _is_stopped(int(pid)))

    def missed(self, effect: str) -> errors.Busy:
        """The error for a turn that did not come in time: who has it, and what was not done because of that."""
        holder = self.holder()
        if holder is None:
            return errors.Busy(f"other processes kept the write lock; {effect}")
        pid, actor, since, stopped = holder.pid, holder.actor, holder.since, holder.stopped
        name = f" ({actor})" if actor else ""
        return errors.Busy(
            f"process {pid}{name} has had the write lock since {as_time(since):%H:%M:%S} UTC; {effect}",
            hint=_advice(pid, stopped),
            pid=pid,
            actor=actor,
            since=as_time(since).isoformat(),
            stopped=stopped,
        )

    def take(self, timeout: float) -> bool:
        """Wait for the turn at most `timeout` seconds. False if it did not come."""
        if self.try_take():
            return True
        import queue  # only a contended turn needs it

        answer: SimpleQueue[bool] = queue.SimpleQueue()
        abandon = self.take_later(lambda: answer.put(True))
        try:
            with SHIELD.window():
                return answer.get(timeout=timeout)
        except queue.Empty:
            return not abandon()
        except BaseException:
            if not abandon():
                self.give()
            raise

    def take_later(self, taken: Callable[[], None]) -> Callable[[], bool]:
        """Wait for the turn in the helper thread and call `taken` there.

        Returns a function that stops waiting: True if it did, False if the turn was taken already.
        """
        gate, turn, began = self._gate, self._turn, _now()
        decision = threading.Lock()  # acquired by whichever decides first: the helper with the turn, or `abandon`

        def wait() -> None:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(gate, fcntl.LOCK_UN)
            if decision.acquire(blocking=False):
                self._sign(turn)
                self.waited = (_now() - began) / 1e6
                taken()
            else:
                os.close(gate)
                os.close(turn)

        def abandon() -> bool:
            if not decision.acquire(blocking=False):
                return False
            self._open()  # the helper keeps, and closes, the descriptors it is blocked on
            return True

        if self._jobs is None:
            self._jobs = start_helper("holdfast-turns")
        self._jobs.put(wait)
        return abandon

    def give(self) -> None:
        """Pass the turn to the next process."""
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave the queue."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptors; also in a forked child, where inherited ones would keep the parent's locks."""
        for descriptor in (self._gate, self._turn):
            with contextlib.suppress(OSError):  # a fork may find them closed
                os.close(descriptor)


def _lock_file(folder: str, name: str) -> int:
    return os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def sole(folder: str, name: str) -> Iterator[bool]:
    """Whether no other process is inside a block of this name; nobody waits."""
    descriptor = _lock_file(folder, name)
    try:
        yield _try_alone(descriptor)
    finally:
        os.close(descriptor)


class Record(msgspec.Struct, frozen=True):
    """Which files of a store are open, or were last; whether the note of its commits was beside them; who is left."""

    files: str
    marked: bool
    present: bool  # somebody has them open


def looks() -> Iterator[None]:
    """Each is a moment to look at who is present: the first one now, and more for a fifth of a second.

    A process that joins without the turn is present for an instant before it sees that the files have changed.
    """
    yield
    end = _now() + _PASSING * 1e6
    while _now() < end:
        time.sleep(_PASSING / 100)
        yield


class Presence:
    """That this process has the store open, for others to see. A process that dies is gone."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def join(self, files: str) -> bool:
        """Be present, if these are the files recorded last. False: whether they may be opened needs the turn."""
        descriptor = _lock_file(self._folder, OPEN)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            joined = _recorded(descriptor).files == files
        except BlockingIOError:  # somebody is recording
            joined = False
        if joined:
            self._keep(descriptor)
        else:
            os.close(descriptor)
        return joined

    def join_in_turn(self, files: str, marked: bool) -> bool:
        """Be present, and record the files if nobody else is. False: others have other files. The caller has the turn.

        Between the two locks nobody else can record: that takes the turn.
        """
        descriptor = _lock_file(self._folder, OPEN)
        alone = _try_alone(descriptor)
        if alone:
            os.pwrite(descriptor, f"{files}{_MARKED if marked else ''}".encode().ljust(_RECORD), 0)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if alone or _recorded(descriptor).files == files:
            self._keep(descriptor)
            return True
        os.close(descriptor)
        return False

    def recorded(self) -> Record:
        """The files that others have open, or had open last. The caller has the turn."""
        descriptor = _lock_file(self._folder, OPEN)
        try:
            return msgspec.structs.replace(_recorded(descriptor), present=not _try_alone(descriptor))
        finally:
            os.close(descriptor)

    def check_alone(self) -> None:
        """Raise Busy, naming them where the system tells, if others have the store open. The caller has the turn."""
        if not self.recorded().present:
            return
        pids = sorted(_lock_owners([os.path.join(self._folder, OPEN)], ("FLOCK", "READ")))
        who = "other processes have" if len(pids) != 1 else "another process has"
        named = f": {', '.join(map(str, pids))}" if pids else ", or this one has it elsewhere"
        raise errors.Busy(
            f"{who} the workspace open{named}; nothing was changed",
            hint="end them, servers too, and retry",
            pids=pids,
        )

    def seclude(self) -> None:
        """Let nobody join without the turn, which the caller has: what is recorded names no files."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, b"moving".ljust(_RECORD), 0)

    def _keep(self, descriptor: int) -> None:
        self.leave()
        self._descriptor = descriptor

    def leave(self) -> None:
        """Be gone. Also in a forked child, which leaves the parent present."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _try_alone(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _recorded(descriptor: int) -> Record:
    text = os.pread(descriptor, _RECORD, 0).decode("ascii", "replace").rstrip()
    return Record(text.removesuffix(_MARKED), text.endswith(_MARKED), True)


def start_helper(name: str) -> SimpleQueue[Callable[[], None] | None]:
    """Start a thread that runs the jobs of a queue one after another; None ends it. Returns the queue."""
    import queue

    jobs: SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
    threading.Thread(target=_work, args=(jobs,), name=name, daemon=True).start()
    return jobs


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it may hold the owner of the queue, whose deletion ends this thread
