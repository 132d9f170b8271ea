"""The judge of operations and reads: replays the truth revision by revision through the plain model.

Linear in the length of the history, because every operation says which revision it saw or made. Judged are: that each
revision is exactly what the model makes of the operation that caused it; that every acknowledged operation is there,
once, with the answer its client got; that what failed is not; that a refusal was right in the state it saw; that
nothing was older than what its caller had to have seen; and that every read saw the state of the revision it names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.types import Event, Page, TxnResult, Undone, as_microseconds
from holdfast.types.agents import Agent, Message
from holdfast.types.stashes import Link
from holdfast.types.tasks import Readiness, Reason
from tests.conformance.model_base import exact
from tests.conformance.task_bench import agreed
from tests.simulation.history import Asked, History, Looked
from tests.simulation.truth import Truth
from tests.simulation.undo_model import UndoModel

_DETAILS = (
    *("expected", "version", "value", "holder", "current"),
    *(
        "since",
        "status",
        "current_status",
        "requested_status",
        "parent_id",
        "active_children",
        "children",
        "assigned_to",
    ),
    *("sender", "lock", "pattern", "shared", "state"),
)


class ReplayModel(UndoModel):
    """The model, at the time that the truth says."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.moment = 0

    def time(self) -> int:
        return self.moment

    def events_compact(self, before: int) -> int | None:
        """Forget events; how many went is the store's to say."""
        if not 0 < before <= self.revision + 1:
            raise errors.InvalidFilter()
        if before - 1 <= self.compacted:
            return 0
        kept = [*map(self.remembers, self.events)]
        mark, self.compacted = self.compacted, before - 1
        if [*map(self.remembers, self.events)] == kept:  # nothing goes, and no cursor with it
            self.compacted = mark
            return 0
        self.emit("log", "", "log", "compact", {"compacted": [mark, before - 1]})
        return None

    def remembers(self, event: Event) -> bool:
        """Compaction keeps the newest event of each record below its mark, and what was said of tasks."""
        if event.revision > self.compacted or (event.kind == "task" and {*event.data} & {"note", "result"}):
            return True
        later = [
            other
            for other in self.events
            if (other.kind, other.scope, other.id) == (event.kind, event.scope, event.id)
            and other.version > event.version
            and other.revision <= self.compacted
        ]
        return not later or (event.kind == "task" and _ends_claim(event) and not any(map(_ends_claim, later)))

    def _broadcast(self, sender: str, received: tuple[str, ...]) -> tuple[str, ...]:
        """Who acted without leaving a revision may be among those who received it; the others must be."""
        receivers = super()._broadcast(sender, received)
        assert {*self.everybody(sender)} <= {*receivers}, f"{receivers} lacks some of {self.everybody(sender)}"
        assert sender not in receivers, f"{sender} has sent it to itself"
        assert all(self.role(name) != "observer" for name in receivers), f"{receivers} has an observer"
        assert [*receivers] == sorted({*receivers}), f"{receivers} is out of order"
        return receivers

    def cells_exists(self, run: str, cell: str) -> bool:
        return (run, cell) in self.state.cells

    def run(self, asked: Asked) -> Any:
        """What the operation answers in this state, or the error it raises; the state moves on."""

        def body() -> Any:
            if asked.fence is not None:
                self.check_fence(asked.caller, *asked.fence)
            answer = self.perform(asked.op, asked.args)
            if len(self.events) == self._first and asked.op in SILENT:
                self.cells_set("audit", "silent", asked.actor)
            return answer

        self.told = asked.answer if isinstance(asked.answer, Link) else None
        try:
            return self.transact(asked.caller, body)
        except errors.HoldfastError as error:
            return error


REFUSALS = (errors.NotFound, errors.Held, errors.InvalidTransition, errors.InvalidStashType)  # of reads
PERFORMED = (
    "tasks.",
    "agents.",
    "mail.",
    "paths.",
    "stashes.",
    "queues.",
    "channels.",
    "trails.",
    "links.",
    "cycles.",
    "threads.",
    "items.",
)
SILENT = (  # change rows, and may emit nothing
    *("cells.refresh_ttl", "locks.refresh", "leases.refresh", "locks.acquire"),
    *(
        "tasks.heartbeat",
        "tasks.update",
        "tasks.add_tags",
        "paths.lock",
        "paths.refresh",
        "stashes.refresh",
        "queues.refresh",
    ),
)


