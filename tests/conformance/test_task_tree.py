"""Tasks among tasks: parents and children, what waits for what, deleting, restoring, purging (T7, T9, T12).

Readiness is what `ready` answers; that its counters are right is the check's business, which every world ends with.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import errors
from holdfast.types.tasks import TaskLink
from tests.conformance.test_tasks import Call, refuse, state
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")


def grow(ws: Any, tree: dict[str, Any], parent: str | None = None) -> dict[str, str]:
    """Make a tree of tasks, given as titles and what is below each; answers their ids by title."""
    ids = {}
    for title, below in tree.items():
        ids[title] = ws.tasks.create(title, parent_id=parent).id
        ids |= grow(ws, below, ids[title])
    return ids


FAMILY: dict[str, Any] = {"root": {"a": {"a1": {"deep": {}}, "a2": {}}, "b": {"b1": {}}}, "other": {}}


def titles(tasks: Any) -> list[str]:
    """What tasks are called."""
    return [task.title for task in tasks]


def levels(ws: Any, id: str) -> list[tuple[str, int, int]]:
    """A subtree as titles with their depths below its root and below the top."""
    return [(task.title, task.relative_depth, task.depth) for task in ws.tasks.subtree(id)]


# --- hierarchy -------------------------------------------------------------------------------------------------------


def test_t7_a_subtree_goes_level_by_level_with_the_depth_below_its_root(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, FAMILY)
    assert levels(ws, ids["root"]) == [
        *(("root", 0, 0), ("a", 1, 1), ("b", 1, 1)),
        *(("a1", 2, 2), ("a2", 2, 2), ("b1", 2, 2), ("deep", 3, 3)),
    ]
    assert levels(ws, ids["a"]) == [("a", 0, 1), ("a1", 1, 2), ("a2", 1, 2), ("deep", 2, 3)]
    assert levels(ws, ids["deep"]) == [("deep", 0, 3)]
    assert titles(ws.tasks.subtree(ids["root"], limit=3)) == ["root", "a", "b"]


def test_t7_ancestors_go_from_the_parent_to_the_root_and_children_are_those_directly_below(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, FAMILY)
    assert titles(ws.tasks.ancestors(ids["deep"])) == ["a1", "a", "root"]
    assert ws.tasks.ancestors(ids["root"]) == ws.tasks.children(ids["deep"]) == []
    assert titles(ws.tasks.children(ids["root"])) == ["a", "b"]
    ws.tasks.update(ids["b"], priority=0)
    assert titles(ws.tasks.children(ids["root"])) == ["b", "a"]  # by priority, then oldest
    assert ws.tasks.ancestors(ids["a"]) == [ws.tasks.get(ids["root"])]


def test_t7_a_child_inherits_its_parents_hint_unless_it_has_its_own(world: World) -> None:
    ws: Any = world.open()
    parent = ws.tasks.create("Parent", grimoire_hint="spell")
    child = ws.tasks.create("Child", parent_id=parent.id)
    assert (child.grimoire_hint, child.parent_id, child.depth) == ("spell", parent.id, 1)
    assert ws.tasks.create("Own", parent_id=child.id, grimoire_hint="own").grimoire_hint == "own"
    assert ws.tasks.create("Grandchild", parent_id=child.id).grimoire_hint == "spell"
    assert ws.tasks.bulk("create", tasks=[{"title": "Bulk", "parent_id": parent.id}]).results[0].success
    assert {task.grimoire_hint for task in ws.tasks.children(parent.id)} == {"spell"}


def test_t7_reparent_moves_the_whole_subtree_and_its_depths_in_one_step(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, FAMILY)
    revision = ws.revision
    moved = ws.tasks.reparent(ids["a"], ids["b1"])
    assert (moved.parent_id, moved.depth, moved.version, ws.revision) == (ids["b1"], 3, 2, revision + 1)
    assert levels(ws, ids["b"])[2:] == [("a", 2, 3), ("a1", 3, 4), ("a2", 3, 4), ("deep", 4, 5)]
    [entry, _] = ws.tasks.history(ids["a"], field="parent_id")
    assert (entry.old_value, entry.new_value) == (ids["root"], ids["b1"])
    assert ws.tasks.reparent(ids["a"], None).parent_id is None
    assert levels(ws, ids["a"])[-1] == ("deep", 2, 2)
    assert titles(ws.tasks.ancestors(ids["deep"])) == ["a1", "a"]
    same = ws.tasks.get(ids["b"])
    revision = ws.revision
    assert ws.tasks.reparent(ids["b"], ids["root"]) == same  # where it is already
    assert ws.revision == revision


def test_t7_below_itself_or_its_own_descendant_would_be_a_cycle_and_nothing_changes(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, FAMILY)
    for under, path in (("a", ["a"]), ("a1", ["a", "a1"]), ("deep", ["a", "a1", "deep"])):
        call: Call = lambda ws, under: ws.tasks.reparent(ids["a"], ids[under])  # noqa: E731
        [error] = refuse(ws, errors.WouldCreateCycle, call, given=(under,))
        assert error.path == [ids[title] for title in path]
        assert all(ids[title] in error.message for title in path)
    ws.tasks.reparent(ids["a1"], ids["other"])
    assert ws.tasks.reparent(ids["a"], ids["deep"]).depth == 3  # it is no descendant any more


def test_t7_a_missing_parent_is_refused_and_nothing_changes(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, FAMILY)
    ws.tasks.delete(ids["b"])
    for parent in (ids["b"], ids["b1"], "hf-none"):
        refused = refuse(
            ws,
            errors.ParentNotFound,
            lambda ws, parent: ws.tasks.create("Orphan", parent_id=parent),
            lambda ws, parent: ws.tasks.reparent(ids["a"], parent),
            lambda ws, parent: ws.tasks.bulk("create", tasks=[{"title": "x", "parent_id": parent}], atomic=True),
            given=(parent,),
        )
        assert {error.parent_id for error in refused} == {parent}


def test_t7_a_childs_change_never_changes_its_parent(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, {"parent": {"child": {}}})
    parent = ws.tasks.get(ids["parent"])
    steps: list[Call] = [
        lambda id: ws.tasks.claim(id, "agent"),
        lambda id: ws.tasks.complete(id, "agent", review=True),
        lambda id: ws.tasks.reject(id),
        lambda id: ws.tasks.close(id),
        lambda id: ws.tasks.delete(id),
        lambda id: ws.tasks.purge(id),
    ]
    for step in steps:
        step(ids["child"])
        follows = {"children": parent.children, "children_done": parent.children_done, "waiting": parent.waiting}
        assert msgspec.structs.replace(ws.tasks.get(ids["parent"]), **follows) == parent


def test_t7_a_parent_is_ready_only_while_no_child_is_worked_on_wherever_that_child_moves(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, {"one": {"child": {}}, "two": {}})
    ws.tasks.claim(ids["child"], "agent")
    assert titles(ws.tasks.ready()) == ["two"]
    ws.tasks.reparent(ids["child"], ids["two"])
    assert titles(ws.tasks.ready()) == ["one"]
    [reason] = ws.tasks.explain(ids["two"]).reasons
    assert (reason.code, reason.ids) == ("children", (ids["child"],))
    ws.tasks.complete(ids["child"], "agent", review=True)
    assert titles(ws.tasks.ready()) == ["one"]
    ws.tasks.reparent(ids["child"], None)
    assert titles(ws.tasks.ready()) == ["one", "two"]


def test_t7_t12_a_tree_60_deep_moves_goes_and_comes_back_whole(world: World) -> None:
    ws: Any = world.open()
    chain = [ws.tasks.create("0").id]
    for level in range(1, 60):
        chain.append(ws.tasks.create(str(level), parent_id=chain[-1]).id)
    assert [task.id for task in ws.tasks.ancestors(chain[-1])] == chain[-2::-1]
    top = ws.tasks.create("top").id
    ws.tasks.reparent(chain[0], top)
    assert [task.depth for task in ws.tasks.subtree(top)] == list(range(61))
    refuse(ws, errors.WouldCreateCycle, lambda ws: ws.tasks.reparent(top, chain[-1]))
    assert ws.tasks.delete(chain[0]) == 60
    assert titles(ws.tasks.subtree(top)) == ["top"]
    ws.tasks.restore(chain[0])
    assert [task.depth for task in ws.tasks.subtree(top)] == list(range(61))
    assert ws.tasks.purge(top) == 61
    assert ws.tasks.list(include_deleted=True) == []


def test_t7_t12_a_tree_300_wide_moves_goes_and_comes_back_whole(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, {"root": {"wide": {}}, "other": {}})
    made = ws.tasks.bulk("create", tasks=[{"title": str(n), "parent_id": ids["wide"]} for n in range(300)])
    assert titles(ws.tasks.children(ids["wide"])) == [str(number) for number in range(300)]
    ws.tasks.reparent(ids["wide"], ids["other"])
    assert [task.depth for task in ws.tasks.subtree(ids["other"])] == [0, 1, *[2] * 300]
    ws.tasks.claim(made.results[7].id, "agent")
    [error] = refuse(ws, errors.HasActiveChildren, lambda ws: ws.tasks.delete(ids["other"]))
    assert error.active_children == [made.results[7].id]
    ws.tasks.release(made.results[7].id, "agent")
    assert ws.tasks.delete(ids["other"]) == 302
    assert titles(ws.tasks.list()) == ["root"]
    ws.tasks.restore(ids["other"])
    assert len(ws.tasks.subtree(ids["other"])) == 302
    assert ws.tasks.purge(ids["other"]) == 302
    assert titles(ws.tasks.list(include_deleted=True)) == ["root"]


# --- dependencies ----------------------------------------------------------------------------------------------------


def chained(ws: Any, *names: str) -> dict[str, str]:
    """Tasks of which each depends on the one before."""
    ids = grow(ws, {name: {} for name in names})
    for name, on in zip(names[1:], names, strict=False):
        ws.tasks.depend(ids[name], ids[on])
    return ids


def test_t9_a_task_is_ready_once_all_it_depends_on_is_finished(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, {"one": {}, "two": {}, "last": {}})
    ws.tasks.depend(ids["last"], ids["one"])
    linked = ws.tasks.depend(ids["last"], ids["two"])
    assert (linked.version, ws.tasks.get(ids["last"])) == (3, linked)
    [reason] = ws.tasks.explain(ids["last"]).reasons
    assert (reason.code, sorted(reason.ids)) == ("dependencies", sorted([ids["one"], ids["two"]]))
    ws.tasks.cancel(ids["one"])
    assert titles(ws.tasks.ready()) == ["two"]
    ws.tasks.claim(ids["two"], "agent")
    assert ws.tasks.claim_next("agent") is None
    ws.tasks.complete(ids["two"], "agent", review=True)
    assert titles(ws.tasks.ready()) == []  # not before the review is over
    ws.tasks.approve(ids["two"])
    assert titles(ws.tasks.ready()) == ["last"]
    ws.tasks.reopen(ids["one"])
    assert titles(ws.tasks.ready()) == ["one"]


@pytest.mark.capability("callables")
def test_t9_dependents_are_free_in_the_transaction_that_finishes_what_they_wait_for(world: World) -> None:
    ws: Any = world.open()
    ids = chained(ws, "first", "second")

    def finish(tx: Any) -> list[Any]:
        seen = [titles(tx.tasks.ready())]
        for step in ("cancel", "reopen", "delete", "restore", "purge"):
            getattr(tx.tasks, step)(ids["first"])
            seen.append(titles(tx.tasks.ready()))
        return seen

    assert ws.transact(finish) == [["first"], ["second"], ["first"], ["second"], ["first"], ["second"]]
    assert ws.tasks.dependencies(ids["second"]) == []  # the purge took the link along


def test_t9_undepend_frees_and_links_that_are_there_or_not_are_no_change(world: World) -> None:
    ws: Any = world.open()
    ids = chained(ws, "first", "second")
    task, revision = ws.tasks.get(ids["second"]), ws.revision
    assert ws.tasks.depend(ids["second"], ids["first"]) == task
    assert ws.tasks.get(ids["first"]) == ws.tasks.undepend(ids["first"], ids["second"])
    assert ws.revision == revision
    ws.tasks.undepend(ids["second"], ids["first"])
    assert titles(ws.tasks.ready()) == ["first", "second"]
    [gone, made] = ws.tasks.history(ids["second"], field="depends_on")
    assert (made.old_value, made.new_value, gone.old_value, gone.new_value) == (None, ids["first"], ids["first"], None)


def test_t9_a_cycle_is_refused_with_its_path_and_nothing_changes(world: World) -> None:
    ws: Any = world.open()
    ids = chained(ws, "a", "b", "c", "d")
    ws.tasks.depend(ids["d"], ids["b"])  # a shorter way
    for id, on, path in (
        ("a", "b", "aba"),
        ("a", "c", "acba"),
        ("a", "d", "adba"),
        ("b", "d", "bdb"),
        ("c", "c", "cc"),
    ):
        [error] = refuse(
            ws, errors.WouldCreateCycle, lambda ws, *link: ws.tasks.depend(*link), given=(ids[id], ids[on])
        )
        assert error.path == [ids[name] for name in path]
    ws.tasks.cancel(ids["b"])  # a finished task may be opened again
    refuse(ws, errors.WouldCreateCycle, lambda ws: ws.tasks.depend(ids["a"], ids["c"]))
    ws.tasks.undepend(ids["b"], ids["a"])
    ws.tasks.depend(ids["a"], ids["d"])
    assert titles(ws.tasks.ready()) == ["c"]


def test_t9_a_cycle_through_a_deleted_task_is_one_too(world: World) -> None:
    ws: Any = world.open()
    ids = chained(ws, "a", "b", "c")
    ws.tasks.delete(ids["b"])
    refuse(ws, errors.WouldCreateCycle, lambda ws: ws.tasks.depend(ids["a"], ids["c"]))
    ws.tasks.purge(ids["b"])
    assert ws.tasks.depend(ids["a"], ids["c"]).version == 2


def test_t9_discovered_from_and_related_only_tell(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, {"a": {}, "b": {}})
    a, b = ids["a"], ids["b"]
    ws.tasks.depend(a, b, "discovered_from")
    ws.tasks.depend(b, a, "discovered_from")
    ws.tasks.depend(a, b, "related")
    ws.tasks.depend(a, b, "depends_on")
    assert titles(ws.tasks.ready()) == ["b"]
    links = [TaskLink("depends_on", a, b), TaskLink("related", a, b)]
    links += [TaskLink("discovered_from", a, b), TaskLink("discovered_from", b, a)]
    for id in (a, b):
        assert sorted(ws.tasks.dependencies(id), key=repr) == sorted(links, key=repr)
    ws.tasks.undepend(a, b)
    assert len(ws.tasks.dependencies(a)) == 3
    for kind in ("blocks", "", None, 5):
        refuse(
            ws,
            errors.InvalidType,
            lambda ws, kind: ws.tasks.depend(a, b, kind),
            lambda ws, kind: ws.tasks.undepend(a, b, kind),
            given=(kind,),
        )
    refuse(ws, errors.WouldCreateCycle, lambda ws: ws.tasks.depend(a, a, "related"))


def test_t9_a_dependency_that_does_not_exist_is_refused_and_nothing_changes(world: World) -> None:
    ws: Any = world.open()
    ids = chained(ws, "a", "b", "gone")
    ws.tasks.delete(ids["gone"])
    for on in (ids["gone"], "hf-none"):
        refuse(
            ws,
            errors.TaskNotFound,
            lambda ws, on: ws.tasks.depend(ids["a"], on),
            lambda ws, on: ws.tasks.depend(on, ids["a"]),
            given=(on,),
        )


def test_t9_one_that_300_wait_for_frees_them_all_at_once(world: World) -> None:
    ws: Any = world.open()
    first = ws.tasks.create("first").id
    waiting = [{"title": str(number), "depends_on": ["gate"]} for number in range(300)]
    ws.tasks.set_template("wide", {"title": "last", "children": [*waiting, {"title": "gate", "key": "gate"}]})
    root = ws.tasks.from_template("wide", first)
    assert titles(ws.tasks.ready()) == ["gate"]
    [gate] = [task for task in ws.tasks.children(root.id) if task.title == "gate"]
    revision = ws.revision
    ws.tasks.cancel(gate.id)
    assert (len(ws.tasks.ready(limit=1000)), ws.revision) == (300, revision + 1)


# --- deleting, restoring, purging ------------------------------------------------------------------------------------


def test_t12_delete_takes_all_below_along_and_restore_brings_exactly_that_back(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, FAMILY)
    before = {task.id: task for task in ws.tasks.list()}
    assert ws.tasks.delete(ids["a2"]) == 1
    world.clock.advance(60)
    assert ws.tasks.delete(ids["root"], "not needed") == 6
    assert titles(ws.tasks.list()) == ["other"]
    assert len({task.deleted_at for task in ws.tasks.list(include_deleted=True)}) == 3  # never, then, now
    assert [e.note for title in ("root", "a") for e in ws.tasks.history(ids[title], "deleted")] == ["not needed", None]
    assert ws.tasks.restore(ids["root"]).deleted_at is None
    assert {*titles(ws.tasks.list())} == {"other", "root", "a", "a1", "deep", "b", "b1"}
    for task in ws.tasks.subtree(ids["root"]):
        old = before[task.id]
        assert (task.version, task.status, task.depth, task.parent_id) == (3, old.status, old.depth, old.parent_id)
    assert ws.tasks.restore(ids["a2"]).parent_id == ids["a"]
    revision = ws.revision
    assert ws.tasks.restore(ids["a2"]) == ws.tasks.get(ids["a2"])  # nothing to restore
    assert ws.revision == revision


def test_t12_what_was_deleted_earlier_stays_deleted_and_is_restored_by_itself(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, FAMILY)
    ws.tasks.delete(ids["a1"])
    ws.tasks.delete(ids["a"])
    [error] = refuse(ws, errors.ParentNotFound, lambda ws: ws.tasks.restore(ids["a1"]))
    assert (error.parent_id, ids["a"] in error.hint) == (ids["a"], True)
    ws.tasks.restore(ids["a"])
    assert titles(ws.tasks.subtree(ids["a"])) == ["a", "a2"]
    ws.tasks.reparent(ids["a"], None)
    ws.tasks.restore(ids["a1"])
    assert levels(ws, ids["a"]) == [("a", 0, 0), ("a1", 1, 1), ("a2", 1, 1), ("deep", 2, 2)]


def test_t12_work_is_not_deleted_under_somebodys_hands(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, FAMILY)
    ends: tuple[Call, ...] = (lambda ws, id: ws.tasks.delete(id), lambda ws, id: ws.tasks.purge(id))
    ws.tasks.claim(ids["deep"], "agent")
    ws.tasks.claim(ids["b1"], "agent")
    ws.tasks.complete(ids["b1"], "agent", review=True)
    for title, status in (("deep", "in_progress"), ("b1", "pending_merge")):
        for error in refuse(ws, errors.TaskActive, *ends, given=(ids[title],)):
            assert (error.id, error.details["status"]) == (ids[title], status)
    for title, active in (("a1", {"deep"}), ("b", {"b1"}), ("root", {"deep", "b1"})):
        for error in refuse(ws, errors.HasActiveChildren, *ends, given=(ids[title],)):
            assert {*error.active_children} == {ids[name] for name in active}
            assert all(ids[name] in error.message for name in active)
    ws.tasks.claim(ids["a"], "agent")
    refuse(ws, errors.TaskActive, *ends, given=(ids["a"],))  # its own work first
    ws.tasks.block(ids["a"], "agent")
    ws.tasks.release(ids["deep"], "agent")
    assert ws.tasks.delete(ids["a"]) == 4  # a blocked one may go
    ws.tasks.approve(ids["b1"])
    assert ws.tasks.purge(ids["root"]) == 7


def test_t12_a_deletion_frees_dependents_and_a_restoration_binds_them_again(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, {"parent": {"child": {}}, "waiting": {}, "other": {}})
    ws.tasks.depend(ids["waiting"], ids["child"])
    ws.tasks.depend(ids["other"], ids["waiting"])
    for _ in range(2):
        assert titles(ws.tasks.ready()) == ["child"]
        revision = ws.revision
        ws.tasks.delete(ids["parent"])
        assert (titles(ws.tasks.ready()), ws.revision) == (["waiting"], revision + 1)
        ws.tasks.restore(ids["parent"])
    ws.tasks.delete(ids["waiting"])
    ws.tasks.cancel(ids["child"])  # what it frees is deleted itself
    assert titles(ws.tasks.ready()) == ["parent", "other"]
    ws.tasks.restore(ids["waiting"])
    assert titles(ws.tasks.ready()) == ["parent", "waiting"]
    ws.tasks.purge(ids["parent"])
    ws.tasks.purge(ids["waiting"])
    assert titles(ws.tasks.ready()) == ["other"]


def test_t12_purge_leaves_nothing_but_that_there_was_a_task(world: World) -> None:
    ws: Any = world.open()
    ids = grow(ws, {"kept": {}, "secret": {"secret below": {}}})
    for title in ("secret", "secret below"):
        ws.tasks.update(ids[title], body="secret", grimoire_hint="secret")
        ws.tasks.add_tags(ids[title], ["secret"])
        ws.tasks.note(ids[title], "secret")
        ws.tasks.depend(ids["kept"], ids[title])
    cursor = ws.revision
    assert ws.tasks.purge(ids["secret"]) == 2
    assert ws.revision == cursor + 1
    assert ws.tasks.list(include_deleted=True) == [ws.tasks.get(ids["kept"])]
    assert ws.tasks.search("kept", include_deleted=True)[0].task.id == ids["kept"]
    assert ws.tasks.search("secret", include_deleted=True) == ws.tasks.list(tag="secret") == []
    assert ws.tasks.dependencies(ids["kept"]) == []
    assert titles(ws.tasks.ready()) == ["kept"]
    assert "secret" not in repr(state(ws))
    for id in (ids["secret"], ids["secret below"]):
        refuse(ws, errors.TaskNotFound, lambda ws, id: ws.tasks.get(id, include_deleted=True), given=(id,))
        refuse(ws, errors.TaskNotFound, lambda ws, id: ws.tasks.restore(id), given=(id,))


@pytest.mark.kinds("every")
def test_t12_watchers_see_what_was_purged_as_redacted_and_miss_no_event(world: World) -> None:
    ws: Any = world.open()
    task = ws.tasks.create("secret", tags=["secret"])
    ws.tasks.note(task.id, "secret")
    ws.cells.set("run", "cell", 1)
    ws.tasks.delete(task.id, "secret")
    before = ws.events.list()
    ws.tasks.purge(task.id)
    after = list(ws.watch(after=0, timeout=0))
    assert [(e.cursor, e.kind, e.id, e.op, e.version) for e in after[:-1]] == [
        (e.cursor, e.kind, e.id, e.op, e.version) for e in before
    ]
    assert [(e.op, e.redacted, bool(e.data)) for e in after] == [
        *(("create", True, False), ("note", True, False), ("set", False, True), ("delete", True, False)),
        ("purge", False, False),
    ]
    assert ws.events.list() == after
