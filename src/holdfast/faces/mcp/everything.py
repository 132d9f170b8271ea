"""The profile `all`: a tool for every operation that can travel, from the table of operations and nothing else.

Names, arguments, documentation and answers are those of Python, so `tasks.claim_next` is the tool `tasks_claim_next`.
Tokens are arguments here, and win over those that the session remembers. What is taken without a time ends after ten
minutes, and nobody waits longer than one, as with the core tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from holdfast.faces.encoding import wired
from holdfast.faces.http import codec
from holdfast.faces.http.calls import role_of
from holdfast.faces.mcp.callers import check_wait
from holdfast.faces.mcp.declaring import Tool
from holdfast.faces.mcp.locking import TTL
from holdfast.faces.mcp.marking import LONGEST, brief
from holdfast.faces.mcp.sessions import Held, Session
from holdfast.kernel.ids import is_uuid7
from holdfast.ops import REGISTRY, Operation, load_all
from holdfast.schemas import is_page, parameters, schemas
from holdfast.types.base import Grant
from holdfast.types.paths import PathLock
from holdfast.types.tasks import Task

_HELD: dict[str, tuple[Held, str]] = {
    **{"tasks": ("task", "id"), "locks": ("lock", "name"), "paths": ("path", "id")},
    "stashes": ("stash", "id"),
}
_TAKING: Final = ("locks.acquire", "cells.acquire_lock", "stashes.acquire", "paths.lock")


def derived() -> Iterator[Tool]:
    """A tool for each operation; streams are what the tool `watch` is for."""
    load_all()
    for op in REGISTRY.values():
        if op.route.http is not None and not op.route.local and op.kind != "stream":
            yield Tool(op.name.replace(".", "_"), op.summary, _schema(op), role_of(op) == "read", _runner(op))


def _schema(op: Operation[..., Any]) -> dict[str, Any]:
    """The schema of the arguments as one object, which clients want at the top."""
    asked, _ = schemas(op.name)
    named = asked["$defs"]
    top: dict[str, Any] = named.pop(asked["$ref"].rpartition("/")[2])
    return {**top, **({"$defs": named} if named else {})}


def _runner(op: Operation[..., Any]) -> Any:
    kind, name = _HELD.get(op.name.partition(".")[0], (None, ""))
    takes_token = any(each.name == "token" for each in parameters(op))

    async def run(session: Session, given: dict[str, Any]) -> Any:
        read = _bounded(op, codec.arguments(op, {}, b"", json.dumps(given).encode()))
        if kind == "stash" and takes_token and not is_uuid7(read["id"]):  # tokens are remembered by ids
            read["id"] = (await session.call("stashes.get", id=read["id"])).id
        id = read.get(name)
        if takes_token and kind is not None and isinstance(id, str) and read.get("token") is None:
            token = session.memory.find(kind, id)
            read |= {} if token is None else {"token": token}
        result = await session.call(op.name, **read)
        _remember(session, op, result, kind, id)
        if not is_page(op.name):
            return {"result": _short(result)}
        return {"result": [_short(item) for item in result], "cursor": result.cursor}

    return run


def _bounded(op: Operation[..., Any], read: dict[str, Any]) -> dict[str, Any]:
    """A lock that ends by itself, and a wait that the client has patience for, as with the core tools."""
    check_wait(read.get("wait"))
    if op.name in _TAKING and all(read.get(each) is None for each in ("ttl", "lease", "task")):
        return {**read, "ttl": TTL}
    return read


def _remember(session: Session, op: Operation[..., Any], result: Any, kind: Held | None, id: Any) -> None:
    """Keep the token of what the caller has taken, and forget that of what it has given back."""
    match result:
        case Task(claimed_by=holder, token=token):
            if holder != session.actor:
                session.memory.drop("task", result.id)
            elif op.method in ("claim", "claim_next"):
                session.memory.keep("task", result.id, token)
        case Grant(holder=holder) if holder == session.actor and op.name in ("locks.acquire", "locks.refresh"):
            session.memory.keep("lock", result.name, result.token)
        case Grant(holder=holder) if holder == session.actor and op.name in ("stashes.acquire", "stashes.refresh"):
            session.memory.keep("stash", result.name, result.token)
        case PathLock(holder=holder) if holder == session.actor and op.name == "paths.lock":
            session.memory.keep("path", result.id, result.token)
    if op.method == "release" and kind in ("lock", "path", "stash") and isinstance(id, str):
        session.memory.drop(kind, id)


def _short(item: Any) -> Any:
    """An answer whose fields are cut where they are long."""
    ready = wired(item)
    if isinstance(ready, dict):
        return {name: brief(value, LONGEST) for name, value in ready.items()}
    return brief(ready, LONGEST)
