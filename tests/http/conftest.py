"""A running server for each test that asks for one, and one under attack for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.matrix import Site, Sites
from tests.http.running import Running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "store")
    try:
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    sites = Sites(tmp_path_factory.mktemp("sites"))
    try:
        yield sites
    finally:
        sites.end()
    assert sites.leaks == [], "no log has a token, a ticket, or the trace of a failure"


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites.clean()
