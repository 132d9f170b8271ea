"""`CommitLog`: the interface to an engine that appends an entry only if no other was appended meanwhile.

A log holds the truth of one replicated workspace: entries in one order, each at a position, and blobs for data too
large for an entry. Positions are opaque and increasing; 0 is before the first. To write an adapter, implement these
methods and run `holdfast.testing.log_contract` on it.

Every entry names the entry before it, so a replica notices a log that is not the one it followed. Entries and blobs are
compressed and carry a checksum. An entry's `id` settles whether an append whose answer was lost was stored (`send`).

`ErrorMappingLog` wraps an adapter, whose network library may raise anything: an append that failed in an unknown way
becomes LostAnswer, any other call Unreachable. `MemoryLog` is a log inside this process, for tests and examples: share
one object between the workspaces of several nodes.
"""

from __future__ import annotations

import bisect
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from holdfast import errors
from holdfast.clock import Clock, Signal, SystemClock, Wakeable
from holdfast.kernel.journal import LogMoved

START = 0


class LostAnswer(Exception):
    """An append was sent and no answer came: it may be stored, may still arrive, or never."""


class Trimmed(Exception):
    """The entries after that position are gone up to `oldest`: join from a snapshot instead."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"the log starts at {oldest}")
        self.oldest = oldest


class CommitLog:
    """A log of one workspace, as one client of it. Safe for use by several threads.

    Any method may raise `errors.Unreachable`: nothing happened. Any other exception not named here counts as
    Unreachable too, or, from `append`, as LostAnswer. A constructor needs no server: the first call connects, and a
    call after an outage connects again. A call gives up by itself after a few seconds; who waits longer calls again.

    An acknowledged entry is durable: it is never lost or changed, and no entry comes after it that did not expect it.
    """

    max_entry: int  # bytes; larger data goes into a blob, and append raises ValueError for it
    snapshot_every: int = 10_000  # entries after which a snapshot is due

    def head(self) -> int:
        """Return the current end: every append acknowledged before this call is at or below it."""
        raise NotImplementedError

    def time(self) -> int:
        """Return the time of the log's clock, in microseconds UTC. It is asked for every few seconds only."""
        raise NotImplementedError

    def append(self, entry: bytes, expected: int) -> int:
        """Append the entry if the end is at `expected`; returns its position, which is higher.

        Raises `kernel.journal.LogMoved` if the end is elsewhere, or LostAnswer. LogMoved means that this call appended
        nothing; a transport that repeats by itself may have appended the same entry before, which the caller finds out.
        """
        raise NotImplementedError

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        """Return a page of entries after a position, oldest first, without gaps; empty if there are none yet.

        It may lag behind `head`, but not for ever. A cache may still show what others have trimmed, but not after
        `get` has raised KeyError: that is how a node notices. Raises Trimmed.
        """
        raise NotImplementedError

    def put(self, blob: bytes) -> str:
        """Store a blob durably; returns its reference. It goes when the log is trimmed past the current end."""
        raise NotImplementedError

    def get(self, ref: str) -> bytes:
        """Return a blob. Raises KeyError if it is gone; then the next `tail` asks the log itself."""
        raise NotImplementedError

    def trim(self, before: int) -> None:
        """Delete the entries up to this position, and blobs put before it: no node reads from before it any more."""
        raise NotImplementedError

    def enroll(self, waiter: Wakeable) -> None:
        """Wake `waiter` when the log may have moved. It is a hint: a wake-up may be missed."""
        raise NotImplementedError

    def dismiss(self, waiter: Wakeable) -> None:
        """Undo `enroll`."""
        raise NotImplementedError

    def durability(self) -> Sequence[str]:
        """Return what may lose an acknowledged entry after all, each in words for an operator; nothing is the rule."""
        return ()

    def close(self) -> None:
        """Release the resources of this object; the log itself stays. Called by the owner of the object."""
        raise NotImplementedError


