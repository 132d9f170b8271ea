"""What is shared of a workspace: its settings, the line of every task and template, and what changed here since.

The table `shared` has the line of each record as it was last joined. Before lines are read or written, `capture`
compares each record that has another version since with its line; a field that differs was changed here, and gets a
stamp of this site. The newest event that changed it says when, so a claim or an edit costs nothing more; where that
event was compacted away, the time of the task's last change takes its place.

A task may show something else than its line says: a parent that would close a circle is left out, say. Such a field is
`odd`: what it shows is remembered, so that it is not taken for a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.domains.tasks.rows import COLUMNS, Stored
from holdfast.domains.tasks.templates import TEMPLATE
from holdfast.interchange.share_ids import Keys
from holdfast.interchange.share_lines import (
    LINKS,
    Cell,
    Entry,
    Stamp,
    id_of,
    new_key,
    normal,
    template_key,
    to_line,
    trusted,
)
from holdfast.interchange.task_export import foreign, told_of
from holdfast.kernel.tx import PAGE_BYTES, Snapshot, Tx
from holdfast.kernel.validate import check_name
from holdfast.types import Page, as_microseconds, as_time
from holdfast.types.tasks import Sharing

EVENT: Final = "sharing"
WORKSPACE: Final = "workspace"
_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LISTED: Final = 1000  # renamed tasks, and records of which something is left out
# What a field is called in the events of a task, where it is not by its name.
_IN_LOG: Final = {"parent": "parent_id", "deleted_at": "deleted", "deleted_with": "deleted"}
_PRIVATE: Final = {"assigned_to": "authors", "created_by": "authors", "result": "notes"}
_CHANGED: Final = (
    f"SELECT s.key, s.version, s.line, s.odd, {COLUMNS} FROM tasks t LEFT JOIN shared s ON s.seq = t.seq"
    " WHERE s.version IS NOT t.version AND (t.deleted IS NULL OR s.key IS NOT NULL) ORDER BY t.seq"
)
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Site(msgspec.Struct, frozen=True):
    """The settings as they are stored."""

    site: str
    state: str = ""
    notes: bool = False
    authors: bool = False
    revision: int = 0

    def shares(self, field: str) -> bool:
        """Whether what is said here of a field may become public."""
        needs = _PRIVATE.get(field)
        return needs is None or bool(getattr(self, needs))


def find_site(snapshot: Snapshot) -> Site | None:
    """The settings; None if nothing was ever shared here."""
    row = snapshot.one("SELECT site, state, notes, authors, revision FROM sharing")
    return None if row is None else Site(row[0], row[1], bool(row[2]), bool(row[3]), row[4])


def require_site(tx: Tx) -> Site:
    """The settings, with a site of our own."""
    found = find_site(tx)
    if found is None:
        number = int(tx.new_id().replace("-", "")[-15:], 16)
        found = Site("".join(_DIGITS[number >> 5 * place & 31] for place in range(8)))
        save(tx, found)
    return found


def save(tx: Tx, site: Site) -> None:
    """Store the settings."""
    tx.run("DELETE FROM sharing")
    tx.run(
        "INSERT INTO sharing (id, site, state, notes, authors, revision) VALUES (1, ?, ?, ?, ?, ?)",
        (site.site, site.state, int(site.notes), int(site.authors), tx.revision),
    )


def set_sharing(tx: Tx, on: bool, notes: bool | None, authors: bool | None) -> Sharing:
    """`tasks.set_sharing`."""
    old = require_site(tx)
    new = msgspec.structs.replace(
        old,
        state="on" if on else "off",
        notes=old.notes if notes is None else notes,
        authors=old.authors if authors is None else authors,
    )
    if (new.notes, new.authors) != (old.notes, old.authors):  # more of each task may travel
        tx.run("UPDATE shared SET version = 0 WHERE seq IS NOT NULL")
    save(tx, new)
    changes = {name: (getattr(old, name), getattr(new, name)) for name in ("state", "notes", "authors")}
    changed = {name: pair for name, pair in changes.items() if pair[0] != pair[1]}
    tx.emit(EVENT, WORKSPACE, "set", data=msgspec.msgpack.encode(changed))
    return sharing(tx)


def sharing(snapshot: Snapshot, id: str | None = None) -> Sharing:
    """`tasks.sharing`."""
    site = find_site(snapshot) or Site("")
    if id is not None:
        check_name(id, "id")
    about = "" if id is None else " AND s.key > ?1 || '~' AND s.key < ?1 || '~~'"
    renamed: dict[str, list[str]] = {}
    for old, new in snapshot.all(
        "SELECT substr(s.key, 1, instr(s.key, '~') - 1) old, t.id FROM shared s JOIN tasks t ON t.seq = s.seq"
        f" WHERE old <> t.id{about} ORDER BY s.key LIMIT {_LISTED}",
        () if id is None else (id,),
    ):
        renamed.setdefault(old, []).append(new)
    left_out: dict[str, list[str]] = {}
    for key, line, odd, now in snapshot.all(
        "SELECT s.key, s.line, s.odd, t.id FROM shared s LEFT JOIN tasks t ON t.seq = s.seq"
        f" WHERE s.odd IS NOT NULL{about} ORDER BY s.key LIMIT {_LISTED}",
        () if id is None else (id,),
    ):
        if said := [*_left_out(snapshot, trusted(line), msgspec.json.decode(odd))]:
            left_out.setdefault(now or id_of(key), []).extend(said)
    on = {"on": True, "off": False}.get(site.state)
    return Sharing(on, site.notes, site.authors, site.site or None, site.revision, renamed, left_out)


_NAMES: Final = {
    **{"parent": "its parent", "depends_on": "its dependency", "related": "the related task"},
    "discovered_from": "the task it was found in",
}


def _left_out(snapshot: Snapshot, entry: Entry, odd: dict[str, Any]) -> Iterator[str]:
    """What a task does not show of its line, and why."""
    for field, shown in sorted(odd.items()):
        if not field:
            yield f"all of it: {shown}"
        elif field not in _NAMES:
            yield f"its {field.replace('_', ' ')}"
        else:
            wanted = entry.value(field) or ()
            for key in (wanted,) if isinstance(wanted, str) else wanted:
                if key != shown and key not in (shown or ()):
                    yield f"{_NAMES[field]} {_missing(snapshot, field, key)}"


def _missing(snapshot: Snapshot, field: str, key: str) -> str:
    """Which task a link leads to that is left out, and why."""
    row = snapshot.one(
        "SELECT s.line, t.id, t.deleted FROM shared s LEFT JOIN tasks t ON t.seq = s.seq WHERE s.key = ?", (key,)
    )
    if row is None or row[1] is None:
        gone = row is not None and trusted(row[0]).gone
        return f"{id_of(key)} {'was purged' if gone else 'is not here'}"
    return f"{row[1]} {'is deleted' if field == 'parent' and row[2] is not None else 'would close a circle'}"


def shared_lines(snapshot: Snapshot, after: str, limit: int) -> Page[str]:
    """`tasks.shared_lines`."""
    rows, more = snapshot.page("SELECT key, line FROM shared WHERE key > ? ORDER BY key LIMIT ?", (after,), limit)
    page: Page[str] = Page()
    left = PAGE_BYTES
    for key, line in rows:
        left -= len(line)
        if page and left < 0:
            more = True
            break
        page.append(line)
        page.cursor = key
    if not more:
        page.cursor = None
    return page


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report lines that are about no task, or that nobody could read."""
    for (key,) in snapshot.all("SELECT key FROM shared WHERE seq IS NOT NULL AND seq NOT IN (SELECT seq FROM tasks)"):
        yield f"the shared line {key} belongs to no task"
    for key, line, odd in snapshot.all("SELECT key, line, odd FROM shared"):
        try:
            sound = (entry := trusted(line)).key == key and to_line(entry) == line
            msgspec.json.decode(odd or "{}", type=dict[str, Any])
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            sound = False
            yield f"the shared line {key} cannot be read: {error}"
            continue
        if not sound:
            yield f"the shared line {key} is not as it was written"


