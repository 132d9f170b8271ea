"""kill -9 of the server while clients write, claim and watch: what was acknowledged is there, once, and seen by all.

The server is killed under load, while it starts and while it stops, and started again on the same port and folder; its
clients live on. Each agent's calls are then compared with the events that the log has of it, one by one, and what
every watch has seen with the log itself. `SERVER_KILL_CYCLES=200` is the full run; `SERVER_KILL_SEED` repeats the kills
of one.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

import holdfast
from holdfast import errors
from holdfast.faces.http.auth import FIRST_TOKEN, Tokens
from holdfast.testing.crowd import LONG
from holdfast.types import as_microseconds
from tests.amounts import chance
from tests.e2e.server_kill_client import COUNT, END, RAW, ROOT, RUN, WATCHES, Call, Client, Heard, Wanted, digest
from tests.http.running import command

CYCLES = int(os.environ.get("SERVER_KILL_CYCLES", "8"))
MOST = 300  # acknowledgements before a kill
STOPPING = 0.4  # seconds, within which a stop is cut short
LATE = "too late, as it had stopped"  # which is no cycle
WRITERS = ("plain", "keyed", "plain claim", "keyed claim")
WATCHERS = ("watch", "raw")
EARLIER = 1200  # events of the first transaction


# --- the server ------------------------------------------------------------------------------------------------------

STRUCK = """
import os, runpy, signal, sys, threading
from holdfast.kernel import failpoints

def die():
    signal.pthread_kill(threading.get_ident(), signal.SIGKILL)

{strike}
sys.argv.pop(0)
runpy.run_module(sys.argv[0], run_name="__main__")
"""
WHEN_COMMITTED = "failpoints.hook = lambda place: place == 'batch.committed' and die()"
AT_RENAME = """
left, rename = list(range({number})), os.replace
os.replace = lambda *paths: rename(*paths) if left.pop() else die()
"""


class Server:
    """A server on its folder and port, in a process of its own; `strike` is code that has it kill itself."""

    def __init__(self, folder: Path, port: int, strike: str = "") -> None:
        self._log = folder.with_suffix(".log").open("a+")
        python, _, *rest = command(folder, "--port", str(port))
        started = [python, "-c", STRUCK.format(strike=strike), *rest] if strike else [python, "-m", *rest]
        self._began = time.monotonic()
        self.process = subprocess.Popen(started, stdout=subprocess.PIPE, stderr=self._log, cwd=ROOT)

    def ready(self) -> float:
        """Once it listens; answers how many seconds that took."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said.startswith(b"listening on "), Path(self._log.name).read_text()
        return time.monotonic() - self._began

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself in that time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """kill -9, if it still runs."""
        self.process.kill()
        self.process.communicate(timeout=LONG)
        self._log.close()


def free_port() -> int:
    """One that no client is given by chance: who calls a dead server on such a port may come to talk to itself."""
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):  # not seeded: tests run side by side
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


# --- killed under load -----------------------------------------------------------------------------------------------


class Kills:
    """Starts servers and kills them."""

    def __init__(self, folder: Path, port: int, seed: int, heard: Heard) -> None:
        self._place = folder, port
        self._random = random.Random(seed)
        self._heard = heard
        self._usual = 0.5  # seconds that a start takes
        self.figures: Counter[str] = Counter()

    def cycle(self) -> None:
        """One server, from its start to its death."""
        how = self._random.choices(("under load", "while stopping", "while starting"), (6, 2, 2))[0]
        with Server(*self._place) as server:
            if how == "while starting":
                assert not server.ends_within(self._random.uniform(0.3, 1.1) * self._usual)
            else:
                self._usual = server.ready()
                self._heard.await_acknowledged(self._random.randint(1, MOST))
            if how == "while stopping":
                server.process.send_signal(signal.SIGTERM)
                if server.ends_within(self._random.uniform(0, STOPPING)):
                    assert server.process.returncode == 0
                    how = LATE
        self.figures[how] += 1


@pytest.mark.early
@pytest.mark.timeout(600 + 8 * CYCLES)
def test_what_a_killed_server_acknowledged_is_there_once_and_watchers_see_all_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("SERVER_KILL_SEED") or chance("kills of a server").randrange(10**6))
    folder, port, heard = tmp_path / "store", free_port(), Heard()
    url = f"http://127.0.0.1:{port}"
    with holdfast.open(folder, actor="earlier") as ws:
        ws.transact(lambda tx: [tx.cells.set("earlier", str(number), number) for number in range(EARLIER)])
    _, token = Tokens(folder).create("agent")
    kills = Kills(folder, port, seed, heard)
    with ExitStack() as stack:
        crowd = {role: stack.enter_context(Client(role, url, token, seed, heard)) for role in (*WRITERS, *WATCHERS)}
        while kills.figures.total() - kills.figures[LATE] < CYCLES:
            kills.cycle()
        server = stack.enter_context(Server(folder, port))
        server.ready()
        heard.await_acknowledged(MOST)
        end([crowd[role] for role in WRITERS], [crowd[role] for role in WATCHERS], url, token)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(LONG) == 0
    logged = folder.with_suffix(".log").read_text().splitlines()
    assert [line for line in logged if "claims expired" not in line] == []
    figures = judge(folder, heard)
    with capsys.disabled():
        report(seed, kills.figures, figures)
    unsaid = figures["unknown, there"] + figures["done by a dead server"]
    # In few cycles chance may have it that no server dies between a commit and its answer.
    assert unsaid or CYCLES < 50, "no server died between a commit and its answer: the test has lost its point"
    assert figures["resumed"] >= CYCLES, "hardly a watch was cut: the test has lost its point"


