"""`tx.dry_run()`: what a block does is taken back, what it has computed survives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Workspace, errors
from holdfast.domains import cells
from holdfast.kernel.tx import Tx


@pytest.fixture
def ws() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="me") as opened:
        opened.cells.set("run", "cell", 1)
        yield opened


def run(ws: Workspace, keep: bool = False, fail: bool = False) -> int:
    """Set a cell on trial, then another for good; returns the version that the trial computed."""

    def body(tx: Tx) -> int:
        with tx.dry_run() as trial:
            version = cells.set_cell(tx, "run", "cell", 2)
            if fail:
                raise errors.Invalid("enough")
            if keep:
                trial.keep()
        cells.set_cell(tx, "run", "other", 3)
        return version

    version: int = ws._engine.submit(body, "me")
    return version


def test_effects_are_taken_back_and_the_result_survives(ws: Workspace) -> None:
    before = ws.revision
    assert run(ws) == 2
    assert ws.cells.get("run", "cell").value == 1
    assert ws.cells.get("run", "other").value == 3, "what came after it counts"
    assert [(event.revision, event.id) for event in ws.events.list(after=before)] == [(before + 1, "other")]
    assert ws.check().ok


def test_a_trial_that_is_kept_counts(ws: Workspace) -> None:
    run(ws, keep=True)
    assert ws.cells.get("run", "cell").value == 2
    assert ws.check().ok


def test_a_trial_that_raises_leaves_nothing(ws: Workspace) -> None:
    before = ws.revision
    with pytest.raises(errors.Invalid):
        run(ws, fail=True)
    assert (ws.revision, ws.cells.get("run", "cell").value) == (before, 1)


def test_a_transaction_with_nothing_but_a_trial_takes_no_revision(ws: Workspace) -> None:
    before = ws.revision

    def body(tx: Tx) -> None:
        with tx.dry_run():
            cells.set_cell(tx, "run", "cell", 2)

    ws._engine.submit(body, "me")
    assert ws.revision == before
