"""The source of time: the `Clock` protocol, the system's clock, and `Now`, the workspace's own time.

Everything that waits or stamps takes its time from one Clock, so that tests and replay control it. All numbers are
microseconds. Invariant of `Now`: a workspace's time never runs backwards, because
now = max(wall clock, last commit + monotonic time since).
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

# Seconds after which a signal that came at the wrong instant is handled all the same.
HANDLERS = 1.0
# A last commit this far ahead of the wall clock means that one of the two clocks is or was wrong.
FAR_AHEAD = 5 * 60 * 1_000_000
# A leap of more than this is not believed by what destroys; nor is the time for as long after it.
LEAP = 24 * 3600 * 1_000_000
# What a reset of the clock adds to a stamp: more than any time before the year 2255.
RESET = 2**53


class Wakeable(Protocol):
    """Anything that can be woken to look again."""

    def set(self) -> None: ...


class Signal:
    """A wake-up that any thread may set and one waiting thread consumes."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the waiter, now or when it next waits."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:  # set meanwhile by another thread and not consumed yet: one wake-up is enough
                return

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `set`, at most `timeout` real seconds; True if it was set.

        A signal that comes just before the lock blocks does not end the wait, and Python would run its handler only
        afterwards. So the main thread, which runs the handlers, wakes up in between.
        """
        left = threading.TIMEOUT_MAX if timeout is None else max(0.0, timeout)
        if threading.get_ident() == threading.main_thread().ident:
            while left > HANDLERS:
                if self._lock.acquire(timeout=HANDLERS):
                    return True
                left -= HANDLERS
        return self._lock.acquire(timeout=left)


class Clock:
    """The only source of time. Implementations: `SystemClock`, and `holdfast.testing.ManualClock` for tests."""

    def wall(self) -> int:
        """Microseconds since 1970 UTC; may jump."""
        raise NotImplementedError

    def monotonic(self) -> int:
        """Microseconds since some start; never jumps."""
        raise NotImplementedError

    def max_sleep(self, deadline: int) -> float | None:
        """Real seconds that a waiter may sleep before it must read the clock again."""
        raise NotImplementedError

    def enroll(self, waiter: Wakeable) -> None:
        """Wake `waiter` when this clock is moved by hand. A clock that moves by itself need not."""

    def dismiss(self, waiter: Wakeable) -> None:
        """Undo `enroll`."""

    def wait_until(self, deadline: int | None, signal: Signal) -> bool:
        """Block until `signal` is set (True) or `monotonic()` has reached `deadline` (False)."""
        if deadline is None:
            return signal.wait()
        self.enroll(signal)
        try:
            while self.monotonic() < deadline:
                if signal.wait(self.max_sleep(deadline)):
                    return True
            return False
        finally:
            self.dismiss(signal)


class SystemClock(Clock):
    """The machine's clock."""

    def wall(self) -> int:
        try:
            return time.time_ns() // 1000
        except OverflowError as error:
            raise _too_late() from error

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1000

    def max_sleep(self, deadline: int) -> float | None:
        return max(0, deadline - self.monotonic()) / 1e6


class Now:
    """A workspace's time as one process sees it.

    A *stamp* is what the store keeps of its last commit: its time, and the number of clock resets. Stamps only grow,
    so an old snapshot differs from a reset, and between resets time never runs backwards.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        # The newest stamp seen, what to add to the monotonic clock, and what that said when the stamp was first seen.
        self._anchor = (-1, -(2**62), 0)

    def read(self, stamp: int) -> int:
        """Return the current time, given the stamp in the current snapshot."""
        return max(self.clock.wall(), self.witness(stamp))

    def witness(self, stamp: int) -> int:
        """Count monotonic time from this stamp on, if it is the newest; return what the time is by it."""
        newest, offset, _ = self._anchor
        monotonic = self.clock.monotonic()
        if stamp > newest:
            # A process that sees a commit for the first time counts monotonic time from then.
            seen = stamp % RESET - monotonic
            offset = max(offset, seen) if stamp // RESET == newest // RESET else seen
            self._anchor = (stamp, offset, monotonic)
        return monotonic + offset

    def ahead(self, stamp: int) -> int:
        """How far the workspace's time runs ahead of the wall clock."""
        return max(0, self.read(stamp) - self.clock.wall())

    def has_leaped(self, stamp: int, now: int) -> bool:
        """Whether more time than a day lies between the last commit and now that this process has not witnessed.

        An idle week looks like that to a process that has just started, and a wrong clock to any.
        """
        if stamp <= 0 or now - stamp % RESET <= LEAP:
            return False
        return now - stamp % RESET - (self.clock.monotonic() - self._anchor[2]) > LEAP

    def check_storable(self, now: int) -> None:
        """Raise ClockSkew for a time that no stamp has room for: this machine's clock must be wrong."""
        if now >= RESET:
            raise _too_late()

    def warn_if_far_ahead(self, now: int) -> None:
        """Log a warning if this machine's clock, or the one that made the last commit, must be wrong."""
        ahead = now - self.clock.wall()
        if ahead > FAR_AHEAD:
            _warn(ahead)


def _too_late() -> Exception:
    from holdfast.errors import ClockSkew

    message = "this machine's clock is past the year 2255, so nothing is written"
    return ClockSkew(message, hint="correct this machine's clock")


def _warn(ahead: int) -> None:
    from holdfast.errors import warn

    warn(
        f"the workspace's time is {ahead // 1_000_000} s ahead of this machine's clock, so one of them is wrong; time"
        " continues from the later one",
        "if this machine's clock is right, accept it: ws.clock.reset()",
    )
