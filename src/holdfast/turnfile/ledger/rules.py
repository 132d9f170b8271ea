"""Rules of a ledger: which lock wins, when one is stale, how paths are spelled; and `lint`, its problems line by line.

Pure. Only revisions count, no clock. A lock is stale when more than `lease_revs` revisions came after its own. Of
valid locks on the same file the lower `acquired_rev` wins, then the smaller id, so every reader of the file names the
same winner. `lint` errors are what breaks coordination: unknown names, future revisions, duplicate ids, unknown words;
warnings are worth a look: a stale lock, a task claimed too early, an unknown key. Called by everything that locks.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, get_args

from holdfast.errors import Invalid
from holdfast.turnfile import model
from holdfast.turnfile.damage import CONFLICT, WORDS
from holdfast.turnfile.ledger import EVERYBODY, Ledger, read
from holdfast.turnfile.ledger.sections import REGISTRY_KEY
from holdfast.turnfile.model import (
    FOLDER,
    TURNFILE,
    UNASSIGNED,
    Level,
    Lock,
    Problem,
    Task,
    Turnfile,
    meaning,
    next_number,
)

REGISTRY: Final = ("MAILBOX.md", "WORKLOG.md", "OPEN_QUESTIONS.md", "docs/README.md")
"""The shared files that need a lock by default, as seen from the session's folder."""


def normalize(path: str, workspace: str = FOLDER) -> str:
    """The path as seen from the session's folder, in one spelling. Raises Invalid for one that leaves it.

    `MAILBOX.md`, `./MAILBOX.md` and `working-session/docs/../MAILBOX.md` are the same file.
    """
    if not path or not path.isprintable() or len(path) > 1024:
        raise Invalid(f"{path[:40]!r} is not a path", path=path)
    found = posixpath.normpath(path.replace("\\", "/"))
    for name in (workspace or FOLDER, FOLDER):
        if found.startswith(prefix := posixpath.normpath(name) + "/"):
            found = found[len(prefix) :]
            break
    if found.startswith("/") or found in (".", "..") or found.startswith("../") or path.endswith("/"):
        hint = "name files relative to that folder, such as MAILBOX.md"
        raise Invalid(f"{path!r} is not a file of the session's folder", hint=hint, path=path)
    return found


def is_inside(path: str, workspace: str = FOLDER) -> bool:
    """Whether a path names a file of the session's folder."""
    try:
        normalize(path, workspace)
    except Invalid:
        return False
    return True


def ledger_path(path: str, workspace: str = FOLDER) -> str:
    """The spelling in the ledger: relative to the project, with the folder's name first."""
    return f"{posixpath.normpath(workspace or FOLDER)}/{normalize(path, workspace)}"


def files_of(lock: Lock, workspace: str = FOLDER) -> frozenset[str]:
    """The files of a lock in one spelling; an invalid path is kept as it is."""
    return frozenset(_lenient(path, workspace) for path in lock.files)


def _lenient(path: str, workspace: str) -> str:
    try:
        return normalize(path, workspace)
    except Invalid:  # written by another tool; it names none of our files
        return path


def is_stale(lock: Lock, revision: int) -> bool:
    """Whether more than `lease_revs` revisions came after the lock: acquired at 7 for 2, it is stale from 10 on."""
    return revision - lock.acquired_rev > lock.lease_revs


def revisions_left(lock: Lock, revision: int) -> int:
    """How many more revisions the lock stays valid; below 0 once it is stale."""
    return lock.lease_revs - (revision - lock.acquired_rev)


def precedence(lock: Lock) -> tuple[int, str]:
    """The sort key of locks: the smallest wins."""
    return lock.acquired_rev, lock.id


def overlapping(
    locks: Iterable[Lock], files: Iterable[str], workspace: str = FOLDER, *, but: str | None = None
) -> list[Lock]:
    """The locks on any of the files, valid or stale, in order of precedence; `but` leaves one out."""
    wanted = {_lenient(path, workspace) for path in files}
    found = [lock for lock in locks if lock.id != but and files_of(lock, workspace) & wanted]
    return sorted(found, key=precedence)


