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