def end(writers: Sequence[Client], watchers: Sequence[Client], url: str, token: str) -> None:
    """The writers end; then come the last events, after which the watchers end."""
    for client in writers:
        client.let_end()
    for client in writers:
        client.join()
    with holdfast.connect(url, token=token, actor=END) as ws:
        ws.tasks.create(END)
        ws.mail.send("judge", END)
        ws.cells.set(END, END, END)
    for client in watchers:
        client.join()


def report(seed: int, kills: Counter[str], figures: Counter[str]) -> None:
    """What was done, and what was found."""
    ways = ", ".join(f"{count} {how}" for how, count in sorted(kills.items()))
    print(
        f"\nkill -9 of the server: {CYCLES} cycles (seed {seed}): {ways}; {figures['events']} events"
        f"\n  calls: {figures['acknowledged']} acknowledged; {figures['unknown']} of unknown outcome,"
        f" {figures['unknown, there']} of them there; {figures['not sent']} not sent"
        f"\n  with keys: {figures['repeated']} repeated until answered, {figures['done by a dead server']} of them done"
        f" by a server that had died; {figures['again']} repeated after their answer"
        f"\n  claims: {figures['claims']}, {figures['expired']} expired, {figures['fenced']} completions fenced off"
        f"\n  watches: {figures['seen']} events seen by {len(WATCHES)} watches and {len(RAW)} raw streams,"
        f" {figures['resumed']} resumed, {figures['begun again']} given up and begun again"
    )


# --- the judgement ---------------------------------------------------------------------------------------------------


def judge(folder: Path, heard: Heard) -> Counter[str]:
    """Compare what the clients were told with what is there."""
    calls: defaultdict[str, list[Call]] = defaultdict(list)
    for call in heard.calls:
        calls[call.actor].append(call)
    with holdfast.open(folder, actor="judge") as ws:
        assert ws.check().problems == []
        events = list(log(ws))
        done: defaultdict[str, list[holdfast.Event]] = defaultdict(list)
        for event in events:
            done[event.actor].append(event)
        assert done.keys() - {"earlier", END, "system"} <= calls.keys()
        figures = Counter(events=len(events), again=heard.counts["again"])
        for actor, made in calls.items():
            figures += settle(made, done[actor])
        figures += judge_claims(heard.calls, events)
        judge_state(ws, heard.calls, events)
    return figures + judge_watches(heard, events)


def log(ws: holdfast.Workspace) -> Iterator[holdfast.Event]:
    """All of it."""
    after: int | str = 0
    while page := ws.events.list(after=after, limit=1000):
        yield from page
        after = page[-1].cursor


def settle(calls: list[Call], events: list[holdfast.Event]) -> Counter[str]:
    """Find the event of each call of an agent, which makes one at a time, and no event that is of none.

    A call that was acknowledged has one, with what the answer said; one of unknown outcome has one or none; one that
    was refused or not sent has none.
    """
    figures: Counter[str] = Counter()
    unknown: list[Call] = []
    left = iter(events)

    def attribute(event: holdfast.Event, looked_for: Call | None) -> None:
        while unknown:
            if may_have_made(unknown.pop(0), event):
                figures["unknown, there"] += 1
                return
        raise AssertionError(f"{event} is of no call that could have made it; looked for {looked_for}")

    for call in calls:
        if call.acknowledged:
            for event in left:
                if may_have_made(call, event) and call.answer == answer_of(event):
                    break
                attribute(event, call)
            else:
                raise AssertionError(f"lost: {call}")
            unknown.clear()
            figures["acknowledged"] += 1
            if call.actor.startswith("keyed") and call.attempt > 0:
                figures["repeated"] += 1
                figures["done by a dead server"] += as_microseconds(event.time) < call.began
        elif call.said == errors.OutcomeUnknown.code:
            unknown.append(call)
            figures["unknown"] += 1
        figures["not sent"] += call.said == errors.Unreachable.code
    for event in left:
        attribute(event, None)
    return figures


