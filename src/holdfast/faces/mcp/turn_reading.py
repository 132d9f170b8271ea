"""A shared file, read: whole as a resource, in parts by a tool, since many clients give a model no resources."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from holdfast import errors
from holdfast.faces.mcp import turn_holding
from holdfast.faces.mcp.callers import Caller
from holdfast.faces.mcp.marking import LONGEST, cut, filled
from holdfast.faces.mcp.turn_calls import files_of


async def turn_read(session: Caller, file: str, from_line: Annotated[int, "1"] = 1) -> Any:
    """A file of the folder; a long one in parts: go on at rest_from_line."""
    path, text = await text_of(session, file, seen=from_line == 1)
    lines = text.split("\n")
    count = len(lines) - (len(lines) > 1 and not lines[-1])
    if not 1 <= from_line <= count:
        raise errors.Invalid(f"{path} has {count} lines, and none is {from_line}", hint="lines are counted from 1")
    part, rest = _part(lines[from_line - 1 :])
    return {"file": path, "text": part, **filled(rest_from_line=len(lines) - rest + 1 if rest else None)}


async def text_of(session: Caller, file: str, *, seen: bool = True) -> tuple[str, str]:
    """The path of a file and what it says. Raises NotFound. `seen`: from its beginning, so that it may be replaced."""

    def look() -> tuple[str, str]:
        ((path, text),) = files_of(session).texts([file]).items()
        if text is None:
            raise errors.NotFound(f"there is no {path}")
        return path, text

    path, text = await asyncio.to_thread(look)
    if seen:  # if it changes before its next part is read, then what was read is not what it says
        turn_holding.saw(session, path, text)
    return path, text


def _part(lines: list[str]) -> tuple[str, int]:
    """As many lines as an answer may have, at least one, and how many are left."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line) + 1
        if size > LONGEST and count:
            return "\n".join([*lines[:count], ""]), len(lines) - count
    return cut("\n".join(lines), LONGEST), 0
