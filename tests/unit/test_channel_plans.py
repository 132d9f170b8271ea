"""S4: no operation on a channel walks along its messages, so a million of them cost what a thousand do.

As in `test_queue_plans`: every statement of an operation is traced and explained.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast import errors
from tests.unit.tracing import Tracing, table_of

HOT = {"channels", "channel_messages", "channel_cursors", "stashes", "log", "records"}
OPERATIONS = ("publish", "subscribe", "subscribe after", "read", "ack", "lost", "list", "subscribers", "unsubscribe")
KEPT = 50


class Traced(Tracing):
    """A workspace with a channel, and what each operation made of it."""

    def __init__(self) -> None:
        super().__init__("ann")

    def fill(self) -> None:
        self.channel = self.ws.stashes.create("news", "channel", {"keep": KEPT}).id
        self.ws.transact(self._publish)
        for number in range(KEPT):
            self.ws.channels.subscribe(self.channel, f"reader-{number}")

    def _publish(self, tx: Any) -> None:
        for number in range(KEPT):
            tx.channels.publish(self.channel, number)

    def run_all(self) -> None:
        channels, id = self.ws.channels, self.channel
        self.during("subscribe", lambda: channels.subscribe(id))
        self.during("subscribe after", lambda: channels.subscribe(id, "late", after=7))
        self.during("publish", lambda: channels.publish(id, "the oldest goes"))
        self.during("read", lambda: [channels.read(id), channels.read(id, wait=0.0)])
        self.during("ack", lambda: channels.ack(id, KEPT + 1))
        channels.subscribe(id, "slow", after=0)
        channels.publish(id, "one more goes")
        self.during("lost", self._lose)
        self.during("list", lambda: [channels.list(id, limit=5), channels.list(id, after=9, limit=5)])
        self.during(
            "subscribers", lambda: [channels.subscribers(id, limit=5), channels.subscribers(id, after="reader-7")]
        )
        self.during("unsubscribe", lambda: channels.unsubscribe(id))
        self.during("delete", lambda: self.ws.stashes.delete(id))

    def _lose(self) -> None:
        with pytest.raises(errors.MessagesLost):
            self.ws.channels.read(self.channel, "slow")


@pytest.fixture(scope="module")
def traced() -> Traced:
    return Traced()


@pytest.mark.parametrize("what", [*OPERATIONS, "delete"])
def test_s4_no_operation_on_a_channel_walks_a_whole_table_or_sorts(traced: Traced, what: str) -> None:
    plans = traced.plans[what]
    assert any(line.startswith("SEARCH") for _, plan in plans for line in plan), "nothing was traced"
    walks = [
        (sql, line)
        for sql, plan in plans
        for line in plan
        if (line.startswith("USE TEMP B-TREE") and "channel" in sql)
        or ((found := re.fullmatch(r"SCAN (\w+)(?: USING .*)?", line)) and table_of(sql, found[1]) in HOT)
    ]
    assert walks == []