def blocking(
    locks: Iterable[Lock], files: Iterable[str], revision: int, workspace: str = FOLDER, *, but: str | None = None
) -> list[Lock]:
    """The valid locks on any of the files, in order of precedence."""
    return [lock for lock in overlapping(locks, files, workspace, but=but) if not is_stale(lock, revision)]


def beaten_by(lock: Lock, locks: Iterable[Lock], revision: int, workspace: str = FOLDER) -> Lock | None:
    """The valid lock on one of this lock's files that precedes it, or None."""
    first = next(iter(blocking(locks, lock.files, revision, workspace, but=lock.id)), None)
    return first if first is not None and precedence(first) < precedence(lock) else None


_NOTES: Final = "completed|out of order after|blocked by|override of"  # how a signal of a write names its lock


def next_lock_id(holder: str, turnfile: Turnfile) -> str:
    """The next `LOCK-<agent>-<seq>`: the highest of a lock, or of a signal that a write left about one, plus one."""
    id = rf"LOCK-{re.escape(holder)}-([0-9]{{1,9}})"
    found = [re.fullmatch(id, lock.id) for lock in turnfile.locks]
    found += [re.match(rf"(?:{_NOTES}) {id}(?![0-9])", signal.detail) for signal in turnfile.signals]
    taken = {int(match[1]) for match in found if match}
    return f"LOCK-{holder}-{next_number(taken):03d}"


MAX_DEPTH: Final = 6

SECTIONS: Final = ("turnfile", "agents", "maintainer", "coordination", "locks", "turn_queue", "messages")
_KEYS: Final = {
    ("turnfile",): "version project workspace",
    ("agents", "*"): "role status current_task last_seen session_id instances",
    ("maintainer",): "id status last_seen",
    ("coordination",): "revision active_phase active_step tasks conflict",
    ("coordination", "tasks", "*"): "description owner status priority depends_on created_by created_rev claim_rev"
    " completed_rev notes",
    ("locks", "*"): "files holder acquired_rev acquired_at lease_revs reason",
    ("turn_queue", "*"): "agent action requested_rev priority",
    ("messages", "*"): "id from to signal rev detail",
}
NEEDED: Final = {
    ("turnfile",): "version project workspace",
    ("agents", "*"): "role status",
    ("maintainer",): "id",
    ("coordination", "tasks", "*"): "description status",
    ("messages", "*"): "id from to signal rev",
}
OLDER: Final = "not_started"  # a task status of older files

_Found = tuple[int, Level, str, str]


def lint(text: str, file: str = TURNFILE) -> list[Problem]:
    """All problems of a ledger's text, or of a part of one, by line; a single error if it cannot be parsed."""
    found = []
    try:
        ledger = read(text)
    except Invalid as error:
        words = error.message.removeprefix(f"line {error.line}: ")
        try:
            ledger = read(text, part=True)
        except Invalid:
            rule = CONFLICT if words == WORDS else "unreadable"
            return [Problem(file, error.line, "error", rule, words)]
        found.append(Problem(file, error.line, "error", "schema", words))
    rules = (_form, _keys, _words, _registry, _agents, _tasks, _locks, _signals)
    return sorted([*found, *(Problem(file, *breach) for rule in rules for breach in rule(ledger))])


def _form(ledger: Ledger) -> Iterator[_Found]:
    for number, line in enumerate(ledger.text.split("\n"), 1):
        if re.match(r"---(\s|$)", line):
            yield number, "error", "document-marker", "a turn file is one document: remove the ---"
    if (depth := ledger.tree.depth()) > MAX_DEPTH:
        yield 1, "warning", "depth", f"the file is nested {depth} levels deep; use at most {MAX_DEPTH}"
    said = ledger.turnfile.header_revision
    if said is not None and said != ledger.revision:
        words = f"the header says revision {said}, but coordination.revision is {ledger.revision}"
        yield ledger.line("coordination", "revision"), "warning", "header", words


