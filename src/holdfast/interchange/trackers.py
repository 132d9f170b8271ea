"""Issues of other trackers, as files: GitHub's `gh issue list --json` and the export of Linear, one way.

`recognise` tells which a file is; `lines_of` makes of each issue a line with the names of tasks. Its id is derived from
the reference of the issue (its address on GitHub, its identifier in Linear), so the same issue is the same task in
every import. A field that tasks do not have is kept as JSON in a note, with a warning that names it. An issue that
cannot be read becomes a line that says why, and is refused with the others.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config
from holdfast.domains.tasks.creation import check_draft, check_note, check_priority, check_tag, check_title
from holdfast.domains.tasks.details import check_ref, stored_refs
from holdfast.interchange.jsonl import Time, check_lines, moment
from holdfast.interchange.task_export import NO_FIELD, Note, Record, past_of
from holdfast.kernel.validate import check_name
from holdfast.types.tasks import ImportFormat, TaskStatus, TaskType

_MARK: Final = "tracker"  # in each line that is made here
_WRONG: Final = "wrong"  # in a line of an issue that cannot be read: why
_ADDRESS: Final = re.compile(r"https?://([^/]+)/([^/]+)/([^/]+)/(?:issues|pull)/(\d+)")
_TYPES: Final[dict[str, TaskType]] = {
    **{"bug": "bug", "enhancement": "feature", "feature": "feature", "epic": "epic", "chore": "chore"},
    **{"feature request": "feature", "improvement": "feature"},
}
_PRIORITIES: Final = {"urgent": 0, "high": 1, "medium": 2, "no priority": 2, "low": 3}
_OF_LINEAR: Final = (2, 0, 1, 2, 3)  # none, urgent, high, medium, low
_PLAIN: Final = ("done", "completed", "todo", "open")  # states that a status says as well
_CLOSED: Final = ("done", "completed", "canceled", "cancelled", "duplicate")
_NOISE: Final = {"id", "closed", "uuid"}  # other names of the issue, and what its state says as well
_OF_GITHUB: Final[dict[str, TaskStatus]] = {"": "open", "OPEN": "open", "CLOSED": "closed", "MERGED": "closed"}
_ID_LENGTH: Final = 64
DELETIONS: Final = "deletions.jsonl"  # of beads, beside the issues


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
    """Raise Invalid unless this is a line of `lines_of` that can be a task."""
    if _WRONG in raw or _MARK not in raw:
        raise errors.Invalid(str(raw.get(_WRONG, "this is no issue of a tracker")))


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
    """The format of a file, by its first record. Raises Invalid if that does not tell it."""
    header = _header(lines)
    if header is None:
        return "holdfast"
    if "ID" in header and "Title" in header:
        return "linear"
    records = _parsed(lines)
    raw = next((each for each in records if isinstance(each, dict)), None)
    if raw is None:
        if not records:
            return "holdfast"
        raise _unknown("it is neither JSON nor a CSV with the columns ID and Title")
    if "format" in raw:
        return "holdfast"
    if "identifier" in raw:
        return "linear"
    if "number" in raw and "title" in raw:
        return "github"
    if "title" in raw and "id" in raw:
        return "beads"
    raise _unknown(f"its first record has {', '.join(map(str, [*raw][:10])) or 'no fields'}")


def _unknown(found: str) -> errors.Invalid:
    hint = "--format names it: holdfast (which needs format), beads (id and title), github (number, title and url) or"
    return errors.Invalid(
        f"the file has none of the formats that can be imported: {found}", hint=f"{hint} linear (identifier and title)"
    )


def _header(lines: Sequence[str]) -> list[str] | None:
    """The cells of the first line that is not blank, as if this were a CSV; None if there is no such line."""
    first = next((line.strip() for line in lines if line.strip()), None)
    try:
        return None if first is None else next(csv.reader([first]), [])
    except csv.Error:
        return []


def lines_of(lines: Sequence[str], format: ImportFormat) -> list[str]:
    """A line for each issue of a file or of a list of lines; lines that were made here stay as they are."""
    check_lines(lines)
    first = next((line.strip() for line in lines if line.strip()), "")
    if format in ("holdfast", "beads"):
        return [json.dumps(raw) for raw in _parsed(lines)] if first.startswith("[") else [*lines]
    if format == "linear" and first and not first.startswith(("[", "{")):
        return [_line(format, raw) for raw in _rows(lines)]
    return [_line(format, raw) for raw in _parsed(lines)]


def _rows(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    try:
        for row in csv.DictReader(f"{line}\n" for line in lines):
            more = row.pop(None, None)
            yield {**row, "more": more} if more else row
    except csv.Error as error:
        raise errors.Invalid(f"the CSV cannot be read: {error}", hint="export it again, with commas") from error


def _parsed(lines: Sequence[str]) -> list[Any]:
    """The objects of a file: an array, a response of an API, or one for each line; other lines stay texts.

    Raises Invalid for an array that is not whole.
    """
    text = "\n".join(lines)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith("["):
            message = f"the file begins as an array of JSON and is none: {error}"
            raise errors.Invalid(message, hint="export it again: a part of it may be missing") from error
        return [found for line in lines if (found := _value(line)) != ""]
    while isinstance(whole, dict) and len(whole) == 1 and isinstance(inner := next(iter(whole.values())), dict | list):
        whole = inner  # {"data": {"issues": {"nodes": [...]}}}
    if isinstance(whole, dict) and isinstance(whole.get("nodes"), list):
        whole = whole["nodes"]
    return whole if isinstance(whole, list) else [whole]


def _value(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def _line(format: ImportFormat, raw: Any) -> str:
    if not isinstance(raw, dict):
        return raw if isinstance(raw, str) else json.dumps(raw)
    if _MARK not in raw:
        try:
            raw = _made(format, raw)
        except (errors.Invalid, msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
            raw = {_MARK: format, _WRONG: f"{_called(raw)}{_why(error)}"}
    return json.dumps({name: value for name, value in raw.items() if value not in (None, "", [], {})})


def _made(format: ImportFormat, raw: dict[str, Any]) -> dict[str, Any]:
    if format == "github":
        msgspec.convert(raw, _GithubIssue)
        return _github(raw)
    if "ID" in raw or "Title" in raw:
        return _linear_row(raw)
    msgspec.convert(raw, _LinearIssue)
    return _linear_json(raw)


def _called(raw: dict[str, Any]) -> str:
    """The name of an issue that cannot be read, if it has one."""
    name = next((raw[field] for field in ("number", "identifier", "ID", "title", "Title") if raw.get(field)), None)
    return "" if name is None else f"issue {name!s:.60}: "


def _why(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f'the field "{error.args[0]}" is missing'
    if isinstance(error, errors.Invalid | msgspec.ValidationError):
        return str(getattr(error, "message", error))
    return f"it is not as the tracker exports it: {error}"


def beads_file(path: str) -> str:
    """The issues in a folder of beads, or in the one with a folder `.beads`."""
    folder = path if os.path.basename(os.path.abspath(path)) == ".beads" else os.path.join(path, ".beads")
    found = (os.path.join(folder, name) for name in ("issues.jsonl", "beads.jsonl"))
    issues = next((each for each in found if os.path.isfile(each)), None)
    if issues is None:
        hint = "name the file itself, or the folder .beads"
        raise errors.NotFound(f"{path} has no .beads/issues.jsonl", hint=hint)
    return issues


def without_deleted(issues: Sequence[str], deletions: Sequence[str]) -> list[str]:
    """The lines of beads with those of deleted issues as tombstones, and one more for each that has no line.

    Raises Invalid for a deletion that cannot be read.
    """
    ids: dict[str, None] = {}
    for number, line in enumerate(deletions, 1):
        if line.strip():
            raw = _value(line)
            if not isinstance(raw, dict) or not isinstance(raw.get("id"), str):
                raise errors.Invalid(f"line {number} of the deletions of beads cannot be read: it needs an id")
            ids[raw["id"]] = None
    found: set[str] = set()
    kept = []
    for line in issues:
        raw = _value(line)
        id = raw.get("id") if isinstance(raw, dict) else None
        gone = isinstance(id, str) and id in ids
        found |= {str(id)} if gone else set()
        kept.append(_tombstone(str(id)) if gone else line)
    return kept + [_tombstone(id) for id in ids if id not in found]


def _tombstone(id: str) -> str:
    return json.dumps({"id": id, "title": id, "status": "tombstone"})


# --- GitHub ----------------------------------------------------------------------------------------------------------


class _Comment(msgspec.Struct):
    body: str | None
    createdAt: str | None = None


class _Milestone(msgspec.Struct):
    title: str


class _GithubIssue(msgspec.Struct):
    """The types of what is read of an issue."""

    number: int
    title: str
    url: str
    body: str | None = None
    state: str | None = None
    labels: list[dict[str, Any] | str] | None = None
    assignees: list[dict[str, Any] | str] | None = None
    comments: list[_Comment] | None = None
    milestone: _Milestone | None = None
    createdAt: str | None = None
    updatedAt: str | None = None
    closedAt: str | None = None


def _github(raw: dict[str, Any]) -> dict[str, Any]:
    found = _ADDRESS.match(raw["url"])
    if found is None:
        raise errors.Invalid(f"{raw['url']!r:.200} is not the address of an issue of GitHub")
    host, owner, repository, number = found.groups()
    if int(number) != raw["number"]:
        raise errors.Invalid(f"its number is {raw['number']}, but its address is that of {number}: {raw['url']:.200}")
    state = str(raw.get("state") or "").upper()
    if state not in _OF_GITHUB:
        raise errors.Invalid(f"{raw['state']!r:.60} is not a state of GitHub: OPEN, CLOSED or MERGED")
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
        "status": _OF_GITHUB[state],
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
    """What else an issue says; a no says nothing."""
    said = {name: value for name, value in raw.items() if name not in used | _NOISE and value is not False}
    return {name: value for name, value in said.items() if value not in (None, "", [], {})}


# --- Linear ----------------------------------------------------------------------------------------------------------


class _LinearIssue(msgspec.Struct):
    """The types of what is read of an issue."""

    identifier: str
    title: str
    description: str | None = None
    state: dict[str, Any] | str | None = None
    labels: dict[str, Any] | list[Any] | None = None
    comments: dict[str, Any] | list[Any] | None = None
    parent: dict[str, Any] | None = None
    url: str | None = None
    createdAt: str | None = None
    updatedAt: str | None = None
    completedAt: str | None = None
    canceledAt: str | None = None


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
    for field in ("ID", "Title"):
        if not raw.get(field):
            raise KeyError(field)
    labels = _listed(raw.get("Labels"))
    closed_at = _time(raw.get("Completed")) or _time(raw.get("Canceled"))
    done = closed_at is not None or str(raw.get("Status", "")).lower() in _CLOSED
    return {
        **{_MARK: "linear", "id": raw["ID"], "title": raw["Title"], "body": raw.get("Description")},
        **_by_labels(labels),
        **{"priority": _of_row(raw.get("Priority")), "labels": labels},
        "status": "closed" if done else "open",
        "parent_id": raw.get("Parent issue"),
        **{"depends_on": _listed(raw.get("Blocked by")), "related": _listed(raw.get("Related to"))},
        **{"created_at": _time(raw.get("Created")), "updated_at": _time(raw.get("Updated")), "closed_at": closed_at},
        "created_by": raw.get("Creator"),
        "kept": _rest(raw, _ROW | ({"Status"} if str(raw.get("Status", "")).lower() in _PLAIN else set())),
    }


def _of_row(priority: str | None) -> int:
    """Our priority for the one of a row. Raises Invalid."""
    found = _PRIORITIES.get((priority or "no priority").lower())
    if found is None:
        raise errors.Invalid(f"{priority!r:.60} is not a priority of Linear: {', '.join(_PRIORITIES)}")
    return found


def _listed(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def _time(text: str | None) -> str | None:
    """A time of a row in RFC 3339: it has that form, or that of JavaScript."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        try:
            at = datetime.strptime(text.partition(" (")[0], "%a %b %d %Y %H:%M:%S GMT%z")
        except ValueError:
            raise errors.Invalid(f"{text!r:.60} is not a time") from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).isoformat()
