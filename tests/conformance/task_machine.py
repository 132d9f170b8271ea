"""The state machine of tasks: random operations on a workspace and on the model, which must agree on everything.

Compared are every answer and refusal, and after each step every task, what is ready, the revision and the new events;
`ws.check()`, which recounts all counters, now and then. Rules choose tasks by what they need: a task to complete is one
in progress more often than not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.testing.worlds import World
from holdfast.types import HistoryEntry, Readiness, as_time
from holdfast.workspace import Workspace
from tests.conformance.counting import Rules
from tests.conformance.machine import Stop, assert_same, invoke
from tests.conformance.model_base import TaskRow, exact
from tests.conformance.task_ledger import ACTIVE
from tests.conformance.task_model import TaskModel

_rules = Rules()
RULES, FIRED, step = _rules.names, _rules.fired, _rules.step

DONE: Counter[str] = Counter()  # how often each operation was not refused
REFUSALS = {name for name in dir(errors) if isinstance(getattr(errors, name), type)}

AGENTS = ("ann", "bob", "cy")
TAGS = ("api", "web", "area/web")
STATUSES = ("open", "in_progress", "pending_merge", "blocked", "closed")
CHECK_EVERY = 20  # steps
# What an error must say of its cause, as far as it has it.
FACTS = (
    *("id", "parent_id", "holder", "since", "current", "expected", "version", "value", "status", "current_status"),
    *("requested_status", "valid_transitions", "active_children"),
)

which = st.integers(0, 2**16)  # picks one of what there is
agent = st.sampled_from(AGENTS)
tag = st.sampled_from(TAGS)
tags = st.lists(tag, max_size=2)
kind = st.sampled_from(("task", "bug"))
priority = st.integers(0, 4)
ttl = st.sampled_from((None, 5, 20.5, 60))
token = st.sampled_from(("none", "none", "none", "right", "right", "wrong"))
note = st.sampled_from((None, "a note"))
link = st.sampled_from(("depends_on", "depends_on", "depends_on", "related", "discovered_from"))


def told(call: Callable[[], Any]) -> Any:
    """An answer or a refusal in a form that can be compared."""
    try:
        return plain(call())
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


class TaskMachine(RuleBasedStateMachine):
    """One workspace and one model; subclasses say of which kind."""

    make_world: ClassVar[Callable[[], World]]

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).make_world()
        self.ws: Workspace = self.world.open("ann")
        self.model = TaskModel(self.world.clock)
        self.ids: list[str] = []  # of every task there ever was
        self.tokens: dict[str, int] = {}  # the last one of each task, live or stale
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
        right = row.token if row is not None and row.token is not None else self.tokens.get(id, 1)
        return {"right": right, "wrong": right + 1, "none": None}[token]

    def claim_args(self, which: int, agent: str, token: str) -> dict[str, Any]:
        """A task in progress, its holder or another, with or without a token."""
        id = self.held(which)
        row = self.model.state.tasks.get(id)
        holder = row.claimed_by if row is not None and which % 4 < 3 else None
        return {"id": id, "agent": holder or agent, "token": self.token_for(id, token)}

    # --- making and editing ------------------------------------------------------------------------------------------

    @step(which=which, type=kind, priority=priority, tags=tags, hint=st.sampled_from((None, None, "careful")))
    def create(self, which: int, type: str, priority: int, tags: list[str], hint: str | None) -> None:
        args = {"title": f"task {which}", "type": type, "priority": priority, "tags": tags, "grimoire_hint": hint}
        self.call("tasks.create", {**args, "parent_id": self.parent(which), "body": "" if which % 2 else "text"})

    @step(which=which, actor=agent, token=token, right=st.sampled_from((None, True, False)), what=st.integers(0, 4))
    def update(self, which: int, actor: str, token: str, right: bool | None, what: int) -> None:
        id = self.some(which)
        row = self.model.state.tasks.get(id)
        version = 1 if row is None else row.version
        expected = None if right is None else version if right else version + 1
        fields: tuple[dict[str, Any], ...] = (
            {"title": f"title {which % 2}"},
            {"body": f"body {which % 2}"},
            {"priority": which % 5},
            {"type": "bug" if which % 2 else "task"},
            {"title": "both", "priority": which % 3, "grimoire_hint": ("", "careful")[which % 2]},
        )
        self.call(
            "tasks.update", {"id": id, **fields[what], "expected": expected, "token": self.token_for(id, token)}, actor
        )

    @step(which=which, actor=agent, token=token, text=st.sampled_from(("seen", "fixed", "again", " ")))
    def write_note(self, which: int, actor: str, token: str, text: str) -> None:
        id = self.held(which) if which % 2 else self.some(which)
        self.call("tasks.note", {"id": id, "text": text, "token": self.token_for(id, token)}, actor)

    @step(which=which, tags=tags, actor=agent, op=st.sampled_from(("add_tags", "remove_tags", "set_tags")))
    def retag(self, which: int, tags: list[str], actor: str, op: str) -> None:
        self.call(f"tasks.{op}", {"id": self.some(which), "tags": tags if which % 9 < 8 else [*tags, ""]}, actor)

    # --- claims ------------------------------------------------------------------------------------------------------

    @step(which=which, agent=agent, ttl=ttl)
    def claim(self, which: int, agent: str, ttl: float | None) -> None:
        id = self.some(which, lambda row: row.status == "open" and row.deleted is None)
        self.call("tasks.claim", {"id": id, "agent": agent, "ttl": ttl})

    @step(agent=agent, ttl=ttl)
    def claim_next(self, agent: str, ttl: float | None) -> None:
        self.call("tasks.claim_next", {"agent": agent, "ttl": ttl})

    @step(agent=agent, tag=tag, ttl=ttl)
    def claim_next_with_a_tag(self, agent: str, tag: str, ttl: float | None) -> None:
        self.call("tasks.claim_next", {"agent": agent, "tags": [tag], "ttl": ttl})

    @step(agent=agent, type=kind, tags=tags)
    def claim_next_of_a_type(self, agent: str, type: str, tags: list[str]) -> None:
        self.call("tasks.claim_next", {"agent": agent, "type": type, "tags": tags})

    @step(which=which, agent=agent)
    def reclaim(self, which: int, agent: str) -> None:
        self.call("tasks.reclaim", {"id": self.held(which), "agent": agent})

    @step(which=which, agent=agent, token=token, ttl=ttl)
    def heartbeat(self, which: int, agent: str, token: str, ttl: float | None) -> None:
        self.call("tasks.heartbeat", {**self.claim_args(which, agent, token), "ttl": ttl})

    @step(which=which, agent=agent, token=token, seconds=st.sampled_from((None, 1, 30, 7200, -1)))
    def park(self, which: int, agent: str, token: str, seconds: float | None) -> None:
        until = None if seconds is None else as_time(self.model.time()) + timedelta(seconds=seconds)
        self.call("tasks.park", {**self.claim_args(which, agent, token), "until": until})

    @step(which=which, agent=agent, token=token, force=st.booleans())
    def release(self, which: int, agent: str, token: str, force: bool) -> None:
        self.call("tasks.release", {**self.claim_args(which, agent, token), "force": force})

    @step(which=which, agent=agent, token=token, review=st.sampled_from((None, True, False)), note=note)
    def complete(self, which: int, agent: str, token: str, review: bool | None, note: str | None) -> None:
        result = {"n": which} if which % 3 else None
        args = {**self.claim_args(which, agent, token), "review": review, "summary": note, "result": result}
        self.call("tasks.complete", args)

    @step(which=which, agent=agent, token=token, note=note)
    def block(self, which: int, agent: str, token: str, note: str | None) -> None:
        self.call("tasks.block", {**self.claim_args(which, agent, token), "reason": note})

    @step(seconds=st.sampled_from((1, 6, 30)))
    def release_stale_claims(self, seconds: float) -> None:
        self.call("tasks.release_stale_claims", {"timeout": seconds})

    # --- steps -------------------------------------------------------------------------------------------------------

    @step(which=which, note=note)
    def unblock(self, which: int, note: str | None) -> None:
        self.call("tasks.unblock", {"id": self.some_in(which, "blocked"), "note": note})

    @step(which=which, note=note)
    def approve(self, which: int, note: str | None) -> None:
        self.call("tasks.approve", {"id": self.some_in(which, "pending_merge"), "note": note})

    @step(which=which, note=note)
    def reject(self, which: int, note: str | None) -> None:
        self.call("tasks.reject", {"id": self.some_in(which, "pending_merge"), "reason": note})

    @step(which=which, note=note)
    def close(self, which: int, note: str | None) -> None:
        self.call("tasks.close", {"id": self.some_in(which, "blocked"), "reason": note})

    @step(which=which, note=note)
    def cancel(self, which: int, note: str | None) -> None:
        self.call("tasks.cancel", {"id": self.some(which, lambda row: row.status == "open"), "reason": note})

    @step(which=which, note=note)
    def reopen(self, which: int, note: str | None) -> None:
        self.call("tasks.reopen", {"id": self.some_in(which, "closed"), "reason": note})

    # --- tree and links ----------------------------------------------------------------------------------------------

    @step(which=which, above=which, actor=agent)
    def reparent(self, which: int, above: int, actor: str) -> None:
        self.call("tasks.reparent", {"id": self.some(which), "parent_id": self.parent(above)}, actor)

    @step(which=which, on=which, kind=link, actor=agent)
    def depend(self, which: int, on: int, kind: str, actor: str) -> None:
        self.call("tasks.depend", {"id": self.some(which), "on": self.some(on), "kind": kind}, actor)

    @step(which=which, tag=tag, turn=st.sampled_from(("child waits", "parent waits", "children wait")))
    def plan_below(self, which: int, tag: str, turn: str) -> None:
        """Two steps of a plan, with dependencies inside the family."""
        parent = self.some(which, lambda row: row.deleted is None and row.status not in ACTIVE)
        known = len(self.ids)
        for title in ("first", "second"):
            self.call("tasks.create", {"title": title, "parent_id": parent, "tags": [tag]})
        if len(self.ids) == known + 2:
            first, second = self.ids[-2:]
            ends = {"child waits": (second, parent), "parent waits": (parent, first), "children wait": (second, first)}
            self.call("tasks.depend", dict(zip(("id", "on"), ends[turn], strict=True)))

    @step(which=which, link=which, actor=agent)
    def undepend(self, which: int, link: int, actor: str) -> None:
        kind, id, on = "depends_on", self.some(which), self.some(link)
        links = sorted(self.model.state.links)
        if links and which % 5 < 4:
            kind, id, on = links[link % len(links)]
        self.call("tasks.undepend", {"id": id, "on": on, "kind": kind}, actor)

    # --- deleting ----------------------------------------------------------------------------------------------------

    @step(which=which, note=note)
    def delete(self, which: int, note: str | None) -> None:
        id = self.some(which, lambda row: row.deleted is None and row.status not in ACTIVE)
        self.call("tasks.delete", {"id": id, "reason": note})

    @step(which=which)
    def restore(self, which: int) -> None:
        self.call("tasks.restore", {"id": self.some(which, lambda row: row.deleted is not None)})

    @step(which=which, deleted=st.booleans())
    def purge(self, which: int, deleted: bool) -> None:
        self.call("tasks.purge", {"id": self.some(which, lambda row: (row.deleted is not None) == deleted)})

    # --- several at once, and time -----------------------------------------------------------------------------------

    @step(which=which, other=which, agent=agent, tag=tag, fails=st.booleans())
    def hand_over(self, which: int, other: int, agent: str, tag: str, fails: bool) -> None:
        """Complete one, make its successor and take the next, in one transaction that may fail at its end."""
        done = {**self.claim_args(which, agent, "none"), "summary": "done"}
        parent = self.parent(other)
        made: list[str] = []

        def body(perform: Callable[[str, dict[str, Any]], Any]) -> list[Any]:
            answers = [
                perform("tasks.complete", done),
                perform("tasks.create", {"title": "follows", "parent_id": parent, "tags": [tag]}),
                perform("tasks.claim_next", {"agent": agent, "tags": [tag]}),
            ]
            made.append(answers[1].id)
            if fails:
                raise Stop
            return answers

        heard = told(lambda: self.ws.transact(lambda tx: body(lambda op, args: invoke(tx, op, args))))
        self.model.next_tasks.extend(made)
        said = told(lambda: self.model.transact("ann", lambda: body(self.model.perform)))
        assert heard == said
        self.model.next_tasks.clear()
        self.ids += [] if fails else made[:1]

    @step(seconds=st.sampled_from((0.000001, 4, 20.5, 60, 3600)))
    def advance(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.ws.tasks.list(limit=1)  # whether the pulse came first or this list does: what is due ends now
        self.model.sweep()

    # --- reads -------------------------------------------------------------------------------------------------------

    @step(which=which, op=st.sampled_from(("children", "subtree", "ancestors", "dependencies", "history", "explain")))
    def look_around(self, which: int, op: str) -> None:
        id = self.some(which)
        assert told(lambda: invoke(self.ws, f"tasks.{op}", {"id": id})) == told(
            lambda: self.model.perform(f"tasks.{op}", {"id": id})
        )

    @step(which=which, deleted=st.booleans())
    def get(self, which: int, deleted: bool) -> None:
        id = self.some(which, lambda row: row.deleted is not None)
        assert told(lambda: self.ws.tasks.get(id, deleted)) == told(lambda: self.model.tasks_get(id, deleted))

    @step(status=st.sampled_from(STATUSES), deleted=st.booleans())
    def list_by_status(self, status: Any, deleted: bool) -> None:
        expected = self.model.tasks_list(status, deleted)
        assert self.ws.tasks.list(status=status, include_deleted=deleted) == expected

    @step(tags=tags, type=st.sampled_from((None, "task", "bug")))
    def ready_with(self, tags: list[str], type: Any) -> None:
        assert self.ws.tasks.ready(tags=tags, type=type) == self.model.tasks_ready(tags, type)

    # --- what must be true after each step ---------------------------------------------------------------------------

    @invariant()
    def ready_agrees(self) -> None:
        assert self.ws.tasks.ready(limit=1000) == self.model.tasks_ready()
        for id in (row.id for row in self.model.state.tasks.values() if row.token is not None):
            self.tokens[id] = self.model.state.tasks[id].token or 0

    @invariant()
    def every_task_agrees(self) -> None:
        assert self.ws.tasks.list(limit=1000, include_deleted=True) == self.model.tasks_list(include_deleted=True)

    @invariant()
    def the_log_agrees(self) -> None:
        assert self.ws.revision == self.model.revision
        newest = [event for event in self.model.events[-30:] if event.revision == self.model.revision]
        assert_same(
            self.ws.events.list(after=max(0, self.model.revision - 1), limit=1000), [*map(self.model._as_told, newest)]
        )

    @invariant()
    def the_store_is_sound(self) -> None:
        self.steps += 1
        if self.steps % CHECK_EVERY == 0:
            self.sound()
