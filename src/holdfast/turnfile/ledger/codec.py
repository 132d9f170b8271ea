"""TURNFILE.yaml: text to model, and changed text back.

Pure. A `Ledger` is a text together with what it says. Its methods answer another Ledger, whose text differs only where
something changed: comments, order, quoting, unknown keys and line ends stay byte for byte. `read` refuses with the
line what it cannot be sure to understand; words that are merely unknown are left for `lint` to complain about.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import Invalid, NotFound
from holdfast.turnfile.ledger import yaml_edit
from holdfast.turnfile.ledger.header import read_header, with_header
from holdfast.turnfile.ledger.sections import TRANSACTION_KEY, read_sections
from holdfast.turnfile.ledger.yaml_edit import Change, Insert, Put, Remove
from holdfast.turnfile.ledger.yaml_tree import Node, parse
from holdfast.turnfile.model import Lock, Signal, Turnfile

_MAX_NAME: Final = 200


class Ledger(msgspec.Struct, frozen=True, eq=False):
    """The text of a TURNFILE.yaml, its tree and what it says."""

    text: str
    tree: Node
    turnfile: Turnfile

    @property
    def revision(self) -> int:
        """The revision that the text is at."""
        return self.turnfile.revision

    def line(self, *path: str | int) -> int:
        """The line of what a path leads to; of what is nearest, if there is nothing."""
        for known in range(len(path), 0, -1):
            parent = self.tree.find(path[: known - 1])
            if parent is not None and isinstance(step := path[known - 1], str) and step in parent.entries:
                return parent.entries[step].key.line
            if (node := self.tree.find(path[:known])) is not None:
                return node.line
        return 1

    def changed(self, changes: Sequence[Change]) -> Ledger:
        """The ledger after some changes."""
        return read(yaml_edit.apply(self.text, changes)) if changes else self

    def with_lock(self, lock: Lock) -> Ledger:
        """With a lock added, or replaced."""
        return self.changed(self._replacing(lock))

    def without_locks(self, *lock_ids: str) -> Ledger:
        """With some locks gone. Raises NotFound."""
        for lock_id in lock_ids:
            if self.turnfile.lock(lock_id) is None:
                raise NotFound(f"there is no lock {lock_id!r}", lock_id=lock_id)
        return self.changed([Remove(("locks", lock_id)) for lock_id in lock_ids])

    def with_signal(self, signal: Signal, *, instead_of: Sequence[str] = ()) -> Ledger:
        """With one more signal: on top, unless the file has them the other way round. It may take others' place."""
        gone = [place for place, old in enumerate(self.turnfile.signals) if old.id in instead_of]
        if gone:
            kept = self.changed([Remove(("messages", place)) for place in reversed(gone)])
            return kept.with_signal(signal)
        fields = {key: value for key, value in msgspec.to_builtins(signal).items() if value != "" or key != "detail"}
        return self.changed([Insert(("messages",), fields, first=not _rises(self.turnfile.signals))])

    def with_task(self, task_id: str, **fields: Any) -> Ledger:
        """With some fields of a task changed. Raises NotFound."""
        if self.turnfile.task(task_id) is None:
            raise NotFound(f"there is no task {task_id!r}", task_id=task_id)
        return self.changed([Put(("coordination", "tasks", task_id, key), value) for key, value in fields.items()])

    def knowing(self, name: str) -> Ledger:
        """With an agent of that name listed: who acts here is somebody, and `lint` wants holders and owners known."""
        if self.turnfile.lists(name):
            return self
        entry = {"role": "agent", "status": "active", "current_task": None, "last_seen": None, "session_id": None}
        return self.changed([Put(("agents", name), entry)])

    def with_agent(self, agent_id: str, **fields: Any) -> Ledger:
        """With some fields of an agent changed."""
        return self.changed([Put(("agents", agent_id, key), value) for key, value in fields.items()])

    def stamped(self, revision: int, actor: str) -> Ledger:
        """At a revision, and with the header saying so and by whom."""
        check_name("actor", actor)
        put = Put(("coordination", "revision"), revision)
        return read(yaml_edit.apply(self.text, [put], lambda text: with_header(text, revision, actor)))

    def _replacing(self, lock: Lock) -> list[Change]:
        fields = msgspec.to_builtins(lock)
        path = ("locks", fields.pop("id"))
        fields["files"] = list(lock.files)
        if fields.pop("transaction"):
            fields[TRANSACTION_KEY] = True
        old = self.turnfile.lock(lock.id)
        if old is None:
            return [Put(path, fields)]
        if old.files != lock.files:
            return [Remove(path), Put(path, fields)]
        before = msgspec.to_builtins(old)
        return [
            Put((*path, key), value) for key, value in fields.items() if key != "files" and before.get(key) != value
        ]


def read(text: str) -> Ledger:
    """What a TURNFILE.yaml says. Raises Invalid with `line`."""
    tree = parse(text)
    return Ledger(text, tree, read_sections(tree, *read_header(text)))


def read_part(text: str) -> Ledger:
    """What a part of a TURNFILE.yaml says, to look at and not to change: its revision is the highest it speaks of."""
    tree = parse(text)
    header_revision, modified_by = read_header(text)
    return Ledger(text, tree, read_sections(tree, header_revision, modified_by, part=True))


def check_name(what: str, name: str) -> str:
    """The name of an agent or of a lock. Raises Invalid for one that no line of a file can hold."""
    if not name or name != name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise Invalid(f"{what} {name[:40]!r} is not a name", hint=f"1 to {_MAX_NAME} characters, in one line")
    return name


def next_signal_id(signals: Sequence[Signal]) -> str:
    """SIG-NNN: one more than the highest."""
    numbers = [int(found[1]) for signal in signals if (found := re.fullmatch(r"SIG-([0-9]{1,9})", signal.id))]
    return f"SIG-{max(numbers, default=0) + 1:03d}"


def _rises(signals: Sequence[Signal]) -> bool:
    return len(signals) > 1 and (signals[0].rev, signals[0].id) < (signals[-1].rev, signals[-1].id)