def may_have_made(call: Call, event: holdfast.Event) -> bool:
    """Whether the event may be that of the call."""
    if event.op != call.op:
        return False
    match call.op:
        case "create":
            return bool(event.data["title"][1] == call.what)
        case "send":
            return bool(event.data["subject"] == call.what)
        case "claim":
            return call.what in (None, event.id)
        case "complete":
            return bool(call.what == [event.id, event.data["token"][0]])
    return (event.scope, event.id) == (RUN, COUNT)


def answer_of(event: holdfast.Event) -> object:
    """What the answer to the call that made it says."""
    if event.kind == "cell":
        return event.data["value"]
    return [event.id, event.version, event.revision, event.data.get("token", (None, None))[1]]


def judge_claims(calls: list[Call], events: list[holdfast.Event]) -> Counter[str]:
    """A task is given to nobody while somebody has it, each time by a higher token; only who lost it is fenced off."""
    held: dict[str, int] = {}
    expired: set[tuple[str, int]] = set()
    newest = claims = 0
    for event in events:
        if "token" not in event.data:
            continue
        before, after = event.data["token"]
        assert held.pop(event.id, None) == before, event
        if event.op == "claim":
            assert after > newest, event
            held[event.id] = newest = after
            claims += 1
        elif event.op == "expire":
            expired.add((event.id, before))
    fenced = [call for call in calls if call.said == errors.Fenced.code]
    assert {tuple(call.what) for call in fenced} <= expired
    return Counter(claims=claims, expired=len(expired), fenced=len(fenced))


def judge_state(ws: holdfast.Workspace, calls: list[Call], events: list[holdfast.Event]) -> None:
    """What was acknowledged is there, not only in the log."""
    assert ws.cells.get(RUN, COUNT).value == sum(event.op == "increment" for event in events)
    for op, what, answer in [(call.op, call.what, call.answer) for call in calls if call.acknowledged]:
        match op:
            case "create":
                assert ws.tasks.get(answer[0]).title == what
            case "complete":
                assert ws.tasks.get(answer[0]).status == "closed"
            case "send":
                assert ws.mail.get(answer[0]).subject == what


def judge_watches(heard: Heard, events: list[holdfast.Event]) -> Counter[str]:
    """Each has seen what it wanted of the log: in order, no gap, no repeat."""
    for name, wanted in (WATCHES | RAW).items():
        seen = heard.seen[name]
        expected = [(event.cursor, digest(event)) for event in chosen(wanted, events)]
        for place, (found, right) in enumerate(zip(seen, expected, strict=False)):
            assert found == right, f"{name} saw {found} after {seen[max(0, place - 3) : place]}, not {right}"
        assert len(seen) == len(expected), name
    resumed = heard.counts["connected"] - heard.counts["opened"]
    return Counter({"seen": heard.counts["saw"], "resumed": resumed, "begun again": heard.counts["lost"]})


def chosen(wanted: Wanted, events: list[holdfast.Event]) -> list[holdfast.Event]:
    """What a watch is to see: up to the last event of its kinds by which it ends."""
    revision, _, position = str(wanted.after).partition("-")
    first = (int(revision), int(position or sys.maxsize))
    those = [
        event
        for event in events
        if (event.revision, event.position) > first and (wanted.kinds is None or event.kind in wanted.kinds)
    ]
    while those[-1].actor != END:
        those.pop()
    return those


# --- killed at one moment --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "once"])
def test_a_call_whose_server_dies_between_commit_and_answer_is_of_unknown_outcome(
    tmp_path: Path, key: str | None
) -> None:
    folder, port = tmp_path / "store", free_port()
    holdfast.open(folder, actor="earlier").close()
    _, token = Tokens(folder).create("agent")
    with holdfast.connect(f"http://127.0.0.1:{port}", token=token, actor="ann") as ws:
        with Server(folder, port, strike=WHEN_COMMITTED) as server:
            server.ready()
            with pytest.raises(errors.OutcomeUnknown):
                ws.using(key=key).cells.increment(RUN, COUNT)
            assert server.process.wait(LONG) == -9
        with Server(folder, port) as server:
            server.ready()
            assert ws.cells.get(RUN, COUNT).value == 1
            assert ws.using(key=key).cells.increment(RUN, COUNT) == (2 if key is None else 1)


@pytest.mark.parametrize("number", [1, 2])
def test_a_first_start_that_is_killed_between_its_files_leaves_nothing_in_the_way_of_the_next(
    tmp_path: Path, number: int
) -> None:
    folder, port = tmp_path / "store", free_port()
    with Server(folder, port, strike=AT_RENAME.format(number=number)) as server:
        assert server.process.wait(LONG) == -9
    with Server(folder, port) as server:
        server.ready()
        token = (folder / FIRST_TOKEN).read_text().strip()
        with holdfast.connect(f"http://127.0.0.1:{port}", token=token, actor="ann") as ws:
            assert ws.cells.set("run", "cell", 1) == 1
