"""Upgrading a store past a migration that locks out the programs of its present schema.

Opening a workspace never does that; a person decides. A backup is written beside the store first, and nothing
happens if that fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from holdfast import errors
from holdfast.kernel import migrations
from holdfast.kernel.backup import backup
from holdfast.kernel.clock import Clock
from holdfast.kernel.store import FILE, Store, translate

BUSY_TIMEOUT = 10.0


def upgrade(folder: Path, clock: Clock, steps: Sequence[migrations.Migration] | None = None) -> int:
    """Bring a store to the newest schema this program knows; answers that schema. Nothing to do: nothing is written."""
    steps = migrations.load() if steps is None else steps
    if not (folder / FILE).is_file():
        raise errors.NotFound(f"there is no workspace in {folder}")
    store = Store(str(folder), durable=True, busy_timeout=BUSY_TIMEOUT)
    try:
        schema = migrations.schema_of(store.writer)
        if schema < len(steps):
            backup(store.writer, folder / f"before-schema-{len(steps)}-{clock.wall()}.backup", clock.wall())
            schema = migrations.migrate(store.writer, steps, "", lock_out=True)
        return schema
    except apsw.Error as error:
        raise translate(error) from error
    finally:
        store.close()
