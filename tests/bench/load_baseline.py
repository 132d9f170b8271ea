"""The server that does nothing: the baseline of the load.

It is our server with its settings, and a request goes the whole way through it: Host, Origin, token, workspace, route,
role, body, arguments, actor, and back through the codec. Only the operation is missing: what it answers was found out
once, before the server started. So what ours takes longer is the operation: its handle, its group, its store, the disk.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import uvicorn

import holdfast
from holdfast import wire
from holdfast.faces.http import calls
from holdfast.faces.http.app import App, Scope, _read_body
from holdfast.faces.http.auth import Headers, Token
from holdfast.faces.http.calls import Response, Route
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.server import Server, tune
from holdfast.faces.http.sse import Receive, Send
from holdfast.faces.http.workspaces import ServedWorkspace
from holdfast.workspace.context import check_role


class Hollow(App):
    """An application that answers every call of an operation with one fixed result."""

    def __init__(self, app: App, results: dict[str, Any]) -> None:
        vars(self).update(vars(app))  # it takes its place
        self._results = results

    async def _call(
        self,
        route: Route,
        values: list[str],
        space: ServedWorkspace,
        token: Token,
        scope: Scope,
        headers: Headers,
        receive: Receive,
        send: Send,
    ) -> Response | None:
        check_role(route.op, token.role)
        body = await _read_body(scope, headers, receive)
        path = calls.path_arguments(route, values, headers)
        given = wire.arguments(route.op, path, scope["query_string"], body)
        calls.access_of(token, headers).check_actor(route.op, given)
        return calls.result_response(route, self._results[route.op.name], headers)


class HollowServer(Server):
    """A server with that application."""

    def __init__(self, settings: Settings, results: dict[str, Any]) -> None:
        super().__init__(settings)
        self._results = results

    def _config(self, app: Any, private: bool = False) -> uvicorn.Config:
        return super()._config(app if private else Hollow(app, self._results), private)


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
