"""The part of `ws.check()` for tasks: compares them with the log, and derived tables with their source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.domains.tasks.tags import READY
from holdfast.kernel.tx import Row, Snapshot
from holdfast.route import LOADING

PAGE = 1000
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode
_FIELDS = (
    *("status", "priority", "type", "parent_id", "deleted", "claimed_by", "token", "tags", "title"),
    *("grimoire_hint", "grimoire", "body", "assigned_to", "refs", "created", "updated"),
)
# What a task has if its events never said otherwise.
_UNSAID: dict[str, Any] = {
    **dict.fromkeys(("claimed_by", "token", "grimoire_hint", "grimoire", "assigned_to")),
    **{"deleted": False, "body": "", "refs": []},
}
_PLAIN = (
    "SELECT seq, id, version, revision, imported, status, priority, type, (SELECT id FROM tasks WHERE seq = t.parent),"
    " deleted IS NOT NULL, holder, token, tags, title, hint, grimoire,"
    " (SELECT body FROM task_texts x WHERE x.seq = t.seq), assignee, coalesce(refs, '[]'), created, updated"
    " FROM tasks t"
)

# Problem -> a query for the ids of tasks that have it.
_SOUND = {
    "counts its dependencies wrongly": "SELECT id FROM tasks t WHERE waits <> (SELECT count(*) FROM links k"
    " JOIN tasks o ON o.id = k.target WHERE k.kind = 'depends_on' AND k.source = t.id"
    " AND o.status <> 'closed' AND o.deleted IS NULL)"
    " + EXISTS (SELECT 1 FROM leases l WHERE l.id = -t.record)",
    "counts the children it waits for wrongly": "SELECT id FROM tasks t WHERE busy <> (SELECT count(*) FROM tasks c"
    " WHERE c.parent = t.seq AND c.deleted IS NULL AND CASE (SELECT parents FROM meta) WHEN 'strict'"
    " THEN c.status <> 'closed' ELSE c.status IN ('in_progress', 'pending_merge') END)",
    "counts its children wrongly": "SELECT id FROM tasks t WHERE (children, ended) <> (SELECT count(*),"
    " count(*) FILTER (WHERE c.status = 'closed') FROM tasks c WHERE c.parent = t.seq AND c.deleted IS NULL)",
    "has other references in its text": "SELECT t.id FROM tasks t LEFT JOIN task_texts x USING (seq) WHERE x.refs"
    " IS NOT coalesce((SELECT group_concat(j.value ->> 1, char(10)) FROM json_each(t.refs) j), '')",
    "has a parent that does not exist": "SELECT id FROM tasks t WHERE parent IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM tasks p WHERE p.seq = t.parent)",
    "has a wrong depth": "SELECT t.id FROM tasks t LEFT JOIN tasks p ON p.seq = t.parent"
    " WHERE t.depth <> coalesce(p.depth + 1, 0)",
    "is live under a deleted parent": "SELECT t.id FROM tasks t JOIN tasks p ON p.seq = t.parent"
    " WHERE t.deleted IS NULL AND p.deleted IS NOT NULL",
    "is deleted although it is being worked on": "SELECT id FROM tasks"
    " WHERE deleted IS NOT NULL AND status IN ('in_progress', 'pending_merge')",
    "is claimed in part": "SELECT id FROM tasks WHERE (status = 'in_progress') <> (holder IS NOT NULL)"
    " OR (holder IS NULL) <> (token IS NULL) OR (holder IS NULL) <> (claimed IS NULL)",
    "is claimed without a lease": "SELECT id FROM tasks t WHERE holder IS NOT NULL AND NOT parked"
    " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.id = t.record AND l.kind = 'task' AND l.holder = t.holder)",
    "does not know its key in the log": "SELECT t.id FROM tasks t LEFT JOIN records r ON r.key = t.record"
    " WHERE (r.kind, r.scope, r.id) IS NOT ('task', '', t.id)",
    "has no text": "SELECT id FROM tasks t LEFT JOIN task_texts x USING (seq) WHERE x.title IS NOT t.title",
    "is not in the search index": "SELECT t.id FROM tasks t LEFT JOIN tasks_fts_docsize d ON d.id = t.seq"
    " WHERE d.id IS NULL",
}
_STRAY = {
    "a timer defers no task that waits": "SELECT id FROM leases l WHERE kind = 'defer' AND NOT EXISTS (SELECT 1"
    " FROM tasks t WHERE l.id = -t.record AND t.deleted IS NULL AND t.status IN ('open', 'blocked'))",
    "a lease belongs to a task without a holder": "SELECT id FROM leases l WHERE kind = 'task'"
    " AND NOT EXISTS (SELECT 1 FROM tasks t WHERE l.id = t.record AND t.holder = l.holder)",
    "what a file said of a task is not what an import keeps": "SELECT seq FROM task_imports i WHERE"
    " source NOT IN ('holdfast', 'beads', 'github', 'linear') OR typeof(digest) <> 'blob' OR length(digest) <> 20"
    " OR NOT EXISTS (SELECT 1 FROM tasks t WHERE t.seq = i.seq AND i.version BETWEEN 1 AND t.version)",
    "a text belongs to no task": "SELECT seq FROM task_texts WHERE seq NOT IN (SELECT seq FROM tasks)",
    "the search index has a row of no task": "SELECT id FROM tasks_fts_docsize WHERE id NOT IN (SELECT seq FROM tasks)",
    "a link has a missing end": "SELECT id FROM links WHERE kind IN ('depends_on', 'discovered_from', 'related')"
    " AND NOT (EXISTS (SELECT 1 FROM tasks WHERE id = source) AND EXISTS (SELECT 1 FROM tasks WHERE id = target))",
}


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report the problems of tasks; none in a store from before there were tasks."""
    if not snapshot.one("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'tasks'"):
        return
    for problem, query in _SOUND.items():
        for (id,) in snapshot.all(query):
            yield f"task {id} {problem}"
    for problem, query in _STRAY.items():
        for (id,) in snapshot.all(query):
            yield f"{problem}: {id}"
    yield from _tags(snapshot)
    yield from _circles(snapshot)
    yield from _log(snapshot)
    with LOADING:
        from holdfast.interchange import share_state
    yield from share_state.check(snapshot)


