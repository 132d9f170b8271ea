"""The sections of a TURNFILE.yaml, parsed field by field.

Pure. An absent field is empty, and a number or a boolean where text belongs is taken as it is written; any other wrong
type is refused with its line, because a lock that is only half understood must not be taken for no lock. Called by
`ledger`.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.turnfile.ledger.yaml_tree import Entry, Node, refuse
from holdfast.turnfile.model import (
    DEFAULT_LEASE_REVS,
    UNASSIGNED,
    Agent,
    Lock,
    Maintainer,
    Signal,
    Task,
    Turn,
    Turnfile,
)

TRANSACTION_KEY: Final = "x-transaction"
"""A key of a lock: our extension, which other tools ignore."""

REGISTRY_KEY: Final = "x-registry"
"""A key of the section turnfile: the files that need a lock, instead of the default ones."""


def read_sections(tree: Node, header_revision: int | None, modified_by: str | None, *, part: bool = False) -> Turnfile:
    """Parse a tree. Raises Invalid with `line`."""
    if tree.kind != "map":
        refuse(tree.line, "a turn file is a mapping with the sections turnfile, agents, coordination, locks ...")
    top = _Fields(tree, "the file", 1)
    about = top.map("turnfile")
    coordination = top.map("coordination")
    revision = coordination.number("revision")
    if revision is None and part:
        found = [lock.number("acquired_rev") for _, lock in top.map("locks").maps()]
        found += [signal.number("rev") for signal in top.list("messages")]
        revision = max((each for each in (header_revision, *found) if each is not None), default=0)
    if revision is None:
        refuse(coordination.line, "coordination.revision is missing; it must be a number, 0 or more")
    maintainer = top.map("maintainer")
    return Turnfile(
        revision=revision,
        version=about.text("version"),
        project=about.text("project"),
        workspace=about.text("workspace"),
        registry=about.texts(REGISTRY_KEY) if about.has(REGISTRY_KEY) else None,
        agents=tuple(_agent(key, fields) for key, fields in top.map("agents").maps()),
        maintainer=Maintainer(
            id=maintainer.text("id"),
            status=maintainer.text("status", "available"),
            last_seen=maintainer.text_or_none("last_seen"),
        ),
        active_phase=coordination.text_or_none("active_phase"),
        active_step=coordination.text_or_none("active_step"),
        tasks=tuple(_task(key, fields) for key, fields in coordination.map("tasks").maps()),
        locks=tuple(_lock(key, fields) for key, fields in top.map("locks").maps()),
        turn_queue=tuple(_turn(fields) for fields in top.list("turn_queue")),
        signals=tuple(_signal(fields) for fields in top.list("messages")),
        header_revision=header_revision,
        modified_by=modified_by,
    )


def _agent(key: str, fields: _Fields) -> Agent:
    return Agent(
        id=key,
        role=fields.text("role", "agent"),
        status=fields.text("status", "idle"),
        current_task=fields.text_or_none("current_task"),
        last_seen=fields.text_or_none("last_seen"),
        session_id=fields.text_or_none("session_id"),
    )


def _task(key: str, fields: _Fields) -> Task:
    return Task(
        id=key,
        description=fields.text("description"),
        owner=fields.text_or_none("owner") or UNASSIGNED,
        status=fields.text("status", "pending"),
        priority=fields.text("priority", "P1"),
        depends_on=fields.texts("depends_on"),
        created_by=fields.text("created_by"),
        created_rev=fields.number("created_rev"),
        claim_rev=fields.number("claim_rev"),
        completed_rev=fields.number("completed_rev"),
        notes=fields.text("notes"),
    )


def _lock(key: str, fields: _Fields) -> Lock:
    files, holder, acquired = fields.texts("files"), fields.text("holder"), fields.number("acquired_rev")
    lease = fields.number("lease_revs")
    if not files or not holder or acquired is None:
        refuse(fields.line, f"the lock {key!r} needs files, holder and acquired_rev")
    if lease == 0:
        refuse(fields.line, f"the lock {key!r} has lease_revs 0; use at least 1")
    return Lock(
        key,
        files,
        holder,
        acquired,
        lease if lease is not None else DEFAULT_LEASE_REVS,
        fields.text("reason"),
        fields.text(TRANSACTION_KEY) == "true",
    )


def _turn(fields: _Fields) -> Turn:
    return Turn(
        agent=fields.text("agent"),
        action=fields.text("action"),
        requested_rev=fields.number("requested_rev"),
        priority=fields.text("priority"),
    )


def _signal(fields: _Fields) -> Signal:
    return Signal(
        id=fields.text("id"),
        sender=fields.text("from"),
        receiver=fields.text("to"),
        signal=fields.text("signal"),
        rev=fields.number("rev") or 0,
        detail=fields.text("detail"),
    )


class _Fields:
    """A mapping of the file, read field by field: an absent one is empty, a wrong type is refused."""

    def __init__(self, node: Node | None, name: str, line: int) -> None:
        self._node = node
        self._name = name
        self.line = line

    def _entry(self, key: str) -> Entry | None:
        return self._node.entries.get(key) if self._node is not None else None

    def _scalar(self, key: str) -> Node | None:
        entry = self._entry(key)
        if entry is None or entry.value.plain() is None:
            return None
        if entry.value.kind != "scalar":
            refuse(entry.key.line, f"{key} of {self._name} must be a single value")
        return entry.value

    def text_or_none(self, key: str) -> str | None:
        node = self._scalar(key)
        if node is None or isinstance(node.value, str):
            return node.value if node is not None else None
        return str(node.value).lower() if isinstance(node.value, bool) else str(node.value)

    def text(self, key: str, default: str = "") -> str:
        value = self.text_or_none(key)
        return default if value is None else value

    def number(self, key: str) -> int | None:
        node = self._scalar(key)
        if node is None:
            return None
        value: Any = node.value
        if type(value) is not int or value < 0:
            refuse(node.line, f"{key} of {self._name} must be a number, 0 or more, not {value!r}")
        return value

    def has(self, key: str) -> bool:
        entry = self._entry(key)
        return entry is not None and entry.value.plain() is not None

    def texts(self, key: str) -> tuple[str, ...]:
        entry = self._entry(key)
        if entry is None or entry.value.plain() is None:
            return ()
        if entry.value.kind != "list":
            refuse(entry.key.line, f"{key} of {self._name} must be a list of texts")
        for item in entry.value.items:
            if not isinstance(item.value, str) or not item.value:
                refuse(item.line, f"{key} of {self._name} must be a list of texts")
        return tuple(item.value for item in entry.value.items)

    def map(self, key: str) -> _Fields:
        entry = self._entry(key)
        if entry is None or entry.value.plain() is None:
            return _Fields(None, key, self.line if entry is None else entry.key.line)
        if entry.value.kind != "map":
            refuse(entry.key.line, f"{key} must be a mapping")
        return _Fields(entry.value, key, entry.key.line)

    def maps(self) -> list[tuple[str, _Fields]]:
        return [(key, self.map(key)) for key in self._node.entries] if self._node is not None else []

    def list(self, key: str) -> list[_Fields]:
        entry = self._entry(key)
        if entry is None or entry.value.plain() is None:
            return []
        if entry.value.kind != "list":
            refuse(entry.key.line, f"{key} must be a list")
        for item in entry.value.items:
            if item.kind != "map":
                refuse(item.line, f"each item of {key} must be a mapping")
        return [_Fields(item, key, item.line) for item in entry.value.items]
