"""Messages as they are stored and read: inboxes, threads, search and history; and their part of `ws.check()`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from holdfast import errors
from holdfast.domains.tasks.queries import match_of
from holdfast.domains.tasks.rows import find as find_task
from holdfast.kernel import events
from holdfast.kernel.events import compare, pasts
from holdfast.kernel.leases import name_of
from holdfast.kernel.tx import Row, Snapshot, Tx, fill
from holdfast.kernel.validate import after_prefix, check_limit, check_name, check_offset
from holdfast.types import END_OF_REVISION, Event, Page, as_time
from holdfast.types.agents import MailHit, MailStatus, MailStep, MailThread, MailType, Message

MESSAGE: Final = "message"
COLUMNS: Final = (
    "m.seq, m.id, m.thread, m.task, m.sender, m.type, m.priority, m.ack, m.answers, m.sent, m.closed, m.version,"
    " m.revision, m.receiver, x.subject, x.body"
)
SOURCE: Final = "messages m JOIN message_texts x ON x.seq = m.seq"
_names = msgspec.json.Decoder(tuple[str, ...]).decode
ALL: Final = "*"
encode_names = msgspec.json.Encoder().encode


class Stored(msgspec.Struct, frozen=True):
    """A row of `messages` with its texts, with the columns COLUMNS."""

    seq: int
    id: str
    thread: str
    task: str | None
    sender: str
    type: MailType
    priority: int
    ack: int
    answers: str | None
    sent: int
    closed: int | None
    version: int
    revision: int
    receiver: str
    subject: str
    body: str


def to_message(snapshot: Snapshot, stored: Stored) -> Message:
    """Return the public form, with the status of each recipient."""
    rows = snapshot.all("SELECT agent, status FROM deliveries WHERE message = ? ORDER BY agent", (stored.seq,))
    return Message(
        stored.id,
        stored.thread,
        stored.sender,
        _names(stored.receiver),
        stored.subject,
        stored.body,
        stored.type,
        stored.priority,
        bool(stored.ack),
        stored.task,
        stored.answers,
        as_time(stored.sent),
        None if stored.closed is None else as_time(stored.closed),
        dict(rows),
        stored.version,
        stored.revision,
        short_of(stored.seq),
    )


def short_of(seq: int) -> str:
    """Return the short id of a message, which its events carry too."""
    return f"m{seq}"


def require(snapshot: Snapshot, id: str) -> Stored:
    """Return a message by its id, its number or an unambiguous prefix of the id.

    Raises MessageNotFound, or InvalidID for a prefix of several.
    """
    check_name(id, "id")
    row = snapshot.one(f"SELECT {COLUMNS} FROM {SOURCE} WHERE m.id = ?", (id,))
    if row is None and (whole := _unabbreviated(snapshot, id)) is not None:
        row = snapshot.one(f"SELECT {COLUMNS} FROM {SOURCE} WHERE m.id = ?", (whole,))
    if row is None:
        raise errors.MessageNotFound(f"there is no message {id!r}", hint="mail.inbox() lists yours", id=id)
    return Stored(*row)


def _unabbreviated(snapshot: Snapshot, id: str) -> str | None:
    """Return the id that a number or a prefix stands for; a prefix has the first eight digits."""
    if re.fullmatch(r"m[1-9][0-9]{0,17}", id):
        row = snapshot.one("SELECT id FROM messages WHERE seq = ?", (int(id[1:]),))
        return None if row is None else row[0]
    if not re.fullmatch(r"[0-9a-f]{8}[0-9a-f-]{0,27}", id):
        return None
    begin = (id, after_prefix(id))
    found = [each for (each,) in snapshot.all("SELECT id FROM messages WHERE id >= ? AND id < ? LIMIT 6", begin)]
    if len(found) > 1:
        hint = f"write more of it: {', '.join(sorted(found))}"
        raise errors.InvalidID(f"{id!r} matches several messages", hint=hint, candidates=sorted(found))
    return found[0] if found else None


def select(snapshot: Snapshot, where: str, params: Sequence[Any]) -> list[Stored]:
    """Return the messages that match a condition."""
    return [Stored(*row) for row in snapshot.all(f"SELECT {COLUMNS} FROM {SOURCE} WHERE {where}", params)]


def status_of(snapshot: Snapshot, stored: Stored, agent: str) -> MailStatus | None:
    """Return a recipient's status of a message; None if it was not sent to that agent."""
    row: Row | None = snapshot.one("SELECT status FROM deliveries WHERE message = ? AND agent = ?", (stored.seq, agent))
    return None if row is None else row[0]


