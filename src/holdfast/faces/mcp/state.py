"""Cell tools: shared state that never loses an update."""

from __future__ import annotations

from typing import Annotated, Any, Final

from holdfast import errors
from holdfast.faces.encoding import wired
from holdfast.faces.mcp.marking import LONGEST, brief, filled, when
from holdfast.faces.mcp.sessions import Session
from holdfast.kernel.wire import from_wire

CELLS_LISTED: Final = 100


async def cell_get(
    session: Session,
    run: str,
    cell: Annotated[str | None, "default: list the cells of the run"] = None,
    whole: Annotated[bool, "do not cut a long value"] = False,
    cursor: Annotated[str | None, "of a list"] = None,
) -> Any:
    """Read a shared value and its version."""
    if cell is None:
        names = await session.call("cells.list", run=run, limit=CELLS_LISTED, **filled(after=cursor))
        return {"cells": names, **filled(cursor=names[-1] if len(names) == CELLS_LISTED else None)}
    found = await session.call("cells.get", run=run, cell=cell)
    value = wired(found.value)
    return {
        "value": value if whole else brief(value, LONGEST),
        "version": found.version,
        "updated": when(found.updated_at),
    }


async def cell_set(
    session: Session,
    run: str,
    cell: str,
    value: Any,
    expected: Annotated[int | None, "write only if it has this version; 0: only if there is none"] = None,
    ttl: Annotated[float | None, "seconds it lives; not with expected"] = None,
    lock: Annotated[str | None, "write only if you still hold this lock"] = None,
) -> Any:
    """Write a shared value. With expected it is compare-and-swap: VERSION_MISMATCH tells the present value."""
    given: dict[str, Any] = {"run": run, "cell": cell, "value": from_wire(value)}
    if expected is None:
        version = await session.call("cells.set", fence=lock, **given, **filled(ttl=ttl))
    elif ttl is not None:
        raise errors.Invalid("a compare-and-swap leaves the time that a cell lives as it is", hint="leave out ttl")
    else:
        version = await session.call("cells.cas", fence=lock, **given, expected=expected or None)
    return {"version": version}
