"""Prompts and completion (issue 22): what clients show as slash commands, with what the workspace has now."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference, TextContent

import holdfast
from holdfast.faces.mcp.tool import CLOSING, OPENING
from tests.mcp.clients import ERAS, Agent, Era, inside, played, unmarked


@pytest.fixture
def ws() -> Any:
    with holdfast.open(":memory:", actor="ann") as workspace:
        yield workspace


async def said(agent: Agent, name: str, **given: str) -> tuple[str, Any]:
    """What a prompt tells the model, and what is between its marks."""
    (message,) = (await agent.client.get_prompt(name, given)).messages
    assert message.role == "user"
    assert isinstance(message.content, TextContent)
    steps, mark, rest = message.content.text.partition(OPENING)
    assert mark
    assert rest.endswith(CLOSING)
    return steps, unmarked(mark + rest)


@pytest.mark.parametrize("era", ERAS)
@played
async def test_i22_prompts_say_the_steps_and_what_there_is(ws: holdfast.Workspace, era: Era) -> None:
    task = ws.tasks.create("Paint the door", "red, and not <b>blue</b>", tags=["paint"])
    ws.tasks.create("Write the manual")
    async with inside(ws, era=era) as agent:
        listed = {each.name: each for each in (await agent.client.list_prompts()).prompts}
        assert list(listed) == ["next", "done", "handoff", "standup"]
        assert [(each.name, each.required) for each in listed["done"].arguments or ()] == [
            ("task", True),
            ("summary", False),
        ]
        steps, content = await said(agent, "next", tag="paint")
        assert "task_claim with tags ['paint']" in steps
        assert [each["id"] for each in content["tasks"]] == [task.id]
        ws.tasks.claim(task.id)
        steps, content = await said(agent, "done", task=task.id, summary="it is red")
        assert f'task_finish with id {task.id}, action done and text "it is red"' in steps
        assert content["task"]["body"] == "red, and not <b>blue</b>"
        steps, _ = await said(agent, "handoff", task=task.id, to="bob")
        assert "action release" in steps
        assert "mail_send" in steps
        assert "bob" in steps
        _, content = await said(agent, "standup")
        assert [each["id"] for each in content["in progress"]] == [task.id]


@played
async def test_i22_a_prompt_that_cannot_be_made_is_refused_with_what_it_takes(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        for name, given, words in (
            ("sing", {}, "there is no prompt 'sing'"),
            ("done", {}, "done needs 'task': its arguments are task (string), summary (string)"),
            ("done", {"task": "hf-none"}, "TASK_NOT_FOUND (done with task 'hf-none')"),
            ("next", {"colour": "red"}, "next has no argument 'colour'"),
            ("next", {"colour": "red"}, "its only argument is tag (string)"),
        ):
            with pytest.raises(MCPError) as refused:
                await agent.client.get_prompt(name, given)
            assert words in str(refused.value)


@played
async def test_i22_ids_names_runs_and_cells_are_completed(ws: holdfast.Workspace) -> None:
    door, mine = ws.tasks.create("Paint the door", tags=["paint", "home"]), ws.tasks.create("Mine")
    ws.tasks.claim(mine.id)
    ws.agents.register("bob")
    for run, cell in (("run-1", "owner"), ("run-1", "state"), ("other", "x")):
        ws.cells.set(run, cell, 1)
    async with inside(ws) as agent:

        async def completed(of: str, name: str, typed: str, **known: str) -> list[str]:
            ref = ResourceTemplateReference(uri=of) if ":" in of else PromptReference(name=of)
            found = await agent.client.complete(ref, {"name": name, "value": typed}, known or None)
            return found.completion.values

        assert await completed("done", "task", "") == [mine.id, door.id], "mine first"
        assert await completed("done", "task", door.id[:-1]) in ([door.id], [mine.id, door.id], [door.id, mine.id])
        assert await completed("handoff", "task", "the DOOR") == [door.id]
        assert await completed("handoff", "to", "b") == ["bob"]
        assert await completed("next", "tag", "p") == ["paint"]
        assert await completed("holdfast://task/{id}", "id", "mine") == [mine.id]
        assert await completed("holdfast://cell/{run}/{cell}", "run", "run") == ["run-1"]
        assert await completed("holdfast://cell/{run}/{cell}", "cell", "s", run="run-1") == ["state"]
        assert await completed("holdfast://cell/{run}/{cell}", "cell", "s") == []
        assert await completed("unknown", "task", "") == [], "a client that asks for what is not there gets nothing"
        with pytest.raises(MCPError, match="NOT_FOUND"):
            await completed("done", "colour", "r")
