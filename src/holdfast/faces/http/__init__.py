"""The HTTP face: REST, server-sent events and transactions over the table of operations.

A request comes in through `app` (one ASGI application), is refused by `gate` or `tokens` if it must be, found in
`routes`, read by `codec`, and awaited on the workspace that `spaces` has open; `streams` feeds all watchers of a
workspace from one reader. `serving` runs it: socket, TLS, background work, a stop that loses nothing.
"""
