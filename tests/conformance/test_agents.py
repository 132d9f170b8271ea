"""Agents (A1, A2): who is known and by what, when they were last seen, and that no two become one by accident.

Registering is optional. An actor that was only derived from user and host may read and write cells, but whatever a
name is needed for refuses it: claims, locks, paths and mail. Named in the call, anybody may act for anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Exists, NotExists, Op, Transaction, ValueEquals, VersionEquals, errors
from holdfast.kernel.tx import SYSTEM
from holdfast.remote import RemoteWorkspace
from holdfast.types.agents import Agent
from holdfast.types.tasks import Task
from holdfast.workspace.context import derive_actor
from tests.conformance.test_claims import lay_down
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

Call = Callable[..., object]

HOUR = 3600.0
MATCHERS = "grimoire-matchers.yaml"
NEEDS = "matchers:\n  - {grimoire: g, any_tags: [hard], needs: [c, rust]}\n"
callables = pytest.mark.capability("callables")


def names(ws: Any) -> list[str]:
    """Who is known."""
    return [agent.name for agent in ws.agents.list()]


def state(ws: Any) -> list[Any]:
    """All there is to see that these tests could change."""
    return [
        *(ws.agents.list(), ws.locks.list(), ws.paths.list(), ws.tasks.list(include_deleted=True), ws.cells.runs()),
        *(ws.events.list(limit=1000), ws.revision),
    ]


def refused(ws: Any, error: type[errors.HoldfastError], call: Call, *args: Any, **given: Any) -> Any:
    """Expect exactly this error, and everything as it was before; answers the error."""
    before = state(ws)
    with pytest.raises(errors.HoldfastError) as caught:
        call(*args, **given)
    assert type(caught.value) is error, repr(caught.value)
    assert state(ws) == before
    return caught.value


@pytest.fixture(autouse=True)
def no_chosen_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have chosen a name for themselves."""
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)


# --- registering -----------------------------------------------------------------------------------------------------


def test_a1_an_agent_that_registers_is_known_by_all_it_said(world: World) -> None:
    ws, other = world.open("bob"), world.open("eve")
    made = ws.agents.register(program="coder", model="large", can=["rust", "c", "rust"], role="maintainer")
    assert (made.name, made.program, made.model, made.role) == ("bob", "coder", "large", "maintainer")
    assert (made.can, made.version, made.revision) == (("c", "rust"), 1, ws.revision)
    assert made.registered_at == made.seen_at is not None
    assert other.agents.get("bob") == made
    assert other.agents.list() == [made]
    plain = other.agents.register("ann")
    assert (plain.program, plain.model, plain.role, plain.can) == ("", "", "agent", ())
    assert names(ws) == ["ann", "bob", "eve"], "who registers another has written too"
    (event,) = ws.events.list(after=made.revision)
    assert (event.kind, event.id, event.op, event.actor, event.version) == ("agent", "ann", "register", "eve", 1)
    assert event.data == {}
    (event,) = ws.events.list(limit=1)
    assert event.data == {
        **{"program": ["", "coder"], "model": ["", "large"]},
        **{"role": ["agent", "maintainer"], "can": [[], ["c", "rust"]]},
    }


def test_a1_registering_again_keeps_what_is_not_given_and_says_nothing_if_nothing_changed(world: World) -> None:
    ws = world.open("bob")
    first = ws.agents.register(program="coder", model="large", can=["c"])
    world.clock.advance(60)
    for given in ({}, {"program": "coder"}, {"can": ["c", "c"]}, {"role": "agent", "model": "large"}):
        revision = ws.revision
        again: Agent = ws.agents.register(**given)
        assert (again.version, again.registered_at, ws.revision) == (1, first.registered_at, revision)
    changed = ws.agents.register(model="small")
    assert (changed.program, changed.model, changed.can, changed.version) == ("coder", "small", ("c",), 2)
    assert (changed.registered_at, changed.revision) == (first.registered_at, ws.revision)
    (event,) = ws.events.list(after=ws.revision - 1)
    assert (event.version, event.data) == (2, {"model": ["large", "small"]})
    emptied = ws.agents.register(program="", can=[])
    assert (emptied.program, emptied.can, emptied.model, emptied.version) == ("", (), "small", 3)
    assert ws.agents.get("bob") == emptied


