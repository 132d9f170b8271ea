"""Moments as people read them: how far from now, or exact with --times; always in the zone of the reader.

What a text of a domain says in UTC is brought into the same form by `readable`. JSON keeps RFC 3339.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final

_EXACT: Final[ContextVar[bool]] = ContextVar("exact", default=False)
# Seconds of a unit, up to how many seconds it is used, and how it is counted.
_UNITS: Final = ((1, 90, "s"), (60, 90 * 60, "min"), (3600, 36 * 3600, "h"), (86400, 60 * 86400, "days"))
_RECENT: Final = 60  # seconds that are "just now"
_ISO: Final = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z))"
_STATED: Final = rf"\b(since|until|at) {_ISO}"


def show_exact(exact: bool) -> None:
    """Show moments of this call exactly, or relative to now."""
    _EXACT.set(exact)


def moment(time: datetime) -> str:
    """A moment: "5 min ago", "in 29 min", far away its day; or exactly."""
    if _EXACT.get():
        return _written(time, "%Y-%m-%d %H:%M:%S")
    distance = _seconds(time)
    if -_RECENT < distance <= 0:
        return "just now"
    span = duration(abs(distance))
    if span is None:
        return _written(time, "%Y-%m-%d")
    return f"in {span}" if distance > 0 else f"{span} ago"


def until(time: datetime) -> str:
    """Until when something lasts: "for another 29 min", or "until" a time."""
    distance = _seconds(time)
    span = None if _EXACT.get() or distance <= 0 else duration(distance)
    return f"until {moment(time)}" if span is None else f"for another {span}"


def since(time: datetime) -> str:
    """Since when something is so: "for 29 min", or "since" a time."""
    distance = -_seconds(time)
    span = None if _EXACT.get() or distance < 0 else duration(distance)
    return f"since {moment(time)}" if span is None else f"for {span}"


def duration(seconds: float) -> str | None:
    """A span of time in the unit that fits; None if it is long."""
    for size, below, unit in _UNITS:
        if seconds < below:
            return f"{max(1, round(seconds / size))} {unit}"
    return None


def readable(text: str) -> str:
    """A text with its moments in UTC as the rest of the output shows them."""

    def shown(found: re.Match[str]) -> str:
        time = datetime.fromisoformat(found[2])
        match found[1]:
            case "since":
                return since(time)
            case "until":
                return until(time)
        return f"at {moment(time)}" if _EXACT.get() else moment(time)

    return re.sub(_STATED, shown, text) if "T" in text else text  # not compiled before: most calls do without


def _seconds(time: datetime) -> float:
    """How far a moment is ahead."""
    return (time - datetime.now(UTC)).total_seconds()


def _written(time: datetime, form: str) -> str:
    """In the reader's zone; in UTC at the ends of the calendar, which other zones leave."""
    try:
        return time.astimezone().strftime(form)
    except (OverflowError, ValueError):
        return f"{time.replace(tzinfo=None).isoformat(' ', 'seconds')}Z"