def forget(tx: Tx, seq: int) -> None:
    """A task is purged: its line keeps nothing but that."""
    row = tx.one("SELECT key, line FROM shared WHERE seq = ?", (seq,))
    if row is not None:
        line = to_line(normal(msgspec.structs.replace(trusted(row[1]), gone=True)))
        tx.run("UPDATE shared SET seq = NULL, version = 0, line = ?, odd = NULL WHERE key = ?", (line, row[0]))


# --- what a task shows ------------------------------------------------------------------------------------------------


_LINKED: Final = "SELECT source, kind, target FROM links WHERE kind IN ('depends_on', 'discovered_from', 'related')"


def links_of(tx: Tx, tasks: list[Stored]) -> dict[str, dict[str, list[str]]]:
    """The targets of the links of tasks, by source and kind."""
    found: dict[str, dict[str, list[str]]] = {}
    if len(tasks) > 100:
        rows: Iterable[tuple[Any, ...]] = tx.all(_LINKED)
    else:
        rows = (row for task in tasks for row in tx.all(f"{_LINKED} AND source = ?", (task.id,)))
    for source, kind, target in rows:
        found.setdefault(source, {}).setdefault(kind, []).append(target)
    return found


def seen(tx: Tx, task: Stored, links: dict[str, list[str]], keys: Keys) -> dict[str, Any]:
    """What a task shows of each field that its line has, besides notes and results."""
    deletion = None
    if task.deletion is not None:
        row = tx.one("SELECT id FROM tasks WHERE seq = ?", (task.deletion,))
        deletion = None if row is None else keys.of(row[0])
    return {
        "title": task.title,
        "body": task.body,
        "type": task.type,
        "status": "open" if task.status == "in_progress" else task.status,
        "priority": task.priority,
        "parent": keys.of(task.parent_id),
        "tags": [*task.tag_list],
        "grimoire_hint": task.hint,
        "refs": [] if task.refs is None else msgspec.json.decode(task.refs),
        **{kind: sorted(key for id in links.get(kind, ()) if (key := keys.of(id)) is not None) for kind in LINKS},
        "deferred_until": None if task.deferred is None else as_time(task.deferred).isoformat(),
        "assigned_to": task.assignee,
        "created_at": as_time(task.created).isoformat(),
        "deleted_at": None if task.deleted is None else as_time(task.deleted).isoformat(),
        "deleted_with": deletion,
    }


