"""What the logs on real engines have in common: a client that the logs of a process share, and hints of news.

An engine notifies its clients of new entries, but may fail to. So `tail` believes in silence for a while only, and only
while somebody listens. With many logs open that while is longer: all of them together ask fifty times a second.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, Self, TypeVar

from holdfast import errors
from holdfast.clock import Clock, SystemClock, Wakeable
from holdfast.ids import Ids
from holdfast.replication.log import START, CommitLog

_LOOK_ANYWAY = 2_000_000  # microseconds for which silence is believed to mean no news
_LOOK_SHARE = 20_000  # at least, for each log of the client


class SharedClient:
    """An engine as all logs of this process with one address reach it; the last of them closes it."""

    _clients: ClassVar[dict[tuple[type, int, str], Any]] = {}  # by process too: a child does not use its parent's
    _all: ClassVar = threading.Lock()

    @classmethod
    def of(cls, address: str) -> Self:
        """Return the one for an address, which the log gives back with `release`."""
        with cls._all:
            key = (cls, os.getpid(), address)
            found: Self = cls._clients.get(key) or cls._clients.setdefault(key, cls(address))
            found._key = key
            found._users += 1
            return found

    def __init__(self, address: str) -> None:
        self.address = address  # for messages: without secrets
        self._key: tuple[type, int, str] | None = None
        self._users = 0
        self._lock = threading.Lock()
        self._closed = False

    @property
    def silence(self) -> int:
        """Microseconds for which a log that heard nothing need not ask."""
        return max(_LOOK_ANYWAY, _LOOK_SHARE * self._users)

    def listen(self, log: Any) -> None:
        """Let a log hear of news, from now on and after each outage."""
        raise NotImplementedError

    def listens(self, log: Any) -> bool:
        """Whether a log would hear of news now."""
        raise NotImplementedError

    def release(self, log: Any) -> None:
        """A log is closed; the last one closes the client."""
        raise NotImplementedError

    def _count_out(self) -> bool:
        """Count a log out. True if it was the last: then this client is closed, and nobody finds it any more."""
        with self._all, self._lock:
            self._users -= 1
            if self._users:
                return False
            self._closed = True
            if self._key is not None:
                self._clients.pop(self._key, None)
            return True


C = TypeVar("C", bound=SharedClient)


class EngineLog(CommitLog, Generic[C]):
    """The log of one workspace on an engine."""

    max_entry = 128 * 1024

    def __init__(self, client: C, workspace: str, create: bool) -> None:
        self.name = workspace
        self._create = create
        self._client: C | None = client
        self._clock: Clock = SystemClock()
        self._ids = Ids()
        self._lock = threading.Lock()
        self._end = START  # the highest position known
        self._asked: int | None = None  # when the tail last came from the engine
        self._waiters: weakref.WeakSet[Wakeable] = weakref.WeakSet()

    def enroll(self, waiter: Wakeable) -> None:
        with self._lock:
            self._waiters.add(waiter)
        self._open().listen(self)
        self.hint()  # what came before it listened was not heard

    def dismiss(self, waiter: Wakeable) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def hint(self) -> None:
        """The log may have moved: the next tail asks the engine."""
        self._asked = None

    def wake(self) -> None:
        """Others may have moved the log: wake all waiters to look."""
        self.hint()
        self.wake_waiters()

    def wake_waiters(self) -> None:
        """Wake all waiters, which may look at what is known here."""
        with self._lock:
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.set()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.release(self)

    def _open(self) -> C:
        if self._client is None:
            raise errors.Unreachable(f"the log of {self.name} is closed")
        return self._client

    def _is_silent(self) -> bool:
        """Whether nothing can have happened that was not heard of."""
        client, asked = self._open(), self._asked
        return asked is not None and self._clock.monotonic() - asked < client.silence and client.listens(self)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """While the engine is asked for the tail: a hint that comes meanwhile counts, and so does a failure."""
        self._asked = self._clock.monotonic()
        try:
            yield
        except BaseException:
            self.hint()
            raise

    def _check_size(self, entry: bytes) -> None:
        if len(entry) > self.max_entry:
            raise ValueError(f"an entry has at most {self.max_entry} bytes, this one {len(entry)}")

    def _parted(self, blob: bytes, size: int) -> list[bytes]:
        """A blob in parts, at least one."""
        return [blob[start : start + size] for start in range(0, len(blob), size)] or [b""]

    def _unknown(self, where: str = "") -> errors.NotFound:
        return errors.NotFound(
            f"there is no workspace {self.name} in {self._open().address}{where}",
            hint="check the name; create=True makes it",
        )

    def _gone(self, hint: str) -> errors.Corrupt:
        return errors.Corrupt(f"{self._open().address} has no workspace {self.name} any more", hint=hint)

    def __repr__(self) -> str:
        where = self._client.address if self._client else "nothing: closed"
        return f"<{type(self).__name__} {self.name} in {where}>"
