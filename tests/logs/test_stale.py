"""A refusal on a replica that is behind: it is given only once the node has seen everything."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.testing import FaultyLog, ManualClock
from holdfast.testing.faulty_log import Fault, Method


def test_a_lone_body_that_failed_is_run_again_if_its_batch_has_caught_up_since(tmp_path: Path) -> None:
    """The batch had swept, so it begins again after the failure; what it then hears of may make the failure wrong."""
    clock = ManualClock()
    log = holdfast.MemoryLog(clock=clock)
    shows: list[Fault | None] = []

    def fault(method: Method) -> Fault | None:
        return shows.pop(0) if method == "tail" and shows else None

    with (
        holdfast.open(tmp_path / "a", actor="a", clock=clock, log=log) as a,
        holdfast.open(tmp_path / "b", actor="b", clock=clock, log=FaultyLog(log, fault)) as b,
    ):
        for node in (a, b):
            node._engine.pulse.stop()  # nobody follows or sweeps by itself
        b.cells.set("run", "short", 1, ttl=5)
        b.cells.set("run", "cell", "old")
        assert a.cells.set("run", "cell", "new") == 2  # acknowledged before anything below is asked
        clock.advance(10)
        shows[:] = ["lagging"]  # the first look of b misses it, and its first try sweeps and fails
        assert b.transact(lambda tx: tx.cells.cas("run", "cell", 2, "mine")) == 3
        assert shows == []
        assert b.cells.find("run", "short") is None
        with pytest.raises(errors.VersionMismatch) as refused:
            a.cells.cas("run", "cell", 2, "late")
        assert refused.value.details["version"] == 3
