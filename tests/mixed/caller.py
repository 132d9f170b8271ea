"""What a caller of any face does: a stream of calls, each chosen by a seed and by what the calls before it returned.

A caller has a name of its own, makes one call at a time, and leaves one event with each: a value that nobody else
writes, a count, a task, a claim, a lock, a message. `Call` is data, so that Python, HTTP and the command line make
the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from itertools import count
from random import Random
from typing import Any, Final, NamedTuple

OK: Final = "ok"
RUN: Final = "mixed"
WORK: Final = "work"  # the tag of all tasks
STASH: Final = "hits"
TTL: Final = 3.0  # of claims and locks: what a killed caller held comes back during the run
KEYED: Final = 0.2  # of the calls have a key, and some of these are repeated after their answer
ABANDONED: Final = 0.03  # of what was claimed or locked is left to expire


class Call(NamedTuple):
    """One call. `again` repeats the call before it with its key: it returns the same, and happens no second time."""

    op: str
    args: dict[str, Any]
    key: str | None = None
    again: bool = False


class Result(NamedTuple):
    """What a caller got: OK and an answer, or the code of an error."""

    code: str
    answer: Any = None


Calls = Generator[Call, Result, None]
READ: Final = "cells.get"
_WEIGHTS: Final = {
    "cells.set": 20,
    "cells.increment": 20,
    READ: 10,
    "tasks.create": 12,
    "tasks.claim_next": 12,
    "locks.acquire": 10,
    "stashes.increment": 8,
    "mail.send": 8,
}


def calls_of(name: str, draw: Random) -> Calls:
    """The calls of one caller, without end."""
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    for number in count():
        op = draw.choices(kinds, weights)[0]
        call = Call(op, _args(op, f"{name} {number}", draw))
        if op != READ and draw.random() < KEYED:
            call = call._replace(key=f"{name} {number}")
        got = yield call
        if call.key and got.code == OK and draw.random() < 0.3:
            yield call._replace(again=True)
        if got.code != OK or got.answer is None or draw.random() < ABANDONED:
            continue
        if op == "cells.set" and draw.random() < 0.5:  # who was told of a write sees it
            yield Call(READ, {"run": RUN, "cell": call.args["cell"]})
        elif op == "tasks.claim_next":
            yield Call("tasks.complete", {"id": got.answer[0], "token": got.answer[3]})
        elif op == "locks.acquire":
            yield Call("locks.release", {"name": call.args["name"], "token": got.answer})


def _args(op: str, unique: str, draw: Random) -> dict[str, Any]:
    match op:
        case "cells.set":
            return {"run": RUN, "cell": f"cell-{draw.randrange(12)}", "value": unique}
        case "cells.get":
            return {"run": RUN, "cell": f"cell-{draw.randrange(12)}"}
        case "cells.increment":
            return {"run": RUN, "cell": f"count-{draw.randrange(4)}"}
        case "tasks.create":
            return {"title": unique, "tags": [WORK]}
        case "tasks.claim_next":
            return {"tags": [WORK], "ttl": TTL}
        case "locks.acquire":
            return {"name": f"lock-{draw.randrange(12)}", "ttl": TTL}
        case "stashes.increment":
            return {"id": (None, STASH)}
    return {"to": "judge", "subject": unique}


def answer_of(op: str, returned: Any) -> Any:
    """What an answer says of the call's event: a number, or id, version, revision and token of a record."""
    if returned is None or op in ("cells.increment", "stashes.increment", "locks.release"):
        return returned
    if op == "cells.set":
        return returned if isinstance(returned, list) else [returned, None]
    if not isinstance(returned, dict):
        fields = ("id", "version", "revision", "token", "value")
        returned = {name: getattr(returned, name) for name in fields if hasattr(returned, name)}
    if op == "locks.acquire":
        return returned["token"]
    if op == READ:
        return [returned["value"], returned["version"], returned["revision"]]
    return [returned["id"], returned["version"], returned["revision"], returned.get("token")]


def words_of(call: Call) -> list[str]:
    """The same call as words of the command line."""
    args = call.args
    match call.op:
        case "cells.set":
            words = ["cell", "set", args["run"], args["cell"], json.dumps(args["value"])]
        case "cells.increment":
            words = ["cell", "increment", args["run"], args["cell"]]
        case "tasks.create":
            words = ["create", args["title"], "--tag", WORK]
        case "tasks.claim_next":
            words = ["next", "--tag", WORK, "--ttl", str(args["ttl"])]
        case "tasks.complete":
            words = ["done", args["id"], "--token", str(args["token"])]
        case "locks.acquire":
            words = ["lock", "acquire", args["name"], "--ttl", str(args["ttl"])]
        case "locks.release":
            words = ["lock", "release", args["name"], "--token", str(args["token"])]
        case "stashes.increment":
            words = ["stash", "increment", args["id"][1]]
        case "mail.send":
            words = ["mail", "send", args["to"], args["subject"]]
        case _:
            raise AssertionError(call.op)
    return [*words, "--json", *(("--key", call.key) if call.key else ())]
