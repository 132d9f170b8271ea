"""Runs the benchmarks that are named, or all, and prints the table."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import apsw

from tests.bench import (
    claims,
    client,
    cold,
    engines,
    fairness,
    fleet,
    get,
    growth,
    imports,
    increments,
    joining,
    langgraph,
    load,
    mail,
    queues,
    replicas,
    routing,
    scale,
    sharing,
    stashes,
    streams,
    task_growth,
    telemetry,
    turns,
    ui,
    watch,
)
from tests.bench.measure import Bench, Row, sync_rate

SUBJECTS = {
    "increments": increments.run,
    "get": get.run,
    "watch": watch.run,
    "fairness": fairness.run,
    "imports": imports.run,
    "cold": cold.run,
    "growth": growth.run,
    "replicas": replicas.run,
    "joining": joining.run,
    "engines": engines.run,
    "claims": claims.run,
    "task_growth": task_growth.run,
    "routing": routing.run,
    "mail": mail.run,
    "stashes": stashes.run,
    "queues": queues.run,
    "langgraph": langgraph.run,
    "streams": streams.run,
    "load": load.run,
    "client": client.run,
    "fleet": fleet.run,
    "ui": ui.run,
    "scale": scale.run,
    "telemetry": telemetry.run,
    "turns": turns.run,
    "share": sharing.run,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, whatever the figures; 1 if a benchmark broke."""
    options = _options(argv)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.dir))
    rows: list[Row] = []
    broken: list[str] = []
    try:
        _describe_machine(home)
        for name in options.names or SUBJECTS:
            folder = home / name
            folder.mkdir()
            print(f"\n{name}: {(sys.modules[SUBJECTS[name].__module__].__doc__ or '').splitlines()[0]}", flush=True)
            start = time.perf_counter()
            try:
                rows += SUBJECTS[name](Bench(folder, options.scale))
            except Exception:
                traceback.print_exc()
                broken.append(name)
            print(f"  ({time.perf_counter() - start:.0f} s)", flush=True)
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    _print_table(rows)
    for name in broken:
        print(f"BROKEN: {name}")
    return 1 if broken else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which: {', '.join(SUBJECTS)} (default: all)")
    beside = Path(__file__).resolve().parents[3]
    parser.add_argument(
        "--dir", type=Path, default=beside, help="a folder on the disk to measure (default: beside the repository)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="do so much of everything; the bars hold for 1")
    options = parser.parse_args(argv)
    unknown = set(options.names) - set(SUBJECTS)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return options


def _describe_machine(home: Path) -> None:
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()},"
        f" SQLite {apsw.sqlite_lib_version()}, {sync_rate(home, 0.5):,.0f} fdatasyncs a second"
    )


def _print_table(rows: list[Row]) -> None:
    print(f"\n{'subject':11} {'what':54} {'figure':>10}  {'bar':>10}  reached")
    for row in rows:
        bar = "" if row.at_most is None else f"<= {row.at_most:.4g}"
        bar = bar if row.at_least is None else f">= {row.at_least:.4g}"
        reached = "" if not bar else "yes" if row.reached else "NO" if row.applies else "no, does not apply here"
        print(f"{row.subject:11} {row.what:54} {row.figure:7.3f} {row.unit:2}  {bar:>10}  {reached}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
