"""The state machine of scopes against the plain model: names collide exactly where they should.

Stashes are made, scoped, let go, locked and deleted, trails end and come back, in any order. Every answer and refusal
is compared, and after each step where every name leads in every scope, and which links there are; now and then
`ws.check()`. What is left at the end is exported, imported elsewhere, and exported the same.
"""

from __future__ import annotations

import copy
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, run_state_machine_as_test

import holdfast
from holdfast.errors import DuplicateName, HoldfastError
from holdfast.interchange.stash_export import TABLES
from holdfast.workspace import Workspace
from tests.amounts import amount, chance
from tests.conformance.counting import Rules
from tests.conformance.machine import Stop
from tests.conformance.stash_model import GLOBAL, Place, StashModel, Way
from tests.worlds.kinds import FileWorld, MemoryWorld, World

STEPS = amount(1_250, 10_000)
LEAST = amount(40, 80)  # times that every rule fires
DONE_LEAST = amount(3, 5)  # times that every operation is not refused
COLLISIONS = 5  # times that a name is refused, in each way that it can be
FILE_STEPS = 400
EXAMPLES = 10  # between two looks at the counts
MOST_LOOKS = 40
CHECK_EVERY = 20  # steps

SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=80,
    deadline=None,
    database=None,
    derandomize=False,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)

_rules = Rules()
RULES, FIRED, step = _rules.names, _rules.fired, _rules.step
DONE: Counter[str] = Counter()  # how often each operation was not refused
COLLIDED: Counter[str] = Counter()  # how often each was because of a name
COLLIDING = ("create", "scope", "unscope", "move")

NAMES = ("hits", "gate")
MOST_TRAILS = 5  # so that stashes meet
which = st.integers(0, 2**16)  # picks one of what there is
name = st.sampled_from(NAMES)
holder = st.sampled_from(("ann", "bob"))


def told(call: Callable[[], Any]) -> Any:
    """An answer or a refusal in a form that can be compared."""
    try:
        return call()
    except Stop:
        return "stopped"
    except HoldfastError as error:
        return type(error), error.details.get("id") if isinstance(error, DuplicateName) else None


