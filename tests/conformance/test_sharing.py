"""Lines of a shared file on every kind of workspace (issue 25): joined whole, and again without a change."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import errors
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")
LINE = '{"format":"holdfast.shared/1","id":"hf-7k2q","uid":"abcdefgh1234","title":"%s","made":"5@abcd"%s}'
FIRST = LINE % ("Write the lexer", "")
CLOSED = LINE % ("Write the lexer", ',"status":"closed","stamps":{"status":"9@abcd"}')


def test_lines_make_tasks_once_and_what_is_newer_wins(world: World) -> None:
    ws: Any = world.open("ada")
    assert ws.tasks.merge_shared([FIRST, FIRST]).created == ["hf-7k2q"]
    assert ws.tasks.merge_shared([FIRST]).created == []
    assert ws.tasks.claim("hf-7k2q").claimed_by == "ada"
    assert ws.tasks.merge_shared([CLOSED]).ended == ["hf-7k2q"]
    assert ws.tasks.merge_shared([FIRST]).updated == []
    with pytest.raises(errors.Fenced):
        ws.tasks.complete("hf-7k2q")
    other: Any = world.open("bob")
    assert other.tasks.get("hf-7k2q").status == "closed"
    assert ws.check().problems == []


def test_a_damaged_line_refuses_the_others_too(world: World) -> None:
    ws: Any = world.open("ada")
    with pytest.raises(errors.Invalid, match="line 2: error: invalid JSON"):
        ws.tasks.merge_shared([FIRST, "{"])
    assert ws.tasks.list() == []
    assert len(ws.tasks.merge_shared([FIRST, "{"], skip_bad=True).problems) == 1
    for wrong in (FIRST, 7, [7]):
        with pytest.raises(errors.Invalid):
            ws.tasks.merge_shared(wrong)


def test_settings_are_changed_by_an_admin_and_lines_come_in_pages(world: World) -> None:
    ws: Any = world.open("ada")
    assert ws.tasks.sharing().on is None
    assert ws.tasks.set_sharing(True, notes=True).notes is True
    found = ws.tasks.set_sharing(False)
    assert (found.on, found.notes, found.authors) == (False, True, False)
    assert [event.op for event in ws.events.list(kinds=["sharing"])] == ["set", "set"]
    ids = [ws.tasks.create(f"task {number}").id for number in range(5)]
    ws.tasks.merge_shared()
    pages, after = [], ""
    while page := ws.tasks.shared_lines(after=after, limit=2):
        pages += page
        after = page.cursor or "~"
    assert len(pages) == len(ids)
    assert pages == list(ws.tasks.shared_lines())
    for wrong in ({"on": 1}, {"on": True, "notes": 1}):
        with pytest.raises(errors.Invalid):
            ws.tasks.set_sharing(**wrong)


def elder(id: str) -> str:
    """The line of an older task with an id: the one that has it here gets a longer one."""
    line = LINE % ("The older one", ',"created_at":"2001-01-01T00:00:00+00:00"')
    return line.replace("hf-7k2q", id)


def test_a_claim_goes_on_when_its_task_gets_another_id(world: World) -> None:
    ws: Any = world.open("ada")
    task = ws.tasks.claim(ws.tasks.create("The younger one").id)
    new = ws.tasks.merge_shared([elder(task.id)]).renamed[task.id]
    assert ws.tasks.get(task.id).title == "The older one"
    told = f"{task.id} is {new} now: an older task has its id"
    held = {"id": task.id, "token": task.token}
    for found in (
        ws.tasks.heartbeat(**held),
        ws.tasks.note(text="half of it", **held),
        ws.tasks.update(priority=1, **held),
        ws.tasks.set_tags(tags=["a"], **held),
        ws.tasks.add_tags(tags=["b"], **held),
        ws.tasks.remove_tags(tags=["b"], **held),
        ws.tasks.park(**held),
        ws.tasks.complete(**held),
    ):
        assert (found.id, found.warnings) == (new, (told,))
    assert ws.tasks.get(new).status == "closed"
    with pytest.raises(errors.Fenced):
        ws.tasks.complete(task.id, token=2**70)
    with pytest.raises(errors.Fenced) as fenced:
        ws.tasks.complete(**held)
    assert f"had this id before, and may be meant: {new}" in fenced.value.hint
    assert ws.tasks.get(task.id).status == "open"
    for op in (ws.tasks.block, ws.tasks.release, ws.tasks.close):
        again = ws.tasks.claim(ws.tasks.create("Another").id)
        new = ws.tasks.merge_shared([elder(again.id).replace("abcdefgh1234", f"{op.__name__:x<12.12}")]).renamed
        assert op(again.id, token=again.token).id == new[again.id]
    assert ws.check().problems == []


def test_a_call_without_a_token_means_the_task_that_has_the_id_and_says_so(world: World) -> None:
    ws: Any = world.open("ada")
    task = ws.tasks.claim(ws.tasks.create("The younger one").id)
    new = ws.tasks.merge_shared([elder(task.id)]).renamed[task.id]
    for call in (ws.tasks.complete, ws.tasks.heartbeat, ws.tasks.release, ws.tasks.block):
        with pytest.raises(errors.NotClaimOwner) as refused:
            call(task.id)
        assert refused.value.hint == f"ada holds {new}: {task.id} is {new} now: an older task has its id"
    had = f"{new}, which ada holds, had the id {task.id} before: it was not changed"
    assert ws.tasks.note(task.id, "for which?").warnings == (had,)
    assert world.open("bob").tasks.note(task.id, "of bob").warnings == ()
    assert ws.tasks.claim(task.id).warnings == (f"{new}, which ada holds too, had the id {task.id} before",)
    assert ws.tasks.note(task.id, "of ada").warnings == ()
    assert (ws.tasks.complete(task.id).title, ws.tasks.complete(new).title) == ("The older one", "The younger one")
