"""Seeing the fleet: its status at one revision, its graph, its activity, and records as they were (G1 to G4)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast import errors
from holdfast.types.fleet import GraphEdge, TaskGraph
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")


def make(ws: Any, *titles: str) -> list[str]:
    """Make tasks; returns their ids."""
    return [ws.tasks.create(title).id for title in titles]


# --- G1: status ------------------------------------------------------------------------------------------------------


def test_g1_counts_follow_every_status(world: World) -> None:
    ws: Any = world.open()
    ready, waiting, held, review, blocked, closed, gone = make(ws, *"abcdefg")
    ws.tasks.depend(waiting, held)
    for id in (held, review, blocked, closed):
        ws.tasks.claim(id)
    ws.tasks.complete(review, review=True)
    ws.tasks.block(blocked, reason="no grammar")
    ws.tasks.complete(closed, review=False)
    ws.tasks.delete(gone)
    counts = ws.status().tasks
    assert (counts.ready, counts.waiting, counts.in_progress) == (1, 1, 1), ready
    assert (counts.review, counts.blocked, counts.closed, counts.closed_today) == (1, 1, 1, 1)
    later = ws.status().time + timedelta(hours=1)
    assert ws.status(midnight=later).tasks.closed_today == 0


def test_g1_an_agent_is_shown_with_the_claim_that_ends_first(world: World) -> None:
    ws: Any = world.open("ada")
    first, second = make(ws, "first", "second")
    ws.tasks.claim(first, ttl=600)
    ws.tasks.claim(second, ttl=90)
    (ada,) = (agent for agent in ws.status().agents if agent.name == "ada")
    assert (ada.task, ada.title, ada.tasks, ada.parked) == (second, "second", 2, False)
    assert ada.until - ada.since == timedelta(seconds=90)
    (soon,) = ws.status().claims
    assert (soon.task, soon.holder, soon.expired, soon.at) == (second, "ada", False, ada.until)
    world.clock.advance(100)
    (lost,) = ws.status().claims
    assert (lost.task, lost.holder, lost.expired, lost.held_by) == (second, "ada", True, None)
    world.open("bob").tasks.claim(second)
    assert [claim.held_by for claim in ws.status().claims] == ["bob"]
    for _ in range(2):  # the others end too, and an hour later nobody asks
        world.clock.advance(3700)
        ws.status()
    assert ws.status().claims == ()


def test_g1_a_parked_claim_has_no_end(world: World) -> None:
    ws: Any = world.open("ada")
    (id,) = make(ws, "a")
    ws.tasks.claim(id)
    ws.tasks.park(id)
    (ada,) = ws.status().agents
    assert (ada.task, ada.until, ada.parked) == (id, None, True)


def test_g1_locks_come_with_their_holders_and_who_waits(world: World) -> None:
    ws: Any = world.open("ada")
    (id,) = make(ws, "a")
    ws.tasks.claim(id, ttl=600)
    ws.locks.acquire("deploy")
    ws.paths.lock(["src/**"], task=id, reason="rewrite")
    bob: Any = world.open("bob")
    with pytest.raises(errors.Held):
        bob.locks.acquire("deploy", wait=0)
    named, path = sorted(ws.status().locks, key=lambda lock: lock.kind)
    assert (named.kind, named.name, named.holder, named.until, named.waiters) == ("lock", "deploy", "ada", None, ())
    assert (path.kind, path.patterns, path.task, path.reason) == ("path", ("src/**",), id, "rewrite")
    assert path.until == ws.tasks.get(id).deadline


def test_g1_a_lock_of_a_stash_and_a_message_have_the_names_that_people_know(world: World) -> None:
    ws: Any = world.open("ada")
    trail = ws.trails.create("release 2").id
    for name, where in (("gate", trail), ("motd", None)):
        ws.stashes.acquire(ws.stashes.create(name, "lock", trail=where).id, ttl=600)
    ws.agents.register("maya", role="person")
    asked = ws.mail.send("maya", "Which port?", type="decision-required")
    status = ws.status()
    assert {lock.stash for lock in status.locks} == {"release 2/gate", "motd"}
    (need,) = status.needs_you
    assert (need.id, need.short) == (asked.id, asked.short)


def _wait_in_vain(call: Any, wanted: Any) -> None:
    with pytest.raises(errors.Held):
        call(wanted, wait=30)


@pytest.mark.capability("local")
def test_g1_a_line_of_waiters_is_in_order(world: World) -> None:
    ws: Any = world.open("ada")
    ws.locks.acquire("deploy")
    ws.paths.lock(["src/**"])
    names, threads = ["bob", "cy"], []
    for name in names:
        world.clock.advance(5)
        other: Any = world.open(name)
        before = ws.revision
        for call, wanted in ((other.locks.acquire, "deploy"), (other.paths.lock, ["src/a"])):
            threads.append(threading.Thread(target=_wait_in_vain, args=(call, wanted)))
            threads[-1].start()
        with ws.watch(after=before, timeout=30) as seen:
            queued = 0
            for event in seen:
                queued += event.op == "wait"
                if queued == 2:
                    break
    status = ws.status()
    found = {lock.kind: [(each.name, each.patterns) for each in lock.waiters] for lock in status.locks}
    assert found == {"lock": [("bob", ()), ("cy", ())], "path": [("bob", ("src/a",)), ("cy", ("src/a",))]}
    for lock in status.locks:
        assert [(status.time - each.since).total_seconds() for each in lock.waiters] == pytest.approx([5, 0], abs=1)
    world.clock.advance(31)  # they give up
    for thread in threads:
        thread.join(30)
    assert all(lock.waiters == () for lock in ws.status().locks)


def test_g1_what_needs_a_person_comes_with_what_it_holds_up(world: World) -> None:
    ws: Any = world.open("ada")
    blocked, review, behind, further = make(ws, "blocked", "review", "behind", "further")
    ws.tasks.depend(behind, blocked)
    ws.tasks.depend(further, behind)
    for id in (blocked, review):
        ws.tasks.claim(id)
    ws.tasks.block(blocked, reason="no grammar")
    world.clock.advance(1)
    ws.tasks.complete(review, summary="all samples parse", review=True)
    world.clock.advance(1)
    ws.agents.register("maya", role="person")
    ws.mail.send("maya", "Which parser?", "LL or LR", type="decision-required", task=further)
    ws.mail.send("maya", "Hello", "there", type="notify")
    world.clock.advance(1)
    ws.locks.acquire("deploy")
    ws.locks.acquire("short", ttl=60)
    found = ws.status()
    assert found.needs == 4
    told = [(need.kind, need.title, need.reason, need.by, need.holds_up) for need in found.needs_you]
    assert told == [
        ("blocked", "blocked", "no grammar", "ada", 2),
        ("escalation", "Which parser?", "decision-required", "ada", 1),
        ("review", "review", "all samples parse", "ada", 0),
        ("lock", "deploy", None, "ada", 0),
    ]


def test_g1_mail_that_was_answered_needs_nobody(world: World) -> None:
    ws: Any = world.open("ada")
    ws.agents.register("maya", role="maintainer")
    asked = ws.mail.send("maya", "May I?", "merge it", type="request")
    told = ws.mail.send("maya", "Read this", "please", ack=True)
    maya: Any = world.open("maya")
    assert {need.id for need in ws.status().needs_you} == {asked.id, told.id}
    (state,) = (agent for agent in ws.status().agents if agent.name == "maya")
    assert (state.role, state.unread, state.unacknowledged) == ("maintainer", 2, 1)
    maya.mail.ack(told.id)
    maya.mail.ack(asked.id)
    assert [need.id for need in ws.status().needs_you] == [asked.id]
    maya.mail.action(asked.id)
    assert ws.status().needs_you == ()


def test_g1_mail_to_agents_needs_no_person(world: World) -> None:
    ws: Any = world.open("ada")
    ws.mail.send("bob", "Please", "do it", type="request", ack=True)
    assert ws.status().needs_you == ()


def test_g1_a_status_names_its_revision_and_refuses_what_is_no_time(world: World) -> None:
    ws: Any = world.open()
    make(ws, "a")
    assert ws.status().revision == ws.revision
    with pytest.raises(errors.Invalid):
        ws.status(midnight="yesterday")


# --- G2: graph -------------------------------------------------------------------------------------------------------


def test_g2_chains_slack_and_what_a_task_unblocks(world: World) -> None:
    ws: Any = world.open()
    a, b, c, d, alone = make(ws, *"abcde")
    for id, on in ((b, a), (c, b), (d, a)):
        ws.tasks.depend(id, on)
    found = ws.tasks.graph()
    nodes = {node.id: node for node in found.nodes}
    assert [nodes[id].depth for id in (a, b, c, d, alone)] == [0, 1, 2, 1, 0]
    assert [nodes[id].unblocks for id in (a, b, c, d, alone)] == [3, 1, 0, 0, 0]
    assert [nodes[id].slack for id in (a, b, c, d, alone)] == [0, 0, 0, 1, 2]
    assert [node.id for node in found.nodes if node.critical] == [a, b, c]
    assert [node.id for node in found.nodes if node.ready] == [a, alone]
    assert found.critical_path == (a, b, c)
    assert found.tracks == ((a, b, c, d),)
    assert found.blockers == (a, b)
    assert set(found.edges) == {GraphEdge("depends", id, on) for id, on in ((b, a), (c, b), (d, a))}
    assert found.revision == ws.revision


def test_g2_closed_tasks_hold_up_nothing_and_are_shown_on_request(world: World) -> None:
    ws: Any = world.open()
    a, b, c = make(ws, *"abc")
    ws.tasks.depend(b, a)
    ws.tasks.depend(c, b)
    ws.tasks.claim(a)
    ws.tasks.complete(a, review=False)
    found = ws.tasks.graph()
    assert ([node.id for node in found.nodes], found.critical_path) == ([b, c], (b, c))
    whole = ws.tasks.graph(include_closed=True)
    nodes = {node.id: node for node in whole.nodes}
    assert [nodes[id].depth for id in (a, b, c)] == [0, 1, 2]
    assert (nodes[a].slack, nodes[a].critical, nodes[a].unblocks, nodes[a].status) == (None, False, 0, "closed")
    assert (nodes[b].slack, nodes[b].critical, nodes[b].ready) == (0, True, True)
    assert whole.critical_path == (b, c)


def test_g2_around_a_root_are_its_children_what_they_wait_for_and_what_waits_for_them(world: World) -> None:
    ws: Any = world.open()
    root, before, after, elsewhere = make(ws, "root", "before", "after", "elsewhere")
    child = ws.tasks.create("child", parent_id=root).id
    ws.tasks.depend(child, before)
    ws.tasks.depend(after, child)
    found = ws.tasks.graph(root)
    assert {node.id for node in found.nodes} == {root, child, before, after}, elsewhere
    assert GraphEdge("parent", child, root) in found.edges
    with pytest.raises(errors.TaskNotFound):
        ws.tasks.graph("hf-zzzzzz")


def test_g2_an_expired_claim_does_not_show(world: World) -> None:
    ws: Any = world.open("ada")
    (id,) = make(ws, "a")
    ws.tasks.claim(id, ttl=60)
    (node,) = ws.tasks.graph().nodes
    assert (node.claimed_by, node.status, node.ready) == ("ada", "in_progress", False)
    world.clock.advance(61)
    (node,) = ws.tasks.graph().nodes
    assert (node.claimed_by, node.status, node.ready) == (None, "open", True)


def test_g2_a_generated_graph_is_what_a_plain_count_gives(world: World) -> None:
    ws: Any = world.open()
    chance = random.Random(20)
    ids = make(ws, *(f"task {number}" for number in range(40)))
    needs: dict[str, set[str]] = {id: set() for id in ids}
    for _ in range(60):
        low, high = sorted(chance.sample(range(40), 2))
        ws.tasks.depend(ids[high], ids[low])
        needs[ids[high]].add(ids[low])
    found = ws.tasks.graph()
    _compare(found, ids, needs)


def _compare(found: TaskGraph, ids: list[str], needs: dict[str, set[str]]) -> None:
    depths: dict[str, int] = {}
    for id in ids:  # each after those that it needs
        depths[id] = max((depths[on] + 1 for on in needs[id]), default=0)
    for node in found.nodes:
        waiting: set[str] = set()
        front = {node.id}
        while front:
            front = {id for id in ids if needs[id] & front} - waiting
            waiting |= front
        assert (node.depth, node.unblocks) == (depths[node.id], len(waiting)), node
    assert len(found.critical_path) == max(depths.values()) + 1
    assert all(on in needs[id] for on, id in zip(found.critical_path, found.critical_path[1:], strict=False))


# --- G3: activity ----------------------------------------------------------------------------------------------------


def test_g3_claims_are_counted_by_agent_and_bucket(world: World) -> None:
    ada: Any = world.open("ada")
    bob: Any = world.open("bob")
    a, b, c = make(ada, *"abc")
    start = ada.status().time
    ada.tasks.claim(a)
    bob.tasks.claim(b, ttl=400)
    world.clock.advance(300)
    ada.tasks.complete(a, review=False)
    world.clock.advance(300)
    ada.tasks.claim(c)
    ada.tasks.release(c, reason="no")
    found = ada.activity(start, start + timedelta(seconds=900), 300)
    assert (found.bucket, found.since, found.revision) == (300, start, ada.revision)
    assert found.total.claimed == [2, 0, 1]
    assert found.agents["ada"].claimed == [1, 0, 1]
    assert (found.agents["ada"].completed, found.agents["ada"].released) == ([0, 1, 0], [0, 0, 1])
    assert (found.agents["bob"].expired, sum(found.total.expired)) == ([0, 0, 1], 1)
    assert set(found.agents) == {"ada", "bob"}


def test_g3_closed_counts_what_became_closed_and_not_what_waits_for_review(world: World) -> None:
    ada: Any = world.open("ada")
    bob: Any = world.open("bob")
    done, shown, stopped, dropped = make(ada, "done", "shown", "stopped", "dropped")
    start = ada.status().time
    for id in (done, shown, stopped):
        ada.tasks.claim(id)
    ada.tasks.complete(done, review=False)
    note = "\u00e6status closed \u00e6closed"  # text that looks like the change
    ada.tasks.complete(shown, summary=note, review=True)
    ada.tasks.block(stopped, reason=note)
    world.clock.advance(60)
    bob.tasks.cancel(dropped)
    bob.tasks.close(stopped, reason="not wanted")
    found = ada.activity(start, start + timedelta(seconds=180), 60)
    assert (found.total.completed, found.total.closed) == ([2, 0, 0], [1, 2, 0])
    bob.tasks.approve(shown)
    found = ada.activity(start, start + timedelta(seconds=180), 60)
    assert (found.agents["bob"].closed, found.agents["ada"].closed) == ([0, 3, 0], [1, 0, 0])


def test_g3_locks_that_are_released_or_expire_are_no_claims(world: World) -> None:
    ws: Any = world.open("ada")
    start = ws.status().time
    ws.locks.acquire("one", ttl=60)
    ws.locks.acquire("two")
    ws.locks.release("two")
    world.clock.advance(100)
    assert ws.activity(start, bucket=60).agents == {}


def test_g3_what_cannot_be_counted_is_refused(world: World) -> None:
    ws: Any = world.open()
    now: datetime = ws.status().time
    for since, until, bucket in (
        (now, now - timedelta(hours=1), 60),
        (now - timedelta(days=400), now, 1),
        (now, None, 0),
        (None, None, 1e300),
        (None, None, 40_000_000_000),
        (None, datetime.min.replace(tzinfo=UTC), 60),
        ("yesterday", None, 60),
    ):
        with pytest.raises(errors.Invalid):
            ws.activity(since, until, bucket)
    with pytest.raises(errors.Invalid):
        ws.timeline(until=datetime.min.replace(tzinfo=UTC))


def test_g3_a_compacted_past_is_said_to_be_gone(world: World) -> None:
    ws: Any = world.open()
    start = ws.status().time
    (id,) = make(ws, "a")
    world.clock.advance(600)
    ws.tasks.claim(id)
    middle = ws.status().time
    ws.tasks.note(id, "one")
    ws.events.compact(ws.revision)
    with pytest.raises(errors.Compacted):
        ws.activity(start, bucket=60)
    world.clock.advance(60)
    assert ws.activity(ws.status().time - timedelta(seconds=1), bucket=60).agents == {}, middle


# --- G4: as it was ---------------------------------------------------------------------------------------------------


def shown(task: Any) -> dict[str, Any]:
    """A task without what the past does not have."""
    return {**msgspec.structs.asdict(task), "token": None, "deadline": None}


def test_g4_every_revision_of_a_task_can_be_seen_again(world: World) -> None:
    ws: Any = world.open("ada")
    parent, other = make(ws, "parent", "other")
    id = ws.tasks.create("a", "body", tags=["x"], parent_id=parent, priority=3).id
    seen = [(ws.revision, shown(ws.tasks.get(id)))]
    steps: tuple[Callable[[], Any], ...] = (
        lambda: ws.tasks.update(id, title="b", priority=1),
        lambda: ws.tasks.update(id, body=""),
        lambda: ws.tasks.add_tags(id, ["y"]),
        lambda: ws.tasks.claim(id, ttl=600),
        lambda: ws.tasks.note(id, "half done"),
        lambda: ws.tasks.release(id),
        lambda: ws.tasks.reparent(id, other),
        lambda: ws.tasks.reparent(parent, other),
        lambda: ws.tasks.claim(id),
        lambda: ws.tasks.complete(id, review=False),
        lambda: ws.tasks.reopen(id),
        lambda: ws.tasks.delete(id),
        lambda: ws.tasks.restore(id),
        lambda: ws.tasks.update(id, type="bug", grimoire_hint="fix"),
    )
    for step in steps:
        world.clock.advance(1)
        step()
        seen.append((ws.revision, shown(ws.tasks.get(id, include_deleted=True))))
    for revision, task in seen:
        assert shown(ws.tasks.as_of(id, revision)) == task
    assert ws.tasks.as_of(id, ws.revision).token is None


def test_g4_before_its_creation_purged_compacted_or_to_come_a_task_has_no_past(world: World) -> None:
    ws: Any = world.open()
    first, second = make(ws, "a", "b")
    with pytest.raises(errors.TaskNotFound):
        ws.tasks.as_of(second, ws.revision - 1)
    with pytest.raises((errors.Invalid, errors.Behind)):
        ws.tasks.as_of(first, ws.revision + 1)
    for bad in (-1, True, "7"):
        with pytest.raises(errors.Invalid):
            ws.tasks.as_of(first, bad)
    ws.tasks.purge(second)
    with pytest.raises(errors.TaskNotFound) as refused:
        ws.tasks.as_of(second, ws.revision - 1)
    assert refused.value.details.get("redacted") is True
    ws.tasks.note(first, "one")
    ws.events.compact(ws.revision)
    with pytest.raises(errors.Compacted):
        ws.tasks.as_of(first, 1)
    assert ws.tasks.as_of(first, ws.revision).id == first


def test_g4_a_cell_is_what_it_was(world: World) -> None:
    ws: Any = world.open()
    seen = []
    for value in ("a", None, {"n": 1}, [2]):
        ws.cells.set("run", "cell", value)
        seen.append((ws.revision, ws.cells.get("run", "cell")))
        ws.cells.set("run", "other", value)
    ws.cells.delete("run", "cell")
    gone = ws.revision
    ws.cells.set("run", "cell", "again")
    for revision, cell in seen:
        assert ws.cells.as_of("run", "cell", revision) == cell
        assert ws.cells.as_of("run", "cell", revision + 1) == cell
    for revision in (0, gone):
        with pytest.raises(errors.NotFound):
            ws.cells.as_of("run", "cell", revision)
    with pytest.raises((errors.Invalid, errors.Behind)):
        ws.cells.as_of("run", "cell", ws.revision + 1)
    ws.events.compact(ws.revision)
    with pytest.raises(errors.Compacted):
        ws.cells.as_of("run", "cell", 1)
