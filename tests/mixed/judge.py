"""Compare what every caller was told with what the log has, call by call and revision by revision.

- A call that was acknowledged is in the log once, at the revision and version that its answer names.
- A call without an answer is in the log once or not at all; a refused one is not in it.
- What a caller did is in the log in the order in which it did it; and of two calls of any callers, if one ended before
  the other began, it has the lower revision.
- A read saw a value that was written, at its revision, and no older one than was acknowledged before the read began.
- Versions of a record have no gap; a task or a lock is given to nobody while somebody has it, each time by a higher
  token.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import holdfast
from holdfast import errors
from tests.mixed.caller import OK, READ, RUN, Call

TOKENS: Final = 4096  # grants of one revision
KILLED: Final = "KILLED"
UNKNOWN: Final = {errors.OutcomeUnknown.code, KILLED}


class Made(NamedTuple):
    """A call as its caller knows it: when it began and ended, in nanoseconds, and what it returned."""

    actor: str
    call: Call
    began: int
    ended: int
    code: str
    answer: Any

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was told that something is done; a claim that found nothing and a lost lock did nothing."""
        return self.code == OK and self.answer is not None and self.answer is not False


@dataclass
class Verdict:
    """What was found; nothing is wrong if `problems` is empty."""

    figures: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def wrong(self, kind: str, what: object) -> None:
        """Count a problem; the first of them are kept as text."""
        self.figures[kind] += 1
        self.problems.append(f"{kind}: {what}")


def pair(lines: Iterable[Sequence[Any]]) -> dict[str, list[Made]]:
    """The calls of each caller, in order, from the lines that were said before and after each."""
    began: dict[tuple[str, int], tuple[int, Call]] = {}
    made: dict[tuple[str, int], Made] = {}
    for actor, number, when, *rest in lines:
        key = (actor, number)
        if key not in began:
            began[key] = when, Call(*rest)
        else:
            made[key] = Made(actor, began[key][1], began[key][0], when, *rest)
    calls: defaultdict[str, list[Made]] = defaultdict(list)
    for key, (when, call) in began.items():
        calls[key[0]].append(made.get(key) or Made(key[0], call, when, 2**63, KILLED, None))
    return calls


def judge(ws: holdfast.Workspace, calls: Mapping[str, list[Made]]) -> Verdict:
    """All of it."""
    verdict = Verdict()
    events = list(log(ws))
    for problem in ws.check().problems:
        verdict.wrong("check", problem)
    _judge_log(events, verdict)
    found = _judge_callers(events, calls, verdict)
    _judge_order(found, verdict)
    _judge_reads(events, [made for each in calls.values() for made in each], verdict)
    counted = Counter(event.id for event in events if (event.kind, event.op) == ("cell", "increment"))
    for cell, times in counted.items():
        if (value := ws.cells.get(RUN, cell).value) != times:
            verdict.wrong("counter", f"{cell} is {value}, after {times} increments")
    verdict.figures["events"] = len(events)
    return verdict


def log(ws: holdfast.Workspace) -> Iterator[holdfast.Event]:
    """All of it."""
    after: int | str = 0
    while page := ws.events.list(after=after, limit=1000):
        yield from page
        after = page[-1].cursor


def _judge_log(events: Sequence[holdfast.Event], verdict: Verdict) -> None:
    versions: Counter[tuple[str, str, str]] = Counter()
    held: dict[tuple[str, str], int] = {}
    newest = 0
    for event in events:
        record = (event.kind, event.scope, event.id)
        versions[record] += 1
        if event.version != versions[record]:
            verdict.wrong("version", f"{versions[record]} was due: {event}")
        if "token" not in event.data:
            continue
        before, after = event.data["token"]
        if held.pop((event.kind, event.id), None) != before:
            verdict.wrong("granted twice", event)
        if after is not None:
            if after <= newest or after // TOKENS != event.revision:
                verdict.wrong("token", event)
            held[event.kind, event.id] = newest = after
            verdict.figures["grants"] += 1


# --- one caller ------------------------------------------------------------------------------------------------------


def _judge_callers(
    events: Sequence[holdfast.Event], calls: Mapping[str, list[Made]], verdict: Verdict
) -> list[tuple[Made, int]]:
    """Each acknowledged call with its revision."""
    index = {place: event for event in events for place in _places(event)}
    own: defaultdict[str, list[holdfast.Event]] = defaultdict(list)
    for event in events:
        own[event.actor].append(event)
    found: list[tuple[Made, int]] = []
    for actor, made in calls.items():
        found += _judge_caller(made, own.pop(actor, []), index, verdict)
    for actor in own.keys() - {"system", "judge"}:
        verdict.wrong("invented", own[actor][0])
    return found


def _judge_caller(
    calls: Sequence[Made],
    events: Sequence[holdfast.Event],
    index: Mapping[tuple[Any, ...], holdfast.Event],
    verdict: Verdict,
) -> Iterator[tuple[Made, int]]:
    left = {event.cursor: event for event in events}
    last, unknown, before = 0, [], None
    for made in calls:
        if made.call.again:
            verdict.figures["repeated"] += 1
            if before is None or (made.code == OK and made.answer != before.answer):
                verdict.wrong("another answer", f"{made} after {before}")
        elif made.code in UNKNOWN and made.call.op != READ:
            verdict.figures["unknown"] += 1
            unknown.append(made)
        elif made.call.op != READ and made.is_acknowledged:
            event = index.get(_place(made))
            if event is None or not _fits(made, event):
                verdict.wrong("lost", f"{made}, found {event}")
            elif left.pop(event.cursor, None) is None:
                if not _is_renewed(made, index, last):
                    verdict.wrong("two answers", f"{made} and another call have {event}")
            elif event.revision <= last:
                verdict.wrong("out of order", made)
            else:
                last = event.revision
                yield made, last
        verdict.figures["acknowledged"] += made.is_acknowledged and not made.call.again
        verdict.figures["refused"] += made.code not in UNKNOWN and made.code != OK
        before = made
    for event in left.values():  # each is of a call without an answer, of one that has no other
        for made in unknown:
            if _fits(made, event):
                unknown.remove(made)
                verdict.figures["unknown, stored"] += 1
                break
        else:
            verdict.wrong("doubled", event)


