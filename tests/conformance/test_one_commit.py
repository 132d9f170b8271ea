"""A claim, a path lock and a message in one commit (A6): all three or nothing, whatever fails and wherever it stands.

The same parts run as a body, as a block, on an event loop and as plain data (`txn`). What is left of one that failed is
compared row by row with what was there before, on every node. Many at once: the log has each commit whole.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Event, Exists, NotExists, Op, ValueEquals, VersionEquals, errors
from holdfast.kernel.tx import Row
from holdfast.testing.crowd import LONG, Line, finish, start
from holdfast.types import Condition
from holdfast.types.tasks import Task
from holdfast.workspace import Workspace
from tests.amounts import amount
from tests.conformance.test_cell_races import at_once, handles
from tests.conformance.test_claim_races import tried
from tests.worlds.contents import contents
from tests.worlds.kinds import World
from tests.worlds.processes import ProcessWorkspace
from tests.worlds.rotating import RotatingWorkspace

Parts = Sequence[Op]
PARTS = ("claim", "lock", "mail")
ORDERS = list(itertools.permutations(PARTS))
FAILED = ORDERS[:: 6 // amount(2, 6)]  # in which a part fails: with the claim before the lock, and after it
drawn = pytest.mark.kinds("drawn")  # for what one caller sees: the kinds differ in how many meet
EVENTS = {"claim": ("task", "claim"), "lock": ("path", "acquire"), "mail": ("message", "send")}
LOST = (errors.AlreadyClaimed, errors.Held, errors.Outrun)  # how a race is lost; a block cannot run again by itself
callables = pytest.mark.capability("callables")


# --- the parts, and how they are run ---------------------------------------------------------------------------------


def perform(tx: Any, op: Op) -> Any:
    """Run one part inside a transaction."""
    domain, _, name = op.op.partition(".")
    return getattr(getattr(tx, domain), name)(**op.args)


def in_body(ws: Any, parts: Parts) -> list[Any]:
    """All parts in `transact`."""
    answers: list[Any] = ws.transact(lambda tx: [perform(tx, op) for op in parts])
    return answers


def in_block(ws: Any, parts: Parts) -> list[Any]:
    """All parts in a block."""
    with ws.transaction() as tx:
        return [perform(tx, op) for op in parts]


def on_loop(ws: Any, parts: Parts) -> list[Any]:
    """All parts in the `transact` of an event loop."""

    async def main() -> list[Any]:
        answers: list[Any] = await ws.aio.transact(lambda tx: [perform(tx, op) for op in parts])
        return answers

    return finish(main())


def in_txn(ws: Any, parts: Parts) -> list[Any]:
    """All parts as plain data."""
    answers: list[Any] = ws.txn([], parts).results
    return answers


FORMS: dict[str, Callable[[Any, Parts], list[Any]]] = {
    "body": in_body,
    "block": in_block,
    "loop": on_loop,
    "txn": in_txn,
}
NEEDS = {"body": "callables", "block": "interactive", "loop": "callables"}
in_every_form = pytest.mark.parametrize(
    "form", [pytest.param(f, marks=[pytest.mark.capability(NEEDS[f])] if f in NEEDS else []) for f in FORMS]
)


def part(name: str, task: str, directory: str = "src", bound: bool = True) -> Op:
    """One of the three; `bound`: the lock is for the task."""
    if name == "claim":
        return Op("tasks.claim", {"id": task, "ttl": 60})
    if name == "lock":
        return Op("paths.lock", {"patterns": [f"{directory}/**"], "task": task if bound else None})
    return Op("mail.send", {"to": ["bob", "carl"], "subject": "mine", "body": "I take it", "task": task})


def parts_in(order: Sequence[str], task: str, directory: str = "src") -> list[Op]:
    """The three in some order; the lock is for the task where the claim comes first, which it must."""
    bound = order.index("claim") < order.index("lock")
    return [part(name, task, directory, bound) for name in order]


def reader(world: World, ws: Any) -> Callable[[], list[dict[str, list[Row]]]]:
    """What reads every row of every table, on every node; a kind that has no rows here is asked for all it tells."""
    if isinstance(ws, RotatingWorkspace):

        def read() -> list[dict[str, list[Row]]]:
            ws.settle()
            return [contents(member) for member in ws._members]

        return read
    if isinstance(ws, ProcessWorkspace):
        assert ws.revision >= 0  # there is a folder once somebody was asked
        ws = holdfast.open(world.folder / "store", actor="judge", clock=world.clock)
        world._closers.append(ws.close)
    return lambda: [contents(ws) if isinstance(ws, Workspace) else told(ws)]


def told(ws: Any) -> dict[str, list[Row]]:
    """All that operations tell of tasks, locks, mail and agents, and the log."""
    agents = ws.agents.list()
    return {
        "events": [(ws.revision, *log(ws))],
        "tasks": [(*ws.tasks.list(include_deleted=True, limit=1000),)],
        "paths": [(*ws.paths.list(),)],
        "agents": [(*agents,)],
        "mail": [(*ws.mail.inbox(agent.name, closed=True),) for agent in agents],
        "records": [(*sorted(ws.check().records.items()),)],
    }


def log(ws: Any, after: int | str = 0) -> list[Event]:
    """All events after a cursor."""
    events: list[Event] = []
    while page := ws.events.list(after=events[-1].cursor if events else after, limit=1000):
        events += page
    return events


def taken_whole(events: Sequence[Event]) -> list[Event]:
    """The claims; each has in its revision exactly its lock and its message, and none of these is anywhere else."""
    claims = []
    for _, group in itertools.groupby(events, lambda event: event.revision):
        commit = list(group)
        found = {(event.kind, event.op): event for event in commit}
        if not found.keys() & set(EVENTS.values()):
            continue
        assert sorted(found) == sorted(EVENTS.values()), commit
        assert len(commit) == len(PARTS), commit
        assert len({(event.actor, event.time) for event in commit}) == 1, commit
        claim, lock, mail = (found[EVENTS[name]] for name in PARTS)
        assert (mail.data["task"], lock.data["task"][1] or claim.id) == (claim.id, claim.id), commit
        names = claim.data["claimed_by"][1], lock.data["holder"][1], mail.data["sender"]
        assert names == (claim.actor,) * 3, commit
        claims.append(claim)
    return claims


# --- all of it -------------------------------------------------------------------------------------------------------


@in_every_form
def test_a6_claim_lock_and_mail_in_every_order_are_one_revision(world: World, form: str) -> None:
    ws, other = world.open("ann"), world.open("bob")
    for order in ORDERS:
        task, before = ws.tasks.create("task"), ws.revision
        answers = dict(zip(order, FORMS[form](ws, parts_in(order, task.id, f"dir-{before}")), strict=True))
        events = log(ws, before)
        assert [(event.kind, event.op) for event in events] == [EVENTS[name] for name in order]
        assert [event.position for event in events] == [0, 1, 2]
        assert {event.revision for event in events} == {before + 1, ws.revision}
        claim, lock, mail = (answers[name] for name in PARTS)
        sent = msgspec.structs.replace(mail, warnings=())  # which only the call that sent it has
        assert (other.tasks.get(task.id), other.paths.get(lock.id), other.mail.get(mail.id)) == (claim, lock, sent)
        assert (claim.claimed_by, claim.token != lock.token) == ("ann", True)
        assert (claim.revision, mail.revision) == (before + 1, before + 1)
    assert len(taken_whole(log(ws))) == len(ORDERS)
    assert other.mail.unread() == len(ORDERS)


@in_every_form
def test_a6_a_lock_for_a_task_that_is_claimed_only_afterwards_takes_everything_back(world: World, form: str) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("task")
    read = reader(world, ws)
    before = read()
    for order in ORDERS:
        if order.index("lock") < order.index("claim"):
            with pytest.raises(errors.NotClaimOwner):
                FORMS[form](ws, [part(name, task.id) for name in order])
            assert read() == before, order


# --- or nothing ------------------------------------------------------------------------------------------------------

# What fails, where bob has claimed "taken" and locked held/**, and nobody has claimed "free".
FAILING: dict[str, tuple[type[errors.HoldfastError], Callable[[dict[str, str]], Op]]] = {
    "a task that is claimed": (errors.AlreadyClaimed, lambda ids: Op("tasks.claim", {"id": ids["taken"]})),
    "a task that is not there": (errors.TaskNotFound, lambda _: Op("tasks.claim", {"id": "hf-none"})),
    "a path that is held": (errors.Held, lambda _: Op("paths.lock", {"patterns": ["a/b", "held/deep/*.py"]})),
    "a path to wait for": (errors.Invalid, lambda _: Op("paths.lock", {"patterns": "held/x", "wait": 5})),
    "a path above all": (errors.Invalid, lambda _: Op("paths.lock", {"patterns": ["a", "../b"]})),
    "a lock for a task that nobody claimed": (
        errors.NotClaimOwner,
        lambda ids: Op("paths.lock", {"patterns": "a", "task": ids["free"]}),
    ),
    "a lock for the task of another": (
        errors.NotClaimOwner,
        lambda ids: Op("paths.lock", {"patterns": "a", "task": ids["taken"]}),
    ),
    "mail to nobody": (errors.Invalid, lambda _: Op("mail.send", {"to": [], "subject": "s"})),
    "mail to a bad name": (errors.InvalidName, lambda _: Op("mail.send", {"to": ["bob", ""], "subject": "s"})),
    "mail about no task": (
        errors.TaskNotFound,
        lambda _: Op("mail.send", {"to": "bob", "subject": "s", "task": "hf-none"}),
    ),
    "a reply to no message": (errors.MessageNotFound, lambda _: Op("mail.reply", {"id": "none", "body": "b"})),
    "an ack of another's mail": (errors.NotRecipient, lambda ids: Op("mail.ack", {"id": ids["message"]})),
    "a name that is known": (errors.Exists, lambda _: Op("agents.register", {"name": "bob", "new": True})),
}


def occupied(world: World) -> tuple[Any, dict[str, str]]:
    """The handle of dora, who has never written, on a workspace where bob has taken some of it."""
    ann, bob = world.open("ann"), world.open("bob")
    ids = {name: ann.tasks.create(name).id for name in ("free", "taken", "mine")}
    bob.tasks.claim(ids["taken"])
    ids["path"] = bob.paths.lock("held/**", task=ids["taken"], reason="rework").id
    ids["message"] = bob.mail.send("carl", "about", task=ids["taken"]).id
    ann.agents.register("carl", program="editor")
    return world.open("dora"), ids


@drawn
@in_every_form
@pytest.mark.parametrize("what", FAILING)
def test_a6_a_part_that_fails_at_any_place_leaves_every_row_as_it_was(world: World, form: str, what: str) -> None:
    ws, ids = occupied(world)
    error, make = FAILING[what]
    read = reader(world, ws)
    before = read()
    for order in FAILED:
        good = parts_in(order, ids["mine"])
        for place in range(len(good) + 1):
            with pytest.raises(errors.HoldfastError) as caught:
                FORMS[form](ws, [*good[:place], make(ids), *good[place:]])
            assert type(caught.value) is error
            assert read() == before, (order, place)
    assert ws.mail.search("mine") == []
    revision = ws.revision
    FORMS[form](ws, parts_in(PARTS, ids["mine"]))
    assert len(taken_whole(log(ws, revision))) == 1, "without it nothing would have failed"


@drawn
@pytest.mark.parametrize("form", [pytest.param(form, marks=callables) for form in ("body", "block", "loop")])
def test_a6_a_mistake_of_the_caller_at_any_place_leaves_every_row_as_it_was(world: World, form: str) -> None:
    ws, ids = occupied(world)
    read = reader(world, ws)
    before = read()
    mistake = Op("tasks.explode", {})
    for place in range(len(PARTS) + 1):
        parts = parts_in(PARTS, ids["mine"])
        with pytest.raises(AttributeError):
            FORMS[form](ws, [*parts[:place], mistake, *parts[place:]])
        assert read() == before, place


@in_every_form
def test_a6_a_failure_leaves_the_line_of_waiters_and_what_they_wait_for(world: World, form: str) -> None:
    ws, ids = occupied(world)
    read = reader(world, ws)
    watch = ws.watch(kinds=["path"], after=ws.revision)
    waiting = start(partial(world.open("carl").paths.lock, ["held/a", "new/**"], wait=60))
    assert next(watch).op == "wait"
    watch.close()
    before = read()
    assert ws.check().records["waiters"] == 1
    for place in range(len(PARTS)):
        parts = [op for op in parts_in(PARTS, ids["mine"]) if op.op != "paths.lock"]
        with pytest.raises(errors.Held, match="carl"):  # who came first
            FORMS[form](ws, [*parts[:place], part("lock", ids["mine"], "new", bound=False), *parts[place:]])
        assert read() == before, place
    world.open("bob").tasks.release(ids["taken"])
    assert waiting.result(LONG).patterns == ("held/a", "new/**")


@callables
def test_a6_a_part_that_fails_and_is_caught_leaves_nothing_of_itself_and_the_rest_is_whole(world: World) -> None:
    ws, ids = occupied(world)
    before = ws.revision

    def body(tx: Any) -> None:
        for _, make in FAILING.values():
            with pytest.raises(errors.HoldfastError):
                perform(tx, make(ids))
        for op in parts_in(PARTS, ids["mine"], "elsewhere"):
            perform(tx, op)

    ws.transact(body)
    assert len(taken_whole(log(ws, before))) == 1
    assert {lock.patterns for lock in ws.paths.list()} == {("held/**",), ("elsewhere/**",)}
    assert len(ws.mail.sent()) == 1


@callables
def test_a1_whoever_failed_to_claim_lock_or_mail_inside_a_commit_is_not_recorded_by_it(world: World) -> None:
    ws, ids = occupied(world)

    def body(tx: Any) -> None:
        with pytest.raises(errors.AlreadyClaimed):
            tx.tasks.claim(ids["taken"], "ghost")
        with pytest.raises(errors.Held):
            tx.paths.lock("held/x", holder="ghost")
        with pytest.raises(errors.TaskNotFound):
            tx.mail.send("bob", "subject", task="hf-none", sender="ghost")
        tx.cells.set("run", "cell", 1)

    ws.transact(body)
    assert [agent.name for agent in ws.agents.list()] == ["ann", "bob", "carl", "dora"]


@pytest.mark.capability("local")
@callables
def test_a6_one_of_a_group_that_fails_late_takes_nothing_of_the_others_along(world: World) -> None:
    ws, ids = occupied(world)
    good = [ws.tasks.create(f"task {number}").id for number in range(3)]
    before = ws.revision
    late = [*parts_in(PARTS, ids["mine"], "late"), FAILING["a path that is held"][1](ids)]
    commits = [parts_in(PARTS, id, f"dir-{number}") for number, id in enumerate(good)]
    with Line(ws) as line:
        calls = [line.queue(partial(in_body, ws, parts)) for parts in (commits[0], late, *commits[1:])]
    assert isinstance(calls.pop(1).exception(LONG), errors.Held)
    assert [call.result(LONG)[0].id for call in calls] == good
    claims = taken_whole(log(ws, before))
    assert [(claim.id, claim.revision - before) for claim in claims] == list(zip(good, (1, 2, 3), strict=True))


def test_a6_the_same_key_commits_once_and_answers_the_same_again(world: World) -> None:
    ws, ids = occupied(world)
    keyed, before = ws.using(key="once"), ws.revision
    parts = parts_in(PARTS, ids["mine"])
    first = keyed.txn([], parts)
    assert (keyed.txn([], parts), ws.revision) == (first, before + 1)
    assert len(ws.mail.sent()) == 1


# --- under conditions ------------------------------------------------------------------------------------------------

# Conditions that hold in `occupied`, and such that do not.
TRUE: dict[str, Callable[[Any, dict[str, str]], Condition]] = {
    "the task is open": lambda _, ids: ValueEquals("task", ids["mine"], "open"),
    "the task is at its version": lambda _, ids: VersionEquals("task", ids["mine"], 1),
    "there is no such task": lambda _, __: NotExists("task", "hf-none"),
    "bob holds the path": lambda _, ids: ValueEquals("path", ids["path"], "bob"),
    "the path has its token": lambda ws, ids: VersionEquals("path", ids["path"], ws.paths.get(ids["path"]).token),
    "there is no such path": lambda _, __: NotExists("path", "none"),
    "the message is open": lambda _, ids: ValueEquals("message", ids["message"], "open"),
    "the message is at its version": lambda _, ids: VersionEquals("message", ids["message"], 1),
    "there is no such message": lambda _, __: NotExists("message", "none"),
    "carl is an agent": lambda _, __: ValueEquals("agent", "carl", "agent"),
    "carl has registered": lambda _, __: VersionEquals("agent", "carl", 1),
    "bob is known": lambda _, __: Exists("agent", "bob"),
}
FALSE: dict[str, Callable[[dict[str, str]], Condition]] = {
    "the task is open": lambda ids: ValueEquals("task", ids["taken"], "open"),
    "the task is at its version": lambda ids: VersionEquals("task", ids["taken"], 1),
    "there is such a task": lambda _: Exists("task", "hf-none"),
    "ann holds the path": lambda ids: ValueEquals("path", ids["path"], "ann"),
    "the path has another token": lambda ids: VersionEquals("path", ids["path"], 1),
    "the path is free": lambda ids: NotExists("path", ids["path"]),
    "the message is closed": lambda ids: ValueEquals("message", ids["message"], "closed"),
    "the message has moved on": lambda ids: VersionEquals("message", ids["message"], 2),
    "carl is a maintainer": lambda _: ValueEquals("agent", "carl", "maintainer"),
    "nobody is known": lambda _: Exists("agent", "nobody"),
}
ELSE = [Op("mail.send", {"to": "bob", "subject": "too late"})]


def test_a6_txn_does_all_of_it_where_every_condition_holds(world: World) -> None:
    ws, ids = occupied(world)
    before = ws.revision
    result = ws.txn([make(ws, ids) for make in TRUE.values()], parts_in(PARTS, ids["mine"]), ELSE)
    assert (result.succeeded, len(result.results)) == (True, 3)
    assert [claim.id for claim in taken_whole(log(ws, before))] == [ids["mine"]]
    assert ws.revision == before + 1


@drawn
@pytest.mark.parametrize("what", FALSE)
def test_a6_one_condition_that_does_not_hold_among_those_that_do_leads_to_the_other_branch(
    world: World, what: str
) -> None:
    ws, ids = occupied(world)
    holding = [make(ws, ids) for make in TRUE.values()]
    for place in (0, 5, len(holding)):
        before = ws.revision
        result = ws.txn([*holding[:place], FALSE[what](ids), *holding[place:]], parts_in(PARTS, ids["mine"]), ELSE)
        assert (result.succeeded, [sent.subject for sent in result.results]) == (False, ["too late"])
        assert [(event.kind, event.op) for event in log(ws, before)] == [("message", "send")]
    assert (ws.tasks.get(ids["mine"]).status, len(ws.paths.list())) == ("open", 1)


@drawn
@pytest.mark.parametrize("what", ["a task that is claimed", "a path that is held", "mail about no task"])
def test_a6_a_part_that_fails_in_either_branch_leaves_every_row_as_it_was(world: World, what: str) -> None:
    ws, ids = occupied(world)
    error, make = FAILING[what]
    read = reader(world, ws)
    before = read()
    parts = parts_in(PARTS, ids["mine"])
    for condition in (ValueEquals("task", ids["mine"], "open"), ValueEquals("task", ids["mine"], "closed")):
        for place in range(len(parts) + 1):
            failing = [*parts[:place], make(ids), *parts[place:]]
            then, otherwise = (failing, ELSE) if condition.value == "open" else (ELSE, failing)
            with pytest.raises(error):
                ws.txn([condition], then, otherwise)
            assert read() == before, (condition, place)


def test_a6_txn_takes_over_in_one_commit_what_has_expired_just_before(world: World) -> None:
    ws, bob = world.open("ann"), world.open("bob")
    task = ws.tasks.create("task")
    _, lock, _ = in_txn(ws, parts_in(PARTS, task.id))
    free: list[Condition] = [ValueEquals("task", task.id, "open"), NotExists("path", lock.id)]
    assert not bob.txn(free, parts_in(PARTS, task.id)).succeeded
    before = ws.revision
    world.clock.advance(60)
    assert bob.txn(free, parts_in(PARTS, task.id)).succeeded
    claims = taken_whole(log(ws, before + 1))
    assert [(claim.id, claim.actor, claim.revision) for claim in claims] == [(task.id, "bob", before + 2)]


# --- many at once ----------------------------------------------------------------------------------------------------

# Which task and which directory each of the threads is after.
RACES: dict[str, Callable[[int], tuple[int, int]]] = {
    "the same task and directory": lambda number: (0, 0),
    "the same task": lambda number: (0, number),
    "the same directory": lambda number: (number, 0),
}


@in_every_form
@pytest.mark.parametrize("after", RACES)
def test_a6_of_6_threads_one_has_all_three_parts_and_5_have_nothing(world: World, form: str, after: str) -> None:
    ws = handles(world, 6)
    for _ in range(3):
        tasks = [ws[0].tasks.create(f"task {number}") for number in range(6)]
        before = ws[0].revision

        def work(number: int, tasks: list[Task] = tasks) -> Any:
            task, directory = RACES[after](number)
            parts = parts_in(PARTS, tasks[task].id, f"dir-{directory}")
            tries = (tried(FORMS[form], ws[number], parts) for _ in range(6))  # one is outrun by another's commit only
            return next(outcome for outcome in tries if outcome is not errors.Outrun)

        outcomes = at_once(6, work)
        (winner,) = (number for number, outcome in enumerate(outcomes) if isinstance(outcome, list))
        claim, lock, mail = outcomes[winner]
        lost = {outcome for number, outcome in enumerate(outcomes) if number != winner}
        assert lost <= {errors.AlreadyClaimed, errors.Held}
        assert len(taken_whole(log(ws[0], before))) == 1
        assert (claim.claimed_by, lock.holder, mail.sender) == (f"agent-{winner}",) * 3
        assert [task.status for task in map(ws[0].tasks.get, (task.id for task in tasks))].count("open") == 5
        assert ws[0].paths.list() == [lock]
        ws[winner].tasks.complete(claim.id)
        for task in tasks:
            if task.id != claim.id:
                ws[0].tasks.cancel(task.id, "not wanted")


@in_every_form
def test_a6_tasks_and_directories_that_go_round_among_6_threads_are_never_half_taken(world: World, form: str) -> None:
    ws = handles(world, 6)
    ids = [ws[0].tasks.create(f"task {number}").id for number in range(4)]
    before = ws[0].revision

    def work(number: int) -> Counter[str]:
        score: Counter[str] = Counter()
        for turn in range(12):
            id, directory = ids[(number + turn) % 4], f"dir-{(number * 2 + turn) % 3}"
            order = ORDERS[(number + turn) % 6]
            try:
                FORMS[form](ws[number], parts_in(order, id, directory))
            except LOST:
                score["lost"] += 1
                continue
            score["won"] += 1
            if order.index("lock") < order.index("claim"):
                ws[number].paths.release()
            ws[number].tasks.release(id)
        return score

    score = sum(at_once(6, work), Counter())
    events = log(ws[0], before)
    assert score.total() == 72
    assert 0 < score["won"] == len(taken_whole(events))
    assert_in_turn(events)
    assert ws[0].paths.list() == []
    assert {ws[0].tasks.get(id).status for id in ids} == {"open"}
    assert ws[0].check().problems == []


def assert_in_turn(events: Sequence[Event]) -> None:
    """No task and no directory had two holders at a time."""
    held: dict[tuple[str, str], str] = {}
    places: dict[str, str] = {}
    for event in events:
        if event.op == "acquire":
            places[event.id] = event.data["patterns"][1][0]
        key = event.kind, places.get(event.id, event.id)
        if event.op in ("claim", "acquire"):
            assert key not in held, event
            held[key] = event.actor
        elif event.op == "release":
            assert held.pop(key) == event.actor, event
    assert held == {}
