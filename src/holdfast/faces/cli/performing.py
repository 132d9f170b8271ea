"""An operation as a command: call it, send the remembered token with it, remember what it granted, print its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import errors
from holdfast.faces.cli.words import Usage, as_moment
from holdfast.ops import Operation

if TYPE_CHECKING:
    from holdfast.faces.cli.session import Session

# What a token belongs to: the kind, and the arguments that name it.
_FENCED: Final = {
    "cells.release_lock": ("cell", "run", "cell"),
    "cells.refresh_lock": ("cell", "run", "cell"),
    "locks.release": ("lock", "name"),
    "locks.refresh": ("lock", "name"),
    "paths.release": ("path", "id"),
    "paths.refresh": ("path", "id"),
    "stashes.release": ("stash", "id"),
    "stashes.refresh": ("stash", "id"),
}
_FOR_GOOD: Final = ("tasks.purge", "events.compact")  # what nobody can undo: a backup first
_PATHS: Final = ("paths.lock", "paths.check", "paths.list")
_ENDING: Final = ("release", "release_lock")
_CLAIMING: Final = ("claim", "claim_next", "reclaim", "heartbeat", "park")


def perform(session: Session, op: Operation[..., Any], given: dict[str, Any]) -> int:
    """Do an operation and print its answer; 0, or 1 if a part of it failed."""
    arguments = arguments_from(given)
    if op.name in _PATHS:
        _from_here(session, arguments)
    writing = op.writes
    if op.name in _FOR_GOOD:
        from holdfast.faces.cli.commands.backups import snapshot

        snapshot(session)
    with session.open(writing) as workspace:
        result = call(session, workspace, op, arguments)
        if op.kind == "stream":
            for item in _items(result):
                session.out.line(op, item)
        else:
            if op.kind == "first" and result is None:
                raise errors.Timeout("nothing happened in that time", hint="wait longer with --timeout")
            session.out.result(op, result)
    if writing:
        after_writing(session)
    failed = op.name == "tasks.bulk" and not all(item.success for item in result.results)
    failed = failed or (op.name == "cycles.validate" and bool(result))
    return 1 if failed else 0


def _from_here(session: Session, arguments: dict[str, Any]) -> None:
    """Paths and patterns as the project calls them: on a command line they count from the current folder."""
    if "path" in arguments:
        arguments["path"] = _in_project(session, arguments["path"])
    if "patterns" in arguments:
        arguments["patterns"] = [_in_project(session, pattern) for pattern in arguments["patterns"]]


def _in_project(session: Session, path: str) -> str:
    found = session.in_project(path) if path else path
    if found is None:
        raise Usage(f"{path} lies outside of the project", hint="paths count from the current folder")
    return found


def after_writing(session: Session) -> None:
    """Have what was written copied out of the tree, where that is needed."""
    if session.place.folder is not None:
        from holdfast.faces.cli.rolling import after_write

        after_write(session.place.folder, session.environ)


def arguments_from(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation from what was given: durations as moments, pairs as arguments of their own."""
    arguments = dict(given)
    for name, future in (("since", False), ("until", True)):
        if name in arguments:
            arguments[name] = as_moment(arguments[name], future)
    arguments |= dict(arguments.pop("values", ()))
    if "conditions" in arguments:
        from holdfast.types.txn import AnyCondition, Op

        arguments["conditions"] = _typed(arguments["conditions"], list[AnyCondition], "CONDITIONS")
        for name in {"then", "otherwise"} & arguments.keys():
            arguments[name] = _typed(arguments[name], list[Op], name.upper())
    return arguments


def _typed(value: Any, wanted: Any, label: str) -> Any:
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise Usage(f"{label} cannot be read: {error}", hint="holdfast help txn") from error


def call(session: Session, workspace: Any, op: Operation[..., Any], arguments: dict[str, Any]) -> Any:
    """Call an operation, sending and keeping tokens."""
    if op.name.startswith("stashes.") and "id" in arguments:
        arguments = {**arguments, "id": _stash(workspace, op, arguments["id"])}
    if not op.writes:
        return _bound(workspace, op)(**arguments)
    holder = arguments.get("agent") or arguments.get("holder") or workspace.actor
    held = session.held(holder)
    thing = _thing(op, arguments)
    if thing is not None and "token" in op.function.__annotations__ and "token" not in arguments:
        token = held.token(*thing)
        if token is not None:
            arguments = {**arguments, "token": token}
    result = _bound(workspace, op)(**arguments)
    _keep(held, op, thing, result, holder)
    return result


def _bound(workspace: Any, op: Operation[..., Any]) -> Callable[..., Any]:
    domain, _, method = op.name.rpartition(".")
    call: Callable[..., Any] = getattr(getattr(workspace, domain) if domain else workspace, method)
    return call


def _stash(workspace: Any, op: Operation[..., Any], id: str) -> str:
    """What names a stash: a word that is no id is the name of a global one. Tokens are remembered by ids."""
    from holdfast.kernel.ids import is_uuid7

    named = id if "/" in id or is_uuid7(id) else f"/{id}"
    found: str = workspace.stashes.get(named).id if op.name in _FENCED and "/" in named else named
    return found


def _thing(op: Operation[..., Any], arguments: dict[str, Any]) -> tuple[str, ...] | None:
    """What an operation is about, if it can be held."""
    if op.name.startswith("tasks."):
        return ("task", arguments["id"]) if arguments.get("id") else None
    if op.name not in _FENCED:
        return None
    kind, *names = _FENCED[op.name]
    values = [arguments.get(name) for name in names]
    return (kind, *map(str, values)) if all(values) else None


def _keep(held: Any, op: Operation[..., Any], thing: tuple[str, ...] | None, result: Any, holder: str) -> None:
    """Remember what was granted, forget what is held no more."""
    token = getattr(result, "token", None)
    match op.name.split("."):
        case ["tasks", method] if result is not None and hasattr(result, "claimed_by"):
            if result.claimed_by != holder or token is None:
                held.forget("task", result.id)
            elif method in _CLAIMING:
                held.remember(token, "task", result.id)
        case ["locks", "acquire" | "refresh"]:
            held.remember(token, "lock", result.name)
        case ["cells", "acquire_lock" | "refresh_lock"]:
            held.remember(token, "cell", result.scope, result.name)
        case ["paths", "lock" | "refresh"]:
            held.remember(token, "path", result.id)
        case ["stashes", "acquire" | "refresh"]:
            held.remember(token, "stash", result.name)
        case [_, method] if method in _ENDING and thing is not None:
            held.forget(*thing)


def _items(watch: Any) -> Iterator[Any]:
    with watch:
        yield from watch