def is_same(tx: Tx, field: str, shown: Any, expected: Any, keys: Keys) -> bool:
    """Whether a field shows what is expected of it: links lead to tasks that are here, and what is past is over."""
    if field in LINKS:
        return bool(shown == [key for key in expected if keys.id(key) is not None])
    if field == "deferred_until":
        return _coming(tx, shown) == _coming(tx, expected)
    if field == "parent" or field == "deleted_with":
        return bool(shown == expected or (shown is None and keys.id(expected) is None))
    return bool(shown == expected)


def _coming(tx: Tx, time: str | None) -> int | None:
    at = None if time is None else micros_of(time)
    return None if at is None or at <= tx.now else at


def micros_of(time: str) -> int:
    """A time of a line in microseconds. Raises ValueError."""
    return as_microseconds(datetime.fromisoformat(time))


# --- what was changed here -------------------------------------------------------------------------------------------


def capture(tx: Tx, site: Site) -> list[str]:
    """Bring the lines up to date with the tasks and templates here; returns the ids that are new and no longer free."""
    rows = tx.all(_CHANGED)
    _capture_templates(tx, site)
    if not rows:
        return []
    tasks = [Stored(*row[4:]) for row in rows]
    keys = Keys(tx)
    if len(rows) > 100:
        keys.load()
    fresh: list[str] = []
    for (key, *_), task in zip(rows, tasks, strict=True):
        if key is None:
            made = new_key(task.id, site.site, task.record, task.created, tx.revision)
            if _is_named(tx, task.id):
                fresh.append(task.id)
            keys.add(made, task.id)
    links = links_of(tx, tasks)
    written = []
    for (_, since, line, odd, *_), task in zip(rows, tasks, strict=True):
        key = keys.of(task.id)
        assert key is not None
        shown = {
            field: value for field, value in seen(tx, task, links.get(task.id, {}), keys).items() if site.shares(field)
        }
        left = {} if odd is None else msgspec.json.decode(odd)
        if line is None:
            entry = _new_entry(site, key, task, shown, tx.now)
        else:
            entry = _changed_entry(tx, site, trusted(line), task, shown, since, left, keys)
        entry = _with_the_rest(tx, site, entry, task)
        written.append((key, task.seq, task.version, to_line(entry), _stored(left)))
    tx.many(_PUT, written)
    if sum(tx.run(_LEADS_TO, (id,)) for id in fresh):
        capture(tx, site)
    return fresh


# Have the tasks compared again that lead to one: if it was restored after a purge elsewhere, it has another key.
_LEADS_TO: Final = (
    "UPDATE shared SET version = 0 WHERE seq IN (SELECT t.seq FROM links k JOIN tasks t ON t.id = k.source"
    " WHERE k.kind IN ('depends_on', 'discovered_from', 'related') AND k.target = ?1"
    " UNION SELECT c.seq FROM tasks p JOIN tasks c ON c.parent = p.seq WHERE p.id = ?1)"
)
_PUT: Final = (
    "INSERT INTO shared (key, seq, version, line, odd) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
    " SET seq = excluded.seq, version = excluded.version, line = excluded.line, odd = excluded.odd"
)


