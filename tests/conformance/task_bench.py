"""The bench of the state machine of tasks: one workspace, one model, how rules choose tasks, and what must always hold.

Every answer and refusal is compared, and after each step every task, what is ready, the revision and the new events;
`ws.check()`, which recounts all counters, now and then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import msgspec
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.kernel.batch import Batch, Call
from holdfast.types.tasks import HistoryEntry, Readiness, Task
from holdfast.workspace import Workspace
from tests.conformance.machine import Stop, assert_same, invoke
from tests.conformance.model_base import TaskRow, exact
from tests.conformance.task_model import TaskModel
from tests.worlds.kinds import World

DONE: Counter[str] = Counter()  # how often each operation was not refused
REFUSALS = {name for name in dir(errors) if isinstance(getattr(errors, name), type)}
CHECK_EVERY = 20  # steps
TAKEN_BACK = "taken back"  # a transaction that fails after it has claimed a task
# What an error must say of its cause, as far as it has it.
FACTS = (
    *("id", "parent_id", "holder", "since", "current", "expected", "version", "value", "status", "current_status"),
    *("requested_status", "valid_transitions", "active_children", "children", "assigned_to"),
)


def agreed(answer: Any) -> Any:
    """An answer without the warnings that the model leaves out: what a claimed task waits for, who is unknown."""
    if not isinstance(answer, Task):
        return answer
    left = ("; the claim counts all the same", "has not been seen here")
    kept = tuple(each for each in answer.warnings if not any(words in each for words in left))
    return msgspec.structs.replace(answer, warnings=kept)


def told(call: Callable[[], Any]) -> Any:
    """An answer or a refusal in a form that can be compared."""
    try:
        return plain(agreed(call()))
    except Stop:
        return "stopped"
    except HoldfastError as error:
        facts = {name: error.details[name] for name in FACTS if name in error.details}
        if "valid_transitions" in facts:
            facts["valid_transitions"] = sorted(facts["valid_transitions"])
        # Of several shortest ways round any will do.
        return type(error).__name__, exact(facts), len(error.details.get("path", ()))


def plain(answer: Any) -> Any:
    """An answer without its words; fields that changed together come in no order."""
    if isinstance(answer, Readiness):
        return answer.id, answer.ready, [(reason.code, reason.ids) for reason in answer.reasons]
    if isinstance(answer, list) and answer and isinstance(answer[0], HistoryEntry):
        answer = sorted(answer, key=lambda entry: (-entry.version, entry.field))
    return exact(answer)


def _again(answer: Any) -> Any:
    """What a call returned or raised."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _take_back(perform: Callable[[str], Any]) -> None:
    """A body that has taken a task when it fails."""
    perform("tasks.claim_next")
    raise Stop