def _keys(ledger: Ledger) -> Iterator[_Found]:
    for section in SECTIONS:
        if section not in ledger.tree.entries:
            yield 1, "error", "schema", f"the section {section} is missing"
    for section, entry in ledger.tree.entries.items():
        if section not in SECTIONS and not section.startswith("x-"):
            yield entry.key.line, "warning", "unknown-key", f"the section {section} is unknown"
    for pattern, words in _KEYS.items():
        for path in matches(ledger, pattern):
            node = ledger.tree.find(path)
            name = ".".join(str(step) for step in path)
            there = {} if node is None else node.entries
            for key, entry in there.items():
                if key not in words.split() and not key.startswith("x-"):
                    yield entry.key.line, "warning", "unknown-key", f"{name}.{key} is not known"
            for key in NEEDED.get(pattern, "").split():
                if key not in there or there[key].value.plain() is None:
                    yield ledger.line(*path), "error", "schema", f"{name}.{key} is missing"


def matches(ledger: Ledger, pattern: tuple[str, ...]) -> list[tuple[str | int, ...]]:
    """The paths of the mappings that a pattern names; its last step may be `*`."""
    if pattern[-1] != "*":
        node = ledger.tree.find(pattern)
        return [pattern] if node is not None and node.kind == "map" else []
    node = ledger.tree.find(pattern[:-1])
    if node is None:
        return []
    steps: list[str] | range = list(node.entries) if node.kind == "map" else range(len(node.items))
    return [(*pattern[:-1], step) for step in steps]


def _words(ledger: Ledger) -> Iterator[_Found]:
    turnfile = ledger.turnfile
    checks: list[tuple[tuple[str | int, ...], str, object]] = []
    for agent in turnfile.agents:
        checks.append((("agents", agent.id, "role"), agent.role, model.Role))
        checks.append((("agents", agent.id, "status"), agent.status, model.AgentStatus))
    checks.append((("maintainer", "status"), turnfile.maintainer.status, model.MaintainerStatus))
    for task in turnfile.tasks:
        checks.append((("coordination", "tasks", task.id, "status"), task.status, model.TaskStatus))
        checks.append((("coordination", "tasks", task.id, "priority"), task.priority, model.Priority))
    for place, signal in enumerate(turnfile.signals):
        checks.append((("messages", place, "signal"), signal.signal, model.SignalWord))
    for where, word, known in checks:
        if word in get_args(known) or (not word and where[0] == "messages"):  # another rule reports a missing one
            continue
        level: Level = "warning" if word == OLDER else "error"
        meant, of_task = meaning(word, known), known is model.TaskStatus
        more = f"; it means {meant}" if meant else "; somebody must decide which it is" if of_task else ""
        words = f"{where[-1]} {word!r} is not one of {', '.join(get_args(known))}{more}"
        yield ledger.line(*where), level, "unknown-status" if of_task and not meant else "unknown-word", words


def _registry(ledger: Ledger) -> Iterator[_Found]:
    for place, path in enumerate(ledger.turnfile.registry or ()):
        try:
            normalize(path, ledger.turnfile.workspace)
        except Invalid as error:
            yield ledger.line("turnfile", REGISTRY_KEY, place), "error", "registry", f"{REGISTRY_KEY}: {error.message}"


def _agents(ledger: Ledger) -> Iterator[_Found]:
    tasks = {task.id for task in ledger.turnfile.tasks}
    for agent in ledger.turnfile.agents:
        if agent.id.casefold() in EVERYBODY:
            words = f"{agent.id} cannot be the name of an agent: a message to {agent.id} is to every agent"
            yield ledger.line("agents", agent.id), "warning", "reserved-name", words
        if agent.current_task is not None and agent.current_task not in tasks:
            line = ledger.line("agents", agent.id, "current_task")
            yield line, "error", "unknown-task", f"{agent.id} works on {agent.current_task!r}, which is not a task"


