"""The conformance suite: what every kind of workspace must do. `tests.worlds.drawing` says which test meets which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worlds.drawing import EVERY, choose, draw
from tests.worlds.kinds import World


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test its kinds; one that cannot have what the test needs is left out."""
    if "world" not in metafunc.fixturenames:
        return
    test = metafunc.definition
    needed = [mark.args[0] for mark in test.iter_markers("capability")]
    names = metafunc.config.getoption("kinds")
    if names:
        kinds = choose(names, needed)
    else:
        mark = test.get_closest_marker("kinds")
        seed = metafunc.config.getoption("randomly_seed", 0)
        kinds = draw(test.nodeid, mark.args[0] if mark else EVERY, needed, seed)
    metafunc.parametrize("world", kinds, ids=[kind.kind for kind in kinds], indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """One store of one kind; skipped if the arguments of the test need a capability that the kind cannot have."""
    kind: type[World] = request.param
    for mark in request.node.iter_markers("capability"):
        if mark.args[0] not in kind.capabilities:
            pytest.skip(f"the kind {kind.kind} has no {mark.args[0]}")
    world = kind(tmp_path)
    try:
        yield world
        report = world.checked()
        assert report.problems == []
    finally:
        world.close()
