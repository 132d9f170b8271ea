"""Long polls: a list of events that waits, for clients that cannot hold a stream.

`GET /api/events?after=CURSOR&wait=20` answers at once if something came behind the cursor, else with what comes first,
and with an empty list when the time is over. The cursor of the next poll is in `X-Next-Cursor`.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast import errors
from holdfast.aio import AsyncWorkspace
from holdfast.kernel.names import check_seconds
from holdfast.types.base import Event, Page

ARGUMENT: Final = "wait"
MOST: Final = 60  # seconds


def check_wait(value: Any) -> float:
    """How long a poll may wait."""
    try:
        wait = float(value)
    except (TypeError, ValueError) as error:
        raise errors.Invalid(f"wait is seconds, not {str(value)[:80]!r}") from error
    check_seconds(wait, ARGUMENT)
    if wait > MOST:
        raise errors.Invalid(f"a poll waits at most {MOST} seconds", hint="ask again with the cursor you got")
    return wait


async def poll(handle: AsyncWorkspace, given: dict[str, Any], wait: float) -> Page[Event]:
    """The events of a list, as soon as there is one; the cursor of the page is where the next poll goes on."""
    if given.get("after") is None:
        given["after"] = await handle.revision()
    watching = {name: given[name] for name in ("kinds", "id", "after") if name in given}
    page: Page[Event]
    async with handle.watch(**watching, timeout=wait) as watch:
        found = await handle.events.list(**given)
        while not found and await anext(watch, None) is not None:
            found = await handle.events.list(**given)
        page = Page(found)
        page.cursor = found[-1].cursor if found else watch.bookmark
        return page
