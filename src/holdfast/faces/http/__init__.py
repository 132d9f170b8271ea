"""The HTTP face: REST, server-sent events and transactions over the table of operations.

`connection` reads requests and hands them to `app`: `auth` checks a request, `calls` finds its route,
`wire` reads its arguments, and the operation runs on a workspace that `workspaces` has open; `sse` feeds all watchers
of a workspace from one reader. `server` runs both: connections, TLS, background work (`operations`), an orderly stop.
"""
