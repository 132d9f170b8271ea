"""`python -m holdfast.demo`: what happens to the agents of the demo, shown live on a terminal or line by line.

The demo reacts to the event log, like any other watcher. It stops an agent first, and kills it or leaves it paused
only if it then holds a lock and is not in the middle of a commit; otherwise the agent resumes and the demo tries
again at the next event.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import holdfast
from holdfast import Event, errors
from holdfast.demo import agent
from holdfast.demo.agent import STEPS, fenced_of, items_of, results_of
from holdfast.workspace.watch import every

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table


OPEN, WORKING, DONE = "open", "working", "done"


class Item(msgspec.Struct):
    """A piece of work, according to the last event: the value of its cell."""

    state: str = OPEN
    by: str = ""
    tries: int = 0
    step: int = 0


class Person(msgspec.Struct):
    """An agent, according to the last event; `fate` is what the story did to it."""

    item: str = ""
    done: int = 0
    fate: str = ""


class Board:
    """The current state of one run of the demo."""

    def __init__(self, run: str, agents: Iterable[str], items: Iterable[str]) -> None:
        self._run = run
        self.agents = {name: Person() for name in agents}
        self.items = {name: Item() for name in items}
        self.locks: dict[str, tuple[str, int]] = {}  # item -> holder, token
        self.fenced: list[str] = []
        self.taken_over: list[str] = []
        self.latest: deque[str] = deque(maxlen=10)
        self.lines = 0  # so far
        self.revision = 0

    def apply(self, event: Event) -> None:
        """Apply an event, and add a line for it if it is interesting."""
        self.revision = event.revision
        words: str | None = None
        if event.kind == "lock" and event.id.startswith(f"{items_of(self._run)}/"):
            words = self._lock(event, event.id.rpartition("/")[2])
        elif event.kind == "cell" and event.scope == items_of(self._run):
            words = self._item(event)
        elif event.kind == "cell" and event.scope == fenced_of(self._run):
            words = self._fenced(event)
        if words:
            self.add_line(event.actor, words)

    def add_line(self, who: str, words: str) -> None:
        """Add a line to the latest events."""
        self.lines += 1
        self.latest.append(f"{self.revision:5}  {who:9} {words}")

    @property
    def all_done(self) -> bool:
        """Whether no work is left."""
        return all(item.state == DONE for item in self.items.values())

    def _lock(self, event: Event, item: str) -> str | None:
        if event.op == "acquire":
            holder, token = event.data["holder"][1], event.data["token"][1]
            self.locks[item] = (holder, token)
            return f"holds the lock of {item}, token {token}"
        if event.op not in ("release", "expire"):
            return None
        holder, _ = self.locks.pop(item)
        return f"ends the lock of {item}: {holder} no longer refreshes it" if event.op == "expire" else None

    def _item(self, event: Event) -> str | None:
        before = self.items[event.id].by
        item = self.items[event.id] = Item(**event.data["value"])
        if item.state == OPEN:
            return None
        worker = self.agents[item.by]
        if item.state == DONE:
            worker.item, worker.done = "", worker.done + 1
            return f"finishes {event.id}"
        if item.step:
            return None
        worker.item = event.id
        if not before:
            return f"claims {event.id}"
        self.taken_over.append(event.id)
        return f"takes over {event.id} from {before}"

    def _fenced(self, event: Event) -> str:
        self.fenced.append(event.id)
        self.agents[event.id].fate, self.agents[event.id].item = "fenced", ""
        late = event.data["value"]
        return f"is FENCED: its write to {late['item']} with the old token {late['token']} changes nothing"


def progress(item: Item) -> str:
    """Return a progress bar of an item's steps."""
    done = STEPS if item.state == DONE else item.step
    return "█" * done + "░" * (STEPS - done)


TIMEOUT = 60.0
BEAT = 0.25


