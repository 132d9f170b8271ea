"""Tasks and signals of the ledger: add, claim, finish, and a short word to others.

Each is one write of the ledger. Anybody adds a task; it can be claimed once all that it depends on is done, and claim
and task have the revision of their own write. Who owns a task finishes it; the maintainer may as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from holdfast.errors import AlreadyClaimed, Exists, Invalid, InvalidPriority, InvalidStatus, NotHolder, TaskNotFound
from holdfast.turnfile.ledger import Ledger, check_name, next_signal_id
from holdfast.turnfile.ledger.yaml_edit import Put
from holdfast.turnfile.model import UNASSIGNED, Priority, Signal, SignalWord, Task
from holdfast.turnfile.session import Session


def add(
    session: Session,
    task_id: str,
    description: str,
    agent: str,
    *,
    priority: str = "P1",
    depends_on: Iterable[str] = (),
) -> Task:
    """Add a task that nobody owns yet. Raises Exists, or TaskNotFound for a dependency that is none."""
    check_name("task", task_id)
    if not description.strip() or not description.isprintable():
        raise Invalid("a task needs a description, in one line")
    if priority not in get_args(Priority):
        hint = f"priorities are {', '.join(get_args(Priority))}"
        raise InvalidPriority(f"{priority!r} is no priority", hint=hint)
    needed = list(dict.fromkeys(depends_on))

    def change(ledger: Ledger) -> Ledger:
        if ledger.turnfile.task(task_id) is not None:
            raise Exists(
                f"there is a task {task_id!r} already", hint="`turn tasks list --all` shows it", task_id=task_id
            )
        for name in needed:
            _task(ledger, name)
        fields = {
            "description": description.strip(),
            "owner": UNASSIGNED,
            "status": "pending",
            "priority": priority,
            "depends_on": needed,
            "created_by": agent,
            "created_rev": ledger.revision + 1,
            "claim_rev": None,
            "completed_rev": None,
        }
        return ledger.knowing(agent).changed([Put(("coordination", "tasks", task_id), fields)])

    return _task(session.write(change, check_name("agent", agent)), task_id)


def claim(session: Session, task_id: str, agent: str) -> Task:
    """Take a task that nobody works on. Raises AlreadyClaimed, or InvalidStatus while a dependency is not done."""

    def change(ledger: Ledger) -> Ledger:
        task = _task(ledger, task_id)
        if task.status in ("claimed", "in_progress") and task.owner != UNASSIGNED:
            if task.owner == agent:
                return ledger
            raise AlreadyClaimed(f"{task.owner} has {task_id}", holder=task.owner, since=task.claim_rev)
        if task.status == "done":
            raise InvalidStatus(f"{task_id} is done", task_id=task_id)
        undone = [name for name in task.depends_on if (found := ledger.turnfile.task(name)) and found.status != "done"]
        if undone:
            raise InvalidStatus(f"{task_id} waits for {', '.join(undone)}", task_id=task_id, waits_for=undone)
        after = ledger.knowing(agent).with_task(task_id, owner=agent, status="claimed", claim_rev=ledger.revision + 1)
        return _at_work(after, agent, task_id)

    return _task(session.write(change, check_name("agent", agent)), task_id)


def done(session: Session, task_id: str, agent: str) -> Task:
    """Finish a task. Raises NotHolder for one of somebody else, unless the agent is the maintainer."""

    def change(ledger: Ledger) -> Ledger:
        task = _task(ledger, task_id)
        if agent not in (task.owner, ledger.turnfile.maintainer.id, "maintainer"):
            raise NotHolder(f"{task.owner} has {task_id}, not {agent}", holder=task.owner)
        if task.status == "done":
            return ledger
        after = ledger.with_task(task_id, status="done", completed_rev=ledger.revision + 1)
        return _at_work(after, agent, None) if _works_on(after, agent, task_id) else after

    return _task(session.write(change, check_name("agent", agent)), task_id)


def signal(session: Session, sender: str, receiver: str, word: str, detail: str = "") -> Signal:
    """Leave a signal, such as ready or handoff, to an agent or to all."""
    if word not in get_args(SignalWord):
        raise Invalid(f"{word!r} is no signal", hint=f"signals are {', '.join(get_args(SignalWord))}")
    check_name("receiver", receiver)
    if detail and not detail.isprintable():
        raise Invalid("the detail of a signal is one line of text")
    sent: list[Signal] = []

    def change(ledger: Ledger) -> Ledger:
        number = next_signal_id(ledger.turnfile.signals)
        sent[:] = [Signal(number, sender, receiver, word, ledger.revision + 1, detail)]
        return ledger.with_signal(sent[0])

    session.write(change, check_name("sender", sender))
    return sent[0]


def _task(ledger: Ledger, task_id: str) -> Task:
    task = ledger.turnfile.task(task_id)
    if task is None:
        raise TaskNotFound(f"there is no task {task_id!r}", hint="`turn tasks list` shows them", task_id=task_id)
    return task


def _at_work(ledger: Ledger, agent: str, task_id: str | None) -> Ledger:
    """With an agent's own entry saying what it works on; the maintainer has none."""
    if all(entry.id != agent for entry in ledger.turnfile.agents):
        return ledger
    return ledger.with_agent(agent, current_task=task_id)


def _works_on(ledger: Ledger, agent: str, task_id: str) -> bool:
    return any(entry.id == agent and entry.current_task == task_id for entry in ledger.turnfile.agents)
