"""The state machine of tasks: random operations on a workspace and on the model, which must agree on everything.

What is compared is in `task_bench`. Rules choose tasks by what they need: a task to complete is one in progress more
often than not. `FIRED` counts how often each rule ran, over all machines of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from holdfast.types import as_time
from tests.conformance.counting import Rules
from tests.conformance.machine import Stop, invoke
from tests.conformance.task_bench import TAKEN_BACK, TaskBench, told
from tests.conformance.task_ledger import ACTIVE

_rules = Rules()
RULES, FIRED, step = _rules.names, _rules.fired, _rules.step

AGENTS = ("ann", "bob", "cy")
TAGS = ("api", "web", "area/web")
STATUSES = ("open", "in_progress", "pending_merge", "blocked", "closed")

which = st.integers(0, 2**16)  # picks one of what there is
agent = st.sampled_from(AGENTS)
tag = st.sampled_from(TAGS)
tags = st.lists(tag, max_size=2)
kind = st.sampled_from(("task", "bug"))
priority = st.integers(0, 4)
ttl = st.sampled_from((None, 5, 20.5, 60))
token = st.sampled_from(("none", "none", "none", "right", "right", "wrong"))
note = st.sampled_from((None, "a note"))
seldom = st.sampled_from((False, False, True))
link = st.sampled_from(("depends_on", "depends_on", "depends_on", "related", "discovered_from"))
# Of what is asked in a crowd, most are claims; one of them is taken back after it has written.
crowd_op = st.sampled_from(
    (
        *("tasks.claim_next",) * 7,
        *("tasks.claim", "tasks.complete", "tasks.release", "tasks.create", "tasks.update", "tasks.delete", TAKEN_BACK),
    )
)


class TaskMachine(TaskBench):
    """Everything that can happen to tasks."""

    # --- making and editing ------------------------------------------------------------------------------------------

    @step(which=which, type=kind, priority=priority, tags=tags, hint=st.sampled_from((None, None, "careful")))
    def create(self, which: int, type: str, priority: int, tags: list[str], hint: str | None) -> None:
        args = {"title": f"task {which}", "type": type, "priority": priority, "tags": tags, "grimoire_hint": hint}
        self.call("tasks.create", {**args, "parent_id": self.parent(which), "body": "" if which % 2 else "text"})

    @step(which=which, actor=agent, token=token, right=st.sampled_from((None, True, False)), what=st.integers(0, 4))
    def update(self, which: int, actor: str, token: str, right: bool | None, what: int) -> None:
        id = self.held(which) if which % 2 else self.some(which)
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
        args = {"id": id, **fields[what], "expected": expected, "token": self.token_for(id, token)}
        self.call("tasks.update", args, self.holder_of(id, which, actor))

    @step(which=which, actor=agent, token=token, text=st.sampled_from(("seen", "fixed", "again", " ")))
    def write_note(self, which: int, actor: str, token: str, text: str) -> None:
        id = self.held(which) if which % 2 else self.some(which)
        args = {"id": id, "text": text, "token": self.token_for(id, token)}
        self.call("tasks.note", args, self.holder_of(id, which, actor))

    @step(which=which, tags=tags, actor=agent, op=st.sampled_from(("add_tags", "remove_tags", "set_tags")))
    def retag(self, which: int, tags: list[str], actor: str, op: str) -> None:
        id = self.held(which) if which % 2 else self.some(which)
        args = {"id": id, "tags": tags if which % 9 < 8 else [*tags, ""]}
        self.call(f"tasks.{op}", args, self.holder_of(id, which, actor))

    # --- claims ------------------------------------------------------------------------------------------------------

    @step(which=which, agent=agent, ttl=ttl, force=seldom)
    def claim(self, which: int, agent: str, ttl: float | None, force: bool) -> None:
        id = self.some(which, lambda row: row.status == "open" and row.deleted is None)
        self.call("tasks.claim", {"id": id, "agent": agent, "ttl": ttl, "force": force})

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

    @step(which=which, agent=agent, token=token, review=st.sampled_from((None, True, False)), note=note, force=seldom)
    def complete(self, which: int, agent: str, token: str, review: bool | None, note: str | None, force: bool) -> None:
        result = {"n": which} if which % 3 else None
        args = {**self.claim_args(which, agent, token), "review": review, "summary": note, "result": result}
        self.call("tasks.complete", {**args, "force": force})

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

    @step(which=which, note=note, force=seldom)
    def approve(self, which: int, note: str | None, force: bool) -> None:
        self.call("tasks.approve", {"id": self.some_in(which, "pending_merge"), "note": note, "force": force})

    @step(which=which, note=note)
    def reject(self, which: int, note: str | None) -> None:
        self.call("tasks.reject", {"id": self.some_in(which, "pending_merge"), "reason": note})

    @step(which=which, actor=agent, note=note, force=seldom)
    def close(self, which: int, actor: str, note: str | None, force: bool) -> None:
        id = self.some_in(which, "blocked") if which % 3 else self.some(which)
        self.call("tasks.close", {"id": id, "reason": note, "force": force}, actor)

    @step(which=which, note=note, force=seldom, cascade=st.booleans())
    def cancel(self, which: int, note: str | None, force: bool, cascade: bool) -> None:
        id = self.some(which, lambda row: row.status == "open")
        self.call("tasks.cancel", {"id": id, "reason": note, "force": force, "cascade": cascade})

    # --- who and when ------------------------------------------------------------------------------------------------

    @step(which=which, assignee=st.sampled_from((None, *AGENTS)))
    def assign(self, which: int, assignee: str | None) -> None:
        self.call("tasks.assign", {"id": self.some(which), "assignee": assignee})

    @step(which=which, seconds=st.sampled_from((None, 1, 4, 30, -1)))
    def defer(self, which: int, seconds: float | None) -> None:
        until = None if seconds is None else as_time(self.model.time()) + timedelta(seconds=seconds)
        id = self.some(which, lambda row: row.status in ("open", "blocked") and row.deleted is None)
        self.call("tasks.defer", {"id": id, "until": until})

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
        parents = {row.parent_id for row in self.model.state.tasks.values()}
        id = self.some(
            which,
            lambda row: row.deleted is None and row.status not in ACTIVE and (row.id in parents or which % 4 == 0),
        )
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

    @step(asked=st.lists(st.tuples(crowd_op, which, agent), min_size=12, max_size=60))
    def crowd(self, asked: list[tuple[str, int, str]]) -> None:
        """Many at once, in one group: each sees everything before it, and what one rolls back stays undone."""
        for number in range(10 - len(self.model.tasks_ready())):
            where = {"parent_id": self.some(number) if number % 3 else None, "priority": number % 3}
            self.call("tasks.create", {"title": "one more", "tags": [TAGS[number % 2]], **where})
        self.together([(agent, *self.asked_in_a_crowd(what, which, agent)) for what, which, agent in asked])

    def asked_in_a_crowd(self, what: str, which: int, agent: str) -> tuple[str, dict[str, Any]]:
        match what:
            case "tasks.create":
                where = {"parent_id": self.parent(which), "tags": [TAGS[which % 3]], "priority": which % 5}
                return what, {"title": f"task {which}", **where}
            case "tasks.claim" | "tasks.delete" | "tasks.update":
                id = self.some(which, lambda row: row.status == "open" and row.deleted is None)
                more = {"agent": agent} if what == "tasks.claim" else {"priority": which % 5}
                return what, {"id": id, **({} if what == "tasks.delete" else more)}
            case "tasks.complete" | "tasks.release":
                return what, {"id": self.some(which, lambda row: row.claimed_by == agent), "agent": agent}
        return what, {"agent": agent, **({} if which % 4 else {"tags": [TAGS[which // 4 % 3]]})}

    @step(seconds=st.sampled_from((1, 4, 0.000001, 1, 4, 20.5, 60, 3600)))
    def advance(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.ws.tasks.list(limit=1)  # whether the pulse came first or this list does: what is due ends now
        self.model.sweep()

    # --- reads -------------------------------------------------------------------------------------------------------

    @step(which=which, op=st.sampled_from(("children", "subtree", "ancestors", "dependencies", "history", "explain")))
    def look_around(self, which: int, op: str) -> None:
        args = {"id": self.some(which), **({"agent": "ann"} if op == "explain" else {})}  # the model has no own caller
        assert told(lambda: invoke(self.ws, f"tasks.{op}", args)) == told(
            lambda: self.model.perform(f"tasks.{op}", args)
        )

    @step(which=which, deleted=st.booleans())
    def get(self, which: int, deleted: bool) -> None:
        id = self.some(which, lambda row: row.deleted is not None)
        assert told(lambda: self.ws.tasks.get(id, deleted)) == told(lambda: self.model.tasks_get(id, deleted))

    @step(status=st.sampled_from(STATUSES), deleted=st.booleans())
    def list_by_status(self, status: Any, deleted: bool) -> None:
        expected = self.model.tasks_list(status, deleted)
        assert self.ws.tasks.list(status=status, include_deleted=deleted, limit=1000) == expected

    @step(tags=tags, type=st.sampled_from((None, "task", "bug")))
    def ready_with(self, tags: list[str], type: Any) -> None:
        """The workspace asks as itself, whoever made the last call: a task may be assigned to somebody else."""
        assert self.ws.tasks.ready(tags=tags, type=type, limit=1000) == self.model.tasks_ready(tags, type, "ann")