def test_a1_new_refuses_a_name_that_is_known_already_however_it_became_known(world: World) -> None:
    ws = world.open("bob")
    assert ws.agents.register("ann", new=True).version == 1
    world.open("cy").cells.set("run", "cell", 1)
    for name in ("ann", "bob", "cy"):
        error = refused(ws, errors.Exists, ws.agents.register, name, "coder", new=True)
        assert (error.name, error.status) == (name, 409)
    ws.agents.forget("ann")
    assert ws.agents.register("ann", new=True).version == 3, "the log counts on"


def test_a1_who_is_forgotten_is_gone_but_its_locks_and_mail_stay(world: World) -> None:
    ws = world.open("bob")
    ws.agents.register("ann", can=["c"], role="maintainer")
    grant = ws.locks.acquire("door", holder="ann")
    sent = ws.mail.send("ann", "subject")
    assert ws.agents.forget("ann")
    assert (names(ws), ws.locks.get("door"), ws.mail.inbox("ann")) == (["bob"], grant, [sent])
    event = ws.events.list(limit=1000)[-1]
    assert (event.kind, event.id, event.op, event.version) == ("agent", "ann", "forget", 2)
    error = refused(ws, errors.NotFound, ws.agents.get, "ann")
    assert (error.name, error.status) == ("ann", 404)
    before = state(ws)
    assert not ws.agents.forget("ann")
    assert state(ws) == before
    refused(ws, errors.NotSender, ws.mail.close, sent.id, "ann")  # it was a maintainer
    again = ws.agents.register("ann")
    assert (again.can, again.role, again.version) == ((), "agent", 3)


@pytest.mark.parametrize("seconds", [1, 5])
def test_a1_who_was_forgotten_and_acts_a_second_later_is_known_again(world: World, seconds: float) -> None:
    ws, ann = world.open("bob"), world.open("ann")
    ann.locks.acquire("door")
    ws.agents.forget("ann")
    assert "ann" not in names(ws)
    world.clock.advance(seconds)
    ann.locks.acquire("window")
    assert "ann" in names(ws)


BAD_REGISTRATIONS: dict[str, list[tuple[type[errors.HoldfastError], tuple[Any, ...]]]] = {
    "name": [(errors.InvalidName, ("", "a\nb", "x" * 513, 7, SYSTEM))],
    "program": [(errors.InvalidName, ("a\nb", "x" * 513, 7, "\ud800"))],
    "model": [(errors.InvalidName, ("a\nb", "x" * 513, 7, "\ud800"))],
    "role": [(errors.Invalid, ("", "boss", 7, ["agent"]))],
    "can": [
        (errors.Invalid, ("rust", 7, {"rust": 1})),
        (errors.InvalidName, ([""], [7], ["a\0"], [["rust"]])),
        (errors.TooLarge, ([f"skill-{number}" for number in range(101)],)),
    ],
    "new": [(errors.Invalid, (1, None, "yes"))],
}


@pytest.mark.parametrize("argument", BAD_REGISTRATIONS)
def test_a1_a_bad_argument_of_register_gets_its_error_and_nothing_changes(world: World, argument: str) -> None:
    ws: Any = world.open("bob")
    ws.agents.register("ann", "coder")
    before = state(ws)
    for error, values in BAD_REGISTRATIONS[argument]:
        for value in values:
            with pytest.raises(errors.HoldfastError) as caught:
                ws.agents.register(**({"name": "ann"} | {argument: value}))
            assert type(caught.value) is error, f"{value!r}: {caught.value!r}"
    assert state(ws) == before


