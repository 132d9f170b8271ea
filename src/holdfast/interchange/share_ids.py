"""Keys and ids of shared tasks: of several that were created with one id, the oldest keeps it.

A task that gets another id is renamed wherever it is named, also in the log: what was said of it is found by its new
id, and the old one is that of the older task from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.domains import link_types
from holdfast.domains.tasks.rows import TASK, Stored, by_seq, change
from holdfast.interchange.share_lines import longer_ids, trusted
from holdfast.kernel.tx import Tx


class Keys:
    """Which task has which key; None for what is no task here."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._keys: dict[str, str | None] = {}
        self._ids: dict[str, str | None] = {}

    def load(self) -> None:
        """Read all at once, which many look-ups are slower than."""
        for key, id in self._tx.all("SELECT s.key, t.id FROM shared s JOIN tasks t ON t.seq = s.seq"):
            self.add(key, id)

    def add(self, key: str, id: str) -> None:
        """A task has this key from now on."""
        self._keys[id], self._ids[key] = key, id

    def forget(self) -> None:
        """Tasks were renamed: look again."""
        self._keys.clear()
        self._ids.clear()

    def of(self, id: str | None) -> str | None:
        """The key of a task by its id."""
        if id is None:
            return None
        if id not in self._keys:
            row = self._tx.one("SELECT s.key FROM tasks t JOIN shared s ON s.seq = t.seq WHERE t.id = ?", (id,))
            self._keys[id] = None if row is None else row[0]
        return self._keys[id]

    def id(self, key: str | None) -> str | None:
        """The id of a task by its key."""
        if key is None:
            return None
        if key not in self._ids:
            row = self._tx.one("SELECT t.id FROM shared s JOIN tasks t ON t.seq = s.seq WHERE s.key = ?", (key,))
            self._ids[key] = None if row is None else row[0]
        return self._ids[key]


class Names:
    """The ids of tasks by their keys. `renamed` gets old and new ids, `forget` is called for each."""

    def __init__(self, tx: Tx, renamed: dict[str, str], forget: Callable[[], None]) -> None:
        self.of: dict[str, str] = {}
        self._tx = tx
        self._renamed = renamed
        self._forget = forget

    def settle_others(self, id: str) -> None:
        """The same if more than one task was created with an id."""
        if len(records_of(self._tx, "key > ? AND key < ?", (f"{id}~", f"{id}~~"))) > 1:
            self.settle(id)

    def settle(self, id: str) -> None:
        """Give the oldest of the tasks that were created with an id that id, and the younger ones longer ids."""
        members = records_of(self._tx, "key > ? AND key < ?", (f"{id}~", f"{id}~~"))
        self._make_way(id)
        if len(members) == 1:
            self.of[members[0][0]] = id
            return
        aged = sorted(members, key=lambda member: (trusted(member[2]).value("created_at") or "", member[0]))
        taken: set[str] = set()
        for number, (key, seq, *_) in enumerate(aged):
            ids = longer_ids(key) if number else [id]
            self.of[key] = next(each for each in ids if each not in taken and not self._is_taken(each, seq, id))
            taken.add(self.of[key])
        for key, seq, *_ in reversed(aged):  # the oldest last: its id is free by then
            if seq is not None and (task := by_seq(self._tx, seq)).id != self.of[key]:
                self._renamed[task.id] = self.of[key]
                self.free(self.of[key])
                rename(self._tx, task, self.of[key])
                self._forget()

    def _is_taken(self, id: str, seq: int | None, own: str) -> bool:
        """Whether another task has an id that is not the one in question."""
        row = None if id == own else self._tx.one("SELECT seq FROM tasks WHERE id = ?", (id,))
        return row is not None and row[0] != seq

    def _make_way(self, id: str) -> None:
        """Rename a task with this id that no line is about: deleted before it could be shared, or purged elsewhere."""
        row = self._tx.one(
            "SELECT seq FROM tasks WHERE id = ? AND seq NOT IN (SELECT seq FROM shared WHERE seq IS NOT NULL)", (id,)
        )
        if row is not None:
            task = by_seq(self._tx, row[0])
            rename(self._tx, task, f"{id[:40]}.deleted-{task.record}")

    def free(self, id: str) -> None:
        """Rename what the log has of a purged task with this id."""
        record = task_record(self._tx, id)
        if record is not None and self._tx.one("SELECT 1 FROM tasks WHERE record = ?", (record,)) is None:
            self._tx.run("UPDATE records SET id = ? WHERE key = ?", (f"{id[:40]}.purged-{record}", record))


