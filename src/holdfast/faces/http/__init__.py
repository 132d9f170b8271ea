"""The HTTP face: REST, server-sent events and transactions over the table of operations.

`app` is one ASGI application: `auth` checks a request, `calls` finds its route and makes the call, `wire` reads its
arguments, and the operation runs on a workspace that `workspaces` has open; `sse` feeds all watchers of a workspace
from one reader. `server` runs the application: socket, TLS, background work (`operations`), an orderly stop.
"""
