"""Random edits of a workspace whose tasks are shared, and what all who have met must agree on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from holdfast import Workspace, errors
from holdfast.types.tasks import TaskStatus

_REFUSED = (errors.Invalid, errors.NotFound, errors.Conflict, errors.Forbidden)
# What is true in one workspace only.
_OWN = (
    "version",
    "revision",
    "updated_at",
    "token",
    "deadline",
    "claimed_by",
    "claimed_at",
    "grimoire",
    "origin",
    "waiting",
)


def lines_of(ws: Workspace) -> list[str]:
    """Every line, with what changed here since the last time."""
    ws.tasks.merge_shared()
    lines = list(page := ws.tasks.shared_lines())
    while page.cursor is not None:
        lines += (page := ws.tasks.shared_lines(after=page.cursor))
    return lines


def agreed(ws: Workspace) -> dict[str, Any]:
    """Every field of every live task that travels, and every template; of deleted tasks the lines say all."""
    tasks = {task.id: task for task in ws.tasks.list(status=list(_ALL), limit=1000)}
    found: dict[str, Any] = {}
    for task in tasks.values():
        fields = {name: getattr(task, name) for name in task.__struct_fields__ if name not in _OWN}
        links = {(link.kind, link.on) for link in ws.tasks.dependencies(task.id) if link.id == task.id}
        found[task.id] = fields | {"links": {link for link in links if link[1] in tasks}}
    templates = {name: ws.tasks.get_template(name) for name in ws.tasks.templates()}
    return found | {f"template {name}": (each.tree, each.parameters) for name, each in templates.items()}


def meet(*workspaces: Workspace) -> None:
    """Everybody stops work and reads the lines of all others."""
    for ws in workspaces:
        for task in ws.tasks.list(status="in_progress", limit=1000):
            ws.tasks.release(task.id)
    for _ in range(2):
        for source in workspaces:
            for target in workspaces:
                if source is not target:
                    target.tasks.merge_shared(lines_of(source))


_ALL: Final[tuple[TaskStatus, ...]] = ("open", "in_progress", "pending_merge", "blocked", "closed")


class Editor:
    """Somebody who changes anything, at random."""

    def __init__(self, ws: Workspace, name: str, rng: random.Random) -> None:
        self.ws = ws
        self.name = name
        self.rng = rng
        self.counts: dict[str, int] = {}

    def edit(self) -> bool:
        """One edit; False if it was refused, and changed nothing."""
        way = self.rng.choice(_WAYS)
        try:
            way(self, self.ws)
        except _REFUSED:
            self.counts["refused"] = self.counts.get("refused", 0) + 1
            return False
        self.counts[way.__name__] = self.counts.get(way.__name__, 0) + 1
        return True

    def one(self, deleted: bool = False) -> str:
        tasks = self.ws.tasks.list(status=list(_ALL), include_deleted=deleted, limit=1000)
        chosen = [task for task in tasks if deleted == (task.deleted_at is not None)]
        return self.rng.choice(chosen).id if chosen else self.ws.tasks.create("first").id

    def word(self) -> str:
        return f"{self.name} {self.rng.randrange(10**6)} é"


def _create(me: Editor, ws: Workspace) -> None:
    parent = me.one() if me.rng.random() < 0.3 else None
    tags = me.rng.sample(["a", "b", "c/d"], me.rng.randrange(3))
    ws.tasks.create(me.word(), me.word(), priority=me.rng.randrange(5), parent_id=parent, tags=tags)


def _adopt(me: Editor, ws: Workspace) -> None:
    """A task with an id that others choose too."""
    line = {"format": "holdfast.task/1", "id": f"t-{me.rng.randrange(6)}", "title": me.word()}
    ws.tasks.import_([json.dumps(line)])


def _update(me: Editor, ws: Workspace) -> None:
    what: Any = me.rng.choice(
        [{"title": me.word()}, {"body": me.word() * 9}, {"priority": me.rng.randrange(5)}, {"type": "bug"}]
    )
    ws.tasks.update(me.one(), **what)


def _tag(me: Editor, ws: Workspace) -> None:
    ws.tasks.set_tags(me.one(), me.rng.sample(["a", "b", "c/d", "e"], me.rng.randrange(4)))


def _claim(me: Editor, ws: Workspace) -> None:
    ws.tasks.claim(me.one())


def _finish(me: Editor, ws: Workspace) -> None:
    mine = ws.tasks.list(claimed_by="me", limit=1000)
    if mine:
        id = me.rng.choice(mine).id
        steps: list[Callable[..., Any]] = [ws.tasks.complete, ws.tasks.release, ws.tasks.block]
        me.rng.choice(steps)(id)


def _step(me: Editor, ws: Workspace) -> None:
    step: Callable[..., Any] = me.rng.choice([ws.tasks.close, ws.tasks.reopen, ws.tasks.unblock])
    step(me.one())


def _depend(me: Editor, ws: Workspace) -> None:
    ws.tasks.depend(me.one(), me.one(), me.rng.choice(["depends_on", "depends_on", "related"]))


def _undepend(me: Editor, ws: Workspace) -> None:
    id = me.one()
    for link in ws.tasks.dependencies(id):
        if link.id == id:
            ws.tasks.undepend(id, link.on, link.kind)
            break


def _reparent(me: Editor, ws: Workspace) -> None:
    ws.tasks.reparent(me.one(), me.rng.choice([None, me.one(), me.one()]))


def _delete(me: Editor, ws: Workspace) -> None:
    if me.rng.random() < 0.5:
        ws.tasks.delete(me.one())


def _restore(me: Editor, ws: Workspace) -> None:
    ws.tasks.restore(me.one(deleted=True))


def _purge(me: Editor, ws: Workspace) -> None:
    if me.rng.random() < 0.1:
        ws.tasks.purge(me.one(deleted=True))


def _refer(me: Editor, ws: Workspace) -> None:
    ws.tasks.add_ref(me.one(), f"branch-{me.rng.randrange(9)}")


def _defer(me: Editor, ws: Workspace) -> None:
    until = me.rng.choice([None, timedelta(days=400)])
    ws.tasks.defer(me.one(), None if until is None else ws.tasks.get(me.one()).created_at + until)


def _note(me: Editor, ws: Workspace) -> None:
    ws.tasks.note(me.one(), me.word())


def _undo(me: Editor, ws: Workspace) -> None:
    ws.undo(last=True)


def _template(me: Editor, ws: Workspace) -> None:
    name = me.rng.choice(["one", "two"])
    if me.rng.random() < 0.2:
        ws.tasks.delete_template(name)
    else:
        ws.tasks.set_template(name, {"title": me.word()})


_WAYS: list[Callable[[Editor, Workspace], None]] = [
    *(_create, _create, _adopt, _update, _update, _update, _tag, _claim, _claim, _finish, _finish, _step),
    *(_depend, _depend, _undepend, _reparent, _reparent, _delete, _restore, _purge, _refer, _defer, _template),
    *(_note, _undo, _undo),
]
