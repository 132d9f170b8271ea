"""For all tests: figures that tests print reach the terminal also from the worker processes of xdist."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def capsys(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> pytest.CaptureFixture[str]:
    """A worker's stdout leads nowhere: what is printed while capturing is off goes where its stderr does."""
    disabled = capsys.disabled

    @contextlib.contextmanager
    def shown() -> Iterator[None]:
        with disabled(), contextlib.redirect_stdout(sys.stderr):
            yield

    if hasattr(request.config, "workerinput"):
        monkeypatch.setattr(capsys, "disabled", shown)
    return capsys
