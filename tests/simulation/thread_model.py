"""The laws of threads and items as plain Python, on top of the model of cycles: what is put stays until deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast import errors
from holdfast.types import as_time
from holdfast.types.threads import Checkpoint, Item, Thread, Write
from tests.conformance.model_base import ThreadRow
from tests.simulation.cycle_model import CycleModel


def _size(value: Any) -> int:
    return len(msgspec.msgpack.encode(value))


class ThreadModel(CycleModel):
    """A workspace with threads and items as its users imagine it."""

    def _open_thread(self, id: str, needed: str | None, begins: bool) -> ThreadRow:
        """A thread that something is put into; whoever needs what went with an earlier one comes too late."""
        row = self.state.threads.get(id)
        deleted = self.newest("thread", "", id) > 0
        if (row is None and deleted and not begins) or (
            row is not None and row.again and needed is not None and needed not in row.checkpoints
        ):
            raise errors.ThreadNotFound()
        if row is None:
            row = self.state.threads[id] = ThreadRow(self.now, deleted)
        return row

    def _log_thread(self, id: str, row: ThreadRow, op: str, before: int, **facts: Any) -> Thread:
        after = len(row.checkpoints)
        counts = {"checkpoints": [before, after]} if before != after else {}
        version = self.emit("thread", "", id, op, counts | facts)
        return Thread(id, version, after, as_time(row.created), as_time(self.now), self.revision + 1)

    def threads_put(
        self,
        id: str,
        checkpoint: str,
        value: Any,
        channels: Mapping[str, str],
        values: Mapping[str, Any],
        parent: str | None = None,
        deltas: Sequence[str] = (),
    ) -> Thread:
        row = self._open_thread(id, parent, parent is None)
        for channel, each in values.items():
            if row.values.setdefault((channel, channels[channel]), each) != each:
                raise errors.Conflict()
        if any(each not in row.values for each in channels.items()):
            raise errors.InvalidValue()
        before = len(row.checkpoints)
        row.checkpoints[checkpoint] = Checkpoint(
            id, "", checkpoint, parent, None, as_time(self.now), {}, dict(sorted(channels.items())), value
        )
        row.deltas[checkpoint] = tuple(deltas)
        self._forget_values(row)
        size = _size(value) + _size({}) + sum(map(_size, values.values()))
        return self._log_thread(id, row, "put", before, checkpoint=checkpoint, ns="", bytes=size)

    @staticmethod
    def _forget_values(row: ThreadRow) -> None:
        """A value goes with the last checkpoint that has its version."""
        used = {each for checkpoint in row.checkpoints.values() for each in checkpoint.channels.items()}
        row.values = {key: value for key, value in row.values.items() if key in used}

    def threads_put_writes(self, id: str, checkpoint: str, task: str, writes: Sequence[Any]) -> Thread:
        row = self._open_thread(id, checkpoint, False)
        for number, (channel, value) in enumerate(writes):
            row.writes.setdefault((checkpoint, task, number), Write(task, number, channel, value, ""))
        facts = {"checkpoint": checkpoint, "ns": "", "task": task, "bytes": sum(_size(value) for _, value in writes)}
        thread = self._log_thread(id, row, "write", len(row.checkpoints), writes=len(writes), **facts)
        if any(channel == "__interrupt__" for channel, _ in writes):
            self.emit("interrupt", "", id, "interrupt", facts)
        return thread

    def threads_find(self, id: str) -> Checkpoint | None:
        row = self.state.threads.get(id)
        if row is None or not row.checkpoints:
            return None
        newest = row.checkpoints[max(row.checkpoints)]
        values = {channel: row.values[channel, version] for channel, version in newest.channels.items()}
        writes = [write for key, write in sorted(row.writes.items()) if key[0] == newest.id]
        return msgspec.structs.replace(newest, values=values, writes=writes)

    def threads_delete(self, id: str) -> bool:
        if self.state.threads.pop(id, None) is None:
            return False
        self._blank("thread", id, "delete")
        return True

    def threads_copy(self, id: str, to: str) -> Thread:
        if id not in self.state.threads:
            raise errors.ThreadNotFound()
        if to in self.state.threads:
            raise errors.Exists()
        source, row = self.state.threads[id], self._open_thread(to, None, True)
        row.checkpoints = {key: msgspec.structs.replace(each, thread=to) for key, each in source.checkpoints.items()}
        row.values, row.writes, row.deltas = dict(source.values), dict(source.writes), dict(source.deltas)
        return self._log_thread(to, row, "copy", 0, source=id)

    def threads_prune(self, id: str, keep: int) -> int:
        """The newest stay, and the ancestors of each up to the one that has the values of its deltas."""
        row = self.state.threads.get(id)
        if row is None:
            return 0
        kept = set(sorted(row.checkpoints)[-keep:])
        for each in tuple(kept):
            wanted, at = set(row.deltas[each]), row.checkpoints[each].parent
            seen: set[str] = set()
            while wanted and at in row.checkpoints and at not in seen:
                seen.add(at)
                wanted -= row.checkpoints[at].channels.keys()
                at = row.checkpoints[at].parent
            kept |= seen
        gone = row.checkpoints.keys() - kept
        if gone:
            before = len(row.checkpoints)
            row.checkpoints = {key: each for key, each in row.checkpoints.items() if key in kept}
            row.writes = {key: each for key, each in row.writes.items() if key[0] not in gone}
            self._forget_values(row)
            self._log_thread(id, row, "prune", before)
        return len(gone)

    # --- items -------------------------------------------------------------------------------------------------------

    def items_put(self, namespace: str, key: str, value: dict[str, Any]) -> Item:
        known = self.state.items.get((namespace, key))
        created = as_time(self.now) if known is None else known.created_at
        op, size = "create" if known is None else "put", _size(value)
        version = self.emit("item", "", f"{namespace}//{key}", op, {"bytes": size})
        made = Item(namespace, key, value, version, created, as_time(self.now), None, None)
        self.state.items[namespace, key] = made
        return made

    def items_find(self, namespace: str, key: str) -> Item | None:
        return self.state.items.get((namespace, key))

    def items_delete(self, namespace: str, key: str) -> bool:
        if self.state.items.pop((namespace, key), None) is None:
            return False
        self._blank("item", f"{namespace}//{key}", "delete")
        return True
