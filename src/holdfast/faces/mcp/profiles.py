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
from typing import Any, Final

from holdfast import errors, wire
from holdfast.faces.mcp import coordination, tasks
from holdfast.faces.mcp.client import Session
from holdfast.faces.mcp.coordination import TTL
from holdfast.faces.mcp.prompts import PROMPTS, complete
from holdfast.faces.mcp.tool import (
    LONGEST,
    MARKS,
    ServerDefinition,
    Tool,
    brief,
    check_wait,
    converted,
    filled,
    listed,
    tool,
)
from holdfast.operation import REGISTRY, Operation
from holdfast.schema import is_page, schemas
from holdfast.wire import wired


def derived() -> Iterator[Tool]:
    """A tool for each operation; streams are what the tool `watch` is for."""
    for op in REGISTRY.values():
        if op.route.http is not None and not op.route.local and op.kind != "stream":
            name, schema, destroys = op.name.replace(".", "_"), _schema(op), bool(op.route.irreversible)
            run = _runner(op, schema.get("properties", {}))
            yield Tool(name, op.summary, schema, not op.writes, run, takes=destroys)


def _schema(op: Operation[..., Any]) -> dict[str, Any]:
    """The schema of the arguments as one object, which clients want at the top."""
    asked, _ = schemas(op.name)
    named = asked["$defs"]
    top: dict[str, Any] = named.pop(asked["$ref"].rpartition("/")[2])
    return {**top, **({"$defs": named} if named else {})}


def _runner(op: Operation[..., Any], properties: dict[str, Any]) -> Any:
    async def run(session: Session, given: dict[str, Any]) -> Any:
        read = wire.arguments(op, {}, b"", json.dumps(converted(listed(given, properties), properties)).encode())
        result = await op.on(session.ws)(**_bounded(op, read))
        if not is_page(op.name):
            return {"result": _short(result)}
        rest = filled(compacted=result.compacted)  # the rest of the past, which no page has
        return {"result": [_short(item) for item in result], "cursor": result.cursor, **rest}

    return run


def _bounded(op: Operation[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call that waits no longer than its client does, and takes no lock for ever."""
    check_wait(given.get("wait"))
    is_lock = op.route.grants and op.takes("wait")  # a claim has a time of its own, and no queue
    if is_lock and all(given.get(each) is None for each in ("ttl", "lease", "task")):
        return {**given, "ttl": TTL}
    return given


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
PROFILES: Final = ("core", "all")
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
    INSTRUCTIONS, _offered, coordination.FIXED, coordination.TEMPLATES, coordination.read, PROMPTS, complete
)