class Entry(msgspec.Struct, frozen=True, tag_field="kind", array_like=True):
    """The fields that all entries have."""

    id: str
    previous: str  # the id of the entry before, "" for the first
    node: str  # the node that appended it
    workspace: str


class Changes(Entry, frozen=True, tag="changes", array_like=True):
    """A group: the changeset of its transactions, here or in a blob."""

    revision: int
    changeset: bytes
    blob: str = ""


class Migrated(Entry, frozen=True, tag="migrated", array_like=True):
    """A schema step: every node runs its own copy of the migration, which must be the same."""

    number: int
    digest: bytes


class Snapshotted(Entry, frozen=True, tag="snapshot", array_like=True):
    """A copy of the whole store at a position, in a blob, from which a joining node can start."""

    position: int
    revision: int
    blob: str


class Detached(Entry, frozen=True, tag="detached", array_like=True):
    """The end of a log: the workspace goes on in one folder, and every other replica stops."""

    revision: int
    folder: str  # where it goes on, with the name of the machine


AnyEntry = Changes | Migrated | Snapshotted | Detached

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyEntry).decode
_CHECKSUM = 4


def seal(body: bytes, level: int = 1) -> bytes:
    """Return bytes compressed, with a checksum in front, as the log stores them.

    The rows of a group are much alike: 64 claims take an eighth of the room, for less than a microsecond each.
    """
    packed = zlib.compress(body, level)
    return zlib.crc32(packed).to_bytes(_CHECKSUM, "big") + packed


def unseal(raw: bytes, what: str) -> bytes:
    """Return what was sealed. Raises Corrupt if the checksum does not match, Behind if this program cannot read it."""
    packed = raw[_CHECKSUM:]
    if zlib.crc32(packed).to_bytes(_CHECKSUM, "big") != raw[:_CHECKSUM]:
        raise errors.Corrupt(f"{what} in the log is damaged", hint="restore the log from its own replicas or backups")
    try:
        return zlib.decompress(packed)
    except zlib.error as error:
        raise _unknown(what) from error


def _unknown(what: str) -> errors.Behind:
    return errors.Behind(
        f"{what} in the log is of a kind unknown to this program", hint="upgrade holdfast on this node and restart it"
    )


def to_bytes(entry: AnyEntry) -> bytes:
    """Return an entry as the log stores it."""
    return seal(_encode(entry))


def from_bytes(raw: bytes, position: int) -> AnyEntry:
    """Return an entry of the log. Raises Corrupt if it is damaged, Behind if this program is too old for it."""
    what = f"the entry at {position}"
    try:
        entry: AnyEntry = _decode(unseal(raw, what))
    except msgspec.DecodeError as error:
        raise _unknown(what) from error
    return entry


R = TypeVar("R")
_KNOWN = (errors.HoldfastError, LogMoved, LostAnswer, Trimmed)


class LogWrapper(CommitLog):
    """A log that passes every call on to another one: override what shall differ."""

    def __init__(self, log: CommitLog) -> None:
        self.max_entry = log.max_entry
        self.snapshot_every = log.snapshot_every
        self._log = log

    def head(self) -> int:
        return self._log.head()

    def time(self) -> int:
        return self._log.time()

    def append(self, entry: bytes, expected: int) -> int:
        return self._log.append(entry, expected)

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        return self._log.tail(after)

    def put(self, blob: bytes) -> str:
        return self._log.put(blob)

    def get(self, ref: str) -> bytes:
        return self._log.get(ref)

    def trim(self, before: int) -> None:
        self._log.trim(before)

    def enroll(self, waiter: Wakeable) -> None:
        self._log.enroll(waiter)

    def dismiss(self, waiter: Wakeable) -> None:
        self._log.dismiss(waiter)

    def durability(self) -> Sequence[str]:
        return self._log.durability()

    def close(self) -> None:
        self._log.close()


def engine_of(log: CommitLog) -> str:
    """The name of the engine that keeps a log."""
    while isinstance(log, LogWrapper):
        log = log._log
    return type(log).__name__.removesuffix("Log").lower()


