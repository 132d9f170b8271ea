"""Importing a folder again follows what was removed, moved or ended there (S13), and loses nothing done here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast import Workspace
from holdfast.interchange import slices
from holdfast.interchange.slices import import_stashes
from holdfast.testing import ManualClock
from tests.unit.test_stash_transfer import exported


class Made(NamedTuple):
    """What both workspaces have: two trails, a task and a stash in the first, a task and a stash of their own."""

    trail: str
    other: str
    task: str
    above: str
    scoped: str
    alone: str


class Pair(NamedTuple):
    """A workspace, its copy, and the clock of both."""

    source: Workspace
    copy: Workspace
    clock: ManualClock
    made: Made


@pytest.fixture
def pair() -> Iterator[Pair]:
    clock = ManualClock()
    with (
        holdfast.open(":memory:", actor="ann", clock=clock) as source,
        holdfast.open(":memory:", actor="bob", clock=clock) as copy,
    ):
        trail, other = (source.trails.create(name, "active").id for name in ("trail", "other"))
        task, above = (source.tasks.create(name).id for name in ("task", "above"))
        source.trails.add(trail, task)
        for kind, start, end in (
            ("depends_on", task, above),
            ("child_of", task, above),
            ("branches_from", trail, above),
        ):
            source.links.create(kind, start, end)  # type: ignore[arg-type]
        scoped = source.stashes.create("scoped", "context", {"n": 1}, trail=trail).id
        alone = source.stashes.create("alone", "context", {"n": 1}).id
        copy.stashes.import_(exported(source))
        clock.advance(5)
        yield Pair(source, copy, clock, Made(trail, other, task, above, scoped, alone))


def drop(ws: Workspace, kind: str, start: str) -> None:
    for link in ws.links.list(kind, from_id=start):  # type: ignore[arg-type]
        ws.links.delete(link.id)


def reuse(ws: Workspace, made: Made) -> None:
    ws.stashes.delete(made.alone)
    ws.stashes.create("alone", "counter")


def move_task(ws: Workspace, made: Made) -> None:
    ws.trails.remove(made.trail, made.task)
    ws.trails.add(made.other, made.task)


def move_stash(ws: Workspace, made: Made) -> None:
    drop(ws, "scoped_to", made.scoped)
    ws.links.create("scoped_to", made.scoped, made.other)


def move_and_reuse(ws: Workspace, made: Made) -> None:
    move_stash(ws, made)
    ws.stashes.create("scoped", "counter", trail=made.trail)
    ws.stashes.create("scoped", "counter")


def end(ws: Workspace, made: Made, *before: Callable[[], Any]) -> None:
    for each in before:
        each()
    ws.trails.abandon(made.trail, "enough")


def end_and_delete(ws: Workspace, made: Made) -> None:
    end(ws, made)
    ws.trails.delete(made.trail)


CHANGES: dict[str, Callable[[Workspace, Made], Any]] = {
    "a stash is deleted": lambda ws, made: ws.stashes.delete(made.alone),
    "a stash in a trail is deleted": lambda ws, made: ws.stashes.delete(made.scoped),
    "a name is used again": reuse,
    "a task leaves its trail": lambda ws, made: ws.trails.remove(made.trail, made.task),
    "a task moves to another trail": move_task,
    "a stash gets a scope": lambda ws, made: ws.links.create("scoped_to", made.alone, made.trail),
    "a stash loses its scope": lambda ws, made: drop(ws, "scoped_to", made.scoped),
    "a stash moves to another trail": move_stash,
    "a stash moves and its name is used again": move_and_reuse,
    "a link of tasks goes": lambda ws, made: drop(ws, "depends_on", made.task),
    "a child leaves its parent": lambda ws, made: drop(ws, "child_of", made.task),
    "a trail leaves its branch": lambda ws, made: drop(ws, "branches_from", made.trail),
    "a trail is abandoned": end,
    "a stash is deleted, then its trail is abandoned": lambda ws, made: end(
        ws, made, lambda: ws.stashes.delete(made.scoped)
    ),
    "a task leaves, then its trail is abandoned": lambda ws, made: end(
        ws, made, lambda: ws.trails.remove(made.trail, made.task)
    ),
    "a task is changed, then its trail is abandoned": lambda ws, made: end(
        ws, made, lambda: ws.tasks.update(made.task, title="another")
    ),
    "more comes, then the trail is abandoned": lambda ws, made: end(
        ws,
        made,
        lambda: ws.trails.add(made.trail, ws.tasks.create("more").id),
        lambda: ws.stashes.create("more", "context", {}, trail=made.trail),
    ),
    "a trail is abandoned and deleted": end_and_delete,
    "a trail without members is deleted": lambda ws, made: ws.trails.delete(made.other),
    "a trail is completed": lambda ws, made: ws.trails.complete(made.trail),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("lines", [500, 2])
def test_s13_importing_again_follows(pair: Pair, monkeypatch: pytest.MonkeyPatch, what: str, lines: int) -> None:
    monkeypatch.setattr(slices, "LINES", lines)
    CHANGES[what](pair.source, pair.made)
    tables = exported(pair.source)
    report = import_stashes(pair.copy, tables)
    assert (report.conflicts, report.skipped) == ([], [])
    assert exported(pair.copy) == tables
    assert pair.copy.check().problems == []
    again = import_stashes(pair.copy, tables)
    assert not any((*again.created.values(), *again.updated.values(), again.conflicts))
    with holdfast.open(":memory:", actor="cyd", clock=pair.clock) as new:
        import_stashes(new, tables)
        assert exported(new) == tables, "what is gone is known elsewhere, too"
        assert new.check().problems == []


OF_TASKS = ("a link of tasks goes", "a trail is abandoned and deleted")  # of a task the file that came last counts


@pytest.mark.parametrize("what", [what for what in CHANGES if what not in OF_TASKS])
def test_s13_an_older_file_brings_nothing_back(pair: Pair, what: str) -> None:
    before = exported(pair.source)
    CHANGES[what](pair.source, pair.made)
    pair.copy.stashes.import_(exported(pair.source))
    after = exported(pair.copy)
    pair.copy.stashes.import_(before, skip_bad=True)
    assert exported(pair.copy) == after


def test_s13_a_stash_that_was_changed_here_is_not_deleted_with_the_one_there(pair: Pair) -> None:
    pair.source.stashes.set_value(pair.made.alone, {"n": 2})
    pair.source.stashes.delete(pair.made.alone)
    pair.copy.stashes.set_value(pair.made.alone, {"n": "ours"})
    report = pair.copy.stashes.import_(exported(pair.source))
    assert [(each.file, each.id, each.message) for each in report.conflicts] == [
        ("tombstones.jsonl", pair.made.alone, "deleted in the file, changed here; skipped")
    ]
    assert pair.copy.stashes.get(pair.made.alone).value == {"n": "ours"}


def test_s13_what_was_made_here_is_deleted_by_nobody_else(pair: Pair) -> None:
    pair.copy.stashes.delete(pair.made.alone)
    report = pair.source.stashes.import_(exported(pair.copy))
    assert [each.id for each in report.conflicts] == [pair.made.alone]
    assert pair.source.stashes.get(pair.made.alone).value == {"n": 1}


def test_s13_a_lock_that_is_held_here_is_not_deleted(pair: Pair) -> None:
    lock = pair.source.stashes.create("gate", "lock").id
    pair.copy.stashes.import_(exported(pair.source))
    pair.source.stashes.delete(lock)
    pair.copy.stashes.acquire(lock, "bob")
    assert [each.id for each in pair.copy.stashes.import_(exported(pair.source)).conflicts] == [lock]
    assert pair.copy.stashes.get(lock).value


def test_s13_a_stash_that_was_moved_on_both_sides_stays_where_it_is(pair: Pair) -> None:
    third = pair.copy.trails.create("third", "active").id
    drop(pair.copy, "scoped_to", pair.made.scoped)
    pair.copy.links.create("scoped_to", pair.made.scoped, third)
    move_stash(pair.source, pair.made)
    report = pair.copy.stashes.import_(exported(pair.source))
    assert any("another scope here" in each.message for each in report.conflicts)
    assert [link.to_id for link in pair.copy.links.list("scoped_to", from_id=pair.made.scoped)] == [third]
    assert pair.copy.check().problems == []


def test_s13_a_stash_whose_new_place_is_taken_here_stays_where_it_is(pair: Pair) -> None:
    pair.copy.stashes.create("scoped", "counter", trail=pair.made.other)
    move_stash(pair.source, pair.made)
    report = pair.copy.stashes.import_(exported(pair.source))
    assert report.conflicts
    assert [link.to_id for link in pair.copy.links.list("scoped_to", from_id=pair.made.scoped)] in (
        [pair.made.trail],
        [],
    )
    assert pair.copy.check().problems == []


def test_s13_a_trail_with_members_of_its_own_here_is_not_deleted(pair: Pair) -> None:
    pair.copy.stashes.create("ours", "counter", trail=pair.made.other)
    pair.source.trails.delete(pair.made.other)
    report = pair.copy.stashes.import_(exported(pair.source))
    assert [(each.file, each.id) for each in report.conflicts] == [("tombstones.jsonl", pair.made.other)]
    assert pair.copy.trails.get(pair.made.other).name == "other"