def test_a1_a_bad_argument_of_a_look_at_agents_gets_its_error(world: World) -> None:
    ws: Any = world.open("bob")
    for call in (ws.agents.get, ws.agents.forget):
        for name in ("", "a\nb", 7, None):
            refused(ws, errors.InvalidName, call, name)
    for limit in (0, 1001, True, "5"):
        refused(ws, errors.InvalidFilter, ws.agents.list, limit=limit)
    for given in ({"prefix": "a\n"}, {"after": 7}, {"prefix": None}):
        refused(ws, errors.InvalidName, ws.agents.list, **given)


def test_a1_a_list_of_agents_comes_in_pages_by_name(world: World) -> None:
    ws = world.open("zoe")
    known = sorted(f"agent-{number}" for number in range(7))
    for name in known[::2]:
        ws.agents.register(name)
    for name in known[1::2]:
        ws.using(actor=name).cells.set("run", name, 1)
    assert names(ws) == [*known, "zoe"]
    found: list[str] = []
    while page := ws.agents.list(prefix="agent-", limit=3, after=found[-1] if found else ""):
        assert len(page) <= 3
        found += [agent.name for agent in page]
    assert found == known
    assert [agent.name for agent in ws.agents.list(prefix="z")] == ["zoe"]
    assert ws.agents.list(prefix="nobody") == []


def test_a1_a_txn_registers_and_looks_at_agents(world: World) -> None:
    ws = world.open("bob")
    ops = [Op("agents.register", {"name": "ann", "role": "maintainer"}), Op("agents.get", {"name": "ann"})]
    result = ws.txn([NotExists("agent", "ann")], ops)
    assert result.succeeded
    assert [agent.version for agent in result.results] == [1, 1]
    assert ws.txn([VersionEquals("agent", "ann", 1), ValueEquals("agent", "ann", "maintainer")], []).succeeded
    assert not ws.txn([NotExists("agent", "ann")], ops).succeeded
    assert ws.txn([Exists("agent", "bob"), VersionEquals("agent", "bob", 0)], []).succeeded, "it only wrote"


# --- seen ------------------------------------------------------------------------------------------------------------


@pytest.mark.kinds("every")
def test_a1_an_agent_is_seen_whenever_it_writes_and_not_when_it_reads(world: World) -> None:
    ws, ann = world.open("bob"), world.open("ann")
    task = ws.tasks.claim(ws.tasks.create("task").id, "ann")
    assert task.claimed_at is not None
    start = task.claimed_at
    found = ws.agents.get("ann")
    assert (found.seen_at, found.registered_at, found.version, found.revision) == (start, None, 0, 0)
    writes: list[Call] = [
        lambda: ann.cells.set("run", "cell", 1),
        lambda: ann.tasks.heartbeat(task.id),
        lambda: ws.tasks.heartbeat(task.id, "ann"),
        lambda: ann.locks.acquire("door", ttl=HOUR),
        lambda: ann.locks.refresh("door"),
        lambda: ws.locks.acquire("gate", holder="ann"),
        lambda: ann.paths.lock("src"),
        lambda: ann.mail.send("bob", "subject"),
        lambda: ws.mail.send("bob", "subject", sender="ann"),
        lambda: ann.tasks.complete(task.id),
    ]
    for number, write in enumerate(writes, 1):
        world.clock.advance(10)
        ann.cells.find("run", "cell")
        ann.mail.inbox()
        ann.tasks.ready()
        assert ws.agents.get("ann").seen_at == start + timedelta(seconds=10 * (number - 1)), "it has only read"
        write()
        assert ws.agents.get("ann").seen_at == start + timedelta(seconds=10 * number), number
    assert [agent.seen_at for agent in ws.agents.list(prefix="ann")] == [ws.agents.get("ann").seen_at]


