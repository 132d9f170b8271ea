"""Issues of beads (`issues.jsonl`), both ways: as records that can be imported, and tasks as issues that beads reads.

Texts become sections of the body, labels tags, dependencies links and parents, comments and the reason for closing
notes. Fields that tasks do not have are kept as JSON in a note, with a warning that names them. Nothing is dropped, and
an export puts it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config
from holdfast.domains.tasks.creation import TYPES, check_draft, check_note, check_priority, check_tag, check_title
from holdfast.domains.tasks.rows import WAITING
from holdfast.interchange.jsonl import Time, moment
from holdfast.interchange.task_export import NO_FIELD, OP, Note, NoteLine, Record, TaskLine, kept_in, note_of, past_of
from holdfast.kernel.validate import check_name
from holdfast.types import Event
from holdfast.types.tasks import LinkKind, TaskStatus, TaskType
from holdfast.wire import escape_controls

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
_CLAIMED: Final = "in progress in beads"
_HOOKED: Final = f"{_CLAIMED} (hooked)"
# With which status a task has of its own what an issue of another status may have too.
_CLOSED: Final = {"defer_until": None, "closed_at": "closed", "close_reason": "closed"}


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
    defer_until: Time | None = None


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
    if raw.get("status") == "tombstone":
        raise Gone
    if "title" not in raw:
        raise errors.Invalid('the field "title" is missing')
    check_title(raw["title"], config)
    check_priority(raw.get("priority", 2))
    issue = msgspec.convert(raw, Issue)
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
        how = _HOOKED if issue.status == "hooked" else _CLAIMED
        record.claim = (issue.assignee, f"{how}{issue.assignee and f', assigned to {issue.assignee}'}")
    status = _wait(record, issue, raw, left)
    _keep_end(issue, raw, left)
    _keep_sections(issue, left)
    _link(record, issue, left)
    _comment(record, issue, left)
    record.keep(left, NO_FIELD)
    if status not in _STATUSES:  # such as `deferred`: blocked, so that nobody claims the task by mistake
        record.keep({"status": issue.status}, f"tasks have no status {issue.status!r}, so the task is blocked")
    return record


def _wait(record: Record, issue: Issue, raw: dict[str, Any], left: dict[str, Any]) -> str:
    """Defer a task that may wait, and keep what a deferral alone does not say; returns the status that it counts as."""
    status = issue.status
    if issue.defer_until is None:
        return status
    if record.status not in WAITING or record.claim is not None:
        left["defer_until"] = raw["defer_until"]
        return status
    record.deferred = moment(issue.defer_until, "defer_until")
    over, coming = {"defer_until": raw["defer_until"]}, {}
    if status == "deferred":
        record.status = "open"
        over["status"] = status
    elif status == "open":
        coming["status"] = status  # a task that is deferred becomes an issue that is
    record.waited = over, coming
    return record.status if status == "deferred" else status


def _keep_end(issue: Issue, raw: dict[str, Any], left: dict[str, Any]) -> None:
    """Keep when and why an issue was closed that is open again."""
    if issue.status != "closed":
        left |= {name: raw[name] for name in ("closed_at", "close_reason") if raw.get(name)}


def _body(issue: Issue) -> str:
    """The description, then the other texts under headings."""
    parts = [issue.description]
    parts += [f"## {title}\n\n{text}" for name, title in _SECTIONS.items() if (text := getattr(issue, name))]
    return "\n\n".join(part for part in parts if part)


def _keep_sections(issue: Issue, left: dict[str, Any]) -> None:
    """Keep which texts there were, if the headings of the body alone would say something else."""
    texts = {name: text for name in ("description", *_SECTIONS) if (text := getattr(issue, name))}
    found = split_body(_body(issue), [*_SECTIONS])
    if {name: text for name, text in found.items() if text} != texts:
        left["sections"] = [name for name in _SECTIONS if name in texts]


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
    if issue.close_reason and issue.status == "closed":
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


# --- export ----------------------------------------------------------------------------------------------------------

_PARENT: Final = "parent-child"
_KINDS: Final = {ours: theirs for theirs, ours in _LINKS.items()}
_OURS: Final = ("create", OP)  # the events of a task that nobody has changed here
_dump = msgspec.json.Encoder(order="deterministic").encode


def write_issue(line: str, past: Sequence[Event]) -> str:
    """The issue of a task, as beads reads it, from its line of an export and its events, oldest first.

    What an import has kept in a note goes back to its place, unless that has changed here.
    """
    task = msgspec.json.decode(line, type=TaskLine)
    kept = _kept(past)
    untouched = all(event.op in _OURS for event in past)
    closed_at, reason = _end(task, past)
    texts = split_body(task.body, kept.pop("sections", [*_SECTIONS]))
    issue: dict[str, Any] = {"id": task.id, "title": task.title, **texts}
    issue |= {"status": _status(task, past, kept, untouched), "priority": task.priority}
    issue["issue_type"] = kept.pop("issue_type", "task") if task.type == "task" else task.type
    holder = task.claimed_by or task.assigned_to
    if holder is not None:
        issue["assignee"] = holder
    issue |= {"created_at": task.created_at, "updated_at": task.updated_at, "closed_at": closed_at}
    issue |= {"close_reason": reason, "labels": sorted({*task.tags, *kept.pop("labels", ())})}
    if task.origin is not None and task.origin.created_by is not None:
        issue["created_by"] = task.origin.created_by
    if task.deleted_at is not None:
        issue |= {"status": "tombstone", "deleted_at": task.deleted_at}
    if task.status in WAITING and task.deferred_until is not None:
        issue["defer_until"] = task.deferred_until
    for name in ("defer_until", "closed_at", "close_reason"):  # what an issue of that status need not have
        if (value := kept.pop(name, None)) is not None and issue.get(name) is None and task.status != _CLOSED[name]:
            issue[name] = value
    issue["dependencies"] = _dependencies(task, kept)
    issue["comments"] = [
        {"issue_id": task.id, "author": note.by or "", "text": note.text, "created_at": note.at}
        for note in _comments(past)
        if (note.text, note.at) != (reason, closed_at)
    ]
    issue |= {name: value for name, value in kept.items() if name not in {*issue, *_USED, "status"}}
    said = {name: value for name, value in issue.items() if value is not None and value not in ("", [])}
    return escape_controls(_dump(said).decode())


def split_body(body: str, sections: Sequence[str]) -> dict[str, str]:
    """The description and the texts of these sections of a body, if joined they are the body again."""
    texts: dict[str, Any] = {}
    rest = body
    for name, title in reversed(_SECTIONS.items()):
        before, found, text = f"\n\n{rest}".rpartition(f"\n\n## {title}\n\n")
        if name in sections and found and text:
            texts[name], rest = text, before[2:]
    texts["description"] = rest
    return texts if _body(Issue("", "", **texts)) == body else {"description": body}


def _status(task: TaskLine, past: Sequence[Event], kept: dict[str, Any], untouched: bool) -> str:
    theirs = kept.pop("status", None)
    if task.status == "blocked" and theirs is not None:
        return str(theirs)
    if task.status == "pending_merge":
        return "in_progress"
    if task.status == "open" and task.deferred_until is not None:
        return "open" if theirs == "open" else "deferred"
    if task.status == "open" and untouched:  # as it is in beads: nobody here has begun
        claim = next((event.data["note"] for event in reversed(past) if _is_claim(event)), None)
        return str(theirs or _held(claim))
    return task.status


def _held(claim: str | None) -> str:
    """The status in beads that an import said in its note."""
    return "open" if claim is None else "hooked" if claim.startswith(_HOOKED) else "in_progress"


def _is_claim(event: Event) -> bool:
    """Whether this is the note by which an import says that somebody worked on the issue."""
    return event.op == OP and "author" not in event.data and str(event.data.get("note", "")).startswith(_CLAIMED)


def _kept(past: Sequence[Event]) -> dict[str, Any]:
    """The fields of beads that imports have kept in notes; the newest wins."""
    found: dict[str, Any] = {}
    for event in past:
        found |= _kept_in(event) or {}
    return found


def _kept_in(event: Event) -> dict[str, Any] | None:
    said = event.op == OP and "author" not in event.data
    return (kept_in(event.data.get("note", "")) or None) if said else None


def _comments(past: Sequence[Event]) -> Iterator[NoteLine]:
    """What was said of a task, but for what an import has to say."""
    for event in past:
        if "note" in event.data and not _is_claim(event) and _kept_in(event) is None:
            yield note_of(event)


def _end(task: TaskLine, past: Sequence[Event]) -> tuple[datetime | None, str | None]:
    """When a closed task was closed, and why."""
    if task.status != "closed":
        return None, None
    ends = [event for event in past if event.data.get("status", (None, None))[1] == "closed"]
    at: datetime | None = ends[-1].time if ends else task.updated_at
    if not ends or ends[-1].op == OP:
        at = task.updated_at if task.origin is None else task.origin.closed_at or task.updated_at
    said = [note.text for note in _comments(past) if note.at == at]
    return at, said[-1] if said else None


def _dependencies(task: TaskLine, kept: dict[str, Any]) -> list[dict[str, Any]]:
    """The links of a task; what beads said more of one goes back to it, and so do those that led nowhere here."""
    found = [(on, _KINDS[kind]) for kind in _KINDS for on in getattr(task, kind)]
    found += [(task.parent_id, _PARENT)] if task.parent_id is not None else []
    said = [one for one in kept.pop("dependencies", ()) if isinstance(one, dict)]
    whole = {(one.get("depends_on_id"), one.get("type", "blocks")): one for one in said}
    changed = {on: kind for on, kind in whole if kind not in (*_LINKS, _PARENT) or kind == _PARENT}
    links = [(on, changed.get(on, kind) if kind == "related" else kind) for on, kind in found]
    for kind, theirs in _KINDS.items():
        links += [(on, theirs) for on in kept.pop(kind, ()) if isinstance(on, str)]
    gone = kept.pop("parent_id", None)
    links += [(gone, _PARENT)] if isinstance(gone, str) else []
    order = {link: at for at, link in enumerate(whole)}  # as it was, for those that it said more of
    links.sort(key=lambda link: (order.get(link, len(order)), *link))
    return [whole.get(link) or {"issue_id": task.id, "depends_on_id": link[0], "type": link[1]} for link in links]
