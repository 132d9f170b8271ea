"""Random steps on tasks, cells and stashes, each undone and redone: all is equal but for versions, times and holds.

A step is one transaction, or several operations in one. What may not be undone is known by its name; nothing else may
be refused, because nobody writes in between. Now and then a step stays done, so that tasks are held and time passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.testing import ManualClock
from tests.amounts import seeds

STEPS = 250  # of one seed
HELD = {"version", "revision", "updated_at", "claimed_by", "claimed_at", "token", "deadline", "parked", "waiting"}
REFUSED = (errors.Invalid, errors.Conflict, errors.NotFound, errors.Forbidden)
NEVER = {"release", "block", "park", "note"}  # end or change a hold, or say something
AGENTS = ("ann", "bob")
STAYS = {"claim", "complete", "block"}  # half of these, for what can only follow them
Step = Callable[[Any], Any]


class Undoing:
    """One workspace, its random steps, and how often each operation was undone."""

    def __init__(self, folder: Path, seed: int, undone: Counter[str]) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.strict = seed % 2 == 0
        if self.strict:
            (folder / "config.yaml").write_text("parents: strict\n")
        self.ws = holdfast.open(folder, actor="ann", clock=self.clock)
        self.undone = undone
        self.ids = [self.ws.tasks.create(f"first {number}").id for number in range(4)]
        self.stashes = [self.ws.stashes.create("count", "counter").id, self.ws.stashes.create("plan", "context").id]
        self.ws.tasks.set_template("plan", {"title": "root", "children": [{"title": "one"}, {"title": "two"}]})

    # --- what there is -----------------------------------------------------------------------------------------------

    def seen(self) -> dict[str, Any]:
        """Everything that an undo gives back; a task that somebody holds is one that is open."""
        found: dict[str, Any] = {}
        for task in self.tasks():
            fields = {name: getattr(task, name) for name in task.__struct_fields__ if name not in HELD}
            fields["status"] = "open" if task.status == "in_progress" else task.status
            found[task.id] = {**fields, "deleted_at": task.deleted_at is not None}
        links = "SELECT kind, source, target FROM links ORDER BY kind, source, target"
        found["links"] = self.ws._engine.read_snapshot(lambda snapshot: snapshot.all(links))
        for cell in self.ws.cells.list("run"):
            found[f"cell {cell}"] = self.ws.cells.get("run", cell).value
        return {**found, **{id: self.ws.stashes.get(id).value for id in self.stashes}}

    def tasks(self) -> list[Any]:
        """All of them, also deleted ones."""
        return list(self.ws.tasks.list(include_deleted=True, limit=1000))

    def live(self, *statuses: str) -> Any:
        """A task, of one of these statuses if there is any."""
        fitting = [task.id for task in self.tasks() if task.deleted_at is None and task.status in statuses]
        return self.random.choice(fitting or self.ids)

    # --- steps -------------------------------------------------------------------------------------------------------

    def operation(self) -> tuple[str, Step]:
        """A random operation on a workspace or a transaction."""
        draw = self.random
        one, other = self.live("open", "blocked"), draw.choice(self.ids)
        open_, held, closed = self.live("open"), self.live("in_progress"), self.live("closed")
        blocked, pending = self.live("blocked"), self.live("pending_merge")
        number, tags = draw.randrange(100), draw.sample(["api", "web", "area/web"], draw.randrange(3))
        link = draw.choice(["depends_on", "depends_on", "related", "discovered_from"])
        until = self.ws.tasks.get(self.ids[0], include_deleted=True).created_at + timedelta(days=number + 1)
        parent = draw.choice([None, other])
        more = {"parent_id": parent, "depends_on": [one] if number % 3 else []}
        agent = draw.choice(AGENTS)
        steps: dict[str, Step] = {
            "create": lambda ws: ws.tasks.create(f"task {number}", "text", tags=tags, priority=number % 5, **more),
            "from_template": lambda ws: ws.tasks.from_template("plan", parent_id=parent),
            "bulk": lambda ws: ws.tasks.bulk("set_priority", task_ids=[one, other], priority=number % 5),
            "bulk_create": lambda ws: ws.tasks.bulk("create", tasks=[{"title": "x"}, {"title": "y", "tags": tags}]),
            "update": lambda ws: ws.tasks.update(one, title=f"title {number}", body=f"body {number % 3}"),
            "set_tags": lambda ws: ws.tasks.set_tags(one, tags),
            "note": lambda ws: ws.tasks.note(one, "said"),
            "claim": lambda ws: ws.tasks.claim(open_, agent, ttl=60),
            "complete": lambda ws: ws.tasks.complete(
                held, ws.tasks.get(held).claimed_by or "ann", review=not number % 3, force=True
            ),
            "release": lambda ws: ws.tasks.release(held, force=True),
            "block": lambda ws: ws.tasks.block(held, ws.tasks.get(held).claimed_by or "ann"),
            "park": lambda ws: ws.tasks.park(held, agent=ws.tasks.get(held).claimed_by or "ann"),
            "close": lambda ws: ws.tasks.close(one, force=True),
            "cancel": lambda ws: ws.tasks.cancel(one, cascade=bool(number % 2)),
            "reopen": lambda ws: ws.tasks.reopen(closed),
            "unblock": lambda ws: ws.tasks.unblock(blocked),
            "approve": lambda ws: ws.tasks.approve(pending, force=True),
            "reject": lambda ws: ws.tasks.reject(pending),
            "assign": lambda ws: ws.tasks.assign(one, draw.choice([None, agent])),
            "defer": lambda ws: ws.tasks.defer(one, draw.choice([None, until])),
            "add_ref": lambda ws: ws.tasks.add_ref(one, f"branch-{number % 7}"),
            "remove_ref": lambda ws: ws.tasks.remove_ref(one, f"branch-{number % 7}"),
            "reparent": lambda ws: ws.tasks.reparent(other, draw.choice([None, one])),
            "depend": lambda ws: ws.tasks.depend(one, other, link),
            "undepend": lambda ws: ws.tasks.undepend(one, other, link),
            "delete": lambda ws: ws.tasks.delete(one),
            "restore": lambda ws: ws.tasks.restore(other),
            "cells.set": lambda ws: ws.cells.set("run", tags[0] if tags else "a", number),
            "cells.delete": lambda ws: ws.cells.delete("run", "a"),
            "cells.delete_run": lambda ws: ws.cells.delete_run("run"),
            "cells.increment": lambda ws: ws.cells.increment("run", "count", number),
            "stashes.increment": lambda ws: ws.stashes.increment(self.stashes[0], number),
            "stashes.set": lambda ws: ws.stashes.set_value(self.stashes[1], {"n": number}),
        }
        return draw.choice([*steps.items()])

    def step(self) -> None:
        """Some operations in one transaction, undone and redone."""
        chosen = [self.operation() for _ in range(self.random.choice((1, 1, 1, 2, 4)))]
        names = {name for name, _ in chosen}
        before, revision = self.seen(), self.revision()
        try:
            self.ws.transact(lambda tx: [call(tx) for _, call in chosen] and None)
        except REFUSED:
            assert self.revision() == revision
            return
        if self.revision() == revision:
            return
        for event in self.ws.events.list(kinds=["task"], after=revision):
            if event.id not in self.ids:
                self.ids.append(event.id)
        after = self.seen()
        if self.random.randrange(2 if names & STAYS else 5) == 0:
            return
        try:
            undone = self.ws.undo(last=True)
        except errors.NotUndoable:
            assert names & NEVER or after == before, (names, "cannot be undone")
            return
        now = self.seen()
        made = {name for name in now.keys() - before.keys() if now[name]["deleted_at"]}
        assert {name: row for name, row in now.items() if name not in made} == before, names
        if any("claimed_by" in reverted.changes for reverted in undone.records):
            with pytest.raises(errors.NotUndoable, match="it ended a hold"):
                self.ws.undo(undone.revision)
            return
        self.ws.undo(undone.revision)
        assert self.seen() == after, names
        self.undone.update(names)

    def revision(self) -> int:
        """The newest revision."""
        return self.ws.status().revision


@pytest.mark.early
@pytest.mark.timeout(1200)
def test_each_step_is_undone_and_redone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    undone: Counter[str] = Counter()
    tried = seeds(2, 80)
    for seed in tried:
        folder = tmp_path / str(seed)
        folder.mkdir()
        machine = Undoing(folder, seed, undone)
        for number in range(STEPS):
            machine.step()
            if number % 25 == 0:
                machine.clock.advance(machine.random.choice((1, 30, 3000)))
                machine.ws.tasks.list(limit=1)
                assert machine.ws.check().problems == []
        assert machine.ws.check().problems == []
        machine.ws.close()
    with capsys.disabled():
        print(f"\nundone and redone: {undone.total()} in {STEPS * len(tried)} steps; {dict(undone)}")
    assert undone.total() > STEPS * len(tried) // 8