@pytest.mark.kinds("every")
def test_a1_seen_at_lags_by_less_than_a_second_and_never_runs_ahead(world: World) -> None:
    ws = world.open("bob")
    for _ in range(20):
        ws.cells.increment("run", "cell")
        world.clock.advance(0.3)
        now = ws.events.list(after=ws.revision - 1)[0].time
        seen = ws.agents.get("bob").seen_at
        assert seen is not None
        assert now - timedelta(seconds=1) < seen <= now


def test_a1_a_refused_call_makes_nobody_known(world: World) -> None:
    ws, ann = world.open("bob"), world.open("ann")
    ws.locks.acquire("door")
    for call in (
        lambda: ann.locks.acquire("door"),
        lambda: ws.locks.acquire("door", holder="cy"),
        lambda: ann.cells.get("run", "none"),
        lambda: ws.mail.send("ann", "", sender="cy"),
        lambda: ann.tasks.claim("hf-none"),
    ):
        with pytest.raises(errors.HoldfastError):
            call()
    assert names(ws) == ["bob"]


@callables
def test_a1_a_refusal_that_a_transaction_goes_on_after_makes_nobody_known(world: World) -> None:
    ws = world.open("bob")
    ws.locks.acquire("door")

    def body(tx: Transaction) -> None:
        with pytest.raises(errors.Held):
            tx.locks.acquire("door", holder="cy")
        tx.cells.set("run", "cell", 1)

    ws.transact(body)
    assert names(ws) == ["bob"]


@pytest.mark.kinds("every")
def test_a1_after_a_clock_was_put_right_nobody_was_seen_in_the_future(world: World) -> None:
    ws, ann, cy = world.open("bob"), world.open("ann"), world.open("cy")
    ann.cells.set("run", "cell", 1)
    ann.agents.register()
    cy.cells.set("run", "cell", 1)
    world.clock.jump(-HOUR)
    now = ws.clock.reset()
    for name in ("ann", "bob", "cy"):
        seen = ws.agents.get(name).seen_at
        assert seen is not None
        assert seen <= now
    world.clock.advance(5)
    ann.cells.set("run", "cell", 2)
    assert ws.agents.get("ann").seen_at == now + timedelta(seconds=5)
    world.clock.advance(HOUR - 5)
    cy.cells.set("run", "cell", 3)
    assert ws.agents.get("cy").seen_at == now + timedelta(seconds=HOUR), "the time at which it wrote before the reset"


def test_a1_the_workspace_itself_is_no_agent(world: World) -> None:
    ws = world.open("bob")
    ws.cells.set("run", "cell", 1, ttl=5)
    world.clock.advance(5)
    assert ws.cells.find("run", "cell") is None
    assert ws.events.list(limit=1000)[-1].actor in ("bob", SYSTEM)
    assert names(ws) == ["bob"]


def test_a1_the_workspace_itself_is_no_agent_though_somebody_uses_its_name(world: World) -> None:
    ws = world.open("bob")
    with suppress(errors.Invalid):
        ws.locks.acquire("door", holder=SYSTEM)
    with suppress(errors.Invalid):
        ws.mail.send("ann", "subject", sender=SYSTEM)
    assert SYSTEM not in names(ws)


# --- identity: two agents without a name cannot become one holder -----------------------------------------------------