def _is_renewed(made: Made, index: Mapping[tuple[Any, ...], holdfast.Event], last: int) -> bool:
    """Whether its caller asked for a lock that it held: that gives the same token again, and leaves no event."""
    if made.call.op != "locks.acquire":
        return False
    end = index.get(("end", made.call.args["name"], made.answer))
    return end is None or end.revision > last


def _places(event: holdfast.Event) -> Iterator[tuple[Any, ...]]:
    """By what the answer of the call that made it names it."""
    if event.kind in ("cell", "stash"):
        yield event.kind, event.id if event.kind == "cell" else "", event.version
    elif event.kind == "lock" and event.op != "acquire":
        yield "end", event.id, event.data["token"][0]
    else:
        yield "revision", event.revision


def _place(made: Made) -> tuple[Any, ...]:
    op, args, answer = made.call.op, made.call.args, made.answer
    match op:
        case "cells.set":
            return "cell", args["cell"], answer[0]
        case "cells.increment":
            return "cell", args["cell"], answer
        case "stashes.increment":
            return "stash", "", answer + 1
        case "locks.acquire":
            return "revision", answer // TOKENS
        case "locks.release":
            return "end", args["name"], args["token"]
    return "revision", answer[2]


def _fits(made: Made, event: holdfast.Event) -> bool:
    """Whether the event is that of the call, with all that its answer says, if it has one."""
    op, args, answer, data = made.call.op, made.call.args, made.answer, event.data
    known = made.code == OK
    if event.actor != made.actor or f"{event.kind}s.{event.op}" not in _EVENTS[op]:
        return False
    match op:
        case "cells.set":
            right = (event.id, data["value"]) == (args["cell"], args["value"])
            return right and (not known or answer[1] in (None, event.revision))
        case "cells.increment":
            return bool(event.id == args["cell"] and (not known or data["value"] == answer == event.version))
        case "stashes.increment":
            return not known or bool(data["value"]["value"] == answer)
        case "locks.acquire":
            return event.id == args["name"] and (not known or data["token"] == [None, answer])
        case "locks.release":
            return bool(event.id == args["name"] and data["token"] == [args["token"], None])
        case "tasks.create":
            right = data["title"][1] == args["title"]
        case "tasks.complete":
            right = event.id == args["id"] and data["token"][0] == args["token"]
        case "mail.send":
            right = data["subject"] == args["subject"]
        case _:
            right = True
    token = data["token"][1] if "token" in data else None
    return bool(right and (not known or answer == [event.id, event.version, event.revision, token]))


_EVENTS: Final = {
    "cells.set": {"cells.set"},
    "cells.increment": {"cells.increment"},
    "stashes.increment": {"stashs.increment"},
    "locks.acquire": {"locks.acquire"},
    "locks.release": {"locks.release"},
    "tasks.create": {"tasks.create"},
    "tasks.claim_next": {"tasks.claim"},
    "tasks.complete": {"tasks.complete"},
    "mail.send": {"messages.send"},
}


# --- all callers -----------------------------------------------------------------------------------------------------


def _judge_order(found: Sequence[tuple[Made, int]], verdict: Verdict) -> None:
    """No call has a lower revision than one that ended before it began."""
    first_end = 2**63
    for made, revision in sorted(found, key=lambda each: -each[1]):
        if first_end < made.began:
            verdict.wrong("out of order", f"{made} has revision {revision}, lower than that of a call before it")
        first_end = min(first_end, made.ended)


def _judge_reads(events: Sequence[holdfast.Event], calls: Sequence[Made], verdict: Verdict) -> None:
    """Each read saw a version that was written, and none older than was acknowledged before it began."""
    written = {(event.id, event.version): event for event in events if event.kind == "cell"}
    ends: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)  # of acknowledged writes, with their version
    for made in calls:
        if made.call.op == "cells.set" and made.is_acknowledged:
            ends[made.call.args["cell"]].append((made.ended, made.answer[0]))
    reads: defaultdict[str, list[Made]] = defaultdict(list)
    for made in calls:
        if made.call.op == READ and made.code == OK:
            reads[made.call.args["cell"]].append(made)
    for cell, these in reads.items():
        acknowledged, newest = iter(sorted(ends[cell])), 0
        following = next(acknowledged, None)
        for made in sorted(these, key=lambda each: each.began):
            while following and following[0] < made.began:
                newest = max(newest, following[1])
                following = next(acknowledged, None)
            value, version, revision = made.answer
            event = written.get((cell, version))
            if event is None or (event.data["value"], event.revision) != (value, revision):
                verdict.wrong("read what was not written", made)
            elif version < newest:
                verdict.wrong("stale read", f"{made}, though version {newest} was acknowledged")
            verdict.figures["reads"] += 1
