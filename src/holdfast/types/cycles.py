"""Cycles as operations answer them: a document of four phases, what is wrong with one, what became of one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

PhaseName = Literal["plan", "execute", "express", "review"]
PhaseStatus = Literal["pending", "in_progress", "completed", "failed"]
CycleStatus = Literal["initialized", "in_progress", "completed", "failed"]
ListedStatus = Literal["initialized", "in_progress", "completed", "failed", "corrupt"]


class CyclePhase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase: `output` is what it made, or has so far; `errors` what went wrong on the way."""

    status: PhaseStatus
    started_at: datetime | None = None
    completed_at: datetime | None = None
    sequence_at_start: int | None = None
    sequence_at_complete: int | None = None
    output: Any = None
    errors: list[Any] | None = None


class CyclePhases(msgspec.Struct, frozen=True):
    """The four phases, in their order."""

    plan: CyclePhase
    execute: CyclePhase
    express: CyclePhase
    review: CyclePhase


class CycleMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle is about and where it stands. `current_phase` is the one that was started last."""

    key_prefix: str
    cycle_number: int
    created_at: datetime
    updated_at: datetime
    status: CycleStatus
    instruction: str | None = None
    spec_name: str | None = None
    current_phase: PhaseName | None = None


class CycleEntry(msgspec.Struct, frozen=True):
    """A step of a cycle, and the sequence that it was written with."""

    timestamp: datetime
    phase: PhaseName
    event: str
    sequence: int


class Cycle(msgspec.Struct, frozen=True):
    """A cycle: one document, written whole. Each write adds 1 to `sequence`."""

    version: int
    cycle_id: str
    sequence: int
    metadata: CycleMetadata
    context: dict[str, Any]
    phases: CyclePhases
    history: list[CycleEntry]


class CycleInfo(msgspec.Struct, frozen=True):
    """A line of the list of cycles. `status` "corrupt": its document is broken, `recover` mends it."""

    key: str
    number: int
    sequence: int
    status: ListedStatus
    current_phase: PhaseName | None
    created_at: datetime
    updated_at: datetime
    revision: int


class CycleProblem(msgspec.Struct, frozen=True):
    """What is wrong in a document, and where: `path` is such as `$.phases.plan.status`."""

    path: str
    message: str


class Resumption(msgspec.Struct, frozen=True):
    """Where to go on: `phase` comes next, with what it has so far; None: all are done, and `finish` is left."""

    cycle: Cycle
    phase: PhaseName | None
    started: bool
    partial: Any = None


class Recovery(msgspec.Struct, frozen=True):
    """What `recover` did: the cycle as it is now, from which version, what was wrong, and what was lost by it.

    `problems` empty: the document was sound, and nothing was written. `snapshot` is the broken one, as it was found.
    """

    cycle: Cycle
    recovered_from: int
    problems: list[CycleProblem]
    lost: list[CycleProblem]
    snapshot: str | None


class CycleNote(msgspec.Struct, frozen=True):
    """What there is to say about an entry of an import, by the key that it came under.

    Of a conflict, `differences` has each place where the two differ: what is here, and what it became there.
    """

    key: str
    message: str
    differences: list[CycleProblem] = []


class CycleReport(msgspec.Struct, frozen=True):
    """What became of every cycle of an import, or would: their keys, and what there is to say.

    `conflicts` are here already and went another way, and were left alone; `skipped` could not be read.
    """

    created: list[str]
    updated: list[str]
    unchanged: list[str]
    conflicts: list[CycleNote]
    skipped: list[CycleNote]
    warnings: list[CycleNote]
    dry_run: bool = False


class CycleComparison(msgspec.Struct, frozen=True):
    """A cycle here and a document of it from elsewhere: which of them goes on from the other.

    `how`: "same"; "ours" or "theirs", which has all of the other; "merge", if each changed other parts; "refuse".
    `document` is the one that has all, or theirs if it is refused; `mine` is ours, `shared` whether nothing was done to
    it since it was exchanged. `differences` of those that are refused: what is here, and what it became there.
    """

    key: str
    how: Literal["same", "ours", "theirs", "merge", "refuse"]
    why: str
    mine: dict[str, Any]
    document: dict[str, Any]
    shared: bool
    differences: list[CycleProblem]
