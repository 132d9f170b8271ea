"""Mail at its edges (A3): what is refused, who is refused, keys, transactions, and what a self-check finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Exists, NotExists, Op, Transaction, ValueEquals, VersionEquals, errors
from holdfast.remote import RemoteWorkspace
from holdfast.workspace.context import derive_actor
from tests.conformance.test_mail import (
    STATUSES,
    Call,
    brought,
    callables,
    everything,
    local,
    refused,
    sent_by,
)
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

# --- bad input -------------------------------------------------------------------------------------------------------

BAD_NAMES: tuple[Any, ...] = ("", "a\nb", "x" * 513, "\ud800", 7, b"ann")
BAD_LINES: tuple[Any, ...] = ("", "  ", "a\nb", "\x1b[0m", "\ud800", None, 7)
BAD_TEXTS: tuple[Any, ...] = ("a\0b", "\ud800", 7, b"body")
BAD_LIMITS: tuple[Any, ...] = (0, 201, -1, True, "5", None)
BAD_CURSORS: tuple[Any, ...] = ("", "x", "-1", "1\n", "1" * 19, 7)

# Of each argument: the error and what it is refused for.
BAD_SENDS: dict[str, list[tuple[type[errors.HoldfastError], tuple[Any, ...]]]] = {
    "to": [
        (errors.InvalidName, (*BAD_NAMES[:5], ["ann", ""], ["ann", 7], [["ann"]])),
        (errors.Invalid, (None, b"ann", [], {"ann": 1}, ["*", "ann"])),
        (errors.TooLarge, ([f"agent-{number}" for number in range(1001)],)),
    ],
    "subject": [(errors.InvalidValue, BAD_LINES), (errors.TooLarge, ("x" * 501,))],
    "body": [(errors.InvalidValue, (*BAD_TEXTS, None)), (errors.TooLarge, ("é" * 131_073,))],
    "thread": [(errors.InvalidName, BAD_NAMES)],
    "task": [(errors.TaskNotFound, ("hf-none",)), (errors.InvalidName, BAD_NAMES)],
    "priority": [(errors.InvalidPriority, (-1, 5, True, "1", 1.0, None))],
    "type": [(errors.InvalidType, ("", "letter", None, 7, ["notify"]))],
    "ack": [(errors.Invalid, (1, 0, None, "yes"))],
    "sender": [(errors.InvalidName, BAD_NAMES)],
}


@pytest.mark.parametrize("argument", BAD_SENDS)
def test_a3_a_bad_argument_of_send_gets_its_error_and_nothing_changes(world: World, argument: str) -> None:
    ws: Any = world.open("bob")
    good: dict[str, Any] = {"to": "ann", "subject": "subject"}
    ws.mail.send(**good)
    before = everything(ws)
    for error, values in BAD_SENDS[argument]:
        for value in values:
            with pytest.raises(errors.HoldfastError) as caught:
                ws.mail.send(**(good | {argument: value}))
            expected = errors.Invalid if (argument, value) == ("to", 7) else error
            assert type(caught.value) is expected, f"{value!r}: {caught.value!r}"
    assert everything(ws) == before


@pytest.mark.parametrize("argument", sorted(BAD_SENDS.keys() - {"thread", "task"}))
def test_a3_a_bad_argument_of_reply_gets_its_error_and_nothing_changes(world: World, argument: str) -> None:
    ws: Any = world.open("bob")
    id = ws.mail.send("ann", "subject").id
    before = everything(ws)
    for error, values in BAD_SENDS[argument]:
        for value in values:
            if value is None and argument in ("to", "subject", "priority"):
                continue  # as the message that is answered has it
            with pytest.raises(errors.HoldfastError) as caught:
                ws.mail.reply(**({"id": id, "body": "body"} | {argument: value}))
            expected = errors.Invalid if (argument, value) == ("to", 7) else error
            assert type(caught.value) is expected, f"{value!r}: {caught.value!r}"
    assert everything(ws) == before


def test_a3_a_bad_argument_of_a_step_gets_its_error_and_nothing_changes(world: World) -> None:
    ws: Any = world.open("ann")
    fresh, seen = brought(ws, "unread"), brought(ws, "acknowledged")
    calls: tuple[tuple[Call, str, str], ...] = (
        (ws.mail.ack, fresh.id, "note"),
        (ws.mail.action, fresh.id, "note"),
        (ws.mail.close, fresh.id, "note"),
        (lambda id, reason="waits", **given: ws.mail.block(id, reason, **given), seen.id, "reason"),
    )
    before = everything(ws)
    for call, id, note in calls:
        bad: list[tuple[type[errors.HoldfastError], dict[str, Any]]] = [
            *((errors.InvalidName, {"agent": name}) for name in BAD_NAMES),
            *((errors.InvalidValue, {note: text}) for text in BAD_TEXTS),
            (errors.TooLarge, {note: "x" * 65_537}),
            *((errors.InvalidName, {"id": name}) for name in (*BAD_NAMES, None)),
            (errors.MessageNotFound, {"id": "no such message"}),
        ]
        for error, given in bad:
            with pytest.raises(errors.HoldfastError) as caught:
                call(**({"id": id} | given))
            assert type(caught.value) is error, f"{given!r}: {caught.value!r}"
    assert everything(ws) == before


def test_a3_a_bad_argument_of_a_read_gets_its_error(world: World) -> None:
    ws: Any = world.open("ann")
    id = brought(ws, "unread").id
    task = ws.tasks.create("task").id
    pages: tuple[Call, ...] = (
        ws.mail.inbox,
        ws.mail.sent,
        lambda **given: ws.mail.thread(id, **given),
        lambda **given: ws.mail.about(task, **given),
    )
    found: list[tuple[type[errors.HoldfastError], Call, dict[str, Any]]] = []
    for read in pages:
        found += [(errors.InvalidFilter, read, {"limit": limit}) for limit in BAD_LIMITS]
        found += [(errors.InvalidFilter, read, {"cursor": cursor}) for cursor in BAD_CURSORS]
    for read in (ws.mail.inbox, ws.mail.sent, ws.mail.unread, lambda **given: ws.mail.search("word", **given)):
        found += [(errors.InvalidName, read, {"agent": name}) for name in BAD_NAMES]
    for read in (ws.mail.get, ws.mail.thread, ws.mail.history):
        found += [(errors.InvalidName, read, {"id": name}) for name in (*BAD_NAMES, None)]
        found.append((errors.MessageNotFound, read, {"id": "no such message"}))
    found += [(errors.InvalidName, ws.mail.about, {"task": name}) for name in (*BAD_NAMES, None)]
    found.append((errors.TaskNotFound, ws.mail.about, {"task": "hf-none"}))
    found += [(errors.InvalidFilter, ws.mail.inbox, {flag: 1}) for flag in ("unread", "closed")]
    found += [
        (errors.InvalidFilter, ws.mail.search, {"text": text}) for text in ("", " ", "*", "\ud800", "a" * 1001, 7)
    ]
    found += [(errors.InvalidFilter, ws.mail.search, {"text": "word", "limit": limit}) for limit in (0, 101, True)]
    before = everything(ws)
    for error, call, given in found:
        with pytest.raises(errors.HoldfastError) as caught:
            call(**given)
        assert type(caught.value) is error, f"{given!r}: {caught.value!r}"
    assert everything(ws) == before


def test_a3_what_is_just_small_enough_passes(world: World) -> None:
    ws = world.open("bob")
    sent = ws.mail.send([f"agent-{number}" for number in range(1000)], "x" * 500, "é" * 131_072, priority=0)
    assert (len(sent.warnings), sent.warnings[-1]) == (11, "990 more recipients have not been seen here")
    sent = ws.mail.get(sent.id)
    assert (len(sent.status), len(sent.subject)) == (1000, 500)
    assert ws.mail.ack(sent.id, "agent-999", "x" * 65_536).status["agent-999"] == "acknowledged"


# --- identity, keys and transactions ----------------------------------------------------------------------------------


def test_a1_an_actor_that_was_only_derived_must_say_whose_mail_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)
    ws = world.open("bob")
    nobody: Any = ws.using(actor=derive_actor())
    sent = ws.mail.send("ann", "subject")
    calls: dict[str, Call] = {
        "send": lambda **given: nobody.mail.send("cy", "subject", **given),
        "reply": lambda **given: nobody.mail.reply(sent.id, "body", **given),
        "inbox": nobody.mail.inbox,
        "unread": nobody.mail.unread,
        "sent": nobody.mail.sent,
        "ack": lambda **given: nobody.mail.ack(sent.id, **given),
        "block": lambda **given: nobody.mail.block(sent.id, "waits", **given),
        "action": lambda **given: nobody.mail.action(sent.id, **given),
    }
    for name, call in calls.items():
        argument = "sender" if name in ("send", "reply") else "agent"
        error = refused(ws, errors.InvalidHolder, call)
        assert argument in error.message
        own = errors.NAME_YOURSELF_REMOTELY if isinstance(nobody, RemoteWorkspace) else errors.NAME_YOURSELF
        assert own in error.hint
        call(**{argument: "ann"})
    error = refused(ws, errors.InvalidHolder, nobody.mail.close, sent.id)
    assert set(nobody.mail.close(sent.id, "bob").status.values()) == {"closed"}
    assert {event.actor for event in ws.events.list()} == {"bob", str(nobody.actor)}
    assert [agent.name for agent in ws.agents.list()] == ["ann", "bob"]


@pytest.mark.kinds("every")
def test_a3_a_message_that_is_sent_twice_under_one_key_is_sent_once(world: World) -> None:
    ws, again = world.open("bob"), world.open("bob")
    sent = ws.using(key="k").mail.send(["ann", "cy"], "subject", "body", ack=True)
    ws.mail.ack(sent.id, "ann")
    assert again.using(key="k").mail.send(["ann", "cy"], "subject", "body", ack=True) == sent
    assert [message.id for message in ws.mail.sent()] == [sent.id]
    refused(ws, errors.Invalid, lambda: ws.using(key="k").mail.send("ann", "another"))
    answer = ws.using(key="r").mail.reply(sent.id, "yes", sender="ann")
    assert ws.using(key="r").mail.reply(sent.id, "yes", sender="ann") == answer
    done = ws.using(key="a").mail.action(sent.id, "cy")
    assert ws.using(key="a").mail.action(sent.id, "cy") == done, "a repeated step is no illegal one"
    assert ws.mail.unread("bob") == 1


def test_a6_mail_is_sent_and_steps_are_taken_in_a_txn_or_nothing_is(world: World) -> None:
    ws = world.open("bob")
    sent = ws.mail.send("ann", "subject")
    task = ws.tasks.create("task")
    conditions = [
        Exists("message", sent.id),
        VersionEquals("message", sent.id, 1),
        ValueEquals("message", sent.id, "open"),
    ]
    ops = [
        Op("tasks.claim", {"id": task.id, "agent": "ann"}),
        Op("mail.ack", {"id": sent.id, "agent": "ann", "note": "on it"}),
        Op("mail.send", {"to": "bob", "subject": "started", "sender": "ann", "task": task.id}),
        Op("mail.inbox", {"agent": "bob"}),
        Op("mail.unread", {}),
    ]
    revision = ws.revision
    result = ws.txn(conditions, ops, [Op("mail.get", {"id": sent.id})])
    assert result.succeeded
    claimed, acked, started, inbox, unread = result.results
    assert (claimed.claimed_by, acked.status, started.task) == ("ann", {"ann": "acknowledged"}, task.id)
    assert (list(inbox), unread) == ([started], 1)
    assert ws.revision == revision + 1 == started.revision == ws.mail.get(sent.id).revision
    seen = ws.txn(conditions, ops, [Op("mail.get", {"id": sent.id})])
    assert (seen.succeeded, seen.results) == (False, [acked])
    bad = [Op("mail.send", {"to": "ann", "subject": "never"}), Op("mail.close", {"id": sent.id, "agent": "ann"})]
    refused(ws, errors.NotSender, ws.txn, [], bad)
    ws.txn([], [Op("mail.close", {"id": sent.id})])
    assert ws.txn([ValueEquals("message", sent.id, "closed")], []).succeeded
    assert ws.txn([NotExists("message", "no such message")], []).succeeded
    assert not ws.txn([Exists("message", "no such message")], []).succeeded
    refused(ws, errors.InvalidName, ws.txn, [Exists("message", "")], [])


@callables
def test_a6_a_step_that_fails_inside_a_transaction_leaves_nothing_of_itself(world: World) -> None:
    ws = world.open("bob")
    sent = sent_by(ws.mail.send, "ann", "subject")

    def body(tx: Transaction) -> str:
        with pytest.raises(errors.NotSender):
            tx.mail.close(sent.id, "ann")
        with pytest.raises(errors.InvalidTransition):
            tx.mail.block(sent.id, "too early", "ann")
        return tx.mail.send("ann", "sent all the same").id

    id = ws.transact(body)
    assert (ws.mail.get(sent.id), ws.mail.get(id).version) == (sent, 1)
    before = everything(ws)

    def failing(tx: Transaction) -> None:
        tx.mail.action(sent.id, "ann")
        tx.mail.send("cy", "never")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ws.transact(failing)
    assert everything(ws) == before
    assert ws.mail.search("never") == []


# --- check -----------------------------------------------------------------------------------------------------------

_KEPT = ("messages", "deliveries", "message_texts", "messages_fts_docsize")
_ID = "(SELECT seq FROM message_texts WHERE subject = 'first')"
DAMAGES: dict[str, str] = {
    f"UPDATE deliveries SET status = 'actioned' WHERE message = {_ID} AND agent = 'ann'": "has the statuses",
    f"UPDATE deliveries SET status = 'unread' WHERE message = {_ID} AND agent = 'cy'": "has the statuses",
    f"UPDATE deliveries SET status = 'nonsense' WHERE message = {_ID} AND agent = 'ann'": "has the statuses",
    f"UPDATE deliveries SET status = 'closed' WHERE message = {_ID} AND agent = 'ann'": "closed for some",
    f"UPDATE deliveries SET agent = 'dee' WHERE message = {_ID} AND agent = 'ann'": "has the statuses",
    f"DELETE FROM deliveries WHERE message = {_ID} AND agent = 'ann'": "has the statuses",
    f"DELETE FROM deliveries WHERE message = {_ID}": "has no receiver",
    f"INSERT INTO deliveries SELECT message, 'dee', status, updated FROM deliveries WHERE message = {_ID}"
    " AND agent = 'ann'": "has the statuses",
    "INSERT INTO deliveries VALUES (999, 'ann', 'unread', 1)": "delivered, but does not exist",
    f"UPDATE messages SET closed = 1 WHERE seq = {_ID}": "closed for some",
    f"UPDATE messages SET version = version + 1 WHERE seq = {_ID}": "has the version",
    f"DELETE FROM messages WHERE seq = {_ID}": "does not exist",
    "UPDATE message_texts SET subject = 'forged' WHERE subject = 'first'": "differs from the log in its",
    "UPDATE message_texts SET body = 'forged' WHERE subject = 'first'": "differs from the log in its",
    "DELETE FROM message_texts WHERE subject = 'first'": "has no text",
    "INSERT INTO message_texts VALUES (999, 'stray', '')": "has a text, but does not exist",
    f"DELETE FROM messages_fts_docsize WHERE id = {_ID}": "search index",
    f"UPDATE messages SET sender = 'dee' WHERE seq = {_ID}": "log",
    f"UPDATE messages SET thread = 'another' WHERE seq = {_ID}": "log",
    f"UPDATE messages SET task = 'hf-none' WHERE seq = {_ID}": "log",
    f"UPDATE messages SET answers = 'nothing' WHERE seq = {_ID}": "log",
    f"UPDATE messages SET priority = 0 WHERE seq = {_ID}": "log",
    f"UPDATE messages SET type = 'objection' WHERE seq = {_ID}": "log",
    f"UPDATE messages SET ack = 1 WHERE seq = {_ID}": "log",
}


@contextmanager
def damaged(ws: Any, *statements: str) -> Iterator[None]:
    """Damage the tables of mail behind the back of a workspace of one engine, and put them right again."""
    connection = ws._engine.store.writer
    kept = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in _KEPT}
    try:
        for sql in statements:
            connection.execute(sql)
            assert connection.changes() > 0
        yield
    finally:
        for table, rows in kept.items():
            connection.execute(f"DELETE FROM {table}")
            if rows:
                connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


@local
@pytest.mark.parametrize("sql", DAMAGES, ids=lambda sql: sql.partition(" WHERE")[0])
def test_check_finds_mail_that_is_not_what_its_log_says(world: World, sql: str) -> None:
    ws = world.open("bob")
    first = ws.mail.send(["ann", "cy"], "first", "body")
    ws.mail.ack(first.id, "cy")
    ws.mail.close(ws.mail.send("ann", "second").id)
    assert ws.check().ok
    with damaged(ws, sql):
        problems = ws.check().problems
        assert any(DAMAGES[sql] in problem and "message" in problem for problem in problems), problems
    assert ws.check().ok


@local
def test_check_finds_a_message_that_is_in_the_log_but_not_in_the_store(world: World) -> None:
    ws = world.open("bob")
    ws.mail.send("ann", "first")
    ws.mail.send("ann", "second")
    gone = [
        f"DELETE FROM {table} WHERE {column} = 2" for table, column in (("messages", "seq"), ("deliveries", "message"))
    ]
    with damaged(ws, *gone, "DELETE FROM message_texts WHERE seq = 2", "DELETE FROM messages_fts_docsize WHERE id = 2"):
        assert any("message" in problem for problem in ws.check().problems)


def test_check_finds_nothing_in_mail_of_every_status_also_after_the_log_was_compacted(world: World) -> None:
    ws = world.open()
    messages = [brought(ws, status) for status in STATUSES]
    assert ws.check().problems == []
    ws.cells.set("run", "cell", 1)
    ws.events.compact(ws.revision)
    assert ws.check().problems == []
    assert [ws.mail.get(message.id) for message in messages] == messages
    assert ws.mail.ack(messages[0].id, "ann").version == 2
