"""The profiles: `core`, the tools agents need all day, and `all`, one for every operation that can travel.

Names, arguments, documentation and answers are those of Python, so `tasks.claim_next` is the tool `tasks_claim_next`.
Tokens are arguments here, and win over those that the session remembers. What is taken without a time ends after ten
minutes, and nobody waits longer than one, as with the core tools.

The core profile is short on purpose: its list is read by every model at the start of every session, so it stays under
3,000 tokens, which a test counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Literal, get_args

from holdfast import errors, wire
from holdfast.faces.mcp import coordination, tasks
from holdfast.faces.mcp.coordination import TTL
from holdfast.faces.mcp.session import Held, Session
from holdfast.faces.mcp.text import LONGEST, brief
from holdfast.faces.mcp.tool import MARKS, ServerDefinition, Tool, check_wait, tool
from holdfast.ids import is_uuid7
from holdfast.operation import REGISTRY, Operation
from holdfast.schema import is_page, parameters, schemas
from holdfast.types import Grant
from holdfast.types.agents import PathLock
from holdfast.types.tasks import Task
from holdfast.wire import wired
from holdfast.workspace.access import role_of

_HELD: dict[str, tuple[Held, str]] = {
    **{"tasks": ("task", "id"), "locks": ("lock", "name"), "paths": ("path", "id")},
    "stashes": ("stash", "id"),
}
_TAKING: Final = ("locks.acquire", "cells.acquire_lock", "stashes.acquire", "paths.lock")


def derived() -> Iterator[Tool]:
    """A tool for each operation; streams are what the tool `watch` is for."""
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
        read = _bounded(op, wire.arguments(op, {}, b"", json.dumps(given).encode()))
        if kind == "stash" and takes_token and not is_uuid7(read["id"]):  # tokens are remembered by ids
            read["id"] = (await session.ws.stashes.get(read["id"])).id
        id = read.get(name)
        if takes_token and kind is not None and isinstance(id, str) and read.get("token") is None:
            token = session.memory.find(kind, id)
            read |= {} if token is None else {"token": token}
        result = await op.on(session.ws)(**read)
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


INSTRUCTIONS: Final = (
    "Shared tasks, state, locks and mail of a fleet of agents. Work in a circle: task_claim (without id: the best"
    " ready one), do it, task_finish. Note progress with task_update, which keeps your claim alive too. Lock files with"
    " paths before you edit them. Look at mail_inbox between tasks. After FENCED or NOT_CLAIM_OWNER stop that work:"
    f" another has it. {MARKS}"
)
Profile = Literal["core", "all"]
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
WATCH: Final = tool(coordination.watch, reads=True)
CORE: Final = (
    tool(tasks.task_create),
    tool(tasks.task_list, reads=True),
    tool(tasks.task_show, reads=True),
    tool(tasks.task_claim),
    tool(tasks.task_update),
    tool(tasks.task_finish),
    tool(coordination.cell_get, reads=True),
    tool(coordination.cell_set),
    tool(coordination.lock),
    tool(coordination.paths),
    tool(coordination.mail_send),
    tool(coordination.mail_inbox),
    WATCH,
)


@cache
def tools_of(profile: str, turns: bool = False) -> dict[str, Tool]:
    """The tools of a profile, by name; `turns`: with those for turn files, which only the profile `all` has."""
    if profile == "core":
        return {each.name: each for each in CORE}
    if profile == "all":
        from holdfast.faces.mcp import turn_tools

        return {each.name: each for each in (*derived(), WATCH, *(turn_tools.TOOLS if turns else ()))}
    raise errors.Invalid(f"there is no profile {profile[:80]!r}", hint=f"there are {', '.join(PROFILES)}")


def _offered(session: Session) -> dict[str, Tool]:
    return tools_of(*session.tools)


WORKSPACE: Final = ServerDefinition(
    INSTRUCTIONS, _offered, coordination.FIXED, coordination.TEMPLATES, coordination.read
)
