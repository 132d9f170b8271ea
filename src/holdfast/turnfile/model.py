"""The contents of a working session's files, as frozen values.

Pure: no file, no clock. Other people and tools write these files too, so an unknown word (a status, a role) is kept
as it is, and `lint` reports it; the Literals list the known words. `ledger` builds these values from text; nothing
here knows how they are written. Imported by every module of the package.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, Literal, get_args

import msgspec

Role = Literal["agent", "maintainer", "observer"]
AgentStatus = Literal["idle", "active", "blocked", "offline"]
MaintainerStatus = Literal["available", "away", "observing"]
TaskStatus = Literal["pending", "claimed", "in_progress", "blocked", "done"]
Priority = Literal["P0", "P1", "P2"]
SignalWord = Literal["ready", "blocked", "handoff", "yield", "request_turn", "notify"]
Level = Literal["error", "warning"]

# The default folder of a session, the variable that names another one, and the files in it.
FOLDER: Final = "working-session"
FOLDER_VARIABLE: Final = "HOLDFAST_TURN_DIR"
TURNFILE: Final = "TURNFILE.yaml"
MAILBOX: Final = "MAILBOX.md"
PROJECTION: Final = "MAILBOX.json"
ARCHIVE: Final = "MAILBOX_ARCHIVE.md"
CLOSED: Final = "MAILBOX_CLOSED.md"
TIDY_LOG: Final = "TIDY_LOG.md"
SIGNAL_ARCHIVE: Final = "TURNFILE_ARCHIVE.yaml"
WORKLOG: Final = "WORKLOG.md"
QUESTIONS: Final = "OPEN_QUESTIONS.md"
CHECKED: Final = (TURNFILE, MAILBOX, PROJECTION, WORKLOG, QUESTIONS)  # against each other

# What people write for the status of a task.
_STATUSES: Final[dict[str, TaskStatus]] = {
    **dict.fromkeys(("", "notstarted", "unstarted", "todo", "open", "new", "queued", "planned", "backlog"), "pending"),
    **dict.fromkeys(("assigned", "taken"), "claimed"),
    **dict.fromkeys(("started", "ongoing", "active", "doing", "working", "wip", "underway"), "in_progress"),
    **dict.fromkeys(("waiting", "stuck", "paused", "onhold"), "blocked"),
    **dict.fromkeys(("complete", "completed", "finished", "closed", "resolved"), "done"),
}


def meaning(word: str, known: object) -> str | None:
    """The word of a Literal that a word means, or None; case, blanks, hyphens and underscores do not count."""
    words = {_plain(each): each for each in get_args(known)}
    return ({**_STATUSES, **words} if known is TaskStatus else words).get(_plain(word))


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word.casefold())


DEFAULT_LEASE_REVS: Final = 2
UNASSIGNED: Final = "unassigned"


_MAX_COUNTED: Final = 999_999


def next_number(taken: Collection[int]) -> int:
    """The number after the highest in use. One that is absurdly high does not count, so that it spoils no later id."""
    number = max((each for each in taken if each <= _MAX_COUNTED), default=0) + 1
    while number in taken:
        number += 1
    return number


class Problem(msgspec.Struct, frozen=True, order=True):
    """A problem in a file: its line, level, rule and message."""

    file: str
    line: int
    level: Level
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.level}: {self.message} [{self.rule}]"


class Lock(msgspec.Struct, frozen=True):
    """One entry of `locks`: its holder, files, and lease in revisions.

    `transaction`: a process took it for one edit and releases it by itself; other locks are taken by hand.
    """

    id: str
    files: tuple[str, ...]
    holder: str
    acquired_rev: int
    lease_revs: int = DEFAULT_LEASE_REVS
    reason: str = ""
    transaction: bool = False


class Signal(msgspec.Struct, frozen=True, rename={"sender": "from", "receiver": "to"}):
    """One entry of `messages`: a short note from one agent to another, at a revision."""

    id: str
    sender: str
    receiver: str
    signal: str
    rev: int
    detail: str = ""


class Task(msgspec.Struct, frozen=True):
    """One entry of `coordination.tasks`."""

    id: str
    description: str = ""
    owner: str = UNASSIGNED
    status: str = "pending"
    priority: str = "P1"
    depends_on: tuple[str, ...] = ()
    created_by: str = ""
    created_rev: int | None = None
    claim_rev: int | None = None
    completed_rev: int | None = None
    notes: str = ""

    @property
    def state(self) -> str:
        """Its status as it is meant: `Done` and `completed` are done; a word without known meaning stays as it is."""
        return meaning(self.status, TaskStatus) or self.status


class Agent(msgspec.Struct, frozen=True):
    """One entry of `agents`.

    `newcomer`: it joined since the last message or step, and receives messages to `all` from the next one on.
    """

    id: str
    role: str = "agent"
    status: str = "idle"
    current_task: str | None = None
    last_seen: str | None = None
    session_id: str | None = None
    newcomer: bool = False


class Maintainer(msgspec.Struct, frozen=True):
    """The person who decides escalations."""

    id: str = ""
    status: str = "available"
    last_seen: str | None = None


class Turn(msgspec.Struct, frozen=True):
    """One entry of `turn_queue`."""

    agent: str
    action: str = ""
    requested_rev: int | None = None
    priority: str = ""


class Turnfile(msgspec.Struct, frozen=True):
    """The contents of a TURNFILE.yaml, in file order."""

    revision: int
    version: str = ""
    project: str = ""
    workspace: str = ""
    registry: tuple[str, ...] | None = None
    agents: tuple[Agent, ...] = ()
    maintainer: Maintainer = Maintainer()
    active_phase: str | None = None
    active_step: str | None = None
    tasks: tuple[Task, ...] = ()
    locks: tuple[Lock, ...] = ()
    turn_queue: tuple[Turn, ...] = ()
    signals: tuple[Signal, ...] = ()
    header_revision: int | None = None
    modified_by: str | None = None

    @property
    def maintainers(self) -> tuple[str, ...]:
        """The names of the maintainers."""
        agents = (agent.id for agent in self.agents if agent.role == "maintainer")
        return tuple(name for name in (self.maintainer.id, *agents) if name)

    @property
    def everyone(self) -> tuple[str, ...]:
        """Whom a message to `all` means: the agents without the newcomers, whom the mailbox does not count yet."""
        return tuple(agent.id for agent in self.agents if not agent.newcomer)

    def joining(self, name: str) -> tuple[str, ...]:
        """Whom the mailbox counts too when it is next written, by that name: the newcomers and the name itself."""
        return (*(agent.id for agent in self.agents if agent.newcomer), name)

    def everyone_with(self, names: Collection[str]) -> tuple[str, ...]:
        """Whom a message to `all` means once the mailbox counts these names too; one may join by that very write."""
        there = (agent.id for agent in self.agents if not agent.newcomer or agent.id in names)
        return (*there, *(name for name in names if not self.lists(name)))

    @property
    def people(self) -> tuple[str, ...]:
        """The names of the agents and the maintainer."""
        names = (*(agent.id for agent in self.agents), self.maintainer.id)
        return tuple(dict.fromkeys(name for name in names if name))

    def lists(self, name: str) -> bool:
        """Whether exactly this name may hold locks and own tasks here."""
        return name in (*self.people, "maintainer")

    def spelled(self, name: str) -> str:
        """A known name as this file spells it, compared without case; `maintainer` is the maintainer's name."""
        if name.strip().lower() == "maintainer" and self.maintainer.id:
            return self.maintainer.id
        return next((one for one in self.people if one.casefold() == name.strip().casefold()), name)

    def lock(self, lock_id: str) -> Lock | None:
        """The lock with that id, or None."""
        return next((lock for lock in self.locks if lock.id == lock_id), None)

    def task(self, task_id: str) -> Task | None:
        """The task with that id, or None."""
        return next((task for task in self.tasks if task.id == task_id), None)


class Completion(msgspec.Struct, frozen=True):
    """The result of a transaction: its lock, the files it changed, and the revision of the ledger after it."""

    lock_id: str | None
    files: tuple[str, ...]
    revision: int
    signal_id: str | None = None
    warnings: tuple[Problem, ...] = ()
    result: Any = None


def with_projection(paths: Collection[str]) -> list[str]:
    """The paths, and the projection if the mailbox is among them."""
    return [*paths, PROJECTION] if MAILBOX in paths else [*paths]