# Every operation that somebody is needed for: the argument that says who, and the call on a stage that `staged` sets.
NEEDS_A_NAME: dict[str, tuple[str, Call]] = {
    "tasks.claim": ("agent", lambda ws, it, **who: ws.tasks.claim(it["free"], **who)),
    "tasks.claim_next": ("agent", lambda ws, it, **who: ws.tasks.claim_next(**who)),
    "tasks.claim_next of a tag": ("agent", lambda ws, it, **who: ws.tasks.claim_next(tags=["a"], **who)),
    "tasks.claim_next with filters": ("agent", lambda ws, it, **who: ws.tasks.claim_next(type="bug", **who)),
    "tasks.reclaim": ("agent", lambda ws, it, **who: ws.tasks.reclaim(it["held"], **who)),
    "tasks.heartbeat": ("agent", lambda ws, it, **who: ws.tasks.heartbeat(it["held"], **who)),
    "tasks.park": ("agent", lambda ws, it, **who: ws.tasks.park(it["held"], **who)),
    "tasks.release": ("agent", lambda ws, it, **who: ws.tasks.release(it["held"], **who)),
    "tasks.complete": ("agent", lambda ws, it, **who: ws.tasks.complete(it["held"], **who)),
    "tasks.block": ("agent", lambda ws, it, **who: ws.tasks.block(it["held"], **who)),
    "tasks.set_status": ("agent", lambda ws, it, **who: ws.tasks.set_status(it["free"], "in_progress", **who)),
    "locks.acquire": ("holder", lambda ws, it, **who: ws.locks.acquire("window", **who)),
    "locks.acquire, waiting": ("holder", lambda ws, it, **who: ws.locks.acquire("window", wait=0, **who)),
    "locks.release": ("holder", lambda ws, it, **who: ws.locks.release("door", **who)),
    "locks.refresh": ("holder", lambda ws, it, **who: ws.locks.refresh("door", **who)),
    "cells.acquire_lock": ("holder", lambda ws, it, **who: ws.cells.acquire_lock("run", "other", **who)),
    "cells.release_lock": ("holder", lambda ws, it, **who: ws.cells.release_lock("run", "cell", **who)),
    "cells.refresh_lock": ("holder", lambda ws, it, **who: ws.cells.refresh_lock("run", "cell", **who)),
    "paths.lock": ("holder", lambda ws, it, **who: ws.paths.lock("docs", **who)),
    "paths.lock, waiting": ("holder", lambda ws, it, **who: ws.paths.lock("docs", wait=0, **who)),
    "paths.lock for a task": ("holder", lambda ws, it, **who: ws.paths.lock("docs", task=it["held"], **who)),
    "paths.refresh": ("holder", lambda ws, it, **who: ws.paths.refresh(it["path"], **who)),
    "paths.release": ("holder", lambda ws, it, **who: ws.paths.release(it["path"], **who)),
    "paths.release of all": ("holder", lambda ws, it, **who: ws.paths.release(**who)),
    "paths.release for a task": ("holder", lambda ws, it, **who: ws.paths.release(task=it["held"], **who)),
    "mail.send": ("sender", lambda ws, it, **who: ws.mail.send("cy", "subject", **who)),
    "mail.reply": ("sender", lambda ws, it, **who: ws.mail.reply(it["mail"], "body", **who)),
    "mail.ack": ("agent", lambda ws, it, **who: ws.mail.ack(it["mail"], **who)),
    "mail.action": ("agent", lambda ws, it, **who: ws.mail.action(it["mail"], **who)),
    "mail.block": ("agent", lambda ws, it, **who: ws.mail.block(it["seen"], "waits", **who)),
    "mail.close": ("agent", lambda ws, it, **who: ws.mail.close(it["mail"], **who)),
    "mail.inbox": ("agent", lambda ws, it, **who: ws.mail.inbox(**who)),
    "mail.unread": ("agent", lambda ws, it, **who: ws.mail.unread(**who)),
    "mail.sent": ("agent", lambda ws, it, **who: ws.mail.sent(**who)),
    "agents.register": ("name", lambda ws, it, **who: ws.agents.register(**who)),
}


def staged(ws: Any) -> dict[str, str]:
    """Something of everything, all of it of `ann`."""
    held, free = ws.tasks.claim(ws.tasks.create("held").id, "ann"), ws.tasks.create("free", type="bug", tags=["a"])
    ws.locks.acquire("door", holder="ann", ttl=HOUR)
    ws.cells.acquire_lock("run", "cell", holder="ann", ttl=HOUR)
    path = ws.paths.lock("src", holder="ann", ttl=HOUR)
    mail, seen = (ws.mail.send("ann", "subject", sender="ann") for _ in range(2))
    ws.mail.ack(seen.id, "ann")
    return {"held": held.id, "free": free.id, "path": path.id, "mail": mail.id, "seen": seen.id}


