"""Many tasks in one call: each with its own result, or all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from holdfast import errors
from holdfast.domains.routing.config import Config
from holdfast.domains.routing.settings import settings_of
from holdfast.domains.tasks import steps
from holdfast.domains.tasks.creating import Placed, check_draft, insert_all, require_parent
from holdfast.domains.tasks.deleting import delete
from holdfast.domains.tasks.editing import add_tags, remove_tags, update
from holdfast.kernel.names import check_flag
from holdfast.kernel.tx import Tx
from holdfast.types.tasks import BulkItem, BulkResult

Action = Literal["create", "add_tags", "remove_tags", "set_priority", "close", "cancel", "delete"]
MAX_BULK: Final = 10_000
_REFUSED: Final = (errors.Invalid, errors.NotFound, errors.Conflict, errors.Forbidden, errors.TooLarge)
_FIELDS: Final = {"title", "body", "type", "priority", "parent_id", "tags", "grimoire_hint"}


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
    """Do the same to many tasks, or create many; answers what became of each.

    One that is refused leaves the others alone; with `atomic` it undoes all, and is raised. `close` also completes
    nobody's work: it closes blocked tasks, `cancel` open and blocked ones.
    """
    check_flag(atomic=atomic)
    items: Sequence[Any] = tasks if action == "create" else task_ids
    if isinstance(items, str) or not isinstance(items, Sequence):
        raise errors.Invalid(f"task_ids and tasks are lists, not {type(items).__name__}")
    if len(items) > MAX_BULK:
        raise errors.TooLarge(f"{len(items)} tasks in one call; {MAX_BULK} is the most", limit=MAX_BULK)
    if not items:
        raise errors.Invalid(f"{action} was given no tasks", hint="tasks=[...] to create, task_ids=[...] otherwise")
    if action == "create":
        return _create(tx, items, atomic)
    run = _action(action, tags, priority, reason)
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
            return lambda tx, id: steps.close(tx, id, reason).id
        case "cancel":
            return lambda tx, id: steps.cancel(tx, id, reason).id
        case "delete":
            return lambda tx, id: _deleted(tx, id, reason)
    raise errors.Invalid(
        f"{action!r} cannot be done in bulk",
        hint="create, add_tags, remove_tags, set_priority, close, cancel or delete",
    )


def _deleted(tx: Tx, id: str, reason: str | None) -> str:
    delete(tx, id, reason)
    return id


def _create(tx: Tx, specs: Sequence[Any], atomic: bool) -> BulkResult:
    """Check all, then make those that passed: nothing is written that would have to be taken back."""
    config = settings_of(tx).config
    results: list[BulkItem | None] = []
    drafts: list[Placed] = []
    for spec in specs:
        try:
            drafts.append(_draft(tx, spec, config))
            results.append(None)
        except _REFUSED as error:
            if atomic:
                raise
            results.append(BulkItem("", False, error.message, error.code))
    made = iter(insert_all(tx, drafts, config) if drafts else ())
    return BulkResult([BulkItem(next(made).id, True) if result is None else result for result in results])


def _draft(tx: Tx, spec: Any, config: Config) -> Placed:
    if not isinstance(spec, dict):
        raise errors.Invalid(f"a task to create is a dict of its fields, not {type(spec).__name__}")
    unknown = [str(name) for name in spec.keys() - _FIELDS]
    if unknown or "title" not in spec:
        problem = f"unknown: {', '.join(sorted(unknown))}" if unknown else "title is missing"
        raise errors.Invalid(f"a task cannot be made of this: {problem}", hint=f"fields: {', '.join(sorted(_FIELDS))}")
    given = {name: value for name, value in spec.items() if name not in ("parent_id", "grimoire_hint")}
    draft = check_draft(config, **given, hint=spec.get("grimoire_hint"))
    return Placed(draft, require_parent(tx, spec.get("parent_id")))
