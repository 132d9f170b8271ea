"""The pytest plugin: a fixture `workspace` for tests of code that uses Holdfast.

Installed with the package, so a test only has to name the fixture. The workspace lives in memory, its time stands still
until the test moves it, and after the test the store is checked: a test that leaves it inconsistent fails. What the
test has closed is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing.clock import ManualClock
    from holdfast.workspace import Workspace

ACTOR = "tester"


@pytest.fixture
def manual_clock() -> ManualClock:
    """The clock of the fixture `workspace`: it stands still until `advance(seconds)` or `jump(seconds)`."""
    from holdfast.testing.clock import ManualClock  # not at the top: pytest loads plugins for every test run

    return ManualClock()


@pytest.fixture
def workspace(manual_clock: ManualClock) -> Iterator[Workspace]:
    """A private workspace in memory; the actor is "tester", `workspace.using(actor=...)` acts as somebody else."""
    import holdfast

    with holdfast.open(":memory:", actor=ACTOR, clock=manual_clock) as workspace:
        yield workspace
        try:
            report = workspace.check()
        except holdfast.errors.Closed:  # by the code under test; the store has gone with it
            return
        assert report.ok, f"the store is inconsistent after the test: {report.problems}"
