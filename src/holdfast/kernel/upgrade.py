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
from holdfast.kernel.ids import Ids
from holdfast.kernel.journal import Journal
from holdfast.kernel.store import FILE, Store, translate
from holdfast.kernel.turns import Turns

BUSY_TIMEOUT = 10.0


def upgrade(
    folder: Path,
    clock: Clock,
    steps: Sequence[migrations.Migration] | None = None,
    journal: Journal | None = None,
) -> int:
    """Bring a store to the newest schema this program knows; answers that schema. Nothing to do: nothing is written."""
    steps = migrations.load() if steps is None else steps
    if not (folder / FILE).is_file():
        raise errors.NotFound(f"there is no workspace in {folder}")
    store = Store(str(folder), durable=True, busy_timeout=BUSY_TIMEOUT, replica=journal is not None)
    turns = Turns(str(folder))
    try:
        if not turns.take(BUSY_TIMEOUT):
            raise errors.Busy("other processes kept the turn to write")
        if journal is None:
            migrations.refuse_replica(store.writer)
        else:
            journal.open(store, Ids())
        schema = migrations.schema_of(store.writer)
        if schema < len(steps):
            backup(store.writer, folder / f"before-schema-{len(steps)}-{clock.wall()}.backup", clock.wall())
            if journal is None:
                return migrations.migrate(store.writer, steps, "", lock_out=True)
            return journal.migrate(lock_out=True)
        return schema
    except apsw.Error as error:
        raise translate(error) from error
    finally:
        store.close()
        turns.close()
