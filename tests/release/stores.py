"""The stores of released versions in tests/stores, and what their versions must never change again.

`python -m tests.release.stores` makes the store of the version that `holdfast.__version__` names, with something in
every table, and writes beside it what that version reads in it. It also notes the digest of each migration file. Run it
once before a release, and again after every change until then; a version with a tag in git is refused.

    tests/stores/0.2.0.tar.gz   the folder of a closed workspace
    tests/stores/0.2.0.json     what the calls of `READS` answered
    tests/stores/schema.json    version -> layout, and migration file -> SHA-256
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import apsw

import holdfast
from holdfast import Workspace, wire
from holdfast.interchange.task_export import FORMAT
from holdfast.kernel import migrations
from holdfast.kernel.store_files import FILE
from holdfast.testing import ManualClock
from tests.journal import ROOT
from tests.unit.test_check_columns import furnish_more
from tests.unit.test_damaged_stores import furnish, go_on

STORES: Final = ROOT / "tests" / "stores"
SCHEMA: Final = STORES / "schema.json"
ACTOR: Final = "me"
# Calls that together show all that is in a store. A later version may answer with more fields, never with others.
READS: Final[dict[str, Callable[[Workspace], Any]]] = {
    "cells": lambda ws: [ws.cells.get("run", name) for name in ws.cells.list("run")],
    "versions": lambda ws: ws.cells.history("run", "cell-1"),
    "tasks": lambda ws: ws.tasks.list(limit=100),
    "ready": lambda ws: ws.tasks.ready(limit=100),
    "found": lambda ws: ws.tasks.search("body"),
    "templates": lambda ws: ws.tasks.templates(),
    "locks": lambda ws: ws.locks.list(limit=100),
    "leases": lambda ws: ws.leases.list(limit=100),
    "paths": lambda ws: ws.paths.list(limit=100),
    "agents": lambda ws: ws.agents.list(limit=100),
    "inbox": lambda ws: ws.mail.inbox("ada", limit=100),
    "trails": lambda ws: ws.trails.list(limit=100),
    "stashes": lambda ws: ws.stashes.list(limit=100),
    "queue items": lambda ws: ws.queues.list(_stash(ws, "jobs"), limit=100),
    "messages": lambda ws: ws.channels.list(_stash(ws, "news")),
    "links": lambda ws: ws.links.list(limit=100),
    "shared tasks": lambda ws: ws.tasks.shared_lines(),
    "cycles": lambda ws: ws.cycles.list(limit=100),
    "threads": lambda ws: [ws.threads.get(info.id) for info in ws.threads.list()],
    "items": lambda ws: ws.items.search(),
    "events": lambda ws: ws.events.list(limit=1000),
}


def _stash(ws: Workspace, name: str) -> str:
    return next(stash.id for stash in ws.stashes.list(limit=100) if stash.name == name)


def read(ws: Workspace) -> dict[str, Any]:
    """What a store answers, as plain data."""
    return {name: json.loads(wire.json_bytes(wire.wired(call(ws)))) for name, call in READS.items()}


def released() -> list[str]:
    """The versions whose stores are kept."""
    return sorted(path.name.removesuffix(".tar.gz") for path in STORES.glob("*.tar.gz"))


def recorded() -> dict[str, Any]:
    """What each of them noted of its schema."""
    return dict(json.loads(SCHEMA.read_text())) if SCHEMA.exists() else {}


def schema_now() -> dict[str, Any]:
    """The layout, and the digest of each migration file."""
    files = sorted(Path(migrations.SCHEMA_FOLDER).glob("*.sql"))
    return {
        "layout": migrations.LAYOUT,
        "migrations": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }


def make(folder: Path) -> dict[str, Any]:
    """Make a store with something in every table; returns what it answers."""
    folder.mkdir()
    (folder / "config.yaml").write_text("prefix: hf\n")
    with holdfast.open(folder, actor=ACTOR, clock=ManualClock()) as ws:
        for fill in (furnish, go_on, furnish_more, _furnish_rest):
            fill(ws)
    answers = open_and_read(folder)
    with closing(apsw.Connection(str(folder / FILE), apsw.SQLITE_OPEN_READONLY)) as store:
        names = [str(name) for (name,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        counts = {name: store.execute(f"SELECT count(*) FROM {name}").get for name in names if "_fts" not in name}
    empty = sorted(name for name, count in counts.items() if not count)
    if unexpected := set(empty) - EMPTY:
        raise SystemExit(
            f"nothing is in {', '.join(sorted(unexpected))}: fill it in furnish_more of test_check_columns"
        )
    return answers


EMPTY: Final = {"local_replica", "waiters"}  # of replicas alone, and of calls that wait while the store is open


def _furnish_rest(ws: Workspace) -> None:
    """What no test of damage needs."""
    ws.tasks.import_([json.dumps({"format": FORMAT, "id": "hf-3m9x", "title": "from elsewhere"})])
    ws.routes.reload()


def open_and_read(folder: Path) -> dict[str, Any]:
    """What a store answers when it is opened at the time it was made."""
    with holdfast.open(folder, actor=ACTOR, clock=ManualClock()) as ws:
        answers = read(ws)
        problems = ws.check().problems
    assert not problems, problems
    return answers


def unpack(version: str, into: Path) -> Path:
    """The folder of a released version's store, made new."""
    with tarfile.open(STORES / f"{version}.tar.gz") as packed:
        packed.extractall(into, filter="data")
    return into / "store"


def main() -> None:
    """Make the store of this version, and note its schema."""
    version = holdfast.__version__
    tags = subprocess.run(["git", "tag", "--list", f"v{version}"], cwd=ROOT, capture_output=True, text=True, check=True)
    if tags.stdout.strip():
        sys.exit(f"{version} has been released: its store stays as it is; raise __version__ first")
    with tempfile.TemporaryDirectory() as place:
        answers = make(Path(place) / "store")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(Path(place) / "store", "store", filter=_plain)
    STORES.mkdir(exist_ok=True)
    (STORES / f"{version}.tar.gz").write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))
    (STORES / f"{version}.json").write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    SCHEMA.write_text(json.dumps({**recorded(), version: schema_now()}, indent=2) + "\n")
    print(f"tests/stores/{version}.tar.gz: {(STORES / f'{version}.tar.gz').stat().st_size:,} bytes")


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry if entry.isdir() or Path(entry.name).name in KEPT else None


KEPT: Final = {FILE, "commit.mark", "config.yaml"}


if __name__ == "__main__":
    main()
