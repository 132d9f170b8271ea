"""Defer signals while the write lock, the lead or a transaction changes hands.

Python runs signal handlers in the main thread, between any two instructions. A KeyboardInterrupt there could leave the
lead or the write lock without an owner. So while the main thread is inside `with SHIELD`, a signal is only noted; its
handler runs at the end, or in a window, which is opened where the thread waits or runs a user's code. Other threads
pay nothing: no handler runs in them.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # not `signal`: its wrappers are slow, and this is around every write
from collections.abc import Callable
from threading import get_ident, main_thread
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]

# SIGINT last: until it is deferred nothing has begun, and when it is restored everything is done.
_NAMES = ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGINT")
_SIGNALS: tuple[int, ...] = tuple(getattr(_signal, name) for name in _NAMES if hasattr(_signal, name))


class Window:
    """A stretch of code inside the shield during which signals are delivered."""

    __slots__ = ("_depth", "_shield")

    def __init__(self, shield: Shield) -> None:
        self._shield = shield
        self._depth = 0

    def __enter__(self) -> None:
        self._depth = self._shield.open_window()

    def __exit__(self, *_: object) -> None:
        self._shield.close_window(self._depth)


class Shield:
    """One for the process: only the main thread has signal handlers."""

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[int, Handler] = {}  # the original ones
        self._noted: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if get_ident() == main_thread().ident:
            if self._depth == 0:
                self._raise()
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        if get_ident() == main_thread().ident:
            # A signal delivered in a window may have left the depth at 0.
            self._depth = max(0, self._depth - 1)
            if self._depth == 0:
                self._lower()

    def window(self) -> Window:
        """Deliver signals inside this context: for waiting, and for a user's code."""
        return Window(self)

    def open_window(self) -> int:
        """Deliver signals again; returns the depth for `close_window`."""
        if self._depth == 0 or get_ident() != main_thread().ident:
            return 0
        depth, self._depth = self._depth, 0
        try:
            self._lower()
        except BaseException:
            self.close_window(depth)
            raise
        return depth

    def close_window(self, depth: int) -> None:
        """Defer signals again."""
        if depth:
            self._raise()
            self._depth = depth

    def _raise(self) -> None:
        for number in _SIGNALS:
            handler = _signal.getsignal(number)
            if callable(handler) and handler != self._note:
                self._handlers[number] = handler
                _signal.signal(number, self._note)

    def _lower(self) -> None:
        handlers, self._handlers = self._handlers, {}
        for number in _SIGNALS:
            if number in handlers:
                _signal.signal(number, handlers[number])
        # Only now: until its own handler is restored, a signal may still be noted.
        while self._noted:
            number, frame = self._noted.pop(0)
            handler = _signal.getsignal(number)
            if callable(handler):
                handler(number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append((number, frame))


SHIELD = Shield()
