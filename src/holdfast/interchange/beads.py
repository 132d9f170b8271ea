"""Issues of beads (`issues.jsonl`) as records that can be imported.

Texts become sections of the body, labels tags, dependencies links and parents, comments and the reason for closing
notes. Fields that tasks do not have are kept as JSON in a note, with a warning that names them. Nothing is dropped.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config
from holdfast.domains.tasks.creation import TYPES, check_draft, check_note, check_priority, check_tag, check_title
from holdfast.interchange.jsonl import Time, moment
from holdfast.interchange.task_export import NO_FIELD, Note, Record, past_of
from holdfast.kernel.validate import check_name
from holdfast.types.tasks import LinkKind, TaskStatus, TaskType

_SECTIONS: Final = {"design": "Design", "acceptance_criteria": "Acceptance criteria", "notes": "Notes"}
_STATUSES: Final[dict[str, TaskStatus]] = {
    "open": "open",
    "in_progress": "open",
    "hooked": "open",  # held by an agent too
    "blocked": "blocked",
    "closed": "closed",
}
_LINKS: Final[dict[str, LinkKind]] = {
    "blocks": "depends_on",
    "discovered-from": "discovered_from",
    "related": "related",
}


class Gone(Exception):
    """The issue was deleted in beads."""


class Issue(msgspec.Struct, frozen=True):
    """The fields that become part of a task; `assignee` only helps, and is kept in a note."""

    id: str
    title: str
    description: str = ""
    design: str = ""
    acceptance_criteria: str = ""
    notes: str = ""
    status: str = "open"
    priority: int = 2
    issue_type: str = "task"
    labels: tuple[str, ...] = ()
    dependencies: tuple[dict[str, Any], ...] = ()
    comments: tuple[dict[str, Any], ...] = ()
    created_at: Time | None = None
    created_by: str = ""
    updated_at: Time | None = None
    close_reason: str = ""
    closed_at: Time | None = None
    assignee: str = ""


class Dependency(msgspec.Struct, frozen=True):
    """`issue_id` waits for `depends_on_id`, or is related to it."""

    depends_on_id: str
    type: str = "blocks"
    issue_id: str | None = None


class Comment(msgspec.Struct, frozen=True):
    """A comment on an issue."""

    text: str
    author: str = ""
    created_at: Time | None = None


_USED: Final = {*Issue.__struct_fields__} - {"assignee"}


def read_issue(raw: dict[str, Any], config: Config) -> Record:
    """The record of an issue. Raises Gone for one that was deleted in beads."""
    if "title" not in raw:
        raise errors.Invalid('the field "title" is missing')
    if raw.get("status") != "tombstone":
        check_title(raw["title"], config)
        check_priority(raw.get("priority", 2))
    issue = msgspec.convert(raw, Issue)
    if issue.status == "tombstone":
        raise Gone
    left = {name: value for name, value in raw.items() if name not in _USED}
    record = Record(
        issue.id,
        check_draft(config, issue.title, _body(issue), _type(issue, left), issue.priority, _tags(issue, left)),
        _STATUSES.get(issue.status, "blocked"),
        parent_id=None,
        links={"depends_on": (), "discovered_from": (), "related": ()},
        created=moment(issue.created_at, "created_at"),
        updated=moment(issue.updated_at, "updated_at"),
        origin=past_of(issue.created_by or None, issue.updated_at, issue.closed_at),
    )
    if issue.status in ("in_progress", "hooked"):
        record.claim = (issue.assignee, f"in progress in beads{issue.assignee and f', assigned to {issue.assignee}'}")
    _link(record, issue, left)
    _comment(record, issue, left)
    record.keep(left, NO_FIELD)
    if issue.status not in _STATUSES:  # such as `deferred`: blocked, so that nobody claims the task by mistake
        record.keep({"status": issue.status}, f"tasks have no status {issue.status!r}, so the task is blocked")
    return record


def _body(issue: Issue) -> str:
    """The description, then the other texts under headings."""
    parts = [issue.description]
    parts += [f"## {title}\n\n{text}" for name, title in _SECTIONS.items() if (text := getattr(issue, name))]
    return "\n\n".join(part for part in parts if part)


def _type(issue: Issue, left: dict[str, Any]) -> TaskType:
    for known in TYPES:
        if known == issue.issue_type:
            return known
    left["issue_type"] = issue.issue_type
    return "task"


def _tags(issue: Issue, left: dict[str, Any]) -> list[str]:
    """The labels that can be tags."""
    tags = []
    for label in issue.labels:
        try:
            tags.append(check_tag(label))
        except errors.InvalidTag:
            left.setdefault("labels", []).append(label)
    return tags


def _link(record: Record, issue: Issue, left: dict[str, Any]) -> None:
    """Dependencies become links and the parent. One with further fields (most have a date) is also kept in a note."""
    found: dict[LinkKind, set[str]] = {kind: set() for kind in record.links}
    for number, raw in enumerate(issue.dependencies):
        one = _part(raw, Dependency, f"dependencies[{number}]")
        if one.issue_id not in (None, issue.id):
            raise errors.Invalid(f"dependencies[{number}] belongs to {one.issue_id!r}")
        if one.type == "parent-child" and record.parent_id in (None, one.depends_on_id):
            record.parent_id = one.depends_on_id
        else:
            found[_LINKS.get(one.type, "related")].add(one.depends_on_id)
            if one.type not in _LINKS:
                why = "a second parent" if one.type == "parent-child" else f"a dependency of type {one.type!r}"
                record.warnings.append(f"{why} is imported as related: {one.depends_on_id}")
        if raw.keys() - {*Dependency.__struct_fields__} or one.type not in (*_LINKS, "parent-child"):
            left.setdefault("dependencies", []).append(raw)
    record.links = {kind: tuple(sorted(targets)) for kind, targets in found.items()}


def _comment(record: Record, issue: Issue, left: dict[str, Any]) -> None:
    """Comments and the reason for closing become notes, with their own time and author where known."""
    for number, raw in enumerate(issue.comments):
        one = _part(raw, Comment, f"comments[{number}]")
        record.notes.append(
            Note(
                _text(one.text, f"comments[{number}]"), moment(one.created_at, "created_at"), _author(one.author), True
            )
        )
        rest = {name: value for name, value in raw.items() if name not in Comment.__struct_fields__}
        if rest.pop("issue_id", issue.id) != issue.id:
            raise errors.Invalid(f"comments[{number}] belongs to {raw['issue_id']!r}")
        if rest:
            left.setdefault("comments", []).append(rest)
    if issue.close_reason:
        closed = moment(issue.closed_at, "closed_at")
        record.notes.append(
            Note(_text(issue.close_reason, "close_reason"), closed, foreign=True)
        )  # by nobody knows whom


def _part(raw: dict[str, Any], kind: Any, what: str) -> Any:
    try:
        return msgspec.convert({name: value for name, value in raw.items() if value is not None}, kind)
    except msgspec.ValidationError as error:
        raise errors.Invalid(f"{what}: {error}") from error


def _text(text: str, what: str) -> str:
    check_note(text, what)
    return text


def _author(name: str) -> str | None:
    if not name:
        return None
    check_name(name, "author")
    return name