class TaskBench(RuleBasedStateMachine):
    """One workspace and one model; subclasses say of which kind, and what happens."""

    make_world: ClassVar[Callable[[], World]]

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).make_world()
        self.ws: Workspace = self.world.open("ann")
        self.model = TaskModel(self.world.clock)
        self.ids: list[str] = []  # of every task there ever was
        self.claims: dict[str, tuple[str, int]] = {}  # the last holder and token of each task, live or stale
        self.steps = 0

    def teardown(self) -> None:
        try:
            self.sound()
            assert_same(list(self.ws.watch(after=0, timeout=0)), self.model.log())
        finally:
            self.world.close()

    def sound(self) -> None:
        problems = self.ws.check().problems
        assert problems == [], problems

    @initialize()
    def a_small_tree(self) -> None:
        for parent in (None, 0, 0, 2, None, None):
            self.call("tasks.create", {"title": "first", "parent_id": None if parent is None else self.ids[parent]})

    def call(self, op: str, args: dict[str, Any], actor: str = "ann") -> None:
        """One operation on both sides."""

        def real() -> Any:
            answer = invoke(self.ws.using(actor=actor), op, args)
            if op == "tasks.create":
                self.made(answer.id)
            return answer

        heard = told(real)
        expected = told(lambda: self.model.call(actor, op, args, None, None))
        assert heard == expected, f"{op} {args} by {actor}"
        DONE[op] += heard[0] not in REFUSALS

    def together(self, asked: list[tuple[str, str, dict[str, Any]]]) -> None:
        """Operations of several actors in one group, and one after the other on the model."""
        groups = self.ws._engine.group

        async def ask(actor: str, op: str, args: dict[str, Any]) -> Any:
            acting = self.ws.aio.using(actor=actor)
            if op == TAKEN_BACK:
                return await acting.transact(lambda tx: _take_back(lambda op: invoke(tx, op, args)))
            return await invoke(acting, op, args)

        async def ask_all() -> list[Any]:
            return await asyncio.gather(*[ask(*each) for each in asked], return_exceptions=True)

        sizes: list[int] = []
        run = groups.run

        def counted(calls: list[Call]) -> Batch | None:
            sizes.append(len(calls))
            return run(calls)

        groups.run = counted  # type: ignore[method-assign]
        try:
            answers = asyncio.run(ask_all())
        finally:
            del groups.run
        assert max(sizes) == len(asked), "they did not share a group"
        for (actor, op, args), answer in zip(asked, answers, strict=True):
            heard = told(partial(_again, answer))
            if op == "tasks.create" and not isinstance(answer, Exception):
                self.made(answer.id)
            said = told(partial(self._said, actor, op, args))
            assert heard == said, f"{op} {args} by {actor}, one of {len(asked)}"
            DONE[op] += heard[0] not in REFUSALS

    def _said(self, actor: str, op: str, args: dict[str, Any]) -> Any:
        """What the model says to one of a crowd."""
        if op != TAKEN_BACK:
            return self.model.call(actor, op, args, None, None)
        return self.model.transact(actor, lambda: _take_back(lambda op: self.model.perform(op, args)))

    def made(self, id: str) -> None:
        """The store has chosen an id."""
        assert id not in self.ids, "an id was used twice"
        self.model.next_tasks.append(id)
        self.ids.append(id)

    # --- choosing ----------------------------------------------------------------------------------------------------

    def some(self, which: int, fits: Callable[[TaskRow], bool] = lambda row: row.deleted is None) -> str:
        """The id of a task that fits, if there is one; one time in six of any that ever was."""
        fitting = [row.id for row in self.model.state.tasks.values() if fits(row)]
        choice = fitting if fitting and which % 6 < 5 else [*self.ids, "hf-none"]
        return choice[which // 6 % len(choice)]

    def some_in(self, which: int, status: str) -> str:
        """The id of a task in a status that takes a claim to get to; an open one is brought there if there is none."""
        rows = self.model.state.tasks.values()
        if not any(row.status == status and row.deleted is None for row in rows):
            free = [row.id for row in rows if row.status == "open" and row.deleted is None]
            if free and which % 4 < 3:
                mine = {"id": free[-1], "agent": "ann"}
                self.call("tasks.claim", {**mine, "ttl": 60})
                if status == "blocked":
                    self.call("tasks.block", mine)
                elif status != "in_progress":
                    self.call("tasks.complete", {**mine, "review": status == "pending_merge"})
        return self.some(which, lambda row: row.status == status and row.deleted is None)

    def held(self, which: int) -> str:
        return self.some_in(which, "in_progress")

    def parent(self, which: int) -> str | None:
        return None if which % 3 == 2 else self.some(which // 3)

    def token_for(self, id: str, token: str) -> int | None:
        row = self.model.state.tasks.get(id)
        right = row.token if row is not None and row.token is not None else self.claims.get(id, ("", 1))[1]
        return {"right": right, "wrong": right + 1, "none": None}[token]

    def holder_of(self, id: str, which: int, otherwise: str) -> str:
        """Whoever holds the task or held it last; one time in four somebody else."""
        return self.claims[id][0] if id in self.claims and which % 4 < 3 else otherwise

    def claim_args(self, which: int, agent: str, token: str) -> dict[str, Any]:
        """A task in progress, or one whose claim was lost; its holder or another, with or without a token."""
        lost = [id for id, row in self.model.state.tasks.items() if id in self.claims and row.status == "open"]
        id = lost[which // 4 % len(lost)] if lost and which % 3 == 0 else self.held(which)
        return {"id": id, "agent": self.holder_of(id, which, agent), "token": self.token_for(id, token)}

    # --- what must be true after each step ---------------------------------------------------------------------------

    @invariant()
    def ready_agrees(self) -> None:
        for agent in ("ann", "bob"):
            assert self.ws.tasks.ready(limit=1000, agent=agent) == self.model.tasks_ready(agent=agent)
        for row in self.model.state.tasks.values():
            if row.claimed_by is not None and row.token is not None:
                self.claims[row.id] = (row.claimed_by, row.token)

    @invariant()
    def every_task_agrees(self) -> None:
        assert self.ws.tasks.list(limit=1000, include_deleted=True) == self.model.tasks_list(include_deleted=True)

    @invariant()
    def the_log_agrees(self) -> None:
        assert self.ws.revision == self.model.revision
        newest = [self.model.as_told(event) for event in self.model.events if event.revision == self.model.revision]
        assert_same(self.ws.events.list(after=max(0, self.model.revision - 1), limit=1000), newest)

    @invariant()
    def the_store_is_sound(self) -> None:
        self.steps += 1
        if self.steps % CHECK_EVERY == 0:
            self.sound()
