"""One call of the command line: which workspace, who acts, the operation it runs, and the tokens it remembers.

Tokens of claims and locks lie in the private folder of the workspace, or in the user's for a server: a process that
lost its claim and does not know it is fenced on the command line too.

A command gets the session with its arguments. The workspace is opened when it is first used, so that a command that
needs none works without one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from holdfast import client_sessions, errors
from holdfast.faces.cli import location
from holdfast.faces.cli.args import Argument, Usage, convert
from holdfast.faces.cli.output import Output, Screen, folded, place_options, printable
from holdfast.faces.cli.times import show_exact
from holdfast.route import hearing_existed

if TYPE_CHECKING:
    from holdfast.operation import Operation
    from holdfast.remote import RemoteWorkspace
    from holdfast.workspace import Workspace
    from holdfast.workspace.tokens import FileTokens


# What every command takes.
NOTHING: Final = 4  # the exit code of a command that found nothing to take
ONE_OF_SEVERAL: Final = "add --actor NAME with the name of your own session, which its start text says"
GLOBAL: Final = (
    Argument("dir", help="the folder of the workspace"),
    Argument("url", help="the address of a server, instead"),
    Argument("actor", help="who acts; else HOLDFAST_ACTOR", names="agent"),
    Argument("json", "flag", help="answer as JSON; also HOLDFAST_JSON=1"),
    Argument("quiet", "flag", short="-q", help="print the id alone"),
    Argument("times", "flag", help="print exact times, not how far from now they are"),
    Argument("key", help="an idempotency key: a repeated call gets the first answer"),
    Argument(
        "fence",
        of="LOCK:TOKEN",
        help="only while you hold this lock with this token; a cell is RUN/CELL, a stash TRAIL/NAME, /NAME or its id",
    ),
    Argument("at_least", of="REVISION", help="read nothing older than this, or latest"),
    Argument("direct", "flag", help="use the store itself, also if a server runs on the folder"),
    Argument("verbose", "flag", short="-v", help="say whether a server carries it out, or this process"),
    Argument("help", "flag", short="-h", help="show what a command takes"),
)


class Session:
    """A call, from its global options and the environment.

    `key` is that of its writes if none was given: what may be done twice, over a server and here, is done once.
    `brief`: it opens the workspace for one call.
    """

    timeout: float | None = (
        None  # seconds for a server elsewhere to answer, or for the turn to write here, if not usual
    )

    def __init__(
        self,
        given: Mapping[str, Any],
        environ: Mapping[str, str],
        *,
        key: str | None = None,
        brief: bool = False,
        streams: tuple[Screen, Screen] | None = None,
    ) -> None:
        if given.get("actor") == "":
            raise Usage("--actor must not be empty")
        self.given = given
        self.environ = environ
        self._key = key
        self._brief = brief
        self.out = Output(is_json(given, environ), bool(given.get("quiet")), environ, streams)
        self.out.at = place_options(given)
        self._start: str | None = None
        show_exact(bool(given.get("times")))

    def hear(self, message: str, hint: str) -> None:
        """Show a warning to the person or program that called."""
        from holdfast.hints import for_shell

        self.out.warn(message, for_shell(hint, self.out.at))

    @cached_property
    def folder(self) -> str:
        """The current folder."""
        try:
            return os.getcwd()
        except FileNotFoundError as error:
            raise errors.NotFound("the current folder is gone", hint="go to another, or name one with --dir") from error

    @property
    def start(self) -> str:
        """The folder from which the workspace is searched upwards: the current one, or that of a file."""
        return self.folder if self._start is None else self._start

    @start.setter
    def start(self, folder: str) -> None:
        self._start = folder

    @cached_property
    def place(self) -> location.Place:
        """The workspace that is meant. Raises NotFound, Closed if it was removed under a server, Corrupt if in part."""
        found = self.find_place()
        if found is None or not found.exists:
            from holdfast.faces.cli.commands.store import backups_of, check_unserved

            home = location.home(self.start)
            check_unserved(home if found is None else found.name)
            if found is None:
                raise location.missing(self.start, len(backups_of(home, self.environ)))
            if location.has_store(found.name):
                from holdfast.workspace.admin import check_there

                check_there(found.name)
        return found

    def find_place(self) -> location.Place | None:
        """The workspace that is meant, if there is one."""
        return location.find(self.given, self.environ, lambda: self.start)

    @property
    def chosen(self) -> str | None:
        """The actor, if a name was chosen."""
        return self.given.get("actor") or self.environ.get("HOLDFAST_ACTOR") or None

    @property
    def actor(self) -> str | None:
        """The actor, if a name was chosen, or recorded for the client's session that this call belongs to."""
        return self.chosen or self.recorded

    @cached_property
    def recorded(self) -> str | None:
        """The actor of the client's session that this process belongs to; None if there is none, or several."""
        place = self.find_place()
        return None if place is None else client_sessions.find_actor(location.private_folder(place, self.environ))

    @cached_property
    def told(self) -> dict[str, Any]:
        """What the server says of its token, whatever name was chosen; it is asked once."""
        from holdfast.workspace.context import derive_actor

        unnamed = {name: value for name, value in self.environ.items() if name != "HOLDFAST_ACTOR"}
        with self._reach(self.place.name, derive_actor(unnamed)) as workspace:
            return workspace.whoami()

    @property
    def bound(self) -> str | None:
        """The actor that the token of a server is bound to; None if it is bound to none, or in a folder."""
        place = self.find_place()
        return None if place is None or place.folder is not None else self.told["actor"]

    def acting(self, always: bool = False) -> str | None:
        """The actor in this workspace: on a server, a session acts as the one that its token is bound to.

        None if no name is known here: a server then decides. With `always` it is asked for its decision.
        """
        if self.chosen or not (always or self.recorded):
            return self.actor
        return self.bound or self.recorded

    def open(self, writing: bool = False, named: bool = False) -> Workspace | RemoteWorkspace:
        """The workspace, in the context of this call. A folder that was named is made by the first write.

        `named`: its actor is the name that its calls act under, also where only a server knows that.
        """
        place = self.place
        return self._connect(place.name, named) if place.folder is None else self.open_local(writing)

    def open_local(self, writing: bool = False) -> Workspace:
        """The workspace in a folder."""
        place = self.place
        assert place.folder is not None
        if os.path.isfile(place.folder):
            raise errors.Invalid(f"{place.folder} is a file ({place.why})", hint="name the folder of a workspace")
        if not place.exists and not (writing and place.chosen):
            raise errors.NotFound(
                f"there is no workspace in {place.folder} ({place.why})",
                hint=f"holdfast init --dir {place.folder} makes one",
            )
        from holdfast.workspace import open_briefly, open_workspace

        if not place.exists:
            self.out.note(f"there was no workspace in {place.folder}, so it is made")
        if self._brief or self.timeout is not None:
            opened = open_briefly(place.folder, self.actor, self.timeout)
        else:
            opened = open_workspace(place.folder, actor=self.actor)
        return opened.using(**self._context())

    def _connect(self, url: str, named: bool) -> RemoteWorkspace:
        return self._reach(url, self.acting(named)).using(**self._context())

    def _reach(self, url: str, actor: str | None) -> RemoteWorkspace:
        from holdfast.faces.cli.credentials import credentials
        from holdfast.remote import connect

        known = credentials(url, self.environ)
        trusted = known.certificate or True
        return connect(url, token=known.token, actor=actor, timeout=self._timeout(), verify=trusted)

    def _timeout(self) -> float:
        """Seconds after which a call to a server is given up."""
        if self.timeout is not None:
            return self.timeout
        chosen = self.environ.get("HOLDFAST_TIMEOUT") or "30"
        return float(convert(Argument("timeout", "seconds"), chosen, "HOLDFAST_TIMEOUT"))

    def _context(self) -> dict[str, Any]:
        given = self.given
        context: dict[str, Any] = {"key": given.get("key")}
        if given.get("fence"):
            name, _, token = given["fence"].rpartition(":")
            if not name or not token.isdigit():
                raise Usage(
                    "--fence is LOCK:TOKEN, such as deploy:40960",
                    hint="RUN/CELL:TOKEN is for the lock of a cell, /NAME:TOKEN for a global stash that is a lock",
                )
            context["fence"] = (name, int(token))
        at_least = given.get("at_least")
        if at_least is not None:
            if at_least != "latest" and not at_least.isdigit():
                raise Usage("--at-least is a revision, or latest")
            context["at_least"] = at_least if at_least == "latest" else int(at_least)
        return context

    def keyed(self, workspace: Any) -> Any:
        """The workspace for a write of this call. A server gets a key with each, so that its outcome can be settled."""
        key = self._key
        if key is None and self.place.url is not None:
            from secrets import token_hex

            key = f"auto-{token_hex(8)}"
        if key is None or self.given.get("key") is not None:
            return workspace
        from holdfast.workspace.context import PassingKey

        return workspace.using(key=PassingKey(key))

    @property
    def may_repeat(self) -> bool:
        """Whether a write of this call may return the answer of an earlier one."""
        return self._key is not None or self.given.get("key") is not None

    @property
    def several(self) -> str:
        """The actors of the client's sessions that act at once, any of which may be the caller."""
        place = self.find_place()
        try:
            if place is not None:
                client_sessions.actor_for(location.private_folder(place, self.environ))
        except client_sessions.Several as several:
            return str(several)
        return ""

    def explain(self, error: errors.InvalidHolder) -> errors.InvalidHolder:
        """A refusal for want of a name, which says so if several sessions act at once and none could be guessed."""
        several = self.several
        return error.among(several, ONE_OF_SEVERAL) if several else error

    def recorded_as(self, session: str) -> str | None:
        """The actor that hooks of this client recorded for a session, if they did."""
        return client_sessions.recorded_as(location.private_folder(self.place, self.environ), session)

    def note_hook(self, hook: str, session: str, actor: str, event: str) -> None:
        """Record a call by a client's hook, and which session its process belongs to."""
        folder = location.private_folder(self.place, self.environ)
        try:
            client_sessions.record(folder, hook, session, actor, event)
        except OSError as error:  # a read-only place: the guard still decides
            self.out.note(f"the session could not be recorded: {error.strerror}", "give --actor where a name is needed")

    def input(self) -> bytes:
        """What is on standard input."""
        return sys.stdin.buffer.read()

    def wrote(self) -> None:
        """Have what was written copied out of the tree, where that is needed."""
        folder = self.place.folder
        if folder is not None and location.git_root(os.path.dirname(folder)) is not None:
            from holdfast.faces.cli.commands.store import after_write

            after_write(self, folder)

    def tokens(self, holder: str) -> FileTokens:
        """The tokens of what a holder has here."""
        from holdfast.workspace.tokens import FileTokens

        return FileTokens(location.private_folder(self.place, self.environ), holder)


