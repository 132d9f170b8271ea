"""What clients ask of cycles, and what they remember of the answers: the sequence that each has read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.types.cycles import Cycle
from tests.simulation.task_workload import TaskClients

SPECS = ("s1", "s2")  # few, so that they meet
PHASES = ("plan", "execute", "express", "review")
MOST = 2  # cycles of a spec

Args = dict[str, Any]
Maker = Callable[["CycleClients"], Args]


class CycleClients:
    """Makes operations on cycles by chance."""

    def __init__(self, tasks: TaskClients) -> None:
        self.chance = tasks.chance
        self.tasks = tasks
        self.cycles: dict[str, Cycle] = {}  # each as an answer last told of it

    def learn(self, answer: Any) -> None:
        """Remember what an answer tells, mostly: some go on with what they read before."""
        if isinstance(answer, Cycle) and (answer.cycle_id not in self.cycles or self.chance.random() < 0.8):
            self.cycles[answer.cycle_id] = answer

    def instead(self, op: str) -> str:
        """What is done as long as there is nothing to do an operation to."""
        if op.startswith("cycles.") and not self.cycles:
            return "cycles.start"
        return "cycles.update_phase" if op == "cycles.start" and len(self.cycles) >= MOST * len(SPECS) else op

    def start(self) -> Args:
        return {"spec": self.chance.choice(SPECS), "instruction": self.chance.choice((None, "create-spec"))}

    def key(self) -> str:
        """One of the last cycles that are known."""
        return self.chance.choice([*self.cycles][-3:]) if self.cycles else "peer:spec:s1:cycle:1"

    def step(self, wanted: str, **more: Any) -> Args:
        """A step of the phase that is in the state wanted, mostly, with the sequence that was read, or without."""
        key = self.key()
        cycle = self.cycles.get(key)
        fitting = [] if cycle is None else [p for p in PHASES if getattr(cycle.phases, p).status == wanted]
        phase = fitting[0] if fitting and self.chance.random() < 0.85 else self.chance.choice(PHASES)
        return {"key": key, "phase": phase, **more, **self.sequence(cycle)}

    def sequence(self, cycle: Cycle | None) -> Args:
        if cycle is None or self.chance.random() < 0.4:
            return {}
        return {"sequence": max(1, cycle.sequence + self.chance.choice((0, 0, 0, 0, -1, 1)))}

    def output(self) -> Args:
        return {self.chance.choice("abc"): self.chance.choice((None, self.tasks.value()))}

    def finish(self) -> Args:
        key = self.key()
        return {"key": key, "error": self.chance.choice((None, "given up")), **self.sequence(self.cycles.get(key))}


OPERATIONS: dict[str, tuple[int, Maker]] = {
    "cycles.start": (1, CycleClients.start),
    "cycles.start_phase": (5, lambda c: c.step("pending")),
    "cycles.update_phase": (4, lambda c: c.step("in_progress", output=c.output())),
    "cycles.complete_phase": (6, lambda c: c.step("in_progress", output=c.chance.choice((None, {"made": 1})))),
    "cycles.add_error": (2, lambda c: c.step("in_progress", error=f"error {c.tasks.value()!s:.40}")),
    "cycles.fail_phase": (1, lambda c: c.step("in_progress", error="failed")),
    "cycles.finish": (1, CycleClients.finish),
}
READS: dict[str, Maker] = {
    "cycles.get": lambda c: {"key": c.key()},
    "cycles.resume": lambda c: {"spec": c.chance.choice(SPECS)},
}
