"""What statements operations issue, and how SQLite goes about them: for tests that forbid walks over whole tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import apsw

import holdfast
from holdfast import Workspace
from holdfast.testing import ManualClock

CONTROL = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")
Plans = dict[
    str, list[tuple[str, tuple[str, ...]]]
]  # of each operation its statements, each with the lines of its plan


def table_of(sql: str, name: str) -> str:
    """The table behind an alias in a statement."""
    match = re.search(rf"(?:FROM|JOIN|UPDATE) (\w+)(?: AS)? {name}\b", sql)
    return match[1] if match else name


class Tracing:
    """A workspace whose connections are all traced: what runs `during` an operation is noted, then explained."""

    def __init__(self, actor: str) -> None:
        self.clock = ManualClock()
        self._seen: dict[str, dict[str, Any]] = {}
        self._doing: dict[str, Any] | None = None
        apsw.connection_hooks.append(self._trace)
        try:
            self.ws: Workspace = holdfast.open(":memory:", actor=actor, clock=self.clock)
            self.fill()
            self.run_all()
        finally:
            apsw.connection_hooks.remove(self._trace)
        self.plans = self._explain()
        self.ws.close()

    def fill(self) -> None:
        """Put something into the store."""
        raise NotImplementedError

    def run_all(self) -> None:
        """Call every operation, each `during` its name."""
        raise NotImplementedError

    def during(self, what: str, run: Callable[[], Any]) -> Any:
        """Note what is executed meanwhile."""
        self._doing = self._seen.setdefault(what, {})
        try:
            return run()
        finally:
            self._doing = None

    def _trace(self, connection: apsw.Connection) -> None:
        if not connection.filename.endswith(".db"):  # the copy of a backup
            return

        def note(_: apsw.Cursor, sql: str, bindings: Any) -> bool:
            if self._doing is not None and not sql.upper().startswith(CONTROL):
                self._doing.setdefault(sql, bindings)
            return True

        connection.exec_trace = note

    def _explain(self) -> Plans:
        connection = apsw.Connection(self.ws._engine.store.path)
        try:
            return {
                what: [
                    (sql, tuple(str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)))
                    for sql, bindings in list(statements.items())
                ]
                for what, statements in self._seen.items()
            }
        finally:
            connection.close()
