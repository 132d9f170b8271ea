"""`python -m holdfast.demo`: several real processes share one workspace, one is killed, one comes too late."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import holdfast
from holdfast.demo.agent import items_of, results_of
from holdfast.demo.story import Story
from holdfast.demo.view import open_view

BUSY_TIMEOUT = 0.5  # seconds; the story must find out soon that it has stopped an agent in a commit


_interrupted: list[int] = []


def _interrupt(number: int, _: object) -> None:
    """Raise, and remember: what is raised while an object is being freed is swallowed by Python."""
    _interrupted.append(number)
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 if every item was done exactly once and nothing is wrong, 1 otherwise, 130 after Ctrl-C."""
    options = _options(argv)
    try:
        if options.dir is not None:
            code = _play(options.dir, options)
        else:
            with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
                code = _play(Path(folder) / "workspace", options)
    except KeyboardInterrupt:
        print("interrupted; the agents have been ended", file=sys.stderr)
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
    """Print how it ended; False if it did not end as it should have."""
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
    parser.add_argument("--agents", type=int, default=4, help="how many processes, at least 3 (default: 4)")
    parser.add_argument("--items", type=int, default=12, help="how many pieces of work (default: 12)")
    parser.add_argument("--seed", type=int, default=1, help="for the order and the length of the work (default: 1)")
    parser.add_argument("--dir", type=Path, help="a workspace to play in and keep (default: a temporary one)")
    options = parser.parse_args(argv)
    if options.agents < 3:
        parser.error("--agents: at least 3, because one is killed and one is paused")
    if options.items < 1:
        parser.error("--items: at least 1")
    return options


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the agents are ended on the way out
    sys.exit(main())
