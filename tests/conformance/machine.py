"""The state machine: random operations on a workspace and on the model, which must agree on every answer and state.

After each step every cell, lock and lease, the revision and the whole event log (as a watch from 0 replays it) are
compared. `FIRED` counts how often each rule ran, over all machines of the process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from holdfast import Exists, NotExists, Op, ValueEquals, VersionEquals
from holdfast.errors import HoldfastError
from holdfast.types import Condition, Event, Lease, as_time
from holdfast.workspace import Workspace
from tests.conformance.counting import Rules
from tests.conformance.model import Model
from tests.conformance.model_base import exact
from tests.worlds.kinds import World

_rules = Rules()
RULES, FIRED, step = _rules.names, _rules.fired, _rules.step

RUNS = ("r1", "r2")
CELLS = ("a", "b", "c")
LOCKS = ("x", "y")
HOLDERS = ("ann", "bob")

run = st.sampled_from(RUNS)
cell = st.sampled_from(CELLS)
lock = st.sampled_from(LOCKS)
holder = st.sampled_from(HOLDERS)
ttl = st.sampled_from((1, 5, 20.5, 60))
number = st.one_of(st.integers(-9, 9), st.sampled_from((0.5, -2.25)))
scalar = st.one_of(st.none(), st.booleans(), number, st.sampled_from(("", "ü", "text")), st.just(b"\x00\xff"))
value = st.one_of(number, scalar, st.lists(scalar, max_size=2), st.dictionaries(st.sampled_from(("k", "$l")), scalar))
version = st.integers(1, 6)
which = st.integers(0, 2**16)  # picks one of what there is
token = st.sampled_from(("right", "wrong", "none"))


class Stop(Exception):
    """What a user's function raises."""


def outcome(call: Callable[[], Any]) -> Any:
    """An answer, or an error with the data it carries, in a form that can be compared."""
    try:
        return "answer", exact(call())
    except Stop:
        return "stopped"
    except HoldfastError as error:
        names = ("expected", "version", "value", "holder", "until", "current")
        return type(error).__name__, {name: exact(error.details.get(name)) for name in names}


def invoke(root: Any, op: str, args: dict[str, Any]) -> Any:
    """An operation by its name, on a workspace or inside a transaction."""
    for part in op.split("."):
        root = getattr(root, part)
    return root(**args)


def one_command(draw: Callable[[Any], Any]) -> Op:
    """An operation as data, for transactions of several."""
    place = {"run": draw(run), "cell": draw(cell)}
    match draw(st.integers(0, 6)):
        case 0 | 1:
            return Op("cells.set", {**place, "value": draw(value)})
        case 2:
            return Op("cells.delete", place)
        case 3:
            return Op("cells.increment", {**place, "delta": draw(number)})
        case 4:
            return Op("cells.cas", {**place, "expected": draw(st.none() | version), "value": draw(value)})
        case 5:
            return Op("locks.acquire", {"name": draw(lock), "holder": draw(holder), "ttl": draw(st.none() | ttl)})
    return Op("cells.get", place)


def one_condition(draw: Callable[[Any], Any]) -> Condition:
    kind, key = draw(st.sampled_from([("cell", (r, c)) for r in RUNS for c in CELLS] + [("lock", n) for n in LOCKS]))
    match draw(st.integers(0, 3)):
        case 0:
            return Exists(kind, key)
        case 1:
            return NotExists(kind, key)
        case 2:
            return VersionEquals(kind, key, draw(version))
    return ValueEquals(kind, key, draw(st.one_of(value, holder)))


command = st.composite(one_command)()
commands = st.lists(command, min_size=1, max_size=4)
conditions = st.lists(st.composite(one_condition)(), max_size=2)


