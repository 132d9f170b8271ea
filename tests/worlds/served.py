"""One server for all tests of a process, each with a workspace and a clock of its own: starting one takes a while."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path

from holdfast.clock import Clock
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.server import Server
from holdfast.faces.http.workspaces import FOLDER, WorkspaceRegistry
from holdfast.workspace import Workspace, open_workspace

PATIENCE = 180  # seconds


class _Linked(WorkspaceRegistry):
    """Workspaces whose folders may be symbolic links."""

    def _is_served(self, folder: Path) -> bool:
        return folder.is_dir()


class SharedServer(Server):
    """A server in a thread, to which workspaces are added and from which they are removed while it runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Settings(folder=folder, port=0, max_watchers=100_000))
        self._clocks: dict[str, Clock] = {}
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self.run, name="holdfast-server", daemon=True)
        self._thread.start()
        assert self.ready.wait(PATIENCE), "the server does not start"
        self.token = (folder / "token").read_text().strip()

    def add(self, folder: Path, clock: Clock) -> str:
        """Serve the workspace in a folder, with this clock; answers its name."""
        name = f"w{next(self._numbers)}"
        self._clocks[name] = clock
        folder.mkdir(parents=True, exist_ok=True)
        place = self.settings.folder / FOLDER
        place.mkdir(exist_ok=True)
        (place / name).symlink_to(folder.resolve())
        return name

    def remove(self, name: str) -> None:
        """Close a workspace, whoever still uses it, and serve it no longer."""
        assert self._loop is not None

        async def drop() -> None:
            self.spaces.drop(name)

        asyncio.run_coroutine_threadsafe(drop(), self._loop).result()
        del self._clocks[name]
        (self.settings.folder / FOLDER / name).unlink()

    def end(self) -> None:
        """Stop it and remove everything."""
        self.stop()
        self._thread.join(PATIENCE)
        shutil.rmtree(self.settings.folder, ignore_errors=True)

    def _spaces(self) -> WorkspaceRegistry:
        return _Linked(self.settings.folder, self._open)

    def _open(self, folder: Path) -> Workspace:
        return open_workspace(folder, actor="server", clock=self._clocks.get(folder.name))


def shared_server() -> SharedServer:
    """The one of this process; a forked child has its own."""
    return _server_of(os.getpid())


@cache
def _server_of(_: int) -> SharedServer:
    server = SharedServer(Path(tempfile.mkdtemp(prefix="holdfast-served-")))
    atexit.register(server.end)
    return server
