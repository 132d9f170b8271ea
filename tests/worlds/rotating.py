"""A workspace whose every call goes to the next of several nodes, for the conformance suite.

So every test that runs on it proves that what one node acknowledged the next one has seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from holdfast.kernel.tx import Row
from holdfast.operation import Operation, Sync
from holdfast.types import Report
from holdfast.workspace import Workspace
from holdfast.workspace.aio import AsyncWorkspace
from holdfast.workspace.context import LATEST
from holdfast.workspace.transaction import Root, Transaction
from tests.worlds.contents import contents

R = TypeVar("R")
SWEEPS = 10  # the clock of a test stands still, so there is one at most; more of them are a difference


class RotatingWorkspace(Root[Sync]):
    """The operations of a workspace, each on the next node."""

    def __init__(self, members: list[Workspace], turn: itertools.count[int] | None = None) -> None:
        super().__init__(self)
        self._members = members
        self._turn = turn or itertools.count()

    def _next(self) -> Workspace:
        return self._members[next(self._turn) % len(self._members)]

    def using(self, actor: Any = None, fence: Any = None, key: Any = None, at_least: Any = None) -> RotatingWorkspace:
        """The same with another call context."""
        members = [member.using(actor, fence, key, at_least) for member in self._members]
        return RotatingWorkspace(members, self._turn)

    def transact(self, body: Callable[[Transaction], R]) -> R:
        """`Workspace.transact` on the next node."""
        return self._next().transact(body)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """`Workspace.transaction` on the next node."""
        return self._next().transaction()

    @property
    def aio(self) -> AsyncWorkspace:
        """The awaitable twin of the next node."""
        return self._next().aio

    @property
    def actor(self) -> str:
        """Who acts."""
        return self._members[0].actor

    @property
    def revision(self) -> int:
        """The revision, as the next node knows it once it has caught up."""
        member = self._next().using(at_least=LATEST)
        member.reach()
        return member.revision

    @property
    def clock_ahead(self) -> float:
        """`Workspace.clock_ahead` of the next node."""
        return self._next().clock_ahead

    def settle(self) -> None:
        """Have every node catch up."""
        for member in self._members:
            member.using(at_least=LATEST).reach()

    def check(self) -> Report:
        """`Workspace.check` of every node, and that they are equal."""
        self.settle()
        reports = [member.check() for member in self._members]
        problems = [problem for report in reports for problem in report.problems]
        first, *others = self._same_moment()
        for other in others:
            problems += [f"the nodes differ in {table}" for table in first if first[table] != other.get(table)]
        return Report(problems, reports[0].revision, reports[0].events, reports[0].records)

    def _same_moment(self) -> list[dict[str, list[Row]]]:
        """What every node holds at one revision: a node may sweep by itself while the others are read."""
        for _ in range(SWEEPS):
            self.settle()
            found = [contents(member) for member in self._members]
            if all(each["meta"] == found[0]["meta"] for each in found):
                break
        return found

    def backup(self, path: Any) -> Path:
        """`Workspace.backup` of the next node."""
        return self._next().backup(path)

    def close(self) -> None:
        """Close every node."""
        for member in self._members:
            member.close()

    def bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """An operation on the next node."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return op.on(self._next())(*args, **kwargs)

        return call
