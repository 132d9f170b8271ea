"""A page ends by its limit or by its bytes; an absent cursor is the end, a short page is not (C9 of cells.md)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import msgspec
import pytest

from holdfast import Op, Workspace, errors
from holdfast.kernel.tx import PAGE_BYTES
from holdfast.operation import REGISTRY
from holdfast.schema import is_page
from holdfast.types import Page
from holdfast.types.tasks import HistoryEntry
from holdfast.workspace.watch import every
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

LARGE: Final = "x" * (1_000_000 - 100)  # nearly the most that a value may have
LONG: Final = "y" * 260_000  # nearly the most that a text may have
VALUES: Final = 9
TEXTS: Final = 20
ABLE: Final = 90  # records of 50 KB
NAMED: Final = 8_300  # names of 512 bytes
FEW: Final = 3


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


def _queue(ws: Workspace) -> None:
    queue = ws.stashes.create("large", "queue")
    for number in range(VALUES):
        ws.queues.put(queue.id, f"{number}{LARGE}")


def _channel(ws: Workspace) -> None:
    channel = ws.stashes.create("large", "channel")
    ws.channels.subscribe(channel.id, "a", after=0)
    for number in range(VALUES):
        ws.channels.publish(channel.id, f"{number}{LARGE}")
        ws.channels.subscribe(channel.id, f"b {number}")


def _threads(ws: Workspace) -> None:
    for number in range(VALUES):
        channels = {"large": str(number)}
        ws.threads.put("large", f"{number:02}", None, channels, {"large": LARGE})
        ws.threads.put("other", f"{number:02}", None)


def _items(ws: Workspace) -> None:
    for number in range(VALUES):
        ws.items.put("large/below", f"{number:02}", {"text": LARGE})
        ws.items.put("larger", f"{number:02}", {"text": "x"})


def _read(ws: Workspace, at: str | None) -> Page[Any]:
    if at is not None:
        ws.channels.ack((None, "large"), int(at), "a")
    return ws.channels.read((None, "large"), "a", limit=1000)


def _tasks(ws: Workspace) -> None:
    for number in range(TEXTS):
        ws.tasks.create(f"long {number}", body=LONG)


def _shared(ws: Workspace) -> None:
    _tasks(ws)
    ws.tasks.set_sharing(True)
    ws.tasks.merge_shared()


def _task(ws: Workspace) -> None:
    task = ws.tasks.create("long")
    for number in range(TEXTS):
        ws.tasks.update(task.id, body=f"{number}{LONG}")


def _mail(ws: Workspace) -> None:
    task = ws.tasks.create("task")
    first = ws.mail.send("bob", "long", LONG, thread="talk", task=task.id)
    for _ in range(TEXTS - 1):
        ws.mail.reply(first.id, LONG, to="bob")


def _steps(ws: Workspace) -> None:
    names = [f"bob-{number}" for number in range(FEW)]
    message = ws.mail.send(names, "subject")
    for name in names:
        ws.mail.ack(message.id, name)
        ws.mail.block(message.id, "later", name)


def _tree(ws: Workspace) -> None:
    root = ws.tasks.create("long root").id
    for number in range(TEXTS - 1):
        ws.tasks.create(f"long {number}", body=LONG, parent_id=root)


def _line(ws: Workspace) -> None:
    parent = None
    for number in range(TEXTS + 1):
        parent = ws.tasks.create(f"long {number}", body=LONG, parent_id=parent).id


def _root(ws: Workspace) -> str:
    return ws.tasks.list(parent_id="none")[0].id


def _agents(ws: Workspace) -> None:
    abilities = [f"{number:0512d}" for number in range(100)]
    for number in range(ABLE):
        ws.agents.register(f"able {number}", can=abilities)


def _names(ws: Workspace) -> None:
    for start in range(0, NAMED, 128):
        numbers = range(start, min(start + 128, NAMED))
        ws.txn([], [Op("cells.set", {"run": "many", "cell": f"{each:0512d}", "value": 1}) for each in numbers])


def _small(ws: Workspace) -> None:
    """A few of everything."""
    task = ws.tasks.create("one").id
    trail = ws.trails.create("first").id
    for number in range(FEW):
        other = ws.tasks.create(f"other {number}").id
        ws.tasks.depend(task, other)
        ws.cells.set(f"run {number}", "cell", number)
        ws.leases.create(60, "bob")
        ws.locks.acquire(f"lock {number}", "bob")
        ws.paths.lock([f"src/{number}"], "bob")
        ws.tasks.set_template(f"template {number}", {"title": "task"})
        ws.trails.create(f"trail {number}")
        ws.trails.add(trail, other)
        ws.cycles.start(spec=f"spec-{number}")
        ws.mail.send("bob", f"subject {number}")
        ws.threads.put(f"thread {number}", "01")


Call = Callable[[Workspace, Any], Page[Any]]  # of a workspace and the cursor of the page before


def _number(cursor: str | None) -> int | None:
    return None if cursor is None else int(cursor)


# Every list of the table: how it gets so many records that they take several pages, and how it is called. Where the
# largest page cannot reach the budget, because its records are small and its limit is, it ends by its limit.
LISTS: Final[dict[str, tuple[Callable[[Workspace], None], int, Call]]] = {
    "events.list": (_cells, VALUES, lambda ws, at: ws.events.list(after=at, limit=1000)),
    "cells.history": (_cells, VALUES, lambda ws, at: ws.cells.history("run", "large", before=_number(at))),
    "cells.list": (_names, NAMED, lambda ws, at: ws.cells.list("many", after=at or "", limit=10_000)),
    "cells.runs": (_small, FEW, lambda ws, at: ws.cells.runs(after=at or "", limit=2)),
    "leases.list": (_small, FEW, lambda ws, at: ws.leases.list(after=at or "", limit=2)),
    "locks.list": (_small, FEW, lambda ws, at: ws.locks.list(after=at or "", limit=2)),
    "agents.list": (_agents, ABLE + 1, lambda ws, at: ws.agents.list(after=at or "")),
    "paths.list": (_small, FEW, lambda ws, at: ws.paths.list(after=at or "", limit=2)),
    "trails.list": (_small, FEW + 1, lambda ws, at: ws.trails.list(after=at or "", limit=2)),
    "trails.members": (_small, FEW, lambda ws, at: ws.trails.members(ws.trails.list()[0].id, after=at or "", limit=2)),
    "links.list": (_small, 2 * FEW, lambda ws, at: ws.links.list(after=at or "", limit=2)),
    "cycles.list": (_small, FEW, lambda ws, at: ws.cycles.list(after=at or "", limit=2)),
    "threads.list": (_small, FEW, lambda ws, at: ws.threads.list(limit=2, after=at or "")),
    "threads.history": (_threads, VALUES, lambda ws, at: ws.threads.history("large", values=True, cursor=at)),
    "items.search": (_items, VALUES, lambda ws, at: ws.items.search("large", cursor=at)),
    "stashes.list": (_stashes, VALUES, lambda ws, at: ws.stashes.list(offset=int(at or 0))),
    "stashes.export": (_stashes, VALUES, lambda ws, at: ws.stashes.export("stashes", after=at)),
    "stashes.history": (
        _stash,
        VALUES + 1,
        lambda ws, at: ws.stashes.history(ws.stashes.list()[0].id, after=_number(at)),
    ),
    "queues.list": (_queue, VALUES, lambda ws, at: ws.queues.list((None, "large"), limit=1000, after=int(at or 0))),
    "channels.read": (_channel, VALUES, _read),
    "channels.list": (_channel, VALUES, lambda ws, at: ws.channels.list((None, "large"), after=int(at or 0))),
    "channels.subscribers": (
        _channel,
        VALUES + 1,
        lambda ws, at: ws.channels.subscribers((None, "large"), limit=2, after=at or ""),
    ),
    "tasks.list": (_tasks, TEXTS, lambda ws, at: ws.tasks.list(sort="created", limit=1000, cursor=at)),
    "tasks.ready": (_tasks, TEXTS, lambda ws, at: ws.tasks.ready(limit=1000, cursor=at)),
    "tasks.search": (_tasks, TEXTS, lambda ws, at: ws.tasks.search("long", limit=100, offset=int(at or 0))),
    "tasks.subtree": (_tree, TEXTS, lambda ws, at: ws.tasks.subtree(_root(ws), cursor=at)),
    "tasks.children": (_tree, TEXTS - 1, lambda ws, at: ws.tasks.children(_root(ws), cursor=at)),
    "tasks.ancestors": (
        _line,
        TEXTS,
        lambda ws, at: ws.tasks.ancestors(ws.tasks.list(sort="-created", limit=1)[0].id, after=at or ""),
    ),
    "tasks.dependencies": (
        _small,
        FEW,
        lambda ws, at: ws.tasks.dependencies(ws.tasks.list(sort="created")[0].id, limit=2, offset=int(at or 0)),
    ),
    "tasks.templates": (_small, FEW, lambda ws, at: ws.tasks.templates(after=at or "", limit=2)),
    "tasks.export": (_tasks, TEXTS, lambda ws, at: ws.tasks.export(after=at)),
    "tasks.shared_lines": (_shared, TEXTS, lambda ws, at: ws.tasks.shared_lines(after=at or "")),
    "tasks.history": (_task, TEXTS + 4, lambda ws, at: ws.tasks.history(ws.tasks.list()[0].id, before=_number(at))),
    "mail.inbox": (_mail, TEXTS, lambda ws, at: ws.mail.inbox("bob", limit=200, cursor=at)),
    "mail.sent": (_mail, TEXTS, lambda ws, at: ws.mail.sent(limit=200, cursor=at)),
    "mail.thread": (_mail, TEXTS, lambda ws, at: ws.mail.thread("talk", cursor=at)),
    "mail.threads": (_small, FEW, lambda ws, at: ws.mail.threads(limit=2, cursor=at)),
    "board": (_small, FEW, lambda ws, at: ws.board("ready", limit=2, cursor=at)),
    "mail.about": (_mail, TEXTS, lambda ws, at: ws.mail.about(ws.tasks.list()[0].id, cursor=at)),
    "mail.search": (_mail, TEXTS, lambda ws, at: ws.mail.search("long", limit=100, offset=int(at or 0))),
    "mail.history": (
        _steps,
        2 * FEW + 1,
        lambda ws, at: ws.mail.history(ws.mail.sent()[0].id, limit=2, after=_number(at)),
    ),
}


def test_every_list_of_the_table_is_here() -> None:
    assert {*LISTS} == {name for name in REGISTRY if is_page(name)}


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


def test_c2_the_recipients_of_messages_count_for_a_page(world: World) -> None:
    ws = world.open("ann")
    names = [f"{number:0512d}" for number in range(1000)]
    for _ in range(5):
        ws.mail.send(names, "to all")  # each has a MB of names: who gets it, and what became of it
    first = ws.mail.sent()
    assert (len(first), len(ws.mail.sent(cursor=first.cursor))) == (4, 1)
    hits = ws.mail.search("all")
    assert (len(hits), hits.cursor, len(ws.mail.search("all", offset=4))) == (4, "4", 1)


def test_t7_a_subtree_comes_by_level_and_age_also_in_pages(world: World) -> None:
    ws = world.open("ann")
    root = ws.tasks.create("root").id
    left, right = (ws.tasks.create(name, parent_id=root).id for name in ("left", "right"))
    deep = [ws.tasks.create(f"{number}", parent_id=(right, left)[number % 2]).id for number in range(4)]
    deepest = ws.tasks.create("deepest", parent_id=deep[3]).id
    late = ws.tasks.create("late", parent_id=root).id
    wanted = [(0, root), (1, left), (1, right), (1, late), *((2, id) for id in deep), (3, deepest)]
    assert [(task.relative_depth, task.id) for task in every(ws.tasks.subtree, id=root)] == wanted
    assert [(task.relative_depth, task.id) for task in every(ws.tasks.subtree, id=root, limit=1)] == wanted
    assert [(task.relative_depth, task.id) for task in every(ws.tasks.subtree, id=root, limit=4)] == wanted
    assert [task.id for task in every(ws.tasks.ancestors, id=deepest, limit=1)] == [deep[3], left, root]
    assert [task.id for task in every(ws.tasks.children, id=root, limit=2)] == [left, right, late]


def test_c2_a_txn_whose_results_are_too_large_does_nothing(world: World) -> None:
    ws = world.open("ann")
    ws.cells.set("run", "large", LARGE)
    read = [Op("cells.get", {"run": "run", "cell": "large"})] * 40
    with pytest.raises(errors.TooLarge, match="nothing of it was done"):
        ws.txn([], [Op("cells.set", {"run": "run", "cell": "small", "value": 1}), *read])
    assert ws.cells.find("run", "small") is None
    assert len(ws.txn([], read[:3]).results) == 3


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


@pytest.mark.kinds("drawn")
def test_every_event_comes_page_after_page(world: World) -> None:
    ws = world.open("ann")
    names = [f"cell-{number}" for number in range(7)]
    for name in names:
        ws.cells.set("run", name, 1)
    assert [event.id for event in every(ws.events.list, limit=2)] == names
    assert [event.id for event in every(ws.events.list, limit=2, after=ws.events.list(limit=2).cursor)] == names[2:]
