"""Cold calls of the command line, as an agent makes them: a fresh process for each, on a store of 10,000 tasks.

Directly, and through a server that runs on the folder; against `python -c pass`, in turns. What the direct ones import
is timed apart, in a process that imports it and does no more.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import holdfast
from tests.bench.imports import Starter
from tests.bench.measure import Bench, Row, alternate

PROGRAM = Path(sys.executable).with_name("holdfast")  # as it is installed
# What each call loads, and nothing else.
IMPORTS = "import os; from holdfast.faces.cli import _import_msgspec; _import_msgspec(); import {modules}; os._exit(0)"
COMMON = "holdfast.faces.cli.call, holdfast.faces.cli.derive, holdfast.faces.cli.call, holdfast.workspace"
TASKS = f"{COMMON}, holdfast.domains.tasks"
# What a client tells the hooks before an edit and after a command of its shell; other commands do not read it.
EDIT = '{"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Write", "tool_input": {"file_path": "x"}}'
AFTER = '{"hook_event_name": "PostToolUse", "session_id": "s", "tool_name": "Bash", "tool_input": {"command": "make"}}'
BAR = 4
SERVED_BAR = 2.2
SERVED = "through a server, "


def run(bench: Bench) -> list[Row]:
    """Milliseconds of each, in turns; ratios to a bare Python, and the share of imports."""
    tasks = bench.count(10_000, 100)
    rounds = bench.count(15, 3)
    starter = Starter()
    direct, served = bench.folder / "store", bench.folder / "served"
    programs: dict[str, Callable[[], float]] = {"bare Python": partial(starter.time, "-c", "pass")}
    programs |= _calls(starter, direct, tasks, "")
    programs |= _calls(starter, served, tasks, SERVED)
    programs["imports, tasks"] = partial(starter.time, "-c", IMPORTS.format(modules=TASKS))
    programs["imports, cells"] = partial(starter.time, "-c", IMPORTS.format(modules=COMMON))
    with _serving(served):
        for program in programs.values():
            program()  # so that all bytecode is there
        figures = {name: statistics.median(values) for name, values in alternate(programs, rounds).items()}
    for name, milliseconds in figures.items():
        bench.say(f"  {name:30} {milliseconds:6.1f} ms")
    bare, rows = figures["bare Python"], []
    names = [name for name in programs if name in figures and "Python" not in name and "imports" not in name]
    for name in names:
        bar = SERVED_BAR if name.startswith(SERVED) else BAR
        rows.append(Row("cold", f"holdfast {name} / python -c pass", figures[name] / bare, at_most=bar))
    for name in ("claim", "next", "ready --json", "cell get"):
        loaded = figures["imports, cells" if name == "cell get" else "imports, tasks"] - bare
        rows.append(Row("cold", f"share of imports in {name}", loaded / (figures[name] - bare), ""))
    return rows


def _calls(starter: Starter, folder: Path, tasks: int, how: str) -> dict[str, Callable[[], float]]:
    """The calls on a new store."""
    ids = _fill(folder, tasks)
    place = ["--dir", str(folder), "--actor", "bench"]
    calls: dict[str, Callable[[], list[str]]] = {
        "claim": lambda: ["claim", ids.pop(), *place],
        "next": lambda: ["next", *place],
        "ready --json": lambda: ["ready", "--json", *place],
        "cell get": lambda: ["cell", "get", "run", "status", *place],
        "guard": lambda: ["guard", "README.md", *place],
        "guard --hook claude": lambda: ["guard", "--hook", "claude", *place],
    }
    if not how:  # after a tool, it asks nobody most of the time
        calls["prime --hook claude"] = lambda: ["prime", "--hook", "claude", *place]
    return {
        how + name: partial(_call, starter, words, AFTER if name.startswith("prime") else EDIT)
        for name, words in calls.items()
    }


def _call(starter: Starter, words: Callable[[], list[str]], told: str) -> float:
    return starter.time(str(PROGRAM), *words(), told=told)


@contextmanager
def _serving(folder: Path) -> Iterator[None]:
    """While a server runs on a folder."""
    command = [sys.executable, "-m", "holdfast", "serve", "--dir", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("listening on "), "the server does not start"
            yield
        finally:
            server.terminate()
            server.communicate()


def _fill(folder: Path, tasks: int) -> list[str]:
    """A store with this many tasks and a cell; answers the ids."""
    ids: list[str] = []
    with holdfast.open(folder, actor="bench") as ws:
        for start in range(0, tasks, 1000):
            new = [{"title": f"task {number}"} for number in range(start, min(start + 1000, tasks))]
            ids += [item.id for item in ws.tasks.bulk("create", tasks=new).results]
        ws.cells.set("run", "status", {"phase": "plan"})
    return ids