@pytest.mark.parametrize("name", NEEDS_A_NAME)
def test_a1_an_actor_that_was_only_derived_is_refused_wherever_a_name_is_needed(world: World, name: str) -> None:
    argument, call = NEEDS_A_NAME[name]
    ws = world.open("eve")
    nobody: Any = world.open(None)
    it = staged(ws)
    error = refused(ws, errors.InvalidHolder, call, nobody, it)
    assert (error.code, error.status) == ("INVALID_HOLDER", 400)
    own = errors.NAME_YOURSELF_REMOTELY if isinstance(nobody, RemoteWorkspace) else errors.NAME_YOURSELF
    assert error.hint == f"name yourself: {own}", "each face puts that into its own words"
    assert argument in error.message
    assert str(nobody.actor) in error.message
    call(nobody, it, **{argument: "ann"})
    assert {event.actor for event in ws.events.list(limit=1000)} <= {"eve", str(nobody.actor)}
    assert str(nobody.actor) not in names(ws)


@pytest.mark.parametrize("name", NEEDS_A_NAME)
def test_a2_an_actor_with_a_name_is_meant_unless_another_is_named(world: World, name: str) -> None:
    argument, call = NEEDS_A_NAME[name]
    ws = world.open("eve")
    it = staged(ws)
    revision = ws.revision
    call(world.open("ann"), it)
    events = ws.events.list(after=revision)
    assert {event.actor for event in events} <= {"ann"}
    bad: tuple[Any, ...] = ("", "a\nb", 7)
    for value in bad:
        refused(ws, errors.InvalidName, call, ws, it, **{argument: value})


@pytest.mark.parametrize("given", [{}, {"tags": ["none"]}, {"type": "bug"}, {"tag_pattern": "a*"}, {"can": ["c"]}])
def test_a1_the_next_task_refuses_a_derived_actor_also_where_there_is_none(world: World, given: Any) -> None:
    ws = world.open("eve")
    ws.cells.set("run", "cell", 1)
    refused(ws, errors.InvalidHolder, world.open(None).tasks.claim_next, **given)
    assert ws.tasks.claim_next(**given) is None


def test_a1_two_agents_without_a_name_are_not_one_holder(world: World) -> None:
    one, other = world.open(None), world.open(None)
    assert one.actor == other.actor
    name = str(one.actor)
    ws = world.open("eve")
    door, path = one.locks.acquire("door", holder=name), one.paths.lock("src", holder=name)
    cell = one.cells.acquire_lock("run", "cell", holder=name)
    task = one.tasks.claim(one.tasks.create("task").id, name)
    for call in (
        lambda: other.locks.acquire("door"),
        lambda: other.locks.release("door"),
        lambda: other.paths.lock("src"),
        lambda: other.paths.release(path.id),
        lambda: other.cells.release_lock("run", "cell"),
        lambda: other.tasks.complete(task.id),
        lambda: other.tasks.heartbeat(task.id),
    ):
        refused(ws, errors.InvalidHolder, call)
    assert refused(ws, errors.Held, other.paths.check, "src/main.py").holder == name
    assert other.paths.check("src/main.py", name) == path
    assert (ws.locks.get("door"), cell.holder, ws.tasks.get(task.id)) == (door, name, task)
    assert other.locks.release("door", token=door.token, holder=name)
    refused(ws, errors.InvalidHolder, lambda: other.tasks.release(task.id, token=task.token))  # a token is no name
    assert other.tasks.release(task.id, name, token=task.token).status == "open"


def test_a1_what_one_without_a_name_writes_is_no_sign_of_life_of_another(world: World) -> None:
    one, other = world.open(None), world.open(None)
    task = one.tasks.claim(one.tasks.create("task").id, str(one.actor), ttl=60)
    world.clock.advance(30)
    other.tasks.note(task.id, "somebody passes by")
    assert one.tasks.get(task.id).deadline == task.deadline


