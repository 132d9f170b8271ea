"""What `ws.check()` looks at: messages against the log, and what belongs to one against the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.kernel.tx import Snapshot

_PROBLEMS = {
    "has no text": "SELECT id FROM messages WHERE seq NOT IN (SELECT seq FROM message_texts)",
    "has no receiver": "SELECT id FROM messages WHERE seq NOT IN (SELECT message FROM deliveries)",
    "is not in the search index": "SELECT id FROM messages WHERE seq NOT IN (SELECT id FROM messages_fts_docsize)",
    "is closed for some and not for others": "SELECT id FROM messages m WHERE (closed IS NOT NULL) <>"
    " (SELECT min(status = 'closed') FROM deliveries WHERE message = m.seq) OR (closed IS NOT NULL) <>"
    " (SELECT max(status = 'closed') FROM deliveries WHERE message = m.seq)",
    "is in the log, but not in the store": "SELECT DISTINCT id FROM events WHERE kind = 'message'"
    " AND id NOT IN (SELECT id FROM messages)",
    "(by number) was delivered, but does not exist": "SELECT DISTINCT message FROM deliveries"
    " WHERE message NOT IN (SELECT seq FROM messages)",
    "(by number) has a text, but does not exist": "SELECT seq FROM message_texts"
    " WHERE seq NOT IN (SELECT seq FROM messages)",
}
_FIELDS = ("sender", "thread", "task", "type", "priority", "ack", "answers", "subject", "body")


def check(snapshot: Snapshot) -> Iterator[str]:
    """Problems: messages that the log knows otherwise, without receiver or text, or not found by a search."""
    for problem, query in _PROBLEMS.items():
        for (id,) in snapshot.all(query):
            yield f"message {id} {problem}"
    for seq, id, version, newest, *fields in snapshot.all(
        "SELECT m.seq, id, version, (SELECT max(version) FROM events e WHERE e.kind = 'message' AND e.scope = ''"
        " AND e.id = m.id), sender, thread, task, type, priority, ack, answers, subject, body"
        " FROM messages m LEFT JOIN message_texts x ON x.seq = m.seq"
    ):
        if version != newest:
            yield f"message {id} has version {version}, but the log says {newest}"
        yield from _check_steps(snapshot, seq, id, dict(zip(_FIELDS, fields, strict=True)))


def _check_steps(snapshot: Snapshot, seq: int, id: str, fields: dict[str, Any]) -> Iterator[str]:
    """Compare a message with what the log has of it, if that still has its beginning."""
    logged: dict[str, str] | None = None
    for op, data in snapshot.all(
        "SELECT op, data FROM events WHERE kind = 'message' AND scope = '' AND id = ? ORDER BY version", (id,)
    ):
        said = msgspec.msgpack.decode(data)
        if op == "send":
            logged = dict.fromkeys(said["to"], "unread")
            for name, value in fields.items():
                if value != said[name]:
                    yield f"message {id} has another {name} than the log"
        elif logged is not None:
            logged = dict.fromkeys(logged, "closed") if op == "close" else logged | {said["agent"]: said["status"][1]}
    stored: dict[str, str] = dict(snapshot.all("SELECT agent, status FROM deliveries WHERE message = ?", (seq,)))
    if logged is not None and stored != logged:
        yield f"message {id} stands otherwise than the log says: {stored}, {logged}"