def rename(tx: Tx, task: Stored, id: str) -> None:
    """Give a task another id, everywhere: what the log says of it is about the new one from then on."""
    old = task.id
    tx.run("UPDATE records SET id = ? WHERE key = ?", (id, task.record))
    tx.run("UPDATE tasks SET id = ? WHERE seq = ?", (id, task.seq))
    for record, data in tx.all(
        "SELECT l.seq, l.data FROM links k JOIN records r ON r.kind = 'link' AND r.scope = '' AND r.id = k.id"
        " JOIN log l ON l.record = r.key AND l.op = 'create' WHERE k.source = ?1 OR k.target = ?1",
        (old,),
    ):
        _rewrite(tx, record, data, ("from_id", "to_id"), old, id)
    for kind in link_types.TYPES:
        tx.run("UPDATE links SET source = ? WHERE kind = ? AND source = ?", (id, kind, old))
        tx.run("UPDATE links SET target = ? WHERE kind = ? AND target = ?", (id, kind, old))
    for record, data in tx.all(
        "SELECT l.seq, l.data FROM messages m JOIN records r ON r.kind = 'message' AND r.scope = '' AND r.id = m.id"
        " JOIN log l ON l.record = r.key AND l.op = 'send' WHERE m.task = ?",
        (old,),
    ):
        _rewrite(tx, record, data, ("task",), old, id)
    tx.run("UPDATE messages SET task = ? WHERE task = ?", (id, old))
    tx.run("UPDATE locks SET task = ? WHERE task = ?", (id, old))
    new = by_seq(tx, task.seq)
    imported = None if new.imported is None else new.updated
    change(tx, new, "rename", {}, more={"id": (old, id)}, updated=imported)
    for (seq,) in tx.all("SELECT seq FROM tasks WHERE parent = ? ORDER BY seq", (task.seq,)):
        child = by_seq(tx, seq)
        updated = None if child.imported is None else child.updated
        change(tx, child, "rename", {}, more={"parent_id": (old, id)}, updated=updated)


def _rewrite(tx: Tx, event: int, data: bytes | None, fields: tuple[str, ...], old: str, new: str) -> None:
    """Name a renamed task in an event of something that belongs to it."""
    if data is not None:
        said = msgspec.msgpack.decode(data)
        said |= {field: new for field in fields if said.get(field) == old}
        tx.run("UPDATE log SET data = ? WHERE seq = ?", (msgspec.msgpack.encode(said), event))


def records_of(tx: Tx, where: str, params: tuple[Any, ...] = ()) -> list[tuple[str, int | None, str, dict[str, Any]]]:
    """The shared records that fulfil a condition: key, seq, line, and what is odd."""
    rows = tx.all(f"SELECT key, seq, line, odd FROM shared WHERE {where}", params)
    return [(key, seq, line, {} if odd is None else msgspec.json.decode(odd)) for key, seq, line, odd in rows]


def task_record(tx: Tx, id: str) -> int | None:
    """The key in the log of whatever task has or had an id."""
    row = tx.one("SELECT key FROM records WHERE kind = ? AND scope = '' AND id = ?", (TASK, id))
    return None if row is None else row[0]


_PARENTS: Final = (
    "SELECT s.key, p.key FROM tasks t JOIN shared s ON s.seq = t.seq JOIN shared p ON p.seq = t.parent"
    " WHERE t.parent IS NOT NULL"
)
_DEPENDENCIES: Final = (
    "SELECT s.key, e.key FROM links k JOIN tasks t ON t.id = k.source JOIN shared s ON s.seq = t.seq"
    " JOIN tasks o ON o.id = k.target JOIN shared e ON e.seq = o.seq WHERE k.kind = 'depends_on'"
)


def edges_of(tx: Tx, field: str) -> dict[str, list[str]]:
    """The parents, or the dependencies, of all shared tasks, by key."""
    edges: dict[str, list[str]] = {}
    for key, end in tx.all(_PARENTS if field == "parent" else _DEPENDENCIES):
        edges.setdefault(key, []).append(end)
    return edges