def replay(history: History, truth: Truth) -> None:
    """Raise AssertionError at the first thing that cannot be."""
    _check_promises(history, truth)
    doer = {asked.actor: asked for asked in history.asked}
    refused: dict[int, list[Asked]] = defaultdict(list)
    looked: dict[int, list[Looked]] = defaultdict(list)
    for asked in history.asked:
        if asked.ending in ("refused", "answered") and not _happened(asked, truth):
            refused[asked.revision - 1].append(asked)
    for look in history.looked:
        looked[look.revision].append(look)
    model = ReplayModel()
    for revision in range(truth.newest + 1):
        if revision:
            _check_revision(model, truth.at(revision), doer)
        for asked in refused[revision]:
            _check_refused(model, asked)
        for look in looked[revision]:
            _check_look(model, look)
    assert not [look for look in history.looked if look.revision > truth.newest], "a read of a revision that never was"


def _happened(asked: Asked, truth: Truth) -> bool:
    return any(event.actor == asked.actor for event in truth.revisions.get(asked.revision, ()))


def _check_promises(history: History, truth: Truth) -> None:
    places: dict[str, int] = {}
    for event in truth.all():
        assert not event.redacted or truth.is_blanked(event), f"{event} says nothing of what is still there"
        known = places.setdefault(event.actor, event.revision)
        assert event.actor == "system" or known == event.revision, f"{event.actor} happened twice"
    for asked in history.asked:
        made = places.get(asked.actor)
        if asked.ending == "failed":
            assert made is None, f"{asked} failed, but is revision {made}"
        if asked.ending == "answered" and made is not None:
            asked.revision = asked.revision or made  # a repeated call got the stored answer
            assert made == asked.revision, f"{asked} is revision {made}"
            assert made > asked.floor, f"{asked} came before what was acknowledged when it was asked"
        if asked.ending in ("answered", "refused") and made is None:
            assert asked.revision > asked.floor, f"{asked} saw less than was acknowledged when it was asked"
            assert not asked.key, f"{asked} was acknowledged, and is not in the log"


def _check_revision(model: ReplayModel, events: Any, doer: dict[str, Asked]) -> None:
    actor = events[0].actor
    model.moment = as_microseconds(events[0].time)
    _choose_ids(model, events)
    if actor == "system":
        before = len(model.events)
        model.sweep()
        made = _as_told(model.events[before:], events)
        assert sorted(map(_loose, made)) == sorted(map(_loose, events)), f"the sweep {events} should be {made}"
        return
    asked = doer[actor]
    before = len(model.events)
    expected = model.run(asked)
    made = _as_told(model.events[before:], events)
    assert exact(_in_order(made)) == exact(_in_order(events)), (
        f"{asked} made {events}, expected {made} and {expected!r}"
    )
    if asked.ending == "answered":
        assert _same(asked, expected), f"{asked} should have been answered {expected!r}"


def _choose_ids(model: ReplayModel, events: Iterable[Event]) -> None:
    """What is random is the store's to say."""
    for event in events:
        match event.kind, event.op:
            case "lease", "create":
                model.next_lease = event.id
            case "task", "create":
                model.next_tasks.append(event.id)
            case "message", "send":
                model.next_messages.append((event.id, tuple(event.data["to"])))
            case "path", "acquire":
                model.next_paths.append(event.id)
            case "trail", "create":
                model.next_trails.append(event.id)
            case "stash", "create":
                model.next_stashes.append(event.id)
            case "link", "create":
                model.tie_ids[event.data["link_type"], event.data["from_id"], event.data["to_id"]] = event.id
        if event.kind == "stash" and event.data:
            model.entry_ids[event.id, event.version] = event.data["id"]


def _as_told(made: Iterable[Event], events: Iterable[Event]) -> list[Event]:
    """What the model made, without what a later revision of the same entry of the log has blanked."""
    blank = {(event.kind, event.scope, event.id, event.version) for event in events if event.redacted}
    return [
        msgspec.structs.replace(event, data={}, redacted=True)
        if (event.kind, event.scope, event.id, event.version) in blank
        else event
        for event in made
    ]


