"""No operation on one thread walks along others, and none that puts or gets walks along its checkpoints.

As in `test_queue_plans`: every statement of an operation is traced and explained.
"""

from __future__ import annotations

import re

import pytest

from tests.unit.tracing import Tracing, table_of

HOT = {"threads", "checkpoints", "channel_values", "checkpoint_writes", "items", "leases", "locks", "log", "records"}
OPERATIONS = ("put", "put_writes", "get", "history", "delete_runs", "items", "delete")


class Traced(Tracing):
    """A workspace with threads and items, and what each operation made of it."""

    def __init__(self) -> None:
        super().__init__("ann")

    def fill(self) -> None:
        for number in range(30):
            self.ws.threads.put(f"t{number % 3}", f"{number:02}", 1, {"a": str(number)}, {"a": [1]}, run=f"r{number}")
            self.ws.items.put(f"users/{number % 3}", str(number), {"n": number}, ttl=60)

    def run_all(self) -> None:
        threads, items = self.ws.threads, self.ws.items
        self.during("put", lambda: threads.put("t0", "99", 1, {"a": "27", "b": "1"}, {"b": [2]}, parent="27"))
        self.during("put_writes", lambda: threads.put_writes("t0", "99", "task", [["a", 1]]))
        self.during("get", lambda: [threads.find("t0"), threads.find("t0", "03")])
        self.during("history", lambda: [threads.history("t0", ns="", values=True, limit=2), threads.history(limit=2)])
        self.during("delete_runs", lambda: threads.delete_runs(["r3"]))
        self.during(
            "items",
            lambda: [items.put("users/1", "new", {}), items.find("users/1", "new"), items.search("users/1", limit=3)],
        )
        self.during("delete", lambda: [threads.delete("t1"), items.delete("users/1", "new")])


@pytest.fixture(scope="module")
def traced() -> Traced:
    return Traced()


@pytest.mark.parametrize("what", OPERATIONS)
def test_no_operation_on_a_thread_or_an_item_walks_a_whole_table_or_sorts(traced: Traced, what: str) -> None:
    plans = traced.plans[what]
    assert any(line.startswith("SEARCH") for _, plan in plans for line in plan), "nothing was traced"
    walks = [
        (sql, line)
        for sql, plan in plans
        for line in plan
        if (line.startswith("USE TEMP B-TREE") and "ORDER BY" in sql)
        or ((found := re.fullmatch(r"SCAN (\w+)", line)) and table_of(sql, found[1]) in HOT)
    ]
    assert walks == []
