"""A reading of the log that reaches a compacted past says so (design section 10): what is left, then Compacted.

A page has `compacted`, the revision up to which events are gone. Of what is listed newest first it is the last page
that has it, and its cursor leads to Compacted; of what is listed oldest first it is the first.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Workspace, errors
from holdfast.types import Page
from tests.worlds.kinds import World


def backwards(history: Callable[..., Page[Any]]) -> list[Any]:
    """All that a history newest first has left, from pages of one; it ends in Compacted."""
    found, page = list[Any](), history(limit=1)
    while page.compacted is None:
        assert page, "neither an entry nor Compacted"
        assert page.cursor is not None, "ended without a sign"
        found += page
        page = history(limit=1, before=int(page.cursor))
    assert page.cursor is not None
    with pytest.raises(errors.Compacted) as gone:
        history(limit=1, before=int(page.cursor))
    assert gone.value.compacted == page.compacted
    return [*found, *page]


def worked(ws: Workspace) -> str:
    """A task of six versions, of which compaction keeps the note, 3, and the newest, 6."""
    id = ws.tasks.create("task", priority=4).id
    ws.tasks.update(id, priority=3)
    ws.tasks.note(id, "a note")
    for priority in (2, 1, 0):
        ws.tasks.update(id, priority=priority)
    return id


def test_the_history_of_a_cell_ends_in_compacted(world: World) -> None:
    ws = world.open()
    for value in range(6):
        ws.cells.set("run", "cell", value)
    ws.cells.set("run", "young", 1)
    assert ws.cells.history("run", "cell").compacted is None
    ws.events.compact(4)
    whole = ws.cells.history("run", "cell")
    assert ([step.version for step in whole], whole.cursor, whole.compacted) == ([6, 5, 4, 3], "3", 3)
    first = ws.cells.history("run", "cell", limit=2)
    assert (first.cursor, first.compacted) == ("5", None)
    assert [step.version for step in backwards(lambda **at: ws.cells.history("run", "cell", **at))] == [6, 5, 4, 3]
    young = ws.cells.history("run", "young")
    assert (young.cursor, young.compacted) == (None, None)


def test_a_cell_that_has_lost_nothing_says_nothing(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    ws.cells.set("run", "other", 1)
    ws.events.compact(3)
    ws.cells.set("run", "cell", 2)
    history = ws.cells.history("run", "cell")
    assert ([step.version for step in history], history.cursor, history.compacted) == ([2, 1], None, None)


def test_the_history_of_a_task_ends_in_compacted_also_where_the_gap_is_between_what_is_left(world: World) -> None:
    ws = world.open()
    id = worked(ws)
    assert (ws.tasks.history(id).cursor, ws.tasks.history(id).compacted) == (None, None)
    mark = ws.revision
    ws.events.compact(mark + 1)
    ws.tasks.update(id, title="new")
    whole = ws.tasks.history(id)
    assert ([entry.version for entry in whole], whole.cursor, whole.compacted) == ([7, 6, 3], "3", mark)
    assert [entry.version for entry in backwards(lambda **at: ws.tasks.history(id, **at))] == [7, 6, 3]
    fields = backwards(lambda **at: ws.tasks.history(id, field="priority", **at))
    assert [entry.version for entry in fields] == [6]


def test_a_gap_above_the_oldest_version_is_told_too(world: World) -> None:
    ws = world.open()
    id = ws.tasks.from_template(ws.tasks.set_template("named", {"title": "task"}).name).id
    ws.tasks.note(id, "a note")
    for priority in (4, 3, 1):
        ws.tasks.update(id, priority=priority)
    ws.events.compact(ws.revision)  # of what is below, the newest stays
    assert [entry.version for entry in backwards(lambda **at: ws.tasks.history(id, **at))] == [5, 4, 2]


def test_a_history_since_a_time_after_the_gap_is_whole(world: World) -> None:
    ws = world.open()
    id = worked(ws)
    ws.events.compact(ws.revision + 1)
    world.clock.advance(60)
    ws.tasks.update(id, title="new")
    ws.tasks.update(id, title="newer")
    late = ws.tasks.history(id)[0].changed_at
    page = ws.tasks.history(id, since=late - timedelta(seconds=1))
    assert ([entry.version for entry in page], page.cursor, page.compacted) == ([8, 7], None, None)
    since = late - timedelta(hours=1)
    assert [entry.version for entry in backwards(lambda **at: ws.tasks.history(id, since=since, **at))] == [8, 7, 6, 3]


def test_resume_gives_what_is_left_and_says_that_events_are_gone(world: World) -> None:
    ws = world.open()
    id = worked(ws)
    assert ws.tasks.resume(id).compacted is None
    mark = ws.revision
    ws.events.compact(mark + 1)
    found = ws.tasks.resume(id)
    assert (found.compacted, [note.text for note in found.notes]) == (mark, ["a note"])
    fresh = ws.tasks.create("fresh").id
    assert ws.tasks.resume(fresh).compacted is None


def test_the_history_of_a_stash_says_at_its_beginning_what_is_gone(world: World) -> None:
    ws = world.open()
    stash = ws.stashes.create("notes", "context", value={"n": 1}).id
    for number in (2, 3, 4):
        ws.stashes.set_value(stash, {"n": number})
    assert ws.stashes.history(stash).compacted is None
    ws.events.compact(4)
    whole = ws.stashes.history(stash)
    assert ([entry.version for entry in whole], whole.cursor, whole.compacted) == ([3, 4], None, 3)
    first = ws.stashes.history(stash, limit=1)
    assert (first.cursor, first.compacted) == ("3", 3)
    second = ws.stashes.history(stash, limit=1, after=3)
    assert ([entry.version for entry in second], second.cursor, second.compacted) == ([4], None, None)
    for after in (0, 1):
        with pytest.raises(errors.Compacted):
            ws.stashes.history(stash, after=after)
    assert [entry.version for entry in ws.stashes.history(stash, after=2)] == [3, 4]


def test_the_history_of_a_message_says_at_its_beginning_what_is_gone(world: World) -> None:
    ws, bob = world.open("ann"), world.open("bob")
    id = ws.mail.send("bob", "subject").id
    bob.mail.ack(id)
    bob.mail.action(id, note="done")
    assert ws.mail.history(id).compacted is None
    mark = ws.revision - 1
    ws.events.compact(mark + 1)
    left = ws.mail.history(id)
    assert ([step.version for step in left], left.compacted) == ([2, 3], mark)


def test_a_list_of_events_says_at_its_beginning_what_is_gone(world: World) -> None:
    ws = world.open()
    for value in range(5):
        ws.cells.set("run", "cell", value)
        world.clock.advance(60)
    ws.cells.set("run", "young", 1)
    times = [event.time for event in ws.events.list()]
    assert ws.events.list().compacted is None
    ws.events.compact(4)
    assert ws.events.list().compacted == 3
    assert ws.events.list(limit=1).compacted == 3
    assert ws.events.list(after=3).compacted is None
    assert ws.events.list(since=times[0]).compacted == ws.events.list(since=times[2]).compacted == 3
    assert ws.events.list(since=times[2] + timedelta(seconds=1)).compacted is None
    assert ws.events.list(kinds=["cell"], id=("run", "cell")).compacted == 3
    assert ws.events.list(kinds=["cell"], id=("run", "young")).compacted is None


def test_what_is_exported_of_a_stash_says_what_is_gone(world: World) -> None:
    ws = world.open()
    stash = ws.stashes.create("notes", "context", value={"n": 1}).id
    ws.stashes.create("whole", "context", value={"n": 1})
    ws.stashes.set_value(stash, {"n": 2})
    assert ws.stashes.export("stash_history").compacted is None
    ws.events.compact(ws.revision + 1)
    assert ws.stashes.export("stash_history").compacted == ws.revision - 1
    assert ws.stashes.export("stashes").compacted is None
