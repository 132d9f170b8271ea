"""S4: no operation on a queue walks along its items, so a million of them cost what a thousand do.

As in `test_mail_plans`: every statement of an operation is traced and explained. What the log says of an operation is
as long for a large item as for a small one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Workspace
from tests.unit.tracing import Tracing, table_of

HOT = {"queues", "queue_items", "stashes", "leases", "log", "records"}
OPERATIONS = (
    "put",
    "put with a key",
    "put_all",
    "take",
    "refresh",
    "ack",
    "nack",
    "pop",
    "expire",
    "due",
    "size",
    "list",
)
OTHERS = ("list dead", "retry", "discard", "delete")


class Traced(Tracing):
    """A workspace with a queue, and what each operation made of it."""

    def __init__(self) -> None:
        super().__init__("ann")

    def fill(self) -> None:
        self.queue = self.ws.stashes.create("jobs", "queue", {"max_deliveries": 2}).id
        self.ws.queues.put_all(self.queue, [*range(50)])

    def take(self, **more: Any) -> int:
        item = self.ws.queues.take(self.queue, **more)
        assert item is not None
        assert item.token is not None
        return item.token

    def _sweep(self) -> None:
        self.clock.advance(10)
        self.ws.transact(lambda tx: None)  # whose group begins with the sweep

    def run_all(self) -> None:
        queues, id = self.ws.queues, self.queue
        self.during("put", lambda: queues.put(id, 1))
        self.during("put with a key", lambda: [queues.put(id, 1, key="k"), queues.put(id, 2, key="k")])
        self.during("put_all", lambda: queues.put_all(id, [1, 2, 3]))
        token = self.during("take", self.take)
        self.during("refresh", lambda: queues.refresh(id, token))
        self.during("ack", lambda: queues.ack(id, token))
        self.during("nack", lambda: queues.nack(id, self.take(), delay=5))
        self.during("pop", lambda: queues.pop(id))
        self.take(ttl=5)
        self.during("expire", self._sweep)
        queues.nack(id, self.take(), delay=5)
        self.during("due", self._sweep)
        self.during("size", lambda: queues.size(id))
        self.during("list", lambda: [queues.list(id, limit=5), queues.list(id, "ready", after=9, limit=5)])
        self.during("list dead", lambda: queues.list(id, "dead"))
        self.during("retry", lambda: queues.retry(id))
        self.during("discard", lambda: queues.discard(id))
        self.during("delete", lambda: self.ws.stashes.delete(id))


@pytest.fixture(scope="module")
def traced() -> Traced:
    return Traced()


@pytest.mark.parametrize("what", [*OPERATIONS, *OTHERS])
def test_s4_no_operation_on_a_queue_walks_a_whole_table_or_sorts(traced: Traced, what: str) -> None:
    plans = traced.plans[what]
    assert any(line.startswith("SEARCH") for _, plan in plans for line in plan), "nothing was traced"
    walks = [
        (sql, line)
        for sql, plan in plans
        for line in plan
        if (line.startswith("USE TEMP B-TREE") and "queue" in sql)
        or ((found := re.fullmatch(r"SCAN (\w+)(?: USING .*)?", line)) and table_of(sql, found[1]) in HOT)
    ]
    assert walks == []


@pytest.mark.parametrize("what", ["take", "ack", "list"])
def test_s4_items_are_found_by_their_place_state_or_token(traced: Traced, what: str) -> None:
    lines = [line for sql, plan in traced.plans[what] for line in plan if "queue_items" in sql]
    found = [line for line in lines if "queue_items" in line or line.startswith("SEARCH i ")]
    assert found
    assert all(re.search(r"\((queue=\? AND (number|state)|token=\?|queue=\?\))", line) for line in found), found


@pytest.fixture
def ws() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="ann") as opened:
        yield opened


def test_s4_what_the_log_says_of_an_item_has_one_length_whatever_it_is_and_however_many_there_are(
    ws: Workspace,
) -> None:
    id = ws.stashes.create("jobs", "queue").id
    for value in ("x", "x" * 100_000):
        ws.queues.put(id, value)
        item = ws.queues.take(id)
        assert item is not None
        assert item.token is not None
        ws.queues.ack(id, item.token)
    told = ws._engine.read_snapshot(
        lambda snapshot: snapshot.all("SELECT length(data) FROM events WHERE kind = 'queue' ORDER BY version")
    )
    sizes = [size for (size,) in told]
    assert len(sizes) == 6
    assert max(abs(one - two) for one, two in zip(sizes[:3], sizes[3:], strict=True)) <= 8
