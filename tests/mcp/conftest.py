"""A workspace whose time belongs to the test, a server in a thread of it, and the turn files of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import turnfile
from holdfast.faces.http.server import Server
from holdfast.testing import ManualClock
from tests.http.inside import serving


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ws(tmp_path: Path, clock: ManualClock) -> Iterator[holdfast.Workspace]:
    with holdfast.open(tmp_path / "inside", actor="ann", clock=clock) as workspace:
        yield workspace


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "served") as server:
        yield server


@pytest.fixture
def files(tmp_path: Path) -> turnfile.Session:
    session = turnfile.Session(tmp_path / "working-session")
    turnfile.init(session, "kiln", ["ann", "bob"], "mia")
    return session
