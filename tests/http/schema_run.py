"""Hold a server to its OpenAPI document: thousands of calls made by schemathesis, each answer compared with it.

Every route of the operation table is called in four ways: with arguments that fit the document, with some that do not,
guided, where names, ids, tokens and states are put in that exist, so that it can succeed, and raw, where a guided call
is spoiled on its way: bytes that are not UTF-8 in its body or headers, a key that stands twice, a time at the end of
the calendar. A fault is a spoiled call that succeeds, an answer of 5xx, one that the document does not have (status,
content type, body, headers), an operation that the document lacks, or one that does not succeed.
`FIRST=0 python -m tests.http.schema_run --calls 20000` is the full run; test_schema.py has a slice.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from inspect import Parameter
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import quote

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from requests.structures import CaseInsensitiveDict
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core import NotSet
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

import holdfast
from holdfast.faces.http.calls import Route, Routes
from holdfast.schema import parameters
from holdfast.testing import ManualClock
from tests.amounts import seeds
from tests.http.running import PATIENCE, Running
from tests.long.ledger import record

ACTOR, OTHER = "ann", "bob"
SOON: Final = 0.02  # seconds: whatever waits or watches ends after this time
ROUNDS: Final = 4  # over all operations, so that each meets what the others leave behind
JSON, EVENTS = "application/json", "text/event-stream"
FITTING, WRONG, GUIDED, RAW = WAYS = ("fitting", "wrong", "guided", "raw")
NOT_UTF_8: Final = (b"\xff", b"\x80", b"\xc3(", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xfe")
HEADERS: Final = {"x-agent-id": "%fe", "idempotency-key": "%ff", "x-fence": "1 %fd", "x-at-least": "%c3"}
ENDS: Final = ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999Z")
CONFIG: Final = {"generation": {"with-security-parameters": False}, "output": {"sanitization": {"enabled": False}}}
CHECKS: Final = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
# Only generation: what fails is counted and not made smaller.
ONCE: Final = settings(phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck))
# Headers that are sent only where the document has them.
TOLD: Final = {"etag", "x-next-cursor", "x-total-count", "x-compacted"}


class World:
    """Things that exist, for guided calls; each maker answers all arguments that may speak of what it has made."""

    def __init__(self, ws: Any, folder: Path) -> None:
        self.ws, self.other = ws, ws.using(actor=OTHER)
        self._folder = folder
        self._numbers = count()
        self.fence = ws.locks.acquire(self.new("fence"))
        self.revision: int = ws.revision

    def new(self, what: str) -> str:
        """A name that nothing has."""
        return f"{what}-{next(self._numbers)}"

    def cell(self) -> dict[str, Any]:
        """A cell with a number that ends, locked by who calls."""
        run, cell = self.new("run"), self.new("cell")
        self.ws.cells.set(run, cell, 1, ttl=60)
        token = self.ws.cells.acquire_lock(run, cell, ttl=60).token
        return {"run": run, "cell": cell, "token": token, "version": 1, "expected": 1, "after_version": 0, "delta": 2}

    def lock(self) -> dict[str, Any]:
        """A lock that who calls holds."""
        grant = self.ws.locks.acquire(self.new("lock"), ttl=60)
        return {"name": grant.name, "token": grant.token}

    def task(self, *steps: str) -> dict[str, Any]:
        """A task after some steps, another one, and what may be said of it."""
        task, on = (self.ws.tasks.create(self.new("task"), tags=["backend"]).id for _ in range(2))
        more = {"complete": {"review": True}, "depend": {"on": on}}
        for step in steps:
            getattr(self.ws.tasks, step)(task, **more.get(step, {}))
        said = {"title": self.new("task"), "text": "a note", "tags": ["backend"], "status": "in_progress"}
        return {"id": task, "on": on, "parent_id": on, "kind": "depends_on", **said}

    def listed(self) -> dict[str, Any]:
        """A task that a list finds, and others that it does not show."""
        self.task()
        return {"limit": 1, "total": True, "tags": ["backend"], "text": "task"}

    def many(self) -> dict[str, Any]:
        """Tasks for a call about many."""
        given = {"action": "add_tags", "task_ids": [self.task()["id"]], "tags": ["many"]}
        return {**given, "lines": self.ws.tasks.export(limit=3), "format": "holdfast"}

    def template(self) -> dict[str, Any]:
        """A template."""
        name, tree = self.new("template"), {"title": "build {what}", "children": [{"title": "test"}]}
        self.ws.tasks.set_template(name, tree, {"what": "it"})
        return {"name": name, "tree": tree, "parameters": {"what": None}}

    def mail(self, *steps: str) -> dict[str, Any]:
        """A message to who calls about a task, after some steps."""
        sent = self.other.mail.send([ACTOR], self.new("subject"), task=self.task()["id"])
        for step in steps:
            getattr(self.ws.mail, step)(sent.id)
        return {"id": sent.id, "task": sent.task, "reason": "a test", "limit": 1, "text": "subject"}

    def path(self) -> dict[str, Any]:
        """A lock on a path that who calls holds, and a path that is free."""
        lock = self.ws.paths.lock(f"src/{self.new('path')}/**", ttl=60)
        free = f"src/{self.new('path')}"
        return {"id": lock.id, "token": lock.token, "path": free, "patterns": [free]}

    def trail(self, *steps: str) -> dict[str, Any]:
        """An active trail with a task after some steps, and a task of no trail."""
        trail, member = self.ws.trails.create(self.new("trail"), "active").id, self.task()["id"]
        self.ws.trails.add(trail, member)
        for step in steps:
            getattr(self.ws.trails, step)(trail)
        return {"id": trail, "trail": trail, "task": self.task()["id"], "state": "completed"}

    def stash(self, stash_type: str = "context") -> dict[str, Any]:
        """A stash of a trail at version 1, and what may be said of it."""
        trail = self.trail()["id"]
        stash = self.ws.stashes.create(self.new("stash"), stash_type, trail=trail)
        said = {"name": stash.name, "trail": trail, "stash_type": stash_type, "limit": 5, "offset": 0}
        return {"id": stash.id, "version": 1, "expected": 1, "value": {"a": 1}, "delta": 2, **said}

    def held(self) -> dict[str, Any]:
        """A stash that who calls holds."""
        known = self.stash("lock")
        return {**known, "token": self.ws.stashes.acquire(known["id"], ttl=60).token}

    def queue(self, *, taken: bool = False) -> dict[str, Any]:
        """A queue with an item, which who calls may have taken, and a dead letter."""
        known = self.stash("queue")
        self.ws.stashes.set_value(known["id"], {"max_deliveries": 1})
        self.ws.queues.put_all(known["id"], [1, 2])
        for wanted in (True, taken):
            item = self.ws.queues.take(known["id"], ttl=60) if wanted else None
            known["token"] = 1 if item is None else item.token
            if item is not None and item.number == 1:
                self.ws.queues.nack(known["id"], known["token"])
        return {**known, "values": [1], "state": "dead", "number": 1, "after": 0, "key": "key", "ttl": 60, "delay": 1}

    def channel(self) -> dict[str, Any]:
        """A channel with messages, to which who calls has subscribed."""
        known = self.stash("channel")
        self.ws.channels.publish(known["id"], 1)
        self.ws.channels.subscribe(known["id"], after=0)
        return {**known, "number": 1, "after": 0, "subscriber": ACTOR, "wait": 0}

    def thread(self) -> dict[str, Any]:
        """A thread with two checkpoints, and what may be said of a third."""
        id, run = self.new("thread"), self.new("run")
        for number in ("01", "02"):
            self.ws.threads.put(id, number, 1, {"log": number}, {"log": ["hi"]}, {"step": 1}, run=run)
        said = {
            "task": "task",
            "writes": [["log", 1]],
            "to": self.new("thread"),
            "runs": [run],
            "ns": "",
            "token": None,
        }
        given = {
            "channels": {"log": "1"},
            "values": {"log": 1},
            "older_than": "02",
            "limit": 5,
            "cursor": None,
            "where": {"step": 1},
        }
        return {"id": id, "checkpoint": "02", "parent": "01", "path": "", "prefix": "", "keep": 1, **said, **given}

    def item(self) -> dict[str, Any]:
        """An item, and how it may be found."""
        namespace = f"users/{self.new('label')}"
        self.ws.items.put(namespace, "key", {"a": 1}, ttl=60)
        found = {
            "where": {"a": 1},
            "prefixes": ["users/*"],
            "suffixes": [],
            "depth": 1,
            "limit": 5,
            "offset": 0,
            "cursor": None,
        }
        return {"namespace": namespace, "key": "key", "value": {"a": 2}, "keys": [[namespace, "key"]], **found}

    def link(self) -> dict[str, Any]:
        """A link, and the ends of one that is yet to be made."""
        made = self.ws.links.create("child_of", self.task()["id"], self.task()["id"])
        return {"id": made.id, "link_type": "child_of", "from_id": made.from_id, "to_id": self.task()["id"]}

    def cycle(self, *steps: str) -> dict[str, Any]:
        """A cycle after some steps of its plan, and what may be said of it."""
        spec = self.new("spec")
        key = self.ws.cycles.start(spec=spec).cycle_id
        for step in steps:
            getattr(self.ws.cycles, step)(key, "plan", *(("why",) if step == "fail_phase" else ()))
        sequence = self.ws.cycles.get(key).sequence
        said = {"spec": spec, "document": self.ws.cycles.export(key), "context": {"a": 1}, "after": ""}
        told = {"how": "refuse", "place": "a bucket"}
        return {"key": key, "phase": "plan", "output": {"a": 1}, "error": "why", "sequence": sequence, **said, **told}

    def now(self) -> dict[str, Any]:
        """A task and a cell, and a revision at which both are there."""
        return {**self.cell(), **self.task(), "revision": self.ws.revision}

    def log(self) -> dict[str, Any]:
        """A place in the log that many events follow."""
        for _ in range(25 - (self.ws.revision - self.revision)):
            self.ws.cells.set("run", "log", 1)
        return {"after": self.ws.revision - 25, "limit": 5, "before": 1}

    def ahead(self) -> dict[str, Any]:
        """A time that is ahead, because somebody with a wrong clock has written."""
        clock = ManualClock()
        clock.jump(time.time() + 600 - clock.wall() / 1e6)
        with holdfast.open(self._folder, actor=OTHER, clock=clock) as ws:
            ws.cells.set("run", "time", 1)
        return {}

    def written(self) -> dict[str, Any]:
        """A transaction to take back."""
        run = self.new("run")
        self.ws.cells.set(run, "cell", 1)
        return {"revision": self.ws.cells.get(run, "cell").revision, "last": False, "others": True}

    def txn(self) -> dict[str, Any]:
        """A transaction as data."""
        key = {"run": self.new("run"), "cell": "cell"}
        then = [{"op": "cells.set", "args": {**key, "value": 2}}, {"op": "cells.get", "args": key}]
        return {"conditions": [{"if": "not_exists", "kind": "cell", "key": list(key.values())}], "then": then}


# What makes operations succeed that hardly would by themselves: of a whole domain, or of one.
GUIDES: Final[dict[str, Callable[[World], dict[str, Any]]]] = {
    "cells": World.cell,
    "leases": lambda w: {"id": w.ws.leases.create(60).id},
    "locks": World.lock,
    "events": World.log,
    "watch": World.log,
    "txn": World.txn,
    "undo": World.written,
    "clock": World.ahead,
    "agents": lambda w: {"name": w.ws.agents.register(w.new("agent")).name},
    "tasks": World.task,
    "tasks.set_sharing": lambda w: {"on": True},
    "routes": World.task,
    "mail": World.mail,
    "paths": World.path,
    "stashes": World.stash,
    "queues": World.queue,
    "channels": World.channel,
    "channels.subscribers": lambda w: {**w.channel(), "after": ""},
    **dict.fromkeys((f"queues.{op}" for op in ("refresh", "ack", "nack")), lambda w: w.queue(taken=True)),
    "trails": World.trail,
    "cycles": World.cycle,
    "threads": World.thread,
    "threads.hold": lambda w: {"id": w.new("thread"), "wait": 0},
    "threads.history": lambda w: {**w.thread(), "values": True},
    "threads.list": lambda w: {**w.thread(), "after": ""},
    "items": World.item,
    "links": World.link,
    **dict.fromkeys(("tasks.as_of", "cells.as_of"), World.now),
    "activity": lambda w: {"since": (datetime.now(UTC) - timedelta(hours=1)).isoformat(), "bucket": 300},
    "agents.register": lambda w: {"name": w.new("agent")},
    "cells.init": lambda w: {**w.cell(), "cell": w.new("cell")},
    "locks.acquire": lambda w: {"name": w.new("lock")},
    "routes.decide": lambda w: {"task": {"title": w.new("task"), "tags": ["backend"]}},
    **dict.fromkeys((f"tasks.{op}" for op in ("list", "ready", "search", "claim_next", "export")), World.listed),
    **dict.fromkeys((f"tasks.{op}" for op in ("bulk", "import_")), World.many),
    **dict.fromkeys((f"tasks.{op}_template" for op in ("set", "get", "delete", "from")), World.template),
    "tasks.templates": World.listed,
    **dict.fromkeys(("tasks.reclaim", "tasks.heartbeat", "tasks.park"), lambda w: w.task("claim")),
    **dict.fromkeys(("tasks.release", "tasks.complete", "tasks.block"), lambda w: w.task("claim")),
    **dict.fromkeys(("tasks.unblock", "tasks.close"), lambda w: w.task("claim", "block")),
    **dict.fromkeys(("tasks.approve", "tasks.reject"), lambda w: w.task("claim", "complete")),
    **dict.fromkeys(("tasks.restore", "tasks.purge"), lambda w: w.task("delete")),
    "tasks.reopen": lambda w: w.task("cancel"),
    "tasks.undepend": lambda w: w.task("depend"),
    "tasks.defer": lambda w: {**w.task(), "until": (datetime.now(UTC) + timedelta(days=2)).isoformat()},
    **dict.fromkeys(("tasks.add_ref", "tasks.remove_ref"), lambda w: {**w.task(), "value": "main", "kind": "branch"}),
    "mail.send": lambda w: {"to": [OTHER], "subject": w.new("subject")},
    "mail.block": lambda w: w.mail("ack"),
    "mail.close": lambda w: {**w.mail(), "agent": OTHER},
    "mail.sent": lambda w: {**w.mail(), "agent": OTHER},
    "stashes.create": lambda w: {**w.stash(), "name": w.new("stash")},
    "stashes.increment": lambda w: w.stash("counter"),
    "stashes.acquire": lambda w: w.stash("lock"),
    **dict.fromkeys(("stashes.release", "stashes.refresh", "stashes.check"), World.held),
    "stashes.save": lambda w: {**w.stash(), "version": 2, "operation": "set"},
    "stashes.export": lambda w: {**w.stash(), "table": "stashes"},
    "stashes.import_": lambda w: {"tables": {"trails": w.ws.stashes.export("trails", limit=3)}},
    **dict.fromkeys(
        (f"cycles.{op}" for op in ("complete_phase", "fail_phase", "update_phase", "add_error", "finish")),
        lambda w: w.cycle("start_phase"),
    ),
    "cycles.start": lambda w: {"spec": w.new("spec"), "context": {}},
    "cycles.delete": lambda w: w.cycle("start_phase", "fail_phase"),
    "cycles.import_": lambda w: {"entries": {}},
    "trails.create": lambda w: {"name": w.new("trail"), "state": "draft"},
    "trails.remove": lambda w: {**(made := w.trail()), "task": w.ws.trails.members(made["id"])[0]},
    "trails.restore": lambda w: w.trail("abandon"),
    "trails.delete": lambda w: w.trail("abandon"),
}


def guide_of(route: Route) -> Callable[[World], dict[str, Any]]:
    """What makes an operation succeed: its own guide, that of its domain, or nothing."""
    return GUIDES.get(route.op.name) or GUIDES.get(route.op.name.partition(".")[0]) or (lambda _: {})


class Target:
    """A route, or what else a workspace can be asked: how it is described, and what came of calling it."""

    def __init__(self, name: str, described: Any, route: Route | None) -> None:
        self.name = name
        self.described = described
        self.route = route
        self.kind = "read" if route is None else route.op.kind
        self.arguments = {} if route is None else {each.name: each for each in parameters(route.op)}
        self.ways: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()

    def answered(self, hundreds: int) -> int:
        """How many answers were of a class, such as 2 for 2xx."""
        return sum(times for status, times in self.answers.items() if status // 100 == hundreds)


class Spoiling:
    """Spoils a request on its way, in one way that it can be spoiled. `must_fail` says why it cannot succeed, if so."""

    def __init__(self, random: Random, target: Target) -> None:
        self._random, self._target = random, target
        self.must_fail = ""
        self.sent: Any = None

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Spoil it: called by the session when everything else is prepared."""
        body = request.body if isinstance(request.body, bytes) else str(request.body or "").encode()
        ways: list[Callable[[requests.PreparedRequest, bytes], None]] = [self._header]
        if b'"' in body:
            ways += [self._bytes, self._twice]
        if "date-time" in str(self._target.described.definition.raw):
            ways += [self._time] * 2
        self._random.choice(ways)(request, body)
        self.sent = request.url, dict(request.headers), request.body
        return request

    def _header(self, request: requests.PreparedRequest, _: bytes) -> None:
        name = self._random.choice(list(HEADERS))
        request.headers[name] = HEADERS[name]
        self.must_fail = f"{name} is not UTF-8" if name == "x-agent-id" else ""  # reads do not look at the others

    def _bytes(self, request: requests.PreparedRequest, body: bytes) -> None:
        at = self._random.choice([found.end() for found in re.finditer(b'"', body)])
        request.body = body[:at] + self._random.choice(NOT_UTF_8) + body[at:]
        self.must_fail = "its body is not UTF-8"

    def _twice(self, request: requests.PreparedRequest, body: bytes) -> None:
        found = re.search(rb'\{\s*("[^"\\]*")\s*:', body)
        if found is not None:
            request.body = body[: found.start()] + b"{" + found[1] + b":null," + body[found.start() + 1 :]
            self.must_fail = "a key stands twice"

    def _time(self, request: requests.PreparedRequest, body: bytes) -> None:
        end = self._random.choice(ENDS)
        times = [name for name, each in self._target.arguments.items() if "datetime" in str(each.annotation)]
        if request.method in ("GET", "DELETE"):
            url = request.url or ""
            kept = re.sub(rf"(?<=[?&])({'|'.join(times)})=[^&]*&?", "", url).rstrip("?&") if times else url
            added = "&".join(f"{name}={quote(end)}" for name in times)
            request.url = f"{kept}{'&' if '?' in kept else '?'}{added}"
        else:
            request.body = re.sub(rb'"\d{4}-\d\d-\d\dT[^"]*"', f'"{end}"'.encode(), body)


