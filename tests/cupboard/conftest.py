"""A cupboard on each kind of workspace: in memory, in a folder, behind a server; with a look at the store itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.cupboard import Cupboard, Stash
from holdfast.cupboard.entities import Crumb, Link, Trail
from holdfast.cupboard.tables import Table
from holdfast.testing import ManualClock
from tests.worlds.served import shared_server

KINDS = ("memory", "file", "http")


class Shelf(NamedTuple):
    """An attached cupboard, its tables, the workspace behind it, and how it was attached."""

    cupboard: Cupboard
    ws: holdfast.Workspace
    config: dict[str, Any]
    clock: ManualClock

    @property
    def stashes(self) -> Any:
        """The table of stashes, with its history."""
        return self.cupboard.table("stashes")

    @property
    def links(self) -> Table[Link]:
        return self.cupboard.table("links")

    @property
    def trails(self) -> Table[Trail]:
        return self.cupboard.table("trails")

    @property
    def crumbs(self) -> Table[Crumb]:
        return self.cupboard.table("crumbs")

    def stash(self, name: str = "one", stash_type: str = "counter", value: Any = None, **more: Any) -> Stash:
        """A stash that is stored."""
        stash = Stash(name, stash_type, value, **more)
        self.stashes.set("", stash)
        return stash

    def trail(self, name: str = "trail") -> Trail:
        """A trail that is stored."""
        trail = Trail(name, "active")
        self.trails.set("", trail)
        return trail


@pytest.fixture(params=KINDS)
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    """A cupboard on one kind of workspace."""
    yield from attached(request.param, tmp_path)


def attached(kind: str, folder: Path) -> Iterator[Shelf]:
    """A cupboard, until the test is over."""
    clock = ManualClock(folder / "clock")
    cupboard = Cupboard()
    if kind == "http":
        server = shared_server()
        name = server.add(folder / "store", clock)
        config: dict[str, Any] = {"url": f"{server.url}/{name}", "token": server.token, "actor": "tester"}
        ws: Any = holdfast.connect(config["url"], token=server.token, actor="judge")
    else:
        ws = holdfast.open(":memory:" if kind == "memory" else folder / "store", actor="judge", clock=clock)
        own = ws if kind == "memory" else holdfast.open(folder / "store", clock=clock)
        config = {"workspace": own, "actor": "tester"}
    cupboard.attach(config)
    try:
        yield Shelf(cupboard, ws, config, clock)
    finally:
        cupboard.detach()
        ws.close()
        if kind == "http":
            server.remove(name)
        else:
            own.close()
