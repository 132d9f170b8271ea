"""Looking at a fleet: columns of a board, lanes of a timeline, threads of mail, locks freed by force (W4, W6, W8)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import errors
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")
COLUMNS = ("ready", "waiting", "in_progress", "review", "blocked", "closed")


def test_w4_every_task_is_in_the_column_of_its_status_with_what_its_card_shows(world: World) -> None:
    ws: Any = world.open("ada")
    ids = {name: ws.tasks.create(name, tags=["core"]).id for name in COLUMNS}
    child = ws.tasks.create("child", parent_id=ids["waiting"]).id
    ws.tasks.depend(ids["waiting"], ids["blocked"])
    for name in ("in_progress", "review", "blocked", "closed"):
        ws.tasks.claim(ids[name], ttl=600)
    ws.tasks.complete(ids["review"], summary="it parses", review=True)
    ws.tasks.block(ids["blocked"], reason="no grammar")
    ws.tasks.complete(ids["closed"], review=False)
    columns = {name: ws.board(name) for name in COLUMNS}
    assert {name: [card.id for card in cards] for name, cards in columns.items()} == {
        name: [ids[name], child] if name == "ready" else [ids[name]] for name in COLUMNS
    }
    (waiting,), (held,), (review,), (blocked,) = (columns[name] for name in COLUMNS[1:5])
    assert (waiting.waits_for, waiting.children, waiting.children_closed) == (1, 1, 0)
    assert (held.holder, held.until - held.since, held.tags) == ("ada", timedelta(seconds=600), ("core",))
    assert (review.reason, review.by, blocked.reason, blocked.holds_up) == ("it parses", "ada", "no grammar", 1)
    world.clock.advance(601)
    assert (ws.board("in_progress"), ids["in_progress"] in {card.id for card in ws.board("ready")}) == ([], True)


def test_w4_a_column_is_read_page_by_page_under_its_filters(world: World) -> None:
    ws: Any = world.open("ada")
    made = [ws.tasks.create(f"task {n}", priority=n % 3, tags=["even"] if n % 2 == 0 else []).id for n in range(9)]
    for column in ("ready", "closed"):
        seen: list[str] = []
        cursor = None
        while True:
            page = ws.board(column, limit=2, cursor=cursor, total=True)
            assert page.total == 9
            seen += [card.id for card in page]
            cursor = page.cursor
            if cursor is None:
                break
        assert sorted(seen) == sorted(made), column
        for id in made if column == "ready" else ():
            ws.tasks.cancel(id)
    assert seen[0] == made[-1], "the closed ones come latest first"
    assert len(ws.board("closed", tag="even", priority=0)) == 2
    assert [card.title for card in ws.board("closed", text="task 4")] == ["task 4"]
    assert ws.board("closed", type="bug") == ws.board("in_progress", holder="ada") == []


def test_w4_what_is_no_column_or_cursor_is_refused(world: World) -> None:
    ws: Any = world.open("ada")
    for wrong in ({"column": "done"}, {"column": "ready", "cursor": "closed.1.1"}, {"column": "ready", "limit": 0}):
        with pytest.raises(errors.Invalid):
            ws.board(**wrong)


def test_w6_a_timeline_has_what_each_agent_held_and_how_it_ended(world: World) -> None:
    ada: Any = world.open("ada")
    bob: Any = world.open("bob")
    kinds = ("closed", "review", "blocked", "released", "expired")
    ids = {name: ada.tasks.create(name).id for name in (*kinds, "before", "held")}
    ada.tasks.claim(ids["before"], ttl=10_000)
    world.clock.advance(100)
    since = ada.status().time
    for name in kinds:
        bob.tasks.claim(ids[name], ttl=60)
    bob.locks.acquire("deploy", ttl=1000)
    bob.mail.send("ada", "hello")
    world.clock.advance(10)
    bob.tasks.complete(ids["closed"], review=False)
    bob.tasks.complete(ids["review"], review=True)
    bob.tasks.block(ids["blocked"])
    bob.tasks.release(ids["released"])
    world.clock.advance(60)
    ada.tasks.claim(ids["held"], ttl=600)
    found = ada.timeline(since)
    lane = found.lanes["bob"]
    assert {each.id: each.how for each in lane.claims} == {ids[name]: name for name in kinds}
    assert {each.end - each.start for each in lane.claims if each.how != "expired"} == {timedelta(seconds=10)}
    assert [(each.id, each.end) for each in lane.locks] == [("deploy", None)]
    assert lane.mail == [since]
    assert [(each.id, each.end, each.since_before) for each in found.lanes["ada"].claims] == [
        (ids["held"], None, False),
        (ids["before"], None, True),
    ]
    with pytest.raises(errors.InvalidFilter):
        ada.timeline(since, since)


def test_w6_stretches_too_short_for_the_resolution_are_one_with_their_count(world: World) -> None:
    ws: Any = world.open("ada")
    since = ws.status().time
    ids = [ws.tasks.create(f"task {number}").id for number in range(6)]
    for number, id in enumerate(ids):
        ws.tasks.claim(id, ttl=600)
        ws.mail.send("bob", f"hello {number}")
        world.clock.advance(200 if number == 3 else 5)
        if number == 1:
            ws.tasks.block(id, reason="no")
        else:
            ws.tasks.complete(id, review=False)
        world.clock.advance(1)
    world.clock.advance(100)
    ws.tasks.claim(ws.tasks.create("still held").id, ttl=600)
    lane = ws.timeline(since, resolution=60).lanes["ada"]
    assert [(each.id, each.count, each.how) for each in lane.claims] == [
        (ids[0], 3, "blocked"),
        (ids[3], 1, "closed"),
        (ids[4], 2, "closed"),
        (lane.claims[-1].id, 1, None),
    ]
    assert lane.claims[0].end - lane.claims[0].start == timedelta(seconds=17)
    assert len(ws.timeline(since).lanes["ada"].claims) == 7
    assert len(lane.mail) == 2
    for wrong in (-1, float("nan"), True, 1e300):
        with pytest.raises(errors.InvalidFilter):
            ws.timeline(since, resolution=wrong)


def test_w8_threads_come_newest_first_with_what_the_caller_has_not_read(world: World) -> None:
    ada: Any = world.open("ada")
    bob: Any = world.open("bob")
    first = ada.mail.send("bob", "which port?", type="request")
    other = ada.mail.send("cyd", "hello")
    answer = bob.mail.reply(first.id, "9191")
    threads = bob.mail.threads()
    assert [(each.thread, each.messages, each.unread, each.wants) for each in threads] == [
        (first.id, 2, 1, True),
        (other.id, 1, 0, False),
    ]
    assert [each.thread for each in bob.mail.threads("to")] == [first.id]
    assert [each.thread for each in bob.mail.threads("sent")] == [first.id]
    assert [each.first.subject for each in ada.mail.threads("sent", limit=1)] == ["which port?"]
    assert bob.mail.threads("closed") == []
    for message in (first, answer):
        ada.using(actor=message.sender).mail.close(message.id)
    (closed,) = bob.mail.threads("closed")
    assert (closed.thread, closed.closed, closed.unread) == (first.id, True, 0)
    page = ada.mail.threads(limit=1)
    assert [each.thread for each in ada.mail.threads(cursor=page.cursor)] == [other.id]
    with pytest.raises(errors.InvalidFilter):
        ada.mail.threads("mine")


def test_w9_a_lock_is_released_by_force_with_a_reason_that_the_log_keeps(world: World) -> None:
    ada: Any = world.open("ada")
    bob: Any = world.open("bob")
    grant = ada.locks.acquire("deploy")
    path = ada.paths.lock("src/**")
    with pytest.raises(errors.NotHolder):
        bob.locks.release("deploy")
    assert bob.locks.release("deploy", force=True, reason="ada is gone") is True
    assert bob.locks.release("deploy", force=True) is False
    assert bob.paths.release(path.id, force=True, reason="so is this") == 1
    assert [event.data["note"] for event in ada.events.list(after=0) if event.op == "release"] == [
        "ada is gone",
        "so is this",
    ]
    with pytest.raises(errors.Fenced):
        ada.locks.refresh("deploy", token=grant.token)
    with pytest.raises(errors.Invalid):
        bob.locks.release("deploy", force=True, reason="x" * 5000)
