"""Where tasks go and why, and what is wrong with a file of rules."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """Something wrong in a file. An error refuses the part it is in; a warning changes nothing."""

    file: str
    line: int
    severity: Literal["error", "warning"]
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}: {self.message}"


class Verdict(msgspec.Struct, frozen=True):
    """What one matcher said: matched, or the first reason why not."""

    name: str
    matched: bool
    reason: str


class RouteReport(msgspec.Struct, frozen=True):
    """How a task is routed and why: every matcher in order, and what they looked at."""

    selected_grimoire: str
    matched_by: str
    reason: str
    require_review: bool
    needs: tuple[str, ...]
    evaluation: tuple[Verdict, ...]
    task_properties: dict[str, Any]


class Loaded(msgspec.Struct, frozen=True):
    """What came of loading a file: whether its rules are in force now, how many there are, and what was wrong."""

    file: str
    stored: bool
    matchers: int
    problems: tuple[Problem, ...]
