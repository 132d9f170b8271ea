"""Changing tasks: fields, notes and tags; deleting, restoring and purging; many in one call; retention.

Retention soft-deletes closed tasks after a while, and purges them some time after that. It runs by itself, at most once
a day, with the first commit after it is due: its timer is a lease, and its changes are a transaction of `system`. By
itself it acts only on time that has passed (`leases.patience`), and purges only what a backup has. A closed task stays
as long as a task below it does; a family that is retired together can be restored together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from holdfast import errors
from holdfast.domains import link_types
from holdfast.domains.routing.config import Config, settings_of
from holdfast.domains.tasks import claims, creation, rows, transitions
from holdfast.domains.tasks.claims import authorise, renew
from holdfast.domains.tasks.renames import edited, require_held
from holdfast.domains.tasks.tags import index_tags
from holdfast.domains.tasks.tree import below
from holdfast.kernel import idempotency, leases
from holdfast.kernel.events import redact
from holdfast.kernel.tx import Snapshot, Tx, unindex_text
from holdfast.kernel.validate import check_flag
from holdfast.operation import Do, Steps
from holdfast.route import LOADING
from holdfast.types.tasks import BulkItem, BulkResult, Retired, Task, TaskType


def _to_edit(tx: Tx, id: str, token: int | None) -> rows.Stored:
    """Return the task for a change by anybody; with a token, only for the holder of the current claim."""
    task = require_held(tx, id, token)
    if token is not None:
        authorise(tx, task, None, token, "edit")
    renew(tx, task)
    return task


def update(
    tx: Tx,
    id: str,
    title: str | None = None,
    body: str | None = None,
    priority: int | None = None,
    type: TaskType | None = None,
    grimoire_hint: str | None = None,
    expected: int | None = None,
    token: int | None = None,
) -> Task:
    """Change fields; omitted ones keep their values, and an empty `grimoire_hint` removes it.

    Raises VersionMismatch if the task is not at version `expected`. Equal values are not a change, and emit nothing.
    """
    config = settings_of(tx).config
    columns: dict[str, Any] = {}
    before = require_held(tx, id, token)
    if title is not None:
        columns["title"] = title if title == before.title else creation.check_title(title, config)
    if body is not None and body != before.body:
        creation.check_body(body, config)
    if priority is not None:
        columns["priority"] = creation.check_priority(priority)
    if type is not None:
        columns["type"] = creation.check_type(type)
    if grimoire_hint is not None:
        columns["hint"] = None if grimoire_hint == "" else creation.check_hint(grimoire_hint)
    task = _to_edit(tx, id, token)
    _expect(task, expected)
    columns = {name: value for name, value in columns.items() if getattr(task, name) != value}
    texts = {"title": columns["title"]} if "title" in columns else {}
    more = None
    if body is not None and body != task.body:
        texts["body"], more = body, {"body": (task.body, body)}
    if texts:
        rows.write_texts(tx, task.seq, **texts)
    if columns or more is not None:
        rows.change(tx, task, "update", columns, more=more)
    return edited(tx, rows.to_task(rows.by_seq(tx, task.seq)), id)


def _expect(task: rows.Stored, expected: int | None) -> None:
    if expected is None:
        return
    if type(expected) is not int or expected < 1:
        raise errors.Invalid(f"expected must be a version (1 or more), not {expected!r}")
    if task.version != expected:
        message = f"task {task.id} is at version {task.version}, expected {expected}"
        found = rows.to_task(task)
        raise errors.VersionMismatch(message, id=task.id, expected=expected, version=task.version, value=found)


def note(tx: Tx, id: str, text: str, token: int | None = None) -> Task:
    """Append a note to the task's history; searches find it. Raises Fenced if `token` is not the current one."""
    creation.check_note(text, "text")
    if not isinstance(text, str) or not text.strip():
        raise errors.InvalidValue("the note is empty", hint="write what the next agent should know")
    task = _to_edit(tx, id, token)
    row = tx.one("SELECT notes FROM task_texts WHERE seq = ?", (task.seq,))
    assert row is not None
    rows.write_texts(tx, task.seq, notes=f"{row[0]}\n{text}" if row[0] else text)
    rows.change(tx, task, "note", {}, note=text)
    return edited(tx, rows.to_task(rows.by_seq(tx, task.seq)), id)


