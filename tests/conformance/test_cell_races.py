"""Many at once on the same cell: no update is lost, and each round has one winner (C4 to C6, C8, C18).

Threads drive the handles. Each has one of its own, so that in a file they are as many programs as threads, and
where there are several processes the calls go to all of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from holdfast import errors
from holdfast.types import Cell
from holdfast.workspace import Workspace
from tests.conformance.test_cells import Refusal, refuse
from tests.worlds.kinds import World

R = TypeVar("R")
Outcome = int | errors.HoldfastError


def at_once(count: int, work: Callable[..., R], *given: object) -> list[R]:
    """What `work(number, *given)` answers in each of `count` threads that start together."""
    start = threading.Barrier(count)

    def run(number: int) -> R:
        start.wait()
        return work(number, *given)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def handles(world: World, count: int, shared: bool = False) -> list[Workspace]:
    """A handle for each thread, or one for all of them."""
    return [world.open()] * count if shared else [world.open(f"agent-{number}") for number in range(count)]


def tried(refusal: type[errors.HoldfastError], call: Callable[..., R], *args: object) -> R | errors.HoldfastError:
    """The answer, or the refusal that was to be expected."""
    try:
        return call(*args)
    except refusal as error:
        return error


def one_winner(outcomes: list[Outcome]) -> int:
    """The answer of the only one that was not refused."""
    won = [outcome for outcome in outcomes if not isinstance(outcome, errors.HoldfastError)]
    assert len(won) == 1, outcomes
    return won[0]


@pytest.mark.capability("transitions")
@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
def test_c8_8_threads_with_50_transitions_each_make_400(world: World, shared: bool) -> None:
    ws = handles(world, 8, shared)
    ws[0].cells.set("run", "cell", 0)

    def work(number: int) -> list[int]:
        return [ws[number].cells.transition("run", "cell", lambda value: value + 1).value for _ in range(50)]

    answers = at_once(8, work)
    assert sorted(value for answer in answers for value in answer) == list(range(1, 401))
    assert all(answer == sorted(answer) for answer in answers)
    found = ws[0].cells.get("run", "cell")
    assert (found.value, found.version) == (400, 401)
    told = [(step.version, step.value) for step in ws[0].cells.history("run", "cell")]
    assert told == [(value + 1, value) for value in range(400, -1, -1)]


@pytest.mark.capability("transitions")
@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
def test_c8_10_threads_that_write_first_by_transition_or_init_all_succeed(world: World, shared: bool) -> None:
    ws = handles(world, 10, shared)

    def work(number: int, cell: str) -> Cell:
        return ws[number].cells.transition_or_init("run", cell, 100, lambda value: value + 1)

    for cell in ("a", "b", "c"):
        made = at_once(10, work, cell)
        assert sorted((answer.value, answer.version) for answer in made) == [(100 + n, 1 + n) for n in range(1, 11)]
        history = ws[0].cells.history("run", cell)
        assert [(step.version, step.value) for step in history] == [(1 + n, 100 + n) for n in range(10, -1, -1)]


@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
def test_c4_the_final_version_is_the_number_of_cas_that_succeeded(world: World, shared: bool) -> None:
    ws = handles(world, 8, shared)

    def work(number: int) -> int:
        won = 0
        for _ in range(25):
            found = ws[number].cells.find("run", "cell")
            expected = None if found is None else found.version
            answer = tried(errors.VersionMismatch, ws[number].cells.cas, "run", "cell", expected, number)
            if not isinstance(answer, errors.HoldfastError):
                assert answer == (expected or 0) + 1
                won += 1
        return won

    wins = at_once(8, work)
    history = ws[0].cells.history("run", "cell")
    assert ws[0].cells.get("run", "cell").version == sum(wins) == len(history)
    assert Counter(step.value for step in history) == Counter({n: won for n, won in enumerate(wins) if won})


def test_c4_each_round_of_cas_has_exactly_one_winner_and_the_others_learn_its_value(world: World) -> None:
    ws = handles(world, 8)

    def work(number: int, expected: int | None) -> Outcome:
        return tried(errors.VersionMismatch, ws[number].cells.cas, "run", "cell", expected, number)

    for version in range(1, 16):
        outcomes = at_once(8, work, version - 1 or None)
        assert one_winner(outcomes) == version
        found = ws[0].cells.get("run", "cell")
        assert found.version == version
        assert outcomes[found.value] == version
        refused = [outcome for outcome in outcomes if isinstance(outcome, errors.VersionMismatch)]
        assert {(error.version, error.value) for error in refused} == {(version, found.value)}


def test_c5_of_many_that_init_a_cell_exactly_one_makes_it(world: World) -> None:
    ws = handles(world, 8)

    def work(number: int, cell: str) -> Outcome:
        return tried(errors.Exists, ws[number].cells.init, "run", cell, number)

    for cell in ("a", "b", "c", "d", "e"):
        outcomes = at_once(8, work, cell)
        assert one_winner(outcomes) == 1
        assert outcomes[ws[0].cells.get("run", cell).value] == 1


@pytest.mark.capability("callables")
@pytest.mark.parametrize(("threads", "shared"), [(32, True), (8, False)], ids=["one handle", "a handle each"])
def test_c6_get_or_init_by_32_threads_calls_the_default_once(world: World, threads: int, shared: bool) -> None:
    ws = handles(world, threads, shared)

    def work(number: int, cell: str, called: list[int]) -> Cell:
        def default() -> int:
            called.append(number)
            return number

        return ws[number].cells.get_or_init("run", cell, default)

    for cell in ("a", "b", "c", "d", "e"):
        called: list[int] = []
        found = at_once(threads, work, cell, called)
        [(winner, version)] = {(answer.value, answer.version) for answer in found}
        assert winner in called
        assert version == 1
        # A loser on another replica may have called its own for nothing.
        assert len(called) == 1 or "local" not in world.capabilities


def test_c6_the_losers_of_a_race_for_get_or_init_get_the_winners_value(world: World) -> None:
    ws = handles(world, 8)

    def work(number: int, cell: str) -> Cell:
        return ws[number].cells.get_or_init("run", cell, number)

    for cell in ("a", "b", "c", "d", "e"):
        found = at_once(8, work, cell)
        assert len(set(map(repr, found))) == 1
        assert found[0] == ws[0].cells.get("run", cell)
        assert found[0].version == 1


@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
def test_c18_increments_from_many_threads_never_lose_one(world: World, shared: bool) -> None:
    ws = handles(world, 8, shared)
    counts = at_once(8, lambda number: [ws[number].cells.increment("run", "cell") for _ in range(25)])
    assert sorted(count for answer in counts for count in answer) == list(range(1, 201))
    found = ws[0].cells.get("run", "cell")
    assert (found.value, found.version) == (200, 200)


def test_c18_of_many_that_compare_and_delete_exactly_one_does(world: World) -> None:
    ws = handles(world, 8)

    def work(number: int, version: int) -> Outcome:
        return tried(errors.VersionMismatch, ws[number].cells.compare_and_delete, "run", "cell", version)

    for _ in range(5):
        version = ws[0].cells.set("run", "cell", "value")
        outcomes = at_once(8, work, version)
        assert one_winner(outcomes) == version + 1
        refused = [outcome for outcome in outcomes if isinstance(outcome, errors.VersionMismatch)]
        assert {error.version for error in refused} == {None}


@pytest.mark.capability("transitions")
@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
def test_c8_who_fails_halfway_takes_nothing_of_the_others_along_and_leaves_nothing(world: World, shared: bool) -> None:
    ws = handles(world, 8, shared)

    def fail_or_count(number: int) -> None:
        for turn in range(10):
            if number % 2:
                with pytest.raises(Refusal):  # after the first of its two writes
                    ws[number].cells.transition_or_init("run", f"fresh-{number}-{turn}", 0, refuse)
            else:
                ws[number].cells.increment("run", "count")

    at_once(8, fail_or_count)
    assert ws[0].cells.list("run") == ["count"]
    assert (ws[0].cells.get("run", "count").value, ws[0].revision, len(ws[0].events.list())) == (40, 40, 40)


@pytest.mark.parametrize("attempt", range(5))
def test_many_that_open_a_fresh_workspace_at_once_all_succeed(world: World, attempt: int) -> None:
    counts = at_once(8, lambda number: world.open(f"agent-{number}").cells.increment("run", "cell"))
    assert sorted(counts) == list(range(1, 9))


def test_c2_a_cell_that_never_ended_is_always_found_while_its_expiry_comes_and_goes(world: World) -> None:
    ws = handles(world, 4)
    ws[0].cells.set("run", "cell", 0)
    done = threading.Event()

    def write() -> int:
        try:
            for number in range(150):
                ws[0].cells.set("run", "cell", number, ttl=60)
                ws[0].cells.set("run", "cell", number)
            return 0
        finally:
            done.set()

    def read(number: int) -> int:
        missed = 0
        while not done.is_set():
            missed += ws[number].cells.find("run", "cell") is None
        return missed

    assert at_once(4, lambda number: read(number) if number else write()) == [0, 0, 0, 0]
