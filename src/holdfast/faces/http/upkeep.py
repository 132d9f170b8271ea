"""What a server does beside answering: claims of the dead at its start, the write-ahead log, backups.

Expiry and retention need no help: they belong to every open workspace (`kernel.wake.Pulse`), so the server opens all of
its workspaces when it starts. What fails here is logged and counted, and tried again when its time comes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from holdfast import errors
from holdfast.faces.http.settings import Settings
from holdfast.faces.http.spaces import Space, Spaces

CHECKPOINT_EVERY: Final = 15.0  # seconds
SUFFIX: Final = ".backup"
_log = logging.getLogger("holdfast.http")


class Upkeep:
    """The background work of one server."""

    def __init__(self, spaces: Spaces, settings: Settings) -> None:
        self._spaces = spaces
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self.backups = 0
        self.failures = 0

    async def start(self) -> None:
        """Open every workspace, give back what the dead held, and go on in the background."""
        for name in self._spaces.names():
            await self._attempt(f"the start of {name or 'the main workspace'}", self._begin(name))
        self._tasks.append(asyncio.ensure_future(self._repeat(CHECKPOINT_EVERY, self._checkpoint)))
        every = self._settings.backup_every
        if every is not None:
            self._tasks.append(asyncio.ensure_future(self._repeat(every, self.back_up)))

    async def _begin(self, name: str) -> None:
        """Give back what agents held that gave no sign of life while no server ran."""
        space = self._spaces.get(name)
        await asyncio.to_thread(space.workspace.tasks.release_stale_claims)

    async def stop(self) -> None:
        """End it, with a last backup if any are wanted."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._settings.backup_folder is not None:
            await self.back_up()

    async def back_up(self) -> None:
        """A backup of every workspace, and an end to the oldest of them."""
        assert self._settings.backup_folder is not None
        for space in self._spaces.open():
            await self._attempt("backup", asyncio.to_thread(self._back_up, space, self._settings.backup_folder))

    def _back_up(self, space: Space, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = {"": "main", "main": "main@"}.get(space.name, space.name)  # no name of a workspace has an @
        space.workspace.backup(folder / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{SUFFIX}")
        self.backups += 1
        mine = sorted(path for path in folder.glob(f"{name}-*{SUFFIX}") if _is_backup_of(path, name))
        for old in mine[: -self._settings.backups_kept]:
            old.unlink(missing_ok=True)

    async def _checkpoint(self) -> None:
        for space in self._spaces.open():
            await self._attempt("checkpoint", asyncio.to_thread(space.workspace.checkpoint))

    async def _repeat(self, seconds: float, work: Any) -> None:
        while True:
            await asyncio.sleep(seconds)
            await work()

    async def _attempt(self, what: str, work: Any) -> None:
        try:
            await work
        except (errors.HoldfastError, OSError) as error:
            self.failures += 1
            _log.error("%s failed: %s", what, error)


def _is_backup_of(path: Path, name: str) -> bool:
    """Whether a file is one of ours: another workspace's name may begin with this one's."""
    rest = os.fspath(path.name)[len(name) + 1 : -len(SUFFIX)]
    return len(rest) == len("20260101T000000.000000") and rest.replace("T", "").replace(".", "").isdigit()
