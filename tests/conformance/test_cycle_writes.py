"""How PEER cycles take part in what belongs to every write: keys, fences, transactions, conditions, log and watch."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast import Exists, NotExists, Op, Transaction, ValueEquals, VersionEquals, errors
from tests.conformance.test_cycles import KEY, PHASES, statuses
from tests.conformance.test_stashes import refused
from tests.conformance.test_waiting import heard
from tests.worlds.kinds import World

callables = pytest.mark.capability("callables")
interactive = pytest.mark.capability("interactive")


# --- keys, fences, transactions, conditions --------------------------------------------------------------------------


def test_p4_a_step_repeated_with_its_key_happens_once_and_answers_the_same(world: World) -> None:
    ws = world.open()
    keyed = ws.using(key="k")
    made = keyed.cycles.start(spec="feature")
    assert keyed.cycles.start(spec="feature") == made
    begun = keyed.cycles.start_phase(KEY, "plan", sequence=1)
    assert keyed.cycles.start_phase(KEY, "plan", sequence=1) == begun
    noted = keyed.cycles.add_error(KEY, "plan", "odd")
    ws.cycles.update_phase(KEY, "plan", {"a": 1})
    assert keyed.cycles.add_error(KEY, "plan", "odd") == noted
    done = keyed.cycles.complete_phase(KEY, "plan", {"b": 2})
    assert keyed.cycles.complete_phase(KEY, "plan", {"b": 2}) == done
    refused(ws, errors.Invalid, lambda: keyed.cycles.complete_phase(KEY, "plan", {"b": 3}))
    ended = keyed.cycles.finish(KEY, "enough")
    assert keyed.cycles.finish(KEY, "enough") == ended
    noted_in = [len(phase.errors or ()) for phase in (ended.phases.plan, ended.phases.execute)]
    assert (ended.sequence, ws.revision, noted_in) == (6, 6, [1, 1])


def test_p4_a_refused_step_leaves_its_key_free(world: World) -> None:
    ws = world.open()
    keyed = ws.using(key="k")
    ws.cycles.start(spec="feature")
    ws.cycles.start_phase(KEY, "plan")
    ws.cycles.update_phase(KEY, "plan", {"a": 1})
    for _ in range(2):
        with pytest.raises(errors.CycleConflict):
            keyed.cycles.update_phase(KEY, "plan", {"a": 2}, sequence=2)
    assert len(ws.events.list(kinds=["cycle-conflict"])) == 2
    assert keyed.cycles.update_phase(KEY, "plan", {"a": 2}, sequence=3).sequence == 4


def test_p4_a_step_under_a_fence_passes_only_with_the_live_token(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("planner")
    fenced = ws.using(fence=("planner", grant.token))
    fenced.cycles.start(spec="feature")
    fenced.cycles.start_phase(KEY, "plan", sequence=1)
    ws.locks.release("planner")
    refused(ws, errors.Fenced, lambda: fenced.cycles.update_phase(KEY, "plan", {"a": 1}, sequence=2))
    refused(ws, errors.Fenced, lambda: fenced.cycles.start_phase(KEY, "plan", sequence=1))
    refused(ws, errors.Fenced, lambda: fenced.cycles.finish(KEY, "late"))
    assert (ws.cycles.get(KEY).sequence, ws.events.list(kinds=["cycle-conflict"])) == (2, [])


@callables
def test_p3_steps_in_one_transaction_are_written_together_or_not_at_all(world: World) -> None:
    ws = world.open()

    def whole(tx: Transaction, fails: bool = False) -> str:
        key = tx.cycles.start(spec="feature").cycle_id
        for phase in PHASES:
            sequence = tx.cycles.start_phase(key, phase).sequence
            tx.cycles.complete_phase(key, phase, {"in": "one"}, sequence=sequence)
        with pytest.raises(errors.InvalidTransition):
            tx.cycles.start_phase(key, "plan")
        tx.cells.set("run", "last", key)
        if fails:
            tx.cycles.start_phase(key, "review")
        return tx.cycles.finish(key).cycle_id

    refused(ws, errors.InvalidTransition, lambda: ws.transact(lambda tx: whole(tx, fails=True)))
    assert (ws.cycles.list(), ws.cells.list("run")) == ([], [])
    assert ws.transact(whole) == KEY
    assert (ws.revision, ws.cycles.get(KEY).sequence, ws.cells.get("run", "last").value) == (1, 10, KEY)
    assert [event.version for event in ws.events.list(kinds=["cycle"])] == list(range(1, 11))


@interactive
def test_p3_steps_in_a_block_that_raises_never_happened(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    with pytest.raises(ZeroDivisionError), ws.transaction() as tx:  # noqa: PT012
        tx.cycles.start_phase(KEY, "plan")
        assert tx.cycles.get(KEY).sequence == 2
        raise ZeroDivisionError
    assert statuses(ws.cycles.get(KEY)) == ["pending"] * 4


def test_p4_a_transaction_can_depend_on_where_a_cycle_stands(world: World) -> None:
    ws = world.open()

    def true(condition: Any) -> bool:
        return ws.txn([condition], []).succeeded

    assert true(NotExists("cycle", KEY))
    ws.cycles.start(spec="feature")
    then = [
        Op("cycles.start_phase", {"key": KEY, "phase": "plan"}),
        Op("cells.set", {"run": "r", "cell": "c", "value": 1}),
    ]
    result = ws.txn([VersionEquals("cycle", "peer.spec.feature.cycle.1", 1)], then)
    assert (result.succeeded, result.results[0].sequence) == (True, 2)
    assert not ws.txn([VersionEquals("cycle", KEY, 1)], then).succeeded
    assert (true(Exists("cycle", KEY)), true(NotExists("cycle", KEY))) == (True, False)
    document = ws.cycles.export(KEY)
    assert true(ValueEquals("cycle", KEY, document))
    assert not true(ValueEquals("cycle", KEY, {**document, "sequence": 3}))
    assert not true(Exists("cycle", "peer:spec:feature:cycle:2"))
    for wrong in ("", "peer:spec:feature", "somewhere"):
        refused(ws, errors.InvalidID, partial(true, Exists("cycle", wrong)))
    refused(ws, errors.InvalidTransition, lambda: ws.txn([Exists("cycle", KEY)], then))
    ws.cycles.finish(KEY, "enough")
    ws.cycles.delete(KEY)
    assert true(NotExists("cycle", KEY))


# --- the log and those who watch it ----------------------------------------------------------------------------------


def test_p10_the_log_has_every_document_that_was_written_and_a_watcher_hears_it(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    ws.cycles.start(spec="feature")
    other.cycles.start_phase(KEY, "plan")
    ws.cycles.update_phase(KEY, "plan", {"a": 1})
    event = heard(ws, "update_phase", KEY, 2, "cycle")
    assert (event.actor, event.version, event.data["phase"]) == ("a", 3, "plan")
    assert event.data["document"] == ws.cycles.export(KEY)
    other.cycles.finish(KEY, "enough")
    log = ws.events.list(kinds=["cycle"])
    assert [(each.op, each.actor, each.version, each.data["phase"]) for each in log] == [
        ("start", "a", 1, None),
        ("start_phase", "b", 2, "plan"),
        ("update_phase", "a", 3, "plan"),
        ("finish", "b", 4, None),
    ]
    assert [each.data["document"]["sequence"] for each in log] == [1, 2, 3, 4]
    with pytest.raises(errors.CycleConflict):
        other.cycles.add_error(KEY, "plan", "late", sequence=2)
    assert heard(ws, "refuse", KEY, 2, "cycle-conflict").actor == "b"
