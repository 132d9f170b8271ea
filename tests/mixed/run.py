"""One seed of mixed faces: callers of every face on one folder, killed again and again, then the judgement.

Threads and event loops of processes that open the folder, clients of a server on the same folder, and shell commands,
through that server and past it, all work at once. A seed draws who is killed with -9 and when: a process of callers,
the server, or a command in the middle of its work. What callers say before and after each call goes through a pipe
to this process, which outlives them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

import holdfast
from holdfast.faces.http.auth import Tokens
from holdfast.testing.crowd import LONG, start
from tests.cli.calling import HOLDFAST, environment
from tests.e2e.test_server_kill import Server, free_port
from tests.journal import ROOT
from tests.mixed.caller import OK, READ, STASH, Call, Result, answer_of, calls_of, words_of
from tests.mixed.judge import KILLED, Verdict, judge, pair

NOTHING_READY: Final = 4  # the exit code of `next`
STUCK: Final = 10 * LONG  # seconds without an acknowledgement


class Crew(NamedTuple):
    """Callers of one face, in one process."""

    face: str
    callers: int


CREWS: Final = (Crew("threads", 4), Crew("threads", 4), Crew("loop", 8), Crew("http", 4), Crew("http-loop", 8))
SHELLS: Final = ((), ("--direct",))  # options of the commands of each loop


class Heard:
    """All lines that were said, and how many acknowledgements are among them."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.acknowledged = 0
        self._more = threading.Condition()

    def add(self, line: bytes) -> None:
        """One line; a caller that is killed says a whole line or none."""
        assert line.endswith(b"\n"), f"half a line: {line!r}"
        with self._more:
            self.lines.append(line)
            if b'"ok"' in line:
                self.acknowledged += 1
                self._more.notify_all()

    def wait_for(self, acknowledged: int) -> None:
        """Until there are so many acknowledgements."""
        with self._more:
            while self.acknowledged < acknowledged:
                assert self._more.wait(STUCK), "the callers are stuck"

    def decoded(self) -> Iterator[Any]:
        """Every line as what it says."""
        return map(msgspec.json.decode, self.lines)


