"""Clients whose server is killed again and again, and their parent's end.

`python -m tests.e2e.server_kill_client ROLE URL SEED`: the threads of the process, each an agent of its own, share one
connected workspace and work until something comes on stdin; watchers until they have seen the last events. The token is
in HOLDFAST_TOKEN. Of all they are told they say a line of JSON: `call` (what became of a call), `again` (an answered
call, repeated with its key, was answered alike), `saw` (an event), `opened`, `connected` and `lost` (how a watch
fares). Anything else that happens to one of them ends the process.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import httpx
import msgspec

import holdfast
from holdfast import errors, remote
from holdfast.operation import operation
from holdfast.remote import RemoteWorkspace, stream
from holdfast.remote.http1 import Response
from holdfast.testing.crowd import LONG, start
from holdfast.types.agents import Message
from holdfast.types.tasks import Task

ROOT = Path(__file__).parents[2]
RUN, COUNT = "kill", "count"  # the cell in which all writers count
WORK = "work"  # the tag of tasks for claimers
TTL = 1.0  # of their claims: those whose answer is lost come back while the servers are still killed
THREADS = 3
ATTEMPTS = 600  # a call or a watch is tried so often, and not for ever
PAUSE = 0.05  # between two attempts
BACK = 20  # so many answered calls are remembered, to be repeated
END = "end"  # the actor of the last event of each kind
KINDS = ("task", "message", "cell")


class Wanted(NamedTuple):
    """What a watch is to hear, and after which cursor it begins."""

    kinds: list[str] | None
    after: int | str


WATCHES: Final = {
    "all": Wanted(None, 0),
    "tasks": Wanted(["task"], 0),
    "mail": Wanted(["message"], 1),
    "mail and cells": Wanted(["message", "cell"], "1-600"),
    "restless": Wanted(None, 1),  # goes away after some events, and comes back
}
RAW: Final = {"raw": Wanted(None, 0), "raw tasks": Wanted(["task"], "1-600")}

stop = threading.Event()


def say(*words: object) -> None:
    """One write of a short line is atomic: what the other side reads of it is whole."""
    os.write(1, json.dumps(words).encode() + b"\n")


# --- in the parent ---------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """What a client was told of a call: an error's code, or `ok` and what the answer says of the call's event."""

    actor: str
    op: str
    what: Any
    said: str
    answer: Any
    attempt: int
    began: int

    @property
    def acknowledged(self) -> bool:
        """Whether something was done."""
        return self.said == "ok" and self.answer is not None


class Heard:
    """All that the clients have said."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.seen: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)  # cursor and digest, by watch
        self.counts: Counter[str] = Counter()
        self._more = threading.Condition()

    def add(self, word: str, *rest: Any) -> None:
        """One line."""
        with self._more:
            self.counts[word] += 1
            if word == "saw":
                self.seen[rest[0]].append((rest[1], rest[2]))
            elif word == "call":
                self.calls.append(Call(*rest))
                self.counts["acknowledged"] += self.calls[-1].acknowledged
                self._more.notify_all()

    def await_acknowledged(self, count: int) -> None:
        """Until so many more calls were acknowledged."""
        with self._more:
            enough = self.counts["acknowledged"] + count
            assert self._more.wait_for(lambda: self.counts["acknowledged"] >= enough, LONG), "the clients are stuck"


