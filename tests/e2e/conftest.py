"""End to end: these tests kill, fill and break, and their files lie on the machine's disk."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    return on_disk
