"""A process of callers that is killed sooner or later: `python -m tests.mixed.worker FACE PLACE NAME SEED CALLERS`.

FACE is `threads` or `loop` (PLACE is the folder), or `http` or `http-loop` (PLACE is the address; the token is in
HOLDFAST_TOKEN). Each caller says a line of JSON before each call and one after it; the other end of the pipe outlives
this process. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import FIRST_EXCEPTION, wait
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

import msgspec

import holdfast
from holdfast import errors
from holdfast.testing.crowd import start
from holdfast.workspace import Workspace
from holdfast.workspace.aio import AsyncWorkspace
from tests.mixed.caller import OK, Call, Result, answer_of, calls_of

ATTEMPTS: Final = 600  # of a call with a key, while its server is away
PAUSE: Final = 0.05
UNANSWERED: Final = {errors.Unreachable.code, errors.OutcomeUnknown.code}

stop = threading.Event()


def say(*words: object) -> None:
    """One write of a short line is atomic: what the other side reads of it is whole."""
    os.write(1, msgspec.json.encode(words) + b"\n")


def steps(name: str, seed: str) -> Generator[Call | None, Result | None, None]:
    """The calls of a caller, each said before and after it; None is a pause, while a server is away."""
    calls = calls_of(name, Random(f"{seed} {name}"))
    result: Result | None = None
    for number in count():
        if stop.is_set():
            return
        call = next(calls) if result is None else calls.send(result)
        say(name, number, time.monotonic_ns(), *call)
        for _ in range(ATTEMPTS):
            result = yield call
            if result is None or result.code not in UNANSWERED:
                break
            yield None
            if call.key is None:
                break
        assert result is not None, "a call that was made has a result"
        say(name, number, time.monotonic_ns(), result.code, result.answer)


def begin(ws: Any, call: Call) -> Any:
    """Make a call; on a loop what it returns is awaited."""
    if call.op == "cells.set" and isinstance(ws, Workspace | AsyncWorkspace):
        return ws.transact(partial(_set, args=call.args))
    domain, name = call.op.split(".")
    return getattr(getattr(ws, domain), name)(**call.args)


def _set(tx: holdfast.Transaction, args: dict[str, Any]) -> list[int]:
    """Where a transaction may be a function it also returns its revision."""
    return [tx.cells.set(**args), tx.revision]


def work_in_thread(ws: Any, name: str, seed: str) -> None:
    """Make calls one after the other until the end."""
    following, result = steps(name, seed), None
    while True:
        try:
            call = following.send(result)
        except StopIteration:
            return
        if call is None:
            time.sleep(PAUSE)
            continue
        try:
            result = Result(OK, answer_of(call.op, begin(ws.using(actor=name, key=call.key), call)))
        except errors.HoldfastError as error:
            result = Result(error.code, error.message)


async def work_on_loop(ws: Any, name: str, seed: str) -> None:
    """The same on an event loop."""
    following, result = steps(name, seed), None
    while True:
        try:
            call = following.send(result)
        except StopIteration:
            return
        if call is None:
            await asyncio.sleep(PAUSE)
            continue
        try:
            result = Result(OK, answer_of(call.op, await begin(ws.using(actor=name, key=call.key), call)))
        except errors.HoldfastError as error:
            result = Result(error.code, error.message)


def await_end() -> None:
    """Until the parent says so, or is gone."""
    os.read(0, 1)
    stop.set()


def main() -> None:
    face, place, name, seed, callers = sys.argv[1:]
    names = [f"{name}.{number}" for number in range(int(callers))]
    ws = holdfast.connect(place, actor=name) if face.startswith("http") else holdfast.open(place, actor=name)
    start(await_end)
    if face.endswith("loop"):

        async def all_of_them() -> None:
            await asyncio.gather(*(work_on_loop(ws.aio, each, seed) for each in names))

        asyncio.run(all_of_them())
    else:
        working = [start(partial(work_in_thread, ws, each, seed)) for each in names]
        for done in wait(working, return_when=FIRST_EXCEPTION).done:
            done.result()
    ws.close()
    os._exit(0)  # the thread that waits for the end may still wait


if __name__ == "__main__":
    main()
