"""Durable increments of counter stashes by 64 tasks, against the same statements in a bare apsw loop."""

from __future__ import annotations

import asyncio
import os
import statistics
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast import Workspace
from tests.bench.baseline import EVENT, KEY, SETTINGS, Loop
from tests.bench.increments import GROUP, TASKS, spread, traced
from tests.bench.measure import Bench, Row, alternate, rate, ratio

COUNTERS = 1024
LOAD = (
    "SELECT s.id, s.name, s.type, s.value, s.version, s.trail, s.created, s.updated, s.revision, s.lease,"
    " k.holder, k.token, k.acquired, l.deadline, e.deadline, (SELECT stamp FROM meta) FROM"
    " stashes s LEFT JOIN locks k ON k.kind = 'stash-lock' AND k.scope = '' AND k.name = s.id"
    " LEFT JOIN leases l ON l.id = k.lease LEFT JOIN leases e ON e.id = s.lease"
    " WHERE s.id = ? AND s.deleted IS NULL"
)
UPDATE = (
    "UPDATE stashes SET version = ?, revision = ?, updated = ?,"
    " value = CASE type WHEN 'lock' THEN value ELSE ? END WHERE id = ?"
)


class StashLoop(Loop):
    """Increments existing counters by their ids: what a program would do that wrote the same rows by hand."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "")

    def _increment(self, cell: str, revision: int, now: int) -> None:
        execute = self._execute
        row: Any = execute(LOAD, (cell,)).fetchone()
        count = msgspec.msgpack.decode(row[3])["value"] + 1
        version = row[4] + 1
        data = msgspec.msgpack.encode({"value": count})
        execute(UPDATE, (version, revision, now, data, cell))
        entry = {"value": msgspec.Raw(data), "changed_by": None, "id": new_id(now)}
        encoded = msgspec.msgpack.encode(entry)
        key: Any = execute(KEY, ("stash", "", cell)).fetchone()
        execute(EVENT, (revision, 0, now, "bench", key[0], "increment", version, encoded))


def new_id(now: int) -> str:
    """A UUID v7, of a time in microseconds."""
    drawn = os.urandom(9).hex()
    text = f"{now // 1000:012x}7{drawn[:3]}8{drawn[3:]}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def run(bench: Bench) -> list[Row]:
    """64 tasks against 64 increments a commit, on counters that are all different within a group."""
    ours, mine = open_store(bench.folder / "ours")
    bare, theirs = open_store(bench.folder / "bare")
    bare.close()
    loop = StashLoop(str(bench.folder / "bare" / "holdfast.db"))
    count = bench.count(8000, GROUP) // GROUP * GROUP
    try:
        for line in compare(ours, mine, loop, theirs) or ["statements and settings are those of the baseline"]:
            bench.say(f"  {line}")
        with asyncio.Runner() as runner:
            figures = alternate(
                {
                    "bare, 64 a commit": lambda: rate(count, lambda: loop.in_groups(some(theirs, count), GROUP)),
                    "ours, 64 tasks": lambda: rate(count, lambda: runner.run(by_tasks(ours, some(mine, count)))),
                }
            )
    finally:
        ours.close()
        loop.close()
    for name, values in figures.items():
        bench.say(f"  {name:18} {statistics.median(values):9,.0f} increments/s  {spread(values)}")
    figure = ratio(figures["ours, 64 tasks"], figures["bare, 64 a commit"])
    return [Row("stashes", "64 tasks / bare, 64 a commit", figure, at_least=0.35)]


def open_store(folder: Path) -> tuple[Workspace, list[str]]:
    """A workspace in which every counter exists, and their ids."""
    workspace = holdfast.open(folder, actor="bench")
    made = workspace.transact(
        lambda tx: [tx.stashes.create(f"counter-{number:04}", "counter").id for number in range(COUNTERS)]
    )
    return workspace, made


def some(ids: list[str], count: int) -> list[str]:
    """So many, all different within any group."""
    return [ids[number % len(ids)] for number in range(count)]


async def by_tasks(workspace: Workspace, ids: list[str]) -> None:
    """Each task increments its share."""
    increment = workspace.aio.stashes.increment

    async def work(share: list[str]) -> None:
        for id in share:
            await increment(id)

    await asyncio.gather(*(work(ids[number::TASKS]) for number in range(TASKS)))


def compare(ours: Workspace, mine: list[str], loop: StashLoop, theirs: list[str]) -> list[str]:
    """What differs between our statements and settings and the baseline's, in words; nothing if they are the same."""
    writer = ours._engine.store.writer
    done = traced(writer, lambda: asyncio.run(by_tasks(ours, mine[:GROUP])))
    bare = traced(loop.connection, lambda: loop.in_groups(theirs[:GROUP], GROUP))
    found = []
    if done != bare:
        first = next((f"{a!r} / {b!r}" for a, b in zip(done, bare, strict=False) if a != b), "one is longer")
        found.append(f"NOT the same statements; ours {len(done)}, baseline {len(bare)}, first difference: {first}")
    for pragma in SETTINGS:
        if writer.pragma(pragma) != loop.connection.pragma(pragma):
            found.append(f"NOT the same setting: {pragma}")
    return found
