"""Changing what a task says: its fields, its notes, its tags. Anybody may; the holder's own changes renew its claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast import errors
from holdfast.domains.routing.settings import settings_of
from holdfast.domains.tasks.claims import check_token, renew
from holdfast.domains.tasks.creating import check_body, check_hint, check_priority, check_title, check_type
from holdfast.domains.tasks.rows import Stored, change, require, to_task, write_texts
from holdfast.domains.tasks.tags import check_tags, stored_tags
from holdfast.domains.tasks.texts import check_note
from holdfast.kernel.tx import Tx
from holdfast.types.tasks import Task, TaskType


def _to_edit(tx: Tx, id: str, token: int | None) -> Stored:
    """The task, for a change by anybody; with a token only for the holder of the live claim."""
    task = require(tx, id)
    if token is not None:
        check_token(task, token)
    renew(tx, task, token)
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
    """Change fields; what is not given stays, an empty `grimoire_hint` removes it. `expected` is the version meant.

    What is equal already is no change: no event, no new version.
    """
    config = settings_of(tx).config
    columns: dict[str, Any] = {}
    before = require(tx, id)
    if title is not None:
        columns["title"] = title if title == before.title else check_title(title, config)
    if body is not None and body != before.body:
        check_body(body, config)
    if priority is not None:
        columns["priority"] = check_priority(priority)
    if type is not None:
        columns["type"] = check_type(type)
    if grimoire_hint is not None:
        columns["hint"] = None if grimoire_hint == "" else check_hint(grimoire_hint)
    task = _to_edit(tx, id, token)
    _expect(task, expected)
    columns = {name: value for name, value in columns.items() if getattr(task, name) != value}
    more = None if body is None or body == task.body else {"body": (task.body, body)}
    if not columns and more is None:
        return to_task(require(tx, id))
    texts = {name: columns[name] for name in ("title",) if name in columns}
    if more is not None and body is not None:
        texts["body"] = body
    if texts:
        write_texts(tx, task.seq, **texts)
    change(tx, task, "update", columns, more=more)
    return to_task(require(tx, id))


def _expect(task: Stored, expected: int | None) -> None:
    if expected is None:
        return
    if type(expected) is not int or expected < 1:
        raise errors.Invalid(f"expected must be a version (1 or more), not {expected!r}")
    if task.version != expected:
        raise errors.VersionMismatch(
            f"task {task.id} is at version {task.version}, expected {expected}",
            id=task.id,
            expected=expected,
            version=task.version,
            value=to_task(task),
        )


def note(tx: Tx, id: str, text: str, token: int | None = None) -> Task:
    """Append a note to the task's history, where a search finds it too."""
    check_note(text, "text")
    if not isinstance(text, str) or not text.strip():
        raise errors.InvalidValue("the note is empty", hint="say what the next one should know")
    task = _to_edit(tx, id, token)
    row = tx.one("SELECT notes FROM task_texts WHERE seq = ?", (task.seq,))
    assert row is not None
    write_texts(tx, task.seq, notes=f"{row[0]}\n{text}" if row[0] else text)
    change(tx, task, "note", {}, note=text)
    return to_task(require(tx, id))


def _retag(tx: Tx, task: Stored, tags: set[str], op: str) -> Task:
    most = max(settings_of(tx).config.max_tags, len(task.tag_list))  # who has too many may still have fewer
    new = check_tags(sorted(tags), most)
    if new != task.tag_list:
        change(tx, task, op, {"tags": stored_tags(new)}, more={"tags": (task.tag_list, new)})
    return to_task(require(tx, task.id))


def _given(tx: Tx, tags: Sequence[str]) -> tuple[str, ...]:
    """At least one tag."""
    checked = check_tags(tags, 10_000)
    if not checked:
        raise errors.InvalidTag("no tag was given", hint='such as tags=["backend"]')
    return checked


def add_tags(tx: Tx, id: str, tags: Sequence[str], token: int | None = None) -> Task:
    """Add tags; those it has already stay."""
    given = _given(tx, tags)
    task = _to_edit(tx, id, token)
    return _retag(tx, task, {*task.tag_list, *given}, "add_tags")


def remove_tags(tx: Tx, id: str, tags: Sequence[str], token: int | None = None) -> Task:
    """Remove tags; those it has not do not matter."""
    given = _given(tx, tags)
    task = _to_edit(tx, id, token)
    return _retag(tx, task, {*task.tag_list} - {*given}, "remove_tags")


def set_tags(tx: Tx, id: str, tags: Sequence[str], token: int | None = None) -> Task:
    """Replace all tags; an empty list removes them."""
    given = check_tags(tags, 10_000)
    task = _to_edit(tx, id, token)
    return _retag(tx, task, {*given}, "set_tags")
