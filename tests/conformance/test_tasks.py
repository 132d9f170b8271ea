"""Tasks as records: fields, ids, tags, updates, notes, history and search (T1, T2, T10, T11, T13, T15).

Their tree and what they wait for is in task_tree.py; lists, bulk calls, retention and templates in task_lists.py. What
is refused has changed nothing: not the revision, no task, link, event or template.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

import pytest

from holdfast import errors
from holdfast.domains.tasks import creation
from holdfast.types.tasks import HistoryEntry
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

Call = Callable[..., object]  # of a workspace, without types: they would refuse what is to be refused


def state(ws: Any) -> list[Any]:
    """All there is to see of tasks in a workspace."""
    tasks = ws.tasks.list(include_deleted=True, sort="created", limit=1000)
    links = [ws.tasks.dependencies(task.id) for task in tasks if task.deleted_at is None]
    templates = [ws.tasks.get_template(name) for name in ws.tasks.templates()]
    return [tasks, links, templates, ws.tasks.ready(), ws.events.list(limit=1000), ws.revision]


def refuse(ws: Any, error: type[errors.HoldfastError], *calls: Call, given: tuple[Any, ...] = ()) -> list[Any]:
    """Expect exactly this error of every call, and the state as before; answers the errors."""
    before = state(ws)
    outcomes = [_outcome(call, ws, *given) for call in calls]
    assert [type(outcome) for outcome in outcomes] == [error] * len(calls)
    assert state(ws) == before
    return outcomes


def _outcome(call: Call, *args: Any) -> object:
    try:
        return call(*args)
    except Exception as error:
        return error


def furnished(world: World) -> Any:
    """A workspace with something in it that could be damaged: a tree, a claim, a link, a deleted task, a template."""
    ws: Any = world.open()
    root = ws.tasks.create("Root", "the body", type="epic", tags=["area/web"], grimoire_hint="spell")
    child = ws.tasks.create("Child", parent_id=root.id, priority=1)
    ws.tasks.depend(ws.tasks.create("Waiting").id, child.id)
    ws.tasks.claim(ws.tasks.create("Claimed").id)
    ws.tasks.delete(ws.tasks.create("Deleted").id)
    ws.tasks.note(root.id, "a note")
    ws.tasks.set_template("plan", {"title": "Plan {what}"}, {"what": None})
    return ws


def named(ws: Any, title: str) -> Any:
    """The task with this title, deleted or not."""
    [task] = [task for task in ws.tasks.list(include_deleted=True) if task.title == title]
    return task


def found(ws: Any, text: str, **how: Any) -> list[str]:
    """The titles that a search finds, the same on every node."""
    searches = [[hit.task.title for hit in ws.tasks.search(text, **how)] for _ in range(3)]
    assert searches[0] == searches[1] == searches[2]
    return searches[0]


# --- fields ----------------------------------------------------------------------------------------------------------


def test_t1_a_task_is_made_of_a_title_alone(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("Say hello")
    assert ws.tasks.get(task.id) == task
    assert (task.title, task.body, task.type, task.status, task.priority) == ("Say hello", "", "task", "open", 2)
    assert (task.parent_id, task.depth, task.tags, task.grimoire_hint, task.grimoire) == (None, 0, (), None, None)
    assert (task.claimed_by, task.claimed_at, task.token, task.deadline, task.deleted_at) == (None,) * 5
    assert (task.version, task.revision) == (1, ws.revision)
    assert task.created_at == task.updated_at
    assert task.created_at.tzinfo is UTC


@pytest.mark.parametrize("type", ["task", "feature", "bug", "epic", "chore"])
@pytest.mark.parametrize("priority", [0, 4])
def test_t1_every_field_comes_back_as_it_was_given(world: World, type: Any, priority: int) -> None:
    ws = world.open()
    parent = ws.tasks.create("Parent")
    title = "Grüße 世界 🌍 '; DROP TABLE tasks; --"
    text = f"{title}\nand a second line\tof it"
    made = ws.tasks.create(title, text, type, priority, parent.id, ["b", "a/ü", "b"], "spell")
    assert ws.tasks.get(made.id) == made
    assert (made.title, made.body, made.type, made.priority) == (title, text, type, priority)
    assert (made.parent_id, made.depth, made.tags, made.grimoire_hint) == (parent.id, 1, ("a/ü", "b"), "spell")


def test_t1_a_claimed_task_shows_its_claim_and_one_given_back_does_not(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("Work")
    world.clock.advance(5)
    claimed = ws.tasks.claim(task.id, "agent", ttl=60)
    assert ws.tasks.get(task.id) == claimed
    assert (claimed.claimed_by, claimed.claimed_at) == ("agent", task.created_at + timedelta(seconds=5))
    assert claimed.deadline == task.created_at + timedelta(seconds=65)
    assert isinstance(claimed.token, int)
    released = ws.tasks.release(task.id, "agent")
    assert (released.claimed_by, released.claimed_at, released.token, released.deadline) == (None,) * 4


def test_t1_a_title_may_have_500_characters_and_a_body_256_kib(world: World) -> None:
    ws = world.open()
    made = ws.tasks.create("世" * 500, "é" * 131_072, tags=[f"{number:0128}" for number in range(64)])
    assert ws.tasks.get(made.id) == made
    assert (len(made.title), len(made.body), len(made.tags)) == (500, 131_072, 64)


# --- ids -------------------------------------------------------------------------------------------------------------

WRITES: dict[str, Call] = {
    "claim": lambda ws, id: ws.tasks.claim(id),
    "reclaim": lambda ws, id: ws.tasks.reclaim(id),
    "heartbeat": lambda ws, id: ws.tasks.heartbeat(id),
    "park": lambda ws, id: ws.tasks.park(id),
    "release": lambda ws, id: ws.tasks.release(id),
    "complete": lambda ws, id: ws.tasks.complete(id),
    "block": lambda ws, id: ws.tasks.block(id),
    "unblock": lambda ws, id: ws.tasks.unblock(id),
    "approve": lambda ws, id: ws.tasks.approve(id),
    "reject": lambda ws, id: ws.tasks.reject(id),
    "close": lambda ws, id: ws.tasks.close(id),
    "cancel": lambda ws, id: ws.tasks.cancel(id),
    "reopen": lambda ws, id: ws.tasks.reopen(id),
    "set_status": lambda ws, id: ws.tasks.set_status(id, "closed"),
    "update": lambda ws, id: ws.tasks.update(id, title="Other"),
    "note": lambda ws, id: ws.tasks.note(id, "a note"),
    "add_tags": lambda ws, id: ws.tasks.add_tags(id, ["tag"]),
    "remove_tags": lambda ws, id: ws.tasks.remove_tags(id, ["area/web"]),
    "set_tags": lambda ws, id: ws.tasks.set_tags(id, []),
    "reparent": lambda ws, id: ws.tasks.reparent(id, None),
    "depend": lambda ws, id: ws.tasks.depend(id, named(ws, "Claimed").id),
    "depend on": lambda ws, id: ws.tasks.depend(named(ws, "Claimed").id, id),
    "undepend": lambda ws, id: ws.tasks.undepend(id, named(ws, "Claimed").id),
    "delete": lambda ws, id: ws.tasks.delete(id),
}
EVEN_DELETED: dict[str, Call] = {
    "restore": lambda ws, id: ws.tasks.restore(id),
    "purge": lambda ws, id: ws.tasks.purge(id),
    "undepend on": lambda ws, id: ws.tasks.undepend(named(ws, "Claimed").id, id),
}
READS: dict[str, Call] = {
    "get": lambda ws, id: ws.tasks.get(id),
    "explain": lambda ws, id: ws.tasks.explain(id),
    "history": lambda ws, id: ws.tasks.history(id),
    "subtree": lambda ws, id: ws.tasks.subtree(id),
    "ancestors": lambda ws, id: ws.tasks.ancestors(id),
    "children": lambda ws, id: ws.tasks.children(id),
    "dependencies": lambda ws, id: ws.tasks.dependencies(id),
    "list": lambda ws, id: ws.tasks.list(parent_id=id),
    "ready": lambda ws, id: ws.tasks.ready(parent_id=id),
    "route": lambda ws, id: ws.routes.explain(id),
}
UNDER: dict[str, Call] = {
    "create under": lambda ws, id: ws.tasks.create("Below", parent_id=id),
    "reparent under": lambda ws, id: ws.tasks.reparent(named(ws, "Claimed").id, id),
    "template under": lambda ws, id: ws.tasks.from_template("plan", id, what="it"),
}
BY_ID = {**WRITES, **EVEN_DELETED, **READS, **UNDER}


def test_t2_ids_are_the_prefix_and_four_characters_that_cannot_be_mistaken(world: World) -> None:
    ws = world.open()
    ids = [item.id for item in ws.tasks.bulk("create", tasks=[{"title": "Task"}] * 200).results]
    assert len({*ids}) == 200
    assert {(id[:3], len(id)) for id in ids} == {("hf-", 7)}
    assert {*"".join(id[3:] for id in ids)} <= {*"0123456789abcdefghjkmnpqrstvwxyz"}


@pytest.mark.capability("callables")
def test_t2_ids_grow_when_the_short_ones_are_used_and_none_returns_even_after_a_purge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = world.open()
    monkeypatch.setattr(creation, "_SHORT", "0" * 16 + "1" * 16)  # 16 ids of four characters
    ids = []
    for number in range(40):
        ids.append(ws.tasks.create("Task").id)
        if number % 2:
            ws.tasks.purge(ids[-1])
    assert len({*ids}) == 40
    assert {len(id) for id in ids} >= {7, 8}
    kept = ids[::2]
    assert [ws.tasks.get(id).id for id in kept] == kept  # also where an id is the beginning of another


def test_t2_reads_accept_a_unique_abbreviation_with_and_without_the_prefix(world: World) -> None:
    ws = furnished(world)
    root = named(ws, "Root").id
    others = [task.id for task in ws.tasks.list(include_deleted=True) if task.id != root]
    short = next(root[:size] for size in range(6, 8) if not any(id.startswith(root[:size]) for id in others))
    for read in READS.values():
        assert read(ws, root) == read(ws, short) == read(ws, short[3:])


def test_t2_an_abbreviation_of_several_is_refused_and_names_the_candidates(world: World) -> None:
    ws = furnished(world)
    live = sorted(task.id for task in ws.tasks.list())
    alone = any(id.startswith("hf-hf") for id in live)  # drawn by chance: then "hf" abbreviates that one
    for short in ("hf-",) if alone else ("hf-", "hf"):
        for error in refuse(ws, errors.InvalidID, *READS.values(), given=(short,)):
            assert {*error.candidates} >= {*live}, "and those that are deleted, where they can be read"
            assert all(id in error.hint for id in live)


@pytest.mark.parametrize("char", ["\n", "\r", "\x1b", "\x7f", "\x9b", "\0"])
def test_t1_a_title_is_one_line_that_cannot_steer_a_terminal(world: World, char: str) -> None:
    ws = furnished(world)
    bad = f"a title{char}[2J"
    root = named(ws, "Root").id
    refuse(ws, errors.InvalidValue, lambda w: w.tasks.create(bad), lambda w: w.tasks.update(root, title=bad))


def test_t2_writes_want_the_exact_id_and_the_hint_says_it(world: World) -> None:
    ws = furnished(world)
    root = named(ws, "Root").id
    for error in refuse(ws, errors.TaskNotFound, *WRITES.values(), *EVEN_DELETED.values(), given=(root[:-1],)):
        assert root in error.hint
    refuse(ws, errors.ParentNotFound, *UNDER.values(), given=(root[:-1],))


def test_t2_an_unknown_id_is_not_found_and_nothing_changes(world: World) -> None:
    ws = furnished(world)
    for id in ("hf-none", "HF-", "%", "_", "*", "hf-'", "none "):
        unknown = refuse(
            ws, errors.TaskNotFound, *WRITES.values(), *EVEN_DELETED.values(), *READS.values(), given=(id,)
        )
        assert {error.id for error in unknown} == {id}
        assert {error.parent_id for error in refuse(ws, errors.ParentNotFound, *UNDER.values(), given=(id,))} == {id}


@pytest.mark.parametrize("id", ["", "a\n", "x" * 513, "\ud800", 5, ["hf-7k2q"]], ids=lambda id: repr(id)[:9])
def test_t2_what_cannot_be_an_id_is_refused_and_nothing_changes(world: World, id: Any) -> None:
    refuse(furnished(world), errors.InvalidName, *BY_ID.values(), given=(id,))


# --- tags, updates, notes --------------------------------------------------------------------------------------------


def test_t10_tags_are_added_removed_and_replaced_in_order_and_each_once(world: World) -> None:
    ws = world.open()
    id = ws.tasks.create("Task", tags=["b"]).id
    assert ws.tasks.add_tags(id, ["c", "area/web", "b", "c"]).tags == ("area/web", "b", "c")
    assert ws.tasks.remove_tags(id, ["b", "never had"]).tags == ("area/web", "c")
    assert ws.tasks.set_tags(id, ["z", "a"]).tags == ("a", "z")
    assert ws.tasks.set_tags(id, []).tags == ()
    assert ws.tasks.get(id).version == 5
    assert [entry.new_value for entry in ws.tasks.history(id, field="tags")] == [
        [],
        ["a", "z"],
        ["area/web", "c"],
        ["area/web", "b", "c"],
        ["b"],
    ]


def test_t10_tags_that_are_as_wanted_already_are_no_change(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("Task", tags=["a", "b"])
    revision = ws.revision
    assert ws.tasks.add_tags(task.id, ["b"]) == ws.tasks.remove_tags(task.id, ["c"]) == task
    assert ws.tasks.set_tags(task.id, ["b", "a", "b"]) == task
    assert ws.revision == revision


TAGGED: tuple[Call, ...] = (
    lambda ws, tags: ws.tasks.create("Task", tags=tags),
    lambda ws, tags: ws.tasks.add_tags(named(ws, "Root").id, tags),
    lambda ws, tags: ws.tasks.remove_tags(named(ws, "Root").id, tags),
    lambda ws, tags: ws.tasks.set_tags(named(ws, "Root").id, tags),
    lambda ws, tags: ws.tasks.bulk("add_tags", [named(ws, "Root").id], tags=tags, atomic=True),
    lambda ws, tags: ws.tasks.bulk("create", tasks=[{"title": "First"}, {"title": "Task", "tags": tags}], atomic=True),
)


@pytest.mark.parametrize("tag", ["", " ", " a", "a ", "a\n", "/a", "a/", "a//b", "a/ /b", "x" * 129, "\ud800", 5, None])
def test_t10_what_is_no_tag_is_refused_also_among_good_ones_and_nothing_changes(world: World, tag: Any) -> None:
    refuse(furnished(world), errors.InvalidTag, *TAGGED, given=(["good", tag],))


def test_t10_tags_that_are_no_list_or_none_at_all_or_too_many_are_refused(world: World) -> None:
    ws = furnished(world)
    for tags in ("tag", 5, None, {"tag": 1}):
        refuse(ws, errors.InvalidTag, *TAGGED, given=(tags,))
    refuse(ws, errors.InvalidTag, *TAGGED[1:3], given=([],))
    many = [f"tag-{number}" for number in range(65)]
    refuse(ws, errors.InvalidTag, TAGGED[0], TAGGED[1], TAGGED[3], given=(many,))
    refuse(ws, errors.InvalidTag, TAGGED[1], given=(many[:64],))  # with the one it has


def test_t11_update_changes_what_is_given_and_tells_one_entry_for_each_field(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("Old", "old", "bug", 3, tags=["tag"], grimoire_hint="spell")
    world.clock.advance(60)
    changed = ws.tasks.update(task.id, title="New", body="new", priority=0, type="chore", grimoire_hint="other")
    assert ws.tasks.get(task.id) == changed
    assert (changed.title, changed.body, changed.priority, changed.type) == ("New", "new", 0, "chore")
    assert (changed.grimoire_hint, changed.tags, changed.version) == ("other", ("tag",), 2)
    assert (changed.created_at, changed.updated_at - task.updated_at) == (task.created_at, timedelta(seconds=60))
    entries = [entry for entry in ws.tasks.history(task.id) if entry.version == 2]
    assert {(entry.field, entry.old_value, entry.new_value) for entry in entries} == {
        ("title", "Old", "New"),
        ("body", "old", "new"),
        ("priority", 3, 0),
        ("type", "bug", "chore"),
        ("grimoire_hint", "spell", "other"),
    }
    assert len(entries) == 5
    assert ws.tasks.update(task.id, body="", grimoire_hint="").grimoire_hint is None


def test_t11_an_update_to_what_is_there_already_is_no_change(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("Title", "body")
    revision = ws.revision
    assert ws.tasks.update(task.id, title="Title", body="body", priority=2, type="task") == task
    assert ws.tasks.update(task.id) == ws.tasks.update(task.id, expected=1) == task
    assert ws.revision == revision


def test_t11_expected_is_the_version_meant_and_a_mismatch_carries_the_present(world: World) -> None:
    ws = furnished(world)
    root = named(ws, "Root")
    for expected in (root.version - 1, root.version + 1, 2**63, 10**400):
        [error] = refuse(
            ws,
            errors.VersionMismatch,
            lambda ws, expected: ws.tasks.update(root.id, title="Lost", expected=expected),
            given=(expected,),
        )
        assert (error.expected, error.version, error.value) == (expected, root.version, root)
    assert ws.tasks.update(root.id, title="Won", expected=root.version).version == root.version + 1
    for expected in (0, -1, True, 1.0, "1"):
        refuse(ws, errors.Invalid, lambda ws, bad: ws.tasks.update(root.id, body="x", expected=bad), given=(expected,))


BAD_FIELDS: dict[str, tuple[type[errors.HoldfastError], str, list[Any]]] = {
    "title": (errors.InvalidValue, "title", ["", " \n", 5, b"x", "a\0b", "\ud800", ["x"]]),
    "long title": (errors.TooLarge, "title", ["x" * 501, "é" * 501]),
    "body": (errors.InvalidValue, "body", [5, b"x", "a\0b", "\udfff"]),
    "long body": (errors.TooLarge, "body", ["x" * 262_145, "é" * 131_073]),
    "type": (errors.InvalidType, "type", ["", "story", "Task", 5, ["task"]]),
    "priority": (errors.InvalidPriority, "priority", [-1, 5, True, False, "2", 2.0, 10**400]),
    "hint": (errors.InvalidName, "grimoire_hint", [5, b"x", "a\n", "x" * 513, "\ud800"]),
}
FIELD_WRITERS: tuple[Call, ...] = (
    lambda ws, field, value: ws.tasks.create(**{"title": "Task", field: value}),
    lambda ws, field, value: ws.tasks.update(named(ws, "Root").id, **{"type": "bug", "priority": 4, field: value}),
    lambda ws, field, value: ws.tasks.bulk(
        "create", tasks=[{"title": "Good"}, {"title": "x", field: value}], atomic=True
    ),
)


@pytest.mark.parametrize(("error", "field", "values"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_t1_t11_a_bad_field_is_refused_and_nothing_changes(world: World, error: Any, field: str, values: Any) -> None:
    ws = furnished(world)
    for value in values:
        refuse(ws, error, *FIELD_WRITERS, given=(field, value))


def test_t1_none_is_no_title_body_type_or_priority_and_an_empty_hint_is_no_name(world: World) -> None:
    ws = furnished(world)
    for error, field in (
        (errors.InvalidValue, "title"),
        (errors.InvalidValue, "body"),
        (errors.InvalidType, "type"),
        (errors.InvalidPriority, "priority"),
    ):
        refuse(ws, error, FIELD_WRITERS[0], FIELD_WRITERS[2], given=(field, None))
    refuse(ws, errors.InvalidName, FIELD_WRITERS[0], FIELD_WRITERS[2], given=("grimoire_hint", ""))


def test_t11_only_an_empty_text_removes_a_hint(world: World) -> None:
    ws = furnished(world)
    bad: list[Any] = [0, False, b"", []]
    for hint in bad:
        refuse(ws, errors.InvalidName, *FIELD_WRITERS, given=("grimoire_hint", hint))


def test_t11_notes_are_appended_to_the_history_and_leave_the_fields(world: World) -> None:
    ws, other = world.open(), world.open("other")
    task = ws.tasks.create("Task", "body")
    noted = [ws.tasks.note(task.id, "first 世🌍"), other.tasks.note(task.id, "x" * 65_536)]
    assert [task.version for task in noted] == [2, 3]
    assert (noted[1].title, noted[1].body) == ("Task", "body")
    notes = ws.tasks.history(task.id, field="note")
    assert [(entry.note, entry.changed_by) for entry in notes] == [("x" * 65_536, "other"), ("first 世🌍", "tester")]


def test_t11_what_is_no_note_is_refused_and_nothing_changes(world: World) -> None:
    ws = furnished(world)
    for text in ("", " \n", None, 5, b"x", "\ud800"):
        refuse(ws, errors.InvalidValue, lambda ws, text: ws.tasks.note(named(ws, "Root").id, text), given=(text,))
    refuse(ws, errors.TooLarge, lambda ws: ws.tasks.note(named(ws, "Root").id, "é" * 32_769))


def test_t11_a_token_that_is_none_or_not_the_live_one_is_refused_by_every_edit(world: World) -> None:
    ws = furnished(world)
    edits: tuple[Call, ...] = (
        lambda ws, id, token: ws.tasks.update(id, title="Other", token=token),
        lambda ws, id, token: ws.tasks.note(id, "note", token=token),
        lambda ws, id, token: ws.tasks.add_tags(id, ["tag"], token=token),
        lambda ws, id, token: ws.tasks.remove_tags(id, ["area/web"], token=token),
        lambda ws, id, token: ws.tasks.set_tags(id, ["tag"], token=token),
    )
    claimed = named(ws, "Claimed")
    for id, token in ((claimed.id, claimed.token - 1), (claimed.id, 2**63), (named(ws, "Root").id, claimed.token)):
        refuse(ws, errors.Fenced, *edits, given=(id, token))
    for bad in (True, "1", 1.0):
        refuse(ws, errors.Invalid, *edits, given=(claimed.id, bad))


# --- history ---------------------------------------------------------------------------------------------------------


def test_t13_history_is_newest_first_with_who_when_what_and_why(world: World) -> None:
    ws, other = world.open(), world.open("other")
    task = ws.tasks.create("Task", priority=1)
    world.clock.advance(60)
    other.tasks.update(task.id, priority=3)
    ws.tasks.claim(task.id, "agent", ttl=60)
    world.clock.advance(60)
    assert ws.tasks.list(status="open") == [ws.tasks.get(task.id)]  # the claim has ended
    ws.tasks.cancel(task.id, "a duplicate")
    history = ws.tasks.history(task.id)
    assert [entry.version for entry in history] == sorted((entry.version for entry in history), reverse=True)
    assert history[-1].version == 1
    assert {entry.task_id for entry in history} == {task.id}
    [priority, first] = ws.tasks.history(task.id, field="priority")
    later = task.created_at + timedelta(seconds=60)
    assert (first.old_value, first.new_value, first.changed_by, first.changed_at) == (
        None,
        1,
        "tester",
        task.created_at,
    )
    assert priority == HistoryEntry(task.id, "priority", 1, 3, later, "other", None, "update", 2, priority.revision)
    steps = [(e.op, e.old_value, e.new_value, e.changed_by, e.note) for e in ws.tasks.history(task.id, field="status")]
    assert steps == [
        ("cancel", "in_progress", "closed", "tester", "a duplicate"),
        ("cancel", "open", "in_progress", "tester", None),
        ("expire", "in_progress", "open", "system", None),
        ("claim", "open", "in_progress", "tester", None),
        ("create", None, "open", "tester", None),
    ]


def test_t13_since_and_limit_narrow_the_history(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("Task")
    for number in range(1, 4):
        world.clock.advance(10)
        ws.tasks.update(task.id, priority=number % 2)
    start = task.created_at
    for seconds, versions in ((0, 4), (10, 3), (10.000001, 2), (30, 1), (31, 0)):
        entries = ws.tasks.history(task.id, since=start + timedelta(seconds=seconds))
        assert len({entry.version for entry in entries}) == versions
    whole = ws.tasks.history(task.id)
    assert ws.tasks.history(task.id, limit=2) == whole[:2]
    assert [e.version for e in ws.tasks.history(task.id, "priority", start + timedelta(seconds=20))] == [4, 3]
    assert ws.tasks.history(task.id, field="never changed") == []


def test_t13_a_deleted_task_keeps_its_history_and_a_purged_one_the_bare_facts(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("Secret", "secret", tags=["secret"])
    ws.tasks.note(task.id, "secret")
    ws.tasks.delete(task.id, "secret")
    history = ws.tasks.history(task.id)
    assert (history[0].field, history[0].new_value, history[0].note) == ("deleted", True, "secret")
    assert history[-1].version == 1
    ws.tasks.purge(task.id)
    bare = ws.tasks.history(task.id)
    assert [(entry.op, entry.version) for entry in bare] == [("purge", 4), ("delete", 3), ("note", 2), ("create", 1)]
    assert {(entry.old_value, entry.new_value, entry.note) for entry in bare} == {(None, None, None)}


def test_t13_a_filter_of_history_that_cannot_be_used_is_refused(world: World) -> None:
    ws = furnished(world)
    root = named(ws, "Root").id
    for since in (5, "2020-01-01", True):
        refuse(ws, errors.InvalidFilter, lambda ws, bad: ws.tasks.history(root, since=bad), given=(since,))
    for limit in (0, -1, True, "5", 10_001):
        refuse(ws, errors.InvalidFilter, lambda ws, bad: ws.tasks.history(root, limit=bad), given=(limit,))
    for field in ("", 5, "a\n"):
        refuse(ws, errors.InvalidName, lambda ws, bad: ws.tasks.history(root, field=bad), given=(field,))


# --- search ----------------------------------------------------------------------------------------------------------


def library(world: World) -> Any:
    """A workspace with texts to look for, and some that only fill it."""
    ws: Any = world.open()
    ws.tasks.note(ws.tasks.create("In a note").id, "the harbour is closed")
    ws.tasks.create("In a body", "a long way to the harbour of the old town")
    ws.tasks.create("Harbour", "in a title")
    ws.tasks.create("Résumé of Ærøskøbing", "naïve café, 世界 🌍")
    ws.tasks.create("To be or not to be", "AND OR NOT NEAR title: body")
    ws.tasks.bulk("create", tasks=[{"title": f"Filler {number}", "body": "nothing here"} for number in range(10)])
    return ws


def test_t15_a_hit_in_the_title_comes_before_one_in_the_body_before_one_in_a_note(world: World) -> None:
    ws = library(world)
    assert found(ws, "harbour") == ["Harbour", "In a body", "In a note"]
    assert found(ws, "harbour", limit=1) == ["Harbour"]
    ranks = [hit.rank for hit in ws.tasks.search("harbour")]
    assert ranks == sorted(ranks)
    assert len({*ranks}) == 3


def test_t15_a_snippet_shows_the_words_found_where_they_are(world: World) -> None:
    ws = library(world)
    snippets = [hit.snippet for hit in ws.tasks.search("harbour")]
    assert snippets == [
        "**Harbour**",
        "a long way to the **harbour** of the old town",
        "the **harbour** is closed",
    ]
    ws.tasks.create("Long", "word " * 50 + "needle " + "word " * 50)
    [hit] = ws.tasks.search("needle")
    assert "**needle**" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) < 120
    assert hit.task == named(ws, "Long")


FINDS = {
    "all words": ("harbour town", ["In a body"]),
    "in any field": ("title harbour", ["Harbour"]),
    "any case": ("HARBOUR CLOSED", ["In a note"]),
    "prefix": ("harb* clos*", ["In a note"]),
    "no prefix": ("harb", []),
    "phrase": ('"old town"', ["In a body"]),
    "phrase in another order": ('"town old"', []),
    "phrase and prefix": ('"old town" harb*', ["In a body"]),
    "phrase that is not closed": ('"old town', ["In a body"]),
    "accents left out": ("resume naive cafe", ["Résumé of Ærøskøbing"]),
    "accents in capitals": ("RÉSUMÉ", ["Résumé of Ærøskøbing"]),
    "accents apart": ("re\u0301sume\u0301", ["Résumé of Ærøskøbing"]),
    "other scripts": ("世界", ["Résumé of Ærøskøbing"]),
    "beside an emoji": ("🌍 世界", ["Résumé of Ærøskøbing"]),
    "operators are words": ("be AND NOT to", ["To be or not to be"]),
    "a column is a word": ("title:body", ["To be or not to be"]),
    "a minus is nothing": ("-harbour", ["Harbour", "In a body", "In a note"]),
    "brackets are nothing": ("NEAR(harbour, 2)", []),
    "punctuation among words": ("(harbour) + {town}; ^old", ["In a body"]),
    "a star alone among words": ("* harbour * town", ["In a body"]),
    "a quote in a word": ("har'bour", []),
    "what looks like SQL": ("'; DROP TABLE tasks; --", []),
    "NUL between words": ("old\0town", ["In a body"]),
    "32 words": ("harbour " * 31 + "town", ["In a body"]),
}


def test_t15_a_search_means_what_was_typed(world: World) -> None:
    ws = library(world)
    assert {name: found(ws, text) for name, (text, _) in FINDS.items()} == {
        name: titles for name, (_, titles) in FINDS.items()
    }


def test_t15_what_has_no_word_in_it_is_refused(world: World) -> None:
    ws = library(world)
    for text in ("", "  ", '"', '""', '" "', "*", "!?", "🌍", "\0", "\u0301", "\ud800", "x" * 1001, "w " * 33, 5, None):
        refuse(
            ws,
            errors.InvalidFilter,
            lambda ws, text: ws.tasks.search(text),
            *[lambda ws, text: ws.tasks.list(text=text)] * (text is not None),
            given=(text,),
        )
    for limit in (0, -1, True, "5", 101):
        refuse(ws, errors.InvalidFilter, lambda ws, limit: ws.tasks.search("word", limit=limit), given=(limit,))


def test_t15_a_search_follows_every_change_of_the_text(world: World) -> None:
    ws = library(world)
    id = named(ws, "Harbour").id
    ws.tasks.update(id, title="Lighthouse")
    assert (found(ws, "lighthouse"), found(ws, "harbour title")) == (["Lighthouse"], [])
    ws.tasks.update(id, body="beacon")
    assert (found(ws, "beacon"), found(ws, '"in a title"')) == (["Lighthouse"], [])
    ws.tasks.note(id, "first storm")
    ws.tasks.note(id, "second wave")
    assert found(ws, "storm wave lighthouse beacon") == ["Lighthouse"]
    assert found(ws, '"storm second"') == ["Lighthouse"]
    ws.tasks.update(id, body="")
    assert found(ws, "beacon") == []


def test_t15_deleted_tasks_are_found_only_on_request_and_purged_ones_never(world: World) -> None:
    ws = library(world)
    id = named(ws, "Harbour").id
    ws.tasks.delete(id)
    assert found(ws, "harbour") == ["In a body", "In a note"]
    assert found(ws, "harbour", include_deleted=True) == ["Harbour", "In a body", "In a note"]
    ws.tasks.restore(id)
    assert found(ws, "harbour") == ["Harbour", "In a body", "In a note"]
    ws.tasks.purge(id)
    assert found(ws, "harbour", include_deleted=True) == ["In a body", "In a note"]
    ws.tasks.create("New")  # perhaps where the purged one was
    assert found(ws, "harbour", include_deleted=True) == ["In a body", "In a note"]


@pytest.mark.capability("callables")
def test_t15_what_was_rolled_back_is_not_found(world: World) -> None:
    ws = library(world)

    def change(tx: Any) -> None:
        tx.tasks.create("Lighthouse")
        tx.tasks.update(named(tx, "Harbour").id, title="Beacon")
        tx.tasks.purge(named(tx, "In a body").id)
        assert [hit.task.title for hit in tx.tasks.search("lighthouse")] == ["Lighthouse"]
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ws.transact(change)
    assert (found(ws, "lighthouse"), found(ws, "beacon")) == ([], [])
    assert found(ws, "harbour") == ["Harbour", "In a body", "In a note"]


def test_t15_the_check_is_clean_however_much_was_written_since_the_last_one(world: World) -> None:
    ws = world.open()
    for _ in range(3):
        for number in range(9):  # enough for the index to merge what an earlier check may have looked at
            ws.tasks.create(f"Task {number}")
        assert [ws.check().problems for _ in range(3)] == [[], [], []]
        ws.tasks.bulk("create", tasks=[{"title": f"Task {number}"} for number in range(100)])
        assert [ws.check().problems for _ in range(3)] == [[], [], []]
