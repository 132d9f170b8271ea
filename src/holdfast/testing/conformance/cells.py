"""State cells (C1 to C12, C18)."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.testing.worlds import World


def test_c1_set_creates_at_version_1_and_adds_1_each_time_also_for_an_equal_value(world: World) -> None:
    ws = world.open()
    assert [ws.cells.set("run", "cell", 7) for _ in range(3)] == [1, 2, 3]


def test_c2_a_stored_null_is_a_value_and_an_absent_cell_is_not_found(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", None)
    assert ws.cells.get("run", "cell").value is None
    assert ws.cells.find("run", "other") is None
    with pytest.raises(errors.NotFound):
        ws.cells.get("run", "other")
