"""Many tasks at once: lists, bulk calls, retention and templates (T14, T16, T19).

A list is compared with a plain Python filter over all tasks there are: for every filter, every pair of filters, every
order; its pages with the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Op, VersionEquals, errors
from holdfast.types.tasks import BulkItem, Retired, Task, TaskTemplate, TemplateNode
from tests.conformance.test_tasks import Call, refuse, state
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

DAY = 86_400


def titles(tasks: Any) -> list[str]:
    """What tasks are called."""
    return [task.title for task in tasks]


def make(ws: Any, count: int, **fields: Any) -> list[str]:
    """Some tasks, called by their numbers."""
    specs = [{"title": str(number), **fields} for number in range(count)]
    return [item.id for item in ws.tasks.bulk("create", tasks=specs).results]


# --- lists -----------------------------------------------------------------------------------------------------------

TAGS = ("area/web", "area/web/css", "area/api", "area", "docs", "Area/web")
WORDS = ("harbour", "lighthouse", "storm")


def crowd(world: World) -> tuple[Any, list[Task], dict[str, str]]:
    """A workspace with a bit of everything, all its tasks in the order of their creation, and what is said in each."""
    ws: Any = world.open()
    ids: list[str] = []
    types = ("task", "feature", "bug", "epic", "chore")
    for number in range(40):
        parent = ids[number % 4] if number >= 4 and number % 3 else None
        tags = [TAGS[number % 6], TAGS[(number // 2) % 6]] if number % 5 else []
        words = WORDS[number % 3] if number % 4 else ""
        made = ws.tasks.create(f"Task {number}", words, types[number % 5], number * 7 % 5, parent, tags)
        ids.append(made.id)
        if number % 6 == 5:
            ws.tasks.note(made.id, WORDS[(number + 1) % 3])
        world.clock.advance(1)
    for number in range(4, 40, 2):
        ws.tasks.claim(ids[number], f"agent-{number % 3}", ttl=DAY)
        step: Callable[..., object] = {
            0: lambda *_: None,
            2: ws.tasks.complete,
            4: lambda *who: ws.tasks.complete(*who, review=True),
            6: ws.tasks.block,
        }[number % 8]
        step(ids[number], f"agent-{number % 3}")
        world.clock.advance(number % 4)  # some at the same time
    for number in (7, 13, 26, 38):
        ws.tasks.delete(ids[number])
    tasks = [ws.tasks.get(id, include_deleted=True) for id in ids]
    notes = [[entry.note for entry in ws.tasks.history(id, field="note")] for id in ids]
    return ws, tasks, {task.id: f"{task.title} {task.body} {said}" for task, said in zip(tasks, notes, strict=True)}


Fits = Callable[[Task], bool]
FILTERS: dict[str, list[tuple[Any, Fits]]] = {
    "status": [
        ("open", lambda task: task.status == "open"),
        ("closed", lambda task: task.status == "closed"),
        ("in_progress", lambda task: task.status == "in_progress"),
        (["blocked", "pending_merge"], lambda task: task.status in ("blocked", "pending_merge")),
        (["blocked", "in_progress"], lambda task: task.status in ("blocked", "in_progress")),
        (("pending_merge",), lambda task: task.status == "pending_merge"),
    ],
    "priority": [(0, lambda task: task.priority == 0), ([1, 3, 4], lambda task: task.priority in (1, 3, 4))],
    "type": [("bug", lambda task: task.type == "bug"), (["epic", "task"], lambda task: task.type in ("epic", "task"))],
    "tag": [("area/web", lambda task: "area/web" in task.tags), ("never", lambda task: False)],
    "tag_pattern": [
        ("area/*", lambda task: any(tag in ("area/web", "area/api") for tag in task.tags)),
        ("area/**", lambda task: any(tag.startswith("area") for tag in task.tags)),
        ("{docs,area}", lambda task: bool({*task.tags} & {"docs", "area"})),
        ("?rea/web", lambda task: bool({*task.tags} & {"area/web", "Area/web"})),
    ],
    "claimed_by": [
        ("agent-1", lambda task: task.claimed_by == "agent-1"),
        ("none", lambda task: task.claimed_by is None),
        ("nobody", lambda task: False),
    ],
}


def _under(parent: str) -> Fits:
    return lambda task: task.parent_id == parent


def _saying(words: list[str], texts: dict[str, str]) -> Fits:
    return lambda task: all(word in texts[task.id] for word in words)


def filters(tasks: list[Task], texts: dict[str, str]) -> list[tuple[str, Any, Fits]]:
    """Every filter with its values; those whose values are known only now too."""
    found = [(name, value, fits) for name, values in FILTERS.items() for value, fits in values]
    for parent in (tasks[0].id, tasks[1].id):
        found.append(("parent_id", parent, _under(parent)))
    found.append(("parent_id", "none", lambda task: task.parent_id is None))
    for words in ("storm", "stor* harbour"):
        wanted = [word.rstrip("*") for word in words.split()]
        found.append(("text", words, _saying(wanted, texts)))
    return found


SORTS: dict[str, Callable[[Task], Any]] = {
    "priority": lambda task: task.priority,
    "created": lambda task: 0,
    "updated": lambda task: task.updated_at,
}


def in_order(tasks: list[Task], sort: str) -> list[str]:
    """Titles as a list sorted so has them: what is equal in the order of creation, all of it turned by a minus."""
    found = titles(sorted(tasks, key=SORTS[sort.removeprefix("-")]))
    return found[::-1] if sort.startswith("-") else found


def pages(ws: Any, limit: int, between: Callable[[], object] = lambda: None, **how: Any) -> list[Any]:
    """All pages of a list."""
    found = [ws.tasks.list(limit=limit, **how)]
    while found[-1].cursor is not None:
        between()
        found.append(ws.tasks.list(limit=limit, cursor=found[-1].cursor, **how))
    return found


def test_t14_every_filter_alone_in_every_order_and_in_pages_is_what_a_plain_filter_finds(world: World) -> None:
    ws, tasks, texts = crowd(world)
    everything: Fits = lambda task: True  # noqa: E731
    kept = 0
    for name, value, fits in [("limit", 50, everything), *filters(tasks, texts)]:
        for deleted, turn, sort in itertools.product((False, True), ("", "-"), SORTS):
            expected = [task for task in tasks if fits(task) and (deleted or task.deleted_at is None)]
            how: dict[str, Any] = {"include_deleted": deleted, "sort": turn + sort, name: value}
            listed = ws.tasks.list(**how)
            assert titles(listed) == in_order(expected, turn + sort), how
            assert all(task in tasks for task in listed)
            assert (listed.cursor, listed.total, listed.more) == (None, None, False)
            kept += len(listed)
            if name != "limit" and deleted:
                whole = [task for page in pages(ws, 5, **how) for task in page]
                assert whole == listed, how
    assert kept > 1000


def test_t14_every_pair_of_filters_is_what_a_plain_filter_finds(world: World) -> None:
    ws, tasks, texts = crowd(world)
    some = 0
    for (one, first, fits), (two, second, also) in itertools.combinations(filters(tasks, texts), 2):
        if one == two:
            continue
        for sort, deleted in (("priority", False), ("-updated", True)):
            expected = [t for t in tasks if fits(t) and also(t) and (deleted or t.deleted_at is None)]
            how: dict[str, Any] = {one: first, two: second, "sort": sort, "include_deleted": deleted}
            listed = ws.tasks.list(**how, total=True)
            assert titles(listed) == in_order(expected, sort), how
            assert (listed.total, listed.more) == (len(expected), False), how
            some += bool(expected)
    assert some > 100


def test_t14_pages_are_full_and_end_with_no_cursor(world: World) -> None:
    ws: Any = world.open()
    make(ws, 12)
    for limit, sizes in ((1, [1] * 12), (5, [5, 5, 2]), (6, [6, 6]), (12, [12]), (1000, [12])):
        found = pages(ws, limit, total=True)
        assert [len(page) for page in found] == sizes
        assert {page.total for page in found} == {12}
        assert titles(task for page in found for task in page) == [str(number) for number in range(12)]


def test_t14_a_list_has_100_unless_told_and_at_most_1000(world: World) -> None:
    ws: Any = world.open()
    make(ws, 1001)
    assert [len(ws.tasks.list(**how)) for how in ({}, {"limit": 1000})] == [100, 1000]
    assert [len(page) for page in pages(ws, 1000)] == [1000, 1]


@pytest.mark.capability("local")
def test_t14_the_total_counts_to_10000_and_says_that_there_are_more_and_t2_ids_grow_with_the_store(
    world: World,
) -> None:
    ws: Any = world.open()
    make(ws, 10_000, tags=["tag"])
    page = ws.tasks.list(tag="tag", total=True, limit=1)
    assert (len(page), page.total, page.more) == (1, 10_000, False)
    ids = make(ws, 6384)
    page = ws.tasks.list(status="open", total=True, limit=1)
    assert (page.total, page.more) == (10_000, True)
    assert {len(id) for id in ids} == {len("hf-7k2q")}
    assert len(ws.tasks.create("One in 64 would be taken").id) == len("hf-7k2q0")


@pytest.mark.kinds("every")
@pytest.mark.parametrize("sort", [turn + sort for sort in SORTS for turn in ("", "-")])
def test_t14_pages_neither_skip_nor_repeat_what_stays_as_it_is_while_others_write(world: World, sort: str) -> None:
    ws, other = world.open(), world.open("other")
    ids = make(ws, 30)
    for number, id in enumerate(ids):
        world.clock.advance(1)
        ws.tasks.update(id, priority=number % 3)
    busy = iter([(ids[at], ids[29 - at]) for at in (0, 1, 3, 4, 6, 7, 10, 11)])
    touched = {id for at in (0, 1, 3, 4, 6, 7, 10, 11) for id in (ids[at], ids[29 - at])}

    def meddle() -> None:
        changed, gone = next(busy, (ids[0], None))
        world.clock.advance(1)
        other.tasks.update(changed, title="Changed", priority=4 - other.tasks.get(changed).priority)
        if gone is not None:
            other.tasks.delete(gone)
            other.tasks.create("New", priority=1)

    seen = [task for page in pages(ws, 4, meddle, sort=sort) for task in page if task.title != "New"]
    still = [task for task in ws.tasks.list(sort=sort) if task.id in {*ids} - touched]
    assert [task for task in seen if task.id not in touched] == still
    assert len(still) == 14


def test_t14_a_cursor_that_is_not_of_this_list_is_refused(world: World) -> None:
    ws: Any = world.open()
    make(ws, 5)
    cursor = ws.tasks.list(limit=2).cursor
    assert cursor is not None
    others = [ws.tasks.list(limit=2, sort=sort).cursor for sort in ("-priority", "created", "updated")]
    for bad in (*others, "", "x", ".", "priority", "priority.2", f"{cursor}.1", f"{cursor}x", f" {cursor}", 5, b"x"):
        refuse(ws, errors.InvalidFilter, lambda ws, bad: ws.tasks.list(cursor=bad), given=(bad,))
    for bad in ("priority.-1.1", "priority.1.5.1", "priority..1", ["x"]):
        refuse(ws, errors.InvalidFilter, lambda ws, bad: ws.tasks.list(cursor=bad), given=(bad,))
    for bad in (cursor, "", "x", "2", "2.", ".2", "2.-1", "2.1.1", 5):
        refuse(ws, errors.InvalidFilter, lambda ws, bad: ws.tasks.ready(cursor=bad), given=(bad,))


@pytest.mark.parametrize("number", [2**63, "9" * 5000, "٣"], ids=["2**63", "5000 digits", "other digits"])
def test_t14_a_cursor_with_a_number_that_no_task_can_have_is_refused(world: World, number: Any) -> None:
    ws: Any = world.open()
    make(ws, 5)
    for sort in ("priority", "-priority", "created", "updated"):
        for cursor in (f"{sort}.{number}.1", f"{sort}.1.{number}"):
            call: Call = lambda ws, sort, cursor: ws.tasks.list(sort=sort, cursor=cursor)  # noqa: E731
            refuse(ws, errors.InvalidFilter, call, given=(sort, cursor))
    for cursor in (f"{number}.1", f"1.{number}"):
        refuse(ws, errors.InvalidFilter, lambda ws, cursor: ws.tasks.ready(cursor=cursor), given=(cursor,))


BAD_FILTERS: dict[type[errors.HoldfastError], list[dict[str, Any]]] = {
    errors.InvalidFilter: [
        *({"status": bad} for bad in ("", "done", 5, ["open", "x"])),
        *({"tag_pattern": bad} for bad in ("", "[", "a[", "{a", 5)),
        *({"text": bad} for bad in ("", "!!", 5)),
        *({"sort": bad} for bad in ("", "title", "--priority", "priority,created", 5, None)),
        *({"limit": bad} for bad in (0, -1, 1001, True, 1.0, "5", None)),
    ],
    errors.InvalidPriority: [{"priority": bad} for bad in (-1, 5, True, "1", [0, 9])],
    errors.InvalidType: [{"type": bad} for bad in ("", "story", 5, ["bug", "x"])],
    errors.InvalidTag: [{"tag": bad} for bad in ("", " a", "a/", 5)],
    errors.InvalidName: [{"parent_id": ""}, {"parent_id": 5}, {"claimed_by": ""}, {"claimed_by": 5}],
    errors.TaskNotFound: [{"parent_id": "hf-none"}],
}


@pytest.mark.parametrize(("error", "bad"), BAD_FILTERS.items(), ids=lambda given: getattr(given, "code", "by"))
def test_t14_a_filter_that_cannot_be_used_is_refused(world: World, error: Any, bad: list[dict[str, Any]]) -> None:
    ws: Any = world.open()
    make(ws, 2)
    for how in bad:
        refuse(ws, error, lambda ws, how: ws.tasks.list(**how), given=(how,))


def test_t14_a_pattern_that_cannot_be_stored_is_refused(world: World) -> None:
    ws: Any = world.open()
    make(ws, 2, tags=["tag"])
    refuse(
        ws,
        errors.InvalidFilter,
        lambda ws: ws.tasks.list(tag_pattern="\ud800*"),
        lambda ws: ws.tasks.list(tag_pattern="\ud800"),
    )


@pytest.mark.parametrize("tag", ["👩\u200d💻/web", "a\u00a0b", "क्\u200dष"], ids=ascii)
def test_t14_whatever_a_tag_may_be_a_pattern_may_ask_for(world: World, tag: str) -> None:
    ws: Any = world.open()
    make(ws, 1, tags=[tag])
    make(ws, 1, tags=["other"])
    for pattern in (tag, f"{tag[:-1]}*"):
        assert [task.tags for task in ws.tasks.list(tag_pattern=pattern)] == [(tag,)]
        assert [task.tags for task in ws.tasks.ready(tag_pattern=pattern)] == [(tag,)]


# --- bulk ------------------------------------------------------------------------------------------------------------


def several(ws: Any) -> list[str]:
    """A task in each state: open, in progress, pending merge, blocked, closed, deleted; then one that never was."""
    ids = make(ws, 6)
    for id in ids[1:4]:
        ws.tasks.claim(id, "agent")
    ws.tasks.complete(ids[2], "agent", review=True)
    ws.tasks.block(ids[3], "agent")
    ws.tasks.cancel(ids[4])
    ws.tasks.delete(ids[5])
    return [*ids, "hf-none"]


BULK: dict[str, tuple[dict[str, Any], list[str | None]]] = {
    "add_tags": ({"tags": ["new"]}, [None] * 5),
    "remove_tags": ({"tags": ["new"]}, [None] * 5),
    "set_priority": ({"priority": 0}, [None] * 5),
    "close": ({"reason": "done"}, [None, "NOT_CLAIM_OWNER", None, None, "INVALID_TRANSITION"]),
    "cancel": ({"reason": "no"}, [None, "INVALID_TRANSITION", "INVALID_TRANSITION", None, "INVALID_TRANSITION"]),
    "delete": ({"reason": "no"}, [None, "TASK_ACTIVE", "TASK_ACTIVE", None, None]),
}


@pytest.mark.parametrize("action", BULK)
def test_t14_a_bulk_call_answers_for_each_task_and_one_that_is_refused_leaves_the_others_alone(
    world: World, action: Any
) -> None:
    ws: Any = world.open()
    ids = several(ws)
    args, codes = BULK[action]
    before = {id: ws.tasks.get(id) for id in ids[:5]}
    revision = ws.revision
    results = ws.tasks.bulk(action, ids, **args).results
    assert [item.id for item in results] == ids
    assert [item.code for item in results] == [*codes, "TASK_NOT_FOUND", "TASK_NOT_FOUND"]
    assert all(item.success == (item.code is None) == (item.error is None) for item in results)
    assert ws.revision == revision + (action != "remove_tags")  # in one transaction
    for item in results[:5]:
        after = ws.tasks.get(item.id, include_deleted=True)
        assert (after != before[item.id]) == (item.success and action != "remove_tags")
        if item.success and action != "remove_tags":
            assert {
                "add_tags": after.tags == ("new",),
                "set_priority": after.priority == 0,
                "close": after.status == "closed",
                "cancel": after.status == "closed",
                "delete": after.deleted_at is not None,
            }[action]


@pytest.mark.parametrize("action", BULK)
def test_t14_an_atomic_bulk_call_does_all_or_nothing(world: World, action: Any) -> None:
    ws: Any = world.open()
    ids = several(ws)
    args, codes = BULK[action]
    good = [id for id, code in zip(ids, codes, strict=False) if code is None]
    ends: list[tuple[str, type[errors.HoldfastError]]] = [("hf-none", errors.TaskNotFound)]
    if "TASK_ACTIVE" in codes:
        ends.append((ids[1], errors.TaskActive))
    if "INVALID_TRANSITION" in codes:
        ends.append((ids[4], errors.InvalidTransition))
    for bad, error in ends:
        refuse(ws, error, lambda ws, ids: ws.tasks.bulk(action, ids, **args, atomic=True), given=([*good, bad],))
    done = ws.tasks.bulk(action, good, **args, atomic=True)
    assert done.results == [BulkItem(id, True) for id in good]


def test_t14_bulk_creates_many_in_order_each_with_a_result(world: World) -> None:
    ws: Any = world.open()
    parent = ws.tasks.create("Parent", grimoire_hint="spell")
    full = {"title": "Full", "body": "b", "type": "bug", "priority": 0, "tags": ["t"], "grimoire_hint": "own"}
    good: list[Any] = [{"title": "Plain"}, {**full, "parent_id": parent.id}]
    bad: list[Any] = [{}, {"title": ""}, {"title": "x", "status": "closed"}, {"title": "x", "parent_id": "hf-none"}, 5]
    results = ws.tasks.bulk("create", tasks=[good[0], *bad, good[1]]).results
    codes = [None, "INVALID", "INVALID_VALUE", "INVALID", "PARENT_NOT_FOUND", "INVALID", None]
    assert [item.code for item in results] == codes
    assert [bool(item.id) for item in results] == [code is None for code in codes]
    made = ws.tasks.get(results[-1].id)
    assert {name: getattr(made, name) for name in full} == {**full, "tags": ("t",)}
    assert titles(ws.tasks.list(sort="created")) == ["Parent", "Plain", "Full"]
    for spec, code in zip(bad, codes[1:], strict=False):
        error = next(cls for cls in (errors.Invalid, errors.InvalidValue, errors.ParentNotFound) if cls.code == code)
        refuse(ws, error, lambda ws, spec: ws.tasks.bulk("create", tasks=[good[0], spec], atomic=True), given=(spec,))


def test_t14_a_bulk_call_that_makes_no_sense_is_refused_and_nothing_changes(world: World) -> None:
    ws: Any = world.open()
    [id] = make(ws, 1)
    calls: list[Call] = [
        lambda ws: ws.tasks.bulk("purge", [id]),
        lambda ws: ws.tasks.bulk("", [id]),
        lambda ws: ws.tasks.bulk(5, [id]),
        lambda ws: ws.tasks.bulk("close", []),
        lambda ws: ws.tasks.bulk("create", [id]),
        lambda ws: ws.tasks.bulk("close", id),
        lambda ws: ws.tasks.bulk("close", 5),
        lambda ws: ws.tasks.bulk("create", tasks={"title": "x"}),
    ]
    refuse(ws, errors.Invalid, *calls)
    refuse(ws, errors.InvalidPriority, lambda ws: ws.tasks.bulk("set_priority", [id]))
    refuse(ws, errors.TooLarge, lambda ws: ws.tasks.bulk("add_tags", [id] * 10_001, tags=["t"]))
    refuse(ws, errors.InvalidTag, lambda ws: ws.tasks.bulk("add_tags", [id], atomic=True))
    refuse(ws, errors.InvalidName, lambda ws: ws.tasks.bulk("delete", [id, 5], atomic=True))


def test_t14_the_same_task_twice_in_a_bulk_call_is_taken_as_it_comes(world: World) -> None:
    ws: Any = world.open()
    parent = ws.tasks.create("Parent").id
    child = ws.tasks.create("Child", parent_id=parent).id
    assert [item.code for item in ws.tasks.bulk("add_tags", [child, child], tags=["t"]).results] == [None, None]
    assert ws.tasks.get(child).version == 2
    assert [item.code for item in ws.tasks.bulk("delete", [parent, child]).results] == [None, "TASK_NOT_FOUND"]


def test_t14_what_a_refused_task_of_a_bulk_call_had_begun_is_undone(world: World) -> None:
    ws: Any = world.open()
    full = ws.tasks.create("Full", tags=[f"tag-{number}" for number in range(64)]).id
    claimed = ws.tasks.claim(full, ttl=60)
    other = ws.tasks.create("Other").id
    world.clock.advance(30)
    results = ws.tasks.bulk("add_tags", [full, other], tags=["one more"]).results
    assert [item.code for item in results] == ["INVALID_TAG", None]
    assert ws.tasks.get(full) == claimed  # not even the claim was renewed, as a write of its holder does


# --- retention -------------------------------------------------------------------------------------------------------


def configure(world: World, ws: Any, text: str) -> None:
    """Put a config.yaml beside every store of the world, and load it."""
    folders = [path for path in world.folder.iterdir() if path.is_dir()] or [Path(ws._engine.folder)]
    for folder in folders:
        (folder / "config.yaml").write_text(text)
    [loaded] = [loaded for loaded in ws.routes.reload() if loaded.file == "config.yaml"]
    assert (loaded.stored, loaded.problems) == (True, ())


def there(ws: Any) -> list[str]:
    """Titles of all tasks, those deleted in brackets; looking is also a reason to sweep what is due."""
    tasks = ws.tasks.list(include_deleted=True, sort="created")
    return [f"({task.title})" if task.deleted_at else task.title for task in tasks]


def test_t16_closed_tasks_are_deleted_after_30_days_and_purged_after_7_more(world: World) -> None:
    ws: Any = world.open()
    closed, touched, opened, blocked = (ws.tasks.create(title).id for title in ("closed", "touched", "open", "blocked"))
    ws.tasks.claim(blocked, "agent")
    ws.tasks.block(blocked, "agent")
    for id in (closed, touched):
        ws.tasks.cancel(id)
    world.clock.advance(DAY)
    ws.tasks.update(touched, priority=0)  # counted from its last change
    for seconds, left in (
        (29 * DAY - 1, ["closed", "touched", "open", "blocked"]),
        (1, ["(closed)", "touched", "open", "blocked"]),
        (DAY - 1, ["(closed)", "touched", "open", "blocked"]),
        (1, ["(closed)", "(touched)", "open", "blocked"]),
        (6 * DAY - 1, ["(closed)", "(touched)", "open", "blocked"]),
        (1, ["(touched)", "open", "blocked"]),
    ):
        world.clock.advance(seconds)
        ws.tasks.sweep_retention()
        assert there(ws) == left
    assert {(entry.old_value, entry.new_value) for entry in ws.tasks.history(closed)} == {(None, None)}
    assert ws.tasks.restore(touched).status == "closed"  # and starts anew
    world.clock.advance(29 * DAY)
    ws.tasks.sweep_retention()
    assert there(ws) == ["touched", "open", "blocked"]
    assert (ws.tasks.get(opened).version, ws.tasks.get(blocked).version) == (1, 3)


def test_t16_a_dry_run_counts_and_changes_nothing(world: World) -> None:
    ws: Any = world.open()
    for id in make(ws, 3):
        ws.tasks.cancel(id)
    gone = ws.tasks.create("deleted").id
    ws.tasks.delete(gone)
    configure(world, ws, "task_store: {retention_days: 0.5, soft_delete_days: 0.25}")
    world.clock.advance(DAY // 2)
    before = state(ws)
    assert ws.tasks.sweep_retention(dry_run=True) == Retired(3, 1)
    assert state(ws) == before
    assert ws.tasks.sweep_retention() == Retired(3, 1)
    assert there(ws) == ["(0)", "(1)", "(2)"]


def test_t16_leaves_go_first_and_a_parent_stays_while_something_below_it_is_live(world: World) -> None:
    ws: Any = world.open()
    parent = ws.tasks.create("parent").id
    middle = ws.tasks.create("middle", parent_id=parent).id
    leaf = ws.tasks.create("leaf", parent_id=middle).id
    other = ws.tasks.create("other", parent_id=parent).id
    for id in (parent, middle, leaf):
        ws.tasks.cancel(id, force=True)
    world.clock.advance(31 * DAY)
    ws.tasks.sweep_retention()
    assert there(ws) == ["parent", "(middle)", "(leaf)", "other"]
    ws.tasks.cancel(other)
    world.clock.advance(30 * DAY)
    ws.tasks.sweep_retention()
    assert there(ws) == ["(parent)", "(other)"]
    world.clock.advance(7 * DAY)
    assert ws.tasks.sweep_retention(dry_run=True).deleted == 0
    ws.tasks.sweep_retention()
    assert there(ws) == []


def test_t16_it_frees_nobody_who_is_bound_and_holds_nobody_who_is_free(world: World) -> None:
    ws: Any = world.open()
    done, waiting = ws.tasks.create("done").id, ws.tasks.create("waiting").id
    ws.tasks.depend(waiting, done)
    ws.tasks.cancel(done)
    for days in (30, 7):
        assert titles(ws.tasks.ready()) == ["waiting"]
        world.clock.advance(days * DAY)
        ws.tasks.sweep_retention()
    assert (there(ws), titles(ws.tasks.ready()), ws.tasks.dependencies(waiting)) == (["waiting"], ["waiting"], [])


@pytest.mark.kinds("every")
def test_t16_it_runs_by_itself_at_most_once_a_day(world: World) -> None:
    ws: Any = world.open()
    ws.tasks.cancel(ws.tasks.create("closed").id)
    world.clock.advance(29.5 * DAY)
    assert there(ws) == ["closed"]  # it has run now
    world.clock.advance(0.75 * DAY)
    assert there(ws) == ["closed"]  # due, but not a day later yet
    world.clock.advance(0.25 * DAY)
    assert there(ws) == ["(closed)"]
    [event] = [event for event in ws.events.list(kinds=["task"]) if event.op == "delete"]
    assert event.actor == "system"
    for _ in range(16):
        world.clock.advance(0.5 * DAY)
        there(ws)
    world.live_until(lambda: there(ws) == [])
    revision = ws.revision
    world.clock.advance(100 * DAY)
    assert (there(ws), ws.revision) == ([], revision)


def test_t16_more_than_a_transaction_takes_are_all_retired(world: World) -> None:
    ws: Any = world.open()
    ids = make(ws, 450)
    ws.tasks.bulk("cancel", ids)
    world.clock.advance(0.5 * DAY)
    configure(world, ws, "task_store: {retention_days: 0.5, soft_delete_days: 0.25}")
    revision = ws.revision
    assert ws.tasks.sweep_retention() == Retired(450, 0)
    assert ws.revision == revision + 3
    world.clock.advance(0.5 * DAY)  # by itself: a part now, the next a second later
    counts = [450]
    while counts[-1]:
        world.live_until(lambda: bool(ws.tasks.list(include_deleted=True, total=True).total < counts[-1]))
        counts.append(ws.tasks.list(include_deleted=True, total=True).total)
        world.clock.advance(1)
    assert {*counts} <= {450, 250, 50, 0}, "the pulse of a replica may take two parts between two looks"


@pytest.mark.parametrize(
    ("days", "left"),
    [
        ("retention_days: never", ["closed"]),
        ("soft_delete_days: never", ["(closed)", "(deleted)"]),
        ("retention_days: never, soft_delete_days: never", ["closed", "(deleted)"]),
        ("retention_days: 40, soft_delete_days: 40", ["closed", "(deleted)"]),
        ("retention_days: 2, soft_delete_days: 40", ["(closed)", "(deleted)"]),
    ],
)
def test_t16_the_configuration_changes_the_days_or_ends_it(world: World, days: str, left: list[str]) -> None:
    ws: Any = world.open()
    ws.tasks.cancel(ws.tasks.create("closed").id)
    ws.tasks.delete(ws.tasks.create("deleted").id)
    configure(world, ws, f"task_store: {{{days}}}")
    world.clock.advance(31 * DAY)
    world.live_until(lambda: there(ws) == left)  # by itself
    assert (ws.tasks.sweep_retention(), there(ws)) == (Retired(0, 0), left)


# --- templates -------------------------------------------------------------------------------------------------------

RELEASE: dict[str, Any] = {
    "title": "Release {version} of {{holdfast}}",
    "body": "for {who}",
    "type": "epic",
    "priority": 1,
    "tags": ["release/{version}"],
    "grimoire_hint": "{who}-spell",
    "children": [
        {"title": "Build {version}", "key": "build", "children": [{"title": "Sign", "key": "sign"}]},
        {"title": "Publish", "depends_on": ["build", "sign"], "tags": ["{who}"], "grimoire_hint": "own"},
    ],
}
PARAMETERS = {"version": None, "who": "everybody"}


def test_t19_a_template_becomes_a_tree_of_tasks_in_one_transaction(world: World) -> None:
    ws: Any = world.open()
    ws.tasks.set_template("release", RELEASE, PARAMETERS)
    parent, revision = ws.tasks.create("Parent"), ws.revision
    root = ws.tasks.from_template("release", parent.id, version="1.0")
    assert ws.revision == revision + 1
    assert ws.tasks.get(root.id) == root
    assert (root.title, root.body, root.type, root.priority) == (
        "Release 1.0 of {holdfast}",
        "for everybody",
        "epic",
        1,
    )
    assert (root.tags, root.grimoire_hint, root.parent_id) == (("release/1.0",), "everybody-spell", parent.id)
    tree = ws.tasks.subtree(root.id)
    assert [(t.title, t.depth, t.tags, t.grimoire_hint) for t in tree[1:]] == [
        ("Build 1.0", 2, (), "everybody-spell"),
        ("Publish", 2, ("everybody",), "own"),
        ("Sign", 3, (), "everybody-spell"),
    ]
    ids = {task.title: task.id for task in tree}
    assert {link.on for link in ws.tasks.dependencies(ids["Publish"])} == {ids["Build 1.0"], ids["Sign"]}
    assert "Publish" not in titles(ws.tasks.ready())
    again = ws.tasks.from_template("release", version="{who}", who="{version}")
    assert (again.title, again.body, again.depth) == ("Release {who} of {holdfast}", "for {version}", 0)


def test_t19_templates_are_kept_replaced_listed_and_forgotten(world: World) -> None:
    ws: Any = world.open()
    kept = ws.tasks.set_template("b", TemplateNode("One", key="k"), {"x": None})
    assert kept == ws.tasks.get_template("b") == TaskTemplate("b", TemplateNode("One", key="k"), {"x": None}, 1)
    for name in ("c", "a", "ä"):
        ws.tasks.set_template(name, {"title": "One"})
    assert ws.tasks.templates() == ["a", "b", "c", "ä"]
    assert ws.tasks.templates(limit=2, after="a") == ["b", "c"]
    made = ws.tasks.from_template("a")
    ws.tasks.set_template("a", {"title": "Two"})
    assert (ws.tasks.from_template("a").title, ws.tasks.get(made.id).title) == ("Two", "One")
    assert [ws.tasks.delete_template("a"), ws.tasks.delete_template("a")] == [True, False]
    assert (ws.tasks.templates(), ws.tasks.get(made.id).title) == (["b", "c", "ä"], "One")
    ops = [(event.op, event.version) for event in ws.events.list(kinds=["template"], id="a")]
    assert ops == [("set", 1), ("set", 2), ("delete", 3)]


def test_t19_a_template_shows_the_version_that_a_condition_compares(world: World) -> None:
    ws: Any = world.open()
    versions = [ws.tasks.set_template("a", {"title": title}).version for title in ("One", "Two")]
    assert (versions, ws.tasks.get_template("a").version) == ([1, 2], 2)
    replace = Op("tasks.set_template", {"name": "a", "tree": {"title": "Three"}})
    done = ws.txn([VersionEquals("template", "a", 2)], [replace])
    assert (done.succeeded, done.results[0].version, ws.tasks.get_template("a").version) == (True, 3, 3)
    assert not ws.txn([VersionEquals("template", "a", 2)], [replace]).succeeded
    ws.tasks.delete_template("a")
    assert ws.tasks.set_template("a", {"title": "Anew"}).version == 5
    keyed = ws.using(key="once").tasks
    assert keyed.set_template("b", {"title": "b"}) == keyed.set_template("b", {"title": "b"})
    assert ws.tasks.get_template("b").version == 1


def test_t19_an_unknown_template_is_not_found_and_nothing_changes(world: World) -> None:
    ws: Any = world.open()
    ws.tasks.set_template("release", RELEASE, PARAMETERS)
    refuse(ws, errors.NotFound, lambda ws: ws.tasks.get_template("x"), lambda ws: ws.tasks.from_template("x"))
    named: list[Call] = [
        lambda ws, name: ws.tasks.set_template(name, RELEASE, PARAMETERS),
        lambda ws, name: ws.tasks.get_template(name),
        lambda ws, name: ws.tasks.delete_template(name),
        lambda ws, name: ws.tasks.from_template(name),
    ]
    for name in ("", "a\n", "x" * 513, "\ud800", 5):
        refuse(ws, errors.InvalidName, *named, given=(name,))
    for limit in (0, 1001, True):
        refuse(ws, errors.InvalidFilter, lambda ws, limit: ws.tasks.templates(limit=limit), given=(limit,))


def test_t19_values_that_do_not_fit_make_no_task_at_all(world: World) -> None:
    ws: Any = world.open()
    ws.tasks.set_template("release", RELEASE, PARAMETERS)
    make: Call = lambda ws, **values: ws.tasks.from_template("release", **values)  # noqa: E731
    for error, values in (
        (errors.Invalid, {}),
        (errors.Invalid, {"version": "1", "other": "x"}),
        (errors.InvalidValue, {"version": None}),
        (errors.InvalidValue, {"version": 1}),
        (errors.InvalidValue, {"version": "\ud800"}),
        (errors.TooLarge, {"version": "x" * 500}),
        (errors.InvalidTag, {"version": "1/"}),
        (errors.InvalidTag, {"version": "1", "who": " "}),  # the last task of the tree
        (errors.InvalidName, {"version": "1", "who": "a\n"}),
        (errors.ParentNotFound, {"version": "1", "parent_id": "hf-none"}),
    ):
        refuse(ws, error, lambda ws, values: make(ws, **values), given=(values,))


def keyed(*links: tuple[str, str]) -> dict[str, Any]:
    """A tree of tasks that depend on each other."""
    return {"title": "x", "children": [{"title": key, "key": key, "depends_on": [*on]} for key, on in links]}


BAD_TREES: dict[type[errors.HoldfastError], list[Any]] = {
    errors.Invalid: [None, 5, [], {}, {"title": 5}, {"title": "x", "due": 1}, {"title": "x", "children": [{}]}]
    + [{"title": title} for title in ("{unknown}", "{", "}", "{x", "{1}", "{x.y}", "{}")]
    + [{"title": "x", field: "{unknown}"} for field in ("body",)]
    + [{"title": "x", "tags": ["{unknown}"]}, {"title": "x", "type": "story"}],
    errors.InvalidValue: [{"title": ""}, {"title": "x", "children": [{"title": " "}]}],
    errors.InvalidPriority: [{"title": "x", "priority": 5}],
    errors.InvalidTag: [{"title": "x", "tags": ["a/"]}],
    errors.NotFound: [{"title": "x", "depends_on": ["nobody"]}],
    errors.DuplicateName: [{"title": "x", "key": "k", "children": [{"title": "y", "key": "k"}]}],
    errors.WouldCreateCycle: [
        keyed(("a", "a")),
        keyed(("a", "b"), ("b", "a")),
        keyed(("a", "b"), ("b", "c"), ("c", "a")),
    ],
    errors.TooLarge: [{"title": "x" * 501}, {"title": "x", "children": [{"title": "y"}] * 1000}],
}


@pytest.mark.parametrize(("error", "bad"), BAD_TREES.items(), ids=lambda given: getattr(given, "code", "by"))
def test_t19_a_tree_that_could_not_be_made_is_refused_and_nothing_changes(world: World, error: Any, bad: Any) -> None:
    ws: Any = world.open()
    ws.tasks.set_template("kept", RELEASE, PARAMETERS)
    for tree in bad:
        refuse(ws, error, lambda ws, tree: ws.tasks.set_template("kept", tree, {"x": None}), given=(tree,))


def test_t19_parameters_that_cannot_be_used_are_refused_and_nothing_changes(world: World) -> None:
    ws: Any = world.open()
    call: Call = lambda ws, parameters: ws.tasks.set_template("t", {"title": "x"}, parameters)  # noqa: E731
    for name in ("", "1", "a b", "name", "parent_id"):
        refuse(ws, errors.InvalidName, call, given=({name: None},))
    before = state(ws)
    with pytest.raises(errors.Invalid):  # InvalidValue where it cannot travel
        call(ws, {5: None})
    assert state(ws) == before
    refuse(ws, errors.InvalidValue, call, given=({"x": 5},))
    refuse(ws, errors.Invalid, call, given=(["x"],))


def test_t19_a_hint_is_checked_when_the_template_is_kept(world: World) -> None:
    ws: Any = world.open()
    hinted: Call = lambda ws, hint: ws.tasks.set_template("t", {"title": "x", "grimoire_hint": hint})  # noqa: E731
    refuse(ws, errors.Invalid, hinted, given=("{unknown}",))
    refuse(ws, errors.InvalidName, hinted, given=("a\n",))


def test_t19_a_node_of_wrong_types_is_refused_and_nothing_changes(world: World) -> None:
    ws: Any = world.open()
    node: Any = TemplateNode
    wrong = [node(5), node("x", key=5), node("x", tags=5), node("x", children=(5,))]
    for tree in wrong:
        refuse(ws, errors.Invalid, lambda ws, tree: ws.tasks.set_template("t", tree), given=(tree,))
    before = state(ws)
    for tree in ({"title": object()}, object()):
        with pytest.raises(errors.Invalid):  # InvalidValue where it cannot travel
            ws.tasks.set_template("t", tree)
    assert state(ws) == before


def test_t19_what_cannot_be_stored_is_refused_in_keys_and_defaults(world: World) -> None:
    ws: Any = world.open()
    calls: tuple[Call, ...] = (
        lambda ws: ws.tasks.set_template("t", {"title": "x", "key": "\ud800"}),
        lambda ws: ws.tasks.set_template("t", {"title": "{x}"}, {"x": "\ud800"}),
    )
    before = state(ws)
    for call in calls:
        with pytest.raises(errors.Invalid):
            call(ws)
    assert state(ws) == before


def test_t19_a_template_may_have_1000_tasks(world: World) -> None:
    ws: Any = world.open()
    ws.tasks.set_template("wide", {"title": "x", "children": [{"title": "y"}] * 999})
    assert len(ws.tasks.subtree(ws.tasks.from_template("wide").id)) == 1000


@pytest.mark.capability("callables")  # the tree is too deep to be sent to another process
def test_t19_a_template_1000_deep_is_made_whole_or_refused_and_nothing_changes(world: World) -> None:
    ws: Any = world.open()
    deep: dict[str, Any] = {"title": "x"}
    for _ in range(999):
        deep = {"title": "x", "children": [deep]}
    before = state(ws)
    try:
        ws.tasks.set_template("deep", deep)
        root = ws.tasks.from_template("deep")
    except (errors.Invalid, errors.TooLarge):
        assert state(ws) == before
    else:
        assert len(ws.tasks.subtree(root.id)) == 1000
