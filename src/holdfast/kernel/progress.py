"""How far long work is: whoever does it tells, whoever wants to know listens.

It is told while it happens, before anything is committed, and is no part of the log. Nobody has to listen, and what a
listener raises is its own: it is called in the thread that works, so it hands over and returns.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

EVERY = 100  # steps: often enough to be seen moving


class Progress(msgspec.Struct, frozen=True):
    """So much of some work is done; `total` is not always known beforehand."""

    work: str
    done: int
    total: int | None = None


Listener = Callable[[Progress], None]
_listeners: dict[str, tuple[Listener, ...]] = {}  # by the path of the store


def listen(path: str, listener: Listener) -> Callable[[], None]:
    """Hear of long work on a store of this process; answers what ends it."""
    _listeners[path] = (*_listeners.get(path, ()), listener)

    def stop() -> None:
        left = list(_listeners.get(path, ()))
        if listener in left:
            left.remove(listener)
        if left:
            _listeners[path] = tuple(left)
        else:
            _listeners.pop(path, None)

    return stop


def tell(path: str, work: str, done: int, total: int | None = None) -> None:
    """Say how far it is."""
    for listener in _listeners.get(path, ()):
        listener(Progress(work, done, total))
