"""A page ends by its limit or by its bytes; an absent cursor is the end, a short page is not (C9 of cells.md)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import msgspec
import pytest

from holdfast import Workspace
from holdfast.kernel.tx import PAGE_BYTES
from holdfast.types import Page
from holdfast.types.tasks import HistoryEntry
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

LARGE: Final = "x" * (1_000_000 - 100)  # nearly the most that a value may have
LONG: Final = "y" * 260_000  # nearly the most that a text may have
VALUES: Final = 9
TEXTS: Final = 20


def _cells(ws: Workspace) -> None:
    for number in range(VALUES):
        ws.cells.set("run", "large", f"{number}{LARGE}")


def _stashes(ws: Workspace) -> None:
    for number in range(VALUES):
        ws.stashes.create(f"large {number}", "context", {"text": LARGE})


def _stash(ws: Workspace) -> None:
    stash = ws.stashes.create("large", "context")
    for number in range(VALUES):
        ws.stashes.set_value(stash.id, {"text": f"{number}{LARGE}"})


def _tasks(ws: Workspace) -> None:
    for number in range(TEXTS):
        ws.tasks.create(f"long {number}", body=LONG)


def _task(ws: Workspace) -> None:
    task = ws.tasks.create("long")
    for number in range(TEXTS):
        ws.tasks.update(task.id, body=f"{number}{LONG}")


def _mail(ws: Workspace) -> None:
    first = ws.mail.send("bob", "long", LONG, thread="talk")
    for _ in range(TEXTS - 1):
        ws.mail.reply(first.id, LONG, to="bob")


Call = Callable[[Workspace, Any], Page[Any]]  # of a workspace and the cursor of the page before
LISTS: Final[dict[str, tuple[Callable[[Workspace], None], int, Call]]] = {
    "events.list": (_cells, VALUES, lambda ws, at: ws.events.list(after=at, limit=1000)),
    "cells.history": (
        _cells,
        VALUES,
        lambda ws, at: ws.cells.history("run", "large", before=None if at is None else int(at)),
    ),
    "stashes.list": (_stashes, VALUES, lambda ws, at: ws.stashes.list(offset=int(at or 0))),
    "stashes.export": (_stashes, VALUES, lambda ws, at: ws.stashes.export("stashes", after=at)),
    "stashes.history": (
        _stash,
        VALUES + 1,
        lambda ws, at: ws.stashes.history(ws.stashes.list()[0].id, after=None if at is None else int(at)),
    ),
    "tasks.list": (_tasks, TEXTS, lambda ws, at: ws.tasks.list(sort="created", limit=1000, cursor=at)),
    "tasks.ready": (_tasks, TEXTS, lambda ws, at: ws.tasks.ready(limit=1000, cursor=at)),
    "tasks.export": (_tasks, TEXTS, lambda ws, at: ws.tasks.export(after=at)),
    "tasks.history": (
        _task,
        TEXTS + 4,
        lambda ws, at: ws.tasks.history(ws.tasks.list()[0].id, before=None if at is None else int(at)),
    ),
    "mail.inbox": (_mail, TEXTS, lambda ws, at: ws.mail.inbox("bob", limit=200, cursor=at)),
    "mail.sent": (_mail, TEXTS, lambda ws, at: ws.mail.sent(limit=200, cursor=at)),
    "mail.thread": (_mail, TEXTS, lambda ws, at: ws.mail.thread("talk", cursor=at)),
}


@pytest.mark.parametrize("name", LISTS)
def test_c9_a_page_ends_by_its_bytes_and_its_cursor_leads_to_the_rest(world: World, name: str) -> None:
    fill, count, call = LISTS[name]
    ws = world.open("ann")
    fill(ws)
    found: list[Any] = []
    pages, cursor = 0, None
    while pages == 0 or cursor is not None:
        page = call(ws, cursor)
        assert page, "a page has at least one record"
        size = len(msgspec.json.encode(page))
        assert size < PAGE_BYTES * 1.1, (name, size)
        found += page
        pages, cursor = pages + 1, page.cursor
    assert pages > 1
    whole = [msgspec.json.encode(each) for each in found]
    assert (len(whole), len({*whole})) == (count, count)


def test_c9_a_page_that_is_full_and_the_last_has_no_cursor(world: World) -> None:
    ws = world.open("ann")
    for number in range(4):
        ws.cells.set("run", "cell", number)
    for limit, cursors in ((4, [None]), (2, ["2-0", None]), (3, ["3-0", None])):
        found, after, seen = [], None, list[str | None]()
        while not seen or after is not None:
            page = ws.events.list(after=after, limit=limit)
            found += [event.version for event in page]
            after = page.cursor
            seen.append(after)
        assert (found, seen) == ([1, 2, 3, 4], cursors)
    newest = ws.cells.history("run", "cell", limit=3)
    assert ([step.version for step in newest], newest.cursor) == ([4, 3, 2], "2")
    oldest = ws.cells.history("run", "cell", limit=3, before=2)
    assert ([step.version for step in oldest], oldest.cursor) == ([1], None)


def test_t13_a_history_ends_between_versions_and_goes_on_below(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("task")  # sets several fields at once
    ws.tasks.update(task.id, title="new", priority=1)
    ws.tasks.note(task.id, "seen")
    everything = ws.tasks.history(task.id)
    assert everything.cursor is None
    found, before = list[HistoryEntry](), None
    for versions in ([3], [2, 2], [1, 1]):
        page = ws.tasks.history(task.id, limit=2, before=before)
        assert [entry.version for entry in page] == versions
        before, found = page[-1].version, [*found, *page]
        assert page.cursor == (str(before) if before > 1 else None)
    assert found == everything[: len(found)]


def test_c9_a_watcher_that_reads_late_gets_every_large_event(world: World) -> None:
    ws = world.open("ann")
    with closing(ws.watch(["cell"], after=ws.revision, timeout=20)) as watch:
        _cells(ws)
        found = [next(watch) for _ in range(VALUES)]
    assert [event.version for event in found] == [*range(1, VALUES + 1)]
    assert [event.data["value"][0] for event in found] == [str(number) for number in range(VALUES)]
