"""T17: no hot operation on tasks walks a whole table, and none that has its order in an index sorts.

Every statement that an operation issues is collected by tracing all connections, then explained. A store without
statistics has the same plans at any size, so what is seen here on a few rows is what a million get.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.unit.tracing import Tracing, table_of

DAY = 86_400.0
HOT = {"tasks", "task_texts", "task_tags", "ready_tags", "links", "leases", "log", "records"}
# An index whose first column is the same in nearly all rows: found by that alone, they are all walked.
UNSELECTIVE = re.compile(r"SEARCH (links USING .*|\w+ USING .*INDEX records_name )\(kind=\?(?: AND scope=\?)?\)$")


class Step(NamedTuple):
    """A statement that an operation issued, and how SQLite goes about it."""

    sql: str
    plan: tuple[str, ...]

    @property
    def sorts(self) -> bool:
        """Whether rows are collected and sorted before the first is answered."""
        return any(line.startswith("USE TEMP B-TREE FOR ORDER BY") for line in self.plan)

    @property
    def walks(self) -> list[str]:
        """The lines that go through a whole table, or through all links or events of a kind."""
        found = [line for line in self.plan if UNSELECTIVE.match(line)]
        if self._starts_over:
            found.append("the place of a cursor is not looked up: all before it is walked again")
        for line in self.plan:
            match = re.fullmatch(r"SCAN (\w+)", line)  # one that uses an index says so, and has its order
            if match and table_of(self.sql, match[1]) in HOT and not self._goes_by_seq:
                found.append(line)
        return found

    @property
    def _starts_over(self) -> bool:
        """Whether (key, seq) > (?, ?) looks up the key alone, as it does where seq is the rowid of an index's table."""
        compared = re.search(r"\) [<>] \(\?, \?\)", self.sql)
        return bool(compared) and not self.sorts and not any(re.search(r",seq\)[<>]\(", line) for line in self.plan)

    @property
    def _goes_by_seq(self) -> bool:
        """Whether it walks in the order of creation, which the table itself has, only until a page is full."""
        return not self.sorts and "LIMIT" in self.sql and "ORDER BY t.priority" not in self.sql


