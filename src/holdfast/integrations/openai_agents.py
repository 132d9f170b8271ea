"""The `Session` of the OpenAI Agents SDK: a conversation that several processes and machines can share.

A session is a queue stash that is read as a list. Of what a workspace has, a queue fits best: one call appends all
items of a turn, next to each other and in the order of commits, without reading first, so nothing is overwritten and
nothing has to be tried again; an item is stored once; what is popped or cleared is gone, where the history of a cell
would keep it; events have sizes, never what was said; and all of it works over HTTP, where no function travels.

The protocol is structural, so this module imports nothing of the SDK.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from holdfast import errors

PREFIX: Final = "openai-agents/"
_PAGE: Final = 1000  # items of one read
_ATTEMPTS: Final = 8  # of an append to a session that others clear meanwhile


class HoldfastSession:
    """A conversation in a workspace, embedded or remote: `HoldfastSession("chat-1", holdfast.open(".holdfast"))`.

    What `add_items` has returned from is durable; its items stand next to each other, whoever else writes. With
    `ws.using(fence=...)` a process that has lost its lock writes nothing any more: it gets `Fenced`.
    """

    def __init__(self, session_id: str, ws: Any, *, session_settings: Any = None) -> None:
        if not isinstance(session_id, str) or not session_id:
            raise errors.InvalidName(f"session_id must be a name, not {session_id!r:.80}")
        self.session_id = session_id
        self.session_settings = session_settings
        self._ws = ws
        self._queue = (None, PREFIX + session_id)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items in order, or the latest so many; without a limit that of the session's settings holds."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        if limit is not None and limit < 0:
            raise errors.Invalid(f"limit must not be negative, but is {limit}", hint="leave it out to read everything")
        found: deque[Any] = deque(maxlen=limit)
        last = 0
        while True:
            try:
                page = await self._ws.aio.queues.list(self._queue, limit=_PAGE, after=last)
            except errors.NotFound:
                return []  # nothing was ever added, or it was cleared
            found.extend(item.value for item in page)
            if len(page) < _PAGE:
                return list(found)
            last = page[-1].number

    async def add_items(self, items: list[Any]) -> None:
        """Append items, all or none; at most 1,000 at once."""
        for attempt in range(_ATTEMPTS):
            try:
                if items:
                    await self._ws.aio.queues.put_all(self._queue, items)
                return
            except errors.NotFound:
                if attempt + 1 == _ATTEMPTS:
                    raise
                await self._create()

    async def _create(self) -> None:
        try:
            await self._ws.aio.stashes.create(self._queue[1], "queue")
        except errors.DuplicateName:
            return  # another process was first

    async def pop_item(self) -> Any | None:
        """Remove the latest item and return it, None if there is none; of two callers each gets another one."""
        try:
            item = await self._ws.aio.queues.pop(self._queue)
        except errors.NotFound:
            return None
        return None if item is None else item.value

    async def clear_session(self) -> None:
        """Remove the session with all its items."""
        try:
            await self._ws.aio.stashes.delete(self._queue)
        except errors.NotFound:
            return