def _in_order(events: Iterable[Event]) -> list[Event]:
    """Locks that end together do so in any order, but after the task and at places of their own."""
    ends = ("release", "expire")
    keyed = [(event.id if event.kind == "path" and event.op in ends else "", event) for event in events]
    places = [event.position for event in events]
    assert places == [*range(len(places))], f"{events} are not numbered in order"
    return [msgspec.structs.replace(event, position=0) for _, event in sorted(keyed, key=lambda pair: pair[0])]


def _loose(event: Event) -> str:
    """What leases that end in the same moment may do in any order."""
    data = sorted(event.data.items())
    return repr((event.revision, event.time, event.kind, event.scope, event.id, event.op, event.version, data))


def _check_refused(model: ReplayModel, asked: Asked) -> None:
    """An operation that changed nothing: it must do nothing in the state it saw, and say the same."""
    model.moment = asked.now
    before = len(model.events)
    expected = model.run(asked)
    assert len(model.events) == before, f"{asked} did nothing, but should have made {model.events[before:]}"
    assert _same(asked, expected), f"{asked} should have ended with {expected!r}"


def _same(asked: Asked, expected: Any) -> bool:
    if isinstance(expected, errors.HoldfastError):
        return asked.error is not None and _facts(asked.error) == _facts(expected)
    if asked.error is not None:
        return False
    answer = _unwarned(asked.answer)
    return asked.op == "events.compact" or bool(exact(_plain(answer)) == exact(_plain(expected)))


def _unwarned(answer: Any) -> Any:
    """An answer without the warnings of mail: who is unknown to the model may have acted."""
    if isinstance(answer, TxnResult):
        return msgspec.structs.replace(answer, results=[_unwarned(each) for each in answer.results])
    return msgspec.structs.replace(answer, warnings=()) if isinstance(answer, Message) else agreed(answer)


def _ends_claim(event: Event) -> bool:
    return event.data.get("claimed_by", [None])[0] is not None


def _facts(error: errors.HoldfastError) -> Any:
    return type(error).__name__, {name: exact(error.details.get(name)) for name in _DETAILS}


def _check_look(model: ReplayModel, look: Looked) -> None:
    assert look.revision >= look.floor, f"{look} saw less than it had to"
    expected: Any
    model.moment = look.now
    match look.op:
        case "agents.get" if look.args["name"] not in model.state.agents:
            expected = look.answer  # it may have acted without leaving a revision
            assert isinstance(expected, tuple) or not expected.version, f"{look} saw one that has not registered"
        case _ if look.op.startswith(PERFORMED):
            try:
                expected = model.perform(look.op, look.args)
            except REFUSALS as error:
                expected = refusal(error)
        case "locks.find":
            row = model.state.locks.get(look.args["name"])
            expected = None if row is None or _over(row.lease, look.now) else model.grant(look.args["name"])
        case _:
            cell = model.state.cells.get((look.args["run"], look.args["cell"]))
            there = cell is not None and not _over(cell.lease, look.now)
            expected = there if look.op == "cells.exists" else model.find(**look.args) if there else None
    assert exact(_plain(look.answer)) == exact(_plain(expected)), f"{look} should have seen {expected!r}"


def refusal(error: errors.HoldfastError) -> tuple[Any, ...]:
    """What a read was told instead of an answer."""
    return error.code, error.details.get("holder"), error.details.get("lock")


def _plain(answer: Any) -> Any:
    """An answer as far as the model tells it.

    Reasons are without words, pages with their cursor, agents without a time, undos without what they changed.
    """
    match answer:
        case Readiness():
            reasons = tuple(Reason(reason.code, "", reason.ids) for reason in answer.reasons)
            return Readiness(answer.id, answer.ready, reasons)
        case list():
            return [*answer, answer.cursor if isinstance(answer, Page) else None]
        case Agent():
            return msgspec.structs.replace(answer, seen_at=None)
        case Undone():
            records = [msgspec.structs.replace(record, changes={}) for record in answer.records]
            return msgspec.structs.replace(answer, records=records, warnings=[])
    return answer


def _over(lease: Any, now: int) -> bool:
    return lease is not None and lease.deadline <= now
