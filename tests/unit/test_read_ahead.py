"""Tasks that are read ahead for the claims of a group: every change and every rollback in between counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import apsw
import pytest

import holdfast
from holdfast.domains.routing.config import Parents, set_parents
from holdfast.domains.tasks.readiness import claim_next
from holdfast.kernel.batch import CAUTION
from holdfast.kernel.tx import Tx
from holdfast.testing import ManualClock
from holdfast.types.tasks import Task
from holdfast.workspace import Workspace

Ask = Callable[[Any], Awaitable[Any]]


class Stop(Exception):
    """Raised by a body after it has written."""


@pytest.fixture
def ws() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="ann", clock=ManualClock()) as ws:
        yield ws


def fill(ws: Workspace, *titles: str) -> list[str]:
    return [ws.tasks.create(title, tags=["api"]).id for title in titles]


def in_one_group(ws: Workspace, *asks: Ask) -> list[str | None]:
    """Ask all at once; the titles of the tasks that came back."""

    async def run() -> list[Any]:
        return await asyncio.gather(*[ask(ws.aio) for ask in asks], return_exceptions=True)

    answers = asyncio.run(run())
    assert ws.check().problems == []
    assert all(isinstance(answer, Task | Stop | None) for answer in answers), answers
    return [answer.title if isinstance(answer, Task) else None for answer in answers]


def claim(aio: Any) -> Awaitable[Any]:
    return aio.tasks.claim_next("ann")  # type: ignore[no-any-return]


def claim_tagged(aio: Any) -> Awaitable[Any]:
    return aio.tasks.claim_next("ann", ["api"])  # type: ignore[no-any-return]


def taken_back(aio: Any) -> Awaitable[Any]:
    """A body that fails after it has claimed a task, without a savepoint of its own."""
    step: Any = next(claim_next("ann"))

    def body(tx: Tx) -> None:
        step.body(tx)
        raise Stop

    return aio._runner.submit(body, "ann")  # type: ignore[no-any-return]


def partly_taken_back(aio: Any) -> Awaitable[Any]:
    """A body that takes back a part of itself, and goes on."""
    step: Any = next(claim_next("ann"))

    def body(tx: Tx) -> None:
        with tx.dry_run():
            step.body(tx)

    return aio._runner.submit(body, "ann")  # type: ignore[no-any-return]


@pytest.mark.parametrize("ask", [claim, claim_tagged])
def test_a_group_of_claims_reads_ahead(ws: Workspace, ask: Ask) -> None:
    made = [f"t{number:02}" for number in range(70)]
    fill(ws, *made)
    reads: list[int] = []

    def note(_: apsw.Cursor, sql: str, bindings: Any) -> bool:
        if "ORDER BY" in sql and "LIMIT ?" in sql and sql.startswith("SELECT t.seq"):
            reads.append(bindings[-1])
        return True

    ws._engine.store.writer.exec_trace = note
    assert in_one_group(ws, *[ask] * 64) == made[:64]
    assert reads == [1, 2, 4, 8, 16, 32, 1]
    assert in_one_group(ws, *[ask] * 8) == [*made[64:], None, None]


def test_a_better_task_that_comes_meanwhile_is_claimed_first(ws: Workspace) -> None:
    fill(ws, *"abcdef")
    create: Ask = lambda aio: aio.tasks.create("urgent", priority=0)  # noqa: E731
    assert in_one_group(ws, *[claim] * 4, create, claim, claim) == ["a", "b", "c", "d", "urgent", "urgent", "e"]


def test_a_task_that_is_taken_meanwhile_is_passed_over(ws: Workspace) -> None:
    ids = fill(ws, *"abcdef")
    take: Ask = lambda aio: aio.tasks.claim(ids[4], "ann")  # noqa: E731
    assert in_one_group(ws, *[claim] * 4, take, claim) == ["a", "b", "c", "d", "e", "f"]


def test_a_title_that_changes_meanwhile_is_the_new_one(ws: Workspace) -> None:
    ids = fill(ws, *"abcdef")
    rename: Ask = lambda aio: aio.tasks.update(ids[4], title="new")  # noqa: E731
    assert in_one_group(ws, *[claim] * 4, rename, claim) == ["a", "b", "c", "d", "new", "new"]


@pytest.mark.parametrize("parents", ["strict", "independent"])
def test_a_parent_must_wait_as_soon_as_its_child_is_claimed(ws: Workspace, parents: Parents) -> None:
    ws.transact(lambda tx: set_parents(tx._tx, parents))
    fill(ws, "a")
    parent = ws.tasks.create("parent")
    ws.tasks.create("child", parent_id=parent.id, priority=1)
    urgent = [ws.tasks.create(title, priority=0).title for title in ("x", "y", "z")]
    assert in_one_group(ws, *[claim] * 7) == [*urgent, "child", "a", None, None]


@pytest.mark.parametrize("careful", [False, True], ids=["together", "each in its savepoint"])
@pytest.mark.parametrize("undo", [taken_back, partly_taken_back])
def test_a_task_whose_claim_is_rolled_back_comes_next(ws: Workspace, undo: Ask, careful: bool) -> None:
    fill(ws, *"abcdef")
    ws._engine.group.writer.caution = CAUTION if careful else 0
    assert in_one_group(ws, *[claim] * 4, undo, claim, claim) == ["a", "b", "c", "d", None, "e", "f"]
