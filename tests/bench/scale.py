"""Many workspaces in one server, and many watchers of one workspace: memory, descriptors, threads, and idle cost.

The workspaces are folders below the server's, all open, and nobody calls. The watchers are sockets of this process;
each must get every event. `make bench ARGS="scale"`.
"""

from __future__ import annotations

import resource
import shutil
import time
from pathlib import Path

import holdfast
from tests.bench.load_server import Served
from tests.bench.measure import Bench, Row, percentile
from tests.bench.streams import trial
from tests.http.running import command

WORKSPACES = 1000
WATCHERS = 5000
IDLE = 20.0  # seconds
CHANGES = 20
FEW = 10


def run(bench: Bench) -> list[Row]:
    """Figures for each idle workspace, as the difference between few and many, and for many watchers."""
    _allow_files()
    return [*_workspaces(bench), *_watchers(bench)]


def _allow_files() -> None:
    """Every watcher is a socket here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _workspaces(bench: Bench) -> list[Row]:
    many = bench.count(WORKSPACES, 20)
    few, full = (_idle(bench, count) for count in (FEW, many))
    more = many - FEW
    memory, files, threads = ((full[at] - few[at]) / more for at in range(3))
    bench.say(
        f"  {many} idle workspaces in one server: {memory / 1e6:.2f} MB, {files:.1f} descriptors and {threads:.2f}"
        f" threads each; {full[3]:.1%} of a core in all ({FEW}: {few[3]:.1%})"
    )
    return [
        Row("scale", f"memory of each of {many} idle workspaces", memory / 1e6, "MB", at_most=2.0),
        Row("scale", f"{many} idle workspaces", full[3] * 100, "% of a core", at_most=10.0),
        Row("scale", "descriptors of each", files, ""),
        Row("scale", "threads of each", threads, ""),
    ]


def _idle(bench: Bench, count: int) -> tuple[float, float, float, float]:
    """Memory, descriptors and threads of a server with so many open workspaces, and its share of a core."""
    folder = bench.folder / f"scale-{count}"
    template = bench.folder / "template"
    if not template.exists():
        with holdfast.open(template, actor="bench") as ws:
            ws.tasks.create("bake")
    for number in range(count):
        shutil.copytree(template, folder / "workspaces" / f"w{number}")
    with Served(command(folder, "--port", "0"), folder) as served:
        process = Path(f"/proc/{served.pid}")
        _settle(process)
        began, cpu = time.perf_counter(), served.cpu
        time.sleep(IDLE * min(1.0, max(0.1, bench.scale)))
        share = (served.cpu - cpu) / (time.perf_counter() - began)
        files, threads = len([*(process / "fd").iterdir()]), len([*(process / "task").iterdir()])
        found = served.memory, files, threads, share
    shutil.rmtree(folder)
    return found


def _settle(process: Path) -> None:
    """Wait until the server has opened all of its workspaces: it opens no more files."""
    before = -1
    while before != (before := len([*(process / "fd").iterdir()])):
        time.sleep(3.0)


def _watchers(bench: Bench) -> list[Row]:
    clients, changes = bench.count(WATCHERS, 10), bench.count(CHANGES, 5)
    folder = bench.folder / "watched"
    with Served(command(folder, "--port", "0", "--max-watchers", str(clients + 1)), folder) as served:
        took = trial(served, "watched", clients, 0, changes)
        p50, p99 = percentile(took, 50), percentile(took, 99)
        bench.say(f"  {clients} watchers of one workspace: median {p50:.0f} ms, p99 {p99:.0f} ms, none missing")
    return [Row("scale", f"{clients} watchers, median", p50, "ms"), Row("scale", f"{clients} watchers, p99", p99, "ms")]