def _retag(tx: Tx, task: rows.Stored, tags: set[str], op: str) -> Task:
    most = max(settings_of(tx).config.max_tags, len(task.tag_list))  # one with too many may still get fewer
    new = creation.check_tags(sorted(tags), most)
    if new != task.tag_list:
        rows.change(tx, task, op, {"tags": creation.stored_tags(new)}, more={"tags": (task.tag_list, new)})
    return rows.to_task(rows.require(tx, task.id))


def _given(tags: Sequence[str]) -> tuple[str, ...]:
    """At least one tag."""
    checked = creation.check_tags(tags, 10_000)
    if not checked:
        raise errors.InvalidTag("no tag was given", hint='such as tags=["backend"]')
    return checked


def add_tags(tx: Tx, id: str, tags: Sequence[str], token: int | None = None) -> Task:
    """Add tags to a task; those it has stay. Raises InvalidTag."""
    given = _given(tags)
    task = _to_edit(tx, id, token)
    return edited(tx, _retag(tx, task, {*task.tag_list, *given}, "add_tags"), id)


def remove_tags(tx: Tx, id: str, tags: Sequence[str], token: int | None = None) -> Task:
    """Remove tags from a task; tags it does not have are ignored. Raises InvalidTag."""
    given = _given(tags)
    task = _to_edit(tx, id, token)
    return edited(tx, _retag(tx, task, {*task.tag_list} - {*given}, "remove_tags"), id)


def set_tags(tx: Tx, id: str, tags: Sequence[str], token: int | None = None) -> Task:
    """Replace all tags of a task; an empty list removes them. Raises InvalidTag."""
    given = creation.check_tags(tags, 10_000)
    task = _to_edit(tx, id, token)
    return edited(tx, _retag(tx, task, {*given}, "set_tags"), id)


def _refuse_active(tx: Tx, task: rows.Stored, family: list[rows.Stored]) -> None:
    """Raise TaskActive or HasActiveChildren if any of these is being worked on."""
    if task.active:
        first, second = ("release", "complete") if task.status == "in_progress" else ("approve", "reject")
        hint = f'first tasks.{first}("{task.id}") or tasks.{second}("{task.id}")'
        if task.holder not in (None, tx.actor):
            hint = transitions.ask_holder(task)
        message = f"task {task.id} cannot be deleted: it is {task.status}"
        raise errors.TaskActive(message, hint=hint, id=task.id, status=task.status)
    working = [other for other in family if other.status in rows.ACTIVE]
    if working:
        active = [other.id for other in working]
        named = [f"{other.id} ({other.holder or other.status})" for other in working]
        message = f"tasks below task {task.id} are being worked on: {', '.join(named)}"
        hint = "finish or release these first, or ask those who hold them by mail"
        raise errors.HasActiveChildren(message, hint=hint, id=task.id, active_children=active)


def delete(tx: Tx, id: str, reason: str | None = None) -> int:
    """Soft-delete a task and all below it; `restore` can restore them. Returns how many. Raises TaskActive."""
    creation.check_note(reason, "reason")
    task = rows.require(tx, id)
    family = [rows.by_seq(tx, seq) for seq, _ in below(tx, task.seq)]
    _refuse_active(tx, task, family)
    for other in family:  # read again: it may have waited for the one before
        remove(tx, rows.by_seq(tx, other.seq), task.seq, reason if other.seq == task.seq else None)
    return len(family)


def remove(tx: Tx, task: rows.Stored, deletion: int, reason: str | None = None) -> None:
    """Mark one task as deleted, as part of the deletion of the task `deletion`."""
    columns = {"deleted": tx.now, "deletion": deletion}
    rows.change(tx, task, "delete", columns, more={"deleted": (False, True)}, note=reason)