class Traced(Tracing):
    """A workspace with some tasks of every kind, and what each operation made of it."""

    def __init__(self) -> None:
        super().__init__("worker")
        self.steps = {what: [Step(*each) for each in plans] for what, plans in self.plans.items()}

    def fill(self) -> None:
        self.root = self.ws.tasks.create("root").id
        self.ids = [self._create(number) for number in range(300)]
        for number in range(20):
            self.ws.tasks.depend(self.ids[number], self.ids[number + 100])

    def _create(self, number: int) -> str:
        made = self.ws.tasks.create(
            f"task {number}",
            body="alpha beta",
            type="bug" if number % 2 else "task",
            priority=number % 5,
            parent_id=self.root if number % 3 == 0 else None,
            tags=["a", "b"] if number % 2 else ["a"],
        )
        return made.id

    def run_all(self) -> None:
        for filters in CHOICES:
            given = {**filters, **({"parent_id": self.root} if "parent_id" in filters else {})}
            self.during(named("claim_next", filters), partial(self.ws.tasks.claim_next, **given))
            self._pages(named("ready", filters), self.ws.tasks.ready, given)
        for sort in SORTS:
            for filters in [*LISTS, *RARE]:
                given = {**filters, **({"parent_id": self.root} if filters.get("parent_id") == "root" else {})}
                self._pages(named(f"list by {sort}", filters), self.ws.tasks.list, {"sort": sort, **given})
        tasks = self.ws.tasks
        self.during("search", lambda: tasks.search("alpha"))
        mine, other, blocker = self.ids[250], self.ids[251], self.ids[110]
        self.during("claim", lambda: tasks.claim(mine))
        self.during("heartbeat", lambda: tasks.heartbeat(mine))
        self.during("complete", lambda: tasks.complete(mine))
        tasks.claim(blocker)
        self.during("complete, with dependents", lambda: tasks.complete(blocker))
        tasks.claim(other, ttl=5)
        self.during("sweep", lambda: self._pass(10))
        self.during("release_stale_claims", lambda: tasks.release_stale_claims(timeout=1))
        for days in (31, 8, 2):
            self.during("retention", partial(self._pass, days * DAY))
        self.during("sweep_retention", lambda: tasks.sweep_retention())
        assert tasks.list(include_deleted=True, status="closed") == [], "retention has not purged"

    def _pages(self, what: str, ask: Callable[..., Any], given: dict[str, Any]) -> None:
        page = self.during(what, lambda: ask(limit=2, **given))
        if page.cursor is not None:
            self.during(what, lambda: ask(limit=2, cursor=page.cursor, **given))

    def _pass(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.ws.transact(lambda tx: None)  # whose group begins with the sweep


def named(what: str, filters: dict[str, Any]) -> str:
    """An operation with its filters, as the name of a case."""
    return " ".join([what, *(f"{name}={value}" for name, value in filters.items())])


# What claim_next and ready can be asked for, and what list can: "root" stands for a task with children.
CHOICES: list[dict[str, Any]] = [
    {},
    {"tags": ["a"]},
    {"tags": ["a", "b"]},
    {"tag_pattern": "a*"},
    {"type": "bug"},
    {"type": ["bug", "task"]},
    {"priority": 2},
    {"priority": [1, 2]},
    {"parent_id": "root"},
    {"can": ["python"]},
    {"tags": ["a"], "type": "bug", "priority": 1},
]
LISTS: list[dict[str, Any]] = [
    {},
    {"status": "open"},
    {"status": "in_progress"},
    {"status": ["open", "closed"]},
    {"priority": 1},
    {"priority": [1, 2]},
    {"type": "bug"},
    {"tag": "a"},
    {"tag_pattern": "a*"},
    {"parent_id": "root"},
    {"parent_id": "none"},
    {"claimed_by": "worker"},
    {"claimed_by": "none"},
    {"text": "alpha"},
    {"include_deleted": True},
    {"total": True},
    {"status": "open", "priority": 1},
    {"status": "open", "type": "bug", "tag": "a"},
]
SORTS = ("priority", "-priority", "created", "-created", "updated", "-updated")
RARE: list[dict[str, Any]] = [{"status": ["in_progress", "blocked"]}, {"status": ["blocked", "pending_merge"]}]
NARROW = ("tag", "parent_id", "claimed_by", "text")  # what these leave may be sorted
CHOOSING = [named(what, filters) for what in ("claim_next", "ready") for filters in CHOICES]
LISTING = [(sort, filters) for sort in SORTS for filters in LISTS]
SORTED = [(sort, filters) for sort in SORTS for filters in RARE]  # few tasks have one of several such statuses
OTHERS = [
    *("search", "claim", "heartbeat", "complete", "complete, with dependents"),
    *("sweep", "release_stale_claims", "retention", "sweep_retention"),
]


@pytest.fixture(scope="module")
def traced() -> Traced:
    return Traced()


@pytest.mark.parametrize(
    "what", [*CHOOSING, *(named(f"list by {sort}", filters) for sort, filters in [*LISTING, *SORTED]), *OTHERS]
)
def test_t17_no_statement_walks_a_whole_table(traced: Traced, what: str) -> None:
    steps = traced.steps[what]
    assert any(line.startswith(("SEARCH", "SCAN")) for step in steps for line in step.plan), "nothing was traced"
    walking = {step.sql: step.walks for step in steps if step.walks}
    assert walking == {}


@pytest.mark.parametrize("what", CHOOSING)
def test_t17_choosing_a_task_sorts_nothing(traced: Traced, what: str) -> None:
    assert [step.sql for step in traced.steps[what] if step.sorts] == []


@pytest.mark.parametrize(
    "what",
    [
        named(f"list by {sort}", filters)
        for sort, filters in LISTING
        if "text" not in filters and sort.endswith("priority")
    ],
)
def test_t17_a_list_by_priority_has_its_order_from_an_index(traced: Traced, what: str) -> None:
    assert [step.sql for step in traced.steps[what] if step.sorts] == []


def _narrows(filters: dict[str, Any]) -> bool:
    return filters.get("status") == "in_progress" or any(filters.get(name, "none") != "none" for name in NARROW)


@pytest.mark.parametrize(
    "what",
    [
        named(f"list by {sort}", filters)
        for sort, filters in LISTING
        if not sort.endswith("priority") and not _narrows(filters)
    ],
)
def test_t17_a_list_by_time_sorts_only_what_a_narrow_filter_left(traced: Traced, what: str) -> None:
    assert [step.sql for step in traced.steps[what] if step.sorts] == []


def test_a_walk_is_told_from_a_search() -> None:
    def walks(sql: str, *plan: str) -> bool:
        return bool(Step(sql, plan).walks)

    assert walks("SELECT 1 FROM tasks", "SCAN tasks")
    assert walks("SELECT 1 FROM links k", "SCAN k")
    assert walks("SELECT source FROM links WHERE kind = ?", "SEARCH links USING COVERING INDEX i (kind=?)")
    assert walks("SELECT 1 FROM tasks t ORDER BY t.title LIMIT 1", "SCAN t", "USE TEMP B-TREE FOR ORDER BY")
    assert walks("SELECT 1 FROM tasks t WHERE (t.priority, t.seq) > (?, ?)", "SEARCH t USING INDEX i (priority>?)")
    assert not walks(
        "SELECT 1 FROM ready_tags g WHERE (g.priority, g.seq) > (?, ?)",
        "SEARCH g USING PRIMARY KEY (tag=? AND (priority,seq)>(?,?))",
    )
    assert not walks("SELECT 1 FROM tasks t ORDER BY t.seq LIMIT 1", "SCAN t")
    assert not walks("SELECT 1 FROM tasks t", "SCAN t USING INDEX tasks_ready")
    assert not walks("SELECT source FROM links WHERE kind = ?", "SEARCH links USING INDEX i (kind=? AND target=?)")
    assert not walks("SELECT stamp FROM meta", "SCAN meta")
