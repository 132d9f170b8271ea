"""Every recipe of docs/recipes.md works at a shell and over MCP; its Python runs with that of the other documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.cli.test_cli_examples import Playground
from tests.docs.test_examples import ROOT
from tests.mcp.clients import Agent, inside, played

TEXT = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
_CALL = re.compile(r"(?P<refused>refused )?(?P<tool>\w+) (?P<arguments>\{.*\})")


def blocks(recipe: str, language: str) -> list[str]:
    """The blocks of a language in a recipe."""
    return re.findall(rf"^```{language}\n(.*?)^```$", RECIPES[recipe], re.MULTILINE | re.DOTALL)


def test_there_are_twenty_recipes_each_in_three_ways() -> None:
    assert len(RECIPES) == 20
    ways = ("python", "sh", "mcp")
    assert {name for name in RECIPES if [len(blocks(name, way)) for way in ways] != [1, 1, 1]} == set()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_works_at_a_shell(recipe: str, tmp_path: Path) -> None:
    (script,) = blocks(recipe, "sh")
    ground = Playground(tmp_path, empty=True)
    code, out, errors = ground.run(f"set -e\nholdfast init -q\n{script}")
    assert code == 0, (out, errors)
    assert out.strip()
    # A refusal is that of the recipe, and not a mistake in its line.
    assert re.findall(r"^exit \d+$", out, re.MULTILINE) == re.findall(
        r"\|\| echo \"exit \$\?\" +# (exit \d+): ", script
    )
    assert script.count("||") == script.count("# exit ")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_works_over_mcp(recipe: str, tmp_path: Path) -> None:
    (calls,) = blocks(recipe, "mcp")

    @played
    async def run() -> None:
        with holdfast.open(tmp_path, actor="agent-1") as ws:
            async with inside(ws) as core, inside(ws, "all") as everything:
                tools = {tool.name for tool in (await core.client.list_tools()).tools}
                matches = [_CALL.fullmatch(line) for line in calls.splitlines()]
                parsed = [call for call in matches if call is not None]
                assert len(parsed) == len(matches), calls
                agent = core if all(call["tool"] in tools for call in parsed) else everything
                first = ""
                for call in parsed:
                    arguments = json.loads(call["arguments"].replace('"ID"', json.dumps(first)))
                    result = await answer(agent, call["tool"], arguments, call["refused"] is not None)
                    found = re.search(r'"id": "([^"]+)"', json.dumps(result))
                    first = first or (found[1] if found else "")

    run()


async def answer(agent: Agent, tool: str, arguments: dict[str, Any], refused: bool) -> Any:
    """What a call returns, or how it is refused."""
    return (await agent.refusal(tool, **arguments)).content if refused else await agent.call(tool, **arguments)
