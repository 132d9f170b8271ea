"""`make smoke` forgets no extra (issue 26)."""

from __future__ import annotations

from tests.release import smoke


def test_every_extra_is_tried() -> None:
    assert sorted(smoke.TRIALS) == sorted(smoke.extras())