def restore(tx: Tx, id: str) -> Task:
    """Restore a deleted task with those deleted together with it. Raises ParentNotFound if its parent is deleted."""
    task = rows.require(tx, id, deleted=True)
    if task.deleted is None:
        return rows.to_task(task)
    if task.parent is not None and rows.by_seq(tx, task.parent).deleted is not None:
        hint = f"restore {_root(tx, task).id} first"
        raise errors.ParentNotFound(f"the parent of {id} is deleted", hint=hint, id=id, parent_id=task.parent_id)
    for seq, _ in below(tx, task.seq, deleted=True):
        other = rows.by_seq(tx, seq)
        if other.deleted is not None and other.deletion == task.deletion:
            rows.change(tx, other, "restore", {"deleted": None, "deletion": None}, more={"deleted": (True, False)})
    return rows.to_task(rows.require(tx, id))


def _root(tx: Tx, task: rows.Stored) -> rows.Stored:
    """The highest deleted task above one."""
    while task.parent is not None and (above := rows.by_seq(tx, task.parent)).deleted is not None:
        task = above
    return task


def purge(tx: Tx, id: str) -> int:
    """Remove a task and all below it for good, and blank their events; returns how many. Cannot be undone."""
    task = rows.require(tx, id, deleted=True)
    family = [rows.by_seq(tx, seq) for seq, _ in below(tx, task.seq, deleted=True)]
    _refuse_active(tx, task, family)
    for other in reversed(family):  # children first
        erase(tx, rows.by_seq(tx, other.seq))
    idempotency.redact(tx, [other.id for other in family])
    return len(family)


def erase(tx: Tx, task: rows.Stored) -> None:
    """Remove one task without children: its row, texts, tags and links. The log keeps only that it existed."""
    if not task.finished:  # its dependents no longer wait
        remove(tx, task, task.seq)
        task = rows.by_seq(tx, task.seq)
    unindex_text(tx.run, "task_texts", task.seq)
    index_tags(tx, task, None)
    leases.drop(tx, rows.deferral(task), rows.DEFER)
    with LOADING:
        from holdfast.interchange import share_state

    share_state.forget(tx, task.seq)
    for table in ("task_texts", "task_imports", "tasks"):
        tx.run(f"DELETE FROM {table} WHERE seq = ?", (task.seq,))
    if task.parent is not None:
        rows.count_child(tx, task.parent, task, None)
    link_types.forget(tx, task.id, link_types.TYPES)
    redact(tx, rows.TASK, "", task.id)
    tx.emit_of(task.record, "purge", task.version + 1, None)


Action = Literal["create", "add_tags", "remove_tags", "set_priority", "close", "cancel", "delete"]
MAX_BULK: Final = 10_000
_REFUSED: Final = (errors.Invalid, errors.NotFound, errors.Conflict, errors.Forbidden, errors.TooLarge)
_FIELDS: Final = {"title", "body", "type", "priority", "parent_id", "tags", "grimoire_hint", "assigned_to"}


def bulk(
    tx: Tx,
    action: Action,
    task_ids: Sequence[str] = (),
    tasks: Sequence[dict[str, Any]] = (),
    tags: Sequence[str] = (),
    priority: int | None = None,
    reason: str | None = None,
    atomic: bool = False,
) -> BulkResult:
    """Apply one action to many tasks, or create many; returns the outcome of each.

    A task that fails does not affect the others; with `atomic` it undoes all, and raises.
    """
    check_flag(atomic=atomic)
    items: Sequence[Any] = tasks if action == "create" else task_ids
    if isinstance(items, str) or not isinstance(items, Sequence):
        name = "tasks" if action == "create" else "task_ids"
        raise errors.Invalid(f"{name} must be a list, not {type(items).__name__}")
    if len(items) > MAX_BULK:
        raise errors.TooLarge(f"{len(items)} tasks in one call; the maximum is {MAX_BULK}", limit=MAX_BULK)
    run = None if action == "create" else _action(action, tags, priority, reason)
    if not items:
        hint = 'give them: tasks=[{"title": "One"}]' if run is None else 'give their ids: task_ids=["hf-7k2q"]'
        raise errors.Invalid(f"{action} needs tasks", hint=hint)
    if run is None:
        return _create(tx, items, atomic)
    return BulkResult([_one(tx, run, item, atomic) for item in items])


def _one(tx: Tx, run: Callable[[Tx, Any], str], item: Any, atomic: bool) -> BulkItem:
    if atomic:
        return BulkItem(run(tx, item), True)
    try:
        with tx.savepoint():
            return BulkItem(run(tx, item), True)
    except _REFUSED as error:
        return BulkItem(item if isinstance(item, str) else "", False, error.message, error.code)


