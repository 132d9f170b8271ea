"""The workspaces that one server has open: the one in its folder, and those in `workspaces/NAME` below it.

A named workspace is opened when it is first asked for, if its folder is there; a name is a plain word, never a path.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast import errors
from holdfast.aio import AsyncWorkspace
from holdfast.context import Context
from holdfast.faces.http.tokens import MAIN
from holdfast.workspace import Workspace

FOLDER: Final = "workspaces"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_REMEMBERED: Final = 1024  # actors whose handles are kept


def check_space(name: str) -> str:
    """The name of a workspace that can be served."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise errors.InvalidName(
            f"{name[:80]!r} is not the name of a workspace",
            hint="1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit",
        )
    return name


class Space:
    """One workspace, and handles for the actors that call it."""

    def __init__(self, name: str, workspace: Workspace) -> None:
        self.name = name
        self.workspace = workspace
        self._handles: OrderedDict[str, AsyncWorkspace] = OrderedDict()

    def handle(self, context: Context) -> AsyncWorkspace:
        """A workspace that acts in this context; those of plain contexts are kept."""
        if not context.plain:
            return AsyncWorkspace(self.workspace.acting(context))
        key = f"{type(context.actor).__name__}:{context.actor}"
        found = self._handles.get(key)
        if found is None:
            found = self._handles[key] = AsyncWorkspace(self.workspace.acting(context))
            if len(self._handles) > _REMEMBERED:
                self._handles.popitem(last=False)
        else:
            self._handles.move_to_end(key)
        return found


class Spaces:
    """Every workspace of a server."""

    def __init__(self, folder: Path, open_one: Callable[[Path], Workspace]) -> None:
        self.folder = folder
        self._open_one = open_one
        self._open: dict[str, Space] = {}

    def get(self, name: str) -> Space:
        """A workspace by its name, "" being the main one; NotFound if it has no folder."""
        space = self._open.get(name)
        if space is None:
            folder = self.folder if name == MAIN else self.folder / FOLDER / check_space(name)
            if name != MAIN and not folder.is_dir():
                raise errors.NotFound(f"there is no workspace {name!r} here", name=name)
            space = self._open[name] = Space(name, self._open_one(folder))
        return space

    def open(self) -> list[Space]:
        """Those that are open."""
        return list(self._open.values())

    def close(self) -> None:
        """Close them all."""
        while self._open:
            self._open.popitem()[1].workspace.close()
