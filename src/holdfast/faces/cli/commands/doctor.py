"""`holdfast doctor`: what is wrong with a workspace, and what to do about it; `holdfast version`: what runs here.

Neither changes anything. Each finding has a level: ok, note (worth knowing), bad (exit code 1). Its advice never
destroys anything.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import apsw
import msgspec

from holdfast import errors
from holdfast.faces.cli import location
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands.nodes import describe_node
from holdfast.faces.cli.commands.store import backups_of, copy_problem, server_of
from holdfast.faces.cli.identity import identify
from holdfast.faces.cli.output import folded, printable
from holdfast.faces.cli.relay import describe_use
from holdfast.filesystem import recorded_log
from holdfast.hints import for_shell
from holdfast.types import DerivedActor

Level = Literal["ok", "note", "bad"]
Found = tuple[Level, str] | tuple[Level, str, str]  # of a check: what was found, and what to do
_TEXT: Final = 20  # the column where what was found begins
_SKEW: Final = 300  # seconds between the store's time and this clock
_UNSEEN: Final = timedelta(hours=1)
_LOOKED_AT: Final = 1000


class Finding(msgspec.Struct, frozen=True):
    """What was checked, the result, and what to do."""

    level: Level
    about: str
    text: str
    todo: str = ""


@command("doctor", more="Exit code 1 if something is bad. It changes nothing.")
def doctor(session: Session, given: dict[str, Any]) -> int:
    """Check the workspace for problems, and say what to do."""
    findings = [finding for look in _ALWAYS for finding in _looked(session, look)]
    if not any(finding.level == "bad" for finding in findings):
        findings += [finding for look in _INSIDE for finding in _looked(session, look)]
    session.out.say(findings, *(folded(each, session.out.stdout, _TEXT) for each in _lines(findings)))
    return 1 if any(each.level == "bad" for each in findings) else 0


def _lines(findings: list[Finding]) -> Iterator[str]:
    """The findings for people: one cause that stops several checks is printed once."""
    shown: dict[tuple[str, str], str] = {}
    for each in findings:
        first = shown.setdefault((each.text, each.todo), each.about)
        if first != each.about:
            yield f"{each.level:<4}  {each.about:<12}  as {first}"
            continue
        yield f"{each.level:<4}  {each.about:<12}  {printable(each.text)}"
        if each.todo:
            yield f"{'':{_TEXT}}{printable(each.todo)}"


DEVELOPMENT: Final = ("dev", "docs", "peers")  # extras that are not for users


class Versions(msgspec.Struct, frozen=True):
    """What runs here: programs, the newest schema it knows, and the extras whose packages are all installed."""

    holdfast: str
    python: str
    sqlite: str
    apsw: str
    schema: int
    extras: list[str]


@command("version", more="`holdfast --version` prints the first line alone.")
def version(session: Session, given: dict[str, Any]) -> int:
    """Print the versions of what runs here, the newest schema, and the extras that are installed."""
    now = versions()
    session.out.say(
        now,
        f"holdfast {now.holdfast}",
        f"Python {now.python}, SQLite {now.sqlite}, apsw {now.apsw}",
        f"schema {now.schema}; extras: {', '.join(now.extras) or 'none'}",
    )
    return 0


def versions() -> Versions:
    """Return the versions of this process."""
    from holdfast import __version__
    from holdfast.workspace.admin import newest_schema

    python = ".".join(map(str, sys.version_info[:3]))
    sqlite, wrapper = apsw.sqlite_lib_version(), apsw.apsw_version()
    return Versions(__version__, python, sqlite, wrapper, newest_schema(), _extras())


def _extras() -> list[str]:
    """The extras of the installed package whose packages are all there."""
    import re
    from importlib import metadata

    def plain(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    try:
        lines = metadata.requires("holdfast") or []
    except metadata.PackageNotFoundError:
        return []  # run from a source tree: nothing was installed with it
    needed: dict[str, set[str]] = {}
    for line in lines:
        if found := re.fullmatch(r"([\w.-]+).*\bextra == [\"']([\w-]+)[\"'].*", line):
            needed.setdefault(found[2], set()).add(plain(found[1]))
    installed = {plain(each.metadata["Name"]) for each in metadata.distributions()}
    return sorted(extra for extra, names in needed.items() if extra not in DEVELOPMENT and names <= installed)


def _looked(session: Session, look: Callable[[Session], Iterator[Found]]) -> Iterator[Finding]:
    about = look.__name__.strip("_")
    try:
        for level, text, *todo in look(session):
            yield Finding(level, about, text, *todo)
    except errors.HoldfastError as error:
        yield Finding("bad", about, error.message, for_shell(error.hint, session.out.at))
    except apsw.Error as error:
        yield Finding("bad", about, str(error), "check the disk")
    except OSError as error:
        yield Finding("bad", about, str(error), "check that this user may read and write it")
    except Exception as error:  # a damaged store can break any code that reads it
        yield Finding("bad", about, f"it cannot be read: {type(error).__name__}: {error}", _damaged(session))


def _damaged(session: Session) -> str:
    """What to do about damage: a replica has its log, others a backup first, otherwise what can be read."""
    from holdfast.workspace.admin import cure_of

    at, folder = session.out.place, session.place.folder
    if folder is not None and (cure := cure_of(folder)):
        return for_shell(cure, session.out.at)
    return (
        f"stop writing; holdfast restore{at} lists the backups: restore the latest into a new folder. If there is none,"
        f" holdfast backup --damaged FILE{at} saves what can be read, and holdfast restore FILE --dir NEW makes a"
        " workspace of it"
    )


def _workspace(session: Session) -> Iterator[Found]:
    place = session.place
    if not place.exists:
        yield "bad", f"there is none in {place.name} ({place.why})", "make one: holdfast init"
        return
    state = ""
    if place.folder is None:
        with session.open() as workspace:
            state = f", at revision {workspace.revision}"
    yield "ok", f"{place.name} ({place.why}){state}"


def _actor(session: Session) -> Iterator[Found]:
    who = identify(session)
    if isinstance(who.actor, DerivedActor):
        yield "note", f"{who.actor} is derived from user and host: it may not claim, lock or mail", "set HOLDFAST_ACTOR"
    elif "which refuses" in who.why:
        yield "bad", f"{who.actor}, {who.why}", f"act as {who.actor}, or use a token of your own"
    else:
        yield "ok", str(who.actor) if who.role is None else f"{who.actor}, {who.why}, with the role {who.role}"


def _versions(session: Session) -> Iterator[Found]:
    now = versions()
    yield "ok", f"holdfast {now.holdfast}, Python {now.python}, SQLite {now.sqlite}"


def _permissions(session: Session) -> Iterator[Found]:
    folder = session.place.folder
    if folder is None or not session.place.exists:
        return
    private = [folder, *(os.path.join(folder, name) for name in (location.STORE, "token", "tokens.json"))]
    open_to_all = [path for path in private if os.path.exists(path) and os.stat(path).st_mode & stat.S_IRWXO]
    others = [path for path in private if os.path.exists(path) and os.stat(path).st_uid != os.getuid()]
    for path in others:
        yield "note", f"{path} belongs to another user", "work as that user, or use a server"
    for path in open_to_all:
        yield "note", f"{path} is open to every user", f"chmod o= {path}"
    if not others and not open_to_all:
        yield "ok", "no other user can read it"


def _writable(session: Session) -> Iterator[Found]:
    if session.place.folder is not None and not os.access(session.place.folder, os.W_OK | os.X_OK):
        yield "bad", f"{session.place.folder} cannot be written from here", "allow writing in the sandbox"
        return
    role = identify(session).role
    if role == "read":
        yield "note", "the token may only read", "holdfast login with another, if you want to write"
    elif role == "agent":
        yield "ok", "the token may write"
    elif session.place.exists:
        with session.open() as workspace:
            workspace.tasks.release_stale_claims(timeout=_FOREVER)  # takes the write lock, and finds nothing
        yield "ok", "a transaction succeeded"


_FOREVER: Final = 315_360_000.0  # ten years


def _integrity(session: Session) -> Iterator[Found]:
    role = identify(session).role
    if role not in (None, "admin"):
        yield "note", f"not checked: the token has the role {role}", "holdfast doctor where the server runs checks it"
        return
    with session.open() as workspace:
        report = workspace.check()
    if report.ok:
        yield "ok", f"revision {report.revision}, {report.events} events, state and log agree"
    for problem in report.problems:
        todo = _damaged(session)
        if problem.startswith("cycle "):
            todo = "holdfast cycle recover KEY keeps a copy and restores the last good version"
        yield "bad", problem, todo


def _clock(session: Session) -> Iterator[Found]:
    with session.open() as workspace:
        ahead = workspace.clock_ahead
    if ahead > _SKEW:
        text = f"the workspace's time is {ahead:,.0f} s ahead of this machine's clock; one of them is wrong"
        yield "bad", text, "correct this machine's clock; if it is right: holdfast clock reset"
    else:
        yield "ok", "agrees with the workspace"


def _schema(session: Session) -> Iterator[Found]:
    if session.place.folder is None:
        return
    from holdfast.workspace.admin import schema_of

    schema, newest = schema_of(session.place.folder)
    if not schema:
        yield "bad", "there is none: the store is empty", "restore a backup into a new folder: holdfast restore"
    elif schema < newest:
        yield "note", f"{schema}, but the newest is {newest}", "holdfast upgrade, once all use this version"
    else:
        yield "ok", f"{schema}, the newest"


def _stuck(session: Session) -> Iterator[Found]:
    """Claims and locks without an expiry whose holders have not been seen for an hour."""
    now = datetime.now(UTC)
    with session.open() as workspace:
        seen = {agent.name: agent.seen_at for agent in workspace.agents.list(limit=_LOOKED_AT)}
        claims = workspace.tasks.list(status="in_progress", limit=_LOOKED_AT)
        locks = workspace.locks.list(limit=_LOOKED_AT)
        stashes = workspace.stashes.list(stash_type="lock", limit=_LOOKED_AT)
        paths = workspace.paths.list(limit=_LOOKED_AT)

    held: list[tuple[str, Any, datetime | None, str]]
    held = [(task.id, task.claimed_by, task.deadline, f"release {task.id} --force") for task in claims]
    for lock in locks:
        held.append((f"the lock {lock.name}", lock.holder, lock.expires_at, f"lock release {lock.name} --holder ..."))
    for stash in stashes:
        holder = stash.value and stash.value["holder"]
        held.append((f"the stash {stash.name}", holder, stash.held_until, f"stash release {stash.id} --holder ..."))
    found = False
    for what, holder, until, release in held:
        last = seen.get(holder)
        if holder and until is None and (last is None or now - last > _UNSEEN):
            found = True
            text = f"{what} is held by {holder}, not seen for an hour, and does not expire"
            yield "note", text, f"ask the holder; if it is gone: holdfast {release}"
    for each in paths:
        last = seen.get(each.holder)
        if last is None or now - last > _UNSEEN:
            found = True
            text = f"{', '.join(each.patterns)} is locked by {each.holder}, not seen for an hour"
            yield "note", text, f"ask the holder; if it is gone: holdfast path release {each.id} --force"
    if not found:
        yield "ok", "no claim or lock is held by an agent that is gone"


def _exposed(session: Session) -> Iterator[Found]:
    """Whether a server runs on this folder, who can reach it, and whether commands go through it."""
    if session.place.folder is None:
        yield "ok", "not checked: the workspace is reached through a server"
        return
    address = server_of(session.place.folder)
    if not address:
        yield "ok", "no server is running on it"
        return
    _, used = describe_use(session.place.folder)
    if any(word in address for word in ("127.0.0.1", "localhost", "[::1]", "unix:")):
        yield "ok", f"served on this machine only, {address}; {used}"
    else:
        yield "note", f"served to other machines, {address}; {used}", "holdfast token list shows who has access"


def _backups(session: Session) -> Iterator[Found]:
    if session.place.folder is None:
        return
    known = backups_of(session.place.folder, session.environ)
    if problem := copy_problem(session.place.folder, session.environ):
        yield (
            "note",
            f"no new one is kept outside the tree: {problem}",
            "work outside the sandbox, or: holdfast backup FILE",
        )
    if known:
        yield "ok", f"{len(known)}, the newest is {known[-1]}"
    else:
        yield "note", "there is none outside the workspace", "make one: holdfast backup"


def _log(session: Session) -> Iterator[Found]:
    """Whether the log of a replicated workspace can be reached, and how durable it is."""
    folder = session.place.folder
    if folder is None or recorded_log(folder) is None:
        return
    with session.open_local() as workspace:
        state = workspace.node_state()
    assert state is not None
    where, *doubts = describe_node(state)
    if state.lag is None:
        yield (
            "bad",
            where,
            "check that the server of the log runs, this machine's way to it and its login; writes wait for it",
        )
        return
    yield "ok", f"{where}; {doubts[0]}" if not state.doubts else where
    for doubt in state.doubts:
        yield "note", doubt, "see docs/engines.md"


def _rules(session: Session) -> Iterator[Found]:
    with session.open() as workspace:
        problems = workspace.routes.check()
    for problem in problems:
        yield "bad" if problem.severity == "error" else "note", str(problem), "correct the file"
    if not problems:
        yield "ok", "configuration and routes have no problems"


def _hooks(session: Session) -> Iterator[Found]:
    """Whether the hooks of the clients that are set up here work, and ever ran."""
    from pathlib import Path

    from holdfast.faces.cli.setup import probe
    from holdfast.faces.cli.setup.clients import CLIENTS, check
    from holdfast.faces.cli.setup.line import chosen

    root = Path(location.git_root(session.folder) or session.folder)
    for client in CLIENTS:
        for outcome in check(client, root) if chosen(root, client) is not None else ():
            again = f"holdfast setup {client}; or holdfast setup {client} --remove, if it is not to guard here"
            yield "bad", f"{client}: {outcome.what}", again
        for problem in probe.try_server(client, root, session.environ):
            yield "bad", f"{client}: {problem}", f"install that, or leave it out: holdfast setup {client} --no-mcp"
        if not probe.is_installed(client, root):
            continue
        if probe.can_try(client):
            for problem in probe.try_hooks(client, root, session.environ):
                yield "bad", f"{client}: {problem}", f"holdfast setup {client}"
        else:
            yield "note", f"{client}: not tried, because no temporary file can be written", "work outside the sandbox"
        for run in probe.last_runs(client, root, location.private_folder(session.place, session.environ)):
            if "never ran" in run:
                yield "note", run, f"if it is used here: {CLIENTS[client].trust}"
            else:
                yield "ok", run


_ALWAYS: Final = (_workspace, _actor, _versions)
_INSIDE: Final = (
    *(_log, _permissions, _writable, _schema, _integrity, _clock, _stuck),
    *(_exposed, _backups, _rules, _hooks),
)