def _action(action: Action, tags: Sequence[str], priority: int | None, reason: str | None) -> Callable[[Tx, Any], str]:
    match action:
        case "add_tags":
            return lambda tx, id: add_tags(tx, id, tags).id
        case "remove_tags":
            return lambda tx, id: remove_tags(tx, id, tags).id
        case "set_priority":
            if priority is None:
                raise errors.InvalidPriority("set_priority needs a priority", hint="pass priority=0 to 4")
            return lambda tx, id: update(tx, id, priority=priority).id
        case "close":
            return lambda tx, id: claims.close(tx, id, reason).id
        case "cancel":
            return lambda tx, id: transitions.cancel(tx, id, reason).id
        case "delete":
            return lambda tx, id: _deleted(tx, id, reason)
    hint = "create, add_tags, remove_tags, set_priority, close, cancel or delete"
    raise errors.Invalid(f"{action!r} is not a bulk action", hint=hint)


def _deleted(tx: Tx, id: str, reason: str | None) -> str:
    delete(tx, id, reason)
    return id


def _create(tx: Tx, specs: Sequence[Any], atomic: bool) -> BulkResult:
    """Check all, then create those that passed: nothing is written that would have to be undone."""
    config = settings_of(tx).config
    results: list[BulkItem | None] = []
    drafts: list[creation.Placed] = []
    for spec in specs:
        try:
            drafts.append(_draft(tx, spec, config))
            results.append(None)
        except _REFUSED as error:
            if atomic:
                raise
            results.append(BulkItem("", False, error.message, error.code))
    made = iter(creation.insert_all(tx, drafts, config) if drafts else ())
    return BulkResult([BulkItem(next(made).id, True) if result is None else result for result in results])


def _draft(tx: Tx, spec: Any, config: Config) -> creation.Placed:
    if not isinstance(spec, dict):
        raise errors.Invalid(f"a task to create must be a dict of its fields, not {type(spec).__name__}")
    unknown = [str(name) for name in spec.keys() - _FIELDS]
    if unknown or "title" not in spec:
        problem = f"unknown fields: {', '.join(sorted(unknown))}" if unknown else "title is missing"
        raise errors.Invalid(f"the task cannot be created: {problem}", hint=f"fields: {', '.join(sorted(_FIELDS))}")
    given = {name: value for name, value in spec.items() if name not in ("parent_id", "grimoire_hint", "assigned_to")}
    draft = creation.check_draft(config, **given, hint=spec.get("grimoire_hint"), assignee=spec.get("assigned_to"))
    return creation.Placed(draft, creation.require_parent(tx, spec.get("parent_id")))


SLICE: Final = 200  # tasks in one transaction, so that nobody waits long
_SOON: Final = 1_000_000
_CLOSED = (
    "SELECT seq FROM tasks t INDEXED BY tasks_closed WHERE status = 'closed' AND deleted IS NULL AND updated <= ?1"
    " AND coalesce(imported, 0) <= ?1"
    " AND NOT EXISTS (SELECT 1 FROM tasks c WHERE c.parent = t.seq AND c.deleted IS NULL)"
    " ORDER BY updated, seq LIMIT ?2"
)
_DELETED = (
    "SELECT seq FROM tasks t INDEXED BY tasks_deleted WHERE deleted IS NOT NULL AND deleted <= ?1"
    " AND coalesce(imported, 0) <= ?1 AND NOT EXISTS (SELECT 1 FROM tasks c WHERE c.parent = t.seq)"
    " ORDER BY deleted, seq LIMIT ?2"
)


def sweep_retention(dry_run: bool = False) -> Steps[Retired]:
    """Delete and purge what is due now; with `dry_run` only count. It also runs by itself, once a day."""
    check_flag(dry_run=dry_run)
    part: Retired = yield Do(_try if dry_run else _part, keyed=True)
    done = part
    while not dry_run and part.deleted + part.purged >= SLICE:
        part = yield Do(_part)
        done = Retired(done.deleted + part.deleted, done.purged + part.purged)
    return done


