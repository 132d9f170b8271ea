"""Correction of a ledger that can be read: names, words, revisions, locks and signals that `lint` calls errors.

Pure: a ledger in, a ledger out. A stale lock is removed, because anybody may remove it. A name that holds a lock or
owns a task joins the agents, a revision after the current one becomes the current one, an unknown word becomes the
one that it means, else the usual one of its field (but the status of a task stays), and what is missing is added.
Called by `repairs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, get_args

from holdfast.turnfile import model
from holdfast.turnfile.ledger import NEWCOMER, Ledger, next_signal_id, read
from holdfast.turnfile.ledger.rules import NEEDED, SECTIONS, is_inside, is_stale, matches
from holdfast.turnfile.ledger.sections import REGISTRY_KEY
from holdfast.turnfile.ledger.yaml_edit import Change, Put, Remove
from holdfast.turnfile.ledger.yaml_tree import Path
from holdfast.turnfile.model import UNASSIGNED, meaning

_Fix = tuple[Change, str]
_MARKER: Final = re.compile(r"^---[^\n]*\n?", re.MULTILINE)
_USUAL: Final[dict[str, Any]] = {
    **{"version": "0.1", "project": "project", "workspace": "working-session/", "description": "none"},
    **{"role": "agent", "id": "maintainer", "from": "unknown", "to": "all", "signal": "notify"},
}


def corrected(ledger: Ledger) -> tuple[Ledger, list[tuple[int, str]]]:
    """The ledger in order, and what was done, with the line of each repair."""
    done: list[tuple[int, str]] = []
    if _MARKER.search(ledger.text):
        done.append((1, "removed the document marker ---"))
        ledger = read(_MARKER.sub("", ledger.text))
    for step in (_missing, _names, _words, _tasks, _locks, _signals, _registry):
        for change, words in list(step(ledger)):
            done.append((ledger.line(*change.path), words))
            ledger = ledger.changed([change])
    return ledger, done


def _missing(ledger: Ledger) -> Iterator[_Fix]:
    for section in SECTIONS:
        if section not in ledger.tree.entries:
            yield Put((section,), [] if section in ("turn_queue", "messages") else {}), f"added the section {section}"
    for pattern, words in NEEDED.items():
        for path in matches(ledger, pattern):
            node = ledger.tree.find(path)
            there = {} if node is None else node.entries
            for key in words.split():
                if key not in there or there[key].value.plain() is None:
                    yield Put((*path, key), _usual(ledger, path, key)), f"{_dotted(path)}.{key} was missing"


def _usual(ledger: Ledger, path: Path, key: str) -> Any:
    """The usual value of a field."""
    if key == "status":
        return {"agents": "idle", "maintainer": "available"}.get(str(path[0]), "pending")
    if key == "rev":
        return ledger.revision
    if key == "id" and path[0] == "messages":
        return f"SIG-{900 + int(path[1]):03d}"
    return "P1" if key == "priority" else _USUAL[key]


def _names(ledger: Ledger) -> Iterator[_Fix]:
    wanted = [*(lock.holder for lock in ledger.turnfile.locks), *(task.owner for task in ledger.turnfile.tasks)]
    for name in dict.fromkeys(wanted):
        if name != UNASSIGNED and not ledger.turnfile.lists(name):
            yield Put(("agents", name), dict(NEWCOMER)), f"{name} joined the agents"
    tasks = {task.id for task in ledger.turnfile.tasks}
    for agent in ledger.turnfile.agents:
        if agent.current_task is not None and agent.current_task not in tasks:
            yield Put(("agents", agent.id, "current_task"), None), f"{agent.id} works on no known task"


def _words(ledger: Ledger) -> Iterator[_Fix]:
    turnfile = ledger.turnfile
    checks: list[tuple[Path, str, object]] = [
        (("maintainer", "status"), turnfile.maintainer.status, model.MaintainerStatus)
    ]
    for agent in turnfile.agents:
        checks += [(("agents", agent.id, "role"), agent.role, model.Role)]
        checks += [(("agents", agent.id, "status"), agent.status, model.AgentStatus)]
    for task in turnfile.tasks:
        checks += [(("coordination", "tasks", task.id, "status"), task.status, model.TaskStatus)]
        checks += [(("coordination", "tasks", task.id, "priority"), task.priority, model.Priority)]
    for place, signal in enumerate(turnfile.signals):
        checks += [(("messages", place, "signal"), signal.signal, model.SignalWord)]
    for path, word, known in checks:
        meant = meaning(word, known)
        if word in get_args(known) or (meant is None and known is model.TaskStatus):
            continue  # a task whose status nobody knows may be done: a person must decide
        usual = meant or _usual(ledger, path[:-1], str(path[-1]))
        yield Put(path, usual), f"{_dotted(path)} is {usual}, was {word!r}"


def _tasks(ledger: Ledger) -> Iterator[_Fix]:
    tasks = {task.id for task in ledger.turnfile.tasks}
    for task in ledger.turnfile.tasks:
        path = ("coordination", "tasks", task.id)
        for place, name in reversed([*enumerate(task.depends_on)]):
            if name not in tasks:
                words = f"{task.id} no longer depends on {name!r}, which is not a task"
                yield Remove((*path, "depends_on", place)), words
        for key in ("created_rev", "claim_rev", "completed_rev"):
            value = getattr(task, key)
            if value is not None and value > ledger.revision:
                yield Put((*path, key), ledger.revision), f"{key} of {task.id} is the current revision"
        claimed, completed = (min(rev or 0, ledger.revision) for rev in (task.claim_rev, task.completed_rev))
        if task.completed_rev is not None and task.claim_rev is not None and completed < claimed:
            yield Put((*path, "completed_rev"), claimed), f"completed_rev of {task.id} is not before claim_rev"


def _locks(ledger: Ledger) -> Iterator[_Fix]:
    for lock in ledger.turnfile.locks:
        if is_stale(lock, ledger.revision):
            yield Remove(("locks", lock.id)), f"removed the stale {lock.id}, held by {lock.holder}"
            continue
        if lock.acquired_rev > ledger.revision:
            words = f"acquired_rev of {lock.id} is the current revision"
            yield Put(("locks", lock.id, "acquired_rev"), ledger.revision), words
        if not lock.reason.strip():
            yield Put(("locks", lock.id, "reason"), "not given"), f"{lock.id} says that it has no reason"


def _signals(ledger: Ledger) -> Iterator[_Fix]:
    signals = ledger.turnfile.signals
    first = int(next_signal_id(signals).removeprefix("SIG-"))
    seen: set[str] = set()
    for place, signal in enumerate(signals):
        if signal.id in seen or (signal.id and not re.fullmatch(r"SIG-[0-9]{3,}", signal.id)):
            new = f"SIG-{first + place:03d}"
            yield Put(("messages", place, "id"), new), f"{signal.id} is now {new}"
        seen.add(signal.id)
        if signal.rev > ledger.revision:
            yield Put(("messages", place, "rev"), ledger.revision), f"rev of {signal.id} is the current revision"


def _registry(ledger: Ledger) -> Iterator[_Fix]:
    """Remove what is no file of the session; a list of nothing else goes whole: an empty one guards nothing."""
    listed = ledger.turnfile.registry or ()
    wrong = [place for place, path in enumerate(listed) if not is_inside(path, ledger.turnfile.workspace)]
    if wrong and len(wrong) == len(listed):
        words = f"removed {REGISTRY_KEY}, which names no file of the session's folder: the default files need a lock"
        yield Remove(("turnfile", REGISTRY_KEY)), words
        return
    for place in reversed(wrong):
        words = f"removed {listed[place]!r} from {REGISTRY_KEY}: it is not a file of the session's folder"
        yield Remove(("turnfile", REGISTRY_KEY, place)), words


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))
