"""Channels (S4): every subscriber reads every message from a cursor of its own, without a gap, or learns what it lost.

A channel is a stash; what happens to its messages is no version of it. Each refusal leaves the workspace as it was.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast import Op, Workspace, errors
from holdfast.testing.crowd import together
from holdfast.types.stashes import ChannelMessage, Subscription
from tests.conformance.test_stashes import entries, refused
from tests.conformance.test_waiting import Background, ops
from tests.worlds.kinds import World


def channel(ws: Workspace, *values: Any, name: str = "news", **more: Any) -> str:
    """The id of a channel with these messages."""
    made = ws.stashes.create(name, "channel", **more).id
    for value in values:
        ws.channels.publish(made, value)
    return made


def numbers(messages: list[ChannelMessage]) -> list[int]:
    """Their numbers, in order."""
    return [message.number for message in messages]


# --- cursors ---------------------------------------------------------------------------------------------------------


def test_s4_each_subscriber_reads_what_was_published_since_its_own_cursor(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    news = channel(ws, "before")
    assert ws.channels.subscribe(news) == Subscription(news, "a", 1, 0, 0)
    assert other.channels.subscribe((None, "news"), after=0) == Subscription(news, "b", 0, 1, 0)
    world.clock.advance(5)
    assert [ws.channels.publish(news, {"n": 2}), other.channels.publish(news, None)] == [2, 3]
    mine, theirs = ws.channels.read(news), other.channels.read(news, limit=2)
    assert [(each.number, each.sender, each.value) for each in mine] == [(2, "a", {"n": 2}), (3, "b", None)]
    assert (numbers(theirs), theirs.cursor, mine.cursor, mine[0].channel) == ([1, 2], "2", None, news)
    assert ws.channels.read(news) == mine
    assert (ws.channels.ack(news, 2), numbers(ws.channels.read(news))) == (2, [3])
    assert (other.channels.ack(news, 3), other.channels.read(news)) == (3, [])
    assert ws.channels.subscribers(news) == [Subscription(news, "a", 2, 1, 0), Subscription(news, "b", 3, 0, 0)]


def test_s4_a_cursor_never_moves_back_and_subscribing_again_keeps_it(world: World) -> None:
    ws = world.open("a")
    news = channel(ws, *range(5))
    ws.channels.subscribe(news, after=1)
    assert ws.channels.ack(news, 4) == 4
    before = ws.revision
    assert (ws.channels.ack(news, 2), ws.channels.ack(news, 4), ws.channels.subscribe(news, after=0).cursor) == (
        4,
        4,
        4,
    )
    assert ws.revision == before
    assert numbers(ws.channels.read(news)) == [5]
    assert (ws.channels.unsubscribe(news), ws.channels.unsubscribe(news)) == (True, False)
    refused(ws, errors.NotFound, lambda: ws.channels.read(news))
    assert ws.channels.subscribe(news).cursor == 5
    assert (ws.stashes.get(news).version, entries(ws, news)) == (1, [("create", 1, None)])
    assert ops(ws, news, "channel") == [*["publish"] * 5, "subscribe", "ack", "unsubscribe", "subscribe"]


def test_s4_a_subscriber_reads_page_after_page_without_acknowledging(world: World) -> None:
    ws = world.open("a")
    news = channel(ws, *range(1, 6), value={"keep": 5})
    ws.channels.subscribe(news, after=1)
    page, read = ws.channels.read(news, limit=2), list[int]()
    while page:
        read += numbers(page)
        page = ws.channels.read(news, limit=2, after=read[-1] if page.cursor is None else int(page.cursor))
    assert (read, numbers(ws.channels.read(news))) == ([2, 3, 4, 5], [2, 3, 4, 5])
    assert numbers(ws.channels.read(news, after=0)) == [2, 3, 4, 5], "never before its cursor"
    waiter = Background(lambda: world.open("b").channels.read(news, "a", wait=600, after=5))
    ws.channels.publish(news, 6)
    assert numbers(waiter.result()) == [6]
    refused(ws, errors.Invalid, lambda: ws.channels.read(news, after=7))
    for number in range(7, 10):
        ws.channels.publish(news, number)
    error = refused(ws, errors.MessagesLost, lambda: ws.channels.read(news, after=3))
    assert (error.lost, error.cursor, error.first) == (1, 3, 5)
    assert numbers(ws.channels.read(news, after=4)) == [5, 6, 7, 8, 9]


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_s4_a_subscriber_that_fell_behind_what_is_kept_is_told_how_much_it_lost(world: World) -> None:
    ws = world.open("a")
    news = channel(ws, 1, value={"keep": 3})
    ws.channels.subscribe(news, "slow")
    ws.channels.subscribe(news, "quick", after=0)
    for number in (2, 3, 4):
        ws.channels.publish(news, number)
    assert numbers(ws.channels.list(news)) == [2, 3, 4]
    assert numbers(ws.channels.read(news, "slow")) == [2, 3, 4]
    error = refused(ws, errors.MessagesLost, lambda: ws.channels.read(news, "quick"))
    assert (error.lost, error.cursor, error.first, error.status) == (1, 0, 2, 410)
    for number in (5, 6):
        ws.channels.publish(news, number)
    error = refused(ws, errors.MessagesLost, lambda: ws.channels.read(news, "slow", wait=60))
    assert (error.lost, error.cursor, error.first) == (2, 1, 4)
    assert [(each.subscriber, each.unread, each.lost) for each in ws.channels.subscribers(news)] == [
        ("quick", 3, 3),
        ("slow", 3, 2),
    ]
    assert (ws.channels.ack(news, 3, "slow"), numbers(ws.channels.read(news, "slow"))) == (3, [4, 5, 6])
    ws.channels.ack(news, 2, "quick")
    assert refused(ws, errors.MessagesLost, lambda: ws.channels.read(news, "quick")).lost == 1
    assert ws.channels.subscribe(news, "late", after=0).cursor == 3


def test_s4_the_hint_of_a_loss_names_the_subscriber_where_it_is_not_the_actor(world: World) -> None:
    """Followed as it stands, it does not accept the loss of somebody else."""
    ws = world.open("ann")
    news = channel(ws, value={"keep": 1})
    for subscriber, named in (("ann", ""), ('bob (2) "b"', r', subscriber="bob \x282\x29 \"b\""')):
        error = refused(ws, errors.NotFound, partial(ws.channels.read, news, subscriber))
        assert error.hint == f'channels.subscribe("{news}"{named}) does that'
        assert refused(ws, errors.NotFound, partial(ws.channels.ack, news, 0, subscriber)).hint == error.hint
        ws.channels.subscribe(news, subscriber)
    for number in (1, 2):
        ws.channels.publish(news, number)
    for subscriber, named in (("ann", ""), ('bob (2) "b"', r', subscriber="bob \x282\x29 \"b\""')):
        error = refused(ws, errors.MessagesLost, partial(ws.channels.read, news, subscriber))
        assert error.hint.endswith(f': channels.ack("{news}", 1{named})')
        assert subscriber == "ann" or eval(f"dict({named[2:]})")["subscriber"] == subscriber


def test_s4_a_subscriber_that_names_a_place_gets_it_and_is_told_what_is_gone_after_it(world: World) -> None:
    ws = world.open("a")
    news = channel(ws, *range(1, 10), value={"keep": 2})
    assert ws.channels.subscribe(news, "bob", after=4) == Subscription(news, "bob", 4, 2, 3)
    error = refused(ws, errors.MessagesLost, lambda: ws.channels.read(news, "bob"))
    assert (error.lost, error.cursor, error.first) == (3, 4, 8)
    assert error.message == "bob has lost 3 messages of the channel 'news', 5 to 7"
    assert ws.channels.ack(news, 7, "bob") == 7
    assert numbers(ws.channels.read(news, "bob")) == [8, 9]
    for after, lost, first in ((0, 0, 8), (6, 1, 8), (7, 0, 8), (9, 0, 8)):
        who = f"from-{after}"
        assert ws.channels.subscribe(news, who, after=after).lost == lost
        if lost:
            error = refused(ws, errors.MessagesLost, partial(ws.channels.read, news, who))
            assert error.message == f"{who} has lost 1 message of the channel 'news', 7"
        else:
            assert numbers(ws.channels.read(news, who)) == list(range(max(after + 1, first), 10))


def test_s4_a_list_that_goes_on_after_a_message_says_what_is_gone_since(world: World) -> None:
    ws = world.open("a")
    news = channel(ws, *range(1, 5), value={"keep": 4})
    page = ws.channels.list(news, limit=2)
    assert (numbers(page), page.cursor) == ([1, 2], "2")
    for number in range(5, 10):
        ws.channels.publish(news, number)
    error = refused(ws, errors.MessagesLost, lambda: ws.channels.list(news, after=2))
    assert (error.lost, error.cursor, error.first) == (3, 2, 6)
    assert error.message == "a list after 2 misses 3 messages of the channel 'news', 3 to 5"
    assert error.hint.endswith(f': channels.list("{news}")')
    assert numbers(ws.channels.list(news)) == numbers(ws.channels.list(news, after=5)) == [6, 7, 8, 9]


@pytest.mark.kinds("drawn")
def test_s4_what_a_channel_keeps_is_a_version_of_its_stash_and_applies_from_the_next_message_on(world: World) -> None:
    ws = world.open("a")
    news = channel(ws, *range(5))
    assert ws.stashes.set_value(news, {"keep": 2}).version == 2
    assert numbers(ws.channels.list(news)) == [1, 2, 3, 4, 5]
    ws.channels.publish(news, "x")
    assert (numbers(ws.channels.list(news)), numbers(ws.channels.list(news, limit=1, after=5))) == ([5, 6], [6])
    ws.stashes.set_value(news, None)
    ws.channels.publish(news, "y")
    ws.events.compact(ws.revision + 1)
    assert (numbers(ws.channels.list(news)), ws.check().problems) == ([5, 6, 7], [])
    assert ws.check().records["channel_messages"] == 3


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_s4_a_subscriber_that_waits_gets_the_next_message(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    news = channel(ws)
    other.channels.subscribe(news)
    assert other.channels.read(news, wait=0) == []
    waiter = Background(lambda: other.channels.read(news, wait=600))
    ws.channels.subscribe(news, "somebody")
    ws.channels.publish(news, "now")
    assert [each.value for each in waiter.result()] == ["now"]
    refused(ws, errors.Invalid, lambda: ws.txn([], [Op("channels.read", {"id": news, "wait": 1})]))


def test_s4_publishers_at_once_leave_no_gap_and_no_subscriber_misses_one(world: World) -> None:
    ws = world.open("a")
    news = channel(ws)
    ws.channels.subscribe(news, "reader")
    handles = [world.open(f"agent-{number}") for number in range(4)]
    made = together(*(partial(lambda ws: [ws.channels.publish(news, n) for n in range(4)], each) for each in handles))
    assert sorted(number for each in made for number in each) == list(range(1, 17))
    read = ws.channels.read(news, "reader")
    assert numbers(read) == list(range(1, 17))
    for handle, own in zip(handles, made, strict=True):
        assert [each.number for each in read if each.sender == handle.actor] == own


# --- with the rest ---------------------------------------------------------------------------------------------------


@pytest.mark.kinds("drawn")
def test_s4_s8_s12_a_channel_goes_with_its_stash_or_its_trail(world: World) -> None:
    ws = world.open("a")
    trail = ws.trails.create("trail", "active").id
    news, brief = channel(ws, "secret", trail=trail), channel(ws, 1, name="brief", ttl=5)
    ws.channels.subscribe(news, after=0)
    ws.channels.subscribe(brief)
    ws.trails.abandon(trail)
    refused(ws, errors.NotFound, lambda: ws.channels.read(news))
    ws.trails.restore(trail)
    assert [each.value for each in ws.channels.read((trail, "news"))] == ["secret"]
    ws.stashes.delete(news)
    world.clock.advance(5)
    assert ws.stashes.list() == []
    for id, end in ((news, "delete"), (brief, "expire")):
        refused(ws, errors.NotFound, partial(ws.channels.publish, id, 1))
        told = [(event.op, event.redacted) for event in ws.events.list(kinds=["channel"], id=id)]
        assert told == [("publish", True), ("subscribe", True), (end, False)]
    assert ws.check().records["channel_messages"] == 0


@pytest.mark.kinds("drawn")
def test_s4_a_channel_takes_part_in_transactions_and_keys(world: World) -> None:
    ws = world.open("a")
    news = channel(ws)
    ws.channels.subscribe(news)
    keyed = ws.using(key="once")
    assert [keyed.channels.publish(news, 1), keyed.channels.publish(news, 1)] == [1, 1]
    with pytest.raises(errors.NotFound):
        ws.txn([], [Op("channels.ack", {"id": news, "number": 1}), Op("cells.get", {"run": "x", "cell": "y"})])
    result = ws.txn([], [Op("channels.publish", {"id": news, "value": 2}), Op("channels.read", {"id": news})])
    assert [len(result.results), result.results[0], numbers(result.results[1])] == [2, 2, [1, 2]]


@pytest.mark.kinds("drawn")
def test_s4_what_is_no_channel_no_message_and_no_subscriber_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = world.open("a")
    news, counter = channel(ws, 1), ws.stashes.create("n", "counter").id
    ws.channels.subscribe(news)
    calls: list[Any] = [
        partial(ws.channels.publish, value=1),
        ws.channels.subscribe,
        ws.channels.read,
        partial(ws.channels.ack, number=1),
        ws.channels.unsubscribe,
        ws.channels.subscribers,
        ws.channels.list,
    ]
    for call in calls:
        refused(ws, errors.InvalidStashType, partial(call, counter))
        refused(ws, errors.NotFound, partial(call, (None, "none")))
    bad: Any
    for bad in (2, -1):
        refused(ws, errors.Invalid, partial(ws.channels.ack, news, bad))
        refused(ws, errors.Invalid, partial(ws.channels.subscribe, news, "b", bad))
    for bad in ([], {"keep": 0}, {"keep": 1_000_001}, {"keep": 1, "more": 1}):
        refused(ws, errors.InvalidValue, partial(ws.stashes.set_value, news, bad))
    refused(ws, errors.InvalidValue, lambda: ws.channels.publish(news, 2**64))
    refused(ws, errors.NotFound, lambda: ws.channels.ack(news, 1, "b"))
    refused(ws, errors.InvalidFilter, lambda: ws.channels.read(news, limit=0))
    refused(ws, errors.InvalidFilter, lambda: ws.channels.list(news, after=-1))
    refused(ws, errors.InvalidName, lambda: ws.channels.subscribe(news, "system"))
