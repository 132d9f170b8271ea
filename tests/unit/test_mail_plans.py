"""A3, A5: no hot operation on mail, agents and paths walks a whole table; a page of mail has its order from an index.

Every statement that an operation issues is collected by tracing all connections, then explained. A store without
statistics has the same plans at any size, so what is seen here on a few rows is what a hundred thousand get. Path locks
are found by the prefixes of their patterns: nobody who locks or checks a path looks at all of them.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from tests.unit.tracing import Tracing, table_of

HOT = {
    *("messages", "deliveries", "message_texts", "agents", "actors"),
    *("locks", "path_prefixes", "leases", "waiters", "tasks", "log", "records"),
}


class Step(NamedTuple):
    """A statement that an operation issued, and how SQLite goes about it."""

    sql: str
    plan: tuple[str, ...]

    @property
    def sorts(self) -> bool:
        """Whether rows are collected and sorted before the first is answered."""
        return any(line.startswith("USE TEMP B-TREE") for line in self.plan)

    @property
    def walks(self) -> list[str]:
        """The lines that go through a whole table, or through all events of a kind."""
        whole = re.compile(r"SEARCH \w+ USING .*INDEX records_name \(kind=\?(?: AND scope=\?)?\)")
        found = [line for line in self.plan if whole.fullmatch(line)]
        for line in self.plan:
            match = re.fullmatch(r"SCAN (\w+)(?: USING .*)?", line)
            if match and table_of(self.sql, match[1]) in HOT:
                found.append(line)
        return found


class Traced(Tracing):
    """A workspace with some mail, agents and locks, and what each operation made of it."""

    def __init__(self) -> None:
        super().__init__("ann")
        self.steps = {what: [Step(*each) for each in plans] for what, plans in self.plans.items()}

    def fill(self) -> None:
        ws = self.ws
        self.tasks = [ws.tasks.create(f"task {number}").id for number in range(4)]
        self.letters = [
            ws.mail.send(["ann", "bob"], f"letter {number}", "alpha", task=self.tasks[number % 4]).id
            for number in range(40)
        ]
        for id in self.letters[:10]:
            ws.mail.close(id)
        for number in range(10):
            ws.agents.register(f"agent-{number}")
            ws.paths.lock(f"src/{number}", holder=f"agent-{number}", ttl=3600)

    def run_all(self) -> None:
        ws, mail, letter = self.ws, self.ws.mail, self.letters[-1]
        filters: dict[str, dict[str, Any]] = {"": {}, " unread": {"unread": True}, " closed": {"closed": True}}
        for name, given in filters.items():
            page = self.during(f"inbox{name}", lambda given=given: mail.inbox(limit=5, **given))  # type: ignore[misc]
            self.during(f"inbox{name}", lambda given=given, page=page: mail.inbox(cursor=page.cursor, **given))  # type: ignore[misc]
        self.during("unread", mail.unread)
        self.during("sent", lambda: mail.sent(limit=5, cursor=mail.sent(limit=5).cursor))
        self.during("get", lambda: mail.get(letter))
        self.during("thread", lambda: mail.thread(letter))
        self.during("about", lambda: mail.about(self.tasks[0], cursor=mail.about(self.tasks[0], limit=2).cursor))
        self.during("search", lambda: mail.search("alpha", agent="bob"))
        self.during("history", lambda: mail.history(letter))
        self.during("send", lambda: mail.send("bob", "one more", task=self.tasks[0]))
        self.during("reply", lambda: mail.reply(letter, "so be it"))
        for step in ("ack", "action"):
            self.during(step, lambda step=step: getattr(mail, step)(letter))  # type: ignore[misc]
        self.during("close", lambda: mail.close(letter))
        self.during("register", lambda: ws.agents.register("cyd", can=["python"]))
        self.during("agents.get", lambda: ws.agents.get("cyd"))
        self.during("agents.list", lambda: ws.agents.list(prefix="agent", limit=5, after="agent-2"))
        self._run_paths()
        ws.tasks.claim(self.tasks[2])
        ws.paths.lock("c", task=self.tasks[2])
        self.during("resume", lambda: ws.tasks.resume(self.tasks[2]))
        self.during("complete", lambda: ws.tasks.complete(self.tasks[2]))

    def _run_paths(self) -> None:
        ws, paths = self.ws, self.ws.paths
        self.during("paths.check", lambda: paths.check("docs/a"))
        lock = self.during("lock", lambda: paths.lock("docs/**", ttl=60))
        self.during("refresh", lambda: paths.refresh(lock.id))
        self.during("paths.get", lambda: [paths.get(lock.id), paths.get("docs/**")])
        self.during("paths.list", lambda: [paths.list(path="docs/a"), paths.list(holder="ann"), paths.list(limit=2)])
        self.during("release", lambda: paths.release(lock.id))
        ws.tasks.claim(self.tasks[1], ttl=5)
        self.during("lock for a task", lambda: paths.lock("a", task=self.tasks[1]))
        self.during("release by task", lambda: paths.release(task=self.tasks[1]))
        paths.lock("b", task=self.tasks[1], ttl=60)
        self.during("sweep", self._sweep)
        assert paths.list(task=self.tasks[1]) == [], "the claim's end has not freed the lock"

    def _sweep(self) -> None:
        self.clock.advance(10)
        self.ws.transact(lambda tx: None)  # whose group begins with the sweep


PAGES = ["inbox", "inbox unread", "inbox closed", "sent", "thread", "about"]
OPERATIONS = [
    *PAGES,
    *("unread", "get", "search", "history", "send", "reply", "ack", "action", "close"),
    *("register", "agents.get", "agents.list"),
    *("paths.check", "lock", "refresh", "paths.get", "paths.list", "release"),
    *("lock for a task", "release by task", "sweep", "resume", "complete"),
]


@pytest.fixture(scope="module")
def traced() -> Traced:
    return Traced()


@pytest.mark.parametrize("what", OPERATIONS)
def test_no_statement_of_mail_agents_and_paths_walks_a_whole_table(traced: Traced, what: str) -> None:
    steps = traced.steps[what]
    assert any(line.startswith(("SEARCH", "SCAN")) for step in steps for line in step.plan), "nothing was traced"
    assert {step.sql: step.walks for step in steps if step.walks} == {}


@pytest.mark.parametrize("what", PAGES)
def test_a3_a_page_of_mail_sorts_nothing(traced: Traced, what: str) -> None:
    assert [step.sql for step in traced.steps[what] if step.sorts] == []


@pytest.mark.parametrize(("what", "index"), [("inbox", "open"), ("inbox unread", "unread")])
def test_a3_what_is_unread_or_open_has_an_index_of_its_own(traced: Traced, what: str, index: str) -> None:
    lines = [line for step in traced.steps[what] for line in step.plan]
    assert any(re.search(rf"INDEX deliveries_{index} \(agent=\?", line) for line in lines), lines


def test_a_walk_is_told_from_a_search() -> None:
    def walks(sql: str, *plan: str) -> bool:
        return bool(Step(sql, plan).walks)

    assert walks("SELECT 1 FROM messages", "SCAN messages")
    assert walks("SELECT 1 FROM deliveries d", "SCAN d USING INDEX deliveries_all")
    assert walks("SELECT 1 FROM events e", "SEARCH records USING INDEX records_name (kind=?)")
    assert walks("SELECT 1 FROM events e", "SEARCH records USING COVERING INDEX records_name (kind=? AND scope=?)")
    assert not walks("SELECT 1 FROM events e", "SEARCH records USING INDEX records_name (kind=? AND scope=? AND id=?)")
    assert not walks("SELECT 1 FROM messages m", "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)")
    assert not walks("SELECT stamp FROM meta", "SCAN meta")


def test_a3_what_is_unread_is_counted_without_walking_along_it(traced: Traced) -> None:
    assert [plan for sql, plan in traced.plans["unread"] if "mailboxes" in sql] == [
        ("SEARCH mailboxes USING INDEX sqlite_autoindex_mailboxes_1 (agent=?)",)
    ]


@pytest.mark.parametrize("what", ["paths.check", "lock", "paths.get", "lock for a task"])
def test_a5_path_locks_are_found_by_prefix_and_then_by_id(traced: Traced, what: str) -> None:
    steps = [step for step in traced.steps[what] if re.search(r"FROM locks k .*k\.kind = 'path'", step.sql)]
    lines = [line for step in steps for line in step.plan if line.startswith(("SEARCH k ", "SCAN k"))]
    assert lines
    assert all("(kind=? AND scope=? AND name=?)" in line for line in lines), lines
    prefixes = [line for step in steps for line in step.plan if "path_prefixes" in line or line.startswith("SEARCH p ")]
    assert prefixes
    assert all(re.search(r"PRIMARY KEY \(prefix[=>]", line) for line in prefixes), prefixes
