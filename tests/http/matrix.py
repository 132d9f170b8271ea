"""The rows of the security matrix: for every address of a server a request that would succeed, and the server itself.

The rows come from the routes, the extras and the pages, their arguments from `write_cases` and from the names of what
reads ask for, so a new operation is in the matrix from its first day. Refused requests must leave `Site.state` alone.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote

import msgspec

import holdfast
from holdfast.clock import SystemClock
from holdfast.faces.http.app import LIVENESS
from holdfast.faces.http.auth import EVERY, MAIN, Tokens
from holdfast.faces.http.calls import Route, Routes
from holdfast.faces.http.pages import EXTRAS
from holdfast.operation import Operation, operation
from holdfast.route import Role
from holdfast.schema import parameters
from holdfast.testing import ManualClock
from holdfast.workspace import Workspace
from holdfast.workspace.context import ROLES
from tests.http.bare import Client, Request
from tests.http.running import PATIENCE, Running
from tests.worlds.contents import contents
from tests.worlds.kinds import World
from tests.worlds.write_cases import CASES, Case

ACTOR: Final = "ann"
BOB: Final = "bob"  # another agent, for whom a token of ACTOR may not act
STRANGER: Final = "zoe"  # whom the workspace has never seen
OTHER: Final = "other"  # a named workspace that begins as a copy of the main one
PAGES: Final[dict[str, Role]] = {
    **dict.fromkeys(("", "docs", "openapi.json", "readyz"), "read"),
    "metrics": "admin",
}
HOUR: Final = 3600.0  # longer than the matrix takes
BRIEFLY: Final = 0.01
_BOUND: Final = [*product(ROLES, (False, True))]
_QUERIED: Final = ("GET", "DELETE")


class Row(NamedTuple):
    """An address, and a request to it with everything right."""

    request: Request
    role: Role
    space: str | None  # the workspace that it belongs to; None for pages
    op: Operation[..., Any] | None
    args: dict[str, Any]

    @property
    def writes(self) -> bool:
        """Whether it is there to change something."""
        return self.op is not None and self.role != "read"

    @property
    def streams(self) -> bool:
        """Whether its answer goes on."""
        return self.op is not None and self.op.kind == "stream"


# --- arguments -------------------------------------------------------------------------------------------------------


class _Called:
    """Stands for a workspace, or an operation of it, and answers the arguments of a call by name."""

    def __init__(self, workspace: Workspace, name: str = "") -> None:
        self._workspace = workspace
        self._name = name

    def using(self) -> Workspace:
        return self._workspace

    def __getattr__(self, name: str) -> _Called:
        return _Called(self._workspace, f"{self._name}.{name}" if self._name else name)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        names = [each.name for each in parameters(operation(self._name))]
        return dict(zip(names, args, strict=False)) | kwargs


# What `write_cases` prepares for less time than the matrix takes, or with a clock of its own.
_LASTING: Final[dict[str, Callable[[World, Workspace], Any]]] = {
    **dict.fromkeys(("leases.refresh", "leases.revoke"), lambda _, ws: ws.leases.create(HOUR).id),
    **dict.fromkeys(("paths.release", "paths.refresh"), lambda _, ws: ws.paths.lock("doc/**", ttl=HOUR)),
    "clock.reset": Case._field_defaults["prepare"],
}


def arguments(ws: Workspace) -> dict[str, dict[str, Any]]:
    """Fill a workspace so that every operation with an address could succeed; answers their arguments."""
    cases = {name: case._replace(prepare=_LASTING.get(name, case.prepare)) for name, case in CASES.items()}
    nowhere = cast(World, None)
    ready = {prepare: prepare(nowhere, ws) for prepare in dict.fromkeys(case.prepare for case in cases.values())}
    ops = {route.op.name: route.op for route in Routes().all}
    called = cast(Workspace, _Called(ws))
    found = {name: case.call(called, ready[case.prepare]) for name, case in cases.items() if name in ops}
    found["tasks.release_stale_claims"] = {}  # with an age it is for admins
    found["tasks.import_"] = {"lines": ['{"format": "holdfast.task/1", "id": "hf-new", "title": "imported"}']}
    known = _known(ws, found) | {"column": "ready"}
    for name, op in ops.items():
        if name not in found:
            needed = [each.name for each in parameters(op) if each.default is each.empty]
            found[name] = {each: known.get(f"{name.partition('.')[0]}.{each}", known.get(each)) for each in needed}
            if op.kind in ("first", "stream"):
                found[name]["timeout"] = BRIEFLY
    return found


def holdings(ws: Workspace) -> dict[str, dict[str, Any]]:
    """Something of every kind that can be held, in the hands of ACTOR: how calls name it, and its token."""
    task = ws.tasks.claim(ws.tasks.create("held").id, ttl=HOUR)
    stash = ws.stashes.create("in hand", "lock").id
    path = ws.paths.lock("in/hand/**", ttl=HOUR)
    return {
        "task": {"id": task.id, "token": task.token},
        "lock": {"name": "in hand", "token": ws.locks.acquire("in hand", ttl=HOUR).token},
        "cell": {"run": "run", "cell": "in hand", "token": ws.cells.acquire_lock("run", "in hand", ttl=HOUR).token},
        "stash": {"id": stash, "token": ws.stashes.acquire(stash, ttl=HOUR).token},
        "path": {"id": path.id, "token": path.token},
        "thread": {"id": "in hand", "token": ws.threads.hold("in hand", ttl=HOUR).token},
    }


def _known(ws: Workspace, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What reads may ask for, by the names of their arguments."""
    task, path = found["tasks.claim"]["id"], found["paths.refresh"]["id"]
    trail = ws.trails.create("known").id
    held = ws.stashes.acquire(ws.stashes.create("known", "lock").id)
    link = ws.links.create("scoped_to", ws.stashes.create("linked", "context").id, trail).id
    cycle = ws.cycles.start().cycle_id
    return {
        **{"revision": ws.revision, "since": datetime.now(UTC) - timedelta(hours=1)},
        **{"run": "run", "cell": "cell", "version": 1, "text": "task", "path": "doc/a", "task": {"title": "task"}},
        **{"leases.id": found["leases.refresh"]["id"], "mail.id": found["mail.ack"]["id"], "paths.id": path},
        **{"tasks.id": task, "routes.id": task, "mail.task": task, "tasks.name": "release", "agents.name": "gone"},
        **{
            "stashes.id": held.name,
            "queues.id": found["queues.put"]["id"],
            "channels.id": found["channels.publish"]["id"],
            "stashes.token": held.token,
            "stashes.name": "known",
            "stashes.table": "trails",
            "trails.id": trail,
            "links.id": link,
            "cycles.key": cycle,
            "cycles.document": ws.cycles.export(cycle),
        },
        **{"threads.id": "chat", "items.namespace": "users/ada", "items.key": "theme"},
        **{"items.keys": [["users/ada", "theme"]]},
        **{"locks.name": "door", "locks.token": ws.locks.get("door").token, "paths.token": ws.paths.get(path).token},
    }


