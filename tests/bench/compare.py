"""Compares the processor time of two trees: `python -m tests.bench.compare ../before` with this one.

Every subject is a fixed amount of work through the public interface. Each run is a fresh process of the tree's own
`.venv`, with its store in memory where the machine has such a place; the trees take turns. Printed are their medians,
the ratio of these, and the ratio of the least times, which other load on the machine disturbs less. Processor time
counts threads and children, and does not wait for a disk or for other processes. With `--disk` the store is on the disk
of this folder, and what is printed is the time that passes: how long users wait, on a quiet machine. "store size" is
the one subject of another kind: the bytes of a closed store of 100,000 tasks with five events each, in MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import holdfast

ROUNDS = 9
SIZE = "store size"
MEMORY = Path("/dev/shm")
MEASURE = "measure"
DISK = "--disk"
Work = Callable[[], object]


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row for each subject. Ends with a message if a tree cannot do one."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == [MEASURE]:
        print(measure(argv[1], float(argv[2]), disk=argv[3:] == [DISK]))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compare", description=__doc__)
    parser.add_argument("before", type=Path, help="another tree, with its .venv made by `make setup`")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which: {', '.join(SUBJECTS)} (default: all), {SIZE}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(DISK, action="store_true", help="time that passes, with the stores in the current folder")
    parser.add_argument("--scale", type=float, default=1.0, help="do so much of everything")
    options = parser.parse_args(argv)
    if unknown := set(options.names) - {*SUBJECTS, SIZE}:
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    before = options.before.resolve() / ".venv" / "bin" / "python"
    if not before.exists():
        parser.error(f"{before} does not exist: run `make setup` there")
    print(f"{'subject':18} {'before':>9} {'now':>9} {'ratio':>6} {'of least':>8}")
    for name in options.names or SUBJECTS:
        unit = "MB" if name == SIZE else "s"
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(1 if name == SIZE else options.rounds):
            turns = list(zip((before, Path(sys.executable)), times, strict=True))
            for python, found in turns if number % 2 else reversed(turns):
                found.append(_measured_in(python, name, options.scale, options.disk))
        old, new = map(statistics.median, times)
        least = min(times[1]) / min(times[0])
        print(f"{name:18} {old:7.3f} {unit} {new:7.3f} {unit} {new / old:6.3f} {least:8.3f}", flush=True)
    return 0


def _measured_in(python: Path, name: str, scale: float, disk: bool) -> float:
    """Seconds that a fresh process of a tree takes for a subject."""
    # The other tree runs this file too, with its own library: -P keeps the folder of this file out of the path.
    command = [str(python), "-P", __file__, MEASURE, name, str(scale), *([DISK] if disk else [])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} fails with {python}:\n{done.stderr[-2000:]}")
    return float(done.stdout)


def measure(name: str, scale: float, disk: bool = False) -> float:
    """Seconds for a subject, without the making of its store: of the processor, or as they pass if it is on disk."""
    place = Path.cwd() if disk else MEMORY if MEMORY.is_dir() else None
    clock = time.perf_counter if disk else _processor_time
    with tempfile.TemporaryDirectory(dir=place) as folder, ExitStack() as closing:
        if name == SIZE:
            return size(Scene(Path(folder), scale, closing))
        work = SUBJECTS[name](Scene(Path(folder), scale, closing))
        began = clock()
        work()
        return clock() - began


def _processor_time() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Scene:
    """Where a subject works, and how much it does."""

    def __init__(self, folder: Path, scale: float, closing: ExitStack) -> None:
        self.folder = folder
        self._scale = scale
        self._closing = closing

    def open(self, name: str = "store") -> holdfast.Workspace:
        """A workspace that is closed after the work."""
        return self._closing.enter_context(holdfast.open(self.folder / name, actor="bench"))

    def count(self, full: int) -> int:
        """How many times, at this scale."""
        return max(1, round(full * self._scale))


def _fill(ws: holdfast.Workspace, count: int, **fields: Any) -> None:
    def create(numbers: range, tx: holdfast.Transaction) -> None:
        for number in numbers:
            tx.tasks.create(f"t{number}", **fields)

    for first in range(0, count, 500):
        ws.transact(partial(create, range(first, min(count, first + 500))))


def _in_threads(work: Callable[[int], None], count: int = 32) -> Work:
    def run() -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def _in_loop(work: Callable[[int], Coroutine[Any, Any, None]], count: int = 64) -> Work:
    async def run() -> None:
        await asyncio.gather(*[work(number) for number in range(count)])

    return lambda: asyncio.run(run())


# --- subjects: each makes its store and returns the work -----------------------------------------------------------


def get(scene: Scene) -> Work:
    ws = scene.open()
    ws.cells.set("s", "k", 1)
    return lambda: [ws.cells.get("s", "k") for _ in range(scene.count(200_000))]


def set_(scene: Scene) -> Work:
    ws = scene.open()
    return lambda: [ws.cells.set("s", f"k{n % 50}", n) for n in range(scene.count(6000))]


def increment_threads(scene: Scene) -> Work:
    ws = scene.open()

    def one(number: int) -> None:
        for _ in range(scene.count(600)):
            ws.cells.increment("s", "c")

    return _in_threads(one)


def increment_loop(scene: Scene) -> Work:
    ws = scene.open()

    async def one(number: int) -> None:
        for _ in range(scene.count(800)):
            await ws.aio.cells.increment("s", "c")

    return _in_loop(one)


def create(scene: Scene) -> Work:
    ws = scene.open()
    return lambda: _fill(ws, scene.count(10_000))


def claim(scene: Scene) -> Work:
    ws = scene.open()
    _fill(ws, scene.count(6000))
    return lambda: [ws.tasks.claim_next("a") for _ in range(scene.count(5000))]


def claim_threads(scene: Scene) -> Work:
    ws = scene.open()
    _fill(ws, scene.count(9000))

    def one(number: int) -> None:
        for _ in range(scene.count(250)):
            ws.tasks.claim_next(f"a{number}")

    return _in_threads(one)


def claim_loop(scene: Scene, **wanted: Any) -> Work:
    ws = scene.open()
    _fill(ws, scene.count(12_000), **({"tags": ["area/api", "kind/x"]} if wanted else {}))

    async def one(number: int) -> None:
        for _ in range(scene.count(160)):
            await ws.aio.tasks.claim_next(f"a{number}", **wanted)

    return _in_loop(one)


def claim_of_many(scene: Scene) -> Work:
    """Of 100,000 tasks with priorities and a hundred tags, as `make bench` has them."""
    ws = scene.open()

    def create(first: int, tx: holdfast.Transaction) -> None:
        for number in range(first, first + 500):
            tx.tasks.create(f"t{number}", tags=[f"area/{number * 7 % 100:03}"], priority=number * 3 % 4 + 1)

    for first in range(0, scene.count(100_000), 500):
        ws.transact(partial(create, first))

    async def one(number: int) -> None:
        for _ in range(scene.count(200)):
            await ws.aio.tasks.claim_next(f"a{number}")

    return _in_loop(one)


def claim_routed(scene: Scene) -> Work:
    """By the last of 21 routes, which needs an ability that the agents have."""
    lines = [f"  - {{grimoire: g{n}, any_tags: [area/{n}/**, kind/{n}], needs: [python]}}" for n in range(20)]
    lines.append("  - {grimoire: api, any_tags: [area/api], needs: [python]}")
    (scene.folder / "store").mkdir()
    (scene.folder / "store" / "grimoire-matchers.yaml").write_text("\n".join(["matchers:", *lines, ""]))
    return claim_loop(scene, can=["python"])


def _claimed(scene: Scene, work: Callable[[holdfast.Workspace, str, str], Coroutine[Any, Any, Any]]) -> Work:
    """Work on tasks that 64 agents have claimed, each its own."""
    ws = scene.open()
    _fill(ws, scene.count(6400))
    tasks: list[list[str]] = []
    for number in range(64):
        claim = partial(_claim_all, f"a{number}", scene.count(100))
        tasks.append(ws.transact(claim))

    async def one(number: int) -> None:
        for id in tasks[number]:
            await work(ws, id, f"a{number}")

    return _in_loop(one)


def _claim_all(agent: str, count: int, tx: holdfast.Transaction) -> list[str]:
    claimed = [tx.tasks.claim_next(agent) for _ in range(count)]
    return [task.id for task in claimed if task is not None]


def _words(number: int) -> str:
    return " ".join(f"w{number * factor % 9973:04}" for factor in (7, 11, 13, 17, 19))


def size(scene: Scene) -> float:
    """MB of a store whose tasks were created, claimed, noted, reprioritised and completed.

    No word is in more than a few tasks: a note takes a task's words out of the search index and puts them back, which
    takes several times as long for one that every task has.
    """

    def live(first: int, tx: holdfast.Transaction) -> None:
        numbers = range(first, min(count, first + 500))
        ids = [
            tx.tasks.create(f"t{number}", tags=[f"area/{number % 100:03}"], body=_words(number)).id
            for number in numbers
        ]
        for id in ids:
            tx.tasks.claim(id, "a")
        for id in ids:
            tx.tasks.note(id, "seen")
        for number, id in zip(numbers, ids, strict=True):
            tx.tasks.update(id, priority=number % 3)
        for id in ids:
            tx.tasks.complete(id, "a")

    count = scene.count(100_000)
    with holdfast.open(scene.folder / "store", actor="bench") as ws:
        for first in range(0, count, 500):
            ws.transact(partial(live, first))
    return (scene.folder / "store" / "holdfast.db").stat().st_size / 1e6


def bulk(scene: Scene) -> Work:
    ws = scene.open()
    tasks = [{"title": f"t{n}", "tags": [f"area/{n % 100:03}"], "body": "What is to be done."} for n in range(500)]
    return lambda: [ws.tasks.bulk("create", tasks=tasks) for _ in range(scene.count(20))]


def paths(scene: Scene) -> Work:
    """Among a hundred locks of others, lock and release a folder and check a file, again and again."""
    ws = scene.open()
    for number in range(100):
        ws.paths.lock([f"others/{number}/**"], holder="b")

    def run() -> None:
        for number in range(scene.count(1500)):
            pattern = f"src/{number % 50}/**"
            lock = ws.paths.lock([pattern])
            ws.paths.check(f"others/{number % 100}/x.py", "b")
            ws.paths.release(lock.id)

    return run


def mail(scene: Scene) -> Work:
    ws = scene.open()
    ws.agents.register("b")

    def run() -> None:
        for _ in range(scene.count(3000)):
            ws.mail.send("b", "subject", "body")
        for _ in range(scene.count(50)):
            ws.mail.inbox("b")

    return run


def stash(scene: Scene) -> Work:
    ws = scene.open()
    id = ws.stashes.create("c", "counter").id
    return lambda: [ws.stashes.increment(id) for _ in range(scene.count(5000))]


def watch(scene: Scene) -> Work:
    ws = scene.open()

    def run() -> None:
        with ws.watch() as events:
            for number in range(scene.count(2500)):
                ws.cells.set("s", "k", number)
                next(events)

    return run


def move_tasks(scene: Scene) -> Work:
    source, target = scene.open("source"), scene.open("target")
    _fill(source, scene.count(3000))
    target.tasks.import_(source.tasks.export(limit=1))  # loads what only these calls need

    def run() -> None:
        after = None
        while lines := source.tasks.export(after=after, limit=500):
            target.tasks.import_(lines)
            after = json.loads(lines[-1])["id"]

    return run


def next_command(scene: Scene) -> Work:
    _fill(scene.open(), 100)
    command = [str(Path(sys.executable).with_name("holdfast")), "next"]
    environment = {**os.environ, "HOLDFAST_ACTOR": "a", "HOLDFAST_DIR": str(scene.folder / "store")}

    def run() -> None:
        for _ in range(scene.count(12)):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

    return run


SUBJECTS: dict[str, Callable[[Scene], Work]] = {
    "cells.get": get,
    "cells.set": set_,
    "increment, threads": increment_threads,
    "increment, loop": increment_loop,
    "create": create,
    "bulk": bulk,
    "claim": claim,
    "claim, threads": claim_threads,
    "claim, loop": claim_loop,
    "claim of 100,000": claim_of_many,
    "claim by tag": partial(claim_loop, tags=["area/api"]),
    "claim by glob": partial(claim_loop, tag_pattern="area/*"),
    "claim by routes": claim_routed,
    "complete": partial(_claimed, work=lambda ws, id, agent: ws.aio.tasks.complete(id, agent)),
    "note": partial(_claimed, work=lambda ws, id, agent: ws.aio.tasks.note(id, "seen")),
    "heartbeat": partial(_claimed, work=lambda ws, id, agent: ws.aio.tasks.heartbeat(id, agent)),
    "mail": mail,
    "paths": paths,
    "stash": stash,
    "watch": watch,
    "export and import": move_tasks,
    "holdfast next": next_command,
}

if __name__ == "__main__":
    sys.exit(main())
