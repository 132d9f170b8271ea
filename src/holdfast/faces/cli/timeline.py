"""A cycle as a timeline: a line for each of its four phases, with a bar where it lies in the time of the whole.

Called by `holdfast cycle show`. The bars share one axis, from the beginning of the first phase to the last thing known.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.faces.cli.output import printable
from holdfast.faces.cli.views import Paint, moment
from holdfast.types.cycles import Cycle, CyclePhase

COLOURS: Final = {"completed": "green", "in_progress": "cyan", "failed": "red"}
_PHASES: Final = ("plan", "execute", "express", "review")
_ENDS: Final = {"in_progress": ">", "failed": "x"}
_BESIDE: Final = 48  # columns that a line needs besides its bar
_LEAST: Final = 8
_ERRORS: Final = 5  # of a phase; more are counted


def timeline(cycle: Cycle, width: int, paint: Paint) -> list[str]:
    """The lines, none longer than `width` where that leaves room for them."""
    metadata = cycle.metadata
    where = f" in {metadata.current_phase}" if metadata.current_phase and metadata.status != "completed" else ""
    status = paint(COLOURS.get(metadata.status, "dim"), metadata.status)
    about = [f"sequence {cycle.sequence}", *([metadata.instruction] if metadata.instruction else [])]
    lines = [
        f"{paint('bold', printable(cycle.cycle_id))}  {status}{where}  {paint('dim', printable('  '.join(about)))}",
        paint("dim", f"created {moment(metadata.created_at)}  updated {moment(metadata.updated_at)}"),
        "",
    ]
    phases: dict[str, CyclePhase] = {name: getattr(cycle.phases, name) for name in _PHASES}
    axis = _axis(cycle, phases)
    for name, phase in phases.items():
        current = name == metadata.current_phase and metadata.status in ("in_progress", "failed")
        lines.append(_line(name, phase, current, axis, max(width - _BESIDE, _LEAST), paint).rstrip())
        lines += [paint("red", _fit(f"             ! {text}", width)) for text in _errors(phase)]
    return lines


def duration(time: timedelta) -> str:
    """How long something took, in its two largest units."""
    left = max(int(time.total_seconds()), 0)
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    for place, (unit, size) in enumerate(units):
        if left >= size and unit != "s":
            smaller, next_size = units[place + 1]
            return f"{left // size}{unit} {left % size // next_size}{smaller}"
    return f"{left}s"


def _axis(cycle: Cycle, phases: dict[str, CyclePhase]) -> tuple[datetime, datetime] | None:
    known = [time for phase in phases.values() for time in (phase.started_at, phase.completed_at) if time is not None]
    if not known:
        return None
    going = any(phase.status == "in_progress" for phase in phases.values())
    return min(known), max(known + ([cycle.metadata.updated_at] if going else []))


def _line(
    name: str, phase: CyclePhase, current: bool, axis: tuple[datetime, datetime] | None, width: int, paint: Paint
) -> str:
    colour = COLOURS.get(phase.status, "dim")
    bar = paint(colour, _bar(phase, axis, width))
    mark = paint("bold", f"> {name:<8}") if current else f"  {name:<8}"
    told = ""
    if axis is not None and phase.started_at is not None:
        end = phase.completed_at or (axis[1] if phase.status == "in_progress" else None)
        begun = f"+{duration(phase.started_at - axis[0])}"
        lasted = "" if end is None else duration(end - phase.started_at)
        told = f"{begun:<9}{lasted}{' so far' if lasted and phase.completed_at is None else ''}"
    return f"{mark} [{bar}] {paint(colour, f'{phase.status:<11}')} {told}"


def _bar(phase: CyclePhase, axis: tuple[datetime, datetime] | None, width: int) -> str:
    """Where a phase lies on the axis; dashes if it happened and nobody knows when."""
    if phase.status == "pending":
        return "." * width
    if axis is None or phase.started_at is None:
        return "-" * width
    whole = (axis[1] - axis[0]) / timedelta(seconds=1) or 1.0
    end = phase.completed_at or (axis[1] if phase.status == "in_progress" else phase.started_at)
    first = min(int(width * ((phase.started_at - axis[0]) / timedelta(seconds=1)) / whole), width - 1)
    last = min(max(round(width * ((end - axis[0]) / timedelta(seconds=1)) / whole), first + 1), width)
    filled = "#" * (last - first - 1) + _ENDS.get(phase.status, "#")
    return f"{'.' * first}{filled}{'.' * (width - last)}"


def _errors(phase: CyclePhase) -> list[str]:
    told = [printable(_message(error)) for error in phase.errors or ()]
    more = len(told) - _ERRORS
    return [*told[-_ERRORS:], *([f"and {more} before them"] if more > 0 else [])]


def _message(error: Any) -> str:
    found = error.get("message", error) if isinstance(error, dict) else error
    return found if isinstance(found, str) else repr(found)


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 1, 1)]}…"
