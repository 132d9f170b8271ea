"""Errors at every failpoint, in process: whom it concerns is told, nothing is half done, and the next call works.

A plain error, one of the engine, and an interrupt of the main thread; on a workspace in one file, and on the nodes of a
replicated one, which are equal in the end, with everything there once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel import failpoints
from holdfast.kernel.engine import Engine
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, Line, finish, start
from holdfast.workspace.context import Context
from tests.e2e.test_failpoints import BACKUP, BATCH, MIGRATION, schema_and_id
from tests.logs.nodes import RUN, Nodes, assert_equal, eventually, journal, write

R = TypeVar("R")
COUNT = "count"
ERRORS = (RuntimeError, apsw.FullError, KeyboardInterrupt)
TOLD = (*ERRORS, errors.DiskFull, errors.OutcomeUnknown)
LOG = ("log.append", "log.appended", "log.fetched", "log.applied")
SNAPSHOT = tuple(name for name in failpoints.NAMES if name.startswith("snapshot."))
AFTER = "batch.committed"  # where it has happened

each_error = pytest.mark.parametrize("error", ERRORS)


class Strike:
    """A hook that raises once, when a place is reached for the n-th time."""

    def __init__(self, place: str, error: type[BaseException], times: int = 1) -> None:
        self._place, self._error, self._left = place, error, times

    def __call__(self, name: str) -> None:
        if name == self._place:
            self._left -= 1
            if self._left == 0:
                raise self._error("struck")

    def __enter__(self) -> Strike:
        failpoints.hook = self
        return self

    def __exit__(self, *_: object) -> None:
        failpoints.hook = None
        assert self._left <= 0, f"{self._place} was not reached"


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still."""
    return ManualClock()