def put(tx: Tx, key: str, seq: int | None, version: int, line: str, odd: dict[str, Any]) -> None:
    """Store the line of a record."""
    tx.run(_PUT, (key, seq, version, line, _stored(odd)))


def _stored(odd: dict[str, Any]) -> str | None:
    return msgspec.json.encode(odd).decode() if odd else None


def _is_named(tx: Tx, id: str) -> bool:
    """Whether a record of this id was ever shared."""
    return tx.one("SELECT 1 FROM shared WHERE key > ? AND key < ?", (f"{id}~", f"{id}~~")) is not None


def _new_entry(site: Site, key: str, task: Stored, shown: dict[str, Any], now: int) -> Entry:
    made = Stamp(min(task.updated, now), site.site)
    return normal(Entry(key, made, {field: Cell(made, value) for field, value in shown.items()}))


def _changed_entry(
    tx: Tx, site: Site, entry: Entry, task: Stored, shown: dict[str, Any], since: int, odd: dict[str, Any], keys: Keys
) -> Entry:
    """The record with what differs from it; what is no longer odd is taken out of `odd`."""
    times: dict[str, int] | None = None
    for field, value in shown.items():
        expected = odd[field] if field in odd else entry.value(field)
        if field == "created_at" or is_same(tx, field, value, expected, keys):
            continue
        if times is None:
            times = _times(tx, task, since)
        odd.pop(field, None)
        at = times.get(_IN_LOG.get(field, field), task.updated)
        entry = entry.write(field, value, min(at, tx.now), site.site)
    return entry


def _times(tx: Tx, task: Stored, since: int) -> dict[str, int]:
    """When each field of a task was changed last, by its events after a version."""
    found: dict[str, int] = {}
    for time, data in tx.all(
        "SELECT time, data FROM log WHERE record = ? AND version > ? AND data IS NOT NULL ORDER BY version",
        (task.record, since),
    ):
        found |= {field: time for field in _decode(data)}
    return found


def _with_the_rest(tx: Tx, site: Site, entry: Entry, task: Stored) -> Entry:
    """Add what travels only if that is wanted: notes and the result, and who made the task."""
    if site.notes:
        told, result = told_of(tx, task.id)
        notes = dict(entry.notes)
        for note in told:
            known = (note.at.isoformat(), note.text)
            by = note.by if site.authors else None
            notes[known] = max(by or "", notes.get(known) or "") or None
        entry = msgspec.structs.replace(entry, notes=notes)
        if result is not None and result != entry.value("result"):
            entry = entry.write("result", result, min(task.updated, tx.now), site.site)
    if site.authors and entry.made.site == site.site and entry.value("created_by") is None:
        by = foreign(task.origin).get("created_by") or _author(tx, task)
        if by is not None:
            entry = entry.write("created_by", by, min(task.updated, tx.now), site.site)
    return entry


def _author(tx: Tx, task: Stored) -> str | None:
    row = tx.one("SELECT actor FROM log WHERE record = ? AND version = 1", (task.record,))
    return None if row is None or task.imported is not None else row[0]


def _capture_templates(tx: Tx, site: Site) -> None:
    for name, version, updated, content, line in tx.all(
        "SELECT t.name, t.version, t.updated, t.content, s.line FROM templates t"
        " LEFT JOIN shared s ON s.key = '~' || t.name WHERE s.version IS NOT t.version"
    ):
        tree, parameters = msgspec.msgpack.decode(content)
        value = {"tree": tree, "parameters": parameters}
        key = template_key(name)
        entry = Entry(key, Stamp(0, "none"), {}) if line is None else trusted(line)
        if entry.value("content") != value:
            entry = entry.write("content", value, min(updated, tx.now), site.site)
        put(tx, key, None, version, to_line(entry), {})
    for key, line in tx.all(
        "SELECT key, line FROM shared WHERE key > '~' AND version > 0"
        " AND NOT EXISTS (SELECT 1 FROM templates t WHERE t.name = substr(key, 2))"
    ):
        entry = trusted(line)
        row = tx.one(
            "SELECT max(l.time) FROM records r JOIN log l ON l.record = r.key WHERE r.kind = ? AND r.id = ?",
            (TEMPLATE, key[1:]),
        )
        time = tx.now if row is None or row[0] is None else row[0]
        put(tx, key, None, 0, to_line(entry.write("content", None, time, site.site)), {})