def test_a1_a_derived_actor_writes_cells_and_is_never_listed(world: World) -> None:
    nobody, ws = world.open(None), world.open("bob")
    assert nobody.cells.set("run", "cell", 1) == 1
    nobody.tasks.create("task")
    nobody.agents.register("ann")
    ws.cells.set("run", "cell", 2)
    assert names(ws) == ["ann", "bob"]
    refused(ws, errors.NotFound, ws.agents.get, str(nobody.actor))


def test_a1_a_name_from_the_environment_is_a_chosen_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ACTOR", "chosen")
    ws = world.open("bob").using(actor=derive_actor())
    assert ws.locks.acquire("door").holder == ws.actor == "chosen"
    assert names(ws) == ["chosen"]


# --- what an agent can do --------------------------------------------------------------------------------------------


def routed(world: World, ws: Any) -> tuple[Task, Task]:
    """A task that needs c and rust, and one that needs nothing."""
    lay_down(world, ws, MATCHERS, NEEDS)
    hard: Task = ws.tasks.create("hard", tags=["hard"], priority=0)
    return hard, ws.tasks.create("easy", tags=["easy"])


def test_m7_a_claim_can_do_what_its_agent_has_registered(world: World) -> None:
    ws = world.open("eve")
    hard, easy = routed(world, ws)
    ws.agents.register("ann", can=["rust", "go"])
    error = refused(ws, errors.NotCapable, ws.tasks.claim, hard.id, "ann")
    assert (error.needs, error.lacking) == (["c", "rust"], ["c"])
    refused(ws, errors.NotCapable, ws.tasks.set_status, hard.id, "in_progress", "ann")
    assert ws.tasks.claim(easy.id, "ann").claimed_by == "ann"
    ws.agents.register("ann", can=["rust", "c"])
    assert ws.tasks.claim(hard.id, "ann").claimed_by == "ann"


@pytest.mark.parametrize("given", [{}, {"tags": ["hard"]}, {"type": "task"}, {"tag_pattern": "{hard,easy}"}])
def test_m7_the_next_task_is_one_that_its_agent_has_registered_for(world: World, given: Any) -> None:
    ws = world.open("ann")
    hard, easy = routed(world, ws)
    ws.agents.register(can=["go"])
    expected = None if given == {"tags": ["hard"]} else easy.id
    taken = ws.tasks.claim_next(**given)
    assert (taken and taken.id) == expected
    assert ws.tasks.claim_next(**given) is None
    ws.agents.register(can=["c", "go", "rust"])
    last = ws.tasks.claim_next(**given)
    assert last is not None
    assert last.id == hard.id


def test_m7_what_a_claim_says_of_itself_counts_more_than_what_was_registered(world: World) -> None:
    ws = world.open("ann")
    hard, easy = routed(world, ws)
    ws.agents.register(can=["c", "rust"])
    for can in ([], ["go"]):
        refused(ws, errors.NotCapable, ws.tasks.claim, hard.id, can=can)
    taken = ws.tasks.claim_next(can=[])
    assert taken is not None
    assert taken.id == easy.id
    assert ws.tasks.claim_next(can=["go"], type="task") is None
    ws.agents.register(can=["go"])
    assert ws.tasks.claim(hard.id, can=["c", "rust"]).status == "in_progress"


def test_m7_who_registered_no_abilities_may_have_any_task(world: World) -> None:
    ws = world.open("ann")
    hard, easy = routed(world, ws)
    ws.agents.register(program="coder")
    assert ws.tasks.claim(hard.id).claimed_by == "ann"
    ws.agents.register("bob", can=["go"])
    ws.agents.register("bob", can=[])
    ws.tasks.release(hard.id)
    taken = ws.tasks.claim_next("bob")
    assert taken is not None
    assert taken.id == hard.id
    assert ws.tasks.get(easy.id).status == "open"
