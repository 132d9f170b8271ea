"""How the demo is shown: a live picture on a terminal that has rich, else a line for each thing that happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from holdfast.demo.board import DONE, OPEN, Board, progress

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

FRAME = 0.05  # seconds between two pictures, at least
COLOURS = {"killed": "bold red", "paused": "bold yellow", "fenced": "bold magenta"}


class View(Protocol):
    """Shows a board whenever it has changed."""

    def show(self, board: Board) -> None: ...


@contextmanager
def open_view() -> Iterator[View]:
    """The best view that this output can have."""
    # The demo needs nothing that the library does not need.
    if sys.stdout.isatty() and find_spec("rich") is not None:
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            yield Picture(live)
    else:
        yield Lines()


class Lines:
    """Prints what is new."""

    def __init__(self) -> None:
        self._printed = 0

    def show(self, board: Board) -> None:
        new = board.told - self._printed
        for line in list(board.latest)[-new:] if new else ():
            print(line, flush=True)
        self._printed = board.told


class Picture:
    """Draws agents, items and the latest events."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._drawn = 0.0

    def show(self, board: Board) -> None:
        now = time.monotonic()
        if now - self._drawn >= FRAME or board.all_done:
            self._drawn = now
            self._live.update(draw(board), refresh=True)


def draw(board: Board) -> RenderableType:
    """The board as tables."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.panel import Panel

    latest = Panel("\n".join(board.latest), title=f"events up to revision {board.revision}", title_align="left")
    return Group(Columns([_agents(board), _items(board)]), latest)


def _agents(board: Board) -> Table:
    from rich.table import Table

    table = Table("agent", "done", "works on", "", title="agents")
    for name, agent in board.agents.items():
        table.add_row(name, str(agent.done), agent.item or "-", agent.fate, style=COLOURS.get(agent.fate))
    return table


def _items(board: Board) -> Table:
    from rich.table import Table

    table = Table("item", "state", "by", "try", "progress", "lock held by", "token", title="items")
    for name, item in sorted(board.items.items()):
        holder, token = board.locks.get(name, ("", ""))
        style = "green" if item.state == DONE else "dim" if item.state == OPEN else None
        tries = str(item.tries or "")
        table.add_row(name, item.state, item.by, tries, progress(item), holder, str(token), style=style)
    return table
