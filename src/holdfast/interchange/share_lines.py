"""The lines of holdfast.jsonl, with no store in sight: what one says, and how two about the same record are joined.

A record is a task or a template. Each of its fields has a stamp: a time, and the site (a random id of a workspace) that
wrote it. Guarantee: `join` is commutative, associative and idempotent, so whoever has seen the same lines, in any order
and however often, knows the same. The greater stamp wins. A record that was purged keeps nothing but its name.

A key names a record everywhere: a task by the id it was created with and a uid, because two sites may choose one id; a
template by its name, after a ~, which no id begins with. What `left_out` removes from links depends on nothing else, so
it is the same everywhere too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from holdfast import errors
from holdfast.interchange.jsonl import decode_json
from holdfast.interchange.slices import circles
from holdfast.types import ImportProblem
from holdfast.wire import escape_controls

_FAMILY: Final = "holdfast.shared/"
FORMAT: Final = f"{_FAMILY}1"
FILE: Final = "holdfast.jsonl"
# The links of a task, in which keys name other tasks.
LINKS: Final = ("depends_on", "discovered_from", "related")
# Every field of a task with what it is where a line does not say it.
DEFAULTS: Final[dict[str, Any]] = {
    **{"title": "", "body": "", "type": "task", "status": "open", "priority": 2, "parent": None, "tags": []},
    **{"grimoire_hint": None, "refs": [], **{kind: [] for kind in LINKS}, "deferred_until": None},
    **{"assigned_to": None, "created_by": None, "result": None},
    **{"created_at": None, "deleted_at": None, "deleted_with": None},
}
_TEMPLATE: Final[dict[str, Any]] = {"content": None}
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_UID: Final = re.compile(r"[0-9a-z]{6,32}")
_STAMP: Final = re.compile(r"(\d{1,18})@([0-9a-z]{4,16})")
_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's 32, as ids have
_TIMES: Final = ("created_at", "deleted_at", "deferred_until")
_MARKERS: Final = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")
_encode = msgspec.json.Encoder(order="sorted").encode


class Stamp(NamedTuple):
    """When a field was written, in microseconds, and where."""

    time: int
    site: str

    def __str__(self) -> str:
        return f"{self.time}@{self.site}"


class Cell(NamedTuple):
    """A field of a record."""

    stamp: Stamp
    value: Any


class Entry(msgspec.Struct, frozen=True):
    """A record. `made` is the stamp of every field that `cells` does not have, with its default.

    `notes` maps the time and the text of each note to its author. `gone`: it was purged.
    """

    key: str
    made: Stamp
    cells: dict[str, Cell]
    notes: dict[tuple[str, str], str | None] = {}
    gone: bool = False

    def cell(self, field: str) -> Cell:
        """A field with its stamp."""
        found = self.cells.get(field)
        return Cell(self.made, _defaults(self.key).get(field)) if found is None else found

    def value(self, field: str) -> Any:
        """What a field says."""
        return self.cell(field).value

    def write(self, field: str, value: Any, time: int, site: str) -> Entry:
        """The record with a new value: its stamp is greater than any seen for that field, whatever the clock says."""
        stamp = Stamp(max(time, self.cell(field).stamp.time + 1), site)
        return msgspec.structs.replace(self, cells={**self.cells, field: Cell(stamp, value)})


class _Fields(msgspec.Struct, forbid_unknown_fields=False):
    """The types of the fields of a line."""

    title: str = ""
    body: str = ""
    type: str = "task"
    status: str = "open"
    priority: int = 2
    parent: str | None = None
    tags: list[str] = []
    grimoire_hint: str | None = None
    refs: list[tuple[str, str]] = []
    depends_on: list[str] = []
    discovered_from: list[str] = []
    related: list[str] = []
    deferred_until: str | None = None
    assigned_to: str | None = None
    created_by: str | None = None
    created_at: str | None = None
    deleted_at: str | None = None
    deleted_with: str | None = None
    notes: list[_Note] = []


class _Note(msgspec.Struct, forbid_unknown_fields=True):
    at: str
    text: str
    by: str | None = None


# --- keys ------------------------------------------------------------------------------------------------------------


def new_key(id: str, *made_of: object) -> str:
    """The key of a new task; `made_of` is what tells it from all others with this id."""
    number = int.from_bytes(hashlib.blake2b("/".join(map(str, made_of)).encode(), digest_size=8).digest(), "big")
    return f"{id}~{''.join(_DIGITS[number >> 5 * place & 31] for place in range(12))}"


def template_key(name: str) -> str:
    """The key of a template."""
    return f"~{name}"


def id_of(key: str) -> str:
    """The id that a task was created with."""
    return key.partition("~")[0]


def longer_ids(key: str) -> list[str]:
    """The ids of a task whose own belongs to an older one, best first."""
    id, _, uid = key.partition("~")
    return [f"{id[: 64 - length]}{uid[:length]}" for length in range(4, len(uid) + 1)]


def _defaults(key: str) -> dict[str, Any]:
    return _TEMPLATE if key.startswith("~") else DEFAULTS


# --- one line --------------------------------------------------------------------------------------------------------


def to_line(entry: Entry) -> str:
    """The line of a record: the same bytes for the same record."""
    id, _, uid = entry.key.partition("~")
    line: dict[str, Any] = {"format": FORMAT, **({"id": id, "uid": uid} if id else {"template": uid})}
    if entry.gone:
        gone = {"made": str(entry.made), "gone": True}
        return escape_controls(msgspec.json.encode(line | _said(entry, ("created_at",)) | gone).decode())
    known = _defaults(entry.key)
    line |= _said(entry, (*known, *sorted(entry.cells.keys() - known.keys())))
    if entry.notes:
        line["notes"] = [{"at": at, "by": by, "text": text} for (at, text), by in sorted(entry.notes.items())]
    line["made"] = str(entry.made)
    stamps = {field: str(cell.stamp) for field, cell in sorted(entry.cells.items()) if cell.stamp != entry.made}
    if stamps:
        line["stamps"] = stamps
    return escape_controls(msgspec.json.encode(line).decode())


def _said(entry: Entry, fields: Iterable[str]) -> dict[str, Any]:
    """The fields that are not what they are by default, with their values in a form that is always the same."""
    known = _defaults(entry.key)
    found = ((field, entry.cells[field].value) for field in fields if field in entry.cells)
    return {
        field: msgspec.Raw(_encode(value)) if isinstance(value, dict | list) else value
        for field, value in found
        if field not in known or value != known[field]
    }


def from_line(line: str) -> Entry:
    """The record of a line. Raises Invalid if it cannot be read."""
    try:
        raw = decode_json(line)
    except (ValueError, RecursionError) as error:
        raise errors.Invalid(f"invalid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise errors.Invalid("not a JSON object")
    if raw.get("format") != FORMAT:
        if str(raw.get("format")).startswith(_FAMILY):
            raise errors.Unsupported(
                f"the file has lines of a newer Holdfast, with the format {raw['format']!r}",
                hint="update Holdfast here; the file is left as it is",
            )
        found = f'"format" is {raw["format"]!r}' if "format" in raw else 'the field "format" is missing'
        raise errors.Invalid(f'{found}: a line of a shared file has "format": "{FORMAT}"')
    return _entry_of(raw)


def trusted(line: str) -> Entry:
    """The record of a line that `to_line` wrote."""
    return _entry_of(msgspec.json.decode(line))


def _entry_of(raw: dict[str, Any]) -> Entry:
    key = _key_of(raw)
    made = _stamp(raw.pop("made", None), "made")
    stamps = raw.pop("stamps", {})
    gone = raw.pop("gone", False)
    if not isinstance(stamps, dict) or type(gone) is not bool:
        raise errors.Invalid('"stamps" is an object, and "gone" is true or false')
    try:
        fields = msgspec.convert(raw, _Fields)
    except msgspec.ValidationError as error:
        raise errors.Invalid(str(error)) from error
    for time in (*(getattr(fields, name) for name in _TIMES), *(note.at for note in fields.notes)):
        _check_time(time)
    raw.pop("notes", None)
    known = _defaults(key)
    cells = {field: Cell(made, value) for field, value in raw.items()}
    for field, text in stamps.items():
        cells[field] = Cell(_stamp(text, f"the stamp of {field}"), raw.get(field, known.get(field)))
    return normal(Entry(key, made, cells, {(note.at, note.text): note.by for note in fields.notes}, gone))


def _key_of(raw: dict[str, Any]) -> str:
    raw.pop("format", None)
    if "template" in raw:
        name = raw.pop("template")
        if not isinstance(name, str) or not name:
            raise errors.Invalid("template is the name of a template")
        return template_key(name)
    id, uid = raw.pop("id", None), raw.pop("uid", None)
    if not isinstance(id, str) or not _NAME.fullmatch(id):
        raise errors.Invalid(f"the id {id!r} cannot be one: ids are 1 to 64 of the characters A-Z a-z 0-9 . _ -")
    if not isinstance(uid, str) or not _UID.fullmatch(uid):
        raise errors.Invalid(f"the uid {uid!r} cannot be one: uids are 6 to 32 of the characters a-z 0-9")
    return f"{id}~{uid}"


def _stamp(text: Any, what: str) -> Stamp:
    found = _STAMP.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise errors.Invalid(f"{what} is TIME@SITE, not {text!r}")
    return Stamp(int(found[1]), found[2])


def _check_time(text: str | None) -> None:
    try:
        at = None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise errors.Invalid(f"{text!r} is not a time: {error}") from error
    if at is not None and (at.tzinfo is None or at.year < 1971):
        raise errors.Invalid(f"{text!r} is no time since 1971 with its distance from UTC")


def normal(entry: Entry) -> Entry:
    """The one form of a record: no field that is as if it were not there, nothing of what was purged."""
    if entry.gone:
        kept = {field: cell for field, cell in entry.cells.items() if field == "created_at" and cell.value is not None}
        return Entry(
            entry.key, entry.made, {field: Cell(entry.made, cell.value) for field, cell in kept.items()}, {}, True
        )
    known = _defaults(entry.key)
    cells = {
        field: cell
        for field, cell in entry.cells.items()
        if field not in known or cell.stamp != entry.made or cell.value != known[field]
    }
    return entry if len(cells) == len(entry.cells) else msgspec.structs.replace(entry, cells=cells)


# --- joining ---------------------------------------------------------------------------------------------------------


def join(one: Entry, other: Entry) -> Entry:
    """What both records say: field by field the greater stamp, and of one stamp the greater value."""
    assert one.key == other.key
    made = min(one.made, other.made)
    if one.gone or other.gone:
        created = min(
            (str(each.value("created_at")) for each in (one, other) if each.value("created_at")), default=None
        )
        return normal(Entry(one.key, made, {"created_at": Cell(made, created)}, {}, True))
    known = _defaults(one.key)
    names = {*one.cells, *other.cells}
    if one.made != other.made:  # what neither says counts from the first
        names |= known.keys()
    cells = {field: _greater(one, other, field, field in known) for field in names}
    notes = dict(one.notes)
    for note, by in other.notes.items():
        notes[note] = max(by or "", notes.get(note) or "") or None
    return normal(Entry(one.key, made, cells, notes))


def _greater(one: Entry, other: Entry, field: str, known: bool) -> Cell:
    if not known and not (field in one.cells and field in other.cells):  # of a newer program
        return one.cells[field] if field in one.cells else other.cells[field]
    return max(one.cell(field), other.cell(field), key=lambda cell: (cell.stamp, _encode(cell.value)))


def join_into(found: dict[str, Entry], entry: Entry) -> None:
    """Add a record to those by key."""
    found[entry.key] = join(found[entry.key], entry) if entry.key in found else entry


def is_record(line: str) -> bool:
    """Whether a line of a file is to be read: it is not blank, and no marker of a conflict of git."""
    return bool(line.strip()) and not line.startswith(_MARKERS)


def read_lines(lines: Iterable[tuple[int, str]]) -> tuple[dict[str, Entry], list[ImportProblem]]:
    """The records of numbered lines, and the damaged ones. Both sides of a conflict of git count."""
    found: dict[str, Entry] = {}
    problems: list[ImportProblem] = []
    for number, line in lines:
        try:
            join_into(found, from_line(line))
        except errors.Invalid as error:
            problems.append(ImportProblem(number, None, "error", error.message))
    return found, problems


# --- circles ---------------------------------------------------------------------------------------------------------


def left_out(edges: Mapping[str, Iterable[str]], age: Callable[[str], Stamp]) -> set[tuple[str, str]]:
    """The edges to leave out so that none are left in a circle: of those in one, the youngest.

    `age` is the stamp of the edges that leave a node. Edges are taken from the oldest on, each unless it closes a
    circle with those before it.
    """
    found: set[tuple[str, str]] = set()
    for circle in circles({node: [end for end in ends if end in edges] for node, ends in edges.items()}):
        inside = {*circle}
        within = [(node, end) for node in circle for end in edges[node] if end in inside]
        taken: dict[str, list[str]] = {node: [] for node in circle}
        for node, end in sorted({*within}, key=lambda edge: (age(edge[0]), *edge)):
            if _reaches(taken, end, node):
                found.add((node, end))
            else:
                taken[node].append(end)
    return found


def _reaches(edges: Mapping[str, list[str]], start: str, end: str) -> bool:
    seen, ahead = {start}, [start]
    while ahead:
        node = ahead.pop()
        if node == end:
            return True
        new = [other for other in edges[node] if other not in seen]
        seen.update(new)
        ahead += new
    return False
