"""For all tests of power loss: stores without checksums, whose VFS would lie over the recording one.

They change what pages hold, not the order of writes and syncs.
"""

from __future__ import annotations

import pytest

from holdfast.kernel import store as stores


@pytest.fixture(autouse=True)
def without_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "CHECKSUMS", None)