def _part(tx: Tx) -> Retired:
    return retire(tx, SLICE)


def _try(tx: Tx) -> Retired:
    with tx.dry_run():
        return retire(tx, -1)


def retire(tx: Tx, limit: int, backed_up: int | None = None) -> Retired:
    """Delete and purge what is due, at most `limit` tasks (-1: all), though whole families; returns how many.

    With `backed_up`, purges only what was deleted before that time.
    """
    config = settings_of(tx).config
    purged = deleted = 0
    if config.soft_delete_days is not None:
        cutoff = tx.now - round(config.soft_delete_days * rows.DAY)
        cutoff = cutoff if backed_up is None else min(cutoff, backed_up - 1)  # and imported before that
        # Leaves first; their parents have become leaves when the query runs again.
        while (left := limit - purged) and (due := tx.all(_DELETED, (cutoff, left if limit > 0 else -1))):
            for (seq,) in due:
                erase(tx, rows.by_seq(tx, seq))
            purged += len(due)
            tx.report_progress("retention", purged)
    if config.retention_days is not None:
        cutoff = tx.now - round(config.retention_days * rows.DAY)
        stays: set[int] = set()
        while (left := limit - purged - deleted) > 0 or limit < 0:
            due = tx.all(_CLOSED, (cutoff, left if limit > 0 else -1))
            if not due:
                break
            for (seq,) in due:
                deleted += _retire_family(tx, seq, cutoff, stays)
            tx.report_progress("retention", purged + deleted)
    return Retired(deleted, purged)


_UNDUE_BELOW = (
    "WITH RECURSIVE below(seq) AS (SELECT ?1 UNION ALL"
    " SELECT c.seq FROM below JOIN tasks c ON c.parent = below.seq AND c.deleted IS NULL)"
    " SELECT 1 FROM below JOIN tasks t ON t.seq = below.seq WHERE t.status <> 'closed'"
    " OR max(t.updated, coalesce(t.imported, 0)) > ?2 LIMIT 1"
)


def _retire_family(tx: Tx, seq: int, cutoff: int, stays: set[int]) -> int:
    """Delete a closed task with the highest one above it of which everything below is due as well; returns how many.

    `stays` are tasks that are known not to be due with all below them.
    """
    top = rows.by_seq(tx, seq)
    if top.deleted is not None:
        return 0  # with its family
    while top.parent is not None and top.parent not in stays:
        if tx.one(_UNDUE_BELOW, (top.parent, cutoff)):
            stays.add(top.parent)
        else:
            top = rows.by_seq(tx, top.parent)
    family = [rows.by_seq(tx, each) for each, _ in below(tx, top.seq)]
    for task in family:
        remove(tx, rows.by_seq(tx, task.seq), top.seq)
    return len(family)


def end_lease(tx: Tx, lease: str, op: str) -> None:
    """Retire a part of what is due when the timer fires, and set it again while tasks remain."""
    if lease != rows.RETENTION:
        return
    wait = leases.patience(tx, tx.now, tx.wall_clock())
    part = Retired(0, 0) if wait else retire(tx, SLICE, tx.memo.get(leases.BACKED_UP, 0))
    if part.deleted + part.purged >= SLICE:
        rows.plan_retention(tx, _SOON)
    elif tx.one("SELECT 1 FROM tasks WHERE status = 'closed' AND deleted IS NULL LIMIT 1") or tx.one(
        "SELECT 1 FROM tasks WHERE deleted IS NOT NULL LIMIT 1"
    ):
        rows.plan_retention(tx, wait or leases.next_purge(tx, rows.DAY))


def doomed(snapshot: Snapshot, now: int, wall: int) -> int | None:
    """When the newest of the tasks was deleted that retention would purge now; see `leases.doomed`."""
    days = settings_of(snapshot).config.soft_delete_days
    if days is None or leases.patience(snapshot, now, wall):
        return None
    row = snapshot.one(
        "SELECT max(max(deleted, coalesce(imported, 0))) FROM tasks INDEXED BY tasks_deleted"
        " WHERE deleted IS NOT NULL AND deleted <= ?1 AND coalesce(imported, 0) <= ?1",
        (now - round(days * rows.DAY),),
    )
    return None if row is None else row[0]
