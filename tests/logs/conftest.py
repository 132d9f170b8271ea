"""A log and its nodes for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.logs.nodes import Nodes

pytest.register_assert_rewrite("holdfast.testing.log_contract")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Nodes that are closed at the end, whatever happened."""
    with Nodes(tmp_path) as nodes:
        yield nodes
