"""`python -m holdfast.demo`: run the demo and show it, live on a terminal or line by line."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import holdfast
from holdfast.demo.agent import items_of, results_of
from holdfast.demo.story import DONE, OPEN, Board, Story, progress

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table


FRAME = 0.05  # minimum seconds between two frames
COLOURS = {"killed": "bold red", "paused": "bold yellow", "fenced": "bold magenta"}


class View(Protocol):
    """Shows a board whenever it has changed."""

    def show(self, board: Board) -> None: ...


@contextmanager
def open_view() -> Iterator[View]:
    """Open the best view for this output."""
    # The demo needs nothing that the library does not need.
    if sys.stdout.isatty() and find_spec("rich") is not None:
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            yield Picture(live)
    else:
        yield Lines()


class Lines:
    """Prints new lines."""

    def __init__(self) -> None:
        self._printed = 0

    def show(self, board: Board) -> None:
        new = board.lines - self._printed
        for line in list(board.latest)[-new:] if new else ():
            print(line, flush=True)
        self._printed = board.lines


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
    """Draw the board as tables."""
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


BUSY_TIMEOUT = 0.5  # seconds; the story must notice soon that it has stopped an agent in a commit


_interrupted: list[int] = []


def _interrupt(number: int, _: object) -> None:
    """Raise, and remember: Python swallows what is raised while an object is being freed."""
    _interrupted.append(number)
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if every item was done exactly once and the check is clean, 1 otherwise, 130 after Ctrl-C."""
    options = _options(argv)
    try:
        if options.dir is not None:
            code = _play(options.dir, options)
        else:
            with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
                code = _play(Path(folder) / "workspace", options)
    except KeyboardInterrupt:
        print("interrupted; the agents have been stopped", file=sys.stderr)
        return 130
    return 130 if _interrupted else code


def _play(folder: Path, options: argparse.Namespace) -> int:
    start = time.monotonic()
    with holdfast.open(folder, actor="the story", busy_timeout=BUSY_TIMEOUT) as ws:
        story = Story(ws, folder, options.agents, options.items, options.seed)
        print(f"{options.agents} agents, {options.items} items, seed {options.seed}, workspace {folder}", flush=True)
        try:
            with open_view() as view:
                story.play(view.show)
        finally:
            story.stop()
        sound = _summarize(ws, story)
        print(f"time                     {time.monotonic() - start:.1f} s")
        return 0 if sound else 1


def _summarize(ws: holdfast.Workspace, story: Story) -> bool:
    """Print the outcome; False if it is not the expected one."""
    items = ws.cells.list(items_of(story.run))
    once = [item for item in items if len(ws.cells.history(results_of(story.run), item)) == 1]
    report = ws.check()
    print(f"\nitems done exactly once  {len(once)} of {len(items)}")
    for name, person in story.board.agents.items():
        print(f"  {name:22} {person.done} {person.fate}".rstrip())
    print(f"killed with its lock     {_fate(ws, story, story.killed)}")
    print(f"paused past its lock     {_fate(ws, story, story.paused)}")
    print(f"fenced                   {', '.join(sorted(set(story.board.fenced))) or 'nobody'}")
    print(f"revision                 {report.revision}, {report.events} events")
    print(f"check                    {'ok' if report.ok else '; '.join(report.problems)}")
    return report.ok and len(once) == len(items) and bool(story.killed and story.paused and story.board.fenced)


def _fate(ws: holdfast.Workspace, story: Story, who: tuple[str, str] | None) -> str:
    if who is None:
        return "nobody"
    agent, item = who
    finisher = ws.cells.get(results_of(story.run), item).value["by"]
    return f"{agent}, in the middle of {item}, which {finisher} finished"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m holdfast.demo", description=__doc__)
    parser.add_argument("--agents", type=int, default=4, help="number of processes, at least 3 (default: 4)")
    parser.add_argument("--items", type=int, default=12, help="number of pieces of work (default: 12)")
    parser.add_argument("--seed", type=int, default=1, help="for the order and length of the work (default: 1)")
    parser.add_argument("--dir", type=Path, help="a workspace to use and keep (default: a temporary one)")
    options = parser.parse_args(argv)
    if options.agents < 3:
        parser.error("--agents must be at least 3, because one is killed and one is paused")
    if options.items < 1:
        parser.error("--items must be at least 1")
    return options


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the agents are ended on exit
    sys.exit(main())
