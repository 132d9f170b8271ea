"""The event log as users see it: `ws.events`, and what `ws.watch` follows."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.kernel.events import compact, list_events, make_filter
from holdfast.kernel.tx import Snapshot
from holdfast.ops import Domain, Following, M, read, write
from holdfast.types.base import Event


def follow(
    snapshot: Snapshot,
    kinds: Sequence[str] | None = None,
    id: str | tuple[str, str] | None = None,
    after: int | str | None = None,
    timeout: float | None = None,
) -> Following[Event]:
    """Events as they come, after a revision or cursor, or from now on; `id` may be (scope, id), as (run, cell)."""
    return Following(make_filter(kinds, id), after, timeout, _as_it_is)


def _as_it_is(_: Snapshot, event: Event) -> Event:
    return event


class Events(Domain[M]):
    """`ws.events`."""

    prefix = "events"
    list = read(list_events, http="GET /api/events", cli="event list", mcp=True, listing=True)
    compact = write(compact, http="POST /api/events/compact", cli="event compact")