def change(tx: Tx, stored: Stored, op: str, data: dict[str, Any], closed: int | None = None) -> Message:
    """Log a step in the life of a message, after its deliveries were changed."""
    version = stored.version + 1
    tx.run(
        "UPDATE messages SET version = ?, revision = ?, closed = ? WHERE seq = ?",
        (version, tx.revision, closed, stored.seq),
    )
    data = {**data, "short": short_of(stored.seq)}
    tx.emit(MESSAGE, stored.id, op, version=version, data=msgspec.msgpack.encode(data))
    return to_message(tx, require(tx, stored.id))


MAX_PAGE: Final = 200
MAX_HISTORY: Final = 10_000
_WEIGHTS = "10.0, 1.0"  # a word in the subject counts more


def inbox(
    snapshot: Snapshot,
    me: str,
    agent: str | None = None,
    unread: bool = False,
    closed: bool = False,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[Message]:
    """List an agent's messages, newest first: the open ones, only the unread ones, or all with `closed`."""
    agent = name_of(me, agent, "agent")
    check_limit(limit, MAX_PAGE, "cursor")
    for value, what in ((unread, "unread"), (closed, "closed")):
        if type(value) is not bool:
            raise errors.InvalidFilter(f"{what} must be True or False, not {value!r}")
    index = "deliveries_unread" if unread else "deliveries_all" if closed else "deliveries_open"
    only = " AND d.status = 'unread'" if unread else "" if closed else " AND d.status <> 'closed'"
    rows, more = snapshot.page(
        f"SELECT {COLUMNS} FROM deliveries d INDEXED BY {index} CROSS JOIN messages m ON m.seq = d.message"
        f" CROSS JOIN message_texts x ON x.seq = d.message WHERE d.agent = ?{only} AND d.message < ?"
        " ORDER BY d.message DESC LIMIT ?",
        (agent, _place(cursor, 2**62)),
        limit,
    )
    return _page(snapshot, rows, more)


def unread(snapshot: Snapshot, me: str, agent: str | None = None) -> int:
    """Count the messages that an agent has neither acknowledged nor acted on."""
    row = snapshot.one("SELECT unread FROM mailboxes WHERE agent = ?", (name_of(me, agent, "agent"),))
    return 0 if row is None else row[0]


def sent(
    snapshot: Snapshot, me: str, agent: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Message]:
    """List the messages that an agent has sent, newest first."""
    agent = name_of(me, agent, "agent")
    check_limit(limit, MAX_PAGE, "cursor")
    where = "m.sender = ? AND m.seq < ? ORDER BY m.seq DESC LIMIT ?"
    return _page(snapshot, *_select_page(snapshot, where, (agent, _place(cursor, 2**62)), limit))


def get(snapshot: Snapshot, id: str) -> Message:
    """Return a message by its id; reading does not acknowledge it. Raises MessageNotFound."""
    return to_message(snapshot, require(snapshot, id))


def thread(snapshot: Snapshot, id: str, limit: int = MAX_PAGE, cursor: str | None = None) -> Page[Message]:
    """List the messages of a thread, oldest first, by its name or the id of any of them. Raises MessageNotFound."""
    check_limit(limit, MAX_PAGE, "cursor")
    name = thread_of(snapshot, id, "id")
    where = "m.thread = ? AND m.seq > ? ORDER BY m.seq LIMIT ?"
    found, more = _select_page(snapshot, where, (name, _place(cursor, 0)), limit)
    if not found and cursor is None:
        hint = "mail.inbox() lists your messages, with their threads"
        raise errors.MessageNotFound(f"there is no thread or message {id!r}", hint=hint, id=id)
    return _page(snapshot, found, more)


Box = Literal["all", "to", "sent", "closed"]
_RECEIVED: Final = " AND EXISTS (SELECT 1 FROM deliveries d WHERE d.message = n.seq AND d.agent = ?)"
_BOXES: Final[
    dict[str, tuple[str, int]]
] = {  # a condition on one message of the thread, and how often it names the agent
    "all": ("", 0),
    "to": (_RECEIVED, 1),
    "sent": (" AND n.sender = ?", 1),
    "closed": (" AND n.closed IS NOT NULL", 0),
}
_UNREAD: Final = (
    "SELECT count(*), coalesce(max(m.ack = 1 OR m.type IN ('request', 'decision-required', 'objection')), 0)"
    " FROM messages m CROSS JOIN deliveries d ON d.message = m.seq AND d.agent = ? WHERE m.thread = ?"
    " AND d.status = 'unread'"
)


def threads(
    snapshot: Snapshot, me: str, box: Box = "all", agent: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[MailThread]:
    """List the threads, newest message first: all, those to an agent or sent by it, or those with a closed one.

    `unread` and `wants` are those of the agent, by default the caller.
    """
    check_limit(limit, MAX_PAGE, "cursor")
    if box not in _BOXES:
        raise errors.InvalidFilter(f"{box!r} is not a box", hint=f"boxes: {', '.join(_BOXES)}")
    condition, times = _BOXES[box]
    who = name_of(me, agent, "agent") if times or agent is not None else me
    rows, more = snapshot.page(
        "SELECT m.seq, m.thread, m.sent FROM messages m WHERE NOT EXISTS (SELECT 1 FROM messages n WHERE n.thread ="
        " m.thread AND n.seq > m.seq) AND EXISTS (SELECT 1 FROM messages n WHERE n.thread = m.thread"
        f"{condition}) AND m.seq < ? ORDER BY m.seq DESC LIMIT ?",
        (*([who] * times), _place(cursor, 2**62)),
        limit,
    )
    page: Page[MailThread] = Page()
    more |= fill(page, (_thread(snapshot, name, sent, who) for _, name, sent in rows), len(rows))
    page.cursor = str(rows[len(page) - 1][0]) if more else None
    return page


def _thread(snapshot: Snapshot, name: str, last: int, who: str) -> MailThread:
    (first,) = select(snapshot, "m.thread = ? ORDER BY m.seq LIMIT 1", (name,))
    counts = snapshot.one("SELECT count(*), min(closed IS NOT NULL) FROM messages WHERE thread = ?", (name,))
    unread = snapshot.one(_UNREAD, (who, name))
    assert counts is not None
    assert unread is not None
    return MailThread(
        name, to_message(snapshot, first), counts[0], as_time(last), unread[0], bool(unread[1]), bool(counts[1])
    )


def thread_of(snapshot: Snapshot, name: str, what: str) -> str:
    """Return the thread of that name, or the thread of the message with this id, number or prefix."""
    check_name(name, what)
    by_id = "SELECT thread FROM messages WHERE id = ?"
    row = snapshot.one(by_id, (name,)) or snapshot.one("SELECT thread FROM messages WHERE thread = ? LIMIT 1", (name,))
    if row is None and (whole := _unabbreviated(snapshot, name)) is not None:
        row = snapshot.one(by_id, (whole,))
    return name if row is None else row[0]


def about(snapshot: Snapshot, task: str, limit: int = MAX_PAGE, cursor: str | None = None) -> Page[Message]:
    """List the messages about a task, oldest first. Raises TaskNotFound."""
    check_limit(limit, MAX_PAGE, "cursor")
    found = find_task(snapshot, task, deleted=True).id
    where = "m.task = ? AND m.seq > ? ORDER BY m.seq LIMIT ?"
    return _page(snapshot, *_select_page(snapshot, where, (found, _place(cursor, 0)), limit))


def _select_page(snapshot: Snapshot, where: str, params: Sequence[Any], limit: int) -> tuple[list[Row], bool]:
    return snapshot.page(f"SELECT {COLUMNS} FROM {SOURCE} WHERE {where}", params, limit)


def _page(snapshot: Snapshot, rows: list[Row], more: bool) -> Page[Message]:
    page: Page[Message] = Page()
    # The status of each recipient, which is not in the row, counts too: it may have thousands.
    more |= fill(page, (to_message(snapshot, Stored(*row)) for row in rows), len(rows))
    page.cursor = str(rows[len(page) - 1][0]) if more else None
    return page


def _place(cursor: str | None, start: int) -> int:
    if cursor is None:
        return start
    if not isinstance(cursor, str) or not re.fullmatch(r"[0-9]{1,18}", cursor):
        raise errors.InvalidFilter(f"{cursor!r} is not a cursor of mail", hint="pass the page's cursor unchanged")
    return int(cursor)


def search(snapshot: Snapshot, text: str, agent: str | None = None, limit: int = 20, offset: int = 0) -> Page[MailHit]:
    """Search messages that contain all words, best first; with `agent` only those it received or sent."""
    check_limit(limit, 100, "offset")
    check_offset(offset)
    where, params = "", [match_of(text)]
    if agent is not None:
        check_name(agent, "agent")
        where = " AND (m.sender = ? OR EXISTS (SELECT 1 FROM deliveries d WHERE d.message = m.seq AND d.agent = ?))"
        params += [agent, agent]
    rows, more = snapshot.page(
        f"SELECT snippet(messages_fts, -1, '**', '**', '…', 16), bm25(messages_fts, {_WEIGHTS}) AS score, {COLUMNS}"
        " FROM messages_fts f JOIN messages m ON m.seq = f.rowid JOIN message_texts x ON x.seq = m.seq"
        f" WHERE messages_fts MATCH ?{where} ORDER BY score, m.seq LIMIT ?, ?",
        (*params, offset),
        limit,
    )
    page: Page[MailHit] = Page()
    hits = (MailHit(to_message(snapshot, Stored(*row[2:])), row[0], row[1]) for row in rows)
    more |= fill(page, hits, limit)
    page.cursor = str(offset + len(page)) if more else None
    return page


def history(snapshot: Snapshot, id: str, limit: int = MAX_HISTORY, after: int | None = None) -> Page[MailStep]:
    """Return the steps in the life of a message with their notes, oldest first, above version `after`.

    Raises MessageNotFound, or Compacted for an `after` below what is left.
    """
    check_limit(limit, MAX_HISTORY, "after a version")
    if after is not None and (type(after) is not int or not 0 <= after <= END_OF_REVISION):
        raise errors.InvalidFilter(f"after must be a version, not {after!r}")
    rows, more, compacted = events.story_page(snapshot, MESSAGE, "", require(snapshot, id).id, after, limit)
    page = Page(_step(events.to_event(row)) for row in rows)
    page.cursor = str(page[-1].version) if more else None
    page.compacted = compacted
    return page


def _step(event: Event) -> MailStep:
    said = event.data
    status: MailStatus | None = "closed" if event.op == "close" else said["status"][1] if "status" in said else None
    who: str = said["sender"] if event.op == "send" else said["agent"]
    return MailStep(
        event.id, event.op, who, event.actor, event.time, status, said.get("note"), event.version, event.revision
    )


# --- for tasks -------------------------------------------------------------------------------------------------------


def newest_about(snapshot: Snapshot, task: str, limit: int) -> tuple[list[Message], int]:
    """Return the last messages about a task, oldest first, and the number of all."""
    found, _ = _select_page(snapshot, "m.task = ? ORDER BY m.seq DESC LIMIT ?", (task,), limit)
    row = snapshot.one("SELECT count(*) FROM messages WHERE task = ?", (task,))
    return [to_message(snapshot, Stored(*each)) for each in reversed(found)], 0 if row is None else row[0]


def open_about(snapshot: Snapshot, task: str) -> list[str]:
    """Return the ids of open messages about a task, at most a hundred."""
    rows = snapshot.all("SELECT id FROM messages WHERE task = ? AND closed IS NULL ORDER BY seq LIMIT 100", (task,))
    return [id for (id,) in rows]


_PROBLEMS = {
    "has no text": "SELECT id FROM messages WHERE seq NOT IN (SELECT seq FROM message_texts)",
    "has no receiver": "SELECT id FROM messages WHERE seq NOT IN (SELECT message FROM deliveries)",
    "is not in the search index": "SELECT id FROM messages WHERE seq NOT IN (SELECT id FROM messages_fts_docsize)",
    "is closed for some recipients only": "SELECT id FROM messages m WHERE (closed IS NOT NULL) <>"
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
    """Report messages that differ from the log, lack recipients or text, or are missing in the search index."""
    for problem, query in _PROBLEMS.items():
        for (id,) in snapshot.all(query):
            yield f"message {id} {problem}"
    columns = ("version", "revision", "created")
    rows = "SELECT id, version, revision, sent FROM messages"
    yield from compare(snapshot, MESSAGE, pasts(snapshot, MESSAGE), rows, columns)
    for seq, id, closed, receiver, *fields in snapshot.all(
        "SELECT m.seq, id, closed, receiver, sender, thread, task, type, priority, ack, answers, subject, body"
        " FROM messages m LEFT JOIN message_texts x ON x.seq = m.seq"
    ):
        yield from _check_steps(snapshot, seq, id, closed, receiver, dict(zip(_FIELDS, fields, strict=True)))
    counted = "SELECT agent, sum(status = 'unread') FROM deliveries GROUP BY agent"
    for agent, _ in snapshot.all(f"{counted} EXCEPT SELECT agent, unread FROM mailboxes"):
        yield f"the unread messages of {agent} are counted wrongly"


def _check_steps(
    snapshot: Snapshot, seq: int, id: str, closed: int | None, receiver: str, fields: dict[str, Any]
) -> Iterator[str]:
    """Compare a message with its events, if its first one is still in the log."""
    logged: dict[str, tuple[str, int]] | None = None
    ended = None
    for op, time, data in snapshot.all(
        "SELECT op, time, data FROM events WHERE kind = 'message' AND scope = '' AND id = ? ORDER BY version", (id,)
    ):
        said = msgspec.msgpack.decode(data)
        if op == "send":
            logged = dict.fromkeys(said["to"], ("unread", time))
            for name, value in fields.items():
                if value != said[name]:
                    yield f"message {id} differs from the log in its {name}"
            if receiver not in (encode_names((ALL,)).decode(), encode_names(said["to"]).decode()):
                yield f"message {id} differs from the log in its recipients"
        elif op == "close":
            ended = time
            logged = logged and dict.fromkeys(logged, ("closed", time))
        elif logged is not None:
            logged |= {said["agent"]: (said["status"][1], time)}
    steps = snapshot.all("SELECT agent, status, updated FROM deliveries WHERE message = ?", (seq,))
    stored: dict[str, tuple[str, int]] = {agent: (status, updated) for agent, status, updated in steps}
    if logged is not None and (stored, closed) != (logged, ended):
        yield f"message {id} has the statuses {stored}, but {logged} in the log"
