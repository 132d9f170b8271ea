"""The workspaces that one server has open: the one in its folder, and those in `workspaces/NAME` below it.

A named workspace is opened on its first request, if its folder exists; a name is a plain word, never a path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from holdfast import errors
from holdfast.faces.http import sse
from holdfast.faces.http.auth import MAIN, check_space, is_space
from holdfast.faces.http.sse import Channels
from holdfast.types import Progress
from holdfast.workspace import Workspace, with_context
from holdfast.workspace.aio import AsyncWorkspace
from holdfast.workspace.context import Context

FOLDER: Final = "workspaces"
_REMEMBERED: Final = 1024  # actors whose handles are kept


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[Progress], None], progress: Progress) -> None:
    with suppress(RuntimeError):  # the loop has ended, so nobody watches any more
        loop.call_soon_threadsafe(function, progress)


def _plain_handle(workspace: Workspace, actor: str, _: type[str]) -> AsyncWorkspace:
    return AsyncWorkspace(with_context(workspace, Context(actor)))


class ServedWorkspace:
    """One workspace, with a handle for each actor that calls it."""

    def __init__(self, name: str, workspace: Workspace) -> None:
        self.name = name
        self.workspace = workspace
        self.channels = Channels()
        loop = asyncio.get_running_loop()
        self._listening = ExitStack()
        self._listening.enter_context(workspace.progress(lambda progress: _soon(loop, self._announce, progress)))
        self._kept = lru_cache(_REMEMBERED)(partial(_plain_handle, workspace))

    def handle(self, context: Context) -> AsyncWorkspace:
        """The workspace for calls in this context; handles of plain contexts are kept."""
        if context.plain:
            return self._kept(context.actor, type(context.actor))  # a derived actor is not the one somebody chose
        return AsyncWorkspace(with_context(self.workspace, context))

    def in_thread(self, context: Context) -> Workspace:
        """The same for use in a thread."""
        return with_context(self.workspace, context)

    def _announce(self, progress: Progress) -> None:
        self.channels.announce(sse.progress_frame(progress))

    def close(self) -> None:
        """Close the workspace."""
        self._listening.close()
        self.workspace.close()


class WorkspaceRegistry:
    """Every workspace of a server."""

    def __init__(self, folder: Path, open_one: Callable[[Path], Workspace]) -> None:
        self.folder = folder
        self._open_one = open_one
        self._open: dict[str, ServedWorkspace] = {}

    def get(self, name: str) -> ServedWorkspace:
        """A workspace by name, MAIN for the server's own; NotFound if it has no folder."""
        space = self._open.get(name)
        if space is not None and name != MAIN and space.workspace.is_lost:
            self.drop(name)  # its folder was removed; perhaps there is a new one
            space = None
        if space is None:
            folder = self.folder_of(name)
            if name != MAIN and not self._is_served(folder):
                hint = f"make the folder {FOLDER}/{name} in the server's folder"
                raise errors.NotFound(f"there is no workspace {name!r} here", hint=hint, name=name)
            space = self._open[name] = ServedWorkspace(name, self._open_one(folder))
        return space

    def folder_of(self, name: str) -> Path:
        """The folder of a workspace."""
        return self.folder if name == MAIN else self.folder / FOLDER / check_space(name)

    def names(self) -> list[str]:
        """All that can be served: the main one, and every folder with a valid name."""
        try:
            folders = sorted((self.folder / FOLDER).iterdir())
        except FileNotFoundError:
            folders = []
        except OSError as error:
            raise errors.Invalid(f"{self.folder / FOLDER} is not a folder: {error.strerror}") from error
        return [MAIN, *(each.name for each in folders if is_space(each.name) and self._is_served(each))]

    def _is_served(self, folder: Path) -> bool:
        return folder.is_dir() and not folder.is_symlink()

    def open(self) -> list[ServedWorkspace]:
        """Those that are open."""
        return list(self._open.values())

    def drop(self, name: str) -> None:
        """Close one, if it is open."""
        space = self._open.pop(name, None)
        if space is not None:
            space.close()

    def close(self) -> None:
        """Close them all."""
        while self._open:
            self._open.popitem()[1].close()