class Client:
    """A process of clients; it is killed at the end of `with`, if it is still there."""

    def __init__(self, role: str, url: str, token: str, seed: int, heard: Heard) -> None:
        command = [sys.executable, "-m", "tests.e2e.server_kill_client", role, url, str(seed)]
        environment = {**os.environ, "HOLDFAST_TOKEN": token}
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  (closed at the end of `with`)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            cwd=ROOT,
            env=environment,
        )
        self._heard = heard
        self._hearing = start(self._hear)

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.add(*json.loads(line))

    def let_end(self) -> None:
        """Have it finish what it is at."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and `join` tells
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def join(self) -> None:
        """Until it has ended by itself, and all is heard."""
        self._hearing.result(LONG)
        failed = self._process.wait(LONG)
        self._complaints.seek(0)
        complaints = self._complaints.read().decode(errors="replace")
        assert not failed, f"{self._process.args!r} failed:\n{complaints}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=LONG)
        self._complaints.close()


# --- calls -----------------------------------------------------------------------------------------------------------

Do = Callable[[RemoteWorkspace], Any]


class Agent:
    """Makes calls. Without keys only one that was not sent is repeated; with keys each, until it is answered."""

    def __init__(self, ws: RemoteWorkspace, keyed: bool, seed: str) -> None:
        self.random = random.Random(f"{seed} {ws.actor}")
        self._ws = ws
        self._keyed = keyed
        self._names = 0
        self._answered: deque[tuple[RemoteWorkspace, Do, Any]] = deque(maxlen=BACK)

    def name(self) -> str:
        """One that nobody else has."""
        self._names += 1
        return f"{self._ws.actor}.{self._names}"

    def call(self, op: str, what: Any, do: Do) -> Any:
        """The answer; None also if there was none."""
        ws = self._ws.using(key=self.name()) if self._keyed else self._ws
        for attempt in range(ATTEMPTS):
            began, answer, said = time.time_ns() // 1000, None, "ok"
            try:
                answer = do(ws)
            except (errors.Unreachable, errors.OutcomeUnknown, errors.Fenced) as error:
                said = error.code
            repeat = said == errors.Unreachable.code or (self._keyed and said == errors.OutcomeUnknown.code)
            if not (repeat and self._keyed):
                say("call", ws.actor, op, what, said, told(answer), attempt, began)
            if not repeat:
                if said == "ok":
                    self._answered.append((ws, do, answer))
                return answer
            stop.wait(PAUSE)
        raise AssertionError(f"{op} {what} was not answered")

    def look_back(self) -> None:
        """Repeat a call that was answered, perhaps by a server that is long dead: the answer is the same."""
        if not self._keyed or self.random.random() < 0.5:
            return
        ws, do, first = self.random.choice(self._answered)
        for _ in range(ATTEMPTS):
            try:
                answer = do(ws)
            except (errors.Unreachable, errors.OutcomeUnknown):
                stop.wait(PAUSE)
            else:
                assert answer == first, f"the first answer was {first}, now it is {answer}"
                return say("again", ws.actor)
        raise AssertionError("a call was not answered again")


def told(answer: Any) -> Any:
    """What an answer says of the event of its call."""
    if isinstance(answer, Task | Message):
        return [answer.id, answer.version, answer.revision, getattr(answer, "token", None)]
    return answer


def write(agent: Agent) -> None:
    """Count, send a message, make a task: for the claimers, or to do it oneself."""
    agent.call("increment", None, lambda ws: ws.cells.increment(RUN, COUNT))
    subject, title, tags = agent.name(), agent.name(), agent.random.choice(([], [WORK]))
    agent.call("send", subject, lambda ws: ws.mail.send("judge", subject))
    task = agent.call("create", title, lambda ws: ws.tasks.create(title, tags=tags))
    if task is not None and not tags:
        claimed = agent.call("claim", task.id, lambda ws: ws.tasks.claim(task.id))
        if claimed is not None:
            complete(agent, claimed)


def claim(agent: Agent) -> None:
    """Take what is there, and complete it."""
    task = agent.call("claim", None, lambda ws: ws.tasks.claim_next(tags=[WORK], ttl=TTL))
    if task is None:
        stop.wait(PAUSE)
    else:
        complete(agent, task)


def complete(agent: Agent, task: Task) -> None:
    """Finish what was claimed."""
    agent.call("complete", [task.id, task.token], lambda ws: ws.tasks.complete(task.id, token=task.token))


def work(agent: Agent, does: Callable[[Agent], None]) -> None:
    """The same again and again, until it is told to stop."""
    while not stop.is_set():
        does(agent)
        agent.look_back()


# --- watches ---------------------------------------------------------------------------------------------------------


class Sight:
    """What one watch sees: it is over when the last event of each of its kinds was seen."""

    def __init__(self, name: str, wanted: Wanted) -> None:
        threading.current_thread().name = name
        self._name = name
        self._left = len(wanted.kinds or KINDS)

    def add(self, event: holdfast.Event) -> bool:
        """The next event; answers whether it was the last."""
        say("saw", self._name, event.cursor, digest(event))
        self._left -= event.actor == END
        return self.over

    @property
    def over(self) -> bool:
        """Whether the last was seen."""
        return self._left == 0


def digest(event: holdfast.Event) -> int:
    """All of an event in one number."""
    return zlib.crc32(msgspec.json.encode(event, order="deterministic"))


def watch(name: str, ws: RemoteWorkspace, rng: random.Random) -> None:
    """`ws.watch`, which resumes by itself; begun again behind the last event where it gives up."""
    wanted = WATCHES[name]
    sight, cursor, failures = Sight(name, wanted), wanted.after, 0
    while failures < ATTEMPTS and not sight.over:
        most = rng.randrange(1, 200) if name == "restless" else None
        opened = False
        try:
            with ws.watch(wanted.kinds, after=cursor) as events:
                opened = True
                say("opened", name)
                for event in islice(events, most):
                    failures, cursor = 0, event.cursor
                    if sight.add(event):
                        break
        except errors.Unreachable:
            failures += 1
            if opened:
                say("lost", name)
            stop.wait(PAUSE)
    assert sight.over, f"{name} could not go on after {cursor}"


def check_events(response: Response) -> None:
    """Say when a watch has reached its server: that it resumes is not otherwise to be seen."""
    stream.check_events(response)
    say("connected", threading.current_thread().name)


def stream_path() -> str:
    """Where events are streamed."""
    return str(operation("watch").route.http).partition(" ")[2]


def follow(name: str, url: str) -> None:
    """Server-sent events as any program would read them: it comes back with `Last-Event-ID`."""
    wanted = RAW[name]
    sight, last, failures = Sight(name, wanted), "", 0
    params: dict[str, Any] = {"after": wanted.after} | ({"kinds": wanted.kinds} if wanted.kinds else {})
    bearer = {"authorization": f"Bearer {os.environ['HOLDFAST_TOKEN']}", "accept": "text/event-stream"}
    with httpx.Client(base_url=url, headers=bearer, timeout=LONG) as client:
        say("opened", name)
        while failures < ATTEMPTS and not sight.over:
            headers = {"last-event-id": last} if last else {}
            try:
                with client.stream("GET", stream_path(), params=params, headers=headers) as answer:
                    answer.raise_for_status()
                    say("connected", name)
                    for sent in blocks(answer.iter_lines()):
                        failures, last = 0, sent.get("id", last)
                        kind = sent.get("event", "message")
                        assert kind in ("message", "bookmark", "stop"), sent
                        if kind != "message":
                            continue
                        if sight.add(msgspec.json.decode(sent["data"], type=holdfast.Event)):
                            break
            except httpx.TransportError:
                failures += 1
            stop.wait(PAUSE)
    assert sight.over, f"{name} could not go on after {last}"


def blocks(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """The fields of each server-sent event that came whole."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields
            fields = {}


# --- the process -----------------------------------------------------------------------------------------------------


def jobs(role: str, url: str, seed: str) -> list[Callable[[], None]]:
    """What the threads of a process do."""
    if role == "raw":
        return [partial(follow, name, url) for name in RAW]
    ws = holdfast.connect(url, actor=role)
    if role == "watch":
        return [partial(watch, name, ws, random.Random(f"{seed} {name}")) for name in WATCHES]
    actors = [ws.using(actor=f"{role} {number}") for number in range(THREADS)]
    does = claim if role.endswith("claim") else write
    return [partial(work, Agent(actor, role.startswith("keyed"), seed), does) for actor in actors]


def await_end() -> None:
    """Until the parent says so, or is gone."""
    os.read(0, 1)
    stop.set()


def main() -> None:
    role, url, seed = sys.argv[1:]
    vars(remote)["check_events"] = check_events
    start(await_end)
    for done in wait([start(job) for job in jobs(role, url, seed)], return_when=FIRST_EXCEPTION).done:
        done.result()


if __name__ == "__main__":
    main()
