"""For all tests: figures that tests print reach the terminal also from the worker processes of xdist."""

from __future__ import annotations

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """A worker's stdout leads nowhere, so `capsys.disabled()` would show nothing; let it lead where its stderr does."""
    if hasattr(config, "workerinput"):
        capturing = config.pluginmanager.getplugin("capturemanager")._global_capturing
        os.dup2(capturing.err.targetfd_save, capturing.out.targetfd_save)
