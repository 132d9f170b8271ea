"""The group: one commit for all who wait, closing in the middle of it, and what happens when the engine gives way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Transaction, Workspace, errors
from holdfast.kernel.batch import CAUTION, Call, nothing
from holdfast.kernel.group import MAX_CALLS
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, Line, finish, start, together

CONFLICT = "INSERT OR ROLLBACK INTO meta SELECT * FROM meta"  # the engine rolls back everything, not only the body
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0"


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with holdfast.open(tmp_path / "store", actor="tester", clock=ManualClock()) as workspace:
        yield workspace


def set_cell(ws: Workspace, name: str) -> int:
    return ws.cells.set("run", name, 1)


def counting(commits: list[int]) -> Callable[[], bool]:
    """A commit hook that counts and lets the commit go on."""

    def hook() -> bool:
        commits.append(1)
        return False

    return hook


# --- one commit ------------------------------------------------------------------------------------------------------


def test_calls_that_wait_in_line_share_one_commit(ws: Workspace) -> None:
    commits: list[int] = []
    with Line(ws) as line:
        ws._engine.store.writer.set_commit_hook(counting(commits))
        calls = [line.queue(lambda n=number: set_cell(ws, f"cell-{n}")) for number in range(10)]  # type: ignore[misc]
    assert [call.result(LONG) for call in calls] == [1] * 10
    assert (len(commits), ws.revision) == (1, 10)


def test_a_caller_that_leads_from_behind_more_calls_than_a_group_takes_runs_them_first(ws: Workspace) -> None:
    class Left(Call):
        """A call of a loop that has stopped."""

        ready = False

        def answer(self) -> None:
            answered.append(self)

    answered: list[Call] = []
    waiting = [Left(nothing, "tester") for _ in range(MAX_CALLS + 1)]
    ws._engine.group.queue(waiting)
    assert set_cell(ws, "cell") == 1
    assert answered == waiting


def test_a_lone_read_only_body_costs_no_commit(ws: Workspace) -> None:
    commits: list[int] = []
    ws._engine.store.writer.set_commit_hook(counting(commits))
    ws.transact(lambda tx: tx.cells.find("run", "cell"))
    assert commits == []
    set_cell(ws, "cell")
    assert commits == [1]


def test_a_block_runs_alone_between_the_calls_before_and_behind_it(ws: Workspace) -> None:
    def block() -> int:
        with ws.transaction() as tx:
            tx.cells.set("run", "block", 1)
            return tx.revision

    with Line(ws) as line:
        before = line.queue(lambda: set_cell(ws, "before"))
        middle = line.queue(block)
        behind = line.queue(lambda: set_cell(ws, "behind"))
    assert (before.result(LONG), middle.result(LONG), behind.result(LONG)) == (1, 2, 1)
    assert [event.id for event in ws.events.list()] == ["before", "block", "behind"]


def test_an_error_is_given_to_its_own_caller_alone(ws: Workspace) -> None:
    with Line(ws) as line:
        calls: list[Future[Any]] = [
            line.queue(lambda: set_cell(ws, "a")),
            line.queue(lambda: ws.cells.cas("run", "a", 7, 1)),
            line.queue(lambda: ws.cells.init("run", "a", 1)),
            line.queue(lambda: set_cell(ws, "a")),
        ]
    assert (calls[0].result(LONG), calls[3].result(LONG)) == (1, 2)
    assert isinstance(calls[1].exception(LONG), errors.VersionMismatch)
    assert isinstance(calls[2].exception(LONG), errors.Exists)


def statements(ws: Workspace, work: Callable[[], None]) -> list[str]:
    """The savepoints of a group while some work is done."""
    seen: list[str] = []
    writer = ws._engine.store.writer
    writer.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: seen.append(event["sql"]))
    work()
    writer.trace_v2(0, None)
    return [sql for sql in seen if sql.endswith(" body")]


def test_a_body_that_fails_before_it_writes_costs_the_others_nothing(ws: Workspace) -> None:
    ran: list[int] = []

    def body(tx: Transaction) -> int:
        ran.append(1)
        return tx.cells.set("run", "a", 1)

    def group() -> None:
        with Line(ws) as line:
            before = line.queue(lambda: ws.transact(body))
            refused = line.queue(lambda: ws.transact(lambda tx: tx.cells.cas("run", "a", 7, 1)))
            after = line.queue(lambda: ws.transact(body))
        assert (before.result(LONG), after.result(LONG), len(ran)) == (1, 2, 2)
        assert isinstance(refused.exception(LONG), errors.VersionMismatch)

    assert statements(ws, group) == []


def test_a_body_that_fails_after_it_wrote_is_taken_back_alone_and_the_next_groups_are_careful(ws: Workspace) -> None:
    def right(tx: Transaction) -> int:
        tx.cells.set("run", "a", "right")
        return tx.revision

    def late(tx: Transaction) -> None:
        tx.cells.set("run", "a", "wrong")
        tx.locks.acquire("door", "late")
        raise ValueError("too late")

    def group() -> None:
        with Line(ws) as line:
            before = line.queue(lambda: ws.transact(right))
            failing = line.queue(lambda: ws.transact(late))
            after = line.queue(lambda: ws.locks.acquire("door", "after"))
        assert isinstance(failing.exception(LONG), ValueError)
        assert after.result(LONG).token == 4096 * ws.revision
        assert ws.cells.get("run", "a").value == "right"
        assert before.result(LONG) == ws.revision - 1
        ws.locks.release("door", "after")

    def fine() -> None:
        with Line(ws) as line:
            calls = [line.queue(lambda: set_cell(ws, "b")) for _ in range(2)]
        assert calls[0].result(LONG) + 1 == calls[1].result(LONG)

    apart = ["SAVEPOINT body", "RELEASE body"]
    failed = ["SAVEPOINT body", "ROLLBACK TO body", "RELEASE body"]
    for _ in range(2):  # the first time all run again
        assert statements(ws, group) == [*apart, *failed, *apart]
    for _ in range(CAUTION - 1):
        assert statements(ws, fine) == [*apart, *apart]
    assert statements(ws, fine) == []
    assert [event.revision for event in ws.events.list()] == list(range(1, ws.revision + 1))
    assert ws.check().ok


def fail_late(tx: Transaction) -> None:
    tx.cells.set("run", "late", 1)
    raise ValueError("too late")


def test_what_has_expired_ends_once_for_a_group_that_runs_again(ws: Workspace) -> None:
    clock = ws._engine.clock
    assert isinstance(clock, ManualClock)
    ws.locks.acquire("door", "gone", ttl=10)
    with Line(ws) as line:
        clock.advance(11)
        failing = line.queue(lambda: ws.transact(fail_late))
        after = line.queue(lambda: ws.locks.acquire("door", "after"))
    assert isinstance(failing.exception(LONG), ValueError)
    assert after.result(LONG).holder == "after"
    assert [event.op for event in ws.events.list(kinds=["lock"])] == ["acquire", "expire", "acquire"]
    assert [event.revision for event in ws.events.list()] == list(range(1, ws.revision + 1))
    assert ws.check().ok


# --- the engine gives way --------------------------------------------------------------------------------------------


def break_everything(tx: Transaction) -> None:
    tx.cells.set("run", "broken", 1)
    tx._tx.run(CONFLICT)


def test_when_the_engine_rolls_back_everything_the_others_run_again_and_count(ws: Workspace) -> None:
    with Line(ws) as line:
        before = line.queue(lambda: set_cell(ws, "before"))
        broken = line.queue(lambda: ws.transact(break_everything))
        after = line.queue(lambda: set_cell(ws, "after"))
    assert isinstance(broken.exception(LONG), apsw.ConstraintError)
    assert (before.result(LONG), after.result(LONG)) == (1, 1)
    assert [(event.revision, event.id) for event in ws.events.list()] == [(1, "before"), (2, "after")]
    assert ws.check().ok


@pytest.mark.parametrize("rolls_back", [fail_late, break_everything], ids=["the group", "the engine"])
def test_a_body_that_runs_again_has_its_last_outcome(ws: Workspace, rolls_back: Callable[[Transaction], None]) -> None:
    runs: list[int] = []

    def changing(tx: Transaction) -> int:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("the first time")
        return tx.cells.set("run", "cell", len(runs))

    with Line(ws) as line:
        call = line.queue(lambda: ws.transact(changing))
        failing = line.queue(lambda: ws.transact(rolls_back))
    assert failing.exception(LONG) is not None
    assert (call.result(LONG), len(runs), ws.cells.list("run")) == (1, 2, ["cell"])


def test_when_the_engine_rolls_back_under_a_lone_body_the_next_one_works(ws: Workspace) -> None:
    with pytest.raises(apsw.ConstraintError):
        ws.transact(break_everything)
    assert (ws.cells.list("run"), set_cell(ws, "next"), ws.revision) == ([], 1, 1)


@pytest.mark.parametrize("company", [0, 1])
def test_a_body_that_goes_on_after_the_engine_rolled_back_can_write_nothing(ws: Workspace, company: int) -> None:
    def stubborn(tx: Transaction) -> None:
        with pytest.raises(apsw.ConstraintError):
            tx._tx.run(CONFLICT)
        for call in (lambda: tx.cells.set("run", "stray", 1), lambda: tx.cells.find("run", "stray")):
            with pytest.raises(errors.Closed):
                call()
        raise ValueError("seen")

    with Line(ws) as line:
        call = line.queue(lambda: ws.transact(stubborn))
        others = [line.queue(lambda: set_cell(ws, "other")) for _ in range(company)]
    assert isinstance(call.exception(LONG), ValueError)
    assert [other.result(LONG) for other in others] == [1] * company
    assert "stray" not in ws.cells.list("run")


@pytest.mark.parametrize("company", [0, 1])
def test_a_body_that_hides_that_the_engine_rolled_back_is_not_acknowledged(ws: Workspace, company: int) -> None:
    def silent(tx: Transaction) -> str:
        tx.cells.set("run", "lost", 1)
        with pytest.raises(apsw.ConstraintError):
            tx._tx.run(CONFLICT)
        return "all is well"

    with Line(ws) as line:
        call = line.queue(lambda: ws.transact(silent))
        others = [line.queue(lambda: set_cell(ws, "other")) for _ in range(company)]
    assert call.exception(LONG) is not None
    assert [other.result(LONG) for other in others] == [1] * company
    assert ws.cells.list("run") == ["other"] * company
    assert set_cell(ws, "next") == 1
    assert ws.check().ok


def test_a_block_that_hides_that_the_engine_rolled_back_is_not_acknowledged(ws: Workspace) -> None:
    def block() -> None:
        with ws.transaction() as tx:
            tx.cells.set("run", "lost", 1)
            with pytest.raises(apsw.ConstraintError):
                tx._tx.run(CONFLICT)

    assert isinstance(start(block).exception(LONG), errors.HoldfastError | apsw.Error)
    assert (ws.cells.list("run"), ws.revision, ws.check().problems) == ([], 0, [])
    assert set_cell(ws, "next") == 1


def test_the_watchdog_breaks_off_a_statement_that_does_not_end(ws: Workspace) -> None:
    ws._engine.transaction_timeout = 0.05

    def block() -> None:
        with ws.transaction() as tx:
            tx.cells.set("run", "late", 1)
            tx._tx.one(ENDLESS)

    with pytest.raises(errors.Timeout):
        block()
    assert (ws.revision, set_cell(ws, "next")) == (0, 1)


def test_a_block_under_the_watchdog_cannot_be_used_from_the_interrupted_statement_on(ws: Workspace) -> None:
    ws._engine.transaction_timeout = 0.05
    refused: list[str] = []

    def block() -> None:
        with ws.transaction() as tx:
            with pytest.raises(errors.Unavailable):
                tx._tx.one(ENDLESS)
            start(lambda: set_cell(ws, "other")).result(LONG)
            with pytest.raises(errors.Closed):
                tx.cells.set("run", "stray", 1)
            refused.append("stray")

    with pytest.raises(errors.Timeout):
        block()
    assert refused == ["stray"]
    assert ws.cells.list("run") == ["other"]


# --- closing ---------------------------------------------------------------------------------------------------------


def block(ws: Workspace) -> None:
    with ws.transaction() as tx:
        tx.cells.set("run", "block", 1)


def test_closing_finishes_what_was_queued_before_and_closes_to_what_comes_behind(tmp_path: Path) -> None:
    ws = holdfast.open(tmp_path, actor="tester")
    with Line(ws) as line:
        before = line.queue(lambda: set_cell(ws, "before"))
        closing = line.queue(ws.close)
        behind: list[Future[Any]] = [line.queue(lambda: set_cell(ws, "behind")), line.queue(lambda: block(ws))]
        again = line.queue(ws.close)
    assert before.result(LONG) == 1
    assert closing.result(LONG) is again.result(LONG) is None
    assert [type(call.exception(LONG)) for call in behind] == [errors.Closed, errors.Closed]
    with holdfast.open(tmp_path, actor="tester") as fresh:
        assert fresh.cells.list("run") == ["before"]


def test_a_task_that_waits_in_line_behind_a_close_gets_closed(tmp_path: Path) -> None:
    ws = holdfast.open(tmp_path, actor="tester")

    async def main() -> None:
        with Line(ws) as line:
            closing = await asyncio.to_thread(line.queue, ws.close)
            task = asyncio.ensure_future(ws.aio.cells.set("run", "behind", 1))
            await asyncio.sleep(0)
        with pytest.raises(errors.Closed):
            await asyncio.wait_for(task, LONG / 6)
        await asyncio.wrap_future(closing)

    finish(main())


def test_every_call_on_a_closed_workspace_is_closed(tmp_path: Path) -> None:
    ws = holdfast.open(tmp_path, actor="tester")
    watch = ws.watch()
    set_cell(ws, "cell")
    ws.close()
    ws.close()
    calls = (
        lambda: ws.cells.get("run", "cell"),
        lambda: ws.cells.list("run"),
        lambda: set_cell(ws, "cell"),
        lambda: block(ws),
        lambda: ws.watch(),
        lambda: next(watch),
        lambda: ws.revision,
        lambda: ws.check(),
        lambda: ws.backup(tmp_path / "backup"),
        lambda: ws.transact(lambda tx: None),
        lambda: ws.using(actor="other").locks.acquire("lock"),
    )
    for call in calls:
        with pytest.raises(errors.Closed):
            call()


def test_closing_wakes_whoever_watches_or_waits_for_a_lock(tmp_path: Path) -> None:
    ws = holdfast.open(tmp_path, actor="tester")
    ws.locks.acquire("lock", "somebody")
    queued = ws.watch(kinds=["lock"])
    waiting: list[Future[Any]] = [
        start(lambda: next(ws.watch(kinds=["cell"]))),
        start(lambda: ws.cells.watch("run", "cell")),
        start(lambda: ws.locks.acquire("lock", "me", wait=1000)),
    ]
    assert next(queued).op == "wait"
    ws.close()
    assert [type(call.exception(LONG)) for call in waiting] == [errors.Closed] * 3


def test_closing_wakes_tasks_that_watch(tmp_path: Path) -> None:
    ws = holdfast.open(tmp_path, actor="tester")

    async def main() -> None:
        task = asyncio.ensure_future(ws.aio.cells.watch("run", "cell"))
        await asyncio.sleep(0)
        await asyncio.to_thread(ws.close)
        with pytest.raises(errors.Closed):
            await asyncio.wait_for(task, LONG / 6)

    finish(main())


def test_closing_by_many_at_once_closes_once_and_touches_no_descriptor_of_others(tmp_path: Path) -> None:
    def close_beside_a_writer(number: int) -> None:
        ws = holdfast.open(tmp_path / f"{number}", actor="tester")
        with holdfast.open(tmp_path / f"other-{number}", actor="tester") as other:
            works: list[Callable[[], object]] = [ws.close] * 4
            together(*works, lambda: [set_cell(other, "cell") for _ in range(10)])
            assert set_cell(other, "cell") == 11

    for number in range(5):
        close_beside_a_writer(number)


def test_writers_that_race_with_a_close_are_answered_or_closed_and_what_is_answered_is_there(tmp_path: Path) -> None:
    ws = holdfast.open(tmp_path, actor="tester")
    begun = threading.Barrier(5)

    def write(number: int) -> int:
        done = 0
        begun.wait()
        try:
            while True:
                ws.cells.set("run", f"cell-{number}", done)
                done += 1
        except errors.Closed:
            return done

    writers = [start(lambda n=number: write(n)) for number in range(4)]  # type: ignore[misc]
    watch = ws.watch()
    begun.wait()
    next(watch)
    ws.close()
    done = [writer.result(LONG) for writer in writers]
    with holdfast.open(tmp_path, actor="tester") as fresh:
        found = [fresh.cells.find("run", f"cell-{number}") for number in range(4)]
        assert [0 if cell is None else cell.version for cell in found] == done
        assert fresh.revision == sum(done) > 0


def test_a_lone_body_that_loses_everything_after_a_sweep_fails_alone_and_the_sweep_comes_again(tmp_path: Path) -> None:
    clock = ManualClock()
    with holdfast.open(tmp_path, actor="tester", clock=clock) as ws:
        ws._engine.pulse.stop()  # nobody sweeps by itself
        ws.cells.set("run", "short", 1, ttl=5)
        clock.advance(10)
        with pytest.raises(apsw.ConstraintError):
            ws.transact(lambda tx: tx._tx.run(CONFLICT))
        assert ws.revision == 1
        assert ws.cells.set("run", "cell", 1) == 1
        assert [event.op for event in ws.events.list()] == ["set", "expire", "set"]
        assert ws.check().ok