def called(route: Route, args: dict[str, Any], base: str, headers: Iterable[tuple[str, str]]) -> Request:
    """A call as a request."""
    target = base + route.path.removeprefix("/")
    for name in route.names:
        target = target.replace(f"{{{name}}}", quote(str(args[name]), safe=""))
    rest = {name: value for name, value in args.items() if name not in route.names}
    request = Request(route.method, target, tuple(headers))
    if route.op.kind == "stream":
        request = request.having("Accept", "text/event-stream")
    if route.method not in _QUERIED:
        return request.having("Content-Type", "application/json")._replace(body=msgspec.json.encode(rest))
    return request.asking(f"args={quote(msgspec.json.encode(rest))}") if rest else request


# --- the server ------------------------------------------------------------------------------------------------------


class Site:
    """A server with two workspaces that hold the same, and as many more as are asked for."""

    def __init__(self, folder: Path) -> None:
        self._seed, self._folder = folder / "seed", folder / "store"
        clock = ManualClock()
        clock.advance((SystemClock().wall() - clock.wall()) / 1e6 + HOUR)  # ahead, so that it can be reset
        with holdfast.open(self._seed, actor=ACTOR, clock=clock) as ws:
            self.arguments = arguments(ws)
            self.holdings = holdings(ws)
            ws.agents.register(BOB)
        shutil.copytree(self._seed, self._folder)
        self._copies: set[str] = set()
        self.copied(OTHER)
        self.running = Running(self._folder, "--access-log", "-")
        self.client = Client(self.running.url)
        self.host = self.running.url.removeprefix("http://")
        self.tokens = Tokens(self._folder)
        self.secrets = [self.running.token]  # which no answer and no log may show
        self.tickets: list[str] = []  # which no log may show
        self._logged: list[str] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)  # so that no log holds the server up
        self._judges: list[Workspace] = []
        self.tokens_of = {(role, bound): self.token(role, actor=ACTOR if bound else None) for role, bound in _BOUND}
        try:
            self._reader.start()
            self._judges += [holdfast.open(each, actor="judge") for each in (self._folder, self._named(OTHER))]
            self.rows = [*self._rows()]
        except BaseException:
            self.running.end()
            raise

    def _listen(self) -> None:
        assert self.running.process.stderr is not None
        self._logged.extend(self.running.process.stderr)

    def _named(self, name: str) -> Path:
        return self._folder / "workspaces" / name

    def copied(self, name: str) -> str:
        """A new workspace that holds what the others began with; answers the base of its addresses."""
        shutil.copytree(self._seed, self._named(name))
        self._copies.add(name)
        return f"/{name}/"

    # --- who asks ----------------------------------------------------------------------------------------------------

    def token(self, role: Role, workspace: str = EVERY, actor: str | None = None) -> str:
        """A new token's secret."""
        _, secret = self.tokens.create(role, workspace, actor)
        self.secrets.append(secret)
        return secret

    def revoke(self, secret: str) -> None:
        """Let a token be good for nothing; it was until now."""
        whoami = Request("GET", "/api/whoami", self.right).bearing(secret)
        answer = self.client.send(whoami)
        assert answer.status == 200
        self.tokens.revoke(msgspec.json.decode(answer.body)["token"])

    def ticket(self, base: str, secret: str | None = None) -> str:
        """A ticket for a workspace."""
        request = Request("POST", f"{base}api/ticket", self.right).bearing(secret or self.running.token)
        found: str = msgspec.json.decode(self.client.send(request).body)["ticket"]
        self.tickets.append(found)
        return found

    @property
    def right(self) -> tuple[tuple[str, str], ...]:
        """The headers of a request that is let in."""
        return (("Host", self.host), ("Authorization", f"Bearer {self.running.token}"), ("X-Agent-ID", ACTOR))

    # --- what is asked -----------------------------------------------------------------------------------------------

    def call(self, name: str, base: str = "/", /, **args: Any) -> Request:
        """An operation as a request with everything right."""
        route = next(route for route in Routes().all if route.op.name == name)
        return called(route, args or self.arguments[name], base, self.right)

    def _rows(self) -> Iterator[Row]:
        for space, base in ((MAIN, "/"), (OTHER, f"/{OTHER}/")):
            for route in Routes().all:
                args = self.arguments[route.op.name]
                task = {name: self.arguments["tasks.claim"]["id"] for name in route.names if name not in args}
                request = called(route, args | task, base, self.right)
                yield Row(request, route.op.role, space, route.op, args | task)
            for name, (method, role, *_) in EXTRAS.items():
                yield Row(Request(method, f"{base}api/{name}", self.right), role, space, None, {})
        for name, role in PAGES.items():
            yield Row(Request("GET", f"/{name}", self.right), role, None, None, {})

    @property
    def heads(self) -> list[Row]:
        """The rows of which the head alone can be asked for."""
        gets = [row for row in self.rows if row.request.method == "GET" and not row.streams]
        return [row._replace(request=row.request._replace(method="HEAD")) for row in gets]

    @property
    def open_row(self) -> Row:
        """The one address that needs no token."""
        return Row(Request("GET", f"/{LIVENESS}", self.right), "read", None, None, {})

    # --- what is there -----------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """Everything that is stored: each row of each table, the revisions, and which files there are beside copies."""
        files = {str(path) for path in self._folder.parent.rglob("*") if not self._copies & {*path.parts}}
        stores = [(judge.revision, contents(judge)) for judge in self._judges]
        return stores, {file for file in files if not file.endswith(("-wal", "-shm", "refusals.jsonl"))}

    def end(self) -> str:
        """Stop the server; answers what it logged."""
        self.client.close()
        for judge in self._judges:
            judge.close()
        try:
            code = self.running.stop()
            self._reader.join(PATIENCE)
        finally:
            self.running.end()
        logged = "".join(self._logged)
        assert code == 0, logged[-2000:]
        return logged


class Sites:
    """The server of a module of tests, and a new one after a test that left traces."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._site: Site | None = None
        self._clean: Any = None
        self.leaks: list[str] = []  # lines of logs with a token, a ticket, or the trace of a failure

    def clean(self) -> Site:
        """A server as it began."""
        if self._site is not None and self._site.state() != self._clean:
            self.end()
        if self._site is None:
            self._number += 1
            self._site = Site(self._folder / str(self._number))
            self._clean = self._site.state()
        return self._site

    def end(self) -> None:
        """Stop it, and look at what it logged."""
        if self._site is not None:
            site, self._site = self._site, None
            unsaid = (*site.secrets, *site.tickets, "Traceback")
            self.leaks += [line for line in site.end().splitlines() if any(word in line for word in unsaid)]
