"""The server that does nothing: the baseline of the load.

It is our server with its settings, and a request goes the whole way through it: Host, Origin, token, workspace, route,
role, body, arguments, actor, and back through the codec. Only the operation is missing: what it answers was found out
once, before the server started. So what ours takes longer is the operation: its handle, its group, its store, the disk.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast import wire
from holdfast.faces.http import calls
from holdfast.faces.http.app import App
from holdfast.faces.http.auth import Gate
from holdfast.faces.http.calls import Route
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.request import Request
from holdfast.faces.http.server import Server, tune
from holdfast.faces.http.workspaces import ServedWorkspace, WorkspaceRegistry


class Hollow(App):
    """An application that answers every call of an operation with one fixed result."""

    results: dict[str, Any]

    def _call(self, request: Request, route: Route, named: dict[str, str], space: ServedWorkspace) -> None:
        path = calls.with_version(named, route, request.headers)
        given = wire.arguments(route.op, path, request.query, request.body)
        assert request.token is not None
        headers = request.headers
        self._access_of(request.token, headers.get(calls.ACTOR), headers.get(calls.DERIVED)).check_actor(
            route.op, given
        )
        self.finish(request, route, self.results[route.op.name])


class HollowServer(Server):
    """A server with that application."""

    def __init__(self, settings: Settings, results: dict[str, Any]) -> None:
        super().__init__(settings)
        self._results = results

    def _application(self, spaces: WorkspaceRegistry) -> App:
        app = Hollow(spaces, self.tokens, Gate(self._hosts(), tls=False), self.settings)
        app.results = self._results
        return app


def results_of(folder: Path) -> dict[str, Any]:
    """What each operation of the load answers, once, on the store of this folder."""
    with holdfast.open(folder, actor="bench") as ws:
        return {
            "tasks.claim_next": ws.tasks.claim_next("agent-00"),
            "cells.set": ws.cells.set("bench", "cell-0000", "plan"),
        }


def main(folder: Path) -> None:
    """Serve a folder with ready tasks until told to stop."""
    tune()
    server = HollowServer(Settings(folder=folder, port=0), results_of(folder))
    server.run(lambda: print(f"listening on {server.url}", flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
