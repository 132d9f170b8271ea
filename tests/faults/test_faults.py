"""The trial of `make faults`: it runs, and it notices what it is there for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import holdfast
from tests.faults.__main__ import NODES, Trial
from tests.faults.node import RUN, SHARED
from tests.worlds.nats import shared_server


@pytest.mark.early
def test_a_trial_notices_a_write_that_nobody_was_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{shared_server().url}/faults-{os.urandom(4).hex()}?sync=always"
    trial = Trial("jetstream", [url] * NODES, tmp_path)
    try:
        trial.strike("nothing", 1, lambda: None)
        assert trial.verdict()
        assert "0 lost, 0 doubled, replicas equal, check ok" in capsys.readouterr().out
        with holdfast.open(url, folder=tmp_path / "stranger", actor="stranger") as ws:
            ws.cells.increment(RUN, SHARED)
        assert not trial.verdict()
        assert "1 doubled" in capsys.readouterr().out
    finally:
        trial.end()