class StashMachine(RuleBasedStateMachine):
    """One workspace, through two handles, and one model; subclasses say of which kind."""

    make_world: ClassVar[Callable[[], World]]

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).make_world()
        self.handles: list[Workspace] = [self.world.open("ann"), self.world.open("bob")]
        self.model = StashModel()
        self.known: list[str] = []  # every stash that ever was
        self.steps = 0
        self.time = 0.0

    def teardown(self) -> None:
        try:
            assert self.ws.check().problems == []
            self.comes_back()
        finally:
            self.world.close()

    @property
    def ws(self) -> Workspace:
        """The handle whose turn it is."""
        return self.handles[self.steps % 2]

    def call(self, op: str, real: Callable[[Workspace], Any], model: Callable[[StashModel, Any], Any]) -> None:
        """One write on both sides; the model is told what the workspace answered."""
        answers: list[Any] = [None]

        def make() -> None:
            answers[0] = real(self.ws)

        before = copy.deepcopy(self.model)
        heard = told(make)
        said = told(lambda: model(self.model, answers[0]))
        if heard is not None:
            self.model = before
        assert heard == said, op
        DONE[op] += heard is None
        COLLIDED[op] += isinstance(heard, tuple) and heard[0] is DuplicateName

    # --- choosing ----------------------------------------------------------------------------------------------------

    def some(self, which: int, fits: Callable[[Place], bool] = lambda _: True) -> str:
        """The id of a stash that fits, if there is one; now and then of any that ever was, or of none."""
        if which % 40 == 39 or not self.known:
            return "no such stash"
        fitting = [id for id, stash in self.model.stashes.items() if fits(stash) and not stash.gone]
        choice = fitting if fitting and which % 10 < 9 else self.known
        return choice[which // 40 % len(choice)]

    def trail(self, which: int, *states: str) -> str:
        """The id of a trail in one of these states, if there is one; now and then of any, or of none."""
        if which % 30 == 29 or not self.model.trails:
            return "no such trail"
        fitting = [id for id, trail in self.model.trails.items() if trail.state in states]
        choice = fitting if fitting and which % 10 < 8 else list(self.model.trails)
        return choice[which // 30 % len(choice)]

    def scope_for(self, which: int) -> str:
        return GLOBAL if which % 3 == 0 else self.trail(which // 3, "draft", "active")

    # --- stashes -----------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """There are trails."""
        for state in ("draft", "active", "active"):
            self.begin_trail.__wrapped__(self, state)

    @step(name=name, which=which, lock=st.booleans(), ttl=st.sampled_from((None, None, None, 5.0)))
    def create(self, name: str, which: int, lock: bool, ttl: float | None) -> None:
        scope = self.scope_for(which)
        kind: Any = "lock" if lock else "context"
        place = Place(name, scope, lock, None if ttl is None else self.time + ttl)
        self.call(
            "create",
            lambda ws: self.note(ws.stashes.create(name, kind, trail=scope or None, ttl=ttl).id),
            lambda model, id: model.create(id, place),
        )

    def note(self, id: str) -> str:
        self.known.append(id)
        return id

    @step(which=which, where=which)
    def scope(self, which: int, where: int) -> None:
        """Half of the time into a trail that has the name, if there is one."""
        id, trail = self.some(which, lambda stash: not stash.trail), self.trail(where, "draft", "active")
        names = {stash.name: id for id, stash in self.model.stashes.items() if not stash.trail}
        taken = [(names[stash.name], stash.trail) for stash in self.model.stashes.values() if stash.name in names]
        taken = [pair for pair in taken if pair[1] and self.model.trails[pair[1]].state == "active"]
        if taken and where % 2:
            id, trail = taken[which % len(taken)]
        self.call(
            "scope",
            lambda ws: ws.links.create("scoped_to", id, trail),
            lambda model, _: model.scope(id, trail),
        )

    @step(which=which)
    def unscope(self, which: int) -> None:
        """By its link, also if its trail has ended; a stash that went with its trail keeps it."""
        scoped = sorted(self.model.scoped)
        if scoped:
            id = scoped[which % len(scoped)]
            (link,) = self.ws.links.list("scoped_to", from_id=id)
            assert link.to_id == self.model.scoped[id]
            self.call("unscope", lambda ws: ws.links.delete(link.id), lambda model, _: model.unscope(id))

    @step(which=which, where=which, fails=st.booleans())
    def move(self, which: int, where: int, fails: bool) -> None:
        """From one trail to another in one transaction, which may fail at its end."""
        id, trail = self.some(which, lambda stash: bool(stash.trail)), self.trail(where, "draft", "active")
        linked = self.ws.links.list("scoped_to", from_id=id)

        def real(tx: Any) -> None:
            for link in linked:
                tx.links.delete(link.id)
            tx.links.create("scoped_to", id, trail)
            if fails:
                raise Stop

        def model(model: StashModel, _: Any) -> None:
            if linked:
                model.unscope(id)
            model.scope(id, trail)
            if fails:
                raise Stop

        self.call("move", lambda ws: ws.transact(real), model)

    @step(which=which)
    def delete(self, which: int) -> None:
        id = self.some(which)
        self.call("delete", lambda ws: ws.stashes.delete(id), lambda model, _: model.delete(id))

    @step(which=which, holder=holder)
    def acquire(self, which: int, holder: str) -> None:
        id = self.some(which, lambda stash: stash.lock)
        self.call("acquire", lambda ws: ws.stashes.acquire(id, holder), lambda model, _: model.acquire(id, holder))

    @step(which=which, holder=holder)
    def release(self, which: int, holder: str) -> None:
        id = self.some(which, lambda stash: stash.holder == holder)
        self.call("release", lambda ws: ws.stashes.release(id, holder), lambda model, _: model.release(id, holder))

    @step(seconds=st.sampled_from((0.5, 2.0, 6.0)))
    def advance(self, seconds: float) -> None:
        self.time += seconds
        self.world.clock.advance(seconds)
        self.model.pass_time(self.time)

    # --- trails ------------------------------------------------------------------------------------------------------

    @step(state=st.sampled_from(("draft", "pending", "active")))
    def begin_trail(self, state: Any) -> None:
        if len(self.model.trails) == MOST_TRAILS:
            return
        self.call(
            "begin trail",
            lambda ws: ws.trails.create("t", state).id,
            lambda model, id: model.trails.update({id: Way(state)}),
        )

    @step(which=which)
    def activate(self, which: int) -> None:
        id = self.trail(which, "draft", "pending")
        self.call("activate", lambda ws: ws.trails.set_state(id, "active"), lambda model, _: model.activate(id))

    @step(which=which)
    def complete(self, which: int) -> None:
        id = self.trail(which, "active")
        self.call("complete", lambda ws: ws.trails.complete(id), lambda model, _: model.complete(id))

    @step(which=which)
    def abandon(self, which: int) -> None:
        id = self.trail(which, "draft", "pending", "active")
        self.call("abandon", lambda ws: ws.trails.abandon(id), lambda model, _: model.abandon(id))

    @step(which=which)
    def restore(self, which: int) -> None:
        id = self.trail(which, "abandoned")
        self.call("restore", lambda ws: ws.trails.restore(id), lambda model, _: model.restore(id))

    @step(which=which)
    def delete_trail(self, which: int) -> None:
        id = self.trail(which, "abandoned", "completed")
        self.call("delete trail", lambda ws: ws.trails.delete(id), lambda model, _: model.delete_trail(id))

    # --- what must be true after each step ---------------------------------------------------------------------------

    @invariant()
    def every_name_leads_where_it_should(self) -> None:
        self.steps += 1
        for trail in (GLOBAL, *self.model.trails):
            assert sorted(stash.id for stash in self.ws.stashes.list(trail=trail)) == self.model.within(trail)
            for name in NAMES:
                found = self.ws.stashes.find(name, trail or None)
                assert (found and found.id) == self.model.found(name, trail)

    @invariant()
    def a_stash_is_where_its_link_says(self) -> None:
        linked = {link.from_id: link.to_id for link in self.ws.links.list("scoped_to")}
        assert linked == self.model.scoped
        assert {trail.id: trail.state for trail in self.ws.trails.list()} == {
            id: trail.state for id, trail in self.model.trails.items()
        }
        for id in self.known[-5:]:
            heard = told(lambda id=id: self.ws.stashes.get(id).trail or GLOBAL)  # type: ignore[misc]
            assert heard == told(lambda id=id: self.model.stash(id).trail)  # type: ignore[misc]
        if self.steps % CHECK_EVERY == 0:
            assert self.ws.check().problems == []

    def comes_back(self) -> None:
        """What is exported and imported elsewhere exports the same again."""
        before: dict[str, list[str]] = {table: self.ws.stashes.export(table) for table in TABLES}
        with holdfast.open(":memory:", actor="copy", clock=self.world.clock) as elsewhere:
            report = elsewhere.stashes.import_(before)
            assert sum(map(len, report.created.values())) == sum(map(len, before.values()))
            assert {table: elsewhere.stashes.export(table) for table in TABLES} == before
            assert elsewhere.check().problems == []
            for id in (id for id, trail in self.model.trails.items() if trail.state == "abandoned"):
                assert elsewhere.trails.restore(id).state == self.model.trails[id].before
                self.model.restore(id)
                assert sorted(stash.id for stash in elsewhere.stashes.list(trail=id)) == self.model.within(id)


def drive(kind: type[World], folder: Path, steps: int, least: int, done: int, collisions: int) -> None:
    """Run machines on fresh workspaces of a kind until there were enough steps and every rule fired often enough."""

    def make_world() -> World:
        return kind(Path(tempfile.mkdtemp(dir=folder)))

    def enough() -> bool:
        often = min(FIRED[name] for name in RULES) >= least and min(DONE.values()) >= done
        return FIRED.total() >= steps and often and min(COLLIDED[op] for op in COLLIDING) >= collisions

    for counter in (FIRED, DONE, COLLIDED):
        counter.clear()
    draws = chance("stash machine")
    for _ in range(MOST_LOOKS):
        machine = type("StashMachine", (StashMachine,), {"make_world": staticmethod(make_world)})
        run_state_machine_as_test(seeded(draws.getrandbits(32))(machine), settings=SETTINGS)
        if enough():
            break
    assert enough(), (FIRED, DONE, COLLIDED)


@pytest.mark.early
@pytest.mark.timeout(900)
def test_s6_names_collide_exactly_where_they_should(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive(MemoryWorld, tmp_path, STEPS, LEAST, DONE_LEAST, COLLISIONS)
    with capsys.disabled():
        print(f"\nstate machine of stashes: {FIRED.total()} steps, every rule at least {min(FIRED.values())} times")
        print("  not refused: " + ", ".join(f"{op} {count}" for op, count in sorted(DONE.items())))
        print("  refused for a name: " + ", ".join(f"{op} {COLLIDED[op]}" for op in COLLIDING))


@pytest.mark.timeout(900)
def test_s6_names_in_a_file_collide_exactly_where_they_should(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive(FileWorld, tmp_path, FILE_STEPS, 1, 1, 1)
    with capsys.disabled():
        print(f"\nstate machine of stashes in a file: {FIRED.total()} steps")