def is_json(given: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Whether answers, and errors, are JSON."""
    return bool(given.get("json", environ.get("HOLDFAST_JSON") not in (None, "", "0")))


def perform(session: Session, op: Operation[..., Any], given: dict[str, Any]) -> int:
    """Run an operation and print its result; 1 if it says that a part failed, NOTHING if its line names such a case."""
    result = run(session, op, given)
    if result is None and op.route.nothing:
        return NOTHING
    parts = result if isinstance(result, list) else [result]
    return int(any(getattr(part, "failed", False) for part in parts))


def run(session: Session, op: Operation[..., Any], given: dict[str, Any], *, explains: bool = False) -> Any:
    """Run an operation, print its result and return it. `explains`: the caller says why it is empty."""
    arguments = _arguments(session, op, _confirmed(session, op, given))
    with _backed_up(session, op), session.open(op.writes) as workspace:
        with hearing_existed() as existed:
            result = call(session, workspace, op, arguments)
        if op.kind == "stream":
            with result:
                for item in result:
                    session.out.line(op, item)
        else:
            if op.kind == "first" and result is None:
                raise errors.Timeout("nothing happened in that time", hint="wait longer with --timeout")
            _print(session, op, arguments | ({"existed": "already"} if existed else {}), result)
            tell_compacted(session, getattr(result, "compacted", None))
            if result == 0 or (result is None and op.route.nothing):
                tell(session, _nothing(session, op, arguments))
            elif result == [] and not session.out.quiet and not explains:
                tell(session, _nothing(session, op, arguments) or _none(op, arguments))
            for warning in getattr(result, "warnings", ()):
                if isinstance(warning, str):  # others are a part of the answer
                    session.out.note(warning)
    if op.writes:
        session.wrote()
    return result


def _print(session: Session, op: Operation[..., Any], arguments: dict[str, Any], result: Any) -> None:
    """Print the result of an operation; for people as the sentence of its line, which may be that of nothing alone."""
    out = session.out
    sentence = ""
    if out.json and "existed" in arguments:
        return out.data(result, existed=True)
    if op.route.done and not out.json and not out.quiet:
        sentence = _first(op.route.done, session, {**arguments, "result": _Result(result)})
    elif result is True and op.writes and not out.json and not out.quiet:
        sentence = "done"
    if not sentence:
        return out.result(op, result)
    if result or result is None or not op.route.nothing:
        out.text(folded(printable(sentence), out.stdout))
    return None


class _Result:
    """A result in a sentence: as it is, or counted: {result:tasks}."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __format__(self, what: str) -> str:
        if what:
            from holdfast.types import counted

            return counted(int(self._value), what)
        from holdfast.wire import json_text, wired

        return json_text(wired(self._value))


def _nothing(session: Session, op: Operation[..., Any], arguments: dict[str, Any]) -> str:
    """What its line says of an operation that found nothing to change."""
    return _first(op.route.nothing, session, arguments)


def _first(sentences: tuple[str, ...], session: Session, arguments: Mapping[str, Any]) -> str:
    """The first sentence whose arguments were given; empty if there is none."""
    known = dict(arguments)
    if "holder" not in known and any("{holder}" in words for words in sentences):
        known["holder"] = session.acting(always=True)
    for words in sentences:
        try:
            return words.format_map(known)
        except KeyError:
            continue
    return ""


def _confirmed(session: Session, op: Operation[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation, once the caller says that what nobody can undo is meant. Raises Usage, Invalid."""
    arguments = {name: value for name, value in given.items() if name != "yes"}
    if not op.route.irreversible or given.get("yes"):
        return arguments
    what = _first((op.route.irreversible,), session, arguments)
    if session.out.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Usage(f"{what}, and nobody can undo that; nothing was done", hint="--yes says that it is meant")
    session.out.note(f"{what}, and nobody can undo that")
    print("go on? yes or no: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise errors.Invalid("nothing was done", hint="")
    return arguments


# What the records of a domain are called, where it is not their own name.
_RECORDS: Final = {"mail": "messages", "paths": "locked paths", "routes": "problems"}
_PAGING: Final = {"cursor", "limit", "offset", "sort", "total", "before", "after"}


def _none(op: Operation[..., Any], arguments: dict[str, Any]) -> str:
    """That a list is empty, and whether that is due to what was asked for."""
    domain = op.name.partition(".")[0]
    records = _RECORDS.get(domain, domain)
    return f"no {records} match" if arguments.keys() - _PAGING else f"there are no {records}"


def tell(session: Session, words: str) -> None:
    """Say on standard error what a person should know of an answer; a program sees it from the data."""
    if words and not session.out.json:
        session.out.note(words)


def tell_compacted(session: Session, compacted: int | None) -> None:
    """Say that what was printed is not all that happened, if a part of the log is gone."""
    if compacted is not None:
        tell(session, f"events up to revision {compacted} were compacted: of these, this is what is left")


def _backed_up(session: Session, op: Operation[..., Any]) -> AbstractContextManager[None]:
    """A copy of the store from before an operation that nobody can undo."""
    if not op.route.irreversible:
        return nullcontext()
    from holdfast.faces.cli.commands.store import snapshot

    return snapshot(session)


def _arguments(session: Session, op: Operation[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation from what was given: paths as the project names them, pairs by their names."""
    from holdfast.faces.cli import paths
    from holdfast.faces.cli.derive import argument_kind
    from holdfast.ids import is_uuid7

    arguments: dict[str, Any] = {}
    for name, value in given.items():
        match argument_kind(op, name):
            case "path":
                arguments[name] = paths.name_of(session, value)
            case "paths":
                arguments[name] = [paths.pattern_of(session, each) for each in value]
            case "lock" if not is_uuid7(value):
                arguments[name] = paths.pattern_of(session, value)
            case "pairs":
                arguments |= dict(value)
            case _:
                arguments[name] = value
    return arguments


def call(session: Session, workspace: Any, op: Operation[..., Any], arguments: dict[str, Any]) -> Any:
    """Call an operation, sending and remembering tokens."""
    if op.writes:
        workspace = session.keyed(workspace)
    if not op.writes or op.held is None:
        return op.on(workspace)(**arguments)
    from holdfast.workspace.tokens import holder_of, learn, lookup_of, with_token, without_numbers

    holder = holder_of(arguments, workspace.actor)
    tokens = session.tokens(holder)
    if (lookup := lookup_of(op, arguments)) is not None:
        (name,) = op.held.arguments
        arguments = {**arguments, name: lookup.on(workspace)(arguments[name]).id}
    sent = with_token(tokens, op, arguments)
    try:
        result = op.on(workspace)(**sent)
    except errors.Fenced as error:
        raise without_numbers(error, arguments, holder, sent) from error
    learn(tokens, op, arguments, result, holder)
    return result
