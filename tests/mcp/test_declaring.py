"""What a tool answers to arguments that it cannot read: what is wrong, and what there is instead."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import errors
from holdfast.faces.mcp.profiles import CORE
from holdfast.faces.mcp.tool import Caller, Tool, tool
from holdfast.faces.mcp.turn_tools import TOOLS
from tests.mcp.clients import played

CHOOSING = [
    (each, name, schema["enum"])
    for each in (*CORE, *TOOLS)
    for name, given in each.schema["properties"].items()
    for schema in (given, given.get("items", {}))
    if "enum" in schema
]


WANTED = "its arguments are lock (string), wait (number)"


async def refusal(of: Tool, given: dict[str, Any]) -> errors.Invalid:
    with pytest.raises(errors.Invalid) as raised:
        await of.run(Caller("ann"), given)
    return raised.value


@pytest.mark.parametrize(("of", "name", "legal"), CHOOSING, ids=[f"{of.name}.{name}" for of, name, _ in CHOOSING])
@played
async def test_a_word_that_is_none_of_those_that_can_be_chosen_is_answered_with_them(
    of: Tool, name: str, legal: list[str]
) -> None:
    listed = of.schema["properties"][name]["type"] == "array"
    needed: dict[str, Any] = {
        each: {"array": [], "integer": 1, "number": 1, "boolean": True}.get(
            of.schema["properties"][each].get("type"), "x"
        )
        for each in of.schema.get("required", ())
    }
    for other, schema in of.schema["properties"].items():
        if other in needed and "enum" in schema:
            needed[other] = schema["enum"][0]
    error = await refusal(of, {**needed, name: ["none of them"] if listed else "none of them"})
    assert error.hint == f"{name} must be one of {', '.join(legal)}"


@played
async def test_what_a_tool_takes_is_told_in_words_that_fit_how_many_they_are() -> None:
    async def none(session: Any) -> Any:
        """Nothing."""

    async def one(session: Any, lock: str) -> Any:
        """One."""

    async def two(session: Any, lock: str, wait: float = 0) -> Any:
        """Two."""

    hints = [(await refusal(tool(each), {"colour": "red"})).hint for each in (none, one, two)]
    assert hints == ["it takes no arguments", "its only argument is lock (string)", WANTED]
    assert (await refusal(tool(two), {"lock": "x", "wait": "soon"})).hint == WANTED


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("bob", ["bob"]),
        ("bob, ada", ["bob, ada"]),  # a name may have a comma
        ('["bob", "ada"]', ["bob", "ada"]),
        ("[bob", ["[bob"]),
        (["bob"], ["bob"]),
        (None, None),
    ],
)
@played
async def test_i22_a_text_is_a_list_where_nothing_else_can_be_meant(given: Any, read: Any) -> None:
    async def send(session: Any, to: list[str] | None = None, subject: str = "") -> Any:
        """Send."""
        return to, subject

    assert await tool(send).run(Caller("ann"), {"to": given, "subject": '["s"]'}) == (read, '["s"]')
