"""A workspace whose time belongs to the test, and a server in a thread of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.faces.http.serving import Server
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