class Machine(RuleBasedStateMachine):
    """One workspace and one model; subclasses say of which kind."""

    make_world: ClassVar[Callable[[], World]]

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).make_world()
        self.ws: Workspace = self.world.open("ann")
        self.model = Model(self.world.clock)
        self.lease_ids: list[str] = ["no-such-lease"]
        self.tokens: dict[str, int] = {}  # the last one granted for each lock, right or stale

    def teardown(self) -> None:
        try:
            assert self.ws.check().problems == []
        finally:
            self.world.close()

    def call(
        self,
        op: str,
        args: dict[str, Any],
        actor: str = "ann",
        fence: tuple[str, int] | None = None,
        key: str | None = None,
    ) -> None:
        """One operation on both sides."""

        def real() -> Any:
            answer = invoke(self.ws.using(actor=actor, fence=fence, key=key), op, args)
            if isinstance(answer, Lease):
                self.model.next_lease = answer.id
                self.lease_ids.append(answer.id)
            return answer

        told = outcome(real)
        assert told == outcome(lambda: self.model.call(actor, op, args, fence, key)), op

    def token_for(self, name: str, token: str) -> int | None:
        held = self.model.state.locks.get(name)
        match token:
            case "right":
                return held.token if held else self.tokens.get(name, 1)
            case "wrong":
                return (held.token if held else 4096) + 1
        return None

    def some_lease(self, which: int) -> str:
        recent = self.lease_ids[-4:]
        return recent[which % len(recent)]

    # --- cells -------------------------------------------------------------------------------------------------------

    @step(run=run, cell=cell, value=value, actor=holder)
    def set(self, run: str, cell: str, value: Any, actor: str) -> None:
        self.call("cells.set", {"run": run, "cell": cell, "value": value}, actor)

    @step(run=run, cell=cell, value=value, ttl=ttl)
    def set_with_ttl(self, run: str, cell: str, value: Any, ttl: float) -> None:
        self.call("cells.set", {"run": run, "cell": cell, "value": value, "ttl": ttl})

    @step(run=run, cell=cell, value=value, which=which)
    def set_on_a_lease(self, run: str, cell: str, value: Any, which: int) -> None:
        self.call("cells.set", {"run": run, "cell": cell, "value": value, "lease": self.some_lease(which)})

    @step(run=run, cell=cell, value=value)
    def cas_right(self, run: str, cell: str, value: Any) -> None:
        found = self.model.find(run, cell)
        self.call("cells.cas", {"run": run, "cell": cell, "expected": found and found.version, "value": value})

    @step(run=run, cell=cell, value=value, expected=st.none() | version)
    def cas_by_chance(self, run: str, cell: str, value: Any, expected: int | None) -> None:
        self.call("cells.cas", {"run": run, "cell": cell, "expected": expected, "value": value})

    @step(run=run, cell=cell, expected=version, right=st.booleans())
    def compare_and_delete(self, run: str, cell: str, expected: int, right: bool) -> None:
        found = self.model.find(run, cell)
        expected = found.version if found and right else expected
        self.call("cells.compare_and_delete", {"run": run, "cell": cell, "expected": expected})

    @step(run=run, cell=cell, value=value)
    def init(self, run: str, cell: str, value: Any) -> None:
        self.call("cells.init", {"run": run, "cell": cell, "value": value})

    @step(run=run, cell=cell, value=value)
    def get_or_init(self, run: str, cell: str, value: Any) -> None:
        self.call("cells.get_or_init", {"run": run, "cell": cell, "default": value})

    @step(run=run, cell=cell)
    def delete(self, run: str, cell: str) -> None:
        self.call("cells.delete", {"run": run, "cell": cell})

    @step(run=run)
    def delete_run(self, run: str) -> None:
        self.call("cells.delete_run", {"run": run})

    @step(run=run, cell=cell, delta=number)
    def increment(self, run: str, cell: str, delta: float) -> None:
        self.call("cells.increment", {"run": run, "cell": cell, "delta": delta})

    @step(run=run, cell=cell, fails=st.booleans(), value=value, init=st.booleans())
    def transition(self, run: str, cell: str, fails: bool, value: Any, init: bool) -> None:
        def fn(old: Any) -> Any:
            if fails:
                raise Stop
            return [value, type(old).__name__]

        if init:
            self.call("cells.transition_or_init", {"run": run, "cell": cell, "initial": value, "fn": fn})
        else:
            self.call("cells.transition", {"run": run, "cell": cell, "fn": fn})

    @step(run=run, cell=cell, ttl=ttl)
    def refresh_ttl(self, run: str, cell: str, ttl: float) -> None:
        self.call("cells.refresh_ttl", {"run": run, "cell": cell, "ttl": ttl})

    @step(run=run, cell=cell, version=version)
    def restore(self, run: str, cell: str, version: int) -> None:
        self.call("cells.restore", {"run": run, "cell": cell, "version": version})

    # --- leases ------------------------------------------------------------------------------------------------------

    @step(ttl=ttl, actor=holder)
    def create_lease(self, ttl: float, actor: str) -> None:
        self.call("leases.create", {"ttl": ttl}, actor)

    @step(which=which, holder=st.none() | holder)
    def refresh_lease(self, which: int, holder: str | None) -> None:
        self.call("leases.refresh", {"id": self.some_lease(which), "holder": holder})

    @step(which=which, holder=st.none() | holder)
    def revoke_lease(self, which: int, holder: str | None) -> None:
        self.call("leases.revoke", {"id": self.some_lease(which), "holder": holder})

    # --- locks -------------------------------------------------------------------------------------------------------

    @step(name=lock, holder=holder, ttl=st.none() | ttl)
    def acquire(self, name: str, holder: str, ttl: float | None) -> None:
        self.call("locks.acquire", {"name": name, "holder": holder, "ttl": ttl})

    @step(name=lock, ttl=st.none() | ttl)
    def enter_again(self, name: str, ttl: float | None) -> None:
        held = self.model.state.locks.get(name)
        self.call("locks.acquire", {"name": name, "holder": held.holder if held else "ann", "ttl": ttl})

    @step(name=lock, holder=holder, which=which)
    def acquire_on_a_lease(self, name: str, holder: str, which: int) -> None:
        self.call("locks.acquire", {"name": name, "holder": holder, "lease": self.some_lease(which)})

    @step(name=lock, holder=holder, token=token)
    def release(self, name: str, holder: str, token: str) -> None:
        self.call("locks.release", {"name": name, "holder": holder, "token": self.token_for(name, token)})

    @step(name=lock, holder=holder, ttl=st.none() | ttl, token=token)
    def refresh_lock(self, name: str, holder: str, ttl: float | None, token: str) -> None:
        args = {"name": name, "holder": holder, "ttl": ttl, "token": self.token_for(name, token)}
        self.call("locks.refresh", args)

    @step(name=lock, right=st.booleans(), actor=holder, run=run, cell=cell, value=value)
    def fenced_set(self, name: str, right: bool, actor: str, run: str, cell: str, value: Any) -> None:
        token = self.token_for(name, "right" if right else "wrong")
        assert token is not None
        self.call("cells.set", {"run": run, "cell": cell, "value": value}, actor, fence=(name, token))

    # --- several at once, and again ----------------------------------------------------------------------------------

    @step(conditions=conditions, then=commands, otherwise=commands)
    def txn(self, conditions: list[Condition], then: list[Op], otherwise: list[Op]) -> None:
        self.call("txn", {"conditions": conditions, "then": then, "otherwise": otherwise})

    @step(commands=commands, careless=st.booleans(), fails=st.booleans())
    def transact(self, commands: list[Op], careless: bool, fails: bool) -> None:
        """A body that may swallow the errors of its operations, and may fail in the end."""

        def body(perform: Callable[[Op], Any]) -> list[Any]:
            answers = []
            for one in commands:
                try:
                    answers.append(exact(perform(one)))
                except HoldfastError:
                    if not careless:
                        raise
            if fails:
                raise Stop
            return answers

        told = outcome(lambda: self.ws.transact(lambda tx: body(lambda op: invoke(tx, op.op, op.args))))
        assert told == outcome(
            lambda: self.model.transact(
                "ann", lambda: body(lambda op: self.model.part(lambda: self.model.perform(op.op, op.args)))
            )
        )

    @step(key=st.sampled_from(("k1", "k2")), actor=holder, delta=st.integers(1, 2))
    def keyed_increment(self, key: str, actor: str, delta: int) -> None:
        self.call("cells.increment", {"run": "keyed", "cell": "sum", "delta": delta}, actor, key=key)

    # --- time --------------------------------------------------------------------------------------------------------

    @step(seconds=st.sampled_from((0.000001, 1, 4, 20.5, 60)))
    def advance(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.swept()

    @step(seconds=st.sampled_from((3600, 25 * 3600)))
    def sleep_long(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.swept()

    @step(seconds=st.sampled_from((-90_000, -3600, -200, -2, 2, 30, 3600, 90_000)))
    def jump(self, seconds: float) -> None:
        self.tick()
        self.world.clock.jump(seconds)
        self.swept()

    @step(back=st.sampled_from((400, 3600)), idle=st.sampled_from((0, 60, 3600)))
    def fall_behind(self, back: float, idle: float) -> None:
        """The wall clock is put back, and time goes on without a write."""
        self.tick()
        self.world.clock.jump(-back)
        self.world.clock.advance(idle)
        self.swept()

    @step()
    def reset_clock(self) -> None:
        self.call("clock.reset", {})

    def tick(self) -> None:
        """A write that anchors the workspace's time: a jump shows from where on it is measured."""
        self.call("cells.increment", {"run": "clock", "cell": "ticks"})

    def swept(self) -> None:
        """Whether the pulse came first or this list does: what is due ends before anything else happens."""
        self.ws.cells.runs()
        self.model.sweep()

    # --- what must be true after each step ---------------------------------------------------------------------------

    @step(which=which)
    def resume_watch(self, which: int) -> None:
        """From any cursor exactly the events after it come."""
        if self.model.events:
            at = which % len(self.model.events)
            cursor = self.model.events[at].cursor
            assert_same(list(self.ws.watch(after=cursor, timeout=0)), self.model.events[at + 1 :])

    @invariant()
    def cells_agree(self) -> None:
        for run in RUNS:
            for cell in CELLS:
                assert exact(self.ws.cells.find(run, cell)) == exact(self.model.find(run, cell))
                row = self.model.state.cells.get((run, cell))
                until = as_time(row.lease.deadline) if row and row.lease else None
                assert self.ws.cells.info(run, cell).expires_at == until
            names = sorted(name for of, name in self.model.state.cells if of == run)
            assert self.ws.cells.list(run) == names

    @invariant()
    def locks_and_leases_agree(self) -> None:
        for name in LOCKS:
            assert self.ws.locks.find(name) == self.model.grant(name)
        users = [self.model.lease_of(row) for row in self.model.state.leases if row.user]
        assert self.ws.leases.list() == users

    @invariant()
    def the_log_agrees(self) -> None:
        assert self.ws.revision == self.model.revision
        events = list(self.ws.watch(after=0, timeout=0))
        assert_same(events, self.model.events)
        granted = [event.data["token"][1] for event in events if (event.kind, event.op) == ("lock", "acquire")]
        assert all(earlier < later for earlier, later in itertools.pairwise(granted))
        self.tokens = {event.id: event.data["token"][1] for event in events if event.op == "acquire"}


def assert_same(found: list[Event], expected: list[Event]) -> None:
    """Say which event differs first: the lists are long."""
    for one, other in itertools.zip_longest(found, expected):
        assert (one, one and exact(one.data)) == (other, other and exact(other.data)), f"{one} is not {other}"
