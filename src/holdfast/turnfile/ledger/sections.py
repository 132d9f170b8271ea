"""The sections of a TURNFILE.yaml, parsed field by field.

Pure. An absent field is empty, and a number or a boolean where text belongs is taken as it is written; any other wrong
type is refused with its line, because a lock that is only half understood must not be taken for no lock. Called by
`ledger`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Final, TypeVar

import msgspec

from holdfast.turnfile.ledger.yaml_tree import Entry, Kind, Node, refuse
from holdfast.turnfile.model import UNASSIGNED, Agent, Lock, Maintainer, Signal, Task, Turn, Turnfile

Record = TypeVar("Record", Agent, Lock, Maintainer, Signal, Task, Turn)

TRANSACTION_KEY: Final = "x-transaction"
"""A key of a lock: our extension, which other tools ignore."""

NEWCOMER_KEY: Final = "x-newcomer"
"""A key of an agent: our extension, true until the mailbox counts it among the receivers of messages to all."""

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
    return Turnfile(
        revision=revision,
        version=about.text("version"),
        project=about.text("project"),
        workspace=about.text("workspace"),
        registry=about.texts(REGISTRY_KEY) if about.has(REGISTRY_KEY) else None,
        agents=tuple(_agent(key, fields) for key, fields in top.map("agents").maps()),
        maintainer=_record(Maintainer, top.map("maintainer")),
        active_phase=coordination.text_or_none("active_phase"),
        active_step=coordination.text_or_none("active_step"),
        tasks=tuple(_task(key, fields) for key, fields in coordination.map("tasks").maps()),
        locks=tuple(_lock(key, fields) for key, fields in top.map("locks").maps()),
        turn_queue=tuple(_record(Turn, fields) for fields in top.list("turn_queue")),
        signals=tuple(_record(Signal, fields) for fields in top.list("messages")),
        header_revision=header_revision,
        modified_by=modified_by,
    )


def _record(kind: type[Record], fields: _Fields, **given: Any) -> Record:
    """A record whose fields are parsed by their types; an absent one has its default, or else is empty."""
    for field in msgspec.structs.fields(kind):
        if field.name not in given:
            value = _PARSERS[field.type](fields, field.encode_name)
            if value is not None or field.required:
                given[field.name] = field.type() if value is None else value
    return kind(**given)


def _agent(key: str, fields: _Fields) -> Agent:
    return _record(Agent, fields, id=key, newcomer=fields.text(NEWCOMER_KEY) == "true")


def _task(key: str, fields: _Fields) -> Task:
    return _record(Task, fields, id=key, owner=fields.text("owner") or UNASSIGNED)


def _lock(key: str, fields: _Fields) -> Lock:
    lock = _record(Lock, fields, id=key, transaction=fields.text(TRANSACTION_KEY) == "true")
    if not lock.files or not lock.holder or not fields.has("acquired_rev"):
        refuse(fields.line, f"the lock {key!r} needs files, holder and acquired_rev")
    if lock.lease_revs == 0:
        refuse(fields.line, f"the lock {key!r} has lease_revs 0; use at least 1")
    return lock


class _Fields:
    """A mapping of the file, read field by field: an absent one is empty, a wrong type is refused."""

    def __init__(self, node: Node | None, name: str, line: int) -> None:
        self._node = node
        self._name = name
        self.line = line

    def _entry(self, key: str) -> Entry | None:
        return self._node.entries.get(key) if self._node is not None else None

    def _value(self, key: str, kind: Kind, message: str) -> Node | None:
        """The value of a key, or None; one of another kind is refused with the message."""
        entry = self._entry(key)
        if entry is None or entry.value.is_null:
            return None
        if entry.value.kind != kind:
            refuse(entry.key.line, message)
        return entry.value

    def text_or_none(self, key: str) -> str | None:
        node = self._value(key, "scalar", f"{key} of {self._name} must be a single value")
        if node is None or isinstance(node.value, str):
            return node.value if node is not None else None
        return str(node.value).lower() if isinstance(node.value, bool) else str(node.value)

    def text(self, key: str) -> str:
        return self.text_or_none(key) or ""

    def number(self, key: str) -> int | None:
        node = self._value(key, "scalar", f"{key} of {self._name} must be a single value")
        if node is None:
            return None
        value: Any = node.value
        if type(value) is not int or value < 0:
            refuse(node.line, f"{key} of {self._name} must be a number, 0 or more, not {value!r}")
        return value

    def has(self, key: str) -> bool:
        entry = self._entry(key)
        return entry is not None and not entry.value.is_null

    def texts(self, key: str) -> tuple[str, ...]:
        message = f"{key} of {self._name} must be a list of texts"
        node = self._value(key, "list", message)
        items = node.items if node is not None else []
        for item in items:
            if not isinstance(item.value, str) or not item.value:
                refuse(item.line, message)
        return tuple(item.value for item in items)

    def map(self, key: str) -> _Fields:
        entry = self._entry(key)
        line = self.line if entry is None else entry.key.line
        return _Fields(self._value(key, "map", f"{key} must be a mapping"), key, line)

    def maps(self) -> list[tuple[str, _Fields]]:
        return [(key, self.map(key)) for key in self._node.entries] if self._node is not None else []

    def list(self, key: str) -> list[_Fields]:
        node = self._value(key, "list", f"{key} must be a list")
        items = node.items if node is not None else []
        for item in items:
            if item.kind != "map":
                refuse(item.line, f"each item of {key} must be a mapping")
        return [_Fields(item, key, item.line) for item in items]


_PARSERS: Final[dict[type | UnionType, Callable[[_Fields, str], Any]]] = {
    **dict.fromkeys((str, str | None), _Fields.text_or_none),
    **dict.fromkeys((int, int | None), _Fields.number),
    tuple[str, ...]: _Fields.texts,
}
