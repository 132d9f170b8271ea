"""Links (S11): which records can be tied to which, how often, and that no circle comes of it."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest

from holdfast import Workspace, errors
from holdfast.types.stashes import Link
from holdfast.types.tasks import TaskLink
from tests.conformance.test_stashes import refused
from tests.conformance.test_trails import furnished
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

BETWEEN_TASKS = ("child_of", "depends_on", "discovered_from", "related")


def ends(ws: Workspace) -> dict[str, str]:
    """One of each that a link can lead from or to."""
    return {
        "task": ws.tasks.create("task").id,
        "trail": ws.trails.create("trail").id,
        "stash": ws.stashes.create("stash", "context").id,
    }


KINDS = {
    "belongs_to": ("task", "trail"),
    "branches_from": ("trail", "task"),
    "scoped_to": ("stash", "trail"),
    **dict.fromkeys(BETWEEN_TASKS, ("task", "task")),
}


@pytest.mark.parametrize("link_type", KINDS)
def test_s11_both_ends_of_a_link_are_there_and_of_the_right_kind(world: World, link_type: Any) -> None:
    ws = world.open()
    one, two = ends(ws), {"task": ws.tasks.create("another").id, "trail": ws.trails.create("another").id}
    for source, target in product((*one, "nothing"), repeat=2):
        if (source, target) != KINDS[link_type]:
            before = ws.revision
            with pytest.raises(errors.NotFound):
                ws.links.create(link_type, one.get(source, "nothing"), one.get(target, "nothing"))
            assert (ws.revision, ws.links.list()) == (before, [])
    source, target = KINDS[link_type]
    made = ws.links.create(link_type, one[source], two[target])
    assert (made.link_type, made.from_id, made.to_id) == (link_type, one[source], two[target])
    assert ws.links.get(made.id) == made
    before = ws.revision
    assert ws.links.create(link_type, one[source], two[target]) == made, "the same triple is the same link"
    assert (ws.revision, ws.links.list()) == (before, [made])
    ws.links.delete(made.id)
    refused(ws, errors.NotFound, lambda: ws.links.get(made.id))
    refused(ws, errors.NotFound, lambda: ws.links.delete(made.id))
    assert ws.links.create(link_type, one[source], two[target]).id != made.id


def test_s11_a_trail_branches_from_one_task_and_a_stash_is_in_one_trail(world: World) -> None:
    ws = world.open()
    one, two = ends(ws), {"task": ws.tasks.create("another").id, "trail": ws.trails.create("another").id}
    for link_type, source, target in (("branches_from", "trail", "task"), ("scoped_to", "stash", "trail")):
        made = ws.links.create(link_type, one[source], one[target])  # type: ignore[arg-type]
        refused(ws, errors.Exists, partial(ws.links.create, link_type, one[source], two[target]))  # type: ignore[arg-type]
        ws.links.delete(made.id)
        assert ws.links.create(link_type, one[source], two[target]).to_id == two[target]  # type: ignore[arg-type]


def test_s11_children_are_a_graph_without_circles_apart_from_the_tree_of_parents(world: World) -> None:
    ws = world.open()
    a, b, c, d = (ws.tasks.create(title).id for title in "abcd")
    for child, parent in ((a, b), (b, c), (a, c), (d, c)):
        ws.links.create("child_of", child, parent)
    for child, parent in ((a, a), (b, a), (c, a), (c, d)):
        error = refused(ws, errors.WouldCreateCycle, partial(ws.links.create, "child_of", child, parent))
        assert (error.path[0], error.path[-1]) == (child, child)
    assert {ws.tasks.get(id).parent_id for id in (a, b, c, d)} == {None}
    ws.tasks.reparent(c, a)
    assert len(ws.links.list("child_of")) == 4
    ws.links.create("depends_on", c, a)
    refused(ws, errors.WouldCreateCycle, lambda: ws.links.create("depends_on", a, c))
    ws.links.create("related", c, a)
    ws.links.create("related", a, c)


def test_s11_a_dependency_is_the_same_made_as_a_link_or_by_its_task(world: World) -> None:
    ws = world.open()
    one, two = ws.tasks.create("one").id, ws.tasks.create("two").id
    link = ws.links.create("depends_on", one, two)
    assert [task.id for task in ws.tasks.ready()] == [two]
    assert ws.tasks.dependencies(one) == [TaskLink("depends_on", one, two)]
    ws.links.delete(link.id)
    assert {task.id for task in ws.tasks.ready()} == {one, two}
    ws.tasks.depend(one, two)
    (found,) = ws.links.list("depends_on", one)
    assert (found.to_id, found.id != link.id) == (two, True)


def test_s11_links_are_filtered_by_type_and_ends_and_come_in_the_order_they_were_made(world: World) -> None:
    ws = world.open()
    a, b, c = (ws.tasks.create(title).id for title in "abc")
    made: list[Link] = []
    for link_type, source, target in (("related", a, b), ("child_of", a, b), ("related", c, b), ("related", b, c)):
        world.clock.advance(1)
        made.append(ws.links.create(link_type, source, target))  # type: ignore[arg-type]
    assert ws.links.list() == made
    assert ws.links.list("related") == [made[0], *made[2:]]
    assert ws.links.list(from_id=a) == made[:2]
    assert ws.links.list("related", to_id=b) == [made[0], made[2]]
    assert ws.links.list("related", a, b) == ws.links.list(limit=1) == made[:1]
    assert ws.links.list(limit=2, after=made[1].id) == made[2:]
    assert ws.links.list("scoped_to") == ws.links.list(from_id="nothing") == []
    for wrong in ({"from_id": 7}, {"to_id": ["a"]}, {"limit": 0}, {"after": 7}):
        with pytest.raises(errors.Invalid):
            ws.links.list(**wrong)


def test_s11_what_is_no_type_or_id_is_refused(world: World) -> None:
    ws = world.open()
    a, b = ws.tasks.create("a").id, ws.tasks.create("b").id
    for link_type in ("", "blocks", None, 7, ["related"]):
        refused(ws, errors.InvalidType, partial(ws.links.create, link_type, a, b))  # type: ignore[arg-type]
    for bad in ("", 7, None, "\ud800"):
        refused(ws, errors.InvalidID, partial(ws.links.create, "related", bad, b))  # type: ignore[arg-type]
        refused(ws, errors.InvalidID, partial(ws.links.create, "related", a, bad))  # type: ignore[arg-type]
        refused(ws, errors.InvalidID, partial(ws.links.get, bad))  # type: ignore[arg-type]
        refused(ws, errors.InvalidID, partial(ws.links.delete, bad))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidType):
        ws.links.list("blocks")  # type: ignore[arg-type]
    assert ws.links.list() == []


def test_s11_a_task_that_is_purged_takes_its_links_along(world: World) -> None:
    ws = world.open()
    trail, tasks, _ = furnished(ws)
    ws.links.create("child_of", tasks[0], tasks[1])
    ws.links.create("branches_from", trail, tasks[0])
    ws.tasks.purge(tasks[0])
    assert ws.trails.members(trail) == [tasks[1]]
    assert {link.link_type for link in ws.links.list()} == {"belongs_to", "scoped_to"}
    ws.trails.abandon(trail)
    assert ws.trails.restore(trail).state == "active"