class ErrorMappingLog(LogWrapper):
    """Maps unexpected exceptions of an adapter to LostAnswer and Unreachable."""

    def head(self) -> int:
        return _reached(self._log.head)

    def time(self) -> int:
        return _reached(self._log.time)

    def append(self, entry: bytes, expected: int) -> int:
        return _reached(self._log.append, entry, expected, unknown=LostAnswer)

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        return _reached(self._log.tail, after)

    def put(self, blob: bytes) -> str:
        return _reached(self._log.put, blob)

    def get(self, ref: str) -> bytes:
        return _reached(self._log.get, ref, known=(*_KNOWN, KeyError))  # a KeyError: the blob is gone

    def trim(self, before: int) -> None:
        _reached(self._log.trim, before)

    def durability(self) -> Sequence[str]:
        return _reached(self._log.durability)


def _reached(
    call: Callable[..., R],
    *args: object,
    known: tuple[type[Exception], ...] = _KNOWN,
    unknown: type[Exception] = errors.Unreachable,
) -> R:
    """Call an adapter; an exception that is not `known` becomes an `unknown`."""
    try:
        return call(*args)
    except known:
        raise
    except Exception as error:
        raise unknown(f"the log failed: {error!r}") from error


MAX_ENTRY = 64 * 1024
PAGE = 1000


class MemoryLog(CommitLog):
    """Entries in a list, blobs in a dictionary."""

    def __init__(self, *, clock: Clock | None = None, max_entry: int = MAX_ENTRY) -> None:
        if max_entry < 1:
            raise errors.Invalid(f"max_entry is a number of bytes, not {max_entry}", hint="omit it for 64 KiB")
        self.max_entry = max_entry
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._entries: list[tuple[int, bytes]] = []
        self._end = self._trimmed = START
        self._blobs: dict[str, tuple[int, bytes]] = {}  # with the end of the log when it was put
        self._puts = 0
        self._waiters: weakref.WeakSet[Wakeable] = weakref.WeakSet()

    def head(self) -> int:
        return self._end

    def time(self) -> int:
        return self._clock.wall()

    def append(self, entry: bytes, expected: int) -> int:
        if len(entry) > self.max_entry:
            raise ValueError(f"an entry has at most {self.max_entry} bytes, this one {len(entry)}")
        with self._lock:
            if expected != self._end:
                raise LogMoved
            self._end += 1
            self._entries.append((self._end, entry))
            waiters = list(self._waiters)
            position = self._end
        for waiter in waiters:
            waiter.set()
        return position

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        if after >= self._end:  # by far the most frequent case
            return ()
        with self._lock:
            if after < self._trimmed:
                raise Trimmed(self._trimmed)
            start = bisect.bisect_right(self._entries, after, key=lambda entry: entry[0])
            return self._entries[start : start + PAGE]

    def put(self, blob: bytes) -> str:
        with self._lock:
            self._puts += 1
            ref = str(self._puts)
            self._blobs[ref] = (self._end, blob)
            return ref

    def get(self, ref: str) -> bytes:
        with self._lock:
            return self._blobs[ref][1]

    def trim(self, before: int) -> None:
        with self._lock:
            self._trimmed = max(self._trimmed, min(before, self._end))
            self._entries = [entry for entry in self._entries if entry[0] > self._trimmed]
            self._blobs = {ref: kept for ref, kept in self._blobs.items() if kept[0] >= self._trimmed}

    def enroll(self, waiter: Wakeable) -> None:
        with self._lock:
            self._waiters.add(waiter)

    def dismiss(self, waiter: Wakeable) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def close(self) -> None:
        """Nothing to release: the log lives as long as it is referenced."""

    def __repr__(self) -> str:
        return f"<MemoryLog {len(self._entries)} entries, end {self._end}>"


PATIENCE = 12.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1_000, 50_000
_LOW_ENDS = 20  # to hear before a log is condemned


