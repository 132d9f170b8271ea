"""Cycles as operations return them: a document of four phases, its problems, reports of recovery and import."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

PhaseName = Literal["plan", "execute", "express", "review"]
PhaseStatus = Literal["pending", "in_progress", "completed", "failed"]
CycleStatus = Literal["initialized", "in_progress", "completed", "failed"]
ListedStatus = Literal["initialized", "in_progress", "completed", "failed", "corrupt"]


class CyclePhase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase: `output` is its result, complete or partial; `errors` lists what went wrong."""

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
    """A cycle's subject and status. `current_phase` is the phase started last."""

    key_prefix: str
    cycle_number: int
    created_at: datetime
    updated_at: datetime
    status: CycleStatus
    instruction: str | None = None
    spec_name: str | None = None
    current_phase: PhaseName | None = None


class CycleEntry(msgspec.Struct, frozen=True):
    """A step of a cycle, and the sequence at which it was written."""

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
    """An entry of the list of cycles. `status` "corrupt": its document is damaged; `recover` repairs it."""

    key: str
    number: int
    sequence: int
    status: ListedStatus
    current_phase: PhaseName | None
    created_at: datetime
    updated_at: datetime
    revision: int


class CycleProblem(msgspec.Struct, frozen=True):
    """A problem in a document; `path` says where, as in `$.phases.plan.status`."""

    path: str
    message: str


class Resumption(msgspec.Struct, frozen=True):
    """Where to resume: the next `phase` and its partial output. None: all phases are done; call `finish`."""

    cycle: Cycle
    phase: PhaseName | None
    started: bool
    partial: Any = None


class Recovery(msgspec.Struct, frozen=True):
    """The result of `recover`: the cycle, the version it was recovered from, what was wrong and what was lost.

    `problems` is empty if the document was sound; then nothing was written. `snapshot` is the damaged document.
    """

    cycle: Cycle
    recovered_from: int
    problems: list[CycleProblem]
    lost: list[CycleProblem]
    snapshot: str | None


class CycleComparison(msgspec.Struct, frozen=True):
    """A cycle of this workspace compared with a document of it from elsewhere.

    `how`: "same"; "ours" or "theirs", the one that contains the other; "merge" if they changed different parts;
    "refuse" otherwise. `document` is the result, or theirs if refused; `mine` is ours; `shared` is True if ours has not
    changed since the last exchange. `differences` lists what differs if refused.
    """

    key: str
    how: Literal["same", "ours", "theirs", "merge", "refuse"]
    why: str
    mine: dict[str, Any]
    document: dict[str, Any]
    shared: bool
    differences: list[CycleProblem]