def _tasks(ledger: Ledger) -> Iterator[_Found]:
    tasks = {task.id: task for task in ledger.turnfile.tasks}
    for task in tasks.values():
        path = ("coordination", "tasks", task.id)
        line = ledger.line(*path)
        if task.owner != UNASSIGNED and not ledger.turnfile.lists(task.owner):
            at = ledger.line(*path, "owner")
            yield at, "error", "unknown-owner", f"the owner of {task.id}, {task.owner!r}, is unknown"
        for needed in task.depends_on:
            if needed not in tasks:
                at = ledger.line(*path, "depends_on")
                yield at, "error", "unknown-dependency", f"{task.id} depends on {needed!r}, which is not a task"
        yield from _task_revisions(ledger, task)
        if task.state == "done" and task.completed_rev is None:
            yield line, "warning", "no-completed-rev", f"{task.id} is done, but completed_rev is empty"
        undone = [name for name in task.depends_on if name in tasks and tasks[name].state != "done"]
        if undone and task.state in ("claimed", "in_progress"):
            yield line, "warning", "early-claim", f"{task.id} is {task.status} before {', '.join(undone)} is done"


def _task_revisions(ledger: Ledger, task: Task) -> Iterator[_Found]:
    for key in ("created_rev", "claim_rev", "completed_rev"):
        value = getattr(task, key)
        if value is not None and value > ledger.revision:
            line = ledger.line("coordination", "tasks", task.id, key)
            words = f"{key} {value} of {task.id} is after the current revision {ledger.revision}"
            yield line, "error", "future-revision", words
    if task.completed_rev is not None and task.claim_rev is not None and task.completed_rev < task.claim_rev:
        line = ledger.line("coordination", "tasks", task.id, "completed_rev")
        yield line, "error", "order", f"{task.id} was completed before it was claimed"


def _locks(ledger: Ledger) -> Iterator[_Found]:
    workspace = ledger.turnfile.workspace or FOLDER
    for lock in ledger.turnfile.locks:
        line = ledger.line("locks", lock.id)
        if not ledger.turnfile.lists(lock.holder):
            at = ledger.line("locks", lock.id, "holder")
            yield at, "error", "unknown-holder", f"the holder of {lock.id}, {lock.holder!r}, is unknown"
        if lock.acquired_rev > ledger.revision:
            at = ledger.line("locks", lock.id, "acquired_rev")
            words = f"acquired_rev {lock.acquired_rev} of {lock.id} is after the current revision {ledger.revision}"
            yield at, "error", "future-revision", words
        if not lock.reason.strip():
            yield line, "error", "lock-reason", f"{lock.id}, held by {lock.holder}, gives no reason"
        if is_stale(lock, ledger.revision):
            words = "is stale: renew it, or clear it with turnfile.clear_stale(session, actor)"
            yield line, "warning", "lock-stale", f"{lock.id}, held by {lock.holder}, {words}"
        elif (first := beaten_by(lock, ledger.turnfile.locks, ledger.revision, workspace)) is not None:
            words = f"{lock.id}, held by {lock.holder}, overlaps {first.id} of {first.holder}, which precedes it"
            yield line, "warning", "overlapping-locks", words


def _signals(ledger: Ledger) -> Iterator[_Found]:
    signals = ledger.turnfile.signals
    twice = {name for name, count in Counter(signal.id for signal in signals).items() if count > 1 and name}
    for place, signal in enumerate(signals):
        line = ledger.line("messages", place)
        if signal.id in twice:
            yield line, "error", "duplicate-signal", f"{signal.id} occurs more than once"
        if signal.id and not re.fullmatch(r"SIG-[0-9]{3,}", signal.id):
            yield line, "error", "schema", f"{signal.id!r} is not a signal id such as SIG-001"
        if signal.rev > ledger.revision:
            words = f"rev {signal.rev} of {signal.id} is after the current revision {ledger.revision}"
            yield line, "error", "future-revision", words
        if place and (signals[place - 1].rev, _number(signals[place - 1].id)) < (signal.rev, _number(signal.id)):
            words = f"{signal.id} is newer than the signal above; put the newest first"
            yield line, "warning", "signal-order", words


def _number(signal_id: str) -> int:
    found = re.search(r"([0-9]{1,9})$", signal_id)
    return int(found[1]) if found else 0
