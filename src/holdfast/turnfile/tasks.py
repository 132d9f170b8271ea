"""Tasks and signals of the ledger: add, claim and finish a task; send a signal.

Each is one write of the ledger. Anybody may add a task. It can be claimed once all its dependencies are done; its
owner or the maintainer finishes it. `claim_rev` and `completed_rev` are the revisions of those writes. Called by the
faces.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

import msgspec

from holdfast.errors import AlreadyClaimed, Exists, Invalid, InvalidPriority, InvalidStatus, NotHolder, TaskNotFound
from holdfast.turnfile.ledger import Ledger, check_name, new_names
from holdfast.turnfile.ledger.yaml_edit import Put
from holdfast.turnfile.mailbox.draft import agent_name
from holdfast.turnfile.model import UNASSIGNED, Priority, Problem, Signal, SignalWord, Task, TaskStatus
from holdfast.turnfile.session import Session

Step = Literal["add", "claim", "done"]
TASKS: Final = "session.read().turnfile.tasks"  # a phrase of `holdfast.hints`


def change(session: Session, step: Step, task_id: str, agent: str, **fields: Any) -> tuple[Task, list[Problem]]:
    """Add, claim or finish a task; returns it, and a warning if the agent is new to the ledger."""
    warnings = new_names(session.read(), agent)
    if step == "add":
        return add(session, task_id, fields.pop("description", ""), agent, **fields), warnings
    return {"claim": claim, "done": done}[step](session, task_id, agent), warnings


def add(
    session: Session,
    task_id: str,
    description: str,
    agent: str,
    *,
    priority: str = "P1",
    depends_on: Iterable[str] = (),
) -> Task:
    """Add a task without an owner. Raises Exists, or TaskNotFound for an unknown dependency."""
    check_name("task", task_id)
    if not description.strip() or not description.isprintable():
        raise Invalid("a task needs a description of one line")
    if priority not in get_args(Priority):
        hint = f"priorities are {', '.join(get_args(Priority))}"
        raise InvalidPriority(f"{priority!r} is not a priority", hint=hint)
    needed = list(dict.fromkeys(depends_on))

    def change(ledger: Ledger) -> Ledger:
        if ledger.turnfile.task(task_id) is not None:
            hint = f"{TASKS} lists it"
            raise Exists(f"task {task_id!r} already exists", hint=hint, task_id=task_id)
        for name in needed:
            _task(ledger, name)
        revision = ledger.revision + 1
        new = Task(task_id, description.strip(), priority=priority, created_by=agent, created_rev=revision)
        fields = {**msgspec.to_builtins(new), "depends_on": needed}
        del fields["id"], fields["notes"]
        return ledger.with_agent(agent).changed([Put(("coordination", "tasks", task_id), fields)])

    return _task(session.write(change, agent_name(check_name("agent", agent), "agent")), task_id)


def claim(session: Session, task_id: str, agent: str) -> Task:
    """Claim a task that nobody works on.

    Raises AlreadyClaimed, or InvalidStatus while a dependency is not done, or for an unknown status of its own.
    """

    def change(ledger: Ledger) -> Ledger:
        task = _task(ledger, task_id)
        if task.state in ("claimed", "in_progress") and task.owner != UNASSIGNED:
            if task.owner == agent:
                return ledger
            hint = f"claim another one, or ask {task.owner}; {TASKS} lists all"
            claim = {"holder": task.owner, "since": task.claim_rev}
            raise AlreadyClaimed(f"{task_id} is claimed by {task.owner}", hint=hint, **claim)
        if task.state == "done":
            raise InvalidStatus(f"{task_id} is already done", task_id=task_id)
        if task.state not in get_args(TaskStatus):
            hint = f"somebody must write one of {', '.join(get_args(TaskStatus))} into the ledger"
            raise InvalidStatus(f"the status {task.status!r} of {task_id} is unknown", hint=hint, task_id=task_id)
        undone = [name for name in task.depends_on if (found := ledger.turnfile.task(name)) and found.state != "done"]
        if undone:
            words = f"{task_id} depends on {', '.join(undone)}, not yet done"
            raise InvalidStatus(words, task_id=task_id, waits_for=undone)
        after = ledger.with_agent(agent)
        after = after.with_task_fields(task_id, owner=agent, status="claimed", claim_rev=ledger.revision + 1)
        return _with_current_task(after, agent, task_id)

    return _task(session.write(change, agent_name(check_name("agent", agent), "agent")), task_id)


def done(session: Session, task_id: str, agent: str) -> Task:
    """Finish a task. Raises NotHolder for another's task, unless the agent is the maintainer."""

    def change(ledger: Ledger) -> Ledger:
        task = _task(ledger, task_id)
        if agent not in (task.owner, ledger.turnfile.maintainer.id, "maintainer"):
            if task.owner == UNASSIGNED and task.state != "done":
                hint = f'claim it first: turnfile.tasks.claim(session, "{task_id}", agent)'
                raise NotHolder(f"nobody has claimed {task_id}", hint=hint, task_id=task_id)
            hint = f"ask {task.owner}, or the maintainer, who can finish any task"
            raise NotHolder(f"{task_id} is owned by {task.owner}, not by {agent}", hint=hint, holder=task.owner)
        if task.state == "done":
            return ledger
        after = ledger.with_task_fields(task_id, status="done", completed_rev=ledger.revision + 1)
        return _with_current_task(after, agent, None) if _works_on(after, agent, task_id) else after

    return _task(session.write(change, check_name("agent", agent)), task_id)


def signal(session: Session, sender: str, receiver: str, word: str, detail: str = "") -> Signal:
    """Send a signal, such as ready or handoff, to an agent or to all."""
    if word not in get_args(SignalWord):
        raise Invalid(f"{word!r} is not a signal", hint=f"signals are {', '.join(get_args(SignalWord))}")
    agent_name(check_name("receiver", receiver), "receiver")
    if detail and not detail.isprintable():
        raise Invalid("the detail of a signal must be one line")
    sent: list[Signal] = []

    def change(ledger: Ledger) -> Ledger:
        after, new = ledger.with_new_signal(sender, receiver, word, detail)
        sent[:] = [new]
        return after

    session.write(change, agent_name(check_name("sender", sender), "sender"))
    return sent[0]


def _task(ledger: Ledger, task_id: str) -> Task:
    task = ledger.turnfile.task(task_id)
    if task is None:
        hint = f"{TASKS} lists the tasks"
        raise TaskNotFound(f"there is no task {task_id!r}", hint=hint, task_id=task_id)
    return task


def _with_current_task(ledger: Ledger, agent: str, task_id: str | None) -> Ledger:
    """Set the current task of an agent; the maintainer has no entry for it."""
    if all(entry.id != agent for entry in ledger.turnfile.agents):
        return ledger
    return ledger.changed([Put(("agents", agent, "current_task"), task_id)])


def _works_on(ledger: Ledger, agent: str, task_id: str) -> bool:
    return any(entry.id == agent and entry.current_task == task_id for entry in ledger.turnfile.agents)