class Process:
    """A process of callers, and the thread that hears what they say."""

    def __init__(self, crew: Crew, place: str, name: str, seed: int, heard: Heard, environ: dict[str, str]) -> None:
        command = [sys.executable, "-m", "tests.mixed.worker", crew.face, place, name, str(seed), str(crew.callers)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environ, bufsize=0
        )
        self._heard = heard
        self._hearing: Future[None] = start(self._hear)

    def _hear(self) -> None:
        assert self._process.stdout is not None
        with os.fdopen(os.dup(self._process.stdout.fileno()), "rb") as said:
            for line in said:
                self._heard.add(line)

    def kill(self) -> None:
        """kill -9; a process that had ended before would have failed."""
        self._process.kill()
        self._wait(-9)

    def end(self) -> None:
        """Let every caller finish its call."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._wait(0)

    def _wait(self, code: int) -> None:
        assert self._process.wait(STUCK) == code
        self._hearing.result(LONG)

    def abort(self) -> None:
        """End it whatever has happened, and free what it held."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Shell:
    """A loop of commands, each a process of its own that may be killed."""

    def __init__(self, folder: Path, name: str, seed: int, heard: Heard, options: tuple[str, ...]) -> None:
        self._options = ("--dir", str(folder), "--actor", name, *options)
        self._environ = environment(folder.parent)
        self._name, self._heard = name, heard
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._stop = threading.Event()
        self._looping = start(partial(self._loop, random.Random(f"{seed} {name}")))

    def _say(self, *words: object) -> None:
        self._heard.add(msgspec.json.encode(words) + b"\n")

    def _loop(self, draw: random.Random) -> None:
        calls, number = calls_of(self._name, draw), 0
        call = next(calls)
        while not self._stop.is_set():
            if call.op == READ:  # `cell get` prints the value alone
                call = calls.send(Result("NOT MADE"))
                continue
            self._say(self._name, number, time.monotonic_ns(), *call)
            result = self._perform(call)
            self._say(self._name, number, time.monotonic_ns(), *result)
            call, number = calls.send(result), number + 1

    def _perform(self, call: Call) -> Result:
        self._killed = False
        command = [*HOLDFAST, *words_of(call), *self._options]
        self._process = subprocess.Popen(
            command, env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = self._process.communicate(timeout=STUCK)
        code = self._process.returncode
        if code == -9:
            assert self._killed
            return Result(KILLED)
        if code == 0:
            return Result(OK, answer_of(call.op, msgspec.json.decode(out)["data"]))
        if code == NOTHING_READY and call.op == "tasks.claim_next":
            return Result(OK)
        told = msgspec.json.decode(err.splitlines()[-1])
        return Result(told["code"], told["error"])

    def kill(self) -> None:
        """kill -9 of the command that runs, if one does."""
        process = self._process
        if process is not None and process.poll() is None:
            self._killed = True
            process.kill()

    def end(self) -> None:
        """Finish the command that runs."""
        self._stop.set()
        self._looping.result(STUCK)


class Fleet:
    """All callers of a round and the server; whatever is killed is started again under a new name."""

    def __init__(self, folder: Path, seed: int, stack: ExitStack) -> None:
        self.heard = Heard()
        self.kills: Counter[str] = Counter()
        self._folder, self._seed, self._stack = folder, seed, stack
        self._draw = random.Random(f"kills {seed}")
        self._generations: Counter[int] = Counter()
        self._port = free_port()
        with holdfast.open(folder, actor="judge") as ws:
            ws.agents.register("judge")
            ws.stashes.create(STASH, "counter")
        _, token = Tokens(folder).create("agent")
        self._environ = {**environment(folder.parent), "HOLDFAST_TOKEN": token}
        self._server = self._serve()
        self._processes = {number: self._start(number) for number in range(len(CREWS))}
        self._shells = [
            Shell(folder, f"shell-{number}", seed, self.heard, options) for number, options in enumerate(SHELLS)
        ]

    def _serve(self) -> Server:
        server = self._stack.enter_context(Server(self._folder, self._port))
        server.ready()
        return server

    def _start(self, number: int) -> Process:
        crew = CREWS[number]
        self._generations[number] += 1
        name = f"{crew.face}-{number}-{self._generations[number]}"
        place = f"http://127.0.0.1:{self._port}" if crew.face.startswith("http") else str(self._folder)
        process = Process(crew, place, name, self._seed, self.heard, self._environ)
        self._stack.callback(process.abort)
        return process

    def work(self, calls: int, every: int) -> None:
        """Until so many calls were acknowledged; about every so many somebody is killed."""
        while self.heard.acknowledged < calls:
            self.heard.wait_for(min(calls, self.heard.acknowledged + self._draw.randint(1, 2 * every)))
            self._kill(self._draw.randrange(len(CREWS) + len(SHELLS) + 2))

    def _kill(self, victim: int) -> None:
        if victim < len(CREWS):
            self.kills[CREWS[victim].face] += 1
            self._processes[victim].kill()
            self._processes[victim] = self._start(victim)
        elif victim < len(CREWS) + len(SHELLS):
            self.kills["shell"] += 1
            self._shells[victim - len(CREWS)].kill()
        else:
            self.kills["server"] += 1
            self._server.__exit__()
            self._server = self._serve()

    def end(self) -> None:
        """Everybody finishes."""
        for process in self._processes.values():
            process.end()
        for shell in self._shells:
            shell.end()
        self._server.process.terminate()
        assert self._server.process.wait(LONG) == 0


def play(folder: Path, seed: int, calls: int, every: int) -> tuple[Verdict, Counter[str]]:
    """One seed in a new folder; returns the verdict, and how often what was killed."""
    with ExitStack() as stack:
        fleet = Fleet(folder, seed, stack)
        fleet.work(calls, every)
        fleet.end()
    with holdfast.open(folder, actor="judge") as ws:
        return judge(ws, pair(fleet.heard.decoded())), fleet.kills
