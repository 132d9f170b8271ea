"""One call of the command line: which workspace, who acts, the operation it runs, and the tokens it remembers.

A file for each claim and lock, in a folder for each actor: calls of one actor may run at the same time. What is
remembered is sent with every later call on the same thing, so a process that lost its claim and does not know it is
refused on the command line too. They lie in the private folder of the workspace, or of the user for a server.

A command gets it with its arguments. The workspace is opened when it is first asked for, so that what needs none is not
in need of one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import errors
from holdfast.faces.cli import location
from holdfast.faces.cli.args import Argument, Usage, as_moment
from holdfast.faces.cli.output import Output

if TYPE_CHECKING:
    from holdfast.operation import Operation
    from holdfast.remote import RemoteWorkspace
    from holdfast.workspace import Workspace


_LONG = 100  # bytes; a file name has at most 255 characters


class Held:
    """What one actor holds, as far as this machine remembers."""

    def __init__(self, folder: str, actor: str) -> None:
        self._folder = os.path.join(folder, "held", _name(actor))

    def token(self, *thing: str) -> int | None:
        """The token of a claim or lock."""
        try:
            with open(self._path(thing), encoding="ascii") as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):  # never written, or cut short by a crash
            return None

    def remember(self, token: int, *thing: str) -> None:
        """It was granted; the file is there whole or not at all."""
        path = self._path(thing)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="ascii") as file:
            file.write(str(token))
        os.replace(partial, path)

    def forget(self, *thing: str) -> None:
        """It is held no more."""
        try:
            os.unlink(self._path(thing))
        except FileNotFoundError:
            return

    def _path(self, thing: tuple[str, ...]) -> str:
        return os.path.join(self._folder, _name("\0".join(thing)))


def _name(text: str) -> str:
    """A file name for any text; a long one by its digest, which costs an import that others need not pay."""
    content = text.encode("utf-8", "surrogatepass")
    if len(content) <= _LONG:
        return content.hex()
    from hashlib import sha256

    return sha256(content).hexdigest() + "-"


# What every command takes.
GLOBAL: Final = (
    Argument("dir", option="--dir", help="the folder of the workspace"),
    Argument("url", option="--url", help="the address of a server, instead"),
    Argument("actor", option="--actor", help="who acts; else HOLDFAST_ACTOR"),
    Argument("json", "flag", "--json", help="answer as JSON; also HOLDFAST_JSON=1"),
    Argument("quiet", "flag", "--quiet", "-q", help="print the id alone"),
    Argument("key", option="--key", help="an idempotency key: a repeated call gets the first answer"),
    Argument(
        "fence",
        option="--fence",
        of="LOCK:TOKEN",
        help="only while this lock is held with this token; of a cell RUN/CELL, of a stash TRAIL/NAME, /NAME or its id",
    ),
    Argument("at_least", option="--at-least", of="REVISION", help="read nothing older than this, or latest"),
    Argument("help", "flag", "--help", "-h", help="show what a command takes"),
)


class Session:
    """A call, from its global options and the environment."""

    def __init__(self, given: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        if given.get("actor") == "":
            raise Usage("--actor is followed by a name, and this one is empty")
        self.given = given
        self.environ = environ
        self.out = Output(is_json(given, environ), bool(given.get("quiet")), environ)

    @cached_property
    def folder(self) -> str:
        """The current folder."""
        try:
            return os.getcwd()
        except FileNotFoundError as error:
            raise errors.NotFound("the current folder is gone", hint="go to another, or name one with --dir") from error

    @cached_property
    def place(self) -> location.Place:
        """The workspace that is meant; NotFound if there is none."""
        found = self.find_place()
        if found is None:
            from holdfast.faces.cli.commands.store import backups_of

            raise location.missing(self.folder, len(backups_of(location.home(self.folder), self.environ)))
        return found

    def find_place(self) -> location.Place | None:
        """The workspace that is meant, if there is one."""
        return location.find(self.given, self.environ, lambda: self.folder)

    @property
    def actor(self) -> str | None:
        """Who acts, if somebody chose a name."""
        return self.given.get("actor") or self.environ.get("HOLDFAST_ACTOR") or None

    def open(self, writing: bool = False) -> Workspace | RemoteWorkspace:
        """The workspace, in the context of this call. A folder that was named is made by the first write."""
        place = self.place
        if place.folder is None:
            return self._connect(place.name)
        if not place.exists and not (writing and place.chosen):
            raise errors.NotFound(
                f"there is no workspace in {place.folder} ({place.why})", hint="holdfast init makes one"
            )
        from holdfast.workspace import open_workspace

        if not place.exists:
            print(f"holdfast: there was no workspace in {place.folder}, so it is made", file=sys.stderr)
        workspace = open_workspace(place.folder, actor=self.actor)
        return workspace.using(**self._context())

    def _connect(self, url: str) -> RemoteWorkspace:
        from holdfast.faces.cli.location import credentials
        from holdfast.remote import connect

        known = credentials(url, self.environ)
        return connect(url, token=known.token, actor=self.actor, verify=known.verify).using(**self._context())

    def _context(self) -> dict[str, Any]:
        given = self.given
        context: dict[str, Any] = {"key": given.get("key")}
        if given.get("fence"):
            name, _, token = given["fence"].rpartition(":")
            if not name or not token.isdigit():
                raise Usage("--fence is LOCK:TOKEN, such as deploy:40960, run/cell:40960 or /name:40960")
            context["fence"] = (name, int(token))
        at_least = given.get("at_least")
        if at_least is not None:
            if at_least != "latest" and not at_least.isdigit():
                raise Usage("--at-least is a revision, or latest")
            context["at_least"] = at_least if at_least == "latest" else int(at_least)
        return context

    def in_project(self, path: str) -> str | None:
        """A path as all worktrees of the project call it, from its root; None if it lies outside.

        What is given counts from the current folder. Patterns are paths here: only how they begin matters.
        """
        path = os.path.abspath(os.path.join(self.folder, path))
        root = location.git_root(os.path.dirname(path)) or self._project()
        relative = os.path.relpath(path, root)
        return None if relative.startswith("..") else relative.replace(os.sep, "/")

    def _project(self) -> str:
        """The root of a project without git: where its workspace lies."""
        above, name = os.path.split(self.place.folder or "")
        return above if name == location.FOLDER else self.folder

    def held(self, actor: str) -> Held:
        """What an actor holds here."""
        place = self.place
        if place.folder is not None:
            return Held(place.folder, actor)
        return Held(
            os.path.join(location.state_folder(self.environ), "servers", location.label(place.name, is_url=True)), actor
        )


def is_json(given: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Whether answers, and errors, are JSON."""
    return bool(given.get("json", environ.get("HOLDFAST_JSON") not in (None, "", "0")))


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
        from holdfast.faces.cli.commands.store import snapshot

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
        from holdfast.faces.cli.commands.store import after_write

        after_write(session.place.folder, session.environ)


def arguments_from(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation from what was given: durations as moments, pairs as arguments of their own."""
    arguments = dict(given)
    for name, future in (("since", False), ("until", True)):
        if name in arguments:
            arguments[name] = as_moment(arguments[name], future)
    arguments |= dict(arguments.pop("values", ()))
    if "conditions" in arguments:
        from holdfast.types import AnyCondition, Op

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
        return op.on(workspace)(**arguments)
    holder = arguments.get("agent") or arguments.get("holder") or workspace.actor
    held = session.held(holder)
    thing = _thing(op, arguments)
    if thing is not None and "token" in op.function.__annotations__ and "token" not in arguments:
        token = held.token(*thing)
        if token is not None:
            arguments = {**arguments, "token": token}
    result = op.on(workspace)(**arguments)
    _keep(held, op, thing, result, holder)
    return result


def _stash(workspace: Any, op: Operation[..., Any], id: str) -> str:
    """What names a stash: a word that is no id is the name of a global one. Tokens are remembered by ids."""
    from holdfast.ids import is_uuid7

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