def _tags(snapshot: Snapshot) -> Iterator[str]:
    """Compare the two tables of tags with the tags in the rows of tasks."""
    truth = "SELECT j.value, t.priority, t.seq FROM tasks t, json_each(t.tags) j"
    for table, least in (("task_tags", truth), ("ready_tags", f"{truth} WHERE {READY}")):
        kept = f"SELECT tag, priority, seq FROM {table}"
        for query in (f"{least} EXCEPT {kept}", f"{kept} EXCEPT {truth}"):
            for tag, _, seq in snapshot.all(query):
                yield f"{table} is wrong about the tag {tag!r} of task number {seq}"


def _circles(snapshot: Snapshot) -> Iterator[str]:
    """Remove tasks that depend on nothing left, repeatedly: what remains is a cycle."""
    waits: dict[str, int] = {}
    waiting: dict[str, list[str]] = {}
    for source, target in snapshot.all("SELECT source, target FROM links WHERE kind = 'depends_on'"):
        waits[source] = waits.get(source, 0) + 1
        waiting.setdefault(target, []).append(source)
    free = [id for id in waiting if id not in waits]
    for id in free:  # grows while it is walked
        for source in waiting.get(id, ()):
            waits[source] -= 1
            if not waits[source]:
                free.append(source)
    circle = sorted(id for id, count in waits.items() if count)
    if circle:
        yield f"tasks depend on each other in a cycle: {', '.join(circle[:10])}"


def _log(snapshot: Snapshot) -> Iterator[str]:
    """Replay each task's events and compare; of compacted history only what comes after its last gap."""
    after = 0
    while rows := snapshot.all(f"{_PLAIN} WHERE seq > ? ORDER BY seq LIMIT ?", (after, PAGE)):
        for row in rows:
            yield from _replayed(snapshot, row)
        after = rows[-1][0]
    for (id,) in snapshot.all(
        "SELECT e.id FROM events e WHERE e.kind = 'task' GROUP BY e.id"
        " HAVING NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = e.id)"
        " AND (SELECT op FROM events n WHERE n.kind = 'task' AND n.scope = '' AND n.id = e.id"
        " ORDER BY version DESC LIMIT 1) <> 'purge'"
    ):
        yield f"task {id} is in the log, but not in the store"


def _replayed(snapshot: Snapshot, row: Row) -> Iterator[str]:
    _, id, version, revision, imported, *values = row
    found = dict(zip(_FIELDS, values, strict=True))
    found["tags"], found["refs"] = msgspec.json.decode(found["tags"]), msgspec.json.decode(found["refs"])
    logged: dict[str, Any] = dict(_UNSAID)
    newest = (0, 0)
    for newest_version, newest_revision, time, data in snapshot.all(
        "SELECT version, revision, time, data FROM events WHERE kind = 'task' AND scope = '' AND id = ?"
        " ORDER BY version",
        (id,),
    ):
        if newest_version == 1 and imported is None:
            logged["created"] = time
        elif newest_version != newest[0] + 1:
            logged = {}
        newest = (newest_version, newest_revision)
        if imported is None:  # otherwise its times come from elsewhere
            logged["updated"] = time
        if data is not None:
            logged |= {field: change[1] for field, change in _decode(data).items() if field in found}
    if newest != (version, revision):
        yield f"task {id} is at version {version} of revision {revision}, its newest event at {newest}"
    for field, value in logged.items():
        if found[field] != value:
            yield f"task {id} has {field} {found[field]!r}, but {value!r} in the log"
