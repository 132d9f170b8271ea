"""Moments as people read them: how far from now, or exact with --times; always in the zone of the reader.

What a text of a domain says in UTC is brought into the same form by `readable`. JSON keeps RFC 3339. `spoken` reads
what people type.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
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


# --- what people type ------------------------------------------------------------------------------------------------

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NEAR: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
_HOURS: Final = {"midnight": (0, 0), "noon": (12, 0)}
_TIMES: Final = {"last night": "yesterday 18:00", "this morning": "today 6:00", "tonight": "today 18:00"}
_CLOCK: Final = r"(\d{1,2})(?::(\d\d))? ?(am|pm)?"
_SPAN: Final = r"(in )?(\d+) ?(min|minutes?|h|hours?|days?|weeks?)( ago)?"
_SPANS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def spoken(text: str, now: datetime, plain: int) -> datetime:
    """A moment as people say it: tomorrow, monday 9:00, today 17:30, 9am, in 2 days. Raises ValueError for others.

    A day without a time begins at midnight, in the zone of `now`. A weekday or a time of day is the next one, or the
    last one where `plain` is -1.
    """
    said = " ".join(text.lower().replace(",", " ").split())
    words = _TIMES.get(said, said).split()
    if span := re.fullmatch(_SPAN, said):
        sign = -1 if span[4] else 1 if span[1] else plain
        return now + sign * timedelta(seconds=int(span[2]) * _SPANS[span[3][0]])
    while words and words[0] in ("next", "last", "on", "at"):
        words.pop(0)
    day = words.pop(0) if words and (words[0] in _NEAR or _weekday(words[0]) is not None) else ""
    time = _time_of_day(" ".join(word for word in words if word != "at"))
    if not day and time is None:
        raise ValueError(text)
    start = _at(now, _NEAR.get(day, 0), time or (0, 0))
    if day in _NEAR:
        return start
    week = _weekday(day)
    step = 1 if week is None else 7
    moment = start if week is None else _at(now, (week - now.weekday()) % 7, time or (0, 0))
    days = (moment.date() - now.date()).days
    if plain > 0:
        return moment if moment > now else _at(now, days + step, time or (0, 0))
    return moment if moment <= now else _at(now, days - step, time or (0, 0))


def _weekday(word: str) -> int | None:
    """The number of a weekday, by its name or its first three letters or more."""
    return next((at for at, name in enumerate(_DAYS) if len(word) > 2 and name.startswith(word)), None)


def _time_of_day(text: str) -> tuple[int, int] | None:
    """Hour and minute; None if there is no text. Raises ValueError for one that is no time."""
    if not text:
        return None
    if text in _HOURS:
        return _HOURS[text]
    found = re.fullmatch(_CLOCK, text)
    if found is None or not (found[2] or found[3]):
        raise ValueError(text)
    hour, minute = int(found[1]), int(found[2] or 0)
    if found[3]:
        if not 1 <= hour <= 12:
            raise ValueError(text)
        hour = hour % 12 + 12 * (found[3] == "pm")
    if hour > 23 or minute > 59:
        raise ValueError(text)
    return hour, minute


def _at(now: datetime, days: int, time: tuple[int, int]) -> datetime:
    """A time of day so many days from now, in the zone of the reader: days differ in their hours."""
    day = now.date() + timedelta(days=days)
    return datetime(day.year, day.month, day.day, *time).astimezone()


def _seconds(time: datetime) -> float:
    """How far a moment is ahead."""
    return (time - datetime.now(UTC)).total_seconds()


def _written(time: datetime, form: str) -> str:
    """In the reader's zone; in UTC at the ends of the calendar, which other zones leave."""
    try:
        return time.astimezone().strftime(form)
    except (OverflowError, ValueError):
        return f"{time.replace(tzinfo=None).isoformat(' ', 'seconds')}Z"
