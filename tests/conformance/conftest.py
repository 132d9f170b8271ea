"""The conformance suite: what every kind of workspace must do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.kinds import KINDS, World


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """One store of each kind; a test that needs a capability the kind cannot have is skipped there."""
    kind: type[World] = request.param
    for mark in request.node.iter_markers("capability"):
        if mark.args[0] not in kind.capabilities:
            pytest.skip(f"the kind {kind.kind} has no {mark.args[0]}")
    world = kind(tmp_path)
    try:
        yield world
        report = world.open().check()
        assert report.problems == []
    finally:
        world.close()