class Story:
    """One run of the demo: the processes, the board, and the agents killed and paused."""

    def __init__(self, ws: holdfast.Workspace, folder: Path, agents: int, items: int, seed: int) -> None:
        self.run = f"demo-{ws.revision}"
        names = [f"item-{number:02}" for number in range(1, items + 1)]
        self.board = Board(self.run, [f"agent-{number}" for number in range(1, agents + 1)], names)
        self.killed: tuple[str, str] | None = None  # agent, item
        self.paused: tuple[str, str] | None = None
        self._fenced_before: int | None = None  # how many were fenced when the paused agent was resumed
        self._ws = ws
        self._folder = folder
        self._seed = seed
        self._start = ws.revision
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        new = msgspec.to_builtins(Item())
        ws.transact(lambda tx: [tx.cells.init(agent.items_of(self.run), name, new) for name in names])

    def play(self, show: Callable[[Board], None]) -> None:
        """Start the agents and follow the log until the story is over. Raises TimeoutError if that takes too long."""
        for name in self.board.agents:
            self._processes[name] = self._spawn(name)
        cursor: int | str = self._start
        end = time.monotonic() + TIMEOUT
        while not self._over():
            if time.monotonic() > end:
                raise TimeoutError(f"the demo did not finish within {TIMEOUT:g} s")
            for event in self._ws.watch(after=cursor, timeout=BEAT):
                cursor = event.cursor
                self.board.apply(event)
                self._intervene()
                show(self.board)
        self._await_agents()
        show(self.board)

    def stop(self) -> None:
        """End every remaining process, also a paused one."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C in the terminal reaches the story alone, which ends the agents itself.
        command = [sys.executable, "-m", "holdfast.demo.agent", str(self._folder), name, self.run, str(self._seed)]
        return subprocess.Popen(command, start_new_session=True)

    def _over(self) -> bool:
        if self.paused is None or not self.board.all_done:
            return self.board.all_done
        return self._fenced_before is not None and self.paused[0] in self.board.fenced[self._fenced_before :]

    def _await_agents(self) -> None:
        for name, process in self._processes.items():
            code = process.wait(timeout=TIMEOUT)
            if code and (self.killed is None or name != self.killed[0]):
                raise RuntimeError(f"{name} ended with exit code {code}")

    # --- interventions -----------------------------------------------------------------------------------------------

    def _intervene(self) -> None:
        done = sum(person.done for person in self.board.agents.values())
        if self.killed is None:
            if done >= len(self.board.items) // 6:
                self._kill_someone()
        elif self.paused is None:
            if self.killed[1] in self.board.taken_over:
                self._pause_someone()
        elif self._fenced_before is None:
            self._wake_late()

    def _kill_someone(self) -> None:
        caught = self._stop_someone()
        if caught is not None:
            name, item = self.killed = caught
            self._processes[name].kill()
            self._processes[name].wait()
            self._fate(name, "killed", f"kills {name} (kill -9), which holds the lock of {item}")

    def _pause_someone(self) -> None:
        caught = self._stop_someone()
        if caught is not None:
            name, item = self.paused = caught
            self._fate(name, "paused", f"pauses {name}, which holds the lock of {item}")

    def _wake_late(self) -> None:
        """Resume the paused agent once another agent has its item: a zombie that does not know."""
        assert self.paused is not None
        name, item = self.paused
        successor = self.board.items[item].by
        if successor != name:
            self._fenced_before = len(self.board.fenced)
            self._fate(name, "", f"resumes {name}, whose item now belongs to {successor}")
            self._processes[name].send_signal(signal.SIGCONT)

    def _fate(self, name: str, fate: str, words: str) -> None:
        self.board.agents[name].fate = fate
        self.board.add_line(self._ws.actor, words)

    def _stop_someone(self) -> tuple[str, str] | None:
        """Stop an agent in the middle of its work; returns its name and item."""
        for name, person in self.board.agents.items():
            if person.item and self._stop(name):
                if self._is_caught(name, person.item):
                    return name, person.item
                self._processes[name].send_signal(signal.SIGCONT)
        return None

    def _stop(self, name: str) -> bool:
        process = self._processes[name]
        if process.poll() is not None:
            return False
        process.send_signal(signal.SIGSTOP)
        info = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return info is not None and info.si_code == os.CLD_STOPPED

    def _is_caught(self, name: str, item: str) -> bool:
        try:
            # Stopped in the middle of a commit it would block all writers, which this write detects.
            self._ws.cells.set(self.run, "caught", name)
        except errors.Busy:
            return False
        grant = self._ws.locks.find(agent.lock_of(self.run, item))
        return grant is not None and grant.holder == name


FRAME = 0.05  # minimum seconds between two frames
COLOURS = {"killed": "bold red", "paused": "bold yellow", "fenced": "bold magenta"}


@contextmanager
def open_view() -> Iterator[Callable[[Board], None]]:
    """Open the best view for this output: a function that shows a board whenever it has changed."""
    # The demo needs nothing that the library does not need.
    if sys.stdout.isatty() and find_spec("rich") is not None:
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            yield Picture(live).show
    else:
        yield Lines().show


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
    for name, it in board.agents.items():
        table.add_row(name, str(it.done), it.item or "-", it.fate, style=COLOURS.get(it.fate))
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
    with holdfast.open(folder, actor="demo", busy_timeout=BUSY_TIMEOUT) as ws:
        story = Story(ws, folder, options.agents, options.items, options.seed)
        print(f"{options.agents} agents, {options.items} items, seed {options.seed}, workspace {folder}", flush=True)
        try:
            with open_view() as show:
                story.play(show)
        finally:
            story.stop()
        sound = _summarize(ws, story)
        print(f"time                     {time.monotonic() - start:.1f} s")
        return 0 if sound else 1


def _summarize(ws: holdfast.Workspace, story: Story) -> bool:
    """Print the outcome; False if it is not the expected one."""
    items = [*every(ws.cells.list, run=items_of(story.run))]
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