class SchemaRun:
    """Calls of everything that one server can do, and the faults that they showed.

    `accepted` are calls that the document does not allow and the server does not refuse, which is no fault by itself.
    """

    def __init__(self, server: Running, seed: int) -> None:
        self._server, self._seed, self._random = server, seed, Random(seed)
        self._session = requests.Session()
        self._session.headers["authorization"] = f"Bearer {server.token}"
        self._ws: Any = holdfast.connect(server.url, token=server.token, actor=ACTOR)
        self._world = World(self._ws, server.folder)
        self.faults: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.targets = self._find_targets()

    def _find_targets(self) -> list[Target]:
        """Everything in the table, as the document that the server gives describes it."""
        address, config = f"{self._server.url}/openapi.json", schemathesis.Config.from_dict(CONFIG)
        schema = schemathesis.openapi.from_url(address, config=config, headers=dict(self._session.headers))
        schema.validate()
        operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
        described = {(each.method.upper(), each.path): each for each in operations}
        targets = [Target(each.path, each, None) for each in operations if "x-operations" not in each.definition.raw]
        for route in Routes().all:
            operation = described.get((route.method, route.path))
            if operation is None or route.op.name not in operation.definition.raw["x-operations"]:
                self.faults[f"{route.op.name}: {route.method} {route.path} is not in the document"] += 1
            else:
                also = "" if route.op.route.http == f"{route.method} {route.path}" else f" {route.path}"
                targets.append(Target(route.op.name + also, operation, route))
        return targets

    def run(self, calls: int) -> None:
        """Make so many calls, spread over everything there is."""
        rounds = min(ROUNDS, max(1, calls // (len(self.targets) * 16)))
        least, more = divmod(calls, rounds * len(self.targets))
        for at in range(rounds * len(self.targets)):
            target = self.targets[at % len(self.targets)]
            share = least + (at < more)
            plain = share // 4 if target.route else share  # what takes no argument can be called in one way
            self._generate(target, FITTING, plain, at)
            if target.route:
                raw = plain or share // 3
                self._generate(target, WRONG, plain, at)
                self._generate(target, RAW, raw, at)
                self._generate(target, GUIDED, share - 2 * plain - raw, at)

    def _generate(self, target: Target, way: str, calls: int, at: int) -> None:
        """Calls of one kind. Hypothesis makes fewer where there is not more to try: then it begins anew."""
        mode = GenerationMode.NEGATIVE if way == WRONG else GenerationMode.POSITIVE
        made = 0

        def use(case: Case[Any]) -> None:
            nonlocal made
            if made < calls:
                made += 1
                self._call(target, way, case)

        for again in range(calls):
            if made == calls:
                break
            drawn: Any = hypothesis.given(target.described.as_strategy(generation_mode=mode))
            some: Any = settings(ONCE, max_examples=calls - made)(drawn(use))
            hypothesis.seed(f"{self._seed} {at} {way} {again}")(some)()
        assert made == calls, f"{made} of {calls} calls of {target.name} could be generated"

    def _call(self, target: Target, way: str, case: Case[Any]) -> None:
        if target.kind in ("first", "stream"):
            case.query.setdefault("timeout", SOON)
        if way in (GUIDED, RAW) and target.route is not None:
            self._guide(target, target.route, case)
        spoiling = Spoiling(self._random, target) if way == RAW else None
        self._session.auth = spoiling
        self._restrain(case, "timeout" if target.kind in ("first", "stream") else "wait")
        self._session.headers["accept"] = wanted = EVENTS if target.kind == "stream" else JSON
        patience = PATIENCE / 6 if wanted == EVENTS else PATIENCE  # a stream that has not ended is hung up on
        answer = case.call(base_url=self._server.url, session=self._session, timeout=patience)
        target.ways[way] += 1
        target.answers[answer.status_code] += 1
        problems = _problems(case, answer, wanted)
        if spoiling is not None and spoiling.must_fail and answer.status_code < 400:
            problems.append(f"{answer.status_code} although {spoiling.must_fail}: {spoiling.sent!r}"[:1500])
        self.faults.update(f"{target.name}: {problem}" for problem in problems)
        if way == WRONG and not problems:
            lenient = _failures(case, answer, [checks.negative_data_rejection])
            self.accepted.update(f"{target.name}: {each}" for each in lenient)

    def _restrain(self, case: Case[Any], name: str) -> None:
        """Have the call end soon, and not ask for a revision that is yet to come, which is rightly Unavailable."""
        least = case.headers.get("X-At-Least", "")
        if least.isdigit():
            case.headers["X-At-Least"] = str(int(least) % self._world.revision)
        for given in (each for each in (case.query, case.body) if isinstance(each, dict)):
            asked = given.get(name)
            if isinstance(asked, int | float) and asked > SOON:
                given[name] = SOON

    def _guide(self, target: Target, route: Route, case: Case[Any]) -> None:
        """Put in what exists; of what is not needed, leave out most: it hardly fits together."""
        known = guide_of(route)(self._world)
        queried = route.method in ("GET", "DELETE")
        drawn: Any = case.query if queried else {} if isinstance(case.body, NotSet) else case.body
        given: dict[str, Any] = {}
        for name, argument in target.arguments.items():
            needed = argument.default is Parameter.empty or name == "timeout"
            if name in route.names:
                case.path_parameters[name] = known.get(name, case.path_parameters[name])
            elif name in known:
                given[name] = known[name]
            elif name in drawn and (needed or self._random.random() < 0.3):
                given[name] = drawn[name]
        if route.op.name == "watch" and self._random.random() < 0.3:
            given = {"after": given["after"]}  # there is enough to hear at once: schemathesis hangs up after 20 events
        if queried:
            case.query = given
        elif given or not isinstance(case.body, NotSet):
            case.body, case.media_type = given, JSON
        fence = f"{self._world.fence.token} {self._world.fence.name}"
        some = {"Prefer": "return=representation", "X-Fence": fence, "Idempotency-Key": self._world.new("key")}
        kept = {name: value for name, value in some.items() if self._random.random() < 0.3}
        case.headers = CaseInsensitiveDict({"X-Agent-ID": ACTOR, **kept})

    def finish(self, least: int) -> None:
        """What is to be said of the whole: every operation succeeds, and the store is sound."""
        for target in self.targets:
            if target.answered(2) < least:
                self.faults[f"{target.name}: {target.answered(2)} answers of 2xx, {dict(target.answers)}"] += 1
        self.faults.update(f"the store: {problem}" for problem in self._ws.check().problems)
        self._ws.close()
        self._session.close()

    def table(self) -> str:
        """What was called how often, and how it was answered."""
        rows: list[list[Any]] = [["operation", "calls", *WAYS, "2xx", "4xx", "5xx"]]
        for name, targets in [*((target.name, [target]) for target in self.targets), ("all", self.targets)]:
            ways = [sum(target.ways[way] for target in targets) for way in WAYS]
            answers = [sum(target.answered(each) for target in targets) for each in (2, 4, 5)]
            rows.append([name, sum(ways), *ways, *answers])
        return "\n".join(f"{row[0]:<46}" + "".join(f"{each:>9}" for each in row[1:]) for row in rows)


def _problems(case: Case[Any], answer: Response, wanted: str) -> list[str]:
    """What of an answer the document does not have."""
    if found := _failures(case, answer, CHECKS):
        return found
    content = answer.headers.get("content-type", [wanted])[0].partition(";")[0]
    if answer.status_code < 300 and (content == EVENTS) != (wanted == EVENTS):
        found.append(f"{answer.status_code} answered with {content}, not {wanted}")
    described = case.operation.definition.raw["responses"][str(answer.status_code)].get("headers", {})
    sent = TOLD & answer.headers.keys() - {name.lower() for name in described}
    return found + [f"{answer.status_code} {name} is not in the document" for name in sent]


def _failures(case: Case[Any], answer: Response, which: list[Any]) -> list[str]:
    try:
        case.validate_response(answer, checks=which)
    except FailureGroup as group:
        failures = [each for each in group.exceptions if isinstance(each, Failure)]
        told = [f"{answer.status_code} {each.title}: {each.message}"[:600] for each in failures]
        return [f"{each}\n{case.as_curl_command()}"[:1500] for each in told]
    return []


# What a server may say: a time that is ahead is what `clock.reset` needs.
WARNED = ("WARNING", "holdfast: the workspace's time is ", "accept it: holdfast clock reset")


def run(folder: Path, calls: int, seed: int = 0) -> SchemaRun:
    """So many calls of a server of its own; what came of them."""
    server = Running(folder)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(server.process.stderr or ()), daemon=True)
    reader.start()  # so that a server with much to say is not held up
    try:
        made = SchemaRun(server, seed)
        made.run(calls)
        made.finish(least=max(1, calls // 1000))
        assert server.stop() == 0
    finally:
        server.process.kill()  # no more than what has ended already, unless something failed
        reader.join(PATIENCE)
        server.end()
    made.faults.update(line for line in said if not any(each in line for each in WARNED))
    return made


def main() -> int:
    """The full run, from the command line; FIRST and SEEDS choose other seeds."""
    parser = argparse.ArgumentParser(description="Hold a server to its OpenAPI document.")
    parser.add_argument("--calls", type=int, default=20000, help="of each seed")
    given = parser.parse_args()
    return max(_play(seed, given.calls) for seed in seeds(1, 1))


def _play(seed: int, calls: int) -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        made = run(Path(folder) / "store", calls, seed)
    print(made.table())
    for what, found in (("accepted, although the document does not allow it", made.accepted), ("faults", made.faults)):
        print(f"{found.total()} {what}")
        for each, times in found.most_common(40):
            print(f"{times} x {each}")
    print(f"{time.monotonic() - started:.0f} s")
    ways = {f"{way}_calls": sum(target.ways[way] for target in made.targets) for way in WAYS}
    record("generated", range(seed, seed + 1), calls, made.faults.total(), operations=len(made.targets), **ways)
    return 1 if made.faults else 0


if __name__ == "__main__":
    sys.exit(main())
