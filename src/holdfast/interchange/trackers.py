"""Issues of other trackers, as files: GitHub's `gh issue list --json` and the export of Linear, one way.

`recognise` tells which a file is; `lines_of` makes of each issue a line with the names of tasks. Its id is derived from
the reference of the issue (its address on GitHub, its identifier in Linear), so the same issue is the same task in
every import. A field that tasks do not have is kept as JSON in a note, with a warning that names it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config
from holdfast.domains.tasks.creation import check_draft, check_note, check_priority, check_tag, check_title
from holdfast.domains.tasks.details import check_ref, stored_refs
from holdfast.interchange.jsonl import Time, moment
from holdfast.interchange.task_export import NO_FIELD, Note, Record, past_of
from holdfast.kernel.validate import check_name
from holdfast.types.tasks import ImportFormat, TaskStatus, TaskType

_MARK: Final = "tracker"  # in each line that is made here
_ADDRESS: Final = re.compile(r"https?://([^/]+)/([^/]+)/([^/]+)/(?:issues|pull)/(\d+)")
_TYPES: Final[dict[str, TaskType]] = {
    **{"bug": "bug", "enhancement": "feature", "feature": "feature", "epic": "epic", "chore": "chore"},
    **{"feature request": "feature", "improvement": "feature"},
}
_PRIORITIES: Final = {"urgent": 0, "high": 1, "medium": 2, "no priority": 2, "low": 3}
_OF_LINEAR: Final = (2, 0, 1, 2, 3)  # none, urgent, high, medium, low
_PLAIN: Final = ("done", "completed", "todo", "open")  # states that a status says as well
_CLOSED: Final = ("done", "completed", "canceled", "cancelled", "duplicate")
_NOISE: Final = {"id", "closed", "isPinned", "reactionGroups", "projectCards", "projectItems", "isDraft", "uuid"}
_ID_LENGTH: Final = 64


class Said(msgspec.Struct, frozen=True):
    """A comment."""

    text: str
    by: str | None = None
    at: Time | None = None


class Tracked(msgspec.Struct, frozen=True):
    """An issue by the names of tasks. `kept` is what tasks have no field for."""

    id: str
    title: str
    tracker: str
    body: str = ""
    type: TaskType = "task"
    status: TaskStatus = "open"
    priority: int = 2
    labels: tuple[str, ...] = ()
    parent_id: str | None = None
    depends_on: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    url: str = ""
    created_at: Time | None = None
    created_by: str | None = None
    updated_at: Time | None = None
    closed_at: Time | None = None
    comments: tuple[Said, ...] = ()
    kept: dict[str, Any] = {}


def check_tracked(raw: dict[str, Any]) -> None:
    """Raise Invalid unless this is a line of `lines_of`: an issue that lacks what it needs stays as it is there."""
    if _MARK not in raw:
        needed = "number, title and url for GitHub, identifier (or ID) and title for Linear"
        raise errors.Invalid(f"this is no issue of a tracker: it needs {needed}")


def read_tracked(raw: dict[str, Any], config: Config) -> Record:
    """The record of a line of `lines_of`. Raises Invalid for anything else."""
    check_tracked(raw)
    check_title(raw.get("title", ""), config)
    check_priority(raw.get("priority", 2))
    issue = msgspec.convert(raw, Tracked)
    left, tags = dict(issue.kept), []
    for label in issue.labels:
        try:
            tags.append(check_tag(label))
        except errors.InvalidTag:
            left.setdefault("labels", []).append(label)
    record = Record(
        issue.id,
        check_draft(config, issue.title, issue.body, issue.type, issue.priority, tags),
        issue.status,
        parent_id=issue.parent_id,
        links={"depends_on": _others(issue.depends_on), "discovered_from": (), "related": _others(issue.related)},
        created=moment(issue.created_at, "created_at"),
        updated=moment(issue.updated_at, "updated_at"),
        origin=past_of(issue.created_by, issue.updated_at, issue.closed_at),
    )
    if issue.url:
        record.extra = {"refs": stored_refs([check_ref(issue.url, None)])}
    for comment in issue.comments:
        check_note(comment.text, "a comment")
        if comment.by is not None:
            check_name(comment.by, "author")
        record.notes.append(Note(comment.text, moment(comment.at, "created_at"), comment.by, foreign=True))
    record.keep(left, NO_FIELD)
    return record


def _others(ids: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*ids}))


# --- files -----------------------------------------------------------------------------------------------------------


def recognise(lines: Sequence[str]) -> ImportFormat:
    """The format of a file, by its first record."""
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith(("[", "{")):
        records = _parsed(lines)
        raw = next((each for each in records if isinstance(each, dict)), {})
        if "format" in raw:
            return "holdfast"
        if "identifier" in raw:
            return "linear"
        if "number" in raw and "title" in raw:
            return "github"
        return "beads" if "title" in raw and "id" in raw else "holdfast"
    header = next(csv.reader([first]), [])
    return "linear" if "ID" in header and "Title" in header else "holdfast"


def lines_of(lines: Sequence[str], format: ImportFormat) -> list[str]:
    """A line for each issue of a file or of a list of lines; lines that were made here stay as they are."""
    make = {"github": _github, "linear": _linear}[format]
    first = next((line.strip() for line in lines if line.strip()), "")
    if format == "linear" and first and not first.startswith(("[", "{")):
        return [_line(make, row) for row in csv.DictReader(f"{line}\n" for line in lines)]
    return [_line(make, raw) for raw in _parsed(lines)]


def _parsed(lines: Sequence[str]) -> list[Any]:
    """The objects of a file: an array, a response of an API, or one for each line; other lines stay texts."""
    with suppress(ValueError, RecursionError):
        whole = json.loads("\n".join(lines))
        while isinstance(whole, dict) and len(whole) == 1:
            (whole,) = whole.values()  # {"data": {"issues": {"nodes": [...]}}}
        if isinstance(whole, dict) and isinstance(whole.get("nodes"), list):
            whole = whole["nodes"]
        return whole if isinstance(whole, list) else [whole]
    found: list[Any] = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            found.append(line)
    return [each for each in found if each != ""]


def _line(make: Callable[[dict[str, Any]], dict[str, Any]], raw: Any) -> str:
    if not isinstance(raw, dict):
        return raw if isinstance(raw, str) else json.dumps(raw)
    if _MARK not in raw:
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # it stays as it is, and is refused by its line
            raw = make(raw)
    return json.dumps({name: value for name, value in raw.items() if value not in (None, "", [], {})})


def beads_folder(path: str) -> list[str]:
    """The files of a folder of beads, or of the one with a folder `.beads`: issues, then deletions if there are any."""
    folder = path if os.path.basename(os.path.abspath(path)) == ".beads" else os.path.join(path, ".beads")
    names = ("issues.jsonl", "beads.jsonl")
    issues = next((name for name in names if os.path.isfile(os.path.join(folder, name))), None)
    if issues is None:
        hint = "name the file itself, or the folder .beads"
        raise errors.NotFound(f"{path} has no .beads/issues.jsonl", hint=hint)
    deletions = os.path.join(folder, "deletions.jsonl")
    return [os.path.join(folder, issues), *([deletions] if os.path.isfile(deletions) else [])]


def tombstones(issues: Sequence[str], deletions: Sequence[str]) -> list[str]:
    """A line of beads for each deleted issue that is not among the others."""
    there = {each.get("id") for each in _parsed(issues) if isinstance(each, dict)}
    ids = dict.fromkeys(str(each["id"]) for each in _parsed(deletions) if isinstance(each, dict) and "id" in each)
    return [json.dumps({"id": id, "title": id, "status": "tombstone"}) for id in ids if id not in there]


# --- GitHub ----------------------------------------------------------------------------------------------------------


def _github(raw: dict[str, Any]) -> dict[str, Any]:
    found = _ADDRESS.match(raw["url"])
    if found is None:
        raise ValueError
    host, owner, repository, number = found.groups()
    labels = [name for label in raw.get("labels") or () if (name := _name(label))]
    if raw.get("milestone"):
        labels.append(f"milestone/{raw['milestone']['title']}")
    used = {"number", "title", "body", "state", "labels", "author", "comments", "milestone", "url", "assignees"}
    times = {"createdAt", "updatedAt", "closedAt"}
    kept = _rest(raw, used | times | {"stateReason"})
    if raw.get("assignees"):
        kept["assignees"] = [_name(each) for each in raw["assignees"]]
    if raw.get("stateReason") not in (None, "", "COMPLETED", "REOPENED"):
        kept["stateReason"] = raw["stateReason"]
    return {
        **{_MARK: "github", "id": _id("gh" if host == "github.com" else host, owner, repository, number)},
        **{"title": raw["title"], "body": raw.get("body"), "url": raw["url"], "labels": labels},
        "status": "closed" if str(raw.get("state", "")).upper() in ("CLOSED", "MERGED") else "open",
        **_by_labels(labels),
        **{"created_at": raw.get("createdAt"), "updated_at": raw.get("updatedAt"), "closed_at": raw.get("closedAt")},
        "created_by": _name(raw.get("author")),
        "comments": [
            {"text": each["body"], "by": _name(each.get("author")), "at": each.get("createdAt")}
            for each in raw.get("comments") or ()
            if each["body"]
        ],
        "kept": kept,
    }


def _id(host: str, owner: str, repository: str, number: str) -> str:
    """An id that no other issue has: owners have no dots, and the number comes last."""
    id = f"{host}-{owner}.{repository}-{number}"
    if len(id) <= _ID_LENGTH:
        return id
    return f"gh-{hashlib.blake2b(id.encode(), digest_size=16).hexdigest()}-{number}"


def _by_labels(labels: list[str]) -> dict[str, Any]:
    """The type and the priority that labels say."""
    words = [label.lower() for label in labels]
    found: dict[str, Any] = {"type": next((_TYPES[word] for word in words if word in _TYPES), "task")}
    for word in words:
        if match := re.fullmatch(r"p([0-4])|priority[:/ ]+p?([0-4])", word):
            found["priority"] = int(match[1] or match[2])
    return found


def _name(of: Any) -> str | None:
    """The name of a person or a label, which may be an object."""
    if isinstance(of, dict):
        of = of.get("login") or of.get("name") or of.get("email")
    return of or None


def _rest(raw: dict[str, Any], used: set[str]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in used | _NOISE and value not in (None, "", [], {})}


# --- Linear ----------------------------------------------------------------------------------------------------------


def _linear(raw: dict[str, Any]) -> dict[str, Any]:
    return _linear_json(raw) if "identifier" in raw else _linear_row(raw)


def _linear_json(raw: dict[str, Any]) -> dict[str, Any]:
    state = raw.get("state") or {}
    kind = state.get("type") if isinstance(state, dict) else None
    labels = [name for each in _nodes(raw.get("labels")) if (name := _name(each))]
    closed_at = raw.get("completedAt") or raw.get("canceledAt")
    used = {"identifier", "title", "description", "priority", "labels", "parent", "comments", "url", "creator"}
    used |= {"state"} if str(_name(state) or "").lower() in _PLAIN else set()
    kept = _rest(raw, used | {"createdAt", "updatedAt", "completedAt", "canceledAt", "priorityLabel"})
    done = kind in ("completed", "canceled") or str(_name(state) or "").lower() in _CLOSED or closed_at is not None
    return {
        **{_MARK: "linear", "id": raw["identifier"], "title": raw["title"], "body": raw.get("description")},
        **_by_labels(labels),
        **{"priority": _of_linear(raw.get("priority") or 0), "labels": labels, "url": raw.get("url")},
        "status": "closed" if done else "open",
        "parent_id": (raw.get("parent") or {}).get("identifier"),
        **{"created_at": raw.get("createdAt"), "updated_at": raw.get("updatedAt"), "closed_at": closed_at},
        "created_by": _name(raw.get("creator")),
        "comments": [
            {"text": each["body"], "by": _name(each.get("user")), "at": each.get("createdAt")}
            for each in _nodes(raw.get("comments"))
            if each["body"]
        ],
        "kept": kept,
    }


def _of_linear(priority: Any) -> Any:
    """Our priority for one of Linear. An unknown one stays as it is, and is refused with its line."""
    return _OF_LINEAR[int(priority)] if priority in range(len(_OF_LINEAR)) else priority


def _nodes(of: Any) -> Iterator[Any]:
    yield from of.get("nodes", ()) if isinstance(of, dict) else of or ()


_ROW: Final = {
    *("ID", "Title", "Description", "Priority", "Labels", "Creator", "Created", "Updated", "Completed", "Canceled"),
    *("Parent issue", "Blocked by", "Related to", "UUID"),
}


def _linear_row(raw: dict[str, Any]) -> dict[str, Any]:
    labels = _listed(raw.get("Labels"))
    closed_at = _time(raw.get("Completed")) or _time(raw.get("Canceled"))
    done = closed_at is not None or str(raw.get("Status", "")).lower() in _CLOSED
    return {
        **{_MARK: "linear", "id": raw["ID"], "title": raw["Title"], "body": raw.get("Description")},
        **_by_labels(labels),
        **{"priority": _PRIORITIES.get(str(raw.get("Priority", "")).lower(), 2), "labels": labels},
        "status": "closed" if done else "open",
        "parent_id": raw.get("Parent issue"),
        **{"depends_on": _listed(raw.get("Blocked by")), "related": _listed(raw.get("Related to"))},
        **{"created_at": _time(raw.get("Created")), "updated_at": _time(raw.get("Updated")), "closed_at": closed_at},
        "created_by": raw.get("Creator"),
        "kept": _rest(raw, _ROW | ({"Status"} if str(raw.get("Status", "")).lower() in _PLAIN else set())),
    }


def _listed(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def _time(text: str | None) -> str | None:
    """A time of a row in RFC 3339: it has that form, or that of JavaScript."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = datetime.strptime(text.partition(" (")[0], "%a %b %d %Y %H:%M:%S GMT%z")
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).isoformat()
