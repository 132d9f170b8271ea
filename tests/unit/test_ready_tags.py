"""`ready_tags` has the tags of all ready tasks, and those of others only until they are tidied up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast

TASKS, TAGS = 300, 3
COUNT = (
    "SELECT total(t.status <> 'open' OR t.waits OR t.busy OR t.deleted IS NOT NULL), count(*)"
    " FROM ready_tags g JOIN tasks t ON t.seq = g.seq"
)


@pytest.fixture
def ws() -> Iterator[holdfast.Workspace]:
    with holdfast.open(":memory:", actor="ann") as workspace:
        yield workspace
        assert workspace.check().problems == []


def create(ws: holdfast.Workspace) -> list[str]:
    def body(tx: holdfast.Transaction) -> list[str]:
        spread = [[f"tag-{(number * 7 + each * 13) % 97}" for each in range(TAGS)] for number in range(TASKS)]
        return [tx.tasks.create("task", tags=tags).id for tags in spread]

    return ws.transact(body)


def counted(ws: holdfast.Workspace) -> tuple[int, int]:
    """The rows of tasks that are not ready, and all."""
    stale, rows = ws._engine.read(lambda snapshot: snapshot.one(COUNT))
    return int(stale), rows


def claim(ws: holdfast.Workspace, count: int) -> None:
    ws.transact(lambda tx: [tx.tasks.claim_next() for _ in range(count)])


@pytest.mark.parametrize("group", [1, 20])
def test_at_most_half_of_the_rows_of_a_round_ago_are_stale(ws: holdfast.Workspace, group: int) -> None:
    for _ in range(4):
        create(ws)
        before = counted(ws)[1]
        for _ in range(TASKS // group):
            claim(ws, group)
            stale, rows = counted(ws)
            assert stale <= before // 2 + group * TAGS
        assert rows <= before


def test_what_cancelled_tasks_leave_is_tidied_as_well(ws: holdfast.Workspace) -> None:
    made = create(ws)
    before = counted(ws)[1]
    for id in made:
        ws.tasks.cancel(id)
        assert counted(ws)[0] <= before // 2 + TAGS


def test_a_claim_leaves_its_rows_and_a_claim_by_tag_deletes_what_it_steps_over(ws: holdfast.Workspace) -> None:
    first, second, third = (ws.tasks.create(title, tags=["web"]) for title in ("one", "two", "three"))
    ws.tasks.create("elsewhere", tags=["api"])
    ws.tasks.claim(third.id)  # what is tidied after it begins with the tag "api"
    ws.tasks.claim(first.id)
    assert counted(ws)[0] >= 1
    taken = ws.tasks.claim_next(tags=["web"])
    assert taken is not None
    assert taken.id == second.id
    assert ws.tasks.claim_next(tags=["web"]) is None
    ws.tasks.release(first.id)
    assert [task.id for task in ws.tasks.ready(tags=["web"])] == [first.id]


def test_a_task_that_is_ready_again_has_its_rows_once(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("task", tags=["web", "api"])
    for _ in range(5):
        ws.tasks.claim(task.id)
        ws.tasks.release(task.id)
    assert counted(ws) == (0, 2)


def test_rows_of_changed_and_purged_tasks_are_gone_at_once(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("task", tags=["web", "api"])
    ws.tasks.claim(task.id)
    ws.tasks.update(task.id, priority=0)
    ws.tasks.set_tags(task.id, ["other"])
    ws.tasks.release(task.id)
    assert ws.tasks.ready(tags=["web"]) == []
    assert [found.id for found in ws.tasks.ready(tags=["other"])] == [task.id]
    ws.tasks.delete(task.id)
    ws.tasks.purge(task.id)
    assert counted(ws) == (0, 0)
