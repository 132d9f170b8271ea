"""One thing at a time: fibres that hand over a baton, so that a seed decides every interleaving.

Each fibre is a real thread, because the code under test knows nothing of being simulated; but only the one that holds
the baton runs. A fibre gives it back where it says `pause()`: at calls to the log and at failpoints. Killing a fibre
raises `Killed` there, and at every later pause, as it unwinds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

STUCK = 30.0  # real seconds after which a fibre that does not come back has blocked on something real


class Killed(BaseException):
    """The process of this fibre is dead; nothing catches it."""


class Fibre:
    """A thread that runs only when told to."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.done = False
        self.killed = False
        self.error: BaseException | None = None
        self._work = work
        self._mine, self._back = threading.Lock(), threading.Lock()  # released to hand the baton over
        self._mine.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._mine.acquire()
        _current.fibre = self
        try:
            if not self.killed:
                self._work()
        except Killed:
            self.killed = True
        except BaseException as error:
            self.error = error
        finally:
            self.done = True
            self._back.release()

    def resume(self) -> None:
        """Let it run until it pauses or ends; what it dies of is raised here."""
        self._mine.release()
        if not self._back.acquire(timeout=STUCK):
            raise RuntimeError(f"the fibre {self.name} does not come back")
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """Have it end where it stands."""
        self.killed = True
        while not self.done:
            self.resume()
        self._thread.join()

    def pause(self) -> None:
        """Give the baton back."""
        if not self.killed:
            self._back.release()
            self._mine.acquire()
        if self.killed:
            raise Killed


class _Current(threading.local):
    fibre: Fibre | None = None


_current = _Current()


def current() -> Fibre | None:
    """The fibre that runs here; None outside of fibres."""
    return _current.fibre


def pause() -> None:
    """In a fibre: let somebody else run. Elsewhere: nothing."""
    if _current.fibre is not None:
        _current.fibre.pause()
