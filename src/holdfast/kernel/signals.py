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
        self._found: list[Any] = []  # the handler of each signal when the shield was last raised
        self._handlers: dict[int, Handler] = {}  # those of them that the shield replaces
        self._raised = False
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
        found = list(map(_signal.getsignal, _SIGNALS))
        if found != self._found:
            handlers = dict(zip(_SIGNALS, found, strict=True))
            # One that is ours still was left by an interrupted change: its original is the one before.
            handlers |= {number: self._handlers[number] for number in handlers if handlers[number] == self._note}
            self._handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
            self._found = found
        self._raised = True
        for number in self._handlers:
            _signal.signal(number, self._note)

    def _lower(self) -> None:
        if self._raised:
            for number, handler in self._handlers.items():
                _signal.signal(number, handler)
            self._raised = False
        # Only now: until its own handler is restored, a signal may still be noted.
        while self._noted:
            number, frame = self._noted.pop(0)
            handler = _signal.getsignal(number)
            if callable(handler):
                handler(number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append((number, frame))


SHIELD = Shield()
