"""The laws of queues as plain Python, on top of the model of stashes: S4. A queue is a dict of items by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast import errors
from holdfast.types import Page, as_time
from holdfast.types.stashes import QueueItem, QueueSize, QueueState, StashType
from tests.conformance.model_base import ItemRow, LeaseRow, QueueRow, StashRow
from tests.simulation.stash_model import StashId, StashModel

STATES: tuple[QueueState, ...] = ("ready", "delayed", "taken", "dead")


class QueueModel(StashModel):
    """A workspace with queues as its users imagine it."""

    def _queue(self, id: StashId) -> tuple[str, QueueRow]:
        row = self._stash(id)
        if row.type != "queue":
            raise errors.InvalidStashType()
        return row.id, self.state.queues.get(row.id) or QueueRow()

    @staticmethod
    def _check_value(type: StashType, value: Any) -> None:
        if type != "queue":
            StashModel._check_value(type, value)
        elif value is not None and (not isinstance(value, dict) or {*value} - {"max_deliveries"}):
            raise errors.InvalidValue()

    def _log(self, id: str, queue: QueueRow, op: str, before: tuple[int, ...], **facts: Any) -> None:
        """An event has what the operation changed in the counts, and the item."""
        counts = zip(("last", *STATES), before, _counts(queue), strict=True)
        self.emit("queue", "", id, op, {name: [old, new] for name, old, new in counts if old != new} | facts)

    def _item(self, id: str, number: int, item: ItemRow) -> QueueItem:
        return QueueItem(
            queue=id,
            number=number,
            state=item.state,
            value=item.value,
            deliveries=item.deliveries,
            created_at=as_time(item.created),
            key=item.key,
            token=item.token,
            holder=item.lease.holder if item.lease is not None and item.state == "taken" else None,
            until=None if item.lease is None else as_time(item.lease.deadline),
        )

    # --- putting and taking ------------------------------------------------------------------------------------------

    def queues_put(self, id: StashId, value: Any, key: str | None = None) -> int:
        """A key keeps a second item out."""
        _, queue = self._queue(id)
        for number, item in queue.items.items():
            if key is not None and item.key == key:
                return number
        return self._append(id, [value], key)[0]

    def queues_put_all(self, id: StashId, values: Sequence[Any]) -> list[int]:
        self._queue(id)
        return self._append(id, values, None) if values else []

    def _append(self, id: StashId, values: Sequence[Any], key: str | None) -> list[int]:
        own, queue = self._queue(id)
        before = _counts(queue)
        numbers = [*range(queue.last + 1, queue.last + 1 + len(values))]
        for number, value in zip(numbers, values, strict=True):
            queue.items[number] = ItemRow(value, self.now, key)
        queue.last = numbers[-1]
        self.state.queues[own] = queue
        self._log(own, queue, "put", before, bytes=sum(len(msgspec.msgpack.encode(value)) for value in values))
        return numbers

    def queues_take(self, id: StashId, holder: str, ttl: float = 300) -> QueueItem | None:
        """The first that is ready, whoever puts or gives back what."""
        own, queue = self._queue(id)
        number = min((number for number, item in queue.items.items() if item.state == "ready"), default=0)
        if not number:
            return None
        before, item = _counts(queue), queue.items[number]
        item.token = (self.revision + 1) * 4096 + self._grants
        self._grants += 1
        item.state, item.deliveries, item.lease = "taken", item.deliveries + 1, self._start(ttl, holder)
        self._log(own, queue, "take", before, item=number, holder=holder, token=item.token)
        return self._item(own, number, item)

    def _taken(self, id: StashId, token: int, holder: str) -> tuple[str, QueueRow, int]:
        own, queue = self._queue(id)
        for number, item in queue.items.items():
            if item.token == token:
                assert item.lease is not None
                if item.lease.holder != holder:
                    raise errors.NotHolder(holder=item.lease.holder)
                return own, queue, number
        raise errors.Fenced(current=None)

    def queues_refresh(self, id: StashId, token: int, holder: str, ttl: float | None = None) -> QueueItem:
        own, queue, number = self._taken(id, token, holder)
        lease = queue.items[number].lease
        assert lease is not None
        lease.ttl = lease.ttl if ttl is None else round(ttl * 1e6)
        lease.deadline = self.now + lease.ttl
        return self._item(own, number, queue.items[number])

    def queues_ack(self, id: StashId, token: int, holder: str) -> int:
        own, queue, number = self._taken(id, token, holder)
        before = _counts(queue)
        self._drop(queue.items.pop(number).lease)
        self._log(own, queue, "ack", before, item=number)
        return number

    def queues_nack(self, id: StashId, token: int, holder: str, delay: float | None = None) -> QueueState:
        own, queue, number = self._taken(id, token, holder)
        self._drop(queue.items[number].lease)
        return self._give_back(own, queue, number, "nack", delay)

    def _give_back(self, id: str, queue: QueueRow, number: int, op: str, delay: float | None = None) -> QueueState:
        """To its place, or to the dead letters."""
        before, item = _counts(queue), queue.items[number]
        most = (self.state.stashes[id].value or {}).get("max_deliveries", 5)
        item.state = "dead" if item.deliveries >= most else "delayed" if delay else "ready"
        item.token, item.lease = None, self._start(delay, self.actor) if delay and item.state == "delayed" else None
        self._log(id, queue, op, before, item=number)
        return item.state

    def queues_pop(self, id: StashId) -> QueueItem | None:
        own, queue = self._queue(id)
        ready = [number for number, item in queue.items.items() if item.state == "ready"]
        if not ready:
            return None
        before, last = _counts(queue), max(ready)
        item = self._item(own, last, queue.items.pop(last))
        self._log(own, queue, "pop", before, item=last)
        return item

    # --- dead letters, and what readers see --------------------------------------------------------------------------

    def queues_retry(self, id: StashId, number: int | None = None) -> int:
        return self._bury(id, number, "retry")

    def queues_discard(self, id: StashId, number: int | None = None) -> int:
        return self._bury(id, number, "discard")

    def _bury(self, id: StashId, number: int | None, op: str) -> int:
        own, queue = self._queue(id)
        found = [each for each, item in queue.items.items() if item.state == "dead" and number in (None, each)]
        if not found and number is not None:
            raise errors.NotFound()
        before = _counts(queue)
        for each in found:
            if op == "discard":
                del queue.items[each]
            else:
                queue.items[each].state, queue.items[each].deliveries = "ready", 0
        if found:
            self._log(own, queue, op, before, **({} if number is None else {"item": number}))
        return len(found)

    def queues_size(self, id: StashId) -> QueueSize:
        return QueueSize(*_counts(self._queue(id)[1])[1:])

    def queues_list(self, id: StashId, state: QueueState | None = None) -> Page[QueueItem]:
        own, queue = self._queue(id)
        return Page(
            self._item(own, number, item) for number, item in sorted(queue.items.items()) if state in (None, item.state)
        )

    # --- the end -----------------------------------------------------------------------------------------------------

    def _erase(self, row: StashRow, op: str) -> None:
        """S8: the items go with their queue, and what the log said of them."""
        queue = self.state.queues.pop(row.id, None)
        if queue is not None:
            for item in queue.items.values():
                self._drop(item.lease)
            self._blank("queue", row.id, op)
        super()._erase(row, op)

    def _blank(self, kind: str, id: str, op: str) -> None:
        """What the log said of a stash's items in this transaction is gone, and the end is logged."""
        for index, event in enumerate(self.events[self._first :], self._first):
            if (event.kind, event.id) == (kind, id):
                self.events[index] = msgspec.structs.replace(event, data={}, redacted=True)
        self.emit(kind, "", id, op, {})

    def _finish(self, lease: LeaseRow, op: str) -> None:
        if lease not in self.state.leases:
            return  # its item went with the queue, in the same sweep
        for id, queue in self.state.queues.items():
            for number, item in queue.items.items():
                if item.lease is lease:
                    if item.state == "taken":
                        self._give_back(id, queue, number, op)
                    else:
                        before = _counts(queue)
                        item.state, item.lease = "ready", None
                        self._log(id, queue, op, before, item=number)
        super()._finish(lease, op)

    def place_of(self, lease: LeaseRow) -> int:
        """Items whose leases end at the same moment do so in the order of their numbers as texts."""
        items = [(str(n), item.lease) for queue in self.state.queues.values() for n, item in queue.items.items()]
        leases = [each for _, each in sorted(items, key=lambda pair: pair[0])]
        at = next((at for at, each in enumerate(leases) if each is lease), None)
        return super().place_of(lease) if at is None else len(self.state.tasks) + 1 + at


def _counts(queue: QueueRow) -> tuple[int, ...]:
    states = [item.state for item in queue.items.values()]
    return (queue.last, *(states.count(state) for state in STATES))