class Patience:
    """How long a node waits for its log: one budget of real seconds for all the steps of one write.

    It is spent on a tail that lags behind the end, on answers that were lost and, with `outages`, on a log that cannot
    be reached. `signal` is set when the log may have moved, and shortens a pause.
    """

    def __init__(
        self,
        seconds: float = PATIENCE,
        *,
        timer: Clock | None = None,
        signal: Signal | None = None,
        outages: bool = True,
        paused: Callable[[int], None] = lambda microseconds: None,
    ) -> None:
        self._paused = paused  # called after each pause
        self._timer = timer or SystemClock()
        self._signal = signal or Signal()
        self._outages = outages
        self._deadline = self._timer.monotonic() + round(seconds * 1e6)

    def looks(self) -> Iterator[None]:
        """Yield at once, and again after each pause, while there is time. Pauses grow from 1 to 50 ms."""
        pause = _FIRST_PAUSE
        yield
        while (now := self._timer.monotonic()) < self._deadline:
            self._timer.wait_until(min(now + pause, self._deadline), self._signal)
            self._paused(self._timer.monotonic() - now)
            pause = min(2 * pause, _LONGEST_PAUSE)
            yield

    def outlast(self, call: Callable[[], R], *, refusals: bool = True) -> R:
        """Call until the log can be reached. Raises Unreachable when the time is over.

        A refused login is outlasted too, as one that is being renewed, unless there was none before: no `refusals`.
        """
        for _ in self.looks():
            try:
                return call()
            except errors.Unreachable as error:
                unreachable = error
                if not self._outages or not (refusals or error.retryable):
                    break
        raise unreachable


# What to do where a log lacks what this node has followed: it is in its replicas alone.
AHEAD = (
    "an older log was put back, which lacks what this replica has: put the newer one back, or save it first, which"
    " holdfast.salvage(path, file) does; then holdfast.rebuild(path, ahead=True) follows the log without it"
)


def end_of(log: CommitLog, seen: int, patience: Patience) -> int:
    """Return the end of the log; one below a position that was seen before is doubted, and asked for again."""
    end = START
    for _, _ in zip(range(_LOW_ENDS), patience.looks(), strict=False):
        end = log.head()
        if end >= seen:
            break
    return end


def send(log: CommitLog, raw: bytes, id: str, expected: int, patience: Patience) -> int:
    """Append an entry and return its position. Raises LogMoved or Unreachable (not stored), or OutcomeUnknown.

    Repeating is safe: of all copies of an entry, and all entries of other nodes that expected the same end, at most one
    is ever appended. So it suffices to look at the first entry after the expected end.
    """
    in_doubt = False
    for _ in patience.looks():
        refused = False
        try:
            return log.append(raw, expected) if in_doubt else patience.outlast(lambda: log.append(raw, expected))
        except LostAnswer:
            in_doubt = True
        except LogMoved:
            refused = True  # by another node's entry, or by our own if the transport repeated it
        except errors.Unreachable:
            if not in_doubt:
                raise
        try:
            found = _find(log, id, expected, patience)
        except errors.Unreachable:
            in_doubt = True
            continue
        except Trimmed:  # for good: nobody can look any more
            break
        if found is not None:
            return found
        if refused and not in_doubt:
            raise LogMoved
    raise errors.OutcomeUnknown("the log did not confirm whether it has the changes")


def _find(log: CommitLog, id: str, expected: int, patience: Patience) -> int | None:
    """The position of our entry, None if nothing was appended. Raises LogMoved if another node's entry is there."""
    for _ in patience.looks():
        for position, raw in log.tail(expected):
            if position > expected:
                if from_bytes(raw, position).id == id:
                    return position
                raise LogMoved
        end = end_of(log, expected, patience)
        if end == expected:
            return None
        if end < expected:
            raise errors.Corrupt(f"the log ends at {end}, but ended at {expected} before", hint=AHEAD)
    raise errors.Unreachable("the log does not deliver all of its entries")