@pytest.fixture
def ws(tmp_path: Path, clock: ManualClock) -> Iterator[holdfast.Workspace]:
    """A workspace without a pulse, so that only this test's calls come by a failpoint, and with something to sweep."""
    with holdfast.Workspace(Engine(tmp_path / "store", clock=clock, pulse=False), Context("me")) as workspace:
        workspace.leases.create(ttl=1)
        clock.advance(2)
        yield workspace


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Nodes that are closed at the end, whatever happened."""
    with Nodes(tmp_path) as nodes:
        yield nodes


def increment(ws: holdfast.Workspace) -> int:
    """What is counted happens once each time."""
    return int(ws.cells.increment(RUN, COUNT))


def count(ws: holdfast.Workspace) -> int:
    """How often it has happened."""
    found = ws.cells.find(RUN, COUNT)
    return 0 if found is None else int(found.value)


# --- a workspace in one file -----------------------------------------------------------------------------------------


def by_call(ws: holdfast.Workspace) -> None:
    """One operation, under a key."""
    increment(ws.using(key="once"))


def by_block(ws: holdfast.Workspace) -> None:
    """One block."""
    with ws.transaction() as tx:
        tx.cells.increment(RUN, COUNT)


def by_loop(ws: holdfast.Workspace) -> None:
    """One operation on an event loop, under a key."""

    async def work() -> None:
        await ws.using(key="once").aio.cells.increment(RUN, COUNT)

    try:
        finish(work())
    except KeyboardInterrupt:
        ws._engine.sweep()  # the loop may have begun again on its way out: this comes after it
        raise


@each_error
@pytest.mark.parametrize("place", BATCH)
@pytest.mark.parametrize("form", [by_call, by_block, by_loop])
def test_a_call_struck_anywhere_has_happened_or_not_and_the_next_one_works(
    ws: holdfast.Workspace, form: Callable[[holdfast.Workspace], None], place: str, error: type[BaseException]
) -> None:
    if form is by_loop and error is KeyboardInterrupt and place not in ("batch.begin", "batch.swept"):
        pytest.skip("the commit of a loop runs in a thread, where no signal strikes")
    with Strike(place, error), pytest.raises(TOLD) as told:
        form(ws)
    assert isinstance(told.value, (error, errors.DiskFull) if error is apsw.FullError else error)
    happened = count(ws)
    if form is not by_loop or error is not KeyboardInterrupt:  # of which nobody can say
        assert happened == (place == AFTER)
    assert ws.check().problems == []
    with holdfast.open(ws._engine.folder, actor="other", clock=ws._engine.clock) as other:
        assert increment(other) == happened + 1  # nobody has kept the turn
    by_call(ws)
    assert start(lambda: increment(ws)).result(LONG) == count(ws) == len(ws.cells.history(RUN, COUNT))
    assert count(ws) == 3 + (happened and form is by_block)  # which has no key to be known by
    assert [event.op for event in ws.events.list(kinds=["lease"])] == ["create", "expire"]
    assert ws.check().problems == []


@each_error
@pytest.mark.parametrize("place", BATCH)
def test_a_group_struck_anywhere_has_happened_or_not_and_everybody_is_told(
    ws: holdfast.Workspace, clock: ManualClock, place: str, error: type[BaseException]
) -> None:
    told = strike_group(ws, place, error, clock)
    done = [answer for answer in told if isinstance(answer, int)]
    if error is KeyboardInterrupt:  # strikes whoever leads; the others are led by the next
        assert len(done) == len(told) - 1
        assert count(ws) == len(done) + (place == AFTER)
    else:
        assert done == []
        assert count(ws) == (len(told) if place == AFTER else 0)
    assert len(set(done)) == len(done)
    assert start(lambda: increment(ws)).result(LONG) == count(ws)
    assert ws.check().problems == []


def strike_group(
    ws: holdfast.Workspace, place: str, error: type[BaseException], clock: ManualClock
) -> list[int | BaseException]:
    """Have a group of five struck, which finds something to sweep; answers what each of its callers is told."""

    def told(call: Future[int]) -> int | BaseException:
        try:
            return call.result(LONG)
        except TOLD as answer:
            return answer

    ws.leases.create(ttl=1)
    # Whoever holds up the line comes by with a transaction of its own, which changes nothing.
    with Strike(place, error, 2 if place in ("batch.begin", "batch.ran") else 1):
        with Line(ws) as line:
            waiting = [line.queue(lambda: increment(ws)) for _ in range(5)]
            clock.advance(2)
        return [told(call) for call in waiting]


@each_error
@pytest.mark.parametrize("place", BACKUP)
def test_a_backup_struck_anywhere_has_its_name_only_if_it_is_whole(
    ws: holdfast.Workspace, tmp_path: Path, place: str, error: type[BaseException]
) -> None:
    increment(ws)
    with Strike(place, error), pytest.raises(TOLD):
        ws.backup(tmp_path / "backup")
    if place == "backup.published":
        with pytest.raises(errors.Exists):
            ws.backup(tmp_path / "backup")
    else:
        assert not (tmp_path / "backup").exists()
        ws.backup(tmp_path / "backup")
    assert {path.name for path in tmp_path.iterdir()} == {"store", "backup", "backup.sha256"}
    holdfast.restore(tmp_path / "backup", tmp_path / "new")
    with holdfast.open(tmp_path / "new", actor="me") as new:
        assert (count(new), increment(new), new.check().problems) == (1, 2, [])
    assert increment(ws) == 2


@each_error
@pytest.mark.parametrize("place", MIGRATION)
def test_an_opening_struck_anywhere_is_done_another_time(
    tmp_path: Path, place: str, error: type[BaseException]
) -> None:
    with Strike(place, error), pytest.raises(TOLD):
        holdfast.open(tmp_path / "store")
    assert bool(schema_and_id(tmp_path / "store")[0]) == (place == "migration.committed")
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        assert (increment(ws), ws.check().problems) == (1, [])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
@pytest.mark.parametrize("place", MIGRATION)
def test_an_opening_that_fails_leaves_no_file_open(tmp_path: Path, place: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        with Strike(place, RuntimeError), pytest.raises(RuntimeError):
            holdfast.open(tmp_path / str(number))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("error", [RuntimeError, apsw.FullError])
def test_the_sweep_of_the_pulse_that_is_struck_is_done_again(
    tmp_path: Path, clock: ManualClock, error: type[Exception]
) -> None:
    struck = threading.Event()

    def hook(name: str) -> None:
        if name == "batch.swept" and not struck.is_set():
            struck.set()
            raise error("struck")

    with holdfast.open(tmp_path, actor="me", clock=clock) as ws, ws.watch(["lease"], after=0) as watch:
        ws.leases.create(ttl=1)
        failpoints.hook = hook
        try:
            clock.advance(2)
            assert struck.wait(LONG)
            eventually(lambda: expired_after(1, ws, clock))
        finally:
            failpoints.hook = None
        assert [next(watch).op, next(watch).op] == ["create", "expire"]


def expired_after(seconds: float, ws: holdfast.Workspace, clock: ManualClock) -> int:
    """How many leases have ended once so much time has passed; looks behind the back of `list`, which would sweep."""
    clock.advance(seconds)
    return int(ws._engine.read(lambda snapshot: snapshot.one("SELECT count(*) FROM events WHERE op = 'expire'"))[0])


# --- nodes of a log --------------------------------------------------------------------------------------------------


EVERYWHERE = [(place, 1, error) for place in (*MIGRATION, *BATCH, *LOG, *SNAPSHOT) for error in ERRORS]
LATER = [(place, 2, apsw.FullError) for place in (*BATCH, *LOG, *SNAPSHOT)]


@pytest.mark.parametrize(("place", "times", "error"), [*EVERYWHERE, *LATER])
def test_nodes_struck_anywhere_are_equal_in_the_end_and_nothing_happened_twice(
    nodes: Nodes, place: str, times: int, error: type[BaseException]
) -> None:
    told: list[BaseException] = []
    answers: list[int] = []

    def stubborn(work: Callable[[], R]) -> R:
        for _ in range(2):
            try:
                return work()
            except TOLD as struck:
                told.append(struck)
        return work()

    def join(name: str) -> holdfast.Workspace:
        return stubborn(lambda: nodes.engine(name, snapshot_every=3, fair=False, pulse=False))

    def work_on(node: holdfast.Workspace) -> None:
        keyed = node.using(key=f"call {len(answers)}")
        answers.append(stubborn(lambda: keyed.transact(body)))
        stubborn(journal(node).maintain)
        nodes.clock.advance(2)

    def body(tx: holdfast.Transaction) -> int:
        tx.leases.create(ttl=1)
        return int(tx.cells.increment(RUN, COUNT))

    with Strike(place, error, times):
        a, b = join("a"), join("b")
        for node in (a, b) * 4:
            work_on(node)
        b.close()
        for _ in range(10):  # until b is further back than the log
            work_on(a)
        b, c = join("b"), join("c")
        for node in (a, b, c):
            work_on(node)
    assert len(told) == 1
    assert answers == list(range(1, 22))
    assert_equal(a, b, c)
    assert (count(c), len(c.cells.history(RUN, COUNT))) == (21, 21)


@each_error
@pytest.mark.parametrize("place", [*BATCH, "log.append", "log.appended"])
def test_a_group_of_a_node_struck_anywhere_is_told_nothing_untrue(
    nodes: Nodes, place: str, error: type[BaseException]
) -> None:
    a, b = nodes.stale("a"), nodes.stale("b")
    told = strike_group(a, place, error, nodes.clock)
    found = count(b.using(at_least="latest"))
    done = [answer for answer in told if isinstance(answer, int)]
    undone = [answer for answer in told if isinstance(answer, errors.DiskFull)]  # which says that nothing was changed
    assert len(done) <= found <= len(told) - len(undone), told
    assert len(set(done)) == len(done)
    assert start(lambda: increment(a)).result(LONG) == found + 1
    assert_equal(a, b)


def test_an_entry_whose_blob_is_trimmed_while_a_node_applies_it_is_followed_by_a_snapshot(nodes: Nodes) -> None:
    a, b = nodes.engine("a", snapshot_every=3, pulse=False), nodes.stale("b")
    a.cells.set(RUN, "large", b"x" * 2 * nodes.log.max_entry)

    def hook(name: str) -> None:
        if name == "log.fetched":
            failpoints.hook = None
            start(lambda: write(a, 12)).result(LONG)  # two snapshots, and the log is trimmed between them

    failpoints.hook = hook
    assert b.cells.increment(RUN, "cell") == 13
    assert_equal(a, b)
