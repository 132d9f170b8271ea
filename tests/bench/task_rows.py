"""Stores full of tasks, written row by row without our operations: a million take a minute, not half an hour.

The rows are those that as many calls would leave; the smoke test has `ws.check()` look at a small one. Everything about
a task follows from its number, so that two stores of a size are alike:
    one in ten waits for another task, and has priority 0, better than any that is ready
    three in ten are closed
    the others are open and ready, with priorities 1 to 4 and one of a hundred tags
Whatever the size, ten ready tasks of the lowest priority have a tag of their own, and each of fifty words stands in
twenty tasks.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

import holdfast
from holdfast.ids import Ids

FIRST = 1_700_000_000_000_000  # when the first task was made, in microseconds
RARE, RARE_TASKS = "rare", 10
WORDS, HITS = [f"needle{number:02}" for number in range(50)], 20
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VOCABULARY = [
    f"{first}{second}" for first in ("ba", "de", "fi", "go", "ku", "la", "me", "no") for second in "bdfgklmn"
]
_CHUNK = 10_000
TASK = (
    "INSERT INTO tasks (seq, record, id, status, priority, waits, busy, children, ended, type, parent, depth,"
    " version, revision, created, updated, parked, hint, review, tags, title)"
    " VALUES (?, ?, ?, ?, ?, ?, 0, 0, 0, 'task', NULL, 0, ?, ?, ?, ?, 0, NULL, 0, ?, ?)"
)
TEXT = "INSERT INTO task_texts (seq, title, body, notes, refs) VALUES (?, ?, ?, '', '')"
TAG = "INSERT INTO task_tags (tag, priority, seq) VALUES (?, ?, ?)"
READY_TAG = "INSERT INTO ready_tags (tag, priority, seq) VALUES (?, ?, ?)"
RECORD = "INSERT INTO records (key, kind, scope, id) VALUES (?, 'task', '', ?)"
EVENT = (
    "INSERT INTO log (revision, position, time, actor, record, op, version, data) VALUES (?, ?, ?, 'bench', ?, ?, ?, ?)"
)
_encode = msgspec.msgpack.Encoder().encode


class Made(NamedTuple):
    """A task of such a store."""

    seq: int
    id: str
    status: str
    priority: int
    waits_for: int | None
    tags: tuple[str, ...]
    title: str
    body: str

    @property
    def ready(self) -> bool:
        """Whether it can be claimed."""
        return self.status == "open" and self.waits_for is None


class Plan:
    """What a store of `size` tasks holds; with `plain` all are open and ready."""

    def __init__(self, size: int, *, plain: bool = False) -> None:
        self.size = size
        self.plain = plain
        chance = random.Random(size)
        # Ready tasks have numbers that end in 4 to 9: some of the first thousand, moved apart as the size allows.
        ready = [seq for seq in range(1, min(size, 1000) + 1) if seq % 10 > 3]
        spread = max(1, size // 1000)
        self._rare = {min(size, seq * spread // 10 * 10 + seq % 10) for seq in chance.sample(ready, RARE_TASKS)}
        self._words: dict[int, str] = {}
        for word in WORDS:
            for seq in chance.sample(range(1, size + 1), HITS):
                self._words[seq] = f"{self._words.get(seq, '')} {word}"

    def task(self, seq: int) -> Made:
        """The task with this number."""
        bits = seq * 0x9E3779B97F4A7C15 % 2**64  # mixed, so that neighbours have little in common
        kind = 9 if self.plain else seq % 10
        words = [_VOCABULARY[bits >> place & 63] for place in range(0, 54, 6)]
        tags: tuple[str, ...] = (f"area/{bits >> 40 & 127:03}",)
        priority = 0 if kind == 0 else 1 + (bits >> 50) % 4
        if seq in self._rare and not self.plain:
            tags, priority = (*tags, RARE), 4
        return Made(
            seq,
            self.id(seq),
            "closed" if kind in (1, 2, 3) else "open",
            priority,
            self._blocker(seq) if kind == 0 else None,
            tags,
            " ".join(words[:3]),
            " ".join(words[3:]) + self._words.get(seq, ""),
        )

    def _blocker(self, seq: int) -> int:
        return seq - 5  # which is open

    def id(self, seq: int) -> str:
        """A short id, as random as ours, and no other's: multiplying by an odd number is one to one."""
        bits = seq * 0x2545F491 % 2**30
        return "hf-" + "".join(_ALPHABET[bits >> 5 * place & 31] for place in range(6))


def make_store(folder: Path, plan: Plan) -> str:
    """A store with these tasks; answers the path of its file."""
    holdfast.open(folder, actor="bench").close()
    path = str(folder / "holdfast.db")
    connection = apsw.Connection(path)
    for pragma, value in (("journal_mode", "off"), ("synchronous", 0), ("cache_size", -1_000_000)):
        connection.pragma(pragma, value)
    with connection:
        for start in range(1, plan.size + 1, _CHUNK):
            for sql, rows in statements(plan, range(start, min(start + _CHUNK, plan.size + 1))):
                connection.executemany(sql, rows)
        connection.execute("INSERT INTO tasks_fts (tasks_fts) VALUES ('rebuild')")
        connection.execute("UPDATE meta SET revision = ?, stamp = ?", (plan.size, FIRST + plan.size))
    connection.pragma("journal_mode", "wal")
    connection.close()
    return path


def statements(plan: Plan, numbers: range) -> Iterator[tuple[str, Iterable[tuple[Any, ...]]]]:
    """What fills each table but the search index with the tasks of these numbers."""
    tasks = [plan.task(seq) for seq in numbers]
    yield TASK, map(_task_row, tasks)
    yield TEXT, ((task.seq, task.title, task.body) for task in tasks)
    for sql, which in ((TAG, tasks), (READY_TAG, [task for task in tasks if task.ready])):
        yield sql, ((tag, task.priority, task.seq) for task in which for tag in task.tags)
    ids = Ids()
    links = (
        (task.id, plan.id(task.waits_for), ids.new(FIRST + task.seq), FIRST + task.seq)
        for task in tasks
        if task.waits_for is not None
    )
    yield "INSERT INTO links (kind, source, target, id, created) VALUES ('depends_on', ?, ?, ?, ?)", links
    yield RECORD, ((task.seq, task.id) for task in tasks)
    yield EVENT, (event for task in tasks for event in _events(task))


def _task_row(task: Made) -> tuple[Any, ...]:
    seq, time = task.seq, FIRST + task.seq
    waits, version = int(task.waits_for is not None), 1 + (task.status == "closed")
    tags = msgspec.json.encode(task.tags).decode()
    return seq, seq, task.id, task.status, task.priority, waits, version, seq, time, time, tags, task.title


def _events(task: Made) -> Iterator[tuple[Any, ...]]:
    """Each task is a revision of its own; one that is closed was so at once."""
    seq, time = task.seq, FIRST + task.seq
    yield seq, 0, time, seq, "create", 1, created(task)
    if task.status == "closed":
        yield seq, 1, time, seq, "close", 2, _encode({"status": ("open", "closed")})


def created(task: Made) -> bytes:
    """What the event of a creation says."""
    return _encode(
        {
            "status": (None, "open"),
            "title": (None, task.title),
            "body": (None, task.body),
            "type": (None, "task"),
            "priority": (None, task.priority),
            "tags": (None, task.tags),
        }
    )
