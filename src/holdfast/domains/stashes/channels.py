"""`ws.channels`: messages that every subscriber reads, each from a cursor of its own.

A channel is a stash of the type `channel`; its value has the settings. Messages are rows, numbered from 1 without a
gap, and are no versions of the stash; the newest `keep` of them are kept. The cursor of a subscriber is the number of
the last message that it has acknowledged: reading moves nothing, so whoever dies before its `ack` reads the same again.

Invariant: a channel holds exactly its messages `first` to `last`. Whoever reads on from a place behind `first` learns
how many messages it lost (`MessagesLost`), a subscriber until it moves its cursor; there is no silent gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.stashes import rows
from holdfast.domains.stashes.rows import CHANNEL, StashId
from holdfast.kernel.events import Filter, compare, pasts, redact
from holdfast.kernel.leases import holder_of, name_of
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import check_limit, check_name, check_seconds
from holdfast.kernel.values import decode, encode
from holdfast.operation import Deadline, Domain, Listen, Look, M, Next, Steps, procedure, read, write
from holdfast.route import example
from holdfast.types import DerivedActor, Page, as_time, counted
from holdfast.types.stashes import ChannelMessage, Subscription

MOST: Final = 1000  # messages, or subscribers, of a page
_CHANNEL: Final = "SELECT record, stash, version, first, last FROM channels WHERE"
_encode = msgspec.msgpack.Encoder().encode


class _Channel(msgspec.Struct):
    """The row of a channel."""

    record: int
    stash: str
    version: int = 0
    first: int = 1
    last: int = 0

    def write(self, tx: Tx, op: str, first: int, last: int, **facts: object) -> None:
        """Move the ends, and log what they were and are, with further facts."""
        ends = {"first": [self.first, first], "last": [self.last, last]}
        self.version, self.first, self.last = self.version + 1, first, last
        tx.run(
            "UPDATE channels SET version = ?, revision = ?, first = ?, last = ? WHERE record = ?",
            (self.version, tx.revision, first, last, self.record),
        )
        changes = {name: ends[name] for name in ends if ends[name][0] != ends[name][1]}
        tx.emit_of(self.record, op, self.version, _encode({**changes, **facts}))

    def emit(self, tx: Tx, op: str, subscriber: str, old: int | None, new: int | None) -> None:
        """Log how the cursor of a subscriber moved."""
        self.write(tx, op, self.first, self.last, subscriber=subscriber, cursor=[old, new])

    def cursor_of(self, snapshot: Snapshot, subscriber: str) -> int | None:
        """The cursor of a subscriber; None if it has not subscribed."""
        row = snapshot.one(
            "SELECT cursor FROM channel_cursors WHERE channel = ? AND subscriber = ?", (self.record, subscriber)
        )
        return None if row is None else int(row[0])

    def lost_after(self, number: int) -> int:
        """How many of the messages after a number are not kept any more."""
        return max(self.first - 1 - number, 0)

    def require_cursor(self, snapshot: Snapshot, subscriber: str, actor: str) -> int:
        """The cursor of a subscriber. Raises NotFound."""
        cursor = self.cursor_of(snapshot, subscriber)
        if cursor is None:
            name = rows.require(snapshot, self.stash).name
            hint = f'channels.subscribe("{self.stash}"{_for(subscriber, actor)}) does that'
            raise errors.NotFound(f"{subscriber} has not subscribed to the channel {name!r}", hint=hint)
        return cursor


def _for(subscriber: str, actor: str) -> str:
    """The argument of a call in a hint that names a subscriber, where it is not the actor of the call anyway."""
    if subscriber == actor and not isinstance(actor, DerivedActor):
        return ""
    text = msgspec.json.encode(subscriber).decode()  # which is also how Python writes it
    return f", subscriber={text}".replace("(", r"\x28").replace(")", r"\x29")


def _find(snapshot: Snapshot, id: StashId) -> _Channel:
    """The row of a channel; one that nobody has used yet has the record 0, which no row has."""
    stash = rows.require_type(snapshot, id, CHANNEL).id
    row = snapshot.one(f"{_CHANNEL} stash = ?", (stash,))
    return _Channel(0, stash) if row is None else _Channel(*row)


def _open(tx: Tx, id: StashId) -> _Channel:
    """The row of a channel, made if need be."""
    channel = _find(tx, id)
    if not channel.record:
        channel.record = tx.key_of(CHANNEL, channel.stash)
        tx.run(
            "INSERT INTO channels (record, stash, version, revision, first, last) VALUES (?, ?, 0, ?, 1, 0)",
            (channel.record, channel.stash, tx.revision),
        )
    return channel


# --- publishing ------------------------------------------------------------------------------------------------------


def publish(tx: Tx, id: StashId, value: Any) -> int:
    """Publish a message to all subscribers of a channel and return its number.

    The oldest messages beyond the `keep` of the channel go.
    """
    data = encode(value, tx.max_value_bytes)
    channel = _open(tx, id)
    last = channel.last + 1
    tx.run(
        "INSERT INTO channel_messages (channel, number, created, sender, value) VALUES (?, ?, ?, ?, ?)",
        (channel.record, last, tx.now, tx.actor, data),
    )
    stash = rows.require(tx, channel.stash)
    first = max(channel.first, last - rows.setting(CHANNEL, stash.value) + 1)
    if first > channel.first:
        tx.run("DELETE FROM channel_messages WHERE channel = ? AND number < ?", (channel.record, first))
    channel.write(tx, "publish", first, last, bytes=len(data))
    return last


# --- subscribing -----------------------------------------------------------------------------------------------------


def subscribe(tx: Tx, id: StashId, subscriber: str | None = None, after: int | None = None) -> Subscription:
    """Subscribe to a channel: from now on, or from the message after a number; 0 is the oldest that is kept.

    Whoever has subscribed before keeps its cursor. Messages after the number that are not kept any more count as lost.
    """
    subscriber = holder_of(tx, subscriber, "subscriber")
    channel = _open(tx, id)
    cursor = channel.cursor_of(tx, subscriber)
    if cursor is None:
        cursor = channel.last if after is None else _check_number(channel, after) or channel.first - 1
        tx.run(
            "INSERT INTO channel_cursors (channel, subscriber, cursor) VALUES (?, ?, ?)",
            (channel.record, subscriber, cursor),
        )
        channel.emit(tx, "subscribe", subscriber, None, cursor)
    return _subscription(channel, subscriber, cursor)


def _check_number(channel: _Channel, number: int) -> int:
    """Return the number of a message that there was, or 0. Raises Invalid."""
    if type(number) is not int or not 0 <= number <= channel.last:
        raise errors.Invalid(
            f"{number!r} is not the number of a message: the newest of the channel {channel.stash} is {channel.last}",
            hint="give the number of a message that was read",
        )
    return number


def _subscription(channel: _Channel, subscriber: str, cursor: int) -> Subscription:
    lost = channel.lost_after(cursor)
    return Subscription(channel.stash, subscriber, cursor, channel.last - cursor - lost, lost)


def ack(tx: Tx, id: StashId, number: int, subscriber: str | None = None) -> int:
    """Acknowledge all messages up to a number: the cursor moves there, never back. Returns the cursor.

    A subscriber that lost messages acknowledges the last of them, and reads on. Raises NotFound if it never subscribed.
    """
    subscriber = holder_of(tx, subscriber, "subscriber")
    channel = _find(tx, id)
    cursor = channel.require_cursor(tx, subscriber, tx.actor)
    if _check_number(channel, number) <= cursor:
        return cursor
    tx.run(
        "UPDATE channel_cursors SET cursor = ? WHERE channel = ? AND subscriber = ?",
        (number, channel.record, subscriber),
    )
    channel.emit(tx, "ack", subscriber, cursor, number)
    return number


def unsubscribe(tx: Tx, id: StashId, subscriber: str | None = None) -> bool:
    """Forget the cursor of a subscriber; False if it has none."""
    subscriber = holder_of(tx, subscriber, "subscriber")
    channel = _find(tx, id)
    cursor = channel.cursor_of(tx, subscriber)
    if cursor is None:
        return False
    tx.run("DELETE FROM channel_cursors WHERE channel = ? AND subscriber = ?", (channel.record, subscriber))
    channel.emit(tx, "unsubscribe", subscriber, cursor, None)
    return True


def list_subscribers(snapshot: Snapshot, id: StashId, limit: int = 100, after: str = "") -> Page[Subscription]:
    """List the subscribers of a channel by name, with their cursors and how far they are behind."""
    check_limit(limit, MOST, "after")
    if after != "":
        check_name(after, "after")
    channel = _find(snapshot, id)
    found, more = snapshot.page(
        "SELECT subscriber, cursor FROM channel_cursors WHERE channel = ? AND subscriber > ?"
        " ORDER BY subscriber LIMIT ?",
        (channel.record, after),
        limit,
    )
    return Page.of((_subscription(channel, *row) for row in found), more, lambda each: each.subscriber)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_on(
    id: StashId,
    subscriber: str | None = None,
    limit: int = 100,
    wait: float | None = None,
    after: int | None = None,
) -> Steps[Page[ChannelMessage]]:
    """Return the messages after the cursor of a subscriber, waiting for up to `wait` seconds for the first of them.

    Reading moves no cursor: `ack` does. `after` reads on after a message beyond the cursor, such as the last of a page.
    Raises NotFound if it never subscribed, and MessagesLost if messages after its cursor are not kept any more.
    """
    check_limit(limit, MOST, "after")
    look = Look(lambda snapshot, actor: _unread(snapshot, id, actor, subscriber, limit, after), whole=True, needed=True)
    if wait is None:
        page: Page[ChannelMessage] = yield look
        return page
    check_seconds(wait, "wait")
    deadline = yield Deadline(wait)
    own = yield Look(lambda snapshot, _: rows.require_type(snapshot, id, CHANNEL).id, needed=True)
    watcher = yield Listen(Filter((CHANNEL,), "", own))
    try:
        while True:
            page = yield look
            if page:
                return page
            event = yield Next(watcher, deadline)
            while event is not None and event.op != "publish":
                event = yield Next(watcher, deadline)
            if event is None:
                return page
    finally:
        watcher.close()


def _unread(
    snapshot: Snapshot, id: StashId, actor: str, subscriber: str | None, limit: int, after: int | None
) -> Page[ChannelMessage]:
    channel = _find(snapshot, id)
    subscriber = name_of(actor, subscriber, "subscriber")
    cursor = channel.require_cursor(snapshot, subscriber, actor)
    if after is not None:
        cursor = max(cursor, _check_number(channel, after))
    if channel.lost_after(cursor):
        hint = "read the state anew, then acknowledge the loss to read on:"
        call = f'channels.ack("{channel.stash}", {channel.first - 1}{_for(subscriber, actor)})'
        raise _gap(snapshot, channel, cursor, f"{subscriber} has lost", f"{hint} {call}")
    return _messages(snapshot, channel, cursor, limit)


def list_messages(snapshot: Snapshot, id: StashId, limit: int = 100, after: int = 0) -> Page[ChannelMessage]:
    """List the messages that a channel has kept, oldest first, for those who have no cursor.

    `after` is the number of a message, or 0 for the oldest that is kept. Raises MessagesLost if messages after it are
    not kept any more.
    """
    check_limit(limit, MOST, "after")
    if type(after) is not int or not 0 <= after < 2**63:
        raise errors.InvalidFilter(f"after must be the number of a message, not {after!r}")
    channel = _find(snapshot, id)
    if after and channel.lost_after(after):
        hint = f'read the state anew, then list what is kept: channels.list("{channel.stash}")'
        raise _gap(snapshot, channel, after, f"a list after {after} misses", hint)
    return _messages(snapshot, channel, after, limit)


def _gap(snapshot: Snapshot, channel: _Channel, cursor: int, who: str, hint: str) -> errors.MessagesLost:
    """The error of reading on from a place after which messages are not kept any more."""
    lost, last = channel.lost_after(cursor), channel.first - 1
    which = f"{cursor + 1} to {last}" if lost > 1 else str(last)
    return errors.MessagesLost(
        f"{who} {counted(lost, 'messages')} of the channel {rows.require(snapshot, channel.stash).name!r}, {which}",
        hint=hint,
        lost=lost,
        cursor=cursor,
        first=channel.first,
    )


def _messages(snapshot: Snapshot, channel: _Channel, after: int, limit: int) -> Page[ChannelMessage]:
    found, more = snapshot.page(
        "SELECT number, created, sender, value FROM channel_messages WHERE channel = ? AND number > ?"
        " ORDER BY number LIMIT ?",
        (channel.record, after),
        limit,
    )
    messages = (
        ChannelMessage(channel.stash, number, sender, as_time(created), decode(value))
        for number, created, sender, value in found
    )
    return Page.of(messages, more, lambda message: message.number)


# --- for the stashes, and for check ----------------------------------------------------------------------------------


def erase(tx: Tx, stash: str, op: str) -> None:
    """Remove the messages and cursors of a channel that is removed."""
    row = tx.one(f"{_CHANNEL} stash = ?", (stash,))
    if row is None:
        return
    channel = _Channel(*row)
    for table, column in (("channel_messages", "channel"), ("channel_cursors", "channel"), ("channels", "record")):
        tx.run(f"DELETE FROM {table} WHERE {column} = ?", (channel.record,))
    redact(tx, CHANNEL, "", stash)
    tx.emit_of(channel.record, op, channel.version + 1, None)


_PROBLEMS: Final = {
    "the channel {} does not have exactly the messages from its first to its last": (
        "SELECT stash FROM channels c WHERE last - first + 1 <> (SELECT count(*) FROM channel_messages"
        " WHERE channel = c.record AND number BETWEEN c.first AND c.last)"
        " OR EXISTS (SELECT 1 FROM channel_messages WHERE channel = c.record AND number NOT BETWEEN c.first AND c.last)"
    ),
    "a message of {} belongs to no channel": (
        "SELECT DISTINCT channel FROM channel_messages WHERE channel NOT IN (SELECT record FROM channels)"
    ),
    "the cursor of {} is beyond its channel": (
        "SELECT subscriber FROM channel_cursors k WHERE NOT EXISTS"
        " (SELECT 1 FROM channels c WHERE c.record = k.channel AND k.cursor BETWEEN 0 AND c.last)"
    ),
    "the channel {} is not a stash of that type": (
        "SELECT stash FROM channels c WHERE NOT EXISTS"
        " (SELECT 1 FROM stashes s WHERE s.id = c.stash AND s.type = 'channel')"
    ),
}


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report channels that differ from the log, gaps in their messages, and cursors that lead nowhere."""
    columns = ("version", "revision", "first", "last")
    past = pasts(snapshot, CHANNEL)
    yield from compare(
        snapshot, CHANNEL, past, f"SELECT stash, {', '.join(columns)} FROM channels", columns, {"first": 1, "last": 0}
    )
    for problem, sql in _PROBLEMS.items():
        for (which,) in snapshot.all(sql):
            yield problem.format(which)


