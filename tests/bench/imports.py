"""`import holdfast` against `import apsw, msgspec`: fresh processes, without what a bare Python takes to start.

Names of holdfast are loaded on first use, so the bare import says little: the bar also has to hold for what everybody
needs, `holdfast.open`. Bytecode is kept in a cache of the benchmark's own, so that no setting of the caller makes
each process compile the source anew.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.measure import Bench, Row, alternate

PROGRAMS = {
    "bare Python": "pass",
    "apsw, msgspec": "import apsw, msgspec",
    "holdfast": "import holdfast",
    "holdfast.open": "import holdfast; holdfast.open",
}
LEAST = 0.1  # milliseconds: what is less than the noise, such as the bare import of lazy names
LOOK = "import holdfast, sys; holdfast.open; print('asyncio' in sys.modules)"


def run(bench: Bench) -> list[Row]:
    """Milliseconds of each, in turns; and whether asyncio came along."""
    starter = Starter(bench.folder / "bytecode")
    for program in PROGRAMS.values():
        starter.time("-c", program)
    runs: dict[str, Callable[[], float]] = {name: partial(starter.time, "-c", code) for name, code in PROGRAMS.items()}
    figures = {name: statistics.median(values) for name, values in alternate(runs, bench.count(15, 5)).items()}
    for name, milliseconds in figures.items():
        bench.say(f"  {name:14} {milliseconds:6.1f} ms")
    bare = figures["bare Python"]
    added = {name: max(figures[name] - bare, LEAST) for name in figures}
    ours = {name: added[name] / added["apsw, msgspec"] for name in ("holdfast", "holdfast.open")}
    free = starter.run("-c", LOOK).strip() == "False"
    return [
        Row("imports", "import holdfast / apsw, msgspec", ours["holdfast"], at_most=1.3),
        Row("imports", "import holdfast; holdfast.open / apsw, msgspec", ours["holdfast.open"], at_most=1.3),
        Row("imports", "open loaded without asyncio (1: yes)", float(free), "", at_least=1),
    ]


class Starter:
    """Runs programs in fresh processes, with their bytecode in a folder, or where it is installed."""

    def __init__(self, bytecode: Path | None = None) -> None:
        self._environment = {**os.environ, **({"PYTHONPYCACHEPREFIX": str(bytecode)} if bytecode else {})}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(self, *words: str, told: str = "") -> str:
        """What Python prints with these words on its command line, and a text on its standard input."""
        command = [sys.executable, *words]
        how: dict[str, Any] = {"check": True, "env": self._environment, "capture_output": True, "text": True}
        return str(subprocess.run(command, input=told, **how).stdout)

    def time(self, *words: str, told: str = "") -> float:
        """Milliseconds it takes."""
        start = time.perf_counter()
        self.run(*words, told=told)
        return (time.perf_counter() - start) * 1000