# What examples need.
_NEWS: Final = "holdfast stash create news --type channel"
_JOIN: Final = "holdfast channel subscribe news"
_SAY: Final = """holdfast channel publish news '{"built": "v2"}'"""


class Channels(Domain[M]):
    """`ws.channels`."""

    prefix = "channels"
    publish = write(
        publish,
        http="POST /api/channels/{id}/publish",
        cli="channel publish",
        done=("published message {result}",),
        help="Publish a message to the subscribers of a channel and print its number.",
        examples=(example(_SAY, _NEWS),),
        creates=True,
    )
    subscribe = write(
        subscribe,
        http="POST /api/channels/{id}/subscribe",
        cli="channel subscribe",
        help="Subscribe to a channel; whoever did before keeps its cursor.",
        examples=(example(_JOIN, _NEWS), example("holdfast channel subscribe news --after 0", _NEWS, _SAY)),
        names_actor="subscriber",
        arguments={"after": "begin after the message with this number; 0 is the oldest that is kept"},
    )
    ack = write(
        ack,
        http="POST /api/channels/{id}/ack",
        cli="channel ack",
        done=("read up to message {result}",),
        help="Acknowledge the messages of a channel up to a number.",
        examples=(example("holdfast channel ack news 1", _NEWS, _JOIN, _SAY),),
        names_actor="subscriber",
        arguments={"number": "the number of the last message that you are done with"},
    )
    unsubscribe = write(
        unsubscribe,
        http="POST /api/channels/{id}/unsubscribe",
        cli="channel unsubscribe",
        done=("unsubscribed",),
        help="Read a channel no more.",
        examples=(example("holdfast channel unsubscribe news", _NEWS, _JOIN),),
        names_actor="subscriber",
        nothing=("there was no such subscriber",),
    )
    subscribers = read(
        list_subscribers,
        http="GET /api/channels/{id}/subscribers",
        listing=True,
        cli="channel subscribers",
        nothing=("nobody after {after} has subscribed", "nobody has subscribed"),
        help="List the subscribers of a channel, and how far they are behind.",
        examples=(example("holdfast channel subscribers news", _NEWS, _JOIN),),
    )
    list = read(
        list_messages,
        http="GET /api/channels/{id}/messages",
        listing=True,
        cli="channel list",
        nothing=("there are no such messages in the channel",),
        help="List the messages that a channel has kept.",
        examples=(example("holdfast channel list news --after 1", _NEWS, _SAY),),
    )
    read = procedure(
        read_on,
        http="GET /api/channels/{id}/read",
        looking=True,
        cli="channel read",
        nothing=("nothing new",),
        help="Show what you have not acknowledged yet; exit code 17 if some is lost.",
        examples=(
            example("holdfast channel read news", _NEWS, _JOIN, _SAY),
            example("holdfast channel read news --wait 1s --json", _NEWS, _JOIN),
        ),
        names_actor="subscriber",
        private=True,
        arguments={"after": "read on after the message with this number, without acknowledging it"},
    )  # last, because it hides the function that makes reads
